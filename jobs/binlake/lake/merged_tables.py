"""The lake's tables that show several of the server's, by ``merge_tables``: brought up to date behind the mirrors.

Each shard is a table of its own: it has its life, its mirror in the merged table's folder, and its standstill. The
merged table shows what the mirrors have become (delta/composed_table.py). It is a table of the lake's versions, and the
mirrors of its shards aren't: at each batch it has the rows of all shards that are there, and of one that is stopped
those of before.

A merged table that can't be composed is stopped alone, and continues by itself once what its remedy names is done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import DeltaError

from binlake.config import PipelineConfig
from binlake.config.column_policies import masks_of
from binlake.config.mirrored_tables import TablesConfig
from binlake.config.shards import MergedTable
from binlake.config.units import HOUR_SECONDS
from binlake.delta import delta_log, opened_tables
from binlake.delta.log_files import LogFiles
from binlake.errors import OF_CODE, LakeError, LakeTableChanged, LogUnreadable, snapshot_again
from binlake.lake import merged_sources
from binlake.lake.merged_sources import NotedSince
from binlake.lease.lease import Lease
from binlake.planner.outcome import BesideOutcome
from binlake.planner.steps import Life, Standstill, rebased
from binlake.position import Position
from binlake.records import life_settings, merged_standstills, table_versions, watermarks
from binlake.records.former_shapes import showed_more
from binlake.records.table_versions import KnownBeside
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.storage import files, storage_errors
from binlake.store.metadata import Metadata, now_us

if TYPE_CHECKING:
    from binlake.delta.composed_parts import ColumnIds, TablePart
    from binlake.delta.composed_sources import PartSources
    from binlake.delta.composed_table import Composed


@dataclass(frozen=True)
class MergedOutcome:
    """The outcome for the merged tables. stopped: lives of shards whose mirrors lack commits that are shown."""

    tables: list[BesideOutcome]
    stopped: list[Life]


def outcomes_merged(
    config: PipelineConfig,
    lives: Iterable[Life],
    stop: Position,
    note: dict[str, Any],
    before: TablesConfig | None,
    held: Lease,
    report: Report,
) -> MergedOutcome:
    """Bring the merged tables up to date with a batch whose mirrors are done; return what became of them.

    lives: all, as they are behind the batch. stop: its position. note: what the commits say of themselves. before: the
    settings of the batch recorded last; a merged table that they have and the YAML lacks stays as it is.
    """
    lives = [*lives]
    merged = [entry.name for entry in config.tables.merge_tables]
    left = _left(config, lives, before)
    known = table_versions.known_beside(held.metadata, [*merged, *(name for name, _ in left)])
    composing = _Composing(config, held, known, {"binlake": {**note, "merged": True}}, report)
    states = composing.states(lives, stop)
    outcomes = [outcome for state in states if (outcome := _outcome(state, held.metadata))]
    paths = ((name, config.merged_path(name, folder)) for name, folder in left)
    outcomes += [_excluded(name, path) for name, path in paths if opened_tables.is_table(path)]
    changed = [outcome for outcome in outcomes if not _is_noted(outcome, known.get(outcome.table_id))]
    return MergedOutcome(changed, _stopped(lives, states))


def _left(config: PipelineConfig, lives: Sequence[Life], before: TablesConfig | None) -> list[tuple[TableName, str]]:
    """Return the merged tables that the YAML had and hasn't any more, with the folders of those that several sources
    fill."""
    places = [life.schema.shard for life in lives if life.schema.shard]
    shown = [(TableName.parse(place[0]), place[3] if len(place) > 3 else "") for place in places]
    shown += [(entry.name, entry.folder or "") for entry in before.merge_tables] if before else []
    now = {(entry.name, entry.folder or "") for entry in config.tables.merge_tables}
    return [place for place in dict.fromkeys(shown) if place not in now]


def _is_noted(outcome: BesideOutcome, known: KnownBeside | None) -> bool:
    """Return whether the lake's versions have what became of a merged table already."""
    if known is None or known.status != outcome.status:
        return False
    return outcome.delta_version in (None, known.version)


