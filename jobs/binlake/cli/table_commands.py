"""Commands for tables and lake versions: their state, their history, and decisions about them."""

from __future__ import annotations

import argparse
import logging
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from binlake import caches, config as configuration, names
from binlake.cli import output_file, printing
from binlake.cli.sessions import origin_of, report_of, session_of
from binlake.config import PipelineConfig
from binlake.errors import UNMATCHED_REMEDY, BinlakeError, ConfigurationError, UsageError
from binlake.position import Position
from binlake.report import counted
from binlake.schema.table import TableName
from binlake.serialization import dump

if TYPE_CHECKING:
    from binlake.config.feed_config import FeedConfig
    from binlake.lake.lake_versions import LakeVersion
    from binlake.maintain.former_values import FormerValues
    from binlake.position import Position
    from binlake.records.status import SourceStatus, TableStatus
    from binlake.source.ahead import Ahead
    from binlake.store.metadata import Metadata


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
    for line in caches.described():
        logging.getLogger("binlake").debug(line)


def metrics(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Print a source's metrics in Prometheus' text form, or write them to a file. Raises UsageError where that can't be
    written."""
    from binlake.records import metrics as of_source, runs
    from binlake.records.evidence import evidence_of
    from binlake.records.status import read_status
    from binlake.store.metadata import metadata_of, now_us

    metadata, now = metadata_of(config), now_us()
    known = evidence_of(config, metadata, read_status(config, metadata), now)
    counts = runs.changes_since(metadata, of_source.counted_since(now))
    text = of_source.to_text(of_source.samples_of(known, counts, by_table=arguments.by_table))
    if arguments.output is None:
        print(text, end="")
        return
    with output_file.replaced(arguments.output) as file:
        file.write(text.encode())


def _print_feeds(arguments: argparse.Namespace, known: Sequence[tuple[PipelineConfig, FeedConfig]]) -> None:
    """Print the state of each feed of a file of feeds, source by source."""
    from binlake.records import feed_watermarks
    from binlake.store.metadata import metadata_of

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
    from binlake.position import Position
    from binlake.records import watermarks
    from binlake.records.evidence import evidence_of
    from binlake.records.health import health_of
    from binlake.records.status import read_status
    from binlake.store.metadata import metadata_of, now_us

    metadata = metadata_of(config)
    status = read_status(config, metadata)
    ahead = _ahead(config, Position.parse(status.position) if status.position else None)
    if not isinstance(ahead, str) and ahead.gaps:
        from binlake.phases import missed_changes

        missed_changes.note(metadata, ahead)
    asked = None if isinstance(ahead, str) else ahead
    evidence = evidence_of(config, metadata, status, now_us(), ahead=asked)
    health = health_of(evidence)
    rows = [*status.tables, *_new_tables(ahead, status)]
    known = watermarks.names(metadata) | {str(name): name for name in ([] if isinstance(ahead, str) else ahead.tables)}
    named = [(row, known.get(row.table) or TableName.parse(row.table)) for row in rows]
    chosen = _chosen([name for _, name in named], arguments.tables)
    kept = [
        row
        for row, name in sorted(named, key=lambda row: row[0].table)
        if name in chosen and (not arguments.state or row.status in arguments.state)
    ]
    status = replace(status, tables=tuple(kept))
    former = _former_values(config, metadata)
    if arguments.json:
        head, beyond, gaps = (None, None, None) if isinstance(ahead, str) else (ahead.head, ahead.bytes, ahead.gaps)
        log_gaps = None if gaps is None else [{"reason": gap.reason, "remedy": gap.remedy} for gap in gaps]
        of_log = {"head": head, "bytes_ahead": beyond, "log_gaps": log_gaps, "lag_seconds": evidence.lag_seconds}
        printing.as_json(
            {**status.to_json(), **of_log, "health": asdict(health), "former_values": [asdict(each) for each in former]}
        )
    else:
        printing.status(status, ahead, health, all_tables=bool(arguments.state))
        printing.former_values(former)


def _former_values(config: PipelineConfig, metadata: Metadata) -> list[FormerValues]:
    """Return the tables that have values from before a policy withheld them. Raises LakeError."""
    if not config.withholds:
        return []
    from binlake.maintain.former_values import former_values  # it imports much, for policies alone

    return former_values(config, metadata)


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


def _new_tables(ahead: Ahead | str, status: SourceStatus) -> list[TableStatus]:
    """Return the server's included tables that have no snapshot, as rows of the status."""
    from binlake.records.status import TableStatus

    known = {row.table for row in status.tables}
    new = [] if isinstance(ahead, str) else [str(name) for name in ahead.tables if str(name) not in known]
    return [TableStatus(name, "new") for name in new]


def pause(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Pause a table, and print what follows from it."""
    from binlake.records import decisions
    from binlake.records.decisions import Reason

    print(decisions.pause(config, _named(arguments, config), Reason(arguments.who, arguments.why)))


def _named(arguments: argparse.Namespace, config: PipelineConfig) -> TableName:
    """Return the table that ``--table`` names. Raises UsageError."""
    from binlake.records import watermarks
    from binlake.store.metadata import metadata_of

    return watermarks.name_of(metadata_of(config), arguments.table)


def resume(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Carry a paused or stopped table through the batches that it missed, and print the outcome."""
    from binlake import pipeline
    from binlake.records.decisions import Reason

    name, reason = _named(arguments, config), Reason(arguments.who, arguments.why)
    report = report_of(arguments)
    session = session_of("resume", config, report)
    print(pipeline.resume(config, origin_of(config), session, report, name, reason))


def resnapshot(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Ask for a snapshot of a table, which the next sync makes, and print that."""
    from binlake.records import decisions
    from binlake.records.decisions import Reason

    print(decisions.resnapshot(config, _named(arguments, config), Reason(arguments.who, arguments.why)))


def schema_change(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Answer the schema change at which a table waits, or take a column in that a no left out, and print the outcome.

    Raises UsageError for ``--column`` with ``--no``.
    """
    from binlake.records import waiting_changes
    from binlake.records.decisions import Reason

    name, reason = _named(arguments, config), Reason(arguments.who, arguments.why)
    if arguments.column is None:
        print(waiting_changes.answer(config, name, reason, yes=arguments.yes))
    elif arguments.no:
        raise UsageError("--column takes a column in that a no left out", remedy="say --yes, or leave --column out")
    else:
        print(waiting_changes.take_in(config, name, arguments.column, reason))


def skip_event(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Decide to skip an event. Raises UsageError where ``--at`` is no place in a log."""
    from binlake.records import decisions
    from binlake.records.decisions import Reason

    file, _, offset = arguments.at.rpartition(":")
    if not file or not offset.isdigit():
        raise UsageError(f"--at {arguments.at!r} is no place in a log", remedy="write FILE:POS, as binlake status does")
    print(decisions.skip_event(config, (file, int(offset)), Reason(arguments.who, arguments.why)))


def unlock(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Free the lease of the source, or of a feed, that a dead process holds, and print that."""
    from binlake.phases.unlock import unlock as free
    from binlake.records.decisions import Reason

    print(free(config, Reason(arguments.who, arguments.why), arguments.feed))


def history(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Print the statements seen, or with ``--at`` a table's shape at a moment.

    Raises UsageError for ``--at`` without a table.
    """
    from binlake import pipeline
    from binlake.records import ddl_history, watermarks

    metadata = pipeline.metadata_of(config)
    name = None if arguments.table is None else watermarks.name_of(metadata, arguments.table)
    if arguments.at is not None:
        if name is None:
            raise UsageError("--at shows the shape of one table", remedy="add --table database.table")
        shape = ddl_history.shape_at(metadata, name, ddl_history.Moment.parse(arguments.at))
        if arguments.json:
            schema = dump(shape.schema) if shape.schema else None
            printing.as_json({"table": str(name), "position": shape.position, "schema": schema})
        else:
            printing.shape(name, shape)
        return
    rows = ddl_history.statements(metadata, name)
    if name and not rows and str(name) not in watermarks.names(metadata):
        raise watermarks.not_known(metadata, name)
    if arguments.json:
        printing.as_json([row.values() for row in rows])
        return
    for row in rows:
        moment = datetime.fromtimestamp(row.committed_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
        print(f"{moment}  {row.file}:{row.offset}  {row.name}  {row.action}")
        print(textwrap.indent(row.statement, "    "))
        if row.reason:
            print(textwrap.indent(row.reason, "    "))


def versions(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Print the lake versions that can be read, with their pins."""
    from binlake.lake.lake_versions import lake_versions
    from binlake.records import thinning
    from binlake.store.metadata import metadata_of

    metadata = metadata_of(config)
    known = lake_versions(metadata, config.maintain.history_hours, looks=True)
    if arguments.json:
        printing.as_json({"versions": [_as_json(version) for version in known]})
        return
    printing.lake_versions(known, thinning.count_thinned(metadata, [version.batch for version in known]))


def _as_json(version: LakeVersion) -> dict[str, object]:
    return {
        "batch": version.batch,
        "name": version.name,
        "position": version.position,
        "committed": version.committed.isoformat(),
        "readable": version.readable,
        "why": version.why or None,
        "until": version.until and version.until.isoformat(),
        "tables": version.tables,
    }


def pin(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Keep a batch's lake version under a name, and print it."""
    from binlake.lake import pins
    from binlake.records.decisions import Reason
    from binlake.store.metadata import metadata_of

    reason = Reason(arguments.who, arguments.why)
    version = pins.pin(metadata_of(config), arguments.batch, arguments.name, reason)
    position = Position.parse(version.position).short
    print(f"batch {version.batch} is kept as {version.name}: {counted(len(version.tables), 'table')} at {position}")


def unpin(arguments: argparse.Namespace, config: PipelineConfig) -> None:
    """Give up a named lake version; maintain may then remove its files."""
    from binlake.lake import pins
    from binlake.records.decisions import Reason
    from binlake.store.metadata import metadata_of

    batch = pins.unpin(metadata_of(config), arguments.name, Reason(arguments.who, arguments.why or ""))
    print(f"batch {batch} isn't kept any more: maintain removes its files once no promise needs them")
