"""What is still kept of tables from before their newest copies, and what stands in the way of removing it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from binlake import names
from binlake.config import PipelineConfig
from binlake.config.schema_change_tools import changed_table
from binlake.config.units import HOUR_US
from binlake.delta.delta_log import LakeLog
from binlake.delta.log_files import LogFiles
from binlake.errors import StagingError, UsageError
from binlake.iceberg.table_metadata import FOLDER
from binlake.lake.purged_versions import PURGE
from binlake.lease import lease
from binlake.maintain import purged_log
from binlake.maintain.purge_obstacles import Look, Obstacle, TableBefore, obstacles
from binlake.planner.steps import Life
from binlake.records import feed_watermarks, watermarks
from binlake.records.purging import RowsBefore
from binlake.schema.table import TableName, TableSchema
from binlake.staging.staged_files import read_manifest
from binlake.storage import files
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import BatchRow, ShapeRow, VersionRow
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
    recorded = lease.read(metadata).recorded_state
    looked = Look(config, metadata, lives, recorded, _purged(metadata), {life.name for life in chosen})
    return [_table(looked, life) for life in sorted(chosen, key=lambda life: life.name)]


def _purged(metadata: Metadata) -> dict[str, int]:
    """Return when the past of lives was removed, in microseconds since 1970."""
    rows = sorted(RunRow.read(metadata, "tables", "ended_us", where=f"kind = '{KIND}'"), key=lambda row: row.ended_us)
    return {table["table_id"]: row.ended_us for row in rows for table in row.noted}


def _table(look: Look, life: Life) -> Purgeable:
    since_us = look.since_us(life.id)
    names, ended = _past_of(look, life)
    copies = [other for other in look.lives if any(_is_copy(other.name, name) for name in names)]
    ended |= {copy.id for copy in copies if copy.status == "dropped"}
    living = {other.id: other.name for other in look.lives if other.status != "dropped" and other.id != life.id}
    own = sorted({*names, *(copy.name for copy in copies)})
    rows = RowsBefore(look.metadata, life, own, ended, living, since_us, look.config.withheld(life.name))
    if look.is_purged(life):
        return Purgeable(life, since_us, rows, is_done=True)
    gone = tuple(copy.name for copy in copies if files.has_folder(look.config.table_path(copy.name)))
    batches = tuple(_staged_before(look, life, rows.names))
    kept = (*_files_kept(look, life, gone), *_staging_kept(look, batches), *_rows_kept(rows))
    before = TableBefore(life, since_us, batches, copies, names, living)
    return Purgeable(life, since_us, rows, gone, batches, kept, tuple(obstacles(look, before)))


def _past_of(look: Look, life: Life) -> tuple[set[TableName], set[str]]:
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


def _files_kept(look: Look, life: Life, copies: Collection[TableName]) -> Iterator[Kept]:
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


def _staged_before(look: Look, life: Life, own: Collection[TableName]) -> Iterator[int]:
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


def _staging_kept(look: Look, batches: Sequence[int]) -> Iterator[Kept]:
    if batches:
        folders = [files.list_files(look.config.staging_path(str(batch))) for batch in batches]
        span = f"batch {batches[0]}" if len(batches) == 1 else f"batches {batches[0]} to {batches[-1]}"
        what = f"folders of staging, {span}, with other tables' mutations: these can't be replayed then"
        yield Kept(what, len(batches), sum(file.bytes for folder in folders for file in folder))


def _rows_kept(rows: RowsBefore) -> Iterator[Kept]:
    for table, count in rows.count().items():
        yield Kept(f"rows of metadata ({table})", count)


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
