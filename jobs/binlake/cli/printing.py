"""Printing of commands' results: tables, JSON for programs, and a source's status in lines of 80 characters."""

from __future__ import annotations

import io
import json
import re
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

from binlake.errors import FIRST_BATCH
from binlake.moment import moment_text
from binlake.names import shown
from binlake.position import Position
from binlake.records import lost_tables
from binlake.report import counted, harmless, raw
from binlake.schema.lake_forms import becomes
from binlake.schema.table import TableName

if TYPE_CHECKING:
    from binlake.lake.lake_versions import LakeVersion
    from binlake.lease.followers import FollowerStatus
    from binlake.maintain.former_values import FormerValues
    from binlake.maintain.maintain import MaintainReport
    from binlake.records.ddl_history import Shape
    from binlake.records.feed_watermarks import FeedStatus
    from binlake.records.health import Health
    from binlake.records.merged_shapes import MergedStatus
    from binlake.records.record import RunReport
    from binlake.records.status import SourceStatus
    from binlake.records.waiting_changes import WaitingChange
    from binlake.snapshot.snapshot import SnapshotResult
    from binlake.source.ahead import Ahead

_WIDTH, _WIDE = 80, 200
_MOST_ROWS = 40
"""Number of tables above which those that follow the log are counted, not listed."""
_MOST_DIFFERENCES, _MOST_FORMER = 10, 10
"""Differences of shards, and tables with former values, that are listed."""


def as_json(value: Any) -> None:
    """Print a value as indented JSON; what JSON doesn't know is printed as its ``str``."""
    print(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], width: int = _WIDE) -> None:
    """Print a table, wrapped to the terminal; to ``width`` if standard output is no terminal."""
    _draw(sys.stdout, title, columns, rows, None if sys.stdout.isatty() else width)


def _draw(where: TextIO, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], width: int | None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=Text(harmless(title)) if title else None, title_justify="left")
    for column in columns:
        drawn.add_column(Text(harmless(shown(column))), overflow="fold")
    for row in rows:
        # A text is shown as it is: rich takes [words] in strings for styles, and :words: for emoji.
        drawn.add_row(*(Text("" if value is None else harmless(shown(str(value)))) for value in row))
    Console(file=raw(where), width=width).print(drawn)


def run_report(run: RunReport) -> None:
    """Print what a batch did to each table."""
    if run.tables:
        table(*_tables_of(run))
    print("\n".join(_summary_lines(run)))


def run_lines(run: RunReport) -> list[str]:
    """Return the lines of ``run_report`` for a log file, which has no terminal's width."""
    drawn = io.StringIO()
    if run.tables:
        _draw(drawn, *_tables_of(run), _WIDE)
    return [line.rstrip() for line in drawn.getvalue().splitlines()] + _summary_lines(run)


def _tables_of(run: RunReport) -> tuple[str, Sequence[str], Sequence[Sequence[Any]]]:
    """Return title, columns and rows of a run's table."""
    rows = [
        (t.table, t.status, f"{t.inserted:,}", f"{t.updated:,}", f"{t.deleted:,}", t.delta_version, t.seconds)
        for t in run.tables
    ]
    columns = ("table", "status", "inserted", "updated", "deleted", "Delta version", "seconds")
    return f"Batch {run.batch}", columns, rows


def _summary_lines(run: RunReport) -> list[str]:
    seconds = ", ".join(f"{name} {seconds}" for name, seconds in run.phases)
    by_spark = [f"{shown(t.table)} by Spark: {t.why_spark}" for t in run.tables if t.why_spark]
    return [run.message, *by_spark, *([f"seconds: {seconds}"] if seconds else [])]


def _mb(*sizes: int) -> str:
    return " → ".join(f"{size / 1e6:,.1f}" for size in sizes)


def shape(name: TableName, table_shape: Shape) -> None:
    """Print a table's columns at some time."""
    schema = table_shape.schema
    if schema is None:
        print(f"there is no {name} from {table_shape.position} on")
        return
    rows = [
        (
            column.served_name,
            column.declared,
            "" if column.nullable else "NOT NULL",
            column.charset,
            column.default,
            becomes(column, schema),
        )
        for column in schema.columns
    ]
    table(f"{name} from {table_shape.position} on", ("column", "type", "null", "charset", "default", "lake"), rows)
    print(f"key ({schema.key_kind}): {', '.join(schema.key) or 'none'}")


