"""Verify: compare every value of the lake with the server.

Read views at one position are opened under a short lock. On them every table is read from the server, or hashed there,
while the lake is brought to the same position. Then the lake's rows are read and compared (by_read.py, by_hash.py).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pymysql.constants import ER

from binlake import names
from binlake.batch.steps import Life
from binlake.config import PipelineConfig
from binlake.delta import opened_tables
from binlake.errors import TAKEN_REMEDY, UNMATCHED_REMEDY, LakeError, SourceError, UsageError, snapshot_command
from binlake.kernels.cores import available_cores
from binlake.metadata import watermarks
from binlake.metadata.metadata import Metadata, now_us
from binlake.metadata.record import note_run
from binlake.metadata.step_progress import shown_progress
from binlake.moment import moment_text
from binlake.position import Position
from binlake.report import ProgressCallback, Report
from binlake.schema.table import TableName, TableSchema
from binlake.source.catalog import SourceTable, read_tables
from binlake.source.connection import Endpoint
from binlake.source.listed_tables import MIRRORED, list_tables
from binlake.source.read_replica import ReadPlace, own_place
from binlake.source.server import Source, error_code
from binlake.spark import settings
from binlake.spark.starting import SessionAsked, SessionFactory
from binlake.verify import unfinished
from binlake.verify.by_read import ByRead
from binlake.verify.chosen_chunks import Choice, ChosenChunks, known_chunks, still_known
from binlake.verify.executor_plan import PlannedReads
from binlake.verify.known_chunks import ChunkNotes, KnownChunks
from binlake.verify.lake_rows import Unreadable
from binlake.verify.pace import Budget
from binlake.verify.repair import Repairs
from binlake.verify.result import DifferingRow, TableResult, VerifyReport
from binlake.verify.server_load import ServerLoad
from binlake.verify.verify_progress import ComparisonProgress
from binlake.verify.views import ReadViews

if TYPE_CHECKING:
    from binlake.verify.by_executors import ByExecutors
    from binlake.verify.by_hash import ByHash

__all__ = ["DifferingRow", "TableResult", "VerifyReport", "verify"]

CatchUp = Callable[[Position], object]
"""A function that brings the lake to exactly a position."""

_ALTERED = {ER.TABLE_DEF_CHANGED, ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR}
_AGAIN = "run verify again"
_BY_HASH = "run verify --by hash"
_SAID_EVERY = 1.0
"""Seconds between two reports of progress."""


def verify(
    config: PipelineConfig,
    endpoint: Endpoint,
    session: SessionFactory,
    metadata: Metadata,
    catch_up: CatchUp,
    go_on: Callable[[], None] = lambda: None,
    *,
    tables: list[str] | None = None,
    report: Report | None = None,
    repairs: Repairs | None = None,
    run: str | None = None,
    changed: bool = False,
    seconds: float | None = None,
    place: ReadPlace = own_place,
) -> VerifyReport:
    """Compare every value of the included tables (those that ``tables`` matches, if given); note results in metadata.

    The lake must stand still from here until ``go_on`` is called, but for ``catch_up``. repairs: puts right what
    differs; it wants tables that are compared by reading. changed: compare only the chunks that may have changed since
    they were compared, and a share of the others. seconds: begin no further part once so many have passed. What a
    verification that didn't come to its end has compared isn't compared again, unless it may have changed since. place:
    reads where the server is in the log that the lake follows, of which it may be a replica. Raises UsageError if no
    table matches, SourceError if the server can't be read, and what ``catch_up`` and ``place`` raise. Differences are
    no errors.
    """
    began, began_us, asked = time.monotonic(), now_us(), SessionAsked(session)
    chosen = _ChosenTables(config, metadata, tables)
    report = report or Report()
    budget = Budget(seconds)
    load = ServerLoad(endpoint, config.verify.max_threads_running, budget, report.say)
    comparison = _Comparison(config, asked, report, budget, load, repairs)
    with Source.open(endpoint) as source, comparison:
        before = chosen.on_server(source)
        known = known_chunks(metadata, chosen.lives()) if config.verify.by == "read" else {}
        expected = partial(_expected, metadata, tables, changed=changed, repairs=repairs)
        executors = comparison.executors(source, chosen.following(before), known, expected)
        with ReadViews(
            endpoint,
            list(before),
            count=comparison.connections,
            under_lock=lambda view: comparison.read_under_lock(view, before),
            place=place,
            elsewhere=executors,
        ) as views:
            report.say(f"reading the server at {views.position.short} (locked for {views.lock_ms} ms)")
            tables_now = {
                name: table for name, table in chosen.on_server(source).items() if _is_unchanged(table, before)
            }
            source.close()
            fresh = {name: table for name, table in tables_now.items() if name not in known}
            comparison.begin(fresh, views, are_all=len(fresh) == len(tables_now))
            catch_up(views.position)
            marks, lives = chosen.watermarks(), chosen.lives()
            comparison.fix_versions(marks)
            left = {name: chunks for name, chunks in known_chunks(metadata, lives).items() if name in known}
            go_on()
            comparison.note_chunks(ChunkNotes(metadata, lives))
            choice = _choice(config, metadata, tables, report, changed=changed, repairs=repairs)
            chunks = choice.of(still_known(config, left, comparison.versions))
            _say_chosen(report, choice, chunks)
            if len(fresh) < len(tables_now):
                comparison.begin(tables_now, views, chunks, are_all=True)
            results = comparison.compare_all(marks, tables_now, views, before.keys() - tables_now.keys())
    verify_report = VerifyReport(
        uuid.uuid4().hex, views.position, views.lock_ms, time.monotonic() - began, tuple(results), asked.why
    )
    if choice.since_us is not None and not verify_report.unfinished:
        unfinished.end(metadata, tables)
    _note(metadata, verify_report, "verify" if repairs is None else "repair", run, began_us)
    return verify_report


def _expected(metadata: Metadata, tables: list[str] | None, *, changed: bool, repairs: Repairs | None) -> Choice | None:
    """Return what is known beforehand of what ``_choice`` returns; None where changes tell."""
    if changed:
        return None
    since_us = None if repairs else unfinished.begun(metadata, tables)
    return Choice(since_us or now_us())


def _choice(
    config: PipelineConfig,
    metadata: Metadata,
    tables: list[str] | None,
    report: Report,
    *,
    changed: bool,
    repairs: Repairs | None,
) -> Choice:
    """Return what is compared of tables of which something is known, and note that a verification begins."""
    if changed:
        return Choice(None, config.verify.share_of_rows)
    if repairs or config.verify.by != "read":
        return Choice(now_us())
    since_us = unfinished.begin(metadata, tables)
    if since_us is None:
        return Choice(now_us())
    report.say(f"going on with the verification that began on {moment_text(since_us)} and didn't come to its end")
    return Choice(since_us)


def _say_chosen(report: Report, choice: Choice, chosen: Mapping[TableName, ChosenChunks]) -> None:
    """Say how much isn't compared again, if anything isn't."""
    every = sum(chunks.known.cells.chunks for chunks in chosen.values())
    looked = sum(chunks.count for chunks in chosen.values())
    if looked < every:
        seen = f"; every chunk is read at least once in {choice.runs} runs" if choice.since_us is None else ""
        report.say(f"{every - looked:,} of {every:,} chunks are known equal and haven't changed since{seen}")


def _note(metadata: Metadata, report: VerifyReport, kind: str, run: str | None, began_us: int) -> None:
    """Note results in metadata."""
    metadata.append("verifications", _rows(report))
    note_run(
        metadata,
        kind,
        run,
        max((table.batch for table in report.tables if table.batch is not None), default=0),
        report.position,
        [],  # each table's result stands in verifications
        ("verify", round(report.seconds, 2)),
        report.headline,
        began_us=began_us,
        why_spark=report.why_spark,
    )


def _is_unchanged(table: SourceTable, before: dict[TableName, SourceTable]) -> bool:
    return table.name in before and before[table.name].schema == table.schema


class _ChosenTables:
    """The tables to verify, as the server and the watermarks have them. patterns: the ones asked for, None for all."""

    def __init__(self, config: PipelineConfig, metadata: Metadata, patterns: list[str] | None) -> None:
        self._config = config
        self._metadata = metadata
        self._patterns = patterns

    def _is_chosen(self, name: TableName) -> bool:
        patterns = self._patterns
        has_rows = self._config.included(name) and self._config.mirror_modes(name).mirror
        return has_rows and (not patterns or names.matches_any(patterns, name.database, name.table))

    def on_server(self, source: Source) -> dict[TableName, SourceTable]:
        """Return the chosen tables that the server has and that aren't stopped. Raises UsageError if there is none, or
        a pattern matches none."""
        listed = [table.name for table in list_tables(source) if table.kind in MIRRORED and self._is_chosen(table.name)]
        marks = self.watermarks()
        known = [(name.database, name.table) for name in (*listed, *marks)]
        unknown = (
            names.unmatched(self._patterns or (), known) if known else self._patterns or self._config.tables.include
        )
        if unknown:
            unmatched = f"no included table that has a mirror matches {', '.join(unknown)}"
            raise UsageError(unmatched, remedy=UNMATCHED_REMEDY)
        # Stopped tables aren't compared: the server needn't hash them.
        wanted = [name for name in listed if marks.get(name, {}).get("status") != "stopped"]
        recorded = {name: life.schema for name, life in self.lives().items()}

        def as_mirrored(name: TableName, schema: TableSchema) -> TableSchema:
            mirrored = self._config.excluding(name, schema)
            if (known := recorded.get(name)) is None:
                return mirrored
            mirrored = replace(mirrored, soft_delete=known.soft_delete, row_metadata=known.row_metadata)
            return replace(mirrored, kept=known.kept, untold=known.untold)

        return read_tables(source, wanted, as_mirrored)

    def lives(self) -> dict[TableName, Life]:
        """Return the lives of chosen tables that follow the log."""
        lives = watermarks.read_lives(self._metadata)
        return {life.name: life for life in lives if life.status == "following" and self._is_chosen(life.name)}

    def following(self, tables: Mapping[TableName, SourceTable]) -> dict[TableName, SourceTable]:
        """Return those of some tables whose lives follow the log."""
        lives = self.lives()
        return {name: table for name, table in tables.items() if name in lives}

    def watermarks(self) -> dict[TableName, dict[str, Any]]:
        """Return each chosen table's watermark: the row of the life that follows the log, else of the newest life."""
        rows = sorted(
            watermarks.read(self._metadata), key=lambda row: (row["status"] == "following", row["updated_us"])
        )
        by_name = {TableName(row["database"], row["table"]): row for row in rows}
        return {name: row for name, row in by_name.items() if self._is_chosen(name)}


