"""Verify: compare every value of the lake with the server.

Read views at one position are opened under a short lock. On them every table is read from the server, or hashed there,
while the lake is brought to the same position. Then the lake's rows are read and compared (by_read.py, by_hash.py).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from binlake.config import PipelineConfig
from binlake.lease import lease
from binlake.moment import moment_text
from binlake.position import Position
from binlake.records.record import OtherRun, note_run
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.source.catalog import SourceTable
from binlake.source.endpoint import Endpoint
from binlake.source.giving_way import WaitingDdl
from binlake.source.read_replica import ReadPlace, own_place
from binlake.source.server import Source
from binlake.spark.starting import SessionAsked, SessionFactory
from binlake.store.metadata import Metadata, now_us
from binlake.store.run_rows import VerificationRow
from binlake.verify import unfinished
from binlake.verify.beside_check import BesideCheck, BesideTable, tables_beside
from binlake.verify.chosen_tables import ChosenTables
from binlake.verify.cluster.by_executors import ByExecutors
from binlake.verify.pace import Budget
from binlake.verify.reading.chosen_chunks import Choice, ChosenChunks, known_chunks, still_known
from binlake.verify.reading.known_chunks import ChunkNotes
from binlake.verify.repair.repair import Repairs
from binlake.verify.result import SHOWN, DifferingRow, TableResult, VerifyReport
from binlake.verify.server_load import ServerLoad
from binlake.verify.table_comparison import TableComparison
from binlake.verify.views import LockBounds, LockedTables, ReadViews

__all__ = ["DifferingRow", "TableResult", "VerifyReport", "verify"]

CatchUp = Callable[[Position], object]
"""A function that brings the lake to exactly a position."""


@dataclass(frozen=True)
class VerifyScope:
    """The tables and chunks that a verification compares.

    tables: patterns, None for all included tables. changed: only chunks that may have changed since they were compared,
    and a share of the others. seconds: no further part begins once so many have passed. repairs: puts right what
    differs; it needs tables that are compared by reading. run: the caller's id of the run. place: reads the server's
    position in the log that the lake follows, of which the server may be a replica.
    """

    tables: list[str] | None = None
    changed: bool = False
    seconds: float | None = None
    repairs: Repairs | None = None
    run: str | None = None
    place: ReadPlace = own_place


EVERYTHING = VerifyScope()


def verify(
    config: PipelineConfig,
    endpoint: Endpoint,
    session: SessionFactory,
    metadata: Metadata,
    catch_up: CatchUp,
    go_on: Callable[[], None] = lambda: None,
    scope: VerifyScope = EVERYTHING,
    report: Report | None = None,
) -> VerifyReport:
    """Compare every value of the included tables with the server; note results in metadata.

    Nothing but ``catch_up`` may write the lake from here until ``go_on`` is called. Chunks that an unfinished
    verification has compared aren't compared again, unless they may have changed since. Raises UsageError if no table
    matches, SourceError if the server can't be read, and what ``catch_up`` and the scope's place raise. Differences are
    no errors.
    """
    began, began_us, asked = time.monotonic(), now_us(), SessionAsked(session)
    repairs, report, budget = scope.repairs, report or Report(), Budget(scope.seconds)
    chosen = ChosenTables(config, metadata, scope.tables)
    load = ServerLoad(endpoint, config.verify.max_threads_running, budget, report.say)
    comparison = TableComparison(config, asked, report, budget, load, repairs)
    with Source.open(endpoint) as source, comparison:
        before = chosen.on_server(source)
        known = known_chunks(metadata, chosen.lives()) if config.verify.by == "read" else {}
        expected = partial(_expected, metadata, scope)
        executors = comparison.executors(source, chosen.following(before), known, expected)
        if source.is_mariadb:
            load.ddl = WaitingDdl(source, list(before), config.snapshot.max_writes_stopped)
        with _views(config, endpoint, comparison, before, executors, scope.place, report.say) as views:
            report.say(f"reading the server at {views.position.short} (writes waited for {views.lock_ms} ms at most)")
            after = chosen.on_server(source)
            tables_now = {name: table for name, table in after.items() if _is_unchanged(table, before)}
            source.close()
            fresh = {name: table for name, table in tables_now.items() if name not in known}
            comparison.begin(fresh, views, are_all=len(fresh) == len(tables_now))
            catch_up(views.position)
            marks, lives = chosen.watermarks(), chosen.lives()
            comparison.fix_versions(marks)
            check = BesideCheck(config, metadata, lease.read(metadata).batch, views.position)
            beside = tables_beside(config, metadata, chosen.lives_beside())
            left = {name: chunks for name, chunks in known_chunks(metadata, lives).items() if name in known}
            go_on()
            comparison.note_chunks(ChunkNotes(metadata, lives))
            choice = _choice(config, metadata, scope, report)
            chunks = choice.of(still_known(config, left, comparison.versions))
            _say_chosen(report, choice, chunks)
            if len(fresh) < len(tables_now):
                comparison.begin(tables_now, views, chunks, are_all=True)
            results = comparison.compare_all(marks, tables_now, views, before.keys() - tables_now.keys())
            if repairs:  # it still holds the lease, and brought its changes to these
                beside = tables_beside(config, metadata, chosen.lives_beside())
            results += _compared_beside(check, beside, budget, repairs)
    verify_report = VerifyReport(
        uuid.uuid4().hex, views.position, views.lock_ms, time.monotonic() - began, tuple(results), asked.why
    )
    if choice.since_us is not None and not verify_report.unfinished:
        unfinished.end(metadata, scope.tables)
    _note(metadata, verify_report, scope, began_us, with_keys=config.page.show_values)
    return verify_report


def _views(
    config: PipelineConfig,
    endpoint: Endpoint,
    comparison: TableComparison,
    tables: Mapping[TableName, SourceTable],
    executors: ByExecutors | None,
    place: ReadPlace,
    say: Callable[[str], None],
) -> ReadViews:
    """Open the read views in which tables are compared; those without read views are read under the lock."""
    without_views = {name: table for name, table in tables.items() if not table.has_read_views}
    sequences = {name: table for name, table in without_views.items() if table.schema.sequence}
    others = {name: table for name, table in without_views.items() if name not in sequences}
    return ReadViews(
        endpoint,
        list(tables),
        count=comparison.connections,
        under_lock=lambda view: comparison.read_locked(view, sequences),
        locked=LockedTables(list(others), lambda view: comparison.read_locked(view, others)),
        place=place,
        elsewhere=executors,
        bounds=LockBounds(config.snapshot.max_writes_stopped, say),
    )


def _compared_beside(
    check: BesideCheck, beside: Sequence[BesideTable], budget: Budget, repairs: Repairs | None
) -> list[TableResult]:
    """Return the results of tables beside mirrors, which are repaired if that is asked for."""
    results = []
    for table in beside:
        if not budget.allows():
            unfinished_check = replace(check.blank(table), state="unfinished", reason="the time was up")
            results.append(replace(unfinished_check, remedy="run it again"))
            continue
        result = check.result(table)
        if repairs and result.equal is not True and result.state != "catching up":
            result = _repaired_beside(check, table, result, repairs)
        results.append(result)
    return results


def _repaired_beside(check: BesideCheck, table: BesideTable, result: TableResult, repairs: Repairs) -> TableResult:
    """Repair a table beside a mirror, check it once more, and return the result as it was, with what was done."""
    repair = repairs.repair_beside(table, result, partial(check.why_wrong, table))
    if repair.state != "repaired":
        return replace(result, repair=repair)
    after = check.again(table)
    if after.equal:
        return replace(after, equal=False, reason=result.reason, repair=repair)
    return replace(after, repair=replace(repair, state="refused", reason=after.reason, remedy=after.remedy))


def _expected(metadata: Metadata, scope: VerifyScope) -> Choice | None:
    """Return what is known beforehand of what ``_choice`` returns; None where changes decide."""
    if scope.changed:
        return None
    since_us = None if scope.repairs else unfinished.begun(metadata, scope.tables)
    return Choice(since_us or now_us())


def _choice(config: PipelineConfig, metadata: Metadata, scope: VerifyScope, report: Report) -> Choice:
    """Return what is compared of tables of which something is known, and note that a verification begins."""
    if scope.changed:
        return Choice(None, config.verify.share_of_rows)
    if scope.repairs or config.verify.by != "read":
        return Choice(now_us())
    since_us = unfinished.begin(metadata, scope.tables)
    if since_us is None:
        return Choice(now_us())
    report.say(f"continuing with the verification that began on {moment_text(since_us)} and didn't come to its end")
    return Choice(since_us)


def _say_chosen(report: Report, choice: Choice, chosen: Mapping[TableName, ChosenChunks]) -> None:
    """Say how much isn't compared again, if anything isn't."""
    every = sum(chunks.known.cells.chunks for chunks in chosen.values())
    looked = sum(chunks.count for chunks in chosen.values())
    if looked < every:
        seen = f"; every chunk is read at least once in {choice.runs} runs" if choice.since_us is None else ""
        report.say(f"{every - looked:,} of {every:,} chunks are known equal and haven't changed since{seen}")


def _note(metadata: Metadata, report: VerifyReport, scope: VerifyScope, began_us: int, *, with_keys: bool) -> None:
    """Note results in metadata. with_keys: with the keys of differing rows."""
    VerificationRow.append(metadata, _rows(report, with_keys=with_keys))
    noted = OtherRun(
        kind="verify" if scope.repairs is None else "repair",
        run=scope.run,
        batch=max((table.batch for table in report.tables if table.batch is not None), default=0),
        position=report.position,  # each table's result is in verifications
        phase=("verify", round(report.seconds, 2)),
        message=report.headline,
        began_us=began_us,
        why_spark=report.why_spark,
    )
    note_run(metadata, noted)


def _is_unchanged(table: SourceTable, before: dict[TableName, SourceTable]) -> bool:
    return table.name in before and before[table.name].schema == table.schema


def _rows(report: VerifyReport, *, with_keys: bool) -> list[VerificationRow]:
    """Return a result of each table; behind that of one that was repaired, that of the comparison after the repair."""
    at_us = now_us()
    return [
        VerificationRow(
            verification=report.verification,
            at_us=at_us + number,
            **vars(table.name),
            batch=table.batch,
            position=str(report.position),
            delta_version=table.delta_version,
            source_rows=table.source_rows,
            lake_rows=table.lake_rows,
            chunks=table.chunks,
            differing=table.differing,
            equal=table.equal,
            looked_chunks=table.looked,
            looked_rows=table.looked_rows,
            seconds=report.seconds,
            differing_rows=table.differing_rows,
            rows=json.dumps([row.noted(with_key=with_keys) for row in table.rows[:SHOWN]], ensure_ascii=False),
        )
        for result in report.tables
        for number, table in enumerate(filter(None, (result, result.behind_repair)))
    ]
