"""What is still kept of tables from before their newest copies, and what stands in the way of removing it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from binlake import names
from binlake.config import PipelineConfig
from binlake.config.schema_change_tools import changed_table
from binlake.config.table_modes import BESIDE
from binlake.config.units import HOUR_US
from binlake.delta.delta_log import LakeLog
from binlake.delta.log_files import LogFiles
from binlake.errors import OF_CODE, ConfigurationError, StagingError, UsageError
from binlake.iceberg.table_metadata import FOLDER
from binlake.lake import pins
from binlake.lake.lake_versions import lake_versions
from binlake.lake.purged_versions import PURGE
from binlake.lease import lease
from binlake.lease.lease import RecordedState
from binlake.maintain import purged_log
from binlake.planner.rules import Rules
from binlake.planner.steps import Life
from binlake.records import expiry, feed_watermarks, watermarks
from binlake.records.purging import RowsBefore
from binlake.schema.table import TableName, TableSchema
from binlake.staging.staged_files import read_manifest
from binlake.storage import files
from binlake.store.conditions import literal
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import BatchRow, FeedRow, ShapeRow, VersionRow
from binlake.store.run_rows import RunRow

KIND = PURGE
"""The kind of purges among the runs."""


@dataclass(frozen=True)
class Kept:
    """One kind of what is kept. count: of files, folders or rows. bytes: 0 of rows."""

    what: str
    count: int
    bytes: int = 0


@dataclass(frozen=True)
class Obstacle:
    """A reason why a table can't be purged now, and what to do about it."""

    why: str
    remedy: str


