"""A self-test misses what a broken comparison misses, and says so."""

from __future__ import annotations

import pyarrow as pa
import pytest

from binlake.schema.table import Column, TableName, TableSchema
from binlake.verify.reading import row_checksums
from binlake.verify.reading.key_cells import ComparedColumns
from binlake.verify.reading.row_checksums import Checksums
from binlake.verify.self_test import self_test

NAME = TableName("shop", "t")
ID, WORD, NUMBER = (
    Column("id", "int", nullable=False),
    Column("word", "varchar", length=20, charset="utf8mb4"),
    Column("n", "int"),
)
COMPARED = ComparedColumns(TableSchema((ID, WORD, NUMBER), ("id",), "primary", charset="utf8mb4"))


def rows(*values: tuple[int, str | None, int | None]) -> pa.RecordBatch:
    columns = dict(zip(("id", "word", "n"), zip(*values, strict=True), strict=True)) if values else {}
    arrays = [pa.array(columns.get(field.name, [None] * len(values)), field.type) for field in COMPARED.arrow]
    return pa.RecordBatch.from_arrays(arrays, schema=COMPARED.arrow)


SOME = rows((1, "a", 1), (2, "", 2), (3, None, None), (4, "four", 4))


def test_all_are_found() -> None:
    tested = self_test(NAME, COMPARED, SOME)
    assert not tested.missed
    assert set(tested.planted) >= {"flipped bit", "missing row", "twin", "swapped pair", "stale row", "truncated text"}
    assert "all" in tested.to_text()


def test_a_comparison_that_skips_a_column_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    add = row_checksums._add

    def skipping(column: pa.Array, *others: object) -> None:
        if not pa.types.is_string(column.type):
            add(column, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(row_checksums, "_add", skipping)
    tested = self_test(NAME, COMPARED, SOME)
    assert {"flipped bit in word", "truncated text in word", "swapped pair in word"} <= set(tested.missed)
    assert "flipped bit in n" not in tested.missed
    assert "MISSED" in tested.to_text()


def test_a_table_without_rows_is_not_tested() -> None:
    assert self_test(NAME, COMPARED, rows()).reason == "it has no rows"


def test_checksums_depend_on_values_alone() -> None:
    """Not on how Arrow holds them: slices, parts, nulls that cover other values."""
    whole = Checksums.of(SOME.columns, 4)
    for begin, count in ((0, 4), (1, 2), (3, 1)):
        part = SOME.slice(begin, count)
        assert (Checksums.of(part.columns, count).pairs() == whole.pairs()[begin : begin + count]).all()
    joined = pa.concat_batches([SOME.slice(0, 1), SOME.slice(1)])
    assert (Checksums.of(joined.columns, 4).pairs() == whole.pairs()).all()
    covered = SOME.take(pa.array([0, 1, 2, 3]))
    assert (Checksums.of(covered.columns, 4).pairs() == whole.pairs()).all()


def test_a_value_in_another_column_is_another_row() -> None:
    numbers = pa.array([7, None]), pa.array([None, 7])
    first, second = Checksums.of(numbers, 2).pairs().tolist()
    assert first != second
    ends = Checksums.of([pa.array(["ab", "a", ""]), pa.array(["c", "bc", "abc"])], 3).pairs().tolist()
    assert len(set(ends)) == 3
