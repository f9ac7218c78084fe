"""How much text or bytes a column holds, and which character sets hold the characters of which."""

from __future__ import annotations

from binlake.errors import UnfollowedStatement
from binlake.schema.charsets import bytes_per_character
from binlake.schema.table import BLOBS, LONG_TEXTS, Column

_MOST_BYTES = {
    name: (1 << 8 * length_bytes) - 1 for names in (LONG_TEXTS, BLOBS) for length_bytes, name in enumerate(names, 1)
}
UNICODE = frozenset({"utf8mb4", "utf16", "utf16le", "utf32"})
_SMALLEST_CHARACTER = {"utf16": 2, "utf16le": 2, "ucs2": 2, "utf32": 4}
_WITHIN_UNICODE = frozenset({*UNICODE, "utf8mb3", "ucs2", "latin1", "ascii"})
# Several characters of Unicode may become one of theirs.
_MANY_TO_ONE = frozenset({"big5", "gbk", "gb2312", "gb18030", "sjis", "cp932", "ujis", "eucjpms", "euckr"})


def text_bytes(type_: str) -> int:
    """Return the greatest number of bytes in a TEXT or BLOB of this kind."""
    return _MOST_BYTES[type_]


def sized(size: int, *, text: bool) -> str:
    """Return the smallest TEXT or BLOB that holds this many bytes. Raises UnfollowedStatement."""
    for name in LONG_TEXTS if text else BLOBS:
        if size <= _MOST_BYTES[name]:
            return name
    raise UnfollowedStatement("a column is too long for every type")


def most_characters(column: Column) -> int:
    """Return the most characters that a text in the column has."""
    if column.length is not None:
        return column.length
    return text_bytes(column.type) // _SMALLEST_CHARACTER.get(column.charset or "", 1)


def least_characters(column: Column) -> int:
    """Return how many characters always fit, whichever they are."""
    if column.length is not None:
        return column.length
    return text_bytes(column.type) // bytes_per_character(column.charset or "")


def most_bytes(column: Column) -> int:
    """Return the most bytes of a text or bytes in the column."""
    if column.length is not None:
        return column.length * bytes_per_character(column.charset or "")
    return text_bytes(column.type)


def keeps_characters(old: str, new: str, strict: bool) -> bool:
    """Return whether all characters of texts in one character set stay in another."""
    if old == new:
        return True
    superset = (new in UNICODE and old in _WITHIN_UNICODE) or (old == "ascii" and new != "binary")
    return superset or (strict and new not in _MANY_TO_ONE)
