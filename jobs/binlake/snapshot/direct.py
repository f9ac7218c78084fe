"""Reading the source without JDBC: the server's text protocol to Arrow, inside Spark's tasks.

It sends the same queries as ``jdbc``, in sessions with the same settings. ``read`` returns frames with the same columns
and types; ``copy`` writes the rows to data files inside the task that reads them, which is five times as fast.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.constants import CLIENT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from binlake.delta import plain_files
from binlake.delta.attempts import Copied
from binlake.errors import BinlakeError, LakeError
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import COPIED, own_columns
from binlake.schema.table import TableSchema
from binlake.serialization import dumps, loads
from binlake.snapshot import jdbc, restore, resultset
from binlake.snapshot.jdbc import ChunkQuery
from binlake.snapshot.restore_arrow import NoText, NoValue, Restored
from binlake.source import error_numbers
from binlake.source.connection import connect
from binlake.storage import storage_errors

_REFUSAL = re.compile(r"binlake server error (\{.*\})")
_STORAGE = re.compile(r"binlake storage error (\{.*\})")
SEEN_SECONDS = 60
"""How long a connection that has read all rows waits for the driver to see its read view."""


@dataclass(frozen=True)
class SqlError:
    """An error that a task got from the server. code: the server's error number, 0 if it didn't answer."""

    code: int
    text: str


def read(session: SparkSession, query: ChunkQuery) -> DataFrame:
    """Return a frame of one partition, with the columns and types of ``jdbc.read``. It can be read once."""
    schema = jdbc.read(session, query).schema
    arrow = to_arrow_schema(schema)

    def read_there(nothing: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for columns in _rows(query, len(arrow)):
            try:
                yield resultset.as_batch(columns, arrow)
            except resultset.Truncated as error:
                raise _server_error(0, str(error)) from None

    return session.range(0, 1, 1, 1).mapInArrow(read_there, schema)


@dataclass(frozen=True)
class DataFiles:
    """Where and how a chunk's rows are written. invalid: the YAML's policies."""

    table_path: str
    folder: str
    schema: TableSchema
    invalid: InvalidValues
    rows_per_file: int


def copy(session: SparkSession, query: ChunkQuery, target: DataFiles) -> Copied:
    """Copy a chunk in one Spark task that reads the rows and writes them.

    Raises Spark's error if the task fails; its message is parsed by ``sql_error`` (the server's errors),
    ``storage_error`` (the storage's) and ``restore.refused_text`` (invalid text).
    """
    (copied,) = session.sparkContext.parallelize([(query, target)], 1).map(_copied).collect()
    assert isinstance(copied, Copied)
    return copied


def _copied(given: tuple[ChunkQuery, DataFiles]) -> Copied:
    query, target = given
    restored = Restored(target.schema, target.invalid)
    own = own_columns(target.schema)
    schema = pa.schema([*restored.arrow, *(pa.field(column.name, column.arrow) for column in own)])
    batches = (restored.batch(columns) for columns in _rows(query, len(target.schema.mirrored)))
    marked = (_with_marks(batch, schema) for batch in batches)
    try:
        written = plain_files.write_batches(
            target.table_path, target.folder, schema, marked, rows_per_file=target.rows_per_file
        )
    except NoText as error:
        raise RuntimeError(f"{restore.NOT_TEXT} {error.number}") from None
    except NoValue as error:
        raise _server_error(0, str(error)) from None
    except (LakeError, OSError) as error:
        cause = error.message if isinstance(error, LakeError) else storage_errors.cause_of(error)
        raise _storage_failed(cause) from None
    return Copied(written, dict(restored.dates))


def _with_marks(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows that the server has, with the mirror's own columns behind the others."""
    own = [*schema][rows.num_columns :]
    marks = [pa.repeat(pa.scalar(COPIED[field.name], field.type), rows.num_rows) for field in own]
    return pa.RecordBatch.from_arrays([*rows.columns, *marks], schema=schema)


def sql_error(message: str) -> SqlError | None:
    """Return the server's error from the message of a task's exception, None if it has none.

    A failed task passes on only text.
    """
    match = _REFUSAL.search(message)
    return loads(SqlError, match[1]) if match else None


def storage_error(message: str) -> str | None:
    """Return the storage's error from the message of a task's exception, None if it has none."""
    match = _STORAGE.search(message)
    return loads(_StorageMessage, match[1]).text if match else None


@dataclass(frozen=True)
class _StorageMessage:
    """A storage error's text, as a task passes it on."""

    text: str


def _rows(query: ChunkQuery, columns: int) -> Iterator[list[pa.BinaryArray]]:
    """Yield the rows as ``resultset.columns`` does. Raises RuntimeError with a message that ``sql_error`` parses."""
    try:
        yield from _answer(query, columns)
    except resultset.Refused as error:
        raise _server_error(error.code, error.text) from None
    except BinlakeError as error:  # of the connection
        raise _server_error(0, error.message) from None
    except (resultset.Truncated, OSError) as error:
        raise _server_error(0, str(error)) from None
    except pymysql.err.MySQLError as error:
        code = error_numbers.number_of(error)
        raise _server_error(code, str(error.args[-1] if error.args else error)) from None


def _answer(query: ChunkQuery, columns: int) -> Iterator[list[pa.BinaryArray]]:
    options = {"read_timeout": jdbc.STALLED, "client_flag": CLIENT.MULTI_STATEMENTS}
    connection: Any = connect(query.endpoint, **options)
    try:
        with connection.cursor() as cursor:
            variables = jdbc.session_variables(query.mariadb)
            cursor.execute("SET " + ", ".join(f"SESSION {variable}" for variable in variables))
            if query.init_statements:
                cursor.execute(query.init_statements)
                while cursor.nextset():
                    pass
        yield from resultset.answer(connection, query.text, columns)
        _wait_until_seen(connection, query.seen)
    finally:
        connection._force_close()


def _wait_until_seen(connection: Any, lock: str) -> None:
    """Keep the connection open until the driver has seen its read view: few rows are read sooner than it looks."""
    deadline = time.monotonic() + SEEN_SECONDS
    with connection.cursor() as cursor:
        while lock and time.monotonic() < deadline:
            cursor.execute("SELECT IS_FREE_LOCK(%s)", [lock])
            if not cursor.fetchone()[0]:
                return
            time.sleep(0.01)


def _storage_failed(cause: str) -> RuntimeError:
    # A function of its own, since Spark's message quotes the line that raises.
    return RuntimeError(f"binlake storage error {dumps(_StorageMessage(cause))}")


def _server_error(code: int, text: str) -> RuntimeError:
    return RuntimeError(f"binlake server error {dumps(SqlError(code, text.partition(chr(10))[0]))}")