def snapshots(results: Sequence[SnapshotResult]) -> None:
    """Print a table with a line for each snapshot."""
    rows = [
        (r.name, f"{r.rows:,}", f"{r.seconds:.1f}", r.low.short, f"{r.lock_ms:,.0f}", r.delta_version) for r in results
    ]
    table("Snapshot", ("table", "rows", "seconds", "position", "locked ms", "Delta version"), rows)


def lake_versions(versions: Sequence[LakeVersion], thinned: int) -> None:
    """Print the versions of a lake that can be read, oldest first, and how many can't. thinned: the number of recorded
    batches between them that have no version any more."""
    from binlake.lake.lake_versions import REMOVED  # it brings numpy

    rows = [
        (
            version.batch,
            version.name,
            exact(version.committed),
            version.table_count,
            _end_of(version),
            Position.parse(version.position).short,
        )
        for version in versions
        if version.readable
    ]
    if rows:
        columns = ("batch", "name", "committed (UTC)", "tables", "readable until (UTC)", "position")
        table("Versions that can be read", columns, rows)
    if gone := len(versions) - len(rows):
        print(f"{gone:,} earlier batches can't be read any more; binlake versions --json lists them, too")
    taken = [version for version in versions if version.why not in ("", REMOVED)]
    for why in dict.fromkeys(version.why for version in taken):
        batches = [version.batch for version in taken if version.why == why]
        print(f"  {counted(len(batches), 'batch')}, the newest of them {batches[-1]}: {why}")
    if thinned:
        print(f"{thinned:,} batches of seconds were thinned: of those of an hour the newest stays")
    if not versions:
        print(f"there is no version yet: {FIRST_BATCH}")


def exact(moment: datetime) -> str:
    """Return a time in UTC with all its digits, so that a version is found by the time that is printed."""
    return moment.replace(tzinfo=None).isoformat(" ")


def _end_of(version: LakeVersion) -> str:
    if version.until:
        return f"{version.until:%Y-%m-%d %H:%M:%S}"
    return "it is unpinned" if version.name else "its tables change"


def maintained(report: MaintainReport) -> None:
    """Print what an upkeep did to each table."""
    rows = [
        (t.table, f"{t.files_before} → {t.files_after}", _mb(t.bytes_before, t.bytes_after), t.rewritten_files,
         t.removed_files, _mb(t.removed_bytes), t.seconds, t.left)
        for t in report.tables
    ]  # fmt: skip
    columns = ("table", "files", "MB", "rewritten", "removed", "MB removed", "seconds", "left")
    table("Tables", columns, rows)
    ours = [
        (m.table, f"{m.files_before} → {m.files_after}", m.rows_expired, m.removed_files, _mb(m.removed_bytes))
        for m in report.metadata
    ]
    table("Metadata", ("table", "files", "rows expired", "removed", "MB removed"), ours)
    print(report.headline)


def status(status: SourceStatus, ahead: Ahead | str, health: Health, *, all_tables: bool) -> None:
    """Print the health and the state of a source and its tables. all_tables: list all that follow the log, however
    many."""
    if health.level != "new":  # which the line on the place in the log says
        _say(_entry(f"{status.source}: {health.sentence}"))
    for line in status_lines(status, ahead):
        _say(_entry(line))
    if not status.tables:
        return
    counts = Counter(row.status for row in status.tables)
    _say("tables: " + ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items())))
    listed = status.tables
    if not all_tables and len(listed) > _MOST_ROWS:
        listed = tuple(row for row in listed if row.status != "following" or row.problem)
        others = f"--state following lists the {counts['following']:,} others"
        _say(f"only those that don't follow, or have a problem, are listed; {others}")
    rows = [
        (
            row.table,
            row.status,
            row.batch,
            row.delta_version,
            row.verified_through.batch if row.verified_through else None,
        )
        for row in listed
    ]
    if rows:
        table("", ("table", "status", "batch", "Delta version", "verified through"), rows, _WIDTH)
    for row in listed:
        if row.reason:
            state = "" if row.problem else f"is {row.status}: "
            _say(_entry(f"{row.table} {state}{row.reason}"))
            if row.remedy:
                _say(_entry(f"  → {row.remedy}"))


