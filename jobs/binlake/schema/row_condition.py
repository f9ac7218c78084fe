"""Conditions over a row's columns: a small part of SQL whose value is known to be the server's.

    status <> 'draft' AND tenant_id IN (1, 2)

A condition compares columns of one table with numbers and texts. It has three values, as in SQL: a row is in if it is
true, not if it is false or NULL. Whatever depends on the session, on the clock or on other rows isn't understood, and
neither are comparisons for which the servers convert values. The parsed condition gives the server's SQL; what it
selects of rows in the log is worked out by ``row_matching``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Literal

from binlake.caches import remembered
from binlake.errors import UnfollowedStatement
from binlake.names import mysql_quote
from binlake.schema.arithmetic import integer_range
from binlake.schema.lake_forms import server_shape
from binlake.schema.lexer import Lexer, Token
from binlake.schema.table import Column, ComparedAs, TableSchema, once_per_shape

ComparisonSign = Literal["=", "<>", "<", "<=", ">", ">=", "<=>"]

MOST_LETTERS, _MOST_DEPTH, _MOST_DIGITS, _MOST_EXACT = 10_000, 60, 38, 15
WAYS = "=, <>, <, <=, >, >=, <=>, IN (…), BETWEEN, IS NULL, AND, OR, NOT, numbers and texts in quotes"
CONDITION_REMEDY = f"write a condition over the table's own columns with {WAYS}"
_SIGNS: dict[str, ComparisonSign] = {"=": "=", "<": "<", ">": ">"}
_PAIRS: dict[str, ComparisonSign] = {"<=": "<=", ">=": ">=", "<>": "<>", "!=": "<>"}
_MIRRORED: dict[ComparisonSign, ComparisonSign] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_EQUALITY = ("=", "<>", "<=>")
_RESERVED = frozenset(
    """
    SELECT EXISTS CASE INTERVAL BINARY LIKE RLIKE REGEXP SOUNDS MEMBER COLLATE DIV MOD XOR ANY ALL DATE TIME TIMESTAMP
    CURRENT_USER CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP LOCALTIME LOCALTIMESTAMP UTC_DATE UTC_TIME UTC_TIMESTAMP
    DEFAULT
    """.split()  # noqa: SIM905 words read better than a list
)
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?|\.[0-9]+")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(?:\.(\d{1,6}))?", re.ASCII)
_PLAIN_TEXT = re.compile(r"[ -\[\]-~]*")
"""ASCII without control characters and backslashes."""


class RefusedCondition(ValueError):
    """A condition whose value in the log isn't known to be the server's; the message says which part, and why."""


@dataclass(frozen=True)
class ComparedConstant:
    """A number or a text that a condition compares with."""

    text: str
    is_number: bool

    @property
    def number(self) -> Decimal:
        """Return the value of a number."""
        return Decimal(self.text)

    @property
    def shown(self) -> str:
        """Return the constant as the condition has it."""
        return self.text if self.is_number else "'" + self.text.replace("'", "''") + "'"


@dataclass(frozen=True)
class ComparedColumn:
    """A column compared with constants: with one by an operator, or with each of a list (``=``, an IN).

    is_truth: only the column is written, which is true where it isn't 0.
    """

    column: str
    operator: ComparisonSign
    constants: tuple[ComparedConstant, ...]
    is_truth: bool = False


@dataclass(frozen=True)
class MissingValue:
    """Whether a column is NULL."""

    column: str


@dataclass(frozen=True)
class NegatedCondition:
    """The opposite of a condition; NULL stays NULL."""

    operand: ConditionNode


@dataclass(frozen=True)
class JoinedConditions:
    """Conditions joined by AND (``all_of``) or by OR."""

    all_of: bool
    operands: tuple[ConditionNode, ...]


ConditionNode = ComparedColumn | MissingValue | NegatedCondition | JoinedConditions
ConditionLeaf = ComparedColumn | MissingValue


@remembered("row conditions")
def parsed(text: str) -> ConditionNode:
    """Parse a condition. Raises RefusedCondition."""
    if len(text) > MOST_LETTERS:
        raise RefusedCondition(f"it has more than {MOST_LETTERS:,} letters")
    lexer = Lexer(text, 0, "mysql")
    try:
        while lexer.step():
            pass
    except UnfollowedStatement as error:
        raise RefusedCondition(error.message) from None
    return _Parser(lexer.tokens).whole()


class _Parser:
    """Parser of a condition, from left to right."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> ConditionNode:
        node = self._either()
        if self._next.kind != "end":
            raise self._unexpected()
        return node

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _accept(self, *keys: str) -> bool:
        if [token.key for token in self._tokens[self._at : self._at + len(keys)]] != list(keys):
            return False
        self._at += len(keys)
        return True

    def _unexpected(self) -> RefusedCondition:
        token, behind = self._next, self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        if token.kind == "end":
            return RefusedCondition("it ends in the middle")
        if token.kind == "broken":
            return RefusedCondition("a quote or comment in it never ends")
        if token.kind == "word" and behind.key == "(" and token.key not in ("IN", "NOT", "AND", "OR"):
            return RefusedCondition(f"{token.text}(…) isn't understood: a function's value may differ in the log")
        return RefusedCondition(f"{token.text or token.key!r} isn't understood there")

    def _either(self) -> ConditionNode:
        return self._joined("OR", self._both)

    def _both(self) -> ConditionNode:
        return self._joined("AND", self._negated)

    def _joined(self, word: Literal["AND", "OR"], operand: object) -> ConditionNode:
        assert callable(operand)
        operands: list[ConditionNode] = [operand()]
        while self._accept(word):
            operands.append(operand())
        return operands[0] if len(operands) == 1 else JoinedConditions(word == "AND", tuple(operands))

    def _negated(self) -> ConditionNode:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise RefusedCondition(f"it is nested more than {_MOST_DEPTH} levels deep")
        node = NegatedCondition(self._negated()) if self._accept("NOT") else self._predicate()
        self._depth -= 1
        return node

    def _predicate(self) -> ConditionNode:
        if self._accept("("):
            node = self._either()
            if not self._accept(")"):
                raise self._unexpected()
            return node
        if self._is_constant():
            constant, operator = self._constant(), self._operator()
            if operator is None:
                raise self._unexpected()
            return ComparedColumn(self._column(), _MIRRORED.get(operator, operator), (constant,))
        column = self._column()
        if (operator := self._operator()) is not None:
            return ComparedColumn(column, operator, (self._constant(),))
        return self._worded(column)

    def _worded(self, column: str) -> ConditionNode:
        """Read what words say of a column; nothing where the column alone is the condition."""
        if self._accept("IS"):
            negated = self._accept("NOT")
            if not self._accept("NULL"):
                raise RefusedCondition("IS takes NULL and NOT NULL alone")
            return NegatedCondition(MissingValue(column)) if negated else MissingValue(column)
        negated = self._accept("NOT")
        node: ConditionNode
        if self._accept("IN"):
            node = ComparedColumn(column, "=", self._list())
        elif self._accept("BETWEEN"):
            low = self._constant()
            if not self._accept("AND"):
                raise self._unexpected()
            node = JoinedConditions(
                True, (ComparedColumn(column, ">=", (low,)), ComparedColumn(column, "<=", (self._constant(),)))
            )
        elif negated:
            raise self._unexpected()
        else:
            return ComparedColumn(column, "<>", (ComparedConstant("0", is_number=True),), is_truth=True)
        return NegatedCondition(node) if negated else node

    def _operator(self) -> ComparisonSign | None:
        for size, operators in ((2, _PAIRS), (1, _SIGNS)):
            tokens = self._tokens[self._at : self._at + size]
            touching = all(left.end == right.start for left, right in pairwise(tokens))
            operator = operators.get("".join(token.key for token in tokens)) if touching else None
            if operator is not None:
                self._at += size
                if operator == "<=" and self._next.key == ">" and self._next.start == tokens[-1].end:
                    self._at += 1
                    return "<=>"
                return operator
        return None

    def _list(self) -> tuple[ComparedConstant, ...]:
        if not self._accept("("):
            raise self._unexpected()
        constants = [self._constant()]
        while self._accept(","):
            constants.append(self._constant())
        if not self._accept(")"):
            raise self._unexpected()
        return tuple(constants)

    def _is_constant(self) -> bool:
        return self._next.kind in ("string", "number", "bytes") or self._next.key in ("-", "+", "TRUE", "FALSE", "NULL")

    def _constant(self) -> ComparedConstant:
        token = self._next
        if token.key == "NULL":
            raise RefusedCondition("nothing is equal to NULL: write IS NULL or IS NOT NULL")
        sign = "-" if token.key == "-" else ""
        if token.key in ("-", "+"):
            self._at += 1
            token = self._next
        self._at += 1
        if token.key in ("TRUE", "FALSE") and not sign:
            return ComparedConstant(str(int(token.key == "TRUE")), is_number=True)
        if token.kind == "number" and _NUMBER.fullmatch(token.text):
            return ComparedConstant(sign + token.text, is_number=True)
        if token.kind == "string" and not sign:
            return ComparedConstant(token.text, is_number=False)
        self._at -= 1
        if token.kind == "number":
            raise RefusedCondition(f"write {token.text} with all its digits, without an exponent")
        if token.is_name and token.key not in _RESERVED and self._tokens[self._at + 1].key != "(":
            raise RefusedCondition(f"a column is compared with numbers and texts alone, not with {token.text!r}")
        raise self._unexpected()

    def _column(self) -> str:
        token = self._next
        behind = self._tokens[self._at + 1] if token.kind != "end" else token
        if token.kind == "word" and token.key in ("SELECT", "EXISTS"):
            raise RefusedCondition("it asks other rows (SELECT), which the log doesn't have")
        if not token.is_name or behind.key == "(" or (token.kind == "word" and token.key in _RESERVED):
            raise self._unexpected()
        if behind.key == ".":
            raise RefusedCondition(f"write the column's name alone, not {token.text}.…: it is one of the table's own")
        self._at += 1
        return token.text


