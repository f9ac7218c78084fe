"""Checks of a server that don't depend on the YAML: its settings, its log, and the account's grants.

Nothing is changed on it. A grant is checked by using it if that is harmless, else it is read from SHOW GRANTS.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from croniter import croniter
from pymysql.constants import ER

from binlake.binlog.integrity import format_description
from binlake.config import PipelineConfig
from binlake.doctor.check import GRANTS, Check
from binlake.errors import BinlakeError, ConfigurationError, ConnectionFailed, SourceError
from binlake.lease import lease
from binlake.names import mysql_quote
from binlake.source import lock_waits
from binlake.source.endpoint import Endpoint
from binlake.source.gaps import log_gaps
from binlake.source.listed_tables import MIRRORED, list_tables
from binlake.source.log import Origin
from binlake.source.read_replica import ReadReplica
from binlake.source.releases import Series, Service, service_of
from binlake.source.retention import RETENTION, retention_hours, service_hours
from binlake.source.server import Source, denied, error_code
from binlake.store.metadata import metadata_of

_REPLICA = "replica"
_REPLICA_WAIT = 1.0
"""Seconds for which a replica that is behind the lake is waited for."""

_WEEK = 168.0
"""The advised retention of the log, in hours."""
_NIGHTS = 200
"""How many pauses from a day with runs to the next one are looked at."""
VARIABLES = (
    "log_bin", "binlog_format", "binlog_row_image", "binlog_row_metadata", "binlog_row_value_options",
    *RETENTION, "server_id", "binlog_checksum",
    "gtid_mode", "time_zone", "system_time_zone", "innodb_native_foreign_keys", "encrypt_binlog", "binlog_encryption",
    "lower_case_table_names", "binlog_error_action", "sync_binlog", "innodb_flush_log_at_trx_commit",
    "binlog_storage_engine",
)  # fmt: skip


@dataclass(frozen=True)
class Examined:
    """A server under examination, and its settings."""

    source: Source
    variables: dict[str, str]

    @property
    def service(self) -> Service | None:
        """The managed service that runs the server; None for a self-managed one."""
        return service_of(self.source.version_text, self.variables)


def server_checks(endpoint: Endpoint) -> list[Check]:
    """Return the checks of any server, in the order in which to fix them; only one if it can't be reached."""
    try:
        with Source.open(endpoint) as source:
            subject = Examined(source, source.variables(VARIABLES))
            return [
                reached(source),
                Check("account", True, _account(source)),
                *door(endpoint),
                *proof_of_server(endpoint),
                *release(subject),
                *settings(subject),
                *whole_log(subject, ()),
                *retention(subject, None),
                own_server_id(subject),
                *replica(subject),
                *snapshot_grants(subject),
                *sight_of_statements(subject),
                *_tables_are_visible(subject),
            ]
    except (SourceError, ConfigurationError) as error:
        return [Check("server", False, error.message, error.remedy)]


def reached(source: Source) -> Check:
    """Return the check that the server answers, with its version and address."""
    return Check("server", True, f"{source.flavour} {source.version_text} at {source.endpoint.address}")


def door(endpoint: Endpoint) -> Iterator[Check]:
    """Yield how the connection is let in, where that isn't by a password alone. It is open by now."""
    if endpoint.tunnel:
        yield Check("tunnel", True, f"the way leads through {endpoint.tunnel.address}")
    if token := endpoint.token:
        yield Check("token", True, f"{token.maker} makes one for each connection")


def proof_of_server(endpoint: Endpoint) -> Iterator[Check]:
    """Yield a warning of a connection over a network in which somebody else can pass for the server."""
    if endpoint.is_proved:
        return
    finding = f"nothing proves that {endpoint.address} is the right server: its certificate isn't verified"
    if endpoint.allow_cleartext:
        finding += ", and allow_cleartext lets it have the password"
    remedy = "name the authority that signed the certificate in the connection's extra: ssl.ca (binlake help servers)"
    yield Check("TLS", "warn", finding, remedy)


def release(subject: Examined) -> Iterator[Check]:
    """Yield what is known of the server's version and service. A refused version can't get here: it doesn't connect."""
    yield known_release(subject.source.release.series)
    if service := subject.service:
        yield Check("service", True, f"{service.name}: settings are made {service.settings}")