def former_values(former: Sequence[FormerValues]) -> None:
    """Print which tables have values or rows from before they were withheld, and what removes these."""
    for each in former[:_MOST_FORMER]:
        _say(_entry(f"{each.table}: {each.what}"))
        for obstacle in each.obstacles:
            _say(_entry(f"  in the way of a purge: {obstacle.why}"))
            _say(_entry(f"    → {obstacle.remedy}"))
        print(_entry(f"  → {each.command}"))
    if (more := len(former) - _MOST_FORMER) > 0:
        _say(f"and {counted(more, 'other table')} with such values: --json lists all")


def _entry(text: str) -> str:
    """Return a text of one entry: line feeds are its own where it is indented behind them, else a name's."""
    return re.sub(r"\n(?! )", r"\\u000a", text)


def _say(text: str) -> None:
    """Print wrapped lines, continued with an indent; words aren't broken, so that they can be copied."""
    for line in text.splitlines():
        lead = line[: len(line) - len(line.lstrip())] + "  "
        print(textwrap.fill(line, _WIDTH, subsequent_indent=lead, break_long_words=False, break_on_hyphens=False))


def status_lines(status: SourceStatus, ahead: Ahead | str) -> list[str]:
    """Return lines on the source as a whole. ahead: how far the server is ahead, or why that isn't known."""
    return [
        *_place_lines(status, ahead),
        *_batch_lines(status),
        *(line for feed in status.feeds for line in _feed_lines(feed)),
        *(line for beside in status.beside for line in (f"{beside.table}: {beside.problem}", f"  → {beside.remedy}")),
        *(line for merged in status.merged for line in _merged_lines(merged)),
        *_run_lines(status),
    ]


def _merged_lines(merged: MergedStatus) -> list[str]:
    """Return lines on a table that shows several of the server's: how many, and which differ from the others."""
    more = len(merged.differences) - _MOST_DIFFERENCES
    lines = [f"{merged.table} shows {counted(merged.shards, 'table')}"]
    lines += [f"  {difference}" for difference in merged.differences[:_MOST_DIFFERENCES]]
    lines += [f"  and {more:,} more"] if more > 0 else []
    return [*lines, *(f"  {said}" for said in merged.others)]


def _place_lines(status: SourceStatus, ahead: Ahead | str) -> list[str]:
    """Return lines on where the lake is in the log, what it lacks, and how it follows."""
    if status.position is None:
        lines = [f"{status.source}: no table has a snapshot yet; run binlake snapshot"]
    else:
        lines = [f"{status.source}: batch {status.batch}, at {Position.parse(status.position).short}, {_behind(ahead)}"]
    for gap in () if isinstance(ahead, str) else ahead.gaps:
        lines += [f"the log lacks changes: {gap.reason}", f"  → {gap.remedy}"]
    for table in status.lost:
        lines += lost_tables.loss_message(table).splitlines()
    if status.follower:
        lines += _follower_lines(status.follower)
    if status.carried_us:
        lines.append(f"what was committed before {_time_and_age(status.carried_us)} is in the lake")
    return lines


def _batch_lines(status: SourceStatus) -> list[str]:
    """Return lines on the open batch, what stops it, and snapshots that aren't finished."""
    lines: list[str] = []
    if opened := status.open_batch:
        stop = Position.parse(opened.stop).short
        lines.append(f"batch {opened.batch} is {opened.state}, up to {stop}: the next run finishes it")
    if status.abandoned:
        lines.append(status.abandoned)
    for event in status.poison:
        lines += [f"stopped by {event.reason}", f"  → {event.remedy}"]
    for change in status.waiting:
        lines += _waiting_lines(change)
    for each in status.catalogs:
        since = _time_and_age(each.since_us)
        lines += [f"catalog {each.catalog} lacks something since {since}: {each.problem}", f"  → {each.remedy}"]
    for copy in status.snapshots:
        progress = f"{copy.copied} of {copy.chunks} chunks, {counted(copy.rows, 'row')}"
        lines.append(f"snapshot of {copy.table} isn't finished: {progress}")
    return lines


