"""Stores of a feed's position: the lake's metadata, a file, a table on any server, or a class of one's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pymysql
from pymysql.constants import ER
from pymysql.cursors import Cursor

from binlake.errors import ConfigurationError, FeedError
from binlake.feeds.plugins import PluginGroup, methods_of
from binlake.names import mysql_quote
from binlake.records.feed_watermarks import FeedLease, FeedPosition, position_of
from binlake.source.connection import connect, from_environment, translate
from binlake.source.endpoint import Endpoint
from binlake.storage import private_files
from binlake.store import formats

look_up: Callable[[str], Endpoint] = from_environment
"""Returns the server of a table of positions, by the id of its connection, with a renewal that looks it up again once
its account is refused. Airflow's tasks replace it: they look in Airflow, which the environment doesn't follow."""


class PositionStore(Protocol):
    """A store of one feed's position. ``read`` returns None before the first ``write``; ``write`` is durable."""

    def read(self) -> FeedPosition | None:
        """Return the position last written; None before the first one."""

    def write(self, position: FeedPosition) -> None:
        """Replace the position; it is durable when this returns."""


STORES = PluginGroup(
    "position",
    "binlake.feed_positions",
    ("metadata", "file:/folder", "mysql:CONNECTION/database.table"),
    methods_of(PositionStore),
    "binlake.feeds.positions.PositionStore",
)
"""Stores of one's own; each is made with ``feed`` and ``source``, the names of both."""


def store_of(setting: str, feed: str, source: str, lease: FeedLease) -> PositionStore:
    """Return the store that the YAML's ``position`` names. Raises ConfigurationError."""
    if setting == "metadata":
        return _InMetadata(lease)
    kind, _, where = setting.partition(":")
    if kind == "file":
        return FilePositions(Path(where) / f"{source}.{feed}.json")
    if kind == "mysql":
        return TablePositions(where, f"{source}/{feed}")
    made: PositionStore = STORES.make(setting, feed=feed, source=source)
    return made


class _InMetadata:
    """The feed's row in metadata, which every advance writes."""

    def __init__(self, lease: FeedLease) -> None:
        self._lease = lease

    def read(self) -> FeedPosition | None:
        return position_of(self._lease.row)

    def write(self, position: FeedPosition) -> None:
        """Do nothing: the feed's row is written by ``FeedLease.advance``."""


class FilePositions:
    """A small JSON file, replaced by each write."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> FeedPosition | None:
        """Return the position in the file; None where there is no file. Raises FeedError where it can't be read."""
        try:
            return formats.read(FeedPosition, self._path.read_text())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed(self._path, error) from error

    def write(self, position: FeedPosition) -> None:
        """Replace the file, which appears complete or not at all. Raises FeedError where that fails."""
        temporary = self._path.with_name(self._path.name + ".writing")
        try:
            private_files.make_folder(self._path.parent)
            with private_files.opened(temporary, "wb") as handle:
                handle.write(formats.written(position).encode())
                handle.flush()
                os.fsync(handle.fileno())
            temporary.replace(self._path)
        except OSError as error:
            raise _failed(self._path, error) from error


def _failed(path: Path, error: OSError) -> FeedError:
    return FeedError(
        f"the feed's place can't be kept in {path}: {error.strerror}", remedy="let position name a folder it may write"
    )


class TablePositions:
    """A row of a table on any server; the table is created if needed. where: ``CONNECTION/database.table``."""

    def __init__(self, where: str, feed: str) -> None:
        connection, _, name = where.partition("/")
        database, _, table = name.partition(".")
        if not (connection and database and table):
            raise ConfigurationError(f"position: mysql:{where}", remedy="write mysql:CONNECTION/database.table")
        self._endpoint = look_up(connection)
        self._table = f"{mysql_quote(database)}.{mysql_quote(table)}"
        self._feed = feed

    @contextmanager
    def _cursor(self) -> Iterator[Cursor]:
        """Open a connection with a cursor. Raises SourceError."""
        try:
            with connect(self._endpoint) as connection, connection.cursor() as cursor:
                cursor.execute("SET SESSION sql_mode = 'STRICT_ALL_TABLES'")  # a value that doesn't fit is an error
                yield cursor
        except pymysql.MySQLError as error:
            raise translate(error, self._endpoint) from None

    def check(self) -> str:
        """Check by reading that positions can be kept there; return a message. Raises SourceError."""
        with self._cursor() as cursor:
            try:
                cursor.execute(f"SELECT feed, position FROM {self._table} LIMIT 0")
            except pymysql.err.ProgrammingError as error:
                if error.args[0] != ER.NO_SUCH_TABLE:
                    raise
                return f"{self._table} will be made"
        return f"{self._table} is there"

    def read(self) -> FeedPosition | None:
        """Return the position in the feed's row, and create the table if needed.

        Raises FeedError where the table's collation takes two feeds' names for equal.
        """
        with self._cursor() as cursor:
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self._table}"
                " (feed VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, position LONGTEXT NOT NULL)"
            )
            cursor.execute(f"SELECT feed, position FROM {self._table} WHERE feed = %s", (self._feed,))
            row = cursor.fetchone()
        if row is None:
            return None
        feed, text = row.values() if isinstance(row, dict) else row
        if feed != self._feed:  # in a table that was made without a collation
            raise FeedError(
                f"{self._table} takes {self._feed} and {feed} for the same feed",
                remedy=f"give its names their bytes: ALTER TABLE {self._table} CONVERT TO CHARACTER SET utf8mb4 COLLATE"
                " utf8mb4_bin",
            )
        return formats.read(FeedPosition, text)

    def write(self, position: FeedPosition) -> None:
        """Replace the feed's row."""
        with self._cursor() as cursor:
            cursor.execute(f"REPLACE INTO {self._table} VALUES (%s, %s)", (self._feed, formats.written(position)))
