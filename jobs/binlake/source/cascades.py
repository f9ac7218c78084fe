"""Which foreign keys act below the server's log.

InnoDB cascades by itself, so nothing is logged, on MariaDB and on MySQL up to 9.5; from 9.6 on MySQL does it above the
engine and logs every row, unless innodb_native_foreign_keys is ON (manual, "FOREIGN KEY Constraints").
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from binlake.schema.cascades import Cascade
from binlake.schema.table import TableName
from binlake.source.server import Source


def _logs_cascades(source: Source) -> bool:
    """Whether the server writes the rows that its foreign keys change into its log."""
    if source.is_mariadb or source.version < (9, 6):
        return False
    native = source.variables(["innodb_native_foreign_keys"]).get("innodb_native_foreign_keys", "OFF")
    return native in ("OFF", "0")


def unlogged_cascades(source: Source) -> tuple[Cascade, ...] | None:
    """Of all tables that the account may see; None where the server logs what cascades change."""
    if _logs_cascades(source):
        return None
    rows = source.query(
        "SELECT r.constraint_schema AS d, r.table_name AS t, r.constraint_name AS c, r.unique_constraint_schema AS pd,"
        " r.referenced_table_name AS pt, r.delete_rule AS del, r.update_rule AS upd, k.column_name AS col,"
        " k.referenced_column_name AS ref"
        " FROM information_schema.referential_constraints r JOIN information_schema.key_column_usage k"
        " ON k.constraint_schema = r.constraint_schema AND k.table_name = r.table_name"
        " AND k.constraint_name = r.constraint_name AND k.referenced_table_name IS NOT NULL"
        " ORDER BY k.ordinal_position"
    )
    keys: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        keys[row["d"], row["t"], row["c"]].append(row)
    found = [_cascade(parts) for _, parts in sorted(keys.items())]
    return tuple(one for one in found if one.on_delete or one.on_update)


def _cascade(parts: list[dict[str, Any]]) -> Cascade:
    one = parts[0]
    return Cascade(
        child=TableName(one["d"], one["t"]),
        parent=TableName(one["pd"], one["pt"]),
        key=one["c"],
        columns=tuple(part["col"] for part in parts),
        referenced=tuple(part["ref"] for part in parts),
        delete=one["del"],
        update=one["upd"],
    )
