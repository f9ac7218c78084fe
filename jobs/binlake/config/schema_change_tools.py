"""Names that online schema change tools give to tables.

A name alone decides nothing but what is withheld: a column that is excluded of a table is excluded of tables with the
names of its copies, too. Whether a table is a tool's follows from what it did (planner/tool_tables.py).

Sources: gh-ost (doc/cheatsheet.md), pt-online-schema-change (--new-table-name), LHM (lib/lhm), spirit (README), Vitess
("Table lifecycle", "Online DDL artifacts").
"""

from __future__ import annotations

import re

from binlake.schema.table import TableName

_COPIES = tuple(map(re.compile, (r"_+(?P<table>.+)_(?:gho|new)\Z", r"lhmn_(?P<table>.+)\Z")))
"""gh-ost, pt-online-schema-change and spirit; LHM."""
_OTHERS = tuple(
    map(
        re.compile,
        (
            r"_+(?P<table>.+?)_(?:\d{14}_)?(?:ghc|del|chkpnt)\Z",
            r"_+(?P<table>.+?)_old(?:_\d{8}_\d{6})?\Z",
            r"lhma_(?:\d+_){7}(?P<table>.+)\Z",
        ),
    )
)
"""Logs of changes, check points, and originals after the swap."""
_BOOKS = re.compile(r"_(?:ghc|chkpnt)\Z")
_WITHOUT_ORIGINAL = re.compile(r"_vt_\w+|_[0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12}_\d{14}_\w+")
"""Vitess, whose names don't contain the table's."""


def copied_table(table: str) -> str | None:
    """Return the table of which another may be the copy that a tool fills, by their names; None where it is none."""
    return _table_in(_COPIES, table)


def is_copy_of(name: TableName, table: TableName) -> bool:
    """Return whether a name is that of a copy which a tool fills of a table."""
    return name.database == table.database and copied_table(name.table) == table.table


def changed_table(table: str) -> str | None:
    """Return the table that a tool may change with the help of another, by their names; None where it can't."""
    return None if hides_original(table) else _table_in((*_COPIES, *_OTHERS), table)


def hides_original(table: str) -> bool:
    """Return whether a name is one that a tool gives, without the name of the table that is changed."""
    return _WITHOUT_ORIGINAL.fullmatch(table) is not None


def has_no_rows_of_it(table: str) -> bool:
    """Return whether a name is that of a tool's log of changes or check points, which has none of the table's rows."""
    return _BOOKS.search(table) is not None


def has_tools_name(table: str) -> bool:
    """Return whether a name is one that a tool gives."""
    return hides_original(table) or changed_table(table) is not None


def _table_in(forms: tuple[re.Pattern[str], ...], table: str) -> str | None:
    return next((match["table"] for form in forms if (match := form.match(table))), None)
