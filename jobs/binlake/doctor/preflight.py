"""Preflight: check everything that an exact mirror needs; each failing line has a remedy.

Nothing is changed on the server. A grant is checked by using it if that is harmless, else it is read from SHOW GRANTS.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from binlake import names
from binlake.config import PipelineConfig
from binlake.doctor import account_checks, catalog_checks, pattern_checks, reach, server_checks
from binlake.doctor.check import GRANTS, Check
from binlake.doctor.former_values_check import former_values_kept
from binlake.doctor.packages import packages
from binlake.doctor.row_filter_checks import rows_left
from binlake.doctor.server_checks import Examined
from binlake.errors import (
    TAKEN_REMEDY,
    UNMATCHED_REMEDY,
    BinlakeError,
    ConfigurationError,
    LakeError,
    LakeGone,
    MetadataLost,
    NoBinlog,
    SourceError,
    UsageError,
)
from binlake.lease import lease
from binlake.merge.delta_names import DELTA_NAME_REMEDY, refused_by_merge, taken_by_delta
from binlake.names import grant_quote, unmatched
from binlake.phases.log_looks import note_seen, refuse_unlogged
from binlake.planner.rules import ROWS_REMEDY, Rules
from binlake.position import file_number
from binlake.records import missing_log
from binlake.schema.cascades import CASCADE_REMEDY, cascading, not_derivable
from binlake.schema.engines import ENGINE_REMEDY
from binlake.schema.lake_columns import LakeColumn, side_columns
from binlake.schema.table import TableName
from binlake.schema.virtual import UNLOGGED_COLUMN_REMEDY, generated_columns
from binlake.setup import installation
from binlake.source import lineage
from binlake.source.catalog import SourceTable, read_tables
from binlake.source.collations import no_condition
from binlake.source.endpoint import Endpoint
from binlake.source.folder import Folder
from binlake.source.folder_log import FolderLog
from binlake.source.listed_tables import MIRRORED, Listed, list_tables
from binlake.source.log import Log, Origin, opened
from binlake.source.releases import Release
from binlake.source.server import Source, denied, replicas, version_numbers
from binlake.source.unlogged_cascades import unlogged_cascades
from binlake.source.unlogged_engines import refused_engines
from binlake.spark import java_program, settings
from binlake.store.metadata import metadata_of

if TYPE_CHECKING:
    from binlake.spark.starting import SessionFactory

_CRASH_SAFE = "InnoDB"
"""Seconds to wait for a metastore."""


@dataclass(frozen=True)
class _Subject(Examined):
    """The server under examination, the configuration, and the included tables.

    visible: the names of all tables and views that the account may see, included or not.
    """

    config: PipelineConfig
    listed: list[Listed]
    tables: dict[str, SourceTable]
    writes: bool = True
    visible: Sequence[TableName] = ()


def preflight(
    config: PipelineConfig,
    origin: Origin,
    *,
    spark_checks: bool = True,
    session: SessionFactory | None = None,
    patterns: Sequence[str] = (),
    writes: bool = True,
) -> list[Check]:
    """Return all checks, in the order in which to fix them; a server that can't be reached ends the server's part.

    session: makes the Spark session that also tries a lake in an object store, or on a cluster; None to skip that.
    patterns: tables that the user named; each pattern must match an included table. writes: the lake is tried by
    writing, and what was seen of the server's log is noted there; else nothing is written.
    """
    try:
        metadata_of(config).refuse_gone()
    except (LakeGone, MetadataLost) as error:
        return [Check("lake", False, error.message, error.remedy)]
    except LakeError:
        pass  # a check below says it
    checks = (
        _folder_checks(config, origin, writes=writes)
        if isinstance(origin, Folder)
        else _server_checks_of(config, origin, patterns, writes=writes)
    )
    if spark_checks:
        checks += [packages(), _java(), _jars(config)]
    has_spark = not spark_checks or all(check.ok for check in checks[-3:])
    lake = reach.lake_checks(config, session if has_spark else None) if writes else reach.lake_unwritten(config)
    return [*checks, _spark(config), *lake, *former_values_kept(config), *catalog_checks.checks(config)]


def _folder_checks(config: PipelineConfig, folder: Folder, *, writes: bool) -> list[Check]:
    """Check a folder of binlog files: its files are there, numbered without gaps, and can be read."""
    try:
        with opened(folder) as log:
            sizes = log.binary_logs()
            numbers = [file_number(file) for file, _ in sizes]
            missing = sorted(set(range(numbers[0], numbers[-1] + 1)) - set(numbers))
            total = sum(size for _, size in sizes) / 1e6
            file, offset, gtids = log.head()
            if writes:
                note_seen(metadata_of(config), log)
            return [
                Check("files", True, f"{len(sizes)} of {log.flavour} in {folder.address}, {total:,.1f} MB"),
                *_release_of_files(log),
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


def _release_of_files(log: Log) -> Iterator[Check]:
    """Yield what is known of the server that wrote a folder's files."""
    if isinstance(log, FolderLog):
        yield server_checks.known_release(Release(log.flavour, version_numbers(log.version_text)).series)


