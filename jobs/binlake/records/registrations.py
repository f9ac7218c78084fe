"""Names of the lake's tables in a catalog: those that are registered, and those that should be. Needs no JVM.

A Hive metastore allows only lower-case letters, digits and ``_``: a table's name is changed accordingly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from binlake.config import NamedCatalog, PipelineConfig
from binlake.config.table_modes import beside_table
from binlake.delta import opened_tables
from binlake.delta.delta_log import LakeLog
from binlake.names import plain_name
from binlake.schema.table import TableName
from binlake.store.conditions import literal
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import RegistrationRow, WatermarkRow


@dataclass(frozen=True, order=True)
class Registration:
    """A table's name in a catalog.

    catalog: which one, and where. database, name: the table's there. path: the folder of the Delta table.
    """

    catalog: str
    database: str
    name: str
    path: str
    table: TableName

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"


Twins = tuple[str, tuple[TableName, ...]]
"""A name in the catalog, and the tables that would have it."""


@dataclass(frozen=True)
class Changes:
    """The changes that a catalog needs. drop comes before put: a name may go from one table to another."""

    drop: tuple[Registration, ...]
    put: tuple[Registration, ...]
    twins: tuple[Twins, ...] = ()


def changes(config: PipelineConfig, catalog: NamedCatalog, metadata: Metadata) -> Changes:
    """Return what the catalog lacks, and what it has too much, by the watermarks."""
    known = [entry for entry in read(metadata) if entry.catalog == catalog.identity]
    wanted, twins = _wanted(config, catalog, metadata, known)
    drop = tuple(entry for entry in known if entry not in wanted)
    put = tuple(sorted(entry for entry in wanted if entry not in known))
    return Changes(drop, put, twins)


def read(metadata: Metadata) -> list[Registration]:
    """Return all registrations, those in other catalogs, too."""
    return [
        Registration(row.catalog, row.registered_database, row.registered_table, row.path, row.name)
        for row in RegistrationRow.read(metadata)
    ]


def note(metadata: Metadata, catalog: str, made: Iterable[Registration]) -> None:
    """Write all names that a catalog has for the lake's tables."""
    rows = [
        RegistrationRow(
            catalog=entry.catalog,
            registered_database=entry.database,
            registered_table=entry.name,
            path=entry.path,
            **vars(entry.table),
            at_us=now_us(),
        )
        for entry in made
    ]
    RegistrationRow.replace(metadata, f"catalog = {literal(catalog)}", rows)


def _wanted(
    config: PipelineConfig, catalog: NamedCatalog, metadata: Metadata, known: Collection[Registration]
) -> tuple[set[Registration], tuple[Twins, ...]]:
    """Return the registrations that should be. Of tables with the same name, the one that is registered keeps it; else
    none gets it."""
    by_name: dict[str, list[Registration]] = defaultdict(list)
    for table, path in readable_tables(config, metadata):
        entry = _registration(config, catalog, table, path)
        by_name[str(entry)].append(entry)
    twins = tuple((name, tuple(entry.table for entry in same)) for name, same in by_name.items() if len(same) > 1)
    return {entry for same in by_name.values() for entry in same if len(same) == 1 or entry in known}, twins


def readable_tables(config: PipelineConfig, metadata: Metadata) -> Iterator[tuple[TableName, str]]:
    """Yield names and folders of tables that have rows in the lake, also of dropped ones whose rows are kept, of those
    beside mirrors, and of those that show several mirrors."""
    names: dict[TableName, bool] = {}  # whether the server has it, too
    for row in WatermarkRow.read(metadata, "database", "table", "status", "delta_version"):
        name = row.name
        if row.delta_version is not None and not config.ghost(name):
            names[name] = names.get(name, False) or row.status != "dropped"
    for name, lives in sorted(names.items()):
        if config.is_read(name) and (lives or LakeLog.of(config, name, "").exists()):
            yield name, config.table_path(name)
        for mode in config.beside(name):
            if opened_tables.is_table(path := config.beside_path(name, mode)):
                yield TableName(name.database, beside_table(name.table, mode)), path
    for entry in config.tables.merge_tables:
        if opened_tables.is_table(path := config.table_path(entry.name)):
            yield entry.name, path


def _registration(config: PipelineConfig, catalog: NamedCatalog, name: TableName, path: str) -> Registration:
    database = catalog.database_of(config.source.name, name.database)
    return Registration(catalog.identity, plain_name(database), plain_name(name.table), path, name)