@dataclass
class _Comparison:
    """One comparison, in progress. workers: how many tables are compared at once."""

    config: PipelineConfig
    session: SessionFactory
    report: Report
    budget: Budget
    load: ServerLoad
    repairs: Repairs | None = None
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.workers = self.config.verify.connections or max(2, available_cores())
        self._by_read = ByRead(self.config, self.workers, self.budget, self.load, self.repairs)
        self._by_hash: ByHash | None = None
        self.connections = self.workers
        """How many connections of this process read the server."""
        self._starting = threading.Lock()
        self.versions: dict[TableName, int | None] = {}
        self._parts: dict[TableName, Sequence[Future[Any]]] = {}
        self._rows: dict[TableName, int] = {}

    def __enter__(self) -> _Comparison:
        return self

    def __exit__(self, *raised: object) -> None:
        self._by_read.close()
        self.load.close()
        if self._by_read.notes:
            self._by_read.notes.write()

    def note_chunks(self, notes: ChunkNotes) -> None:
        """Note what is compared from here on."""
        self._by_read.notes = notes

    def _way(self) -> ByRead | ByHash:
        return self._by_read if self.config.verify.by == "read" else self._hashing("the YAML says verify.by: hash")

    def _hashing(self, why: str) -> ByHash:
        """Return the comparison by hashes, which needs Spark."""
        from binlake.verify.by_hash import ByHash

        with self._starting:
            if self._by_hash is None:
                self._by_hash = ByHash(self.config, self.session(f"a verification hashes rows: {why}"), self.load)
            return self._by_hash

    def executors(
        self,
        source: Source,
        tables: Mapping[TableName, SourceTable],
        known: Mapping[TableName, KnownChunks],
        choice: Callable[[], Choice | None],
    ) -> ByExecutors | None:
        """Return what reads the large ones of these tables on a cluster's executors; None without one. known, choice:
        what is known of some tables, and which of their chunks are compared, if all of that is known by now."""
        if self.config.verify.by != "read" or settings.works_here(self.config.spark):
            return None
        planned = PlannedReads(self.config, self.load.endpoint, self.budget, self.report.say, self._by_read.cut)
        executors = planned.executors(self.session, source, planned.chosen(tables, known, choice()))
        if executors:
            if self.config.verify.connections:
                self.connections -= len(executors.gates)
            self._by_read.use(executors)
            self.load.others = executors.others
        return executors

    def read_under_lock(self, view: Source, tables: Mapping[TableName, SourceTable]) -> None:
        """Read the tables whose engine has no read views: they stay unchanged only under the lock."""
        for table in tables.values():
            if not table.has_read_views:
                self._way().read_under_lock(view, table)

    def begin(
        self,
        tables: Mapping[TableName, SourceTable],
        views: ReadViews,
        chosen: Mapping[TableName, ChosenChunks] = MappingProxyType({}),
        *,
        are_all: bool,
    ) -> None:
        """Begin to read the tables from the server, but those that were begun. chosen: which chunks of some of them.
        are_all: no others follow, so that the views end once these are read."""
        for name, table in tables.items():
            if name in self._parts:
                continue
            read = chosen[name].count / chosen[name].known.cells.chunks if name in chosen else 1
            self._rows[name] = round(table.rows * read)
            if self.config.verify.by == "read":
                self._parts[name] = self._by_read.begin(table, views, chosen.get(name))
            else:
                self._parts[name] = self._way().begin(table, views)
        if are_all:
            views.reading.close_after([future for futures in self._parts.values() for future in futures])

    def fix_versions(self, tables: Iterable[TableName]) -> None:
        """Have the lake's tables compared at the Delta versions that they have now."""

        def newest(name: TableName) -> int | None:
            try:
                return int(opened_tables.opened(self.config.table_path(name)).version())
            except (DeltaError, OSError):
                return None  # it is met again, and said, when the table is read

        names = list(tables)
        with ThreadPoolExecutor(self.workers) as side_by_side:
            self.versions = dict(zip(names, side_by_side.map(newest, names), strict=True))

    def compare_all(
        self,
        marks: Mapping[TableName, dict[str, Any]],
        tables: Mapping[TableName, SourceTable],
        views: ReadViews,
        changed: set[TableName],
    ) -> list[TableResult]:
        """Return a result for each table that is in the lake or on the server. changed: whose shape did meanwhile."""
        everything = sorted(marks.keys() | tables.keys() | changed)

        def compare_table(name: TableName) -> TableResult:
            if name in changed:
                return TableResult(name, "failed", reason="its shape changed during the read", remedy=_AGAIN)
            taken = self.config.taken_by(name)
            result = not_compared(name, marks.get(name), name in tables, views.position, taken)
            return result or self._compare(tables[name], views, marks[name])

        shown = shown_progress(self.config, self.report, "compared")
        with ThreadPoolExecutor(self.workers) as side_by_side, shown as show:
            futures = {name: side_by_side.submit(compare_table, name) for name in everything}
            progress = ComparisonProgress(self._parts, self._rows, self.began)
            ended = self._wait_for_results(futures, progress, show)
        for future in ended:
            if error := future.exception():
                raise error
        return [future.result() for future in futures.values()]

    def _wait_for_results(
        self, futures: Mapping[TableName, Future[TableResult]], progress: ComparisonProgress, show: ProgressCallback
    ) -> set[Future[TableResult]]:
        """Wait for all tables, or for the first error, which cancels those not begun; return the futures that ended."""
        while True:
            ended, left = wait(futures.values(), _SAID_EVERY, FIRST_EXCEPTION)
            progress.show(show, [name for name, future in futures.items() if future in ended], len(futures))
            if self._by_read.notes:
                self._by_read.notes.write_if_due()
            if not left or any(future.exception() for future in ended):
                for future in left:
                    future.cancel()
                return ended

    def _compare(self, table: SourceTable, views: ReadViews, mark: dict[str, Any]) -> TableResult:
        blank = TableResult(table.name, "failed", batch=mark["batch"])
        version = self.versions[table.name]
        try:
            try:
                return self._way().compare(table, views, blank, version)
            except Unreadable as reason:
                if not table.has_read_views:
                    return replace(blank, reason=f"it can't be compared by reading: {reason}", remedy=_BY_HASH)
                self.report.say(f"{table.name} is hashed instead of read: {reason}")
                hashing = self._hashing(f"{table.name}: {reason}")
                hashing.begin_late(table, views)
                return hashing.compare(table, views, blank, version)
        except SourceError as error:
            if error_code(error) not in _ALTERED:
                raise
            return replace(blank, reason="its shape changed during the read", remedy=_AGAIN)
        except (DeltaError, LakeError, OSError, pa.ArrowException) as error:
            text = error.message if isinstance(error, LakeError) else _first_line(error)
            remedy = f"{_AGAIN}; if that doesn't help, {snapshot_command(table.name)}"
            return replace(blank, reason=f"its Delta table can't be read: {text}", remedy=remedy)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def not_compared(
    name: TableName, mark: dict[str, Any] | None, on_server: bool, position: Position, taken: str = ""
) -> TableResult | None:
    """Return the result of a table that can't be compared, with the reason; None if it can be. taken: why it can't be
    mirrored under its name; empty where it can."""
    if mark is None or (mark["status"] == "dropped" and on_server):
        why, remedy = "included, but never snapshotted", snapshot_command(name)
        mark = {"status": "missing", "batch": None, "reason": why, "remedy": remedy}
    if taken and mark["status"] in ("missing", "resnapshot"):
        mark = {**mark, "reason": taken, "remedy": TAKEN_REMEDY}  # a snapshot would be refused
    if mark["status"] != "following":
        return TableResult(
            name, mark["status"], batch=mark["batch"], reason=mark["reason"] or "", remedy=mark["remedy"] or ""
        )
    failed = TableResult(name, "failed", batch=mark["batch"])
    if not on_server:
        # information_schema hides what an account may not read, as if it weren't there.
        reason = "the account sees no such table on the server: it was dropped just now, or SELECT is missing"
        grant = f"GRANT SELECT ON {names.grant_quote(name.database)}.* to the account"
        return replace(
            failed, reason=reason, remedy=f"if it was dropped, run binlake sync, then verify again; else {grant}"
        )
    reached = Position.parse(mark["position"])
    if reached.server != position.server or reached.order != position.order:
        reason = f"the lake stands at {reached.short}, the server was read at {position.short}"
        return replace(failed, reason=reason, remedy=_AGAIN)
    return None


def _rows(report: VerifyReport) -> list[dict[str, Any]]:
    return [
        {
            "verification": report.verification,
            "at_us": now_us(),
            "database": table.name.database,
            "table": table.name.table,
            "batch": table.batch,
            "position": str(report.position),
            "delta_version": table.delta_version,
            "source_rows": table.source_rows,
            "lake_rows": table.lake_rows,
            "chunks": table.chunks,
            "differing": table.differing,
            "equal": table.equal,
            "looked_chunks": table.looked,
            "looked_rows": table.looked_rows,
            "seconds": report.seconds,
        }
        for table in report.tables
    ]
