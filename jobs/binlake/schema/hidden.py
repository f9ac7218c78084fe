"""Columns that MariaDB keeps in a table, logs with its rows, and shows nobody."""

from __future__ import annotations

import re

from binlake.schema.table import Column, TableSchema

_HASH = re.compile(r"DB_ROW_HASH_[1-9][0-9]*")


def without_hashes(logged: tuple[Column, ...], schema: TableSchema) -> tuple[Column, ...]:
    """The columns of a table map without those in which MariaDB keeps the hashes of long unique keys.

    They stand at its end, unsigned BIGINT, each under the first such name that no other column has
    (add_hash_field, sql/sql_table.cc). The map marks them by nothing, and a table may have an own column of this name:
    only who knows the shape can tell.
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
