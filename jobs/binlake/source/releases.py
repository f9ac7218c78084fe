"""The servers' releases and the services that run them: which can be mirrored, and how they differ.

All such facts are in this module. Sources: the "What Is New" and "Changes" pages of MySQL's manuals 8.0 to 9.7 and
the statements' own pages, sql/rpl_source.cc; MariaDB's documentation, "Replication and Binary Log System Variables".
Of the services: AWS, "Master user account privileges" and "Setting and showing binary log configuration"; Google,
"Configure database flags" and "MySQL 8.0 user privileges"; Microsoft, "Server parameters" and "Limitations in Azure
Database for MySQL"; that none of them lets FLUSH TABLES WITH READ LOCK through is what TiDB DM's documentation says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from binlake.errors import ServerSettingError
from binlake.position import Flavour

Verdict = Literal["proved", "expected", "refused"]


@dataclass(frozen=True)
class Series:
    """Releases of a flavour, from ``since`` up to its next series.

    verdict: proved (the tests run on such a server), expected (to work like its neighbours), or refused. why: the
    verdict's reason.
    """

    flavour: Flavour
    since: tuple[int, int]
    name: str
    verdict: Verdict
    why: str


_NO_METADATA = "its log can't name columns and keys: binlog_row_metadata=FULL came with"
_MYSQL_LOGS = "logs that it wrote are read in the tests, and each statement that differs is tried"

SERIES = (
    Series("mysql", (0, 0), "MySQL 5.7 and before", "refused", f"{_NO_METADATA} 8.0"),
    Series("mysql", (8, 0), "MySQL 8.0", "expected", _MYSQL_LOGS),
    Series("mysql", (8, 1), "MySQL 8.1 to 8.3", "expected", "lies between 8.0 and 8.4"),
    Series("mysql", (8, 4), "MySQL 8.4", "expected", _MYSQL_LOGS),
    Series("mysql", (9, 0), "MySQL 9.0 to 9.6", "expected", "lies between 8.4 and 9.7"),
    Series("mysql", (9, 7), "MySQL 9.7", "proved", "all tests run on it"),
    Series("mysql", (9, 8), "MySQL after 9.7", "expected", "an event that isn't known stops the reading by its number"),
    Series("mariadb", (0, 0), "MariaDB before 10.5", "refused", f"{_NO_METADATA} 10.5"),
    Series(
        "mariadb",
        (10, 5),
        "MariaDB 10.5",
        "expected",
        "the tests of snapshot, sync and verify passed on 10.5.23",
    ),
    Series("mariadb", (10, 6), "MariaDB 10.6 to 10.10", "expected", "lies between 10.5 and 10.11"),
    Series("mariadb", (10, 11), "MariaDB 10.11", "proved", "all tests run on it"),
    Series("mariadb", (11, 0), "MariaDB 11.0 to 11.3", "expected", "lies between 10.11 and 11.4"),
    Series("mariadb", (11, 4), "MariaDB 11.4", "proved", "the tests run on it"),
    Series("mariadb", (11, 5), "MariaDB 11.5 to 11.7", "expected", "lies between 11.4 and 11.8"),
    Series("mariadb", (11, 8), "MariaDB 11.8", "proved", "the tests run on it"),
    Series("mariadb", (12, 0), "MariaDB 12", "expected", "its new events stop the reading by their names"),
)


@dataclass(frozen=True)
class Release:
    """A server's flavour and version, and what follows from them."""

    flavour: Flavour
    version: tuple[int, ...]

    @property
    def series(self) -> Series:
        """Return the series that the version belongs to."""
        return max(
            (series for series in SERIES if series.flavour == self.flavour and series.since <= self.version[:2]),
            key=lambda series: series.since,
        )

    def refuse_unknown_metadata(self, address: str) -> None:
        """Raise ServerSettingError for a server whose log can't be followed."""
        series = self.series
        if series.verdict == "refused":
            first = "MySQL 8.0, better 8.4" if self.flavour == "mysql" else "MariaDB 10.5, better 10.11"
            raise ServerSettingError(
                f"{address} runs {series.name} ({'.'.join(map(str, self.version))}): {series.why}",
                remedy=f"upgrade the server to {first} or newer, or mirror a replica of it that is",
            )

    def _is_mysql(self, *since: int) -> bool:
        return self.flavour == "mysql" and self.version >= since

    @property
    def log_status(self) -> str:
        """Return the statement for the log's end; MySQL 8.2 has both, 8.4 only the new one."""
        return "SHOW BINARY LOG STATUS" if self._is_mysql(8, 2) else "SHOW MASTER STATUS"

    @property
    def replicas(self) -> str:
        """Return the statement that lists the connected replicas; MySQL 8.4 only has the new one."""
        return "SHOW REPLICAS" if self._is_mysql(8, 0, 22) else "SHOW SLAVE HOSTS"

    @property
    def replica_status(self) -> str:
        """Return the statement whose rows say what the server itself replicates from."""
        if self.flavour == "mariadb":
            return "SHOW ALL SLAVES STATUS"
        return "SHOW REPLICA STATUS" if self._is_mysql(8, 0, 22) else "SHOW SLAVE STATUS"

    @property
    def replica_updates(self) -> str:
        """Return the setting by which a replica logs what it replicates."""
        return "log_replica_updates" if self._is_mysql(8, 0, 26) else "log_slave_updates"

    @property
    def flush_grant(self) -> str:
        """Return the least grant for FLUSH TABLES WITH READ LOCK."""
        return "FLUSH_TABLES" if self._is_mysql(8, 0, 23) else "RELOAD"

    @property
    def hides_generated_keys(self) -> bool:
        """Return whether a session decides if information_schema shows generated invisible primary keys."""
        return self._is_mysql(8, 0, 30)

    @property
    def may_log_cascades(self) -> bool:
        """Return whether rows changed by foreign keys are logged, unless innodb_native_foreign_keys is on."""
        return self._is_mysql(9, 6)

    def without_setting(self, variable: str) -> str:
        """Return what holds where a server hasn't the variable.

        MySQL deprecated binlog_format in 8.0.34: without it rows alone are logged.
        """
        only_rows = variable == "binlog_format" and self._is_mysql(8, 0, 34)
        return "ROW" if only_rows else "not known to this server"

    def kept_log(self, hours: float) -> tuple[str, str]:
        """Return the setting that keeps the log so long, and its value; in whole days on MariaDB before 10.6."""
        if self.flavour == "mariadb" and self.version < (10, 6):
            return "expire_logs_days", str(-int(-hours // 24))
        return "binlog_expire_logs_seconds", str(int(hours * 3600))


@dataclass(frozen=True)
class Service:
    """A cloud service that runs servers. Its administrators have neither SUPER nor FLUSH TABLES WITH READ LOCK.

    log_bin: how the log is turned on. settings: where global variables are set. retention: the statement that sets for
    how long the log is kept; empty if the server's own variable does. remark: anything else to know.
    """

    name: str
    log_bin: str
    settings: str
    retention: str = ""
    remark: str = ""


_RDS_RETENTION = "CALL mysql.rds_set_configuration('binlog retention hours', {hours})"
RDS = Service(
    "Amazon RDS",
    "turn automated backups on",
    "in the instance's DB parameter group",
    _RDS_RETENTION,
    "at most 168 hours; unset, the log goes as soon as it can",
)
AURORA = Service(
    "Amazon Aurora",
    "set binlog_format = ROW in the cluster's parameter group and reboot the writer",
    "in the DB cluster parameter group",
    _RDS_RETENTION,
    "connect to the writer: readers have no log",
)
CLOUD_SQL = Service(
    "Google Cloud SQL",
    "turn point-in-time recovery on",
    "among the instance's database flags",
)
AZURE = Service(
    "Azure Database for MySQL",
    "it is always on",
    "among the server parameters",
    remark="names are stored in lower case, so are the YAML's patterns",
)
SERVICES = (RDS, AURORA, CLOUD_SQL, AZURE)

SERVICE_VARIABLES = ("aurora_version", "basedir")
"""Global variables by which ``service_of`` recognizes a service."""
RDS_RETENTION = "SELECT value AS hours FROM mysql.rds_configuration WHERE name = 'binlog retention hours'"


def service_of(version: str, variables: Mapping[str, str]) -> Service | None:
    """Return the service that runs a server, by VERSION() and SERVICE_VARIABLES; None for a server of one's own."""
    if "aurora_version" in variables:
        return AURORA
    if variables.get("basedir", "").startswith("/rdsdbbin"):
        return RDS
    if "-google" in version:
        return CLOUD_SQL
    return AZURE if "-azure" in version else None
