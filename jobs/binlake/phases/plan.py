"""Plan: choose the next range of the log. It is written to metadata before anything is read."""

from __future__ import annotations

import time
from datetime import datetime
from typing import NamedTuple

from binlake.binlog.boundaries import Boundary, transaction_boundaries
from binlake.binlog.locate import between
from binlake.binlog.transport import Transport
from binlake.config import FollowConfig, PipelineConfig
from binlake.errors import NoSnapshotYet
from binlake.faults import fault
from binlake.metadata import leftovers, life_settings
from binlake.metadata.failures import noted
from binlake.metadata.intervals import merged_by
from binlake.metadata.lease import Lease, OpenBatch
from binlake.metadata.metadata import now_us
from binlake.metadata.record import changed_by_yaml, note_log, note_open
from binlake.phases.begun_before import begun_before
from binlake.phases.outcomes import PlanOutcome
from binlake.phases.watch import refuse_unlogged
from binlake.position import Position, Range, Slice
from binlake.report import counted
from binlake.schema.cascades import Cascade
from binlake.source.ahead import log_seen
from binlake.source.lineage import check_position, has_read_between, range_elsewhere
from binlake.source.listed_tables import included_databases
from binlake.source.log import Log, Origin, opened
from binlake.source.server import Source
from binlake.source.unlogged_cascades import unlogged_cascades

_LOG_NOTED_EACH = 8
"""Batches of seconds of which one notes what the server says of its log."""


class Limit(NamedTuple):
    """How far a range goes: before a time, or to a position; without either to the log's head.

    most_bytes: a range ends before the first transaction that begins behind so many bytes of log.
    """

    until: datetime | None = None
    stop_at: Position | None = None
    most_bytes: int | None = None

    @classmethod
    def of_follower(cls, config: PipelineConfig) -> Limit:
        return cls(most_bytes=(config.follow or FollowConfig()).batch_bytes)


class PlannedRange(NamedTuple):
    """The range of a batch. until_us: the commit time of the first transaction behind it, in microseconds since 1970,
    or the asked one; None where the range goes to the log's head or to a position."""

    range: Range
    until_us: int | None = None


@noted("plan")
def plan_batch(held: Lease, config: PipelineConfig, origin: Origin | Log, limit: Limit) -> PlanOutcome:
    """Write down the range of the next batch, unless there is an open batch or nothing new. Raises NoSnapshotYet."""
    control = held.control()
    if control.open is not None:
        return begun_before(control.open)
    recorded_state = control.recorded_state
    if recorded_state is None:
        raise NoSnapshotYet
    leftovers.remove_recorded(config, recorded_state)
    recorded_state, changed = life_settings.compare(held, config, recorded_state)
    tables = tuple(map(changed_by_yaml, changed))
    began = time.monotonic()
    with opened(origin) as log:
        refuse_unlogged(held.metadata, log, recorded_state.position)
        batch_range, until_us = next_range(log, log.transport(), recorded_state.position, limit)
        cascades = _cascades(config, log) if isinstance(log, Source) and not batch_range.empty else None
        if isinstance(log, Source) and not batch_range.empty and recorded_state.charsets is None:
            from binlake.source.catalog import database_charsets  # asked once in a lake's life

            held.know(recorded_state, database_charsets(log))
        lower_case_names = log.lower_case_names
        if not held.by_turns or control.batch % _LOG_NOTED_EACH == 0:
            planned_batch = control.batch if batch_range.empty else control.batch + 1
            note_log(held.metadata, log_seen(log, batch_range.stop), planned_batch)
    if batch_range.empty:
        message = f"nothing new: proved up to {batch_range.stop.short}, the stop of batch {control.batch}"
        by = merged_by(held.metadata, limit.until) if limit.until else None
        if by and limit.until:
            message += f"; what was committed before {limit.until:%Y-%m-%d %H:%M:%S %Z}: {by.text}"
        merged = by.batch if by else None
        return PlanOutcome(control.batch, True, str(batch_range.stop), message, merged_by=merged, tables=tables)
    planned = OpenBatch(
        control.batch + 1,
        batch_range,
        until_us=until_us,
        planned_us=now_us(),
        cascades=cascades,
        lower_case_names=lower_case_names,
    ).with_phase("plan", time.monotonic() - began)
    held.open(planned)
    note_open(held, planned)
    fault("planned")
    message = (
        f"batch {planned.batch}: {batch_range.start.short} → {batch_range.stop.short}, "
        f"{counted(len(batch_range.slices), 'slice')}, {batch_range.size / 1e6:,.1f} MB of log"
    )
    if batch_range.start.server != recorded_state.position.server:
        message = (
            f"going on from {recorded_state.position.server} on {batch_range.start.server}, "
            f"of the same lineage; {message}"
        )
    return PlanOutcome(planned.batch, False, str(batch_range.stop), message, tables=tables)


