"""``binlake doctor --second-opinion``: compares both readers on the newest part of the user's own log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from typing import Any, Literal

from binlake.binlog.border import Wanted
from binlake.binlog.reader import Emitted, read
from binlake.binlog.transport import Transport
from binlake.config import PipelineConfig
from binlake.config.column_policies import masks_any, masks_of
from binlake.doctor.check import Check
from binlake.errors import BinlakeError
from binlake.position import file_number
from binlake.report import counted
from binlake.schema.invalid import InvalidValues
from binlake.schema.mask import FEWEST_OF_KEY
from binlake.schema.table import TableName
from binlake.second_opinion import PACKAGE
from binlake.second_opinion.comparison import Tally, Theirs, compare
from binlake.second_opinion.misread import WITHOUT_ROWS
from binlake.second_opinion.stream import Seen, Unread, events, kind_name, rows_of, table_of
from binlake.second_opinion.window import Bounds, Window, newest
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source

LINE = "second opinion"
_DIFFERS = "keep these binlog files: one of the two readers is wrong there; binlake verify shows whether the lake is"
_AGAIN = "ask again after some changes to the included tables, or with more --minutes"
_USUAL = Bounds()


def second_opinion(config: PipelineConfig, endpoint: Endpoint, minutes: float, bounds: Bounds = _USUAL) -> list[Check]:
    """Return a line for the whole log and one for each table. If nothing can be read, there is one failing line."""
    server_id = config.source.replica_id(config.source.server_ids - 1)  # which a sync needs last
    deadline = time.monotonic() + bounds.seconds
    try:
        with Source.open(endpoint) as source:
            transport = source.transport(server_id)
            window = newest(source, transport, source.now() - int(minutes * 60e6), bounds, deadline)
        theirs = _theirs(config, endpoint, server_id, window, bounds.rows, deadline)
        tallies = compare(_ours(config, transport, window, theirs), theirs, config.tables.wanted)
    except BinlakeError as error:
        return [Check(LINE, False, error.message, error.remedy)]
    return [_whole_check(minutes, window, theirs, tallies), *(_table(name, tallies[name]) for name in sorted(tallies))]


# what is read --------------------------------------------------------------------------------------------------------


def _theirs(
    config: PipelineConfig, endpoint: Endpoint, server_id: int, window: Window, most: int, deadline: float
) -> Theirs:
    """Read the window with the package. most: rows. deadline: a value of time.monotonic()."""
    theirs = Theirs({file_number(part.file): part.file for part in window.slices})
    rows = 0
    for part in window.slices:
        with closing(events(endpoint, server_id, part)) as stream:
            for item in stream:
                if isinstance(item, Seen) and (rows >= most or time.monotonic() > deadline):
                    theirs.stop = (item.file, item.offset)
                    return theirs
                decoded = _rows_or_unread(config, item)
                if isinstance(decoded, Unread):
                    theirs.unread.append(decoded)
                elif decoded:
                    theirs.rows[file_number(decoded.file), decoded.offset] = decoded
                    rows += len(decoded.rows)
    return theirs


def _rows_or_unread(config: PipelineConfig, part: Seen | Unread) -> Any:
    """Return the rows of an included table, or the part that is left out; None for any other event."""
    if isinstance(part, Unread):
        return part if part.has_rows else None
    if not part.is_known and part.kind not in WITHOUT_ROWS:
        return part.unread(f"in events that it doesn't know ({kind_name(part.kind)})")
    name = table_of(part)
    wanted = name and config.tables.wanted(name.database, name.table) is not False
    return rows_of(part) if wanted else None


def _ours(config: PipelineConfig, transport: Transport, window: Window, theirs: Theirs) -> Iterator[Emitted]:
    """Read the slices that the package came to with binlake's own reader."""
    for part in window.slices:
        if theirs.reaches((file_number(part.file), part.start)):
            yield from read(transport, part, _wanted(config), invalid=InvalidValues(config.invalid_dates))


def _wanted(config: PipelineConfig) -> Wanted:
    """Return what is read of tables: no column that is masked, and nothing of a table whose key is."""
    if not masks_any(config.columns):
        return config.tables.wanted

    def wanted(database: str, table: str) -> bool | frozenset[str]:
        known = config.tables.wanted(database, table)
        masks = masks_of(config.columns, database, table)
        if known is False or any(mask.length >= FEWEST_OF_KEY for mask in masks.values() if mask.kind == "hash"):
            return False  # its key may be masked
        return config.withheld(TableName(database, table))

    return wanted


