"""Conversion of a column's buffers, filled by kernels, to Arrow. It does what kernels can't, for all rows at once.

That is ENUM and SET names, character sets, JSON, decimals beyond 38 digits, values made of stored bytes, compressed
columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from binlake.binlog import strings, values
from binlake.binlog.events import Malformed
from binlake.binlog.tablemap import Field, Wire
from binlake.kernels import row_kernels
from binlake.kernels.arrays import absent, binaries, texts
from binlake.kernels.layouts import SLACK
from binlake.kernels.memory import pool
from binlake.schema import charsets
from binlake.schema.datatypes import REGISTRY
from binlake.schema.types.datatype import StoredBytes


class ColumnBuffers:
    """Buffers of one column on one side (before or after image)."""

    def __init__(self, kind: int, size: int, rows: int, capacity: int) -> None:
        self.ascii = False  # all of it, as far as that is known
        self.offsets: npt.NDArray[np.int32] | None = None
        if kind == row_kernels.SKIPPED:
            self.validity = self.data = np.empty(SLACK, np.uint8)
            return
        self.validity = pool.take(rows // 8 + 8)
        if kind in (row_kernels.STRING, row_kernels.PADDED):
            self.offsets = pool.take(4 * rows + 4).view(np.int32)
            self.offsets[0] = 0
            self.data = pool.take(capacity + SLACK)
        else:
            width = size if kind == row_kernels.BYTES else int(row_kernels.WIDTHS[kind])
            self.data = pool.take(rows * width + SLACK)

    def give_to(self, out: Any) -> None:
        """Write the buffers' addresses to ``out``, a record of layouts.BUFFERS, for the kernels."""
        out["validity"], out["data"] = self.validity.ctypes.data, self.data.ctypes.data
        out["offsets"] = 0 if self.offsets is None else self.offsets.ctypes.data
        out["capacity"] = len(self.data) - SLACK

    def grow(self, used: int, needed: int) -> None:
        """Replace the data buffer by one at least twice as large. used: bytes to keep. needed: bytes to come."""
        larger = pool.take(max(2 * len(self.data), used + needed) + SLACK)
        larger[:used] = self.data[:used]
        self.data = larger


_COMPRESSED = (Wire.BLOB_COMPRESSED, Wire.VARCHAR_COMPRESSED)

Finish = Callable[[pa.DataType, int, pa.Buffer | None, int, ColumnBuffers, int], pa.Array]
"""A function (Arrow type, rows, validity, nulls, buffers, bytes of strings) → array. It raises strings.BadValue."""


def _fixed(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: ColumnBuffers, used: int) -> pa.Array:
    return pa.Array.from_buffers(wanted, rows, [validity, pa.py_buffer(column.data)], nulls)


def _bit(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: ColumnBuffers, used: int) -> pa.Array:
    bits = np.packbits(column.data[:rows], bitorder="little")
    return pa.Array.from_buffers(wanted, rows, [validity, pa.py_buffer(bits)], nulls)


def _binary(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: ColumnBuffers, used: int) -> pa.Array:
    return pa.Array.from_buffers(
        wanted, rows, [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)], nulls
    )


def finisher(field: Field) -> Finish:
    """Return the function that turns the buffers of a column of this type into Arrow."""
    wire, column = field.wire, field.column
    if wire is Wire.BIT:
        return _bit if column.length == 1 else _equal_sized(field.size)
    if wire is Wire.NEWDECIMAL and (column.precision or 0) > 38:
        return _decimal_text(field)
    if wire is Wire.ENUM:
        return _enum(("", *column.values))
    if wire is Wire.SET:
        return _set(column.values)
    if wire is Wire.JSON:
        return _json
    if (stored := REGISTRY[column.type].stored) is not None:
        return _made_of(stored)
    if wire in _COMPRESSED:
        return _compressed(column.charset)
    if column.charset is not None:
        return _text(column.charset)
    if wire in (Wire.VARCHAR, Wire.VAR_STRING, Wire.STRING, Wire.BLOB, Wire.GEOMETRY):
        return _binary
    return _fixed


def with_bytes(field: Field) -> Callable[..., tuple[pa.Array, pa.Array]]:
    """Return a finisher of a text column and its side column.

    Values that aren't valid in the character set are NULL in the first; the second has their stored bytes.
    """
    finish, stored = finisher(field), _compressed(None) if field.wire in _COMPRESSED else _binary
    decode = charsets.decoder(field.column.charset or "")

    def utf8(value: bytes | None) -> bytes | None:
        try:
            return None if value is None else decode(value).encode()
        except UnicodeError:
            return None

    def both(wanted: pa.DataType, rows: int, *buffers: Any) -> tuple[pa.Array, pa.Array]:
        try:
            return finish(wanted, rows, *buffers), absent(pa.binary(), rows)
        except strings.BadValue:
            raw = stored(pa.binary(), rows, *buffers).to_pylist()
        valid = [utf8(value) for value in raw]
        invalid = [None if text is not None else value for text, value in zip(valid, raw, strict=True)]
        return binaries(valid, wanted), binaries(invalid, pa.binary())

    return both


