"""A MySQL or MariaDB server, asked through a control connection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import pymysql
from pymysql.constants import ER
from pymysql.cursors import Cursor, DictCursor

from binlake.errors import RESNAPSHOT, AccessDenied, ConfigurationError, NoBinlog, SourceError
from binlake.position import Flavour
from binlake.source import error_numbers
from binlake.source.connection import Endpoint, connect, translate
from binlake.source.releases import Release

if TYPE_CHECKING:
    from binlake.source.dump import ServerTransport

_HEAD_TRIES = 5


class Source:
    """A control connection. It asks the server about itself and changes nothing.

    The session is set as in session_settings; information_schema shows generated invisible primary keys. Methods raise
    ConnectionFailed, AccessDenied and SourceError, and ``open`` ServerSettingError for a release whose log can't be
    followed.
    """

    def __init__(self, endpoint: Endpoint, connection: pymysql.Connection[Cursor]) -> None:
        self.endpoint = endpoint
        self._connection = connection
        row = self.query("SELECT VERSION() AS version, @@server_id AS server_id, @@hostname AS hostname")[0]
        self.version_text: str = row["version"]
        self.flavour: Flavour = "mariadb" if "mariadb" in self.version_text.lower() else "mysql"
        self.release = Release(self.flavour, version_numbers(self.version_text))
        self.release.refuse_unknown_metadata(endpoint.address)
        self.server_id = int(row["server_id"])
        if self.flavour == "mariadb":
            # MariaDB has no server_uuid: id and host name stand for it.
            self.server_identity = f"mariadb-{self.server_id}-{row['hostname']}"
        else:
            self.server_identity = str(self.query("SELECT @@server_uuid AS id")[0]["id"])
            if self.release.hides_generated_keys:
                self.execute("SET SESSION show_gipk_in_create_table_and_information_schema = ON")

    @classmethod
    def open(cls, endpoint: Endpoint, **options: Any) -> Source:
        """Connect. options: for pymysql. Raises ConnectionFailed or AccessDenied."""
        return cls(endpoint, connect(endpoint, **options))

    def close(self) -> None:
        if self._connection.open:
            self._connection.close()

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def is_of(self, server: str) -> bool:
        """Tell whether a position's server is this one."""
        return server == self.server_identity

    @property
    def lower_case_names(self) -> bool:
        """Tell whether databases and tables are stored in lower case, however statements write them."""
        return self.variables(["lower_case_table_names"]).get("lower_case_table_names") == "1"

    def transport(self, server_id: int = 0, name: str = "binlake") -> ServerTransport:
        """Return a reader of the log. With a server_id it is a replica, which the server lists under ``name``.

        Raises ConfigurationError for the server's own id.
        """
        from binlake.source.dump import ServerTransport  # which brings numpy: a status reads no event

        if server_id == self.server_id != 0:
            raise ConfigurationError(
                f"server_id {server_id} is the server's own",
                remedy="choose a range that neither this server nor a replica of it uses: source.server_id in the YAML",
            )
        return ServerTransport(self.endpoint, server_id, self.flavour, name)

    @property
    def is_mariadb(self) -> bool:
        return self.flavour == "mariadb"

    @property
    def connection_id(self) -> int:
        """Return the server's number of this connection."""
        return int(self.query("SELECT CONNECTION_ID() AS id")[0]["id"])

    @property
    def connection(self) -> pymysql.Connection[Cursor]:
        """Return the driver's connection, for who reads rows as the protocol has them."""
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
            raise translate(error, self.endpoint) from error

    def execute(self, sql: str, args: Sequence[object] | None = None) -> None:
        """Run a statement without a result."""
        self.query(sql, args)

    def variables(self, names: Iterable[str]) -> dict[str, str]:
        """Return global variables by lower-case name; those that the server doesn't know are missing."""
        wanted = sorted(set(names))
        marks = ", ".join(["%s"] * len(wanted))
        rows = self.query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({marks})", wanted)
        return {row["Variable_name"].lower(): row["Value"] for row in rows}

    def now(self) -> int:
        """Return the server's clock, microseconds since 1970 UTC."""
        return int(self.query("SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) AS us")[0]["us"])

    def head(self) -> tuple[str, int, str]:
        """Return the end of the log: (file, offset in bytes, GTID set); the set is empty without GTID.

        Raises NoBinlog if there is none, AccessDenied without the grant.
        """
        for _ in range(_HEAD_TRIES):
            before = self._mariadb_gtids()
            file, offset, gtid_set = self._head()
            if before == self._mariadb_gtids():
                break
        # Where writes go on, the set read first holds nothing that comes after the position.
        return file, offset, before if self.is_mariadb else gtid_set

    def log_status(self) -> list[dict[str, Any]]:
        """Return the row about the server's log: File, Position, Binlog_Do_DB, Binlog_Ignore_DB …; or no row."""
        return self.query(self.release.log_status)

    def _head(self) -> tuple[str, int, str]:
        rows = self.log_status()
        if not rows:
            raise NoBinlog(
                f"{self.endpoint.address} writes no binlog",
                remedy="set log_bin=ON in the server's option file and restart the server; what is written until then"
                f" is in no log, so then {RESNAPSHOT}",
                server=self.server_identity,
                at_us=self.now(),
            )
        gtid_set = rows[0].get("Executed_Gtid_Set") or ""
        return rows[0]["File"], int(rows[0]["Position"]), gtid_set.replace("\n", "")

    def _mariadb_gtids(self) -> str:
        """Return MariaDB's GTID position, which the log's status lacks; empty on MySQL."""
        return str(self.query("SELECT @@GLOBAL.gtid_binlog_pos AS gtid")[0]["gtid"] or "") if self.is_mariadb else ""

    def executed_unlogged(self) -> str:
        """Return GTIDs of executed transactions that the log lacks (MySQL) or may lack (MariaDB).

        MySQL's gtid_purged: purged, executed with the log off, or set by whoever loaded a dump or a backup. MariaDB's
        gtid_slave_pos: the last that was replicated in each domain, or set so.
        """
        variable = "gtid_slave_pos" if self.is_mariadb else "gtid_purged"
        return str(self.query(f"SELECT @@GLOBAL.{variable} AS gtids")[0]["gtids"] or "").replace("\n", "")

    def binary_logs(self) -> tuple[tuple[str, int], ...]:
        """Return (file, size in bytes) of every binlog file that the server still has, oldest first."""
        try:
            rows = self.query("SHOW BINARY LOGS")
        except SourceError as error:
            if error_code(error) == ER.NO_BINARY_LOGGING:
                return ()
            raise
        return tuple((row["Log_name"], int(row["File_size"])) for row in rows)


def version_numbers(text: str) -> tuple[int, ...]:
    """Parse a version: ``10.11.14-MariaDB-0+deb12u2`` → (10, 11, 14)."""
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", text.removeprefix("5.5.5-"))
    return tuple(map(int, match.groups())) if match else (0, 0, 0)


def error_code(error: SourceError) -> int:
    """Return the server's own number of an error raised by ``query``; 0 if there is none."""
    return error_numbers.number_of(error.__cause__)


def denied(error: SourceError) -> bool:
    """Tell whether a missing grant, not the connection or the statement, was the cause of an error."""
    return isinstance(error, AccessDenied)
