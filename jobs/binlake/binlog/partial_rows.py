"""Partial row events made whole, where the event itself holds what is missing.

Two kinds can be: an update whose before image has every column, with an after image of the changed columns alone
(binlog_row_image=MINIMAL on a table without a key); and an update with the differences of JSON documents
(binlog_row_value_options=PARTIAL_JSON). Manual: MySQL source documentation, "Rows_event", "Update_rows_event".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from binlake.binlog import jsondiff
from binlake.binlog.events import ByteCursor, EventType, Malformed
from binlake.binlog.tablemap import TableMap, Undecodable, Wire

_UPDATES = (EventType.UPDATE_ROWS_V1, EventType.UPDATE_ROWS, EventType.PARTIAL_UPDATE_ROWS)
_EXTRA = (EventType.UPDATE_ROWS, EventType.PARTIAL_UPDATE_ROWS)
_JSON_UPDATES = 1
"""Bit of the value options: some columns come as differences."""


def _partial_images() -> Undecodable:
    return Undecodable(
        "the log holds partial row images",
        "SET GLOBAL binlog_row_image=FULL (and reconnect the writers), then snapshot the table anew",
    )


def complete(body: bytes, kind: int, id_size: int, table: TableMap, program: Any) -> bytes:
    """Rows of an update event with all columns in both images, as they stand in an event that isn't partial.

    program: where a column's value ends (layouts.PROGRAM). Raises Undecodable when the event doesn't hold what is
    missing, and Malformed.
    """
    if kind not in _UPDATES:
        raise _partial_images()
    cursor = ByteCursor(body, id_size + 2)
    if kind in _EXTRA:
        cursor.skip(max(cursor.uint(2), 2) - 2)
    columns = cursor.packed()
    if columns != len(table.fields):
        raise Malformed("rows that don't fit their table map")
    before, after = (_bits(cursor, columns) for _ in range(2))
    if not all(before):
        raise _partial_images()
    json_columns = [place for place, field in enumerate(table.fields) if field.wire is Wire.JSON]
    rows = _Rows(cursor, program.tolist(), after, json_columns, kind == EventType.PARTIAL_UPDATE_ROWS)
    return b"".join(rows.images())


def _bits(cursor: ByteCursor, count: int) -> list[bool]:
    data = cursor.take((count + 7) // 8)
    return [bool(data[place >> 3] >> (place & 7) & 1) for place in range(count)]


_Image = list[bytes | None]
"""Each column's value as it stands in an image, with the length before it; None is NULL."""


@dataclass
class _Rows:
    """The rows of one event."""

    cursor: ByteCursor
    program: list[tuple[int, ...]]
    present: list[bool]
    json_columns: list[int]
    with_options: bool

    def images(self) -> Iterator[bytes]:
        while self.cursor.left:
            before = self._image([True] * len(self.program), ())
            yield _image_bytes(before)
            differing = self._differing() if self.with_options else ()
            after = self._image(self.present, differing)
            for place in range(len(after)):
                if not self.present[place]:
                    after[place] = before[place]
                elif place in differing:
                    after[place] = self._applied(before[place], after[place], place)
            yield _image_bytes(after)

    def _differing(self) -> tuple[int, ...]:
        """The JSON columns of the next after image that come as differences."""
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