def _equal_sized(size: int) -> Finish:
    def finish(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: ColumnBuffers, used: int) -> pa.Array:
        offsets = np.arange(0, (rows + 1) * size, size, dtype=np.int32)
        return pa.Array.from_buffers(wanted, rows, [validity, pa.py_buffer(offsets), pa.py_buffer(column.data)], nulls)

    return finish


def _decimal_text(field: Field) -> Finish:
    precision, scale = field.column.precision or 0, field.column.scale or 0
    size = values.decimal_size(precision, scale)

    def finish(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: ColumnBuffers, used: int) -> pa.Array:
        bits = column.validity if nulls else None
        offsets, data = strings.decimals(column.data, rows, (precision, scale, size), bits)
        return pa.Array.from_buffers(wanted, rows, [validity, pa.py_buffer(offsets), pa.py_buffer(data)], nulls)

    return finish


def _enum(names: tuple[str, ...]) -> Finish:
    dictionary = texts(names)

    def finish(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: ColumnBuffers, used: int) -> pa.Array:
        return dictionary.take(_fixed(pa.int32(), rows, validity, nulls, column, used))

    return finish


def _set(names: tuple[str, ...]) -> Finish:
    def finish(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: ColumnBuffers, used: int) -> pa.Array:
        masks, codes = _distinct(column.data[: 8 * rows].view(np.uint64), len(names))
        combined = [",".join(name for place, name in enumerate(names) if mask >> place & 1) for mask in masks.tolist()]
        places = pa.Array.from_buffers(
            pa.int32(), rows, [validity, pa.py_buffer(codes.reshape(-1).astype(np.int32))], nulls
        )
        return texts(combined).take(places)

    return finish


def _distinct(masks: npt.NDArray[np.uint64], names: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the distinct masks, and for each row the index of its mask among them."""
    if names > 16:
        return np.unique(masks, return_inverse=True)
    small = masks.astype(np.intp)
    distinct = np.flatnonzero(np.bincount(small, minlength=1))
    places = np.zeros(1 << names, np.int32)
    places[distinct] = np.arange(len(distinct))
    return distinct, places[small]


def _text(charset: str) -> Finish:
    convert = strings.converter(charset)

    def finish(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: ColumnBuffers, used: int) -> pa.Array:
        assert column.offsets is not None
        if column.ascii:
            return _binary(wanted, rows, validity, nulls, column, used)
        offsets, data = convert(column.offsets[: rows + 1], column.data)
        return pa.Array.from_buffers(wanted, rows, [validity, pa.py_buffer(offsets), pa.py_buffer(data)], nulls)

    return finish


def _json(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: ColumnBuffers, used: int) -> pa.Array:
    assert column.offsets is not None
    offsets, data = strings.json(column.offsets[: rows + 1], column.data, column.validity if nulls else None)
    return pa.Array.from_buffers(wanted, rows, [validity, pa.py_buffer(offsets), pa.py_buffer(data)], nulls)


def _made_of(stored: StoredBytes) -> Finish:
    def finish(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: ColumnBuffers, used: int) -> pa.Array:
        try:
            return stored.values(_binary(pa.binary(), rows, validity, nulls, column, used))
        except ValueError as error:
            raise Malformed(str(error), 0) from None

    return finish


def _compressed(charset: str | None) -> Finish:
    """Return the finisher of MariaDB's COMPRESSED columns, which uncompresses value by value."""
    convert = strings.converter(charset) if charset else None

    def finish(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: ColumnBuffers, used: int) -> pa.Array:
        raw = _binary(pa.binary(), rows, validity, nulls, column, used)
        try:
            plain = [None if value is None else values.uncompressed_column(value) for value in raw.to_pylist()]
        except Malformed as error:
            raise Malformed(str(error), 0) from None
        array = pa.array(plain, pa.binary())
        if convert is None:
            return array
        data = array.buffers()[2] or pa.py_buffer(b"")
        padded = np.empty(len(data) + SLACK, np.uint8)
        padded[: len(data)] = np.frombuffer(data, np.uint8)
        offsets, text = convert(np.frombuffer(array.buffers()[1], np.int32)[: rows + 1].copy(), padded)
        return pa.Array.from_buffers(wanted, rows, [validity, pa.py_buffer(offsets), pa.py_buffer(text)], nulls)

    return finish
