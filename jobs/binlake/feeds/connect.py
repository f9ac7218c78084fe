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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from itertools import pairwise
from json.encoder import encode_basestring
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlake.feed_config import DebeziumFormat
from binlake.feeds import base64_numbers
from binlake.feeds.text import PLAIN_SCALE
from binlake.schema.table import Column

quoted_json: Callable[[str], str] = encode_basestring
Fragments: TypeAlias = pa.StringArray
"""Of each row its value as JSON, the text ``null`` where there is none."""
_ESCAPED = r'["\\\x00-\x1f]'
"""What JSON has no other way to write."""
_MOST_DIGITS = 18
_EXACT = Context(prec=100)
"""Python's own rounds to 28 digits."""
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
            else ConnectType("boolean", _printed)
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
    return ConnectType("bytes", _unscaled(precision, scale), "org.apache.kafka.connect.data.Decimal", parameters)


# values ---------------------------------------------------------------------------------------------------------------
def joined(*parts: pa.StringArray | str) -> pa.StringArray:
    """Texts behind each other, row by row; null where one of them is. A part may be one for all rows."""
    return pc.binary_join_element_wise(*(pa.scalar(one) if isinstance(one, str) else one for one in parts), "")


def quoted(texts: pa.StringArray) -> pa.StringArray:
    """JSON's strings; null stays null."""
    odd = pc.fill_null(pc.match_substring_regex(texts, _ESCAPED), False)
    if pc.any(odd).as_py():
        escaped = [quoted_json(text)[1:-1] for text in texts.filter(odd).to_pylist()]
        texts = pc.replace_with_mask(texts, odd, pa.array(escaped, pa.string()))
    return joined('"', texts, '"')


def _fragments(values: pa.StringArray) -> Fragments:
    return pc.fill_null(values, "null")


def _each(render: Callable[[Any], str]) -> Callable[[pa.Array], Fragments]:
    """One value after the other."""
    return lambda values: _fragments(
        pa.array([None if value is None else render(value) for value in values.to_pylist()], pa.string())
    )


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


_same_bits = _each(lambda value: str(int(value) - (1 << 64 if value >= 1 << 63 else 0)))
_doubles = _each(lambda value: repr(float(value)))
"""NaN and infinities, which MySQL hasn't, would be no JSON."""


def _printed(values: pa.Array) -> Fragments:
    """true and false; of a single-precision number the shortest text that is it, as Java prints it."""
    return _fragments(values.cast(pa.string()))


def _texts(values: pa.Array) -> Fragments:
    return _fragments(quoted(values.cast(pa.string())))


def _decimal_texts(values: pa.Array) -> Fragments:
    if pa.types.is_decimal(values.type) and values.type.scale > PLAIN_SCALE:
        return _each(lambda value: f'"{value:f}"')(values)
    return _texts(values)


def encoded(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode()}"'


_base64 = _each(encoded)
_hexadecimal = _each(lambda value: f'"{value.hex()}"')
_bits = _each(lambda value: encoded(value[::-1]))


def unscaled(value: Decimal, scale: int) -> bytes:
    """A decimal's digits as the shortest big-endian number in two's complement, as Java's BigInteger has it."""
    number = int(value.scaleb(scale, _EXACT))
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def _unscaled(precision: int, scale: int) -> Callable[[pa.Array], Fragments]:
    if precision > _MOST_DIGITS:
        return _each(lambda value: encoded(unscaled(Decimal(value), scale)))

    def render(values: pa.Array) -> Fragments:
        return pc.if_else(values.is_null(), "null", base64_numbers.quoted(numbers_of(values)))

    return render


def numbers_of(values: pa.Decimal128Array) -> np.ndarray[Any, Any]:
    """The digits of decimals of up to 18 digits as int64; of null anything."""
    words = np.frombuffer(values.buffers()[1], np.int64)
    return words[2 * values.offset : 2 * (values.offset + len(values)) : 2]


def _zoned(fraction: int) -> Callable[[pa.Array], Fragments]:
    def render(values: pa.Array) -> Fragments:
        kind = "s" if fraction == 0 else "us"
        texts = pc.strftime(values.cast(pa.timestamp(kind, "UTC"), safe=False), "%Y-%m-%dT%H:%M:%S")
        cut = pc.utf8_slice_codeunits(texts, 0, 20 + fraction if fraction else 19)
        return _fragments(joined('"', cut, 'Z"'))

    return render


def _geometry(stored: bytes) -> str:
    """Four bytes of SRID, then WKB; of none the SRID is null, as the connector has it."""
    srid = int.from_bytes(stored[:4], "little")
    return f'"wkb":{encoded(stored[4:])},"srid":{srid or "null"}'


def _point(stored: bytes) -> str:
    x, y = struct.unpack("<dd" if stored[4] == 1 else ">dd", stored[9:25])
    return f'{{"x":{x!r},"y":{y!r},{_geometry(stored)}}}'


_geometries = _each(lambda value: f"{{{_geometry(value)}}}")
_points = _each(_point)


def _vectors(values: pa.Array) -> Fragments:
    inside = _printed(values.values).to_pylist() if len(values) else []
    bounds = values.offsets.to_pylist()
    texts = (f"[{','.join(inside[start:end])}]" for start, end in pairwise(bounds))
    return pc.if_else(values.is_null(), "null", pa.array(texts, pa.string()))


_GEOMETRY_FIELDS = [
    {"type": "bytes", "optional": False, "field": "wkb"},
    {"type": "int32", "optional": True, "field": "srid"},
]
_POINT_FIELDS = [{"type": "double", "optional": False, "field": axis} for axis in "xy"]
_GEOMETRY = ConnectType(
    "struct", _geometries, "io.debezium.data.geometry.Geometry", told={"fields": _GEOMETRY_FIELDS}
)  # fmt: skip
_SIMPLE: dict[str, ConnectType] = {
    "float": ConnectType("float", _printed),
    "double": ConnectType("double", _doubles),
    "date": ConnectType("int32", _numbers, "io.debezium.time.Date"),
    "time": ConnectType("int64", _numbers, "io.debezium.time.MicroTime"),
    "year": ConnectType("int32", _numbers, "io.debezium.time.Year"),
    "json": ConnectType("string", _texts, "io.debezium.data.Json"),
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
