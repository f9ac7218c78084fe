"""Conditions on rows of metadata tables, as the SQL of their predicates."""

from __future__ import annotations

from dataclasses import dataclass

from binlake.schema.table import TableName


def literal(value: str | int | None) -> str:
    """Return a literal for the SQL of predicates and updates."""
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def quoted(column: str) -> str:
    """Return a column's name, quoted for SQL."""
    return '"' + column.replace('"', '""') + '"'


def rows_of(name: TableName) -> str:
    """Return the predicate of a table's rows, by the table's name."""
    return f'"database" = {literal(name.database)} AND "table" = {literal(name.table)}'


@dataclass(frozen=True)
class Newest:
    """The ``count`` rows with the highest ``by``, highest first; rows without it come last.

    per: so many for each combination of these columns' values, in no order.
    """

    by: str
    count: int
    per: tuple[str, ...] = ()

    @property
    def order(self) -> str:
        """Return the ORDER BY clause."""
        return f"ORDER BY {quoted(self.by)} DESC NULLS LAST"
