"""What a server changes and doesn't write into its log: nobody who follows the log can know of it.

Sources: MySQL manual 19.1.6.4 Binary Logging Options, 19.2.5 How Servers Evaluate Replication Filtering Rules; MariaDB
Knowledge Base, Replication and Binary Log System Variables, and Galera's requirements.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from binlake.errors import SourceError
from binlake.source.server import Source, denied


@dataclass(frozen=True)
class LogGap:
    """databases: whose changes are left out; None for those of any. is_certain: else the account can't see it."""

    found: str
    remedy: str
    databases: frozenset[str] | None = None
    is_certain: bool = True


@dataclass(frozen=True)
class LogFilters:
    """binlog_do_db and binlog_ignore_db, which rows are filtered by; statements by the session's default database."""

    only: frozenset[str]
    never: frozenset[str]

    def left_out(self, databases: Collection[str]) -> frozenset[str]:
        return frozenset(one for one in databases if (self.only and one not in self.only) or one in self.never)


def log_filters(source: Source) -> LogFilters:
    """Raises SourceError."""
    modern = not source.is_mariadb and source.version >= (8, 4)
    rows = source.query("SHOW BINARY LOG STATUS" if modern else "SHOW MASTER STATUS")
    only, never = (rows[0][f"Binlog_{which}_DB"] if rows else "" for which in ("Do", "Ignore"))
    return LogFilters(*(frozenset(filter(None, (names or "").split(","))) for names in (only, never)))


def log_gaps(source: Source, databases: Collection[str]) -> list[LogGap]:
    """Why changes of these databases may not be in the log. Raises SourceError."""
    gaps: list[LogGap] = []
    if left_out := log_filters(source).left_out(databases):
        found = f"binlog_do_db or binlog_ignore_db leave out {', '.join(sorted(left_out))}"
        remedy = "take the filter from the server's option file and restart it"
        gaps.append(LogGap(found, remedy, left_out))
    variables = source.variables(["log_replica_updates", "log_slave_updates", "wsrep_on"])
    off = "OFF" in (variables.get("log_replica_updates"), variables.get("log_slave_updates"))
    replicates = off and (variables.get("wsrep_on") == "ON" or _is_replica(source))
    if replicates is None:
        found = "log_slave_updates is OFF, and whether this server replicates from another isn't visible to the account"
        gaps.append(LogGap(found, "GRANT REPLICA MONITOR ON *.* to the account, so that doctor can tell", None, False))
    if replicates:
        name = "log_slave_updates" if source.is_mariadb else "log_replica_updates"
        remedy = f"set {name}=ON in the server's option file and restart it, or mirror the server it replicates from"
        gaps.append(LogGap(f"{name} is OFF: what this server replicates from others isn't in its log", remedy))
    return gaps


def _is_replica(source: Source) -> bool | None:
    """None where MariaDB doesn't tell: it wants a grant that a mirror needn't have. A server that never replicated has
    no position of a replica."""
    mysql = "SHOW REPLICA STATUS" if source.version >= (8, 0, 22) else "SHOW SLAVE STATUS"
    try:
        return bool(source.query("SHOW ALL SLAVES STATUS" if source.is_mariadb else mysql))
    except SourceError as error:
        if not denied(error):
            raise
    return None if source.query("SELECT @@GLOBAL.gtid_slave_pos AS gtids")[0]["gtids"] else False
