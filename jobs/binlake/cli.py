"""The command line: the same engine without Airflow.

Results go to standard output, progress to standard error. Exit codes: 0 good, 1 a difference or a failed check,
2 wrong use or configuration, 3 stopped on an error.
"""

from __future__ import annotations

import argparse
import getpass
import json
import logging
import math
import os
import socket
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binlake import config as configuration
from binlake.config import PipelineConfig
from binlake.errors import BinlakeError, CheckFailed, TableError, UsageError
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.serialization import dump
from binlake.state import decisions
from binlake.state.decisions import Reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from binlake.logview import Readable
    from binlake.source.log import Origin
    from binlake.state.history import Shape
    from binlake.state.record import RunReport
    from binlake.verify import VerifyReport


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of ``binlake``."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    parsed = _parser().parse_args(arguments)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    try:
        command: Callable[[argparse.Namespace], None] = parsed.command
        command(parsed)
    except BinlakeError as error:
        print(f"binlake: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # who reads has seen enough: head, less
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("binlake: interrupted; run again to go on, nothing is lost", file=sys.stderr)
        return 3
    except Exception as error:
        print(f"binlake: unexpected {type(error).__name__}: {_first_line(error)}", file=sys.stderr)
        print("  → run again; nothing is lost. If it stays, report it with this message", file=sys.stderr)
        logging.getLogger("binlake").debug("traceback", exc_info=True)
        return 3
    return 0


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="binlake", description="MySQL and MariaDB tables mirrored into Delta Lake")
    parser.add_argument("--version", action="version", version=f"binlake {version('binlake')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[..., None], help_: str, *, as_json: bool) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help_, description=help_)
        sub.add_argument("--config", required=True, metavar="FILE", help="the source's YAML")
        if as_json:
            sub.add_argument("--json", action="store_true", help="print JSON for programs")
        sub.set_defaults(command=lambda arguments: command(arguments, configuration.load(arguments.config)))
        return sub

    doctor = add("doctor", _doctor, "check server, grants, tables, Spark and lake; change nothing", as_json=True)
    doctor.add_argument(
        "--second-opinion",
        action="store_true",
        help="also read the newest of the server's log by mysql-replication, and compare every value",
    )
    doctor.add_argument("--minutes", type=_minutes, default=5.0, metavar="N", help="how new; by default 5 minutes")
    snapshot = add("snapshot", _snapshot, "copy tables at one binlog position", as_json=True)
    snapshot.add_argument("--tables", nargs="+", metavar="PATTERN", help="database.table, shell-style")
    snapshot.add_argument(
        "--lock",
        choices=("flush", "tables", "none"),
        default="flush",
        help="flush: FLUSH TABLES WITH READ LOCK for a moment; tables: LOCK TABLES; none: lock-free",
    )
    sync = add("sync", _sync, "bring the lake up to the server's head", as_json=True)
    sync.add_argument(
        "--until", default="now", metavar="now|TIMESTAMP", help="stop before commits at or after this time"
    )
    verify = add("verify", _verify, "compare every value of the lake with the server", as_json=True)
    verify.add_argument("--tables", nargs="+", metavar="PATTERN", help="database.table, shell-style")
    maintain = add("maintain", _maintain, "compact and vacuum tables and metadata, as the YAML promises", as_json=True)
    maintain.add_argument("--tables", nargs="+", metavar="PATTERN", help="database.table, shell-style")
    add("register", _register, "give the catalog that the YAML names the tables' names", as_json=True)
    add("status", _status, "where each table stands", as_json=True)
    history = add("history", _history, "the DDL statements seen, or a table's shape at some time", as_json=True)
    history.add_argument("--table", metavar="DB.T", help="of this table alone")
    history.add_argument("--at", metavar="FILE:POS|TIMESTAMP", help="the table's columns as they were there")
    _add_table(commands)
    _add_binlog(commands)
    _add_setup(commands)
    return parser


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0 < minutes < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no time; write a number of minutes, such as 5")
    return minutes


def _add_table(commands: Any) -> None:
    help_ = "decide about a table, or about an event that stops the run; recorded with who and why"
    actions = commands.add_parser("table", help=help_, description=help_).add_subparsers(
        required=True, metavar="ACTION"
    )
    for action, command, does in (
        ("pause", _pause, "leave a table as it is while the others go on"),
        ("resume", _resume, "bring a paused or stopped table up to the others, from the log"),
        ("resnapshot", _resnapshot, "have the next sync snapshot a table anew"),
        ("skip-event", _skip_event, "step over the event that stops the run; what it did won't be in the lake"),
    ):
        sub = actions.add_parser(action, help=does, description=does)
        sub.add_argument("--config", required=True, metavar="FILE", help="the source's YAML")
        if action == "skip-event":
            sub.add_argument("--at", required=True, metavar="FILE:POS", help="the event, as binlake status names it")
        else:
            sub.add_argument("--table", required=True, metavar="DB.T")
        sub.add_argument("--why", required=True, metavar="TEXT", help="for those who read it later")
        sub.add_argument("--who", default=_me(), metavar="NAME", help="by default the account and the machine")
        sub.set_defaults(command=lambda given, act=command: act(given, configuration.load(given.config)))


def _me() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # an account without a name, as containers have
        return f"uid {os.getuid()}@{socket.gethostname()}"


def _add_binlog(commands: Any) -> None:
    help_ = "read a binlog: a server's, a folder's or a file's"
    binlog = commands.add_parser("binlog", help=help_, description=help_)
    binlog.add_argument("uri", metavar="URI", help="mysql://user@host:3306/ (password in MYSQL_PWD), or file:///folder")
    binlog.add_argument("--start", metavar="FILE:POS|GTIDS", help="begin here, or after these GTIDs")
    binlog.add_argument("--stop", metavar="FILE:POS", help="end here; by default where the log ends now")
    binlog.add_argument("--events", action="store_true", help="list events instead of rows")
    binlog.add_argument(
        "--table", action="append", default=[], metavar="DB.T", help="only these tables, shell-style; may be repeated"
    )
    binlog.add_argument(
        "--reader",
        choices=("binlake", "mysql-replication"),
        default="binlake",
        help="mysql-replication: the same log through that package, with what it misreads",
    )
    binlog.add_argument("--format", choices=("text", "json", "csv", "parquet"), default="text")
    binlog.add_argument("--output", metavar="DIR", help="a file for each table instead of standard output")
    binlog.set_defaults(command=_binlog)


def _add_setup(commands: Any) -> None:
    help_ = "bring what this environment needs beside the wheel: Spark's jars, faster starts, compiled kernels"
    setup = commands.add_parser("setup", help=help_, description=help_)
    setup.add_argument("--jars", metavar="FOLDER", type=Path, help="take the jars from here instead of the network")
    setup.add_argument("--no-archive", action="store_true", help="keep no classes: for a JVM that runs elsewhere")
    setup.set_defaults(command=_setup)


def _setup(arguments: argparse.Namespace) -> None:
    from binlake.setup import set_up

    set_up(Report(), arguments.jars, archive=not arguments.no_archive)


def _session(
    name: str, tasks: int | None = None, short_lived: Callable[[], bool] = lambda: False
) -> Callable[[], SparkSession]:
    """short_lived: asked when the session is."""

    @cache
    def build() -> SparkSession:
        from binlake.lake import session

        return session.build(f"binlake {name}", tasks=tasks, short_lived=short_lived())

    return build


def _catalog_session(config: PipelineConfig) -> Callable[[], SparkSession]:
    """A session that reaches the catalog, in the place of the one at work."""

    def build() -> SparkSession:
        from binlake.lake import session
        from binlake.lake.named_tables import session_settings

        assert config.catalog is not None
        session.stop_active()
        return session.build("binlake register", short_lived=True, more=session_settings(config.catalog))

    return build


def _origin(config: PipelineConfig) -> Origin:
    from binlake.source import log

    return log.origin(config.source.connection)


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def _print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape("" if value is None else str(value)) for value in row))
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _doctor(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake.doctor import preflight
    from binlake.source.log import server_of

    origin = _origin(config)
    asked = server_of(origin, "--second-opinion") if arguments.second_opinion else None
    checks = preflight(config, origin)
    if asked:
        from binlake.opinion.doctor import second_opinion

        checks += second_opinion(config, asked, arguments.minutes)
    if arguments.json:
        _print_json([{key: value for key, value in vars(check).items() if value != {}} for check in checks])
    else:
        for check in checks:
            mark = {True: "ok  ", False: "FAIL", "warn": "warn"}[check.ok]
            print(f"{mark}  {check.name}: {check.found}")
            if check.ok is not True and check.remedy:
                print(f"      → {check.remedy}")
    failed = [check for check in checks if check.ok is False]
    if failed:
        raise CheckFailed(f"{len(failed)} of {len(checks)} checks failed", remedy="mend the lines marked FAIL above")


def _snapshot(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake import pipeline

    session = _session("snapshot", config.snapshot.connections)
    results = pipeline.bootstrap(
        config, _origin(config), session, Report(), tables=arguments.tables, lock=arguments.lock
    )
    _register_if_due(config)
    if arguments.json:
        _print_json([result.to_json() for result in results])
        return
    rows = [
        (r.name, f"{r.rows:,}", f"{r.seconds:.1f}", r.low.short, f"{r.lock_ms:,.0f}", r.delta_version) for r in results
    ]
    _print_table("Snapshot", ("table", "rows", "seconds", "position", "locked ms", "Delta version"), rows)


def parse_until(text: str) -> datetime | None:
    """``now`` is None; otherwise ISO 8601, UTC unless it names another zone. Raises UsageError."""
    if text == "now":
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--until {text!r} is not a time", remedy="write now, or a time such as 2026-01-31T13:00:00+00:00"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _sync(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake import pipeline

    until = parse_until(arguments.until)
    session = _session("sync", short_lived=lambda: pipeline.is_short_run(config))
    found = pipeline.sync(config, _origin(config), session, Report(), until=until)
    runs = (*found.earlier, found)
    if arguments.json:
        _print_json(found.to_json())
    else:
        for run in runs:
            _print_run(run)
    stopped = [table for run in runs for table in run.tables if table.status in ("stopped", "missing", "resnapshot")]
    for table in stopped:
        print(f"{table.status}: {table.table}: {table.reason}\n  → {table.remedy}", file=sys.stderr)
    newly = [table.table for table in stopped if table.newly_stopped]
    _register_if_due(config)
    if newly:
        raise TableError(f"{', '.join(newly)} stopped; the other tables are up to date", remedy="see above")


def _print_run(run: RunReport) -> None:
    if run.tables:
        rows = [
            (t.table, t.status, f"{t.inserted:,}", f"{t.updated:,}", f"{t.deleted:,}", t.delta_version, t.seconds)
            for t in run.tables
        ]
        columns = ("table", "status", "inserted", "updated", "deleted", "Delta version", "seconds")
        _print_table(f"Batch {run.batch}", columns, rows)
    print(run.message)
    if run.phases:
        print("seconds: " + ", ".join(f"{name} {seconds}" for name, seconds in run.phases))


def _verify(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake import pipeline

    found: VerifyReport = pipeline.verify(
        config, _origin(config), _session("verify"), Report(), tables=arguments.tables
    )
    if arguments.json:
        _print_json(found.to_json())
    else:
        print(found.to_text())
    if not found.equal:
        raise CheckFailed("the lake differs from the server", remedy="snapshot the tables named above again")


def _maintain(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake import pipeline

    found = pipeline.maintain(config, _session("maintain"), Report(), tables=arguments.tables)
    if arguments.json:
        _print_json(found.to_json())
        return
    rows = [
        (t.table, f"{t.files_before} → {t.files_after}", _mb(t.bytes_before, t.bytes_after), t.rewritten_files,
         t.removed_files, _mb(t.removed_bytes), t.seconds, t.left)
        for t in found.tables
    ]  # fmt: skip
    columns = ("table", "files", "MB", "rewritten", "removed", "MB removed", "seconds", "left")
    _print_table("Tables", columns, rows)
    ours = [
        (m.table, f"{m.files_before} → {m.files_after}", m.rows_expired, m.removed_files, _mb(m.removed_bytes))
        for m in found.metadata
    ]
    _print_table("Metadata", ("table", "files", "rows expired", "removed", "MB removed"), ours)
    print(found.headline)


def _mb(*sizes: int) -> str:
    return " → ".join(f"{size / 1e6:,.1f}" for size in sizes)


def _register(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake import pipeline

    found = pipeline.register(config, _catalog_session(config), Report())
    if arguments.json:
        _print_json(found.to_json())
    else:
        print(found.headline)


def _register_if_due(config: PipelineConfig) -> None:
    """Behind whatever may have made, moved or dropped a table."""
    from binlake import pipeline

    if pipeline.registration_due(config):
        pipeline.register(config, _catalog_session(config), Report())


def _status(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake.state.status import read_status

    found = read_status(config)
    if arguments.json:
        _print_json(found.to_json())
        return
    print(found.headline)
    rows = [
        (t["table"], t["status"], t["position"], t["batch"], t["delta_version"], t["reason"] or "")
        for t in found.tables
    ]
    _print_table("Tables", ("table", "status", "position", "batch", "Delta version", "why"), rows)


def _opened(arguments: argparse.Namespace) -> Readable:
    """The log by the reader that was asked for."""
    if arguments.reader == "binlake":
        from binlake import openlog

        return openlog.open(arguments.uri, arguments.start, arguments.stop)
    from binlake.opinion import listing

    return listing.open(arguments.uri, arguments.start, arguments.stop)


def _binlog(arguments: argparse.Namespace) -> None:
    from binlake import logview

    log = _opened(arguments)
    if arguments.events:
        logview.show_events(log, arguments.format, sys.stdout)
        return
    folder = Path(arguments.output) if arguments.output else None
    stopped = logview.show_mutations(log, arguments.table, arguments.format, sys.stdout, folder)
    if stopped:
        tables = ", ".join(sorted({str(table.name) for table in stopped}))
        raise TableError(f"{tables} can't be decoded from some event on", remedy=stopped[0].remedy)


def _pause(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    print(decisions.pause(config, _table_name(arguments.table), Reason(arguments.who, arguments.why)))


def _resume(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake import pipeline

    name, reason = _table_name(arguments.table), Reason(arguments.who, arguments.why)
    print(pipeline.resume(config, _origin(config), _session("resume"), Report(), name, reason))


def _resnapshot(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    print(decisions.resnapshot(config, _table_name(arguments.table), Reason(arguments.who, arguments.why)))


def _skip_event(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    file, _, offset = arguments.at.rpartition(":")
    if not file or not offset.isdigit():
        raise UsageError(f"--at {arguments.at!r} is no place in a log", remedy="write FILE:POS, as binlake status does")
    print(decisions.skip_event(config, (file, int(offset)), Reason(arguments.who, arguments.why)))


def _history(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake import pipeline
    from binlake.state import history

    metadata = pipeline.metadata_of(config)
    name = _table_name(arguments.table) if arguments.table else None
    if arguments.at:
        if name is None:
            raise UsageError("--at tells the shape of one table", remedy="add --table database.table")
        _show_shape(name, history.shape_at(metadata, name, history.Moment.parse(arguments.at)), arguments.json)
        return
    rows = history.statements(metadata, name)
    if arguments.json:
        _print_json(rows)
        return
    for row in rows:
        moment = datetime.fromtimestamp(row["committed_us"] / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
        print(f"{moment}  {row['file']}:{row['offset']}  {row['database']}.{row['table']}  {row['action']}")
        print(f"    {row['statement']}")
        if row["reason"]:
            print(f"    {row['reason']}")


def _table_name(text: str) -> TableName:
    database, dot, table = text.partition(".")
    if not dot:
        raise UsageError(f"{text!r} has no dot", remedy="write database.table")
    return TableName(database, table)


def _show_shape(name: TableName, shape: Shape, as_json: bool) -> None:
    schema = shape.schema
    if as_json:
        _print_json({"table": str(name), "position": shape.position, "schema": dump(schema) if schema else None})
        return
    if schema is None:
        print(f"there is no {name} from {shape.position} on")
        return
    rows = [
        (
            column.name,
            column.type,
            "" if column.nullable else "NOT NULL",
            column.charset,
            column.default,
            "" if column in schema.mirrored else "left out",
        )
        for column in schema.columns
    ]
    _print_table(f"{name} from {shape.position} on", ("column", "type", "null", "charset", "default", "lake"), rows)
    print(f"key ({schema.key_kind}): {', '.join(schema.key) or 'none'}")


if __name__ == "__main__":
    main()
