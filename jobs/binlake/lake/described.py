"""Answers to ``SHOW TABLES``, ``SHOW DATABASES``, ``SHOW COLUMNS`` and ``DESCRIBE``, which are no queries."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

import pyarrow as pa

from binlake.schema.table import TableName

_SHOW_TABLES = re.compile(
    r"\s*SHOW\s+(?:FULL\s+)?TABLES(?:\s+(?:FROM|IN)\s+(?P<database>[^\s;]+))?"
    r"(?:\s+LIKE\s+'(?P<pattern>(?:[^']|'')*)')?\s*;?\s*\Z",
    re.IGNORECASE,
)
_SHOW_DATABASES = re.compile(r"\s*SHOW\s+(?:DATABASES|SCHEMAS)\s*;?\s*\Z", re.IGNORECASE)
_DESCRIBE = re.compile(
    r"\s*(?:DESCRIBE|DESC|SHOW\s+(?:FULL\s+)?COLUMNS\s+(?:FROM|IN))\s+"
    r"(?!(?:SELECT|WITH|VALUES)\b)(?P<table>[^;()]+?)\s*;?\s*\Z",
    re.IGNORECASE,
)


def answer(sql: str, tables: Collection[TableName], describe: Callable[[str], pa.Table]) -> pa.Table | None:
    """Return the rows that a statement asks for; None where it is none of these.

    describe: gives the columns of a table that is written as in a query, and raises UsageError.
    """
    if _SHOW_DATABASES.match(sql):
        return pa.table({"table_schema": sorted({table.database for table in tables})})
    if shown := _SHOW_TABLES.match(sql):
        database, pattern = (shown["database"] or "").strip('`"'), _like(shown["pattern"])
        chosen = sorted(
            table for table in tables if database in ("", table.database) and pattern.fullmatch(table.table)
        )
        names = {"table_schema": [table.database for table in chosen], "table_name": [table.table for table in chosen]}
        return pa.table({name: pa.array(values, pa.string()) for name, values in names.items()})
    described = _DESCRIBE.match(sql)
    return describe(described["table"]) if described else None


def _like(pattern: str | None) -> re.Pattern[str]:
    """Return LIKE's pattern, or one that all names match. As on the server its case doesn't matter."""
    parts = re.split("([%_])", (pattern if pattern is not None else "%").replace("''", "'"))
    written = ({"%": ".*", "_": "."}.get(part, re.escape(part)) for part in parts)
    return re.compile("".join(written), re.IGNORECASE | re.DOTALL)
