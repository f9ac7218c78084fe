"""What is still kept of tables from before their newest copies, and what stands in the way of removing it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from binlake import names
from binlake.config import PipelineConfig
from binlake.delta.composed_parts import CONVERTED
from binlake.delta.delta_log import LakeLog
from binlake.delta.log_files import LogFiles
from binlake.errors import StagingError, UsageError
from binlake.iceberg.table_metadata import FOLDER
from binlake.lake.purged_versions import PURGE
from binlake.lease import lease
from binlake.maintain import purged_log
from binlake.maintain.purge_obstacles import Look, Obstacle, TableBefore, merged_of, obstacles
from binlake.planner.steps import Life
from binlake.records import feed_watermarks, watermarks
from binlake.records.purging import RowsBefore
from binlake.schema.table import TableName
from binlake.staging.staged_files import read_manifest
from binlake.storage import files
from binlake.store.metadata import Metadata
from binlake.store.rows import BatchRow
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
    called = {life.id: [(name.database, name.table) for name in _names_of(config, life)] for life in living}
    if unknown := names.unmatched(patterns, [name for own in called.values() for name in own]):
        raise UsageError(
            f"no table of the lake matches {', '.join(unknown)}",
            remedy="patterns are database.table; binlake status lists the tables",
        )
    chosen = [life for life in living if any(names.matches_any(patterns, *name) for name in called[life.id])]
    looked = look_at(config, metadata, lives, {life.name for life in chosen})
    return [_table(looked, life) for life in sorted(chosen, key=lambda life: life.name)]


def look_at(
    config: PipelineConfig,
    metadata: Metadata,
    lives: Sequence[Life],
    chosen: Collection[TableName],
    about: Life | None = None,
) -> Look:
    """Return what a look at some tables begins with. lives: all that metadata has. chosen: names of the tables. about:
    the life that is asked for alone."""
    return Look(config, metadata, lives, lease.read(metadata).recorded_state, purged(metadata), chosen, about)


def _names_of(config: PipelineConfig, life: Life) -> list[TableName]:
    """Return the names that mean a table: its own, and of a shard that of the table that shows it."""
    shard = config.shard_of(life.name)
    return [life.name, shard.into] if shard else [life.name]


def purged(metadata: Metadata) -> dict[str, int]:
    """Return when the past of lives was removed, in microseconds since 1970."""
    rows = sorted(RunRow.read(metadata, "tables", "ended_us", where=f"kind = '{KIND}'"), key=lambda row: row.ended_us)
    return {table["table_id"]: row.ended_us for row in rows for table in row.noted}


def _table(look: Look, life: Life) -> Purgeable:
    before = before_copy(look, life)
    own = sorted({*before.names, *(copy.name for copy in before.copies)})
    ended = before.ended | {copy.id for copy in before.copies if copy.status == "dropped"}
    taken, withheld = look.taken(own, before.living), look.config.withheld(life.name)
    rows = RowsBefore(look.metadata, life, own, ended, [*before.living], taken, before.since_us, withheld)
    if look.is_purged(life):
        return Purgeable(life, before.since_us, rows, is_done=True)
    gone = tuple(copy.name for copy in before.copies if files.has_folder(look.config.table_path(copy.name)))
    batches = tuple(_staged_before(look, life, own))
    kept = (*_folders_kept(look, life, gone), *_staging_kept(look, batches), *_rows_kept(rows))
    found = tuple(obstacles(look, replace(before, batches=batches)))
    return Purgeable(life, before.since_us, rows, gone, batches, kept, found)


def before_copy(look: Look, life: Life) -> TableBefore:
    """Return what a table has from before its newest copy, but for staging."""
    names, ended = look.past_of(life)
    copies = [copy for name in sorted(names) for copy in look.copies.get(name, ())]
    living = look.living.copy()
    living.pop(life.id, None)
    return TableBefore(life, look.since_us(life.id), (), copies, names, ended, living)


def _folders_kept(look: Look, life: Life, copies: Collection[TableName]) -> Iterator[Kept]:
    """Yield what is kept in the table's folder, in that of the table that shows it, and in those of copies."""
    yield from _files_kept(look.config.table_path(life.name))
    if merged := merged_of(look.config, life.name):
        yield from _files_kept(look.config.table_path(merged), f" of {merged}", CONVERTED)
    yield Kept("folders of schema change tools' copies", len(copies))


def _files_kept(path: str, of: str = "", below: str = "") -> Iterator[Kept]:
    """Yield what is kept of a Delta table. of: what is said of it. below: the folder with its own data files."""
    if not LakeLog(path, "").exists():
        return
    log = LogFiles.of(path)
    needed = log.needed_by(max(log.commits, default=-1)) or set()
    old = [file for file in purged_log.data_files(path, below) if file.name.rpartition("/")[2] not in needed]
    yield Kept(f"data files of earlier versions{of}", len(old), sum(file.bytes for file in old))
    size = sum(file.bytes for file in log.files)
    yield Kept(f"files of Delta's log{of}, with least and greatest values", len(log.files), size)
    published = files.list_files(f"{path}/{FOLDER}")
    yield Kept(f"files of Iceberg's metadata{of}, with bounds", len(published), sum(file.bytes for file in published))


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
