"""Verify: compare every value of the lake with the server.

Read views at one position are opened under a short lock. On them the server computes hashes of every table's chunks,
while the lake is brought to the same position. Then Spark computes the same hashes, and differing chunks are compared
row by row.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

from deltalake.exceptions import DeltaError
from pymysql.constants import ER
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from binlake import names
from binlake.config import PipelineConfig
from binlake.errors import UNMATCHED_REMEDY, SourceError, UsageError, snapshot_command
from binlake.metadata import watermarks
from binlake.metadata.metadata import Metadata, now_us
from binlake.position import Position
from binlake.report import ProgressCallback, Report
from binlake.schema.table import TableName, TableSchema
from binlake.source.catalog import MIRRORED, SourceTable, list_tables, read_tables
from binlake.source.connection import Endpoint
from binlake.source.server import Source, error_code
from binlake.spark import functions
from binlake.verify import differences, server_side
from binlake.verify.hashes import Chunks, TableHashes, chunk_count
from binlake.verify.lake_side import LakeSide
from binlake.verify.result import DifferingRow, TableResult, VerifyReport
from binlake.verify.verify_progress import ComparisonProgress
from binlake.verify.views import ReadViews

__all__ = ["DifferingRow", "TableResult", "VerifyReport", "verify"]

CatchUp = Callable[[Position], None]
"""A function that brings the lake to exactly a position."""

_ALTERED = {ER.TABLE_DEF_CHANGED, ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR}
_AGAIN = "run verify again"
_SAID_EVERY = 1.0
"""Seconds between two reports of progress."""


def verify(
    config: PipelineConfig,
    endpoint: Endpoint,
    session: SparkSession,
    metadata: Metadata,
    catch_up: CatchUp,
    *,
    tables: list[str] | None = None,
    report: Report | None = None,
) -> VerifyReport:
    """Compare every value of the included tables (those that ``tables`` matches, if given); note results in metadata.

    Raises UsageError if no table matches, SourceError if the server can't be read, and what ``catch_up`` raises.
    Differences are no errors.
    """
    began = time.monotonic()
    functions.register(session)
    chosen = _ChosenTables(config, metadata, tables)
    report = report or Report()
    with Source.open(endpoint) as source:
        before = chosen.on_server(source)
        workers = max(2, session.sparkContext.defaultParallelism)
        under_lock: dict[TableName, Chunks] = {}
        with ReadViews(
            endpoint,
            list(before),
            count=workers,
            under_lock=lambda view: under_lock.update(_without_views(view, before)),
        ) as views:
            report.say(f"reading the server at {views.position.short} (locked for {views.lock_ms} ms)")
            tables_now = {
                name: table for name, table in chosen.on_server(source).items() if _is_unchanged(table, before)
            }
            source.close()
            comparison = _Comparison(config, session, views, workers, report)
            hashed = comparison.hash_on_server(tables_now, under_lock)
            catch_up(views.position)
            marks = chosen.watermarks()
            results = comparison.compare_all(marks, hashed, tables_now, changed=before.keys() - tables_now.keys())
    verify_report = VerifyReport(
        uuid.uuid4().hex, views.position, views.lock_ms, time.monotonic() - began, tuple(results)
    )
    metadata.append("verifications", _rows(verify_report))
    return verify_report


def _is_unchanged(table: SourceTable, before: dict[TableName, SourceTable]) -> bool:
    return table.name in before and before[table.name].schema == table.schema


def _without_views(source: Source, tables: dict[TableName, SourceTable]) -> dict[TableName, Chunks]:
    """Return hashes of tables whose engine has no read views: they only stay unchanged under the lock."""
    return {
        name: server_side.aggregate(source, name, _hashes(table))
        for name, table in tables.items()
        if not table.has_read_views
    }


def _finished(chunks: Chunks) -> Future[Chunks]:
    future: Future[Chunks] = Future()
    future.set_result(chunks)
    return future


def _hashes(table: SourceTable) -> TableHashes:
    return TableHashes(table.schema, chunk_count(table.rows))


class _ChosenTables:
    """The tables to verify, as the server and the watermarks have them. patterns: the ones asked for, None for all."""

    def __init__(self, config: PipelineConfig, metadata: Metadata, patterns: list[str] | None) -> None:
        self._config = config
        self._metadata = metadata
        self._patterns = patterns

    def _is_chosen(self, name: TableName) -> bool:
        patterns = self._patterns
        return self._config.included(name) and (
            not patterns or any(names.matches(pattern, name.database, name.table) for pattern in patterns)
        )

    def on_server(self, source: Source) -> dict[TableName, SourceTable]:
        """Return the chosen tables that the server has and that aren't stopped. Raises UsageError if none matches."""
        listed = [table.name for table in list_tables(source) if table.kind in MIRRORED and self._is_chosen(table.name)]
        if not listed and not self.watermarks():
            raise UsageError(
                f"no included table matches {', '.join(self._patterns or self._config.tables.include)}",
                remedy=UNMATCHED_REMEDY,
            )
        # Stopped tables aren't compared: the server needn't hash them.
        marks = self.watermarks()
        wanted = [name for name in listed if marks.get(name, {}).get("status") != "stopped"]
        recorded = {
            life.name: life.schema for life in watermarks.read_lives(self._metadata) if life.status == "following"
        }

        def as_mirrored(name: TableName, schema: TableSchema) -> TableSchema:
            mirrored = self._config.excluding(name, schema)
            if (known := recorded.get(name)) is None:
                return mirrored
            return replace(mirrored, kept=known.kept, untold=known.untold)

        return read_tables(source, wanted, as_mirrored)

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
    session: SparkSession
    views: ReadViews
    workers: int
    report: Report
    began: float = field(default_factory=time.monotonic)

    def hash_on_server(
        self, tables: dict[TableName, SourceTable], known: dict[TableName, Chunks]
    ) -> dict[TableName, list[Future[Chunks]]]:
        """Start the server's hashing; return the futures of each table's parts. known: hashes computed before."""
        started = {name: [_finished(chunks)] for name, chunks in known.items() if name in tables}
        for name, table in tables.items():
            if name not in started:
                started[name] = [self._part(table, where) for where in self._cuts(table)]
        self.views.hashing.close_after([future for futures in started.values() for future in futures])
        return started

    def _cuts(self, table: SourceTable) -> list[str]:
        if table.rows < 2 * server_side.ROWS_PER_PART:
            return ["TRUE"]
        return self.views.hashing.submit(
            lambda source: server_side.parts(source, table.name, table.schema, table.rows)
        ).result()

    def _part(self, table: SourceTable, where: str) -> Future[Chunks]:
        hashes = _hashes(table)
        return self.views.hashing.submit(lambda source: server_side.aggregate(source, table.name, hashes, where))

    def compare_all(
        self,
        marks: dict[TableName, dict[str, Any]],
        hashed: dict[TableName, list[Future[Chunks]]],
        tables: dict[TableName, SourceTable],
        *,
        changed: set[TableName],
    ) -> list[TableResult]:
        everything = sorted(marks.keys() | tables.keys() | changed)

        def compare_table(name: TableName) -> TableResult:
            if name in changed:
                return TableResult(name, "failed", reason="its shape changed during the read", remedy=_AGAIN)
            result = not_compared(name, marks.get(name), name in tables, self.views.position)
            return result or self._compare(tables[name], hashed[name], marks[name])

        with ThreadPoolExecutor(self.workers) as side_by_side, self.report.progress("compared") as show:
            futures = {name: side_by_side.submit(compare_table, name) for name in everything}
            progress = ComparisonProgress(hashed, {name: table.rows for name, table in tables.items()}, self.began)
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
            if not left or any(future.exception() for future in ended):
                for future in left:
                    future.cancel()
                return ended

    def _compare(self, table: SourceTable, parts: list[Future[Chunks]], mark: dict[str, Any]) -> TableResult:
        blank = TableResult(table.name, "failed", batch=mark["batch"])
        try:
            source = differences.total(part.result() for part in parts)
            lake_table = LakeSide(self.session, self.config.table_path(table.name))
            blank = replace(blank, delta_version=lake_table.version)
            return self._compare_hashes(table, source, lake_table, blank)
        except SourceError as error:
            if error_code(error) not in _ALTERED:
                raise
            return replace(blank, reason="its shape changed during the read", remedy=_AGAIN)
        except (DeltaError, PySparkException, OSError) as error:
            lines = str(error).strip().splitlines()
            text = " … ".join(dict.fromkeys([lines[0], lines[-1]])) if lines else type(error).__name__
            remedy = f"{_AGAIN}; if that doesn't help, {snapshot_command(table.name)}"
            return replace(blank, reason=f"Spark can't read its Delta table: {text}", remedy=remedy)

    def _compare_hashes(
        self, table: SourceTable, source: Chunks, lake_table: LakeSide, blank: TableResult
    ) -> TableResult:
        """Compare the server's chunk hashes of a table with the lake's, then the rows of differing chunks."""
        if structure := lake_table.structure(table.schema):
            return replace(
                blank, state="compared", equal=False, source_rows=differences.rows(source), lake_rows=0,
                chunks=0, differing=0, reason=f"columns differ: {structure}", remedy=snapshot_command(table.name),
            )  # fmt: skip
        hashes = replace(_hashes(table), side=lake_table.side_columns(table.schema))
        lake = lake_table.aggregate(hashes)
        numbers = differences.differing(source, lake)
        result = replace(
            blank, state="compared", equal=not numbers, source_rows=differences.rows(source),
            lake_rows=differences.rows(lake), chunks=hashes.chunks, differing=len(numbers),
        )  # fmt: skip
        if not numbers:
            return result
        try:
            rows = self._differing_rows(table, hashes, differences.to_look_into(numbers, source, lake), lake_table)
        except SourceError as error:
            return replace(result, reason=f"which rows differ can't be told: {error.message}")
        later = "" if table.has_read_views else f"{table.engine} has no read views: these rows are as of now"
        return replace(result, rows=rows, reason=later)

    def _differing_rows(
        self, table: SourceTable, hashes: TableHashes, numbers: Sequence[int], lake_table: LakeSide
    ) -> tuple[DifferingRow, ...]:
        """Return the differing rows of the given chunks."""
        name = table.name
        ours = self.views.looking.submit(lambda source: server_side.keyed_hashes(source, name, hashes, numbers))
        theirs = lake_table.keyed_hashes(hashes, numbers)
        rows = differences.differing_rows(ours.result(), theirs, table.schema.key)
        changed = [key for key, row in rows.items() if row.kind == "changed"]
        if not changed:
            return tuple(rows.values())
        texts = self.views.looking.submit(
            lambda source: dict(server_side.values(source, name, hashes, numbers, changed))
        )
        columns = [column.name for column in table.schema.mirrored]
        return differences.name_columns(
            rows, columns, texts.result(), dict(lake_table.values(hashes, numbers, changed))
        )


def not_compared(
    name: TableName, mark: dict[str, Any] | None, on_server: bool, position: Position
) -> TableResult | None:
    """Return the result of a table that can't be compared, with the reason; None if it can be."""
    if mark is None or (mark["status"] == "dropped" and on_server):
        return TableResult(name, "missing", reason="included, but never snapshotted", remedy=snapshot_command(name))
    if mark["status"] != "following":
        return TableResult(
            name, mark["status"], batch=mark["batch"], reason=mark["reason"] or "", remedy=mark["remedy"] or ""
        )
    failed = TableResult(name, "failed", batch=mark["batch"])
    if not on_server:
        return replace(failed, reason="the lake follows it, but the server has no such table", remedy=_AGAIN)
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
        }
        for table in report.tables
    ]
