"""What the commands do: the engine is asked, results go to standard output, progress to standard error."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binlake import names, printing, replay_arguments
from binlake.config import PipelineConfig
from binlake.errors import DIFFERING_REMEDY, BinlakeError, CheckFailed, TableError, UsageError
from binlake.moment import parse_moment
from binlake.once import once
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.serialization import dump
from binlake.state import decisions
from binlake.state.decisions import Reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from binlake.check import Check
    from binlake.logview import Readable
    from binlake.position import Position
    from binlake.source.ahead import Ahead
    from binlake.source.log import Origin
    from binlake.state.status import SourceStatus
    from binlake.verify import VerifyReport


def init(arguments: argparse.Namespace) -> None:
    from binlake import init
    from binlake.connection_text import variable_of
    from binlake.doctor import preflight
    from binlake.source.connection import endpoint_of

    endpoint = endpoint_of(arguments.connection or _asked("Server (mysql://user@host:3306/): "))
    if not endpoint.password and sys.stdin.isatty():
        endpoint = replace(endpoint, password=getpass.getpass(f"Password of {endpoint.user}: "))
    config = init.write_yaml(
        arguments.file,
        endpoint,
        name=arguments.name or arguments.file.stem,
        include=arguments.tables,
        lake=arguments.lake,
        schedule=arguments.schedule,
    )
    variable = variable_of(config.source.connection)
    print(f"{arguments.file} is written; now\n")
    print(f"  export {variable}='mysql://{endpoint.user}:PASSWORD@{endpoint.address}/'")
    for command in ("doctor", "snapshot", "sync"):
        print(f"  binlake {command} --config {arguments.file}")
    print()
    _tell_checks(preflight(config, endpoint, session=_session("doctor", config)))


def _asked(question: str) -> str:
    if not sys.stdin.isatty():
        raise UsageError(
            "nobody is there to be asked for the server", remedy="give --connection mysql://user@host:3306/"
        )
    return input(question)


def setup(arguments: argparse.Namespace) -> None:
    from binlake.setup import set_up

    set_up(_report(arguments), arguments.jars, archive=not arguments.no_archive, stores=arguments.stores)


def _session(
    name: str, config: PipelineConfig, tasks: int | None = None, short_lived: Callable[[], bool] = lambda: False
) -> Callable[[], SparkSession]:
    """short_lived: asked when the session is."""

    @once
    def build() -> SparkSession:
        from binlake.lake import session

        return session.build(
            f"binlake {name}", spark=config.spark, tasks=tasks, short_lived=short_lived(), lake=config.root
        )

    return build


def _catalog_session(config: PipelineConfig) -> Callable[[], SparkSession]:
    """A session that reaches the catalog, in the place of the one at work."""

    def build() -> SparkSession:
        from binlake.lake import session
        from binlake.lake.named_tables import session_settings

        assert config.catalog is not None
        session.stop_active()
        more, here = session_settings(config.catalog), "local[2]"  # it writes nothing but names: no executor is needed
        return session.build(
            "binlake register", spark=config.spark, master=here, short_lived=True, more=more, lake=config.root
        )

    return build


def _report(arguments: argparse.Namespace) -> Report:
    return Report(quiet=arguments.quiet)


def _origin(config: PipelineConfig) -> Origin:
    from binlake.source import log

    return log.origin(config.source.connection)


def doctor(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake.doctor import preflight
    from binlake.source.log import server_of

    origin = _origin(config)
    asked = server_of(origin, "--second-opinion") if arguments.second_opinion else None
    checks = preflight(config, origin, session=_session("doctor", config))
    if config.feeds:
        from binlake.feeds.doctor import checks as of_feeds

        checks += of_feeds(config)
    if asked:
        from binlake.opinion.doctor import second_opinion

        checks += second_opinion(config, asked, arguments.minutes)
    if arguments.json:
        printing.as_json([{key: value for key, value in vars(check).items() if value != {}} for check in checks])
        _refuse_failed(checks)
    else:
        _tell_checks(checks)


def _tell_checks(checks: Sequence[Check]) -> None:
    for check in checks:
        mark = {True: "ok  ", False: "FAIL", "warn": "warn"}[check.ok]
        print(f"{mark}  {check.name}: {check.found}")
        if check.ok is not True and check.remedy:
            print(f"      → {check.remedy}")
    _refuse_failed(checks)


def _refuse_failed(checks: Sequence[Check]) -> None:
    """Raises CheckFailed."""
    failed = [check for check in checks if check.ok is False]
    if failed:
        raise CheckFailed(f"{len(failed)} of {len(checks)} checks failed", remedy="mend the lines marked FAIL above")


def snapshot(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake import pipeline
    from binlake.bootstrap import KeysAsked

    session = _session("snapshot", config, config.snapshot.connections)
    origin, report, tables, lock = _origin(config), _report(arguments), arguments.tables, arguments.lock
    if arguments.keys:
        asked = KeysAsked(tables, arguments.keys)
        results = pipeline.snapshot_keys(config, origin, session, report, asked, lock=lock)
    else:
        results = pipeline.bootstrap(config, origin, session, report, tables=tables, lock=lock)
    _register_if_due(config, _report(arguments))
    if arguments.json:
        printing.as_json([result.to_json() for result in results])
        return
    printing.snapshots(results)


def parse_until(text: str) -> datetime | None:
    """``now`` is None; else see ``parse_moment``. Raises UsageError."""
    return None if text == "now" else parse_moment(text, "--until", instead="now")


def sync(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake import pipeline

    until = parse_until(arguments.until)
    session = _session("sync", config, short_lived=lambda: pipeline.is_short_run(config))
    found = pipeline.sync(config, _origin(config), session, _report(arguments), until=until)
    runs = (*found.earlier, found)
    if arguments.json:
        printing.as_json(found.to_json())
    else:
        for run in runs:
            printing.run_report(run)
    stopped = [table for run in runs for table in run.tables if table.status in ("stopped", "missing", "resnapshot")]
    for table in stopped:
        print(f"{table.status}: {table.table}: {table.reason}\n  → {table.remedy}", file=sys.stderr)
    newly = [table.table for table in stopped if table.newly_stopped]
    _register_if_due(config, _report(arguments))
    if newly:
        raise TableError(f"{', '.join(newly)} stopped; the other tables are up to date", remedy="see above")


def verify(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake import pipeline

    found: VerifyReport = pipeline.verify(
        config, _origin(config), _session("verify", config), _report(arguments), tables=arguments.tables
    )
    if arguments.json:
        printing.as_json(found.to_json())
    else:
        print(found.to_text())
    if not found.equal:
        raise CheckFailed("the lake differs from the server", remedy=DIFFERING_REMEDY)


def replay(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake import pipeline

    request = replay_arguments.request(arguments)
    found = pipeline.replay(config, _session("replay", config), _report(arguments), request)
    if arguments.json:
        printing.as_json([table.to_json() for table in found])
        return
    for table in found:
        print(table.to_text())


def maintain(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake import pipeline

    found = pipeline.maintain(config, _session("maintain", config), _report(arguments), tables=arguments.tables)
    if arguments.json:
        printing.as_json(found.to_json())
    else:
        printing.maintained(found)


def register(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake import pipeline

    found = pipeline.register(config, _catalog_session(config), _report(arguments))
    if arguments.json:
        printing.as_json(found.to_json())
    else:
        print(found.headline)


def _register_if_due(config: PipelineConfig, report: Report) -> None:
    """Behind whatever may have made, moved or dropped a table."""
    from binlake import pipeline

    if pipeline.registration_due(config):
        pipeline.register(config, _catalog_session(config), report)


def status(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake.position import Position
    from binlake.state.status import read_status

    found = read_status(config)
    ahead = _ahead(config, Position.parse(found.position) if found.position else None)
    told = [*found.tables, *_new_tables(ahead, found)]
    asked = arguments.tables or ["*.*"]
    kept = [
        row
        for row in sorted(told, key=lambda row: row["table"])
        if any(names.matches(pattern, *row["table"].split(".", 1)) for pattern in asked)
        and (not arguments.state or row["status"] in arguments.state)
    ]
    found = replace(found, tables=tuple(kept))
    if arguments.json:
        head, beyond = (None, None) if isinstance(ahead, str) else (ahead.head, ahead.bytes)
        printing.as_json({**found.to_json(), "head": head, "bytes_ahead": beyond})
    else:
        printing.status(found, ahead, all_tables=bool(arguments.state))


def _ahead(config: PipelineConfig, position: Position | None) -> Ahead | str:
    """How far the source is; the first line of why not where it can't be asked: status stands by metadata."""
    from binlake.source.ahead import look_ahead

    try:
        return look_ahead(config, _origin(config), position)
    except BinlakeError as error:
        return error.message


