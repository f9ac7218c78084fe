"""VIRTUAL columns: whether a column's value in the log is the value that the server shows.

A virtual column isn't stored: the server computes it for each session that reads, and for the row image in the session
that writes. The lake holds what the server shows in UTC. If the session's time zone, language, account or clock can
influence the value, the log's may differ, so such a column is left out of the lake, with a reason. So is a column
computed from MariaDB's AUTO_INCREMENT, whose image is computed before the number is assigned, unless it is plain
arithmetic, which the lake computes itself. STORED columns have the logged value, where it is logged: newer MariaDBs log
generated columns of either kind in inserts only (tried: 11.4.5 logs them all, 11.8.9 doesn't), so that columns that
aren't plain arithmetic are left out there.

An expression is examined token by token: only known functions and words count as independent of the session. Sources:
MySQL manual 15.1.24.8 and 14 (functions), MariaDB Knowledge Base, Generated Columns; tried on MySQL 9.7 and MariaDB
10.11.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from binlake.position import Flavour
from binlake.schema import arithmetic
from binlake.schema.arithmetic import INTEGER_BITS
from binlake.schema.expressions import DEEPEST, END, MOST_CHARACTERS, Expressions, column_of, tokens_of
from binlake.schema.hidden import is_hidden_hash
from binlake.schema.lexer import Token
from binlake.schema.table import Column, TableSchema, Virtual, once_per_shape

UNLOGGED_COLUMN_REMEDY = (
    "make the column STORED (not on MariaDB 11.5 and newer, whose log leaves out those, too), or let the lake go"
    " without it: on_untold_column: leave_out"
)

NOT_TEXT = frozenset({*INTEGER_BITS, "decimal", "float", "double", "bit", "year", "date", "datetime", "time"})
_DATES = frozenset({"date", "datetime"})


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KEYWORDS = _words(
    """
    AND AS ASC BETWEEN BINARY BOTH BY CASE DESC DIV ELSE ELSEIF EMPTY END ERROR ESCAPE FALSE FOR FROM IN INTERVAL IS
    LEADING LIKE MEMBER MOD NOT NULL OF ON OR REGEXP RETURNING RLIKE SOUNDS THEN TRAILING TRUE UNKNOWN WHEN XOR
    MICROSECOND SECOND MINUTE HOUR DAY WEEK MONTH QUARTER YEAR SECOND_MICROSECOND MINUTE_MICROSECOND MINUTE_SECOND
    HOUR_MICROSECOND HOUR_SECOND HOUR_MINUTE DAY_MICROSECOND DAY_SECOND DAY_MINUTE DAY_HOUR YEAR_MONTH
    SIGNED UNSIGNED INTEGER INT CHAR NCHAR CHARACTER VARCHAR DECIMAL DOUBLE FLOAT REAL JSON DATE DATETIME TIME
    """
)
_NAMES_FOLLOW = _words("CHARSET COLLATE USING SET")
"""Keywords followed by the name of a character set or collation."""
_BEFORE_PARENTHESES = _words("AND AS BETWEEN BINARY CASE DIV ELSE IN IS LIKE NOT OF OR REGEXP RLIKE THEN WHEN XOR")
_NUMBERS = _words(
    """
    ABS ACOS ASCII ASIN ATAN ATAN2 BIT_COUNT BIT_LENGTH CEIL CEILING CHARACTER_LENGTH CHAR_LENGTH COS COT CRC32
    DEGREES EXP FIELD FIND_IN_SET FLOOR INET_ATON INSTR ISNULL IS_IPV4 IS_IPV6 IS_UUID JSON_CONTAINS
    JSON_CONTAINS_PATH JSON_DEPTH JSON_LENGTH JSON_OVERLAPS JSON_SCHEMA_VALID JSON_VALID LENGTH LN LOCATE LOG LOG10
    LOG2 MOD OCTET_LENGTH ORD PI POSITION POW POWER RADIANS REGEXP_INSTR REGEXP_LIKE ROUND SIGN SIN SQRT STRCMP TAN
    TRUNCATE
    """
)
"""Functions that return a number, whatever their arguments are."""
_ANY = _words(
    """
    BIN BIN_TO_UUID CHAR COALESCE COMPRESS CONCAT CONCAT_WS CONV ELT EXPORT_SET FROM_BASE64 GREATEST HEX IF IFNULL
    INET6_ATON INET6_NTOA INET_NTOA INSERT JSON_ARRAY JSON_ARRAY_APPEND JSON_ARRAY_INSERT JSON_EXISTS JSON_EXTRACT
    JSON_INSERT JSON_KEYS JSON_MERGE JSON_MERGE_PATCH JSON_MERGE_PRESERVE JSON_OBJECT JSON_PRETTY JSON_QUERY
    JSON_QUOTE JSON_REMOVE JSON_REPLACE JSON_SEARCH JSON_SET JSON_TYPE JSON_UNQUOTE JSON_VALUE LCASE LEAST LEFT LOWER
    LPAD LTRIM MAKE_SET MD5 MID NULLIF NVL NVL2 OCT QUOTE REGEXP_REPLACE REGEXP_SUBSTR REPEAT REPLACE REVERSE RIGHT
    RPAD RTRIM SHA SHA1 SHA2 SOUNDEX SPACE SUBSTR SUBSTRING SUBSTRING_INDEX TO_BASE64 TRIM UCASE UNCOMPRESS
    UNCOMPRESSED_LENGTH UNHEX UPPER UUID_TO_BIN WEIGHT_STRING
    """
)
_OF_DATES = _words(
    """
    ADDDATE CONVERT_TZ DATE DATEDIFF DATE_ADD DATE_FORMAT DATE_SUB DAY DAYOFMONTH DAYOFWEEK DAYOFYEAR EXTRACT
    FROM_DAYS LAST_DAY MAKEDATE MONTH PERIOD_ADD PERIOD_DIFF QUARTER STR_TO_DATE SUBDATE TIMESTAMP TIMESTAMPADD
    TIMESTAMPDIFF TO_DAYS TO_SECONDS WEEK WEEKDAY WEEKOFYEAR YEAR YEARWEEK
    """
)
_OF_TIMES = _words(
    "ADDTIME HOUR MAKETIME MICROSECOND MINUTE SECOND SEC_TO_TIME SUBTIME TIME TIMEDIFF TIME_FORMAT TIME_TO_SEC"
)
_GIVE_TIMES = _words("MAKETIME SEC_TO_TIME TIME TIMEDIFF")
_SECOND_IS_A_SPAN = _words("ADDTIME SUBTIME TIMESTAMP")
_CASTS = _words("CAST CONVERT")
_OFFSET = re.compile(r"\d[+-]\d\d:\d\d$")
_LANGUAGE = re.compile(r"%[abMW]")
_UNLOGGED = (
    "MariaDB 11.5 and newer leave generated columns out of the log's updates, and its expression is more than sums,"
    " differences and products of whole numbers and decimals"
)
_MASKED = "it is masked, and the log doesn't have its value"
_BEFORE_THE_NUMBER = "its image is computed before AUTO_INCREMENT gives the row its number"
_TOO_LONG = f"the expressions of its table have more than {MOST_CHARACTERS:,} characters, and aren't analysed"
_TOO_DEEP = f"its expression, with those of the columns that it refers to, is nested more than {DEEPEST} levels deep"


class _MayDiffer(Exception):
    """The log's value may differ from the server's; the message says why."""


@dataclass(frozen=True)
class GeneratedColumns:
    """Generated columns that aren't taken from the log.

    left_out: names of columns that the lake leaves out, each with the reason. formulas: by name, how the lake computes
    those that it computes from others.
    """

    left_out: Mapping[str, str]
    formulas: Mapping[str, arithmetic.Stored]

    @property
    def computed(self) -> frozenset[str]:
        """Return the names of the columns that the lake computes."""
        return frozenset(self.formulas)


@once_per_shape
def generated_columns(schema: TableSchema) -> GeneratedColumns:
    """Return which of a table's generated columns the lake leaves out, and which it computes itself."""
    left_out: dict[str, str] = {}
    formulas: dict[str, arithmetic.Stored] = {}
    generated = [
        column
        for column in schema.logged
        if not column.row_time and (column.virtual or (column.generated and schema.unlogged))
    ]
    if not generated:  # the common case, made cheap for thousands of tables
        return GeneratedColumns(left_out, formulas)
    expressions = Expressions(schema.columns)
    check, parsed = _TableCheck(expressions), arithmetic.Formulas(schema, expressions)
    for column in generated:
        try:
            if not schema.unlogged and check.is_free(column):
                continue
            if column.mask is not None:
                raise _MayDiffer(_MASKED)
            formulas[column.name] = parsed.of(column)
        except arithmetic.NotComputable:
            left_out[column.name] = _not_mirrored(column, _UNLOGGED if schema.unlogged else _BEFORE_THE_NUMBER)
        except _MayDiffer as why:
            left_out[column.name] = _not_mirrored(column, str(why))
    return GeneratedColumns(left_out, formulas)


