"""Which rows of a table the lake has: conditions by pattern of tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Self

from pydantic import AfterValidator, model_validator

from binlake import names
from binlake.config.schema_change_tools import changed_table, has_no_rows_of_it, hides_original
from binlake.config.section import Section, TablePattern


def _is_understood(text: str) -> str:
    from binlake.schema.row_condition import CONDITION_REMEDY, RefusedCondition, parsed  # most YAMLs have no condition

    try:
        parsed(text)
    except RefusedCondition as error:
        raise ValueError(f"{text[:60]!r}: {error}; {CONDITION_REMEDY}") from None
    return text.strip()


RowConditionText = Annotated[str, AfterValidator(_is_understood)]


class RowFilter(Section):
    """The rows of some tables that the lake has. where: true for each of them, over the table's columns.
    snapshot_where: true for each row that a snapshot copies; what the log has of others is mirrored all the same.

    A condition that is false or NULL for a row leaves it out.
    """

    tables: TablePattern
    where: RowConditionText | None = None
    snapshot_where: RowConditionText | None = None

    @model_validator(mode="after")
    def _has_a_condition(self) -> Self:
        if self.where is None and self.snapshot_where is None:
            raise ValueError(f"{self.tables}: found neither where nor snapshot_where; write one of them, or both")
        return self


def condition_of(filters: Sequence[RowFilter], database: str, table: str) -> str:
    """Return the condition of a table's rows: that of all entries that name it; empty for all rows.

    Entries also count that name the table of which it is a schema change tool's copy, by its name. Where the name
    doesn't show which, those of all tables of the database do.
    """
    return _all_of(entry.where for entry in _entries(filters, database, table))


def snapshot_condition_of(filters: Sequence[RowFilter], database: str, table: str) -> str:
    """Return the condition that a table's snapshots ask for beside that of its rows; empty without one. Entries count
    as for ``condition_of``."""
    return _all_of(entry.snapshot_where for entry in _entries(filters, database, table))


def _entries(filters: Sequence[RowFilter], database: str, table: str) -> Iterator[RowFilter]:
    changed = None if has_no_rows_of_it(table) else changed_table(table)
    for entry in filters:
        if hides_original(table):
            counts = names.matches_database(entry.tables, database)
        else:
            counts = any(names.matches(entry.tables, database, name) for name in {table, changed or table})
        if counts:
            yield entry


def _all_of(conditions: Iterable[str | None]) -> str:
    every = [condition for condition in conditions if condition]
    return every[0] if len(every) == 1 else " AND ".join(f"({condition})" for condition in every)
