"""Resume: paused and stopped tables follow the log again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from binlake.config import PipelineConfig
from binlake.errors import BinlakeError, TableError, UsageError
from binlake.metadata import decisions, lease, watermarks
from binlake.metadata.decisions import Reason
from binlake.metadata.failures import noted
from binlake.metadata.held_row import LOOK_AGAIN
from binlake.metadata.lease import Lease
from binlake.metadata.metadata import metadata_of, now_us
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.source.log import Origin
from binlake.spark.starting import SessionFactory

PATIENCE = 3600.0
"""Seconds for which work that was begun waits for the lease, which hourly syncs may hold for long."""
_TURN, _GROWS, _GAP = 2.0, 1.5, LOOK_AGAIN + 0.1
"""Seconds after which the lease is given back for the first time between two batches, how many times as long each
further turn is, so that new batches don't come faster than missed ones are carried, and the seconds for which others
may take the lease."""


@noted("resume")
def resume(
    config: PipelineConfig, origin: Origin, session: SessionFactory, report: Report, name: TableName, reason: Reason
) -> str:
    """Carry a paused or stopped table through the batches that it missed, and let it follow again. Return a message.

    The lease is given back now and then: the other tables follow meanwhile.
    """
    metadata = metadata_of(config)
    with lease.held(metadata, by_turns=True) as held:
        _row_to_resume(config, held, name)
        batch = held.control().batch
        decisions.note(held.metadata, "resume", reason, database=name.database, table=name.table, batch=batch)
    return follow_again(config, origin, session, report, name)


def follow_again(
    config: PipelineConfig, origin: Origin, session: SessionFactory, report: Report, name: TableName
) -> str:
    """Carry a paused or stopped table through what it missed, by turns with others, and return a message."""
    began_us, turn = now_us(), _TURN
    while not (message := _take_turn(config, origin, session, report, name, began_us, turn)):
        time.sleep(_GAP)
        turn *= _GROWS
    return message


def _take_turn(
    config: PipelineConfig,
    origin: Origin,
    session: SessionFactory,
    report: Report,
    name: TableName,
    began_us: int,
    turn: float,
) -> str:
    """Carry a table through some batches; return a message once it follows, else an empty text.

    began_us: before the first turn. turn: seconds after which no further batch is carried.
    """
    from binlake.phases.catchup import catch_up  # it imports the decoder, which most commands don't need

    with lease.held(metadata_of(config), by_turns=True, patience=PATIENCE) as held:
        metadata, row = held.metadata, _row_to_resume(config, held, name)
        position = held.control().position
        assert position is not None  # the table has a life
        life = catch_up(config, origin, session, held, row, report, time.monotonic() + turn)
        if life is None:
            return ""
        held.read_under("")
        watermarks.follow_again(metadata, life.id, config.is_read, began_us=began_us)
    return f"{name} follows again, at {position.short}"


def _row_to_resume(config: PipelineConfig, held: Lease, name: TableName) -> dict[str, Any]:
    """Return the watermark of a table that can be resumed now. Raises UsageError."""
    control = held.control()
    if control.open is not None:
        raise UsageError(f"batch {control.open.batch} is open", remedy="run binlake sync to finish it, then resume")
    row = decisions.row_to_resume(held.metadata, name)
    if not config.included(name):
        raise UsageError(f"{name} isn't included", remedy="take it into tables.include in the YAML, then resume")
    return row


def resume_all(
    config: PipelineConfig,
    origin: Origin,
    session: SessionFactory,
    report: Report,
    tables: Sequence[TableName],
    reason: Reason,
) -> list[str]:
    """Resume tables one after the other, except those that follow, so that a call can be repeated. Return messages.

    Raises the first error once all tables were tried.
    """
    messages: list[str] = []
    failed: list[BinlakeError] = []
    for name in tables:
        try:
            follows = decisions.follows(metadata_of(config), name)
            messages.append(f"{name} follows" if follows else resume(config, origin, session, report, name, reason))
            report.say(messages[-1])
        except (UsageError, TableError) as error:
            report.say(str(error))
            failed.append(error)
    if failed:
        raise failed[0]
    return messages
