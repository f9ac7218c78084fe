"""Choosing where a table is cut into chunks: along the index of its key, at rows that the server finds there.

    even     an integer key whose values are spread evenly, by the server's estimate: spans of equal width
    walk     any other key: a bound after every so many entries of the index (measured: about 2 million entries a
             second, while one connection copies about ten thousand rows a second)

The bounds are used only if the server plans to read each chunk as a range of that index. This also proves that they
ascend: for a range that can hold no row, the server plans no range read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import Any

from pymysql.constants import ER

from binlake.errors import SourceError
from binlake.names import mysql_quote
from binlake.schema.table import INTEGERS, TableName, TableSchema
from binlake.snapshot import bounds, jdbc
from binlake.snapshot.bounds import Bound, Edge
from binlake.source import error_numbers
from binlake.source.catalog import KeyPart, key_parts
from binlake.source.server import Source, error_code

_UNEVEN = 1.5
"""The most rows the server may estimate for one of the even spans, as a multiple of the mean."""

_UNCUT = error_numbers.SHAPE_CHANGED | error_numbers.UNREADABLE | {ER.INVALID_CHARACTER_STRING}
"""Server errors that leave the table uncut: the copy meets them again and reports them with a remedy. The last one is
raised for text in a key that isn't valid in its character set."""


def cut(source: Source, name: TableName, schema: TableSchema, rows: int, count: int) -> list[Bound]:
    """Return the inner bounds of chunks, in the order of the key's index; empty if the table can't be cut.

    rows: about how many a chunk has. count: how many chunks that makes, by the server's estimate of the table.
    Raises SourceError.
    """
    index, parts = key_parts(source, name, schema)
    parts = tuple(takewhile(bounds.is_usable, parts))
    try:
        return _proved(source, name, schema, index, parts, rows, count) if parts else []
    except SourceError as error:
        if error_code(error) not in _UNCUT:
            raise
        return []


def _proved(
    source: Source, name: TableName, schema: TableSchema, index: str, parts: Sequence[KeyPart], rows: int, count: int
) -> list[Bound]:
    """Return bounds that the server reads as ranges of the index; empty if it plans otherwise."""
    inner = _even(source, name, schema, parts[0], count) or _walk(source, name, schema, index, parts, rows)
    queries = [jdbc.chunk_query(name, schema, *ends) for ends in pairwise([None, *inner, None])] if inner else []
    plans = [explain(source, query) for query in queries]
    return inner if all(plan["type"] == "range" and plan["key"] == index for plan in plans) else []


def explain(source: Source, query: str) -> dict[str, Any]:
    """Return the plan of a query on one table, wrapped as Spark wraps it: type, key, rows, Extra …"""
    return _plan(source, f"SELECT * FROM ({query}) AS chunk")[0]


def _even(source: Source, name: TableName, schema: TableSchema, part: KeyPart, count: int) -> list[Bound]:
    """Return bounds of spans of equal width; empty if the server's estimates for them differ too much."""
    if part.column.type not in INTEGERS:
        return []
    column, table = mysql_quote(part.column.served_name), name.quoted
    row = source.query(f"SELECT MIN({column}) AS least, MAX({column}) AS most FROM {table}")[0]
    if row["least"] is None:
        return []
    least, most = int(row["least"]), int(row["most"])
    cuts = sorted({least + (most - least + 1) * number // count for number in range(1, count)} - {least})
    inner: list[Bound] = [(Edge(part.column.name, str(at), part.descending),) for at in cuts]
    if part.descending:
        inner.reverse()
    # FORCE INDEX would spare MySQL the look into the index from which it estimates.
    conditions = [jdbc.between(schema, *ends) for ends in pairwise([None, *inner, None])]
    estimates = [int(explain(source, f"SELECT {column} FROM {table}{where}")["rows"] or 0) for where in conditions]
    return inner if max(estimates) <= _UNEVEN * sum(estimates) / count else []


def _walk(
    source: Source, name: TableName, schema: TableSchema, index: str, parts: Sequence[KeyPart], rows: int
) -> list[Bound]:
    """Return a bound after every ``rows`` entries of the index; empty if one has no literal or the index isn't used."""
    entries = f"SELECT {bounds.selected(parts)} FROM {name.quoted} AS walked FORCE INDEX ({mysql_quote(index)})"
    inner: list[Bound] = []
    where, step = "", rows
    while True:
        query = f"{entries}{where} ORDER BY {_order(parts, inner[-1] if inner else ())} LIMIT 1 OFFSET {step}"
        if any("filesort" in str(line["Extra"]) for line in _plan(source, query)):
            return []
        row = source.query(query)
        if not row:
            return inner
        bound = bounds.of_row(parts, row[0])
        if bound is None:
            return []
        inner.append(bound)
        where, step = f" WHERE {bounds.behind(schema, bound)}", max(0, rows - 1)


def _order(parts: Sequence[KeyPart], bound: Bound) -> str:
    """Return the ORDER BY list that follows the index after a bound.

    Columns fixed at an ENUM's last value are left out: with them, the servers sort rows that are in order already.
    """
    settled = len(list(takewhile(lambda pair: bounds.is_last(*pair), zip(parts, bound, strict=False))))
    left = parts[settled:] or parts
    return ", ".join(f"walked.{mysql_quote(part.column.served_name)}{' DESC' * part.descending}" for part in left)


def _plan(source: Source, query: str) -> list[dict[str, Any]]:
    verb = "EXPLAIN" if source.is_mariadb else "EXPLAIN FORMAT=TRADITIONAL"
    return source.query(f"{verb} {query}")
