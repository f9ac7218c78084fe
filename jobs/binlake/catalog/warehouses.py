"""Warehouses: all tables of a source at one batch, as the catalog serves them. They are made when they are asked for.

    shop                     the source shop at its newest batch
    shop@120                 at a batch
    shop@2026-11-29T08:00    at the last batch that was committed by then
    shop@before_migration    at a batch that is pinned under this name
    shop@newest              at the newest batch of each request, as a server has it that is configured once

Whoever attaches one gets the name with the batch, ``shop@120``: so all tables that it loads are at one position, while
batches come.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from binlake import names
from binlake.catalog.access import EVERYTHING, Access
from binlake.catalog.vended_credentials import VendedRole
from binlake.config import PipelineConfig
from binlake.config.readers_config import IcebergConfig
from binlake.delta import log_files
from binlake.errors import BinlakeError, LakeError, UsageError
from binlake.iceberg import table_metadata
from binlake.iceberg.table_metadata import TableMetadata, address_of
from binlake.lake.foreign_vacuums import foreign_vacuums
from binlake.lake.lake_versions import LakeVersion, VersionedTable, lake_versions, version_at
from binlake.lake.opened_lake import LakePlace, place_of
from binlake.lake.table_at import TableAt
from binlake.moment import parse_moment
from binlake.schema.table import TableName

NEWEST = "newest"
"""The word for the newest batch of each request."""
_PIN = re.compile(r"[A-Za-z]\w*", re.ASCII)
_SIDE_BY_SIDE = 8
"""Tables looked at at once."""
_UNPUBLISHED = "its snapshots are kept as binlake help iceberg says"


class NotInCatalog(UsageError):
    """A warehouse, a namespace or a table that the catalog doesn't have. kind: the word that the protocol has."""

    def __init__(self, kind: str, message: str, *, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.kind = kind


@dataclass(frozen=True)
class LoadedTable:
    """A table's metadata, which end at the snapshot that was asked for. location: of the file that has the same; None
    where it has later snapshots, too. folder: of the table's files."""

    metadata: Mapping[str, Any]
    location: str | None
    folder: str


@dataclass(frozen=True)
class PublishedSource:
    """A source of which tables are published as Iceberg tables. role: whose credentials readers get; None where they
    get none. access: what of it may be read."""

    name: str
    place: LakePlace
    iceberg: IcebergConfig
    role: VendedRole | None = None
    access: Access = EVERYTHING

    @classmethod
    def of(cls, config: PipelineConfig) -> PublishedSource:
        """Return the source of a YAML. Raises UsageError where the YAML publishes none of its tables, or names a role
        that can't be."""
        if config.iceberg is None:
            raise UsageError(
                f"the tables of {config.source.name} aren't published as Iceberg tables",
                remedy="write a section iceberg into its YAML, and run binlake sync and maintain: see binlake help "
                "iceberg",
            )
        place = place_of(config)
        return cls(config.source.name, place, config.iceberg, VendedRole.of(config.iceberg.vended_role, place.root))

    def versions(self) -> Sequence[LakeVersion]:
        """Return the lake's versions, oldest first. Raises LakeError."""
        return lake_versions(self.place.metadata, self.place.history_hours)

    def warehouse(self, wanted: str) -> Warehouse:
        """Return all tables at a batch, a time, a pin's name or, by default, the newest batch. Raises UsageError for
        what isn't there or can't be read any more, LakeError."""
        versions = self.versions()
        if wanted.isdecimal():
            version = version_at(versions, batch=int(wanted))
        elif wanted in ("", NEWEST):
            version = version_at(versions)
        elif _PIN.fullmatch(wanted):
            version = version_at(versions, name=wanted)
        else:
            moment = parse_moment(wanted, f"{self.name}@…", instead="a batch's number, a pin's name")
            version = version_at(versions, time=moment)
        version.refuse_unreadable(versions)
        return Warehouse(self, version, versions)

    def publishes(self, name: TableName) -> bool:
        """Return whether the YAML publishes a table of the lake, and it may be read."""
        return self.iceberg.includes(name.database, name.table) and self.access.allows(self.name, name)


@dataclass(frozen=True)
class Warehouse:
    """The published tables of a source at one batch. versions: all that the lake has."""

    source: PublishedSource
    version: LakeVersion
    versions: Sequence[LakeVersion]

    @property
    def name(self) -> str:
        """Return the name with the batch."""
        return f"{self.source.name}@{self.version.batch}"

    @cached_property
    def tables(self) -> Mapping[TableName, VersionedTable]:
        """Return the tables of the batch that the YAML publishes, and that may be read."""
        return {table.name: table for table in self.version.listed if self.source.publishes(table.name)}

    @property
    def databases(self) -> Collection[str]:
        """Return the databases that have such a table, in their order."""
        return dict.fromkeys(name.database for name in self.tables)

    def refuse_unknown_database(self, database: str) -> None:
        """Raise NotInCatalog for a database that has no such table."""
        if database not in self.databases:
            listed = ", ".join(map(names.shown, self.databases)) or "none"
            message = f"{self.name} has no database {names.shown(database)}"
            raise NotInCatalog("NoSuchNamespaceException", message, remedy=f"it has {listed}")

    def readable_tables(self, database: str) -> list[TableName]:
        """Return the tables of a database that can be loaded. Raises NotInCatalog."""
        self.refuse_unknown_database(database)
        tables = [table for name, table in self.tables.items() if name.database == database]
        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="tables") as pool:
            return [table.name for table, can in zip(tables, pool.map(self._is_readable, tables), strict=True) if can]

    def _is_readable(self, table: VersionedTable) -> bool:
        try:
            self._published(table)
        except BinlakeError:
            return False
        return True

    def load(self, name: TableName) -> LoadedTable:
        """Return a table's metadata. Raises NotInCatalog for a table that the batch doesn't have, UsageError for one
        whose snapshot isn't there, LakeError."""
        self.refuse_unknown_database(name.database)
        if table := self.tables.get(name):
            loaded = self._published(table)
            self._refuse_vacuumed(table)
            return loaded
        shown, status = names.shown(str(name)), self.version.left_out.get(str(name))
        if status and self.source.publishes(name):
            raise UsageError(
                f"{shown} isn't part of batch {self.version.batch}: it is {status}, so it is at another position",
                remedy="take a batch that has it",
            )
        raise NotInCatalog("NoSuchTableException", f"{self.name} has no table {shown}")

    def _published(self, table: VersionedTable) -> LoadedTable:
        there = TableAt.of(self.source.place.root, table.name, table.delta_version, table.folder)
        try:
            newest = table_metadata.newest(there.path)
            metadata = newest.as_of(table.delta_version + 1) if newest else None
            if newest is None or metadata is None or not _is_of_version(metadata, there):
                raise self._unpublished(table, newest)
        except (OSError, ValueError, KeyError) as error:
            raise LakeError(
                f"what is published of {names.shown(str(table.name))} can't be read: {type(error).__name__}",
                remedy="binlake verify --iceberg says more",
            ) from error
        is_whole = metadata.content == newest.content
        return LoadedTable(metadata.content, address_of(newest.path) if is_whole else None, there.path)

    def _refuse_vacuumed(self, table: VersionedTable) -> None:
        """Raise UsageError where a VACUUM that isn't binlake's took files of a table."""
        vacuums = foreign_vacuums(
            self.source.place.root, {table.name: {table.delta_version}}, {table.name: table.folder}
        )
        if vacuum := vacuums.get(table.name):
            raise UsageError(
                f"{names.shown(str(table.name))} can't be read at batch {self.version.batch} any more: {vacuum.why}",
                remedy="take a later batch",
            )

    def _unpublished(self, table: VersionedTable, newest: TableMetadata | None) -> UsageError:
        """Return the error for a table whose snapshot isn't there, with the nearest batch at which one is."""
        shown = names.shown(str(table.name))
        message = f"{shown} isn't published at batch {self.version.batch}, its Delta version {table.delta_version}"
        if newest is None:
            return UsageError(f"{shown} was never published", remedy="binlake maintain publishes it, or says why not")
        there = {each["snapshot-id"] - 1 for each in newest.snapshots}
        nearest = next((version.batch for version in self._nearest() if _version_in(version, table) in there), None)
        if nearest is None:
            return UsageError(message, remedy="no batch has a snapshot of it: take a later one, when it comes")
        return UsageError(message, remedy=f"take batch {nearest}, which is the nearest; {_UNPUBLISHED}")

    def _nearest(self) -> Iterator[LakeVersion]:
        """Yield the other versions that can be read, the nearest first."""
        others = (version for version in self.versions if version.readable and version.batch != self.version.batch)
        yield from sorted(others, key=lambda version: abs(version.batch - self.version.batch))


