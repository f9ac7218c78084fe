"""Kafka Connect's types of columns, as Debezium's MySQL connector chooses them, and their values in Arrow.

Source: the connector's documentation, "Data type mappings", with its default settings. A Writer makes bytes of the
values (connect_json.py, connect_avro.py).

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

import base64
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from binlake.config.feed_config import DebeziumFormat
from binlake.feeds.formats.decimals import numbers_of
from binlake.feeds.formats.joining import Part
from binlake.feeds.formats.text import PLAIN_SCALE
from binlake.schema.table import Column
from binlake.schema.types.byte_types import GEOMETRIES

Schema: TypeAlias = Mapping[str, Any]
"""A schema of Connect, as its JSON converter writes it; a field's schema has its name under ``field``."""
DECIMAL = "org.apache.kafka.connect.data.Decimal"
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


@dataclass(frozen=True)
class ConnectType:
    """A column's type in Connect. values: converts staged values. more: further entries of the schema."""

    type: str
    values: Callable[[pa.Array], pa.Array]
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


def type_of(column: Column, config: DebeziumFormat) -> ConnectType:
    """Return a column's type under a feed's settings."""
    kind = column.type
    if kind == "float" and column.scale is not None:
        return ConnectType("double", lambda values: values.cast(pa.float64()))
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind in ("tinyint", "smallint", "mediumint", "int", "bigint"):
        return _integer(column, config)
    if kind == "decimal":
        return _decimal(column, config)
    if kind == "bit":
        wide = (column.length or 1) > 1
        parameters = {"length": str(column.length)}
        return (
            ConnectType("bytes", _bits, "io.debezium.data.Bits", parameters) if wide else ConnectType("boolean", _own)
        )
    if kind in ("enum", "set"):
        name = "io.debezium.data.Enum" if kind == "enum" else "io.debezium.data.EnumSet"
        return ConnectType("string", _texts, name, {"allowed": ",".join(column.values)})
    if kind in ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"):
        return _BINARY[config.binary]
    if kind == "datetime":
        if column.fraction > 3:
            return ConnectType("int64", _numbers, "io.debezium.time.MicroTimestamp")
        return ConnectType("int64", _milliseconds, "io.debezium.time.Timestamp")
    if kind == "timestamp":
        return ConnectType("string", _zoned(column.fraction), "io.debezium.time.ZonedTimestamp")
    return ConnectType("string", _texts)


def _integer(column: Column, config: DebeziumFormat) -> ConnectType:
    narrow = {"tinyint": "int16", "smallint": "int16", "mediumint": "int32", "int": "int32", "bigint": "int64"}
    wide = {"tinyint": "int16", "smallint": "int32", "mediumint": "int32", "int": "int64"}
    if column.type == "bigint" and column.unsigned:
        if config.bigint_unsigned == "precise":
            return _precise(20, 0)
        return ConnectType("int64", _same_bits)
    return ConnectType((wide if column.unsigned else narrow)[column.type], _numbers)


def _decimal(column: Column, config: DebeziumFormat) -> ConnectType:
    if config.decimals == "string":
        return ConnectType("string", _decimal_texts)
    if config.decimals == "double":
        return ConnectType("double", _doubles)
    return _precise(column.precision or 10, column.scale or 0)


def _precise(precision: int, scale: int) -> ConnectType:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return ConnectType("bytes", _decimals(precision, scale), DECIMAL, parameters)


def with_epochs(schema: Schema, values: pa.Array) -> pa.Array:
    """Return a field's values, with the epoch for null if the field is a date or time that isn't optional."""
    epoch = None if schema.get("optional") else _EPOCHS.get(schema.get("name"))
    return values if epoch is None else pc.fill_null(values, epoch)


