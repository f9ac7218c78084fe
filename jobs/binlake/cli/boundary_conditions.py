"""A batch's end, or a place in the log, as a condition on a table's history or log."""

from __future__ import annotations

from binlake.config.table_modes import mirror_of
from binlake.delta import log_files
from binlake.errors import LakeError, UsageError
from binlake.lake.opened_lake import Lake
from binlake.lake.table_at import TableAt
from binlake.merge.position_texts import boundary_text, log_mark
from binlake.names import ansi_string
from binlake.position import Position
from binlake.records.ddl_history import Moment

_MARKS = "binlake-history-log:"
"""Beginning of the transaction id that counts how often the log's numbers began again, see history_state.py."""


def condition(lake: Lake, table: str, boundary: str) -> str:
    """Return the condition for the rows that hold at a boundary between two transactions: of a history the versions
    that were current there, of a log the mutations before it.

    table: ``database.table``. boundary: a batch's number, for its end, or a place in the log, ``FILE:POS``. Raises
    UsageError, LakeError.
    """
    at = lake.described(table).at
    mode = mirror_of(at.name.table)
    if mode is None:
        raise UsageError(f"{table} is no history and no log", remedy=f"name one, such as {table}__history")
    if mode[1] == "log" and boundary.isdigit():
        return f"batch <= {lake.at(batch=int(boundary)).batch}"
    if boundary.isdigit():
        then = lake.at(batch=int(boundary))
        order, at = Position.parse(then.position).order, then.described(table).at
    else:
        order = _place(boundary)
    if mode[1] == "log":
        return f"position < {ansi_string(boundary_text(*order))}"
    place = ansi_string(_mark(at) + boundary_text(*order))
    return f"from_position <= {place} AND (to_position IS NULL OR to_position > {place})"


def _place(text: str) -> tuple[int, int]:
    order = Moment.parse(text, "\\boundary").order
    if order is None:
        raise UsageError(
            f"{text!r} is a time", remedy="write a batch's number or a place in the log, binlog.000042:157"
        )
    return order


def _mark(history: TableAt) -> str:
    """Return what positions of a history begin with at its version."""
    recorded = log_files.recorded(history.path, history.version)
    if recorded is None:
        raise LakeError(
            f"the log of {history.name} is in a form that isn't read here",
            remedy="read the history as a batch left it: … AT (BATCH 120), and to_position IS NULL",
        )
    return log_mark(max((number for app, number in recorded.items() if app.startswith(_MARKS)), default=0))
