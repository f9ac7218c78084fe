"""Which foreign keys act below the server's log.

InnoDB cascades by itself, so nothing is logged, on MariaDB and on MySQL up to 9.5; from 9.6 on MySQL does it above the
engine and logs every row, unless innodb_native_foreign_keys is ON (manual, "FOREIGN KEY Constraints").
"""

from __future__ import annotations

from binlake.schema.cascades import Cascade
from binlake.schema.table import TableName
from binlake.source.server import Source

_PASSIVE = frozenset({"RESTRICT", "NO ACTION"})


def unlogged_cascades(source: Source) -> tuple[Cascade, ...]:
    """Of all tables that the account may see; none where the server logs what cascades change."""
    if not source.is_mariadb and source.version >= (9, 6):
        native = source.variables(["innodb_native_foreign_keys"]).get("innodb_native_foreign_keys", "OFF")
        if native in ("OFF", "0"):
            return ()
    rows = source.query(
        "SELECT constraint_schema AS d, table_name AS t, constraint_name AS c, unique_constraint_schema AS pd,"
        " referenced_table_name AS pt, delete_rule AS del, update_rule AS upd"
        " FROM information_schema.referential_constraints"
    )
    return tuple(
        Cascade(
            TableName(row["d"], row["t"]),
            TableName(row["pd"], row["pt"]),
            row["c"],
            row["del"] not in _PASSIVE,
            row["upd"] not in _PASSIVE,
        )
        for row in rows
        if {row["del"], row["upd"]} - _PASSIVE
    )
