"""A paused table that goes through what it missed keeps the modes of its mirror, and steps over what others did: SQL
in, rows out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from binlake import faults, pipeline
from binlake.errors import CorruptEvent
from binlake.faults import FaultPoint
from binlake.lake.opened_lake import open_lake
from binlake.records import ddl_history, decisions
from binlake.records.decisions import Reason
from binlake.report import Report
from binlake.schema.lake_columns import BATCH
from binlake.schema.table import TableName
from binlake.storage import files
from mirror import WAYS, CutOff, Mirror, on_mariadb, sync_alone
from no_session import NoSession
from servers import Server

WHY = Reason("tests", "to see")


@pytest.fixture
def alone(server: Server, database: str, lake: Path) -> Mirror:
    return Mirror(server, database, lake, None, options={"merge": WAYS[0]})  # type: ignore[arg-type]


def stored(path: str) -> list[dict[str, Any]]:
    read = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t ORDER BY 1, 2").read_all()
    return pa.table(read).to_pylist()


def paused_for(mirror: Mirror, *statements: str) -> None:
    """Sync what is there, and while t is paused these statements; then resume it."""
    name = TableName(mirror.database, "t")
    sync_alone(mirror)
    decisions.pause(mirror.config, name, WHY)
    mirror.execute(*statements)
    sync_alone(mirror)
    pipeline.resume(mirror.config, mirror.origin, NoSession(), Report(), name, WHY)


@on_mariadb
def test_deleted_rows_stay_and_rows_tell_of_themselves(alone: Mirror) -> None:
    alone.modes = [{"tables": "*.t", "soft_delete": True, "row_metadata": ["batch"], "log": {}}]
    alone.follow_from_here()
    alone.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    paused_for(alone, "DELETE FROM t WHERE id = 1", "UPDATE t SET v = 20 WHERE id = 2", "INSERT INTO t VALUES (4, 4)")
    rows = [(row["id"], row["v"], row["_deleted"], row[BATCH]) for row in stored(alone.path("t"))]
    assert rows == [(1, 1, True, 2), (2, 20, False, 2), (3, 3, False, 1), (4, 4, False, 2)]
    log = stored(alone.config.beside_path(TableName(alone.database, "t"), "log"))
    assert sorted(row["operation"] for row in log) == ["delete", *["insert"] * 4, "update"]
    alone.execute("DELETE FROM t WHERE id = 2")
    sync_alone(alone)
    assert [row["id"] for row in stored(alone.path("t")) if row["_deleted"]] == [1, 2]


XA = ("XA START 'x'", "INSERT INTO t VALUES (2)", "INSERT INTO u VALUES (2)", "XA END 'x'", "XA PREPARE 'x'")


@pytest.fixture
def two(alone: Mirror) -> Mirror:
    alone.follow_from_here()
    alone.execute("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    sync_alone(alone)
    return alone


def test_an_xa_transaction_over_two_of_the_batches(two: Mirror) -> None:
    name = TableName(two.database, "t")
    decisions.pause(two.config, name, WHY)
    for statements in (XA, ["INSERT INTO u VALUES (3)"], ["XA COMMIT 'x'", "INSERT INTO t VALUES (4)"]):
        two.execute(*statements)
        sync_alone(two)
    pipeline.resume(two.config, two.origin, NoSession(), Report(), name, WHY)
    two.assert_equal("t", "u")
    assert [files.subfolders(two.config.staging_path(batch)) for batch in ("2", "3", "4")] == [[], [], []]


@pytest.mark.parametrize("stage", [2, 3, 4])
@on_mariadb
def test_an_xa_transaction_over_two_of_the_batches_and_a_kill_between(two: Mirror, stage: int) -> None:
    name = TableName(two.database, "t")
    decisions.pause(two.config, name, WHY)
    for statements in (XA, ["INSERT INTO u VALUES (3)"], ["XA COMMIT 'x'", "INSERT INTO t VALUES (4)"]):
        two.execute(*statements)
        sync_alone(two)
    seen = 0

    def reached(point: FaultPoint) -> None:
        nonlocal seen
        seen += point == "slice staged"
        if seen == stage - 1:
            raise CutOff(point)

    with mock.patch.object(faults, "at_point", reached), pytest.raises(CutOff):
        pipeline.resume(two.config, two.origin, NoSession(), Report(), name, WHY)
    pipeline.resume(two.config, two.origin, NoSession(), Report(), name, WHY)
    two.assert_equal("t", "u")


@on_mariadb
def test_the_newest_version_has_what_an_earlier_batch_changed(two: Mirror) -> None:
    name = TableName(two.database, "t")
    decisions.pause(two.config, name, WHY)
    for statement in ("INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (3)"):
        two.execute(statement)
        sync_alone(two)
    pipeline.resume(two.config, two.origin, NoSession(), Report(), name, WHY)
    assert open_lake(two.config).tables[str(name)] == two.version("t")


@pytest.mark.parametrize("leaves_out", [True, False], ids=["left out of the YAML", "paused"])
def test_an_xa_transaction_that_ends_later(two: Mirror, leaves_out: bool) -> None:
    name = TableName(two.database, "t")
    two.options["policies"] = {"on_unfollowable": "stop"}
    if leaves_out:
        two.exclude = [str(name)]
    else:
        decisions.pause(two.config, name, WHY)
    two.execute("INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (1)")
    sync_alone(two)
    two.execute(*XA)
    sync_alone(two)
    two.exclude = []
    sync_alone(two)
    assert two.watermark("t")["status"] == ("stopped" if leaves_out else "paused")
    pipeline.resume(two.config, two.origin, NoSession(), Report(), name, WHY)
    two.execute("XA COMMIT 'x'", "INSERT INTO u VALUES (3)")
    sync_alone(two)
    two.assert_equal("t", "u")
    two.execute("INSERT INTO u VALUES (4)")
    sync_alone(two)
    assert files.subfolders(two.config.staging_path()) == []


@on_mariadb
def test_a_mirror_without_rows_has_none(alone: Mirror) -> None:
    alone.modes = [{"tables": "*.t", "mirror": False, "log": {}}]
    alone.follow_from_here()
    alone.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    paused_for(alone, "INSERT INTO t VALUES (2, 2)", "ALTER TABLE t ADD w INT")
    assert stored(alone.path("t")) == []
    assert f"{alone.database}.t" not in open_lake(alone.config).tables
    assert [field.name for field in DeltaTable(alone.path("t")).schema().fields] == ["id", "v", "w"]


@on_mariadb
def test_an_event_that_was_stepped_over_meanwhile(alone: Mirror, tmp_path: Path) -> None:
    name = TableName(alone.database, "t")
    alone.follow_from_here()
    alone.execute("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (v VARCHAR(9))")
    sync_alone(alone)
    decisions.pause(alone.config, name, WHY)
    alone.execute("INSERT INTO u VALUES ('poison')", "INSERT INTO t VALUES (1)", "FLUSH BINARY LOGS")
    (archive := tmp_path / "archive").mkdir()
    for file in alone.server.datadir.glob("binlog.0*"):
        (archive / file.name).write_bytes(file.read_bytes().replace(b"\x06poison", b"\x06poisoN"))
    mirror = replace(alone, files=archive)
    with pytest.raises(CorruptEvent) as damaged:
        sync_alone(mirror)
    decisions.skip_event(mirror.config, (damaged.value.file, damaged.value.offset), WHY)
    sync_alone(mirror)
    pipeline.resume(mirror.config, mirror.origin, NoSession(), Report(), name, WHY)
    mirror.assert_equal("t")


@on_mariadb
def test_a_table_that_was_paused_ahead_of_the_others(alone: Mirror) -> None:
    name, alone.reader = TableName(alone.database, "t"), "direct"
    alone.follow_from_here()
    alone.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY)")
    sync_alone(alone)
    alone.execute("INSERT INTO t VALUES (1, 1), (2, 2)", "INSERT INTO u VALUES (1)")
    alone.snapshot(str(name))
    decisions.pause(alone.config, name, WHY)
    alone.execute("UPDATE t SET v = 20 WHERE id = 2")
    sync_alone(alone)
    pipeline.resume(alone.config, alone.origin, NoSession(), Report(), name, WHY)
    alone.assert_equal("t", "u")


@on_mariadb
def test_the_default_character_set_is_the_databases(alone: Mirror) -> None:
    alone.execute(f"ALTER DATABASE {alone.database} CHARACTER SET latin1")
    alone.follow_from_here()
    alone.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9)) CHARACTER SET utf8mb4",
        "INSERT INTO t VALUES (1, 'é')",
    )
    paused_for(alone, "ALTER TABLE t CONVERT TO CHARACTER SET DEFAULT", "INSERT INTO t VALUES (2, 'ü')")
    assert [row["v"] for row in stored(alone.path("t"))] == ["é", "ü"]
    schema = ddl_history.schema_now(alone.metadata, alone.watermark("t")["table_id"])
    assert schema
    assert schema.column("v").charset == "latin1"


@on_mariadb
def test_a_stopped_table_that_is_cut_off_on_its_way(alone: Mirror) -> None:
    name = TableName(alone.database, "t")
    alone.options |= {"policies": {"on_truncate": "stop"}}
    alone.follow_from_here()
    alone.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    sync_alone(alone)
    alone.execute(
        "TRUNCATE t", "INSERT INTO t VALUES (2, 2)", "ALTER TABLE t ADD w INT", "INSERT INTO t VALUES (3, 3, 3)"
    )
    sync_alone(alone)
    assert alone.watermark("t")["status"] == "stopped"
    alone.options |= {"policies": {"on_truncate": "follow"}}
    staged = files.subfolders(alone.config.staging_path("2"))
    with alone.cut_off_at("epoch committed"):
        pipeline.resume(alone.config, alone.origin, NoSession(), Report(), name, WHY)
    assert files.subfolders(alone.config.staging_path("2")) == staged
    pipeline.resume(alone.config, alone.origin, NoSession(), Report(), name, WHY)
    alone.assert_equal("t")
