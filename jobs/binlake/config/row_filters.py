"""Which rows of a table the lake has: conditions by pattern of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator

from binlake import names
from binlake.config.schema_change_tools import changed_table, has_no_rows_of_it, hides_original
from binlake.config.section import Section, TablePattern
from binlake.schema.row_condition import CONDITION_REMEDY, RefusedCondition, parsed


def _is_understood(text: str) -> str:
    try:
        parsed(text)
    except RefusedCondition as error:
        raise ValueError(f"{text[:60]!r}: {error}; {CONDITION_REMEDY}") from None
    return text.strip()


class RowFilter(Section):
    """The rows of some tables that the lake has. where: true for each of them, over the table's columns.

    A condition that is false or NULL for a row leaves it out.
    """

    tables: TablePattern
    where: Annotated[str, AfterValidator(_is_understood)]


def condition_of(filters: Sequence[RowFilter], database: str, table: str) -> str:
    """Return the condition of a table's rows: that of all entries that name it; empty for all rows.

    Entries also count that name the table of which it is a schema change tool's copy, by its name. Where the name
    doesn't show which, those of all tables of the database do.
    """

    def counts(entry: RowFilter) -> bool:
        if hides_original(table):
            return names.matches_database(entry.tables, database)
        changed = None if has_no_rows_of_it(table) else changed_table(table)
        return any(names.matches(entry.tables, database, name) for name in {table, changed or table})

    conditions = [entry.where for entry in filters if counts(entry)]
    return conditions[0] if len(conditions) == 1 else " AND ".join(f"({condition})" for condition in conditions)