def _waiting_lines(change: WaitingChange) -> list[str]:
    """Return lines on a schema change at which a table waits: what it is, what an answer does, and what waiting
    costs."""
    behind = f", and {counted(change.behind, 'later statement')}" if change.behind else ""
    statement = change.statement
    return [
        f"{change.table} waits for a yes or a no since {moment_text(statement.committed_us)}{behind}:",
        *textwrap.indent(statement.statement, "    ").splitlines(),
        f"  before: {', '.join(change.before)}",
        f"  after: {', '.join(change.after) or 'not known'}",
        f"  yes: {change.yes}",
        f"  no: {change.held.no}",
        f"  while it waits, the server must keep its log from {change.needs}: it is read again for the table",
        f"  → {change.answer}",
    ]


def _run_lines(status: SourceStatus) -> list[str]:
    """Return lines on the run that holds the lease, and on the last run."""
    lines: list[str] = []
    if status.holder_died:
        lines.append(f"held by {status.holder}, which is dead: the next run takes over at once")
    elif status.holder:
        lines.append(f"held by {status.holder}")
    if failed := status.failed:
        lines += [f"the last run failed in {failed.phase}, {_time_and_age(failed.ended_us)}:"]
        lines += [f"  {line}" for line in failed.message.splitlines()]
    if status.last_run:
        merged = counted(status.last_run.mutations, "mutation")
        lines.append(f"last run ended {_time_and_age(status.last_run.ended_us)}, {merged}")
    return lines


def feeds(statuses: Mapping[str, Sequence[FeedStatus]]) -> None:
    """Print the state of the feeds of each source."""
    for source, of_source in statuses.items():
        for feed in of_source:
            for line in _feed_lines(feed):
                _say(line if line.startswith(" ") else f"{source}: {line}")


def _follower_lines(follower: FollowerStatus) -> list[str]:
    if follower.cannot_write:
        since = _time_and_age(follower.at_us)
        return [f"{follower.holder} follows it, and can't write since {since}: {follower.cannot_write}; it tries again"]
    if follower.is_dead:
        return [f"{follower.holder}, which followed it, is dead since {_time_and_age(follower.at_us)}"]
    if follower.is_silent:
        seen = _time_and_age(follower.at_us)
        return [f"{follower.holder} followed it, last seen {seen}: one that waits or is started takes over"]
    behind = "" if follower.behind_seconds is None else f", {follower.behind_seconds:,.1f} s behind"
    lines = [f"followed every {follower.every_seconds:g} s{behind}, by {follower.holder}"]
    if follower.waits_for:
        lines.append(f"  it waits: {follower.waits_for}")
    return lines


def _feed_lines(feed: FeedStatus) -> list[str]:
    at = f"at batch {feed.batch}" if feed.batch is not None else "not begun"
    if feed.position:
        at += f", {Position.parse(feed.position).short}"
    behind = f", {counted(feed.behind, 'batch')} behind" if feed.behind else ""
    lines = [f"feed {feed.name} is {feed.status}, {at}{behind}, {counted(feed.messages, 'message')}"]
    if not feed.in_yaml:
        lines.append(
            f"  the YAML doesn't have it: it is of a file of feeds, or was taken out and still keeps staging, until "
            f"binlake feed --forget {feed.name}"
        )
    if feed.reason:
        lines += [f"  {feed.reason}", f"  → {feed.remedy}"]
    if feed.left_out:
        lines.append(f"  {counted(feed.left_out, 'event')} left out, the last: {feed.last_left_out}")
    return lines


def _behind(ahead: Ahead | str) -> str:
    if isinstance(ahead, str):
        return f"and how far behind isn't known:\n  {ahead}"
    if ahead.bytes is None:
        return f"which the log, at {ahead.head}, doesn't hold: binlake doctor says more"
    return f"{ahead.bytes / 1e6:,.1f} MB behind {ahead.head}" if ahead.bytes else "nothing behind"


def _time_and_age(us: int) -> str:
    """Return a time, and how long ago it was."""
    said = moment_text(us)
    seconds = max(0, round(time.time() - us / 1e6))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{said} ({seconds // size} {unit} ago)"
    return f"{said} ({seconds} s ago)"
