"""Arrow arrays over existing buffers, without the cost of ``pa.array``, which imports pandas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MOST_ROWS = 1 << 16
"""The most rows of an array."""
_ZEROS = pa.py_buffer(bytes(16 * MOST_ROWS + 16))


def absent(kind: pa.DataType, rows: int) -> pa.Array:
    """Return an array of NULLs, as pa.nulls, over a shared buffer. rows: at most MOST_ROWS."""
    if pa.types.is_struct(kind):
        children = [absent(field.type, rows) for field in kind]
        return pa.StructArray.from_buffers(kind, rows, [_ZEROS], null_count=rows, children=children)
    if pa.types.is_list(kind):
        return pa.Array.from_buffers(kind, rows, [_ZEROS, _ZEROS], rows, children=[pa.nulls(0, kind.value_type)])
    buffers = [_ZEROS, _ZEROS, _ZEROS] if pa.types.is_string(kind) or pa.types.is_binary(kind) else [_ZEROS, _ZEROS]
    return pa.Array.from_buffers(kind, rows, buffers, rows)


def numbers(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return an Arrow array over a numpy array without NULLs. (``pa.array`` imports pandas, which takes a second.)"""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], 0)


def texts(values: Sequence[str | None]) -> pa.Array:
    """Return an Arrow array of strings."""
    return binaries([None if value is None else value.encode() for value in values], pa.string())


def binaries(values: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    """Return an Arrow array of binaries, or of strings whose UTF-8 is given."""
    encoded = [value or b"" for value in values]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(value) for value in encoded], out=offsets[1:])
    absent = [value is None for value in values]
    validity = (
        pa.py_buffer(np.packbits([not missing for missing in absent], bitorder="little")) if any(absent) else None
    )
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(kind, len(encoded), buffers, sum(absent))
