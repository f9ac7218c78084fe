"""The facts about one type: a DataType, which the families of types fill in and the registry lists.

| hook | who calls it |
|------|--------------|
| arrow, delta | everything that holds values |
| select, restore | the snapshot |
| server_text, lake_text | verify by hash |
| only, length, has_default | statements that declare a column, and the catalog |
| has_members, has_scale, digits, zerofill | the same |
| default_text, takes_temporal, implicit_default | defaults, and the values of old rows in an added column |
| constant, spark_constant | the same values in the lake |
| bound | the snapshot, which cuts a table into chunks by its key |
| compared_as | conditions of rows |
| converts, date_suffix, longest_text | ALTER TABLE that changes a column's type |
| log | the log's decoder and writer |
| connect | feeds of Debezium's messages |
| text_of | subscriptions, and the page |
| stored | merge, feeds |
| functions | Spark's sessions |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from binlake.errors import Malformed
from binlake.names import mysql_quote, spark_quote, spark_string
from binlake.position import Flavour
from binlake.schema.table import Column, ComparedAs
from binlake.schema.types.connect_form import UNKNOWN, ConnectForm
from binlake.schema.types.constants import Literal
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
Converts = Callable[[Column, Column, bool], bool]
Digits = tuple[int | None, int | None]
DefaultText = Callable[[Column, Literal, Flavour], str | None]


def no_length(written: int | None, unsigned: bool) -> None:
    """Return None: columns of the type have no length."""
    return None


def as_written(written: int | None, unsigned: bool) -> int | None:
    """Return the length as it is declared."""
    return written


def one_unless_written(written: int | None, unsigned: bool) -> int | None:
    """Return the declared length, which is 1 without a number."""
    return 1 if written is None else written


def no_digits(written: tuple[int, ...]) -> Digits:
    """Return no precision and no scale: columns of the type have none."""
    return None, None


def written_width(written: tuple[int, ...]) -> int:
    """Return the first number of a declaration; 0 without one."""
    return written[0] if written else 0


def same_type(before: Column, after: Column, strict: bool) -> bool:
    """Return whether the type stays: a column of it then keeps its values."""
    return before.type == after.type


def no_default_text(column: Column, literal: Literal, flavour: Flavour) -> None:
    """Return None: what the server makes of a constant isn't known."""
    return None


def as_nothing(column: Column) -> ComparedAs:
    """Return ``other``: conditions can't compare values of the type."""
    return "other"


def compare_as(kind: ComparedAs) -> Callable[[Column], ComparedAs]:
    """Return the hook of a type whose columns' values all compare as one kind."""
    return lambda column: kind


def no_text_of(column: Column, value: Any) -> str:
    """Raise TypeError: staged values of the type are texts or bytes."""
    raise TypeError(f"a value of {column.name!r} is a {type(value).__name__}")


def filled(column: Column, number: str) -> str:
    """Return a number's text with the zeros before it that ZEROFILL adds."""
    return number.rjust(column.zerofill, "0")


def text_constant(column: Column, arrow: pa.DataType, text: str) -> Any:
    """Return a server's text as it is."""
    return text


def cast_constant(delta: str, text: str) -> str:
    """Return Spark SQL that casts a server's text to a Delta type."""
    return f"CAST({spark_string(text)} AS {delta})"


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


def compared(column: Column, literal: str, operator: str) -> str:
    """Return the server's SQL that compares a column with a literal."""
    return f"{on_server(column)} {operator} {literal}"


def usable(column: Column) -> bool:
    """Return True: values of all columns of the type can bound chunks."""
    return True


def not_known(column: Column, literal: str, first: bool) -> bool:
    """Return False: which values are a column's ends isn't known."""
    return False


@dataclass(frozen=True)
class KeyBound:
    """How a key's values bound chunks: the server's SQL that selects one, and the literal that compares as the column.

    literal: a function of the column, its collation (None for what isn't text) and the selected value. It returns None
    for a value that has no literal.
    condition: SQL that compares the column with a literal by ``<``, ``<=``, ``>`` or ``>=``.
    is_usable: whether values of the column can bound chunks.
    is_end: whether a literal is the column's last value, or its first (the third argument is True for that); False
        where that isn't known.
    """

    value: SqlExpression
    literal: Callable[[Column, str | None, Any], str | None]
    condition: Callable[[Column, str, str], str] = compared
    is_usable: Callable[[Column], bool] = usable
    is_end: Callable[[Column, str, bool], bool] = not_known


