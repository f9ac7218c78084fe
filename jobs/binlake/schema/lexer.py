"""The tokens of a MySQL or MariaDB statement, and a cursor that walks over them.

Sources: MySQL manual 11.1.1 String Literals, 11.2 Schema Object Names, 11.7 Comments; MariaDB Knowledge Base,
Comment Syntax. The lexer never fails: what it can't read (a quote that never ends) becomes a ``broken`` token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from binlake.errors import UnfollowedStatement
from binlake.position import Flavour
from binlake.schema.statement_session import Session
from binlake.schema.table import TableName

TokenKind = Literal["word", "quoted", "string", "number", "bytes", "symbol", "broken", "end"]

# Bits of sql_mode, as query events carry them (sql/query_options.h, the same on both servers).
REAL_AS_FLOAT = 1 << 0
ANSI_QUOTES = 1 << 2
ORACLE = 1 << 9
MAXDB = 1 << 12
NO_AUTO_VALUE_ON_ZERO = 1 << 19
NO_BACKSLASH_ESCAPES = 1 << 20
STRICT_TRANS_TABLES = 1 << 21
STRICT_ALL_TABLES = 1 << 22
PAD_CHAR_TO_FULL_LENGTH = 1 << 31
MARIADB_EMPTY_STRING_IS_NULL = 1 << 32


MOST_TOKENS = 200_000
"""Tokens of a statement that are read, in a second or two. The servers take statements of a gigabyte."""


class Token(NamedTuple):
    """One token of a statement.

    text: the value of a literal or name, without quotes. key: the upper-case word, or the symbol; empty for other
    kinds. start, end: character offsets in the statement.
    """

    kind: TokenKind
    text: str
    key: str
    start: int
    end: int

    @property
    def is_name(self) -> bool:
        """Return whether the token may be a name: a word, or quoted."""
        return self.kind in ("word", "quoted")


# In ASCII alone: a no-break space belongs to a name, and so do the digits of other scripts.
_SPACE = re.compile(r"[\s\x00-\x1f]+", re.ASCII)
_NAME = re.compile(r"[0-9A-Za-z_$\u0080-\U0010ffff]+")
_NOT_IN_UTF8MB3 = re.compile("[\U00010000-\U0010ffff]")
_NUMBER = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_HEX = re.compile(r"0x(?P<digits>[0-9A-Fa-f]+)|[xX]'(?P<quoted>(?:[0-9A-Fa-f]{2})*)'")
_BITS = re.compile(r"0b(?P<digits>[01]+)|[bB]'(?P<quoted>[01]*)'")
_LINE_COMMENT = re.compile(r"(?:#|--(?=[\s\x00-\x1f]|$))[^\n]*", re.ASCII)
_VERSIONED = re.compile(r"/\*(?P<mariadb>M?)!(?P<version>\d{5,6})?")
# A stretch of a quoted text: plain characters, a doubled quote, an escaped character, or the end.
_STRETCH = {
    (quote, escapes): re.compile(
        rf"(?P<plain>[^{quote}{backslash}]+)|{quote}{quote}|{escape}|(?P<end>{quote})",
        re.S,
    )
    for quote in "'\"`"
    for escapes, backslash, escape in ((True, r"\\", r"\\(?P<escaped>.)"), (False, "", "(?P<escaped>(?!))"))
}
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a text, in lower case, with those of quoted names, strings and comments."""
    for word in _NAME.finditer(text):
        yield word[0].lower()


def in_utf8mb3(text: str) -> str:
    """Return what the servers make of a text that they keep in utf8mb3."""
    return _NOT_IN_UTF8MB3.sub("?", text)


