"""``binlake binlog``: print a log, or write it as JSON, CSV or Parquet."""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from binlake import names
from binlake.binlog.border import (
    OPERATIONS,
    Item,
    Mutations,
    RolledBack,
    Statement,
    Stopped,
    Wanted,
    XaEvent,
)
from binlake.binlog.listing import Event
from binlake.errors import TableError, UsageError
from binlake.position import Slice, file_number
from binlake.schema.invalid import KEEP_ALL
from binlake.schema.lake_columns import side_columns
from binlake.schema.table import TableName

_ODD_IN_CSV = re.compile(r'[",\r\n]')
_META = ("op", "file", "offset", "row", "committed", "gtid", "xid")


def binlog(arguments: argparse.Namespace) -> None:
    """Run the command. Raises TableError where a table can't be decoded from some event on."""
    if arguments.events and (arguments.table or arguments.output):
        raise UsageError(
            "--events lists all events on standard output", remedy="leave --table and --output out, or --events"
        )
    log = _opened(arguments)
    if arguments.events:
        show_events(log, arguments.format, sys.stdout)
        return
    folder = Path(arguments.output) if arguments.output else None
    stopped = show_mutations(log, arguments.table, arguments.format, sys.stdout, folder)
    if stopped:
        tables = ", ".join(sorted({f"{table.name}" for table in stopped}))
        raise TableError(f"{tables} can't be decoded from some event on", remedy=stopped[0].remedy)


def _opened(arguments: argparse.Namespace) -> Readable:
    """Open the log by the reader that was asked for."""
    if arguments.reader == "binlake":
        from binlake.source import openlog

        return openlog.open(arguments.uri, arguments.start, arguments.stop)
    from binlake.second_opinion import opinion_listing

    return opinion_listing.open(arguments.uri, arguments.start, arguments.stop)


class Readable(Protocol):
    """A range of a log opened by any reader: ``openlog.OpenLog`` or ``opinion_listing.PackageLog``."""

    @property
    def slices(self) -> tuple[Slice, ...]:
        """Return the parts of the range, one for each file."""

    def events(self) -> Iterator[Event]:
        """Yield every event of the range with a description, in the order of the log."""

    def mutations(self, wanted: Wanted | None = None) -> Iterator[Item]:
        """Yield mutations, statements and stopped tables in order.

        wanted: returns whether to decode a table; None for all.
        """


def show_events(log: Readable, form: str, out: TextIO) -> None:
    """Write a line per event, as text or JSON. Raises UsageError for other forms."""
    if form not in ("text", "json"):
        raise UsageError(f"events can't be written as {form}", remedy="use --format text or json, or leave --events")
    for event in log.events():
        out.write((_event_json(event) if form == "json" else _event_text(event)) + "\n")


def show_mutations(log: Readable, tables: list[str], form: str, out: TextIO, folder: Path | None) -> list[Stopped]:
    """Write rows and statements in log order, to ``out`` or as a file per table in ``folder``.

    tables: shell-style patterns over database.table; none means all. Returns the tables that couldn't be decoded.
    Raises UsageError if form and folder don't go together.
    """
    if form in ("csv", "parquet") and folder is None:
        raise UsageError(f"{form} has one file a table", remedy="add --output DIR")
    if form == "text" and folder is not None:
        raise UsageError("text goes to standard output", remedy="add --format json, csv or parquet")
    stopped: list[Stopped] = []
    files = {file_number(part.file): part.file for part in log.slices}
    with _Writer(form, out, folder, files) as write:
        for item in log.mutations(_wanted(tables)):
            write(item)
            if isinstance(item, Stopped):
                stopped.append(item)
    return stopped


def _wanted(patterns: list[str]) -> Wanted | None:
    if not patterns:
        return None
    return lambda database, table: names.matches_any(patterns, database, table)


# events ------------------------------------------------------------------------------------------------------------


def _event_json(event: Event) -> str:
    return json.dumps({"type": event.name or event.kind, **vars(event)}, ensure_ascii=False)


