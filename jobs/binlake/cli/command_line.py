"""The command line: the same engine without Airflow.

Results go to standard output, progress to standard error. Exit codes: 0 good, 1 a difference or a failed check,
2 wrong use or configuration, 3 stopped on an error, 130 interrupted (Ctrl-C).
"""

from __future__ import annotations

import argparse
import getpass
import logging
import os
import select
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, TextIO, cast, get_args

from binlake import config as configuration, interrupts
from binlake.cli import (
    argument_values,
    checks,
    dictionary_command,
    environment,
    feed_parsers,
    help_topics,
    parser_parts,
    purge_command,
    replay_arguments,
    sql_commands,
    step_commands,
    table_commands,
)
from binlake.cli.installed_versions import ShowVersions
from binlake.errors import BinlakeError
from binlake.planner.steps import Status
from binlake.report import HarmlessStream, harmless_entry
from binlake.versions import STORES, misfit

_REPORT = "  → run again; nothing is lost. If it stays, report it with this message"


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code. An unexpected error isn't 1, which means a difference.

    Text for a terminal or a log is made harmless there; a program that reads standard output gets it as it is.
    """
    out = HarmlessStream(sys.stdout) if sys.stdout.isatty() else sys.stdout
    with redirect_stdout(cast("TextIO", out)), redirect_stderr(cast("TextIO", HarmlessStream(sys.stderr))):
        return _exit_code(arguments)


def _exit_code(arguments: Sequence[str] | None) -> int:
    try:
        _run(arguments)
    except BinlakeError as error:
        print(harmless_entry(f"binlake: {error}"), file=sys.stderr)
        return error.exit_code
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # Rust's panics are no Exception
        if isinstance(error, KeyboardInterrupt) or interrupts.was_raised():
            print(interrupts.SAID, end="", file=sys.stderr)
            return interrupts.EXIT_CODE
        if isinstance(error, BrokenPipeError) and _is_unread():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"binlake: unexpected {type(error).__name__}: {_first_line(error)}", file=sys.stderr)
        wrong = misfit()
        print(f"binlake: {wrong}" if wrong else _REPORT, file=sys.stderr)
        logging.getLogger("binlake").debug("traceback", exc_info=True)
        return 3
    return 0


def _is_unread() -> bool:
    """Return whether the reader of the command's output has closed the pipe, as head and less do. Other connections
    break, too."""
    poll = select.poll()
    for descriptor in (1, 2):
        poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _run(arguments: Sequence[str] | None) -> None:
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete  # for the shell's completion alone

        argcomplete.autocomplete(parser)
    parsed = parser.parse_args(arguments)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    if parsed.verbose:
        logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
        logging.getLogger("binlake").setLevel(logging.DEBUG)
    command: Callable[[argparse.Namespace], None] = parsed.command
    command(parsed)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="binlake", description="MySQL and MariaDB tables mirrored into Delta Lake")
    parser.add_argument("--version", action=ShowVersions)
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[..., None], help_: str, *, as_json: bool) -> argparse.ArgumentParser:
        sub = subparsers.add_parser(name, help=help_, description=help_, parents=[parser_parts.common_options()])
        sub.add_argument("--config", required=True, metavar="FILE", help="the source's YAML")
        if as_json:
            sub.add_argument("--json", action="store_true", help="print JSON for programs")
        sub.set_defaults(command=lambda arguments: command(arguments, configuration.load(arguments.config)))
        return sub

    help_ = "check server, grants, tables, Spark, lake and feeds; change nothing"
    doctor = subparsers.add_parser("doctor", help=help_, description=help_, parents=[parser_parts.common_options()])
    doctor.add_argument("--config", required=True, metavar="FILE", help="the source's YAML, or a file of feeds")
    doctor.add_argument("--json", action="store_true", help="print JSON for programs")
    doctor.set_defaults(command=checks.doctor)
    doctor.add_argument(
        "--second-opinion",
        action="store_true",
        help="also read the newest part of the server's log with mysql-replication, and compare every value",
    )
    doctor.add_argument(
        "--minutes",
        type=argument_values.minutes,
        default=5.0,
        metavar="N",
        help="how many of the newest minutes; by default 5",
    )
    _add_check(subparsers)
    snapshot = add("snapshot", step_commands.snapshot, "copy tables at one binlog position", as_json=True)
    parser_parts.add_tables(snapshot)
    snapshot.add_argument(
        "--keys", metavar="FIRST..LAST", help="copy only these rows of one table again, by the first column of its key"
    )
    snapshot.add_argument(
        "--lock",
        choices=("flush", "tables", "none"),
        default="flush",
        help="flush: FLUSH TABLES WITH READ LOCK for a moment; tables: LOCK TABLES; none: lock-free",
    )
    snapshot.add_argument(
        "--begin", action="store_true", help="begin a new lake, although the one that this account knew is gone"
    )
    sync = add("sync", step_commands.sync, "bring the lake up to the server's head", as_json=True)
    sync.add_argument(
        "--until", default="now", metavar="now|TIMESTAMP", help="stop before commits at or after this time"
    )
    follow = add("follow", step_commands.follow, "keep the lake seconds behind the server, until SIGTERM", as_json=True)
    follow.add_argument(
        "--every",
        type=argument_values.duration,
        metavar="DURATION",
        help="look at the log so often; by default the YAML's, or 1s",
    )
    follow.add_argument(
        "--for", dest="duration", type=argument_values.duration, metavar="DURATION", help="end after 10min, 2h …"
    )
    verify = add("verify", step_commands.verify, "compare every value of the lake with the server", as_json=True)
    parser_parts.add_tables(verify)
    verify.add_argument("--by", choices=["read", "hash"], help="overrides verify.by of the YAML")
    verify.add_argument(
        "--for",
        dest="duration",
        type=argument_values.duration,
        metavar="DURATION",
        help="end after 30m …; the next run continues there",
    )
    what = verify.add_mutually_exclusive_group()
    what.add_argument(
        "--changed", action="store_true", help="compare what may have changed since, and a share of the rest"
    )
    what.add_argument("--iceberg", action="store_true", help="compare tables with what is published of them as Iceberg")
    what.add_argument("--lake", action="store_true", help="check the lake's files alone, by what was verified before")
    what.add_argument(
        "--self-test", action="store_true", help="plant faults in copies of the lake's rows, and find each"
    )
    repair = add("repair", step_commands.repair, "put right the rows that differ from the server", as_json=True)
    parser_parts.add_tables(repair)
    repair.add_argument("--dry-run", action="store_true", help="show what would be repaired, and change nothing")
    repair.add_argument("--keep-values", action="store_true", help="note the lake's former values, too")
    replay = add(
        "replay",
        step_commands.replay,
        "build tables again as they were after a batch, from staged files, without the server",
        as_json=True,
    )
    replay_arguments.add_to(replay, _me())
    maintain = add(
        "maintain", step_commands.maintain, "compact and vacuum tables and metadata, as the YAML promises", as_json=True
    )
    parser_parts.add_tables(maintain)
    help_ = "remove at once what is kept of tables from before their newest copies, as after a policy changed"
    purge_command.add_arguments(add("purge", purge_command.run, help_, as_json=True), _add_reason)
    add("register", step_commands.register, "register the tables' names in the YAML's catalog", as_json=True)
    help_ = "show each table's state, and how far the lake is behind; or where a file's feeds are"
    status = subparsers.add_parser("status", help=help_, description=help_, parents=[parser_parts.common_options()])
    status.add_argument("--config", required=True, metavar="FILE", help="the source's YAML, or a file of feeds")
    status.add_argument("--json", action="store_true", help="print JSON for programs")
    status.set_defaults(command=table_commands.status)
    parser_parts.add_tables(status)
    status.add_argument(
        "--state",
        nargs="+",
        choices=(*get_args(Status), "new"),
        help="only tables in these states; new: without a snapshot",
    )
    metrics = add(
        "metrics", table_commands.metrics, "print a source's metrics for Prometheus, without its server", as_json=False
    )
    metrics.add_argument(
        "--output", type=Path, metavar="FILE", help="such as node exporter's textfile; it appears complete"
    )
    metrics.add_argument("--by-table", action="store_true", help="also those of each table")
    history = add(
        "history",
        table_commands.history,
        "show the DDL statements seen, or a table's columns at some time",
        as_json=True,
    )
    history.add_argument("--table", metavar="DB.T", help="only of this table")
    history.add_argument("--at", metavar="FILE:POS|TIMESTAMP", help="the table's columns as they were then")
    _add_versions(subparsers)
    help_ = (
        "take the lease from a run that died on another machine or in another container, where its end can't be seen"
    )
    unlock = add("unlock", table_commands.unlock, help_, as_json=False)
    unlock.add_argument("--feed", metavar="NAME", help="take this feed's lease instead of the source's")
    _add_reason(unlock)
    sql_commands.add_sql(
        add(
            "sql",
            sql_commands.sql,
            "query the lake's tables, all at one batch; without a query: a prompt",
            as_json=False,
        )
    )
    sql_commands.add_views(
        add("views", sql_commands.views, "print CREATE VIEW statements of all tables at one batch", as_json=False)
    )
    dictionary_command.add_arguments(
        add(
            "dictionary",
            dictionary_command.run,
            "write what is known of the lake's tables and columns: for people, dbt, data contracts, programs",
            as_json=False,
        )
    )
    _add_catalog(subparsers)
    _add_table(subparsers)
    feed_parsers.add_all(subparsers)
    _add_binlog(subparsers)
    _add_init(subparsers)
    _add_grants(subparsers)
    _add_setup(subparsers)
    _add_help(subparsers)
    return parser


def _add_check(subparsers: Any) -> None:
    help_ = "check YAML files without a server, as for CI: a line of each, and exit code 1 if one has errors"
    check = subparsers.add_parser("check", help=help_, description=help_, parents=[parser_parts.common_options()])
    check.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a YAML, or a folder of them")
    check.set_defaults(command=parser_parts.imported_when_run("binlake.cli.yaml_checks", "check"))


def _add_versions(subparsers: Any) -> None:
    help_ = "list the lake's versions, each of all tables at one position; keep one, or give it back"
    versions = subparsers.add_parser("versions", help=help_, description=help_, parents=[parser_parts.common_options()])
    versions.add_argument("--config", metavar="FILE", help="the source's YAML")
    versions.add_argument("--json", action="store_true", help="print JSON for programs")
    actions = versions.add_subparsers(metavar="ACTION")
    pin_help = "keep a batch's versions of all tables under a name, however old they become"
    pin = actions.add_parser("pin", help=pin_help, description=pin_help, parents=[parser_parts.common_options()])
    pin.add_argument("batch", type=int, metavar="BATCH", help="its number")
    pin.add_argument("--name", required=True, metavar="NAME", help="letters, digits and _")
    _add_reason(pin)
    unpin_help = "give a pinned version back"
    unpin = actions.add_parser(
        "unpin", help=unpin_help, description=unpin_help, parents=[parser_parts.common_options()]
    )
    unpin.add_argument("name", metavar="NAME")
    _add_reason(unpin, required=False)
    for parser, command in (
        (versions, table_commands.versions),
        (pin, table_commands.pin),
        (unpin, table_commands.unpin),
    ):
        if parser is not versions:  # before or behind the action
            parser.add_argument("--config", default=argparse.SUPPRESS, metavar="FILE", help="the source's YAML")
        parser.set_defaults(command=partial(_with_config, parser, command))


def _with_config(parser: argparse.ArgumentParser, command: Callable[..., None], arguments: argparse.Namespace) -> None:
    if not arguments.config:
        parser.error("the following arguments are required: --config")
    command(arguments, configuration.load(arguments.config))


def _add_catalog(subparsers: Any) -> None:
    help_ = "serve tables that are published as Iceberg: a REST catalog in which each batch is a warehouse"
    catalog = subparsers.add_parser("catalog", help=help_, description=help_, parents=[parser_parts.common_options()])
    catalog.add_argument("--config", required=True, nargs="+", metavar="FILE", help="the YAML of each source")
    catalog.add_argument(
        "--port", default=8181, type=argument_values.port, metavar="N", help="by default 8181; 0: a free one"
    )
    catalog.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="by default only this machine")
    catalog.add_argument("--clients-file", metavar="FILE", help="who may ask: lines of ID SECRET SCOPE…")
    catalog.add_argument(
        "--token-lifetime", type=argument_values.duration, default=3600, metavar="TIME", help="default 1h"
    )
    catalog.add_argument("--tls-certificate", metavar="FILE", help="with those that signed it, in PEM")
    catalog.add_argument("--tls-key", metavar="FILE", help="the certificate's key, in PEM")
    catalog.set_defaults(command=parser_parts.imported_when_run("binlake.catalog.catalog_server", "catalog"))


def _add_table(subparsers: Any) -> None:
    help_ = "decide about a table, or about an event that stops the run; recorded with who and why"
    actions = subparsers.add_parser("table", help=help_, description=help_).add_subparsers(
        required=True, metavar="ACTION"
    )
    for action, command, does in (
        ("pause", table_commands.pause, "leave a table as it is while the others continue"),
        ("resume", table_commands.resume, "bring a paused or stopped table up to the others, from the log"),
        ("resnapshot", table_commands.resnapshot, "have the next sync snapshot a table again"),
        ("schema-change", table_commands.schema_change, "say yes or no to the schema change at which a table waits"),
        (
            "skip-event",
            table_commands.skip_event,
            "skip the event that stops the run; its changes won't be in the lake",
        ),
    ):
        sub = actions.add_parser(action, help=does, description=does, parents=[parser_parts.common_options()])
        sub.add_argument("--config", required=True, metavar="FILE", help="the source's YAML")
        if action == "skip-event":
            sub.add_argument("--at", required=True, metavar="FILE:POS", help="the event, as binlake status names it")
        else:
            sub.add_argument("--table", required=True, metavar="DB.T")
        if action == "schema-change":
            answers = sub.add_mutually_exclusive_group(required=True)
            answers.add_argument("--yes", action="store_true", help="the table follows the statement")
            answers.add_argument("--no", action="store_true", help="it doesn't; binlake status says what comes of that")
            sub.add_argument("--column", metavar="NAME", help="with --yes: take this column in, which a no left out")
        _add_reason(sub)
        sub.set_defaults(command=lambda given, act=command: act(given, configuration.load(given.config)))


def _add_reason(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add the options that record who decided, and why."""
    kind, help_ = argument_values.reason, "the reason, which is recorded"
    parser.add_argument("--why", required=required, type=kind, metavar="TEXT", help=help_)
    parser.add_argument("--who", default=_me(), metavar="NAME", help="by default the account and the machine")


