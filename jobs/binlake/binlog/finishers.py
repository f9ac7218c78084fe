"""Conversion of a column's buffers, filled by kernels, to Arrow: by its type (``log_form.LogForm``), or for MariaDB's
COMPRESSED columns, which are uncompressed first. It does what kernels can't, for all rows at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from binlake.binlog.uncompressed import uncompressed_column
from binlake.errors import Malformed
from binlake.kernels import row_kernels
from binlake.kernels.arrays import absent, binaries
from binlake.kernels.layouts import SLACK
from binlake.kernels.memory import pool
from binlake.schema import charsets, strings
from binlake.schema.datatypes import REGISTRY
from binlake.schema.types.log_form import Field, FilledBuffers, Finish, Wire, binary


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


def finisher(field: Field) -> Finish:
    """Return the function that turns the buffers of a column of this type into Arrow."""
    if field.wire in _COMPRESSED:
        return _compressed(field.column.charset)
    return REGISTRY[field.column.type].log.finish(field)


def with_bytes(field: Field) -> Callable[..., tuple[pa.Array, pa.Array]]:
    """Return a finisher of a text column and its side column.

    Values that aren't valid in the character set are NULL in the first; the second has their stored bytes.
    """
    finish, stored = finisher(field), _compressed(None) if field.wire in _COMPRESSED else binary
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


def _compressed(charset: str | None) -> Finish:
    """Return the finisher of MariaDB's COMPRESSED columns, which uncompresses value by value."""
    convert = strings.converter(charset) if charset else None

    def finish(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: FilledBuffers, used: int) -> pa.Array:
        raw = binary(pa.binary(), rows, validity, nulls, column, used)
        try:
            plain = [None if value is None else uncompressed_column(value) for value in raw.to_pylist()]
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
