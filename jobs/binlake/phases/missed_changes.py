"""Changes that the server didn't write into its log: the tables that missed them wait for a snapshot, by their names.

A server stops logging some of its changes when it becomes a replica with log_replica_updates=OFF (MariaDB's default) or
is restarted with a filter. Whoever sees it notes it in metadata, as nothing shows it later.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from binlake import gtid
from binlake.binlog.boundaries import transaction_boundaries
from binlake.binlog.locate import between
from binlake.config import PipelineConfig
from binlake.errors import BinlakeError, UsageError, resnapshot_again
from binlake.gtid import GtidSet
from binlake.lease.lease import Lease, RecordedState
from binlake.planner.steps import Life, Standstill
from binlake.position import Position
from binlake.records import life_settings, missing_log, watermarks
from binlake.records.missing_log import NotedGap
from binlake.schema.log_gaps import LogGap
from binlake.schema.table import TableName
from binlake.source.ahead import Ahead
from binlake.source.gaps import standing_gaps
from binlake.source.log import Log
from binlake.source.server import LogSigns, Source
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import ShapeRow

if TYPE_CHECKING:
    from binlake.planner.rules import Rules

_STOPPED = ("following", "catching up")
"""Statuses of lives that can't continue where the log lacks changes."""


@dataclass(frozen=True)
class MissedChanges:
    """The changes that are missing from the log up to its end. recorded_state: as it is now. gaps: for tables that
    begin in the part of the log that is read next. changed: lives that stopped. ended: gaps that no later part has.
    replicated: see RecordedState."""

    recorded_state: RecordedState
    gaps: tuple[LogGap, ...] = ()
    changed: tuple[Life, ...] = ()
    ended: tuple[NotedGap, ...] = ()
    replicated: str | None = None


def stop_tables(
    held: Lease, config: PipelineConfig, log: Log, recorded_state: RecordedState, *, is_noted: bool
) -> MissedChanges:
    """Stop the tables whose changes the log lacks, or ask for their snapshots, as their policy wants.

    is_noted: something was noted before of what the server didn't log. No batch may be open. Raises SourceError and
    LakeError.
    """
    position, metadata = recorded_state.position, held.metadata
    if not isinstance(log, Source):
        return MissedChanges(recorded_state)
    replicated = (log.signs or log.look()).replicated if log.is_mariadb else None
    if not log.is_of(position.server):
        return MissedChanges(recorded_state, replicated=replicated)
    standing = standing_gaps(log, config.tables.include)
    unlogged = unlogged_transactions(log, position, recorded_state.replicated)
    executed = (_executed_unlogged(unlogged),) if unlogged else ()
    gaps = (*standing, *executed, *_other_log(log, position))
    for gap in gaps:
        missing_log.note_gap(metadata, position.server, gap)
    all_noted = missing_log.gaps_noted(metadata, position.server) if gaps or is_noted else []
    if not all_noted:
        return MissedChanges(recorded_state, replicated=replicated)
    changed = _stop(held, config, recorded_state, standing, all_noted)
    if unlogged:
        recorded_state = held.know_unlogged(recorded_state, known_then(position, unlogged), replicated)
    ended = tuple(noted for noted in all_noted if not noted.has_ended and noted.gap not in standing)
    lacking = (*standing, *(noted.gap for noted in ended))
    return MissedChanges(recorded_state, lacking, tuple(changed), ended, replicated)


def _other_log(log: Source, position: Position) -> list[LogGap]:
    """Return the gap of a server that writes another log than the one that was read, whose files it doesn't list: once
    it is back, GTIDs needn't show it."""
    series = log.newest_file.rpartition(".")[0]
    if series == position.series or position.file in dict(log.binary_logs()):
        return []
    reason = f"the server wrote another log for a while, {series}.* instead of {position.series}.* (log_bin)"
    return [LogGap(reason, f"keep log_bin={position.series}")]


def _executed_unlogged(gtids: str) -> LogGap:
    reason = f"the server executed {gtids} without logging it: it replicated this, or a dump or a backup brought it"
    return LogGap(reason, "let the server log what it replicates, or mirror the server that does")


