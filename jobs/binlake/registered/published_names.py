"""Catalogs of others in which published tables have names, as entries of the YAML's ``catalog`` say.

A batch lets the names of the tables that it published refer to their newest metadata. Names of tables that are gone are
removed, and whatever was missed is made good, by ``follow``: by the next batch, at each upkeep and by ``binlake
register``. A catalog that can't be reached holds nothing back: it is noted, and shown until it has everything.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from binlake.caches import Cache
from binlake.config import PipelineConfig
from binlake.config.catalogs_config import (
    CatalogEntry,
    CommittedCatalog,
    ReachedCatalog,
    RestCatalogConfig,
    SqliteCatalogConfig,
    is_of_published,
)
from binlake.errors import BinlakeError
from binlake.iceberg import table_metadata
from binlake.iceberg.table_metadata import address_of, normal_address
from binlake.records import catalog_problems, registrations
from binlake.registered import committed_names
from binlake.registered.sqlite_catalog import CatalogName, SqliteCatalog
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.store.metadata import Metadata, metadata_of

GivenNames = tuple[tuple[str, ...], tuple[str, ...]]
"""Names that were given, and names that were taken away."""
_Failure = Literal["not reached", "refused"]
_RETRY_SECONDS = 30
"""For how long batches don't ask a catalog again that couldn't be reached."""
_failed: Cache[str, tuple[float, _Failure]] = Cache("catalogs that failed")
"""When a catalog failed last, by ``time.monotonic``, and how, until it has all tables. Where it refused some, the
upkeep asks for all of them again, and no batch."""


@dataclass(frozen=True)
class CatalogChanges:
    """The tables that a catalog lacks, and those that it has too much. put, drop: addresses of metadata files by names.
    twins: names that several tables would have, so that none gets them."""

    put: Mapping[CatalogName, str]
    drop: Mapping[CatalogName, str]
    twins: tuple[str, ...] = ()


def opened(config: PipelineConfig, catalog: SqliteCatalogConfig) -> SqliteCatalog:
    """Return a catalog, to be asked and changed."""
    merged = (config.table_path(entry.name) for entry in config.tables.merge_tables)  # several sources fill some
    return SqliteCatalog(catalog.sqlite, catalog.name, (config.root, *merged))


def point(config: PipelineConfig, tables: Mapping[TableName, str], report: Report) -> None:
    """Let the names of published tables refer to their newest metadata. tables: their paths.

    A catalog that lacks something from before gets all of it, as ``follow`` does. Where tables of several databases may
    have one name there, the upkeep, which sees all of them, gives names to those that have none.
    """
    _point(config, tables, report, of_published=True)


def point_delta(config: PipelineConfig, tables: Mapping[TableName, str], report: Report) -> None:
    """Let the names of Delta tables that a batch changed have their columns, in the same way. tables: their paths."""
    _point(config, tables, report, of_published=False)


def _point(config: PipelineConfig, tables: Mapping[TableName, str], report: Report, *, of_published: bool) -> None:
    metadata = metadata_of(config)
    for catalog in config.reached_catalogs:
        is_asked = is_of_published(catalog) == of_published and catalog.follows("batch")
        if is_asked and _failed_lately(catalog) != "not reached":
            settle(config, catalog, metadata, report, tables)


def _failed_lately(catalog: ReachedCatalog) -> _Failure | None:
    """Return how a catalog failed, if batches don't wait for it again."""
    at, how = _failed.get(catalog.identity) or (0.0, None)
    return how if how == "refused" or (how and time.monotonic() - at < _RETRY_SECONDS) else None


