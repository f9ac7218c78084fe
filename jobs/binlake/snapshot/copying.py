"""Copying one chunk into data files: by a Spark task (spark_copies.py), or by this process (process_copies.py)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pymysql

from binlake.delta import plain_files
from binlake.errors import BinlakeError, ConnectionFailed, LakeError, TableError
from binlake.faults import fault
from binlake.schema.invalid import InvalidValues
from binlake.schema.table import TableName
from binlake.snapshot.attempts import Copied
from binlake.snapshot.chunks import Chunk, Records, TableSnapshot
from binlake.snapshot.direct import SqlError, ViewsOpened
from binlake.snapshot.jdbc import ChunkQuery
from binlake.source import authentication, error_numbers
from binlake.source.connection import translate
from binlake.source.endpoint import Endpoint
from binlake.source.locks import CreatedOf
from binlake.source.read_lock import MOST_SECONDS, PATIENCE
from binlake.source.server import Source

if TYPE_CHECKING:
    from binlake.spark.session import OwnSessions

Selected = Callable[..., Any]
"""A function that returns a chunk's selected columns, or raises why they can't be read: as a frame of the Spark session
that it is given; where this process copies, as lists of Arrow arrays."""


class ChunkFailed(BinlakeError):
    """The Spark task that copied a chunk was lost or failed; a later wave copies the chunk, at its own position."""

    retryable = True


class TableChanged(Exception):
    """DDL changed tables of the wave, so that the planned chunks don't fit."""

    def __init__(self, tables: Sequence[TableSnapshot]) -> None:
        super().__init__(", ".join(f"{table.name}" for table in tables))
        self.tables = list(tables)


class TableRefused(Exception):
    """A table's rows can't be read or may not be mirrored: it stops, the others continue."""

    def __init__(self, table: TableSnapshot, error: TableError) -> None:
        super().__init__(str(error))
        self.table = table
        self.error = error


@dataclass(frozen=True)
class Member:
    """One chunk of a wave."""

    table: TableSnapshot
    chunk: Chunk

    def __str__(self) -> str:
        return f"{self.table.name}, chunk {self.chunk.number}"


@dataclass(frozen=True)
class Copying:
    """The settings that all waves of a snapshot share.

    sessions: returns Spark sessions with binlake's SQL functions; called where Spark copies. source: the control
    connection. created: returns a binlog file's creation time, see Position. invalid: the YAML's policies. watch:
    called now and then with the bytes that the running wave has written. reader: the YAML's ``snapshot.reader``.
    in_process: whether this process copies what it can. max_writes_stopped, lock_patience: see
    ``binlake.source.read_lock``, in seconds. say: is called with a text while this waits.
    """

    sessions: Callable[[], OwnSessions]
    endpoint: Endpoint
    source: Source
    records: Records
    created: CreatedOf
    invalid: InvalidValues
    watch: Callable[[int], None]
    reader: Literal["jdbc", "direct"] = "jdbc"
    in_process: bool = False
    max_writes_stopped: float = MOST_SECONDS
    lock_patience: float = PATIENCE
    say: Callable[[str], None] = lambda text: None

    def reads_directly(self, *, in_driver: bool) -> bool:
        """Return whether Spark's tasks read the rows without JDBC, for which a tunnel is there in the driver alone."""
        return self.reader == "direct" or (self.endpoint.tunnel is not None and not in_driver)

    def is_in_process(self, table: TableSnapshot) -> bool:
        """Return whether this process copies a table."""
        return self.in_process and plain_files.can_hold(self.records.columns(table))


class ChunkCopy(ABC):
    """An attempt to copy a chunk to data files in a folder of their own. Its methods run in a thread of its own."""

    def __init__(self, copying: Copying, member: Member, opened: Callable[[], ViewsOpened]) -> None:
        """opened: waits until the wave's views are open and their position is known. Raises CancelledError where the
        wave failed before."""
        self._copying = copying
        self._member = member
        self._opened = opened
        self._attempts = copying.records.attempts(member.table)
        self._attempt = self._attempts.new()
        self.folder = self._attempts.data_folder(self._attempt)

    @property
    def name(self) -> TableName:
        """Return the table's name."""
        return self._member.table.name

    @abstractmethod
    def run(self, query: ChunkQuery) -> Chunk:
        """Copy the chunk and return it with its rows and bytes. Raises one of binlake's errors, without row values."""

    @abstractmethod
    def run_few(self, selected: Selected) -> Chunk:
        """Do the same as ``run`` for few rows, which are written by this process."""

    @abstractmethod
    def cancel(self) -> None:
        """Make a copy that runs fail soon. Called by another thread, until the copy has ended."""

    @abstractmethod
    def _translated(self, error: Exception) -> Exception:
        """Return an error of the copy as one of binlake's."""

    def _noted(self, copy: Callable[[], Copied]) -> Chunk:
        """Copy, and note the attempt before and after it."""
        self._attempts.begin(self._attempt)
        try:
            copied = copy()
            if self._member.table.schema.row_metadata:
                copied = replace(copied, opened_us=self._opened().at_us)
        except Exception as error:
            with suppress(LakeError):  # its leftovers are found again
                self._attempts.discard(self._attempt)
            raise self._translated(error) from None
        fault("chunk copied")
        self._attempts.done(self._attempt, copied)
        return replace(self._member.chunk, attempt=self._attempt, rows=copied.rows, bytes=copied.bytes)


def server_failure(copying: Copying, member: Member, place: str, error: SqlError, unreached: str) -> Exception:
    """Return the error of binlake's tree for the server's, repeating only the server's own message.

    place: which chunk, and where it was copied. unreached: what to do where the server didn't answer.
    """
    if error.code in error_numbers.SHAPE_CHANGED:
        return TableChanged([member.table])
    if error.code in error_numbers.UNREADABLE:
        remedy = "fix it on the server or exclude it, then run the snapshot again"
        return TableRefused(member.table, TableError(f"{place}: {error.text} (error {error.code})", remedy=remedy))
    if error.code:
        server_error = translate(pymysql.err.MySQLError(error.code, error.text), copying.endpoint)
        return type(server_error)(f"{place}: {server_error.message}", remedy=server_error.remedy)
    if not copying.endpoint.sends_password and "authentication plugin" in error.text:
        return authentication.withheld(copying.endpoint.address, authentication.CACHED)
    return ConnectionFailed(f"{place}: {copying.endpoint.address}: {error.text}", remedy=unreached)
