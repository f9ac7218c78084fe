"""Lake versions that are told to be readable are, those that aren't are refused, and pinned ones stay."""

from __future__ import annotations

import shutil
import time
from typing import NoReturn

import pytest
from deltalake import DeltaTable

from binlake.delta import layout, opened_tables
from binlake.delta.delta_log import LakeLog
from binlake.errors import UsageError
from binlake.lake import pins
from binlake.lake.lake_versions import lake_versions, version_at
from binlake.lake.opened_lake import open_lake
from binlake.lease.lease import Lease
from binlake.records import leftovers
from binlake.records.decisions import Reason
from binlake.schema.table import TableName
from mirror import CutOff, Mirror, on_mariadb, on_mysql
from versions_read import BRIEF, Content, assert_true, change, rows_by_spark, server_rows

REASON = Reason("a test", "to keep it")


@on_mysql
def test_pinned_versions_survive_upkeep_at_the_shortest_retention(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "FEW_BYTES", 0)  # files are marked, not written again
    mirror.options = {"maintain": BRIEF, "policies": {"on_drop_table": "drop"}}
    mirror.execute(
        "CREATE TABLE marked (id INT PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE plain (id INT PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE scratch (id INT PRIMARY KEY, v VARCHAR(20))",
        f"INSERT INTO marked VALUES {', '.join(f'({key}, {key})' for key in range(60))}",
        "INSERT INTO plain SELECT * FROM marked",
        "INSERT INTO scratch VALUES (1, 'dropped')",
    )
    mirror.snapshot()
    tables = ["marked", "plain", "scratch"]
    known: dict[int, Content] = {0: server_rows(mirror, *tables)}
    log_files = 0
    for number in range(1, 15):
        change(mirror, number)
        if number == 6:
            mirror.execute("RENAME TABLE plain TO renamed", "CREATE TABLE plain LIKE renamed", "DROP TABLE scratch")
            tables = ["marked", "plain", "renamed"]
        mirror.options["merge"] = {"without_spark_mb": 0 if number in (4, 9) else 16}
        batch = mirror.sync().batch
        assert batch is not None
        known[batch] = server_rows(mirror, *tables)
        if number in (3, 4, 11):
            pins.pin(mirror.metadata, batch, f"after_{number}", REASON)
        if number % 3 == 0:
            opened_tables.opened(mirror.path("marked")).create_checkpoint()
            opened_tables.opened(mirror.path("plain")).create_checkpoint()
            report = mirror.maintain()
            log_files += sum(table.removed_log_files for table in report.tables)
            assert_true(mirror, known)
    assert "3 pinned versions keep 0.0 MB of files" in report.headline
    assert sum(table.pinned_bytes for table in report.tables) > 1000
    assert log_files > 0
    versions = assert_true(mirror, known)
    readable = [version.batch for version in versions if version.readable]
    assert [version.name for version in versions if version.name] == ["after_3", "after_4", "after_11"]
    assert len(readable) < len(versions)
    for name in ("after_3", "after_4", "after_11"):
        version = version_at(versions, name=name)
        assert version.readable
        for table, rows in known[version.batch].items():
            assert rows_by_spark(mirror, version, table) == rows, f"{table} as {name}, read by Spark"
    with pytest.raises(UsageError, match="is pinned as after_3 already, by a test: to keep it"):
        pins.pin(mirror.metadata, version_at(versions, name="after_3").batch, "another", REASON)
    gone = next(version.batch for version in versions if not version.readable)
    with pytest.raises(UsageError, match="can't be read any more"):
        pins.pin(mirror.metadata, gone, "too_late", REASON)
    assert on_disk(mirror, "scratch"), "dropped, but pinned versions have it"
    for pin in pins.read(mirror.metadata):
        pins.unpin(mirror.metadata, pin.name)
    assert mirror.config.table_path(TableName(mirror.database, "scratch")) in mirror.maintain().folders_removed
    assert not on_disk(mirror, "scratch")
    assert next(version.batch for version in assert_true(mirror, known) if version.readable) > 4
    mirror.assert_equal("marked", "plain", "renamed")