def _not_mirrored(column: Column, why: str) -> str:
    kind = "VIRTUAL" if column.virtual else "STORED"
    return f"{kind} column {column.name!r} isn't mirrored: {why}"


def leaves_generated_columns_out(version: tuple[int, ...]) -> bool:
    """Return whether a MariaDB of this version is taken to log generated columns in inserts only.

    Tried were 11.4.5, which logs them all, and 11.8.9, which doesn't. If a version between them does log them, the lake
    lacks columns that it could have. Images that lack columns are noticed whatever the version.
    """
    return version >= (11, 5)


def as_logged(schema: TableSchema) -> TableSchema:
    """Return the shape for a server that leaves generated columns out of the log's updates and deletes."""
    return schema if schema.unlogged else leaving_out(replace(schema, unlogged=True))


def lost_columns(absent: Iterable[str], schema: TableSchema) -> list[str]:
    """Return those columns missing from a row's images that aren't generated: their values are lost."""
    computed = {column.name for column in schema.columns if column.generated and not column.row_time}
    return sorted(name for name in absent if name not in computed and not is_hidden_hash(name, schema))


def leaving_out(schema: TableSchema) -> TableSchema:
    """Return the shape with the columns whose values the log lacks noted as ``untold``."""
    return replace(schema, untold=tuple(generated_columns(schema).left_out))


