"""Generated columns whose values ALTER TABLE changes in existing rows, because it changes what they are computed from.

The servers recompute a generated column from the altered columns and log no row. Comparisons and searches use the
collation of the columns that they read; if no column has one (texts made of numbers), they use the table's default.
Neither server allows a stored function in a generated column. Tried on MySQL 9.7 and MariaDB 10.11.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from binlake.schema import arithmetic
from binlake.schema.arithmetic import END, column_of, tokens_of
from binlake.schema.table import Column, TableSchema, Virtual
from binlake.schema.virtual import NOT_TEXT

_WITHOUT_COLLATION = frozenset(
    """
    ABS BIT_LENGTH CHARACTER_LENGTH CHAR_LENGTH COALESCE CONCAT CRC32 HEX IFNULL LEFT LENGTH MD5 MID OCTET_LENGTH RIGHT
    SHA SHA1 SHA2 SUBSTR SUBSTRING
    """.split()  # noqa: SIM905 words read better than a list
)
"""Functions whose result doesn't depend on the collation of their arguments."""
_OPERATORS = frozenset("+-*/,()")


@dataclass(frozen=True)
class Altered:
    """What ALTER TABLE does to columns, named by their new names in lower case.

    retyped: columns whose values or types change, or that are generated differently. added: new columns. recollated:
    texts whose collation may change. default_collation: the table's own may change.
    """

    retyped: frozenset[str]
    added: frozenset[str]
    recollated: frozenset[str]
    default_collation: bool


def computed_anew(schema: TableSchema, altered: Altered) -> list[Column]:
    """Return the generated columns of the altered table whose old rows may have other values, chains included."""
    changed = altered.retyped | altered.added
    computed: list[Column] = []
    waiting = [column for column in schema.columns if column.generated and not column.row_time]
    while reached := [column for column in waiting if _is_reached(column, schema, altered, changed)]:
        computed += reached
        changed |= {column.name.lower() for column in reached}
        waiting = [column for column in waiting if column not in reached]
    return computed


def _is_reached(column: Column, schema: TableSchema, altered: Altered, changed: frozenset[str]) -> bool:
    if column.expression is None:  # recorded before STORED columns' expressions were
        return bool(altered.retyped or altered.recollated or altered.default_collation)
    read = _read(column.expression, schema.columns)
    if read & changed:
        return True
    # The rebuild computes STORED columns in the session's time zone and language.
    if altered.retyped and column.virtual is None and not _is_arithmetic(column, schema):
        return True
    recollated = altered.default_collation or bool(read & altered.recollated)
    return recollated and _has_collation(column.expression, schema.columns)


def _read(expression: Virtual, columns: Sequence[Column]) -> frozenset[str]:
    named = (column_of(columns, token) for token in tokens_of(expression))
    return frozenset(column.name.lower() for column in named if column is not None)


def _is_arithmetic(column: Column, schema: TableSchema) -> bool:
    try:
        arithmetic.parsed(column, schema)
    except arithmetic.NotComputable:
        return False
    return True


def _has_collation(expression: Virtual, columns: Sequence[Column]) -> bool:
    """Tell whether the value may depend on a collation: not if the expression neither compares nor searches texts."""
    tokens = tokens_of(expression)
    exact = numbers = True
    for token, following in zip(tokens, (*tokens[1:], END), strict=True):
        if token.kind == "word" and following.key == "(":
            exact, numbers = exact and token.key in _WITHOUT_COLLATION, False
        elif (column := column_of(columns, token)) is not None:
            numbers = numbers and column.type in NOT_TEXT
        elif token.kind in ("string", "bytes"):
            numbers = False
        elif token.kind != "number" and token.key not in _OPERATORS:
            exact = exact and token.text.startswith("_")  # the character set of a string
    return not (exact or numbers)
