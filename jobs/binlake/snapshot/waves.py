"""Waves: chunks whose read views open at one position, and which are copied to data files in parallel.

A chunk of a large table has a connection of its own, in a Spark task or a thread of this process. The tables of few
rows are read by one connection, see few_rows.py. Either Spark or this process copies all chunks of a wave.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from binlake.errors import ConfigurationError
from binlake.faults import fault
from binlake.position import Position
from binlake.schema.lake_forms import in_form, lake_form
from binlake.schema.table import TableSchema
from binlake.schema.virtual import leaving_out
from binlake.schema.withheld_values import without_values
from binlake.snapshot import jdbc
from binlake.snapshot.chunks import Chunk
from binlake.snapshot.copying import (
    ChunkCopy,
    ChunkFailed,
    Copying,
    Member,
    Selected,
    TableChanged,
    TableRefused,
)
from binlake.snapshot.direct import ViewsOpened
from binlake.snapshot.few_rows import FewRows
from binlake.snapshot.process_copies import ProcessCopy, ProcessFewRows
from binlake.source.catalog import read_partitions, read_schemas
from binlake.source.giving_way import WaitingDdl
from binlake.source.locks import Busy, Gate, Gates, LockMode, head_position, position_before_views
from binlake.source.read_lock import read_lock
from binlake.source.server import Source
from binlake.store.metadata import now_us

__all__ = ["ChunkFailed", "Copying", "Member", "TableChanged", "TableRefused", "run_wave"]

_WATCH_SECONDS = 0.5
_LOOK_AGAIN = 0.2
"""Seconds between two checks whether cancelled jobs have ended."""
_WRITTEN_AT_ONCE = 4
"""How many tables of few rows are written at once; Spark's jobs wait for planning more than for cores."""


@dataclass(frozen=True)
class _Opened:
    """The lowest and highest position of a wave's read views, and the longest that a writer may have waited."""

    low: Position
    high: Position
    lock_ms: int


def run_wave(
    copying: Copying, wave: Sequence[Member], mode: LockMode, *, until_copied: bool, together: bool = False
) -> None:
    """Copy the chunks and record them as staged.

    until_copied: hold the lock until the chunks are copied; in mode ``tables`` for as long as that takes. together:
    read them by one connection; a table that turns out to have more than a few rows is left out. Raises TableChanged,
    TableRefused, LockBlocked, Busy, and ChunkFailed, SourceError or LakeError if a chunk failed; the other chunks are
    recorded all the same.
    """
    if together:
        _run_together(copying, wave, mode)
    else:
        _run_in_parallel(copying, wave, mode, until_copied)


def _run_in_parallel(copying: Copying, wave: Sequence[Member], mode: LockMode, until_copied: bool) -> None:
    began = time.monotonic()
    views: Future[ViewsOpened] = Future()
    copies = _copies(copying, wave, views.result)
    own = [Gate((member.table.name,)) for member in wave]
    with ThreadPoolExecutor(len(wave), thread_name_prefix="chunk") as pool:
        futures: list[Future[Chunk]] = []
        gates = Gates(copying.source, own, lambda: _raise_first(futures))
        try:
            for copy, member, gate in zip(copies, wave, own, strict=True):
                futures.append(pool.submit(copy.run, _query(copying, member, gate)))
            gates.wait_until_ready()
            opened = _open_views(copying, wave, gates, mode, views, futures if until_copied else [])
        except BaseException:
            views.cancel()
            gates.abort()
            _give_up(copies, futures)
            raise
        finally:
            if not until_copied:
                _wait(copying, copies, futures)
            gates.forget()
    _record(copying, wave, futures, opened, time.monotonic() - began)


def _copies(copying: Copying, members: Sequence[Member], opened: Callable[[], ViewsOpened]) -> list[ChunkCopy]:
    if all(copying.is_in_process(member.table) for member in members):
        return [ProcessCopy(copying, member, opened) for member in members]
    from binlake.snapshot.spark_copies import SparkCopy

    return [SparkCopy(copying, member, opened) for member in members]


def _few_rows(copying: Copying, wave: Sequence[Member]) -> FewRows:
    if copying.is_in_process(wave[0].table):
        return ProcessFewRows(copying, wave)
    from binlake.snapshot.spark_copies import SparkFewRows

    return SparkFewRows(copying, wave)


def _query(copying: Copying, member: Member, gate: Gate) -> jdbc.ChunkQuery:
    table, chunk, mariadb = member.table, member.chunk, copying.source.is_mariadb
    text = jdbc.chunk_query(table.name, table.schema, chunk.lower, chunk.upper)
    if table.partitions:
        text = jdbc.chunk_query(
            table.name, table.schema, chunk.lower, chunk.upper, partitions=chunk.partitions, unpruned=True
        )
    return jdbc.ChunkQuery(copying.endpoint, text, mariadb, gate.init_statements(mariadb=mariadb), gate.spent)


def _run_together(copying: Copying, wave: Sequence[Member], mode: LockMode) -> None:
    began = time.monotonic()
    reader = _few_rows(copying, wave)
    views: Future[ViewsOpened] = Future()
    with ThreadPoolExecutor(1, thread_name_prefix="few rows") as pool:
        reading: list[Future[list[Selected | None]]] = []
        gates = Gates(copying.source, [reader.gate], lambda: _raise_first(reading))
        try:
            reading.append(pool.submit(reader.run))
            gates.wait_until_ready()
            opened = _open_views(copying, wave, gates, mode, views, [])
        except BaseException:
            gates.abort()
            raise
        finally:
            reader.end()
            wait(reading)
            gates.forget()
    rows_by_table = reading[0].result()
    for member, selected in zip(wave, rows_by_table, strict=True):
        member.table.many_rows = selected is None
    few = [(member, selected) for member, selected in zip(wave, rows_by_table, strict=True) if selected]
    copies = _copies(copying, [member for member, _ in few], views.result)
    with ThreadPoolExecutor(_WRITTEN_AT_ONCE, thread_name_prefix="chunk") as pool:
        futures = [pool.submit(copy.run_few, selected) for copy, (_, selected) in zip(copies, few, strict=True)]
        _wait(copying, copies, futures)
    _record(copying, [member for member, _ in few], futures, opened, (time.monotonic() - began) / len(wave))


