"""What is staged of mutations of rows that come in and leave."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from binlake.binlog.border import DELETE, INSERT, UPDATE, Mutations, Stopped
from binlake.binlog.staged_schema import staged_schema
from binlake.schema.invalid import FAIL
from binlake.schema.table import Column, TableName
from binlake.staging.filtered_rows import RowFilters

NAME = TableName("shop", "orders")
COLUMNS = (Column("id", "int"), Column("status", "varchar", length=9, charset="utf8mb4"))
Image = tuple[int, str] | None


def mutations(*rows: tuple[int, Image, Image], absent: tuple[str, ...] = ()) -> Mutations:
    schema = staged_schema(COLUMNS, FAIL)

    def image(values: Image) -> dict[str, Any] | None:
        return None if values is None else {"id": values[0], "status": values[1]}

    listed = [
        {
            "op": op,
            "file": 1,
            "offset": 100 + place,
            "row": 0,
            "committed_us": 0,
            "before": image(old),
            "after": image(new),
        }
        for place, (op, old, new) in enumerate(rows)
    ]
    batch = pa.RecordBatch.from_pylist(listed, schema)
    return Mutations(NAME, COLUMNS, ("id",), 0, batch, absent, (0, 255))


def staged(filters: RowFilters, item: Mutations) -> list[Any]:
    found: list[Any] = []
    for passed in filters.passing([item]):
        if isinstance(passed, Stopped):
            found.append((passed.file, passed.offset))
        else:
            assert isinstance(passed, Mutations)
            passed.batch.validate(full=True)
            for row in passed.batch.to_pylist():
                images = (tuple(row[side].values()) if row[side] else None for side in ("before", "after"))
                found.append((row["op"], *images))
    return found


def filters(condition: str = "status <> 'draft'") -> RowFilters:
    return RowFilters(lambda name: condition if name == NAME else "", "binlog.000001")


def test_both_images_decide() -> None:
    chosen = filters()
    given = mutations(
        (INSERT, None, (1, "new")),
        (INSERT, None, (2, "draft")),
        (UPDATE, (1, "new"), (1, "paid")),
        (UPDATE, (1, "paid"), (1, "Draft")),
        (UPDATE, (2, "draft"), (3, "new")),
        (UPDATE, (4, "draft"), (4, "DRAFT")),
        (DELETE, (3, "new"), None),
        (DELETE, (4, "draft"), None),
    )
    assert staged(chosen, given) == [
        (INSERT, None, (1, "new")),
        (UPDATE, (1, "new"), (1, "paid")),
        (DELETE, (1, "paid"), None),
        (INSERT, None, (3, "new")),
        (DELETE, (3, "new"), None),
    ]
    assert chosen.left_out == {NAME: 101}


def test_nothing_of_a_row_outside_stays_in_memory() -> None:
    (passed,) = filters().passing([mutations((UPDATE, (1, "draft"), (1, "new")), (UPDATE, (2, "a"), (2, "draft")))])
    assert isinstance(passed, Mutations)
    for side in ("before", "after"):
        values = passed.batch.column(side).field("status")
        assert b"draft" not in values.buffers()[2].to_pybytes()


def test_rows_that_all_pass_are_the_same_ones() -> None:
    given = mutations((INSERT, None, (1, "new")), (UPDATE, (1, "new"), (1, "b")))
    assert list(filters().passing([given])) == [given]
    assert list(filters("").passing([given])) == [given]
    assert list(filters().passing([mutations((INSERT, None, (1, "draft")))])) == []


def test_a_row_of_which_nothing_is_certain_stops_the_table_there() -> None:
    given = mutations(
        (INSERT, None, (1, "new")),
        (UPDATE, (2, "dräft"), (2, "draft")),
        (INSERT, None, (3, "größer")),
        (DELETE, (4, "dräft"), None),
    )
    found = staged(filters(), given)
    assert found[:2] == [("binlog.000001", 101), ("binlog.000001", 103)]
    assert (INSERT, None, (1, "new")) in found


def test_images_that_lack_the_column_and_conditions_that_do_not_fit_stop_the_table() -> None:
    rows = (INSERT, None, (1, "new")), (INSERT, None, (2, "new"))
    assert staged(filters(), mutations(*rows, absent=("status",))) == [("binlog.000001", 100), ("binlog.000001", 101)]
    assert staged(filters("state = 'a'"), mutations(*rows)) == [("binlog.000001", 100), ("binlog.000001", 101)]
    assert len(staged(filters(), mutations(*rows, absent=("id",)))) == 2
