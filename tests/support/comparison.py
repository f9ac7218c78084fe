"""An independent comparison of a table on the server with its mirror.

Shares no code with the engine: the server's values are read by plain SELECTs, Delta's by DataFusion (which
honours deletion vectors and column mapping); every row and value is compared as a multiset, and the Delta
types are compared with the list in jobs/binlake/schema/README.md, written down here a second time.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa
import pymysql
from deltalake import DeltaTable, QueryBuilder
from pymysql.converters import encoders
from pymysql.cursors import SSCursor

SHOWN = 10
"""Rows of a difference that the message shows, on each side."""

Row = tuple[Any, ...]


class Server(Protocol):
    """Whatever opens connections with an account that may SELECT; keywords as pymysql's."""

    def connect(self, **options: Any) -> pymysql.Connection[Any]: ...


@dataclass(frozen=True)
class Declared:
    """A column as information_schema declares it; ``precision``: of DECIMAL, the bits of BIT, the digits of YEAR.

    codec: Python's, of text whose character set may hold what isn't valid in it.
    """

    name: str
    type: str
    unsigned: bool
    precision: int
    scale: int
    codec: str = ""


def assert_equal(
    server: Server, database: str, table: str, delta_path: str, *, without: Collection[str] = (), where: str = "TRUE"
) -> int:
    """Fail unless the Delta table holds exactly the server's rows, types and columns; gives the row count.

    The server must be at rest. An invalid date may stand as text in ``{column}__text``, and text that isn't valid in
    its character set as bytes in ``{column}__bytes``. without: columns that the lake
    must not have. where: condition of the rows that it must have.
    """
    columns, rows = read_server(server, database, table, without, where)
    source = Counter(rows)
    lake = Counter(read_lake(delta_path, columns))
    if source != lake:
        raise AssertionError(_difference(f"{database}.{table}", [column.name for column in columns], source, lake))
    return source.total()


def read_server(
    server: Server, database: str, table: str, without: Collection[str] = (), where: str = "TRUE"
) -> tuple[list[Declared], list[Row]]:
    """The columns, invisible ones too, and all rows as comparable values."""
    utc = "SET time_zone = '+00:00'"
    with closing(server.connect(conv=encoders, init_command=utc)) as connection:  # no decoders: text as it came
        columns = [column for column in _declared(connection, database, table) if column.name not in without]
        chosen = ", ".join(_selected(column) for column in columns)
        with connection.cursor(SSCursor) as cursor:
            cursor.execute(f"SELECT {chosen} FROM {_quoted(database)}.{_quoted(table)} WHERE {where}")
            readers = [_server_reader(column) for column in columns]
            return columns, [
                tuple(None if value is None else read(value) for read, value in zip(readers, row, strict=True))
                for row in cursor
            ]


def _declared(connection: pymysql.Connection[Any], database: str, table: str) -> list[Declared]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name, data_type, column_type,"
            " COALESCE(numeric_precision, IF(column_type = 'year(2)', 2, 0)), COALESCE(numeric_scale, 0),"
            " COALESCE(character_set_name, '')"
            " FROM information_schema.columns"
            " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            (database, table),
        )
        rows = cursor.fetchall()
    assert rows, f"{database}.{table} isn't on the server"
    return [
        Declared(
            name,
            kind.lower(),
            "unsigned" in full.lower(),
            int(precision),
            int(scale),
            "" if kind.lower() in ("enum", "set") else _CODECS.get(charset, ""),
        )
        for name, kind, full, precision, scale, charset in rows
    ]