def _record(
    copying: Copying, wave: Sequence[Member], futures: Sequence[Future[Chunk]], opened: _Opened, seconds: float
) -> None:
    """Record the chunks that were copied as staged. seconds: the time that each table took."""
    for member, future in zip(wave, futures, strict=True):
        if not future.exception():
            low, high, lock_ms = opened.low, opened.high, opened.lock_ms
            member.table.put(replace(future.result(), low=low, high=high, lock_ms=lock_ms))
    tables = list({id(member.table): member.table for member in wave}.values())
    for table in tables:
        table.seconds += seconds
    copying.records.save(*tables)
    fault("chunks written")
    _raise_first(futures)


def _raise_first(futures: Sequence[Future[Any]]) -> None:
    for future in futures:
        if future.done() and (error := future.exception()):
            raise error


def _open_views(
    copying: Copying,
    wave: Sequence[Member],
    gates: Gates,
    mode: LockMode,
    views: Future[ViewsOpened],
    copied: Sequence[Future[Chunk]],
) -> _Opened:
    """Open the views and return their positions. views: gets the position and the time, for which copies may wait.
    copied: awaited while the lock is held."""
    source = copying.source
    if mode == "none":
        low = position_before_views(source, copying.created, copying.say)
        gates.open()
        _check_shapes(source, wave)
        views.set_result(ViewsOpened(low, now_us()))
        return _Opened(low, head_position(source, copying.created), 0)
    # The file's timestamp is read beforehand, and again afterwards: under the lock it would cost a connection.
    file = source.head()[0]
    known = {file: copying.created(file)}
    with read_lock(
        source,
        mode,
        sorted({member.table.name for member in wave}),
        limit=copying.max_writes_stopped,
        patience=copying.lock_patience,
        without_limit=bool(copied) and mode == "tables",
        say=copying.say,
    ) as held:
        fault("lock taken")
        gates.open(copying.max_writes_stopped)
        _check_shapes(source, wave)
        position = head_position(source, lambda name: known.get(name) or copying.created(name))
        views.set_result(ViewsOpened(position, now_us()))
        if copied:
            held.keep_alive_during(lambda: wait(copied))
    if copying.created(position.file) != position.created:
        raise Busy("the log was reset while the snapshot read its position", remedy="run again")
    return _Opened(position, position, round(held.ms))


def _check_shapes(source: Source, wave: Sequence[Member]) -> None:
    """Raise TableChanged if a table's columns aren't those planned, or the partitions by which it is cut; take their
    comments, which may be others by now.

    The open views hold metadata locks: what is read here stays valid until the chunks are copied.
    """
    tables = {member.table.name: member.table for member in wave}
    current = read_schemas(source, tables)
    cut = [name for name, table in tables.items() if any(chunk.partitions for chunk in table.chunks)]
    partitions = read_partitions(source, cut) if cut else {}
    changed = [
        table
        for name, table in tables.items()
        if not _is_same(current.get(name), table.schema)
        or (name in cut and tuple(partition.name for partition in partitions.get(name, ())) != table.partitions)
    ]
    if changed:
        raise TableChanged(changed)
    for name, table in tables.items():
        table.schema = table.schema.commented_as(current[name])


def _is_same(current: TableSchema | None, planned: TableSchema) -> bool:
    if current is None:
        return False
    try:
        current = in_form(current, lake_form(planned))
    except ConfigurationError:  # a column can't have its name or type in the lake any more
        return False
    if current.key != planned.key:
        return False
    masked = (column.served_name.lower() for column in planned.columns if column.mask is not None)
    current = without_values(current, planned.excluded.union(masked))
    # The parts of excluded columns that aren't kept aren't compared.
    read = current.excluding(planned.excluded).excluding(frozenset()).masking(planned.masks)
    if read != leaving_out(planned.excluding(frozenset())):
        return False
    # Both are the catalog's, so that expressions are written alike.
    return [c.virtual and c.virtual.expression for c in current.columns] == [
        c.virtual and c.virtual.expression for c in planned.columns
    ]


def _wait(copying: Copying, copies: Sequence[ChunkCopy], futures: Sequence[Future[Chunk]]) -> None:
    """Wait until copies have ended. Raises Busy where DDL waits for one of their tables."""
    try:
        with WaitingDdl(copying.source, [copy.name for copy in copies], copying.max_writes_stopped) as ddl:
            while wait(futures, _WATCH_SECONDS).not_done:
                copying.watch(sum(_written(copy.folder) for copy in copies))
                if waiting := ddl.longest():
                    raise Busy(
                        f"the copy gives way to {waiting}, which waits for its table",
                        remedy="run the snapshot again when that statement is done",
                    )
    except BaseException:
        _give_up(copies, futures)
        raise


def _give_up(copies: Sequence[ChunkCopy], futures: Sequence[Future[Chunk]]) -> None:
    """Cancel the wave's copies until all have ended; repeated, as one may be about to begin."""
    while True:
        for copy in copies:
            copy.cancel()
        if not wait(futures, _LOOK_AGAIN).not_done:
            return


def _written(folder: str) -> int:
    """Return the bytes that the running copy has written; 0 unless the lake is a local folder."""
    written = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # renamed just now
                written += os.path.getsize(os.path.join(path, name))
    return written
