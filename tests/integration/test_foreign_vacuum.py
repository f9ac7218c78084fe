"""A VACUUM that isn't binlake's: versions whose files it took are told as unreadable, with why, and no others."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from deltalake import DeltaTable

from binlake.cli import command_line
from binlake.errors import UsageError
from binlake.lake import pins
from binlake.lake.lake_versions import LakeVersion, lake_versions
from binlake.lake.opened_lake import open_lake
from binlake.records.decisions import Reason
from binlake.store.metadata import query
from mirror import Mirror, on_mysql

pytestmark = on_mysql
Vacuum = Callable[[Mirror, str], None]


def by_deltalake(mirror: Mirror, table: str) -> None:
    path = mirror.path(table)
    assert DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)


def by_spark(mirror: Mirror, table: str) -> None:
    session = mirror.spark.newSession()
    session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    session.sql(f"VACUUM delta.`{mirror.path(table)}` RETAIN 0 HOURS")


def begin(mirror: Mirror) -> None:
    """Batches 0 to 4 of the tables t, whose rows change in each, and u, which batch 2 alone changes."""
    mirror.reader = "direct"
    mirror.options = {"merge": {"without_spark_mb": 16}}
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY, v INT)")
    mirror.execute("INSERT INTO t VALUES (1, 0), (2, 0)", "INSERT INTO u VALUES (1, 0)")
    mirror.snapshot()
    for batch in range(1, 5):
        mirror.execute(f"UPDATE t SET v = {batch}", *(["UPDATE u SET v = 2"] if batch == 2 else []))
        mirror.sync()


def can_be_read(mirror: Mirror, version: LakeVersion) -> bool:
    """Read all tables by themselves."""
    try:
        for table in version.listed:
            query(mirror.config.table_path(table.name), version=table.delta_version)
    except Exception:
        return False
    return True


def assert_told(mirror: Mirror, readable: set[int]) -> list[LakeVersion]:
    versions = lake_versions(mirror.metadata, 0, looks=True)
    assert {version.batch for version in versions if can_be_read(mirror, version)} == readable
    assert {version.batch for version in versions if version.readable} == readable
    return versions


@pytest.mark.parametrize("vacuum", [by_deltalake, by_spark])
def test_versions_that_it_took(
    mirror: Mirror, vacuum: Vacuum, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(mirror)
    pins.pin(mirror.metadata, 3, "kept", Reason("a test", "to keep it"))
    assert_told(mirror, {0, 1, 2, 3, 4})
    vacuum(mirror, "u")
    assert_told(mirror, {2, 3, 4})
    vacuum(mirror, "t")
    *earlier, newest = assert_told(mirror, {4})
    assert newest.why == ""
    assert all("VACUUM that isn't binlake's" in version.why for version in earlier)
    assert f"{mirror.database}.t" in earlier[3].why
    with pytest.raises(UsageError, match=r"batch 3 can't be read any more: a VACUUM that isn't binlake's") as refused:
        open_lake(mirror.config).at(name="kept")
    assert "binlake versions" in refused.value.remedy
    with pytest.raises(UsageError, match=r"batch 2 can't be read any more: a VACUUM that isn't binlake's"):
        pins.pin(mirror.metadata, 2, "too_late", Reason("a test", "to keep it"))
    assert len(pins.read(mirror.metadata)) == 1
    assert open_lake(mirror.config).at(batch=4).arrow(f"{mirror.database}.t")["v"].to_pylist() == [4, 4]

    mirror.execute("UPDATE t SET v = 5", "INSERT INTO u VALUES (5, 5)")
    mirror.sync()
    assert_told(mirror, {4, 5})
    mirror.maintain()
    assert_told(mirror, {4, 5})
    mirror.assert_equal("t", "u")

    yaml = str(mirror.write_yaml())
    assert command_line.run(["versions", "--config", yaml, "--json"]) == 0
    told = {entry["batch"]: entry for entry in json.loads(capsys.readouterr().out)["versions"]}
    assert [batch for batch, entry in told.items() if entry["readable"]] == [4, 5]
    assert "VACUUM" in told[3]["why"]
    assert told[4]["why"] is None
    assert command_line.run(["versions", "--config", yaml]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "4 earlier batches can't be read any more" in printed
    assert "the newest of them 3: a VACUUM that isn't binlake's removed files of" in printed
    assert command_line.run(["sql", "--config", yaml, "--batch", "1", f"SELECT * FROM {mirror.database}.t"]) == 2
    assert "batch 1 can't be read any more: a VACUUM that isn't binlake's" in capsys.readouterr().err


def test_one_that_takes_nothing_of_a_version_leaves_it_readable(mirror: Mirror) -> None:
    begin(mirror)
    DeltaTable(mirror.path("t")).vacuum(dry_run=False)
    session = mirror.spark.newSession()
    session.sql(f"VACUUM delta.`{mirror.path('t')}`")
    assert_told(mirror, {0, 1, 2, 3, 4})


def test_files_that_one_version_alone_needs(mirror: Mirror) -> None:
    """What a later batch added and removed again: versions before it are whole."""
    mirror.reader = "direct"
    mirror.options = {"merge": {"without_spark_mb": 16}}
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 0)")
    mirror.snapshot()
    mirror.execute("INSERT INTO t VALUES (1000000, 1)")
    mirror.sync()
    before = set(DeltaTable(mirror.path("t")).file_uris())
    mirror.execute("UPDATE t SET v = 2 WHERE id = 1000000")
    mirror.sync()
    if len(before & set(DeltaTable(mirror.path("t")).file_uris())) == 1:
        by_deltalake(mirror, "t")
        assert_told(mirror, {0, 2})
    else:
        pytest.fail("the second batch was to replace the file of the first alone")
