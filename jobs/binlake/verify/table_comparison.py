"""One comparison of tables, in progress: who reads what, by which way, and the result of each table."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pymysql.constants import ER

from binlake import names
from binlake.config import PipelineConfig
from binlake.delta import opened_tables
from binlake.errors import (
    OF_CODE,
    TAKEN_REMEDY,
    UNREADABLE_REMEDY,
    LakeError,
    SourceError,
    repair_command,
    snapshot_command,
    unexpected,
)  # fmt: skip
from binlake.kernels.cores import available_cores
from binlake.position import Position
from binlake.records.step_progress import shown_progress
from binlake.report import ProgressCallback, Report
from binlake.schema.table import TableName
from binlake.source.catalog import SourceTable
from binlake.source.server import Source, error_code
from binlake.spark import settings
from binlake.spark.starting import SessionFactory
from binlake.store.rows import WatermarkRow
from binlake.verify.cluster.executor_plan import PlannedReads
from binlake.verify.pace import Budget
from binlake.verify.reading.beyond_snapshot import LOST_BEYOND
from binlake.verify.reading.by_read import ByRead
from binlake.verify.reading.chosen_chunks import Choice, ChosenChunks
from binlake.verify.reading.known_chunks import ChunkNotes, KnownChunks
from binlake.verify.reading.lake_rows import Unreadable
from binlake.verify.repair.repair import Repairs
from binlake.verify.result import TableResult
from binlake.verify.server_load import ServerLoad
from binlake.verify.verify_progress import ComparisonProgress
from binlake.verify.views import ReadViews

if TYPE_CHECKING:
    from binlake.verify.cluster.by_executors import ByExecutors
    from binlake.verify.hashing.by_hash import ByHash

_ALTERED = {ER.TABLE_DEF_CHANGED, ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR}
_AGAIN = "run verify again"
_BY_HASH = "run verify --by hash"
_SAID_EVERY = 1.0
"""Seconds between two reports of progress."""


@dataclass
class TableComparison:
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

    def __enter__(self) -> TableComparison:
        return self

    def __exit__(self, *raised: object) -> None:
        self._by_read.close()
        self.load.close()
        if self._by_read.notes:
            self._by_read.notes.write()

    def note_chunks(self, notes: ChunkNotes) -> None:
        """Note what is compared from here on."""
        self._by_read.notes = notes

    def _reads(self, table: SourceTable) -> bool:
        """Return whether a table is read: also where others are hashed, if columns are masked, as the server's SQL has
        no masks, and if snapshots leave rows out, as hashes don't show which rows the lake has beyond these."""
        return self.config.verify.by == "read" or bool(table.schema.masks or table.schema.snapshot_where)

    def _way(self, table: SourceTable) -> ByRead | ByHash:
        return self._by_read if self._reads(table) else self._hashing("the YAML says verify.by: hash")

    def _hashing(self, why: str) -> ByHash:
        """Return the comparison by hashes, which needs Spark."""
        from binlake.verify.hashing.by_hash import ByHash

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

    def read_locked(self, view: Source, tables: Mapping[TableName, SourceTable]) -> None:
        """Read tables whose engine has no read views: they stay unchanged only while they are locked."""
        for table in tables.values():
            self._way(table).read_locked(view, table)

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
            if self._reads(table):
                self._parts[name] = self._by_read.begin(table, views, chosen.get(name))
            else:
                self._parts[name] = self._way(table).begin(table, views)
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
        marks: Mapping[TableName, WatermarkRow],
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
        return [future.result().masked(self.config.masked_on_page(name)) for name, future in futures.items()]

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

    def _compare(self, table: SourceTable, views: ReadViews, mark: WatermarkRow) -> TableResult:
        blank = TableResult(table.name, "failed", batch=mark.batch)
        if table.unreadable:
            return replace(blank, reason=table.unreadable, remedy=table.remedy)
        version, recorded = self.versions[table.name], mark.delta_version
        if version is None or recorded is None or version >= recorded:
            return self._compare_at(table, views, blank, version)
        if table.schema.snapshot_where:
            why = f"{LOST_BEYOND}: its Delta log went back, to version {version} from {recorded}"
            return replace(blank, reason=why, remedy=snapshot_command(table.name))
        if self.repairs:
            self.repairs.note_lost(table.name, version)
        result = self._compare_at(table, views, blank, version)
        if result.state != "compared":
            return result
        why = f"its Delta log went back, to version {version} from {recorded}, as commits are lost"
        return replace(result, equal=False, reason="; ".join(filter(None, [why, result.reason])))

    def _compare_at(self, table: SourceTable, views: ReadViews, blank: TableResult, version: int | None) -> TableResult:
        try:
            try:
                return self._noted(self._way(table).compare(table, views, blank, version))
            except Unreadable as reason:
                if table.schema.masks or table.schema.snapshot_where:
                    what = "masked columns aren't" if table.schema.masks else "tables with snapshot_where aren't"
                    unread = f"it can't be compared by reading: {reason}, and {what} hashed"
                    return replace(blank, reason=unread, remedy=UNREADABLE_REMEDY)
                if not table.has_read_views:
                    return replace(blank, reason=f"it can't be compared by reading: {reason}", remedy=_BY_HASH)
                self.report.say(f"{table.name} is hashed instead of read: {reason}")
                hashing = self._hashing(f"{table.name}: {reason}")
                hashing.begin_late(table, views)
                return self._noted(hashing.compare(table, views, blank, version))
        except SourceError as error:
            if error_code(error) not in _ALTERED:
                raise
            return replace(blank, reason="its shape changed during the read", remedy=_AGAIN)
        except (DeltaError, LakeError, OSError, pa.ArrowException) as error:
            text = error.message if isinstance(error, LakeError) else _first_line(error)
            self._by_read.note_unreadable(table.name, text)
            why, remedy = f"its Delta table can't be read: {text}", repair_command(table.name)
            if table.schema.snapshot_where:
                why, remedy = f"{why}; {LOST_BEYOND}", snapshot_command(table.name)
            return replace(blank, reason=why, remedy=remedy, is_unreadable=True)
        except OF_CODE as error:
            return replace(blank, reason=f"it can't be compared: {unexpected(error)}", remedy=UNREADABLE_REMEDY)

    def _noted(self, result: TableResult) -> TableResult:
        """Return a result, once nothing is noted as known equal of a table that differs in rows that aren't named."""
        if result.equal is False and not result.looked:  # its columns differ, or it was hashed
            self._by_read.note_unequal(result.name)
        return result


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def not_compared(
    name: TableName, mark: WatermarkRow | None, on_server: bool, position: Position, taken: str = ""
) -> TableResult | None:
    """Return the result of a table that can't be compared, with the reason; None if it can be. taken: why it can't be
    mirrored under its name; empty where it can."""
    result = None
    if mark is None or (mark.status == "dropped" and on_server):
        result = TableResult(name, "missing", reason="included, but never snapshotted", remedy=snapshot_command(name))
    elif mark.status != "following":
        result = TableResult(name, mark.status, batch=mark.batch, reason=mark.reason or "", remedy=mark.remedy or "")
    if taken and result and result.state in ("missing", "resnapshot"):
        result = replace(result, reason=taken, remedy=TAKEN_REMEDY)  # a snapshot would be refused
    if mark is None or result is not None:
        return result
    failed = TableResult(name, "failed", batch=mark.batch)
    if not on_server:
        # information_schema hides what an account may not read, as if it weren't there.
        reason = "the account sees no such table on the server: it was dropped just now, or SELECT is missing"
        grant = f"GRANT SELECT ON {names.grant_quote(name.database)}.* to the account"
        return replace(
            failed, reason=reason, remedy=f"if it was dropped, run binlake sync, then verify again; else {grant}"
        )
    reached = Position.parse(mark.position)
    if reached.server != position.server or reached.order != position.order:
        reason = f"the lake is at {reached.short}, the server was read at {position.short}"
        return replace(failed, reason=reason, remedy=_AGAIN)
    return None
