"""Foreign keys whose actions the server doesn't log.

On MariaDB, and on MySQL up to 9.5, InnoDB carries them out itself, so nothing is logged. From 9.6 on, MySQL does it
above the engine and logs every row, unless innodb_native_foreign_keys is ON (manual, "FOREIGN KEY Constraints").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from binlake.schema.cascades import PASSIVE, Cascade
from binlake.schema.table import TableName
from binlake.source.server import Source


def _logs_cascades(source: Source) -> bool:
    """Return whether the server logs the rows that its foreign keys change."""
    if not source.release.may_log_cascades:
        return False
    native = source.variables(["innodb_native_foreign_keys"]).get("innodb_native_foreign_keys", "OFF")
    return native in ("OFF", "0")


def unlogged_cascades(source: Source, databases: Iterable[str]) -> tuple[Cascade, ...] | None:
    """Return the foreign keys that act unlogged in these databases, of tables that the account may see.

    Returns None if the server logs what cascades change. Each database has its own query: without a name, MariaDB opens
    every table of the server (manual,
    "Optimizing Queries against INFORMATION_SCHEMA").
    """
    if _logs_cascades(source):
        return None
    return tuple(cascade for database in sorted(set(databases)) for cascade in _acting(source, database))


def _acting(source: Source, database: str) -> list[Cascade]:
    rules = source.query(
        "SELECT table_name AS t, constraint_name AS c, unique_constraint_schema AS pd, referenced_table_name AS pt,"
        " delete_rule AS del, update_rule AS upd FROM information_schema.referential_constraints"
        " WHERE constraint_schema = %s AND NOT (delete_rule IN %s AND update_rule IN %s) ORDER BY 1, 2",
        [database, PASSIVE, PASSIVE],
    )
    if not rules:
        return []
    parts: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in source.query(
        "SELECT table_name AS t, constraint_name AS c, column_name AS col, referenced_column_name AS ref"
        " FROM information_schema.key_column_usage WHERE table_schema = %s AND referenced_table_name IS NOT NULL"
        " ORDER BY ordinal_position",
        [database],
    ):
        parts[row["t"], row["c"]].append(row)
    return [_cascade(database, rule, parts[rule["t"], rule["c"]]) for rule in rules]


def _cascade(database: str, rule: dict[str, Any], parts: Sequence[dict[str, Any]]) -> Cascade:
    return Cascade(
        child=TableName(database, rule["t"]),
        parent=TableName(rule["pd"], rule["pt"]),
        key=rule["c"],
        columns=tuple(part["col"] for part in parts),
        referenced=tuple(part["ref"] for part in parts),
        delete=rule["del"],
        update=rule["upd"],
    )
