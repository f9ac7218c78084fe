"""The source of the protocol's model: a server's tables, its log, and the engine's ways to read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from binlake.binlog.border import DELETE, INSERT, UPDATE, Item, Mutations, SliceSummary, Statement
from binlake.binlog.boundaries import Boundary
from binlake.binlog.staged_schema import staged_schema
from binlake.delta import plain_files
from binlake.faults import fault
from binlake.position import Flavour, Position, Slice, file_number
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import lake_columns
from binlake.schema.table import Column, TableName, TableSchema
from binlake.snapshot import chunks
from binlake.snapshot.attempts import Copied
from binlake.snapshot.chunks import TableSnapshot
from binlake.snapshot.waves import Copying, Member, TableChanged
from binlake.source.catalog import SourceTable
from binlake.source.server import Source

Row = tuple[int | None, ...]
Content = tuple[tuple[str, ...], tuple[Row, ...]]
"""A table's columns, and its rows in a fixed order."""
SERVER = "00000000-0000-0000-0000-000000000001"
CREATED = 1
KEYED = TableSchema((Column("id", "int", nullable=False), Column("v", "int")), ("id",), "primary")
KEYLESS = TableSchema((Column("id", "int", nullable=False), Column("v", "int")))
CREATE = {
    True: "CREATE TABLE `{}` (id INT NOT NULL PRIMARY KEY, v INT)",
    False: "CREATE TABLE `{}` (id INT NOT NULL, v INT)",
}


@dataclass(frozen=True)
class RowChange:
    """A row that a transaction changes. before, after: None for an insert's and a delete's."""

    name: TableName
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    offset: int
    before: Row | None
    after: Row | None


@dataclass(frozen=True)
class Transaction:
    file: str
    start: int
    end: int
    committed_us: int
    items: tuple[RowChange | Statement, ...]


@dataclass(frozen=True)
class _Table:
    schema: TableSchema
    rows: tuple[Row, ...]

    @property
    def content(self) -> Content:
        return tuple(column.name for column in self.schema.columns), sorted_rows(self.rows)


def sorted_rows(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=repr))


