"""Reads ALTER TABLE from the table's name on.

Sources: MySQL manual 15.1.11 ALTER TABLE and 15.1.11.1 Partition Operations; MariaDB Knowledge Base, ALTER TABLE.
A statement is followed as a whole or not at all: one clause that isn't understood stops its table.
"""

from __future__ import annotations

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
    SystemVersioning,
    TableCharset,
    TableComment,
)
from binlake.ddl.changes import (
    AlterTable,
    Change,
    CreateLike,
    DropTable,
    NoShapeChange,
    RenameTables,
    RowsChanged,
    Unfollowed,
)
from binlake.ddl.column_definitions import charset_clause, collation_clause, column_definition, index_definition
from binlake.ddl.create_table import (
    at_comment,
    comment_clause,
    engine_clause,
    own_keys,
    table_elements,
    union_clause,
)
from binlake.ddl.definition import ColumnDefinition, IndexDefinition
from binlake.ddl.literals import default_value
from binlake.errors import UnfollowedStatement
from binlake.schema.engines import why_member_refused, why_refused
from binlake.schema.lexer import NO_AUTO_VALUE_ON_ZERO, PAD_CHAR_TO_FULL_LENGTH, Cursor, Dialect
from binlake.schema.table import TableName

_ROW_KEEPING_ENGINES = frozenset({"innodb", "myisam", "aria", "rocksdb", "archive", "csv"})
# Clauses and options that touch neither columns, key, rows nor comments, by their first words.
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
    ("DROP", "FOREIGN", "KEY"),
    ("DROP", "CHECK"),
    ("SECONDARY_LOAD",),
    ("SECONDARY_UNLOAD",),
)
_HARMLESS_OPTIONS = frozenset(
    """
    AUTOEXTEND_SIZE AUTO_INCREMENT AVG_ROW_LENGTH CHECKSUM COMPRESSION CONNECTION
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
# Rows come or go, and no row event says which.
_ROWS_COME = ("IMPORT",)
_ROWS_CHANGE = (
    ("DROP", "PARTITION"),
    ("TRUNCATE", "PARTITION"),
    ("DISCARD",),
    _ROWS_COME,
)
_FIRST_WORDS = {words[0] for words in (*_HARMLESS_CLAUSES, *_HARMLESS_PARTITIONING, *_ROWS_CHANGE, ("ORDER", "BY"))}


def alter_table(
    cursor: Cursor, dialect: Dialect, name: TableName, *, ignore: bool = False, default_charset: str = "utf8mb4"
) -> tuple[Change, ...]:
    """Parse what follows the table's name. Returns the changes in their order. Raises UnfollowedStatement.

    ignore: ALTER IGNORE TABLE (MariaDB), which drops rows that a new key doesn't admit, and makes values fit.
    default_charset: the database's, which CHARACTER SET DEFAULT gives the table.
    """
    reader = _AlterTable(cursor, dialect, name, ignore, default_charset)
    try:
        reader.read()
    except UnfollowedStatement as error:
        reader.unfollowed.append(error.message)
    return reader.result()


def altered(dialect: Dialect, name: TableName, alterations: tuple[Alteration, ...], *, ignore: bool) -> AlterTable:
    """Return an AlterTable with these clauses, and the settings of the session that influence the rows."""
    return AlterTable(
        name,
        alterations,
        strict=dialect.strict and not ignore,
        pads_char=bool(dialect.sql_mode & PAD_CHAR_TO_FULL_LENGTH),
        keeps_zeros=bool(dialect.sql_mode & NO_AUTO_VALUE_ON_ZERO),
        session=dialect.session,
    )


class _AlterTable:
    def __init__(self, cursor: Cursor, dialect: Dialect, name: TableName, ignore: bool, default_charset: str) -> None:
        self.cursor = cursor
        self.dialect = dialect
        self.name = name
        self.ignore = ignore
        self.default_charset = default_charset
        self.alterations: list[Alteration] = []
        self.charset: str | None = None
        self.nothing: list[str] = []
        self.rows: list[str] = []
        self.rows_come = False
        self.unfollowed: list[str] = []
        self.others: list[Change] = []
        self.other_names: list[TableName] = []
        self.renamed: TableName | None = None

    def result(self) -> tuple[Change, ...]:
        name = self.name
        if self.unfollowed:
            others = dict.fromkeys((*self.other_names, self.renamed) if self.renamed else self.other_names)
            why = "; ".join(dict.fromkeys(self.unfollowed))
            members = [change for change in self.others if isinstance(change, Unfollowed)]
            return (Unfollowed(name, why), *(Unfollowed(other, f"{name}: {why}") for other in others), *members)
        changes: list[Change] = []
        if self.charset:
            self.alterations.append(TableCharset(self.charset))
        if self.alterations:
            changes.append(altered(self.dialect, name, tuple(self.alterations), ignore=self.ignore))
        if self.rows:
            changes.append(RowsChanged(name, "; ".join(dict.fromkeys(self.rows)), self.rows_come))
        changes += self.others
        if self.renamed:
            changes.append(RenameTables(((name, self.renamed),)))
        return tuple(changes) or (NoShapeChange(name, ", ".join(self.nothing) or "no clause"),)

    def read(self) -> None:
        cursor = self.cursor
        while not cursor.at_end:
            if cursor.at(","):
                raise cursor.not_understood("a clause expected")
            before = cursor.index
            self._clause()
            # Options of the table and PARTITION BY follow each other without commas.
            if not cursor.accept(",") and cursor.index == before:
                raise cursor.not_understood("a clause of ALTER TABLE")

    def _clause(self) -> None:
        cursor = self.cursor
        if self._versioning():
            return
        if cursor.at("ADD") and not cursor.at("ADD", "PARTITION"):
            cursor.next()
            self._add()
            return
        _ = self._other_table() or self._without_shape() or self._column_clause() or self._drop() or self._option()

    def _versioning(self) -> bool:
        cursor = self.cursor
        if cursor.accept("ADD", "SYSTEM", "VERSIONING"):
            self.alterations.append(SystemVersioning(on=True))
        elif cursor.accept("DROP", "SYSTEM", "VERSIONING"):
            self.alterations.append(SystemVersioning(on=False))
        elif cursor.accept("DROP", "PERIOD", "FOR", "SYSTEM_TIME"):
            self.nothing.append("DROP PERIOD")
        elif cursor.at("DROP", "PERIOD", "FOR"):
            raise UnfollowedStatement("DROP PERIOD isn't followed")
        else:
            return False
        return True

    def _without_shape(self) -> bool:
        """Read a clause that changes neither columns nor keys. Tells whether there was one."""
        cursor = self.cursor
        if not cursor.at_any(*_FIRST_WORDS):
            return False
        for words in _HARMLESS_CLAUSES:
            if cursor.at(*words):
                self.nothing.append(" ".join(words))
                cursor.skip_to(",", "PARTITION")
                return True
        for words in (*_HARMLESS_PARTITIONING, *_ROWS_CHANGE):
            if cursor.at(*words):
                self.rows_come = self.rows_come or words == _ROWS_COME
                self._partitioning(" ".join(words), rows_change=words in _ROWS_CHANGE)
                return True
        if cursor.accept("ORDER", "BY"):
            self.nothing.append("ORDER BY")
            self._order()
            return True
        return False

    def _order(self) -> None:
        """Read ORDER BY's columns, as ``t.a DESC, b``: after a comma there follows another column, no clause."""
        while True:
            self.cursor.column_name()
            self.cursor.accept_any("ASC", "DESC")
            if not self.cursor.accept(","):
                return

    def _partitioning(self, clause: str, *, rows_change: bool) -> None:
        """Step over a partitioning clause. It is the last: all commas to the end are its own."""
        if rows_change or self.ignore:
            self.rows.append(clause)
        else:
            self.nothing.append(clause)
        while not self.cursor.at_end:
            self.cursor.skip_to(",")
            self.cursor.accept(",")

    def _other_table(self) -> bool:
        """Read a clause that concerns a second table. Tells whether there was one."""
        cursor, name = self.cursor, self.name
        if cursor.at("RENAME") and not any(cursor.at("RENAME", what) for what in ("COLUMN", "INDEX", "KEY")):
            cursor.next()
            cursor.accept_any("TO", "AS", "=")
            self.renamed = cursor.table_name()
            return True
        if cursor.accept("EXCHANGE", "PARTITION"):
            cursor.name()
            cursor.expect("WITH", "TABLE")
            other = cursor.table_name()
            self.rows.append(f"its partition exchanged with {other}")
            self.rows_come = True
            self.others.append(RowsChanged(other, f"exchanged with a partition of {name}", come=True))
        elif cursor.accept("CONVERT", "TABLE"):
            other = cursor.table_name()
            self.rows.append(f"got {other} as a partition")
            self.rows_come = True
            self.others.append(DropTable(other))
        elif cursor.accept("CONVERT", "PARTITION"):
            cursor.name()
            cursor.expect("TO", "TABLE")
            other = cursor.table_name()
            self.rows.append(f"its partition converted to {other}")
            why = f"converted from a partition of {name}"
            self.others += [CreateLike(other, name), RowsChanged(other, why, come=True)]
        else:
            return False
        self.other_names.append(other)
        cursor.skip_to(",")
        return True

    def _column_clause(self) -> bool:
        """Read a clause about existing columns, indexes or character sets. Tells whether there was one."""
        cursor = self.cursor
        if cursor.accept_any("CHANGE"):
            self._change(modify=False)
        elif cursor.accept("MODIFY"):
            self._change(modify=True)
        elif cursor.accept("RENAME", "COLUMN"):
            if_exists = cursor.accept("IF", "EXISTS")
            old = cursor.name()
            cursor.expect("TO")
            self.alterations.append(RenameColumn(old, cursor.name(), if_exists))
        elif cursor.accept("RENAME", "INDEX") or cursor.accept("RENAME", "KEY"):
            cursor.accept("IF", "EXISTS")
            old = cursor.name()
            cursor.expect("TO")
            self.alterations.append(RenameKey(old, cursor.name()))
        elif cursor.accept("ALTER"):
            self._alter_column()
        elif cursor.accept("CONVERT", "TO"):
            charset = charset_clause(cursor) or self.default_charset
            if cursor.at("COLLATE"):
                charset = collation_clause(cursor) or charset
            self.alterations.append(ConvertCharset(charset))
        else:
            return False
        return True

    def _change(self, *, modify: bool) -> None:
        cursor = self.cursor
        cursor.accept("COLUMN")
        if_exists = cursor.accept("IF", "EXISTS")
        old = None if modify else cursor.column_name()
        definition = column_definition(cursor, self.dialect)
        self.alterations.append(ChangeColumn(old or definition.name, definition, self._place(), if_exists))
        self._own_keys(definition, if_exists)

    def _alter_column(self) -> None:
        cursor = self.cursor
        cursor.accept("COLUMN")
        if_exists = cursor.accept("IF", "EXISTS")
        name = cursor.column_name()
        if cursor.accept("SET", "DEFAULT"):
            literal = default_value(cursor, self.dialect, of_a_column_that_is_there=True)
            self.alterations.append(AlterDefault(name, literal, literal is None, if_exists))
        elif cursor.accept("DROP", "DEFAULT"):
            self.alterations.append(AlterDefault(name, None, if_exists=if_exists))
        elif cursor.accept("SET"):
            visibility = cursor.accept_any("VISIBLE", "INVISIBLE")
            if not visibility:
                raise cursor.not_understood("VISIBLE or INVISIBLE expected")
            self.alterations.append(AlterVisibility(name, visibility == "INVISIBLE"))
        else:
            raise cursor.not_understood("SET or DROP expected")

    def _drop(self) -> bool:
        cursor = self.cursor
        if not cursor.accept("DROP"):
            return False
        if cursor.accept("PRIMARY", "KEY"):
            self.alterations.append(DropKey("PRIMARY"))
            return True
        is_index = bool(cursor.accept_any("INDEX", "KEY", "CONSTRAINT"))
        if not is_index:
            cursor.accept("COLUMN")
        if_exists = cursor.accept("IF", "EXISTS")
        name = cursor.name() if is_index else cursor.column_name()
        self.alterations.append(DropKey(name, if_exists) if is_index else DropColumn(name, if_exists))
        cursor.accept_any("RESTRICT", "CASCADE")
        return True

    def _option(self) -> bool:
        """Read a table option, ``NAME [=] value``. Tells whether there was one."""
        cursor = self.cursor
        cursor.accept("DEFAULT")
        if cursor.at_any("CHARSET", "CHARACTER"):
            self.charset = charset_clause(cursor) or self.default_charset
        elif cursor.at("COLLATE"):
            self.charset = collation_clause(cursor) or self.charset
        elif cursor.at("ENGINE") or cursor.at("TYPE"):
            engine = engine_clause(cursor)
            if why := why_refused(engine, self.dialect.flavour):
                self.unfollowed.append(why)
            keeps_rows = engine.lower() in _ROW_KEEPING_ENGINES
            (self.nothing if keeps_rows else self.rows).append(f"ENGINE {engine}")
        elif at_comment(cursor):
            self.alterations.append(TableComment(comment_clause(cursor)))
        elif cursor.at("UNION"):
            self.others += [Unfollowed(member, why_member_refused(self.name)) for member in union_clause(cursor)]
            self.unfollowed.append(why_refused("MERGE", self.dialect.flavour))
        elif cursor.accept("INSERT_METHOD"):
            cursor.accept("=")
            cursor.next()
            self.unfollowed.append(why_refused("MERGE", self.dialect.flavour))
        elif (
            (cursor.token.is_name and cursor.token.text.upper() in _HARMLESS_OPTIONS)
            or cursor.at("INDEX", "DIRECTORY")
            or cursor.at("DATA", "DIRECTORY")
        ):
            self.nothing.append(cursor.next().text.upper())
            cursor.accept("DIRECTORY")
            cursor.accept("=")
            cursor.accept_any("-", "+")
            cursor.next()
            cursor.accept("STORAGE", "DISK") or cursor.accept("STORAGE", "MEMORY")
        else:
            return False
        return True

    def _add(self) -> None:
        cursor = self.cursor
        explicit = cursor.accept("COLUMN")
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
        if cursor.at("("):
            definitions, constraints = table_elements(cursor, self.dialect, if_not_exists=if_not_exists)
            for definition in definitions:
                self.alterations.append(AddColumn(definition, if_not_exists=if_not_exists))
            for key in constraints:
                self._constraint(key)
            return
        constraint = None if explicit else index_definition(cursor)
        if constraint is not None:
            self._constraint(constraint)
            return
        definition = column_definition(cursor, self.dialect)
        self.alterations.append(AddColumn(definition, self._place(), if_not_exists))
        self._own_keys(definition, if_not_exists)

    def _own_keys(self, definition: ColumnDefinition, if_not_exists: bool) -> None:
        for key in own_keys(definition, if_not_exists=if_not_exists):
            self._constraint(key)

    def _place(self) -> ColumnPlace:
        first = self.cursor.accept("FIRST")
        return ColumnPlace(first, self.cursor.name() if not first and self.cursor.accept("AFTER") else None)

    def _constraint(self, constraint: IndexDefinition | AddForeignKey) -> None:
        if isinstance(constraint, AddForeignKey):
            self.alterations.append(constraint)
        elif constraint.columns:
            self.alterations.append(AddKey(constraint))
            if self.ignore and constraint.kind != "none":
                self.rows.append("ALTER IGNORE with a new unique key may drop rows")
        else:
            self.nothing.append("ADD CHECK")
