"""Parsing of DDL statements into what they do to tables.

    parse(text, database=…, sql_mode=…, flavour=…)   → ParsedStatement      (changes.py, alterations.py: its parts)
    evolve(schema, change, flavour=…)                → Evolution: the shape after, and where its values come from
    conversion(before, after, strict=…)              → what a changed type made of existing values

The parser is this package's own, because sqlglot 30 can't parse many statements that change tables (ALTER TABLE …
CONVERT TO, EXCHANGE PARTITION, RENAME TABLE, versioned comments, SRID, synonyms of types) and loses attributes of
others. Parsing is strict where a table's shape depends on it and tolerant elsewhere: a statement that isn't understood
stops the tables that it names, and only those. Source: MySQL manual 15.1; MariaDB Knowledge Base, SQL Statements.

A statement's text doesn't contain: that a table is temporary (row format doesn't log those), the character set of the
session, what triggers and foreign keys do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from binlake.ddl import dml
from binlake.ddl.alter_table import alter_table, altered
from binlake.ddl.alterations import (
    AddColumn,
    AddForeignKey,
    AddKey,
    Alteration,
    AlterDefault,
    AlterVisibility,
    ChangeColumn,
    ColumnPlace,
    ConvertCharset,
    DropColumn,
    DropKey,
    RenameColumn,
    RenameKey,
    TableCharset,
)
from binlake.ddl.changes import (
    AlterTable,
    Change,
    CreateLike,
    CreateTable,
    DatabaseCharset,
    DropDatabase,
    DropTable,
    NoShapeChange,
    ParsedStatement,
    RenameTables,
    RowsChanged,
    TruncateTable,
    Unfollowed,
)
from binlake.ddl.column_definitions import charset_clause, collation_clause, index_parts, using_hash
from binlake.ddl.conversion import Conversion, conversion
from binlake.ddl.create_table import create_table
from binlake.ddl.defaults import NotConstant, old_row_default
from binlake.ddl.evolve import Evolution, evolve
from binlake.errors import UnfollowedStatement, unexpected
from binlake.position import Flavour
from binlake.schema.lexer import Cursor, Dialect, Lexer, words_of
from binlake.schema.statement_session import Session
from binlake.schema.table import TableName

__all__ = [
    "AddColumn",
    "AddForeignKey",
    "AddKey",
    "AlterDefault",
    "AlterTable",
    "AlterVisibility",
    "Alteration",
    "Change",
    "ChangeColumn",
    "ColumnPlace",
    "Conversion",
    "ConvertCharset",
    "CreateLike",
    "CreateTable",
    "DatabaseCharset",
    "DropColumn",
    "DropDatabase",
    "DropKey",
    "DropTable",
    "Evolution",
    "NoShapeChange",
    "NotConstant",
    "ParsedStatement",
    "RenameColumn",
    "RenameKey",
    "RenameTables",
    "RowsChanged",
    "TableCharset",
    "TruncateTable",
    "Unfollowed",
    "conversion",
    "evolve",
    "named_in",
    "old_row_default",
    "parse",
    "tables_of",
]

# Kinds of objects that CREATE, ALTER and DROP can be about, by the word that names them.
_OBJECTS = {
    **{word: word for word in ("TABLE", "INDEX", "DATABASE", "VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT")},
    **{word: word for word in ("USER", "ROLE", "SERVER", "TABLESPACE", "SEQUENCE", "PACKAGE", "LIBRARY", "INSTANCE")},
    "TABLES": "TABLE",
    "SCHEMA": "DATABASE",
    "LOGFILE": "LOGFILE GROUP",
    "RESOURCE": "RESOURCE GROUP",
    "REFERENCE": "SPATIAL REFERENCE SYSTEM",
    "PREPARE": "PREPARE",
}
_MODIFIERS = frozenset(
    """
    AGGREGATE DUALITY EXTERNAL FULLTEXT IGNORE JSON MATERIALIZED OFFLINE ONLINE OR RELATIONAL REPLACE SPATIAL
    TEMPORARY UNDO UNIQUE VECTOR
    """.split()  # noqa: SIM905 words read better than a list
)
_MAINTENANCE = ("ANALYZE", "OPTIMIZE", "REPAIR", "CHECK", "CHECKSUM")
_ADMINISTRATION = frozenset(
    """
    ALTER BEGIN BINLOG CACHE CHANGE CLONE COMMIT CREATE DEALLOCATE DESC DESCRIBE DROP EXPLAIN FLUSH
    GRANT HELP INSTALL KILL LOCK PREPARE PURGE RELEASE RESET RESTART REVOKE ROLLBACK SAVEPOINT SET SHOW
    SHUTDOWN SIGNAL START STOP UNINSTALL UNLOCK USE XA
    """.split()  # noqa: SIM905 words read better than a list
)


# Variables by which SET STATEMENT changes what definitions mean; sql_mode is in the log.
_MEANING = frozenset({"explicit_defaults_for_timestamp", "old_mode"})
_CHARACTERS = ("character_set_", "collation_")
_UNION = re.compile("union", re.IGNORECASE)
_USUAL: Mapping[str, str] = {}
_USUAL_SESSION = Session(explicit_timestamps=True)


def parse(
    text: str,
    *,
    database: str,
    sql_mode: int,
    flavour: Flavour,
    charsets: Mapping[str, str] = _USUAL,
    lower_case_names: bool = False,
    session: Session = _USUAL_SESSION,
    concerns: Callable[[TableName], bool] = lambda name: True,
) -> ParsedStatement:
    """Parse a statement of the log. Never raises: the result says what isn't understood.

    database: the session's default database, "" for none. sql_mode: the server's bits, as the query event has them.
    charsets: default character sets of databases, by name, where they aren't utf8mb4. lower_case_names: the server has
    lower_case_table_names=1: a name means the table stored in lower case, however it is written. session: other
    settings of it in the log; by default explicit_defaults_for_timestamp is on, as on the servers. concerns: returns
    whether a table is mirrored; the columns of another one that is created aren't read.
    """
    cursor = Cursor(Lexer(text, sql_mode, flavour), database, lower_case_names=lower_case_names)
    try:
        parsed = _Reader(cursor, Dialect(sql_mode, flavour, session), charsets, concerns).statement()
    except UnfollowedStatement:
        parsed = _unparsed(cursor, "a statement that isn't understood may concern it")
    except Exception as error:  # no text that somebody writes ends the source
        parsed = _unparsed(cursor, f"a statement may concern it whose parsing failed: {unexpected(error)}")
    return replace(parsed, is_cut=True) if cursor.lexer.is_cut else parsed


def _unparsed(cursor: Cursor, why: str) -> ParsedStatement:
    try:
        tokens = cursor.all_tokens()
    except UnfollowedStatement:
        return ParsedStatement("UNPARSED")
    names = cursor.possible_tables()
    changes = tuple(Unfollowed(name, why) for name in names)
    return ParsedStatement("UNPARSED", names, changes, may_concern_any=any(token.kind == "broken" for token in tokens))


def named_in(text: str, tables: Collection[TableName]) -> list[TableName]:
    """Return those tables that a statement which isn't read to its end may name, in strings and comments, too."""
    by_word: dict[str, list[TableName]] = {}
    for table in tables:
        by_word.setdefault(next(words_of(table.table), ""), []).append(table)
    named = by_word.pop("", [])  # a name without a letter
    for word in words_of(text):
        named += by_word.pop(word, ())
        if not by_word:
            break
    return named