def _server_checks_of(
    config: PipelineConfig, endpoint: Endpoint, patterns: Sequence[str], *, writes: bool
) -> list[Check]:
    try:
        opened = Source.open(endpoint)
    except (SourceError, ConfigurationError) as error:
        return [Check("server", False, error.message, error.remedy)]
    try:
        with opened as source:
            checks = [
                server_checks.reached(source),
                *server_checks.door(endpoint),
                *server_checks.proof_of_server(endpoint),
            ]
            visible = list_tables(source)
            listed = [table for table in visible if config.included(table.name)]
            names = [table.name for table in listed if table.kind in MIRRORED]
            tables = {str(name): table for name, table in read_tables(source, names, config.excluding).items()}
            variables = source.variables(server_checks.VARIABLES)
            subject = _Subject(source, variables, config, listed, tables, writes, [table.name for table in visible])
            for check in _CHECKS:
                checks += check(subject)
            if writes:
                note_seen(metadata_of(config), source)
            return [*checks, *_named_tables(patterns, names)]
    except SourceError as error:
        return [Check("server", False, error.message, error.remedy)]
    except ConfigurationError as error:
        return [Check("columns", False, error.message, error.remedy)]


def _named_tables(patterns: Sequence[str], tables: Sequence[TableName]) -> list[Check]:
    if not patterns:
        return []
    if unknown := unmatched(patterns, [(table.database, table.table) for table in tables]):
        return [Check("tables asked for", False, f"no included table matches {', '.join(unknown)}", UNMATCHED_REMEDY)]
    return [Check("tables asked for", True, ", ".join(patterns))]


def _whole_log(subject: _Subject) -> Iterator[Check]:
    return server_checks.whole_log(subject, {table.name.database for table in subject.tables.values()})


def _retention(subject: _Subject) -> Iterator[Check]:
    return server_checks.retention(subject, subject.config.schedule)


def _account(subject: _Subject) -> Iterator[Check]:
    yield from account_checks.roles(subject)
    yield from account_checks.unseen_tables(subject, subject.config, {table.name for table in subject.listed})
    yield from account_checks.connections(subject, subject.config)


def _case_of_names(subject: _Subject) -> Iterator[Check]:
    value = subject.variables.get("lower_case_table_names", "0")
    if value == "2":
        remedy = "mirror a server on a file system that distinguishes upper and lower case"
        yield Check("lower_case_table_names", False, "2: names in the log aren't those of the tables", remedy)
        return
    config, tables = subject.config, subject.config.tables
    patterns = [*tables.include, *tables.exclude, *config.policies.tables, *(entry.tables for entry in tables.modes)]
    patterns += [entry.tables for entry in config.rows]
    patterns += [pattern.rpartition(".")[0] for pattern in (*tables.exclude_columns, *config.page.mask_columns)]
    patterns += [policy.columns.rpartition(".")[0] for policy in config.columns if not policy.exclude]
    upper = [pattern for pattern in patterns if pattern != pattern.lower()]
    if value == "1" and upper:
        finding = f"1: names are stored in lower case, which {', '.join(upper)} can't match"
        yield Check("lower_case_table_names", False, finding, "write the patterns of the YAML in lower case")
    else:
        yield Check("lower_case_table_names", True, value)


def _server_ids(subject: _Subject) -> Iterator[Check]:
    own = subject.source.server_id
    yield server_checks.own_server_id(subject)
    first = subject.config.source.replica_id()
    ours = range(first, first + subject.config.source.server_ids)
    finding = f"{ours.start} to {ours.stop - 1}"
    try:
        ours_now = subject.config.source.replica_name  # a sync may be at work
        taken = {own, *(other.server_id for other in replicas(subject.source) if other.name != ours_now)}
        finding += " are free"
    except SourceError:
        # MySQL takes REPLICATION SLAVE for the list, which is asked for below; MariaDB takes REPLICATION MASTER ADMIN,
        # more than a mirror should have.
        taken = {own}
        finding += ", other replicas aren't visible to this account"
    clash = sorted(taken & set(ours))
    if clash:
        remedy = "choose a free range: source.server_id in the YAML"
        yield Check("our server ids", False, f"{ours.start} to {ours.stop - 1}, but {clash[0]} is in use", remedy)
    else:
        yield Check("our server ids", True, finding)
        yield from server_checks.replica(subject)


