"""The registry of types: an entry per MySQL and MariaDB type, for the binlog, the snapshot and the lake alike.

An entry says how a column of the type

- is represented in Arrow (``arrow``) and in Delta (``delta``, as Spark SQL writes types),
- is selected by the snapshot over JDBC (``select``, MySQL SQL) and turned into the Delta value
  (``restore``, Spark SQL over the selected value),
- is written as canonical text on the server (``server_text``) and in the lake (``lake_text``), so that verify
  can compare hashes; NULL stays NULL. Both texts are equal exactly when the values are, on either kind of server;
  long values are given as SHA-256 (MySQL 9.6 made MD5 a component that may be missing),
- is declared, altered, and made of stored bytes (see types/datatype.py).

The binlog's decoder gives the Arrow type named here. A type that a table map can't name (MariaDB's UUID, INET4, INET6
and VECTOR) arrives as bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from binlake.errors import UnsupportedColumn
from binlake.schema.table import Column
from binlake.schema.types import (
    byte_types,
    member_types,
    number_types,
    temporal_types,
    text_types,
    time_types,
    uuid_inet_types,
)
from binlake.schema.types.bit_type import BIT
from binlake.schema.types.datatype import DataType, StoredBytes
from binlake.schema.types.decimal_type import DECIMAL
from binlake.schema.types.json_type import JSON
from binlake.schema.types.vector_type import VECTOR

REGISTRY: dict[str, DataType] = {
    **number_types.TYPES,
    "decimal": DECIMAL,
    "bit": BIT,
    **temporal_types.TYPES,
    **time_types.TYPES,
    **text_types.TYPES,
    **member_types.TYPES,
    "json": JSON,
    **byte_types.TYPES,
    **uuid_inet_types.TYPES,
    "vector": VECTOR,
}
BY_WIRE = {wire: name for name, known in REGISTRY.items() for wire in known.log.alone}
"""Types by the codes that the log has for them alone."""


def entry(column: Column) -> DataType:
    """Return the registry's entry of a column. Raises UnsupportedColumn, which names the column."""
    try:
        return REGISTRY[column.type]
    except KeyError:
        raise UnsupportedColumn(
            f"column {column.name!r} has the type {column.type.upper()}, which isn't mirrored",
            remedy="exclude the table in the YAML, or change the column's type",
        ) from None


def arrow_type(column: Column) -> pa.DataType:
    """Return the column's type in Arrow."""
    return entry(column).arrow(column)


def delta_type(column: Column) -> str:
    """Return the column's type in Delta, as Spark SQL writes types."""
    return entry(column).delta(column)


def is_text(column: Column) -> bool:
    """Return whether the column is of a text type."""
    return entry(column).is_text


def is_in_bytes(recorded: Column, logged: Column) -> bool:
    """Return whether the log has a column's stored bytes, under another type's name."""
    stored = entry(recorded).stored
    return stored is not None and logged.type == stored.logged_as and logged.length == stored.size(recorded)


def made_of_bytes(recorded: Iterable[Column], logged: Sequence[Column]) -> dict[str, StoredBytes]:
    """Return the columns, by name, whose values are made of the log's bytes where staged rows are read."""
    by_name = {column.name: column for column in logged}
    in_bytes = (column for column in recorded if column.name in by_name and is_in_bytes(column, by_name[column.name]))
    stored = {column.name: entry(column).stored for column in in_bytes}
    return {name: how for name, how in stored.items() if how is not None and not how.made_late}


def made_late(column: Column) -> StoredBytes | None:
    """Return how a column's values are made of the bytes that staged rows keep; None for other columns."""
    stored = entry(column).stored
    return stored if stored is not None and stored.made_late else None


def is_never_empty(column: Column) -> bool:
    """Return whether no value's text is empty. MySQL gives an empty one, with a warning, for a JSON value whose text is
    longer than max_allowed_packet."""
    return entry(column).never_empty
