"""Versions of rows in a history: which of them no log can have told."""

from __future__ import annotations

import pyarrow as pa
import pytest

from binlake.config.table_modes import HistoryMode
from binlake.schema.table import Column, TableSchema
from binlake.verify.reading.key_cells import ComparedColumns
from binlake.verify.reading.row_versions import RowVersions

SCHEMA = TableSchema((Column("id", "bigint", nullable=False),), ("id",), "primary")
OWN = HistoryMode().own
Version = tuple[int | None, str, str | None]


def problems(*versions: Version, since: str = "", current: list[bool] | None = None) -> list[str]:
    ids, begins, ends = zip(*versions, strict=True)
    columns = {"id": pa.array(ids, pa.int64()), OWN.from_position: pa.array(begins)}
    columns[OWN.to_position] = pa.array(ends, pa.string())
    if OWN.is_current:
        columns[OWN.is_current] = pa.array(current or [end is None for end in ends])
    checked = RowVersions()
    for start in range(0, len(versions), 2):
        rows = pa.record_batch(columns).slice(start, 2)
        checked.add(rows, since, ComparedColumns(SCHEMA), OWN)
    return checked.problems()


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ([(1, "1", "2"), (1, "2", "5"), (1, "7", None), (2, "1", None)], []),
        ([(1, "1", None), (2, "1", None), (1, "2", None)], ["rows with two current versions: 1"]),
        ([(1, "1", "4"), (1, "3", None)], ["versions that end behind the beginning of the next one: 1"]),
        ([(1, "1", None), (1, "3", "4")], ["versions that end behind the beginning of the next one: 1"]),
        ([(1, "4", "4"), (2, "5", "3")], ["versions that end before they begin, or are marked wrongly as current: 2"]),
        ([(None, "1", "4"), (None, "1", "4")], []),
    ],
)
def test_what_overlaps(versions: list[Version], said: list[str]) -> None:
    assert problems(*versions) == said


def test_what_was_looked_at_before_is_left_out() -> None:
    assert problems((1, "1", "4"), (1, "3", "5"), (1, "6", None), since="6") == []


def test_a_wrong_mark() -> None:
    said = ["versions that end before they begin, or are marked wrongly as current: 1"]
    assert problems((1, "1", "2"), (1, "2", None), current=[True, True]) == said