def leaves(node: ConditionNode) -> Iterator[ConditionLeaf]:
    """Yield the parts of a condition that look at a column."""
    match node:
        case NegatedCondition(operand=operand):
            yield from leaves(operand)
        case JoinedConditions(operands=operands):
            for operand in operands:
                yield from leaves(operand)
        case _:
            yield node


def columns_of_conditions(schema: TableSchema) -> frozenset[str]:
    """Return the names, in lower case, of the columns that a table's conditions look at. Raises RefusedCondition."""
    return frozenset(leaf.column.lower() for text in conditions_of(schema) for leaf in leaves(parsed(text)))


def conditions_of(schema: TableSchema) -> tuple[str, ...]:
    """Return a table's conditions: of the rows of its mirror, and of those that a snapshot copies."""
    return tuple(text for text in (schema.where, schema.snapshot_where) if text)


# -- columns -----------------------------------------------------------------------------------------------------------


def kind_of(column: Column) -> ComparedAs:
    """Return what a column's values compare as."""
    from binlake.schema.datatypes import REGISTRY  # it imports pyarrow, which a YAML doesn't need

    return REGISTRY[column.type].compared_as(column) if column.type in REGISTRY else "other"


def check(leaf: ConditionLeaf, column: Column) -> None:
    """Raise RefusedCondition where a column can't be compared as a part of a condition says."""
    if column.mask is not None:
        raise RefusedCondition(f"the column {column.name!r} is masked, and a condition would show its values")
    if isinstance(leaf, MissingValue):
        return
    kind = kind_of(column)
    said = f"{column.name} is {column.declared.upper()}"
    if kind == "other":
        raise RefusedCondition(f"{said}, whose values can only be asked for NULL")
    for constant in leaf.constants:
        if kind in ("whole", "decimal", "float", "year"):
            _check_number(said, kind, constant)
            _check_range(said, column, constant)
        elif constant.is_number:
            raise RefusedCondition(f"{said}: write the value in quotes, not {constant.shown}")
        elif kind in ("date", "moment"):
            moment_of(column, constant)
        else:
            _check_text(said, leaf.operator, constant)


