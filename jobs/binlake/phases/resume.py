"""Resume: paused and stopped tables follow the log again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from binlake.config import PipelineConfig
from binlake.delta import delta_log
from binlake.delta.delta_log import LakeLog
from binlake.errors import BinlakeError, TableError, UsageError, resnapshot_again
from binlake.lease import lease
from binlake.lease.held_row import LOOK_AGAIN
from binlake.lease.lease import Lease
from binlake.phases import missed_changes
from binlake.position import Position
from binlake.records import decisions, table_versions, watermarks
from binlake.records.decisions import Reason
from binlake.records.failures import noted
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.source.log import Origin
from binlake.spark.starting import SessionFactory
from binlake.store.metadata import Metadata, metadata_of, now_us
from binlake.store.rows import BatchRow, WatermarkRow

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
        row = rewound(config, metadata, row, report)
        life = catch_up(config, origin, session, held, row, report, time.monotonic() + turn)
        if life is None:
            return ""
        held.read_under("")
        watermarks.follow_again(metadata, life.id, config.is_listed, began_us=began_us)
    return f"{name} follows again, at {position.short}"


def _row_to_resume(config: PipelineConfig, held: Lease, name: TableName) -> WatermarkRow:
    """Return the watermark of a table that can be resumed now. Raises UsageError."""
    control = held.control()
    if control.open is not None:
        raise UsageError(f"batch {control.open.batch} is open", remedy="run binlake sync to finish it, then resume")
    row = decisions.row_to_resume(held.metadata, name)
    if not config.included(name):
        raise UsageError(f"{name} isn't included", remedy="take it into tables.include in the YAML, then resume")
    missed_changes.refuse_missed(held.metadata, row.table_id, name, Position.parse(row.position).server)
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


def rewound(config: PipelineConfig, metadata: Metadata, row: WatermarkRow, report: Report) -> WatermarkRow:
    """Return the watermark of a stopped table as it was before the batches whose commits are lost, once it is written;
    the row itself where none is.

    Raises UsageError where it isn't known which batches these are.
    """
    name, recorded = row.name, row.delta_version
    log = LakeLog.of(config, name, row.table_id)
    if row.status != "stopped" or recorded is None or not log.exists() or (newest := log.version()) >= recorded:
        return row
    first = _first_lost(metadata, log, row.table_id, newest)
    ranges = BatchRow.read(metadata, "range", where=f"batch = {first} AND state = 'recorded'") if first else []
    if first is None or not ranges:
        raise UsageError(
            f"{name} is at Delta version {newest}, {recorded} was recorded, and it isn't known which batches are lost",
            remedy=resnapshot_again(name),
        )
    start = ranges[0].carried.start
    report.say(
        f"{name}: Delta versions {newest + 1} to {recorded} are lost, with what batch {first} and later ones wrote: "
        "these are carried again; versions of the lake up to now have no such table any more"
    )
    table_versions.note_lost(metadata, row.table_id, newest)
    at_start = replace(row, batch=first, position=str(start), gtid_set=start.gtid_set)
    back = replace(at_start, delta_version=newest, updated_us=now_us())
    watermarks.write(metadata, [back])
    return back


def _first_lost(metadata: Metadata, log: LakeLog, life: str, newest: int) -> int | None:
    """Return the first batch of which a life lacks something, judged by its table's Delta version; None where the noted
    versions don't show it."""
    noted = table_versions.standing_at(metadata, life, newest)
    if noted is None:
        return None
    version, first = noted
    if any(delta_log.changes_rows(commit) for commit in log.history(version)):
        return None  # a part of a batch
    return first