def _new_tables(ahead: Ahead | str, found: SourceStatus) -> list[dict[str, Any]]:
    """Included tables of the server that have no snapshot, as rows of the status."""
    known = {row["table"] for row in found.tables}
    new = [] if isinstance(ahead, str) else [str(name) for name in ahead.tables if str(name) not in known]
    fields = ("batch", "position", "delta_version", "reason", "remedy", "table_id")
    return [{"table": name, "status": "new", **dict.fromkeys(fields)} for name in new]


def _opened(arguments: argparse.Namespace) -> Readable:
    """The log by the reader that was asked for."""
    if arguments.reader == "binlake":
        from binlake import openlog

        return openlog.open(arguments.uri, arguments.start, arguments.stop)
    from binlake.opinion import listing

    return listing.open(arguments.uri, arguments.start, arguments.stop)


def binlog(arguments: argparse.Namespace) -> None:
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


def feed(arguments: argparse.Namespace) -> None:
    from binlake.feeds import commands

    commands.feed(arguments, parse_until(arguments.until))


def tail(arguments: argparse.Namespace) -> None:
    from binlake.feeds import commands

    commands.tail(arguments)


def relay(arguments: argparse.Namespace) -> None:
    from binlake.relay import serve

    serve.relay(arguments)


def console_consumer(arguments: argparse.Namespace) -> None:
    from binlake.feeds import commands

    commands.console_consumer(arguments)