def _check_number(said: str, kind: ComparedAs, constant: ComparedConstant) -> None:
    if not constant.is_number:
        raise RefusedCondition(f"{said}: write a number without quotes, not {constant.shown}")
    digits = len(constant.text.lstrip("+-").replace(".", "").lstrip("0"))
    if digits > (_MOST_EXACT if kind == "float" else _MOST_DIGITS):
        raise RefusedCondition(f"{constant.shown} has too many digits for a comparison with {said}")
    if kind == "year" and not ("." not in constant.text and 1901 <= int(constant.text) <= 2155):
        raise RefusedCondition(f"{said}: write a year from 1901 to 2155, not {constant.shown}")


def _check_range(said: str, column: Column, constant: ComparedConstant) -> None:
    """Refuse what no value of a whole number's type is: MySQL compares such numbers in lists by other rules."""
    if kind_of(column) != "whole":
        return
    least, most = (0, 1) if column.type == "bit" else integer_range(column)
    if "." in constant.text or not least <= int(constant.text) <= most:
        raise RefusedCondition(f"{said}: write a whole number that it can hold, not {constant.shown}")


def _check_text(said: str, operator: ComparisonSign, constant: ComparedConstant) -> None:
    if operator not in _EQUALITY:
        raise RefusedCondition(f"{said}, whose order isn't known in the log: compare it with =, <> or IN")
    if not _PLAIN_TEXT.fullmatch(constant.text):
        raise RefusedCondition(
            f"{constant.shown}: texts to compare with may have letters, digits and signs of ASCII, but the backslash"
        )


