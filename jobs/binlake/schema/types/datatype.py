"""What a type is to the engine: a DataType, which the families of types fill in and the registry lists.

| hook | who calls it |
|------|--------------|
| arrow, delta | everything that holds values |
| select, restore | the snapshot |
| server_text, lake_text | verify by hash |
| only, length, has_default | statements that declare a column, and the catalog |
| implicit_default, canonical | the values of old rows in an added column |
| bound | the snapshot, which cuts a table into chunks by its key |
| keeps, longest_text | ALTER TABLE that changes a column's type |
| log | the log's decoder and writer |
| stored | merge, feeds |
| functions | Spark's sessions |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from binlake.errors import Malformed
from binlake.names import mysql_quote, spark_quote
from binlake.position import Flavour
from binlake.schema.table import Column
from binlake.schema.types.log_form import (
    FilledBuffers,
    LogForm,
    Wire,
    behind_length,
    binary,
    finished,
    its_size,
    prefixed,
)

SqlExpression = Callable[[Column], str]
ArrowFunction = Callable[[pa.Array], pa.Array]
Length = Callable[[int | None, bool], int | None]
Keeps = Callable[[Column, Column], bool]


def no_length(written: int | None, unsigned: bool) -> None:
    """Return None: columns of the type have no length."""
    return None


def as_written(written: int | None, unsigned: bool) -> int | None:
    """Return the length as it is declared."""
    return written


def one_unless_written(written: int | None, unsigned: bool) -> int | None:
    """Return the declared length, which is 1 without a number."""
    return 1 if written is None else written


def changes(before: Column, after: Column) -> bool:
    """Return False: ALTER TABLE may change values of the type."""
    return False


def always(before: Column, after: Column) -> bool:
    """Return True: a column of the type keeps its values as long as it keeps the type."""
    return True


@dataclass(frozen=True)
class StoredBytes:
    """How values are made of the bytes that the server stores, and the bytes of values. NULL stays NULL.

    values: it raises ValueError for bytes that are no value.
    bytes_of: the inverse, over values or bytes. It raises ValueError for what is no value of the type.
    size: how many bytes a value of the column has.
    logged_as: the type that MariaDB's table map has for the column, in the place of its own.
    made_late: staged rows keep the bytes, which compare as the server compares them, until the lake's rows are made.
    """

    values: ArrowFunction
    bytes_of: Callable[[pa.Array], Sequence[bytes | None]]
    size: Callable[[Column], int]
    logged_as: str
    made_late: bool = False


def stored_log(stored: StoredBytes, wire: Wire, length_bytes: int) -> LogForm:
    """Return how the log has values as the server stores them, behind their length."""

    def finish(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: FilledBuffers, used: int) -> pa.Array:
        try:
            return stored.values(binary(pa.binary(), rows, validity, nulls, column, used))
        except ValueError as error:
            raise Malformed(str(error), 0) from None

    return LogForm(
        wire,
        lambda column: length_bytes,
        behind_length,
        finished(finish),
        lambda field: lambda array: prefixed(stored.bytes_of(array), field.size),
        metadata=its_size,
    )


@dataclass(frozen=True)
class KeyBound:
    """How a key's values bound chunks: the server's SQL that selects one, and the literal that compares as the column.

    literal: a function of the column, its collation (None for what isn't text) and the selected value. It returns None
    for a value that has no literal.
    """

    value: SqlExpression
    literal: Callable[[Column, str | None, Any], str | None]


def shown_bound(literal: Callable[[Any], str | None]) -> KeyBound:
    """Return bounds by the server's text of a value. literal: a function of that text."""
    return KeyBound(server_char, lambda column, collation, text: literal(text))


@dataclass(frozen=True)
class DataType:
    """One type. SQL expressions are functions of the column; names come quoted.

    is_text: whether values are texts in a character set. has_fraction: of seconds, with declared digits.
    only: the flavour that alone has the type.
    length: Column.length of a declaration, from the first number in its parentheses and whether it is unsigned.
    has_default: whether a column may have a constant default on MySQL.
    keeps: whether ALTER TABLE keeps all values of a column that has the type before and after.
    restore_sql, restore_arrow: turn the selected value into the lake's; None for a cast to its type.
    implicit_default: the server's text of what old rows get in an added column that is NOT NULL without a default; None
        where that isn't known.
    canonical: the server's text of a value that is written as text, or None where that isn't known. It raises
        ValueError.
    bound: None for a type whose values can't bound chunks.
    longest_text: the most characters of a value's text, where each value has one text.
    log: how the log has values of the type.
    stored: None for a type that the decoder makes by kernels.
    functions: Spark's functions that the expressions call, with what they return.
    """

    arrow: Callable[[Column], pa.DataType]
    delta: Callable[[Column], str]
    select: SqlExpression
    server_text: SqlExpression
    lake_text: SqlExpression
    log: LogForm
    restore_sql: SqlExpression | None = None
    restore_arrow: ArrowFunction | None = None
    may_be_invalid_date: bool = False
    is_text: bool = False
    has_fraction: bool = False
    only: Flavour | None = None
    length: Length = no_length
    has_default: bool = True
    keeps: Keeps = changes
    implicit_default: Callable[[Column], str] | None = None
    canonical: Callable[[str], str | None] | None = None
    bound: KeyBound | None = None
    longest_text: int | None = None
    stored: StoredBytes | None = None
    functions: Mapping[str, tuple[ArrowFunction, str]] = field(default_factory=dict)

    def restore(self, column: Column) -> str:
        """Return Spark SQL that turns the selected value into the lake's."""
        if self.restore_sql is not None:
            return self.restore_sql(column)
        return f"CAST({in_lake(column)} AS {self.delta(column)})"


def on_server(column: Column) -> str:
    """Return the column's name in the server's SQL."""
    return mysql_quote(column.served_name)


def in_lake(column: Column) -> str:
    """Return the column's name in Spark's SQL."""
    return spark_quote(column.name)


def server_sha(expression: str) -> str:
    """Return the server's SQL for the SHA-256 of an expression, in hexadecimal."""
    return f"SHA2({expression}, 256)"


def lake_sha(column: Column) -> str:
    """Return Spark SQL for the SHA-256 of a column's bytes, in hexadecimal."""
    return f"SHA2(CAST({in_lake(column)} AS BINARY), 256)"


def server_char(column: Column) -> str:
    """Return the server's SQL for its text of a value."""
    return f"CAST({on_server(column)} AS CHAR)"


def lake_string(column: Column) -> str:
    """Return Spark SQL for a value's text."""
    return f"CAST({in_lake(column)} AS STRING)"


NUMBERED = KeyBound(
    lambda column: f"CAST({on_server(column)} AS UNSIGNED)", lambda column, collation, value: str(int(value))
)
"""Bounds of types that compare as numbers and are shown in another way."""
