"""Expressions of generated columns: their tokens, the columns that they name, and how much of them is analysed.

Any user who may create a table writes such an expression, with up to 64 KiB, thousands of parentheses and references
from one column to the next. Expressions that are longer or nested deeper than the bounds here aren't analysed, and the
caller takes the answer that is right for any expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from binlake.schema.lexer import Lexer, Token
from binlake.schema.table import Column, Virtual

DEEPEST = 100
"""Levels of parentheses, function calls and references to other generated columns that are followed, taken together."""
MOST_CHARACTERS = 1 << 18
"""Characters that the expressions of one table may have together; their analysis takes about a second."""
END = Token("end", "", "", 0, 0)


class Expressions:
    """The expressions of one table's generated columns, each of which is split into words once.

    columns: the table's, by their names in lower case. are_too_long: they aren't analysed.
    """

    def __init__(self, columns: Iterable[Column]) -> None:
        self.columns = {column.name.lower(): column for column in columns}
        written = (column.expression for column in self.columns.values())
        self.are_too_long = sum(len(virtual.expression) for virtual in written if virtual) > MOST_CHARACTERS
        self._tokens: dict[str, list[Token]] = {}

    def tokens_of(self, column: Column) -> list[Token]:
        """Return the words of a generated column's expression."""
        assert column.expression is not None
        if column.name not in self._tokens:
            self._tokens[column.name] = tokens_of(column.expression)
        return self._tokens[column.name]


def tokens_of(virtual: Virtual) -> list[Token]:
    """Return the words of an expression."""
    lexer = Lexer(virtual.expression, 0, virtual.flavour)
    while lexer.step():
        pass
    return [token for token in lexer.tokens if token.kind != "end"]


def column_of(columns: Mapping[str, Column], token: Token) -> Column | None:
    """Return the column that a name means. columns: by their names in lower case."""
    return columns.get(token.text.lower()) if token.is_name else None
