"""What became of each table: equal, or being stopped with a reason; anything else is a failure."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any, Literal

import pymysql

import comparison
from binlake.names import mysql_quote
from binlake.records import watermarks
from binlake.schema.table import TableName, TableSchema
from binlake.source import catalog
from binlake.source.server import Source
from mirror import Mirror
from servers import Server

Outcome = Literal["equal", "snapshot asked", "stopped", "unreadable", "differs", "crash"]
"""unreadable: by the server itself (a discarded tablespace, a MERGE table over tables of unlike shapes)."""
FAILURES: frozenset[Outcome] = frozenset({"differs", "crash"})
SYSTEM = ("mysql", "information_schema", "performance_schema", "sys")
_VARYING = re.compile(r"\S*binlog\.\d+:\d+|\d+|`[^`]*`|'[^']*'|\"[^\"]*\"|\b\w+\.\w+\b")


@dataclass(frozen=True)
class Verdict:
    """reason: why it is stopped, or in what it differs."""

    database: str
    table: str
    outcome: Outcome
    reason: str = ""

    @property
    def name(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def kind(self) -> str:
        """The reason without names, numbers and places: what many tables have in common."""
        return f"{self.outcome}: {_VARYING.sub('…', self.reason.splitlines()[0] if self.reason else '')}"


def judge(mirror: Mirror) -> list[Verdict]:
    """Every table on the server or in the lake; the lake was synced, the server is at rest."""
    rows = [row for row in mirror.metadata.read("watermarks") if row["status"] != "dropped"]
    living = {TableName(row["database"], row["table"]): row for row in rows}
    shapes = {life.name: life.schema for life in watermarks.read_lives(mirror.metadata) if life.status != "dropped"}
    there = set(tables_of(mirror.server))
    asked = _asked(mirror)
    with Source.open(mirror.endpoint) as source:
        catalogued = catalog.read_schemas(source, there)
    verdicts = []
    for name in sorted(there | living.keys()):
        outcome, reason = _outcome(mirror, name, living.get(name), catalogued.get(name), shapes.get(name))
        if outcome == "equal" and name in asked:
            outcome, reason = "snapshot asked", asked[name]
        verdicts.append(Verdict(name.database, name.table, outcome, reason))
    return verdicts


def tables_of(server: Server) -> list[TableName]:
    """What holds rows: no views."""
    rows = server.execute(
        "SELECT table_schema, table_name FROM information_schema.tables"
        f" WHERE table_schema NOT IN {SYSTEM} AND table_type NOT IN ('VIEW', 'SYSTEM VIEW')"
    )
    return [TableName(database, table) for database, table in rows]


def drop_all(server: Server) -> None:
    """No database but the server's own is left."""
    listed = server.execute(f"SELECT schema_name FROM information_schema.schemata WHERE schema_name NOT IN {SYSTEM}")
    # Whose connection was cut off may take a while to let go of its tables.
    server.execute(
        "SET foreign_key_checks = 0, lock_wait_timeout = 60, innodb_lock_wait_timeout = 60",
        *(f"DROP DATABASE {mysql_quote(name)}" for (name,) in listed),
    )


def _asked(mirror: Mirror) -> dict[TableName, str]:
    """Why a new snapshot of a table was asked for; the last reason."""
    return {
        TableName(row["database"], row["table"]): f"{row['reason']}\n  {row['statement']}"
        for row in mirror.history()
        if row["action"] == "resnapshot asked"
    }


def _outcome(
    mirror: Mirror, name: TableName, row: dict[str, Any] | None, there: TableSchema | None, shape: TableSchema | None
) -> tuple[Outcome, str]:
    """there: its shape in the server's catalog. shape: as the lake recorded it."""
    if row is None:
        return "differs", "the server has it, the lake knows nothing of it"
    if row["status"] != "following":
        return ("stopped", row["reason"]) if row["reason"] else ("differs", f"{row['status']} without a reason")
    if there is None:
        return "differs", "the lake has it, the server doesn't"
    try:
        path = mirror.config.table_path(name)
        comparison.assert_equal(mirror.server, name.database, name.table, path, without=there.untold)
    except pymysql.err.MySQLError as error:
        return "unreadable", str(error)
    except Exception as error:
        return "differs", f"{type(error).__name__}: {error}"
    return ("equal", "") if shape == there else ("differs", f"shapes: {_difference(shape, there)}")


def _difference(recorded: TableSchema | None, there: TableSchema) -> str:
    if recorded is None:
        return "none is recorded"
    ours, its = asdict(recorded), asdict(there)
    parts = [
        f"{key} is {ours[key]!r}, should be {its[key]!r}" for key in ours if key != "columns" and ours[key] != its[key]
    ]
    for mine, other in zip_longest(recorded.columns, there.columns):
        if mine != other:
            parts.append(f"column {mine} should be {other}")
    return "; ".join(parts)