def refresh(config: PipelineConfig, held: Lease, report: Report) -> list[Life]:
    """Bring the merged tables up to date where no batch is open: mirrors may have changed beside the log. Return the
    lives that are stopped, as their mirrors lack commits that are shown."""
    if not config.tables.merge_tables:
        return []
    control, began_us = held.control(), now_us()
    recorded = control.recorded_state
    if control.open is not None or recorded is None:
        return []
    position = recorded.position
    lives = [rebased(life, position, position) for life in watermarks.read_lives(held.metadata)]
    says = {"source": config.source.name, "batch": recorded.batch, "position": position.short, "merged": True}
    known = table_versions.known_beside(held.metadata, [entry.name for entry in config.tables.merge_tables])
    states = _Composing(config, held, known, {"binlake": says}, report).states(lives, position)
    if stopped := _stopped(lives, states):
        rows = {row.table_id: row for row in watermarks.read(held.metadata)}
        watermarks.write(held.metadata, [life_settings.changed_row(rows[life.id], life, recorded) for life in stopped])
        for life in stopped:
            report.say(f"{life.name} is stopped: {life.reason}\n  → {life.remedy}")
    for state in states:
        if state.composed and (state.composed.changed or state.was_stopped):
            outcome = _outcome(state, held.metadata)
            assert outcome is not None
            table_versions.note_going_on(held.metadata, outcome, began_us=began_us)
    return stopped


def versions_of_shards(
    config: PipelineConfig, kept: Mapping[str, Collection[int]], looked: float | None = None
) -> dict[str, set[int]]:
    """Return the Delta versions of shards' mirrors that the merged tables show, by their paths, at the versions that
    are kept of these. Shards of other sources aren't among them.

    kept: Delta versions of tables, by their paths. looked: also at the version that stood at the beginning of the hours
    that are promised up to this time, in seconds since 1970, and now. Raises LakeError.
    """
    hours = merged_sources.PromisedHours.of(config)
    shown: dict[str, set[int]] = {}
    for entry in config.tables.merge_tables:
        path, own = config.table_path(entry.name), entry.begins(config.source.name)
        if not opened_tables.is_table(path):
            continue
        promised = hours.of_table(path, config.maintain.history_hours) * HOUR_SECONDS
        by_id = _shown_by_id(path, set(kept.get(path, ())), None if looked is None else looked - promised)
        for folder in files.own_subfolders(path) if by_id != {} else ():
            is_own = folder.startswith(own) and not folder.startswith("_")
            if is_own and opened_tables.is_table(shard := f"{path}/{folder}"):
                shown[shard] = _shown_of(shard, by_id)
    return shown


def _shown_by_id(path: str, asked: set[int], before: float | None) -> dict[str, set[int]] | None:
    """Return the Delta versions of shards that versions of a merged table show, by the shards' table ids; None where
    its log can't be read."""
    from binlake.delta import composed_table  # it imports pyarrow, which most lakes don't need for this

    if before is not None:
        log = LogFiles.of(path)
        first, newest = min(log.commits, default=0), max(log.commits, default=0)
        asked = asked | {max(first, log.stood_at(before)), newest}  # a restored log's commits are all of now
    by_id: dict[str, set[int]] = {}
    try:
        for version in asked:
            for table_id, of_shard in composed_table.shown_versions(path, version).items():
                by_id.setdefault(table_id, set()).add(of_shard)
    except (LakeError, OSError, *OF_CODE):
        return None
    return by_id


def _shown_of(shard: str, by_id: Mapping[str, set[int]] | None) -> set[int]:
    """Return the versions of a shard's mirror that are shown; where that isn't known, all that there are."""
    try:
        if by_id is not None:
            return by_id.get(str(opened_tables.newest(shard).metadata().id), set())
    except (DeltaError, OSError, *OF_CODE):
        pass
    return set(LogFiles.of(shard).commits)


