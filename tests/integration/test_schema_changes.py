"""Schema changes that wait for somebody's yes or no, where a server copies tables: SQL in, tables out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from binlake import faults
from binlake.faults import FaultPoint
from binlake.records import decisions, waiting_changes
from binlake.records.decisions import Reason
from binlake.records.status import read_status
from binlake.schema.table import TableName
from mirror import WAYS, Mirror, on_mariadb, sync_alone
from servers import Server
from without_spark import verify

WHY = Reason("ada", "seen")
ASK = [{"tables": "*.*", "add": "ask", "drop": "ask", "rename": "ask", "retype": "ask"}]


@pytest.fixture
def alone(server: Server, database: str, lake: Path) -> Mirror:
    """A lake that follows the log of two tables, t and u, of which t asks at each schema change."""
    options = {"merge": WAYS[0], "on_schema_change": ASK, "snapshot": {"reader": "direct"}}
    mirror = Mirror(server, database, lake, None, options=options)  # type: ignore[arg-type]
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 10), (2, 20)",
        "CREATE TABLE u (id INT PRIMARY KEY)",
    )  # fmt: skip
    sync_alone(mirror)
    return mirror


def stored(mirror: Mirror, table: str = "t") -> list[dict[str, Any]]:
    lake = DeltaTable(mirror.path(table))
    return pa.table(QueryBuilder().register("t", lake).execute("SELECT * FROM t ORDER BY id").read_all()).to_pylist()


def answer(mirror: Mirror, *, yes: bool) -> str:
    return waiting_changes.answer(mirror.config, TableName(mirror.database, "t"), WHY, yes=yes)


def status_of(mirror: Mirror) -> str:
    return str(mirror.watermark("t")["status"])


def test_after_a_no_the_lake_goes_without_the_new_column_for_good(alone: Mirror) -> None:
    alone.execute("ALTER TABLE t ADD secret VARCHAR(9) DEFAULT 'x'", "INSERT INTO t VALUES (3, 30, 'y')")
    sync_alone(alone)
    assert "the lake goes without 'secret'" in answer(alone, yes=False)
    sync_alone(alone)
    alone.execute("UPDATE t SET secret = 'z' WHERE id = 1", "INSERT INTO t VALUES (4, 40, 'y')")
    sync_alone(alone)
    rows = [{"id": number, "v": 10 * number} for number in (1, 2, 3, 4)]
    assert (stored(alone), status_of(alone)) == (rows, "following")
    assert verify(alone).equal
    decisions.resnapshot(alone.config, TableName(alone.database, "t"), WHY)
    sync_alone(alone)
    assert (stored(alone), status_of(alone)) == (rows, "following")
    alone.execute("INSERT INTO t VALUES (5, 50, 'y')", "RENAME TABLE t TO w")
    sync_alone(alone)
    sync_alone(alone)
    assert stored(alone, "w") == [*rows, {"id": 5, "v": 50}]
    assert verify(alone).equal
    waiting_changes.take_in(alone.config, TableName(alone.database, "w"), "secret", WHY)
    sync_alone(alone)
    assert [row["secret"] for row in stored(alone, "w")] == ["z", "x", "y", "y", "y"]
    assert verify(alone).equal


class CutOff(Exception):
    """The process is killed here."""


def cut_off_at(point: FaultPoint) -> Callable[[FaultPoint], None]:
    def reached(here: FaultPoint) -> None:
        if here == point:
            raise CutOff

    return reached


@on_mariadb
def test_a_tools_copy_waits_and_comes_by_a_snapshot(alone: Mirror) -> None:
    alone.execute(
        "CREATE TABLE _t_new LIKE t", "ALTER TABLE _t_new ADD n INT, ADD secret INT",
        "INSERT INTO _t_new SELECT id, v, 5, 6 FROM t",
    )  # fmt: skip
    sync_alone(alone)
    alone.execute("RENAME TABLE t TO _t_old, _t_new TO t", "DROP TABLE _t_old", "INSERT INTO t VALUES (3, 30, 5, 6)")
    sync_alone(alone)
    (waits,) = read_status(alone.config).waiting
    assert list(waits.held.changes) == ["adds 'n' int", "adds 'secret' int"]
    assert [row["id"] for row in stored(alone)] == [1, 2]
    with mock.patch.object(faults, "at_point", cut_off_at("answer known")), pytest.raises(CutOff):
        answer(alone, yes=False)
    sync_alone(alone)
    sync_alone(alone)
    assert stored(alone) == [{"id": number, "v": 10 * number} for number in (1, 2, 3)]
    assert verify(alone).equal


@on_mariadb
def test_what_waits_may_be_dropped_or_made_in_the_same_batch(alone: Mirror) -> None:
    alone.execute("ALTER TABLE t ADD n INT")
    alone.execute("CREATE TABLE w (id INT PRIMARY KEY)", "INSERT INTO w VALUES (1)", "ALTER TABLE w ADD n INT")
    sync_alone(alone)
    alone.execute("DROP TABLE t")
    sync_alone(alone)
    assert status_of(alone) == "dropped"
    (waits,) = read_status(alone.config).waiting
    assert str(waits.table) == f"{alone.database}.w"
    waiting_changes.answer(alone.config, TableName(alone.database, "w"), WHY, yes=True)
    sync_alone(alone)
    assert stored(alone, "w") == [{"id": 1, "n": None}]
