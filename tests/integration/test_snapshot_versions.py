"""A snapshot is a version of the lake, and a table that a sync copied again is in the newest one: SQL in, rows out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn
from unittest import mock

import pytest

from binlake import pipeline
from binlake.binlog.integrity import format_description
from binlake.cli import command_line
from binlake.config import PipelineConfig
from binlake.errors import UsageError
from binlake.lake.lake_versions import lake_versions
from binlake.lake.opened_lake import Lake, place_of
from binlake.lease.lease import Lease
from binlake.phases import snapshots
from binlake.records import watermarks
from binlake.records.record import RunReport
from binlake.report import Report
from binlake.source.server import Source
from binlake.spark.starting import SessionFactory
from mirror import WAYS, CutOff, Mirror, on_mariadb, on_mysql
from no_session import NoSession
from servers import Server


@pytest.fixture
def mirror(server: Server, database: str, lake: Path) -> Mirror:
    """Two tables that weren't copied yet; nothing here needs Spark."""
    mirror = Mirror(server, database, lake, None, options={"merge": WAYS[0]}, reader="direct")  # type: ignore[arg-type]
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, b VARCHAR(10))",
        "CREATE TABLE u (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1, '1'), (2, '2')",
        "INSERT INTO u VALUES (7)",
    )
    return mirror


def copy(mirror: Mirror, *patterns: str) -> None:
    session = NoSession()
    pipeline.bootstrap(mirror.config, mirror.origin, session, Report(), tables=list(patterns) or None)  # type: ignore[arg-type]


def sync(mirror: Mirror) -> RunReport:
    return pipeline.sync(mirror.config, mirror.origin, NoSession(), Report())  # type: ignore[arg-type]


def newest(mirror: Mirror) -> Lake:
    return place_of(mirror.config).at()


def rows(mirror: Mirror, table: str) -> list[tuple[object, ...]]:
    answer = newest(mirror).sql(f"SELECT * FROM {mirror.database}.{table} ORDER BY 1")
    return [tuple(row.values()) for row in answer.to_pylist()]


def head(mirror: Mirror) -> str:
    with Source.open(mirror.endpoint) as source:
        file, offset, _ = source.head()
        created = format_description(source.transport(mirror.server_id), file)
        return f"{source.server_identity}/{file}:{offset}@{created}"


def test_a_lake_is_queried_behind_its_first_snapshot(mirror: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    copy(mirror)
    assert newest(mirror).batch == 0
    assert newest(mirror).version.position == head(mirror)
    assert rows(mirror, "t") == [(1, "1"), (2, "2")]
    assert rows(mirror, "u") == [(7,)]
    yaml = str(mirror.write_yaml())
    query = f"SELECT max(id) AS n FROM {mirror.database}.t"
    assert command_line.run(["sql", "--config", yaml, "--format", "csv", query]) == 0
    assert capsys.readouterr().out.split() == ['"n"', "2"]
    assert command_line.run(["views", "--config", yaml, "--dialect", "duckdb"]) == 0
    assert mirror.database in capsys.readouterr().out
    assert command_line.run(["versions", "--config", yaml, "--json"]) == 0
    assert [version["batch"] for version in json.loads(capsys.readouterr().out)["versions"]] == [0]
    mirror.execute("INSERT INTO t VALUES (3, '3')")
    assert sync(mirror).batch == 1
    assert [version.batch for version in newest(mirror).versions()] == [0, 1]
    assert rows(mirror, "t") == [(1, "1"), (2, "2"), (3, "3")]
    assert len(newest(mirror).at(batch=0).arrow(f"{mirror.database}.t")) == 2


@on_mysql
def test_a_first_snapshot_that_was_cut_off_is_the_version_of_the_one_that_repeats_it(mirror: Mirror) -> None:
    def cut_off(*of_lease: object) -> NoReturn:
        raise CutOff("the lease's row wasn't written")

    with mirror.cut_off_at("bootstrap noted"):
        copy(mirror)
    with mock.patch.object(Lease, "stand", cut_off), pytest.raises(CutOff):
        copy(mirror)
    mirror.execute("UPDATE t SET b = CONCAT(b, 'x')")
    copy(mirror)
    assert [version.batch for version in lake_versions(mirror.metadata)] == [0]
    assert newest(mirror).version.position == head(mirror)
    assert rows(mirror, "t") == [(1, "1x"), (2, "2x")]


def test_a_table_that_its_sync_copied_anew_is_in_the_newest_version(mirror: Mirror) -> None:
    copy(mirror)
    mirror.execute("ALTER TABLE t MODIFY b INT")
    batch = sync(mirror).batch
    assert newest(mirror).batch == batch == 1
    assert rows(mirror, "t") == [(1, 1), (2, 2)]
    assert rows(mirror, "u") == [(7,)]
    assert len(newest(mirror).at(batch=0).arrow(f"{mirror.database}.t")) == 2
    assert sync(mirror).message.startswith("nothing new")
    mirror.execute("INSERT INTO t VALUES (3, 3)")
    sync(mirror)
    assert rows(mirror, "t") == [(1, 1), (2, 2), (3, 3)]


def test_a_sync_gives_no_advice_for_a_table_that_it_copied(
    mirror: Mirror, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_TESTS", mirror.server.uri())
    copy(mirror)
    mirror.execute("ALTER TABLE t MODIFY b INT")
    assert command_line.run(["sync", "--config", str(mirror.write_yaml())]) == 0
    said = capsys.readouterr()
    assert f"snapshotted again: {mirror.database}.t: " in said.err
    assert "→" not in said.err.replace("binlog", "").split("snapshotted again: ")[1]
    assert "resnapshot" not in said.out + said.err
    assert rows(mirror, "t") == [(1, 1), (2, 2)]


def test_a_table_that_was_copied_while_others_changed_is_in_the_newest_version(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy(mirror)
    mirror.execute("ALTER TABLE t MODIFY b INT")
    prepared = snapshots._prepared

    def changed_before(config: PipelineConfig, session: SessionFactory) -> bool:
        mirror.execute("INSERT INTO u VALUES (8)")
        return prepared(config, session)

    monkeypatch.setattr(snapshots, "_prepared", changed_before)
    report = sync(mirror)
    assert [run.batch for run in (*report.earlier, report)] == [1, 2]
    assert rows(mirror, "t") == [(1, 1), (2, 2)]
    assert rows(mirror, "u") == [(7,), (8,)]
    assert watermarks.ahead(mirror.metadata) is None


@on_mariadb
def test_a_snapshot_at_the_newest_version_changes_it(mirror: Mirror) -> None:
    mirror.exclude = [f"{mirror.database}.t"]
    copy(mirror)
    with pytest.raises(UsageError, match="there is no table"):
        rows(mirror, "t")
    mirror.exclude = []
    copy(mirror)
    copy(mirror, f"{mirror.database}.u")
    assert newest(mirror).batch == 0
    assert rows(mirror, "t") == [(1, "1"), (2, "2")]
    assert rows(mirror, "u") == [(7,)]
    mirror.execute("INSERT INTO u VALUES (8)")
    copy(mirror, f"{mirror.database}.t")  # at a position that no batch has reached
    assert rows(mirror, "t") == [(1, "1"), (2, "2")]
    sync(mirror)
    assert rows(mirror, "t") == [(1, "1"), (2, "2")]
    assert rows(mirror, "u") == [(7,), (8,)]
