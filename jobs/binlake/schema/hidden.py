"""Hidden columns: MariaDB stores them in a table and logs them with its rows, but no statement shows them."""

from __future__ import annotations

import re

from binlake.schema.table import Column, TableSchema

_HASH = re.compile(r"DB_ROW_HASH_[1-9][0-9]*")


def without_hashes(logged: tuple[Column, ...], schema: TableSchema) -> tuple[Column, ...]:
    """Return the columns of a table map without those that hold MariaDB's hashes of long unique keys.

    These are the last columns, unsigned BIGINT, named by the first free name of a series (add_hash_field,
    sql/sql_table.cc). The map doesn't mark them, and a table may have a column of its own with such a name: the
    recorded shape decides.
    """
    count = len(logged)
    while count and _may_be_hash(logged[count - 1]) and not schema.has(logged[count - 1].name):
        count -= 1
    return logged[:count]


def is_hidden_hash(name: str, schema: TableSchema) -> bool:
    """Return whether a column of the log is a hash that MariaDB keeps for a long unique key."""
    return _HASH.fullmatch(name) is not None and not schema.has(name)


def _may_be_hash(column: Column) -> bool:
    return column.type == "bigint" and column.unsigned and _HASH.fullmatch(column.name) is not None
