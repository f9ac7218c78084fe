"""Which shapes show what is withheld from the lake by now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from binlake.config.units import HOUR_US
from binlake.planner.steps import Life
from binlake.position import Position
from binlake.records import watermarks
from binlake.records.former_shapes import may_show_more, showed_more, shows_more
from binlake.schema.mask import Mask
from binlake.schema.table import Column, TableName, TableSchema
from binlake.store.metadata import Metadata
from binlake.store.rows import ShapeRow

HERE, NAME = Position("s", "b.000001", 4, 1), TableName("d", "t")
PLAIN = TableSchema((Column("id", "int"), Column("v", "int")), ("id",))
MASKED = TableSchema((Column("id", "int"), Column("v", "int", mask=Mask("nothing"))), ("id",))
RENAMED = TableSchema((Column("id", "int"), Column("w", "int", mask=Mask("nothing"), server_name="v")), ("id",))
WITHOUT = TableSchema((Column("id", "int"),), ("id",))


@pytest.mark.parametrize(
    ("former", "now", "shows"),
    [
        (PLAIN, MASKED, True),
        (MASKED, MASKED, False),
        (MASKED, PLAIN, False),
        (PLAIN, RENAMED, True),
        (MASKED, RENAMED, False),
        (RENAMED, MASKED, False),
        (PLAIN, replace(PLAIN, excluded=frozenset({"v"})), True),
        (PLAIN, replace(PLAIN, where="id > 1"), True),
        (replace(PLAIN, where="id > 1"), PLAIN, False),
    ],
)
def test_a_former_shape_shows_more_where_less_is_shown_now(former: TableSchema, now: TableSchema, shows: bool) -> None:
    assert shows_more(former, now, {}) == shows


@pytest.mark.parametrize(
    ("former", "mask", "shows"),
    [(PLAIN, "nothing", True), (MASKED, "nothing", False), (MASKED, "hash", True), (WITHOUT, "nothing", False)],
)
def test_a_masked_column_that_the_table_has_no_more_counts(former: TableSchema, mask: Any, shows: bool) -> None:
    assert shows_more(former, WITHOUT, {"v": Mask(mask)}) == shows
    assert not shows_more(former, WITHOUT, {})
    assert may_show_more(former, WITHOUT) == (former is not WITHOUT)


def test_a_copy_at_the_same_position_keeps_the_shape_with_a_column_that_was_dropped(tmp_path: Path) -> None:
    metadata, now = Metadata(str(tmp_path / "m")), Life("a", NAME, WITHOUT, HERE, HERE)
    for schema in (PLAIN, WITHOUT, WITHOUT):
        watermarks.started(metadata, [Life("a", NAME, schema, HERE, HERE)], batch=1, versions={"a": 1})
    assert showed_more(metadata, now, {"v": Mask("nothing")}, 0)
    assert not showed_more(metadata, now, {}, 0)
    assert len(ShapeRow.read(metadata)) == 2


def test_shapes_from_before_a_time_count_as_far_as_the_last_of_them(tmp_path: Path) -> None:
    metadata, now = Metadata(str(tmp_path / "m")), Life("c", NAME, MASKED, HERE, HERE)
    for life, at_us in (("a", 1), ("b", 10)):
        schema = PLAIN if life == "a" else MASKED
        row = watermarks.schema_row(Life(life, NAME, schema, HERE, HERE), batch=1, where=HERE, why="followed")
        ShapeRow.append(metadata, [replace(row, at_us=at_us * HOUR_US)])
    known = {hour: showed_more(metadata, now, {}, hour * HOUR_US) for hour in (0, 5, 10, 12)}
    assert known == {0: True, 5: True, 10: True, 12: False}
