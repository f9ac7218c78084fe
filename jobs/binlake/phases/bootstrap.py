"""Bootstrap: choose the tables to snapshot, and record the beginning of their lives."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from binlake import gtid, names
from binlake.binlog.boundaries import transaction_boundaries
from binlake.binlog.integrity import format_description
from binlake.binlog.locate import executed_before
from binlake.binlog.transport import Transport
from binlake.config import PipelineConfig
from binlake.errors import (
    UNMATCHED_REMEDY,
    BinlogError,
    LakeError,
    PositionLost,
    UsageError,
)
from binlake.lease import lease
from binlake.lease.lease import Control, Lease, RecordedState
from binlake.planner.steps import Life
from binlake.position import FIRST_OFFSET, Position, Range, file_number
from binlake.records import decisions, feed_watermarks, lost_tables, missing_log, table_versions, watermarks
from binlake.records.feed_watermarks import Omission
from binlake.records.record import OtherRun, note_run
from binlake.report import counted
from binlake.schema.table import TableName
from binlake.source.catalog import database_charsets
from binlake.source.file_borders import check_borders
from binlake.source.folder import Folder
from binlake.source.lineage import is_lost, with_all_gtids
from binlake.source.listed_tables import included_tables, list_tables
from binlake.source.log import Origin, opened
from binlake.source.server import Source
from binlake.store.metadata import Metadata, metadata_of, now_us

if TYPE_CHECKING:
    from binlake.snapshot.snapshot import SnapshotResult

SHORT_COPY = 128 << 20
"""Bytes of tables, by the server's estimate, that are copied before code that a JVM optimises would pay."""
_SECOND = 1_000_000
"""Microseconds to which a server's clock is known, see snapshots."""
_WAITING = ("paused", "catching up", "stopped", "excluded")
"""Statuses of lives that may continue from the position that they have reached."""
_FOLLOWED = ("following", "paused", "catching up")
"""Statuses of lives that need no snapshot."""
Unnamed = Literal["new or all", "new", "asked"]
"""Tables that are meant where no pattern names any: those that aren't followed, or all where every one is; those that
aren't followed; those for which a sync asked."""


def names_to_snapshot(
    config: PipelineConfig,
    source: Source,
    metadata: Metadata,
    patterns: list[str] | None,
    unnamed: Literal["new or all", "new"] = "new or all",
) -> list[TableName]:
    """Return the included tables that ``patterns`` match; without patterns those that ``unnamed`` says.

    Raises UsageError if a pattern matches no table, or the server has no included table.
    """
    included = included_tables(source, config)
    if patterns:
        if unknown := names.unmatched(patterns, [(name.database, name.table) for name in included]):
            raise UsageError(f"no included table matches {', '.join(unknown)}", remedy=UNMATCHED_REMEDY)
        return [name for name in included if names.matches_any(patterns, name.database, name.table)]
    if not included:
        raise UsageError(
            "the server has no included table", remedy="check tables.include in the YAML, and SELECT grants"
        )
    following = {life.name for life in watermarks.read_lives(metadata) if life.status in _FOLLOWED}
    new = [name for name in included if name not in following]
    return new if new or unnamed == "new" else included


def has_new_tables(config: PipelineConfig, origin: Origin) -> bool:
    """Return whether a table isn't followed yet. A folder of log files, whose tables nobody copies, is said to have
    some.

    Raises UsageError and SourceError.
    """
    if isinstance(origin, Folder):
        return True
    with Source.open(origin) as source:
        return bool(names_to_snapshot(config, source, metadata_of(config), None, "new"))


def is_short_copy(config: PipelineConfig, origin: Origin, patterns: list[str] | None) -> bool:
    """Return whether the tables of ``names_to_snapshot`` are so small that a JVM which copies them ends before it is
    fast.

    Raises UsageError and SourceError.
    """
    if isinstance(origin, Folder):
        return True
    with Source.open(origin) as source:
        wanted = set(names_to_snapshot(config, source, metadata_of(config), patterns))
        return sum(table.size for table in list_tables(source) if table.name in wanted) <= SHORT_COPY


@dataclass(frozen=True)
class KeysAsked:
    """A key range to be copied again. tables: patterns that match one table. keys: see snapshot/key_range.py."""

    tables: list[str] | None
    keys: str


