"""The collations of a table's columns, by the numbers that the log has for them."""

from __future__ import annotations

from binlake.schema.row_condition import RefusedCondition
from binlake.schema.row_matching import RowMatcher
from binlake.schema.table import TableName, TableSchema
from binlake.source.server import Source

_NAMES = (
    "SELECT c.column_name AS name, n.id AS number FROM information_schema.columns c"
    " JOIN information_schema.{view} n ON n.{name} = c.collation_name AND n.id IS NOT NULL"
    " WHERE c.table_schema = %s AND c.table_name = %s"
)
_MARIADB_1010 = (10, 10)
"""Since then MariaDB has collations of several character sets, which have a number for each."""


def collation_numbers(source: Source, name: TableName) -> dict[str, int]:
    """Return the number of each text's collation, by the columns' names in lower case."""
    several = source.is_mariadb and source.release.version >= _MARIADB_1010
    view, column = "collations", "collation_name"
    if several:
        view, column = "collation_character_set_applicability", "full_collation_name"
    rows = source.query(_NAMES.format(view=view, name=column), [name.database, name.table])
    return {str(row["name"]).lower(): int(row["number"]) for row in rows}


def no_condition(source: Source, name: TableName, schema: TableSchema) -> str:
    """Return why a table's condition can't be worked out for its collations; empty where it can, and without one.

    schema: one for which the condition is understood.
    """
    if not schema.where:
        return ""
    numbers = collation_numbers(source, name)
    columns = schema.logged
    try:
        RowMatcher(schema.where, columns, [numbers.get(column.served_name.lower(), 0) for column in columns])
    except RefusedCondition as error:
        return str(error)
    return ""
