"""The schema of a Delta table as Iceberg has it: types, ids of columns, and bounds of values.

Readers find a column in a data file by its id where the file has ids, and else by the name mapping, whose names are
those of the columns in data files. So an id belongs to one such name for ever: where Delta's column mapping is on, it
is that of the mapping.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from functools import cached_property
from typing import Any

import pyarrow.parquet as pq

from binlake.delta.delta_actions import Add
from binlake.delta.delta_schema import COMMENT, OWN_ID, TYPE_CHANGES, element_id, id_of
from binlake.delta.file_columns import FileColumns
from binlake.delta.key_ranges import PHYSICAL_NAME
from binlake.errors import LakeError

_TYPES = {
    "byte": "int", "short": "int", "integer": "int", "long": "long", "float": "float", "double": "double",
    "string": "string", "binary": "binary", "boolean": "boolean", "date": "date", "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_PROMOTIONS = {("int", "long"), ("float", "double")}
_MILLISECOND_US = 999
"""The most microseconds that an upper bound of times lacks, as Delta cuts it to milliseconds."""
_EXACT = Context(prec=100)
_EPOCH = datetime(1970, 1, 1)


IcebergType = str | Mapping[str, Any]
"""A type as JSON has it."""


@dataclass(frozen=True)
class IcebergColumn:
    """A column. stored: its name in data files. kind: its type; of a list, that of its elements."""

    id: int
    name: str
    stored: str
    kind: str
    comment: str = ""
    is_list: bool = False

    @property
    def type(self) -> IcebergType:
        """Return the type as JSON has it."""
        if not self.is_list:
            return self.kind
        number = element_id(self.id)
        return {"type": "list", "element-id": number, "element": self.kind, "element-required": False}

    @property
    def mapping(self) -> dict[str, Any]:
        """Return how the column is found in data files without ids, as JSON has it."""
        elements = {"fields": [{"field-id": element_id(self.id), "names": ["element"]}]} if self.is_list else {}
        return {"field-id": self.id, "names": [self.stored], **elements}


@dataclass(frozen=True)
class IcebergSchema:
    """A table's columns at a version."""

    columns: tuple[IcebergColumn, ...]
    partition: tuple[str, ...] = ()
    """The names of columns that are in no data file: a file's partition has their values."""

    @property
    def partition_columns(self) -> list[IcebergColumn]:
        """Return the columns that are in no data file."""
        return [self.by_stored_name[name] for name in self.partition]

    def partition_of(self, values: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return a data file's partition. values: as Delta's log has them, where an empty text is NULL."""
        return {name: values.get(name) or None for name in self.partition}

    @cached_property
    def fields(self) -> list[dict[str, Any]]:
        """Return the columns as JSON has them."""
        return [
            {"id": column.id, "name": column.name, "required": False, "type": column.type}
            | ({"doc": column.comment} if column.comment else {})
            for column in self.columns
        ]

    @cached_property
    def by_stored_name(self) -> dict[str, IcebergColumn]:
        """Return the columns by their names in data files."""
        return {column.stored: column for column in self.columns}


def schema_of(
    fields: Sequence[Mapping[str, Any]], known: Mapping[str, int], partition: Sequence[str] = ()
) -> IcebergSchema:
    """Return the schema of Delta's fields. known: ids that were given, by the column's name in data files; where column
    mapping is on, its ids count. partition: the names of the columns by which the Delta table is partitioned: then it
    names data files of several tables, and its columns' own ids count, which agree with these files.

    Raises LakeError for a type that isn't published.
    """
    most = max(known.values(), default=0)
    columns: list[IcebergColumn] = []
    for field in fields:
        own = field["metadata"]
        stored = own.get(PHYSICAL_NAME, field["name"])
        number = own.get(OWN_ID) if partition else id_of(field) or known.get(stored)
        if number is None and partition:
            raise LakeError(
                "it shows data files of several tables, and its columns have no ids yet",
                remedy="run binlake sync or binlake maintain: they give them ids",
            )
        if number is None:
            number = most = most + 1
        is_list = isinstance(field["type"], Mapping) and field["type"]["type"] == "array"
        columns.append(IcebergColumn(int(number), field["name"], stored, _kind(field), own.get(COMMENT, ""), is_list))
    return IcebergSchema(tuple(columns), tuple(partition))


def _kind(field: Mapping[str, Any]) -> str:
    kind = _iceberg_type(field["type"])
    for change in field["metadata"].get(TYPE_CHANGES, ()):
        before, after = _iceberg_type(change["fromType"]), _iceberg_type(change["toType"])
        if before is None or after is None or not promotes(before, after):
            kind = None
    if kind is None:
        raise LakeError(
            f"column {field['name']!r} has a type that Iceberg has no name for: {field['type']}",
            remedy="leave the table out of iceberg.tables, or exclude the column (a widened DATE or INT)",
        )
    return kind


def _iceberg_type(kind: Any) -> str | None:
    if isinstance(kind, Mapping):  # of the lake's types a list of numbers alone is one
        kind = kind["elementType"] if kind["type"] == "array" else None
    if not isinstance(kind, str):
        return None
    if match := _DECIMAL.fullmatch(kind):
        return f"decimal({match[1]}, {match[2]})"
    return _TYPES.get(kind)


def promotes(before: IcebergType, after: IcebergType) -> bool:
    """Return whether Iceberg's readers read values of one type as another, or the types are one."""
    if before == after:
        return True
    if not (isinstance(before, str) and isinstance(after, str)):
        return False
    if (before, after) in _PROMOTIONS:
        return True
    old, new = _DECIMAL.fullmatch(before), _DECIMAL.fullmatch(after)
    return bool(old and new and old[2] == new[2] and int(old[1]) <= int(new[1]))


def has_other_ids(footer: pq.FileMetaData, known: Mapping[str, int]) -> bool:
    """Return whether readers would take a column of a data file for another one of the table, or for none. known: ids
    by the columns' names in data files."""
    return not FileColumns.of(footer.schema.to_arrow_schema()).agree_with(known)


def statistics(add: Add, schema: IcebergSchema) -> dict[str, Any]:
    """Return what a manifest says of a data file's values, by Delta's statistics, of which anything may be missing.

    A missing bound lets readers look into the file.
    """
    stated = json.loads(add.stats or "{}", parse_float=Decimal)
    partition = schema.partition_of(add.fields.get("partitionValues") or {})
    in_each = {name: value for name, value in partition.items() if value is not None}
    rows, nulls = stated.get("numRecords"), {**(stated.get("nullCount") or {}), **dict.fromkeys(in_each, 0)}
    low, high = ({**(stated.get(bounds) or {}), **in_each} for bounds in ("minValues", "maxValues"))
    values, null_values, lower, upper = [], [], [], []
    for column in sorted((each for each in schema.columns if not each.is_list), key=lambda column: column.id):
        if rows is not None and isinstance(count := nulls.get(column.stored), int):
            values.append({"key": column.id, "value": rows})
            null_values.append({"key": column.id, "value": count})
        if (bound := _encoded(column.kind, low.get(column.stored), is_upper=False)) is not None:
            lower.append({"key": column.id, "value": bound})
        if (bound := _encoded(column.kind, high.get(column.stored), is_upper=True)) is not None:
            upper.append({"key": column.id, "value": bound})
    return {
        "value_counts": values or None, "null_value_counts": null_values or None,
        "lower_bounds": lower or None, "upper_bounds": upper or None,
    }  # fmt: skip


def _encoded(kind: str, bound: Any, *, is_upper: bool) -> bytes | None:
    """Return a bound of Delta's statistics as Iceberg writes it; None where there is none, or it can't be written."""
    if bound is None:
        return None
    try:
        if kind in ("int", "long"):
            return int(bound).to_bytes(4 if kind == "int" else 8, "little", signed=True)
        if kind == "string" and isinstance(bound, str):
            return bound.encode()
        if kind == "date":
            return (date.fromisoformat(bound) - _EPOCH.date()).days.to_bytes(4, "little", signed=True)
        if kind in ("timestamp", "timestamptz"):
            return struct.pack("<q", _microseconds(bound) + (_MILLISECOND_US if is_upper else 0))
        if match := _DECIMAL.fullmatch(kind):
            scaled = Decimal(bound).scaleb(int(match[2]), _EXACT)
            whole = int(scaled.to_integral_value(ROUND_CEILING if is_upper else ROUND_FLOOR, _EXACT))
            return whole.to_bytes((whole + (whole < 0)).bit_length() // 8 + 1, "big", signed=True)
    except (ValueError, TypeError, OverflowError, InvalidOperation, struct.error):
        pass
    return None


def _microseconds(text: str) -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return (moment - _EPOCH) // timedelta(microseconds=1)
