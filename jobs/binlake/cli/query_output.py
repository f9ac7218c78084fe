"""Output of a query's rows as a table, a line for each value, CSV, JSON or Parquet, written while they are read."""

from __future__ import annotations

import codecs
import io
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from binlake.cli import output_file
from binlake.errors import UsageError
from binlake.report import counted, harmless

RecordBatches = Iterable[pa.RecordBatch]
_MEASURED_ROWS = 1000
"""Rows whose widths a table's columns have."""


def write(schema: pa.Schema, batches: RecordBatches, form: str, path: Path | None, width: int = 0) -> int:
    """Write rows in one of sql_commands.FORMATS, to a file or to standard output, and return their number.

    width: at which values are cut in what people read; 0 for whole ones. A file appears complete or not at all. Raises
    UsageError, and what reading the batches raises.
    """
    _refuse_ambiguous(schema, form)
    if path is None:
        if form == "parquet" and sys.stdout.isatty():
            raise UsageError(
                "Parquet isn't for a terminal", remedy="name a file, --output FILE, or let a program read it"
            )
        sys.stdout.flush()  # earlier output comes before what is written below
        if sys.stdout.isatty():
            return _written(schema, batches, form, _terminal(sys.stdout.write), width)
        rows = _written(schema, batches, form, sys.stdout.buffer, width)
        sys.stdout.buffer.flush()
        return rows
    with output_file.replaced(path) as file:
        return _written(schema, batches, form, file, width)


def show(schema: pa.Schema, batches: RecordBatches, form: str, file: IO[bytes], width: int = 0) -> int:
    """Write rows as ``write`` does, for people who read them on a terminal: to a pager."""
    return _written(schema, batches, form, _terminal(lambda text: file.write(text.encode())), width)


def _written(schema: pa.Schema, batches: RecordBatches, form: str, file: IO[bytes], width: int) -> int:
    if form in READ_BY_PEOPLE and schema.names == _OF_A_PLAN:
        return _as_plan(batches, file)
    if form in READ_BY_PEOPLE:
        return _TEXTS[form](schema, batches, file, width)
    return _WRITERS[form](schema, batches, file)


class _Terminal(io.RawIOBase):
    """A binary file whose text is shown on a terminal, without characters that rule it."""

    def __init__(self, show: Callable[[str], object]) -> None:
        super().__init__()
        self._show = show
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        whole = bytes(data)
        self._show(harmless(self._decoder.decode(whole)))
        return len(whole)


def _terminal(show: Callable[[str], object]) -> IO[bytes]:
    return cast("IO[bytes]", _Terminal(show))


def _refuse_ambiguous(schema: pa.Schema, form: str) -> None:
    """Raise UsageError where two columns have a name in a format that needs one for each."""
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice and form in ("json", "parquet"):
        raise UsageError(
            f"several columns are called {', '.join(twice)}", remedy="give each a name of its own: SELECT … AS …"
        )


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: bytes as hexadecimal, times and decimals as text."""
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, datetime):
        return value.isoformat(" ", "microseconds")
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value.isoformat() if isinstance(value, date) else str(value)


# table ---------------------------------------------------------------------------------------------------------------
class _Cells:
    """The texts of values, cut at a width. cut: how many were."""

    def __init__(self, batches: RecordBatches, width: int) -> None:
        self._batches, self._width = batches, width
        self.cut = 0

    def __iter__(self) -> Iterator[list[str]]:
        for cells in _cells(self._batches):
            yield [self._fitting(cell) for cell in cells] if self._width else cells

    def _fitting(self, text: str) -> str:
        if len(text) * 2 <= self._width or _width(text) <= self._width:
            return text
        self.cut += 1
        text = text[: self._width]
        while _width(text) >= self._width:
            text = text[:-1]
        return text + "…"

    def ending(self, count: int) -> bytes:
        """Return the last line: how many rows there are, and that values are cut."""
        verb = "is" if self.cut == 1 else "are"
        is_cut = f"; {counted(self.cut, 'value')} {verb} cut at {self._width} characters" if self.cut else ""
        return f"({count:,} row{'' if count == 1 else 's'}{is_cut})\n".encode()


def _as_table(schema: pa.Schema, batches: RecordBatches, file: IO[bytes], width: int) -> int:
    """Write rows as an aligned table. Widths are those of the first rows; later, longer values stand out."""
    cells = _Cells(batches, width)
    rows = iter(cells)
    first = [row for row, _ in zip(rows, range(_MEASURED_ROWS), strict=False)]
    names = [_on_one_line(name) for name in schema.names]
    widths = [max(map(_width, column)) for column in zip(names, *first, strict=True)]
    right = [_is_number(field.type) for field in schema]

    def line(cells: Sequence[str]) -> bytes:
        aligned = (_aligned(*cell) for cell in zip(cells, widths, right, strict=True))
        return " | ".join(aligned).rstrip().encode() + b"\n"

    file.write(line(names))
    file.write("-+-".join("-" * width for width in widths).encode() + b"\n")
    count = 0
    for row in chain(first, rows):
        file.write(line(row))
        count += 1
    file.write(cells.ending(count))
    return count


def _as_expanded(schema: pa.Schema, batches: RecordBatches, file: IO[bytes], width: int) -> int:
    """Write a line for each value, below a line for each row."""
    cells = _Cells(batches, width)
    names = [_on_one_line(name) for name in schema.names]
    widest = max(map(_width, names), default=0)
    count = 0
    for row in cells:
        count += 1
        file.write(f"-[ row {count:,} ]-\n".encode())
        file.writelines(f"{_aligned(*named, False)} | {cell}\n".encode() for named, cell in
                        zip(((name, widest) for name in names), row, strict=True))  # fmt: skip
    file.write(cells.ending(count))
    return count


_OF_A_PLAN = ["plan_type", "plan"]
"""Columns of an EXPLAIN."""


def _as_plan(batches: RecordBatches, file: IO[bytes]) -> int:
    """Write what EXPLAIN gives: each plan with its lines."""
    count = 0
    for batch in batches:
        for kind, plan in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            lines = [_on_one_line(kind), *(f"  {_on_one_line(line)}" for line in (plan or "").rstrip().split("\n"))]
            file.write("".join(f"{line}\n" for line in lines).encode())
            count += 1
    return count


_TEXTS: dict[str, Callable[[pa.Schema, RecordBatches, IO[bytes], int], int]] = {
    "table": _as_table,
    "expanded": _as_expanded,
}
READ_BY_PEOPLE = frozenset(_TEXTS)
"""The formats that people read."""


def _cells(batches: RecordBatches) -> Iterator[list[str]]:
    from binlake.feeds.formats.text import shortest

    for batch in batches:
        columns = [list(map(_cell, shortest(column).to_pylist())) for column in batch.columns]
        yield from map(list, zip(*columns, strict=True))


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list | dict):
        return _on_one_line(json.dumps(value, ensure_ascii=False, default=plain))
    return _on_one_line(value if isinstance(value, str) else str(value if isinstance(value, bool) else plain(value)))


def _on_one_line(text: str) -> str:
    """Return a text without control characters, which could drive the terminal: escaped as in Python."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _aligned(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - _width(text))
    return blanks + text if right else text + blanks


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


