"""What the log claims of data files is compared with their rows: what is right is never blamed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap64

from binlake.delta import data_rows, deletion_vectors, plain_tables
from binlake.delta.claimed_statistics import WrongFiles
from binlake.delta.delta_log import LakeLog
from binlake.delta.delta_schema import DeltaSchema
from binlake.delta.plain_files import with_true_statistics
from binlake.delta.plain_tables import OwnCommit
from damaged_log import change_statistics

COLUMNS = (
    ("id", "BIGINT"), ("name", "STRING"), ("price", "DECIMAL(38,10)"), ("at", "TIMESTAMP"), ("day", "DATE"),
    ("ratio", "DOUBLE"), ("data", "BINARY"),
)  # fmt: skip
ROWS = pa.table(
    {
        "id": pa.array([3, 1, 2**62], pa.int64()),
        "name": pa.array(["a", None, "é" * 40]),
        "price": pa.array(
            [Decimal("1234567890123456789012345678.1234567891"), None, Decimal(-1)], pa.decimal128(38, 10)
        ),
        "at": pa.array([datetime(2020, 1, 2, 3, 4, 5, 678901, UTC), None, None], pa.timestamp("us", "UTC")),
        "day": pa.array([date(1, 1, 1), date(9999, 12, 31), None]),
        "ratio": pa.array([0.1, -0.0, None]),
        "data": pa.array([b"\x00", b"", None]),
    }
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table of two files, of which a deletion vector hides a row of one."""
    path = f"{tmp_path}/t"
    log = LakeLog(path, "binlake:source:life")
    plain_tables.create(log, DeltaSchema(COLUMNS, path), own(1), ROWS)
    (add,) = adds(path)
    plain_tables.commit(log, log.opened(), own(2), [{"add": {**add, "path": copied(path, add["path"]), **PLAIN}}])
    second = next(other for other in adds(path) if other["path"] != add["path"])
    actions = [plain_tables.removed(second), *plain_tables.marked(DeltaTable(path), path, [(second, BitMap64([0]))])]
    plain_tables.commit(log, log.opened(), own(3), actions)
    return path


PLAIN = {"partitionValues": {}, "dataChange": True}


def own(version: int) -> OwnCommit:
    return OwnCommit("WRITE", version, {}, {}, {})


def copied(path: str, file: str) -> str:
    Path(path, "copy.parquet").write_bytes(Path(path, file).read_bytes())
    return "copy.parquet"


def adds(path: str) -> list[dict[str, Any]]:
    log = DeltaTable(path)
    return plain_tables.actions_of(log, path, pa.table(log.get_add_actions())["path"].to_pylist())


def wrong(path: str) -> dict[str, tuple[str, ...]]:
    log, wrong_files = DeltaTable(path), WrongFiles()
    fields = [pa.field("id", pa.int64())]
    for file in data_rows.of_files(
        log, path, fields, pa.table(log.get_add_actions())["path"].to_pylist(), wrong=wrong_files
    ):
        for _ in file.numbered():
            pass
    return {path: file.what for path, file in wrong_files.items()}


def test_what_binlake_and_deltalake_write_is_right(path: str, tmp_path: Path) -> None:
    assert wrong(path) == {}
    lists = ROWS.append_column("tags", pa.array([["a", None], [], None], pa.list_(pa.string())))
    write_deltalake(f"{tmp_path}/other", lists)
    assert wrong(f"{tmp_path}/other") == {}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda statistics: statistics["maxValues"].update(id=2**62 - 1), "maxValues of id"),
        (lambda statistics: statistics["minValues"].update(id=2), "minValues of id"),
        (lambda statistics: statistics["maxValues"].update(name="b"), "maxValues of name"),
        (lambda statistics: statistics["minValues"].update(name="b"), "minValues of name"),
        (lambda statistics: statistics["maxValues"].update(price=5), "maxValues of price"),
        (lambda statistics: statistics["maxValues"].update(at="2020-01-02T03:04:05.677Z"), "maxValues of at"),
        (lambda statistics: statistics["minValues"].update(day="0001-01-02"), "minValues of day"),
        (lambda statistics: statistics["nullCount"].update(name=0), "nullCount of name"),
        (lambda statistics: statistics["nullCount"].update(price=3), "nullCount of price"),
        (lambda statistics: statistics.update(numRecords=2), "numRecords"),
        (lambda statistics: statistics.update(numRecords=0), "numRecords"),
    ],
)
def test_a_claim_that_hides_rows_is_told_of_each_file(
    path: str, change: Callable[[dict[str, Any]], object], named: str
) -> None:
    assert change_statistics(path, change) == 2
    assert set(wrong(path).values()) == {(named,)}
    log = LakeLog(path, "binlake:source:life")
    restated = [{"add": with_true_statistics(path, add)} for add in adds(path)]
    plain_tables.commit(log, log.opened(), own(4), restated)
    assert wrong(path) == {}
    assert len(adds(path)) == 2
    assert {bool(add.get("deletionVector")) for add in adds(path)} == {True, False}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda statistics: statistics["maxValues"].update(id=2**62 + 1), "maxValues of id"),
        (lambda statistics: statistics["minValues"].update(id=-9), "minValues of id"),
        (lambda statistics: statistics["maxValues"].update(at="2020-01-02T03:04:05.678Z"), ""),
        (lambda statistics: statistics["nullCount"].update(name=2), "nullCount of name"),
        (lambda statistics: statistics["maxValues"].pop("id"), ""),
    ],
)
def test_where_rows_are_hidden_bounds_may_be_wide(
    path: str, change: Callable[[dict[str, Any]], object], named: str
) -> None:
    """Of the other file an engine tells the least and the greatest value by them. Delta's own writer cuts times."""
    change_statistics(path, change)
    marked = next(add["path"] for add in adds(path) if add.get("deletionVector"))
    assert marked not in wrong(path)
    assert set(wrong(path).values()) == ({(named,)} if named else set())


def test_a_vector_of_a_file_that_is_counted_too_short_hides_its_own_rows_alone(path: str) -> None:
    change_statistics(path, lambda statistics: statistics.update(numRecords=1))
    log = DeltaTable(path)
    fields = [pa.field("id", pa.int64())]
    rows = [row for batch, _ in data_rows.read(log, path, fields, 0) for row in batch.column(0).to_pylist()]
    assert sorted(rows) == sorted([3, 1, 2**62, 1, 2**62])
    assert deletion_vectors.hidden(path, next(add for add in adds(path) if add.get("deletionVector"))) == BitMap64([0])


def test_statistics_in_the_log_stay_json(path: str) -> None:
    assert all(json.loads(with_true_statistics(path, add)["stats"])["numRecords"] == 3 for add in adds(path))
