"""Statements without the values that they say of columns that don't leave the server."""

from __future__ import annotations

import re
from collections.abc import Collection

from binlake.errors import UnfollowedStatement
from binlake.position import Flavour
from binlake.schema.lexer import Cursor, Lexer, Token

_OF_VALUES = ("DEFAULT", "AS", "CHECK", "UPDATE", "IN", "THAN", "VALUES", "VALUE")
"""Words before a parenthesis that holds values; any other holds definitions, names, or the numbers of a type."""
_MASKED = {"string": "'***'", "bytes": "'***'", "number": "0"}
_VERB = re.compile(r"[A-Za-z]+")


def redacted(text: str, excluded: Collection[str], *, sql_mode: int, flavour: Flavour) -> str:
    """Return a statement's text; without literals and comments if it names one of some columns, in lower case.

    The column of a literal isn't worked out: a default may be far from its column's name. Numbers of types, such
    as VARCHAR(30), stay. A text that can't be read as tokens becomes its verb.
    """
    if not excluded:
        return text
    lexer = Lexer(text, sql_mode, flavour)
    try:
        tokens = Cursor(lexer, "").all_tokens()
    except UnfollowedStatement:
        return verb_alone(text)
    if not any(token.is_name and token.text.lower() in excluded for token in tokens):
        return text
    if lexer.is_cut or any(token.kind == "broken" for token in tokens):
        return verb_alone(text)
    return _without_literals(text, tokens)


def verb_alone(text: str, instead: str = "DDL") -> str:
    """Return a statement's verb, for a text that holds values."""
    verb = _VERB.match(text.lstrip())
    return f"{verb[0].upper() if verb else instead} …"


def _without_literals(text: str, tokens: list[Token]) -> str:
    written: list[str] = []
    holds_values: list[bool] = []  # of each parenthesis that is open
    before = ""
    at = 0
    for token in tokens:
        gap = text[at : token.start]
        written.append(gap if not gap or gap.isspace() else " ")  # a comment
        if token.key == "(":
            holds_values.append(before in _OF_VALUES or any(holds_values))
        elif token.key == ")" and holds_values:
            holds_values.pop()
        own = text[token.start : token.end]
        is_of_type = token.kind == "number" and before in ("(", ",") and holds_values[-1:] == [False]
        written.append(own if is_of_type else _MASKED.get(token.kind, own))
        at, before = token.end, token.key
    return "".join(written)