def pause(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    print(decisions.pause(config, TableName.parse(arguments.table), Reason(arguments.who, arguments.why)))


def resume(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake import pipeline

    name, reason = TableName.parse(arguments.table), Reason(arguments.who, arguments.why)
    print(pipeline.resume(config, _origin(config), _session("resume", config), _report(arguments), name, reason))


def resnapshot(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    print(decisions.resnapshot(config, TableName.parse(arguments.table), Reason(arguments.who, arguments.why)))


def skip_event(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    file, _, offset = arguments.at.rpartition(":")
    if not file or not offset.isdigit():
        raise UsageError(f"--at {arguments.at!r} is no place in a log", remedy="write FILE:POS, as binlake status does")
    print(decisions.skip_event(config, (file, int(offset)), Reason(arguments.who, arguments.why)))


def history(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake import pipeline
    from binlake.state import history

    metadata = pipeline.metadata_of(config)
    name = TableName.parse(arguments.table) if arguments.table else None
    if arguments.at:
        if name is None:
            raise UsageError("--at tells the shape of one table", remedy="add --table database.table")
        shape = history.shape_at(metadata, name, history.Moment.parse(arguments.at))
        if arguments.json:
            schema = dump(shape.schema) if shape.schema else None
            printing.as_json({"table": str(name), "position": shape.position, "schema": schema})
        else:
            printing.shape(name, shape)
        return
    rows = history.statements(metadata, name)
    if arguments.json:
        printing.as_json(rows)
        return
    for row in rows:
        moment = datetime.fromtimestamp(row["committed_us"] / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
        print(f"{moment}  {row['file']}:{row['offset']}  {row['database']}.{row['table']}  {row['action']}")
        print(f"    {row['statement']}")
        if row["reason"]:
            print(f"    {row['reason']}")
