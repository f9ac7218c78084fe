"""Catalogs of others in which published tables have names, as entries of the YAML's ``catalog`` say.

A batch lets the names of the tables that it published refer to their newest metadata. Names of tables that are gone are
removed, and whatever was missed is made good, by ``follow``: by the next batch, at each upkeep and by ``binlake
register``. A catalog that can't be reached holds nothing back: it is noted, and shown until it has everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from binlake.config import PipelineConfig
from binlake.config.catalogs_config import CatalogOccasion, SqliteCatalogConfig
from binlake.errors import BinlakeError
from binlake.iceberg import table_metadata
from binlake.iceberg.table_metadata import address_of
from binlake.records import catalog_problems, registrations
from binlake.registered.sqlite_catalog import CatalogName, SqliteCatalog
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.store.metadata import Metadata, metadata_of


@dataclass(frozen=True)
class CatalogChanges:
    """The tables that a catalog lacks, and those that it has too much. put, drop: addresses of metadata files by names.
    twins: names that several tables would have, so that none gets them."""

    put: Mapping[CatalogName, str]
    drop: Mapping[CatalogName, str]
    twins: tuple[str, ...] = ()


def opened(config: PipelineConfig, catalog: SqliteCatalogConfig) -> SqliteCatalog:
    """Return a catalog, to be asked and changed."""
    return SqliteCatalog(catalog.sqlite, catalog.name, config.root)


def point(config: PipelineConfig, tables: Mapping[TableName, str], report: Report, occasion: CatalogOccasion) -> None:
    """Let the names of published tables refer to their newest metadata. tables: their paths.

    A catalog that lacks something from before gets all of it, as ``follow`` does. Where tables of several databases may
    have one name there, the upkeep, which sees all of them, gives names to those that have none.
    """
    newest = {name: address for name, path in tables.items() if (address := _newest(path))}
    metadata = metadata_of(config)
    for catalog in config.iceberg_catalogs:
        if catalog.follows(occasion):
            settle(config, catalog, metadata, report, newest)


def settle(
    config: PipelineConfig,
    catalog: SqliteCatalogConfig,
    metadata: Metadata,
    report: Report,
    newest: Mapping[TableName, str] | None = None,
) -> CatalogChanges:
    """Let a catalog follow; return the changes, and note what it lacks then. newest: addresses of the tables that
    changed, where it has everything else; None for all tables. Raises nothing."""
    done = CatalogChanges({}, {})
    remedy = "free the names, or choose other databases for the catalog in the YAML, and run binlake register"
    try:
        if newest is None or catalog_problems.of(metadata, catalog.identity):
            done, refused = follow(config, catalog, metadata)
        else:
            names = {name_in(config, catalog, name): address for name, address in newest.items()}
            refused = opened(config, catalog).put(names, new="{database}" in catalog.database)
    except BinlakeError as error:
        refused, remedy = [error.message], error.remedy or remedy
    problem = "; ".join(refused)
    if catalog_problems.note(metadata, catalog.identity, problem, remedy) and problem:
        report.warn(f"catalog {catalog.name}: {problem}\n  → {remedy}")
    return done


def name_in(config: PipelineConfig, catalog: SqliteCatalogConfig, name: TableName) -> CatalogName:
    """Return the name that a table has in a catalog."""
    return CatalogName(catalog.database.format(source=config.source.name, database=name.database), name.table)


def lacks_names(config: PipelineConfig, catalog: SqliteCatalogConfig, metadata: Metadata) -> bool:
    """Return whether a catalog lacks a table's name, or has one too many. Raises LakeError.

    No metadata is read of tables that have their names: batches and the upkeep let these refer to the newest.
    """
    tables, there = _tables(config, catalog, metadata), opened(config, catalog).entries()
    looked_at = (same for name, same in tables.items() if name not in there or len(same) > 1)
    return bool(there.keys() - tables.keys()) or any(map(_published, looked_at))


def changes(config: PipelineConfig, catalog: SqliteCatalogConfig, metadata: Metadata) -> CatalogChanges:
    """Return what a catalog lacks, and what it has too much. Raises LakeError.

    A table whose metadata can't be read keeps its name.
    """
    published = {name: _published(same) for name, same in _tables(config, catalog, metadata).items()}
    wanted = {name: address for name, same in published.items() if len(same) == 1 for address in same.values()}
    twins = {name: same for name, same in published.items() if len(same) > 1}
    there = opened(config, catalog).entries()
    return CatalogChanges(
        {name: address for name, address in wanted.items() if address and there.get(name) != address},
        {name: address for name, address in there.items() if not published.get(name)},
        tuple(f"{name} would be {' and '.join(map(str, same))}" for name, same in sorted(twins.items())),
    )


def _tables(
    config: PipelineConfig, catalog: SqliteCatalogConfig, metadata: Metadata
) -> dict[CatalogName, dict[TableName, str]]:
    """Return the folders of the tables that the YAML publishes, by their names in a catalog."""
    assert config.iceberg is not None
    tables: dict[CatalogName, dict[TableName, str]] = {}
    for name, path in registrations.readable_tables(config, metadata):
        if config.iceberg.includes(name.database, name.table):
            tables.setdefault(name_in(config, catalog, name), {})[name] = path
    return tables


def _published(folders: Mapping[TableName, str]) -> dict[TableName, str]:
    """Return the addresses of tables' newest metadata files, without those that aren't published; an empty one where it
    can't be read."""
    addresses = {name: _newest(path) for name, path in folders.items()}
    return {name: address for name, address in addresses.items() if address is not None}


def follow(
    config: PipelineConfig, catalog: SqliteCatalogConfig, metadata: Metadata
) -> tuple[CatalogChanges, list[str]]:
    """Give a catalog the names that it lacks, and remove those of tables that are gone.

    Return the changes, and why some weren't made. Raises LakeError.
    """
    needed = changes(config, catalog, metadata)
    reached = opened(config, catalog)
    if needed.drop:
        reached.drop(needed.drop)
    return needed, [*(reached.put(needed.put) if needed.put else ()), *needed.twins]


def follow_all(config: PipelineConfig, metadata: Metadata, report: Report) -> None:
    """Let all catalogs follow. One that can't be reached holds nothing back: it is noted and said."""
    for catalog in config.iceberg_catalogs:
        settle(config, catalog, metadata, report)


def _newest(path: str) -> str | None:
    """Return the address of a table's newest metadata file; None where it isn't published, empty where it can't be
    read."""
    try:
        metadata = table_metadata.newest(path)
    except (OSError, ValueError, KeyError, BinlakeError):
        return ""
    return address_of(metadata.path) if metadata else None
