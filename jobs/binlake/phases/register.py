"""Register: give the lake's tables names in catalogs, so that ``shop.orders`` is found there.

A catalog is a convenience: it never holds the mirror back. What one lacks is noted, and shown until it has it. Of those
that Spark reaches the names that should be follow from the watermarks, those that were given are in metadata; if they
agree, the catalog isn't asked and Spark isn't started.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from binlake.config import NamedCatalog, PipelineConfig
from binlake.config.catalogs_config import CatalogEntry, CatalogOccasion, ReachedCatalog
from binlake.errors import LakeError, LeaseHeld, UsageError
from binlake.faults import fault
from binlake.lake import pinned_views
from binlake.lake.pinned_views import PinnedChanges, PinnedDatabase
from binlake.lease import lease
from binlake.records import catalog_problems, registrations
from binlake.records.failures import noted
from binlake.records.registrations import Changes, Registration
from binlake.report import Report
from binlake.spark.starting import SessionFactory
from binlake.store.metadata import Metadata, metadata_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from binlake.spark.starting import SessionFactory

_REMEDY = "choose other databases by catalog.database in the YAML, or free the name and run binlake register"
_TURNS, _PATIENCE = 15, 60.0
"""How often a catalog of many tables is continued with, and for how many seconds the lease is waited for then."""


@dataclass(frozen=True)
class RegisterReport:
    """The catalogs' names that were registered and dropped: tables as ``database.table``, databases of pinned
    versions."""

    registered: tuple[str, ...]
    dropped: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return asdict(self)

    def and_(self, other: RegisterReport) -> RegisterReport:
        """Return both reports as one."""
        return RegisterReport(self.registered + other.registered, self.dropped + other.dropped)

    @property
    def headline(self) -> str:
        """Return one line that names what was registered and dropped."""
        if not self.registered and not self.dropped:
            return "the catalogs have all names"
        parts = [f"registered {', '.join(self.registered)}"] if self.registered else []
        return "; ".join(parts + ([f"dropped {', '.join(self.dropped)}"] if self.dropped else []))


def registration_due(config: PipelineConfig, occasion: CatalogOccasion | None = None) -> bool:
    """Return whether a catalog of the YAML lacks a table's name, or has one too many. Needs neither server nor Spark.

    occasion: after which it is asked; None for each of the catalogs.
    """
    if not config.catalogs:
        return False
    metadata = metadata_of(config)
    for catalog in config.named_catalogs:
        if catalog.follows(occasion):
            changes = registrations.changes(config, catalog, metadata)
            pinned = pinned_views.changes(config, catalog, metadata)
            if changes.drop or changes.put or pinned.drop or pinned.put:
                return True
    return any(_lacks_names(config, catalog) for catalog in config.reached_catalogs if catalog.follows(occasion))


def _lacks_names(config: PipelineConfig, catalog: ReachedCatalog) -> bool:
    """Return whether a catalog of Iceberg tables lacks a name or has one too many, as far as it can be asked."""
    from binlake.registered import published_names  # it imports pyarrow

    try:
        return published_names.lacks_names(config, catalog, metadata_of(config))
    except LakeError:
        return True  # registering says what is the matter, and it is noted


@noted("register")
def register(
    config: PipelineConfig, session: SessionFactory, report: Report, occasion: CatalogOccasion | None = None
) -> RegisterReport:
    """Give the YAML's catalogs the names that they lack, and remove those of tables that are gone.

    session: a session of its own, with named_tables.session_settings. occasion: after which this is done; None for all
    catalogs. Raises LakeError where a catalog refuses, or a name belongs to something else, once all else is done.
    """
    if not config.catalogs:
        raise UsageError("the YAML names no catalog", remedy="add a section catalog; see binlake help register")
    asked = left = [entry for entry in config.catalogs if entry.follows(occasion)]
    done, patience = RegisterReport((), ()), 0.0
    for _ in range(_TURNS):  # between them others get the lease
        try:
            with lease.held(metadata_of(config), patience=patience) as held:
                for catalog in left:
                    done = done.and_(_follow(config, catalog, session, held.metadata))
        except LeaseHeld:
            if not patience:
                raise
            break  # what is left is noted
        left, patience = [entry for entry in left if _is_unfinished(entry)], _PATIENCE
        if not left:
            break
    problems = catalog_problems.read(config, metadata_of(config), asked)
    report.say(done.headline)
    if problems:
        said = "; ".join(f"catalog {each.catalog}: {each.problem}" for each in problems)
        raise LakeError(said, remedy=". ".join(dict.fromkeys(each.remedy for each in problems)))
    return done


def _is_unfinished(catalog: CatalogEntry) -> bool:
    """Return whether a catalog wasn't asked for all names in the time for which the lease is held."""
    if not isinstance(catalog, ReachedCatalog):
        return False
    from binlake.registered import published_names  # it imports pyarrow

    return published_names.is_unfinished(catalog)


def _follow(
    config: PipelineConfig, catalog: CatalogEntry, session: SessionFactory, metadata: Metadata
) -> RegisterReport:
    """Let a catalog follow, and note what it lacks then; return what was done."""
    if isinstance(catalog, ReachedCatalog):
        from binlake.registered import published_names  # it imports pyarrow

        return RegisterReport(*published_names.settle(config, catalog, metadata, Report(quiet=True)))
    assert isinstance(catalog, NamedCatalog)
    done, remedy = RegisterReport((), ()), _REMEDY
    try:
        done, refused = _follow_named(config, catalog, session, metadata)
    except LakeError as error:
        refused, remedy = [error.message], error.remedy or remedy
    catalog_problems.note(metadata, catalog.identity, "; ".join(refused), remedy)
    return done


def _follow_named(
    config: PipelineConfig, catalog: NamedCatalog, session: SessionFactory, metadata: Metadata
) -> tuple[RegisterReport, list[str]]:
    """Let a catalog that Spark reaches follow; return what was done, and why some wasn't. Raises LakeError."""
    changes = registrations.changes(config, catalog, metadata)
    pinned = pinned_views.changes(config, catalog, metadata)
    done, refused = RegisterReport((), ()), list[str]()
    if changes.drop or changes.put or pinned.drop or pinned.put:
        reached = session(f"the catalog {catalog.identity} is reached by Spark")
        done, refused = _apply(reached, catalog, changes, metadata)
        views, refused_views = _apply_views(reached, catalog, pinned, metadata)
        done = done.and_(views)
        refused += refused_views
    refused += [f"{name} would be {' and '.join(map(str, tables))}" for name, tables in changes.twins]
    return done, [*refused, *pinned.twins]


def _apply(
    session: SparkSession, catalog: NamedCatalog, changes: Changes, metadata: Metadata
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
    session: SparkSession, catalog: NamedCatalog, changes: PinnedChanges, metadata: Metadata
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
