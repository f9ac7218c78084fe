"""Register: give the lake's tables names in a catalog, so that ``shop.orders`` is found there.

A catalog is a convenience: it never holds the mirror back. The names that it should have follow from the watermarks,
those it was given are in metadata; if they agree, the catalog isn't asked and Spark isn't started.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from binlake.config import CatalogConfig, PipelineConfig
from binlake.errors import LakeError, UsageError
from binlake.faults import fault
from binlake.lake import pinned_views
from binlake.lake.pinned_views import PinnedChanges, PinnedDatabase
from binlake.lease import lease
from binlake.records import registrations
from binlake.records.failures import noted
from binlake.records.registrations import Changes, Registration
from binlake.report import Report
from binlake.spark.starting import SessionFactory
from binlake.store.metadata import Metadata, metadata_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from binlake.spark.starting import SessionFactory


@dataclass(frozen=True)
class RegisterReport:
    """The catalog's names that were registered and dropped: tables as ``database.table``, databases of pinned
    versions."""

    registered: tuple[str, ...]
    dropped: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return asdict(self)

    @property
    def headline(self) -> str:
        """Return one line that names what was registered and dropped."""
        if not self.registered and not self.dropped:
            return "the catalog has all names"
        parts = [f"registered {', '.join(self.registered)}"] if self.registered else []
        return "; ".join(parts + ([f"dropped {', '.join(self.dropped)}"] if self.dropped else []))


def registration_due(config: PipelineConfig) -> bool:
    """Return whether the YAML's catalog lacks a table's name, or has one too many. Needs neither server nor Spark."""
    if _iceberg_due(config):
        return True
    if config.catalog is None:
        return False
    changes = registrations.changes(config, config.catalog, metadata_of(config))
    pinned = pinned_views.changes(config, config.catalog, metadata_of(config))
    return bool(changes.drop or changes.put or pinned.drop or pinned.put)


def _iceberg_due(config: PipelineConfig) -> bool:
    """Return whether a catalog of Iceberg tables lacks a name or has one too many, as far as it can be asked."""
    if not config.iceberg_catalogs:
        return False
    from binlake.merge import iceberg_catalogs  # it imports pyarrow

    metadata = metadata_of(config)
    try:
        return any(iceberg_catalogs.lacks_names(config, catalog, metadata) for catalog in config.iceberg_catalogs)
    except LakeError:
        return True  # registering says what is the matter, and it is noted as a failure


@noted("register")
def register(config: PipelineConfig, session: SessionFactory, report: Report) -> RegisterReport:
    """Give the YAML's catalogs the names that they lack, and remove those of tables that are gone.

    session: a session of its own, with named_tables.session_settings. Raises LakeError where the catalog refuses, or a
    name belongs to something else, once all other names are done.
    """
    if config.catalog is None and not config.iceberg_catalogs:
        raise UsageError("the YAML names no catalog", remedy="add a section catalog; see binlake help settings")
    with lease.held(metadata_of(config)) as held:
        published, unpublished = _follow_iceberg(config, held.metadata)
        named, refused = _follow_named(config, session, held.metadata)
    done = RegisterReport(published.registered + named.registered, published.dropped + named.dropped)
    report.say(done.headline)
    problems: list[tuple[str, str]] = []
    if config.catalog is not None and refused:
        remedy = "choose other databases by catalog.database in the YAML, or free the name and run binlake register"
        problems.append((f"names of the catalog {config.catalog.identity} are taken: {'; '.join(refused)}", remedy))
    if unpublished:
        remedy = "free the names, or choose other databases by iceberg.catalogs, and run binlake register"
        problems.append((f"catalogs of Iceberg tables don't have all names: {'; '.join(unpublished)}", remedy))
    if problems:
        message, remedies = (". ".join(each) for each in zip(*problems, strict=True))
        raise LakeError(message, remedy=remedies)
    return done


def _follow_named(
    config: PipelineConfig, session: SessionFactory, metadata: Metadata
) -> tuple[RegisterReport, list[str]]:
    """Let the catalog of tables by name follow, if the YAML has one; return what was done, and why some wasn't."""
    catalog = config.catalog
    if catalog is None:
        return RegisterReport((), ()), []
    changes = registrations.changes(config, catalog, metadata)
    pinned = pinned_views.changes(config, catalog, metadata)
    done, refused = RegisterReport((), ()), list[str]()
    if changes.drop or changes.put or pinned.drop or pinned.put:
        reached = session(f"the catalog {catalog.identity} is reached by Spark")
        done, refused = _apply(reached, catalog, changes, metadata)
        views, refused_views = _apply_views(reached, catalog, pinned, metadata)
        done = RegisterReport(done.registered + views.registered, done.dropped + views.dropped)
        refused += refused_views
    refused += [f"{name} would be {' and '.join(map(str, tables))}" for name, tables in changes.twins]
    return done, [*refused, *pinned.twins]