def canonical(tokens: Iterable[Token]) -> str:
    """Return an expression's text as the default sql_mode reads it, whatever the mode of the session that wrote it."""
    return " ".join(_token_text(token) for token in tokens)


def _token_text(token: Token) -> str:
    match token.kind:
        case "quoted":
            return "`" + token.text.replace("`", "``") + "`"
        case "string":
            return "'" + token.text.replace("\\", "\\\\").replace("'", "''") + "'"
        case "bytes":
            return f"x'{token.text}'"
    return token.text


def text_like(text: str) -> str:
    """Return a text that shows nothing of another, and by which the analysis of an expression comes to the same."""
    return "***" + "".join(_LANGUAGE.findall(text)) + ("0+00:00" if _OFFSET.search(text) else "")


def renamed(virtual: Virtual, names: Mapping[str, str]) -> Virtual:
    """Return the expression with columns renamed. names: new names by old ones in lower case."""
    tokens = tokens_of(virtual)
    written = [
        token._replace(kind="quoted", text=names[token.text.lower()])
        if token.is_name and token.text.lower() in names and following.key != "("
        else token
        for token, following in zip(tokens, (*tokens[1:], END), strict=True)
    ]
    return replace(virtual, expression=canonical(written))


# -- whether a value is free of the session ------------------------------------------------------------


@dataclass(frozen=True)
class _Facts:
    """Kinds of values that a part of an expression may have.

    text: a text in which MySQL may find a date with an offset. span: a TIME, to which the servers add the current day
    where they need a date. date: a date or datetime.
    """

    text: bool = False
    span: bool = False
    date: bool = False

    def __or__(self, other: _Facts) -> _Facts:
        return _Facts(self.text or other.text, self.span or other.span, self.date or other.date)


