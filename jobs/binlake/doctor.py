"""Preflight: everything that must be so before a mirror can be exact, each failing line with what mends it.

Nothing is changed on the server. Grants are proved by doing what they are for where that is harmless, else read from
SHOW GRANTS.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from croniter import croniter
from pymysql.constants import ER

from binlake import reach, setup
from binlake.binlog.boundaries import format_description
from binlake.check import Check
from binlake.config import PipelineConfig
from binlake.errors import UNMATCHED_REMEDY, BinlakeError, ConfigurationError, SourceError, UsageError
from binlake.lake import settings
from binlake.names import mysql_quote, unmatched
from binlake.position import file_number
from binlake.schema.cascades import CASCADE_REMEDY, cascading, untold
from binlake.schema.engines import ENGINE_REMEDY
from binlake.schema.lake_columns import LakeColumn, side_columns
from binlake.schema.table import TableName
from binlake.schema.virtual import UNTOLD_REMEDY, judged
from binlake.source import lineage
from binlake.source.cascades import unlogged_cascades
from binlake.source.catalog import MIRRORED, Listed, SourceTable, list_tables, read_tables
from binlake.source.connection import Endpoint
from binlake.source.engines import refused_engines
from binlake.source.folder import Folder
from binlake.source.gaps import log_gaps
from binlake.source.log import Origin, opened
from binlake.source.replicas import replicas
from binlake.source.retention import RETENTION, retention_hours
from binlake.source.server import Source, denied, error_code
from binlake.state import lease
from binlake.state.metadata import Metadata, metadata_of
from binlake.versions import JAVA
from binlake.watch import note_seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VARIABLES = (
    "log_bin", "binlog_format", "binlog_row_image", "binlog_row_metadata", "binlog_row_value_options",
    *RETENTION, "server_id", "binlog_checksum",
    "gtid_mode", "time_zone", "system_time_zone", "innodb_native_foreign_keys", "encrypt_binlog",
    "lower_case_table_names", "binlog_error_action", "sync_binlog",
)  # fmt: skip
_CRASH_SAFE = "InnoDB"
_PATIENCE = 5.0
"""Seconds to wait for a metastore."""


@dataclass(frozen=True)
class _Subject:
    """What is being looked at."""

    config: PipelineConfig
    endpoint: Endpoint
    source: Source
    variables: dict[str, str]
    listed: list[Listed]
    tables: dict[str, SourceTable]


def preflight(
    config: PipelineConfig,
    origin: Origin,
    *,
    spark_checks: bool = True,
    session: Callable[[], SparkSession] | None = None,
    patterns: Sequence[str] = (),
) -> list[Check]:
    """All checks, in the order in which to mend them; a server that can't be reached ends the server's part.

    session: a lake in an object store, or on a cluster, is tried by Spark, too, which takes a session's start.
    patterns: of the tables that are asked for; each must match one that is included.
    """
    checks = _files(config, origin) if isinstance(origin, Folder) else _server(config, origin, patterns)
    if spark_checks:
        checks += [_java(), _jars(config)]
    has_spark = not spark_checks or all(check.ok for check in checks[-2:])
    return [*checks, _spark(config), *reach.lake_checks(config, session if has_spark else None), *_catalog(config)]


def _files(config: PipelineConfig, folder: Folder) -> list[Check]:
    """A folder in the place of a server: its files are there, one after the other, and can be read."""
    try:
        with opened(folder) as log:
            sizes = log.binary_logs()
            numbers = [file_number(file) for file, _ in sizes]
            missing = sorted(set(range(numbers[0], numbers[-1] + 1)) - set(numbers))
            total = sum(size for _, size in sizes) / 1e6
            file, offset, gtids = log.head()
            note_seen(metadata_of(config), log)
            return [
                Check("files", True, f"{len(sizes)} of {log.flavour} in {folder.address}, {total:,.1f} MB"),
                Check(
                    "numbering",
                    not missing,
                    f"{sizes[0][0]} to {file}" + (f", without number {missing[0]}" if missing else ""),
                    "copy the missing files there too" if missing else "",
                ),
                Check("binlog position", True, f"{file}:{offset}" + (f", GTIDs {gtids}" if gtids else "")),
            ]
    except BinlakeError as error:
        return [Check("files", False, error.message, error.remedy)]


def _server(config: PipelineConfig, endpoint: Endpoint, patterns: Sequence[str]) -> list[Check]:
    try:
        with Source.open(endpoint) as source:
            checks = [Check("server", True, f"{source.flavour} {source.version_text} at {endpoint.address}")]
            listed = [table for table in list_tables(source) if config.included(table.name)]
            names = [table.name for table in listed if table.kind in MIRRORED]
            tables = {str(name): table for name, table in read_tables(source, names, config.excluding).items()}
            subject = _Subject(config, endpoint, source, source.variables(_VARIABLES), listed, tables)
            for check in _CHECKS:
                checks += check(subject)
            note_seen(metadata_of(config), source)
            return [*checks, *_asked(patterns, names)]
    except SourceError as error:
        return [Check("server", False, error.message, error.remedy)]
    except ConfigurationError as error:
        return [Check("excluded columns", False, error.message, error.remedy)]


def _asked(patterns: Sequence[str], tables: Sequence[TableName]) -> list[Check]:
    if not patterns:
        return []
    if unknown := unmatched(patterns, [(table.database, table.table) for table in tables]):
        return [Check("tables asked for", False, f"no included table matches {', '.join(unknown)}", UNMATCHED_REMEDY)]
    return [Check("tables asked for", True, ", ".join(patterns))]


def _set_global(subject: _Subject, variable: str, value: str) -> str:
    """Without quotes, which variables that are numbers don't take."""
    verb = "SET GLOBAL" if subject.source.is_mariadb else "SET PERSIST"
    return f"{verb} {variable} = {value}"