def known_release(series: Series) -> Check:
    """Return whether servers of a series are proved, expected to work, or refused."""
    if series.verdict == "proved":
        return Check("release", True, f"{series.name} is proved: {series.why}")
    if series.verdict == "expected":
        remedy = "run binlake verify after the first syncs"
        return Check("release", "warn", f"{series.name} is expected to work: {series.why}", remedy)
    remedy = "upgrade the server, or mirror a replica of it that is newer"
    return Check("release", False, f"{series.name} is refused: {series.why}", remedy)


def _tables_are_visible(subject: Examined) -> Iterator[Check]:
    """Check that the account sees tables; which of them are included isn't known here."""
    number = sum(table.kind in MIRRORED for table in list_tables(subject.source))
    remedy = "" if number else grant_sql(subject, "SELECT", "`database`.*")
    yield Check("tables", True if number else "warn", f"{number:,} are visible to this account", remedy)


def set_global(subject: Examined, variable: str, value: str) -> str:
    """Return the statement, or the service's way, that sets a variable. Values aren't quoted, as numbers can't be."""
    if service := subject.service:
        return f"set {variable} = {value} {service.settings}"
    verb = "SET GLOBAL" if subject.source.is_mariadb else "SET PERSIST"
    return f"{verb} {variable} = {value}"


def _set_sessions(subject: Examined, variable: str, value: str) -> str:
    """Return what to do to set a variable that sessions copy when they begin."""
    return f"{set_global(subject, variable, value)}; and reconnect sessions that are open"


def is_logging(subject: Examined) -> bool:
    """Return whether the server writes a log."""
    return subject.variables.get("log_bin", "OFF") in ("ON", "1")


_AS_GOOD = {"binlog_row_image": ("FULL_NODUP",)}
"""Values that are as good as the wanted one. MariaDB's FULL_NODUP only leaves unchanged columns out of after images."""


def settings(subject: Examined) -> Iterator[Check]:
    """Check the variables that decide what the log contains."""
    variables = subject.variables
    on = is_logging(subject)
    option_file = "set log_bin=binlog under [mysqld] in the server's option file and restart the server"
    remedy = subject.service.log_bin if subject.service else option_file
    yield Check("log_bin", on, "ON" if on else "OFF", "" if on else remedy)
    if engine := variables.get("binlog_storage_engine", ""):
        remedy = "take binlog_storage_engine from the server's option file, restart it, and take new snapshots"
        yield Check("binlog_storage_engine", False, f"{engine}: its pages aren't read, only a log in files is", remedy)
    for variable, wanted in (("binlog_format", "ROW"), ("binlog_row_image", "FULL"), ("binlog_row_metadata", "FULL")):
        value = variables.get(variable, subject.source.release.without_setting(variable))
        good = value.upper() in (wanted, *_AS_GOOD.get(variable, ()))
        yield Check(variable, good, value, "" if good else _set_sessions(subject, variable, wanted))
    if options := variables.get("binlog_row_value_options", ""):
        yield Check("binlog_row_value_options", True, f"{options}: differences are applied to the row before them")
    yield Check("binlog_checksum", True, variables.get("binlog_checksum", "NONE"))
    for variable in ("encrypt_binlog", "binlog_encryption"):
        if variables.get(variable) == "ON":
            yield Check(variable, True, "ON: the server sends its log in the clear; copies of its files can't be read")
    if subject.source.is_mariadb:
        yield Check("GTID", True, "on (MariaDB)")
    else:
        gtid = variables.get("gtid_mode", "OFF")
        off = "positions are by file alone; gtid_mode=ON allows lock-free snapshots"
        yield Check("GTID", True if gtid == "ON" else "warn", f"gtid_mode {gtid}", "" if gtid == "ON" else off)
    zone = variables.get("time_zone", "SYSTEM")
    zone = f"SYSTEM ({variables.get('system_time_zone', '')})" if zone == "SYSTEM" else zone
    yield Check("time zone", True, f"{zone}; our sessions use +00:00")


