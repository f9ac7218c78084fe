"""Changes that a server doesn't write into its log, so that a reader of the log misses them.

Sources: MySQL manual 19.1.6.4 Binary Logging Options, 19.2.5 How Servers Evaluate Replication Filtering Rules; MariaDB
Knowledge Base, Replication and Binary Log System Variables, and Galera's requirements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from binlake.errors import SourceError
from binlake.source.server import Source, denied

_FILTERS = ("Binlog_Do_DB", "Binlog_Ignore_DB")


@dataclass(frozen=True)
class LogGap:
    """A reason why changes are missing from the log.

    databases: the databases whose changes are missing; None for any. is_certain: False if changes may be missing.
    """

    reason: str
    remedy: str
    databases: frozenset[str] | None = None
    is_certain: bool = True


def log_gaps(source: Source, databases: Collection[str]) -> list[LogGap]:
    """Return the reasons why changes of these databases may be missing from the log. Raises SourceError."""
    return [*_filtered(source, databases), *_replicated(source)]


def _filtered(source: Source, databases: Collection[str]) -> Iterator[LogGap]:
    """Yield gaps made by binlog_do_db and binlog_ignore_db.

    These filter row events by the rows' database, statements by the session's default database.
    """
    status = source.log_status()
    only, never = (set(filter(None, (status[0][name] or "").split(","))) if status else set() for name in _FILTERS)
    remedy = "take the filter from the server's option file and restart it"
    if left_out := frozenset(
        database for database in databases if (only and database not in only) or database in never
    ):
        yield LogGap(f"binlog_do_db or binlog_ignore_db leave out {', '.join(sorted(left_out))}", remedy, left_out)
    elif only or never:
        reason = "binlog_do_db or binlog_ignore_db: DDL typed in a session of another database isn't logged"
        yield LogGap(reason, remedy, is_certain=False)


def _replicated(source: Source) -> Iterator[LogGap]:
    variables = source.variables(["log_replica_updates", "log_slave_updates", "wsrep_on"])
    if "OFF" not in (variables.get("log_replica_updates"), variables.get("log_slave_updates")):
        return
    name = source.release.replica_updates
    replicates = variables.get("wsrep_on") == "ON" or _is_replica(source)
    if replicates is None:
        reason = f"{name} is OFF, and whether this server replicates from another isn't visible to the account"
        remedy = "GRANT REPLICA MONITOR ON *.* to the account, so that doctor can tell"
        yield LogGap(reason, remedy, is_certain=False)
    elif replicates:
        remedy = f"set {name}=ON in the server's option file and restart it, or mirror the server it replicates from"
        yield LogGap(f"{name} is OFF: what this server replicates from others isn't in its log", remedy)


def _is_replica(source: Source) -> bool | None:
    """Tell whether the server is a replica; None if the account lacks MariaDB's grant to see that.

    On MariaDB without the grant, an empty gtid_slave_pos still says that the server never replicated.
    """
    try:
        return bool(source.query(source.release.replica_status))
    except SourceError as error:
        if not denied(error):
            raise
    return None if source.query("SELECT @@GLOBAL.gtid_slave_pos AS gtids")[0]["gtids"] else False
