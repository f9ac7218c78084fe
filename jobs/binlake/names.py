"""Names are data: quoted for MySQL, for Spark SQL and for paths alike."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence

_NOT_IN_PATHS = re.compile(r"[/\\%~?#\[\]^|\x00-\x1f\x7f]")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_.=-]")


def mysql_quote(name: str) -> str:
    """`` `name` `` with backticks doubled."""
    return "`" + name.replace("`", "``") + "`"


def spark_quote(name: str) -> str:
    """Spark SQL quotes names as MySQL does."""
    return mysql_quote(name)


def mysql_string(text: str) -> str:
    """A string literal that means the same under any sql_mode: hexadecimal when it isn't plain."""
    if re.fullmatch(r"[A-Za-z0-9 _.:,+-]*", text):
        return f"'{text}'"
    return f"CONVERT(0x{text.encode().hex()} USING utf8mb4)"


def spark_string(text: str) -> str:
    """A Spark SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def folder(name: str, *, plain: bool = False) -> str:
    """The folder of a database or table: its name as it stands, odd characters as ``~XX``.

    ``/ \\ % ~ ? # [ ] ^ |``, control characters and a leading ``_`` or ``.`` are written as the bytes' hexadecimal:
    deltalake 1.6 reads no history where a path has ``?`` or ``#``, as if an address ended there, and panics at those
    behind. plain: so is all but ASCII's letters, digits, ``_ . = -``.
    """

    def escape(text: str) -> str:
        return "".join(f"~{byte:02X}" for byte in text.encode())

    escaped = (_NOT_PLAIN if plain else _NOT_IN_PATHS).sub(lambda match: escape(match[0]), name)
    if escaped[:1] in ("_", "."):
        escaped = escape(escaped[0]) + escaped[1:]
    return escaped


def pattern_of(database: str, table: str) -> str:
    """A pattern that matches this table, and hardly another: a dot in the database's name can be any character."""

    def plain(name: str) -> str:
        return re.sub(r"([*?\[])", r"[\1]", name)

    return f"{plain(database).replace('.', '?')}.{plain(table)}"


def matches(pattern: str, database: str, table: str) -> bool:
    """Shell-style match of ``database.table``; the pattern's first dot parts database and table."""
    return matches_database(pattern, database) and fnmatch.fnmatchcase(table, pattern.partition(".")[2])


def matches_database(pattern: str, database: str) -> bool:
    """Whether it may match a table of the database."""
    return fnmatch.fnmatchcase(database, pattern.partition(".")[0])


def unmatched(patterns: Iterable[str], tables: Sequence[tuple[str, str]]) -> list[str]:
    """The patterns that match none of the tables, each of which is (database, table)."""
    return [pattern for pattern in patterns if not any(matches(pattern, *table) for table in tables)]
