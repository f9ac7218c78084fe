"""VECTOR: floats of four bytes, little-endian and side by side, on both servers; MariaDB's log calls it VARBINARY.

Sources: MySQL manual 13.3.5 The VECTOR Type; MariaDB's manual on VECTOR. Every bit stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from binlake.schema.table import Column
from binlake.schema.types.connect_form import ConnectType, always, as_staged
from binlake.schema.types.datatype import DataType, StoredBytes, in_lake, on_server, stored_log
from binlake.schema.types.log_form import Wire
from binlake.schema.types.number_types import single_text

_FLOATS = pa.list_(pa.float32())
_DEFAULT_LENGTH = 2048
"""Dimensions of MySQL's VECTOR without a number."""


def _values(stored: pa.Array) -> pa.Array:
    """Return stored floats as lists, over the same memory. Raises ValueError for bytes that aren't made of floats."""
    if not len(stored):
        return pa.array([], _FLOATS)
    validity, ends, data = stored.buffers()
    offsets = np.frombuffer(ends, np.int32)[: stored.offset + len(stored) + 1]
    if (offsets[stored.offset :] & 3).any():
        raise ValueError("a vector that isn't made of floats")
    floats = pa.Array.from_buffers(pa.float32(), int(offsets[-1]) // 4, [None, data or pa.py_buffer(b"")])
    parts = [validity, pa.py_buffer(offsets >> 2)]
    return pa.Array.from_buffers(_FLOATS, len(stored), parts, stored.null_count, stored.offset, [floats])


def _bytes(floats: pa.FloatArray) -> bytes:
    if floats.null_count:  # its bits would be arbitrary
        raise ValueError("a vector with NULL inside")
    data: bytes = floats.to_numpy(zero_copy_only=False).astype("<f4").tobytes()
    return data


def _bytes_of(vectors: pa.Array) -> Sequence[bytes | None]:
    if pa.types.is_binary(vectors.type):
        return vectors.to_pylist()  # type: ignore[no-any-return]
    return [_bytes(vector.values) if vector.is_valid else None for vector in vectors]


def _hex(vectors: pa.Array) -> pa.Array:
    """Return hexadecimal of what the server stores, or a text that no vector has for one with NULL inside."""
    broken = [vector.is_valid and vector.values.null_count > 0 for vector in vectors]
    pairs = zip(vectors, broken, strict=True)
    texts = ["NULL inside" if bad else _bytes(v.values).hex().upper() if v.is_valid else None for v, bad in pairs]
    return pa.array(texts, pa.string())


def _converts(before: Column, after: Column, strict: bool) -> bool:
    return after.type == "vector" and (after.length or 0) >= (before.length or 0)


_STORED = StoredBytes(_values, _bytes_of, lambda column: 4 * (column.length or 0), "varbinary")
VECTOR = DataType(
    log=replace(stored_log(_STORED, Wire.VECTOR, 4), alone=(Wire.VECTOR,)),
    arrow=lambda column: _FLOATS,
    delta=lambda column: "ARRAY<FLOAT>",
    select=lambda column: f"UNHEX(HEX({on_server(column)}))",
    restore_sql=lambda column: f"binlake_vector({in_lake(column)})",
    server_text=lambda column: f"HEX({on_server(column)})",
    lake_text=lambda column: f"binlake_vector_hex({in_lake(column)})",
    restore_arrow=_values,
    length=lambda written, unsigned: written or _DEFAULT_LENGTH,
    has_default=False,
    connect=always(
        ConnectType(
            "array", as_staged, "io.debezium.data.FloatVector", more={"items": {"type": "float", "optional": False}}
        )
    ),
    text_of=lambda column, value: "[" + ",".join(map(single_text, value)) + "]",
    converts=_converts,
    constant=lambda column, arrow, text: None,
    stored=_STORED,
    functions={"binlake_vector": (_values, "array<float>"), "binlake_vector_hex": (_hex, "string")},
)