def _me() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # an account without a name, as containers have
        return f"uid {os.getuid()}@{socket.gethostname()}"


def _add_binlog(subparsers: Any) -> None:
    help_ = "read a binlog: a server's, a folder's or a file's"
    binlog = subparsers.add_parser("binlog", help=help_, description=help_, parents=[parser_parts.common_options()])
    binlog.add_argument("uri", metavar="URI", help="mysql://user@host:3306/ (password in MYSQL_PWD), or file:///folder")
    binlog.add_argument("--start", metavar="FILE:POS|GTIDS", help="begin here, or after these GTIDs")
    binlog.add_argument("--stop", metavar="FILE:POS", help="end here; by default where the log ends now")
    binlog.add_argument("--events", action="store_true", help="list events instead of rows")
    binlog.add_argument(
        "--table",
        action="append",
        type=argument_values.pattern,
        default=[],
        metavar="DB.T",
        help="only these tables, shell-style; may be repeated",
    )
    binlog.add_argument(
        "--reader",
        choices=("binlake", "mysql-replication"),
        default="binlake",
        help="mysql-replication: the same log through that package, with what it misreads",
    )
    binlog.add_argument("--format", choices=("text", "json", "csv", "parquet"), default="text")
    binlog.add_argument("--output", metavar="DIR", help="a file for each table instead of standard output")
    binlog.set_defaults(command=parser_parts.imported_when_run("binlake.cli.logview", "binlog"))


