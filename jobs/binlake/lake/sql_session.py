"""SQL over a lake's tables, each at one version, by DataFusion: ``SELECT … FROM shop.orders``. Needs no JVM."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError

from binlake.errors import BinlakeError, UsageError
from binlake.lake import described
from binlake.lake.table_at import TableAt, unknown_table
from binlake.lake.table_moments import QUOTED, AskedVersion, replaced
from binlake.names import ansi_quote, mysql_quote
from binlake.schema.table import TableName
from binlake.storage import storage_errors

_WITHOUT_DATABASE = "(no database)"
"""The schema of names that are written without a database."""
_SETTINGS = {
    "datafusion.catalog.default_schema": _WITHOUT_DATABASE,
    # Names mean the same quoted and not, as on the server: DataFusion folds the latter to lower case otherwise.
    "datafusion.sql_parser.enable_ident_normalization": "false",
}
_NUMBER = re.compile(r"(?<![\w.])(?:\d+\.\d*|\.\d+|\d{20,})(?:[eE][+-]?\d+)?(?![\w.])")
"""A number that DataFusion may take for one of double precision."""
_MOST_WHOLE = 2**64 - 1
_WORD = re.compile(r"[\w@$#]+")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
_PART = re.compile(r"\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`|[^.\"`]+")
_WRITTEN_NAME = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))?")
"""A table's name, with its database or without, each in quotes or not."""
_BLANKS = re.compile(r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/|\()+", re.DOTALL)
_BEGINNINGS = frozenset({"SELECT", "WITH", "VALUES", "DESCRIBE", "DESC"})
_OF_EXPLAIN = frozenset({"EXPLAIN", "ANALYZE", "VERBOSE", "FORMAT", "INDENT", "TREE", "GRAPHVIZ", "PGJSON"})
_LIMITED = re.compile(r"\bLIMIT\b", re.IGNORECASE)
_LOST_LIMIT = "projection=[], fetch="
_NOT_FOUND = re.compile(r"table '(?:datafusion\.)?(.*)' not found")
_OF_STORAGE = re.compile(r"Object Store error|Object at location|No such file or directory")
_FAR_TIME = re.compile(r"to Nanosecond\b|to Timestamp\(ns\)|as nanoseconds")
_FAR_REMEDY = "write a time before 1678 or after 2262 with its digits: TIMESTAMP(6) '9999-12-31 23:59:59'"
_BY_ARROW = "read the table by binlake.lake.open(…).arrow(…): see binlake help analysts"
INFORMATION_SCHEMAS = ("information_schema", "INFORMATION_SCHEMA")
"""The schema with what is known of the tables, as queries may write it."""
INFORMATION_TABLES = ("tables", "columns")
"""Its tables."""
_INFORMATION = re.compile("|".join(INFORMATION_SCHEMAS))
_SETTING_HINT = re.compile(r"\nColumn names are case sensitive\.[^\n]*")


@dataclass(frozen=True)
class BatchTable:
    """A table as a batch left it."""

    table: TableAt
    batch: int


@dataclass(frozen=True)
class QueryRows:
    """The rows of a query, which are read while they are asked for; that raises UsageError, LakeError."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


class QueriedLake(Protocol):
    """The lake as a session asks it, beside its tables. All of it raises UsageError, LakeError."""

    def table_at(self, written: str, asked: AskedVersion) -> BatchTable:
        """Return a table, by its name as a query writes it, at a version."""

    def changes(
        self, written: str, first: AskedVersion, last: AskedVersion, relation: Callable[[BatchTable], str]
    ) -> str:
        """Return the query for what became of a table's rows between two versions. relation: gives the name of a table
        in the session."""

    def information(self, name: str) -> pa.Table:
        """Return one of INFORMATION_TABLES."""

    def described(self, name: str) -> pa.Table:
        """Return the columns of a table, ``database.table``."""


class SqlSession:
    """A session in which tables of the lake are known by ``database.table``.

    A name without a database will do where one database alone has the table. A table is opened when a statement first
    names it. With a lake its statements also know other versions, and information_schema.
    """

    def __init__(self, tables: Sequence[TableAt], lake: QueriedLake | None = None) -> None:
        self._tables = {str(table.name): table for table in tables}
        self._lake = lake
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._informed: set[str] = set()
        self._builder = QueryBuilder(_SETTINGS)
        self._schemas: set[str] = set()
        self._registered: dict[str, TableAt] = {}
        self._unreadable: dict[str, BinlakeError] = {}

    def execute(self, sql: str) -> QueryRows:
        """Run a query. Raises UsageError for what isn't a query or names what isn't there; LakeError."""
        if self._lake is not None:
            names = [table.name for table in self._tables.values()]
            if (answer := described.answer(sql, names, self._described)) is not None:
                return QueryRows(answer.schema, iter(answer.to_batches()))
        refuse_changes(sql)
        _refuse_rounded(sql)
        sql, words = self._at_versions(sql), words_of(sql)
        if self._lake is not None and _INFORMATION.search(sql):
            self._register_information(self._lake, {word.lower() for word in words})
        for table in self._tables.values():
            if is_mentioned(table.name.table, sql, words):
                self._try_to_register(table)
        try:
            self._refuse_lost_limit(sql)
            reader = pa.RecordBatchReader.from_stream(self._builder.execute(sql))
        except BinlakeError:
            raise
        except Exception as error:  # DataFusion's have no type of their own
            raise self._explained(error) from error
        schema = usual(reader.schema)
        return QueryRows(schema, self._read(reader, schema))

    def table(self, sql: str) -> pa.Table:
        """Return the rows of a query. Raises UsageError, LakeError."""
        rows = self.execute(sql)
        return pa.Table.from_batches(rows.batches, rows.schema)

    def close(self) -> None:
        """Remove what the session put into a folder of its own."""
        if self._folder is not None:
            self._folder.cleanup()

    def full_name(self, written: str) -> str:
        """Return the name of a table, ``database.table``, that is written as in a query, or plainly. Raises UsageError
        where several databases have the table."""
        parts = [_plain(part) for part in _PART.findall(written)] if _WRITTEN_NAME.fullmatch(written) else []
        if written in self._tables or not parts:
            return written
        if len(parts) == 1 and (several := self._named(parts[0])):
            if len(several) > 1:
                raise self._unknown(parts[0])
            return several[0]
        return ".".join(parts)

    def _described(self, written: str) -> pa.Table:
        """Return the columns of a table that is written as in a query. Raises UsageError where there is none."""
        full = self.full_name(written)
        if full not in self._tables:
            raise self._unknown(full)
        assert self._lake is not None  # or nothing would ask
        return self._lake.described(full)

    def _refuse_lost_limit(self, sql: str) -> None:
        """Raise UsageError where deltalake 1.6.6 would lose a LIMIT and give too many rows: over a table of which the
        plan reads no column."""
        if _first_words(sql)[0] == "EXPLAIN" or not _LIMITED.search(sql):
            return
        plan = pa.RecordBatchReader.from_stream(self._builder.execute(f"EXPLAIN {sql}")).read_all()
        if any(_LOST_LIMIT in text for text in plan["plan"].to_pylist()):
            raise UsageError(
                "LIMIT isn't kept by deltalake where no column of a table is read, as in SELECT 1 FROM … LIMIT 1",
                remedy="read a column of the table, too",
            )

    def _read(self, reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            for batch in reader:
                yield batch.cast(schema, safe=False)
        except (pa.ArrowException, DeltaError, OSError) as error:
            raise self._explained(error) from error

    def _try_to_register(self, table: TableAt) -> None:
        """Make a table known. Where it can't be opened, a query that reads it learns why; others may have a column or a
        text of its name."""
        self._unreadable.pop(str(table.name), None)
        try:
            self._register(table)
        except BinlakeError as error:
            self._unreadable[str(table.name)] = error

    def _register(self, table: TableAt) -> None:
        if str(table.name) in self._registered:
            return
        opened = self._put(table, table.name.database)
        if len(self._named(table.name.table)) == 1:
            self._builder.register(f"{ansi_quote(_WITHOUT_DATABASE)}.{ansi_quote(table.name.table)}", opened)
        self._registered[str(table.name)] = table

    def _put(self, table: TableAt, schema: str) -> DeltaTable:
        """Make a table known in a schema, which is made where it isn't there, and return it as it is opened."""
        if "." in table.name.database:
            raise UsageError(
                f"{table.name}: SQL can't name a database with a dot in its name",
                remedy=_BY_ARROW,
            )
        opened = table.opened()
        self._make_schema(schema)
        self._builder.register(f"{ansi_quote(schema)}.{ansi_quote(table.name.table)}", opened)
        return opened

    def _make_schema(self, schema: str) -> None:
        if schema not in self._schemas:
            self._builder.execute(f"CREATE SCHEMA {ansi_quote(schema)}")
            self._schemas.add(schema)

    def _at_versions(self, sql: str) -> str:
        """Return a query in which tables at versions of their own have names in this session."""
        lake = self._lake
        if lake is None:
            return sql
        return replaced(
            sql,
            lambda written, asked: self._relation(lake.table_at(written, asked)),
            lambda written, first, last: f"({lake.changes(written, first, last, self._relation)})",
        )

    def _relation(self, at: BatchTable) -> str:
        """Return the name of a table at another version, which is made known under it."""
        schema = f"{at.table.name.database} at batch {at.batch} "  # no name of the server's ends with a space
        known = f"{schema}.{at.table.name.table}"
        if known not in self._registered:
            self._put(at.table, schema)
            self._registered[known] = at.table
        return f"{ansi_quote(schema)}.{ansi_quote(at.table.name.table)}"

    def _register_information(self, lake: QueriedLake, words: Collection[str]) -> None:
        """Make those tables of information_schema known that a statement names. Their rows are put into a folder of
        this session for the engine."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="binlake-sql-", ignore_cleanup_errors=True)
        for name in INFORMATION_TABLES:
            if name not in words or name in self._informed:
                continue
            self._informed.add(name)
            write_deltalake(f"{self._folder.name}/{name}", lake.information(name))
            for schema in INFORMATION_SCHEMAS:
                self._make_schema(schema)
                opened = DeltaTable(f"{self._folder.name}/{name}")
                written = name.upper() if schema.isupper() else name
                self._builder.register(f"{ansi_quote(schema)}.{ansi_quote(written)}", opened)

    def _named(self, name: str) -> list[str]:
        """Return the tables with this name, of whichever database, as ``database.table``."""
        return [full for full, table in self._tables.items() if table.name.table == name]

    def _explained(self, error: Exception) -> BinlakeError:
        text = _SETTING_HINT.sub("", str(error)).strip()
        if missing := _NOT_FOUND.search(text):
            return self._unknown(missing[1].removeprefix(f"{_WITHOUT_DATABASE}."))
        if _OF_STORAGE.search(text):
            read = next((table for table in self._registered.values() if table.path.strip("/") in text), None)
            return read.failure(error) if read else storage_errors.failed("can't read the lake", error)
        remedy = _FAR_REMEDY if _FAR_TIME.search(text) else "DataFusion's SQL is understood; fix the query"
        return UsageError(f"the query can't be run: {text}", remedy=remedy)

    def _unknown(self, name: str) -> BinlakeError:
        several = self._named(name)
        full = several[0] if len(several) == 1 else name
        if full in self._unreadable:
            return self._unreadable[full]
        if len(several) > 1:
            names = (self._tables[known].name for known in sorted(several))
            candidates = [written_table(known) for known in names if "." not in known.database]
            remedy = f"write {' or '.join(candidates)}" if candidates else _BY_ARROW
            return UsageError(f"several databases have a table {name}", remedy=remedy)
        return unknown_table(name, self._tables)


def _plain(part: str) -> str:
    """Return a name without its quotes."""
    quote = part[0]
    return part[1:-1].replace(2 * quote, quote) if quote in '"`' else part


def written_name(name: str) -> str:
    """Return a name as a query writes it."""
    return name if _PLAIN_NAME.fullmatch(name) else ansi_quote(name)


def written_table(name: TableName) -> str:
    """Return a table's name as a query writes it."""
    return f"{written_name(name.database)}.{written_name(name.table)}"


def words_of(sql: str) -> frozenset[str]:
    """Return the words of a statement, those in strings and comments included."""
    return frozenset(_WORD.findall(sql))


def is_mentioned(name: str, sql: str, words: Collection[str]) -> bool:
    """Return whether a statement may name a table: whether its name is anywhere in the text, also in a string.

    words: all words of the text.
    """
    if _WORD.fullmatch(name):
        return name in words
    return ansi_quote(name) in sql or mysql_quote(name) in sql


def refuse_changes(sql: str) -> None:
    """Raise UsageError for a statement that isn't a query: DataFusion would also write files."""
    words = _first_words(sql)
    if not words:
        raise UsageError("there is no query", remedy='write one, such as "SELECT count(*) FROM shop.orders"')
    explained = words[0] == "EXPLAIN"
    first = next((word for word in words if word not in _OF_EXPLAIN), "EXPLAIN") if explained else words[0]
    if first not in _BEGINNINGS:
        if first == "SHOW":
            raise UsageError(
                "SHOW isn't a query", remedy="\\d lists the tables, \\d TABLE its columns; in Python .tables"
            )
        listed = ", ".join(sorted({*_BEGINNINGS, "EXPLAIN"}))
        raise UsageError(f"{first} isn't a query", remedy=f"the lake is read only: begin with {listed}")


def _refuse_rounded(sql: str) -> None:
    """Raise UsageError for a number with more digits than double precision has: DataFusion would compare decimals, and
    whole numbers, with another one."""
    for number in _NUMBER.findall(QUOTED.sub(" ", sql)):
        if number.isdigit() and int(number) <= _MOST_WHOLE:
            continue
        held = repr(float(number))
        if Decimal(held) != Decimal(number):
            raise UsageError(
                f"{number} has more digits than DataFusion's numbers: it would be taken for {held}",
                remedy=f"write it in quotes, '{number}', where it is compared with a column",
            )


def _first_words(sql: str) -> list[str]:
    """Return the first words of a statement, in capitals, without comments and opening parentheses."""
    words: list[str] = []
    at = 0
    while len(words) < len(_OF_EXPLAIN):
        if blank := _BLANKS.match(sql, at):
            at = blank.end()
        word = _WORD.match(sql, at)
        if word is None:
            break
        words.append(word[0].upper())
        at = word.end()
    return words


def usual(schema: pa.Schema) -> pa.Schema:
    """Return a schema with text and bytes in the place of Arrow's views of them, which many readers don't know, and
    microseconds in the place of nanoseconds, which functions alone have, such as ``now()``, and what is reckoned with
    them: Python's own times have none."""
    return pa.schema([field.with_type(_usual(field.type)) for field in schema])


def _usual(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_time64(kind):
        return pa.time64("us")
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_usual(kind.value_type)))
    return kind
