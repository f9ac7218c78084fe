"""Known misreadings of mysql-replication 1.0.17, each with its reason.

They were found by reading each sample of tests/odd_values.py and each code of each character set with both readers, on
MySQL 9.7 and MariaDB 10.11. All other values must be equal. Sources: its row_event.py, column.py, json_binary.py and
constants/CHARSET.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from binlake.binlog.events import EventType
from binlake.schema.table import Column
from binlake.second_opinion.border_values import has_opaque

_DATES = frozenset({"date", "datetime", "timestamp"})
_NO_CODEC = frozenset({"armscii8", "dec8", "eucjpms", "geostd8", "hp8", "keybcs2", "macce", "swe7", "ucs2", "utf16le"})
_WRONG_ORDER = frozenset({"utf16", "utf32"})
_UTF8 = frozenset({"utf8mb3", "utf8mb4"})
_OTHER_CODES = {
    "big5": ("╴￣ˍ／＼十卅", "\ufffd" * 7),
    "cp866": ("№¤", "ⁿ²"),
    "gb18030": ("ḿ\ue7c7", "\ue7c7ḿ"),
    "greek": ("‘’", "ʽʼ"),
    "hebrew": ("¯", "‾"),
    "koi8u": ("∙", "•"),
    "sjis": ("＼", "\\"),
    "ujis": ("＼", "\\"),
}
"""By character set: Python's characters for some codes, and the server's for the same codes."""


@dataclass(frozen=True)
class Misreading:
    """A known misreading. what: which columns or values. how: what the package makes of them.

    columns: shows whether a column can have such values. values: shows whether a value of binlake's reader and the
    package's are this misreading; None leaves out the whole column. An invalid date is given as its text.
    """

    what: str
    how: str
    columns: Callable[[Column], bool]
    values: Callable[[Column, Any, Any], bool] | None = None

    def __str__(self) -> str:
        return f"{self.what}: {self.how}"


def _is(*kinds: str) -> Callable[[Column], bool]:
    return lambda column: column.type in kinds


def _charset_in(charsets: frozenset[str] | dict[str, Any]) -> Callable[[Column], bool]:
    return lambda column: not column.values and column.charset in charsets


def _names_not_utf8(column: Column) -> bool:
    if not column.values or column.charset in _UTF8:
        return False
    wide = column.charset in _WRONG_ORDER or column.charset in ("ucs2", "utf16le")
    return wide or not all(name.isascii() for name in column.values)


def _unpadded(column: Column, ours: Any, theirs: Any) -> bool:
    if not isinstance(ours, bytes) or not isinstance(theirs, bytes | str):
        return False
    raw = theirs if isinstance(theirs, bytes) else theirs.encode()
    return len(raw) < len(ours) and raw.ljust(len(ours), b"\0") == ours


def _by_other_codes(column: Column, ours: Any, theirs: Any) -> bool:
    if not isinstance(ours, str) or not isinstance(theirs, str) or len(ours) != len(theirs):
        return False
    known = set(zip(*_OTHER_CODES[str(column.charset)], strict=True))
    return all(its == mine or (its, mine) in known for its, mine in zip(theirs, ours, strict=True))


MISREADINGS: tuple[Misreading, ...] = (
    Misreading("year 0000", "reads as 1900", _is("year"), lambda _, ours, theirs: (ours, theirs) == (0, 1900)),
    Misreading(
        "zero TIMESTAMP",
        "reads as 1970-01-01 00:00:00",
        _is("timestamp"),
        lambda _, ours, theirs: isinstance(ours, str) and theirs == datetime(1970, 1, 1),
    ),
    Misreading(
        "zero and partial dates",
        "read as NULL",
        _is("date", "datetime"),
        lambda _, ours, theirs: isinstance(ours, str) and theirs is None,
    ),
    Misreading(
        "negative TIME with a fraction",
        "the fraction is taken from the wrong side",
        _is("time"),
        lambda _, ours, theirs: ours is not None and theirs is not None and ours < 0 and ours % 1_000_000 != 0,
    ),
    Misreading("empty SET", "reads as NULL", _is("set"), lambda _, ours, theirs: ours == "" and theirs is None),
    Misreading("BINARY, UUID and INET that end in zero bytes", "these bytes are missing", _is("binary"), _unpadded),
    Misreading("JSON null", "reads as NULL", _is("json"), lambda _, ours, theirs: ours == "null" and theirs is None),
    Misreading(
        "JSON with decimals, moments or bytes, and differences to JSON",
        "these aren't documents there",
        _is("json"),
        lambda _, ours, theirs: ours is not None and has_opaque(theirs),
    ),
    Misreading("text in a character set that Python has no codec for", "stays bytes", _charset_in(_NO_CODEC)),
    Misreading("text in UTF-16 and UTF-32", "is read from the wrong end", _charset_in(_WRONG_ORDER)),
    Misreading("ENUM and SET of names that aren't UTF-8", "the names are empty", _names_not_utf8),
    Misreading(
        "text in a character set of which Python's codec has other characters for some codes",
        "reads as those",
        _charset_in(_OTHER_CODES),
        _by_other_codes,
    ),
)

NEVER_READ = {
    140: "MariaDB's COMPRESSED",
    141: "MariaDB's COMPRESSED",
    242: "VECTOR",
}
"""Column types that it doesn't know, by number. It doesn't know their size in a table map and a row either, so nothing
that it reads of such a table can be trusted."""

WITHOUT_ROWS = frozenset(
    {
        EventType.ANONYMOUS_GTID,
        EventType.GTID_TAGGED,
        EventType.PREVIOUS_GTIDS,
        EventType.TRANSACTION_CONTEXT,
        EventType.VIEW_CHANGE,
        EventType.HEARTBEAT,
        EventType.HEARTBEAT_V2,
        EventType.IGNORABLE,
    }
)
"""Events that it doesn't know or can't read (GTID sets with tags), and that have neither rows nor statements."""
