"""Strings of bytes, BLOBs, and geometries: four bytes of SRID and the WKB, as the server stores them."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from binlake.schema.types.datatype import (
    DataType,
    KeyBound,
    as_written,
    lake_sha,
    on_server,
    one_unless_written,
    server_sha,
)

GEOMETRIES_BY_NUMBER = (
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
)  # fmt: skip
"""Names by the number that the log has for them. MySQL calls the last one geomcollection."""
GEOMETRY_NUMBERS = {name: number for number, name in enumerate(GEOMETRIES_BY_NUMBER)} | {"geomcollection": 7}
GEOMETRIES = frozenset(GEOMETRY_NUMBERS)


def _bytes_type(expression: str = "{}") -> DataType:
    """Return the entry of a type whose values are bytes. expression: the server's SQL for them, over the name."""
    return DataType(
        arrow=lambda column: pa.binary(),
        delta=lambda column: "BINARY",
        select=lambda column: expression.format(on_server(column)),
        server_text=lambda column: server_sha(expression.format(on_server(column))),
        lake_text=lake_sha,
    )


_BOUND = KeyBound(lambda column: f"HEX({on_server(column)})", lambda column, collation, digits: f"_binary X'{digits}'")
_BYTES = replace(_bytes_type(), implicit_default=lambda column: "")
# A part, which is all of it: drivers interpret geometry columns, the bytes are wanted as stored. By HEX and back, or by
# a cast, they would be NULL on MariaDB where they, or their digits, are more than max_allowed_packet.
_GEOMETRY = replace(_bytes_type("SUBSTRING({}, 1)"), has_default=False)
TYPES = {
    "binary": replace(_BYTES, length=one_unless_written, implicit_default=lambda column: "0x", bound=_BOUND),
    "varbinary": replace(_BYTES, length=as_written, bound=_BOUND),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), replace(_BYTES, has_default=False)),
    **dict.fromkeys(GEOMETRIES, _GEOMETRY),
}
