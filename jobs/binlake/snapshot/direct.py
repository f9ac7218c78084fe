"""Reading the source without JDBC: the server's text protocol to Arrow, inside Spark's tasks.

It asks the same queries as ``jdbc``, in sessions that are set alike. ``read`` gives frames of the same columns and
types, whose rows go through Spark's; ``copy`` writes the rows to data files where it reads them, five times as fast.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.constants import CLIENT, COMMAND
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from binlake.delta import plain_files
from binlake.delta.attempts import Copied
from binlake.errors import BinlakeError, LakeError
from binlake.schema.invalid import InvalidValues
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
"""How long a connection that has read all waits for the driver."""


@dataclass(frozen=True)
class SqlError:
    """What the server said to a task. code: its number, 0 where it didn't answer."""

    code: int
    text: str


def read(session: SparkSession, query: ChunkQuery) -> DataFrame:
    """As ``jdbc.read``, which tells the columns' types: a frame of one partition, that is read once."""
    schema = jdbc.read(session, query).schema
    arrow = to_arrow_schema(schema)

    def read_there(nothing: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for columns in _rows(query, len(arrow)):
            try:
                yield resultset.as_batch(columns, arrow)
            except resultset.Truncated as error:
                raise _told(0, str(error)) from None

    return session.range(0, 1, 1, 1).mapInArrow(read_there, schema)


@dataclass(frozen=True)
class DataFiles:
    """Where a chunk's rows are to be written, and as what. invalid: the YAML's policies."""

    table_path: str
    folder: str
    schema: TableSchema
    invalid: InvalidValues
    rows_per_file: int


def copy(session: SparkSession, query: ChunkQuery, target: DataFiles) -> Copied:
    """One Spark task that writes what it reads. Raises what Spark makes of its failure: what the server said of it
    tells ``sql_error``, what the storage did ``storage_error``, and ``restore.refused_text`` of a text."""
    (copied,) = session.sparkContext.parallelize([(query, target)], 1).map(_copied).collect()
    assert isinstance(copied, Copied)
    return copied


def _copied(given: tuple[ChunkQuery, DataFiles]) -> Copied:
    query, target = given
    restored = Restored(target.schema, target.invalid)
    batches = (restored.batch(columns) for columns in _rows(query, len(target.schema.mirrored)))
    try:
        written = plain_files.write_batches(
            target.table_path, target.folder, restored.arrow, batches, rows_per_file=target.rows_per_file
        )
    except NoText as error:
        raise RuntimeError(f"{restore.NOT_TEXT} {error.number}") from None
    except NoValue as error:
        raise _told(0, str(error)) from None
    except (LakeError, OSError) as error:
        cause = error.message if isinstance(error, LakeError) else storage_errors.cause_of(error)
        raise _storage_failed(cause) from None
    return Copied(written, dict(restored.dates))


def sql_error(message: str) -> SqlError | None:
    """What a task's exception says that the server said; a task hands on nothing but text."""
    found = _REFUSAL.search(message)
    return loads(SqlError, found[1]) if found else None


def storage_error(message: str) -> str | None:
    """What a task's exception says of the lake's storage."""
    found = _STORAGE.search(message)
    return loads(_Told, found[1]).text if found else None


@dataclass(frozen=True)
class _Told:
    text: str


def _rows(query: ChunkQuery, columns: int) -> Iterator[list[pa.BinaryArray]]:
    """See ``resultset.columns``. Raises RuntimeError, of which ``sql_error`` tells what the server said."""
    try:
        yield from _answer(query, columns)
    except resultset.Refused as error:
        raise _told(error.code, error.text) from None
    except BinlakeError as error:  # of the connection
        raise _told(0, error.message) from None
    except (resultset.Truncated, OSError) as error:
        raise _told(0, str(error)) from None
    except pymysql.err.MySQLError as error:
        code = error_numbers.number_of(error)
        raise _told(code, str(error.args[-1] if error.args else error)) from None


def _answer(query: ChunkQuery, columns: int) -> Iterator[list[pa.BinaryArray]]:
    options = {"read_timeout": jdbc.STALLED, "client_flag": CLIENT.MULTI_STATEMENTS}
    connection: Any = connect(query.endpoint, **options)
    try:
        with connection.cursor() as cursor:
            variables = jdbc.session_variables(query.mariadb)
            cursor.execute("SET " + ", ".join(f"SESSION {one}" for one in variables))
            if query.init_statements:
                cursor.execute(query.init_statements)
                while cursor.nextset():
                    pass
        connection._execute_command(COMMAND.COM_QUERY, query.text)
        for _ in range(connection._read_packet().read_length_encoded_integer()):
            connection._read_packet()
        connection._read_packet()  # the end of the columns' definitions
        # Its reader holds the first bytes of the rows, or waits for them; what follows needs no second copy.
        arrived = connection._rfile.read1(1 << 20)
        yield from resultset.columns(connection._sock.recv_into, columns, arrived)
        _wait_until_seen(connection, query.seen)
    finally:
        connection._force_close()


def _wait_until_seen(connection: Any, lock: str) -> None:
    """A few rows are read sooner than the driver looks whether the view is open."""
    deadline = time.monotonic() + SEEN_SECONDS
    with connection.cursor() as cursor:
        while lock and time.monotonic() < deadline:
            cursor.execute("SELECT IS_FREE_LOCK(%s)", [lock])
            if not cursor.fetchone()[0]:
                return
            time.sleep(0.01)


def _storage_failed(cause: str) -> RuntimeError:
    # Made away from where it is raised: Spark's text of it quotes that line.
    return RuntimeError(f"binlake storage error {dumps(_Told(cause))}")


def _told(code: int, text: str) -> RuntimeError:
    return RuntimeError(f"binlake server error {dumps(SqlError(code, text.partition(chr(10))[0]))}")