def _tables_exist(subject: _Subject) -> Iterator[Check]:
    names = [table.name for table in subject.listed]
    base = [table for table in subject.listed if table.kind in MIRRORED]
    for pattern in subject.config.tables.include:
        database, _, table = pattern.partition(".")
        exact = not _is_pattern(pattern)
        if exact and not any((name.database, name.table) == (database, table) for name in names):
            sql = server_checks.grant_sql(subject, "SELECT", f"{grant_quote(database)}.*")
            finding, remedy = "the server has none of this name that we may see", f"check the name, and {sql}"
            yield Check(f"table {pattern}", False, finding, remedy, {GRANTS: [sql]})
        elif not exact and base and unmatched([pattern], [(name.database, name.table) for name in names]):
            remedy = "check the pattern; leave it where such tables are to come"
            yield Check("tables.include", "warn", f"no included table matches {pattern}", remedy)
    if not base:
        databases = dict.fromkeys(pattern.partition(".")[0] for pattern in subject.config.tables.include)
        named = [grant_quote(database) for database in databases if not _is_pattern(database)]
        grants = [server_checks.grant_sql(subject, "SELECT", f"{database}.*") for database in named]
        remedy = "check tables.include in the YAML, and GRANT SELECT on the databases"
        yield Check("tables", False, "no included table is visible to this account", remedy, {GRANTS: grants})
    else:
        yield Check("tables", True, f"{len(base)} included")
    for listed in subject.listed:
        if listed.kind not in (*MIRRORED, "VIEW", "SYSTEM VIEW"):
            finding = f"{listed.kind.lower()}s aren't mirrored"
            yield Check(f"table {listed.name}", False, finding, _excluding(listed.name))


def _is_pattern(text: str) -> bool:
    return re.search(r"[*?\[]", text) is not None


def _excluding(name: TableName) -> str:
    """Return what leaves a table out, and no other; JSON's texts are YAML's, too."""
    pattern = names.pattern_of(name.database, name.table)
    return f"exclude it in the YAML: exclude: [{json.dumps(pattern, ensure_ascii=False)}]"


def _patterns_apply(subject: _Subject) -> Iterator[Check]:
    yield from pattern_checks.excluded_tables(subject.config, subject.visible)
    yield from pattern_checks.columns(subject.source, subject.config)
    yield from pattern_checks.row_filters(subject.config, subject.tables.values())
    yield from pattern_checks.masks(subject.tables.values())
    yield from pattern_checks.modes(subject.config, subject.tables.values())


def _each_table(subject: _Subject) -> Iterator[Check]:
    refused = refused_engines(subject.source)
    for name, table in subject.tables.items():
        failures = list(_one_table(subject, table))
        if table.name in refused:
            failures.append(Check(f"table {name}", False, refused[table.name], ENGINE_REMEDY))
        if not failures:
            key = ", ".join(table.schema.key)
            left = rows_left(subject.source, table)
            yield Check(f"table {name}", True, f"{table.schema.key_kind} key ({key}), about {table.rows:,} rows{left}")
        yield from failures


def _one_table(subject: _Subject, table: SourceTable) -> Iterator[Check]:
    quoted = table.name.quoted
    name = f"table {table.name}"
    try:
        subject.source.query(f"SELECT * FROM {quoted} LIMIT 0")
    except SourceError as error:
        remedy = f"fix it so that it can be read, or {_excluding(table.name)}"
        select = server_checks.missing(subject, "SELECT", quoted)
        yield select if denied(error) else Check(name, False, error.message, remedy)
    if table.unreadable:
        yield Check(name, False, table.unreadable, table.grant or table.entry_remedy or _excluding(table.name))
        return
    if why := subject.config.taken_by(table.name):
        yield Check(name, False, why, TAKEN_REMEDY)
    if refused := Rules.of(subject.config).refused_mode(table.name, table.schema):
        yield Check(name, False, refused.reason, refused.remedy)
    elif why := no_condition(subject.source, table.name, table.schema):
        yield Check(name, False, f"its row filter can't be worked out: {why}", ROWS_REMEDY)
    if table.schema.sequence:
        return
    if table.engine != _CRASH_SAFE:
        yield Check(name, "warn", f"engine {table.engine}: copied whole under the lock", "ALTER TABLE … ENGINE=InnoDB")
    if not table.schema.key:
        yield Check(name, "warn", "no key: each batch scans the whole table", f"ALTER TABLE {quoted} ADD PRIMARY KEY …")
    yield from _columns(subject, table, name)


