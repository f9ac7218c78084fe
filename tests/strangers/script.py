"""The language of the servers' test files (mysqltest), as far as it brings statements to a server.

Source: client/mysqltest.cc of both servers, ``read_line`` and the table of commands. What only shapes or checks the
output is left out; what a reader can't do (files, Perl, other servers) is left out too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Statement:
    """SQL. evaluated: ``$variables`` in it are replaced first."""

    text: str
    evaluated: bool = False


@dataclass(frozen=True)
class Let:
    """A variable: literal text, a query in backticks, or ``query_get_value(…)``."""

    name: str
    value: str


@dataclass(frozen=True)
class Count:
    """``inc`` and ``dec``."""

    name: str
    by: int


@dataclass(frozen=True)
class Source:
    """Another file's steps stand here."""

    name: str


@dataclass(frozen=True)
class Connect:
    """A new connection, which is the current one from here on."""

    name: str
    database: str


@dataclass(frozen=True)
class Switch:
    name: str


@dataclass(frozen=True)
class Disconnect:
    name: str


@dataclass(frozen=True)
class Exit:
    """The file ends here."""


@dataclass(frozen=True)
class Block:
    """``if`` or ``while``."""

    loops: bool
    condition: str
    steps: tuple[Step, ...]


Step = Statement | Let | Count | Source | Connect | Switch | Disconnect | Exit | Block

_IGNORED = frozenset({
    "append_file", "assert", "cat_file", "change_user", "character_set", "chdir", "chmod", "copy_file",
    "copy_files_wildcard", "diff_files", "dirty_close", "echo", "end_timer", "error", "exec", "exec_in_background",
    "execw", "expr", "file_exists", "force-cpdir", "force-rmdir", "horizontal_results", "list_files",
    "list_files_append_file", "list_files_write_file", "lowercase_result", "mkdir", "move_file", "optimizer_trace",
    "output", "partially_sorted_result", "perl", "ping", "ps-protocol", "query_attributes", "query_get_value",
    "real_sleep", "reap", "remove_file", "remove_files_wildcard", "replace_column", "replace_numeric_round",
    "replace_regex", "replace_result", "reset_connection", "result_format", "rmdir", "rpl_begin", "save_master_pos",
    "secret", "send_quit", "send_shutdown", "shutdown_server", "skip", "sleep", "sorted_result", "start_timer",
    "sync_with_master", "system", "vertical_results", "wait_for_slave_to_stop", "write_file",
})  # fmt: skip
_SQL = {"eval": True, "evalp": True, "send_eval": True, "query": False, "send": False, "query_vertical": False,
        "query_horizontal": False}  # fmt: skip
_WITH_BODY = {"perl": "EOF", "write_file": "EOF", "append_file": "EOF"}
_REPLICA = "slave"
_BLOCK = re.compile(r"(?:--\s*)?(if|while)\s*\(", re.IGNORECASE)


