"""Copying one chunk into data files, and translating the errors of the copy."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import pymysql
from pyspark.sql import DataFrame, SparkSession

from binlake.delta import plain_files
from binlake.delta.attempts import Copied
from binlake.errors import BinlakeError, ConnectionFailed, LakeError, SourceError, TableError
from binlake.faults import fault
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import mirror_columns
from binlake.snapshot import direct, jdbc, restore
from binlake.snapshot.chunks import Chunk, Records, TableSnapshot
from binlake.snapshot.direct import SqlError, sql_error, storage_error
from binlake.source import error_numbers
from binlake.source.connection import Endpoint, translate
from binlake.source.locks import SPENT, CreatedOf
from binlake.source.server import Source
from binlake.spark import data_files
from binlake.spark.session import OwnSessions
from binlake.storage import java_errors, storage_errors

Selected = Callable[[SparkSession], DataFrame]
"""A function that returns a chunk's selected columns as a frame of the given session."""


class ChunkFailed(BinlakeError):
    """The Spark task that copied a chunk was lost or failed; a later wave copies the chunk, at its own position."""

    retryable = True


class TableChanged(Exception):
    """DDL changed tables of the wave, so that the planned chunks don't fit."""

    def __init__(self, tables: Sequence[TableSnapshot]) -> None:
        super().__init__(", ".join(str(table.name) for table in tables))
        self.tables = list(tables)


class TableRefused(Exception):
    """A table's rows can't be read or may not be mirrored: it stops, the others go on."""

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
    """What all waves of a snapshot share.

    sessions: Spark sessions with binlake's SQL functions. source: the control connection. created: returns a binlog
    file's creation time, see Position. invalid: the YAML's policies. watch: called now and then with the bytes that
    the running wave has written. reader: the YAML's ``snapshot.reader``.
    """

    sessions: OwnSessions
    endpoint: Endpoint
    source: Source
    records: Records
    created: CreatedOf
    invalid: InvalidValues
    watch: Callable[[int], None]
    reader: Literal["jdbc", "direct"] = "jdbc"


class ChunkCopy:
    """An attempt to copy a chunk: a Spark job, and data files in a folder of their own."""

    def __init__(self, copying: Copying, member: Member) -> None:
        self._copying = copying
        self._member = member
        self._attempts = copying.records.attempts(member.table)
        self._attempt = self._attempts.new()
        self.folder = self._attempts.data_folder(self._attempt)
        self.group = f"binlake-{uuid.uuid4().hex[:12]}"

    def run(self, query: jdbc.ChunkQuery) -> Chunk:
        """Copy the chunk and return it with its rows and bytes. Runs in its own thread. Raises what ``translated``
        returns for an error."""
        return self._run(partial(self._copy_by_task, query))

    def run_few(self, selected: Selected) -> Chunk:
        """Do the same as ``run`` for few rows, which are written by this process."""
        return self._run(partial(self._copy_few, selected))

    def _run(self, copy: Callable[[SparkSession], Copied]) -> Chunk:
        table, chunk = self._member.table, self._member.chunk
        with self._copying.sessions.lend() as session:
            session.sparkContext.setJobGroup(self.group, f"snapshot of {table.name}, chunk {chunk.number}")
            self._attempts.begin(self._attempt)
            try:
                copied = copy(session)
            except Exception as error:
                with suppress(LakeError):  # what it left is found again
                    self._attempts.discard(self._attempt)
                raise translated(self._copying, self._member, self.folder, error) from None
            fault("chunk copied")
            self._attempts.done(self._attempt, copied)
        return replace(chunk, attempt=self._attempt, rows=copied.rows, bytes=copied.bytes)

    def _copy_by_task(self, query: jdbc.ChunkQuery, session: SparkSession) -> Copied:
        table, copying = self._member.table, self._copying
        own = copying.reader == "direct"
        if own and plain_files.can_hold(mirror_columns(table.schema, copying.invalid)):
            path, rows_per_file = self._attempts.table_path, table.rows_per_file
            target = direct.DataFiles(path, self._attempt, table.schema, copying.invalid, rows_per_file)
            return direct.copy(session, query, target)
        read = direct.read if own else jdbc.read
        return self._write_by_spark(session, self._restored(read(session, query)))

    def _copy_few(self, selected: Selected, session: SparkSession) -> Copied:
        """Write a few rows without a Spark job where the columns allow it: a job that writes takes many times as long
        as one that returns the rows."""
        schema, invalid = self._member.table.schema, self._copying.invalid
        rows, columns = self._restored(selected(session)), mirror_columns(schema, invalid)
        if not plain_files.can_hold(columns):
            return self._write_by_spark(session, rows)
        arrow = rows.toArrow()
        if [(field.name, field.type) for field in arrow.schema] != [(column.name, column.arrow) for column in columns]:
            return self._write_by_spark(session, rows)
        try:
            written = plain_files.write(self._attempts.table_path, self._attempt, arrow)
        except OSError as error:
            doing = f"copying {self._member.table.name}, chunk {self._member.chunk.number} to {self.folder} failed"
            raise storage_errors.failed(doing, error) from error
        return Copied(written, restore.invalid_dates(rows, schema, invalid))

    def _restored(self, selected: DataFrame) -> DataFrame:
        return restore.restored(selected, self._member.table.schema, self._copying.invalid)

    def _write_by_spark(self, session: SparkSession, rows: DataFrame) -> Copied:
        table, copying = self._member.table, self._copying
        written = data_files.write(
            session,
            self._attempts.table_path,
            self._attempt,
            copying.records.delta_schema(table),
            rows,
            rows_per_file=table.rows_per_file,
        )
        return Copied(written, restore.invalid_dates(rows, table.schema, copying.invalid))


