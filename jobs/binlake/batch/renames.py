"""RENAME TABLE with several pairs: which table has which name afterwards."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from binlake.schema.table import TableName

Pair = tuple[TableName, TableName]


@dataclass(frozen=True)
class RenameOutcome:
    """Names after RENAME TABLE.

    moved: (life id, old name, new name) of lives with another name than before. unknown: (old, new) of tables that have
    no life here. taken: the names that tables of the statement have afterwards.
    """

    moved: tuple[tuple[str, TableName, TableName], ...]
    unknown: tuple[Pair, ...]
    taken: frozenset[TableName]


def done(pairs: Sequence[Pair], there: Collection[TableName]) -> tuple[Pair, ...]:
    """Return the pairs of RENAME TABLE IF EXISTS without those that did nothing, as their first table wasn't there.

    there: names of tables before the statement, of which there may be more. A pair did nothing where its new name is
    one of these, and its old name isn't.
    """
    taken, renamed = set(there), []
    for old, new in pairs:
        if old in taken or new not in taken:
            taken = taken - {old} | {new}
            renamed.append((old, new))
    return tuple(renamed)


def outcome(pairs: Sequence[Pair], lives: Mapping[TableName, str]) -> RenameOutcome:
    """Apply the pairs one after the other, as the server does. lives: life id by name.

    A table that is renamed twice moves once, to its last name.
    """
    held: dict[TableName, TableName] = {}  # the name now → the name before the statement
    for old, new in pairs:
        held[new] = held.pop(old, old)
    final = {new: old for new, old in held.items() if new != old}
    return RenameOutcome(
        tuple((lives[old], old, new) for new, old in final.items() if old in lives),
        tuple((old, new) for new, old in final.items() if old not in lives),
        frozenset(held),
    )
