"""Text to the bytes of a character set: what comes back is the same text, or an error."""

from __future__ import annotations

import pytest

from binlake.schema import charsets

NAMES = sorted({name for number in range(4096) if (name := charsets.charset(number))} - {"binary"})
BEYOND = {"utf8mb3", "ucs2"}
"""Without characters beyond the basic plane."""


def in_tables(name: str) -> set[str]:
    known = charsets.tables()
    return {chr(code) for size in (1, 2, 3) for code in known.get(f"{name}{size}", ()) if code}


@pytest.mark.parametrize("name", NAMES)
def test_every_character_of_a_set_comes_back(name: str) -> None:
    text = "".join(sorted(in_tables(name))) or "aä€\u1e3f\ue7c7日" + ("" if name in BEYOND else "😀")
    assert charsets.decoder(name)(charsets.encoder(name)(text)) == text


def test_what_a_set_has_no_code_for_is_an_error() -> None:
    for name, text in (("latin1", "日"), ("ascii", "é"), ("sjis", "😀"), ("ucs2", "😀"), ("utf16", "\ud800")):
        with pytest.raises(UnicodeEncodeError):
            charsets.encoder(name)(text)


def test_a_set_has_a_collation_that_is_its_own() -> None:
    for name in NAMES:
        assert charsets.charset(charsets.default_collation(name)) == name
