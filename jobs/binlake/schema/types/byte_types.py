"""Strings of bytes, BLOBs, and geometries: four bytes of SRID and the WKB, as the server stores them."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from binlake.position import Flavour
from binlake.schema.table import BLOBS, Column
from binlake.schema.types.connect_form import ConnectForm, ConnectType, always, as_staged, each
from binlake.schema.types.constants import Literal, characters
from binlake.schema.types.datatype import (
    DataType,
    KeyBound,
    as_written,
    compare_as,
    lake_sha,
    on_server,
    one_unless_written,
    server_sha,
)
from binlake.schema.types.log_form import (
    Field,
    Gathered,
    LogForm,
    Wire,
    behind_length,
    binary,
    finished,
    its_size,
    length_size,
    prefixed,
    string_metadata,
)
from binlake.schema.types.text_sizes import most_bytes

GEOMETRIES_BY_NUMBER = (
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
)  # fmt: skip
"""Names by the number that the log has for them. MySQL calls the last one geomcollection."""
GEOMETRY_NUMBERS = {name: number for number, name in enumerate(GEOMETRIES_BY_NUMBER)} | {"geomcollection": 7}
GEOMETRIES = frozenset(GEOMETRY_NUMBERS)


def _log(wire: Wire, length_bytes: int) -> LogForm:
    """Return the form of bytes behind their length."""
    return LogForm(
        wire,
        lambda column: length_bytes,
        behind_length,
        finished(binary),
        lambda field: lambda array: prefixed(array.to_pylist(), field.size),
        metadata=its_size,
    )


def _with_length(wire: Wire, gathered: Callable[[Field], Gathered]) -> LogForm:
    """Return the form of bytes whose column has a length. wire: STRING or VARCHAR."""
    return replace(
        _log(wire, 0),
        size=lambda column: 1 if most_bytes(column) < 256 else 2,
        gathered=gathered,
        metadata=lambda field: string_metadata(wire, most_bytes(field.column)),
    )


def _padded(field: Field) -> Gathered:
    return Gathered("PADDED", length_size(field), first=field.column.length or 0)


def _bytes_type(log: LogForm, expression: str = "{}") -> DataType:
    """Return the entry of a type whose values are bytes. expression: the server's SQL for them, over the name."""
    return DataType(
        log=log,
        arrow=lambda column: pa.binary(),
        delta=lambda column: "BINARY",
        select=lambda column: expression.format(on_server(column)),
        server_text=lambda column: server_sha(expression.format(on_server(column))),
        lake_text=lake_sha,
        constant=lambda column, arrow, text: _stored(column, text),
        spark_constant=lambda column, text: f"X'{_stored(column, text).hex()}'",
    )


def _converts(before: Column, after: Column, strict: bool) -> bool:
    if after.type == "binary":
        return before.type == "binary" and before.length == after.length
    return (after.type == "varbinary" or after.type in BLOBS) and most_bytes(before) <= most_bytes(after)


def _default_text(column: Column, literal: Literal, flavour: Flavour) -> str:
    # Beyond ASCII the bytes depend on the session's character set.
    raw = bytes.fromhex(literal.text) if literal.kind == "bytes" else characters(literal, "ascii").encode("ascii")
    shown = raw.partition(b"\0")[0] if flavour == "mysql" else raw.rstrip(b"\0")
    return "" if not raw and column.type != "binary" else "0x" + shown.hex().upper()


def _stored(column: Column, text: str) -> bytes:
    """Return the bytes of a server's constant."""
    data = bytes.fromhex(text[2:]) if text[:2].lower() == "0x" else text.encode()
    return data.ljust(column.length or 0, bytes(1)) if column.type == "binary" else data


_IN_CONNECT = {
    "bytes": ConnectType("bytes", as_staged),
    "base64": ConnectType("string", each(lambda value: base64.b64encode(value).decode(), pa.string())),
    "hex": ConnectType("string", each(bytes.hex, pa.string())),
}


def _connect(jdbc: int) -> ConnectForm:
    return ConnectForm(lambda column, settings: _IN_CONNECT[settings.binary], jdbc)


def _geometry(stored: bytes) -> dict[str, Any]:
    """Split four bytes of SRID from the WKB; SRID 0 becomes null, as in Debezium's connector."""
    return {"wkb": stored[4:], "srid": int.from_bytes(stored[:4], "little") or None}


def _point(stored: bytes) -> dict[str, Any]:
    x, y = struct.unpack("<dd" if stored[4] == 1 else ">dd", stored[9:25])
    return {"x": x, "y": y, **_geometry(stored)}


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
_GEOMETRY_IN_CONNECT = ConnectType(
    "struct",
    each(_geometry, pa.struct(_ARROW_GEOMETRY)),
    "io.debezium.data.geometry.Geometry",
    more={"fields": _GEOMETRY_FIELDS, "doc": "Geometry"},
)
_POINT_IN_CONNECT = ConnectType(
    "struct",
    each(_point, pa.struct(_ARROW_POINT)),
    "io.debezium.data.geometry.Point",
    more={"fields": _POINT_FIELDS, "doc": "Geometry (POINT)"},
)
_BOUND = KeyBound(lambda column: f"HEX({on_server(column)})", lambda column, collation, digits: f"_binary X'{digits}'")
_BYTES = replace(
    _bytes_type(_log(Wire.BLOB, 2)),
    converts=_converts,
    connect=_connect(2004),
    compared_as=compare_as("bytes"),
    default_text=_default_text,
    implicit_default=lambda column: "",
)
# A part, which is all of it: drivers interpret geometry columns, the bytes are wanted as stored. By HEX and back, or by
# a cast, they would be NULL on MariaDB where they, or their digits, are more than max_allowed_packet.
_GEOMETRY = replace(
    _bytes_type(_log(Wire.GEOMETRY, 4), "SUBSTRING({}, 1)"),
    has_default=False,
    connect=always(_GEOMETRY_IN_CONNECT),
    converts=lambda before, after, strict: after.type in (before.type, "geometry"),
)
TYPES = {
    "binary": replace(
        _BYTES,
        log=_with_length(Wire.STRING, _padded),
        connect=_connect(-2),
        default_is_literal=True,
        length=one_unless_written,
        implicit_default=lambda column: "0x",
        bound=_BOUND,
    ),
    "varbinary": replace(
        _BYTES,
        log=_with_length(Wire.VARCHAR, behind_length),
        connect=_connect(-3),
        default_is_literal=True,
        length=as_written,
        bound=_BOUND,
    ),
    **{
        name: replace(_BYTES, log=_log(Wire.BLOB, length_bytes), has_default=False)
        for length_bytes, name in enumerate(BLOBS, 1)
    },
    **dict.fromkeys(GEOMETRIES, _GEOMETRY),
    "point": replace(_GEOMETRY, connect=always(_POINT_IN_CONNECT)),
}