# the lines -----------------------------------------------------------------------------------------------------------


def _whole_check(minutes: float, window: Window, theirs: Theirs, tallies: dict[TableName, Tally]) -> Check:
    events_, rows, values = (sum(getattr(tally, name) for tally in tallies.values()) for name in _COUNTS)
    differing = sum(1 for tally in tallies.values() if tally.differing)
    said = f"the log of the last {minutes:g} minute{'' if minutes == 1 else 's'}" + (
        f" ({window.cut})" if window.cut else ""
    )
    if not window.transactions:
        said += " holds no transaction" if not window.cut else ": nothing was read"
    else:
        said += f", {window.slices[0].file}:{window.slices[0].start} to {_end(window, theirs)}, also by {PACKAGE}: "
        said += f"{_amount(events_, rows, values)} of {counted(len(tallies), 'included table')}"
        said += (
            f"; {counted(differing, 'table')} differ{'s' if differing == 1 else ''}"
            if differing
            else ", equal"
            if values
            else ", nothing to compare"
        )
        said += "".join(f"; left out {count} parts {why}, first at {first}" for why, (count, first) in _unread(theirs))
    detail = {
        "minutes": minutes,
        "cut": window.cut,
        "transactions": window.transactions,
        "slices": [{"file": part.file, "start": part.start, "stop": part.stop} for part in window.slices],
        "stop": theirs.stop and {"file": theirs.stop[0], "offset": theirs.stop[1]},
        "tables": len(tallies),
        **dict(zip(_COUNTS, (events_, rows, values), strict=True)),
        "unread": [{"why": why, "parts": count, "first": first} for why, (count, first) in _unread(theirs)],
    }
    good: Literal[True, False, "warn"] = not differing if values or differing else "warn"
    return Check(LINE, good, said, _AGAIN if good == "warn" else _DIFFERS if not good else "", detail)


_COUNTS = ("events", "rows", "values")


def _end(window: Window, theirs: Theirs) -> str:
    if theirs.stop:
        return f"{theirs.stop[0]}:{theirs.stop[1]} (no further: the bound of time or rows)"
    return f"{window.slices[-1].file}:{window.slices[-1].stop}"


def _unread(theirs: Theirs) -> list[tuple[str, tuple[int, str]]]:
    """Return by reason how many parts of the log are unread, and the place of the first."""
    reasons: dict[str, tuple[int, str]] = {}
    for part in theirs.unread:
        count, first = reasons.get(part.why, (0, f"{part.file}:{part.first}"))
        reasons[part.why] = count + 1, first
    return list(reasons.items())


def _amount(events: int, rows: int, values: int) -> str:
    return f"{counted(events, 'row event')}, {counted(rows, 'row')}, {counted(values, 'value')}"


def _table(name: TableName, tally: Tally) -> Check:
    parts = [_amount(tally.events, tally.rows, tally.values)]
    if tally.differing:
        more = tally.differing - len(tally.differences)
        parts += [*map(str, tally.differences), *([f"{more:,} more differences"] if more else [])]
    else:
        parts[0] += " equal" if tally.values else " compared"
    parts += [
        f"left out: {why} ({', '.join(columns)}: {counted(count, 'value')})" for why, columns, count in _left(tally)
    ]
    parts += [f"left out: {counted(count, 'row')} {why}" for why, count in tally.unread.items()]
    parts += [f"binlake itself stops at {tally.stopped}"] if tally.stopped else []
    detail = {
        "table": str(name),
        **{key: getattr(tally, key) for key in _COUNTS},
        "differing": tally.differing,
        "differences": [asdict(difference) for difference in tally.differences],
        "left_out": [{"why": why, "columns": columns, "values": count} for why, columns, count in _left(tally)],
        "unread": [{"why": why, "rows": count} for why, count in tally.unread.items()],
        "stopped": tally.stopped,
    }
    good: Literal[True, False, "warn"] = False if tally.differing else True if tally.values else "warn"
    return Check(f"{LINE} {name}", good, "; ".join(parts), _DIFFERS if tally.differing else "", detail)


def _left(tally: Tally) -> list[tuple[str, list[str], int]]:
    """Return by misreading the columns, and how many of their values were left out."""
    columns: dict[str, dict[str, int]] = {}
    for (column, why), count in tally.left.items():
        columns.setdefault(str(why), {})[column] = count
    return [(why, sorted(counts), sum(counts.values())) for why, counts in columns.items()]