def _add_init(subparsers: Any) -> None:
    help_ = "write a new source's YAML for a server, and check everything"
    init = subparsers.add_parser("init", help=help_, description=help_, parents=[parser_parts.common_options()])
    init.add_argument(
        "--connection", metavar="URI", help="mysql://user@host:3306/ (password in MYSQL_PWD); else asked for"
    )
    init.add_argument("--name", help="the source's name; by default FILE's, without its ending")
    init.add_argument("--tables", nargs="+", default=[], metavar="PATTERN", help="by default all that the account sees")
    init.add_argument("--lake", default="./lake", metavar="PATH", help="a folder or an object store's URL")
    init.add_argument("--schedule", default="0 * * * *", metavar="CRON")
    init.add_argument("file", type=Path, metavar="FILE", help="the YAML to write, such as dags/pipelines/shop.yaml")
    init.set_defaults(command=environment.init)


def _add_grants(subparsers: Any) -> None:
    help_ = "print the SQL that gives an account on the server what binlake needs"
    grants = subparsers.add_parser("grants", help=help_, description=help_, parents=[parser_parts.common_options()])
    grants.add_argument("--server", required=True, choices=("mysql", "mariadb"))
    grants.add_argument("--for", dest="account", required=True, metavar="ACCOUNT", help="NAME, or NAME@HOST")
    databases = grants.add_mutually_exclusive_group()
    databases.add_argument("--databases", nargs="+", default=[], metavar="NAME", help="to be mirrored; shop by default")
    databases.add_argument("--config", metavar="FILE", help="for the databases of this source's YAML")
    grants.set_defaults(command=parser_parts.imported_when_run("binlake.cli.grants", "print_grants"))


def _add_setup(subparsers: Any) -> None:
    help_ = "install what this environment needs beside the wheel: Spark's jars, faster starts, compiled kernels"
    setup = subparsers.add_parser("setup", help=help_, description=help_, parents=[parser_parts.common_options()])
    setup.add_argument("--jars", metavar="FOLDER", type=Path, help="take the jars from here instead of the network")
    setup.add_argument(
        "--stores",
        nargs="+",
        choices=STORES,
        default=[],
        help="also install what Spark needs for lakes there",
    )
    setup.add_argument(
        "--no-archive", action="store_true", help="make no archive of classes: for a JVM that runs elsewhere"
    )
    setup.set_defaults(command=environment.setup)


def _add_help(subparsers: Any) -> None:
    help_ = "print a page of the documentation; without TOPIC, list the topics"
    page = subparsers.add_parser("help", help=help_, description=help_, parents=[parser_parts.common_options()])
    page.add_argument("topic", nargs="?", choices=tuple(help_topics.TOPICS), metavar="TOPIC")
    page.set_defaults(command=help_topics.print_help)


if __name__ == "__main__":
    sys.exit(run())
