"""Snapshots go before the data files that they need, and files of metadata behind them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from binlake.iceberg import table_metadata, upkeep
from binlake.iceberg.publication import publish
from iceberg_readers import READERS, assert_same, by_delta
from plain_table import PlainTable


def test_snapshots_go_that_need_a_file_which_goes(tmp_path: Path) -> None:
    table = PlainTable(tmp_path / "t", [("id", "INT")])
    for number in range(3):
        table.append([{"id": number}, {"id": number + 10}])
        publish(table.path, f"batch-{number}")
    first = table.files[0]
    table.hide({first["path"]: [1]})
    publish(table.path)
    table.replace([add for add in table.files if add["path"] == first["path"]], [{"id": 0}])
    publish(table.path)
    kept = table.version
    table.append([{"id": 99}])
    publish(table.path)
    for file in Path(table.path, "_iceberg/metadata").iterdir():
        os.utime(file, (time.time() - 90_000, time.time() - 90_000))
    before = len(list(Path(table.path, "_iceberg/metadata").iterdir()))
    upkeep.expire(table.path, [first["path"]], {})
    Path(table.path, first["path"]).unlink()
    metadata = table_metadata.newest(table.path)
    assert metadata is not None
    assert [each["snapshot-id"] for each in metadata.snapshots] == [kept + 1, table.version + 1]
    assert metadata.tags == {}
    assert len(list(Path(table.path, "_iceberg/metadata").iterdir())) < before
    assert_same(table.path)
    for read in READERS.values():
        assert read(table.path, kept + 1) == by_delta(table.path, kept)


def test_files_of_a_publication_under_way_stay(tmp_path: Path) -> None:
    table = PlainTable(tmp_path / "t", [("id", "INT")])
    publish(table.path)
    new = Path(table.path, "_iceberg/metadata/new-data.avro")
    new.write_bytes(b"")
    upkeep.expire(table.path, [], {})
    assert new.exists()
    os.utime(new, (0, 0))
    upkeep.expire(table.path, [], {})
    assert not new.exists()
    upkeep.expire(str(tmp_path), [], {})


def test_pins_are_tags_as_long_as_they_are_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_metadata, "KEPT", 2)
    table = PlainTable(tmp_path / "t", [("id", "INT")])
    for number in range(3):
        table.append([{"id": number}])
        publish(table.path, f"batch-{number}")
    upkeep.expire(table.path, [], {"before_migration": table.version, "too_old": 1})
    pinned = table.version + 1
    for number in range(3, 6):
        table.append([{"id": number}])
        publish(table.path)
    metadata = table_metadata.newest(table.path)
    assert metadata is not None
    assert metadata.tags == {"before_migration": pinned, "batch-2": pinned}
    assert [each["snapshot-id"] for each in metadata.snapshots] == [pinned, pinned + 2, pinned + 3]
    upkeep.expire(table.path, [], {})
    metadata = table_metadata.newest(table.path)
    assert metadata is not None
    assert metadata.tags == {"batch-2": pinned}
    assert_same(table.path)


def test_a_pin_with_the_name_of_the_branch_is_no_tag(tmp_path: Path) -> None:
    table = PlainTable(tmp_path / "t", [("id", "INT")])
    for number in range(2):
        table.append([{"id": number}])
        publish(table.path)
    upkeep.expire(table.path, [], {"main": table.version - 1})
    metadata = table_metadata.newest(table.path)
    assert metadata is not None
    assert metadata.content["refs"] == {"main": {"snapshot-id": table.version + 1, "type": "branch"}}
    assert_same(table.path)
