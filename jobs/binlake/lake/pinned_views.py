"""Views of pinned versions in a catalog: a database ``{database}__at_{name}`` for each, as the YAML asks for."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from binlake.config import NamedCatalog, PipelineConfig
from binlake.lake.lake_versions import LakeVersion, lake_versions
from binlake.lake.table_at import TableAt
from binlake.lake.view_statements import spark_select
from binlake.names import plain_name
from binlake.store.conditions import literal
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import ViewsRow


@dataclass(frozen=True, order=True)
class PinnedDatabase:
    """A database of a catalog with the views of a pinned version.

    batch: the version's. views: (name, the folder of the Delta table, its Delta version) of each.
    """

    name: str
    batch: int
    views: tuple[tuple[str, str, int], ...]

    def __str__(self) -> str:
        return self.name

    @property
    def selects(self) -> dict[str, str]:
        """Return the query of each view, in Spark's SQL."""
        return {name: spark_select(path, version) for name, path, version in self.views}


@dataclass(frozen=True)
class PinnedChanges:
    """The changes that a catalog needs. drop comes before put. twins: names that several tables would have."""

    drop: tuple[PinnedDatabase, ...]
    put: tuple[PinnedDatabase, ...]
    twins: tuple[str, ...] = ()


def changes(config: PipelineConfig, catalog: NamedCatalog, metadata: Metadata) -> PinnedChanges:
    """Return the databases that the catalog lacks, and those it has too many, by the pins. Raises LakeError."""
    known = read(metadata, catalog)
    wanted, twins = _wanted(config, catalog, metadata) if catalog.pinned_views else ([], [])
    drop = tuple(entry for entry in known if entry not in wanted)
    return PinnedChanges(drop, tuple(entry for entry in wanted if entry not in known), tuple(twins))


def read(metadata: Metadata, catalog: NamedCatalog) -> list[PinnedDatabase]:
    """Return the databases that a catalog was given."""
    return [
        PinnedDatabase(row.registered_database, row.batch, tuple(map(tuple, json.loads(row.views))))
        for row in ViewsRow.read(metadata, where=f"catalog = {literal(catalog.identity)}")
    ]


def note(metadata: Metadata, catalog: NamedCatalog, made: Collection[PinnedDatabase]) -> None:
    """Write all databases that a catalog has of pinned versions."""
    rows = [
        ViewsRow(
            catalog=catalog.identity,
            registered_database=entry.name,
            batch=entry.batch,
            views=json.dumps(entry.views),
            at_us=now_us(),
        )
        for entry in made
    ]
    ViewsRow.replace(metadata, f"catalog = {literal(catalog.identity)}", rows)


def _wanted(
    config: PipelineConfig, catalog: NamedCatalog, metadata: Metadata
) -> tuple[list[PinnedDatabase], list[str]]:
    """Return the databases that should be, and the names that several tables would have, which none gets."""
    databases: list[PinnedDatabase] = []
    twins: list[str] = []
    for version in lake_versions(metadata):
        if version.name and version.readable:
            by_database, of_several = _databases(config, catalog, version)
            databases += [
                PinnedDatabase(name, version.batch, tuple(sorted(views))) for name, views in by_database.items()
            ]
            twins += of_several
    return sorted(databases), twins


def _databases(
    config: PipelineConfig, catalog: NamedCatalog, version: LakeVersion
) -> tuple[dict[str, list[tuple[str, str, int]]], list[str]]:
    by_name: dict[tuple[str, str], list[TableAt]] = defaultdict(list)
    for table in version.listed:
        database = catalog.database_of(config.source.name, table.name.database)
        at = TableAt.of(config.root, table.name, table.delta_version, table.folder)
        by_name[plain_name(f"{database}__at_{version.name}"), plain_name(table.name.table)].append(at)
    views: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
    twins: list[str] = []
    for (database, name), tables in by_name.items():
        if len(tables) == 1:
            views[database].append((name, tables[0].path, tables[0].version))
        else:
            twins.append(f"{database}.{name} would be {' and '.join(str(table.name) for table in tables)}")
    return views, twins
