"""Text in a character set, ENUM, SET and JSON."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

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


_BOUND = KeyBound(lambda column: f"HEX({on_server(column)})", _literal)
_TEXT = DataType(
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
    "char": replace(_TEXT, length=one_unless_written, bound=_BOUND),
    "varchar": replace(_TEXT, length=as_written, bound=_BOUND),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), replace(_TEXT, has_default=False)),
    "enum": replace(_TEXT, implicit_default=lambda column: column.values[0], bound=NUMBERED),
    "set": _TEXT,
    "json": _JSON,
}
