"""Reading the source without JDBC: the server's text protocol to Arrow, and on to data files, in any process.

It sends the same queries as ``jdbc``, in sessions with the same settings.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.constants import CLIENT

from binlake.delta import plain_files
from binlake.errors import BinlakeError
from binlake.merge.position_texts import boundary_text
from binlake.position import Position
from binlake.schema.hash_key import HashKey
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import BATCH, COMMITTED, COPIED, POSITION, own_columns
from binlake.schema.table import TableSchema
from binlake.serialization import dumps, loads
from binlake.snapshot import jdbc, resultset
from binlake.snapshot.attempts import Copied
from binlake.snapshot.jdbc import ChunkQuery
from binlake.snapshot.restore_arrow import Restored
from binlake.source import error_numbers
from binlake.source.connection import connect
from binlake.source.endpoint import Endpoint

_REFUSAL = re.compile(r"binlake server error (\{.*\})")

SEEN_SECONDS = 60
"""How long a connection that has read all rows waits for the driver to see its read view."""


@dataclass(frozen=True)
class SqlError:
    """An error that a reader got from the server. code: the server's error number, 0 if it didn't answer."""

    code: int
    text: str


def task_error(error: SqlError) -> RuntimeError:
    """Return what a task of Spark's raises for the server's error: it passes on only text."""
    return RuntimeError(f"binlake server error {dumps(error)}")


def sql_error(message: str) -> SqlError | None:
    """Return the server's error from the message of a task's exception, None if it has none."""
    match = _REFUSAL.search(message)
    return loads(SqlError, match[1]) if match else None


class ServerFailed(Exception):
    """The server refused a query, or its connection broke."""

    def __init__(self, error: SqlError) -> None:
        super().__init__(error)
        self.error = error


@contextmanager
def session_with(endpoint: Endpoint, *, mariadb: bool) -> Iterator[Any]:
    """Connect, in a session with the settings of ``jdbc``."""
    connection: Any = connect(endpoint, read_timeout=jdbc.STALLED, client_flag=CLIENT.MULTI_STATEMENTS)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET " + ", ".join(f"SESSION {variable}" for variable in jdbc.session_variables(mariadb)))
        yield connection
    finally:
        connection._force_close()


@contextmanager
def server_errors() -> Iterator[None]:
    """Raise ServerFailed for what a connection raises."""
    try:
        yield
    except resultset.Refused as error:
        raise _failed(error.code, error.text) from None
    except BinlakeError as error:  # of the connection
        raise _failed(0, error.message) from None
    except (resultset.Truncated, OSError) as error:
        raise _failed(0, str(error)) from None
    except pymysql.err.MySQLError as error:
        code = error_numbers.number_of(error)
        raise _failed(code, str(error.args[-1] if error.args else error)) from None


def _failed(code: int, text: str) -> ServerFailed:
    return ServerFailed(SqlError(code, text.partition("\n")[0]))


class QueriedRows:
    """The rows of one query, by a connection of its own, which another thread may break."""

    def __init__(self, query: ChunkQuery) -> None:
        self._query = query
        self._connection: Any = None

    def columns(self, count: int) -> Generator[list[pa.BinaryArray]]:
        """Yield the rows as ``resultset.columns`` does. count: number of the query's columns. Raises ServerFailed."""
        with server_errors(), session_with(self._query.endpoint, mariadb=self._query.mariadb) as connection:
            self._connection = connection
            if self._query.init_statements:
                with connection.cursor() as cursor:
                    cursor.execute(self._query.init_statements)
                    while cursor.nextset():
                        pass
            yield from resultset.answer(connection, self._query.text, count)
            wait_until_seen(connection, self._query.seen)

    def cancel(self) -> None:
        """End the connection, if it is made by now: a thread that waits for its rows fails at once."""
        stream = getattr(self._connection, "_sock", None)
        if stream is not None:
            with suppress(OSError):  # it is closed
                # Not TLS's own shutdown, which takes the state away that the reader's thread is using.
                socket.socket.shutdown(stream, socket.SHUT_RDWR)


def wait_until_seen(connection: Any, lock: str) -> None:
    """Keep the connection open until the driver has seen its read view: few rows are read sooner than it looks."""
    deadline = time.monotonic() + SEEN_SECONDS
    with connection.cursor() as cursor:
        while lock and time.monotonic() < deadline:
            cursor.execute("SELECT IS_FREE_LOCK(%s)", [lock])
            if not cursor.fetchone()[0]:
                return
            time.sleep(0.01)


@dataclass(frozen=True)
class DataFiles:
    """The place and form in which a chunk's rows are written. invalid: the YAML's policies. keys: of hashes, for
    another process."""

    table_path: str
    folder: str
    schema: TableSchema
    invalid: InvalidValues
    rows_per_file: int
    keys: tuple[HashKey, ...] = ()


@dataclass(frozen=True)
class ViewsOpened:
    """The position and time at which a wave's read views were opened. position: the chunks' ``low``. at_us:
    microseconds since 1970."""

    position: Position
    at_us: int

    @property
    def row_metadata(self) -> dict[str, int | str]:
        """Return the values of the columns that record what wrote the rows, by name."""
        return {BATCH: 0, COMMITTED: self.at_us, POSITION: boundary_text(*self.position.order)}


def copied(
    rows: Iterable[list[pa.BinaryArray]], target: DataFiles, opened: Callable[[], ViewsOpened] | None = None
) -> Copied:
    """Write rows, as ``resultset.columns`` yields them, to data files. Raises NoText, NoValue, LakeError, OSError.

    opened: waits until the position of the rows' view is known, for columns that have it; without it these have NULL.
    """
    restored = Restored(target.schema, target.invalid)
    own = own_columns(target.schema)
    columns = pa.schema([*restored.arrow, *(pa.field(column.name, column.arrow) for column in own)])
    schema = plain_files.numbered_as_new(columns)

    def with_own() -> Iterator[pa.RecordBatch]:
        values: Mapping[str, Any] = COPIED
        for columns in rows:
            if opened is not None and values is COPIED:  # the first rows come before the position is read
                values = {**COPIED, **opened().row_metadata}
            yield _with_marks(restored.batch(columns), schema, values)

    written = plain_files.write_batches(
        target.table_path, target.folder, schema, with_own(), rows_per_file=target.rows_per_file
    )
    return Copied(written, dict(restored.dates), has_row_metadata=opened is not None)


def _with_marks(rows: pa.RecordBatch, schema: pa.Schema, values: Mapping[str, Any]) -> pa.RecordBatch:
    """Return rows that the server has, with the mirror's own columns behind the others."""
    own = [*schema][rows.num_columns :]
    marks = [pa.repeat(pa.scalar(values[field.name], field.type), rows.num_rows) for field in own]
    return pa.RecordBatch.from_arrays([*rows.columns, *marks], schema=schema)
