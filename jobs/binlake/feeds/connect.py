"""Columns as Kafka Connect has them: the types that Debezium's MySQL connector gives them, and their values as JSON.

By its documentation ("Data type mappings") with its default settings:

| MySQL                        | Connect | name                                | value |
|------------------------------|---------|-------------------------------------|-------|
| TINYINT, SMALLINT            | int16   |                                     | SMALLINT UNSIGNED int32 |
| MEDIUMINT, INT               | int32   |                                     | INT UNSIGNED int64 |
| BIGINT                       | int64   |                                     | unsigned the same bits, or Decimal |
| FLOAT, DOUBLE                | float32, float64 |                            | |
| DECIMAL                      | bytes   | org.apache.kafka.connect.data.Decimal | unscaled; or string, double |
| BIT(1), BIT(n)               | boolean, bytes | io.debezium.data.Bits        | little-endian |
| CHAR, VARCHAR, TEXT, UUID …  | string  |                                     | |
| BINARY, VARBINARY, BLOB      | bytes   |                                     | base64; or hexadecimal |
| ENUM, SET, JSON              | string  | io.debezium.data.Enum, EnumSet, Json | |
| DATE                         | int32   | io.debezium.time.Date               | days since 1970 |
| TIME                         | int64   | io.debezium.time.MicroTime          | µs |
| DATETIME(0-3), DATETIME(4-6) | int64   | io.debezium.time.Timestamp, MicroTimestamp | ms, µs since 1970 |
| TIMESTAMP                    | string  | io.debezium.time.ZonedTimestamp     | ISO 8601 in UTC |
| YEAR                         | int32   | io.debezium.time.Year               | |
| geometry                     | struct  | io.debezium.data.geometry.Geometry  | wkb, srid; a POINT x and y too |
| VECTOR                       | array   | io.debezium.data.FloatVector        | float32 |
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from binlake.feed_config import DebeziumFormat
from binlake.schema.table import Column

quoted_json: Callable[[str], str] = encode_basestring
Fragments = Sequence[str]
"""Of each row its value as JSON, ``null`` where there is none."""
_GEOMETRIES = frozenset(
    {"geometry", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geomcollection",
     "geometrycollection"}
)  # fmt: skip


@dataclass(frozen=True)
class ConnectType:
    """A column's type. told: what the schema says besides; render: its values."""

    type: str
    render: Callable[[pa.Array], Fragments]
    name: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    told: Mapping[str, Any] = field(default_factory=dict)

    def schema(self, column: Column, *, optional: bool) -> dict[str, Any]:
        """As the JSON converter writes a field's schema."""
        made: dict[str, Any] = {"type": self.type, "optional": optional, **self.told}
        if self.name:
            made |= {"name": self.name, "version": 1}
        if self.parameters:
            made["parameters"] = dict(self.parameters)
        return {**made, "field": column.name}


def type_of(column: Column, config: DebeziumFormat) -> ConnectType:
    """Of one column under a feed's settings."""
    kind = column.type
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
            ConnectType("bytes", _bits, "io.debezium.data.Bits", parameters)
            if wide
            else ConnectType("boolean", _booleans)
        )
    if kind in ("enum", "set"):
        name = "io.debezium.data.Enum" if kind == "enum" else "io.debezium.data.EnumSet"
        return ConnectType("string", _texts, name, {"allowed": ",".join(column.values)})
    if kind in ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"):
        return ConnectType("string", _hexadecimal) if config.binary == "hex" else _bytes_type(config)
    if kind == "datetime":
        if column.fraction > 3:
            return ConnectType("int64", _numbers, "io.debezium.time.MicroTimestamp")
        return ConnectType("int64", _milliseconds, "io.debezium.time.Timestamp")
    if kind == "timestamp":
        return ConnectType("string", _zoned(column.fraction), "io.debezium.time.ZonedTimestamp")
    return ConnectType("string", _texts)


def _bytes_type(config: DebeziumFormat) -> ConnectType:
    return ConnectType("bytes" if config.binary == "bytes" else "string", _base64)


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
    return ConnectType("bytes", _unscaled(scale), "org.apache.kafka.connect.data.Decimal", parameters)


# values ---------------------------------------------------------------------------------------------------------------
def _fragments(values: pa.Array) -> Fragments:
    found: Fragments = pc.fill_null(values, "null").to_pylist()
    return found


def _numbers(values: pa.Array) -> Fragments:
    """Whole numbers as they are: of dates the days, of moments the microseconds."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return _fragments(values.cast(pa.string()))


def _milliseconds(values: pa.Array) -> Fragments:
    whole = values.cast(pa.timestamp("ms"), safe=False)
    return _fragments(whole.cast(pa.int64()).cast(pa.string()))


def _same_bits(values: pa.Array) -> Fragments:
    return [
        _null if value is None else str(int(value) - (1 << 64 if value >= 1 << 63 else 0))
        for value in values.to_pylist()
    ]


_null = "null"


def _booleans(values: pa.Array) -> Fragments:
    return _fragments(values.cast(pa.string()))


def _doubles(values: pa.Array) -> Fragments:
    """NaN and infinities, which MySQL hasn't, would be no JSON."""
    return [_null if value is None else repr(float(value)) for value in values.to_pylist()]