_CODECS = {"utf8mb4": "utf-8", "utf8mb3": "utf-8", "utf8": "utf-8", "ucs2": "utf-16-be", "utf32": "utf-32-be"}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _selected(column: Declared) -> str:
    # A FLOAT, and a DOUBLE(10,2), are printed rounded as they stand.
    if column.type in ("float", "double"):
        return f"CAST({_quoted(column.name)} AS DOUBLE)"
    # pymysql takes a VECTOR for ASCII.
    if column.type == "vector":
        return f"HEX({_quoted(column.name)})"
    if column.codec:
        return f"CAST({_quoted(column.name)} AS BINARY)"
    # MariaDB's YEAR(2) shows two digits of its year.
    if column.type == "year" and column.precision == 2:
        return f"YEAR({_quoted(column.name)})"
    return _quoted(column.name)


def _server_reader(column: Declared) -> Callable[[Any], Any]:
    if column.type == "year" and column.precision == 2:
        return lambda text: 0 if text == "1900" else int(text)  # no year, which YEAR(4) shows as 0000
    if column.type in ("tinyint", "smallint", "mediumint", "int", "bigint", "year"):
        return int
    if column.codec:
        return lambda stored: _decoded(stored, column.codec)
    if column.type in (
        "enum",
        "set",
    ):  # in the character set binary they come as bytes
        return lambda value: value.decode() if isinstance(value, bytes) else value
    if column.type == "decimal":
        return Decimal if column.precision <= 38 else str
    if column.type == "bit" and column.precision == 1:
        return lambda value: value != b"\x00"
    readers: dict[str, Callable[[Any], Any]] = {
        "float": lambda text: struct.pack("<f", float(text)),
        "double": lambda text: struct.pack("<d", float(text)),
        "date": _moment,
        "datetime": _moment,
        "timestamp": _moment,
        "time": _microseconds,
        "vector": bytes.fromhex,
    }
    return readers.get(column.type, lambda value: value)  # text as str, bytes as bytes


def _decoded(stored: bytes, codec: str) -> str | bytes:
    """What isn't text stays bytes; UCS-2 has no pairs of surrogates."""
    try:
        text = stored.decode(codec)
    except UnicodeDecodeError:
        return stored
    return stored if codec == "utf-16-be" and any(character > "\uffff" for character in text) else text


def _moment(text: str) -> datetime | str:
    """A date or time of day in it; an invalid one stays text."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


def _microseconds(text: str) -> int:
    hours, minutes, seconds = text.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    total = (int(hours) * 3600 + int(minutes) * 60 + int(whole)) * 1_000_000 + int(fraction.ljust(6, "0") or 0)
    return -total if text.startswith("-") else total


def read_lake(delta_path: str, columns: list[Declared]) -> Iterator[Row]:
    """All rows of the Delta table as comparable values, in the server's order of columns."""
    delta = DeltaTable(delta_path)
    types = {field.name: _type_name(field.type) for field in delta.schema().fields}
    expected = {column.name: _expected(column) for column in columns}
    side = {f"{column.name}__text" for column in columns if column.type in ("date", "datetime", "timestamp")}
    side |= {f"{column.name}__bytes" for column in columns if column.codec}
    side &= types.keys() - expected.keys()
    assert {name: kind for name, kind in types.items() if name not in side} == expected, (
        f"{delta_path}: columns and types of the Delta table differ from what they should be:\n"
        + "\n".join(
            f"  {name}: is {types.get(name, 'missing')}, should be {expected.get(name, 'missing')}"
            for name in sorted(expected.keys() | types.keys() - side)
            if types.get(name) != expected.get(name)
        )
    )
    result = pa.table(QueryBuilder().register("mirror", delta).execute("SELECT * FROM mirror").read_all())
    return comparable(columns, result)


