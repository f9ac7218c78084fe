"""Plan: choose the next range of the log. It is written to metadata before anything is read."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from binlake.binlog.boundaries import Boundary, transaction_boundaries
from binlake.binlog.integrity import format_description
from binlake.binlog.locate import between
from binlake.binlog.transport import Transport
from binlake.config import FollowConfig, PipelineConfig, hash_connections
from binlake.config.column_policies import key_connections
from binlake.errors import BinlogError, NoSnapshotYet, PositionLost
from binlake.faults import fault
from binlake.lake import merged_tables
from binlake.lease.lease import Lease, OpenBatch
from binlake.phases import missed_changes
from binlake.phases.begun_before import begun_before
from binlake.phases.log_looks import refuse_unlogged
from binlake.phases.outcomes import PlanOutcome
from binlake.planner.outcome import NEVER_SNAPSHOTTED
from binlake.position import Position, Range, Slice
from binlake.records import awaited_tables, leftovers, life_settings, lost_tables, waiting_changes, watermarks
from binlake.records.failures import noted
from binlake.records.intervals import MergedBy, merged_by
from binlake.records.record import LookKind, changed_by_yaml, missing_run, note_log, note_open, standing_still
from binlake.report import Report, counted
from binlake.schema.cascades import Cascade
from binlake.source.ahead import log_seen
from binlake.source.lineage import check_position, has_read_between, range_elsewhere
from binlake.source.listed_tables import included_among, included_databases
from binlake.source.log import Log, Origin, opened
from binlake.source.server import Source
from binlake.source.unlogged_cascades import unlogged_cascades
from binlake.store.metadata import Metadata, now_us
from binlake.store.run_rows import TableRun

_LOOKS_EACH = 8
"""Batches of seconds of which one notes what the server says of its log, and which tables it has."""


class Limit(NamedTuple):
    """How far a range goes: before a time, or to a position; without either to the log's head.

    most_bytes: a range ends before the first transaction that begins behind so many bytes of log.
    """

    until: datetime | None = None
    stop_at: Position | None = None
    most_bytes: int | None = None

    @classmethod
    def of_follower(cls, config: PipelineConfig) -> Limit:
        """Return the limit of a follower's batch: the YAML's ``follow.batch_bytes``."""
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
    hash_connections.look_again(key_connections(config.columns))
    config = config.leaving_out(control.columns_left_out)
    waiting_changes.let_continue(config, held)
    lost = lost_tables.refuse(held.metadata, "sync")
    lost_tables.refuse_mixed(held.metadata, control.batch)
    leftovers.remove_recorded(config, recorded_state)
    recorded_state, changed = life_settings.compare(held, config, recorded_state)
    tables = tuple(map(changed_by_yaml, changed))
    began = time.monotonic()
    with opened(origin) as log:
        is_noted = refuse_unlogged(held.metadata, log, recorded_state.position)
        missed = missed_changes.stop_tables(held, config, log, recorded_state, is_noted=is_noted)
        recorded_state, tables = missed.recorded_state, (*tables, *map(changed_by_yaml, missed.changed))
        looks_around = not held.by_turns or control.batch % _LOOKS_EACH == 0
        if looks_around and isinstance(log, Source):
            _note_awaited(held.metadata, config, log, recorded_state.position)
        batch_range, until_us = next_range(log, log.transport(), recorded_state.position, limit)
        cascades = _cascades(config, log) if isinstance(log, Source) and not batch_range.empty else None
        if isinstance(log, Source) and not batch_range.empty and recorded_state.charsets is None:
            from binlake.source.catalog import database_charsets  # asked once in a lake's life

            held.know(recorded_state, database_charsets(log))
        lower_case_names = log.lower_case_names
        if looks_around:
            _note_log(held, log, batch_range, control.batch)
    if batch_range.empty:
        missed_changes.end(held.metadata, recorded_state.position, missed)
        tables = (*tables, *map(changed_by_yaml, merged_tables.refresh(config, held, Report(quiet=True))))
        by = merged_by(held.metadata, limit.until) if limit.until else None
        outcome = _nothing_new(held.metadata, control.batch, batch_range.stop, tables)
        return replace(
            outcome, message=_said(lost, outcome.message + _asked_for(limit, by)), merged_by=by.batch if by else None
        )
    planned = OpenBatch(
        control.batch + 1,
        batch_range,
        until_us=until_us,
        planned_us=now_us(),
        cascades=cascades,
        lower_case_names=lower_case_names,
        gaps=missed.gaps,
        replicated=missed.replicated,
    ).with_phase("plan", time.monotonic() - began)
    held.open(planned)
    note_open(held, planned)
    missed_changes.end(held.metadata, recorded_state.position, missed)
    fault("planned")
    message = _said(lost, _continued(batch_range, recorded_state.position) + _batch_text(planned))
    return PlanOutcome(planned.batch, False, str(batch_range.stop), message, tables=tables)


def _note_log(held: Lease, log: Log, planned: Range, batch: int) -> None:
    """Note the log's end, and whether a sync found anything. batch: the newest before this plan. A follower's plan is
    no sync: it looks every second."""
    kind: LookKind = "look" if held.by_turns else "nothing new" if planned.empty else "planned"
    note_log(held.metadata, log_seen(log, planned.stop), batch if planned.empty else batch + 1, kind)


def _nothing_new(metadata: Metadata, batch: int, stop: Position, tables: tuple[TableRun, ...]) -> PlanOutcome:
    """Return the outcome of a plan whose range is empty. tables: those that the plan changed. stop: the log's end."""
    changed_now = {table.table for table in tables}
    still = tuple(table for table in standing_still(watermarks.read(metadata)) if table.table not in changed_now)
    missing = awaited_tables.write_missing(metadata, stop, batch)
    tables += tuple(missing_run(name, "missing", NEVER_SNAPSHOTTED, newly=True) for name in missing)
    message = f"nothing new: proved up to {stop.short}, the stop of batch {batch}"
    return PlanOutcome(batch, True, str(stop), message, tables=tables, standing_still=still)


