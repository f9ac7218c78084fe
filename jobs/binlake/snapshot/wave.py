"""A wave: chunks whose read views open at one position, and which are copied to data files side by side."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pymysql
from pyspark.sql import DataFrame, SparkSession

from binlake.errors import BinlakeError, ConnectionFailed, LakeError, SourceError, TableError
from binlake.faults import fault
from binlake.lake import data_files
from binlake.lake.session import OwnSessions
from binlake.position import Position
from binlake.schema.invalid import InvalidValues
from binlake.schema.table import TableSchema
from binlake.schema.virtual import leaving_out
from binlake.snapshot import jdbc, restore
from binlake.snapshot.chunks import Chunk, Records, TableSnapshot
from binlake.snapshot.direct import SqlError, sql_error
from binlake.source import error_numbers
from binlake.source.catalog import read_schemas
from binlake.source.connection import Endpoint, translate
from binlake.source.locks import (
    SPENT,
    Busy,
    CreatedOf,
    Gate,
    Gates,
    LockMode,
    head_position,
    position_before_views,
    read_lock,
)
from binlake.source.server import Source
from binlake.state import java_errors, storage_errors
from binlake.state.attempts import Copied

_WATCH_SECONDS = 0.5


class ChunkFailed(BinlakeError):
    """Spark lost or failed the task that copied a chunk; another wave copies it, at a position of its own."""

    retryable = True


class TableChanged(Exception):
    """DDL on tables of the wave: what was planned doesn't fit any more."""

    def __init__(self, tables: Sequence[TableSnapshot]) -> None:
        super().__init__(", ".join(str(table.name) for table in tables))
        self.tables = list(tables)


class TableRefused(Exception):
    """A table that stops while the others go on: its rows can't be read or aren't to be mirrored."""

    def __init__(self, table: TableSnapshot, error: TableError) -> None:
        super().__init__(str(error))
        self.table = table
        self.error = error


@dataclass(frozen=True)
class Member:
    """One chunk of a wave."""

    table: TableSnapshot
    chunk: Chunk


@dataclass(frozen=True)
class Copying:
    """What every wave of a snapshot works with.

    sessions: with our SQL functions. source: the control connection. created: of a binlog file, see Position. invalid:
    the YAML's policies. watch: told now and then how many bytes the running wave has written. read: see jdbc.read.
    """

    sessions: OwnSessions
    endpoint: Endpoint
    source: Source
    records: Records
    created: CreatedOf
    invalid: InvalidValues
    watch: Callable[[int], None]
    read: Callable[..., DataFrame] = jdbc.read


def run_wave(copying: Copying, wave: Sequence[Member], mode: LockMode, *, until_copied: bool) -> None:
    """Copy the chunks and record them as staged.

    until_copied: hold the lock until then. Raises TableChanged, TableRefused, Busy, and ChunkFailed, SourceError or
    LakeError when a chunk failed; the other chunks are recorded all the same.
    """
    began = time.monotonic()
    copies = [_Copy(copying, member) for member in wave]
    with ThreadPoolExecutor(len(wave), thread_name_prefix="chunk") as pool:
        futures: list[Future[Chunk]] = []
        gates = Gates(copying.source, [copy.gate for copy in copies], lambda: _raise_first(futures))
        try:
            futures.extend(pool.submit(copy.run) for copy in copies)
            gates.wait_until_ready()
            low, high, lock_ms = _open_views(copying, wave, gates, mode, futures if until_copied else [])
        except BaseException:
            gates.abort()
            for copy in copies:
                copying.sessions.context.cancelJobGroup(copy.group)
            wait(futures)
            raise
        finally:
            if not until_copied:
                _wait(copying, copies, futures)
            gates.forget()
    for member, future in zip(wave, futures, strict=True):
        if not future.exception():
            member.table.put(replace(future.result(), low=low, high=high, lock_ms=lock_ms))
    tables = list({id(member.table): member.table for member in wave}.values())
    for table in tables:
        table.seconds += time.monotonic() - began
    copying.records.save(*tables)
    fault("chunks written")
    _raise_first(futures)


def _raise_first(futures: Sequence[Future[Chunk]]) -> None:
    for future in futures:
        if future.done() and (error := future.exception()):
            raise error


def _open_views(
    copying: Copying, wave: Sequence[Member], gates: Gates, mode: LockMode, copied: Sequence[Future[Chunk]]
) -> tuple[Position, Position, int]:
    """Lowest and highest position of the views, and for how long writes were stopped (ms)."""
    source = copying.source
    if mode == "none":
        low = position_before_views(source, copying.created)
        gates.open()
        _check_shapes(source, wave)
        return low, head_position(source, copying.created), 0
    # The file's timestamp is read beforehand, and again afterwards: under the lock it would cost a connection.
    file = source.head()[0]
    known = {file: copying.created(file)}
    with read_lock(source, mode, sorted({member.table.name for member in wave})) as held:
        fault("lock taken")
        gates.open()
        _check_shapes(source, wave)
        position = head_position(source, lambda name: known.get(name) or copying.created(name))
        wait(copied)
    if copying.created(position.file) != position.created:
        raise Busy("the log was reset while the snapshot read its position", remedy="run again")
    return position, position, round(held.ms)


def _check_shapes(source: Source, wave: Sequence[Member]) -> None:
    """The tables' metadata locks are held by now: what is read here stays until the chunks are copied."""
    tables = {member.table.name: member.table for member in wave}
    found = read_schemas(source, tables)
    changed = [table for name, table in tables.items() if not _is_same(found.get(name), table.schema)]
    if changed:
        raise TableChanged(changed)


