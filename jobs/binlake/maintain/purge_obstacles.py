"""What stands in the way of removing what is kept of a table from before its newest copy, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from deltalake.exceptions import DeltaError

from binlake.config import LakeConfig, PipelineConfig
from binlake.config.schema_change_tools import changed_table
from binlake.config.table_modes import BESIDE
from binlake.delta import opened_tables
from binlake.delta.delta_log import LakeLog, changes_rows
from binlake.errors import OF_CODE, ConfigurationError, LakeError
from binlake.iceberg.table_metadata import REGISTERED
from binlake.lake import pins
from binlake.lake.lake_versions import VersionedTable, lake_versions
from binlake.lease.lease import RecordedState
from binlake.merge.published_tables import is_published
from binlake.planner.rules import Rules
from binlake.planner.steps import Life, Standstill
from binlake.records import expiry, feed_watermarks, merged_standstills
from binlake.records.purging import Taken
from binlake.schema.table import TableName
from binlake.storage import files
from binlake.store.conditions import literal, rows_of
from binlake.store.metadata import Metadata
from binlake.store.rows import FeedRow, ShapeRow, VersionRow

_UNREADABLE = (DeltaError, LakeError, OSError, *OF_CODE)
"""Errors of a Delta table whose log can't be read."""


@dataclass(frozen=True)
class Obstacle:
    """A reason why a table can't be purged now, and what to do about it."""

    why: str
    remedy: str


@dataclass(frozen=True)
class Look:
    """What a look at tables begins with. lives: all that metadata has. chosen: the names of the tables that are looked
    at. done: when the past of lives was removed, in microseconds since 1970. about: the life that is asked for alone,
    whose rows are read then; None for all."""

    config: PipelineConfig
    metadata: Metadata
    lives: Sequence[Life]
    recorded: RecordedState | None
    done: Mapping[str, int]
    chosen: Collection[TableName]
    about: Life | None = None

    @cached_property
    def living(self) -> dict[str, TableName]:
        """Return the names of the tables that are there, by their ids."""
        return {life.id: life.name for life in self.lives if life.status != "dropped"}

    @cached_property
    def here(self) -> Mapping[TableName, Life]:
        """Return the lives of the tables that are there, by their names."""
        return {life.name: life for life in self.lives if life.status != "dropped"}

    @cached_property
    def places(self) -> Mapping[str, tuple[str, ...]]:
        """Return the paths of lives' mirrors, by the lives' ids: the one that it was copied to, the one around it that
        shows it, and that of a table that is there by today's settings."""
        config = self.config
        copied = {life.id: config.places_of(life.name, life.schema.shard) for life in self.lives}
        return {key: (*paths, self.paths[key]) if key in self.paths else (*paths,) for key, paths in copied.items()}

    @cached_property
    def paths(self) -> Mapping[str, str]:
        """Return the paths of the tables that are there, by their ids, as the settings of today have them."""
        return {key: self.config.table_path(name) for key, name in self.living.items()}

    @cached_property
    def in_use(self) -> Set[str]:
        """Return the paths of the tables that are there, and of the merged tables, as the settings of today have
        them."""
        return {
            *self.paths.values(),
            *(self.config.table_path(entry.name) for entry in self.config.tables.merge_tables),
        }

    @cached_property
    def copies(self) -> Mapping[TableName, Sequence[Life]]:
        """Return the lives that have the name of a schema change tool's copy, by the copied table's."""
        copies: dict[TableName, list[Life]] = {}
        for life in self.lives:
            if original := changed_table(life.name.table):
                copies.setdefault(TableName(life.name.database, original), []).append(life)
        return copies

    @cached_property
    def all_shapes(self) -> Sequence[ShapeRow]:
        """Return the shapes and names that all lives had, in their order."""
        return sorted(ShapeRow.read(self.metadata), key=lambda row: row.at_us)

    @cached_property
    def _about(self) -> tuple[Sequence[ShapeRow], Collection[tuple[str, TableName]]]:
        """Return the shapes, and the names by lives' ids, of the life that is asked for, and of all that had one of the
        names that it or a life before it had."""
        assert self.about
        names, ids, read = {self.about.name}, {self.about.id}, (0, 0)
        while read != (len(names), len(ids)):
            read = len(names), len(ids)
            where = f"table_id IN ({', '.join(map(literal, sorted(ids)))})"
            where += "".join(f" OR ({rows_of(name)})" for name in sorted(names))
            shapes = ShapeRow.read(self.metadata, where=where)
            noted = {(row.table_id, row.name) for row in shapes} | self._versions(f"({where})")
            ids |= {key for key, name in noted if name in names}
            names |= {name for key, name in noted if key == self.about.id or (key in ids and key not in self.living)}
        return sorted(shapes, key=lambda row: row.at_us), noted

    def _versions(self, where: str) -> set[tuple[str, TableName]]:
        """Return the names that versions of the lake have, by lives' ids."""
        columns = ("table_id", "database", "table")
        rows = VersionRow.read(self.metadata, *columns, where=f"table_id IS NOT NULL AND {where}")
        return {(row.life, row.name) for row in rows}

    @cached_property
    def shapes(self) -> Sequence[ShapeRow]:
        """Return the shapes and names that lives had, in their order."""
        return self._about[0] if self.about else self.all_shapes

    @cached_property
    def shapes_by_life(self) -> Mapping[str, Sequence[ShapeRow]]:
        """Return the shapes that lives had, in their order, by the lives' ids."""
        shapes: dict[str, list[ShapeRow]] = {}
        for row in self.shapes:
            shapes.setdefault(row.table_id, []).append(row)
        return shapes

    @cached_property
    def _noted(self) -> tuple[Mapping[str, set[TableName]], Mapping[TableName, set[str]]]:
        """Return the names that lives had, by the lives' ids, and the ids by the names."""
        if self.about:
            noted = self._about[1]
        else:
            noted = {(row.table_id, row.name) for row in self.shapes} | self._versions("true")
        names: dict[str, set[TableName]] = {}
        ids: dict[TableName, set[str]] = {}
        for key, name in noted:
            names.setdefault(key, set()).add(name)
            ids.setdefault(name, set()).add(key)
        return names, ids

    def past_of(self, life: Life) -> tuple[set[TableName], set[str]]:
        """Return all names that a table and its lives before have had, and the ids of these lives: none that
        follows."""
        names_of, ids_of = self._noted
        names, own, later = {life.name}, {life.id}, {life.id}
        while later:
            names.update(*(names_of.get(key, ()) for key in later))
            later = {key for name in names for key in ids_of.get(name, ()) if key not in self.living} - own
            own |= later
        return names, own - {life.id}

    def taken(self, names: Collection[TableName], living: Mapping[str, TableName]) -> dict[TableName, Taken]:
        """Return since when other living tables have those of some names that they have by now. living: these tables,
        by their ids. Nothing of a name of which that isn't recorded."""
        own = {name: table_id for table_id, name in living.items() if name in names}
        taken: dict[TableName, Taken] = {}
        for row in self.shapes:
            if row.name not in own:
                continue
            if row.table_id != own[row.name]:
                taken.pop(row.name, None)  # it had the name before, too
            else:
                taken.setdefault(row.name, Taken(row.batch, row.at_us))
        return taken

    def since_us(self, table_id: str) -> int:
        """Return when the life that began with a table's newest copy began, in microseconds since 1970."""
        shapes = self.shapes_by_life.get(table_id, ())
        since_us = max((row.at_us for row in shapes if row.why == "snapshot"), default=0)
        return since_us or min((row.at_us for row in shapes), default=0)

    def is_purged(self, life: Life) -> bool:
        """Return whether a table's past was removed since its newest copy."""
        return self.done.get(life.id, 0) > self.since_us(life.id)


