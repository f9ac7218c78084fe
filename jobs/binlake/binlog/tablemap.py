"""TABLE_MAP_EVENT: the log's description of a table, enough to decode its rows without a recorded schema.

Manuals: MySQL source documentation, "Table_map_event" (rows_event.h), with the optional metadata that
``binlog_row_metadata=FULL`` adds; MariaDB knowledge base, TABLE_MAP_EVENT (the same numbers).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import IntEnum

from binlake.binlog.events import ByteCursor
from binlake.errors import Malformed
from binlake.schema import charsets
from binlake.schema.datatypes import BY_WIRE, REGISTRY
from binlake.schema.table import BLOBS, LONG_TEXTS, Column, TableName
from binlake.schema.types.byte_types import GEOMETRIES_BY_NUMBER
from binlake.schema.types.log_form import (
    CHARACTER,
    COLLATED,
    NUMERIC,
    ONE_BYTE,
    SIGNED_OR_NOT,
    TWO_BYTES,
    Field,
    Wire,
)

NO_METADATA_REMEDY = (
    "SET GLOBAL binlog_row_metadata=FULL (since MySQL 8.0 and MariaDB 10.5, dynamic; reconnect writing sessions if "
    "they set their own), then take a new snapshot of the table"
)


class Meta(IntEnum):
    """Kinds of the optional metadata fields."""

    SIGNEDNESS = 1
    DEFAULT_CHARSET = 2
    COLUMN_CHARSET = 3
    COLUMN_NAME = 4
    SET_VALUES = 5
    ENUM_VALUES = 6
    GEOMETRY_TYPE = 7
    SIMPLE_PRIMARY_KEY = 8
    PRIMARY_KEY_WITH_PREFIX = 9
    ENUM_SET_DEFAULT_CHARSET = 10
    ENUM_SET_COLUMN_CHARSET = 11
    VISIBILITY = 12
    VECTOR_DIMENSIONS = 13


class Undecodable(Exception):
    """One table can't be decoded; ``remedy`` says what to do. The reader yields a ``Stopped`` for it."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


@dataclass(frozen=True)
class TableMap:
    """A table in one shape. key: names of the primary key's columns, in the key's order."""

    name: TableName
    fields: tuple[Field, ...]
    key: tuple[str, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns, in the order of the table."""
        return tuple(field.column for field in self.fields)


def table_name(body: bytes, id_size: int) -> tuple[int, TableName, int]:
    """Return table id, name, and the offset behind it, without reading the rest. Raises Malformed."""
    cursor = ByteCursor(body)
    return cursor.uint(id_size), _name(cursor), cursor.at


def _name(cursor: ByteCursor) -> TableName:
    cursor.skip(2)
    database = cursor.packed_bytes().decode("utf-8", "strict")
    cursor.skip(1)
    table = cursor.packed_bytes().decode("utf-8", "strict")
    cursor.skip(1)
    return TableName(database, table)


def parse(body: bytes, id_size: int, *, mariadb: bool) -> TableMap:
    """Parse the whole event body. Raises Malformed, and Undecodable if metadata are missing or a type is unknown."""
    cursor = ByteCursor(body, id_size)
    name = _name(cursor)
    return TableMap(name, *parse_shape(cursor.rest(), mariadb=mariadb))


def parse_shape(behind_name: bytes, *, mariadb: bool) -> tuple[tuple[Field, ...], tuple[str, ...]]:
    """Return the fields and the key of a table map, by its bytes behind the table's name. Raises as ``parse``."""
    cursor = ByteCursor(behind_name)
    count = cursor.packed()
    types = cursor.take(count)
    meta = ByteCursor(cursor.packed_bytes())
    nullable = _bits(cursor.take((count + 7) // 8), count, low_first=True)
    wires: list[tuple[Wire, int, int]] = []
    for code in types:
        try:
            wire = Wire(code)
        except ValueError:
            raise Undecodable(f"a column has the type code {code}", "exclude the table in the YAML") from None
        first = meta.uint(1) if wire in ONE_BYTE or wire in TWO_BYTES else 0
        second = meta.uint(1) if wire in TWO_BYTES else 0
        wires.append(_real(wire, first, second))
    optional: dict[int, bytes] = {}
    while cursor.left:
        kind = cursor.uint(1)
        optional[kind] = cursor.packed_bytes()
    if Meta.COLUMN_NAME not in optional:
        raise Undecodable("the log was written without column names", NO_METADATA_REMEDY)
    return _assemble(wires, nullable, optional, COLLATED["mariadb" if mariadb else "mysql"])


def _real(wire: Wire, first: int, second: int) -> tuple[Wire, int, int]:
    if wire is Wire.STRING:
        if first in (Wire.ENUM, Wire.SET):
            return Wire(first), second, 0
        # CHAR above 255 bytes keeps two bits of its length, inverted, in the type byte
        return wire, second | (((first & 0x30) ^ 0x30) << 4), 0
    if wire in (Wire.VARCHAR, Wire.VAR_STRING, Wire.VARCHAR_COMPRESSED):
        return wire, first | second << 8, 0
    return wire, first, second


def _bits(data: bytes, count: int, *, low_first: bool) -> list[bool]:
    if len(data) * 8 < count:
        raise Malformed("a bitmap is too short")
    return [bool(data[at >> 3] >> (at & 7 if low_first else 7 - (at & 7)) & 1) for at in range(count)]


def _packed_list(data: bytes) -> list[int]:
    cursor = ByteCursor(data)
    numbers: list[int] = []
    while cursor.left:
        numbers.append(cursor.packed())
    return numbers


def _collations(optional: dict[int, bytes], default: Meta, each: Meta, count: int) -> list[int]:
    """Return the collation numbers of ``count`` columns, from whichever of the two fields is present."""
    if each in optional:
        numbers = _packed_list(optional[each])
        if len(numbers) != count:
            raise Malformed(f"{len(numbers)} collations for {count} columns")
        return numbers
    if default not in optional:
        return [0] * count
    numbers = _packed_list(optional[default])
    if not len(numbers) % 2:
        raise Malformed("collations without a default")
    collations = [numbers[0]] * count
    for place, number in zip(numbers[1::2], numbers[2::2], strict=True):
        if place >= count:
            raise Malformed("a collation of no column")
        collations[place] = number
    return collations


def _values(optional: dict[int, bytes], kind: Meta, count: int) -> list[list[bytes]]:
    cursor = ByteCursor(optional.get(kind, b""))
    lists: list[list[bytes]] = []
    while cursor.left:
        lists.append([cursor.packed_bytes() for _ in range(cursor.packed())])
    if len(lists) != count:
        raise Undecodable("the log was written without ENUM or SET values", NO_METADATA_REMEDY)
    return lists


class _ColumnMetadata:
    """Reader of the optional metadata, column by column: ``field`` must be called once for each, in their order."""

    def __init__(self, wires: list[Wire], optional: dict[int, bytes], collated: set[Wire]) -> None:
        self._collated = collated
        numeric = sum(wire in SIGNED_OR_NOT for wire in wires)
        self._unsigned = iter(_bits(optional.get(Meta.SIGNEDNESS, b""), numeric, low_first=False))
        strings = sum(wire in collated for wire in wires)
        self._texts = iter(_collations(optional, Meta.DEFAULT_CHARSET, Meta.COLUMN_CHARSET, strings))
        enums, sets = wires.count(Wire.ENUM), wires.count(Wire.SET)
        by_default, each = Meta.ENUM_SET_DEFAULT_CHARSET, Meta.ENUM_SET_COLUMN_CHARSET
        self._lists = iter(_collations(optional, by_default, each, enums + sets))
        self._enums = iter(_values(optional, Meta.ENUM_VALUES, enums))
        self._sets = iter(_values(optional, Meta.SET_VALUES, sets))
        self._geometries = iter(_packed_list(optional.get(Meta.GEOMETRY_TYPE, b"")))
        self._dimensions = iter(_packed_list(optional.get(Meta.VECTOR_DIMENSIONS, b"")))

    def field(self, column: Column, wire: Wire, first: int, second: int) -> Field:
        """Return the next column's field. column: with name and nullability only. first, second: bytes of metadata."""
        size = first
        sign = wire in SIGNED_OR_NOT and next(self._unsigned)
        collation = next(self._texts) if wire in self._collated else 0
        if wire in NUMERIC:
            column = dataclasses.replace(column, unsigned=sign)
        if wire is Wire.VECTOR:
            column = dataclasses.replace(column, length=next(self._dimensions, None))
        elif wire is Wire.GEOMETRY:
            kind = next(self._geometries, 0)
            if kind >= len(GEOMETRIES_BY_NUMBER):
                raise Malformed(f"geometry type {kind}")
            column = dataclasses.replace(column, type=GEOMETRIES_BY_NUMBER[kind])
        elif wire in (Wire.ENUM, Wire.SET):
            collation = next(self._lists)
            charset = _charset(collation, column.name)
            raw = next(self._enums) if wire is Wire.ENUM else next(self._sets)
            values = tuple(_decode(value, charset, column.name) for value in raw)
            column = dataclasses.replace(column, charset=charset, values=values)
        elif wire in CHARACTER:
            column, size = _character(column, wire, first, _charset(collation, column.name))
        else:
            column, size = REGISTRY[column.type].log.described(column, first, second)
        return Field(wire, size, column, collation)


def _assemble(
    wires: list[tuple[Wire, int, int]], nullable: list[bool], optional: dict[int, bytes], collated: set[Wire]
) -> tuple[tuple[Field, ...], tuple[str, ...]]:
    cursor = ByteCursor(optional[Meta.COLUMN_NAME])
    names = [cursor.packed_bytes().decode("utf-8") for _ in wires]
    if len(set(names)) != len(names):
        raise Malformed("two columns of one name")
    metadata = _ColumnMetadata([wire for wire, _, _ in wires], optional, collated)
    shown = optional.get(Meta.VISIBILITY)
    visible = _bits(shown, len(wires), low_first=False) if shown is not None else [True] * len(wires)
    fields: list[Field] = []
    for place, (wire, first, second) in enumerate(wires):
        column = Column(names[place], BY_WIRE.get(wire, ""), nullable=nullable[place], invisible=not visible[place])
        fields.append(metadata.field(column, wire, first, second))
    return tuple(fields), _key(optional, names)


def _character(column: Column, wire: Wire, length: int, charset: str) -> tuple[Column, int]:
    binary = charset == "binary"
    if wire in (Wire.BLOB, Wire.BLOB_COMPRESSED):
        if not 1 <= length <= len(BLOBS):
            raise Malformed(f"a blob with a length of {length} bytes")
        kind = (BLOBS if binary else LONG_TEXTS)[length - 1]
        return dataclasses.replace(column, type=kind, charset=None if binary else charset), length
    size = 1 if length < 256 else 2
    if wire is Wire.VARCHAR_COMPRESSED:
        length -= 1  # the byte that says how the rest is compressed
    kind = "binary" if binary else "char"
    if wire is not Wire.STRING:
        kind = f"var{kind}"
    characters = length // charsets.bytes_per_character(charset)
    return dataclasses.replace(column, type=kind, length=characters, charset=None if binary else charset), size


def _charset(collation: int, column: str) -> str:
    if collation == 0:
        raise Undecodable(f"the log doesn't show the character set of {column!r}", NO_METADATA_REMEDY)
    name = charsets.charset(collation)
    if name is None:
        raise Undecodable(
            f"column {column!r} has the collation number {collation}, which isn't known",
            "convert the column to utf8mb4, or exclude the table in the YAML",
        )
    return name


def _decode(value: bytes, charset: str, column: str) -> str:
    try:
        return value.decode("utf-8") if charset == "binary" else charsets.decoder(charset)(value)
    except UnicodeDecodeError:
        raise Undecodable(
            f"a value in the definition of {column!r} isn't valid {charset}", "exclude the table in the YAML"
        ) from None


def _key(optional: dict[int, bytes], names: list[str]) -> tuple[str, ...]:
    if Meta.SIMPLE_PRIMARY_KEY in optional:
        places = _packed_list(optional[Meta.SIMPLE_PRIMARY_KEY])
    else:
        places = _packed_list(optional.get(Meta.PRIMARY_KEY_WITH_PREFIX, b""))[::2]
    if any(place >= len(names) for place in places):
        raise Malformed("a key over no column")
    return tuple(names[place] for place in places)