def _follow_iceberg(config: PipelineConfig, metadata: Metadata) -> tuple[RegisterReport, list[str]]:
    """Let the catalogs of Iceberg tables follow; return what was done, and why some wasn't."""
    done, wrong = RegisterReport((), ()), list[str]()
    if config.iceberg_catalogs:
        from binlake.merge import iceberg_catalogs  # it imports pyarrow
    for catalog in config.iceberg_catalogs:
        try:
            changes, refused = iceberg_catalogs.follow(config, catalog, metadata)
        except LakeError as error:
            wrong.append(error.message)
            continue
        wrong += [f"catalog {catalog.name}: {why}" for why in refused]
        put, drop = (tuple(map(str, sorted(each))) for each in (changes.put, changes.drop))
        done = RegisterReport(done.registered + put, done.dropped + drop)
    return done, wrong


def _apply(
    session: SparkSession, catalog: CatalogConfig, changes: Changes, metadata: Metadata
) -> tuple[RegisterReport, list[str]]:
    """Make the changes; return them, and the names that were refused. Repeating it after a kill does no harm."""
    from binlake.spark.named_tables import NamedTables

    tables = NamedTables(session, catalog)
    refused: list[str] = []
    put: list[Registration] = []
    for registration in changes.drop:
        tables.drop(registration)
    for registration in changes.put:
        why = tables.put(registration)
        put += [] if why else [registration]
        refused += [why] if why else []
        fault("name registered")
    known = [entry for entry in registrations.read(metadata) if entry.catalog == catalog.identity]
    stay = [entry for entry in known if entry not in changes.drop]
    registrations.note(metadata, catalog.identity, [*stay, *put])
    return RegisterReport(tuple(map(str, put)), tuple(map(str, changes.drop))), refused


def _apply_views(
    session: SparkSession, catalog: CatalogConfig, changes: PinnedChanges, metadata: Metadata
) -> tuple[RegisterReport, list[str]]:
    """Make and drop the databases of pinned versions; return them, and the names that were refused. A database that
    lacks one is made again the next time. Repeating it after a kill does no harm."""
    from binlake.spark.named_tables import NamedTables

    tables = NamedTables(session, catalog)
    put: list[PinnedDatabase] = []
    refused: list[str] = []
    for database in changes.drop:
        tables.drop_views(database.name, database.selects)
    for database in changes.put:
        whys = {name: tables.put_view(database.name, name, select) for name, select in database.selects.items()}
        put.append(replace(database, views=tuple(view for view in database.views if whys[view[0]] is None)))
        refused += [why for why in whys.values() if why]
        fault("name registered")
    known = pinned_views.read(metadata, catalog)
    if put or changes.drop:
        pinned_views.note(metadata, catalog, [*(entry for entry in known if entry not in changes.drop), *put])
    return RegisterReport(tuple(map(str, put)), tuple(map(str, changes.drop))), refused
