"""The lake's tables that show several of the server's, by ``merge_tables``: brought up to date behind the mirrors.

Each shard is a table of its own: it has its life, its mirror in the merged table's folder, and its standstill. The
merged table shows what the mirrors have become (delta/composed_table.py). It is a table of the lake's versions, and the
mirrors of its shards aren't: at each batch it has the rows of all shards that are there, and of one that stands still
those of before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from binlake.config import PipelineConfig
from binlake.config.mirrored_tables import TablesConfig
from binlake.config.shards import MergedTable
from binlake.delta import opened_tables
from binlake.delta.log_files import LogFiles
from binlake.lease.lease import Lease
from binlake.planner.outcome import BesideOutcome
from binlake.planner.steps import Life, rebased
from binlake.position import Position
from binlake.records import table_versions, watermarks
from binlake.records.table_versions import KnownBeside
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.storage import files
from binlake.store.metadata import Metadata, now_us

if TYPE_CHECKING:
    from binlake.delta.composed_table import Composed, TablePart


def outcomes_merged(
    config: PipelineConfig,
    lives: Iterable[Life],
    stop: Position,
    note: dict[str, Any],
    before: TablesConfig | None,
    held: Lease,
    report: Report,
) -> list[BesideOutcome]:
    """Bring the merged tables up to date with a batch whose mirrors are done; return what became of them.

    lives: all, as they are behind the batch. stop: its position. note: what the commits say of themselves. before: the
    settings of the batch recorded last; a merged table that they have and the YAML lacks stays as it is.
    """
    lives = [*lives]
    merged = [entry.name for entry in config.tables.merge_tables]
    shown = [TableName.parse(life.schema.shard[0]) for life in lives if life.schema.shard]
    shown += [entry.name for entry in before.merge_tables] if before else []
    left = [name for name in dict.fromkeys(shown) if name not in merged]
    known = table_versions.known_beside(held.metadata, [*merged, *left])
    outcomes = [_outcome(entry.name, each) for entry, each in _composed(config, lives, stop, note, held.check, report)]
    outcomes += [_excluded(name, path) for name in left if opened_tables.is_table(path := config.table_path(name))]
    return [outcome for outcome in outcomes if not _is_noted(outcome, known.get(outcome.table_id))]


def _is_noted(outcome: BesideOutcome, known: KnownBeside | None) -> bool:
    """Return whether the lake's versions have what became of a merged table already."""
    if known is None or known.status != outcome.status:
        return False
    return outcome.delta_version in (None, known.version)


def refresh(config: PipelineConfig, held: Lease, report: Report) -> None:
    """Bring the merged tables up to date where no batch is open: mirrors may have changed beside the log."""
    if not config.tables.merge_tables:
        return
    control, began_us = held.control(), now_us()
    recorded = control.recorded_state
    if control.open is not None or recorded is None:
        return
    position = recorded.position
    lives = [rebased(life, position, position) for life in watermarks.read_lives(held.metadata)]
    note = {"source": config.source.name, "batch": recorded.batch, "position": position.short}
    for entry, composed in _composed(config, lives, position, note, held.check, report):
        if composed.changed:
            table_versions.note_going_on(held.metadata, _outcome(entry.name, composed), began_us=began_us)


def versions_of_shards(
    config: PipelineConfig, kept: Mapping[str, Collection[int]], before: float | None = None
) -> dict[str, set[int]]:
    """Return the Delta versions of shards' mirrors that the merged tables show, by their paths, at the versions that
    are kept of these.

    kept: Delta versions of tables, by their paths. before: also at the version that stood at this time, in seconds
    since 1970, and now. Raises LakeError.
    """
    if not config.tables.merge_tables:
        return {}
    from binlake.delta import composed_table  # it imports pyarrow, which most lakes don't need for this

    shown: dict[str, set[int]] = {}
    for entry in config.tables.merge_tables:
        path = config.table_path(entry.name)
        if not opened_tables.is_table(path):
            continue
        asked = set(kept.get(path, ()))
        if before is not None:
            log = LogFiles.of(path)
            first, newest = min(log.commits, default=0), max(log.commits, default=0)
            asked |= {max(first, log.stood_at(before)), newest}  # a restored log's commits are all of now
        by_id: dict[str, set[int]] = {}
        for version in asked:
            for table_id, of_shard in composed_table.shown_versions(path, version).items():
                by_id.setdefault(table_id, set()).add(of_shard)
        for folder in files.own_subfolders(path) if by_id else ():
            if not folder.startswith("_") and opened_tables.is_table(shard := f"{path}/{folder}"):
                shown[shard] = by_id.get(str(opened_tables.newest(shard).metadata().id), set())
    return shown


def note_removed(config: PipelineConfig, metadata: Metadata, name: TableName) -> None:
    """Note that the table that showed a dropped shard can't be read any more at versions that did: its files go."""
    for merged in merged_names(config, [name]):
        version = int(opened_tables.newest(config.table_path(merged)).version())
        table_versions.note_readable_since(metadata, merged, version)


def merged_names(config: PipelineConfig, names: Iterable[TableName]) -> list[TableName]:
    """Return the merged tables that show some of these tables, and are there."""
    places = (config.shard_of(name) for name in names)
    merged = dict.fromkeys(place.into for place in places if place)
    return [name for name in merged if opened_tables.is_table(config.table_path(name))]


def _composed(
    config: PipelineConfig,
    lives: Iterable[Life],
    position: Position,
    note: dict[str, Any],
    check: Callable[[], None],
    report: Report,
) -> list[tuple[MergedTable, Composed]]:
    """Compose the merged tables of the lives that equal the server's tables at a position; the others stay as they
    are shown."""
    from binlake.delta import composed_table
    from binlake.delta.composed_table import TablePart

    parts: dict[TableName, dict[str, TablePart]] = {entry.name: {} for entry in config.tables.merge_tables}
    for life in lives:
        place = config.shard_of(life.name)
        if place is None:
            continue
        if life.status == "dropped":
            gone = TablePart(str(life.name), place.folder, place.value, is_gone=True)
            parts[place.into].setdefault(place.folder, gone)  # another life may have the name
            continue
        follows = life.status == "following" and life.high.order <= position.order
        follows = follows and life.schema.shard == place.recorded
        parts[place.into][place.folder] = TablePart(str(life.name), place.folder, place.value, follows)
    done = []
    for entry in config.tables.merge_tables:
        of_table = [*parts[entry.name].values()]
        path = config.table_path(entry.name)
        if not of_table and not opened_tables.is_table(path):
            continue
        says = {"binlake": {**note, "merged": True}}
        composed = composed_table.compose(path, entry.source_column, of_table, says, check)
        if composed is not None:
            done.append((entry, composed))
            for name, why in composed.standing.items():
                report.say(f"{name} isn't shown as it is in {entry.into}: {why}")
    return done


def _outcome(name: TableName, composed: Composed) -> BesideOutcome:
    return BesideOutcome(name, composed.table_id, "following", composed.version)


def _excluded(name: TableName, path: str) -> BesideOutcome:
    """Return the outcome of a merged table that the YAML has no more."""
    return BesideOutcome(name, str(opened_tables.opened(path).metadata().id), "excluded", None)