class _Reader:
    """Parser of one statement. It raises UnfollowedStatement only while it isn't known which tables are concerned."""

    def __init__(
        self, cursor: Cursor, dialect: Dialect, charsets: Mapping[str, str], concerns: Callable[[TableName], bool]
    ) -> None:
        self.cursor = cursor
        self.dialect = dialect
        self.charsets = charsets
        self.concerns = concerns

    def statement(self) -> ParsedStatement:
        cursor = self.cursor
        self._skip_set_statement()
        if cursor.at_end:
            return ParsedStatement("EMPTY")
        verb = cursor.token.key
        if verb in ("CREATE", "ALTER", "DROP"):
            return self._definition(verb)
        if cursor.accept("RENAME"):
            return self._rename()
        if cursor.accept("TRUNCATE"):
            cursor.accept("TABLE")
            name = cursor.table_name()
            return ParsedStatement("TRUNCATE TABLE", (name,), (TruncateTable(name),))
        if verb in _MAINTENANCE:
            return self._maintenance(verb)
        changed = dml.changed_tables(cursor)
        if changed is not None:
            why = "its rows were changed in statement format, which logs no row images"
            return ParsedStatement(
                "DML",
                changed.tables,
                tuple(Unfollowed(name, why) for name in changed.tables),
                may_concern_any=changed.may_concern_any,
            )
        if verb in _ADMINISTRATION:
            return ParsedStatement(verb)
        raise cursor.not_understood("an unknown statement")

    def _skip_set_statement(self) -> None:
        """Step over MariaDB's ``SET STATEMENT variable=value, … FOR`` before a statement.

        Raises UnfollowedStatement if a variable changes what the rest means.
        """
        cursor = self.cursor
        names: set[str] = set()
        while cursor.accept("SET", "STATEMENT"):
            names |= self._set_variables()
        if names & _MEANING or any(name.startswith(_CHARACTERS) for name in names):
            raise cursor.not_understood("SET STATEMENT of a variable that changes what the rest means")
        if "sql_mode" in names:
            # The log has this mode, but the statement was read under the session's.
            if '"' in cursor.lexer.text or "\\" in cursor.lexer.text:
                raise cursor.not_understood("quotes or backslashes under a session's sql_mode that isn't known")
            self.dialect = replace(self.dialect, session_mode_unknown=True)

    def _set_variables(self) -> set[str]:
        cursor = self.cursor
        names: set[str] = set()
        while True:
            names.add(cursor.name().lower())
            cursor.accept(":")
            cursor.expect("=")
            cursor.skip_to(",", "FOR")
            if not cursor.accept(","):
                break
        cursor.expect("FOR")
        return names

    def _definition(self, verb: str) -> ParsedStatement:
        cursor = self.cursor
        start = cursor.index
        cursor.next()
        modifiers = self._modifiers()
        if not cursor.at_any(*_OBJECTS):
            cursor.index = start
            raise cursor.not_understood("an unknown statement")
        object_ = _OBJECTS[cursor.next().key]
        if object_ in ("TABLE", "SEQUENCE") and "TEMPORARY" in modifiers:
            return self._temporary(verb)
        kind = f"{verb} {object_}"
        match kind:
            case "CREATE TABLE":
                return self._create_table(or_replace="REPLACE" in modifiers)
            case "ALTER TABLE":
                return self._alter_table(ignore="IGNORE" in modifiers)
            case "DROP TABLE":
                return self._drop_table()
            case "CREATE INDEX":
                return self._create_index(modifiers)
            case "DROP INDEX":
                return self._drop_index()
            case "DROP DATABASE":
                cursor.accept("IF", "EXISTS")
                return ParsedStatement(kind, (), (DropDatabase(cursor.database_name()),))
            case "CREATE SEQUENCE" | "ALTER SEQUENCE" | "DROP SEQUENCE":
                return self._sequence(kind, or_replace="REPLACE" in modifiers)
            case "CREATE DATABASE" | "ALTER DATABASE":
                return self._database(kind, replaces="REPLACE" in modifiers)
        return ParsedStatement(kind)

    def _temporary(self, verb: str) -> ParsedStatement:
        cursor = self.cursor
        kind = f"{verb} TEMPORARY TABLE"
        if verb == "CREATE":
            cursor.accept("IF", "NOT", "EXISTS")
            return ParsedStatement(kind, temporary=(cursor.table_name(),))
        cursor.accept("IF", "EXISTS")
        return ParsedStatement(kind, temporary=cursor.table_names())

    def _modifiers(self) -> set[str]:
        """Read the words between the verb and its object, such as OR REPLACE or TEMPORARY."""
        cursor = self.cursor
        words: set[str] = set()
        while not cursor.at_end:
            if cursor.accept("DEFINER", "="):
                self._skip_account()
            elif cursor.accept("ALGORITHM", "=") or cursor.accept("SQL", "SECURITY"):
                cursor.next()
            elif cursor.at_any(*_MODIFIERS):
                words.add(cursor.next().key)
            else:
                break
        return words

    def _skip_account(self) -> None:
        """Step over ``name``, ``name@host``, ``CURRENT_USER`` or ``CURRENT_USER()``; a host may have dots."""
        cursor = self.cursor
        cursor.next()
        if cursor.accept("(", ")") or not cursor.accept("@"):
            return
        host = cursor.next()
        while cursor.token.start == host.end and not cursor.at_end:
            host = cursor.next()

    def _create_table(self, *, or_replace: bool) -> ParsedStatement:
        cursor = self.cursor
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
        name = cursor.table_name()
        if not self.concerns(name) and not _UNION.search(cursor.lexer.text):  # of a MERGE table's members
            return ParsedStatement("CREATE TABLE", (name,))
        try:
            charset = self._charset(name)
            created = create_table(cursor, self.dialect, name, if_not_exists=if_not_exists, default_charset=charset)
        except UnfollowedStatement as error:
            created = (Unfollowed(name, error.message),)
        except Exception as error:  # its columns are analysed
            created = (Unfollowed(name, f"its columns can't be read: {unexpected(error)}"),)
        changes = (DropTable(name), *created) if or_replace else created
        return ParsedStatement("CREATE TABLE", _tables_of_all(name, changes), changes)

    def _charset(self, name: TableName) -> str:
        return self.charsets.get(name.database, "utf8mb4")

    def _alter_table(self, *, ignore: bool) -> ParsedStatement:
        cursor = self.cursor
        cursor.accept("IF", "EXISTS")
        name = cursor.table_name()
        self._skip_wait()
        changes = alter_table(cursor, self.dialect, name, ignore=ignore, default_charset=self._charset(name))
        if not cursor.lexer.is_cut and any(token.kind == "broken" for token in cursor.all_tokens()):
            why = "the statement has a quote or comment that never ends"
            changes = tuple(Unfollowed(other, why) for other in _tables_of_all(name, changes))
        return ParsedStatement("ALTER TABLE", _tables_of_all(name, changes), changes)

    def _drop_table(self, kind: str = "DROP TABLE") -> ParsedStatement:
        self.cursor.accept("IF", "EXISTS")
        names = self.cursor.table_names()
        return ParsedStatement(kind, names, tuple(DropTable(name) for name in names))

    def _sequence(self, kind: str, *, or_replace: bool) -> ParsedStatement:
        """Parse a statement on a MariaDB sequence. It is in the tables' namespace; its changes are logged as rows."""
        if kind == "DROP SEQUENCE":
            return self._drop_table(kind)
        self.cursor.accept("IF", "NOT", "EXISTS") or self.cursor.accept("IF", "EXISTS")
        name = self.cursor.table_name()
        change = Unfollowed(name, f"{kind} doesn't log the row that it writes")
        return ParsedStatement(kind, (name,), (DropTable(name), change) if or_replace else (change,))

    def _create_index(self, modifiers: set[str]) -> ParsedStatement:
        cursor = self.cursor
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
        start, index = cursor.index, cursor.name()
        cursor.skip_to("ON")
        cursor.expect("ON")
        name = cursor.table_name()
        try:
            parts = index_parts(cursor, "unique" if "UNIQUE" in modifiers else "none")
            cursor.skip_to()
        except UnfollowedStatement as error:
            return ParsedStatement("CREATE INDEX", (name,), (Unfollowed(name, error.message),))
        by_hash = using_hash(cursor, start)
        key = AddKey(replace(parts, name=index, if_not_exists=if_not_exists, by_hash=by_hash))
        clauses = (DropKey(index, if_exists=True), key) if "REPLACE" in modifiers else (key,)
        change = altered(self.dialect, name, clauses, ignore="IGNORE" in modifiers)
        return ParsedStatement("CREATE INDEX", (name,), (change,))

    def _drop_index(self) -> ParsedStatement:
        cursor = self.cursor
        if_exists = cursor.accept("IF", "EXISTS")
        index = cursor.name()
        cursor.expect("ON")
        name = cursor.table_name()
        change = altered(self.dialect, name, (DropKey(index, if_exists),), ignore=False)
        return ParsedStatement("DROP INDEX", (name,), (change,))

    def _rename(self) -> ParsedStatement:
        cursor = self.cursor
        if cursor.accept("USER"):
            return ParsedStatement("RENAME USER")
        if not cursor.accept_any("TABLE", "TABLES"):
            raise cursor.not_understood("RENAME TABLE expected")
        if_exists = cursor.accept("IF", "EXISTS")
        pairs: list[tuple[TableName, TableName]] = []
        while True:
            old = cursor.table_name()
            self._skip_wait()
            cursor.expect("TO")
            pairs.append((old, cursor.table_name()))
            if not cursor.accept(","):
                break
        renames = RenameTables(tuple(pairs), if_exists)
        return ParsedStatement("RENAME TABLE", tables_of(renames), (renames,))

    def _skip_wait(self) -> None:
        """Step over MariaDB's ``WAIT n`` and ``NOWAIT``."""
        if self.cursor.accept("WAIT"):
            self.cursor.next()
        else:
            self.cursor.accept("NOWAIT")

    def _maintenance(self, verb: str) -> ParsedStatement:
        cursor = self.cursor
        cursor.next()
        cursor.accept_any("NO_WRITE_TO_BINLOG", "LOCAL")
        if not cursor.accept_any("TABLE", "TABLES"):
            return ParsedStatement(verb)
        names = cursor.table_names()
        kind = f"{verb} TABLE"
        return ParsedStatement(kind, names, tuple(NoShapeChange(name, kind) for name in names))

    def _database(self, kind: str, *, replaces: bool) -> ParsedStatement:
        """Parse CREATE, ALTER or DROP DATABASE. ALTER may omit the name. replaces: MariaDB's CREATE OR REPLACE."""
        cursor = self.cursor
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
        options = ("DEFAULT", "CHARSET", "CHARACTER", "COLLATE", "ENCRYPTION", "READ", "COMMENT", "UPGRADE")
        name = cursor.database if cursor.at_any(*options) else cursor.database_name()
        charset: str | None = None
        charset_written = kind == "CREATE DATABASE"
        while not cursor.at_end:
            if cursor.at("CHARSET") or cursor.at("CHARACTER", "SET"):
                charset, charset_written = charset_clause(cursor), True
            elif cursor.at("COLLATE"):
                charset, charset_written = collation_clause(cursor) or charset, True
            else:
                cursor.next()
        return ParsedStatement(
            kind,
            changes=(DropDatabase(name),) if replaces else (),
            database_charset=DatabaseCharset(name, charset, if_not_exists) if charset_written else None,
        )


def tables_of(change: Change) -> tuple[TableName, ...]:
    """Return all tables that a change names."""
    match change:
        case DropDatabase():
            return ()
        case RenameTables():
            return tuple(dict.fromkeys(name for pair in change.pairs for name in pair))
        case CreateLike():
            return change.name, change.like
        case _:
            return (change.name,)


def _tables_of_all(first: TableName, changes: tuple[Change, ...]) -> tuple[TableName, ...]:
    return tuple(dict.fromkeys((first, *(name for change in changes for name in tables_of(change)))))