@on_mariadb
def test_the_same_files_go_as_by_delta_s_own_vacuum(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.execute(
        "CREATE TABLE marked (id INT PRIMARY KEY, v VARCHAR(20))",
        f"INSERT INTO marked VALUES {', '.join(f'({key}, {key})' for key in range(60))}",
    )
    mirror.snapshot()
    for number in range(4):
        monkeypatch.setattr(layout, "FEW_BYTES", number << 30)  # at first files are marked, then they are written again
        mirror.options["merge"] = {"without_spark_mb": 16}
        mirror.execute(f"UPDATE marked SET v = 'batch {number}' WHERE id % 10 = {number}")
        mirror.sync()
    path = mirror.path("marked")
    opened_tables.opened(path).create_checkpoint()
    mirror.execute("DELETE FROM marked WHERE id = 7")
    mirror.sync()
    time.sleep(0.1)
    ours = leftovers.unneeded(LakeLog(path, ""), time.time())
    spark = mirror.spark.newSession()
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    by_delta = spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS DRY RUN").collect()
    names = {row[0].rpartition("/")[2] for row in by_delta}
    assert {file.name.rpartition("/")[2] for file in ours.files} == names - {""}
    assert {name.rpartition(".")[2] for name in names} == {"parquet", "bin"}
    assert ours.readable_from == DeltaTable(path).version()


@on_mysql
def test_versions_have_the_tables_beside_mirrors(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE other (id INT PRIMARY KEY)")
    mirror.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    mirror.options = {"maintain": BRIEF, "merge": {"without_spark_mb": 16}}
    mirror.modes = [{"tables": f"{mirror.database}.t", "history": {}, "log": {}}]
    mirror.snapshot()
    names = [f"{mirror.database}.{table}" for table in ("t__history", "t__log")]
    known: dict[int, Content] = {}

    def content(batch: int) -> Content:
        lake = open_lake(mirror.config).at(batch=batch)
        return {name: sorted(map(str, lake.arrow(name).to_pylist())) for name in names}

    for number in range(1, 6):
        mirror.execute(f"UPDATE t SET v = v + {number}" if number != 3 else "INSERT INTO other VALUES (1)")
        batch = mirror.sync().batch
        assert batch is not None
        known[batch] = content(batch)
        if number == 2:
            pins.pin(mirror.metadata, batch, "kept", REASON)
    mirror.maintain()
    versions = lake_versions(mirror.metadata, 0)
    assert [version.readable for version in versions] == [False, False, True, False, False, True]
    assert all(content(version.batch) == known[version.batch] for version in versions if version.readable)
    assert [len(rows[names[1]]) for rows in known.values()] == [2, 4, 4, 6, 8]
    lake = open_lake(mirror.config).at(name="kept")
    query = f"SELECT count(*) FROM {names[0]} WHERE NOT is_current"
    assert lake.duckdb().sql(query).fetchall() == [(4,)]
    assert lake.sql(query)["count(*)"].to_pylist() == [4]
    pins.unpin(mirror.metadata, "kept")
    shutil.rmtree(mirror.config.table_path(TableName(mirror.database, "t__log")))
    mirror.modes[0].pop("history")
    mirror.execute("UPDATE t SET v = 0")
    with monkeypatch.context() as patched:
        patched.setattr(Lease, "stand", cut_off)  # all but the lease's row is written
        with pytest.raises(CutOff):
            mirror.sync()
    mirror.sync()
    *before, version = lake_versions(mirror.metadata, 0)
    assert (version.left_out[names[0]], version.tables[names[1]]) == ("excluded", 0)
    assert not any(version.readable for version in before)
    assert len(open_lake(mirror.config).arrow(names[1])) == 2


def cut_off(*_: object) -> NoReturn:
    raise CutOff


def on_disk(mirror: Mirror, table: str) -> bool:
    return bool(opened_tables.is_table(mirror.path(table)))
