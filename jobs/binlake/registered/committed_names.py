"""Names of published tables in catalogs that take commits: those that should be follow from the watermarks, those that
may have been given are in metadata, where each is noted before it is given. So a batch asks the catalog for the tables
alone that it changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from binlake.caches import Cache
from binlake.config import PipelineConfig
from binlake.config.catalogs_config import CommittedCatalog, GlueCatalogConfig, RestCatalogConfig
from binlake.errors import BinlakeError
from binlake.iceberg.table_metadata import REGISTERED
from binlake.names import plain_name
from binlake.records import catalog_problems, registrations
from binlake.records.registrations import Registration
from binlake.registered.glue_catalog import GlueCatalog
from binlake.registered.rest_catalog import RestCatalog
from binlake.registered.sqlite_catalog import CatalogName
from binlake.registered.timed_client import CatalogSilent
from binlake.schema.table import TableName
from binlake.storage import files
from binlake.store.metadata import Metadata

_SIDE_BY_SIDE = 4
_SECONDS = 20
"""How long a catalog is waited for altogether, as the source's lease is held meanwhile."""
_NOTED_TOGETHER = 50
_asked: Cache[str, frozenset[Registration]] = Cache("names that catalogs were asked for")
"""The names, by the catalog's identity, that were brought to what is published before the time was over: the next time
the others come first."""


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


def names_of(
    config: PipelineConfig, catalog: CommittedCatalog, metadata: Metadata, also: Mapping[TableName, str] | None = None
) -> CommittedNames:
    """Return the names in a catalog. Needs no catalog. also: paths of tables of a batch that isn't recorded yet. Raises
    LakeError."""
    by_name: dict[CatalogName, list[Registration]] = {}
    for table, path in (dict(registrations.readable_tables(config, metadata)) | dict(also or {})).items():
        if _is_asked(config, catalog, table):
            entry = _registration(config, catalog, table, path)
            by_name.setdefault(_name_in(entry), []).append(entry)
    several = sorted((name, same) for name, same in by_name.items() if len(same) > 1)
    twins = (f"{name} would be {' and '.join(str(entry.table) for entry in same)}" for name, same in several)
    single = frozenset(same[0] for same in by_name.values() if len(same) == 1)
    return CommittedNames(single, _known(catalog, metadata), tuple(twins))


def _is_asked(config: PipelineConfig, catalog: CommittedCatalog, table: TableName) -> bool:
    """Return whether a table of the lake is to have a name in a catalog."""
    if isinstance(catalog, GlueCatalogConfig) and not catalog.is_of_published:
        return True
    return config.iceberg is not None and config.iceberg.includes(table.database, table.table)


def _known(catalog: CommittedCatalog, metadata: Metadata) -> frozenset[Registration]:
    return frozenset(entry for entry in registrations.read(metadata) if entry.catalog == catalog.identity)


def _reached(
    config: PipelineConfig, catalog: CommittedCatalog, *, of_a_batch: bool = False
) -> RestCatalog | GlueCatalog:
    """Return a catalog, to be asked and changed. Raises LakeError, ConfigurationError."""
    if isinstance(catalog, GlueCatalogConfig):
        others = {entry.name for entry in config.catalogs} - {catalog.name}
        return GlueCatalog(catalog, config.root, _SECONDS, others=others, believes=of_a_batch)
    return RestCatalog(catalog, config.root, _SECONDS)


@dataclass(frozen=True)
class FollowedNames:
    """Names that were given and taken away, and why some weren't."""

    given: tuple[Registration, ...]
    gone: tuple[Registration, ...]
    refused: tuple[str, ...]