# values ---------------------------------------------------------------------------------------------------------------
def _each(made: Callable[[Any], Any], kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    """Return a converter of arrays that calls ``made`` for each value that isn't null."""
    return lambda values: pa.array([None if value is None else made(value) for value in values.to_pylist()], kind)


def _own(values: pa.Array) -> pa.Array:
    return values


def _numbers(values: pa.Array) -> pa.Array:
    """Return integers as they are, dates as days, times as microseconds."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def _milliseconds(values: pa.Array) -> pa.Array:
    return values.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())


def _same_bits(values: pa.Array) -> pa.Array:
    return pa.array(numbers_of(values), pa.int64(), mask=values.is_null().to_numpy(zero_copy_only=False))


def _texts(values: pa.Array) -> pa.Array:
    return values.cast(pa.string())


def _decimal_texts(values: pa.Array) -> pa.Array:
    if pa.types.is_decimal(values.type) and values.type.scale > PLAIN_SCALE:
        return _each(lambda value: f"{value:f}", pa.string())(values)
    return _texts(values)


def _decimals(precision: int, scale: int) -> Callable[[pa.Array], pa.Array]:
    """Return a converter to decimals; beyond 38 digits, staged values are texts."""
    exact = pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    return lambda values: values if pa.types.is_decimal(values.type) else _each(Decimal, exact)(values)


def _zoned(fraction: int) -> Callable[[pa.Array], pa.Array]:
    def texts(values: pa.Array) -> pa.Array:
        kind = "s" if fraction == 0 else "us"
        made = pc.strftime(values.cast(pa.timestamp(kind, "UTC"), safe=False), "%Y-%m-%dT%H:%M:%S")
        return pc.binary_join_element_wise(pc.utf8_slice_codeunits(made, 0, 20 + fraction if fraction else 19), "Z", "")

    return texts


def _geometry(stored: bytes) -> dict[str, Any]:
    """Split four bytes of SRID from the WKB; SRID 0 becomes null, as in the connector."""
    return {"wkb": stored[4:], "srid": int.from_bytes(stored[:4], "little") or None}


def _point(stored: bytes) -> dict[str, Any]:
    x, y = struct.unpack("<dd" if stored[4] == 1 else ">dd", stored[9:25])
    return {"x": x, "y": y, **_geometry(stored)}


_doubles = _each(float, pa.float64())
_bits = _each(lambda value: value[::-1], pa.binary())
_ARROW_GEOMETRY = [pa.field("wkb", pa.binary()), pa.field("srid", pa.int32())]
_ARROW_POINT = [pa.field("x", pa.float64()), pa.field("y", pa.float64()), *_ARROW_GEOMETRY]
_GEOMETRY_FIELDS = [
    {"type": "bytes", "optional": False, "field": "wkb"},
    {"type": "int32", "optional": True, "field": "srid"},
]
_POINT_FIELDS = [
    *({"type": "double", "optional": False, "field": axis} for axis in "xy"),
    {"type": "bytes", "optional": True, "field": "wkb"},
    {"type": "int32", "optional": True, "field": "srid"},
]
_GEOMETRY = ConnectType(
    "struct",
    _each(_geometry, pa.struct(_ARROW_GEOMETRY)),
    "io.debezium.data.geometry.Geometry",
    more={"fields": _GEOMETRY_FIELDS, "doc": "Geometry"},
)
_BINARY = {
    "bytes": ConnectType("bytes", _own),
    "base64": ConnectType("string", _each(lambda value: base64.b64encode(value).decode(), pa.string())),
    "hex": ConnectType("string", _each(bytes.hex, pa.string())),
}
_SIMPLE: dict[str, ConnectType] = {
    **dict.fromkeys(GEOMETRIES, _GEOMETRY),
    "float": ConnectType("float", _own),
    "double": ConnectType("double", _own),
    "date": ConnectType("int32", _numbers, "io.debezium.time.Date"),
    "time": ConnectType("int64", _numbers, "io.debezium.time.MicroTime"),
    "year": ConnectType("int32", _numbers, "io.debezium.time.Year"),
    "json": ConnectType("string", _texts, "io.debezium.data.Json"),
    "uuid": ConnectType("string", _texts, "io.debezium.data.Uuid"),
    "point": ConnectType(
        "struct",
        _each(_point, pa.struct(_ARROW_POINT)),
        "io.debezium.data.geometry.Point",
        more={"fields": _POINT_FIELDS, "doc": "Geometry (POINT)"},
    ),
    "vector": ConnectType(
        "array", _own, "io.debezium.data.FloatVector", more={"items": {"type": "float", "optional": False}}
    ),
}
