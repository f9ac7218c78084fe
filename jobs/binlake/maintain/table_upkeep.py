"""The upkeep of tables, side by side: their files are put together, unneeded ones go, Delta's logs are shortened."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from binlake import names
from binlake.config import PipelineConfig
from binlake.config.table_modes import beside_table
from binlake.config.units import HOUR_SECONDS
from binlake.delta import key_ranges, plain_tables
from binlake.delta.delta_log import LakeLog, NewestBatch
from binlake.delta.layout import Rewrite
from binlake.delta.log_files import LogFiles
from binlake.errors import BinlakeError, LakeError, LeftToSpark, SparkNeeded, TableError, UsageError
from binlake.faults import fault
from binlake.lake import merged_sources, pins
from binlake.lake.merged_sources import PromisedHours
from binlake.lake.merged_tables import merged_names
from binlake.lake.pins import PinnedVersions
from binlake.lease import lease
from binlake.lease.lease import Lease
from binlake.maintain.needs import (
    COMMIT_BYTES,
    SMALL_COMMIT_BYTES,
    Needs,
    Table,
    each_since,
    needs_of,
    parts,
    thinned_before,
)
from binlake.maintain.upkeep_in_process import RewritingHere, fits
from binlake.merge.published_tables import expire_table, is_published, publish_table
from binlake.planner.outcome import BesideOutcome
from binlake.planner.steps import Life
from binlake.position import Position
from binlake.records import expiry, lake_sizes, leftovers, table_versions, thinning, watermarks
from binlake.records.lake_sizes import NotedSize
from binlake.records.leftovers import ExpiredLog
from binlake.report import Report
from binlake.schema.table import TableName, TableSchema
from binlake.spark.starting import no_session
from binlake.storage import storage_errors
from binlake.store.metadata import Metadata
from binlake.store.rows import WatermarkRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from binlake.maintain.upkeep_by_spark import Rewriting
    from binlake.spark.starting import SessionFactory

_LOOK_AGAIN = 1.0

SIDE_BY_SIDE = 4
MAINTAINED = ("following", "paused", "catching up", "excluded", "dropped")
"""Statuses of lives whose tables may be touched."""
_NO_TABLE = "it has no Delta table yet"
_TRIES = 3
"""How often a rewrite is tried of files that others replace meanwhile."""


@dataclass(frozen=True)
class TableUpkeep:
    """The work that was done on one table.

    files, bytes: of its newest version. removed: by the vacuum. log_files: of Delta's log. pinned_bytes: of files that
    are kept for pinned versions alone. left: why not all was done.
    """

    table: str
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rewritten_files: int = 0
    written_files: int = 0
    removed_files: int = 0
    removed_bytes: int = 0
    removed_log_files: int = 0
    pinned_bytes: int = 0
    delta_version: int | None = None
    seconds: float = 0.0
    left: str = ""


class TablesUpkeep:
    """One run's work on tables."""

    def __init__(
        self,
        config: PipelineConfig,
        session: SessionFactory,
        metadata: Metadata,
        report: Report,
        patience: float,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        """between: called before each table; an error that it raises ends the work."""
        self._config, self._session, self._metadata, self._report = config, session, metadata, report
        self._patience, self._between, self._here = patience, between, session is no_session
        self._one_lease = threading.Lock()  # one lease of this process at a time
        self._looked = 0.0
        self._pinned = PinnedVersions((), {})
        self._sizes: dict[TableName, NotedSize] = {}
        self._lake: set[TableName] | None = None
        self.failed: list[BinlakeError] = []

    def tables(self, patterns: list[str] | None) -> list[TableUpkeep]:
        """Look after the tables that patterns name, else all, and return what was done to each.

        Errors of single tables are added to ``failed``.
        """
        self._looked = time.time()
        with self.held() as held:
            tables = self._look(held, patterns)
        with self.held() as held:
            self._thin(held)
        self._pinned = PinnedVersions.of(self._config, self._metadata, self._looked)
        fault("versions known")
        with ThreadPoolExecutor(1 if self._here else SIDE_BY_SIDE, thread_name_prefix="maintain") as pool:
            done = list(pool.map(self._kept, tables))
        for table in tables:
            if table.is_merged and not table.left:
                self._expire_merged(table)
        self._sizes = {
            table.name: NotedSize(upkeep.bytes_after, upkeep.files_after)
            for table, upkeep in zip(tables, done, strict=True)
            if upkeep.delta_version is not None and not table.is_merged  # its files are those of others
        }
        self._lake = None if patterns else {table.name for table in tables if not table.is_merged}
        return done

    def note_sizes(self, held: Lease) -> None:
        """Note the sizes of what was looked after; where that were all tables, others are gone."""
        lake_sizes.note(held.metadata, self._sizes, self._lake)

    def _fail(self, what: TableName | str, error: BinlakeError) -> None:
        """Say an error of a table, which fails the run once the others are done."""
        self._report.say(f"{what}: {error}")
        self.failed.append(error)

    @contextmanager
    def held(self) -> Iterator[Lease]:
        """Hold the lease for a moment between batches, once in this process."""
        with self._one_lease, held_between_batches(self._metadata, self._patience) as held:
            yield held

    def _thin(self, held: Lease) -> None:
        """Let go of batches of which only the newest of each hour stays."""
        hours = self._config.maintain.every_version_hours
        before_us = None if hours is None else int(thinned_before(self._looked, hours)) * 1_000_000
        thinning.thin_versions(held.metadata, before_us)
        if before_us is not None:
            thinning.thin_runs(held.metadata, before_us)
            fault("versions thinned")

    def _look(self, held: Lease, patterns: list[str] | None) -> list[Table]:
        """Return the tables that were asked for; the watermarks of those to be touched get the newest versions."""
        lives = lives_asked(held.metadata, patterns)
        lives.sort(key=lambda life: (life.name.database, life.name.table))
        busy = tables_being_copied(held.metadata)
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            seen = pool.map(lambda life: self._seen_first(life, busy), lives)
            looked = [table for table in seen if table.life.status != "dropped" or table.left != _NO_TABLE]
        looked += [beside for name in _names(lives) for beside in self._beside(name)]
        looked += [self._merged(held, name) for name in merged_names(self._config, _names(lives))]
        self._know(held, [table for table in looked if not table.left])
        return looked

    def _seen_first(self, life: Life, busy: set[TableName]) -> Table:
        """Look at a table; one whose log can't be read is left, and fails the run once the others are done."""
        try:
            return self._seen(life, busy)
        except LakeError as error:
            self._fail(life.name, error)
            return Table(life, LakeLog.of(self._config, life.name, life.id), left=error.message)

    def _merged(self, held: Lease, name: TableName) -> Table:
        """Look at a table that shows others, whose files may go in this run: note from which version on it stays."""
        log, nowhere = LakeLog(self._config.table_path(name), ""), Position("", "", 0, 0)
        life = Life("", name, TableSchema(()), nowhere, nowhere)
        try:
            hours = PromisedHours.of(self._config).of_table(log.path, self._config.maintain.history_hours)
            since = max(0, LogFiles.of(log.path).stood_at(self._looked - hours * HOUR_SECONDS))
            merged_sources.note_readable_since(self._config, held.metadata, name, since, self._looked)
            return Table(life, log, log.version(), is_beside=True, is_merged=True)
        except LakeError as error:
            self._fail(name, error)
            return Table(life, log, is_beside=True, is_merged=True, left=error.message)

    def _beside(self, name: TableName) -> list[Table]:
        """Look at the tables beside a mirror; where a log can't be read they fail the run once the others are done."""
        try:
            return list(tables_beside(self._config, name))
        except LakeError as error:
            self._fail(f"beside {name}", error)
            return []

    def _seen(self, life: Life, busy: set[TableName]) -> Table:
        log = LakeLog.of(self._config, life.name, life.id)
        if life.status not in MAINTAINED:
            return Table(life, log, left=f"it is {life.status}")
        if life.name in busy:
            return Table(life, log, left="a snapshot of it isn't finished")
        if life.delta_version is None or not log.exists():
            return Table(life, log, left=_NO_TABLE)
        try:
            newest = NewestBatch(lease.read(self._metadata).batch)
            return Table(life, log, log.refuse_others({life.id}, life.delta_version, newest))
        except TableError as error:
            return Table(life, log, left=error.message)

    def _know(self, held: Lease, tables: list[Table]) -> None:
        """Write the tables' Delta versions into their watermarks; the next batch looks on from there. Those of tables
        beside mirrors are noted as the newest batch's alone."""
        began_us = int(self._looked * 1_000_000)
        mirrors = [table for table in tables if not table.is_beside]
        beside = [
            BesideOutcome(table.name, str(table.log.opened().metadata().id), "following", table.version)
            for table in tables
            if table.is_beside and not table.is_merged  # upkeep doesn't commit to those, and other sources may have
        ]
        table_versions.note_upkeep_beside(held.metadata, beside, began_us=began_us)
        newest = {table.life.id: table.version for table in mirrors if table.version != table.life.delta_version}
        rows = [
            replace(row, delta_version=newest[row.table_id])
            for row in WatermarkRow.read(held.metadata)
            if row.table_id in newest
        ]
        table_versions.note_beside(held.metadata, rows, self._config.is_listed, began_us=began_us)
        watermarks.write(held.metadata, rows)

    def _kept(self, table: Table) -> TableUpkeep:
        began = time.monotonic()
        self._between()
        if table.left:
            return TableUpkeep(str(table.name), left=table.left)
        try:
            done = self._keep(table)
        except Exception as raised:  # Spark's have no common type; the other tables are looked after all the same
            error = raised if isinstance(raised, BinlakeError) else _failed(table, raised)
            self._fail(table.name, error)
            done = TableUpkeep(str(table.name), left=error.message)
        return replace(done, seconds=round(time.monotonic() - began, 2))

    def _keep(self, table: Table) -> TableUpkeep:
        needs = needs_of(self._config, table, self._looked, self._pinned)
        done = TableUpkeep(
            str(table.name), needs.files, needs.files, needs.bytes, needs.bytes, delta_version=needs.version
        )
        try:
            if needs.vectors:
                done = self._without_vectors(table, needs, done)
                needs = needs_of(self._config, table, self._looked, self._pinned)
            if needs.rewrites:
                done = self._arrange(self._rewriting(table, needs), table, needs, done, here=self._here)
            if needs.properties:
                self._set(self._own_session(table, "its retention is set"), table, needs.properties)
        except (SparkNeeded, LeftToSpark) as left:
            done = replace(done, left=str(left))
        if (needs.rewrites or needs.properties) and not done.left:
            needs = needs_of(
                self._config, table, self._looked, self._pinned
            )  # of the same time: what was rewritten since isn't old
        if is_published(self._config, table.name):
            publish_table(self._config, table.name, self._report)
        done = self._shortened(table, self._vacuumed(table, needs, done))
        return replace(done, delta_version=table.log.version() if table.log.exists() else None)

    def _without_vectors(self, table: Table, needs: Needs, done: TableUpkeep) -> TableUpkeep:
        """Let batches write no more deletion vectors, and write small files that have some again: by this process where
        it may; files are left to Spark else."""
        try:
            self._set_here(table, needs.vectors)
            return self._arrange(lambda: RewritingHere(table.log, self._config), table, needs, done, here=True)
        except LeftToSpark:
            if self._here:
                raise
        self._set(self._own_session(table, "it is to have no deletion vectors"), table, needs.vectors)
        return done

    def _rewriting(self, table: Table, needs: Needs) -> Callable[[], RewritingHere | Rewriting]:
        """Return what begins a rewrite: by Spark, or by this process where it may start none."""
        if self._here:
            return lambda: RewritingHere(table.log, self._config)
        from binlake.maintain.upkeep_by_spark import Rewriting

        why = f"{sum(len(rewrite.files) for rewrite in needs.rewrites)} of its data files are put together"
        session = self._own_session(table, why)
        return lambda: Rewriting(session, table.log)

    def _arrange(
        self,
        begin: Callable[[], RewritingHere | Rewriting],
        table: Table,
        needs: Needs,
        done: TableUpkeep,
        *,
        here: bool,
    ) -> TableUpkeep:
        """Rewrite files as a table needs it. here: whether this process does it, of what is small enough."""
        for _ in range(_TRIES):
            chosen = needs.rewrites
            if here:
                chosen = tuple(rewrite for rewrite in chosen if fits(rewrite, self._config))
            for part in parts(chosen, SMALL_COMMIT_BYTES if here else COMMIT_BYTES):
                written = self._rewrite(begin(), table, part)
                if written is None:
                    break
                done = _added(done, part, *written)
            else:
                return done
            needs = needs_of(self._config, table, self._looked, self._pinned)
        return replace(
            done,
            left="batches replace its files faster than they are put together: a follower does so itself with small "
            "files, the next run with the others",
        )

    def _rewrite(self, made: RewritingHere | Rewriting, table: Table, part: list[Rewrite]) -> tuple[int, int] | None:
        """Return the files and bytes written; None where others were quicker."""
        key = key_ranges.sort_order(table.life.schema) if self._config.maintain.sort else ()
        if not all(made.write(rewrite, key) for rewrite in part):
            return None
        fault("rows rewritten")
        with self.held() as held:
            self._seen_again(held, table)
            held.check()
            if not made.commit({"binlake": {"source": self._config.source.name, "maintain": "layout"}}):
                return None
            fault("layout committed")
            self._know(held, [self._seen_again(held, table)])
        return made.written_files, made.written_bytes

    def _set(self, session: SparkSession, table: Table, properties: dict[str, str]) -> None:
        from binlake.maintain.upkeep_by_spark import set_properties

        with self.held() as held:
            self._seen_again(held, table)
            set_properties(session, table.log, properties)
            self._know(held, [self._seen_again(held, table)])

    def _set_here(self, table: Table, properties: dict[str, str]) -> None:
        """Set properties without Spark, which batches need from then on. Raises LeftToSpark."""
        plain_tables.check_is_wanted(table.log.path, self._config)
        with self.held() as held:
            self._seen_again(held, table)
            note = {"binlake": {"source": self._config.source.name, "maintain": "layout"}}
            plain_tables.commit_settings(table.log.path, table.log.opened(), note, properties)
            self._know(held, [self._seen_again(held, table)])

    def _seen_again(self, held: Lease, table: Table) -> Table:
        """Look at the table again. Raises TableError where it was replaced or renamed, or others changed its rows."""
        if table.is_beside:
            return replace(table, version=table.log.version())
        for life in watermarks.read_lives(held.metadata):
            if (life.id, life.name) == (table.life.id, table.name):
                now = self._seen(life, tables_being_copied(held.metadata))
                if not now.left:
                    return now
                raise TableError(f"{table.name}: {now.left}", remedy="run maintain again")
        raise TableError(f"{table.name} was renamed or copied again meanwhile", remedy="run maintain again")

    def _vacuumed(self, table: Table, needs: Needs, done: TableUpkeep) -> TableUpkeep:
        """Remove files that no promised or pinned version needs."""
        if not table.log.exists() or table.name in tables_being_copied(self._metadata):
            return done
        gone = needs.unneeded
        if gone.files and (pinned := self._note_going(table, gone.readable_from)) != self._pinned:
            gone = needs_of(self._config, table, self._looked, pinned).unneeded
        if not table.is_merged:
            named = self._pinned.named.get(table.log.path, {})
            expire_table(self._config, table.name, [file.name for file in gone.files], named)
        leftovers.remove_data(table.log, gone.files)
        fault("vacuumed")
        return replace(
            done,
            removed_files=len(gone.files),
            removed_bytes=sum(file.bytes for file in gone.files),
            pinned_bytes=sum(file.bytes for file in gone.pinned),
        )

    def _expire_merged(self, table: Table) -> None:
        """Let snapshots go of a published table that shows others, whose files went in this run or in one before."""
        try:
            expire_table(self._config, table.name, (), self._pinned.named.get(table.log.path, {}), look=True)
        except LakeError as error:
            self._fail(table.name, error)

    def _note_going(self, table: Table, readable_from: int) -> PinnedVersions:
        """Write from which version on the table can be read once files of earlier ones are gone. Return what is pinned
        then: a later pin is refused."""
        with self.held() as held:
            merged_sources.note_readable_since(self._config, held.metadata, table.name, readable_from, self._looked)
        same = pins.read(self._metadata) == list(self._pinned.pins)
        same = same and not self._pinned.hours.is_of_several(table.log.path)  # others pin it, too
        return self._pinned if same else PinnedVersions.of(self._config, self._metadata, self._looked)

    def _shortened(self, table: Table, done: TableUpkeep) -> TableUpkeep:
        """Remove what is older than promised of Delta's log, except what pinned versions need."""
        expired = self._expired(table, self._pinned)
        if not expired.files:
            return done
        if (pinned := self._note_going(table, expired.readable_from)) != self._pinned:
            expired = self._expired(table, pinned)
        with self.held() as held:
            self._seen_again(held, table)
            leftovers.remove_log(table.log, expired.files)
        fault("log shortened")
        return replace(done, removed_log_files=len(expired.files))

    def _expired(self, table: Table, pinned: PinnedVersions) -> ExpiredLog:
        hours = self._config.maintain.log_hours
        each = each_since(self._config, table, self._looked, pinned, hours)
        before = self._looked - pinned.hours.of_table(table.log.path, hours) * HOUR_SECONDS
        return leftovers.expired_log(table.log, before, pinned.of_table(table.log.path), each)

    def _own_session(self, table: Table, why: str) -> SparkSession:
        """Return a session of this thread, which works on one table."""
        from binlake.spark.session import of_this_thread

        return of_this_thread(self._session(f"{table.name}: {why}"))


def _failed(table: Table, error: Exception) -> LakeError:
    return storage_errors.failed(f"the upkeep of the Delta table {table.log.path} failed", error)


def tables_beside(config: PipelineConfig, name: TableName) -> Iterator[Table]:
    """Yield the tables that modes keep beside a mirror."""
    for mode in config.beside(name):
        if (log := LakeLog.beside(config, name, mode)).exists():
            nowhere = Position("", "", 0, 0)
            named = TableName(name.database, beside_table(name.table, mode))
            yield Table(Life("", named, TableSchema(()), nowhere, nowhere), log, log.version(), is_beside=True)


def _names(lives: Iterable[Life]) -> Iterable[TableName]:
    return dict.fromkeys(life.name for life in lives)


def tables_being_copied(metadata: Metadata) -> set[TableName]:
    """Return the tables of which a snapshot isn't finished."""
    return set(expiry.unfinished_snapshots(metadata).values())


def lives_asked(metadata: Metadata, patterns: Sequence[str] | None) -> list[Life]:
    """Return the lives whose tables match a pattern; without patterns all.

    Raises UsageError that names the patterns that no table of the lake matches.
    """
    lives = watermarks.read_lives(metadata)
    if not patterns:
        return lives
    if unknown := names.unmatched(patterns, [(life.name.database, life.name.table) for life in lives]):
        raise UsageError(
            f"no table of the lake matches {', '.join(unknown)}",
            remedy="patterns are database.table; binlake status lists the tables",
        )
    return [life for life in lives if names.matches_any(patterns, life.name.database, life.name.table)]


def _added(done: TableUpkeep, part: list[Rewrite], files: int, size: int) -> TableUpkeep:
    old = sum(len(rewrite.files) for rewrite in part)
    return replace(
        done,
        files_after=done.files_after - old + files,
        bytes_after=done.bytes_after - sum(rewrite.bytes for rewrite in part) + size,
        rewritten_files=done.rewritten_files + old,
        written_files=done.written_files + files,
    )


@contextmanager
def held_between_batches(metadata: Metadata, patience: float) -> Iterator[Lease]:
    """Hold the lease for a moment, once no batch is open: a sync in Airflow gives it back between its steps.

    patience: seconds to wait. Raises UsageError where a batch stays open, LeaseHeld.
    """
    until = time.monotonic() + patience
    while True:
        with lease.held(metadata, patience=max(0.0, until - time.monotonic()), brief=True) as held:
            opened = held.control().open
            if opened is None:
                yield held
                return
        if time.monotonic() >= until:
            raise UsageError(
                f"batch {opened.batch} is open ({opened.state}) and nobody carries it on",
                remedy="run binlake sync to finish it, then maintain",
            )
        time.sleep(_LOOK_AGAIN)