def _version_in(version: LakeVersion, table: VersionedTable) -> int | None:
    """Return the Delta version of a table's life at a version of the lake."""
    return next(
        (each.delta_version for each in version.listed if (each.name, each.table_id) == (table.name, table.table_id)),
        None,
    )


def _is_of_version(metadata: TableMetadata, table: TableAt) -> bool:
    """Return whether the newest snapshot is of the commit that the Delta table has under its version.

    Its folder may have been moved away, or restored from a backup. Commits that are gone say nothing.
    """
    there = log_files.digest_of_commit(table.path, table.version)
    return metadata.delta_version == table.version and there in ("", metadata.delta_commit)


class Warehouses:
    """The warehouses of sources."""

    def __init__(self, sources: Sequence[PublishedSource]) -> None:
        """Take sources. Raises UsageError where two have one name."""
        self.sources = {source.name: source for source in sources}
        if len(self.sources) != len(sources):
            raise UsageError("two of the YAMLs are of sources of one name", remedy="serve them by two catalogs")

    def __getitem__(self, name: str) -> Warehouse:
        """Return a warehouse by its name. Raises NotInCatalog for one that isn't there or can't be read any more,
        LakeError."""
        source, _, wanted = name.partition("@")
        if source not in self.sources:
            known = ", ".join(self.sources)
            message = f"there is no warehouse {names.shown(name)}" if name else "no warehouse is named"
            remedy = f"take {known}, or one @ a batch" if known else "the catalog has none that you may read"
            raise NotInCatalog("NoSuchWarehouseException", message, remedy=remedy)
        try:
            return self.sources[source].warehouse(wanted)
        except UsageError as error:
            raise NotInCatalog("NoSuchWarehouseException", error.message, remedy=error.remedy) from error

    def visible_by(self, access: Access) -> Warehouses:
        """Return the warehouses with what may be read of them; what may not be read is as if it weren't there."""
        sources = [source for source in self.sources.values() if access.is_of(source.name)]
        return Warehouses([replace(source, access=access) for source in sources])

    def default(self) -> str:
        """Return the name of the only source; empty where there are several."""
        return next(iter(self.sources)) if len(self.sources) == 1 else ""
