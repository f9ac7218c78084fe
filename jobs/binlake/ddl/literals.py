"""Parsing of constants, and of what follows DEFAULT.

Sources: MySQL manual 11.1 Literal Values, 12.3.8 Character Set Introducers, 13.6 Data Type Default Values; MariaDB
Knowledge Base, Literals, and column_default_non_parenthesized_expr of sql/sql_yacc.yy: without parentheses a default
is one constant, variable, column, function or CASE. Tried on MySQL 9.7 and MariaDB 10.11.
"""

from __future__ import annotations

from typing import Literal as OneOf

from binlake.ddl.definition import canonical_charset
from binlake.errors import UnfollowedStatement
from binlake.schema import charsets, lexer
from binlake.schema.lexer import Cursor, Dialect, Token
from binlake.schema.types.constants import NATIONAL, Literal

_TEMPORAL = ("DATE", "TIME", "TIMESTAMP")
_CHARACTERS = {"column": 1024, "table": 2048}
"""The most that a comment has."""


def comment_text(cursor: Cursor, of: OneOf["column", "table"]) -> str:
    """Read the string behind COMMENT. Returns it as the server stores it: what is too long is cut off, unless the
    session was strict, in which the statement failed. Comments are utf8mb3. Raises UnfollowedStatement."""
    if cursor.token.kind != "string":
        raise cursor.not_understood("a string expected")
    return lexer.in_utf8mb3(cursor.next().text)[: _CHARACTERS[of]]


def literal_value(cursor: Cursor) -> Literal | None:
    """Read a literal; several strings in a row are one. Returns None if none is next."""
    token = cursor.token
    if cursor.accept("NULL") or cursor.accept("\\", "N"):
        return Literal("null")
    if token.key in ("TRUE", "FALSE"):
        cursor.next()
        return Literal("number", str(int(token.key == "TRUE")))
    if token.key in ("-", "+") and cursor.peek().kind == "number":
        cursor.next()
        return Literal("number", token.key.strip("+") + cursor.next().text)
    if token.kind in ("number", "bytes"):
        cursor.next()
        return Literal("number" if token.kind == "number" else "bytes", token.text)
    if cursor.at("{") and cursor.peek().key in ("D", "T", "TS") and cursor.peek(2).kind == "string":
        text = cursor.peek(2).text
        if cursor.peek(3).key == "}":
            cursor.index += 4
            return Literal("temporal", text)
    charset = _introduced(token)
    if charset and cursor.peek().kind == "bytes":
        cursor.next()
        return Literal("bytes", cursor.next().text, charset)
    if (charset or token.key in _TEMPORAL) and cursor.peek().kind == "string":
        cursor.next()
    if cursor.token.kind != "string":
        return None
    return Literal("temporal" if token.key in _TEMPORAL else "string", _strings(cursor), charset)


def _introduced(token: Token) -> str:
    """Return the character set of an introducer, as in ``_latin1'x'`` and ``N'x'``; empty if the token is none."""
    if token.key == "N":
        return NATIONAL
    name = canonical_charset(token.text[1:]) if token.kind == "word" and token.text.startswith("_") else ""
    return name if charsets.is_known(name) else ""


def _strings(cursor: Cursor) -> str:
    parts: list[str] = []
    while cursor.token.kind == "string":
        parts.append(cursor.next().text)
    return "".join(parts)


def default_value(cursor: Cursor, dialect: Dialect, *, of_a_column_that_is_there: bool = False) -> Literal | None:
    """Read what follows DEFAULT. Returns a constant; None for an expression. Raises UnfollowedStatement.

    of_a_column_that_is_there: in ALTER … SET DEFAULT, where MySQL takes a literal in parentheses for a constant.
    """
    if cursor.at("("):
        constant = dialect.flavour == "mariadb" or (of_a_column_that_is_there and not cursor.at("(", "-"))
        literal = _parenthesized_literal(cursor) if constant else None
        if literal is None:
            cursor.skip_parentheses()
    else:
        literal = literal_value(cursor)
        if literal is None:
            _skip_expression(cursor)
    if dialect.session_mode_unknown and literal == Literal("string", ""):
        raise UnfollowedStatement("whether '' is NULL depends on the session's sql_mode, which the statement hides")
    empty_is_null = dialect.flavour == "mariadb" and dialect.sql_mode & lexer.MARIADB_EMPTY_STRING_IS_NULL
    if empty_is_null and literal == Literal("string", ""):
        return Literal("null")
    return literal


def _parenthesized_literal(cursor: Cursor) -> Literal | None:
    """Read ``(1)`` or ``((-1))``, which is a constant for MariaDB and an expression for MySQL. None if none is next."""
    start = cursor.index
    depth = 0
    while cursor.accept("("):
        depth += 1
    literal = literal_value(cursor)
    if literal is not None and cursor.accept(*[")"] * depth):
        return literal
    cursor.index = start
    return None


def _skip_expression(cursor: Cursor) -> None:
    """Step over an expression without parentheses: ``NOW()``, ``CURRENT_TIMESTAMP`` and others that MariaDB allows."""
    if cursor.at("CASE"):
        _skip_case(cursor)
    elif cursor.accept("@"):
        _skip_variable(cursor)
    elif cursor.at("{"):
        cursor.skip_to("}")
        cursor.expect("}")
    elif cursor.accept("NEXT", "VALUE", "FOR") or cursor.accept("PREVIOUS", "VALUE", "FOR"):
        cursor.qualified_name()
    else:
        cursor.column_name()
        if cursor.at("("):
            cursor.skip_parentheses()


def _skip_variable(cursor: Cursor) -> None:
    """Step over what follows ``@``: ``v``, ``'v'``, ``@sql_mode``, ``@global.sql_mode``, ``:=`` with an expression."""
    if cursor.accept("@"):
        cursor.column_name()
        return
    if cursor.token.kind not in ("word", "quoted", "string"):
        raise cursor.not_understood("a variable's name expected")
    cursor.next()
    if cursor.accept(":", "="):
        raise cursor.not_understood("where a variable's new value ends")


def _skip_case(cursor: Cursor) -> None:
    """Step over a CASE expression up to its own END."""
    depth = 0
    while True:
        depth += cursor.at("CASE") - cursor.at("END")
        if cursor.at("("):
            cursor.skip_parentheses()
        elif cursor.next().kind in ("end", "broken"):
            raise cursor.not_understood("the END of CASE expected")
        if not depth:
            return
