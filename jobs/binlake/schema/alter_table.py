"""Reads ALTER TABLE from the table's name on.

Sources: MySQL manual 15.1.11 ALTER TABLE and 15.1.11.1 Partition Operations; MariaDB Knowledge Base, ALTER TABLE.
A statement is followed as a whole or not at all: one clause that isn't followed stops its table.
"""

from __future__ import annotations

from binlake.errors import UnfollowedStatement
from binlake.schema.changes import (
    AddColumns,
    AddedColumn,
    AddUniqueKey,
    Change,
    DropIndex,
    NoShapeChange,
    TableCharset,
    Unfollowed,
)
from binlake.schema.columns import (
    Dialect,
    charset_clause,
    collation_clause,
    column_definition,
    index_definition,
    word_or_string,
)
from binlake.schema.create_table import table_elements
from binlake.schema.definition import IndexDefinition
from binlake.schema.lexer import Cursor
from binlake.schema.table import TableName

_ROW_KEEPING_ENGINES = frozenset({"innodb", "myisam", "aria", "rocksdb"})
# Clauses and options that touch neither columns, key nor rows, by their first words.
_HARMLESS_CLAUSES = (
    ("ALGORITHM",),
    ("LOCK",),
    ("FORCE",),
    ("ENABLE", "KEYS"),
    ("DISABLE", "KEYS"),
    ("WITH", "VALIDATION"),
    ("WITHOUT", "VALIDATION"),
    ("ALTER", "INDEX"),
    ("ALTER", "KEY"),
    ("ALTER", "CHECK"),
    ("ALTER", "CONSTRAINT"),
    ("RENAME", "INDEX"),
    ("RENAME", "KEY"),
    ("DROP", "FOREIGN", "KEY"),
    ("DROP", "CHECK"),
    ("SECONDARY_LOAD",),
    ("SECONDARY_UNLOAD",),
)
_HARMLESS_OPTIONS = frozenset(
    """
    AUTOEXTEND_SIZE AUTO_INCREMENT AVG_ROW_LENGTH CHECKSUM COMMENT COMPRESSION CONNECTION
    DELAY_KEY_WRITE ENCRYPTED ENCRYPTION ENCRYPTION_KEY_ID ENGINE_ATTRIBUTE IETF_QUOTES KEY_BLOCK_SIZE
    MAX_ROWS MIN_ROWS PACK_KEYS PAGE_CHECKSUM PAGE_COMPRESSED PAGE_COMPRESSION_LEVEL PASSWORD ROW_FORMAT
    SECONDARY_ENGINE SECONDARY_ENGINE_ATTRIBUTE STATS_AUTO_RECALC STATS_PERSISTENT STATS_SAMPLE_PAGES
    TABLESPACE TABLE_CHECKSUM TRANSACTIONAL
    """.split()  # noqa: SIM905 words read better than a list
)
_HARMLESS_PARTITIONING = (
    ("ADD", "PARTITION"),
    ("COALESCE", "PARTITION"),
    ("REORGANIZE", "PARTITION"),
    ("ANALYZE", "PARTITION"),
    ("CHECK", "PARTITION"),
    ("OPTIMIZE", "PARTITION"),
    ("REBUILD", "PARTITION"),
    ("REPAIR", "PARTITION"),
    ("REMOVE", "PARTITIONING"),
    ("PARTITION", "BY"),
)
_UNFOLLOWED = (
    ("CHANGE",),
    ("MODIFY",),
    ("CONVERT", "TO"),
    ("RENAME", "COLUMN"),
    ("ALTER",),
    ("DROP", "PRIMARY", "KEY"),
    ("DROP", "PARTITION"),
    ("DROP", "SYSTEM", "VERSIONING"),
    ("DROP", "PERIOD"),
    ("ADD", "SYSTEM", "VERSIONING"),
    ("ADD", "PERIOD", "FOR"),
    ("TRUNCATE", "PARTITION"),
    ("DISCARD",),
    ("IMPORT",),
    ("UNION",),
    ("INSERT_METHOD",),
)