def name_followed(config: PipelineConfig, source: Source, metadata: Metadata, asked: KeysAsked) -> TableName:
    """Return the table of a key range. Raises UsageError unless the patterns match one table, which follows the log."""
    matching = names_to_snapshot(config, source, metadata, asked.tables) if asked.tables else []
    if len(matching) != 1:
        named = f"{', '.join(asked.tables or ())} names {len(matching)} tables"
        problem = named if matching else "no table is named"
        raise UsageError(f"a range of keys is one table's, and {problem}", remedy="add --tables DATABASE.TABLE")
    if not config.mirror_modes(matching[0]).mirror:
        raise UsageError(
            f"{matching[0]} has no mirror (tables.modes, mirror: false), in which rows could be replaced",
            remedy="name another table",
        )
    decisions.following(metadata, matching[0])
    return matching[0]


def names_asked(config: PipelineConfig, source: Source, metadata: Metadata) -> list[TableName]:
    """Return the tables that a sync asked a snapshot for; remove those that the server doesn't have."""
    there = set(included_tables(source, config))
    asked = watermarks.asked(metadata)
    watermarks.forget_unsnapshotted(metadata, [name for name in asked if name not in there])
    return [name for name in asked if name in there]


def names_awaited(config: PipelineConfig, source: Source, refused: Collection[TableName]) -> set[TableName]:
    """Return the included tables that the server has, except the refused ones."""
    return set(included_tables(source, config)) - set(refused)


def refuse_patterns_of_files(patterns: Sequence[str]) -> None:
    """Raise UsageError if tables are named for a source of binlog files."""
    if patterns:
        raise UsageError(
            "files hold no table to copy", remedy="take --tables away; tables come with their CREATE TABLE statements"
        )


def begin_with_files(config: PipelineConfig, folder: Folder, patterns: list[str] | None) -> str:
    """Follow a folder of binlog files from its first one, or from the lake's position; return what to report."""
    refuse_patterns_of_files(patterns or ())
    with lease.held(metadata_of(config)) as held, opened(folder) as log:
        position = held.control().position
        if position is not None:
            return f"the lake is at {position.short}; sync continues from there"
        (file, size), *_ = log.binary_logs()
        transport = log.transport()
        executed = str(executed_before(transport, file, size))
        start = Position(log.server_identity, file, FIRST_OFFSET, format_description(transport, file), executed)
        held.stand(RecordedState(held.control().batch, start))
    return f"the log is followed from {start.short}; tables begin with their CREATE TABLE statements"


@dataclass(frozen=True)
class BeforeSnapshots:
    """The facts that were read before snapshots were committed.

    began_us: this machine's clock, None for that of the commit. server_us: the server's clock. Both in microseconds
    since 1970. replicated: see RecordedState.
    """

    began_us: int | None = None
    server_us: int = 0
    replicated: str | None = None


def begin_lives(
    held: Lease,
    metadata: Metadata,
    source: Source,
    results: list[SnapshotResult],
    batch: int,
    awaited: Collection[TableName] = (),
    before: BeforeSnapshots = BeforeSnapshots(),
) -> Position | None:
    """Record new lives in metadata, and follow the log from the earliest position that any table needs.

    Return the position at which all tables are once a part of the log was left behind; None where nothing was, or
    where they are at several. No batch has brought the lake there. Lives that begin where the newest version of the
    lake is belong to it. The snapshots with which a lake begins are a version, usually batch 0, if they all are at one
    position.
    batch: the newest number given out. awaited: included tables that may begin without a snapshot. Log that may hold
    their CREATE TABLE isn't skipped.
    """
    if not results:
        return None
    lives = [Life(r.table_id, r.name, r.schema, r.low, r.high) for r in results]
    control = held.control()
    versions = {r.table_id: r.delta_version for r in results}
    first = control.open.batch if control.open else batch + 1
    names = {life.name for life in lives}
    all_lives = [*(life for life in watermarks.read_lives(metadata) if life.name not in names), *lives]
    start, leaves_log = _start(metadata, source, control, all_lives, {life.low for life in lives}, awaited)
    recorded_state = control.recorded_state
    begun = [life for life in all_lives if life.status == "following"]
    are_at_start = start is not None and all(life.high.is_at(start) for life in begun)
    is_first = recorded_state is None and are_at_start
    version_at = start if is_first else _newest_version(metadata, control)
    watermarks.started(
        metadata, lives, batch=batch, versions=versions, first=first, began_us=before.began_us, version_at=version_at
    )
    if start is not None:
        if is_first:
            table_versions.note_first(metadata, batch, start, before.server_us)
        prepared = recorded_state.prepared if recorded_state else ()
        answers = recorded_state.answers if recorded_state else ()
        charsets = database_charsets(source)
        _note_unread(metadata, feed_watermarks.readers(metadata), control.position, start)
        held.stand(
            RecordedState(
                control.batch,
                start,
                charsets,
                prepared,
                committed_us=before.server_us,
                replicated=before.replicated,
                answers=answers,
            )
        )
        missing_log.end_without_log(metadata, start.server, before.server_us + _SECOND - 1)
        lost_tables.find(metadata)  # notes those that are there from now on
    elif recorded_state and recorded_state.charsets is None:
        held.know(recorded_state, database_charsets(source))
    return start if leaves_log and are_at_start else None


