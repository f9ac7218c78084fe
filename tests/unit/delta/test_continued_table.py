"""Tables continued by commits: they tell what deltalake tells of the same version."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap64

from binlake.delta import continued_table, delta_commits, opened_tables, plain_tables
from binlake.delta.continued_table import ContinuedTable, paths_of
from binlake.delta.delta_actions import Commit, DeltaAction, Replay
from binlake.delta.plain_files import added_file

_TYPES = {
    "id": pa.int64(), "small": pa.int16(), "text": pa.string(), "day": pa.date32(), "at": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"), "price": pa.decimal128(20, 4), "units": pa.decimal128(20, 0), "data": pa.binary(),
    "ratio": pa.float64(), "flag": pa.bool_(),
}  # fmt: skip
_ROW: dict[str, Any] = {
    "id": -5, "small": 7, "text": "ä" * 40, "day": date(1582, 10, 4), "at": datetime(2026, 1, 2, 3, 4, 5, 678999, UTC),
    "local": datetime(1, 1, 1, 0, 0, 0, 1), "price": Decimal("1234567890123456.7891"),
    "units": Decimal(2**64 - 1), "data": b"\0", "ratio": 0.1, "flag": True,
}  # fmt: skip


def rows(*values: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([{**_ROW, **value} for value in values], pa.schema(_TYPES))


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    write_deltalake(path, rows({"id": 1}), configuration={"delta.enableDeletionVectors": "true"})
    opened_tables.newest(path)
    return path


def commit(path: str, *actions: DeltaAction) -> None:
    version = DeltaTable(path).version() + 1
    delta_commits.write(path, version, [{"commitInfo": {"timestamp": 1, "operation": "MERGE"}}, *actions])


def added(path: str, *values: dict[str, Any]) -> DeltaAction:
    return {"add": added_file(path, rows(*values))}


def told(table: DeltaTable) -> list[dict[str, Any]]:
    return sorted(pa.table(table.get_add_actions()).to_pylist(), key=lambda row: str(row["path"]))


def assert_continued(path: str) -> None:
    """Check that the newest version was continued, and is what deltalake reads."""
    table, expected = opened_tables.newest(path), DeltaTable(path)
    assert isinstance(table, ContinuedTable)
    assert told(table) == told(expected)
    assert pa.schema(table.get_add_actions().schema).equals(pa.schema(expected.get_add_actions().schema))
    assert table.version() == expected.version()
    assert table.schema() == expected.schema()
    assert table.protocol() == expected.protocol()
    assert table.metadata().configuration == expected.metadata().configuration
    assert sorted(table.file_uris()) == sorted(expected.file_uris())
    assert table.count() == expected.count()


def test_files_come_and_go(path: str) -> None:
    commit(path, first := added(path, {"id": 2}, {"id": 3, "text": None}))
    assert_continued(path)
    commit(path, plain_tables.removed(first["add"]), added(path, {"id": 4}))
    assert_continued(path)


@pytest.mark.parametrize("name", _TYPES)
def test_statistics_have_the_types_of_their_columns(path: str, name: str) -> None:
    commit(path, added(path, {}, {name: None}))
    assert_continued(path)


def test_a_file_gets_another_deletion_vector(path: str) -> None:
    commit(path, first := added(path, *({"id": number} for number in range(10))))
    for gone in ([1], [1, 2]):
        before = first["add"]
        (first,) = plain_tables.marked(DeltaTable(path), path, [(before, BitMap64(gone))])
        commit(path, plain_tables.removed(before), first)
        assert_continued(path)


def test_several_commits_of_several_writers_at_once(path: str) -> None:
    commit(path, added(path, {"id": 2}))
    write_deltalake(path, rows({"id": 3}), mode="append")
    commit(path, {"txn": {"appId": "a", "version": 1}})
    assert_continued(path)
    DeltaTable(path).optimize.compact()
    assert_continued(path)
    assert len(told(opened_tables.newest(path))) == 1


def test_a_table_is_opened_anew_behind_commits_that_change_more_than_rows(path: str) -> None:
    commit(path, added(path, {"id": 2}))
    DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": "7"})
    table = opened_tables.newest(path)
    assert not isinstance(table, ContinuedTable)
    assert table.metadata().configuration["delta.checkpointInterval"] == "7"
    assert told(table) == told(DeltaTable(path))


def test_a_table_with_partitions_is_opened_anew(tmp_path: Path) -> None:
    path = str(tmp_path / "parts")
    for number in range(2):
        write_deltalake(path, rows({"id": number}), partition_by=["small"], mode="append")
        assert not isinstance(opened_tables.newest(path), ContinuedTable)


def test_whoever_has_a_table_reads_on_at_its_version(path: str) -> None:
    commit(path, added(path, {"id": 2}))
    before = opened_tables.newest(path)
    commit(path, added(path, {"id": 3}))
    assert opened_tables.newest(path).count() == 3
    assert (before.version(), before.count(), len(told(before))) == (1, 2, 2)


def test_paths_follow_from_those_that_were_asked_for_before(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []

    class Counting(Replay):
        def take_all(self, commits: Iterable[Commit]) -> Replay:
            looked_at.extend(commit.version for commit in commits)
            return super().take_all(commits)

    commit(path, gone := added(path, {"id": 2}))
    opened_tables.newest(path)
    monkeypatch.setattr(continued_table, "Replay", Counting)
    for number in range(3):
        commit(path, plain_tables.removed(gone["add"]), gone := added(path, {"id": number}))
        table = opened_tables.newest(path)
        assert sorted(paths_of(table)) == sorted(paths_of(table)) == sorted(paths_of(DeltaTable(path)))
    commit(path, added(path, {"id": 7}))
    opened_tables.newest(path)
    commit(path, added(path, {"id": 8}))
    assert sorted(paths_of(opened_tables.newest(path))) == sorted(paths_of(DeltaTable(path)))
    assert looked_at == [1, 2, 3, 4, 5, 6]
    assert_continued(path)


def test_add_actions_that_nobody_asked_for_follow_from_all_commits_since(path: str) -> None:
    before = opened_tables.newest(path)
    commit(path, first := added(path, {"id": 2}))
    passed = opened_tables.newest(path)
    commit(path, plain_tables.removed(first["add"]), added(path, {"id": 3}))
    assert opened_tables.newest(path).version() == passed.version() + 1
    commit(path, added(path, {"id": 4}))
    assert_continued(path)
    assert len(told(passed)) == len(told(before)) + 1
    commit(path, added(path, {"id": 5}))
    assert_continued(path)
