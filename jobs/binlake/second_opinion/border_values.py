"""Conversion of mysql-replication's values to those of binlog.border."""

from __future__ import annotations

import json
from datetime import UTC, timedelta
from decimal import Decimal
from typing import Any

from binlake.schema.table import BYTES, Column

_MICROSECOND = timedelta(microseconds=1)


def plain(column: Column, value: Any) -> Any:
    """Return the border's value. Text for which the package has no codec stays bytes."""
    kind = column.type
    if value is None:
        return None
    if kind == "decimal":
        return value if (column.precision or 10) <= 38 else format(value, "f")
    if kind == "bigint" and column.unsigned:
        return Decimal(value)
    if kind == "bit":
        bits = int(value, 2)
        return bool(bits) if (column.length or 1) == 1 else bits.to_bytes(len(value) + 7 >> 3, "big")
    if kind == "timestamp":
        return value.replace(tzinfo=UTC)
    if kind == "time":
        return value // _MICROSECOND
    if kind == "set":
        return ",".join(name for name in column.values if name in value)
    if kind == "json":
        return document_text(value)
    if kind in BYTES and value == "":
        return b""
    return value


def same(column: Column, ours: Any, theirs: Any) -> bool:
    """Return whether a value of the border and one of the package are exactly the same; JSON compares as documents."""
    if ours is None or theirs is None:
        return (ours is None) == (theirs is None)
    try:
        if column.type == "json":
            return _canonical(json.loads(ours)) == _canonical(document(theirs))
        return _identical(ours, plain(column, theirs))
    except (AttributeError, TypeError, ValueError):
        return False  # not even of the column's type


def _identical(ours: Any, theirs: Any) -> bool:
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, float):
        return ours.hex() == str(theirs.hex())  # -0.0 isn't 0.0
    if isinstance(ours, Decimal):
        return ours.as_tuple() == Decimal(theirs).as_tuple()
    return bool(ours == theirs)


def document(value: Any) -> Any:
    """Convert the package's JSON document, whose strings and keys are bytes; values that JSON lacks become text."""
    if isinstance(value, dict):
        return {key.decode(): document(item) for key, item in value.items()}
    if isinstance(value, list):
        return [document(item) for item in value]
    if isinstance(value, bytes):
        return value.decode()
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def document_text(value: Any) -> str:
    """Return a document's text. It has the server's spacing, but some numbers are written differently."""
    return json.dumps(document(value), ensure_ascii=False)


def has_opaque(value: Any) -> bool:
    """Return whether a document has values for which JSON has no type: decimals, times, bytes."""
    if isinstance(value, dict):
        return any(map(has_opaque, value.values()))
    if isinstance(value, list):
        return any(map(has_opaque, value))
    return not (value is None or isinstance(value, bool | int | float | bytes))


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)  # 1, 1.0 and true are equal in Python, their texts aren't
