"""Which batch merged an interval, as a run says that finds nothing new before its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from binlake.position import Position
from binlake.records.intervals import MergedBy, merged_by
from binlake.store.metadata import Metadata

NINE = datetime(2026, 1, 31, 9, tzinfo=UTC)


def microseconds(hour: float) -> int:
    """Of an hour of that day."""
    return int((NINE + timedelta(hours=hour - 9)).timestamp() * 1e6)


def stop(batch: int) -> Position:
    return Position("s", "b.000001", 100 * batch, 1)


@pytest.fixture
def metadata(tmp_path: Path) -> Metadata:
    """A snapshot at eight, then a batch up to nine, one up to the head at half past ten, and one that is open."""
    metadata = Metadata(str(tmp_path))
    metadata.append("runs", [{"run": "first", "kind": "bootstrap", "started_us": microseconds(8)}])
    batches: list[dict[str, Any]] = [
        {"batch": 1, "until_us": microseconds(9), "planned_us": microseconds(9.1)},
        {"batch": 2, "until_us": None, "planned_us": microseconds(10.5)},
        {"batch": 3, "until_us": microseconds(20), "planned_us": microseconds(20), "state": "planned"},
    ]
    for row in batches:
        metadata.append("batches", [{"state": "recorded", "stop": str(stop(row["batch"])), **row}])
    return metadata


@pytest.mark.parametrize(
    ("hour", "expected"),
    [
        (7, MergedBy(None, None)),
        (8.5, MergedBy(1, stop(1))),
        (9, MergedBy(1, stop(1))),
        (10, MergedBy(2, stop(2))),
        (11, None),
    ],
)
def test_the_first_batch_that_had_it_all(metadata: Metadata, hour: float, expected: MergedBy | None) -> None:
    assert merged_by(metadata, NINE + timedelta(hours=hour - 9)) == expected


def test_an_interval_that_was_merged_by_a_batch_of_its_own_is_that_batchs(metadata: Metadata) -> None:
    """Also where its commits have older times than the snapshot: a session's timestamp can be set."""
    metadata.append("batches", [{"batch": 0, "state": "recorded", "until_us": microseconds(7), "stop": str(stop(9))}])
    assert merged_by(metadata, NINE - timedelta(hours=2)) == MergedBy(0, stop(9))
    assert MergedBy(0, stop(9)).text == "it was merged by batch 0, whose stop is b.000001:900"


def test_nothing_is_known_of_a_lake_without_runs(tmp_path: Path) -> None:
    assert merged_by(Metadata(str(tmp_path)), NINE) is None