@dataclass(frozen=True)
class TableBefore:
    """What a table has from before its newest copy. since_us: of that. batches: those whose staging goes. copies: of
    schema change tools. names: all that the table and its lives before have had. ended: the ids of these lives.
    living: the names of the other tables that are there, by their ids."""

    life: Life
    since_us: int
    batches: Sequence[int]
    copies: Sequence[Life]
    names: Collection[TableName]
    ended: Set[str]
    living: Mapping[str, TableName]


def obstacles(look: Look, before: TableBefore) -> Iterator[Obstacle]:
    """Yield what stands in the way of purging a table."""
    life = before.life
    yield from _not_copied(look, life)
    if life.name in expiry.unfinished_snapshots(look.metadata).values():
        yield Obstacle("a snapshot of it isn't finished", "run it again, then purge")

    shown = {life.name, merged_of(look.config, life.name)}

    def has_values(table: VersionedTable) -> bool:
        return table.name in shown or (table.name in before.names and table.table_id not in before.living)

    yield from pinned(look.metadata, has_values)  # first: others say to remove folders that pinned versions need
    yield from _in_merged(look, life)
    yield from _in_other_tables(look, before)
    yield from _in_former_places(look, before)
    yield from _in_its_folder(look, life.name)
    yield from _replayed(look, before)
    for copy in before.copies:
        if copy.status != "dropped":
            yield Obstacle(f"{copy.name}, a schema change tool's copy of it, is {copy.status}", "wait for the tool")
    if life.schema.soft_delete:
        yield Obstacle(
            "deleted rows stay in it (soft_delete), also those from before the copy",
            "take soft_delete off and snapshot it again, or move its Delta table away and snapshot it",
        )
    yield from _loading(look, life)
    yield from _awaited(look, before.batches)