def steps_of(text: str) -> tuple[Step, ...]:
    """A file's steps in order. A block that is never closed ends with the file."""
    return _Reader(text).steps()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.delimiter = ";"

    def steps(self) -> tuple[Step, ...]:
        """Up to the brace that closes the block, or to the end."""
        parsed: list[Step] = []
        while (start := self._next()) is not None:
            if start == "}":
                self.at += 1
                break
            if start == "{" or self.text.startswith(self.delimiter, self.at):
                self.at += 1 if start == "{" else len(self.delimiter)
            elif start == "#":
                self._line()
            elif block := _BLOCK.match(self.text, self.at):
                parsed.append(self._block(block))
            elif self.text.startswith("--", self.at):
                parsed += self._command(self._line()[2:].strip(), dashed=True)
            else:
                parsed += self._command(self._statement(), dashed=False)
        return tuple(parsed)

    def _next(self) -> str | None:
        """The next character that isn't blank."""
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.text[self.at] if self.at < len(self.text) else None

    def _line(self) -> str:
        end = self.text.find("\n", self.at)
        end = len(self.text) if end < 0 else end
        line, self.at = self.text[self.at : end], end
        return line

    def _statement(self) -> str:
        start = self.at
        self.at = _end_of(self.text, start, self.delimiter)
        statement = self.text[start : self.at]
        self.at += len(self.delimiter)
        return statement.strip()

    def _block(self, head: re.Match[str]) -> Block:
        start = self.at = head.end()
        depth = 1
        quote = ""
        while self.at < len(self.text) and depth:
            letter = self.text[self.at]
            if quote:
                quote = "" if letter == quote else quote
            elif letter in "'\"`":
                quote = letter
            else:
                depth += {"(": 1, ")": -1}.get(letter, 0)
            self.at += 1
        condition = self.text[start : self.at - 1].strip()
        if self._next() == "{":
            self.at += 1
        return Block(head[1].lower() == "while", condition, self.steps())

    def _command(self, text: str, *, dashed: bool) -> Iterator[Step]:
        """A line behind two dashes that is no command is a comment; other text that is none is SQL."""
        word, _, rest = _words(text)
        if word == "delimiter":
            self.delimiter = rest.strip() or ";"
        elif word in _WITH_BODY:
            self._skip_body(_WITH_BODY[word], rest.split())
        elif word in _SQL:
            yield Statement(rest.strip(), _SQL[word])
        elif word in _COMMANDS:
            yield from _COMMANDS[word](rest.strip())
        elif not dashed and text and word not in _IGNORED and not word.startswith(("enable_", "disable_")):
            yield Statement(text)

    def _skip_body(self, ending: str, words: list[str]) -> None:
        if len(words) > 1 or (words and not ("$" in words[0] or "/" in words[0] or "." in words[0])):
            ending = words[-1]
        self._line()
        while self.at < len(self.text):
            self.at += 1
            if self._line().strip().rstrip(";") == ending.rstrip(";"):
                break


def _end_of(text: str, at: int, delimiter: str) -> int:
    """Where the statement's delimiter stands: not inside quotes. A quote that is never closed hides it to the end."""
    quote = ""
    while at < len(text):
        letter = text[at]
        if quote:
            if letter == "\\" and quote != "`":
                at += 1
            elif letter == quote:
                quote = ""
        elif text.startswith(delimiter, at):
            return at
        elif letter in "'\"`":
            quote = letter
        at += 1
    return len(text)


def _words(text: str) -> tuple[str, str, str]:
    match = re.match(r"([A-Za-z_][\w-]*)(\s*)(.*)", text, re.DOTALL)
    return (match[1].lower(), match[2], match[3]) if match else ("", "", text)


def _let(rest: str) -> Iterator[Step]:
    if assignment := re.match(r"\$?(\w+)\s*=\s*(.*)", rest, re.DOTALL):
        yield Let(assignment[1], assignment[2].strip())


def _connect(rest: str) -> Iterator[Step]:
    parts = [part.strip() for part in rest.strip("();").split(",")]
    database = parts[4] if len(parts) > 4 else ""
    yield Connect(parts[0], database if database.isidentifier() else "")


def _source(rest: str) -> Iterator[Step]:
    """Includes that end on a replica's connection, or come back from it, are followed in that alone."""
    name = rest.rstrip(";").strip()
    stem = name.rsplit("/", 1)[-1]
    if re.match(r"sync_(slave_sql|slave_io|slave)_with_master|sync_to_replica|rpl_connection_slave|connection_replica",
                stem):  # fmt: skip
        yield Switch(_REPLICA)
    elif re.match(r"rpl_connection_master|connection_source", stem):
        yield Switch("master")
    else:
        yield Source(name)


_COMMANDS: dict[str, Callable[[str], Iterator[Step]]] = {
    "let": _let,
    "source": _source,
    "connect": _connect,
    "connection": lambda rest: iter([Switch(rest.rstrip(";").strip())]),
    "disconnect": lambda rest: iter([Disconnect(rest.rstrip(";").strip())]),
    "sync_slave_with_master": lambda rest: iter([Switch(rest.rstrip(";").strip() or _REPLICA)]),
    "inc": lambda rest: iter([Count(rest.rstrip(";").strip().lstrip("$"), 1)]),
    "dec": lambda rest: iter([Count(rest.rstrip(";").strip().lstrip("$"), -1)]),
    "exit": lambda rest: iter([Exit()]),
    "die": lambda rest: iter([Exit()]),
    "skip": lambda rest: iter([Exit()]),
}