def whole_log(subject: Examined, databases: Collection[str]) -> Iterator[Check]:
    """Check that all changes in these databases are logged."""
    try:
        gaps = log_gaps(subject.source, databases)
    except SourceError as error:
        if not denied(error):
            raise
        return  # the checks of grants report the missing one
    for gap in gaps:
        yield Check("whole log", False if gap.is_certain else "warn", gap.reason, gap.remedy)
    if not gaps:
        yield Check("whole log", True, "no filter, and what is replicated is logged")
    if subject.variables.get("binlog_error_action") == "IGNORE_ERROR":
        finding = "IGNORE_ERROR: where the log can't be written the server continues without it"
        yield Check("binlog_error_action", "warn", finding, set_global(subject, "binlog_error_action", "ABORT_SERVER"))
    if (synced := subject.variables.get("sync_binlog", "1")) != "1":
        finding = (
            f"{synced}: after a loss of power the tables may hold what the log lost; then verify, or snapshot again"
        )
        yield Check("sync_binlog", "warn", finding, set_global(subject, "sync_binlog", "1"))
    if (flushed := subject.variables.get("innodb_flush_log_at_trx_commit", "1")) != "1":
        finding = f"{flushed}: after a crash the log may hold transactions that the tables lost; then verify"
        remedy = set_global(subject, "innodb_flush_log_at_trx_commit", "1")
        yield Check("innodb_flush_log_at_trx_commit", "warn", finding, remedy)


def longest_pause_hours(schedule: str) -> float:
    """Return the longest time between two runs of a schedule, in hours.

    Days that have runs have them at the same times, so one of them shows the pauses within a day. Those over a night, a
    weekend or a month are looked at one after the other.
    """
    runs = croniter(schedule, datetime(2024, 1, 1, tzinfo=UTC))
    moments: list[datetime] = [runs.get_next(datetime)]
    while (moment := runs.get_next(datetime)).date() == moments[0].date():
        moments.append(moment)
    longest = max((later - earlier for earlier, later in pairwise(moments)), default=timedelta(0))
    last = moments[-1]
    for _ in range(_NIGHTS):
        longest = max(longest, moment - last)
        last = datetime.combine(moment, last.timetz())
        runs.set_current(last)
        moment = runs.get_next(datetime)
    return longest / timedelta(hours=1)


def retention(subject: Examined, schedule: str | None) -> Iterator[Check]:
    """Check that the log is kept for three runs of the schedule. schedule: of the syncs, as cron; None if unknown."""
    needed = 3 * longest_pause_hours(schedule) if schedule else 24.0
    remedy = set_global(subject, *subject.source.release.kept_log(max(needed, _WEEK)))
    kept = retention_hours(subject.variables)
    if (service := subject.service) and service.retention:
        remedy = service.retention.format(hours=int(_WEEK))
        try:
            kept = service_hours(subject.source)
        except SourceError as error:
            yield Check("retention", "warn", f"{service.name} doesn't answer this account: {error.message}", remedy)
            return
    if kept is None:
        yield Check("retention", True, "the log is kept for ever")
        return
    why = "three runs of the schedule take" if schedule else "no schedule is known, and a day is"
    said = f"the log is kept {kept:g} hours; {why} {needed:g}"
    yield Check("retention", kept >= needed, said, "" if kept >= needed else remedy)


def own_server_id(subject: Examined) -> Check:
    """Return the check that the server's own ``server_id`` isn't 0, with which no replica is served."""
    own = subject.source.server_id
    return Check("server_id", own != 0, str(own), "" if own else "set server_id=1 in the server's option file")


def replica(subject: Examined) -> Iterator[Check]:
    """Check that events can be read as a replica, which needs REPLICATION SLAVE. All grants that are missing are said
    at once."""
    if not is_logging(subject):
        return  # said by its own check
    try:
        file, _, _ = subject.source.head()
        subject.source.binary_logs()
        yield Check("binlog position", True, "readable")
    except SourceError as error:
        yield grant(subject, "BINLOG MONITOR" if subject.source.is_mariadb else "REPLICATION CLIENT", error)
        if not _granted(subject) & {"REPLICATION SLAVE", "ALL PRIVILEGES"}:  # without a file's name it can't be tried
            yield missing(subject, "REPLICATION SLAVE")
        return
    transport = subject.source.transport()
    try:
        format_description(transport, file)
        yield Check("binlog stream", True, "readable as a replica")
    except SourceError as error:
        yield grant(subject, "REPLICATION SLAVE", error)
    except BinlakeError as error:
        yield Check("binlog stream", False, error.message, error.remedy)


def grant(subject: Examined, grant: str, error: SourceError) -> Check:
    """Return the failed check of a grant, given the error of using it."""
    if denied(error) or "denied" in error.message.lower():
        return missing(subject, grant)
    return Check(f"grant {grant}", False, error.message, error.remedy)


def missing(subject: Examined, grant: str, on: str = "*.*") -> Check:
    """Return the failed check of a grant, with the SQL that gives it. on: the grant's scope."""
    sql = grant_sql(subject, grant, on)
    return Check(f"grant {grant}", False, f"missing on {on}", sql, {GRANTS: [sql]})


