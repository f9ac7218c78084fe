"""Types of Kafka Connect, as Debezium's MySQL connector chooses them for columns, and their values in Arrow.

Source: the connector's documentation, "Data type mappings"; io.debezium.jdbc for the description of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal as OneOf, Protocol

import pyarrow as pa

from binlake.schema.table import Column

ConvertArray = Callable[[pa.Array], pa.Array]
DECIMAL = "org.apache.kafka.connect.data.Decimal"
OTHER = 1111
"""java.sql.Types.OTHER."""


class ConnectSettings(Protocol):
    """A feed's settings: Debezium's decimal.handling.mode, bigint.unsigned.handling.mode, binary.handling.mode."""

    @property
    def decimals(self) -> OneOf["precise", "string", "double"]:
        """Return how decimals are given."""

    @property
    def bigint_unsigned(self) -> OneOf["long", "precise"]:
        """Return how BIGINT UNSIGNED is given."""

    @property
    def binary(self) -> OneOf["bytes", "base64", "hex"]:
        """Return how bytes are given."""


@dataclass(frozen=True)
class ConnectType:
    """A column's type in Connect. values: converts staged values. more: further entries of the schema."""

    type: str
    values: ConvertArray
    name: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    def schema(self, column: Column, *, optional: bool) -> dict[str, Any]:
        """Return a field's schema, as Connect's JSON converter writes it."""
        made: dict[str, Any] = {"type": self.type, "optional": optional, **self.more}
        if self.name:
            made |= {"name": self.name, "version": 1}
        if self.parameters:
            made["parameters"] = dict(self.parameters)
        return {**made, "field": column.name}


def each(made: Callable[[Any], Any], kind: pa.DataType) -> ConvertArray:
    """Return a converter of arrays that calls ``made`` for each value that isn't null."""
    return lambda values: pa.array([None if value is None else made(value) for value in values.to_pylist()], kind)


def as_staged(values: pa.Array) -> pa.Array:
    """Return the values."""
    return values


def as_numbers(values: pa.Array) -> pa.Array:
    """Return integers as they are, dates as days, times as microseconds."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def as_texts(values: pa.Array) -> pa.Array:
    """Return the values as texts."""
    return values.cast(pa.string())


def precise(precision: int, scale: int, values: ConvertArray) -> ConnectType:
    """Return Connect's Decimal."""
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return ConnectType("bytes", values, DECIMAL, parameters)


TEXT = ConnectType("string", as_texts)


def declared_length(column: Column) -> int | None:
    """Return the digits of a number, or a column's length."""
    return column.precision if column.precision is not None else column.length


@dataclass(frozen=True)
class ConnectForm:
    """The form of a type in Kafka Connect.

    of: a column's type under a feed's settings. jdbc: the constant of java.sql.Types. length: Debezium's length of a
    column.
    """

    of: Callable[[Column, ConnectSettings], ConnectType]
    jdbc: int = OTHER
    length: Callable[[Column], int | None] = declared_length


def always(
    made: ConnectType, jdbc: int = OTHER, length: Callable[[Column], int | None] = declared_length
) -> ConnectForm:
    """Return the form of a type whose columns are all of one type in Connect."""
    return ConnectForm(lambda column, settings: made, jdbc, length)


UNKNOWN = always(TEXT)
"""The form of types for which Debezium has no other."""
