"""Masks in a table's shape: which columns have one, and which can't be shown beside them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from binlake.errors import ConfigurationError
from binlake.schema.expressions import Expressions, column_of
from binlake.schema.mask import Mask
from binlake.schema.masking import refusal
from binlake.schema.table import INTEGERS, TEXTS, Column, TableSchema

_WORD = re.compile(r"[\w$]+")
UNCOVERED_REMEDY = (
    "add its new name to columns or tables.exclude_columns in the YAML, then run binlake snapshot --tables TABLE"
)


def with_masks(schema: TableSchema, masks: Mapping[str, Mask]) -> TableSchema:
    """Return the shape with these masks, by column in lower case; the table may lack some of the columns.

    A generated column over a masked one, without a mask of its own, is excluded: its values would show what the mask
    hides. Raises ConfigurationError for a mask that a column can't have.
    """
    key = {name.lower() for name in schema.key}
    for column in schema.columns:
        mask = masks.get(column.name.lower())
        if mask and (why := refusal(column, mask, in_key=column.name.lower() in key)):
            raise ConfigurationError(
                f"the column {column.name!r} can't be masked: {why}", remedy="change its entry of columns in the YAML"
            )
    masked = schema.masking(masks)
    showing = computed_from(masked, masked.masks.keys()) - masked.masks.keys() - masked.excluded
    return masked.excluding(masked.excluded | showing) if showing else masked


def computed_from(schema: TableSchema, names: Collection[str]) -> frozenset[str]:
    """Return the generated columns, in lower case, whose values depend on columns with these names, or may."""
    generated = [column for column in schema.columns if column.generated and not column.row_time]
    if not generated or not names:
        return frozenset()
    expressions = Expressions(schema.columns)
    depending: set[str] = set()
    while more := {
        column.name.lower()
        for column in generated
        if column.name.lower() not in depending and _names(expressions, column, {*names, *depending})
    }:
        depending |= more
    return frozenset(depending)


def _names(expressions: Expressions, column: Column, names: set[str]) -> bool:
    if column.expression is None or expressions.are_too_long:
        return True
    named = (column_of(expressions.columns, token) for token in expressions.tokens_of(column))
    return any(other is not None and other.name.lower() in names for other in named)


def uncovered(
    withheld: Collection[str], origins: Sequence[str | None], after: TableSchema, now: Collection[str]
) -> str:
    """Return why a statement would show what a mask or an exclusion hides; empty if it doesn't.

    withheld: names of the columns that were masked or excluded before it, in lower case. origins: the names that the
    columns of ``after`` had. now: as withheld, behind the statement.
    """
    for origin, column in zip(origins, after.columns, strict=True):
        if origin and origin.lower() in withheld and column.name.lower() not in now:
            renamed = f"is called {column.name} now" if column.name != origin else "is in a table of another name now"
            return f"the column {origin!r}, which the YAML masks or excludes, {renamed}, where the YAML does neither"
    return ""


def may_be_renamed(
    before: TableSchema, now: TableSchema | None, withheld: Collection[str], texts: Iterable[str]
) -> bool:
    """Return whether a column that was withheld may have another name now.

    now: None for a shape that isn't known. withheld: names in lower case. texts: of the statements in between.
    """
    if now is None:
        return True
    there, names = ({column.served_name.lower() for column in shape.columns} for shape in (before, now))
    hidden = there.intersection(withheld)
    if not names.issuperset(hidden) and not names.issubset(there.union(withheld)):
        return True
    words = (set(_WORD.findall(text.lower())) for text in texts)  # names may have been swapped
    return any(not {"rename", "change"}.isdisjoint(each) and not hidden.isdisjoint(each) for each in words)


def may_have_left(before: TableSchema, now: TableSchema, withheld: Collection[str]) -> bool:
    """Return whether a table may be one that was called otherwise, a withheld column of which has another name since.

    before: the shape with which that one was renamed. A table that lacks most of the columns that it showed isn't it.
    """
    there, names = ({column.served_name.lower() for column in shape.columns} for shape in (before, now))
    shown = there.difference(withheld)
    is_alike = 2 * len(shown & names) >= len(shown)
    return is_alike and (may_be_renamed(before, now, withheld, ()) or may_be_swapped(before, now, withheld))


def may_be_swapped(before: TableSchema, now: TableSchema, withheld: Collection[str]) -> bool:
    """Return whether a withheld column may have given its name to another one that is still there: columns that both
    shapes have come in another order."""
    there, names = ([column.served_name.lower() for column in shape.columns] for shape in (before, now))
    common = set(there).intersection(names)
    in_order = [name for name in there if name in common] == [name for name in names if name in common]
    return not in_order and not common.isdisjoint(withheld)


def unmaskable(
    before: TableSchema,
    after: TableSchema,
    origins: Sequence[str | None],
    filled: Collection[str],
    retyped: Collection[str],
) -> tuple[str, ...]:
    """Return why the lake's values of masked columns can't follow a statement; none where they can.

    filled: names of columns of ``after`` in which old rows got a constant. retyped: those, in lower case, that the
    statement gives other types or members; which members an ENUM or SET has isn't known where it is masked.
    """
    reasons: list[str] = []
    for origin, column in zip(origins, after.columns, strict=True):
        old = before.column(origin) if origin else None
        if column.name.lower() in after.excluded or (old is None and column.mask is None):
            continue
        if old is not None and old.mask != column.mask:
            reasons.append(f"column {column.name!r} is masked otherwise than the values that the lake has of it")
        elif column.mask is None or column.mask.kind == "nothing":
            continue
        elif column.name in filled:
            reasons.append(f"old rows got a constant in the masked column {column.name!r}")
        elif old is not None and not _has_same_texts(old, column, is_retyped=column.served_name.lower() in retyped):
            reasons.append(f"the masked column {column.name!r} has another type")
    return tuple(reasons)


def _has_same_texts(old: Column, new: Column, *, is_retyped: bool) -> bool:
    """Return whether values that an ALTER keeps have the same text before and after it."""
    if new.type in ("enum", "set") and is_retyped:
        return False
    if old.type in INTEGERS or old.type in TEXTS:
        return new.type in (INTEGERS if old.type in INTEGERS else TEXTS)
    parts = ("type", "unsigned", "length", "precision", "scale", "fraction", "values")
    return all(getattr(old, part) == getattr(new, part) for part in parts)