@dataclass(frozen=True)
class _Examined:
    """Facts about a virtual column's expression.

    counts: it refers to an AUTO_INCREMENT column. why: the log's value may differ from the server's; else empty.
    """

    facts: _Facts = _Facts()
    counts: bool = False
    why: str = ""


class _TableCheck:
    """Check of a table's virtual columns, each of which is examined once."""

    def __init__(self, expressions: Expressions) -> None:
        self.expressions = expressions
        self._known: dict[str, _Examined] = {}

    def is_free(self, column: Column) -> bool:
        """Return whether the log's value is the server's: not if it depends on AUTO_INCREMENT. Raises _MayDiffer."""
        assert column.virtual is not None
        if column.type == "timestamp":
            raise _MayDiffer("a TIMESTAMP is computed in the session's time zone")
        examined = self.examined(column, 0)
        if column.type in (*_DATES, "time", "year"):
            _ExpressionCheck(self, column.virtual.flavour).as_date(examined.facts, day=column.type in _DATES)
        return not examined.counts

    def examined(self, column: Column, depth: int) -> _Examined:
        """Return what is known of a virtual column, whose expression is ``depth`` levels deep. Raises _MayDiffer."""
        known = self._known.get(column.name)
        if known is None:
            self._known[column.name] = _Examined()  # for an expression that leads back here, as by the name of a unit
            known = self._known[column.name] = self._examine(column, depth)
        if known.why:
            raise _MayDiffer(known.why)
        return known

    def _examine(self, column: Column, depth: int) -> _Examined:
        assert column.virtual is not None
        if self.expressions.are_too_long:
            return _Examined(why=_TOO_LONG)
        check = _ExpressionCheck(self, column.virtual.flavour)
        try:
            return _Examined(check.expression(self.expressions.tokens_of(column), depth), check.counts)
        except _MayDiffer as differs:
            return _Examined(why=str(differs))


