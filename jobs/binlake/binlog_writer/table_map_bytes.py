"""Encoding of TABLE_MAP events: a table in one shape, with all that ``binlog_row_metadata=FULL`` adds.

The inverse of ``binlog.tablemap``; the manuals are named there.
"""

from __future__ import annotations

from collections.abc import Sequence

from binlake.binlog.tablemap import Meta
from binlake.binlog_writer.packed_numbers import packed_bytes, packed_integer
from binlake.errors import UnsupportedColumn
from binlake.position import Flavour
from binlake.schema import charsets
from binlake.schema.datatypes import REGISTRY
from binlake.schema.table import Column, TableName
from binlake.schema.types.byte_types import GEOMETRY_NUMBERS
from binlake.schema.types.log_form import COLLATED, SIGNED_OR_NOT, Field, Wire

_BINARY = "binary"
_NAMES_LISTED = (Wire.ENUM, Wire.SET)


def fields_of(columns: Sequence[Column]) -> tuple[Field, ...]:
    """Return how the log encodes columns. Raises UnsupportedColumn."""
    return tuple(_field(column) for column in columns)


def _field(column: Column) -> Field:
    if (known := REGISTRY.get(column.type)) is None:
        raise UnsupportedColumn(
            f"column {column.name!r} has the type {column.type.upper()}, which isn't written into a binlog",
            remedy="exclude the table from the feed",
        )
    return Field(known.log.wire, known.log.size(column), column)


def table_map(table_id: int, name: TableName, fields: Sequence[Field], key: Sequence[str], flavour: Flavour) -> bytes:
    """Return the event's body."""
    body = bytearray(table_id.to_bytes(6, "little") + b"\x01\x00")
    for word in (name.database, name.table):
        data = word.encode()
        body += bytes([len(data)]) + data + b"\0"
    types, metadata = _types(fields)
    body += packed_integer(len(fields)) + types + packed_bytes(metadata)
    body += _packed_flags([field.column.nullable for field in fields], low_first=True)
    for kind, value in _optional(fields, key, flavour):
        body += bytes([kind]) + packed_bytes(value)
    return bytes(body)


def _types(fields: Sequence[Field]) -> tuple[bytes, bytes]:
    """Return the type codes, and the metadata of each type."""
    types, metadata = bytearray(), bytearray()
    for field in fields:
        types.append(Wire.STRING if field.wire in _NAMES_LISTED else field.wire)
        metadata += REGISTRY[field.column.type].log.metadata(field)
    return bytes(types), bytes(metadata)


def _optional(fields: Sequence[Field], key: Sequence[str], flavour: Flavour) -> list[tuple[Meta, bytes]]:
    """Return the optional metadata in the servers' order; fields that no column needs are left out."""
    columns = [field.column for field in fields]
    names = [column.name for column in columns]
    listed = [field for field in fields if field.wire in _NAMES_LISTED]
    optional = [
        (
            Meta.SIGNEDNESS,
            _packed_flags([f.column.unsigned for f in fields if f.wire in SIGNED_OR_NOT], low_first=False),
        ),
        (Meta.COLUMN_CHARSET, _collations([f for f in fields if f.wire in COLLATED[flavour]])),
        (Meta.COLUMN_NAME, b"".join(packed_bytes(name.encode()) for name in names)),
        (Meta.SET_VALUES, _values([f for f in listed if f.wire is Wire.SET])),
        (Meta.ENUM_VALUES, _values([f for f in listed if f.wire is Wire.ENUM])),
        (
            Meta.GEOMETRY_TYPE,
            bytes(GEOMETRY_NUMBERS[f.column.type] for f in fields if f.wire is Wire.GEOMETRY),
        ),
        (Meta.SIMPLE_PRIMARY_KEY, b"".join(packed_integer(names.index(name)) for name in key)),
        (Meta.ENUM_SET_COLUMN_CHARSET, _collations(listed)),
    ]
    if flavour == "mysql":
        vectors = [f.column.length or 0 for f in fields if f.wire is Wire.VECTOR]
        shown = [not column.invisible for column in columns]
        optional.append((Meta.VISIBILITY, b"" if all(shown) else _packed_flags(shown, low_first=False)))
        optional.append((Meta.VECTOR_DIMENSIONS, b"".join(map(packed_integer, vectors))))
    return [(kind, value) for kind, value in optional if value]


def _collations(fields: Sequence[Field]) -> bytes:
    return b"".join(packed_integer(charsets.default_collation(field.column.charset or _BINARY)) for field in fields)


def _values(fields: Sequence[Field]) -> bytes:
    lists = bytearray()
    for field in fields:
        charset = field.column.charset
        encode = charsets.encoder(charset) if charset and charset != _BINARY else str.encode
        lists += packed_integer(len(field.column.values))
        lists += b"".join(packed_bytes(encode(value)) for value in field.column.values)
    return bytes(lists)


def _packed_flags(flags: Sequence[bool], *, low_first: bool) -> bytes:
    data = bytearray((len(flags) + 7) // 8)
    for at, flag in enumerate(flags):
        data[at >> 3] |= flag << (at & 7 if low_first else 7 - (at & 7))
    return bytes(data)
