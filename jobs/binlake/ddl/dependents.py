"""Generated columns whose values ALTER TABLE changes in existing rows, because it changes what they are computed from.

The servers recompute a generated column from the altered columns and log no row. Comparisons and searches use the
collation of the columns that they read; if no column has one (texts made of numbers), they use the table's default.
Neither server allows a stored function in a generated column. Tried on MySQL 9.7 and MariaDB 10.11.
"""

from __future__ import annotations

from dataclasses import dataclass

from binlake.schema.arithmetic import Formulas, NotComputable
from binlake.schema.expressions import END, Expressions, column_of
from binlake.schema.table import Column, TableSchema
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
    """Changes of columns by an ALTER TABLE, named by their new names in lower case.

    retyped: columns whose values or types change, or that are generated differently. added: new columns. recollated:
    texts whose collation may change. default_collation: the table's own may change.
    """

    retyped: frozenset[str]
    added: frozenset[str]
    recollated: frozenset[str]
    default_collation: bool


UNALTERED = Altered(frozenset(), frozenset(), frozenset(), False)


def recomputed(schema: TableSchema, altered: Altered) -> list[Column]:
    """Return the generated columns of the altered table whose old rows may have other values, chains included.

    Expressions that are too long to be analysed may depend on all that changed.
    """
    waiting = [column for column in schema.columns if column.generated and not column.row_time]
    expressions = Expressions(schema.columns)
    if expressions.are_too_long:
        return waiting if altered != UNALTERED else []
    formulas = Formulas(schema, expressions)
    reads = {column.name: _read(column, expressions) for column in waiting}
    computed: list[Column] = []
    reached = [column for column in waiting if _is_reached(column, reads[column.name], altered, formulas)]
    while reached:
        computed += reached
        names = {column.name for column in reached}
        waiting = [column for column in waiting if column.name not in names]
        changed = {name.lower() for name in names}
        reached = [column for column in waiting if reads[column.name] & changed]
    return computed


def _is_reached(column: Column, read: frozenset[str], altered: Altered, formulas: Formulas) -> bool:
    """Return whether what a statement alters may change the column's values. read: the columns that it is made of."""
    if column.expression is None:  # recorded before STORED columns' expressions were
        return bool(altered.retyped or altered.recollated or altered.default_collation)
    if read & (altered.retyped | altered.added):
        return True
    # The rebuild computes STORED columns in the session's time zone and language.
    if altered.retyped and column.virtual is None and not _is_arithmetic(column, formulas):
        return True
    recollated = altered.default_collation or bool(read & altered.recollated)
    return recollated and _has_collation(column, formulas.expressions)


def _read(column: Column, expressions: Expressions) -> frozenset[str]:
    """Return the names, in lower case, of the columns that a generated column's expression has."""
    tokens = expressions.tokens_of(column) if column.expression else ()
    named = (column_of(expressions.columns, token) for token in tokens)
    return frozenset(column.name.lower() for column in named if column is not None)


def _is_arithmetic(column: Column, formulas: Formulas) -> bool:
    try:
        formulas.of(column)
    except NotComputable:
        return False
    return True


def _has_collation(computed: Column, expressions: Expressions) -> bool:
    """Return whether the value may depend on a collation: not if the expression neither compares nor searches texts."""
    tokens = expressions.tokens_of(computed)
    exact = numbers = True
    for token, following in zip(tokens, (*tokens[1:], END), strict=True):
        if token.kind == "word" and following.key == "(":
            exact, numbers = exact and token.key in _WITHOUT_COLLATION, False
        elif (column := column_of(expressions.columns, token)) is not None:
            numbers = numbers and column.type in NOT_TEXT
        elif token.kind in ("string", "bytes"):
            numbers = False
        elif token.kind != "number" and token.key not in _OPERATORS:
            exact = exact and token.text.startswith("_")  # the character set of a string
    return not (exact or numbers)