def comparable(columns: list[Declared], result: pa.Table) -> Iterator[Row]:
    """Rows of Arrow (Delta's, or an image of the binlog's) as comparable values, in the server's order of columns."""
    values = []
    for column in columns:
        read = _lake_reader(column)
        stored = [None if value is None else read(value) for value in _plain(result[column.name]).to_pylist()]
        text = f"{column.name}__{'bytes' if column.codec else 'text'}"
        if text in result.column_names and text not in {other.name for other in columns}:
            kept = result[text].to_pylist()
            assert not any(a is not None and b is not None for a, b in zip(stored, kept, strict=True)), (
                f"{column.name} and {text} both hold a value in one row"
            )
            stored = [b if a is None else a for a, b in zip(stored, kept, strict=True)]
        values.append(stored)
    return zip(*values, strict=True)


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without a time zone: instants are UTC, and compared as such."""
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("us"))
    return values


def _lake_reader(column: Declared) -> Callable[[Any], Any]:
    readers: dict[str, Callable[[Any], Any]] = {
        "float": lambda value: struct.pack("<f", value),
        "double": lambda value: struct.pack("<d", value),
        "date": lambda value: datetime(value.year, value.month, value.day) if isinstance(value, date) else value,
        "vector": lambda value: struct.pack(f"<{len(value)}f", *value),
    }
    return readers.get(column.type, lambda value: value)


def _type_name(kind: Any) -> str:
    if kind.type == "array":
        return f"array<{kind.element_type.type}>"
    return str(kind.type)


def _expected(column: Declared) -> str:
    """The Delta type, as the Delta protocol calls it."""
    if column.type == "decimal":
        return f"decimal({column.precision},{column.scale})" if column.precision <= 38 else "string"
    if column.type == "bit":
        return "boolean" if column.precision == 1 else "binary"
    if column.unsigned and column.type in _UNSIGNED:
        return _UNSIGNED[column.type]
    return _TYPES[column.type]


_UNSIGNED = {
    "tinyint": "short",
    "smallint": "integer",
    "mediumint": "integer",
    "int": "long",
    "bigint": "decimal(20,0)",
}
_TYPES = {
    "tinyint": "byte",
    "smallint": "short",
    "mediumint": "integer",
    "int": "integer",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "datetime": "timestamp_ntz",
    "timestamp": "timestamp",
    "time": "long",
    "year": "integer",
    "char": "string",
    "varchar": "string",
    "tinytext": "string",
    "text": "string",
    "mediumtext": "string",
    "longtext": "string",
    "enum": "string",
    "set": "string",
    "json": "string",
    "uuid": "string",
    "inet4": "string",
    "inet6": "string",
    "binary": "binary",
    "varbinary": "binary",
    "tinyblob": "binary",
    "blob": "binary",
    "mediumblob": "binary",
    "longblob": "binary",
    "geometry": "binary",
    "point": "binary",
    "linestring": "binary",
    "polygon": "binary",
    "multipoint": "binary",
    "multilinestring": "binary",
    "multipolygon": "binary",
    "geomcollection": "binary",
    "geometrycollection": "binary",
    "vector": "array<float>",
}


def _difference(table: str, names: list[str], source: Counter[Row], lake: Counter[Row]) -> str:
    missing, extra = source - lake, lake - source
    lines = [
        f"{table}: {source.total()} rows on the server, {lake.total()} in the lake;"
        f" {missing.total()} rows only on the server, {extra.total()} only in the lake"
    ]
    lines += [f"  columns: {', '.join(names)}"]
    for title, rows, others in (("only on the server", missing, extra), ("only in the lake", extra, missing)):
        for row, count in list(rows.items())[:SHOWN]:
            times = f" x{count}" if count > 1 else ""
            lines.append(f"  {title}{times}: {_shown(row)}{_nearest(names, row, others)}")
    return "\n".join(lines)


def _nearest(names: list[str], row: Row, others: Counter[Row]) -> str:
    """Which columns part it from the most similar row of the other side."""
    best: list[str] | None = None
    for other in list(others)[:1000]:
        parting = [name for name, mine, its in zip(names, row, other, strict=True) if mine != its]
        if best is None or len(parting) < len(best):
            best = parting
    return f"\n      nearest on the other side differs in {', '.join(best)}" if best and len(best) < len(names) else ""


def _shown(row: Row) -> str:
    return "(" + ", ".join(text if len(text := repr(value)) <= 80 else f"{text[:77]}…" for value in row) + ")"