def _floats(values: pa.Array) -> Fragments:
    """The shortest text that is this single-precision number, as Java prints it."""
    return _fragments(values.cast(pa.string()))


def _texts(values: pa.Array) -> Fragments:
    return [_null if value is None else quoted_json(value) for value in values.to_pylist()]


def _decimal_texts(values: pa.Array) -> Fragments:
    if pa.types.is_string(values.type):
        return _texts(values)
    return [_null if value is None else f'"{value:f}"' for value in values.to_pylist()]


def encoded(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode()}"'


def _base64(values: pa.Array) -> Fragments:
    return [_null if value is None else encoded(value) for value in values.to_pylist()]


def _hexadecimal(values: pa.Array) -> Fragments:
    return [_null if value is None else f'"{value.hex()}"' for value in values.to_pylist()]


def _bits(values: pa.Array) -> Fragments:
    return [_null if value is None else encoded(value[::-1]) for value in values.to_pylist()]


def unscaled(value: Decimal, scale: int) -> bytes:
    """A decimal's digits as the shortest big-endian number in two's complement, as Java's BigInteger has it."""
    number = int(value.scaleb(scale))
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def _unscaled(scale: int) -> Callable[[pa.Array], Fragments]:
    def render(values: pa.Array) -> Fragments:
        decimals = (None if value is None else Decimal(value) for value in values.to_pylist())
        return [_null if value is None else encoded(unscaled(value, scale)) for value in decimals]

    return render


def _zoned(fraction: int) -> Callable[[pa.Array], Fragments]:
    def render(values: pa.Array) -> Fragments:
        kind = "s" if fraction == 0 else "us"
        texts = pc.strftime(values.cast(pa.timestamp(kind, "UTC"), safe=False), "%Y-%m-%dT%H:%M:%S").to_pylist()
        cut = 20 + fraction if fraction else 19
        return [_null if text is None else f'"{text[:cut]}Z"' for text in texts]

    return render


def _geometry(stored: bytes) -> str:
    """Four bytes of SRID, then WKB; of none the SRID is null, as the connector has it."""
    srid = int.from_bytes(stored[:4], "little")
    return f'"wkb":{encoded(stored[4:])},"srid":{srid or _null}'


def _geometries(values: pa.Array) -> Fragments:
    return [_null if value is None else f"{{{_geometry(value)}}}" for value in values.to_pylist()]


def _points(values: pa.Array) -> Fragments:
    def point(stored: bytes) -> str:
        x, y = struct.unpack("<dd" if stored[4] == 1 else ">dd", stored[9:25])
        return f'{{"x":{x!r},"y":{y!r},{_geometry(stored)}}}'

    return [_null if value is None else point(value) for value in values.to_pylist()]


def _vectors(values: pa.Array) -> Fragments:
    inside = _floats(values.values) if len(values) else []
    bounds = values.offsets.to_pylist()
    return [
        _null if missing else f"[{','.join(inside[start:end])}]"
        for start, end, missing in zip(bounds, bounds[1:], values.is_null().to_pylist(), strict=False)
    ]


def _json_texts(values: pa.Array) -> Fragments:
    return _texts(values)


_GEOMETRY_FIELDS = [
    {"type": "bytes", "optional": False, "field": "wkb"},
    {"type": "int32", "optional": True, "field": "srid"},
]
_POINT_FIELDS = [{"type": "double", "optional": False, "field": axis} for axis in "xy"]
_GEOMETRY = ConnectType(
    "struct", _geometries, "io.debezium.data.geometry.Geometry", told={"fields": _GEOMETRY_FIELDS}
)  # fmt: skip
_SIMPLE: dict[str, ConnectType] = {
    "float": ConnectType("float", _floats),
    "double": ConnectType("double", _doubles),
    "date": ConnectType("int32", _numbers, "io.debezium.time.Date"),
    "time": ConnectType("int64", _numbers, "io.debezium.time.MicroTime"),
    "year": ConnectType("int32", _numbers, "io.debezium.time.Year"),
    "json": ConnectType("string", _json_texts, "io.debezium.data.Json"),
    "point": ConnectType(
        "struct", _points, "io.debezium.data.geometry.Point", told={"fields": [*_POINT_FIELDS, *_GEOMETRY_FIELDS]}
    ),
    "vector": ConnectType(
        "array", _vectors, "io.debezium.data.FloatVector", told={"items": {"type": "float", "optional": False}}
    ),
    **dict.fromkeys(_GEOMETRIES, _GEOMETRY),
}


def as_json(value: Any) -> str:
    """Without spaces, as the JSON converter writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
