"""Tables that follow a server are published as Iceberg tables with each batch, and by the upkeep."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from begun_alone import begin_alone
from binlake.delta import layout, plain_tables
from binlake.iceberg import table_metadata
from binlake.iceberg.publication import publish
from binlake.lease import lease
from binlake.maintain import table_upkeep
from binlake.maintain.maintain import maintain
from binlake.merge.lake_table import LakeTable
from binlake.merge.reshape import ReshapedColumn
from binlake.report import Report
from binlake.spark.starting import no_session
from iceberg_readers import READERS, assert_same, by_delta
from mirror import Mirror, sync_alone
from plain_table import ARROW, PlainTable
from servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = (
    ["INSERT INTO t VALUES (3, 'c', 3, NULL), (4, 'd', 4, NULL)", "DELETE FROM t WHERE id = 1"],
    ["ALTER TABLE t ADD w INT AFTER id", "UPDATE t SET w = id", "INSERT INTO t VALUES (5, 5, 'e', 5, NULL)"],
    ["ALTER TABLE t RENAME COLUMN v TO x", "UPDATE t SET x = 'xx' WHERE id = 3"],
    ["ALTER TABLE t DROP n", "INSERT INTO t VALUES (6, 1234, 'f', NULL)"],
    ["TRUNCATE t", "INSERT INTO t VALUES (7, 7, 'g', NULL), (8, 8, 'h', NULL)"],
)


def newest(mirror: Mirror, table: str) -> table_metadata.TableMetadata:
    metadata = table_metadata.newest(mirror.path(table))
    assert metadata is not None
    return metadata


def assert_published(mirror: Mirror, *tables: str) -> None:
    """The newest snapshots read as the tables do."""
    for table in tables:
        assert_same(mirror.path(table))


def test_batches_are_snapshots(server: Server, database: str, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = Mirror(server, database, lake, None)  # type: ignore[arg-type]
    monkeypatch.setattr(layout, "FEW_BYTES", 0)  # files are marked, not written again
    mirror.options = {"iceberg": {"every": "batch"}, "maintain": {"history_hours": 0, "log_hours": 0}}
    mirror.modes = [{"tables": "*.t", "history": {}, "log": {}}]
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), n BIGINT UNSIGNED, at DATETIME(6))",
        "INSERT INTO t VALUES (1, 'a', 18446744073709551615, '2020-02-29 01:02:03.000004'), (2, NULL, 0, NULL)",
        "CREATE TABLE u (id INT PRIMARY KEY) COMMENT 'it stays'",
        "INSERT INTO u VALUES (1)",
    )
    begin_alone(mirror)
    batches = []
    for statements in STEPS:
        mirror.execute(*statements)
        sync_alone(mirror)
        batches.append(lease.read(mirror.metadata).batch)
        assert_published(mirror, "t", "t__history", "t__log")
    assert {f"batch-{batch}" for batch in batches} == newest(mirror, "t").tags.keys()
    assert table_metadata.newest(mirror.path("u")) is None, "no batch changed it"
    for table in ("t", "t__log", "t__history"):
        for snapshot in newest(mirror, table).snapshots:
            version = snapshot["snapshot-id"] - 1
            for name, read in READERS.items():
                assert read(mirror.path(table), version + 1) == by_delta(mirror.path(table), version), (name, version)
    before = len(newest(mirror, "t").snapshots)
    for file in Path(mirror.path("t")).rglob("*"):
        if file.is_file():
            os.utime(file, (time.time() - 9000, time.time() - 9000))
    monkeypatch.setattr(table_upkeep, "SIDE_BY_SIDE", 1)  # who asks for Spark imports it, in one thread at a time
    maintain(mirror.config, no_session, mirror.metadata, Report(quiet=True))
    assert_published(mirror, "t", "t__history", "t__log", "u")
    assert len(newest(mirror, "t").snapshots) < before, "files of the others went"
    for snapshot in newest(mirror, "t").snapshots:
        for read in READERS.values():
            read(mirror.path("t"), snapshot["snapshot-id"])
    mirror.execute("RENAME TABLE u TO v", "CREATE TABLE u (s TEXT, id INT PRIMARY KEY)")
    mirror.execute("INSERT INTO u VALUES ('s', 1)")
    sync_alone(mirror)
    assert_published(mirror, "u", "v")


def test_spark_keeps_the_ids_of_columns(tmp_path: Path, spark: SparkSession) -> None:
    """It reads files by names, writes none with other ids, and what it turns into a column mapping has the same ids."""
    table = PlainTable(tmp_path / "t", [("id", "INT"), ("v", "STRING")])
    table.append([{"id": 1, "v": "a"}])
    table.reshape([("n", "INT", None), ("id", "INT", "id"), ("v", "STRING", "v")])
    table.append([{"n": 7, "id": 2, "v": "b"}])
    publish(table.path)
    by_spark = LakeTable(table.path, "app")
    spark.sql(f"INSERT INTO {by_spark.sql_name} VALUES (8, 3, 'c')")
    spark.sql(f"UPDATE {by_spark.sql_name} SET v = 'aa' WHERE id = 1")
    publish(table.path)
    assert_same(table.path)
    columns = [("x", "n"), ("id", "id"), ("v", "v")]
    kinds = dict(table.columns)
    renamed = [ReshapedColumn(name, kinds[old], old, kinds[old], ARROW[kinds[old]]) for name, old in columns]
    by_spark.reshape(spark, renamed, 9, {"binlake": {}}, widen=False)
    spark.sql(f"INSERT INTO {by_spark.sql_name} VALUES (9, 4, 'd')")
    fields = plain_tables.fields_of(table.log.opened())
    assert {field["name"]: field["metadata"]["delta.columnMapping.id"] for field in fields} == {"x": 3, "id": 1, "v": 2}
    identity = table_metadata.newest(table.path)
    publish(table.path)
    assert_same(table.path)
    now = table_metadata.newest(table.path)
    assert now is not None
    assert identity is not None
    assert now.content["table-uuid"] == identity.content["table-uuid"], "older snapshots stay"
    assert [tuple(row) for row in spark.read.format("delta").load(table.path).orderBy("id").collect()] == [
        (None, 1, "aa"), (7, 2, "b"), (8, 3, "c"), (9, 4, "d"),
    ]  # fmt: skip
