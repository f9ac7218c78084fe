"""Kafka Connect's schemas and values. A Writer makes bytes of the values (connect_json.py, connect_avro.py).

Columns have the types that Debezium's MySQL connector chooses (schema/types, ``connect_form.ConnectForm``). Source: the
connector's documentation, "Data type mappings", with its default settings.

| MySQL                        | Connect | name                                | value |
|------------------------------|---------|-------------------------------------|-------|
| TINYINT, SMALLINT            | int16   |                                     | SMALLINT UNSIGNED int32 |
| MEDIUMINT, INT               | int32   |                                     | INT UNSIGNED int64 |
| BIGINT                       | int64   |                                     | unsigned the same bits, or Decimal |
| FLOAT, DOUBLE                | float32, float64 |                            | FLOAT(7,3) float64 |
| DECIMAL                      | bytes   | org.apache.kafka.connect.data.Decimal | the number; or string, double |
| BIT(1), BIT(n)               | boolean, bytes | io.debezium.data.Bits        | little-endian |
| CHAR, VARCHAR, TEXT, INET6 … | string  |                                     | |
| BINARY, VARBINARY, BLOB      | bytes   |                                     | or string: base64, hexadecimal |
| ENUM, SET, JSON, UUID        | string  | io.debezium.data.Enum, EnumSet, Json, Uuid | |
| DATE                         | int32   | io.debezium.time.Date               | days since 1970 |
| TIME                         | int64   | io.debezium.time.MicroTime          | µs |
| DATETIME(0-3), DATETIME(4-6) | int64   | io.debezium.time.Timestamp, MicroTimestamp | ms, µs since 1970 |
| TIMESTAMP                    | string  | io.debezium.time.ZonedTimestamp     | ISO 8601 in UTC |
| YEAR                         | int32   | io.debezium.time.Year               | |
| geometry                     | struct  | io.debezium.data.geometry.Geometry  | wkb, srid; a POINT x and y too |
| VECTOR                       | array   | io.debezium.data.FloatVector        | float32 |

An invalid date or time (such as 0000-00-00) is null, in a column that is NOT NULL the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from binlake.feeds.formats.joining import Part
from binlake.schema.datatypes import entry
from binlake.schema.table import Column
from binlake.schema.types.connect_form import ConnectSettings, ConnectType

Schema: TypeAlias = Mapping[str, Any]
"""A schema of Connect, as its JSON converter writes it; a field's schema has its name under ``field``."""
_EPOCHS: Mapping[str | None, Any] = {
    "io.debezium.time.Date": 0,
    "io.debezium.time.Timestamp": 0,
    "io.debezium.time.MicroTimestamp": 0,
    "io.debezium.time.ZonedTimestamp": "1970-01-01T00:00:00Z",
}


class Writer(Protocol):
    """A writer of Connect's values as bytes, as one of Connect's converters writes them."""

    def column(self, schema: Schema, values: pa.Array) -> pa.Array:
        """Return a field's values, written, one per row."""
        ...

    def constant(self, schema: Schema, value: Any) -> pa.Scalar:
        """Return one value, written. A struct is given as a mapping, an array as a sequence."""
        ...

    def struct(self, schema: Schema, parts: Sequence[Part], there: pa.Array | None = None) -> Part:
        """Return structs composed of their written fields. there: null where the struct is null; None if none is."""
        ...

    def message(self, topic: str, schema: Schema, body: Part, *, key: bool = False) -> Part:
        """Return whole keys or values as bytes, with their schema or its id. Raises FeedError for a refused schema."""
        ...

    def single(self, topic: str, schema: Schema, value: Any, *, key: bool = False) -> bytes:
        """Return one whole key or value as bytes, given as for ``constant``. Raises FeedError like ``message``."""
        ...


def type_of(column: Column, settings: ConnectSettings) -> ConnectType:
    """Return a column's type under a feed's settings."""
    return entry(column).connect.of(column, settings)


def with_epochs(schema: Schema, values: pa.Array) -> pa.Array:
    """Return a field's values, with the epoch for null if the field is a date or time that isn't optional."""
    epoch = None if schema.get("optional") else _EPOCHS.get(schema.get("name"))
    return values if epoch is None else pc.fill_null(values, epoch)