def note_removed(
    config: PipelineConfig, metadata: Metadata, name: TableName, looked: float
) -> dict[TableName, NotedSince]:
    """Note that the table that showed a dropped shard can't be read any more at versions that did: its files go. Return
    the notes, by the table's name.

    A table that several sources fill shows it in none of the versions that are promised up to the time ``looked``.
    Raises LakeError.
    """
    noted: dict[TableName, NotedSince] = {}
    hours = merged_sources.PromisedHours.of(config)
    for merged in merged_names(config, [name]):
        path = config.table_path(merged)
        version = int(opened_tables.newest(path).version())
        if path in hours.by_path:
            before = looked - hours.of_table(path, config.maintain.history_hours) * HOUR_SECONDS
            version = max(0, LogFiles.of(path).stood_at(before))
        noted[merged] = merged_sources.note_readable_since(config, metadata, merged, version, looked)
    return noted


def merged_names(config: PipelineConfig, names: Iterable[TableName]) -> list[TableName]:
    """Return the merged tables that show some of these tables, and are there."""
    places = (config.shard_of(name) for name in names)
    merged = dict.fromkeys(place.into for place in places if place)
    return [name for name in merged if opened_tables.is_table(config.table_path(name))]


@dataclass(frozen=True)
class _State:
    """A merged table: as it is composed, or why it can't be. folder: where several sources fill it, else empty.
    was_stopped: before this."""

    name: TableName
    folder: str
    composed: Composed | None
    standstill: Standstill | None = None
    was_stopped: bool = False


@dataclass(frozen=True)
class _Composing:
    """Composes the merged tables of a source. known: what the lake's versions have of them. says: what the commits say
    of themselves."""

    config: PipelineConfig
    held: Lease
    known: Mapping[str, KnownBeside]
    says: dict[str, Any]
    report: Report

    def states(self, lives: Iterable[Life], position: Position) -> list[_State]:
        """Compose the merged tables of the lives that equal the server's tables at a position; the others stay as they
        are shown. One that can't be composed is stopped alone."""
        lives = [*lives]
        parts = self._parts(lives, position)
        own = {str(life.name): life.standstill for life in lives if life.standstill and life.status != "dropped"}
        noted = merged_standstills.read(self.held.metadata) if parts else {}
        states = []
        for entry in self.config.tables.merge_tables:
            path = self.config.table_path(entry.name)
            if not parts[entry.name] and not opened_tables.is_table(path):
                continue
            before = noted.get(entry.name, merged_standstills.NOTHING)
            state = self._state(entry, path, parts[entry.name], was_stopped=before.own is not None)
            if state.composed or state.standstill:
                states.append(state)
                self._note(state, before, own)
        return states

    def _parts(self, lives: Iterable[Life], position: Position) -> dict[TableName, list[TablePart]]:
        from binlake.delta.composed_parts import TablePart

        parts: dict[TableName, dict[str, TablePart]] = {entry.name: {} for entry in self.config.tables.merge_tables}
        for life in lives:
            place = self.config.shard_of(life.name)
            if place is None:
                continue
            if life.status == "dropped":
                gone = TablePart(str(life.name), place.folder, place.value, is_gone=True)
                parts[place.into].setdefault(place.folder, gone)  # another life may have the name
                continue
            follows = life.status == "following" and life.high.order <= position.order
            follows = follows and life.schema.shard == place.recorded
            app, version = delta_log.app_of(self.config, life.id), life.delta_version
            withholds = bool(self.config.withheld(life.name) or life.schema.where)
            masks = masks_of(self.config.columns, life.name.database, life.name.table)
            hides = partial(showed_more, self.held.metadata, life, masks) if withholds else None
            part = TablePart(
                str(life.name), place.folder, place.value, follows, app=app, delta_version=version, hides=hides
            )
            parts[place.into][place.folder] = part
        return {name: [*by_folder.values()] for name, by_folder in parts.items()}

    def _state(self, entry: MergedTable, path: str, parts: Sequence[TablePart], *, was_stopped: bool) -> _State:
        from binlake.delta import composed_table  # it imports pyarrow, which most lakes don't need for this

        folder = entry.folder or ""
        try:
            self._note_lost(path)
            composed = composed_table.compose(
                path, entry.source_column, parts, self.says, self.held.check, self._sources(entry), self._ids(entry)
            )
        except (LogUnreadable, LakeTableChanged) as error:
            return _State(entry.name, folder, None, Standstill(error.message, error.remedy), was_stopped)
        return _State(entry.name, folder, composed, None, was_stopped)

    def _sources(self, entry: MergedTable) -> PartSources | None:
        """Return the sources that fill a merged table; None where it is this one alone."""
        if entry.source_name_column is None:
            return None
        from binlake.delta.composed_sources import PartSources

        own, hours = self.config.source.name, self.config.maintain.history_hours
        return PartSources(entry.source_name_column, own, entry.sources, hours)

    def _ids(self, entry: MergedTable) -> ColumnIds:
        """Return the ids of columns: a table gets them that is published as Iceberg, by this source or by another."""
        from binlake.delta.composed_parts import ColumnIds

        def former() -> Mapping[str, int]:
            from binlake.iceberg.table_metadata import published_ids

            return published_ids(self.config.table_path(entry.name))

        iceberg = self.config.iceberg
        return ColumnIds(iceberg is not None and iceberg.includes(entry.name.database, entry.name.table), former)

    def _note_lost(self, path: str) -> None:
        """Note that newer versions of a merged table are lost, whose numbers are going to be used for others."""
        if not opened_tables.is_table(path):
            return
        try:
            opened = opened_tables.newest(path)
            table_id, version = str(opened.metadata().id), int(opened.version())
        except (DeltaError, *OF_CODE):
            return  # composing it says what is wrong
        known = self.known.get(table_id)
        if known and (known.version or 0) > version:
            table_versions.note_lost(self.held.metadata, table_id, version)

    def _note(self, state: _State, before: merged_standstills.NotedStandstills, own: Mapping[str, Standstill]) -> None:
        """Note and say what is stopped. own: why shards themselves are stopped, by name."""
        if state.standstill is not None:
            now = replace(before, own=state.standstill)
            self.report.say(f"{state.name} is stopped: {state.standstill.reason}\n  → {state.standstill.remedy}")
        else:
            assert state.composed is not None
            composed = state.composed
            for shard, why in composed.standing.items():
                self.report.say(f"{shard} isn't shown as it is in {state.name}: {why}")
            noted = sorted({*composed.broken, *composed.hidden})
            now = merged_standstills.NotedStandstills(
                None, {shard: _standing(shard, composed, own.get(shard)) for shard in noted}
            )
        merged_standstills.note(self.held.metadata, state.name, before, now)


