"""Text in a character set, ENUM, SET and JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from binlake.errors import Malformed
from binlake.kernels.arrays import texts
from binlake.schema import charsets
from binlake.schema.table import TEXTS, Column
from binlake.schema.types.datatype import (
    NUMBERED,
    DataType,
    KeyBound,
    always,
    as_written,
    in_lake,
    lake_sha,
    on_server,
    one_unless_written,
    server_char,
    server_sha,
)
from binlake.schema.types.jsonbinary import binary_json
from binlake.schema.types.log_form import (
    ColumnBytes,
    EncodeColumn,
    Field,
    FilledBuffers,
    Finish,
    Gathered,
    LogForm,
    Wire,
    behind_length,
    binary,
    finished,
    fixed,
    its_size,
    length_size,
    mapped,
    most_bytes,
    prefixed,
    string_metadata,
)

_TWO_OR_FOUR_BYTES = frozenset({"ucs2", "utf32"})
_MAY_BE_INVALID = frozenset({"utf8mb4", "utf8mb3", *_TWO_OR_FOUR_BYTES})
"""Character sets whose columns may hold bytes that are no character. In the others the servers give ``?`` for such
bytes (tried in tests/integration/test_invalid_text.py)."""


def _server_bytes(text: str) -> str:
    return f"CONVERT({text} USING binary)"


def _utf8(column: Column) -> str:
    """Return SQL for a text's bytes in UTF-8. Drivers pass bytes on as they are; in text they replace invalid ones.

    They aren't cast: MariaDB's CAST AS BINARY gives NULL for more than max_allowed_packet, which a value of other
    character sets may take in UTF-8.

    Half a surrogate pair is invalid: MariaDB accepts it in most forms of Unicode, and both servers in ucs2. In utf8mb4
    and utf8mb3 its bytes are selected as they are, and aren't valid UTF-8. Text in ucs2 and utf32 is compared with its
    conversion to UTF-16 and back, which can't hold such halves; if they differ, the stored bytes are selected after the
    byte FF, which UTF-8 never contains.
    """
    name = on_server(column)
    text = _server_bytes(f"CONVERT({name} USING utf8mb4)")
    if column.charset not in _TWO_OR_FOUR_BYTES:
        return text
    stored = _server_bytes(name)
    valid = f"{stored} <=> {_server_bytes(f'CONVERT(CONVERT({name} USING utf16) USING {column.charset})')}"
    # CONCAT gives NULL beyond max_allowed_packet.
    return f"IF({valid}, {text}, COALESCE(CONCAT(x'FF', {stored}), x'FF'))"


def may_be_invalid_text(column: Column) -> bool:
    """Return whether the servers let bytes into the column that aren't valid in its character set."""
    return column.type in TEXTS and column.charset in _MAY_BE_INVALID


def stored_bytes(column: Column) -> str:
    """Return Spark SQL for the stored bytes of invalid text that the snapshot selected; NULL if they were too long."""
    name = in_lake(column)
    return f"NULLIF(SUBSTRING({name}, 2), X'')" if column.charset in _TWO_OR_FOUR_BYTES else name


def stored_of(column: Column, selected: bytes) -> bytes | None:
    """Return the stored bytes of one value of invalid text that the snapshot selected; None if they were too long."""
    return (selected[1:] or None) if column.charset in _TWO_OR_FOUR_BYTES else selected


def lake_bytes_text(column: Column, side: str) -> str:
    """Return Spark SQL for the canonical text of invalid text in the lake. side: the column with its bytes."""
    selected = f"CONCAT(X'FF', {side})" if column.charset in _TWO_OR_FOUR_BYTES else side
    return f"SHA2({selected}, 256)"


def _literal(column: Column, collation: str | None, digits: str) -> str | None:
    return None if collation is None else f"_{column.charset} X'{digits}' COLLATE {collation}"


# the log --------------------------------------------------------------------------------------------------------------
def _text_gathered(field: Field) -> Gathered:
    from binlake.schema import strings  # it compiles kernels

    return Gathered("STRING", length_size(field), second=int(strings.keeps_ascii(field.column.charset or "")))


def _text_finish(field: Field) -> Finish:
    from binlake.schema import strings

    convert = strings.converter(field.column.charset or "")

    def finish(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: FilledBuffers, used: int) -> pa.Array:
        assert column.offsets is not None
        if column.ascii:
            return binary(wanted, rows, validity, nulls, column, used)
        offsets, data = convert(column.offsets[: rows + 1], column.data)
        return pa.Array.from_buffers(wanted, rows, [validity, pa.py_buffer(offsets), pa.py_buffer(data)], nulls)

    return finish


def _text_encode(field: Field) -> EncodeColumn:
    import pyarrow.compute as pc

    from binlake.schema import strings

    charset = field.column.charset or ""

    def encoded(array: pa.Array) -> ColumnBytes:
        is_utf8 = charset in ("utf8mb4", "utf8mb3")
        if is_utf8 or (strings.keeps_ascii(charset) and pc.all(pc.string_is_ascii(array)).as_py() is not False):
            return array.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
        return mapped(array, charsets.encoder(charset))

    return lambda array: prefixed(encoded(array), field.size)