def _is_same(found: TableSchema | None, planned: TableSchema) -> bool:
    if found is None or found != leaving_out(planned.excluding(frozenset())):
        return False
    # Both are the catalog's, so that expressions are written alike.
    return [c.virtual and c.virtual.expression for c in found.columns] == [
        c.virtual and c.virtual.expression for c in planned.columns
    ]


def _wait(copying: Copying, copies: Sequence[_Copy], futures: Sequence[Future[Chunk]]) -> None:
    while wait(futures, _WATCH_SECONDS).not_done:
        copying.watch(sum(_written(copy.folder) for copy in copies))


def _written(folder: str) -> int:
    """Bytes that the running copy has written by now; only seen where the lake is a local folder."""
    written = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # renamed just now
                written += os.path.getsize(os.path.join(path, name))
    return written


class _Copy:
    """One chunk on its way: a connection, a frame with one partition, a Spark job, data files of an attempt."""

    def __init__(self, copying: Copying, member: Member) -> None:
        self._copying = copying
        self._member = member
        self._attempts = copying.records.attempts(member.table)
        self._attempt = self._attempts.new()
        self.gate = Gate(member.table.name)
        self.folder = self._attempts.data_folder(self._attempt)
        self.group = f"binlake-{uuid.uuid4().hex[:12]}"

    def run(self) -> Chunk:
        """Copies the chunk, in a thread of its own; returns it with its rows and bytes."""
        with self._copying.sessions.one() as session:
            return self._run(session)

    def _run(self, session: SparkSession) -> Chunk:
        table, chunk = self._member.table, self._member.chunk
        session.sparkContext.setJobGroup(self.group, f"snapshot of {table.name}, chunk {chunk.number}")
        self._attempts.begin(self._attempt)
        try:
            copied = self._copied(session)
        except Exception as error:
            with suppress(LakeError):  # what it left is found again
                self._attempts.discard(self._attempt)
            raise self._translated(error) from None
        fault("chunk copied")
        self._attempts.done(self._attempt, copied)
        return replace(chunk, attempt=self._attempt, rows=copied.rows, bytes=copied.bytes)

    def _copied(self, session: SparkSession) -> Copied:
        table, chunk, copying = self._member.table, self._member.chunk, self._copying
        mariadb = copying.source.is_mariadb
        selected = copying.read(
            session,
            copying.endpoint,
            jdbc.chunk_query(table.name, table.schema, chunk.lower, chunk.upper),
            mariadb=mariadb,
            init_statements=self.gate.init_statements(mariadb=mariadb),
        )
        rows = restore.restored(selected, table.schema, copying.invalid)
        written = data_files.write(
            session,
            self._attempts.table_path,
            self._attempt,
            copying.records.delta_schema(table),
            rows,
            rows_per_file=table.rows_per_file,
        )
        return Copied(written, restore.invalid_dates(rows, table.schema, copying.invalid))

    def _translated(self, error: Exception) -> Exception:
        """Spark's error in our tree, without rows: only what the server itself says is repeated as it is."""
        chain = java_errors.causes(error)
        if not chain:
            return error
        name, place = self._member.table.name, java_errors.place(chain)
        if refused := restore.refused_text(name, self._member.table.schema, storage_errors.messages(error)):
            return TableRefused(self._member.table, refused)
        told = f"{name}, chunk {self._member.chunk.number}" + (f", {place}" if place else "")
        sql = _sql_error(error)
        if java_errors.executor_lost(error) or (sql and sql.code == SPENT):
            return ChunkFailed(
                f"{told}: the executor that copied it was lost",
                remedy="see in Spark's and the cluster's logs why executors end (memory, preemption), then run again",
            )
        if sql and sql.code in error_numbers.SHAPE_CHANGED:
            return TableChanged([self._member.table])
        if sql and sql.code in error_numbers.UNREADABLE:
            remedy = "mend it on the server or exclude it, then run the snapshot again"
            return TableRefused(self._member.table, TableError(f"{told}: {sql.text} (error {sql.code})", remedy=remedy))
        if sql:
            return self._of_server(told, sql, java_errors.root_cause(chain))
        if storage_errors.is_cause(error):
            return storage_errors.failed(f"copying {told} to {self.folder} failed", error)
        return ChunkFailed(
            f"{told}: {java_errors.root_cause(chain)}", remedy="mend what the message names, then run again"
        )

    def _of_server(self, told: str, sql: SqlError, root: str) -> SourceError:
        endpoint = self._copying.endpoint
        if sql.code:
            found = translate(pymysql.err.MySQLError(sql.code, sql.text), endpoint)
            return type(found)(f"{told}: {found.message}", remedy=found.remedy)
        return ConnectionFailed(
            f"{told}: {endpoint.address}: {sql.text}" + ("" if sql.text in root else f": {root}"),
            remedy="check that the server runs and that Spark's executors reach it, then run again",
        )


def _sql_error(error: Exception) -> SqlError | None:
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None:
        if str(cause.getClass().getName()).startswith(("java.sql.", "com.mysql.cj.jdbc.exceptions.")):
            return SqlError(int(cause.getErrorCode()), str(cause.getMessage()).partition("\n")[0])
        if found := sql_error(str(cause.getMessage())):
            return found
        cause = cause.getCause()
    return None
