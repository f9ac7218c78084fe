"""Completion of partial row events, where the event itself has the missing values, or they can be computed.

Three kinds can be completed: an update whose before image has every column, and whose after image has only the changed
ones (binlog_row_image=MINIMAL on a table without a key, FULL_NODUP); an update with differences of JSON documents
(binlog_row_value_options=PARTIAL_JSON); and images of MariaDB that lack the table's generated columns, though the event
doesn't say which columns are generated. Manual: MySQL source documentation, "Rows_event", "Update_rows_event".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from binlake.binlog import jsondiff
from binlake.binlog.border import PARTIAL, PARTIAL_REMEDY
from binlake.binlog.events import ByteCursor, EventType
from binlake.binlog.tablemap import TableMap, Undecodable
from binlake.binlog.uncompressed import uncompressed_event
from binlake.binlog.widening import widened
from binlake.errors import Malformed
from binlake.schema.types.log_form import Wire

_UPDATES = (
    EventType.UPDATE_ROWS_V1,
    EventType.UPDATE_ROWS,
    EventType.PARTIAL_UPDATE_ROWS,
    EventType.UPDATE_ROWS_COMPRESSED_V1,
    EventType.UPDATE_ROWS_COMPRESSED,
)
_EXTRA = (
    EventType.WRITE_ROWS,
    EventType.UPDATE_ROWS,
    EventType.DELETE_ROWS,
    EventType.PARTIAL_UPDATE_ROWS,
    EventType.WRITE_ROWS_COMPRESSED,
    EventType.UPDATE_ROWS_COMPRESSED,
    EventType.DELETE_ROWS_COMPRESSED,
)
_JSON_UPDATES = 1
"""Bit of the value options: some columns are logged as differences."""


@dataclass(frozen=True)
class Completed:
    """Uncompressed rows as a full event has them. absent: columns that no image had; they are NULL."""

    rows: bytes
    absent: tuple[int, ...] = ()


def complete(
    body: bytes, kind: int, id_size: int, table: TableMap, program: Any, *, may_lack_columns: bool
) -> Completed:
    """Return the rows of a partial event with all columns in their images.

    program: where a column's value ends (layouts.PROGRAM). may_lack_columns: the server leaves generated columns out.
    Raises Undecodable when the event doesn't hold what is missing, and Malformed.
    """
    cursor = ByteCursor(body, id_size + 2)
    if kind in _EXTRA:
        cursor.skip(max(cursor.uint(2), 2) - 2)
    columns = cursor.packed()
    if columns != len(table.fields):
        raise Malformed("rows that don't fit their table map")
    before = _bits(cursor, columns)
    after = _bits(cursor, columns) if kind in _UPDATES else None
    absent = tuple(place for place, is_there in enumerate(before) if not is_there)
    held = after is None or not any(after[place] for place in absent)
    if not held or (absent and not may_lack_columns) or (after is None and not absent):
        raise Undecodable(PARTIAL, PARTIAL_REMEDY)
    if kind >= EventType.WRITE_ROWS_COMPRESSED_V1:
        cursor = ByteCursor(uncompressed_event(cursor.rest()))
    if absent and after in (None, before) and kind != EventType.PARTIAL_UPDATE_ROWS:
        return Completed(widened(cursor.rest(), program, before), absent)
    json_columns = [place for place, field in enumerate(table.fields) if field.wire is Wire.JSON]
    rows = _Rows(cursor, program.tolist(), before, after, json_columns, kind == EventType.PARTIAL_UPDATE_ROWS)
    return Completed(b"".join(rows.images()), absent)


def _bits(cursor: ByteCursor, count: int) -> list[bool]:
    data = cursor.take((count + 7) // 8)
    return [bool(data[place >> 3] >> (place & 7) & 1) for place in range(count)]


_Image = list[bytes | None]
"""Each column's value as it is in an image, with its length prefix; None is NULL."""


@dataclass
class _Rows:
    """The rows of one event."""

    cursor: ByteCursor
    program: list[tuple[int, ...]]
    before: list[bool]
    after: list[bool] | None
    json_columns: list[int]
    with_options: bool

    def images(self) -> Iterator[bytes]:
        while self.cursor.left:
            before = self._image(self.before, ())
            yield _image_bytes(before)
            if self.after is None:
                continue
            differing = self._differing() if self.with_options else ()
            after = self._image(self.after, differing)
            for place in range(len(after)):
                if not self.after[place]:
                    after[place] = before[place]
                elif place in differing:
                    after[place] = self._applied(before[place], after[place], place)
            yield _image_bytes(after)

    def _differing(self) -> tuple[int, ...]:
        """Read which JSON columns of the next after image are logged as differences."""
        if not self.cursor.packed() & _JSON_UPDATES:
            return ()
        bits = _bits(self.cursor, len(self.json_columns))
        return tuple(place for place, bit in zip(self.json_columns, bits, strict=True) if bit)

    def _image(self, present: list[bool], differing: tuple[int, ...]) -> _Image:
        nulls = _bits(self.cursor, sum(present))
        values: _Image = []
        place_in_image = 0
        for place, is_there in enumerate(present):
            null = is_there and nulls[place_in_image]
            place_in_image += is_there
            values.append(None if null or not is_there else self._value(place, place in differing))
        return values

    def _value(self, place: int, is_difference: bool) -> bytes:
        _, prefix, size, *_ = self.program[place]
        if is_difference:
            prefix = 4
        if not prefix:
            return self.cursor.take(size)
        length = self.cursor.take(prefix)
        return length + self.cursor.take(int.from_bytes(length, "little"))

    def _applied(self, before: bytes | None, differences: bytes | None, place: int) -> bytes | None:
        if differences is None:
            return None
        if before is None:
            raise Malformed("a difference from NULL")
        prefix = self.program[place][1]
        document = jsondiff.apply(before[prefix:], differences[4:])
        return len(document).to_bytes(prefix, "little") + document


def _image_bytes(values: _Image) -> bytes:
    nulls = bytearray((len(values) + 7) // 8)
    for place, value in enumerate(values):
        if value is None:
            nulls[place >> 3] |= 1 << (place & 7)
    pieces: list[Any] = [bytes(nulls), *(value for value in values if value is not None)]
    return b"".join(pieces)
