"""Rows of the DDL history: a statement, what the lake made of it, and the table's shapes before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from binlake.planner.answers import HeldChange
from binlake.planner.shape_changes import PlacedStatement
from binlake.schema.table import TableName, TableSchema
from binlake.serialization import dumps


@dataclass(frozen=True)
class Effect:
    """What became of a table at a statement. action: see planner/walk.py. held: what is asked, if the table waits."""

    action: str
    reason: str
    held: HeldChange | None = None


def noted_statement(
    here: PlacedStatement,
    name: TableName,
    life: str | None,
    effect: Effect,
    shapes: tuple[TableSchema | None, TableSchema | None],
    text: str,
) -> dict[str, Any]:
    """Return a row of the DDL history, without its batch.

    life: id of the table's life; None without one. shapes: the server's before and after. text: the statement's, as it
    may be kept.
    """
    statement = here.statement
    before, after = shapes
    return {
        "file": statement.file,
        "offset": statement.offset,
        "position": str(here.position),
        "gtid": statement.gtid,
        "committed_us": statement.committed_us,
        "database": name.database,
        "default_database": statement.database,
        "sql_mode": statement.sql_mode,
        "statement": text,
        "kind": here.parsed.kind,
        "table": name.table,
        "table_id": life,
        "action": effect.action,
        "reason": effect.reason or None,
        "before": dumps(before) if before else None,
        "after": dumps(after) if after else None,
        "held": dumps(effect.held) if effect.held else None,
    }
