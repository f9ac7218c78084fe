"""Quoting of names for MySQL, Spark SQL and paths, and patterns of names."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence

_NOT_IN_PATHS = re.compile(r"[/\\%~?#\[\]^|\x00-\x1f\x7f]")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_.=-]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def mysql_quote(name: str) -> str:
    """Return `` `name` `` with backticks doubled."""
    return "`" + name.replace("`", "``") + "`"


def spark_quote(name: str) -> str:
    """Quote a name for Spark SQL, which does it as MySQL."""
    return mysql_quote(name)


def grant_quote(database: str) -> str:
    """Quote a database's name for ``GRANT … ON name.*``, in which ``_`` and ``%`` match other characters.

    See "Using quotation marks around database names" in MySQL's manual on GRANT.
    """
    return mysql_quote(re.sub(r"([\\_%])", r"\\\1", database))


def shown(name: str) -> str:
    """Return a name as a message has it: a line feed would begin a line there. Control characters are written as in
    JSON, such as ``\\u000a``."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", name)


def shell_quote(text: str) -> str:
    """Return a text in single quotes, as one word of a shell, on one line: control characters are written as bash, zsh
    and POSIX of 2024 read them between ``$'`` and ``'``."""
    if _CONTROL.search(text):
        escaped = text.replace("\\", "\\\\").replace("'", "\\'")
        return "$'" + _CONTROL.sub(lambda found: f"\\{ord(found[0]):03o}", escaped) + "'"
    return "'" + text.replace("'", "'\\''") + "'"


def ansi_quote(name: str) -> str:
    """Quote a name for DataFusion, DuckDB and Trino."""
    return '"' + name.replace('"', '""') + '"'


def ansi_string(text: str) -> str:
    """Return a string literal for DataFusion, DuckDB and Trino."""
    return "'" + text.replace("'", "''") + "'"


def plain_name(name: str) -> str:
    """Return a name with lower-case letters, digits and ``_`` alone."""
    return re.sub(r"[^a-z0-9_]", "_", name.lower())


def mysql_string(text: str) -> str:
    """Return a string literal that means the same under any sql_mode: hexadecimal if the text isn't plain."""
    if re.fullmatch(r"[A-Za-z0-9 _.:,+-]*", text):
        return f"'{text}'"
    return f"CONVERT(0x{text.encode().hex()} USING utf8mb4)"


def spark_string(text: str) -> str:
    """Return a Spark SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def folder(name: str, *, plain: bool = False) -> str:
    """Return the folder of a database or table: its name, with odd characters as ``~XX``.

    Odd are ``/ \\ % ~ ? # [ ] ^ |``, control characters and a leading ``_`` or ``.``; XX are their bytes, hexadecimal.
    deltalake 1.6 takes ``?`` and ``#`` for the end of an address and reads no history, and panics at ``[ ] ^ |``.
    plain: all but ASCII letters, digits and ``_ . = -`` are odd.
    """

    def escape(text: str) -> str:
        return "".join(f"~{byte:02X}" for byte in text.encode())

    escaped = (_NOT_PLAIN if plain else _NOT_IN_PATHS).sub(lambda match: escape(match[0]), name)
    if escaped[:1] in ("_", "."):
        escaped = escape(escaped[0]) + escaped[1:]
    return escaped


def pattern_of(database: str, table: str) -> str:
    """Return a pattern that matches this table, and others only if the database's name has a dot, or a name a control
    character: a ``?`` is in the place of these."""

    def plain(name: str) -> str:
        return _CONTROL.sub("?", re.sub(r"([*?\[])", r"[\1]", name))

    return f"{plain(database).replace('.', '?')}.{plain(table)}"


def matches(pattern: str, database: str, table: str) -> bool:
    """Match ``database.table`` with a shell-style pattern, whose first dot separates database and table."""
    return matches_database(pattern, database) and fnmatch.fnmatchcase(table, pattern.partition(".")[2])


def matches_database(pattern: str, database: str) -> bool:
    """Return whether a pattern may match a table of the database."""
    return fnmatch.fnmatchcase(database, pattern.partition(".")[0])


def matches_any(patterns: Iterable[str], database: str, table: str) -> bool:
    """Return whether one of the patterns matches a table."""
    return any(matches(pattern, database, table) for pattern in patterns)


def unmatched(patterns: Iterable[str], tables: Sequence[tuple[str, str]]) -> list[str]:
    """Return the patterns that match none of the tables, which are (database, table)."""
    return [pattern for pattern in patterns if not any(matches(pattern, *table) for table in tables)]