class Lexer:
    """Lexer of a statement, which reads its tokens, without comments, on demand. The last has the kind ``end``.

    is_cut: the statement has more than MOST_TOKENS tokens, and the rest isn't read.
    """

    def __init__(self, text: str, sql_mode: int, flavour: Flavour) -> None:
        self.text = text
        self.flavour = flavour
        self.name_quotes = '`"' if sql_mode & ANSI_QUOTES else "`"
        self.escapes = not sql_mode & NO_BACKSLASH_ESCAPES
        self.at = 0
        self.tokens: list[Token] = []
        self.versioned_comments = 0
        self.is_cut = False

    def step(self) -> bool:
        """Read one token, space or comment. Returns False at the end of the statement.

        Raises UnfollowedStatement if there are more than MOST_TOKENS.
        """
        text, at = self.text, self.at
        if at >= len(text):
            if self.tokens and self.tokens[-1].kind == "end":
                return False
            # A versioned comment that the statement never closes: the server refuses that.
            self._add("broken" if self.versioned_comments else "end", "", at)
            if self.versioned_comments:
                self._add("end", "", at)
            return False
        if space := _SPACE.match(text, at) or _LINE_COMMENT.match(text, at):
            self.at = space.end()
        elif text.startswith("/*", at):
            self._comment()
        elif self.versioned_comments and text.startswith("*/", at):
            self.versioned_comments -= 1
            self.at += 2
        elif text[at] in self.name_quotes:
            self._quoted("quoted")
        elif text[at] in "'\"":
            self._quoted("string")
        else:
            self._bare()
        return True

    def _add(self, kind: TokenKind, value: str, end: int) -> None:
        # MySQL's names are utf8mb3: CREATE TABLE `t😀` makes the table `t?`. MariaDB refuses the statement.
        if kind in ("word", "quoted") and self.flavour == "mysql":
            value = in_utf8mb3(value)
        if len(self.tokens) >= MOST_TOKENS:
            self.is_cut = True
            raise UnfollowedStatement(f"the statement has more than {MOST_TOKENS:,} words and symbols")
        key = value.upper() if kind == "word" else value if kind == "symbol" else ""
        self.tokens.append(Token(kind, value, key, self.at, end))
        self.at = end

    def _comment(self) -> None:
        versioned = _VERSIONED.match(self.text, self.at)
        if versioned and self._is_executed(versioned):
            self.versioned_comments += 1
            self.at = versioned.end()
            return
        end = self.text.find("*/", self.at + 2)
        if end < 0:
            self._add("broken", "", len(self.text))
        else:
            self.at = end + 2

    def _is_executed(self, comment: re.Match[str]) -> bool:
        # The version needs no comparing: before it logs a statement, either server turns a versioned comment that
        # it skipped itself into a plain one (seen on MySQL 9.7 and MariaDB 10.11).
        if comment["mariadb"]:
            return self.flavour == "mariadb"
        # MariaDB skips what only MySQL 5.7 and later understand.
        return self.flavour == "mysql" or not 50700 <= int(comment["version"] or 0) <= 99999

    def _quoted(self, kind: TokenKind) -> None:
        quote = self.text[self.at]
        stretch = _STRETCH[quote, self.escapes and kind == "string"]
        parts: list[str] = []
        at = self.at + 1
        while part := stretch.match(self.text, at):
            at = part.end()
            if part["end"]:
                self._add(kind, "".join(parts), at)
                return
            escaped = part["escaped"]
            parts.append(_ESCAPES.get(escaped, escaped) if escaped else part["plain"] or quote)
        self._add("broken", "", len(self.text))

    def _bare(self) -> None:
        text, at = self.text, self.at
        after_dot = bool(self.tokens) and self.tokens[-1].key == "." and self.tokens[-1].end == at
        name = _NAME.match(text, at)
        if not after_dot and self._literal(name.end() if name else at):
            return
        if name:
            self._add("word", name[0], name.end())
        else:
            self._add("symbol", text[at], at + 1)

    def _literal(self, name_end: int) -> bool:
        """Read a number, hexadecimal or bit literal, unless a longer name is there (``1st``). Tells whether it did."""
        text, at = self.text, self.at
        for pattern, base in ((_HEX, 16), (_BITS, 2)):
            literal = pattern.match(text, at)
            if literal and literal.end() >= name_end:
                self._add("bytes", _hexadecimal(literal["digits"] or literal["quoted"] or "", base), literal.end())
                return True
        number = _NUMBER.match(text, at)
        # In `db.1st` the dot belongs to the name before it.
        follows_name = bool(self.tokens) and self.tokens[-1].is_name and self.tokens[-1].end == at
        if number and number.end() >= name_end and not (follows_name and text[at] == "."):
            self._add("number", number[0], number.end())
            return True
        return False


def _hexadecimal(digits: str, base: int) -> str:
    """Return the digits of a hexadecimal or bit literal (``base`` 16 or 2) as pairs of hexadecimal digits."""
    if base == 2:
        digits = f"{int(digits, 2):0{(len(digits) + 7) // 8 * 2}x}" if digits else ""
    return digits.rjust(len(digits) + len(digits) % 2, "0").lower()


@dataclass(frozen=True)
class Dialect:
    """The settings under which the server read a definition.

    session_mode_unknown: sql_mode is what the statement sets for itself, and the session's, under which the server
    read the statement, isn't known.
    """

    sql_mode: int
    flavour: Flavour
    session: Session
    session_mode_unknown: bool = False

    @property
    def strict(self) -> bool:
        """Return whether the sql_mode is strict for any table."""
        return bool(self.sql_mode & (STRICT_TRANS_TABLES | STRICT_ALL_TABLES))


