"""Names of published tables in catalogs that take commits: those that should be follow from the watermarks, those that
may have been given are in metadata, where each is noted before it is given. So a batch asks the catalog for the tables
alone that it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from binlake.config import PipelineConfig
from binlake.config.catalogs_config import RestCatalogConfig
from binlake.errors import BinlakeError
from binlake.iceberg.table_metadata import REGISTERED
from binlake.records import registrations
from binlake.records.registrations import Registration
from binlake.registered.rest_catalog import RestCatalog
from binlake.registered.sqlite_catalog import CatalogName
from binlake.schema.table import TableName
from binlake.storage import files
from binlake.store.metadata import Metadata

_SIDE_BY_SIDE = 4
_BATCH_SECONDS, _WHOLE_SECONDS = 30, 300
"""How long a catalog is waited for altogether: by a batch, and for all tables."""


@dataclass(frozen=True)
class CommittedNames:
    """The names that a catalog should have, and those that it may have. twins: names that several tables would have, so
    that none gets them."""

    wanted: frozenset[Registration]
    known: frozenset[Registration]
    twins: tuple[str, ...] = ()

    @property
    def lacks_names(self) -> bool:
        """Return whether a name has to be given or taken away."""
        return self.wanted != self.known


def names_of(config: PipelineConfig, catalog: RestCatalogConfig, metadata: Metadata) -> CommittedNames:
    """Return the names in a catalog. Needs no catalog. Raises LakeError."""
    by_name: dict[CatalogName, list[Registration]] = {}
    for table, path in registrations.readable_tables(config, metadata):
        if config.iceberg is not None and config.iceberg.includes(table.database, table.table):
            entry = _registration(config, catalog, table, path)
            by_name.setdefault(_name_in(entry), []).append(entry)
    several = sorted((name, same) for name, same in by_name.items() if len(same) > 1)
    twins = (f"{name} would be {' and '.join(str(entry.table) for entry in same)}" for name, same in several)
    known = frozenset(entry for entry in registrations.read(metadata) if entry.catalog == catalog.identity)
    single = frozenset(same[0] for same in by_name.values() if len(same) == 1)
    return CommittedNames(single, known, tuple(twins))


def follow(
    config: PipelineConfig, catalog: RestCatalogConfig, metadata: Metadata
) -> tuple[Collection[Registration], Collection[Registration], list[str]]:
    """Bring a catalog to what is published; return the names that were given and taken away, and why some weren't.

    Raises LakeError where the catalog can't be reached.
    """
    names, reached = names_of(config, catalog, metadata), RestCatalog(catalog, config.root, _WHOLE_SECONDS)
    if names.lacks_names:
        registrations.note(metadata, catalog.identity, names.known | names.wanted)
    gone = sorted(names.known - names.wanted)
    refused = _each(gone, lambda entry: reached.drop(_name_in(entry), entry.path))
    still = frozenset(entry for entry in gone if entry in refused)
    if gone:
        registrations.note(metadata, catalog.identity, names.wanted | still)

    def put(entry: Registration) -> str:
        why = reached.put(_name_in(entry), entry.path)
        if not why:
            reached.tidy(_name_in(entry), entry.path)
        return why

    refused |= _each(sorted(names.wanted), put)
    given = [entry for entry in sorted(names.wanted - names.known) if entry not in refused]
    return given, [entry for entry in gone if entry not in still], [*refused.values(), *names.twins]


def point(
    config: PipelineConfig, catalog: RestCatalogConfig, metadata: Metadata, tables: Mapping[TableName, str]
) -> list[str]:
    """Commit what is published of some tables; return why it wasn't. tables: their paths.

    A table of a new name is registered, unless tables of several databases may have the name. Raises LakeError where
    the catalog can't be reached.
    """
    entries = [_registration(config, catalog, name, path) for name, path in tables.items()]
    known = frozenset(entry for entry in registrations.read(metadata) if entry.catalog == catalog.identity)
    if "{database}" not in catalog.database:
        entries = [entry for entry in entries if entry in known]
    elif lacking := frozenset(entries) - known:
        registrations.note(metadata, catalog.identity, known | lacking)
    if not entries:
        return []
    reached = RestCatalog(catalog, config.root, _BATCH_SECONDS)
    return list(_each(entries, lambda entry: reached.put(_name_in(entry), entry.path)).values())


def take_away(config: PipelineConfig, catalog: RestCatalogConfig, table: TableName, path: str) -> None:
    """Take a table's name away, and remove the catalog's metadata files of it, with all that the table ever was;
    ``follow`` registers it again. Raises LakeError where the catalog can't be reached."""
    folder = f"{path}/{REGISTERED}/{catalog.name}"
    if files.has_folder(folder):
        name = _name_in(_registration(config, catalog, table, path))
        RestCatalog(catalog, config.root, _BATCH_SECONDS).drop(name, path)
        files.remove_folder(folder)


def _each(entries: Iterable[Registration], change: Callable[[Registration], str | None]) -> dict[Registration, str]:
    """Make a change for each name, side by side; return why not, for those for which it wasn't made."""

    def outcome(entry: Registration) -> tuple[Registration, str]:
        try:
            return entry, change(entry) or ""
        except BinlakeError as error:
            return entry, error.message
        except (OSError, ValueError, KeyError) as error:
            return entry, f"the metadata of {entry.table} can't be read: {type(error).__name__}"

    with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="names") as pool:
        return {entry: why for entry, why in pool.map(outcome, entries) if why}


def _registration(config: PipelineConfig, catalog: RestCatalogConfig, name: TableName, path: str) -> Registration:
    database = catalog.database.format(source=config.source.name, database=name.database)
    return Registration(catalog.identity, database, name.table, path, name)


def _name_in(entry: Registration) -> CatalogName:
    return CatalogName(entry.database, entry.name)
