"""Catalogs of others in which published tables have names, as ``iceberg.catalogs`` of the YAML lists them.

A batch lets the names of the tables that it published refer to their newest metadata. Names of tables that are gone are
removed, and whatever was missed is made good, by ``follow``: at each upkeep and by ``binlake register``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from binlake.config import PipelineConfig
from binlake.config.readers_config import IcebergCatalogConfig
from binlake.errors import BinlakeError, LakeError
from binlake.iceberg import table_metadata
from binlake.iceberg.sqlite_catalog import CatalogName, SqliteCatalog
from binlake.iceberg.table_metadata import address_of
from binlake.records import registrations
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.store.metadata import Metadata


@dataclass(frozen=True)
class CatalogChanges:
    """What a catalog lacks, and what it has too much. put, drop: addresses of metadata files by names. twins: names
    that several tables would have, so that none gets them."""

    put: Mapping[CatalogName, str]
    drop: Mapping[CatalogName, str]
    twins: tuple[str, ...] = ()


def opened(config: PipelineConfig, catalog: IcebergCatalogConfig) -> SqliteCatalog:
    """Return a catalog, to be asked and changed."""
    return SqliteCatalog(catalog.sqlite, catalog.name, config.root)


def point(config: PipelineConfig, tables: Mapping[TableName, str], report: Report) -> None:
    """Let the names of published tables refer to their newest metadata. tables: their paths.

    A catalog that can't be reached holds nothing back: it is said, and the next upkeep makes it good.
    """
    newest = {name: address for name, path in tables.items() if (address := _newest(path))}
    for catalog in config.iceberg_catalogs:
        try:
            names = {name_in(config, catalog, name): address for name, address in newest.items()}
            for why in opened(config, catalog).put(names):
                report.warn(f"catalog {catalog.name}: {why}")
        except BinlakeError as error:
            report.warn(str(error))


def name_in(config: PipelineConfig, catalog: IcebergCatalogConfig, name: TableName) -> CatalogName:
    """Return the name that a table has in a catalog."""
    return CatalogName(catalog.database.format(source=config.source.name, database=name.database), name.table)


def changes(config: PipelineConfig, catalog: IcebergCatalogConfig, metadata: Metadata) -> CatalogChanges:
    """Return what a catalog lacks, and what it has too much. Raises LakeError."""
    assert config.iceberg is not None
    wanted: dict[CatalogName, str] = {}
    tables: dict[CatalogName, list[TableName]] = {}
    for name, path in registrations.readable_tables(config, metadata):
        if config.iceberg.includes(name.database, name.table) and (address := _newest(path)):
            own = name_in(config, catalog, name)
            wanted[own] = address
            tables.setdefault(own, []).append(name)
    twins = {name: same for name, same in tables.items() if len(same) > 1}
    there = opened(config, catalog).entries()
    return CatalogChanges(
        {name: address for name, address in wanted.items() if there.get(name) != address and name not in twins},
        {name: address for name, address in there.items() if name not in wanted},
        tuple(f"{name} would be {' and '.join(map(str, same))}" for name, same in sorted(twins.items())),
    )


def follow(
    config: PipelineConfig, catalog: IcebergCatalogConfig, metadata: Metadata
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
    """Let all catalogs follow. One that can't be reached holds nothing back: it is said."""
    for catalog in config.iceberg_catalogs:
        try:
            _, refused = follow(config, catalog, metadata)
        except LakeError as error:
            refused = [str(error)]
        for why in refused:
            report.warn(f"catalog {catalog.name}: {why}")


def _newest(path: str) -> str | None:
    """Return the address of a table's newest metadata file; None where it isn't published, or can't be read."""
    try:
        metadata = table_metadata.newest(path)
    except (OSError, ValueError, KeyError):
        return None
    return address_of(metadata.path) if metadata else None
