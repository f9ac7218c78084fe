"""The prompt of ``binlake sql``: queries that end in ``;`` and commands that begin with ``\\``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from binlake.cli import printing, query_output, query_thread
from binlake.errors import BinlakeError, UsageError
from binlake.lake.opened_lake import Lake
from binlake.lake.sql_session import QueryRows, is_mentioned, words_of, written_name, written_table
from binlake.lake.table_moments import QUOTED
from binlake.moment import parse_moment
from binlake.report import counted, harmless_entry
from binlake.schema.table import TableName

if TYPE_CHECKING:  # a prompt alone needs it
    from binlake.cli.query_process import QueryProcess

_MARK = re.compile(rf"{QUOTED.pattern}|;|(?P<unclosed>['\"`]|/\*)", re.DOTALL)
"""Pattern by which a statement's end is looked for: text in quotes or comments is passed over."""
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_HISTORY = 1000
"""Lines of the prompt's history that are kept."""
_MOST_COUNTED = 50
"""Tables whose rows are counted to list them."""
_KEYWORDS = (
    "SELECT", "FROM", "WHERE", "JOIN", "LEFT JOIN", "USING", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "UNION ALL",
    "WITH", "DISTINCT", "COUNT(*)", "BETWEEN", "IS NULL", "IS NOT NULL", "CASE WHEN", "DESCRIBE",
)  # fmt: skip
_COMMANDS = {
    "\\d": "list the tables, with key, rows and size",
    "\\d TABLE": "list a table's columns, and how far it is verified",
    "\\versions": "list the versions of the lake",
    "\\at VERSION": "go to a version: a batch's number, a pinned name, a time; without one to the newest",
    "\\boundary T B": "of a history or log T, the rows as of a batch's end or a place in the log, B, as a condition",
    "\\x": "show each value in a line of its own, or rows as a table again",
    "\\width N": "cut values at so many characters; 0 shows them whole",
    "\\pager": "show rows by the pager, or without it",
    "\\?": "list the commands; so does help",
    "\\q": "leave; so do exit and quit",
}
_WORDS = {"help": "\\?", "exit": "\\q", "quit": "\\q"}
"""Words that are commands where a statement would begin."""
_QUERIES = """\
  SELECT …;     run a query; it may take several lines, and Ctrl-C ends it
  SHOW TABLES;  and DESCRIBE TABLE; are understood, too
  … AT (BATCH 7), changes('…', 7, 9), information_schema: see binlake help sql"""
_CELLS = 60
"""Characters at which values are cut on a terminal."""


