"""Texts of positions: they compare as the log orders its mutations."""

from __future__ import annotations

import numpy as np

from binlake.merge.position_texts import boundary_text, log_mark, mutation_text, mutation_texts


def test_texts_compare_as_the_log_orders_mutations() -> None:
    places = [
        (1, 4, 0), (1, 4, 1), (1, 4, 10), (1, 12345, 7), (1, 10**12, 0), (2, 4, 0), (999_999, 4, 0), (1_000_000, 4, 0),
        (10_000_000, 4, 0),
    ]  # fmt: skip
    texts = mutation_texts(*(np.array(part, np.int64) for part in zip(*places, strict=True))).to_pylist()
    assert texts == sorted(texts)
    assert len(set(texts)) == len(texts)


def test_a_text_is_as_wide_as_its_log_needs() -> None:
    (text,) = mutation_texts(*(np.array([part], np.int64) for part in (1, 12345, 7))).to_pylist()
    assert text == "000001:000000012345:000000007"
    boundary = boundary_text(1, 12345)
    assert boundary == "000001:000000012345"
    assert mutation_texts(*(np.array([part], np.int64) for part in (1, 12344, 9))).to_pylist()[0] < boundary < text


def test_the_texts_of_many_are_those_of_each() -> None:
    chance = np.random.default_rng(7)
    columns = [chance.integers(0, 10**digits, 500) for digits in (6, 12, 9)]
    each = [mutation_text(*(int(number) for number in place)) for place in zip(*columns, strict=True)]
    assert mutation_texts(*columns).to_pylist() == each
    assert mutation_texts(*(column[:0] for column in columns)).to_pylist() == []


def test_the_rows_of_an_event_share_its_text() -> None:
    for most in (900, 9_000, 9_000_000):
        rows = [np.arange(0, most, step) for step in (most, most // 7, most // 3, most)]
        file, offset = (np.repeat([*places], [len(part) for part in rows]) for places in ((1, 1, 2, 3), (4, 900, 4, 4)))
        columns = (file, offset, np.concatenate(rows))
        each = [mutation_text(*(int(number) for number in place)) for place in zip(*columns, strict=True)]
        assert mutation_texts(*columns).to_pylist() == each


def test_positions_of_each_further_log_are_greater() -> None:
    marks = [log_mark(number) for number in range(80)]
    assert marks[:3] == ["", "a", "b"]
    assert marks == sorted(set(marks))
    assert boundary_text(10**9, 4) < "a" + boundary_text(1, 4)