def _set_sessions(subject: _Subject, variable: str, value: str) -> str:
    """Of a variable that sessions copy when they begin."""
    return f"{_set_global(subject, variable, value)}; and reconnect sessions that are open"


def _settings(subject: _Subject) -> Iterator[Check]:
    found = subject.variables
    on = found.get("log_bin", "OFF") in ("ON", "1")
    option_file = "set log_bin=binlog under [mysqld] in the server's option file and restart the server"
    yield Check("log_bin", on, "ON" if on else "OFF", "" if on else option_file)
    for variable, wanted in (("binlog_format", "ROW"), ("binlog_row_image", "FULL"), ("binlog_row_metadata", "FULL")):
        value = found.get(variable, "not known to this server")
        good = value.upper() == wanted
        yield Check(variable, good, value, "" if good else _set_sessions(subject, variable, wanted))
    if options := found.get("binlog_row_value_options", ""):
        yield Check("binlog_row_value_options", True, f"{options}: differences are applied to the row before them")
    yield Check("binlog_checksum", True, found.get("binlog_checksum", "NONE"))
    if subject.source.is_mariadb:
        yield Check("GTID", True, "on (MariaDB)")
    else:
        gtid = found.get("gtid_mode", "OFF")
        off = "positions are by file alone; gtid_mode=ON allows lock-free snapshots"
        yield Check("GTID", True if gtid == "ON" else "warn", f"gtid_mode {gtid}", "" if gtid == "ON" else off)
    zone = found.get("time_zone", "SYSTEM")
    zone = f"SYSTEM ({found.get('system_time_zone', '')})" if zone == "SYSTEM" else zone
    yield Check("time zone", True, f"{zone}; our sessions use +00:00")
    yield _case_of_names(subject)


def _whole_log(subject: _Subject) -> Iterator[Check]:
    """Nothing changes that the log doesn't tell."""
    try:
        gaps = log_gaps(subject.source, {table.name.database for table in subject.tables.values()})
    except SourceError as error:
        if not denied(error):
            raise
        return  # which grant is missing is told by the grants' own checks
    for gap in gaps:
        yield Check("whole log", False if gap.is_certain else "warn", gap.found, gap.remedy)
    if not gaps:
        yield Check("whole log", True, "no filter, and what is replicated is logged")
    if subject.variables.get("binlog_error_action") == "IGNORE_ERROR":
        found = "IGNORE_ERROR: where the log can't be written the server goes on without it"
        yield Check("binlog_error_action", "warn", found, _set_global(subject, "binlog_error_action", "ABORT_SERVER"))
    if (synced := subject.variables.get("sync_binlog", "1")) != "1":
        found = f"{synced}: after a loss of power the tables may hold what the log lost; then verify, or snapshot anew"
        yield Check("sync_binlog", "warn", found, _set_global(subject, "sync_binlog", "1"))