def _newest_version(metadata: Metadata, control: Control) -> Position | None:
    """Return the position of the newest recorded batch's version; None where a later batch is open, or where it has
    none."""
    if control.open is not None or control.recorded_state is None:
        return None
    return table_versions.position_of(metadata, control.batch)


def _start(
    metadata: Metadata,
    source: Source,
    control: Control,
    lives: Sequence[Life],
    copied: Collection[Position],
    awaited: Collection[TableName],
) -> tuple[Position | None, bool]:
    """Return the position from which the log is followed once tables were snapshotted, None where that doesn't change;
    and whether log is skipped that was lost before it was read.

    lives: all, with the new ones. copied: the new ones' positions. awaited: see ``begin_lives``.
    """
    following = [life for life in lives if life.status == "following"]
    lows = [life.low for life in following]
    here = source.server_identity
    planned_to = control.planned_to
    known = {life.name for life in following}
    # Tables beside mirrors and feeds want every mutation that can be had.
    reads_all = _keeps_more(control.recorded_state) or bool(feed_watermarks.readers(metadata))
    lost, is_read = _is_lost(source, planned_to), control.open is not None and control.open.state != "planned"
    in_other_log = _in_other_log(source, planned_to if lost else None, lives, copied)
    skips = (lost and not is_read) or (known.issuperset(awaited) and not reads_all)
    leaves_log = lost and not is_read
    was_unlogged = not is_read and _was_unlogged(metadata, source, control)

    def reached(low: Position) -> bool:
        return _is_ahead(low, control) or (was_unlogged and low.is_at(control.position))

    if was_unlogged and all(map(reached, lows)):
        skips = leaves_log = True
    elif not skips and not is_read and all(map(reached, lows)):
        skips = leaves_log = _lacks_changes(source, control)
    fresh = all(
        low.server == here and (planned_to is None or low in in_other_log or (skips and reached(low))) for low in lows
    )
    return (with_all_gtids(source.transport(), min(lows)) if lows and fresh else None), leaves_log


def _keeps_more(recorded_state: RecordedState | None) -> bool:
    """Return whether something is kept beside mirrors."""
    return recorded_state is not None and recorded_state.tables is not None and bool(recorded_state.tables.modes)


def _note_unread(metadata: Metadata, feeds: Sequence[str], position: Position | None, start: Position) -> None:
    """Note for each feed that the log from a position to the new one will never be read, as it is lost."""
    if position is None or (position.server, position.order) == (start.server, start.order):
        return
    place = f"{position.short} to {start.short}"
    why = "the log was lost before it was read, and all tables were snapshotted again behind it"
    feed_watermarks.record_omissions(metadata, [Omission(feed, "log", "", place, 1, 0, why) for feed in feeds])


def _is_ahead(low: Position, control: Control) -> bool:
    """Return whether a life that begins at ``low`` needs no mutation of the open batch, a part of which may be merged.

    Without an open batch: whether ``low`` is behind the recorded position.
    """
    if control.open is not None:
        return control.open.range.stop <= low
    return control.position is None or control.position < low