def translated(copying: Copying, member: Member, folder: str, error: Exception) -> Exception:
    """Return Spark's error as one of binlake's, without row values: only the server's own message is repeated.

    folder: of the data files.
    """
    chain = java_errors.causes(error)
    if not chain:
        return error
    name, place = member.table.name, java_errors.place(chain)
    if refused := restore.refused_text(name, member.table.schema, storage_errors.messages(error)):
        return TableRefused(member.table, refused)
    place_of_error = f"{name}, chunk {member.chunk.number}" + (f", {place}" if place else "")
    sql = _sql_error_of(error)
    if java_errors.executor_lost(error) or (sql and sql.code == SPENT):
        return ChunkFailed(
            f"{place_of_error}: the executor that copied it was lost",
            remedy="see in Spark's and the cluster's logs why executors end (memory, preemption), then run again",
        )
    if sql and sql.code in error_numbers.SHAPE_CHANGED:
        return TableChanged([member.table])
    if sql and sql.code in error_numbers.UNREADABLE:
        remedy = "mend it on the server or exclude it, then run the snapshot again"
        return TableRefused(member.table, TableError(f"{place_of_error}: {sql.text} (error {sql.code})", remedy=remedy))
    if sql:
        return _server_failure(copying.endpoint, place_of_error, sql, java_errors.root_cause(chain))
    if cause := storage_error(storage_errors.messages(error)):
        return storage_errors.failed(f"copying {place_of_error} to {folder} failed", OSError(cause))
    if storage_errors.is_cause(error):
        return storage_errors.failed(f"copying {place_of_error} to {folder} failed", error)
    cause = java_errors.root_cause(chain)
    return ChunkFailed(f"{place_of_error}: {cause}", remedy=storage_errors.remedy_of(cause))


def _server_failure(endpoint: Endpoint, place_of_error: str, sql: SqlError, root: str) -> SourceError:
    if sql.code:
        server_error = translate(pymysql.err.MySQLError(sql.code, sql.text), endpoint)
        return type(server_error)(f"{place_of_error}: {server_error.message}", remedy=server_error.remedy)
    return ConnectionFailed(
        f"{place_of_error}: {endpoint.address}: {sql.text}" + ("" if sql.text in root else f": {root}"),
        remedy="check that the server runs and that Spark's executors reach it, then run again",
    )


def _sql_error_of(error: Exception) -> SqlError | None:
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None:
        if str(cause.getClass().getName()).startswith(("java.sql.", "com.mysql.cj.jdbc.exceptions.")):
            return SqlError(int(cause.getErrorCode()), str(cause.getMessage()).partition("\n")[0])
        if server_answer := sql_error(str(cause.getMessage())):
            return server_answer
        cause = cause.getCause()
    return None