def _case_of_names(subject: _Subject) -> Check:
    value = subject.variables.get("lower_case_table_names", "0")
    if value == "2":
        remedy = "mirror a server on a file system that tells upper from lower case"
        return Check("lower_case_table_names", False, "2: names in the log aren't those of the tables", remedy)
    tables = subject.config.tables
    patterns = [*tables.include, *tables.exclude, *subject.config.policies.tables]
    patterns += [pattern.rpartition(".")[0] for pattern in tables.exclude_columns]
    upper = [pattern for pattern in patterns if pattern != pattern.lower()]
    if value == "1" and upper:
        found = f"1: names are stored in lower case, which {', '.join(upper)} can't match"
        return Check("lower_case_table_names", False, found, "write the patterns of the YAML in lower case")
    return Check("lower_case_table_names", True, value)


def longest_pause_hours(schedule: str) -> float:
    """The longest time between two runs of a schedule, hours."""
    runs = croniter(schedule, datetime(2024, 1, 1, tzinfo=UTC))
    moments = [runs.get_next(float) for _ in range(200)]
    return float(max(later - earlier for earlier, later in pairwise(moments))) / 3600


def _retention(subject: _Subject) -> Iterator[Check]:
    kept = retention_hours(subject.variables)
    schedule = subject.config.schedule
    if kept is None:
        yield Check("retention", True, "the log is kept for ever")
        return
    needed = 3 * longest_pause_hours(schedule) if schedule else 24.0
    said = f"the log is kept {kept:g} hours; three runs of the schedule take {needed:g}"
    seconds = int(max(needed * 3600, 604_800))
    remedy = _set_global(subject, "binlog_expire_logs_seconds", str(seconds))
    yield Check("retention", kept >= needed, said, "" if kept >= needed else remedy)


def _server_ids(subject: _Subject) -> Iterator[Check]:
    own = subject.source.server_id
    yield Check("server_id", own != 0, str(own), "" if own else "set server_id=1 in the server's option file")
    first = subject.config.source.replica_id()
    ours = range(first, first + subject.config.source.server_ids)
    said = f"{ours.start} to {ours.stop - 1}"
    try:
        ours_now = subject.config.source.replica_name  # a sync may be at work
        taken = {own, *(one.server_id for one in replicas(subject.source) if one.name != ours_now)}
        said += " are free"
    except SourceError as error:
        if not subject.source.is_mariadb:
            yield _grant(subject, "REPLICATION SLAVE", error)
            return
        # Listing replicas takes REPLICATION MASTER ADMIN there, more than a mirror should have.
        taken = {own}
        said += ", other replicas aren't visible to this account"
    clash = sorted(taken & set(ours))
    if clash:
        remedy = "choose a free range: source.server_id in the YAML"
        yield Check("our server ids", False, f"{ours.start} to {ours.stop - 1}, but {clash[0]} is in use", remedy)
    else:
        yield Check("our server ids", True, said)
        yield from _replica(subject)


def _replica(subject: _Subject) -> Iterator[Check]:
    """Read one event as a replica: proves REPLICATION SLAVE."""
    try:
        file, _, _ = subject.source.head()
        subject.source.binary_logs()
        yield Check("binlog position", True, "readable")
    except SourceError as error:
        yield _grant(subject, "BINLOG MONITOR" if subject.source.is_mariadb else "REPLICATION CLIENT", error)
        return
    transport = subject.source.transport()
    try:
        format_description(transport, file)
        yield Check("binlog stream", True, "readable as a replica")
    except SourceError as error:
        yield _grant(subject, "REPLICATION SLAVE", error)
    except BinlakeError as error:
        yield Check("binlog stream", False, error.message, error.remedy)


def _grant(subject: _Subject, grant: str, error: SourceError) -> Check:
    if denied(error) or "denied" in error.message.lower():
        return _missing(subject, grant)
    return Check(f"grant {grant}", False, error.message, error.remedy)


def _missing(subject: _Subject, grant: str, on: str = "*.*") -> Check:
    return Check(f"grant {grant}", False, f"missing on {on}", _grant_sql(subject, grant, on))


def _grant_sql(subject: _Subject, grant: str, on: str = "*.*") -> str:
    user = subject.source.query("SELECT CURRENT_USER() AS user")[0]["user"]
    name, _, host = user.rpartition("@")
    return f"GRANT {grant} ON {on} TO {mysql_quote(name)}@{mysql_quote(host)};"