def shown_bound(literal: Callable[[Any], str | None]) -> KeyBound:
    """Return bounds by the server's text of a value. literal: a function of that text."""
    return KeyBound(server_char, lambda column, collation, text: literal(text))


@dataclass(frozen=True)
class DataType:
    """One type. SQL expressions are functions of the column; names come quoted.

    is_text: whether values are texts in a character set. never_empty: whether no value has an empty text.
    has_fraction: of seconds, with declared digits.
    only: the flavour that alone has the type.
    length: Column.length of a declaration, from the first number in its parentheses and whether it is unsigned.
    has_default: whether a column may have a constant default on MySQL. default_is_literal: whether the server's text of
        one is SQL by itself (``b'101'``, ``0x61``).
    has_members: whether columns list their values. has_scale: whether they may have a precision and a scale.
    digits: precision and scale of a declaration, from the numbers in its parentheses.
    zerofill: to how many characters ZEROFILL fills, from the same numbers.
    converts: whether ALTER TABLE provably turned all values of a column, which has the type before, into what a cast to
        the Delta type of the column after gives; the third argument is whether the session was strict.
    date_suffix: for dates, in the place of ``converts``: what the server's text of a value got behind it; None where
        the conversion isn't provable.
    restore_sql, restore_arrow: turn the selected value into the lake's; None for a cast to its type.
    implicit_default: the server's text of what old rows get in an added column that is NOT NULL without a default; None
        where that isn't known.
    default_text: the server's text of a constant default, or None where that isn't known. It raises ValueError and
        ArithmeticError. takes_temporal: whether it knows DATE'…', TIME'…', TIMESTAMP'…'.
    constant: the value that Arrow takes, of the column, its type in Arrow, and the server's text of a constant (of a
        TIMESTAMP in UTC); None where it isn't known. It raises ValueError and ArithmeticError.
    spark_constant: the same in Spark SQL, of the column and the text; None for a cast to its type.
    bound: None for a type whose values can't bound chunks.
    compared_as: what values compare as in a condition of rows.
    longest_text: the most characters of a value's text, where each value has one text.
    log: how the log has values of the type.
    connect: what the type is to Kafka Connect.
    text_of: the server's text of a staged value that is neither a text nor bytes, as it sends it to a client in UTC.
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
    never_empty: bool = False
    has_fraction: bool = False
    only: Flavour | None = None
    length: Length = no_length
    has_default: bool = True
    default_is_literal: bool = False
    has_members: bool = False
    has_scale: bool = False
    digits: Callable[[tuple[int, ...]], Digits] = no_digits
    zerofill: Callable[[tuple[int, ...]], int] = written_width
    converts: Converts = same_type
    date_suffix: Callable[[Column, Column], str | None] | None = None
    default_text: DefaultText = no_default_text
    takes_temporal: bool = False
    implicit_default: Callable[[Column], str] | None = None
    constant: Callable[[Column, pa.DataType, str], Any] = text_constant
    spark_constant: Callable[[Column, str], str] | None = None
    bound: KeyBound | None = None
    compared_as: Callable[[Column], ComparedAs] = as_nothing
    longest_text: int | None = None
    connect: ConnectForm = UNKNOWN
    text_of: Callable[[Column, Any], str] = no_text_of
    stored: StoredBytes | None = None
    functions: Mapping[str, tuple[ArrowFunction, str]] = field(default_factory=dict)

    def restore(self, column: Column) -> str:
        """Return Spark SQL that turns the selected value into the lake's."""
        if self.restore_sql is not None:
            return self.restore_sql(column)
        return f"CAST({in_lake(column)} AS {self.delta(column)})"

    def lake_constant(self, column: Column, text: str) -> str:
        """Return Spark SQL for a server's constant, of a TIMESTAMP in UTC, of the column's Delta type."""
        if self.spark_constant is not None:
            return self.spark_constant(column, text)
        return cast_constant(self.delta(column), text)


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