def _said(lost: Iterable[str], message: str) -> str:
    """Return a plan's message behind the losses of metadata tables."""
    return "\n".join((*map(lost_tables.loss_message, lost), message))


def _asked_for(limit: Limit, by: MergedBy | None) -> str:
    """Return a text that says which batch merged what was committed before the asked time."""
    return f"; what was committed before {limit.until:%Y-%m-%d %H:%M:%S %Z}: {by.text}" if by else ""


def _continued(planned: Range, position: Position) -> str:
    """Return a text that names both servers where a range is in the log of another server than the lake's position."""
    if planned.start.server == position.server:
        return ""
    return f"continuing from {position.server} on {planned.start.server}, of the same lineage; "


def _batch_text(planned: OpenBatch) -> str:
    """Return a text with the number of a batch, and its range."""
    span = planned.range
    return (
        f"batch {planned.batch}: {span.start.short} → {span.stop.short}, "
        f"{counted(len(span.slices), 'slice')}, {span.size / 1e6:,.1f} MB of log"
    )


def _note_awaited(metadata: Metadata, config: PipelineConfig, source: Source, position: Position) -> None:
    """Note the server's included tables that the lake doesn't have, with the log's end behind which they were listed.

    position: of the lake.
    """
    if not source.is_of(position.server):
        return
    names = included_among(source, config, awaited_tables.known(metadata))
    end = position
    if names:
        file, offset, _ = source.head()
        end = Position(position.server, file, offset, format_description(source.transport(), file))
    awaited_tables.note(metadata, names, end)


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
    """Return the part of a range before the first transaction that committed at or after ``until_us``.

    Where the log can't be read, the range ends with the slice that can't be: staging then reports the place, which
    somebody may step over, or pass with a snapshot.
    """
    for index, part in enumerate(full.slices):
        try:
            for boundary in transaction_boundaries(transport, part):
                if boundary.committed_us >= until_us:
                    return PlannedRange(_before(full, index, boundary), until_us)
        except (BinlogError, PositionLost):
            return PlannedRange(_through(full, index))
    return PlannedRange(full, until_us)


def _up_to_size(transport: Transport, planned: PlannedRange, most_bytes: int) -> PlannedRange:
    """Return the part of a range before the first transaction that begins behind ``most_bytes`` of it. Only the slice
    in which it ends is read; the range ends with that slice where it can't be read (see ``_until``)."""
    bytes_before = 0
    for index, part in enumerate(planned.range.slices):
        if bytes_before + part.size > most_bytes:
            try:
                for boundary in transaction_boundaries(transport, part):
                    if bytes_before + boundary.start_offset - part.start >= most_bytes:
                        return PlannedRange(_before(planned.range, index, boundary), boundary.committed_us)
            except (BinlogError, PositionLost):
                return PlannedRange(_through(planned.range, index))
        bytes_before += part.size
    return planned


def _through(full: Range, index: int) -> Range:
    """Return the part of a range up to the end of its slice of that index."""
    if index == len(full.slices) - 1:
        return full
    last = full.slices[index]
    stop = Position(full.start.server, last.file, last.stop, last.created)
    return Range(full.start, stop, full.slices[: index + 1])


def _before(full: Range, index: int, boundary: Boundary) -> Range:
    """Return the part of a range before a transaction, which is in its slice of that index."""
    part = full.slices[index]
    stop = Position(full.start.server, part.file, boundary.start_offset, part.created)
    last = Slice(part.file, part.start, boundary.start_offset, part.created, whole=False)
    return Range(full.start, stop, (*full.slices[:index], last))