class Server:
    """Tables, and the log of what happened to them. It is the planner's ``Log`` and the snapshot's ``Source``, too.

    now: microseconds since 1970. reach: called with the name of each access.
    """

    flavour: Flavour = "mysql"
    server_identity = SERVER
    is_mariadb = False
    lower_case_names = False

    def __init__(self, now: Callable[[], int], reach: Callable[[str], None]) -> None:
        self.now = now
        self.reach = reach
        self.tables: dict[TableName, _Table] = {}
        self.transactions: list[Transaction] = []
        self._files = ["binlog.000001"]
        self._ends = {"binlog.000001": 100}
        self.named: set[TableName] = set()
        """All tables that were ever there."""
        self._history: list[tuple[tuple[int, int], dict[TableName, _Table]]] = [((0, 0), {})]

    def is_of(self, server: str) -> bool:
        return server == SERVER

    def binary_logs(self) -> tuple[tuple[str, int], ...]:
        return tuple((file, self._ends[file]) for file in self._files)

    def head(self) -> tuple[str, int, str]:
        return self._files[-1], self._ends[self._files[-1]], ""

    def transport(self, server_id: int = 0, name: str = "") -> Server:
        return self

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Return the databases' character sets, of which this server has none."""
        assert "schemata" in sql
        return []

    def close(self) -> None:
        pass

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    @property
    def position(self) -> Position:
        file, offset, _ = self.head()
        return Position(SERVER, file, offset, CREATED)

    def at(self, position: Position) -> dict[TableName, Content]:
        """Return what each table held there."""
        tables = next(tables for order, tables in reversed(self._history) if order <= position.order)
        return {name: table.content for name, table in tables.items()}

    def rotate(self) -> None:
        file = f"binlog.{len(self._files) + 1:06d}"
        self._files.append(file)
        self._ends[file] = 100

    def create(self, name: TableName, *, keyed: bool) -> None:
        self._statement(CREATE[keyed].format(name.table))
        self.tables[name] = _Table(KEYED if keyed else KEYLESS, ())
        self.named.add(name)
        self._remember()

    def drop(self, name: TableName) -> None:
        self._statement(f"DROP TABLE `{name.table}`")
        del self.tables[name]
        self._remember()

    def truncate(self, name: TableName) -> None:
        self._statement(f"TRUNCATE TABLE `{name.table}`")
        self.tables[name] = replace(self.tables[name], rows=())
        self._remember()

    def add_column(self, name: TableName, default: int | None) -> None:
        table = self.tables[name]
        column = f"c{len(table.schema.columns)}"
        end = "INT" if default is None else f"INT NOT NULL DEFAULT {default}"
        self._statement(f"ALTER TABLE `{name.table}` ADD COLUMN {column} {end}")
        columns = (*table.schema.columns, Column(column, "int", nullable=default is None))
        self.tables[name] = _Table(table.schema.with_columns(columns), tuple((*row, default) for row in table.rows))
        self._remember()

    def rename_column(self, name: TableName) -> None:
        """Give the table's last column another name."""
        table = self.tables[name]
        *others, last = table.schema.columns
        column = f"{last.name}_"
        self._statement(f"ALTER TABLE `{name.table}` RENAME COLUMN {last.name} TO {column}")
        self.tables[name] = replace(table, schema=table.schema.with_columns((*others, replace(last, name=column))))
        self._remember()

    def change(self, name: TableName, changes: Sequence[tuple[Row | None, Row | None]]) -> None:
        """Commit a transaction that changes rows: of each pair the first goes, the second comes."""
        schema = self.tables[name].schema
        rows = list(self.tables[name].rows)
        start = self._ends[self._files[-1]]
        items: list[RowChange | Statement] = []
        for number, (before, after) in enumerate(changes, start=1):
            if before is not None:
                rows.remove(before)
            if after is not None:
                rows.append(after)
            items.append(RowChange(name, schema.columns, schema.key, start + 10 * number, before, after))
        self._commit(items)
        self.tables[name] = replace(self.tables[name], rows=tuple(rows))
        self._remember()

    def _statement(self, text: str) -> None:
        file, start, _ = self.head()
        self._commit([Statement(file, start + 10, 0, self.now(), None, "d", 0, text)])

    def _commit(self, items: list[RowChange | Statement]) -> None:
        file, start, _ = self.head()
        end = start + 10 * (len(items) + 2)
        self.transactions.append(Transaction(file, start, end, self.now(), tuple(items)))
        self._ends[file] = end

    def _remember(self) -> None:
        self._history.append((self.position.order, dict(self.tables)))

    def within(self, part: Slice) -> Iterator[Transaction]:
        for transaction in self.transactions:
            if transaction.file == part.file and part.start <= transaction.start < part.stop:
                yield transaction

    # what the engine reads -------------------------------------------------------------------------------------------
    def boundaries(self, transport: Server, part: Slice) -> Iterator[Boundary]:
        """Yield a slice's transactions; in the place of the scan of its events."""
        for transaction in self.within(part):
            yield Boundary(transaction.start, transaction.end, transaction.committed_us, None)

    def read_slice(
        self, transport: Server, part: Slice, wanted: object, *, invalid: InvalidValues, **options: object
    ) -> Iterator[Item | SliceSummary]:
        """Yield what a slice is made of; in the place of the decoder."""
        self.reach("read log")
        statements = 0
        changes: dict[tuple[Any, ...], list[RowChange]] = {}
        for transaction in self.within(part):
            for item in transaction.items:
                if isinstance(item, Statement):
                    yield from _mutations(part, changes, statements, invalid)
                    changes.clear()
                    yield replace(item, ordinal=statements)
                    statements += 1
                else:
                    changes.setdefault((item.name, item.columns, item.key), []).append(item)
        yield from _mutations(part, changes, statements, invalid)
        yield SliceSummary("")

    def source_tables(self, source: Any, names: Iterable[TableName], excluding: Any) -> dict[TableName, SourceTable]:
        """Return the tables' shapes; in the place of the catalog."""
        there = {name: self.tables[name].schema for name in names if name in self.tables}
        return {name: SourceTable(name, "BASE TABLE", "InnoDB", 0, 0, schema) for name, schema in there.items()}

    def run_wave(self, copying: Copying, members: Sequence[Member], mode: object, **options: bool) -> None:
        """Copy each chunk at a position of its own, if the table keeps its shape; with a key, of two all odd rows.

        In the place of a wave of connections. Raises TableChanged.
        """
        for member in members:
            self.reach("copy chunk")
            table, chunk = member.table, member.chunk
            there = self.tables.get(table.name)
            if there is None or there.schema != table.schema:
                raise TableChanged([table])
            is_whole = len(table.chunks) == 1
            rows = [row for row in there.content[1] if is_whole or (row[0] or 0) % 2 == chunk.number]
            attempts = copying.records.attempts(table)
            attempt, position = attempts.new(), self.position
            attempts.begin(attempt)
            written = plain_files.write(attempts.table_path, attempt, arrow_rows(table.schema, copying.invalid, rows))
            fault("chunk copied")
            copied = Copied(written)
            attempts.done(attempt, copied)
            done = replace(chunk, low=position, high=position, rows=copied.rows, bytes=copied.bytes, attempt=attempt)
            table.put(done)
            copying.records.save(table)
        fault("chunks written")


def _mutations(
    part: Slice, changes: dict[tuple[Any, ...], list[RowChange]], statements: int, invalid: InvalidValues
) -> Iterator[Mutations]:
    """Yield the changes between two statements, each table's in one batch."""
    number = file_number(part.file)
    for (name, columns, key), of_table in changes.items():
        names = [column.name for column in columns]
        rows = [
            {
                "op": INSERT if change.before is None else DELETE if change.after is None else UPDATE,
                "file": number,
                "offset": change.offset,
                "row": 0,
                "committed_us": 0,
                "before": change.before and dict(zip(names, change.before, strict=True)),
                "after": change.after and dict(zip(names, change.after, strict=True)),
            }
            for change in of_table
        ]
        batch = pa.RecordBatch.from_pylist(rows, staged_schema(columns, invalid))
        yield Mutations(name, columns, key, statements, batch)


def arrow_rows(schema: TableSchema, invalid: InvalidValues, rows: Sequence[Row]) -> pa.Table:
    """Return rows as the lake has them."""
    fields = pa.schema([(column.name, column.arrow) for column in lake_columns(schema, invalid)])
    return pa.Table.from_pylist([dict(zip(fields.names, row, strict=True)) for row in rows], fields)


def two_chunks(source: Source, table: SourceTable, invalid: InvalidValues, **options: Any) -> TableSnapshot:
    """Plan a snapshot of two chunks, of a table without a key of one."""
    made = chunks.plan(source, table, invalid)
    if table.schema.key:
        made.chunks = [chunks.Chunk(0), chunks.Chunk(1)]
    return made
