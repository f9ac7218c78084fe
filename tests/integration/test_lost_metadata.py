"""A metadata table that is gone is named, and what is advised then helps: each is taken from a copy of one lake."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from binlake import pipeline
from binlake.cli import command_line
from binlake.errors import MetadataLost, UsageError
from binlake.lake import pins
from binlake.lake.opened_lake import place_of
from binlake.phases.unlock import unlock
from binlake.phases.verification import VerifyRequest
from binlake.records import decisions, lost_tables, watermarks
from binlake.records.decisions import Reason
from binlake.records.record import RunReport
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.store.table_losses import LOSSES
from mirror import WAYS, Mirror, on_mariadb
from no_session import NoSession
from servers import Server

pytestmark = on_mariadb
REASON = Reason("a test", "to see what is lost")
TOLD = sorted(table for table, loss in LOSSES.items() if "sync" not in loss.refuses and table != "lake_versions")


@pytest.fixture(scope="module")
def whole(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    """A lake with a table that follows, a paused one, a pinned version and a verification."""
    database = "t_lost_metadata"
    server.execute(f"DROP DATABASE IF EXISTS {database}", f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    folder = tmp_path_factory.mktemp("lake")
    mirror = Mirror(server, database, folder, None, options={"merge": WAYS[0]}, reader="direct")  # type: ignore[arg-type]
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE paused (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "INSERT INTO paused VALUES (1, 1)",
    )
    copy(mirror)
    mirror.execute("UPDATE t SET v = 3 WHERE id = 1")
    sync(mirror)
    pins.pin(mirror.metadata, 1, "kept", REASON)
    verify(mirror)
    decisions.pause(mirror.config, TableName(database, "paused"), REASON)
    mirror.execute("INSERT INTO paused VALUES (2, 2)")
    sync(mirror)
    maintain(mirror)
    sync(mirror)  # it notes which metadata tables there are
    yield mirror
    server.execute(f"DROP DATABASE {database}")


@pytest.fixture
def lake(whole: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """A copy of that lake, behind the server by a row."""
    monkeypatch.setenv("AIRFLOW_CONN_TESTS", f"mysql://root:@127.0.0.1:{whole.server.port}/")
    mirror = replace(whole, folder=tmp_path / "lake", options=dict(whole.options))
    shutil.copytree(whole.folder, mirror.folder)
    mirror.execute("DELETE FROM t WHERE id > 2", "INSERT INTO t VALUES (3, 3)")
    return mirror


def copy(mirror: Mirror, *patterns: str, **options: Any) -> None:
    tables = list(patterns) or None
    pipeline.bootstrap(mirror.config, mirror.origin, NoSession(), Report(), tables=tables, **options)  # type: ignore[arg-type]


def sync(mirror: Mirror) -> tuple[RunReport, str]:
    said = io.StringIO()
    return pipeline.sync(mirror.config, mirror.origin, NoSession(), Report(said)), said.getvalue()  # type: ignore[arg-type]


def verify(mirror: Mirror) -> bool:
    asked = VerifyRequest()
    return pipeline.verify(mirror.config, mirror.origin, NoSession(), Report(), asked).equal  # type: ignore[arg-type]


def maintain(mirror: Mirror) -> None:
    pipeline.maintain(mirror.config, NoSession(), Report())  # type: ignore[arg-type]


def lose(mirror: Mirror, table: str) -> None:
    """Take a metadata table away, also where this lake has none of them: then it is as if it had been there."""
    path = Path(mirror.metadata.location(table))
    if not path.exists():
        mirror.metadata.table(table)
        lost_tables.find(mirror.metadata)
    shutil.rmtree(path)


def assert_whole(mirror: Mirror) -> None:
    name = f"{mirror.database}.t"
    rows = place_of(mirror.config).at().arrow(name).to_pylist()
    assert sorted((row["id"], row["v"]) for row in rows) == [(1, 3), (2, 2), (3, 3)]
    assert verify(mirror)


@pytest.mark.parametrize("table", TOLD)
def test_the_loss_is_told_and_the_lake_follows(lake: Mirror, table: str) -> None:
    lose(lake, table)
    report, said = sync(lake)
    if table != "made":  # nothing else shows which were there
        assert f"the metadata table {table} is gone, and with it {LOSSES[table].meaning}" in said
        assert LOSSES[table].remedy in said
    assert report.batch == 3
    assert_whole(lake)
    if LOSSES[table].is_reported_once:
        assert f"the metadata table {table} is gone" not in sync(lake)[1]


@pytest.mark.parametrize("table", ["watermarks", "schemas"])
def test_without_the_tables_states_a_sync_is_refused_until_all_are_copied(
    lake: Mirror, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lose(lake, table)
    for work in (sync, maintain):
        with pytest.raises(MetadataLost, match=f"the metadata table {table} is gone") as refused:
            work(lake)
        assert "binlake snapshot --config FILE" in refused.value.remedy
    assert command_line.run(["status", "--config", str(lake.write_yaml())]) == 0
    assert f"the metadata table {table} is gone" in " ".join(capsys.readouterr().out.split())
    copy(lake)
    lake.execute("INSERT INTO t VALUES (4, 4)")
    sync(lake)
    lake.execute("DELETE FROM t WHERE id = 4")
    sync(lake)
    assert_whole(lake)
    assert {row.status for row in watermarks.read(lake.metadata)} == {"following"}


def test_a_backup_of_the_table_brings_it_back(lake: Mirror, whole: Mirror) -> None:
    lose(lake, "schemas")
    shutil.copytree(whole.metadata.location("schemas"), lake.metadata.location("schemas"))
    sync(lake)
    assert_whole(lake)


def test_pinned_versions_are_kept_from_upkeep_that_does_not_know_them(lake: Mirror) -> None:
    lose(lake, "pins")
    assert "the metadata table pins is gone" in sync(lake)[1]
    with pytest.raises(MetadataLost, match="the metadata table pins is gone"):
        maintain(lake)
    pins.pin(lake.metadata, 1, "again", REASON)
    maintain(lake)
    assert place_of(lake.config).at(name="again").batch == 1


def test_versions_that_are_lost_hold_a_sync_while_some_are_pinned(lake: Mirror) -> None:
    lose(lake, "lake_versions")
    for work in (sync, maintain):
        with pytest.raises(MetadataLost, match="the metadata table lake_versions is gone"):
            work(lake)
    pins.unpin(lake.metadata, "kept")
    sync(lake)
    assert [version.batch for version in place_of(lake.config).versions()] == [3]
    maintain(lake)
    assert_whole(lake)


def test_a_table_that_missed_batches_nobody_knows_does_not_follow_again(lake: Mirror) -> None:
    lose(lake, "batches")
    sync(lake)
    name = TableName(lake.database, "paused")
    with pytest.raises(UsageError, match="what is between was never read") as refused:
        pipeline.resume(lake.config, lake.origin, NoSession(), Report(), name, REASON)  # type: ignore[arg-type]
    assert "resnapshot" in refused.value.remedy
    decisions.resnapshot(lake.config, name, REASON)
    sync(lake)
    assert len(place_of(lake.config).at().arrow(str(name))) == 2


def test_the_lease_alone_is_made_again(lake: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    yaml = str(lake.write_yaml())
    lose(lake, "lease")
    for command in ("status", "sync", "maintain", "snapshot"):
        assert command_line.run([command, "--config", yaml, "--quiet"]) != 0
        assert "the metadata table lease is gone" in capsys.readouterr().err
    assert "the lease is made again, at batch 2" in unlock(lake.config, REASON)
    sync(lake)
    assert_whole(lake)


def test_the_lease_is_not_made_again_where_a_table_has_a_part_of_a_later_batch(lake: Mirror) -> None:
    with lake.cut_off_at("merged"):
        sync(lake)
    lose(lake, "lease")
    with pytest.raises(MetadataLost, match="batch 3 was open, and tables may have a part of it"):
        unlock(lake.config, REASON)
    lake.metadata.replace("batches", "batch = 3", [])  # one of seconds has no row before it is recorded
    with pytest.raises(MetadataLost, match=r"the newest recorded batch is 2, and .* has a part of a later one"):
        unlock(lake.config, REASON)
    copy(lake, begin=True)
    sync(lake)
    assert_whole(lake)
    assert [version.batch for version in place_of(lake.config).versions()] == [0, 1, 2, 3]


def test_a_table_that_nobody_copied_is_told_by_every_sync(lake: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    yaml = str(lake.write_yaml())
    name = f"{lake.database}.t"
    lake.metadata.replace("watermarks", "\"table\" = 't'", [])
    lake.metadata.replace("schemas", "\"table\" = 't'", [])
    codes = []
    for _ in range(3):
        codes.append(command_line.run(["sync", "--config", yaml, "--quiet"]))
        assert f"missing: {name}: included, but never snapshotted" in capsys.readouterr().err
    assert codes == [3, 0, 0]
    copy(lake, name)
    assert command_line.run(["sync", "--config", yaml, "--quiet"]) == 0
    assert "missing" not in capsys.readouterr().err
    assert_whole(lake)


def test_a_table_that_a_batch_brings_is_not_missing(lake: Mirror) -> None:
    try:
        lake.execute(
            "CREATE TABLE born (id INT PRIMARY KEY)", "RENAME TABLE born TO renamed", "CREATE VIEW seen AS SELECT 1"
        )
        report, _ = sync(lake)
        assert not [table for table in report.tables if table.status == "missing"]
        assert not [table for table in sync(lake)[0].tables if table.status == "missing"]
    finally:
        lake.execute("DROP TABLE IF EXISTS renamed", "DROP VIEW IF EXISTS seen")