def _standing(shard: str, composed: Composed, own: Standstill | None) -> Standstill:
    """Return why a shard isn't shown as it is, and what to do. own: why it is stopped itself."""
    why = composed.standing[shard]
    if shard not in composed.broken and shard not in composed.waiting:
        return Standstill(why, own.remedy if own else "run binlake sync")
    if shard not in composed.broken:
        return Standstill(why, "give the column one type in all shards, or one entry in columns; then run binlake sync")
    remedy = storage_errors.remedy_of(why)
    if remedy == storage_errors.OTHER:
        remedy = f"restore its folder from a backup of now, or {snapshot_again(TableName.parse(shard))}"
    return Standstill(why, remedy)


def _stopped(lives: Iterable[Life], states: Iterable[_State]) -> list[Life]:
    """Return the lives that follow, and whose mirrors lack commits that are shown, as they are to be stopped."""
    composed = [state.composed for state in states if state.composed]
    lost = {name: each.standing[name] for each in composed for name in each.lost}
    return [
        replace(life, status="stopped", standstill=Standstill(lost[str(life.name)], snapshot_again(life.name)))
        for life in lives
        if life.status == "following" and str(life.name) in lost
    ]


def _outcome(state: _State, metadata: Metadata) -> BesideOutcome | None:
    """Return what became of a merged table; None for one that never was."""
    if state.composed is not None:
        return BesideOutcome(
            state.name, state.composed.table_id, "following", state.composed.version, folder=state.folder
        )
    table_id = table_versions.newest_id(metadata, state.name)
    return BesideOutcome(state.name, table_id, "stopped", folder=state.folder) if table_id else None


def _excluded(name: TableName, path: str) -> BesideOutcome:
    """Return the outcome of a merged table that the YAML has no more."""
    return BesideOutcome(name, str(opened_tables.opened(path).metadata().id), "excluded", None)
