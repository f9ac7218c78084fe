"""Statements without the values that they say of columns that don't leave the server."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile

from binlake.errors import UnfollowedStatement
from binlake.position import Flavour
from binlake.schema.lexer import Cursor, Lexer, Token, words_of
from binlake.schema.table import TableName

_OF_VALUES = ("DEFAULT", "AS", "CHECK", "UPDATE", "IN", "THAN", "VALUES", "VALUE")
"""Words before a parenthesis that holds values; any other holds definitions, names, or the numbers of a type."""
_MASKED = {"string": "'***'", "bytes": "'***'", "number": "0"}
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?( |T|$)")
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


def without_values(
    text: str,
    withheld: Collection[str] | None,
    *,
    sql_mode: int,
    flavour: Flavour,
    tables: Collection[TableName] = (),
) -> str:
    """Return a statement's text without the literals of some columns' definitions, so that it still says what it does.

    withheld: names of columns, in lower case; None for the literals of the whole statement. Those of partitions go,
    too: they are a column's values. Comments go. A text that can't be read to its end has no literals, and ends as
    unreadably, in a comment with those words of its rest by which tables are recognized there. tables: the known ones.
    """
    lexer = Lexer(text, sql_mode, flavour)
    with suppress(UnfollowedStatement):
        Cursor(lexer, "").all_tokens()
    tokens = [*takewhile(lambda token: token.kind != "broken", lexer.tokens)]
    if lexer.is_cut or len(tokens) < len(lexer.tokens):
        first = {next(words_of(table.table), "") for table in tables}
        at = tokens[-1].end if tokens else 0
        rest = [word for word in words_of(text[at:]) if word in first]
        return " ".join([_without_literals(text, tokens), "/*", *rest])
    if withheld is None:
        return _without_literals(text, tokens)
    return _without_literals(text, tokens, _literals_of(tokens, withheld))


def literals(text: str, *, sql_mode: int, flavour: Flavour) -> list[str] | None:
    """Return the texts and numbers that a statement says; None where it can't be read as tokens."""
    lexer = Lexer(text, sql_mode, flavour)
    try:
        tokens = Cursor(lexer, "").all_tokens()
    except UnfollowedStatement:
        return None
    if lexer.is_cut or any(token.kind == "broken" for token in tokens):
        return None
    return [token.text for token in tokens if token.kind in _MASKED]


def _literals_of(tokens: Sequence[Token], withheld: Collection[str]) -> set[int]:
    """Return where the tokens begin that are in a definition of one of the columns, in one of partitions, or in the
    parentheses of another definition that name one of the columns there."""
    chosen: set[int] = set()
    for part in _definitions(tokens):
        if _defined(part).isdisjoint(withheld) and not {token.key for token in part} >= {"PARTITION", "VALUES"}:
            naming = [inside for inside in _parentheses(part) if _names_any(inside, withheld)]
            chosen |= {token.start for inside in naming for token in inside}
        else:
            chosen |= {token.start for token in part}
    return chosen


def _defined(part: Sequence[Token]) -> set[str]:
    """Return the names, in lower case, that may be those of the column that a part of a statement defines or changes:
    not its place (AFTER), the table's name, or a word of a type."""
    names = {part[0].text.lower()} if part else set()  # in the parenthesis of a new table's columns
    for number, token in enumerate(part):
        if token.key not in ("ADD", "CHANGE", "MODIFY", "ALTER"):
            continue
        behind = [other for other in part[number + 1 :] if other.key not in ("COLUMN", "IF", "NOT", "EXISTS")]
        if behind and behind[0].key != "TABLE":
            names |= {other.text.lower() for other in behind[: 2 if token.key == "CHANGE" else 1]}
    return names


def _parentheses(part: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield what each of the outermost parentheses holds."""
    depth, inside = 0, list[Token]()
    for token in part:
        depth += {"(": 1, ")": -1}.get(token.key, 0)
        if depth > 0:
            inside.append(token)
        elif inside:
            yield inside
            inside = []
    yield inside


def _names_any(tokens: Sequence[Token], names: Collection[str]) -> bool:
    """Return whether one of the names is there, other than as a function's."""
    keys = [*(token.key for token in tokens), ""]
    named = (number for number, token in enumerate(tokens) if token.is_name and token.text.lower() in names)
    return any(keys[number + 1] != "(" for number in named)


def _definitions(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield the parts of a statement between the commas that divide its definitions: those of no parenthesis, and those
    of the one that holds a new table's columns, or columns that are added."""
    part: list[Token] = []
    depth, is_divided, before = 0, False, ""
    creates, has_columns = bool(tokens) and tokens[0].key == "CREATE", False
    for token in tokens:
        if token.key == "(":
            if not depth:
                is_divided = before in ("ADD", "COLUMN", "EXISTS") or (creates and not has_columns)
                has_columns = True
            depth += 1
        elif token.key == ")":
            depth -= 1
        divides = token.key == "," and (not depth or (depth == 1 and is_divided))
        if divides or (is_divided and (depth, token.key) in ((1, "("), (0, ")"))):
            yield part
            part = []
        else:
            part.append(token)
        before = token.key
    yield part


def verb_alone(text: str, instead: str = "DDL") -> str:
    """Return a statement's verb, for a text that holds values."""
    verb = _VERB.match(text.lstrip())
    return f"{verb[0].upper() if verb else instead} …"


def _without_literals(text: str, tokens: Sequence[Token], chosen: Collection[int] | None = None) -> str:
    """Return a text without comments, and without the literals that begin at chosen places; without any if None."""
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
        is_kept = is_of_type or (chosen is not None and token.start not in chosen)
        written.append(own if is_kept else _instead(token, own))
        at, before = token.end, token.key
    return "".join(written)


def _instead(token: Token, own: str) -> str:
    """Return what is written in a literal's place; a date in that of a date, which a column's default needs."""
    is_date = token.kind == "string" and _DATE.match(token.text)
    return "'2000-01-01'" if is_date else _MASKED.get(token.kind, own)
