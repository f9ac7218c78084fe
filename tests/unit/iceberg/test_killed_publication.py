"""A publication that is killed at any of its writes is seen by nobody, and the next one goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from binlake.errors import LakeError
from binlake.iceberg import published_table, table_metadata, upkeep
from binlake.iceberg.publication import publish
from binlake.iceberg.snapshot_differences import differences
from binlake.storage import files
from iceberg_readers import assert_same
from killed_writes import killed_at_each
from plain_table import PlainTable


def test_killed_at_any_write_the_next_publication_goes_on(tmp_path: Path) -> None:
    table = PlainTable(tmp_path / "t", [("id", "INT"), ("v", "STRING")])
    number = 0

    def change() -> None:
        nonlocal number
        table.append([{"id": each, "v": str(each)} for each in range(number, number + 4)])
        if number:
            table.hide({add["path"]: [number % 3] for add in table.files[-3:-1]})
        number += 4

    kills = 0
    for _ in killed_at_each(table, change, lambda: publish(table.path)):
        kills += 1
        there = table_metadata.newest(table.path)
        before = {each["snapshot-id"] for each in there.snapshots} if there else set()
        publish(table.path)
        now = table_metadata.newest(table.path)
        assert now is not None
        assert {each["snapshot-id"] for each in now.snapshots} == before | {table.version + 1}
        assert differences(table.path) == []
    assert kills > 12
    assert_same(table.path)


def test_killed_at_any_write_the_upkeep_goes_on(tmp_path: Path) -> None:
    table = PlainTable(tmp_path / "t", [("id", "INT")])
    table.append([{"id": 0}])
    for _ in killed_at_each(table, lambda: replaced(table), lambda: expired(table)):
        expired(table)
        metadata = table_metadata.newest(table.path)
        assert metadata is not None
        assert [each["snapshot-id"] for each in metadata.snapshots] == [table.version + 1]
        assert_same(table.path)


def replaced(table: PlainTable) -> None:
    publish(table.path)
    table.replace(table.files, [{"id": table.version}])
    publish(table.path)


def expired(table: PlainTable) -> None:
    there = {add["path"] for add in table.files}
    upkeep.expire(table.path, [file.name for file in Path(table.path).glob("*.parquet") if file.name not in there], {})


def test_of_two_who_publish_at_once_one_goes_on_behind_the_other(tmp_path: Path) -> None:
    table = PlainTable(tmp_path / "t", [("id", "INT")])
    table.append([{"id": 0}])
    publish(table.path)
    table.append([{"id": 1}])
    write = files.write_if_absent

    def another_first(path: str, text: str) -> None:
        patched.undo()
        table.append([{"id": 2}])
        publish(table.path)
        write(path, text)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "write_if_absent", another_first)
        publish(table.path)
    metadata = table_metadata.newest(table.path)
    assert metadata is not None
    assert [each["snapshot-id"] for each in metadata.snapshots] == [2, 4]
    assert_same(table.path)


def test_a_damaged_file_is_said_with_its_remedy_and_without_a_value(tmp_path: Path) -> None:
    table = PlainTable(tmp_path / "t", [("id", "INT")])
    table.append([{"id": 7777777}])
    publish(table.path)
    for file in Path(table.path, "_iceberg/metadata").glob("*.avro"):
        file.write_bytes(file.read_bytes()[:-9])
    published_table.forget(table.path)
    table.append([{"id": 1}])
    with pytest.raises(LakeError, match="can't be published as Iceberg") as caught:
        publish(table.path)
    assert "7777777" not in str(caught.value)
    assert "remove" in caught.value.remedy
    with pytest.raises(LakeError, match="can't be removed"):
        upkeep.expire(table.path, [], {})
    shutil.rmtree(Path(table.path, "_iceberg"))
    publish(table.path)
    assert_same(table.path)
