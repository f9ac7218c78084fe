"""ENUM and SET: the names of their members, in the lake as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from binlake.errors import Malformed
from binlake.kernels.arrays import texts
from binlake.position import Flavour
from binlake.schema.table import TEXTS, Column
from binlake.schema.types import text_types
from binlake.schema.types.connect_form import ConnectForm, ConnectSettings, ConnectType, as_texts
from binlake.schema.types.constants import Literal, characters
from binlake.schema.types.datatype import NUMBERED, compare_as, on_server
from binlake.schema.types.log_form import (
    EncodeColumn,
    Field,
    FilledBuffers,
    Finish,
    Gathered,
    LogForm,
    Wire,
    fixed,
    mapped,
)
from binlake.schema.types.text_sizes import keeps_characters, least_characters


def _members_gathered(kernel: str, sizes: tuple[int, ...]) -> Callable[[Field], Gathered]:
    """Return a hook that gathers numbers of members. sizes: the bytes that values can have."""

    def gathered(field: Field) -> Gathered:
        if field.size not in sizes:
            raise Malformed(f"{field.wire.name} of {field.size} bytes")
        return Gathered(kernel, size=field.size, first=len(field.column.values))

    return gathered


def _enum_finish(field: Field) -> Finish:
    dictionary = texts(("", *field.column.values))

    def finish(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: FilledBuffers, used: int) -> pa.Array:
        return dictionary.take(fixed(pa.int32(), rows, validity, nulls, column, used))

    return finish


def _enum_encode(field: Field) -> EncodeColumn:
    codes = {name: place for place, name in enumerate(("", *field.column.values))}
    return lambda array: mapped(array, lambda text: codes[text].to_bytes(field.size, "little"))


def _set_finish(field: Field) -> Finish:
    names = field.column.values

    def finish(wanted: pa.DataType, rows: int, validity: Any, nulls: int, column: FilledBuffers, used: int) -> pa.Array:
        masks, codes = _distinct(column.data[: 8 * rows].view(np.uint64), len(names))
        combined = [",".join(name for place, name in enumerate(names) if mask >> place & 1) for mask in masks.tolist()]
        places = pa.Array.from_buffers(
            pa.int32(), rows, [validity, pa.py_buffer(codes.reshape(-1).astype(np.int32))], nulls
        )
        return texts(combined).take(places)

    return finish


def _distinct(masks: npt.NDArray[np.uint64], names: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the distinct masks, and for each row the index of its mask among them."""
    if names > 16:
        return np.unique(masks, return_inverse=True)
    small = masks.astype(np.intp)
    distinct = np.flatnonzero(np.bincount(small, minlength=1))
    places = np.zeros(1 << names, np.int32)
    places[distinct] = np.arange(len(distinct))
    return distinct, places[small]


def _set_size(column: Column) -> int:
    size = (len(column.values) + 7) // 8
    return 8 if size > 4 else max(size, 1)


def _set_encode(field: Field) -> EncodeColumn:
    bits = {name: 1 << place for place, name in enumerate(field.column.values)}
    return lambda array: mapped(
        array, lambda text: sum(bits[item] for item in text.split(",") if text).to_bytes(field.size, "little")
    )


def _members_metadata(field: Field) -> bytes:
    return bytes([field.wire, field.size])


_ENUM_LOG = LogForm(
    Wire.ENUM,
    lambda column: 1 if len(column.values) < 256 else 2,
    _members_gathered("CODE", (1, 2)),
    _enum_finish,
    _enum_encode,
    alone=(Wire.ENUM,),
    metadata=_members_metadata,
)
_SET_LOG = LogForm(
    Wire.SET,
    _set_size,
    _members_gathered("MASK", (1, 2, 3, 4, 8)),
    _set_finish,
    _set_encode,
    alone=(Wire.SET,),
    metadata=_members_metadata,
)


# statements -----------------------------------------------------------------------------------------------------------
def _converts(before: Column, after: Column, strict: bool) -> bool:
    if after.type == before.type:
        kept = [value for value in after.values if value in before.values]
        if len(kept) != len(before.values):
            return False  # another member may have been found for one that went
        appended = after.values[: len(before.values)] == before.values
        in_order = before.type == "enum" or tuple(kept) == before.values
        same_charset = before.charset == after.charset
        return in_order and (strict or (appended and same_charset))
    if after.type not in TEXTS:
        return False
    longest = max(map(len, before.values), default=0)
    if before.type == "set":
        longest = sum(map(len, before.values)) + max(len(before.values) - 1, 0)
    fits = longest <= least_characters(after)
    return (strict or fits) and keeps_characters(before.charset or "binary", after.charset or "", strict)


def _enum_default(column: Column, literal: Literal, flavour: Flavour) -> str | None:
    if literal.kind == "number":
        return None  # a number is a member's place, or its text
    return _member(column.values, characters(literal, column.charset).rstrip(" "))


def _set_default(column: Column, literal: Literal, flavour: Flavour) -> str | None:
    if literal.kind == "number":
        return None
    text = characters(literal, column.charset)
    members = [_member(column.values, part) for part in text.split(",")] if text else []
    return None if None in members else ",".join(value for value in column.values if value in members)


def _member(values: tuple[str, ...], text: str) -> str | None:
    """Return the member of an ENUM or SET that equals the text, or the only one that differs in case; else None."""
    if text in values:
        return text
    alike = [value for value in values if value.casefold() == text.casefold()]
    return alike[0] if len(alike) == 1 else None


def _connect(name: str) -> Callable[[Column, ConnectSettings], ConnectType]:
    return lambda column, settings: ConnectType("string", as_texts, name, {"allowed": ",".join(column.values)})


# entries --------------------------------------------------------------------------------------------------------------
def _listed(column: Column, literal: str, operator: str) -> str:
    """Return a comparison as a list of numbers, of which the servers make ranges of an index."""
    # 0 is the empty value that a server that isn't strict takes for any other.
    numbers = [n for n in range(len(column.values) + 1) if _COMPARISONS[operator](n, int(literal))]
    return f"{on_server(column)} IN ({', '.join(map(str, numbers))})" if numbers else "FALSE"


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "<": int.__lt__,
    ">": int.__gt__,
    ">=": int.__ge__,
}
_MOST_LISTED = 255
"""The most values an ENUM column may have to carry bounds; each condition lists them."""
_BOUND = replace(
    NUMBERED,
    condition=_listed,
    is_usable=lambda column: len(column.values) <= _MOST_LISTED,
    is_end=lambda column, literal, first: int(literal) == (0 if first else len(column.values)),
)
_MEMBERS = replace(text_types.TEXT, has_members=True, compared_as=compare_as("other"), converts=_converts)
TYPES = {
    "enum": replace(
        _MEMBERS,
        log=_ENUM_LOG,
        connect=ConnectForm(_connect("io.debezium.data.Enum"), jdbc=1, length=lambda column: 1),
        default_text=_enum_default,
        implicit_default=lambda column: column.values[0],
        bound=_BOUND,
        compared_as=compare_as("member"),
    ),
    "set": replace(
        _MEMBERS,
        log=_SET_LOG,
        connect=ConnectForm(
            _connect("io.debezium.data.EnumSet"), jdbc=1, length=lambda column: max(2 * len(column.values) - 1, 1)
        ),
        default_text=_set_default,
    ),
}