class Prompt:
    """Statements that are run one after another, over one version of the lake at a time."""

    def __init__(self, lake: Lake, form: str, output: Path | None = None, width: int | None = None) -> None:
        """form: of the rows, one of sql_commands.FORMATS. output: a file for them. width: at which values are cut; by
        default at that of a terminal."""
        self._form, self._output = form, output
        self._width = (_CELLS if sys.stdout.isatty() and output is None else 0) if width is None else width
        self._has_output = False
        self._pager: list[str] = []
        self._queries: QueryProcess | None = None
        self._lake, self._session = lake, lake.session()

    def run(self, text: str) -> None:
        """Run the statements of a text. Raises UsageError, LakeError at the first that fails."""
        pending = ""
        for line in text.splitlines(keepends=True):
            statements, pending = cut(pending + line)
            for statement in statements:
                if not self._run(statement):
                    return
        if pending.strip():
            self._run(pending)

    def ask(self, config: str | None = None) -> None:
        """Ask for statements until the input ends. An error is printed, and the next statement is asked for.

        config: the source's YAML, for a process that runs the queries, so that Ctrl-C ends them.
        """
        print(f"{self._at()}; \\? lists the commands")
        from binlake.cli import pager
        from binlake.cli.query_process import QueryProcess

        self._pager = pager.command() if sys.stdout.isatty() else []
        self._queries = QueryProcess(config) if config is not None else None
        with _line_editing(self.completions):
            self._ask()

    def close(self) -> None:
        """End what runs queries, and remove what they left."""
        self._session.close()
        if self._queries:
            self._queries.close()

    def _ask(self) -> None:
        statements, pending = list[str](), ""
        while True:
            try:
                if not statements:
                    line = input("   ... " if pending else "lake=> ")
                    if not pending:
                        line = _WORDS.get(line.strip("; ").lower(), line)
                    statements, pending = cut(f"{pending}{line}\n")
                elif not self._run(statements.pop(0)):
                    return
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                print()
                statements, pending = [], ""
                if self._queries:
                    self._queries.stop()
            except BinlakeError as error:
                print(harmless_entry(f"binlake: {error}"), file=sys.stderr)

    def query(self, sql: str) -> None:
        """Run one query and write its rows. Raises UsageError, LakeError."""
        if self._output is not None and self._has_output:
            raise UsageError(f"{self._output} has the rows of the query before", remedy="run each query by itself")
        rows = self._execute(sql)
        if self._pager and self._output is None and self._form in query_output.READ_BY_PEOPLE:
            from binlake.cli import pager

            with pager.opened(self._pager) as file:
                query_output.show(rows.schema, rows.batches, self._form, file, self._width)
            if self._queries:
                self._queries.stop()  # who left the pager wants no more rows
        else:
            query_output.write(rows.schema, rows.batches, self._form, self._output, self._width)
        self._has_output = True

    def _execute(self, sql: str) -> QueryRows:
        if self._queries:
            return self._queries.execute(self._lake.batch, sql)
        return query_thread.run(lambda: self._session.execute(sql))

    def _run(self, statement: str) -> bool:
        """Run a query or a command. Return whether to read another."""
        statement = statement.strip()
        statement = _WORDS.get(statement.strip("; ").lower(), statement)
        if statement.startswith("\\"):
            return self._command(*statement.split(maxsplit=1))
        if statement.strip(";").strip():
            self.query(statement)
        return True

    def _command(self, command: str, argument: str = "") -> bool:
        argument = argument.rstrip("; ")
        match command.rstrip(";"):
            case "\\q":
                return False
            case "\\d":
                self._columns(argument) if argument else self._tables()
            case "\\versions":
                versions = self._lake.versions()
                printing.lake_versions(versions, self._lake.count_thinned(versions))
            case "\\at":
                self._go_to(self._version(argument))
                print(self._at())
            case "\\boundary":
                print(self._boundary(argument))
            case "\\x":
                self._form = "table" if self._form == "expanded" else "expanded"
                print(f"rows are shown as {self._form}")
            case "\\width":
                if not argument.isdecimal():
                    raise UsageError(f"\\width {argument!r} is no number", remedy="write one, such as \\width 60")
                self._width = int(argument)
            case "\\pager":
                from binlake.cli import pager

                self._pager = [] if self._pager else pager.command()
                print(f"the pager is {self._pager[0] if self._pager else 'not used'}")
            case "\\?":
                print("\n".join([_QUERIES, *(f"  {name:13} {about}" for name, about in _COMMANDS.items())]))
            case _:
                raise UsageError(f"there is no command {command}", remedy="\\? lists them")
        return True

    def _version(self, text: str) -> Lake:
        """Return the lake at a batch, a name or a time; at the newest without one. Raises UsageError, LakeError."""
        if not text:
            return self._lake.at()
        if text.isdigit():
            return self._lake.at(batch=int(text))
        if any(version.name == text for version in self._lake.versions()):
            return self._lake.at(name=text)
        return self._lake.at(time=parse_moment(text, "\\at", instead="a batch's number, a pinned name"))

    def _boundary(self, argument: str) -> str:
        from binlake.cli.boundary_conditions import condition

        table, _, boundary = argument.rpartition(" ")
        if not table:
            raise UsageError(
                "\\boundary takes a table and a boundary",
                remedy="write \\boundary shop.orders__history 120, or binlog.000042:157 for the batch",
            )
        return condition(self._lake, self._session.full_name(table.strip()), boundary)

    def _go_to(self, lake: Lake) -> None:
        self._session.close()
        self._lake, self._session = lake, lake.session()

    def _at(self) -> str:
        version = self._lake.version
        named = f" ({version.name})" if version.name else ""
        return f"batch {version.batch}{named}, with all that was committed by {printing.exact(version.committed)} UTC"

    def _tables(self) -> None:
        """Print the tables; rows and sizes of few alone, as each table's log is read for them."""
        from binlake.lake.dictionary import extents_of

        known = self._lake.dictionary()
        extents = extents_of(table.at for table in known) if len(known) <= _MOST_COUNTED else {}
        rows = []
        for table in known:
            extent = extents.get(table.name)
            size = (f"{extent.rows:,}", f"{extent.bytes / 1e6:,.1f}") if extent else ("", "")
            rows.append((str(table.name), table.at.version, ", ".join(table.key), *size, table.verified_batch))
        columns = ("table", "Delta version", "key", "rows", "MB", "verified through batch")
        printing.table("", columns, rows)

    def _columns(self, written: str) -> None:
        from binlake.lake.dictionary import extents_of

        table = self._lake.described(self._session.full_name(written))
        rows = [
            (
                column.name,
                column.lake_type,
                column.comment,
                column.server_type,
                "" if column.nullable else "NOT NULL",
                column.in_key or "",
            )
            for column in table.columns
        ]
        printing.table(table.comment, ("column", "type", "comment", "on the server", "null", "in key"), rows)
        if table.key:
            print(f"key ({table.key_kind}): {', '.join(table.key)}")
        for extent in extents_of([table.at]).values():
            print(f"{counted(extent.rows, 'row')}, {extent.bytes / 1e6:,.1f} MB in {counted(extent.files, 'file')}")
        print(f"as of {self._at()}")
        if table.verified:
            moment = printing.exact(table.verified)
            print(f"equal to the server up to batch {table.verified_batch}, compared at {moment} UTC")

    def completions(self, text: str, line: str) -> list[str]:
        """Return what a word of the line may become: keywords, tables, and columns of the tables that the line
        names."""
        words = words_of(line)
        known = [name for name in self._lake.tables if is_mentioned(name.partition(".")[2], line, words)]
        columns = {column for name in known for column, _ in self._lake.columns(name)}
        tables = (written_table(TableName.parse(name)) for name in sorted(self._lake.tables))
        commands = (command.partition(" ")[0] for command in _COMMANDS)
        candidates = [*map(written_name, sorted(columns)), *tables, *_KEYWORDS, *dict.fromkeys(commands)]
        return [word for word in candidates if word.casefold().startswith(text.casefold())]