def follow(config: PipelineConfig, catalog: CommittedCatalog, metadata: Metadata) -> FollowedNames:
    """Bring a catalog to what is published, as far as the time allows: new names first, so that each time has more.

    Raises LakeError where the catalog can't be reached.
    """
    names, reached = names_of(config, catalog, metadata), _reached(config, catalog)
    gone, new = sorted(names.known - names.wanted), sorted(names.wanted - names.known)
    outcomes = [_each(gone, lambda entry: reached.drop(_name_in(entry), entry.path))]
    has = names.known - outcomes[0].done
    if gone:
        registrations.note(metadata, catalog.identity, has)

    def put(entry: Registration) -> str:
        why = reached.put(_name_in(entry), entry.path)
        if not why:
            reached.tidy(_name_in(entry), entry.path)
        return why

    for first in range(0, len(new), _NOTED_TOGETHER):
        if reached.silent is None:
            some = new[first : first + _NOTED_TOGETHER]
            has |= frozenset(some)
            registrations.note(metadata, catalog.identity, has)
            outcomes.append(_each(some, put))
    before = _asked.get(catalog.identity) or frozenset()
    old = sorted(names.wanted & names.known)
    random.shuffle(old)  # other processes were asked for others
    outcomes.append(_each(sorted(old, key=lambda entry: entry in before), put))
    if reached.silent is not None and not reached.silent.late:
        raise reached.silent
    done = frozenset[Registration]().union(*(outcome.done for outcome in outcomes))
    refused = {entry: why for outcome in outcomes for entry, why in outcome.refused.items()}
    left = (names.wanted | names.known) - done - refused.keys() - before
    if left:
        _asked.put(catalog.identity, done | before)
    else:
        _asked.drop([catalog.identity])
    whys = [*refused.values(), *names.twins]
    if left and (left - names.known or left - names.wanted or catalog_problems.noted(metadata, catalog.identity)):
        whys.append(f"{len(left)} names weren't asked for within {_SECONDS} seconds; run binlake register")
    given, taken = (tuple(entry for entry in each if entry in done) for each in (new, gone))
    return FollowedNames(given, taken, tuple(whys))


def is_unfinished(catalog: CommittedCatalog) -> bool:
    """Return whether the time was over before all names of a catalog were asked for, by this process."""
    return _asked.get(catalog.identity) is not None


def point(
    config: PipelineConfig, catalog: CommittedCatalog, metadata: Metadata, tables: Mapping[TableName, str]
) -> list[str]:
    """Commit what is published of some tables; return why it wasn't. tables: their paths.

    A table of a new name is registered, unless tables of several databases may have the name. Raises LakeError where
    the catalog can't be reached.
    """
    entries = [_registration(config, catalog, name, path) for name, path in tables.items()]
    known = _known(catalog, metadata)
    if isinstance(catalog, GlueCatalogConfig) and not known.issuperset(entries):
        wanted = names_of(config, catalog, metadata, tables).wanted  # names there have small letters alone
        entries = [entry for entry in entries if entry in known or entry in wanted]
    if "{database}" not in catalog.database:
        entries = [entry for entry in entries if entry in known]
    elif lacking := frozenset(entries) - known:
        registrations.note(metadata, catalog.identity, known | lacking)
    if not entries:
        return []
    reached = _reached(config, catalog, of_a_batch=True)
    outcome = _each(entries, lambda entry: reached.put(_name_in(entry), entry.path))
    if reached.silent is not None:
        raise reached.silent
    return list(outcome.refused.values())


def take_away(
    config: PipelineConfig, catalog: RestCatalogConfig, metadata: Metadata, table: TableName, path: str
) -> None:
    """Take a table's name away, and remove the catalog's metadata files of it, with all that the table ever was;
    ``follow`` registers it again, before other names. Raises LakeError where the catalog can't be reached."""
    folder = f"{path}/{REGISTERED}/{catalog.name}"
    if files.has_folder(folder):
        entry = _registration(config, catalog, table, path)
        RestCatalog(catalog, config.root, _SECONDS).drop(_name_in(entry), path)
        registrations.note(metadata, catalog.identity, _known(catalog, metadata) - {entry})
        files.remove_folder(folder)


@dataclass(frozen=True)
class _Outcome:
    """Names for which a change was made, and why not for others; those in neither weren't asked for."""

    done: frozenset[Registration]
    refused: Mapping[Registration, str]


def _each(entries: Iterable[Registration], change: Callable[[Registration], str | None]) -> _Outcome:
    """Make a change for each name, side by side."""

    def outcome(entry: Registration) -> tuple[Registration, str | None]:
        try:
            return entry, change(entry) or ""
        except CatalogSilent:
            return entry, None
        except BinlakeError as error:
            return entry, error.message
        except (OSError, ValueError, KeyError) as error:
            return entry, f"the metadata of {entry.table} can't be read: {type(error).__name__}"

    with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="names") as pool:
        outcomes = list(pool.map(outcome, entries))
    done = frozenset(entry for entry, why in outcomes if why == "")
    return _Outcome(done, {entry: why for entry, why in outcomes if why})


def _registration(config: PipelineConfig, catalog: CommittedCatalog, name: TableName, path: str) -> Registration:
    database, own = catalog.database_of(config.source.name, name.database), name.table
    if isinstance(catalog, GlueCatalogConfig):
        database, own = plain_name(database), plain_name(own)
    return Registration(catalog.identity, database, own, path, name)


def _name_in(entry: Registration) -> CatalogName:
    return CatalogName(entry.database, entry.name)
