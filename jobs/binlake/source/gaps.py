"""Changes that a server doesn't write into its log, so that a reader of the log misses them.

Sources: MySQL manual 19.1.6.4 Binary Logging Options, 19.2.5 How Servers Evaluate Replication Filtering Rules; MariaDB
Knowledge Base, Replication and Binary Log System Variables, and Galera's requirements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from binlake.errors import NoBinlog, SourceError
from binlake.names import matches_database
from binlake.schema.log_gaps import LogGap
from binlake.source.server import NO_SIGNS, LogSigns, Source, denied


def log_gaps(source: Source, databases: Collection[str]) -> list[LogGap]:
    """Return the reasons why changes of these databases may be missing from the log. Raises SourceError."""
    try:
        signs = source.look()
    except NoBinlog:  # said by a check of its own
        signs = NO_SIGNS
    return [*_filtered(signs, databases), *_replicated(source)]


def _filtered(signs: LogSigns, databases: Collection[str]) -> Iterator[LogGap]:
    filters = list(_filters(signs))
    if left_out := frozenset(name for name in databases if any(gap.concerns(name) for gap in filters)):
        reason = f"binlog_do_db or binlog_ignore_db leave out {', '.join(sorted(left_out))}"
        yield LogGap(reason, _TAKE_AWAY, left_out)
    elif filters:
        reason = "binlog_do_db or binlog_ignore_db: DDL typed in a session of another database isn't logged"
        yield LogGap(reason, _TAKE_AWAY, is_certain=False)


def standing_gaps(source: Source, include: Sequence[str]) -> tuple[LogGap, ...]:
    """Return the certain gaps that concern a database of the patterns ``include``. Raises SourceError.

    The server is asked once a connection, and again when filters or replication have changed, as the newest look at the
    log's end shows.
    """
    signs = source.signs or source.look()
    if source.known_gaps is None or source.known_gaps[0] != signs:
        try:
            replicated = [gap for gap in _replicated(source) if gap.is_certain]
        except SourceError as error:
            if not denied(error):
                raise
            replicated = []  # doctor names the grant
        source.known_gaps = signs, (*_filters(signs), *replicated)
    return tuple(gap for gap in source.known_gaps[1] if _matters(gap, include))


def _matters(gap: LogGap, include: Sequence[str]) -> bool:
    """Return whether a gap concerns a database that a pattern names, or may name."""
    if gap.databases is not None:
        return any(matches_database(pattern, database) for pattern in include for database in gap.databases)
    named = [pattern.partition(".")[0] for pattern in include]
    return any(set(name) & set("*?[") or gap.concerns(name) for name in named)


_TAKE_AWAY = "take the filter from the server's option file and restart it"


def _filters(signs: LogSigns) -> Iterator[LogGap]:
    """Yield gaps made by binlog_do_db and binlog_ignore_db.

    These filter row events by the rows' database, statements by the session's default database.
    """
    if signs.only:
        reason = f"binlog_do_db logs {', '.join(sorted(signs.only))} alone"
        yield LogGap(reason, _TAKE_AWAY, but=signs.only)
    if signs.never:
        yield LogGap(f"binlog_ignore_db leaves out {', '.join(sorted(signs.never))}", _TAKE_AWAY, signs.never)


def _replicated(source: Source) -> Iterator[LogGap]:
    if source.logs_replicated:
        return
    name = source.release.replica_updates
    replicates = source.variables(["wsrep_on"]).get("wsrep_on") == "ON" or _is_replica(source)
    if replicates is None:
        reason = f"{name} is OFF, and whether this server replicates from another isn't visible to the account"
        remedy = "GRANT REPLICA MONITOR ON *.* to the account, so that doctor can say"
        yield LogGap(reason, remedy, is_certain=False)
    elif replicates:
        remedy = f"set {name}=ON in the server's option file and restart it, or mirror the server it replicates from"
        yield LogGap(f"{name} is OFF: what this server replicates from others isn't in its log", remedy)


def _is_replica(source: Source) -> bool | None:
    """Return whether the server is a replica; None if the account lacks MariaDB's grant to see that.

    On MariaDB without the grant, an empty gtid_slave_pos still says that the server never replicated.
    """
    try:
        return bool(source.query(source.release.replica_status))
    except SourceError as error:
        if not denied(error):
            raise
    return None if source.query("SELECT @@GLOBAL.gtid_slave_pos AS gtids")[0]["gtids"] else False