def pinned(metadata: Metadata, has_values: Callable[[VersionedTable], bool]) -> Iterator[Obstacle]:
    """Yield the pinned batches with a version of a table that has values. Raises LakeError."""
    batches = {pin.batch: pin.name for pin in pins.read(metadata)}
    for version in lake_versions(metadata) if batches else ():
        if version.batch in batches and any(map(has_values, version.listed)):
            name = batches[version.batch]
            yield Obstacle(
                f"batch {version.batch} is pinned as {name}, with a version of it",
                f"binlake versions unpin --config FILE {name}, purge, and pin a later batch",
            )


def _not_copied(look: Look, life: Life) -> Iterator[Obstacle]:
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


def merged_of(config: PipelineConfig, name: TableName) -> TableName | None:
    """Return the table that shows a shard, if this source alone fills it; None for any other table."""
    shard = config.shard_of(name)
    return shard.into if shard and not shard.folder_of else None


def _in_merged(look: Look, life: Life) -> Iterator[Obstacle]:
    """Yield why what the table that shows a shard has of it can't go."""
    shard = look.config.shard_of(life.name)
    if shard is None:
        return
    if shard.folder_of:
        yield Obstacle(
            f"it is a part of {shard.into}, which several sources fill, and whose versions name its files",
            "they go with maintain.history_hours and maintain.log_hours of all of them; then run binlake maintain",
        )
        return
    noted = merged_standstills.read(look.metadata).get(shard.into, merged_standstills.NOTHING)
    why = noted.own or noted.shards.get(str(life.name)) or Standstill(*_LATE)
    if noted.own or _is_shown_as_before(look.config, life.name, shard.into):
        yield Obstacle(f"{shard.into} doesn't show it as it is: {why.reason}", f"{why.remedy}; then purge")
    yield from _in_its_folder(look, shard.into)


_LATE = ("it shows an earlier version", "binlake status says what it waits for; once that is done, run binlake sync")


def _is_shown_as_before(config: PipelineConfig, shard: TableName, merged: TableName) -> bool:
    """Return whether a merged table shows a shard at a version behind which its rows changed, or that isn't known."""
    from binlake.delta import composed_table  # it imports pyarrow, which a look at others doesn't need

    path, of_shard = config.table_path(merged), LakeLog(config.table_path(shard), "")
    try:
        if not opened_tables.is_table(path) or not of_shard.exists():
            return False
        version = composed_table.shown_version(path, of_shard.path)
        return version is not None and any(map(changes_rows, of_shard.history(version)))
    except _UNREADABLE:
        return True


def _in_other_tables(look: Look, before: TableBefore) -> Iterator[Obstacle]:
    """Yield which other tables of the lake have values of it."""
    life = before.life
    for name in sorted(set(before.names) - {life.name}):
        path = look.config.table_path(name)
        if not files.has_folder(path):
            continue
        if name not in look.here:
            yield _left_behind(look, before, path, f"of {name}, which it was called")
        elif name not in look.chosen and not look.is_purged(look.here[name]):
            yield Obstacle(
                f"it was called {name}, and {path}, of another table by now, may have versions from then",
                f"purge {name}, too: name both in --tables",
            )
    for name in sorted(before.names):
        for mode in BESIDE:
            log = LakeLog.beside(look.config, name, mode)
            if log.exists() and (log.opened().metadata().created_time or 0) * 1000 < before.since_us:
                yield Obstacle(
                    f"its {mode}, {log.path}, was begun before it was copied",
                    "move that folder away, or remove it: the next batch begins another; then purge",
                )


def _in_former_places(look: Look, before: TableBefore) -> Iterator[Obstacle]:
    """Yield the folders in which the table was before merge_tables changed."""
    config = look.config
    own = {config.table_path(name) for name in before.names}  # of these others say what to do
    ids = (before.life.id, *before.ended)
    places = {(row.name, row.shape.shard) for key in ids for row in look.shapes_by_life.get(key, ())}
    former = {path for name, place in places for path in config.places_of(name, place)} - own - look.in_use
    named: list[str] = []
    for path in sorted(former):
        if not any(_is_in(path, other) for other in named) and files.has_folder(path):
            named.append(path)
            yield _left_behind(look, before, path, "where it was before merge_tables changed")