def moment_of(column: Column, constant: ComparedConstant) -> date | datetime:
    """Return a text as a value of a DATE, DATETIME or TIMESTAMP column. Raises RefusedCondition."""
    text, said = constant.text, f"{column.name} is {column.declared.upper()}"
    try:
        if _DAY.fullmatch(text):
            day = date.fromisoformat(text)
            return day if column.type == "date" else datetime(day.year, day.month, day.day)
        found = _MOMENT.fullmatch(text) if column.type != "date" else None
        if found and len(found[1] or "") <= column.fraction:
            return datetime.fromisoformat(text)
    except ValueError:
        pass
    example = "2026-01-31" if column.type == "date" else "2026-01-31 23:59:59" + (".5" if column.fraction else "")
    raise RefusedCondition(f"{said}: write a date that there is, as '{example}', not {constant.shown}")


def refusal(schema: TableSchema) -> str:
    """Return why a table's conditions can't be worked out for its shape; empty where they can."""
    served = server_shape(schema)
    formed = {column.served_name.lower(): column.shown for column in schema.columns if column.lake_type}
    try:
        for leaf in (leaf for text in conditions_of(schema) for leaf in leaves(parsed(text))):
            check(leaf, _own_column(leaf.column, served))
            if (column := formed.get(leaf.column.lower())) is not None:
                _check_in_lake(leaf, column)
    except RefusedCondition as error:
        return str(error)
    return ""


def _check_in_lake(leaf: ConditionLeaf, column: Column) -> None:
    """Raise RefusedCondition where a column can't be compared so in the type that the YAML gives it: staged rows have
    that one."""
    try:
        check(leaf, column)
    except RefusedCondition as error:
        raise RefusedCondition(f"{error} (the type that columns in the YAML gives it)") from None


def _own_column(name: str, schema: TableSchema) -> Column:
    if not schema.has(name):
        raise RefusedCondition(f"the table has no column {name!r}")
    column = schema.column(name)
    if name.lower() in schema.excluded:
        raise RefusedCondition(f"the column {column.name!r} is excluded, so that it isn't read")
    if column.generated and (column.virtual or column.row_time or schema.unlogged):
        raise RefusedCondition(f"the column {column.name!r} is generated, and the log needn't have its value")
    return column


# -- the server's SQL --------------------------------------------------------------------------------------------------


@once_per_shape
def server_condition(schema: TableSchema) -> str:
    """Return the server's SQL of the rows that a snapshot copies, which no setting of a session changes; empty for all.

    Nothing is optimised by it: the server reads by the key's range, and in the key's order, as without it. See
    ``jdbc.as_unpruned``.
    """
    schema = server_shape(schema)
    return _all_of(f"IF({server_sql(parsed(text), schema)}, 1, 0)" for text in conditions_of(schema))


@once_per_shape
def beyond_snapshot(schema: TableSchema) -> str:
    """Return the server's SQL of the rows that the mirror may have and a snapshot doesn't copy."""
    schema = server_shape(schema)
    where = [f"IF({server_sql(parsed(schema.where), schema)}, 1, 0)"] if schema.where else []
    copied = server_sql(parsed(schema.snapshot_where), schema) if schema.snapshot_where else "TRUE"
    return _all_of([*where, f"IF({copied}, 0, 1)"])


def _all_of(conditions: Iterable[str]) -> str:
    return " AND ".join(conditions)


def server_sql(node: ConditionNode, schema: TableSchema) -> str:
    """Return a condition as SQL with parentheses around each part. Raises RefusedCondition."""
    match node:
        case NegatedCondition(operand=operand):
            return f"(NOT {server_sql(operand, schema)})"
        case JoinedConditions(all_of=all_of, operands=operands):
            word = " AND " if all_of else " OR "
            return f"({word.join(server_sql(operand, schema) for operand in operands)})"
        case MissingValue():
            return f"({mysql_quote(_own_column(node.column, schema).name)} IS NULL)"
    column = _own_column(node.column, schema)
    check(node, column)
    name, literals = mysql_quote(column.name), [_literal(column, constant) for constant in node.constants]
    if len(literals) > 1:
        return f"({name} IN ({', '.join(literals)}))"
    return f"({name} {node.operator} {literals[0]})"


def _literal(column: Column, constant: ComparedConstant) -> str:
    match kind_of(column):
        case "date":
            return f"DATE{constant.shown}"
        case "moment":
            return f"TIMESTAMP'{moment_of(column, constant)}'"
    return constant.shown
