"""A MySQL or MariaDB server, asked through a control connection."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import pymysql
from pymysql.constants import ER
from pymysql.cursors import Cursor, DictCursor

from binlake.errors import RESNAPSHOT, AccessDenied, ConfigurationError, LockTimeout, NoBinlog, SourceError
from binlake.position import Flavour
from binlake.schema.log_gaps import LogGap
from binlake.source import error_numbers, lock_waits
from binlake.source.connection import connect, translate
from binlake.source.endpoint import Endpoint
from binlake.source.file_sizes import size_of
from binlake.source.releases import Release

if TYPE_CHECKING:
    from binlake.source.dump import ServerTransport

SAID_AFTER = 5.0
"""Seconds of waiting for an answer after which it is said for what."""
_HEAD_TRIES = 5
_FILTERS = ("Binlog_Do_DB", "Binlog_Ignore_DB")


@dataclass(frozen=True)
class LogSigns:
    """The filters and the replication that a look at the log's end shows.

    only, never: the databases that binlog_do_db and binlog_ignore_db name. replicated: the GTIDs that came from other
    servers; on MariaDB the last one of each domain.
    """

    only: frozenset[str]
    never: frozenset[str]
    replicated: str


NO_SIGNS = LogSigns(frozenset(), frozenset(), "")


class Source:
    """A control connection. It asks the server about itself and changes nothing.

    The session is set as in session_settings; information_schema shows generated invisible primary keys. Methods raise
    ConnectionFailed, AccessDenied and SourceError, and ``open`` ServerSettingError for a release whose log can't be
    followed.
    """

    def __init__(self, endpoint: Endpoint, connection: pymysql.Connection[Cursor]) -> None:
        self.endpoint = endpoint
        self._connection = connection
        self.signs: LogSigns | None = None
        """The result of the newest look at the log's end; None before the first."""
        self.newest_file = ""
        """The file in which the log ended at the newest look."""
        self.known_gaps: tuple[LogSigns, tuple[LogGap, ...]] | None = None
        """See source.gaps.standing_gaps."""
        self.purged_at: LogSigns | None = None
        """See phases.missed_changes."""
        row = self.query("SELECT VERSION() AS version, @@server_id AS server_id, @@hostname AS hostname")[0]
        self.version_text: str = row["version"]
        self.flavour: Flavour = "mariadb" if "mariadb" in self.version_text.lower() else "mysql"
        self.release = Release(self.flavour, version_numbers(self.version_text))
        self.release.refuse_unknown_metadata(endpoint.address)
        self.server_id = int(row["server_id"])
        if self.flavour == "mariadb":
            # MariaDB has no server_uuid: id and host name replace it.
            self.server_identity = f"mariadb-{self.server_id}-{row['hostname']}"
        else:
            self.server_identity = str(self.query("SELECT @@server_uuid AS id")[0]["id"])
            if self.release.hides_generated_keys:
                self.execute("SET SESSION show_gipk_in_create_table_and_information_schema = ON")

    @classmethod
    def open(cls, endpoint: Endpoint, **options: Any) -> Source:
        """Connect. options: for pymysql. Raises ConnectionFailed or AccessDenied."""
        return cls(endpoint, connect(endpoint, **options))

    def another(self) -> Source:
        """Connect to the same server once more."""
        return Source.open(self.endpoint)

    def close(self) -> None:
        """Close the connection, if it is open."""
        if self._connection.open:
            self._connection.close()

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def is_of(self, server: str) -> bool:
        """Return whether a position's server is this one."""
        return server == self.server_identity

    @property
    def lower_case_names(self) -> bool:
        """Return whether databases and tables are stored in lower case, however statements write them."""
        return self.variables(["lower_case_table_names"]).get("lower_case_table_names") == "1"

    def transport(self, server_id: int = 0, name: str = "binlake") -> ServerTransport:
        """Return a reader of the log. With a server_id it is a replica, which the server lists under ``name``.

        Raises ConfigurationError for the server's own id.
        """
        from binlake.source.dump import ServerTransport  # imports numpy, and a status reads no event

        if server_id == self.server_id != 0:
            raise ConfigurationError(
                f"server_id {server_id} is the server's own",
                remedy="choose a range that neither this server nor a replica of it uses: source.server_id in the YAML",
            )
        return ServerTransport(self.endpoint, server_id, self.flavour, name)

    @property
    def is_mariadb(self) -> bool:
        """Return whether the server is MariaDB."""
        return self.flavour == "mariadb"

    @property
    def connection_id(self) -> int:
        """Return the server's number of this connection."""
        return int(self.query("SELECT CONNECTION_ID() AS id")[0]["id"])

    @property
    def connection(self) -> pymysql.Connection[Cursor]:
        """Return the driver's connection, for readers of rows as the protocol has them."""
        return self._connection

    def query(self, sql: str, args: Sequence[object] | None = None) -> list[dict[str, Any]]:
        """Run a query and return all rows as dicts by column name.

        Columns of information_schema need an alias: servers differ in the case of their names.
        """
        try:
            with self._connection.cursor(DictCursor) as cursor:
                cursor.execute(sql, args)
                return list(cast("Iterable[dict[str, Any]]", cursor.fetchall()))
        except pymysql.err.MySQLError as error:
            raise self._translated(error) from error

    def _translated(self, error: pymysql.err.MySQLError) -> SourceError:
        translated = translate(error, self.endpoint)
        if not isinstance(translated, LockTimeout):
            return translated
        holders = lock_waits.named(lock_waits.suspects(self))
        named = LockTimeout(f"{translated.message}; in its way is {holders}", remedy=translated.remedy)
        return named

    def execute(self, sql: str, args: Sequence[object] | None = None) -> None:
        """Run a statement without a result."""
        self.query(sql, args)

    def variables(self, names: Iterable[str]) -> dict[str, str]:
        """Return global variables by lower-case name; those that the server doesn't know are missing."""
        wanted = sorted(set(names))
        marks = ", ".join(["%s"] * len(wanted))
        rows = self.query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({marks})", wanted)
        return {row["Variable_name"].lower(): row["Value"] for row in rows}

    def grants(self) -> list[str]:
        """Return the GRANT statements of the account, including those of active roles."""
        return [str(next(iter(row.values()))) for row in self.query("SHOW GRANTS")]

    def now(self) -> int:
        """Return the server's clock, microseconds since 1970 UTC."""
        return int(self.query("SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) AS us")[0]["us"])

    def head(self) -> tuple[str, int, str]:
        """Return the end of the log: (file, offset in bytes, GTID set); the set is empty without GTID.

        Raises NoBinlog if there is none, AccessDenied without the grant.
        """
        for _ in range(_HEAD_TRIES):
            before, replicated = self._mariadb_gtids()
            row = self._log_status()
            if before == self._mariadb_gtids()[0]:
                break
        gtid_set = (row.get("Executed_Gtid_Set") or "").replace("\n", "")
        if not self.is_mariadb:
            own = self.server_identity.lower()
            replicated = ",".join(part for part in gtid_set.split(",") if not part.strip().lower().startswith(own))
        only, never = (frozenset(filter(None, (row.get(name) or "").split(","))) for name in _FILTERS)
        self.signs, self.newest_file = LogSigns(only, never, replicated), row["File"]
        # Where writes continue, the set read first holds nothing that comes after the position.
        return row["File"], int(row["Position"]), before if self.is_mariadb else gtid_set

    def look(self) -> LogSigns:
        """Look at the log's end, and return what that shows of filters and replication. Raises as ``head``."""
        self.head()
        assert self.signs is not None
        return self.signs

    @cached_property
    def logs_replicated(self) -> bool:
        """Return whether the server logs what it replicates from others, which it decides when it starts."""
        names = ("log_replica_updates", "log_slave_updates")
        return "OFF" not in self.variables(names).values()

    def _log_status(self) -> dict[str, Any]:
        """Return the row about the server's log: File, Position, Binlog_Do_DB, Binlog_Ignore_DB … Raises NoBinlog."""
        with waiting_said(self.release.log_status, self.endpoint.address):
            rows = self.query(self.release.log_status)
        if not rows:
            raise NoBinlog(
                f"{self.endpoint.address} writes no binlog",
                remedy="set log_bin=ON in the server's option file and restart the server; what is written until then"
                f" is in no log, so then {RESNAPSHOT}",
                server=self.server_identity,
                at_us=self.now(),
            )
        return rows[0]

    def _mariadb_gtids(self) -> tuple[str, str]:
        """Return MariaDB's GTID position, which the log's status lacks, and that of what it replicated; empty texts on
        MySQL."""
        if not self.is_mariadb:
            return "", ""
        (row,) = self.query("SELECT @@GLOBAL.gtid_binlog_pos AS gtid, @@GLOBAL.gtid_slave_pos AS replicated")
        return str(row["gtid"] or ""), str(row["replicated"] or "")

    def executed_unlogged(self) -> str:
        """Return GTIDs of executed transactions that the log lacks (MySQL) or may lack (MariaDB).

        MySQL's gtid_purged: purged, executed with the log off, or set by loading a dump or a backup. MariaDB's
        gtid_slave_pos: the last that was replicated in each domain, or set so.
        """
        variable = "gtid_slave_pos" if self.is_mariadb else "gtid_purged"
        return str(self.query(f"SELECT @@GLOBAL.{variable} AS gtids")[0]["gtids"] or "").replace("\n", "")

    def binary_logs(self) -> tuple[tuple[str, int], ...]:
        """Return (file, size in bytes) of every binlog file that the server still has, oldest first."""
        try:
            with waiting_said("SHOW BINARY LOGS", self.endpoint.address):
                rows = self.query("SHOW BINARY LOGS")
        except SourceError as error:
            if error_code(error) == ER.NO_BINARY_LOGGING:
                return ()
            raise
        return tuple((row["Log_name"], size_of(int(row["File_size"]), row.get("Encrypted"))) for row in rows)