def _cascades(config: PipelineConfig, source: Source) -> tuple[Cascade, ...] | None:
    cascades = unlogged_cascades(source, included_databases(source, config))
    return None if cascades is None else tuple(cascade for cascade in cascades if config.included(cascade.child))


def next_range(log: Log, transport: Transport, start: Position, limit: Limit) -> PlannedRange:
    """Return the range from ``start`` as far as the limit lets it go.

    On another server of the same lineage the range begins at the equivalent position there (source/lineage.py), and
    goes to the log's end where transactions that the lake holds are behind the limit. With a time as the limit, it
    stops before the first transaction, in log order, that committed at or after that time; later transactions with
    earlier commit times belong to the next interval.
    """
    stop_at, until_us = limit.stop_at, None if limit.until is None else int(limit.until.timestamp() * 1e6)
    is_over = until_us is not None and until_us <= log.now()  # before the end is asked for: commits may come meanwhile
    stop = (stop_at.file, stop_at.offset, stop_at.gtid_set) if stop_at else log.head()
    is_elsewhere = not log.is_of(start.server)
    full = (range_elsewhere if is_elsewhere else _range_on_server)(log, transport, start, stop)
    planned = PlannedRange(full)
    if until_us is not None and is_over and not full.empty:
        planned = _until(transport, full, until_us)
    if limit.most_bytes is not None and planned.range.size > limit.most_bytes:
        planned = _up_to_size(transport, planned, limit.most_bytes)
    # The next range reads all that is behind this one.
    if (
        is_elsewhere
        and not planned.range.empty
        and has_read_between(log, transport, start, planned.range.stop, full.stop)
    ):
        return PlannedRange(full)
    return planned


def _range_on_server(log: Log, transport: Transport, start: Position, stop: tuple[str, int, str]) -> Range:
    """Return the range in the log of the server that the lake follows."""
    check_position(log, transport, start)
    file, offset, gtid_set = stop
    slices = between(transport, log.binary_logs(), (start.file, start.offset), (file, offset))
    return Range(start, Position(start.server, file, offset, slices[-1].created, gtid_set), slices)


def _until(transport: Transport, full: Range, until_us: int) -> PlannedRange:
    """Return the part of a range before the first transaction that committed at or after ``until_us``."""
    for index, part in enumerate(full.slices):
        for boundary in transaction_boundaries(transport, part):
            if boundary.committed_us >= until_us:
                return PlannedRange(_before(full, index, boundary), until_us)
    return PlannedRange(full, until_us)


def _up_to_size(transport: Transport, planned: PlannedRange, most_bytes: int) -> PlannedRange:
    """Return the part of a range before the first transaction that begins behind ``most_bytes`` of it. Only the slice
    in which it ends is read."""
    bytes_before = 0
    for index, part in enumerate(planned.range.slices):
        if bytes_before + part.size > most_bytes:
            for boundary in transaction_boundaries(transport, part):
                if bytes_before + boundary.start_offset - part.start >= most_bytes:
                    return PlannedRange(_before(planned.range, index, boundary), boundary.committed_us)
        bytes_before += part.size
    return planned


def _before(full: Range, index: int, boundary: Boundary) -> Range:
    """Return the part of a range before a transaction, which is in its slice of that index."""
    part = full.slices[index]
    stop = Position(full.start.server, part.file, boundary.start_offset, part.created)
    last = Slice(part.file, part.start, boundary.start_offset, part.created, whole=False)
    return Range(full.start, stop, (*full.slices[:index], last))