def _with_length(wire: Wire) -> LogForm:
    """Return the form of texts in a character set whose column has a length. wire: STRING or VARCHAR."""
    return LogForm(
        wire,
        lambda column: 1 if most_bytes(column) < 256 else 2,
        _text_gathered,
        _text_finish,
        _text_encode,
        metadata=lambda field: string_metadata(wire, most_bytes(field.column)),
    )


def _blob_log(length_bytes: int) -> LogForm:
    return LogForm(
        Wire.BLOB, lambda column: length_bytes, _text_gathered, _text_finish, _text_encode, metadata=its_size
    )


def _members_gathered(kernel: str, sizes: tuple[int, ...]) -> Callable[[Field], Gathered]:
    """Return a hook that gathers numbers of members. sizes: the bytes that values can have."""

    def gathered(field: Field) -> Gathered:
        if field.size not in sizes:
            raise Malformed(f"{field.wire.name} of {field.size} bytes")
        return Gathered(kernel, size=field.size, first=len(field.column.values))

    return gathered


def _enum_finish(field: Field) -> Finish:
    dictionary = texts(("", *field.column.values))

    def finish(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: FilledBuffers, used: int) -> pa.Array:
        return dictionary.take(fixed(pa.int32(), rows, validity, nulls, column, used))

    return finish


def _enum_encode(field: Field) -> EncodeColumn:
    codes = {name: place for place, name in enumerate(("", *field.column.values))}
    return lambda array: mapped(array, lambda text: codes[text].to_bytes(field.size, "little"))


def _set_finish(field: Field) -> Finish:
    names = field.column.values

    def finish(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: FilledBuffers, used: int) -> pa.Array:
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


def _set_size(column: Column) -> int:
    size = (len(column.values) + 7) // 8
    return 8 if size > 4 else max(size, 1)


def _set_encode(field: Field) -> EncodeColumn:
    bits = {name: 1 << place for place, name in enumerate(field.column.values)}
    return lambda array: mapped(
        array, lambda text: sum(bits[item] for item in text.split(",") if text).to_bytes(field.size, "little")
    )


def _members_metadata(field: Field) -> bytes:
    return bytes([field.wire, field.size])


_ENUM_LOG = LogForm(
    Wire.ENUM,
    lambda column: 1 if len(column.values) < 256 else 2,
    _members_gathered("CODE", (1, 2)),
    _enum_finish,
    _enum_encode,
    alone=(Wire.ENUM,),
    metadata=_members_metadata,
)
_SET_LOG = LogForm(
    Wire.SET,
    _set_size,
    _members_gathered("MASK", (1, 2, 3, 4, 8)),
    _set_finish,
    _set_encode,
    alone=(Wire.SET,),
    metadata=_members_metadata,
)


def _json_values(
    wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: FilledBuffers, used: int
) -> pa.Array:
    from binlake.schema import strings

    assert column.offsets is not None
    offsets, data = strings.json(column.offsets[: rows + 1], column.data, column.validity if nulls else None)
    return pa.Array.from_buffers(wanted, rows, [validity, pa.py_buffer(offsets), pa.py_buffer(data)], nulls)


_JSON_LOG = LogForm(
    Wire.JSON,
    lambda column: 4,
    behind_length,
    finished(_json_values),
    lambda field: lambda array: prefixed(mapped(array, binary_json), field.size),
    alone=(Wire.JSON,),
    metadata=its_size,
)


# entries --------------------------------------------------------------------------------------------------------------
_BOUND = KeyBound(lambda column: f"HEX({on_server(column)})", _literal)
_TEXT = DataType(
    log=_blob_log(2),
    arrow=lambda column: pa.string(),
    delta=lambda column: "STRING",
    select=_utf8,
    server_text=lambda column: server_sha(_utf8(column)),
    lake_text=lake_sha,
    is_text=True,
    implicit_default=lambda column: "",
)
# The text that the server shows.
_JSON = DataType(
    log=_JSON_LOG,
    arrow=lambda column: pa.string(),
    delta=lambda column: "STRING",
    select=server_char,
    server_text=lambda column: server_sha(server_char(column)),
    lake_text=lake_sha,
    has_default=False,
    implicit_default=lambda column: "null",
    keeps=always,
)
TYPES = {
    "char": replace(_TEXT, log=_with_length(Wire.STRING), length=one_unless_written, bound=_BOUND),
    "varchar": replace(_TEXT, log=_with_length(Wire.VARCHAR), length=as_written, bound=_BOUND),
    **{
        name: replace(_TEXT, log=_blob_log(length_bytes), has_default=False)
        for length_bytes, name in enumerate(("tinytext", "text", "mediumtext", "longtext"), 1)
    },
    "enum": replace(_TEXT, log=_ENUM_LOG, implicit_default=lambda column: column.values[0], bound=NUMBERED),
    "set": replace(_TEXT, log=_SET_LOG),
    "json": _JSON,
}
