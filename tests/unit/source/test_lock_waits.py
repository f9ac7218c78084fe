"""What the statements of other sessions begin with."""

from __future__ import annotations

import time

import pytest

from binlake.source.lock_waits import _first_words


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("select 1", "SELECT"),
        ("  /* a */ (\n-- b\n# c\n ((update t", "UPDATE"),
        ("123", "a statement"),
        (" " * 200 + "/*!50000 SELECT SLEEP(9) */", "a statement"),
        ("(" * 5000 + " \n" * 5000 + "1", "a statement"),
        ("/*" * 5000, "a statement"),
    ],
)
def test_the_first_word_of_any_text(text: str, word: str) -> None:
    began = time.process_time()
    assert list(_first_words(text)) == [word]
    assert time.process_time() - began < 1