def _granted(subject: _Subject) -> set[str]:
    """Privileges on ``*.*``, those of active roles included."""
    found: set[str] = set()
    for row in subject.source.query("SHOW GRANTS"):
        match = re.match(r"GRANT (.+?) ON \*\.\* TO ", next(iter(row.values())))
        if match:
            found |= {privilege.strip().upper() for privilege in match[1].split(",")}
    return found


def _snapshot_grants(subject: _Subject) -> Iterator[Check]:
    granted = _granted(subject)
    flush = {"RELOAD", "FLUSH_TABLES", "ALL PRIVILEGES"}
    wanted = "RELOAD" if subject.source.is_mariadb else "FLUSH_TABLES"
    if granted & flush:
        yield Check(f"grant {wanted}", True, "given")
    else:
        remedy = f"{_grant_sql(subject, wanted)} or snapshot with --lock tables (LOCK TABLES)"
        yield Check(f"grant {wanted}", "warn", "missing on *.*: FLUSH TABLES WITH READ LOCK can't be used", remedy)
    try:
        subject.source.query("XA RECOVER")
        yield Check("XA RECOVER", True, "allowed")
    except SourceError as error:
        # Without the grant MySQL answers as if the transaction were broken.
        lacks = error_code(error) == ER.XAER_RMERR
        yield (_missing(subject, "XA_RECOVER_ADMIN") if lacks else _grant(subject, "XA_RECOVER_ADMIN", error))


def _tables_exist(subject: _Subject) -> Iterator[Check]:
    names = [table.name for table in subject.listed]
    base = [table for table in subject.listed if table.kind in MIRRORED]
    for pattern in subject.config.tables.include:
        database, _, table = pattern.partition(".")
        exact = not re.search(r"[*?\[]", pattern)
        if exact and not any((name.database, name.table) == (database, table) for name in names):
            remedy = f"check the name, and {_grant_sql(subject, 'SELECT', f'{mysql_quote(database)}.*')}"
            yield Check(f"table {pattern}", False, "the server has none of this name that we may see", remedy)
    if not base:
        remedy = "check tables.include in the YAML, and GRANT SELECT on the databases"
        yield Check("tables", False, "no included table is visible to this account", remedy)
    else:
        yield Check("tables", True, f"{len(base)} included")
    for listed in subject.listed:
        if listed.kind not in (*MIRRORED, "VIEW", "SYSTEM VIEW"):
            remedy = f'exclude it in the YAML: exclude: ["{listed.name}"]'
            yield Check(f"table {listed.name}", False, f"{listed.kind.lower()}s aren't mirrored", remedy)


def _each_table(subject: _Subject) -> Iterator[Check]:
    refused = refused_engines(subject.source)
    for name, table in subject.tables.items():
        failures = list(_one_table(subject, table))
        if table.name in refused:
            failures.append(Check(f"table {name}", False, refused[table.name], ENGINE_REMEDY))
        if not failures:
            key = ", ".join(table.schema.key)
            yield Check(f"table {name}", True, f"{table.schema.key_kind} key ({key}), about {table.rows:,} rows")
        yield from failures


def _one_table(subject: _Subject, table: SourceTable) -> Iterator[Check]:
    quoted = f"{mysql_quote(table.name.database)}.{mysql_quote(table.name.table)}"
    line = f"table {table.name}"
    try:
        subject.source.query(f"SELECT * FROM {quoted} LIMIT 0")
    except SourceError as error:
        remedy = f'mend it so that it can be read, or exclude it in the YAML: exclude: ["{table.name}"]'
        yield _missing(subject, "SELECT", quoted) if denied(error) else Check(line, False, error.message, remedy)
    if table.schema.sequence:
        return
    if table.engine != _CRASH_SAFE:
        yield Check(line, "warn", f"engine {table.engine}: copied whole under the lock", "ALTER TABLE … ENGINE=InnoDB")
    if not table.schema.key:
        yield Check(line, "warn", "no key: each batch scans the whole table", f"ALTER TABLE {quoted} ADD PRIMARY KEY …")
    yield from _columns(subject, table, line)


def _columns(subject: _Subject, table: SourceTable, line: str) -> Iterator[Check]:
    strict = subject.config.policies.of(table.name).on_untold_column == "stop"
    for why in judged(table.schema).untold.values():
        yield Check(line, False if strict else "warn", why, UNTOLD_REMEDY)
    for column in table.schema.mirrored:
        try:
            sides = side_columns([column], subject.config.invalid)
        except BinlakeError as error:
            yield Check(line, False, error.message, error.remedy)
            continue
        for side in sides:
            yield from _side_column(table, side, line)