@dataclass(frozen=True)
class Purgeable:
    """A table that was copied again, and what is kept of it from before.

    since_us: when the life that began with the copy began, in microseconds since 1970. copies: of schema change tools,
    dropped by now, whose folders are there. batches: those whose staging goes. kept: what is known of it; nothing once
    all was removed.
    """

    life: Life
    since_us: int
    rows: RowsBefore
    copies: tuple[TableName, ...] = ()
    batches: tuple[int, ...] = ()
    kept: tuple[Kept, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    is_done: bool = False

    @property
    def name(self) -> TableName:
        """Return the table's name."""
        return self.life.name


@dataclass(frozen=True)
class _Look:
    config: PipelineConfig
    metadata: Metadata
    lives: Sequence[Life]
    recorded: RecordedState | None
    done: Mapping[str, int]


def look(config: PipelineConfig, metadata: Metadata, patterns: Sequence[str]) -> list[Purgeable]:
    """Return the tables that patterns match, by their names. Raises UsageError for a pattern that matches none."""
    lives = watermarks.read_lives(metadata)
    living = [life for life in lives if life.status != "dropped" and not config.in_ghosts(life.name)]
    if unknown := names.unmatched(patterns, [(life.name.database, life.name.table) for life in living]):
        raise UsageError(
            f"no table of the lake matches {', '.join(unknown)}",
            remedy="patterns are database.table; binlake status lists the tables",
        )
    chosen = [life for life in living if names.matches_any(patterns, life.name.database, life.name.table)]
    looked = _Look(config, metadata, lives, lease.read(metadata).recorded_state, _purged(metadata))
    return [_table(looked, life) for life in sorted(chosen, key=lambda life: life.name)]


def _purged(metadata: Metadata) -> dict[str, int]:
    """Return when the past of lives was removed, in microseconds since 1970."""
    rows = sorted(RunRow.read(metadata, "tables", "ended_us", where=f"kind = '{KIND}'"), key=lambda row: row.ended_us)
    return {table["table_id"]: row.ended_us for row in rows for table in row.noted}


def _table(look: _Look, life: Life) -> Purgeable:
    shapes = ShapeRow.read(look.metadata, "why", "at_us", where=f"table_id = {literal(life.id)}")
    since_us = max((row.at_us for row in shapes if row.why == "snapshot"), default=0)
    since_us = since_us or min((row.at_us for row in shapes), default=0)
    names, ended = _past_of(look, life)
    copies = [other for other in look.lives if any(_is_copy(other.name, name) for name in names)]
    ended |= {copy.id for copy in copies if copy.status == "dropped"}
    living = {other.id for other in look.lives if other.status != "dropped"} - {life.id}
    own = sorted({*names, *(copy.name for copy in copies)})
    rows = RowsBefore(look.metadata, life, own, ended, living, since_us, look.config.withheld(life.name))
    if look.done.get(life.id, 0) > since_us:
        return Purgeable(life, since_us, rows, is_done=True)
    gone = tuple(copy.name for copy in copies if files.has_folder(look.config.table_path(copy.name)))
    batches = tuple(_staged_before(look, life, rows.names))
    kept = (*_files_kept(look, life, gone), *_staging_kept(look, batches), *_rows_kept(rows))
    obstacles = tuple(_obstacles(look, life, since_us, batches, copies, names))
    return Purgeable(life, since_us, rows, gone, batches, kept, obstacles)


def _past_of(look: _Look, life: Life) -> tuple[set[TableName], set[str]]:
    """Return all names that a table and its lives before have had, and the ids of these lives: none that follows."""
    noted = [(row.table_id, row.name) for row in ShapeRow.read(look.metadata, "table_id", "database", "table")]
    versions = VersionRow.read(look.metadata, "table_id", "database", "table", where="table_id IS NOT NULL")
    noted += [(row.life, row.name) for row in versions]
    living = {other.id for other in look.lives if other.status != "dropped"}
    names, own = {life.name}, {life.id}
    while more := {(key, name) for key, name in noted if key in own or (name in names and key not in living)} - {
        (key, name) for key, name in noted if key in own and name in names
    }:
        own |= {key for key, _ in more}
        names |= {name for _, name in more}
    return names, own - {life.id}


def _is_copy(name: TableName, table: TableName) -> bool:
    return name.database == table.database and changed_table(name.table) == table.table


def _files_kept(look: _Look, life: Life, copies: Collection[TableName]) -> Iterator[Kept]:
    """Yield what is kept in the table's folder, and in those of copies."""
    path = look.config.table_path(life.name)
    if not LakeLog(path, "").exists():
        return
    log = LogFiles.of(path)
    needed = log.needed_by(max(log.commits, default=-1)) or set()
    old = [file for file in purged_log.data_files(path) if file.name.rpartition("/")[2] not in needed]
    yield Kept("data files of earlier versions", len(old), sum(file.bytes for file in old))
    yield Kept("files of Delta's log, with least and greatest values", len(log.files), sum(f.bytes for f in log.files))
    published = files.list_files(f"{path}/{FOLDER}")
    yield Kept("files of Iceberg's metadata, with bounds", len(published), sum(file.bytes for file in published))
    yield Kept("folders of schema change tools' copies", len(copies))


def _staged_before(look: _Look, life: Life, own: Collection[TableName]) -> Iterator[int]:
    """Yield the batches from before the copy that are still staged and may have values of the table."""
    if look.recorded is None:
        return
    staged = sorted(batch for batch in feed_watermarks.staged_batches(look.config) if batch <= look.recorded.batch)
    if not staged:
        return
    starts = {row.batch: row.carried.start for row in BatchRow.read(look.metadata, "batch", "range")}
    for batch in staged:
        start = starts.get(batch)
        is_later = start is not None and start.server == life.high.server and life.high.order <= start.order
        if not is_later and _may_hold(look.config, batch, own):
            yield batch


def _may_hold(config: PipelineConfig, batch: int, own: Collection[TableName]) -> bool:
    """Return whether a batch's staging may have values of one of some tables: statements may have them, too."""
    for attempt in files.subfolders(config.staging_path(str(batch))):
        try:
            manifest = read_manifest(config.staging_path(str(batch), attempt), batch, attempt)
        except StagingError:
            return True
        if any(part.statements or any(file.name in own for file in part.files) for part in manifest.slices):
            return True
    return False


def _staging_kept(look: _Look, batches: Sequence[int]) -> Iterator[Kept]:
    if batches:
        folders = [files.list_files(look.config.staging_path(str(batch))) for batch in batches]
        span = f"batch {batches[0]}" if len(batches) == 1 else f"batches {batches[0]} to {batches[-1]}"
        what = f"folders of staging, {span}, with other tables' mutations: these can't be replayed then"
        yield Kept(what, len(batches), sum(file.bytes for folder in folders for file in folder))


def _rows_kept(rows: RowsBefore) -> Iterator[Kept]:
    for table, count in rows.count().items():
        yield Kept(f"rows of metadata ({table})", count)


# obstacles -----------------------------------------------------------------------------------------------------------
def _obstacles(
    look: _Look, life: Life, since_us: int, batches: Sequence[int], copies: Sequence[Life], names: Collection[TableName]
) -> Iterator[Obstacle]:
    yield from _not_copied(look, life)
    if life.name in expiry.unfinished_snapshots(look.metadata).values():
        yield Obstacle("a snapshot of it isn't finished", "run it again, then purge")
    yield from _in_other_tables(look, life, since_us, names)
    for copy in copies:
        if copy.status != "dropped":
            yield Obstacle(f"{copy.name}, a schema change tool's copy of it, is {copy.status}", "wait for the tool")
    if life.schema.soft_delete:
        yield Obstacle(
            "deleted rows stay in it (soft_delete), and a copy takes them over as they are",
            "take soft_delete off and snapshot it again, or move its Delta table away and snapshot it",
        )
    batches_pinned = {pin.batch: pin.name for pin in pins.read(look.metadata)}
    for version in lake_versions(look.metadata) if batches_pinned else ():
        if version.batch in batches_pinned and any(table.name == life.name for table in version.listed):
            pinned = batches_pinned[version.batch]
            yield Obstacle(
                f"batch {version.batch} is pinned as {pinned}, with a version of it",
                f"binlake versions unpin --config FILE {pinned}, purge, and pin a later batch",
            )
    yield from _awaited(look, batches)


def _not_copied(look: _Look, life: Life) -> Iterator[Obstacle]:
    """Yield why the table in the lake isn't a copy under the settings of the YAML."""
    if life.status != "following":
        yield Obstacle(f"it is {life.status}", "once it follows the log under the settings of the YAML, purge it")
        return
    try:
        why = Rules.of(look.config).reads_otherwise(life.name, life.schema)
    except (ConfigurationError, *OF_CODE) as error:
        why = str(error)
    if why:
        yield Obstacle(f"it wasn't copied under the settings of the YAML yet: {why}", "run binlake sync, then purge")


def _in_other_tables(look: _Look, life: Life, since_us: int, names: Collection[TableName]) -> Iterator[Obstacle]:
    """Yield which other tables of the lake have values of it."""
    if shard := look.config.shard_of(life.name):
        yield Obstacle(
            f"it is a part of {shard.into}, whose versions name its files",
            "they go with maintain.history_hours and maintain.log_hours; then run binlake maintain",
        )
    here = {other.name for other in look.lives if other.status != "dropped"}
    for name in names:
        path = look.config.table_path(name)
        if name not in here and files.has_folder(path):
            yield Obstacle(f"{path} is there, of {name}, which it was called", "remove that folder, then purge")
    path = look.config.table_path(life.name)
    log = LakeLog(path, "")
    if log.exists() and log.opened().metadata().configuration.get("delta.enableChangeDataFeed") == "true":
        yield Obstacle(
            f"{path} has a change data feed, which keeps former values in _change_data",
            "set delta.enableChangeDataFeed to false on it, and remove that folder; then purge",
        )
    for mode in BESIDE:
        log = LakeLog.beside(look.config, life.name, mode)
        if log.exists() and (log.opened().metadata().created_time or 0) * 1000 < since_us:
            yield Obstacle(
                f"its {mode}, {log.path}, was begun before it was copied",
                "move that folder away, or remove it: the next batch begins another; then purge",
            )


def _awaited(look: _Look, batches: Sequence[int]) -> Iterator[Obstacle]:
    """Yield who waits for the staging that is to go."""
    if look.recorded is None or not batches:
        return
    for transaction in look.recorded.prepared:
        if transaction.batch in batches:
            yield Obstacle(
                f"rows of a prepared XA transaction wait in the staging of batch {transaction.batch}",
                "commit it or roll it back at the server, run binlake sync, then purge",
            )
            return
    awaited = feed_watermarks.awaited(look.config, look.metadata, look.recorded.batch, set(batches))
    if awaited:
        rows = FeedRow.read(look.metadata, "feed", "needs")
        behind = [row.feed for row in rows if (row.needs or 0) <= max(awaited)] or ["a new one"]
        yield Obstacle(
            f"the staging of batch {min(awaited)} waits for feeds ({', '.join(behind)})",
            "run binlake feed for each, or take them out of the YAML and forget them; then purge",
        )


# what is said of it --------------------------------------------------------------------------------------------------
def former_values(config: PipelineConfig, metadata: Metadata) -> dict[TableName, int]:
    """Return the tables that have former values of columns that are withheld by now, and until when upkeep keeps
    these, in microseconds since 1970. Raises LakeError."""
    if not (config.columns or config.tables.exclude_columns):
        return {}
    done, shapes = _purged(metadata), ShapeRow.read(metadata)
    kept: dict[TableName, int] = {}
    for life in watermarks.read_lives(metadata):
        hidden = config.withheld(life.name)
        own = [row.at_us for row in shapes if row.table_id == life.id]
        is_copied = life.status == "following" and not _shows(life.schema, hidden)
        if not is_copied or not hidden or not own or life.id in done:
            continue
        until = max(own) + int(config.maintain.history_hours * HOUR_US)
        earlier = (row.shape for row in shapes if row.name == life.name and row.table_id != life.id)
        if until > now_us() and any(_shows(shape, hidden) for shape in earlier):
            kept[life.name] = until
    return kept


def _shows(shape: TableSchema, hidden: Collection[str]) -> bool:
    """Return whether the lake had values of one of some columns under a shape."""
    return any(column.mask is None and column.served_name.lower() in hidden for column in shape.mirrored)