def alter_table(cursor: Cursor, dialect: Dialect, name: TableName, *, ignore: bool = False) -> tuple[Change, ...]:
    """The changes made by what follows the table's name, those of other tables after its own.

    ignore: ALTER IGNORE TABLE (MariaDB), which drops rows that a new key doesn't admit.
    """
    reader = _AlterTable(cursor, dialect, name, ignore)
    try:
        reader.read()
    except UnfollowedStatement as error:
        reader.unfollowed.append(error.message)
    return reader.result()


class _AlterTable:
    def __init__(self, cursor: Cursor, dialect: Dialect, name: TableName, ignore: bool) -> None:
        self.cursor = cursor
        self.dialect = dialect
        self.name = name
        self.ignore = ignore
        self.added: list[AddedColumn] = []
        self.changes: list[Change] = []
        self.charset: str | None = None
        self.unfollowed: list[str] = []
        self.others: list[Change] = []

    def result(self) -> tuple[Change, ...]:
        if self.unfollowed:
            return (Unfollowed(self.name, "; ".join(dict.fromkeys(self.unfollowed))), *self.others)
        charset: tuple[Change, ...] = (TableCharset(self.name, self.charset),) if self.charset else ()
        added: tuple[Change, ...] = (AddColumns(self.name, tuple(self.added), self.charset),) if self.added else ()
        # Keys come after the columns they are made of, wherever the statement names them.
        changes = (*charset, *added, *self.changes)
        return changes or (NoShapeChange(self.name, "no clause"),)

    def read(self) -> None:
        cursor = self.cursor
        while not cursor.at_end:
            before = cursor.index
            self._clause()
            # Options of the table and PARTITION BY follow each other without commas.
            if not cursor.accept(",") and cursor.index == before:
                raise cursor.not_understood("a clause of ALTER TABLE")

    def _clause(self) -> None:
        cursor = self.cursor
        if cursor.at("ADD", "PARTITION") or not cursor.at("ADD"):
            _ = self._other_table() or self._known_clause() or self._drop() or self._option()
        elif any(cursor.at(*words) for words in _UNFOLLOWED):
            self._stop()
        else:
            cursor.next()
            self._add()

    def _stop(self) -> None:
        words = [self.cursor.token.key]
        while len(words) < 3 and self.cursor.peek(len(words)).kind == "word" and len(words[0]) < 9:
            words.append(self.cursor.peek(len(words)).key)
        known = next((known for known in _UNFOLLOWED if tuple(words[: len(known)]) == known), (words[0],))
        self.unfollowed.append(f"{' '.join(known)} isn't followed")
        self.cursor.next()
        self.cursor.skip_to(",")

    def _no_change(self, why: str) -> None:
        self.changes.append(NoShapeChange(self.name, why))

    def _known_clause(self) -> bool:
        cursor = self.cursor
        for words in _HARMLESS_CLAUSES:
            if cursor.at(*words):
                self._no_change(" ".join(words))
                cursor.skip_to(",")
                return True
        for words in _HARMLESS_PARTITIONING:
            if cursor.at(*words):
                self._partitioning(" ".join(words))
                return True
        if cursor.at("ORDER", "BY"):
            self._no_change("ORDER BY")
            cursor.next()
            cursor.skip_to(",")
            while cursor.at(",") and cursor.peek(2).key in (",", "ASC", "DESC", ""):
                cursor.next()
                cursor.skip_to(",")
            return True
        if any(cursor.at(*words) for words in _UNFOLLOWED):
            self._stop()
            return True
        return False

    def _partitioning(self, clause: str) -> None:
        """Always the last clause: its own commas reach to the end."""
        if self.ignore:
            raise UnfollowedStatement(f"ALTER IGNORE with {clause} may drop rows")
        self._no_change(clause)
        while not self.cursor.at_end:
            self.cursor.skip_to(",")
            self.cursor.accept(",")

    def _other_table(self) -> bool:
        """Clauses that concern a second table."""
        cursor = self.cursor
        if cursor.at("RENAME") and not any(cursor.at("RENAME", what) for what in ("COLUMN", "INDEX", "KEY")):
            cursor.next()
            cursor.accept_any("TO", "AS", "=")
            self._both(cursor.table_name(), "renamed to", "renamed from")
            return True
        if cursor.accept("EXCHANGE", "PARTITION"):
            cursor.name()
            cursor.expect("WITH", "TABLE")
            self._both(cursor.table_name(), "its partition exchanged with", "exchanged with a partition of")
            cursor.skip_to(",")
            return True
        if cursor.accept("CONVERT", "TABLE"):
            self._both(cursor.table_name(), "got as a partition", "made a partition of")
            cursor.skip_to(",")
            return True
        if cursor.accept("CONVERT", "PARTITION"):
            cursor.name()
            cursor.expect("TO", "TABLE")
            self._both(cursor.table_name(), "its partition converted to", "converted from a partition of")
            cursor.skip_to(",")
            return True
        return False

    def _both(self, other: TableName, here: str, there: str) -> None:
        self.unfollowed.append(f"{here} {other}")
        self.others.append(Unfollowed(other, f"{there} {self.name}"))

    def _drop(self) -> bool:
        cursor = self.cursor
        if not cursor.accept("DROP"):
            return False
        if cursor.accept_any("INDEX", "KEY", "CONSTRAINT"):
            cursor.accept("IF", "EXISTS")
            self.changes.append(DropIndex(self.name, cursor.name()))
        else:
            self.unfollowed.append("DROP COLUMN isn't followed")
            cursor.skip_to(",")
        return True

    def _option(self) -> bool:
        """A table option: ``NAME [=] value``."""
        cursor = self.cursor
        cursor.accept("DEFAULT")
        if cursor.at_any("CHARSET", "CHARACTER"):
            self.charset = charset_clause(cursor) or self._database_default()
        elif cursor.at("COLLATE"):
            self.charset = collation_clause(cursor) or self.charset or self._database_default()
        elif cursor.accept("ENGINE") or cursor.accept("TYPE"):
            cursor.accept("=")
            if word_or_string(cursor).lower() not in _ROW_KEEPING_ENGINES:
                raise UnfollowedStatement("the change of ENGINE isn't followed")
            self._no_change("ENGINE")
        elif cursor.token.key in _HARMLESS_OPTIONS or cursor.at("INDEX", "DIRECTORY") or cursor.at("DATA", "DIRECTORY"):
            self._no_change(cursor.next().key)
            cursor.accept("DIRECTORY")
            cursor.accept("=")
            cursor.accept_any("-", "+")
            cursor.next()
            cursor.accept("STORAGE", "DISK") or cursor.accept("STORAGE", "MEMORY")
        else:
            return False
        return True

    def _database_default(self) -> str:
        raise UnfollowedStatement("the table's character set is set to a default the statement doesn't name")

    def _add(self) -> None:
        cursor = self.cursor
        explicit = cursor.accept("COLUMN")
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
        if cursor.at("("):
            definitions, indexes = table_elements(cursor, self.dialect)
            for definition in definitions:
                self._column(AddedColumn(definition, if_not_exists=if_not_exists))
            for index in indexes:
                self._index(index)
            return
        constraint = None if explicit else index_definition(cursor)
        if constraint is not None:
            self._index(constraint)
            return
        definition = column_definition(cursor, self.dialect)
        first = cursor.accept("FIRST")
        after = cursor.name() if not first and cursor.accept("AFTER") else None
        self._column(AddedColumn(definition, first, after, if_not_exists))
        self._index(IndexDefinition(definition.key, (definition.name,), (None,)))

    def _column(self, added: AddedColumn) -> None:
        if not added.if_not_exists:  # which may change nothing: evolve.apply knows
            added.definition.constant_default(self.charset or "utf8mb4")
        self.added.append(added)

    def _index(self, index: IndexDefinition) -> None:
        if index.kind == "primary":
            raise UnfollowedStatement("a new PRIMARY KEY isn't followed")
        if index.kind == "unique" and self.ignore:
            raise UnfollowedStatement("ALTER IGNORE with a new unique key may drop rows")
        if index.kind == "unique":
            self.changes.append(AddUniqueKey(self.name, index))
        elif not index.columns:
            self._no_change("ADD INDEX or CONSTRAINT")