def _side_column(table: SourceTable, side: LakeColumn, line: str) -> Iterator[Check]:
    column, policy = side.source.name, "keep_text" if side.holds == "text" else "keep_bytes"
    if column in table.schema.key and side.holds == "text":
        remedy = "use invalid_dates: fail, or exclude the table"
        yield Check(line, False, f"the key has the date {column!r}, which keep_text may make NULL", remedy)
    if table.schema.has(side.name):
        remedy = f"use {'invalid_dates' if side.holds == 'text' else 'invalid_text'}: fail, or rename that column"
        yield Check(line, False, f"has a column {side.name!r} already, which {policy} needs for {column!r}", remedy)


def _cascades(subject: _Subject) -> Iterator[Check]:
    """Changes by foreign keys that the server makes below its log."""
    acting = [one for one in unlogged_cascades(subject.source) or () if str(one.child) in subject.tables]
    if not acting:
        yield Check("foreign keys", True, "no included table changes below the log")
    for one in acting:
        policy = subject.config.policies.of(one.child).on_unlogged_cascade
        child, parent = subject.tables[str(one.child)], subject.tables.get(str(one.parent))
        if policy == "stop" or parent is None:
            yield Check(f"table {one.child}", False, cascading(one), CASCADE_REMEDY)
            continue
        why = untold(one, child.schema, parent.schema) if policy == "derive" else f"by {policy!r}"
        if why:
            again = f"{cascading(one)}; it is snapshotted anew where rows of {one.parent} go: {why}"
            yield Check(f"table {one.child}", "warn", again, CASCADE_REMEDY)
        else:
            yield Check(f"table {one.child}", True, f"{cascading(one)}; they are derived from the parent's")


def _position(subject: _Subject) -> Iterator[Check]:
    """The lake goes on from where it stands."""
    try:
        standing = lease.read(Metadata(subject.config.metadata_path("").rstrip("/"))).position
        if standing is None:
            return
        transport = subject.source.transport()
        yield Check("lake's position", True, lineage.prove(subject.source, transport, standing))
    except BinlakeError as error:
        yield Check("lake's position", False, error.message, error.remedy)


_CHECKS: tuple[Callable[[_Subject], Iterator[Check]], ...] = (
    _settings,
    _whole_log,
    _retention,
    _server_ids,
    _snapshot_grants,
    _tables_exist,
    _each_table,
    _cascades,
    _position,
)


def _java() -> Check:
    found = setup.java()
    remedy = f"install Java {JAVA} or newer, or set JAVA_HOME to one"
    if found is None:
        return Check("Java", False, "not found", remedy)
    return Check("Java", found.major >= JAVA, found.said, "" if found.major >= JAVA else remedy)


def _jars(config: PipelineConfig) -> Check:
    if missing := setup.missing():
        listed = ", ".join(jar.file for jar in missing)
        return Check("Spark jars", False, f"{listed} not in {settings.JARS}", setup.COMMAND)
    try:
        settings.refuse_missing_jars(config.root)
    except UsageError as error:
        return Check("Spark jars", False, error.message, error.remedy)
    return Check("Spark jars", True, f"in {settings.JARS}")


def _spark(config: PipelineConfig) -> Check:
    try:
        settings.launch_settings(config.spark)
    except ConfigurationError as error:
        return Check("Spark settings", False, error.message, error.remedy)
    return Check(
        "Spark settings", True, f"master {config.spark.master}" if config.spark.master else "inside the process"
    )


def _catalog(config: PipelineConfig) -> Iterator[Check]:
    """That something listens where the YAML has a metastore; what it takes is seen by the first register."""
    if config.catalog is None or not (address := config.catalog.metastore or "").startswith("thrift://"):
        return
    try:
        host = urlsplit(address)
        socket.create_connection((host.hostname or "", host.port or 9083), timeout=_PATIENCE).close()
    except (OSError, ValueError) as error:
        remedy = (
            "start the metastore, or mend catalog.metastore in the YAML; until then tables are mirrored without names"
        )
        yield Check("catalog", "warn", f"{address} can't be reached: {error}", remedy)
        return
    yield Check("catalog", True, f"{address} can be reached")