class Cursor:
    """Cursor over the tokens of a statement. Its methods raise UnfollowedStatement where another token is expected.

    Tokens are read when they are asked for: an INSERT logged as text may have megabytes after its table.
    lower_case_names: the server stores names of databases and tables in lower case, however a statement writes them.
    """

    def __init__(self, lexer: Lexer, database: str, *, lower_case_names: bool = False) -> None:
        self.lexer = lexer
        self.lower_case_names = lower_case_names
        self.database = self._stored(database)
        self.index = 0

    def all_tokens(self) -> list[Token]:
        """Return the statement's tokens, the last of the kind ``end``."""
        while self.lexer.step():
            pass
        return self.lexer.tokens

    @property
    def token(self) -> Token:
        """Return the next token, without moving on."""
        return self.peek(0)

    @property
    def at_end(self) -> bool:
        """Return whether nothing is left but an optional semicolon."""
        return self.token.kind == "end" or (self.token.key == ";" and self.peek().kind == "end")

    def peek(self, ahead: int = 1) -> Token:
        """Return the token this far after the next one; the last one past the end."""
        tokens, place = self.lexer.tokens, self.index + ahead
        while len(tokens) <= place and self.lexer.step():
            pass
        return tokens[place] if place < len(tokens) else tokens[-1]

    def next(self) -> Token:
        """Return the next token, and move past it; the last one isn't passed."""
        token = self.token
        if token.kind != "end":
            self.index += 1
        return token

    def at(self, *keys: str) -> bool:
        """Return whether the next tokens are these words or symbols, in this order."""
        first, *others = keys
        if self.token.key != first:  # as most times
            return False
        return all(self.peek(ahead).key == key for ahead, key in enumerate(others, 1))

    def at_any(self, *keys: str) -> bool:
        """Return whether the next token is one of these keywords or signs."""
        return bool(self.token.key) and self.token.key in keys

    def accept(self, *keys: str) -> bool:
        """Step over these words if they are next. Tells whether they were."""
        if not self.at(*keys):
            return False
        self.index += len(keys)
        return True

    def accept_any(self, *keys: str) -> str:
        """Step over one of these words if it is next. Returns it, or an empty text."""
        return self.next().key if self.at_any(*keys) else ""

    def expect(self, *keys: str) -> None:
        """Move past these keywords or signs."""
        if not self.accept(*keys):
            raise self.not_understood(f"{' '.join(keys)} expected")

    def not_understood(self, why: str) -> UnfollowedStatement:
        """Return the error at this place. It has no text of the statement, which may hold values of rows."""
        # Only the place is named: the text may hold values of rows.
        place = "at its end" if self.at_end else f"at character {self.token.start}"
        return UnfollowedStatement(f"the statement isn't understood {place}: {why}")

    def name(self) -> str:
        """Read an identifier."""
        if not self.token.is_name:
            raise self.not_understood("a name expected")
        return self.next().text

    def qualified_name(self) -> tuple[str, str]:
        """Read a name. Returns (qualifier, name); the qualifier is empty if none is written."""
        self.accept(".")  # .t is t in the default database
        first = self.name()
        return (first, self.name()) if self.accept(".") else ("", first)

    def column_name(self) -> str:
        """Read ``a``, ``t.a``, ``db.t.a`` or ``.a`` (MariaDB takes all in definitions). Returns the last part."""
        self.accept(".")
        name = self.name()
        while self.accept("."):
            name = self.name()
        return name

    def table_name(self) -> TableName:
        """Read a table's name; the session's database is the default."""
        database, table = self.qualified_name()
        if not (database or self.database):
            raise self.not_understood("a table without a database")
        return TableName(self._stored(database or self.database), self._stored(table))

    def database_name(self) -> str:
        """Read a database's name, as the server stores it."""
        return self._stored(self.name())

    def possible_tables(self) -> tuple[TableName, ...]:
        """Return every name in the statement that could be a table's: all words, and pairs of them around a dot."""
        names: dict[TableName, None] = {}
        tokens = self.all_tokens()
        for index, token in enumerate(tokens):
            if not token.is_name:
                continue
            if self.database:
                names[TableName(self.database, self._stored(token.text))] = None
            if tokens[index + 1].key == "." and tokens[index + 2].is_name:
                names[TableName(self._stored(token.text), self._stored(tokens[index + 2].text))] = None
        return tuple(names)

    def _stored(self, name: str) -> str:
        """Return a name as the server stores it.

        The server lowers letter by letter; Python's ``lower`` also knows final forms, and letters that become two.
        """
        if not self.lower_case_names:
            return name
        return "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in name)

    def table_names(self) -> tuple[TableName, ...]:
        """Read names of tables, with commas between them."""
        names = [self.table_name()]
        while self.accept(","):
            names.append(self.table_name())
        return tuple(names)

    def integer(self) -> int:
        """Read a whole number of at most 20 digits."""
        token = self.next()
        # ASCII digits only, and few: Python refuses to read numbers of thousands of digits.
        if token.kind != "number" or not re.fullmatch(r"[0-9]{1,20}", token.text):
            raise self.not_understood("a whole number expected")
        return int(token.text)

    def skip_parentheses(self) -> None:
        """Step over a balanced pair of parentheses and all between."""
        self.expect("(")
        depth = 1
        while depth:
            token = self.next()
            if token.kind in ("end", "broken"):
                raise self.not_understood("a closing parenthesis expected")
            depth += (token.key == "(") - (token.key == ")")

    def skip_to(self, *keys: str) -> None:
        """Step forward to one of these symbols or words outside of parentheses, or to the end."""
        while not self.at_end and not self.at_any(*keys):
            if self.token.kind == "broken":
                raise self.not_understood("a quote or comment that never ends")
            if self.at("("):
                self.skip_parentheses()
            else:
                self.next()
