"""Reading the source without JDBC: the server's text protocol to Arrow, inside Spark's tasks.

It asks the same queries as ``jdbc``, in sessions that are set alike, and gives frames of the same columns and types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.constants import CLIENT, COMMAND
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from binlake.errors import BinlakeError
from binlake.serialization import dumps, loads
from binlake.snapshot import jdbc, resultset
from binlake.source import error_numbers
from binlake.source.connection import Endpoint, connect

_REFUSAL = re.compile(r"binlake server error (\{.*\})")


@dataclass(frozen=True)
class SqlError:
    """What the server said to a task. code: its number, 0 where it didn't answer."""

    code: int
    text: str


def read(
    session: SparkSession, endpoint: Endpoint, query: str, *, mariadb: bool, init_statements: str = ""
) -> DataFrame:
    """As ``jdbc.read``, which tells the columns' types: a frame of one partition, that is read once."""
    schema = jdbc.read(session, endpoint, query, mariadb=mariadb).schema
    task = _Task(endpoint, query, init_statements, jdbc.session_variables(mariadb), to_arrow_schema(schema))

    def copied(nothing: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task.run()

    return session.range(0, 1, 1, 1).mapInArrow(copied, schema)


def sql_error(message: str) -> SqlError | None:
    """What a task's exception says that the server said; a task hands on nothing but text."""
    found = _REFUSAL.search(message)
    return loads(SqlError, found[1]) if found else None


@dataclass(frozen=True)
class _Task:
    """What an executor does for a chunk."""

    endpoint: Endpoint
    query: str
    init_statements: str
    variables: tuple[str, ...]
    schema: pa.Schema

    def run(self) -> Iterator[pa.RecordBatch]:
        """The chunk's rows. Raises RuntimeError, of which ``sql_error`` tells what the server said."""
        try:
            yield from self._batches()
        except resultset.Refused as error:
            raise self._told(error.code, error.text) from None
        except BinlakeError as error:  # of the connection
            raise self._told(0, error.message) from None
        except (resultset.Truncated, OSError) as error:
            raise self._told(0, str(error)) from None
        except pymysql.err.MySQLError as error:
            code = error_numbers.number_of(error)
            raise self._told(code, str(error.args[-1] if error.args else error)) from None

    def _batches(self) -> Iterator[pa.RecordBatch]:
        options = {"read_timeout": jdbc.STALLED, "client_flag": CLIENT.MULTI_STATEMENTS}
        connection: Any = connect(self.endpoint, **options)
        try:
            with connection.cursor() as cursor:
                variables = (*self.variables, f"net_write_timeout={jdbc.STALLED}")
                cursor.execute("SET " + ", ".join(f"SESSION {one}" for one in variables))
                if self.init_statements:
                    cursor.execute(self.init_statements)
                    while cursor.nextset():
                        pass
            connection._execute_command(COMMAND.COM_QUERY, self.query)
            for _ in range(connection._read_packet().read_length_encoded_integer()):
                connection._read_packet()
            connection._read_packet()  # the end of the columns' definitions
            # Its reader holds the first bytes of the rows, or waits for them; what follows needs no second copy.
            arrived = connection._rfile.peek()
            yield from resultset.batches(connection._sock.recv_into, self.schema, arrived)
        finally:
            connection._force_close()

    def _told(self, code: int, text: str) -> RuntimeError:
        return RuntimeError(f"binlake server error {dumps(SqlError(code, text.partition(chr(10))[0]))}")
