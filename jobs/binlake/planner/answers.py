"""Schema changes that wait for somebody's yes or no, and what was answered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from binlake import names
from binlake.config.schema_change_tools import has_tools_name
from binlake.position import Position
from binlake.schema.table import TableName

ANSWERED_NO = ", and the answer is no"
"""Ends the reason of a table that a no leaves as it is."""


@dataclass(frozen=True)
class HeldChange:
    """A schema change at which a table waits. It is kept with the statement in the DDL history.

    changes: what it does, in words. asked: the settings that ask, such as ``add: ask``. left_out: new columns that the
    lake goes without after a no. no: what a no does, in words. freezes: a no leaves the table as it is. copies: the
    table continues with a snapshot, as the rows of its new shape came by a tool's copy.
    """

    changes: tuple[str, ...]
    asked: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    no: str = ""
    freezes: bool = False
    copies: bool = False


@dataclass(frozen=True)
class Answer:
    """Somebody's decision about a schema change.

    table_id, file, offset, created: the table's life, and the statement's place. name: of the table, which a RENAME
    TABLE changes here, too. left_out: columns that the lake goes without from then on. freezes: a no leaves the table
    as it is; None where an older binlake recorded the answer.
    """

    table_id: str
    name: TableName
    file: str
    offset: int
    created: int
    yes: bool
    left_out: tuple[str, ...] = ()
    freezes: bool | None = None

    def is_about(self, table_id: str, where: Position) -> bool:
        """Return whether it is about the statement at this place, for this life of a table."""
        place = (where.file, where.offset, where.created)
        return self.table_id == table_id and (self.file, self.offset, self.created) == place


def patterns_left_out(answers: Iterable[Answer]) -> tuple[str, ...]:
    """Return patterns, as ``tables.exclude_columns`` has them, of the columns that the lake goes without by a no."""
    return tuple(
        f"{names.pattern_of(answer.name.database, answer.name.table)}.{column}"
        for answer in answers
        for column in answer.left_out
    )


def renamed(answers: tuple[Answer, ...], pairs: Iterable[tuple[TableName, TableName]]) -> tuple[Answer, ...]:
    """Return the answers under the names that their tables have after a batch. pairs: old and new names.

    A name that a schema change tool gives to what it leaves behind takes no answer with it.
    """
    known = {old: new for old, new in pairs if not has_tools_name(new.table)}
    return tuple(replace(answer, name=known.get(answer.name, answer.name)) for answer in answers)