def _stop(
    held: Lease,
    config: PipelineConfig,
    recorded_state: RecordedState,
    standing: Sequence[LogGap],
    all_noted: Sequence[NotedGap],
) -> list[Life]:
    """Stop the lives that missed changes. A gap that persists concerns all lives, a noted one those that began before
    it."""
    from binlake.planner.rules import Rules

    rules, rows = Rules.of(config), {row.table_id: row for row in watermarks.read(held.metadata)}
    began = _began(held.metadata)
    changed: list[Life] = []
    for life in watermarks.read_lives(held.metadata):
        missed = [*standing, *(noted.gap for noted in all_noted if began[life.id] < noted.at_us)]
        gap = next((gap for gap in missed if gap.concerns(life.name.database)), None)
        if gap and life.status in _STOPPED:
            changed.append(_stopped(rules, life, gap))
    changed_rows = [life_settings.changed_row(rows[life.id], life, recorded_state) for life in changed]
    watermarks.write(held.metadata, changed_rows)
    return changed


def _stopped(rules: Rules, life: Life, gap: LogGap) -> Life:
    return rules.unfollowable(life, Standstill(gap.missed(life.name.database)), gap.then(life.name))


def _began(metadata: Metadata) -> dict[str, int]:
    """Return when each life began, by our clock, in microseconds since 1970."""
    began: dict[str, int] = {}
    for row in ShapeRow.read(metadata, "table_id", "at_us"):
        began[row.table_id] = min(began.get(row.table_id, row.at_us), row.at_us)
    return began


def end(metadata: Metadata, position: Position, missed: MissedChanges) -> None:
    """Note that no part of the log behind the planned one lacks changes."""
    for noted in missed.ended:
        missing_log.end_gap(metadata, position.server, noted)


def note(metadata: Metadata, ahead: Ahead) -> None:
    """Note the gaps that a server's log was seen to have, for the plan of the next batch. It raises nothing."""
    with suppress(BinlakeError):
        for gap in ahead.gaps:
            missing_log.note_gap(metadata, ahead.server, gap)


def refuse_missed(metadata: Metadata, life: str, name: TableName, server: str) -> None:
    """Raise UsageError for a life that can't catch up by the log, as that lacks changes of it."""
    began = _began(metadata).get(life, now_us())
    for noted in missing_log.gaps_noted(metadata, server):
        if began < noted.at_us and noted.gap.concerns(name.database):
            raise UsageError(f"{name} can't catch up: {noted.gap.missed(name.database)}", remedy=resnapshot_again(name))


def unlogged_transactions(source: Source, position: Position, replicated: str | None) -> str:
    """Return the GTIDs of transactions that were executed since a position, and aren't in the log; empty for none.

    Transactions that a server replicates without logging them (log_replica_updates=OFF), or that came with a dump
    loaded without the log, count as executed all the same. Sources: MySQL manual 19.1.3.4, "gtid_purged"; MariaDB
    Knowledge Base, "Global Transaction ID", gtid_slave_pos.

    position: in the log of this server. replicated: what it had replicated by then, None where that isn't known. The
    server is asked once a connection, and again when filters or replication have changed. Raises SourceError.
    """
    signs = source.signs or source.look()
    if source.is_mariadb:
        return _replicated_unlogged(source, position, replicated, signs)
    is_known = source.purged_at is not None and (source.logs_replicated or source.purged_at == signs)
    if is_known or not position.gtid_set:
        return ""
    source.purged_at = signs
    purged = GtidSet.parse(source.executed_unlogged())
    return str(purged.without(GtidSet.parse(position.gtid_set)))


def known_then(position: Position, unlogged: str) -> str:
    """Return the GTID set of a position with the transactions that aren't in the log."""
    if position.flavour == "mariadb" or not unlogged:
        return position.gtid_set
    return str(gtid.GtidSet.parse(position.gtid_set).union(GtidSet.parse(unlogged)))


def _replicated_unlogged(source: Source, position: Position, replicated: str | None, signs: LogSigns) -> str:
    """Return which of the last transactions that a MariaDB server replicated, one for each domain, it didn't log.

    Numbers prove nothing here: each server counts on from the highest that it knows. So the log is searched.
    """
    if replicated is None or signs.replicated == replicated or source.logs_replicated:
        return ""
    since = {text.strip() for text in signs.replicated.split(",")} - {text.strip() for text in replicated.split(",")}
    transport, (file, offset, _) = source.transport(), source.head()
    for part in between(transport, source.binary_logs(), (position.file, position.offset), (file, offset)):
        since -= {boundary.gtid for boundary in transaction_boundaries(transport, part)}
    return ",".join(sorted(since))