def settle(
    config: PipelineConfig,
    catalog: ReachedCatalog,
    metadata: Metadata,
    report: Report,
    changed: Mapping[TableName, str] | None = None,
) -> GivenNames:
    """Let a catalog follow; return the names that were given and taken away, and note what it lacks then.

    changed: paths of the tables that changed, where it has everything else; None for all tables. Raises nothing.
    """
    given: GivenNames = ((), ())
    remedy = "free the names, or choose other databases for the catalog in the YAML, and run binlake register"
    lacked, failure = catalog_problems.noted(metadata, catalog.identity), _failed_lately(catalog)
    whole = changed is None or (bool(lacked) and failure is None)
    try:
        if whole or changed is None:
            given, refused = _followed(config, catalog, metadata)
        else:
            refused = _pointed(config, catalog, metadata, changed)
        failure = "refused" if refused else None
    except BinlakeError as error:
        refused, remedy, failure = [error.message], error.remedy or remedy, "not reached"
    except Exception as error:  # whatever it answered, the batch is done
        refused, failure = [f"unexpected {type(error).__name__}"], "not reached"
        remedy = "report it with what the catalog is; the tables aren't held back by it"
    if failure is not None and (whole or failure == "not reached"):
        _failed.put(catalog.identity, (time.monotonic(), failure))
    elif whole:
        _failed.drop([catalog.identity])
    if lacked and not whole and not refused:
        return given  # what was lacking before still is
    problem = "; ".join(refused)
    if catalog_problems.note(metadata, catalog.identity, problem, remedy) and problem:
        report.warn(f"catalog {catalog.name}: {problem}\n  → {remedy}")
    return given


def _pointed(
    config: PipelineConfig, catalog: ReachedCatalog, metadata: Metadata, changed: Mapping[TableName, str]
) -> list[str]:
    """Let the names of some tables follow; return why some don't. Raises BinlakeError."""
    if isinstance(catalog, CommittedCatalog):
        return committed_names.point(config, catalog, metadata, changed)
    newest = {name: address for name, path in changed.items() if (address := _newest(path))}
    names = {name_in(config, catalog, name): address for name, address in newest.items()}
    return opened(config, catalog).put(names, new="{database}" in catalog.database)


def _followed(config: PipelineConfig, catalog: ReachedCatalog, metadata: Metadata) -> tuple[GivenNames, list[str]]:
    if isinstance(catalog, CommittedCatalog):
        names = committed_names.follow(config, catalog, metadata)
        return (tuple(map(str, names.given)), tuple(map(str, names.gone))), [*dict.fromkeys(names.refused)]
    done, refused = follow(config, catalog, metadata)
    return (tuple(map(str, sorted(done.put))), tuple(map(str, sorted(done.drop)))), refused


def name_in(config: PipelineConfig, catalog: SqliteCatalogConfig, name: TableName) -> CatalogName:
    """Return the name that a table has in a catalog."""
    return CatalogName(catalog.database_of(config.source.name, name.database), name.table)


def lacks_names(config: PipelineConfig, catalog: ReachedCatalog, metadata: Metadata) -> bool:
    """Return whether a catalog lacks a table's name, or has one too many, or something else. Raises LakeError.

    No metadata is read of tables that have their names: batches and the upkeep let these refer to the newest.
    """
    if isinstance(catalog, CommittedCatalog):
        lacks = committed_names.names_of(config, catalog, metadata).lacks_names
        return lacks or bool(catalog_problems.noted(metadata, catalog.identity))
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
        {name: address for name, address in wanted.items() if address and not _is_same(address, there.get(name))},
        {name: address for name, address in there.items() if not published.get(name)},
        tuple(f"{name} would be {' and '.join(map(str, same))}" for name, same in sorted(twins.items())),
    )


def _is_same(address: str, there: str | None) -> bool:
    return there is not None and normal_address(there) == normal_address(address)


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
    """Let all catalogs follow. One that can't be reached holds nothing back: it is noted and said, and isn't waited for
    again shortly after that."""
    for catalog in config.reached_catalogs:
        if catalog.follows("batch") and _failed_lately(catalog) != "not reached":
            settle(config, catalog, metadata, report)


def is_unfinished(catalog: CatalogEntry) -> bool:
    """Return whether the time was over before a catalog had been asked for all names: the next time the others come
    first."""
    return isinstance(catalog, CommittedCatalog) and committed_names.is_unfinished(catalog)


def begin_again(config: PipelineConfig, metadata: Metadata, table: TableName, path: str, report: Report) -> None:
    """Let all catalogs follow, and those that write metadata files of their own begin again with what is published of
    a table. Raises LakeError where such a catalog can't be reached."""
    for catalog in config.reached_catalogs:
        if isinstance(catalog, RestCatalogConfig):
            committed_names.take_away(config, catalog, metadata, table, path)
    follow_all(config, metadata, report)


def _newest(path: str) -> str | None:
    """Return the address of a table's newest metadata file; None where it isn't published, empty where it can't be
    read."""
    try:
        metadata = table_metadata.newest(path)
    except (OSError, ValueError, KeyError, BinlakeError):
        return ""
    return address_of(metadata.path) if metadata else None