def grant_sql(subject: Examined, grant: str, on: str = "*.*") -> str:
    """Return the GRANT statement for the account that binlake uses."""
    return f"GRANT {grant} ON {on} TO {account_sql(subject)};"


def account_sql(subject: Examined) -> str:
    """Return the account as statements name it."""
    name, _, host = _account(subject.source).rpartition("@")
    return f"{mysql_quote(name)}@{mysql_quote(host)}"


def _account(source: Source) -> str:
    """Return the account that the server took the user for, as ``name@host``."""
    return str(source.query("SELECT CURRENT_USER() AS user")[0]["user"])


def _granted(subject: Examined) -> set[str]:
    """Return the account's privileges on ``*.*``, including those of active roles."""
    privileges: set[str] = set()
    for statement in subject.source.grants():
        match = re.match(r"GRANT (.+?) ON \*\.\* TO ", statement)
        if match:
            privileges |= {privilege.strip().upper() for privilege in match[1].split(",")}
    return privileges


def snapshot_grants(subject: Examined) -> Iterator[Check]:
    """Yield the checks of what only snapshots need: the read lock and XA RECOVER."""
    yield _read_lock(subject)
    try:
        subject.source.query("XA RECOVER")
        yield Check("XA RECOVER", True, "allowed")
    except SourceError as error:
        # Without the grant, MySQL reports a failed transaction (XAER_RMERR).
        lacks = error_code(error) == ER.XAER_RMERR
        yield (missing(subject, "XA_RECOVER_ADMIN") if lacks else grant(subject, "XA_RECOVER_ADMIN", error))


def sight_of_statements(subject: Examined) -> Iterator[Check]:
    """Check whether the account sees whom a lock would wait for."""
    if lock_waits.may_see(subject.source):
        yield Check("long statements", True, "seen: no lock is asked for behind one")
        return
    wanted = [("PROCESS", "*.*")]
    if not subject.source.is_mariadb:
        wanted = [("SELECT", f"performance_schema.{table}") for table in ("metadata_locks", "threads")]
    grants = [grant_sql(subject, privilege, on) for privilege, on in wanted]
    yield Check(
        "long statements",
        "warn",
        "can't be seen: a snapshot asks for its lock behind a long statement, too, and writes wait for some seconds"
        " before it takes another way",
        " ".join(grants),
        {GRANTS: grants},
    )


def _read_lock(subject: Examined) -> Check:
    if service := subject.service:
        finding = f"{service.name} refuses FLUSH TABLES WITH READ LOCK: LOCK TABLES is used instead"
        return Check("read lock", True, finding)
    wanted = subject.source.release.flush_grant
    if _granted(subject) & {"RELOAD", "FLUSH_TABLES", "ALL PRIVILEGES"}:
        return Check(f"grant {wanted}", True, "given")
    sql = grant_sql(subject, wanted)
    remedy = f"{sql} or take snapshots with the lock 'tables' (LOCK TABLES)"
    finding = "missing on *.*: FLUSH TABLES WITH READ LOCK can't be used"
    return Check(f"grant {wanted}", "warn", finding, remedy, {GRANTS: [sql]})


def replica_checks(config: PipelineConfig, origin: Origin, endpoint: Endpoint) -> Iterator[Check]:
    """Check that the replica that a verification reads in the source's place can be read so, and how far it is."""
    try:
        with Source.open(endpoint) as server:
            yield replace(reached(server), name=_REPLICA)
            examined = Examined(server, server.variables(VARIABLES))
            for check in (*proof_of_server(endpoint), *snapshot_grants(examined)):
                yield replace(check, name=f"{_REPLICA}'s {check.name}")
        yield from _place(config, ReadReplica(endpoint, origin))
    except BinlakeError as error:
        yield Check(_REPLICA, False, error.message, error.remedy)


def _place(config: PipelineConfig, replica: ReadReplica) -> Iterator[Check]:
    """Check that the replica has executed what the lake holds. One that is behind is waited for by a verification."""
    position = lease.read(metadata_of(config)).position
    if position is None:
        return
    try:
        replica.wait_for(position, _REPLICA_WAIT)
        yield Check(f"{_REPLICA}'s position", True, f"has executed what the lake holds, up to {position.short}")
    except ConnectionFailed as error:
        yield Check(f"{_REPLICA}'s position", "warn", error.message, error.remedy)
