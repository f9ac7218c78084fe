"""Text in a character set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from binlake.position import Flavour
from binlake.schema import charsets
from binlake.schema.table import BLOBS, LONG_TEXTS, TEXTS, Column
from binlake.schema.types.connect_form import TEXT as TEXT_IN_CONNECT, always
from binlake.schema.types.constants import Literal, characters
from binlake.schema.types.datatype import (
    DataType,
    KeyBound,
    as_written,
    compare_as,
    in_lake,
    lake_sha,
    on_server,
    one_unless_written,
    server_sha,
)
from binlake.schema.types.log_form import (
    ColumnBytes,
    EncodeColumn,
    Field,
    FilledBuffers,
    Finish,
    Gathered,
    LogForm,
    Wire,
    binary,
    its_size,
    length_size,
    mapped,
    prefixed,
    string_metadata,
)
from binlake.schema.types.text_sizes import (
    keeps_characters,
    least_characters,
    most_bytes,
    most_characters,
    text_bytes,
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


# statements -----------------------------------------------------------------------------------------------------------
def _converts(before: Column, after: Column, strict: bool) -> bool:
    if after.type in TEXTS:
        if after.type == "char" and before.type != "char":
            return False  # trailing spaces go
        # A CHAR has no trailing spaces that could be cut off unseen.
        fits = _holds(before, after) or (before.type == "char" and strict)
        return fits and keeps_characters(before.charset or "", after.charset or "", strict)
    if after.type == "varbinary" or after.type in BLOBS:
        # The cast gives the bytes of UTF-8. A column in ascii may hold other bytes (MariaDB takes x'FF').
        return before.charset in ("utf8mb4", "utf8mb3") and most_bytes(before) <= most_bytes(after)
    return False


def _holds(before: Column, after: Column) -> bool:
    """Return whether every text of the old column fits, including its trailing spaces."""
    same_bytes = before.charset == after.charset or (before.charset, after.charset) in (
        ("utf8mb3", "utf8mb4"),
        ("ascii", "utf8mb3"),
        ("ascii", "utf8mb4"),
        ("ascii", "latin1"),
    )
    if after.type == "longtext":
        return True  # a value has at most max_allowed_packet, 1 GiB
    if same_bytes and before.type.endswith("text") and after.type.endswith("text"):
        return text_bytes(before.type) <= text_bytes(after.type)
    return most_characters(before) <= least_characters(after)


def _default_text(column: Column, literal: Literal, flavour: Flavour) -> str:
    text = characters(literal, column.charset)
    return text.rstrip(" ") if column.type == "char" else text


# entries --------------------------------------------------------------------------------------------------------------
_BOUND = KeyBound(lambda column: f"HEX({on_server(column)})", _literal)
TEXT = DataType(
    log=_blob_log(2),
    arrow=lambda column: pa.string(),
    delta=lambda column: "STRING",
    select=_utf8,
    server_text=lambda column: server_sha(_utf8(column)),
    lake_text=lake_sha,
    is_text=True,
    compared_as=compare_as("text"),
    connect=always(TEXT_IN_CONNECT, jdbc=12),
    converts=_converts,
    default_text=_default_text,
    implicit_default=lambda column: "",
)
TYPES = {
    "char": replace(
        TEXT,
        connect=always(TEXT_IN_CONNECT, jdbc=1),
        log=_with_length(Wire.STRING),
        length=one_unless_written,
        bound=_BOUND,
    ),
    "varchar": replace(TEXT, log=_with_length(Wire.VARCHAR), length=as_written, bound=_BOUND),
    **{
        name: replace(TEXT, log=_blob_log(length_bytes), has_default=False)
        for length_bytes, name in enumerate(LONG_TEXTS, 1)
    },
}