def _event_text(event: Event) -> str:
    moment = datetime.fromtimestamp(event.created, UTC).strftime("%Y-%m-%d %H:%M:%S") if event.created else " " * 19
    name = event.name or f"type {event.kind}, not known"
    indent = "  " if event.inside_payload else ""
    detail = {**({"header": list(event.flags)} if event.flags else {}), **event.detail}
    words = " ".join(f"{key}={_shown(value)}" for key, value in detail.items())
    return f"{event.file}:{event.offset:<10} {moment} {event.size:>8}  {indent}{name:<22} {words}".rstrip()


def _shown(value: Any) -> str:
    return names.shown(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# mutations ---------------------------------------------------------------------------------------------------------


class _Writer:
    """Writer of items in one form. When a table's columns change, it continues in another file: ``db.t.2.csv``."""

    def __init__(self, form: str, out: TextIO, folder: Path | None, names_of_files: dict[int, str]) -> None:
        self._form, self._out, self._folder, self._names_of_files = form, out, folder, names_of_files
        self._stack = ExitStack()
        self._files: dict[str, Any] = {}
        self._shapes: dict[TableName, list[pa.Schema]] = {}

    def __enter__(self) -> Callable[[Item], None]:
        if self._folder:
            self._folder.mkdir(parents=True, exist_ok=True)
        return {"text": self._text, "json": self._json, "csv": self._csv, "parquet": self._parquet}[self._form]

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _file(self, name: str, make: Callable[[Path], Any]) -> tuple[Any, bool]:
        """Return the open file of that name, and whether it was just created."""
        fresh = name not in self._files
        if fresh:
            assert self._folder is not None
            self._files[name] = self._stack.enter_context(make(self._folder / name))
        return self._files[name], fresh

    def _name(self, item: Mutations, extension: str) -> str:
        shapes = self._shapes.setdefault(item.name, [])
        if item.batch.schema not in shapes:
            shapes.append(item.batch.schema)
        number = shapes.index(item.batch.schema) + 1
        return f"{names.folder(str(item.name))}{f'.{number}' if number > 1 else ''}.{extension}"

    def _text(self, item: Item) -> None:
        if isinstance(item, Mutations):
            rows = _rows(item, self._names_of_files, _for_people)
            self._out.writelines(_row_text(item, row) for row in rows)
        else:
            self._out.write(_other_text(item))

    def _json(self, item: Item) -> None:
        name = "statements"
        if isinstance(item, Mutations):
            name = names.folder(str(item.name))
            rows = _rows(item, self._names_of_files, _for_programs)
            lines = [_json_line({"table": str(item.name), **row}) for row in rows]
        else:
            lines = [_json_line(_other_json(item))]
        out = self._file(f"{name}.jsonl", _text_file)[0] if self._folder else self._out
        out.writelines(lines)

    def _csv(self, item: Item) -> None:
        """Write one line per mutation: the columns of the after image (of the before image for a delete)."""
        if not isinstance(item, Mutations):
            return
        out, fresh = self._file(self._name(item, "csv"), _text_file)
        columns = item.batch.schema.field("after").type.names
        if fresh:
            out.write(_csv_line([*_META, *columns]))
        for row in _rows(item, self._names_of_files, _for_programs):
            image = row["before"] if row["after"] is None else row["after"]
            out.write(_csv_line([*(row[name] for name in _META), *map(image.get, columns)]))

    def _parquet(self, item: Item) -> None:
        """Write the columns as the decoder returns them."""
        if not isinstance(item, Mutations):
            return
        schema = item.batch.schema
        out, _ = self._file(self._name(item, "parquet"), lambda path: pq.ParquetWriter(path, schema))
        out.write_batch(item.batch)


def _text_file(path: Path) -> TextIO:
    return path.open("w", encoding="utf-8", newline="")


def _rows(item: Mutations, files: dict[int, str], plain: Callable[[Any], Any]) -> Iterator[dict[str, Any]]:
    """Yield mutations as plain values, without columns that the log lacks for a row."""
    from binlake.feeds.formats.text import rows_of

    clocks = {column.name for column in item.columns if column.type == "time"}

    def image(value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        logged = {name: part for name, part in value.items() if part is not None or name not in item.absent}
        return {name: plain(_clock(part) if name in clocks else part) for name, part in logged.items()}

    for row in rows_of(item.batch):
        yield {
            "op": OPERATIONS[row["op"]],
            "file": files[row["file"]],
            "offset": row["offset"],
            "row": row["row"],
            "committed": _utc_text(row["committed_us"]),
            "gtid": row["gtid"],
            "xid": row["xid"],
            "before": image(row["before"]),
            "after": image(row["after"]),
        }


def _for_programs(value: Any) -> Any:
    """Return a value as JSON can hold it: bytes in base64, decimals and times as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        return value.isoformat(" ", "microseconds")
    return value.isoformat() if isinstance(value, date) else value


def _for_people(value: Any) -> str:
    """Return a value as an SQL literal."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"0x{value.hex()}" if value else "''"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime | date):
        return f"'{_for_programs(value)}'"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n") + "'"
    return str(value)


def _clock(microseconds: int | None) -> str | None:
    """Return a TIME as the server prints it."""
    if microseconds is None:
        return None
    seconds, fraction = divmod(abs(microseconds), 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"
    return f"-{text}" if microseconds < 0 else text


def _utc_text(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(" ", "microseconds")


def _row_text(item: Mutations, row: dict[str, Any]) -> str:
    """Return a heading and a line per column; of an update, only the changed columns and the key."""
    place = f"{row['file']}:{row['offset']}+{row['row']}"
    head = f"{place}  {row['committed']}  {row['op']} {item.name}"
    head += "".join(f"  {word}" for word in (row["gtid"], row["xid"] and f"prepared {row['xid']}") if word)
    before, after = row["before"], row["after"]
    sides = {side.name for side in side_columns(item.columns, KEEP_ALL)}
    if before is None or after is None:
        lines = [
            f"{names.shown(name)} = {value}"
            for name, value in (after or before).items()
            if name not in sides or value != "NULL"
        ]
    else:
        columns = item.batch.schema.field("after").type.names
        lines = [
            line for name in columns if (line := _change_text(name, before, after, is_key=name in item.key)) is not None
        ]
    return "\n".join([head, *(f"    {line}" for line in lines)]) + "\n"


def _change_text(name: str, before: dict[str, str], after: dict[str, str], *, is_key: bool) -> str | None:
    """Return what an update made of a column; None where it changed nothing. An image may lack columns."""
    old, new = before.get(name), after.get(name)
    changed = "" if new is None or new == old else f" → {new}"
    if not changed and (old is None or not is_key):
        return None
    return (names.shown(name) if old is None else f"{names.shown(name)} = {old}") + changed


def _other_json(item: Statement | Stopped | XaEvent | RolledBack) -> dict[str, Any]:
    if isinstance(item, Statement):
        plain = {key: value for key, value in vars(item).items() if key not in ("text", "session")}
        return {"statement": item.text, **plain, **vars(item.session)}
    if isinstance(item, Stopped):
        return {"stopped": str(item.name), **{key: value for key, value in vars(item).items() if key != "name"}}
    if isinstance(item, RolledBack):
        return {"rolled_back": {"first": item.first, "last": item.last}, "file": item.file}
    return {"xa": item.what, **{key: value for key, value in vars(item).items() if key != "what"}}


def _other_text(item: Statement | Stopped | XaEvent | RolledBack) -> str:
    if isinstance(item, Statement):
        text = f"[{names.shown(item.database)}] {item.text}".replace("\n", "\n    ")
        return f"{item.file}:{item.offset}  {_utc_text(item.committed_us)}  {text}\n"
    if isinstance(item, Stopped):
        return f"{item.file}:{item.offset}  {item.name} stops: {item.reason}\n    → {item.remedy}\n"
    if isinstance(item, RolledBack):
        return f"{item.file}:{item.last[0]}  the rows from {item.file}:{item.first[0]} to here were rolled back\n"
    return f"{item.file}:{item.offset}  XA {item.xid} {item.what}\n"


def _csv_line(values: Iterable[Any]) -> str:
    """Return a line of CSV. NULL is empty; an empty text has quotes, which Python's own writer gives none."""
    return ",".join(map(_csv_text, values)) + "\n"


def _csv_text(value: Any) -> str:
    if value is None:
        return ""
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if not text or _ODD_IN_CSV.search(text) else text


def _json_line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, default=_for_programs) + "\n"
