"""The command line: the same engine without Airflow.

Results go to standard output, progress to standard error. Exit codes: 0 good, 1 a difference or a failed check,
2 wrong use or configuration, 3 stopped on an error, 130 interrupted (Ctrl-C).
"""

from __future__ import annotations

import argparse
import getpass
import logging
import math
import os
import socket
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import argcomplete

from binlake import config as configuration
from binlake import interrupts
from binlake.batch.steps import Status
from binlake.cli import (
    checks,
    environment,
    help_topics,
    replay_arguments,
    step_commands,
    table_commands,
)
from binlake.errors import BinlakeError
from binlake.versions import STORE_JARS


def main() -> None:
    """What installations before ``binlake.cli.start`` begin with."""
    sys.exit(run())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code. Nothing unexpected ends with 1, which says that there is a difference."""
    try:
        _run(arguments)
    except BinlakeError as error:
        print(f"binlake: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # who reads has seen enough: head, less
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # Rust's panics are no Exception
        if isinstance(error, KeyboardInterrupt) or interrupts.was_raised():
            print(interrupts.SAID, end="", file=sys.stderr)
            return interrupts.EXIT_CODE
        print(f"binlake: unexpected {type(error).__name__}: {_first_line(error)}", file=sys.stderr)
        print("  → run again; nothing is lost. If it stays, report it with this message", file=sys.stderr)
        logging.getLogger("binlake").debug("traceback", exc_info=True)
        return 3
    return 0


def _run(arguments: Sequence[str] | None) -> None:
    parser = _parser()
    argcomplete.autocomplete(parser)
    parsed = parser.parse_args(arguments)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    if parsed.verbose:
        logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
        logging.getLogger("binlake").setLevel(logging.DEBUG)
    command: Callable[[argparse.Namespace], None] = parsed.command
    command(parsed)


def _imported_when_run(module: str, name: str) -> Callable[[argparse.Namespace], None]:
    """Return the command ``name`` of a module that needs optional packages, or takes long to import."""

    def command(arguments: argparse.Namespace) -> None:
        getattr(import_module(module), name)(arguments)

    return command


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="binlake", description="MySQL and MariaDB tables mirrored into Delta Lake")
    parser.add_argument("--version", action="version", version=f"binlake {version('binlake')}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[..., None], help_: str, *, as_json: bool) -> argparse.ArgumentParser:
        sub = subparsers.add_parser(name, help=help_, description=help_, parents=[_loudness()])
        sub.add_argument("--config", required=True, metavar="FILE", help="the source's YAML")
        if as_json:
            sub.add_argument("--json", action="store_true", help="print JSON for programs")
        sub.set_defaults(command=lambda arguments: command(arguments, configuration.load(arguments.config)))
        return sub

    help_ = "check server, grants, tables, Spark, lake and feeds; change nothing"
    doctor = subparsers.add_parser("doctor", help=help_, description=help_, parents=[_loudness()])
    doctor.add_argument("--config", required=True, metavar="FILE", help="the source's YAML, or a file of feeds")
    doctor.add_argument("--json", action="store_true", help="print JSON for programs")
    doctor.set_defaults(command=checks.doctor)
    doctor.add_argument(
        "--second-opinion",
        action="store_true",
        help="also read the newest of the server's log by mysql-replication, and compare every value",
    )
    doctor.add_argument("--minutes", type=_minutes, default=5.0, metavar="N", help="how new; by default 5 minutes")
    snapshot = add("snapshot", step_commands.snapshot, "copy tables at one binlog position", as_json=True)
    snapshot.add_argument("--tables", nargs="+", metavar="PATTERN", help="database.table, shell-style")
    snapshot.add_argument(
        "--keys",
        metavar="FIRST..LAST",
        help="of one table that is followed, only these rows anew, by the first column of its key",
    )
    snapshot.add_argument(
        "--lock",
        choices=("flush", "tables", "none"),
        default="flush",
        help="flush: FLUSH TABLES WITH READ LOCK for a moment; tables: LOCK TABLES; none: lock-free",
    )
    snapshot.add_argument(
        "--begin", action="store_true", help="a new lake, where this account knows one that isn't there any more"
    )
    sync = add("sync", step_commands.sync, "bring the lake up to the server's head", as_json=True)
    sync.add_argument(
        "--until", default="now", metavar="now|TIMESTAMP", help="stop before commits at or after this time"
    )
    verify = add("verify", step_commands.verify, "compare every value of the lake with the server", as_json=True)
    verify.add_argument("--tables", nargs="+", metavar="PATTERN", help="database.table, shell-style")
    replay = add(
        "replay",
        step_commands.replay,
        "build tables once more, as they stood after a batch, from what is staged; asks no server",
        as_json=True,
    )
    replay_arguments.add_to(replay, _me())
    maintain = add(
        "maintain", step_commands.maintain, "compact and vacuum tables and metadata, as the YAML promises", as_json=True
    )
    maintain.add_argument("--tables", nargs="+", metavar="PATTERN", help="database.table, shell-style")
    add("register", step_commands.register, "give the catalog that the YAML names the tables' names", as_json=True)
    status = add("status", table_commands.status, "where each table stands, and how far behind", as_json=True)
    status.add_argument("--tables", nargs="+", metavar="PATTERN", help="database.table, shell-style")
    status.add_argument(
        "--state",
        nargs="+",
        choices=(*get_args(Status), "new"),
        help="only tables that are so; new: without a snapshot",
    )
    history = add(
        "history", table_commands.history, "the DDL statements seen, or a table's shape at some time", as_json=True
    )
    history.add_argument("--table", metavar="DB.T", help="of this table alone")
    history.add_argument("--at", metavar="FILE:POS|TIMESTAMP", help="the table's columns as they were there")
    help_ = "take the lease from a run that nobody here can see end: on another machine, in another container"
    unlock = add("unlock", table_commands.unlock, help_, as_json=False)
    unlock.add_argument("--feed", metavar="NAME", help="of this feed instead of the source")
    _add_reason(unlock)
    _add_table(subparsers)
    _add_feeds(subparsers)
    _add_relay(subparsers)
    _add_console_consumer(subparsers)
    _add_binlog(subparsers)
    _add_init(subparsers)
    _add_setup(subparsers)
    _add_help(subparsers)
    return parser


def _loudness() -> argparse.ArgumentParser:
    """What every command takes."""
    made = argparse.ArgumentParser(add_help=False)
    how = made.add_mutually_exclusive_group()
    how.add_argument("-q", "--quiet", action="store_true", help="say nothing but results and errors")
    how.add_argument("-v", "--verbose", action="store_true", help="tell where an unexpected error came from")
    return made


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0 < minutes < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no time; write a number of minutes, such as 5")
    return minutes


def _add_table(subparsers: Any) -> None:
    help_ = "decide about a table, or about an event that stops the run; recorded with who and why"
    actions = subparsers.add_parser("table", help=help_, description=help_).add_subparsers(
        required=True, metavar="ACTION"
    )
    for action, command, does in (
        ("pause", table_commands.pause, "leave a table as it is while the others go on"),
        ("resume", table_commands.resume, "bring a paused or stopped table up to the others, from the log"),
        ("resnapshot", table_commands.resnapshot, "have the next sync snapshot a table anew"),
        (
            "skip-event",
            table_commands.skip_event,
            "step over the event that stops the run; what it did won't be in the lake",
        ),
    ):
        sub = actions.add_parser(action, help=does, description=does, parents=[_loudness()])
        sub.add_argument("--config", required=True, metavar="FILE", help="the source's YAML")
        if action == "skip-event":
            sub.add_argument("--at", required=True, metavar="FILE:POS", help="the event, as binlake status names it")
        else:
            sub.add_argument("--table", required=True, metavar="DB.T")
        _add_reason(sub)
        sub.set_defaults(command=lambda given, act=command: act(given, configuration.load(given.config)))


def _add_reason(parser: argparse.ArgumentParser) -> None:
    """Of a decision, which is recorded with it."""
    parser.add_argument("--why", required=True, metavar="TEXT", help="for those who read it later")
    parser.add_argument("--who", default=_me(), metavar="NAME", help="by default the account and the machine")


def _me() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # an account without a name, as containers have
        return f"uid {os.getuid()}@{socket.gethostname()}"


def _add_feeds(subparsers: Any) -> None:
    help_ = "carry the YAML's feeds to the newest recorded batch"
    feed = subparsers.add_parser("feed", help=help_, description=help_, parents=[_loudness()])
    feed.add_argument("--config", required=True, metavar="FILE", help="the source's YAML, or a file of feeds")
    one = feed.add_mutually_exclusive_group()
    one.add_argument("--feed", metavar="NAME", help="this one alone")
    one.add_argument(
        "--forget", metavar="NAME", help="its place goes, and no staging is kept for it; nothing is carried"
    )
    feed.add_argument(
        "--until", default="now", metavar="now|TIMESTAMP", help="stop before commits at or after this time"
    )
    feed.add_argument("--anew", choices=("oldest", "now", "lake"), help="forget the feed's place, and begin there")
    feed.add_argument("--json", action="store_true", help="print JSON for programs")
    feed.set_defaults(command=_imported_when_run("binlake.cli.feed_commands", "feed"))
    help_ = "print staged mutations, a message a line"
    tail = subparsers.add_parser("tail", help=help_, description=help_, parents=[_loudness()])
    tail.add_argument("--config", required=True, metavar="FILE", help="the source's YAML, or a file of feeds")
    of = tail.add_mutually_exclusive_group()
    of.add_argument("--feed", metavar="NAME", help="as this feed has it")
    of.add_argument("--table", metavar="DB.T", help="of these tables, shell-style")
    tail.add_argument(
        "--format", choices=("debezium", "generic", "specific", "text"), help="by default the feed's, or text"
    )
    tail.add_argument("--registry", metavar="URL", help="a schema registry, for --format specific, or debezium as Avro")
    tail.add_argument("--registry-connection", metavar="ID", help="an Airflow connection with its credentials")
    tail.add_argument(
        "--from",
        dest="start",
        default="start",
        type=_batch,
        metavar="start|now|BATCH",
        help="by default the oldest staged",
    )
    tail.add_argument("--follow", action="store_true", help="go on with each batch that is recorded, until Ctrl-C")
    tail.set_defaults(command=_imported_when_run("binlake.cli.feed_commands", "tail"))


def _add_relay(subparsers: Any) -> None:
    help_ = "serve subscriptions to events: HTTP and the binary protocol of mysql-replication-relay"
    relay = subparsers.add_parser("relay", help=help_, description=help_, parents=[_loudness()])
    relay.add_argument("--config", required=True, metavar="FILE", help="the source's YAML")
    relay.add_argument("--port", required=True, type=int, metavar="N", help="of both protocols; 0: one that is free")
    relay.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="by default this machine alone")
    relay.add_argument("--secret-file", required=True, metavar="FILE", help="its first line is what clients share")
    relay.add_argument("--admin-secret-file", metavar="FILE", help="for lists and removal of clients")
    relay.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="look for new batches; default 1")
    relay.add_argument("--keep-gb", type=float, default=50.0, metavar="GB", help="of staging, for the slowest client")
    relay.add_argument("--keep-hours", type=float, default=168.0, metavar="HOURS", help="the same in hours")
    relay.set_defaults(command=_imported_when_run("binlake.relay.serve", "relay"))


def _add_console_consumer(subparsers: Any) -> None:
    help_ = "print a Kafka topic's committed messages readably: Avro, Debezium, text"
    consumer = subparsers.add_parser("console-consumer", help=help_, description=help_, parents=[_loudness()])
    consumer.add_argument("topic", metavar="TOPIC")
    consumer.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="a broker")
    consumer.add_argument("--connection", metavar="ID", help="an Airflow connection with the credentials")
    consumer.add_argument("--registry", metavar="URL", help="a schema registry, for Avro in Confluent's form")
    consumer.add_argument("--registry-connection", metavar="ID", help="an Airflow connection with its credentials")
    consumer.add_argument("--max", type=int, metavar="N", help="end after so many messages")
    consumer.add_argument("--follow", action="store_true", help="wait at the topic's end, until Ctrl-C")
    consumer.set_defaults(command=_imported_when_run("binlake.cli.feed_commands", "console_consumer"))


def _batch(text: str) -> str:
    if text not in ("start", "now") and not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no batch; write start, now or a batch's number")
    return text


def _add_binlog(subparsers: Any) -> None:
    help_ = "read a binlog: a server's, a folder's or a file's"
    binlog = subparsers.add_parser("binlog", help=help_, description=help_, parents=[_loudness()])
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
    binlog.set_defaults(command=_imported_when_run("binlake.cli.logview", "binlog"))


def _add_init(subparsers: Any) -> None:
    help_ = "write a source's YAML from what its server tells, and check everything"
    init = subparsers.add_parser("init", help=help_, description=help_, parents=[_loudness()])
    init.add_argument(
        "--connection", metavar="URI", help="mysql://user@host:3306/ (password in MYSQL_PWD); else asked for"
    )
    init.add_argument("--name", help="of the source; by default FILE's without its ending")
    init.add_argument("--tables", nargs="+", default=[], metavar="PATTERN", help="by default all that the account sees")
    init.add_argument("--lake", default="./lake", metavar="PATH", help="a folder or an object store's URL")
    init.add_argument("--schedule", default="0 * * * *", metavar="CRON")
    init.add_argument("file", type=Path, metavar="FILE", help="the YAML to write, such as dags/pipelines/shop.yaml")
    init.set_defaults(command=environment.init)


def _add_setup(subparsers: Any) -> None:
    help_ = "bring what this environment needs beside the wheel: Spark's jars, faster starts, compiled kernels"
    setup = subparsers.add_parser("setup", help=help_, description=help_, parents=[_loudness()])
    setup.add_argument("--jars", metavar="FOLDER", type=Path, help="take the jars from here instead of the network")
    setup.add_argument(
        "--stores", nargs="+", choices=sorted(STORE_JARS), default=[], help="what Spark needs for lakes there, too"
    )
    setup.add_argument("--no-archive", action="store_true", help="keep no classes: for a JVM that runs elsewhere")
    setup.set_defaults(command=environment.setup)


def _add_help(subparsers: Any) -> None:
    help_ = "print a page of the documentation; without TOPIC, list the topics"
    page = subparsers.add_parser("help", help=help_, description=help_, parents=[_loudness()])
    page.add_argument("topic", nargs="?", choices=tuple(help_topics.TOPICS), metavar="TOPIC")
    page.set_defaults(command=help_topics.print_help)


if __name__ == "__main__":
    main()