def _columns(subject: _Subject, table: SourceTable, name: str) -> Iterator[Check]:
    strict = subject.config.policies.of(table.name).on_untold_column == "stop"
    for why in generated_columns(table.schema).left_out.values():
        yield Check(name, False if strict else "warn", why, UNLOGGED_COLUMN_REMEDY)
    yield from _delta_names(table, name)
    for column in table.schema.mirrored:
        try:
            sides = side_columns([column], subject.config.invalid)
        except BinlakeError as error:
            yield Check(name, False, error.message, error.remedy)
            continue
        for side in sides:
            yield from _side_column(table, side, name)


def _delta_names(table: SourceTable, name: str) -> Iterator[Check]:
    """Yield a warning for columns with names of Delta's own, and what they cost."""
    columns = [column.name for column in table.schema.mirrored]
    if taken := taken_by_delta(columns):
        yield Check(name, "warn", f"Spark can't read a table with the column {taken!r}", DELTA_NAME_REMEDY)
    if refused_by_merge(columns):
        why = "a column has the name of one of Delta's MERGE: where Spark merges the table, it is written whole"
        yield Check(name, "warn", why, DELTA_NAME_REMEDY)


def _side_column(table: SourceTable, side: LakeColumn, name: str) -> Iterator[Check]:
    column, policy = side.source.name, "keep_text" if side.holds == "text" else "keep_bytes"
    if column in table.schema.key and side.holds == "text":
        remedy = "use invalid_dates: fail, or exclude the table"
        yield Check(name, False, f"the key has the date {column!r}, which keep_text may make NULL", remedy)
    if table.schema.has(side.name):
        remedy = f"use {'invalid_dates' if side.holds == 'text' else 'invalid_text'}: fail, or rename that column"
        yield Check(name, False, f"has a column {side.name!r} already, which {policy} needs for {column!r}", remedy)


def _cascades(subject: _Subject) -> Iterator[Check]:
    """Check for foreign keys whose cascades the server doesn't log."""
    databases = [table.name.database for table in subject.tables.values()]
    cascades = unlogged_cascades(subject.source, databases) or ()
    acting = [cascade for cascade in cascades if str(cascade.child) in subject.tables]
    if not acting:
        yield Check("foreign keys", True, "no included table changes below the log")
    for cascade in acting:
        policy = subject.config.policies.of(cascade.child).on_unlogged_cascade
        child, parent = subject.tables[str(cascade.child)], subject.tables.get(str(cascade.parent))
        if subject.config.history(cascade.child):
            late = f"{cascading(cascade)}: its history has such changes at the end of the batch that brings them"
            yield Check(f"table {cascade.child}", "warn", late, CASCADE_REMEDY)
        if policy == "stop" or parent is None or parent.schema.where:
            yield Check(f"table {cascade.child}", False, cascading(cascade), CASCADE_REMEDY)
            continue
        why = not_derivable(cascade, child.schema, parent.schema) if policy == "derive" else f"by {policy!r}"
        if why:
            again = f"{cascading(cascade)}; it is snapshotted again where rows of {cascade.parent} go: {why}"
            yield Check(f"table {cascade.child}", "warn", again, CASCADE_REMEDY)
        else:
            yield Check(f"table {cascade.child}", True, f"{cascading(cascade)}; they are derived from the parent's")


def _position(subject: _Subject) -> Iterator[Check]:
    """Check that the log can be followed from the lake's position."""
    metadata = metadata_of(subject.config)
    try:
        recorded_state = lease.read(metadata).position
        if recorded_state is None:
            return
        refuse_unlogged(metadata, subject.source, recorded_state)
        transport = subject.source.transport()
        yield Check("lake's position", True, lineage.prove(subject.source, transport, recorded_state))
    except BinlakeError as error:
        if isinstance(error, NoBinlog) and subject.writes:
            missing_log.note(metadata, error)
        yield Check("lake's position", False, error.message, error.remedy)


_CHECKS: tuple[Callable[[_Subject], Iterator[Check]], ...] = (
    server_checks.release,
    server_checks.settings,
    _case_of_names,
    _whole_log,
    _retention,
    _server_ids,
    server_checks.snapshot_grants,
    _account,
    server_checks.sight_of_statements,
    _tables_exist,
    _patterns_apply,
    _each_table,
    _cascades,
    _position,
)


def _java() -> Check:
    try:
        return Check("Java", True, java_program.fitting().said)
    except UsageError as error:
        return Check("Java", False, error.message, error.remedy)


def _jars(config: PipelineConfig) -> Check:
    if missing := installation.missing():
        listed = ", ".join(jar.file for jar in missing)
        return Check("Spark jars", False, f"{listed} not in {settings.JARS}", installation.COMMAND)
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
