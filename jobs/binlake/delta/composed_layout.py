"""The columns of a table that is composed of others: the union of theirs, while their shapes differ.

A column is known by its name, whose case doesn't matter. Where the parts give it different types it has the one that
holds all values of the others; where there is none, it keeps the type that it has until no part has it any more, and a
part with another type isn't shown until then.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from binlake.delta.delta_schema import COMMENT, id_of
from binlake.delta.key_ranges import PHYSICAL_NAME

DeltaField = Mapping[str, Any]
"""A field of Delta's schema."""
_WHOLE = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""Types of whole numbers, and the digits of their values."""
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_MOST_DIGITS = 38


@dataclass(frozen=True)
class ComposedColumn:
    """A column of the composed table. kind: its type, as Delta's schema writes it. physical: its name in data files.
    number: its id there, where the table's columns have ids."""

    name: str
    kind: Any
    physical: str
    comment: str = ""
    number: int | None = None


def physical_of(field: DeltaField) -> str:
    """Return the name that a column has in data files."""
    name: str = field["metadata"].get(PHYSICAL_NAME, field["name"])
    return name


def wider(one: Any, other: Any) -> Any:
    """Return the type that holds all values of two types; None where there is none of these."""
    if one == other:
        return one
    if not (isinstance(one, str) and isinstance(other, str)):
        return None
    if {one, other} == {"float", "double"}:
        return "double"
    if one in _WHOLE and other in _WHOLE:
        return max(one, other, key=_WHOLE.__getitem__)
    digits = [_digits(one), _digits(other)]
    if None in digits:
        return None
    whole = max(before for before, _ in digits)  # type: ignore[misc]
    scale = max(behind for _, behind in digits)  # type: ignore[misc]
    return f"decimal({whole + scale},{scale})" if whole + scale <= _MOST_DIGITS else None


def _digits(kind: str) -> tuple[int, int] | None:
    """Return the digits before and behind the point of a number's type; None for any other."""
    if kind in _WHOLE:
        return _WHOLE[kind], 0
    if match := _DECIMAL.fullmatch(kind):
        return int(match[1]) - int(match[2]), int(match[2])
    return None


def refused(parts: Mapping[str, Sequence[DeltaField]], before: Sequence[DeltaField]) -> dict[str, str]:
    """Return the parts whose columns don't go together with the others', and why. before: the table's own fields."""
    kept = {field["name"].lower(): field["type"] for field in before}
    kinds: dict[str, Any] = {}
    for name in {field["name"].lower(): None for fields in parts.values() for field in fields}:
        there = [field["type"] for fields in parts.values() for field in fields if field["name"].lower() == name]
        before_fits = name in kept and any(wider(kept[name], kind) == kept[name] for kind in there)
        kinds[name] = kept[name] if before_fits else there[0]
        for kind in there:
            kinds[name] = wider(kinds[name], kind) or kinds[name]
    why: dict[str, str] = {}
    for part, fields in parts.items():
        for field in fields:
            kind = kinds[field["name"].lower()]
            if wider(kind, field["type"]) != kind:
                has, others = (text if isinstance(text, str) else text["type"] for text in (field["type"], kind))
                why.setdefault(part, f"its column {field['name']!r} is {has}, and {others} in others")
    return why


def columns_of(parts: Sequence[Sequence[DeltaField]], before: Sequence[DeltaField]) -> list[ComposedColumn]:
    """Return the columns of the composed table: those that it has, in their order, then those that come. parts: that go
    together."""
    names = {field["name"].lower(): field["name"] for fields in reversed(parts) for field in fields}
    names |= {field["name"].lower(): field["name"] for field in before if field["name"].lower() in names}
    ordered = [*(field["name"].lower() for field in before if field["name"].lower() in names)]
    ordered += [name for fields in parts for name in (field["name"].lower() for field in fields)]
    columns: list[ComposedColumn] = []
    taken: set[str] = set()
    in_files = {field["name"].lower(): physical_of(field) for field in before}
    for name in dict.fromkeys(ordered):
        own = [field for fields in parts for field in fields if field["name"].lower() == name]
        kind = own[0]["type"]
        for field in own:
            kind = wider(kind, field["type"])
        counted = Counter(map(physical_of, own))
        wanted = sorted(counted, key=lambda text: (-counted[text], text != in_files.get(name), text))
        physical = next((text for text in [*wanted, names[name]] if text.lower() not in taken), None)
        number = 0
        while physical is None:
            number += 1
            other = f"{names[name]}-{number}"
            physical = None if other.lower() in taken else other
        taken.add(physical.lower())
        comment = next((str(field["metadata"][COMMENT]) for field in own if COMMENT in field["metadata"]), "")
        columns.append(ComposedColumn(names[name], kind, physical, comment))
    return columns


def with_ids(
    columns: Sequence[ComposedColumn], known: Mapping[str, int], parts: Iterable[Sequence[DeltaField]]
) -> list[ComposedColumn]:
    """Return the columns, each with an id. known: the ids that columns have or had, by their names in data files, which
    stay. A new column gets the id that most of the parts give it, unless another has that: such parts' data files are
    written again."""
    given: dict[str, Counter[int]] = {}
    for field in (field for fields in parts for field in fields):
        if number := id_of(field):
            given.setdefault(physical_of(field), Counter())[number] += 1
    taken = {*known.values()}
    most = max([0, *taken, *(number for counted in given.values() for number in counted)])
    numbered: list[ComposedColumn] = []
    for column in columns:
        chosen = known.get(column.physical)
        if chosen is None:
            wanted = [number for number, _ in given.get(column.physical, Counter[int]()).most_common()]
            chosen = next((number for number in wanted if number not in taken), most + 1)
            taken.add(chosen)
            most = max(most, chosen)
        numbered.append(replace(column, number=chosen))
    return numbered


def signature(columns: Sequence[ComposedColumn], fields: Sequence[DeltaField]) -> str:
    """Return a text that differs where a part's data files are written otherwise for the composed table."""
    own = {field["name"].lower(): field for field in fields}
    made = [
        (
            column.physical,
            column.kind,
            physical_of(own[column.name.lower()]),
            *filter(None, [column.number]),
        )
        for column in columns
        if column.name.lower() in own
    ]
    return json.dumps(made, sort_keys=True)