# csv, json, parquet --------------------------------------------------------------------------------------------------
def _as_csv(schema: pa.Schema, batches: RecordBatches, file: IO[bytes]) -> int:
    """Write CSV with a header. Text is quoted and NULL is empty, so that an empty text differs from it.

    Decimals of more than PLAIN_SCALE places are text, too: Arrow writes small ones with an exponent, such as 0E-10.
    """
    from pyarrow import csv

    from binlake.feeds.formats.text import shortest

    plain_schema = pa.schema([field.with_type(_in_csv(field.type)) for field in schema])
    count = 0
    with csv.CSVWriter(file, plain_schema) as writer:
        for batch in batches:
            columns = [
                column if column.type == field.type else pa.array(map(_text, shortest(column).to_pylist()), pa.string())
                for column, field in zip(batch.columns, plain_schema, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=plain_schema))
            count += batch.num_rows
    return count


def _in_csv(kind: pa.DataType) -> pa.DataType:
    """Return the type that a column has in CSV: text for what Arrow's writer doesn't know, or writes otherwise."""
    from binlake.feeds.formats.text import PLAIN_SCALE

    is_odd = (pa.types.is_decimal(kind) and kind.scale > PLAIN_SCALE) or kind == pa.month_day_nano_interval()
    is_odd = is_odd or pa.types.is_duration(kind)  # a number whose unit would be unknown
    return pa.string() if is_odd or pa.types.is_nested(kind) or pa.types.is_binary(kind) else kind


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes | Decimal | timedelta):
        return str(plain(value))
    return json.dumps(value, ensure_ascii=False, default=plain)


def _as_json(schema: pa.Schema, batches: RecordBatches, file: IO[bytes]) -> int:
    """Write one JSON object a line."""
    from binlake.feeds.formats.text import rows_of

    count = 0
    for batch in batches:
        for row in rows_of(batch):
            file.write(_json_text(row).encode() + b"\n")
        count += batch.num_rows
    return count


def _json_text(row: dict[str, Any]) -> str:
    try:
        return json.dumps(row, ensure_ascii=False, default=plain, allow_nan=False)
    except ValueError:  # JSON has no nan and no inf, which a query may reckon
        return json.dumps(_finite(row), ensure_ascii=False, default=plain)


def _finite(value: Any) -> Any:
    """Return a value with text in the place of numbers that JSON doesn't have."""
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_finite(member) for member in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _as_parquet(schema: pa.Schema, batches: RecordBatches, file: IO[bytes]) -> int:
    from pyarrow import parquet

    count = 0
    with parquet.ParquetWriter(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


_WRITERS: dict[str, Callable[[pa.Schema, RecordBatches, IO[bytes]], int]] = {
    "csv": _as_csv,
    "json": _as_json,
    "parquet": _as_parquet,
}