def _is_in(path: str, folder: str) -> bool:
    """Return whether a path is a folder's, or of something in it."""
    return path == folder or path.startswith(f"{folder}/")


def _left_behind(look: Look, before: TableBefore, path: str, why: str) -> Obstacle:
    """Return what to do about a folder from before the copy: nobody is asked to remove one that may have more."""
    if not (more := next(_more_in(look, before, path), "")):
        return Obstacle(f"{path} is there, {why}", "remove that folder, then purge")
    return Obstacle(
        f"{path} is there, {why}, and {more}",
        "don't remove it as it is: run binlake sync; if that doesn't change it, its owner has to decide what of it is "
        "to stay, and where; then purge",
    )


def _more_in(look: Look, before: TableBefore, path: str) -> Iterator[str]:
    """Yield what a folder has, or may have, besides what the table had in it before its newest copy."""
    config = look.config
    for entry in config.tables.merge_tables:
        if _is_in(config.table_path(entry.name), path):
            yield f"is the place of {entry.into}"
    for other in look.lives:
        places = look.places[other.id]
        if other.status != "dropped":
            if any(_is_in(place, path) for place in places):
                yield f"has {other.name}, which isn't copied to another place yet"
        elif other.name in look.here or other.name in before.names:
            continue
        elif _is_in(places[0], path) and files.has_folder(places[0]):
            yield f"has {other.name}, which was dropped"
    if _is_shown(path):
        yield f"{path.rpartition('/')[0]} shows what is in it"
    subfolders = [f"{path}/{name}" for name in files.subfolders(path)]
    if tables := [each for each in subfolders if opened_tables.is_table(each)]:
        known = {place for row in look.all_shapes for place in config.places_of(row.name, row.shape.shard)}
        yield from (f"has a table of somebody else, {each}" for each in tables if each not in known)


def _is_shown(path: str) -> bool:
    """Return whether the newest version of a merged table shows the shard in a folder, or may show it."""
    from binlake.delta import composed_table  # it imports pyarrow, which a look at others doesn't need

    merged = path.rpartition("/")[0]
    try:
        if not opened_tables.is_table(merged) or not opened_tables.is_table(path):
            return False
        return composed_table.shown_version(merged, path) is not None
    except _UNREADABLE:
        return True


def _in_its_folder(look: Look, name: TableName) -> Iterator[Obstacle]:
    """Yield what keeps values in a table's folder that no version of it needs."""
    path = look.config.table_path(name)
    log = LakeLog(path, "")
    feed = f"{path}/_change_data"
    is_on = log.exists() and log.opened().metadata().configuration.get("delta.enableChangeDataFeed") == "true"
    if is_on or files.has_folder(feed):
        yield Obstacle(
            f"{path} has a change data feed, which keeps former values in _change_data",
            "set delta.enableChangeDataFeed to false on it, and remove that folder; then purge",
        )
    known = {catalog.name for catalog in look.config.reached_catalogs}
    for catalog in files.subfolders(f"{path}/{REGISTERED}") if is_published(look.config, name) else ():
        if catalog not in known:
            yield Obstacle(
                f"{path}/{REGISTERED}/{catalog} has metadata files of a catalog that isn't in the YAML, with comments",
                "remove the table's name from that catalog, and that folder; then purge",
            )


def _replayed(look: Look, before: TableBefore) -> Iterator[Obstacle]:
    """Yield what was built of it in folders of their own: by replays, and by repairs that were killed."""
    root = f"{look.config.root}/_replayed"
    folders = [each for each in files.subfolders(root) if each != "beside"]
    folders += [f"beside/{each}" for each in files.subfolders(f"{root}/beside")]
    for folder in folders:
        config = look.config.model_copy(update={"lake": LakeConfig(path=f"{root}/{folder}")})
        for name in sorted(before.names):
            for path in (config.table_path(name), *(config.beside_path(name, mode) for mode in BESIDE)):
                if files.has_folder(path):
                    yield Obstacle(
                        f"{path} is there, built by a replay or a repair",
                        "once that is done, remove that folder; then purge",
                    )


def _loading(look: Look, life: Life) -> Iterator[Obstacle]:
    """Yield which feeds still load its rows from a version that is to go."""
    for row in FeedRow.read(look.metadata, "feed", "position"):
        position = feed_watermarks.position_of(row)
        if position and any(table.table_id == life.id for table in position.loading):
            yield Obstacle(
                f"the feed {row.feed} begins with its rows, and reads them from the lake",
                f"run binlake feed for {row.feed} until they are sent, or forget it; then purge",
            )


def _awaited(look: Look, batches: Sequence[int]) -> Iterator[Obstacle]:
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
