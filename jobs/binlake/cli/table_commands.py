"""Commands for tables: their state, their history, and decisions about them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from binlake import config as configuration, names
from binlake.cli import printing
from binlake.cli.sessions import origin_of, report_of, session_of
from binlake.config import PipelineConfig
from binlake.errors import UNMATCHED_REMEDY, BinlakeError, ConfigurationError, UsageError
from binlake.schema.table import TableName
from binlake.serialization import dump

if TYPE_CHECKING:
    from binlake.config.feed_config import FeedConfig
    from binlake.metadata.status import SourceStatus
    from binlake.position import Position
    from binlake.source.ahead import Ahead


def status(arguments: argparse.Namespace) -> None:
    """Print the state of a source, or of the feeds in a file of feeds."""
    try:
        config = configuration.load(arguments.config)
    except ConfigurationError:
        from binlake.feeds.feeds_file import feeds_of, is_file_of_feeds

        if not is_file_of_feeds(arguments.config):
            raise
        _print_feeds(arguments, feeds_of(arguments.config))
    else:
        _print_source(arguments, config)


def _print_feeds(arguments: argparse.Namespace, known: Sequence[tuple[PipelineConfig, FeedConfig]]) -> None:
    """Print where each feed of a file of feeds stands, source by source."""
    from binlake.metadata import feed_watermarks
    from binlake.metadata.metadata import metadata_of

    if arguments.tables or arguments.state:
        raise UsageError("a file of feeds has no tables", remedy="ask binlake status of a source's YAML")
    by_source = {config.source.name: config for config, _ in known}
    statuses = {}
    for source, config in by_source.items():
        feeds = [feed for of, feed in known if of.source.name == source]
        of_file = config.model_copy(update={"feeds": feeds})
        statuses[source] = [feed for feed in feed_watermarks.statuses(of_file, metadata_of(config)) if feed.in_yaml]
    if arguments.json:
        printing.as_json({source: [dump(feed) for feed in feeds] for source, feeds in statuses.items()})
    else:
        printing.feeds(statuses)


def _print_source(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake.metadata import watermarks
    from binlake.metadata.metadata import metadata_of
    from binlake.metadata.status import read_status
    from binlake.position import Position

    metadata = metadata_of(config)
    status = read_status(config, metadata)
    ahead = _ahead(config, Position.parse(status.position) if status.position else None)
    rows = [*status.tables, *_new_tables(ahead, status)]
    known = watermarks.names(metadata) | {str(name): name for name in ([] if isinstance(ahead, str) else ahead.tables)}
    named = [(row, known.get(row["table"]) or TableName.parse(row["table"])) for row in rows]
    chosen = _chosen([name for _, name in named], arguments.tables)
    kept = [
        row
        for row, name in sorted(named, key=lambda row: row[0]["table"])
        if name in chosen and (not arguments.state or row["status"] in arguments.state)
    ]
    status = replace(status, tables=tuple(kept))
    if arguments.json:
        head, beyond = (None, None) if isinstance(ahead, str) else (ahead.head, ahead.bytes)
        printing.as_json({**status.to_json(), "head": head, "bytes_ahead": beyond})
    else:
        printing.status(status, ahead, all_tables=bool(arguments.state))


def _chosen(tables: Sequence[TableName], patterns: Sequence[str] | None) -> set[TableName]:
    """Return the tables that patterns match; without patterns all. Raises UsageError for one that matches none."""
    if not patterns:
        return set(tables)
    if unknown := names.unmatched(patterns, [(name.database, name.table) for name in tables]):
        raise UsageError(f"no table matches {', '.join(unknown)}", remedy=UNMATCHED_REMEDY)
    return {name for name in tables if names.matches_any(patterns, name.database, name.table)}


def _ahead(config: PipelineConfig, position: Position | None) -> Ahead | str:
    """Return how far the server's log is ahead, or an error message: status only needs metadata."""
    from binlake.source.ahead import look_ahead

    try:
        return look_ahead(config, origin_of(config), position)
    except BinlakeError as error:
        return error.message


def _new_tables(ahead: Ahead | str, status: SourceStatus) -> list[dict[str, Any]]:
    """Return the server's included tables that have no snapshot, as rows of the status."""
    known = {row["table"] for row in status.tables}
    new = [] if isinstance(ahead, str) else [str(name) for name in ahead.tables if str(name) not in known]
    fields = ("batch", "position", "delta_version", "reason", "remedy", "table_id")
    return [{"table": name, "status": "new", **dict.fromkeys(fields)} for name in new]


def pause(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake.metadata import decisions
    from binlake.metadata.decisions import Reason

    print(decisions.pause(config, _named(arguments, config), Reason(arguments.who, arguments.why)))


def _named(arguments: argparse.Namespace, config: PipelineConfig) -> TableName:
    """Return the table that ``--table`` names. Raises UsageError."""
    from binlake.metadata import watermarks
    from binlake.metadata.metadata import metadata_of

    return watermarks.name_of(metadata_of(config), arguments.table)


def resume(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake import pipeline
    from binlake.metadata.decisions import Reason

    name, reason = _named(arguments, config), Reason(arguments.who, arguments.why)
    report = report_of(arguments)
    session = session_of("resume", config, report)
    print(pipeline.resume(config, origin_of(config), session, report, name, reason))


def resnapshot(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake.metadata import decisions
    from binlake.metadata.decisions import Reason

    print(decisions.resnapshot(config, _named(arguments, config), Reason(arguments.who, arguments.why)))


def skip_event(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake.metadata import decisions
    from binlake.metadata.decisions import Reason

    file, _, offset = arguments.at.rpartition(":")
    if not file or not offset.isdigit():
        raise UsageError(f"--at {arguments.at!r} is no place in a log", remedy="write FILE:POS, as binlake status does")
    print(decisions.skip_event(config, (file, int(offset)), Reason(arguments.who, arguments.why)))


def unlock(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake.metadata import decisions
    from binlake.metadata.decisions import Reason

    print(decisions.unlock(config, Reason(arguments.who, arguments.why), arguments.feed))


def history(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    from binlake import pipeline
    from binlake.metadata import history, watermarks

    metadata = pipeline.metadata_of(config)
    name = None if arguments.table is None else watermarks.name_of(metadata, arguments.table)
    if arguments.at is not None:
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
    if name and not rows and str(name) not in watermarks.names(metadata):
        raise watermarks.not_known(metadata, name)
    if arguments.json:
        printing.as_json(rows)
        return
    for row in rows:
        moment = datetime.fromtimestamp(row["committed_us"] / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
        print(f"{moment}  {row['file']}:{row['offset']}  {row['database']}.{row['table']}  {row['action']}")
        print(f"    {row['statement']}")
        if row["reason"]:
            print(f"    {row['reason']}")