def refuse_read(source: Source, read_from: Position | None, results: list[SnapshotResult]) -> None:
    """Raise LakeError if a table was copied at a position before the one from which the log is followed.

    This can happen without a lock: with semi-synchronous replication, a transaction may be in the log long before
    others see its rows.
    """
    behind = [r for r in results if not r.low.reaches(read_from)]
    if behind and read_from and not _is_lost(source, read_from):
        raise LakeError(
            f"{behind[0].name} was copied at {behind[0].low.short}, behind {read_from.short} where the log is followed",
            remedy="run the snapshot again",
        )


def _is_lost(source: Source, position: Position | None) -> bool:
    """Return whether the server's log can't be read on from a position."""
    return position is not None and is_lost(source, source.transport(), position)


def _was_unlogged(metadata: Metadata, source: Source, control: Control) -> bool:
    """Return whether the server, which has the recorded position, was seen without a log since: the log doesn't have
    what changed then, be it at the very position."""
    position = control.position
    if position is None or not source.is_of(position.server):
        return False
    return missing_log.last_seen(metadata, position.server, position.created * 1_000_000) is not None


def _lacks_changes(source: Source, control: Control) -> bool:
    """Return whether the server doesn't send what is in the open batch, or has a file in it that isn't the next one:
    MySQL sends no transaction without a GTID once gtid_mode is ON."""
    position = control.position
    if position is None or control.open is None or not source.is_of(position.server):
        return False
    return not _is_whole(source.transport(), control.open.range)


def _is_whole(transport: Transport, planned: Range) -> bool:
    """Return whether a range can be read, and each of its files begins where the one before it ends."""
    nothing = gtid.parse("", planned.start.flavour)
    try:
        of_slices = [
            str(nothing.adding(boundary.gtid for boundary in transaction_boundaries(transport, part) if boundary.gtid))
            for part in planned.slices
        ]
        check_borders(transport, planned, of_slices)
    except (PositionLost, BinlogError):
        return False
    return True


def _in_other_log(
    source: Source, lost: Position | None, lives: Sequence[Life], copied: Collection[Position]
) -> set[Position]:
    """Return the positions of lives that belong to another log than the lost one, which the server doesn't have.

    A log that was begun again within the same second has files of the same name and time. The server has only one of
    the two logs, and tables copied just now belong to that one. A waiting table would otherwise continue in it as if it
    were the former log.
    copied: the positions of these snapshots.
    """
    if lost is None:
        return set()
    waits = any(life.status in _WAITING for life in lives)
    is_replaced = not waits and lost.file in dict(source.binary_logs())
    lows = {life.low for life in lives}
    return {low for low in lows if _is_of_other_log(lost, low) or (is_replaced and low in copied)}


def _is_of_other_log(position: Position, low: Position) -> bool:
    """Return whether ``position``, which the server doesn't have, is of another log than the one of a snapshot at
    ``low``.

    It is if server or base name differ, or if the order of file numbers and file times disagree, as the numbering was
    restarted.
    """
    if position.server != low.server or position.series != low.series:
        return True
    files = file_number(position.file) - file_number(low.file)
    seconds = position.created - low.created
    return files * seconds < 0 or (files == 0 and seconds != 0)


def note_bootstrap(
    metadata: Metadata, run: str | None, batch: int, began_us: int, results: list[SnapshotResult]
) -> None:
    """Append a bootstrap's row to ``runs``, before the lives begin: a run that dies in between repeats both.

    run: the caller's id of the run, None for a new one.
    """
    tables = [
        {"table": str(r.name), "table_id": r.table_id, "rows": r.rows, "delta_version": r.delta_version}
        for r in results
    ]
    noted = OtherRun(
        kind="bootstrap",
        run=run,
        batch=batch,
        position=max((r.high for r in results), default=None),
        phase=("snapshot", round((now_us() - began_us) / 1e6, 2)),
        message=f"{counted(len(results), 'table')}, {counted(sum(r.rows for r in results), 'row')}",
        began_us=began_us,
        tables=tables,
        size=sum(r.bytes for r in results),
        why_spark=next((r.why_spark for r in results), ""),
    )
    note_run(metadata, noted)