class _ExpressionCheck:
    """Check of an expression, which raises _MayDiffer where its value may depend on the session.

    counts: whether it refers to an AUTO_INCREMENT column.
    """

    def __init__(self, table: _TableCheck, flavour: Flavour) -> None:
        self.table = table
        self.columns = table.expressions.columns
        self.flavour = flavour
        self.counts = False

    def expression(self, tokens: list[Token], depth: int) -> _Facts:
        """Examine a part of the expression, ``depth`` levels deep. Raises _MayDiffer."""
        if depth > DEEPEST:
            raise _MayDiffer(_TOO_DEEP)
        facts = _Facts()
        at = 0
        intervals = False
        while at < len(tokens):
            token, following = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else END
            intervals = intervals or (token.key == "INTERVAL" and following.key != "(")
            if token.key == "(":
                end = _closing(tokens, at)
                facts |= self.expression(tokens[at + 1 : end], depth + 1)
            elif token.kind == "word" and following.key == "(" and token.key not in _BEFORE_PARENTHESES:
                end = _closing(tokens, at + 1)
                facts |= self._function(token.key, tokens[at + 2 : end], depth + 1)
            elif token.key in _NAMES_FOLLOW and following.is_name:
                end = at + 1
            else:
                facts |= self._word(token, following, depth)
                end = at
            at = end + 1
        if intervals:
            self.as_date(facts, day=True)
            facts |= _Facts(date=True)
        if facts.span and facts.date:
            raise _MayDiffer("a TIME becomes a date of the day on which it is read")
        return facts

    def _word(self, token: Token, following: Token, depth: int) -> _Facts:
        if token.kind in ("broken", "end") or token.key in ("@", "?"):
            raise _MayDiffer("its expression isn't understood, or has variables")
        if token.kind == "string":
            return _Facts(text=bool(_OFFSET.search(token.text)))
        if not token.is_name:
            return _Facts()
        if token.kind == "word" and token.text.startswith("_") and following.kind in ("string", "bytes", "number"):
            return _Facts()
        if (column := column_of(self.columns, token)) is not None:
            return self._reference(column, depth)
        if token.kind == "word" and token.key in _KEYWORDS:
            return _Facts()
        raise _MayDiffer(f"its expression has {token.text}, which may be another for each session")

    def _reference(self, column: Column, depth: int) -> _Facts:
        if column.type == "timestamp":
            raise _MayDiffer(f"its expression shows the TIMESTAMP {column.name!r} in the session's time zone")
        self.counts = self.counts or column.auto_increment
        if column.virtual is not None:
            self.counts = self.table.examined(column, depth + 1).counts or self.counts
        return _Facts(column.type not in NOT_TEXT, column.type == "time", column.type in _DATES)

    def _function(self, name: str, inside: list[Token], depth: int) -> _Facts:
        if name == "UNIX_TIMESTAMP" and len(inside) == 1 and _is_timestamp(column_of(self.columns, inside[0])):
            return _Facts()
        if name in _CASTS:
            return self._cast(inside, depth)
        if name in _SECOND_IS_A_SPAN:
            first, *others = _split_arguments(inside)
            facts = self.expression(first, depth)
            for other in others:
                facts |= replace(self.expression(other, depth), span=False)
        else:
            facts = self.expression(inside, depth)
        if name in _OF_DATES or name in _OF_TIMES:
            return self._temporal(name, inside, facts)
        if name in _NUMBERS:
            return _Facts()
        if name in _ANY:
            return facts
        raise _MayDiffer(f"its expression calls {name}, which may give each session another value")

    def _temporal(self, name: str, inside: list[Token], facts: _Facts) -> _Facts:
        # MySQL writes the creating session's mode into the definition.
        if name == "WEEK" and len(_split_arguments(inside)) < 2 and self.flavour == "mariadb":
            raise _MayDiffer("WEEK without a mode takes the session's default_week_format")
        if name == "DATE_FORMAT":
            shown = _split_arguments(inside)[-1]
            if shown[-1].kind != "string" or _LANGUAGE.search(shown[-1].text):
                raise _MayDiffer("DATE_FORMAT writes names in the session's language")
        if name == "STR_TO_DATE":  # by its format, which knows no offset
            return _Facts(date=True)
        self.as_date(facts, day=name in _OF_DATES)
        return _Facts(span=name in _GIVE_TIMES, date=name in _OF_DATES and name != "TIMESTAMPDIFF")

    def _cast(self, inside: list[Token], depth: int) -> _Facts:
        facts = self.expression(inside, depth)
        last = next((token.key for token in reversed(inside) if token.kind == "word"), "")
        if last in ("DATE", "DATETIME", "TIME", "YEAR"):
            self.as_date(facts, day=last in ("DATE", "DATETIME"))
            return _Facts(span=last == "TIME", date=last in ("DATE", "DATETIME"))
        return facts

    def as_date(self, facts: _Facts, *, day: bool) -> None:
        """Check a part that is converted to a date or time. day: to one that has a date.

        MySQL converts a text with an offset to the session's time zone.
        """
        if facts.text and self.flavour == "mysql":
            raise _MayDiffer(
                "a text that it takes for a date may have an offset, from which the session's zone follows"
            )
        if facts.span and day:
            raise _MayDiffer("a TIME becomes a date of the day on which it is read")


def _is_timestamp(column: Column | None) -> bool:
    return column is not None and column.type == "timestamp"


def _closing(tokens: list[Token], opening: int) -> int:
    """Return the index of the parenthesis that closes the one at ``opening``. Raises _MayDiffer."""
    depth = 0
    for at in range(opening, len(tokens)):
        depth += (tokens[at].key == "(") - (tokens[at].key == ")")
        if not depth:
            return at
    raise _MayDiffer("its expression isn't understood")


def _split_arguments(tokens: list[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.key == "(") - (token.key == ")")
        if token.key == "," and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts
