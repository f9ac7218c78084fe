"""Tables that follow a server are published as Iceberg tables with each batch, and by the upkeep."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from binlake.delta import layout
from binlake.iceberg import table_metadata
from iceberg_readers import READERS, assert_same, by_delta
from mirror import Mirror, on_mariadb, on_mysql

TABLES = ("t", "t__history", "t__log", "u")


def newest(mirror: Mirror, table: str) -> table_metadata.TableMetadata:
    metadata = table_metadata.newest(mirror.path(table))
    assert metadata is not None
    return metadata


def assert_published(mirror: Mirror) -> None:
    """All tables' newest snapshots read as the tables do."""
    for table in TABLES:
        assert_same(mirror.path(table))


@pytest.mark.parametrize("kind", [pytest.param("mysql", marks=on_mysql), pytest.param("mariadb", marks=on_mariadb)])
def test_batches_are_snapshots(mirror: Mirror, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "FEW_BYTES", 0)  # files are marked, not written again
    brief: dict[str, Any] = {"history_hours": 0, "log_hours": 0}
    mirror.options = {"iceberg": {"every": "batch"}, "maintain": brief}
    mirror.modes = [{"tables": "*.t", "history": {}, "log": {}}]
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), n BIGINT UNSIGNED, at DATETIME(6))",
        "INSERT INTO t VALUES (1, 'a', 18446744073709551615, '2020-02-29 01:02:03.000004'), (2, NULL, 0, NULL)",
        "CREATE TABLE u (id INT PRIMARY KEY) COMMENT 'it stays'",
        "INSERT INTO u VALUES (1)",
    )
    mirror.snapshot()
    assert_published(mirror)
    steps = (
        ["INSERT INTO t VALUES (3, 'c', 3, NULL), (4, 'd', 4, NULL)", "DELETE FROM t WHERE id = 1"],
        ["ALTER TABLE t ADD w INT AFTER id", "UPDATE t SET w = id", "INSERT INTO t VALUES (5, 5, 'e', 5, NULL)"],
        ["ALTER TABLE t RENAME COLUMN v TO x", "UPDATE t SET x = 'xx' WHERE id = 3"],
        ["ALTER TABLE t DROP n, MODIFY w BIGINT", "INSERT INTO t VALUES (6, 1234567890123, 'f', NULL)"],
        ["TRUNCATE t", "INSERT INTO t VALUES (7, 7, 'g', NULL)"],
    )
    batches = []
    for statements in steps:
        mirror.execute(*statements)
        batches.append(mirror.sync().batch)
        assert_published(mirror)
    assert {f"batch-{batch}" for batch in batches} <= newest(mirror, "t").tags.keys()
    assert newest(mirror, "u").tags == {}
    for table in ("t", "t__log"):
        for snapshot in newest(mirror, table).snapshots:
            version = snapshot["snapshot-id"] - 1
            for name, read in READERS.items():
                assert read(mirror.path(table), version + 1) == by_delta(mirror.path(table), version), (name, version)
    for file in Path(mirror.path("t")).rglob("*"):
        if file.is_file() and "_delta_log" not in file.parts:
            os.utime(file, (time.time() - 9000, time.time() - 9000))
    mirror.maintain()
    assert_published(mirror)
    for snapshot in newest(mirror, "t").snapshots:
        for read in READERS.values():
            read(mirror.path("t"), snapshot["snapshot-id"])
    mirror.assert_equal("t", "u")
    mirror.execute(
        "RENAME TABLE u TO v", "CREATE TABLE u (s TEXT, id INT PRIMARY KEY)", "INSERT INTO u VALUES ('s', 1)"
    )
    mirror.sync()
    assert_published(mirror)
    assert_same(mirror.path("v"))