def cut(text: str) -> tuple[list[str], str]:
    """Return the statements that end in a text, a command with its line, a query with ``;``, and what is left."""
    statements: list[str] = []
    while text := text.lstrip():
        end = _end_of_command(text) if text.startswith("\\") else _end_of_query(text)
        if end is None:
            break
        statements.append(text[:end])
        text = text[end:]
    if statements and not _COMMENT.sub("", text).strip():
        text = ""  # a comment behind a statement begins no other
    return statements, text


def _end_of_command(text: str) -> int:
    line, _, _ = text.partition("\n")
    return len(line)


def _end_of_query(text: str) -> int | None:
    """Return the place behind the first ``;`` outside of quotes and comments; None where there is none."""
    for mark in _MARK.finditer(text):
        if mark[0] == ";":
            return mark.end()
        if mark["unclosed"]:
            break
    return None


@contextmanager
def _line_editing(completions: Callable[[str, str], list[str]]) -> Iterator[None]:
    """Let the input's lines be edited, completed and remembered, where Python has readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    matches: list[str] = []

    def complete(text: str, state: int) -> str | None:
        if state == 0:
            matches[:] = completions(text, readline.get_line_buffer())
        return matches[state] if state < len(matches) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n,;()=<>+-*/")
    readline.parse_and_bind("tab: complete")
    readline.set_history_length(_HISTORY)
    path = _history_file()
    with suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))  # queries may hold values of rows
            readline.write_history_file(path)


def _history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
    return Path(state, "binlake", "sql_history")