def version_numbers(text: str) -> tuple[int, ...]:
    """Parse a version: ``10.11.14-MariaDB-0+deb12u2`` → (10, 11, 14)."""
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", text.removeprefix("5.5.5-"))
    return tuple(map(int, match.groups())) if match else (0, 0, 0)


def error_code(error: SourceError) -> int:
    """Return the server's own number of an error raised by ``query``; 0 if there is none."""
    return error_numbers.number_of(error.__cause__)


def denied(error: SourceError) -> bool:
    """Return whether a missing grant, not the connection or the statement, was the cause of an error."""
    return isinstance(error, AccessDenied)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def waiting_said(statement: str, address: str, say: Callable[[str], None] = _say) -> Iterator[None]:
    """Say, once the block has run for SAID_AFTER seconds, that it waits for the answer to a statement about the log.

    A server answers questions about its log's end under the lock under which its log is written. While a write waits
    there, as for room on a full disk, so does the session that asks (MYSQL_BIN_LOG::LOCK_log, sql/binlog.cc).
    """
    text = (
        f"waiting for {address} to answer {statement}: a write into its log holds this up; where the disk of its log "
        "is full, make room there (see the server's error log)"
    )
    timer = threading.Timer(SAID_AFTER, say, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@dataclass(frozen=True)
class Replica:
    """A replica that is connected to a server. name: the host with which it registered."""

    server_id: int
    name: str


def replicas(source: Source) -> list[Replica]:
    """Return a server's connected replicas. Raises SourceError where the account may not list them."""
    rows = source.query(source.release.replicas)
    # The servers write Server_id or Server_Id, whatever the statement's name.
    named = [{column.lower(): value for column, value in row.items()} for row in rows]
    return [Replica(int(row["server_id"]), row["host"]) for row in named]
