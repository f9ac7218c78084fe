"""The metadata tables: binlake's own Delta tables, of what was planned, staged, merged and verified.

They are written and read with deltalake, so that the planner, the command line and Airflow need no JVM. ``swap`` alone
decides ownership: two stale appends both succeed, a stale update conflicts.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from arro3.core import Array, DataType, Field, Schema, Table
from deltalake import DeltaTable, QueryBuilder, Schema as DeltaSchema, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from binlake.config import PipelineConfig
from binlake.delta import opened_tables
from binlake.errors import LakeGone, LeaseLost, WrittenMeanwhile
from binlake.retries import Retries, at_random, growing
from binlake.storage import stores
from binlake.store import folder_errors, known_lakes, plain_rows
from binlake.store.conditions import Newest, literal, quoted
from binlake.store.table_schemas import PROPERTIES, SCHEMAS, columns_lacking, fields_of, kind_read

if TYPE_CHECKING:
    import pyarrow as pa

    from binlake.store.known_files import KnownFiles, MetadataFile
    from binlake.store.plain_rows import ChosenRows


def now_us() -> int:
    """Return microseconds since 1970 UTC."""
    return time.time_ns() // 1000


_OF_EACH_LAKE = ("watermarks", "schemas", "batches")
"""Tables that a lake has from its first snapshot, or its first batch, on."""
_APPENDING = Retries(at_random(growing(0.05)), attempts=8)
"""An append, while others add rows, too."""
_ENCODED = "Dictionary(Int32, Utf8)"


def query(location: str, columns: list[str] | None = None, *, version: int | None = None) -> pa.Table:
    """Return a Delta table's rows, now or at a version, read without a JVM; deletion vectors are honoured."""
    return _in_pyarrow(_selected(opened_tables.opened(location, version), columns))


def _selected(
    table: DeltaTable,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    newest: Newest | None = None,
    encoded: Collection[str] = (),
) -> Table:
    """Return the rows of an opened table that meet ``where``; files are skipped whose statistics say that none does.

    encoded: columns of text that are returned dictionary-encoded.
    DataFusion reads them: ``to_pyarrow_table`` refuses deletion vectors, and with pyarrow 26 its threads sometimes
    abort the interpreter's exit.
    """
    chosen = [
        f"arrow_cast({quoted(column)}, '{_ENCODED}') AS {quoted(column)}" if column in encoded else quoted(column)
        for column in columns or ()
    ]
    sql = f"SELECT {', '.join(chosen) or '*'} FROM rows"
    if where:
        sql += f" WHERE {where}"
    if newest:
        per = ", ".join(map(quoted, newest.per))
        of_each = f" QUALIFY row_number() OVER (PARTITION BY {per} {newest.order}) <= {newest.count}"
        sql += of_each if per else f" {newest.order} LIMIT {newest.count}"
    return _answer(QueryBuilder().register("rows", table), sql)


def _answer(tables: QueryBuilder, sql: str) -> Table:
    """Return a query's rows."""
    return Table.from_arrow(tables.execute(sql).read_all())


def _dictionaries(rows: Table) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", rows.to_struct_array().to_pylist())


def _in_pyarrow(rows: Table) -> pa.Table:
    """Return rows as pyarrow's. ``pa.table`` would import pandas, only to ask whether they are its own."""
    import pyarrow as pa  # with numpy it takes as long as all else that a status needs

    return pa.RecordBatchReader.from_stream(rows).read_all()


class _Selection(NamedTuple):
    """Rows of a metadata table. lacking: columns that it doesn't have, as an older binlake made it."""

    rows: Table
    lacking: Sequence[str] = ()


class Metadata:
    """The metadata tables below one folder, ``{lake}/{source}/_binlake``.

    guard: raises LeaseHeld in a process that lost its lease. It is called once a table's version is pinned and before
    the write, which conflicts with anything that came in between: so a process that wakes up late replaces nothing.
    """

    def __init__(self, path: str, guard: Callable[[], None] = lambda: None) -> None:
        self._path = path
        self.check = guard

    def guarded(self, guard: Callable[[], None]) -> Metadata:
        """Return the same tables with a guard."""
        return Metadata(self._path, guard)

    @property
    def path(self) -> str:
        """Return the folder of the metadata tables."""
        return self._path

    def location(self, name: str) -> str:
        """Return the path of a metadata table."""
        return f"{self._path}/{name}"

    def tables(self) -> set[str]:
        """Return the metadata tables that are there; in a store each folder has files. Raises LakeError."""
        if "://" in self._path:
            from binlake.storage import files  # with pyarrow it takes as long as all else that a status needs

            return set(files.subfolders(self._path)) & SCHEMAS.keys()
        folders = os.listdir(self._path) if os.path.isdir(self._path) else ()
        return {table for table in folders if table in SCHEMAS and opened_tables.is_table(self.location(table))}

    def _has(self, name: str) -> bool:
        """Return whether a metadata table is there. deltalake looks into a store without letting other threads run."""
        return name in self.tables() if "://" in self._path else opened_tables.is_table(self.location(name))

    def refuse_gone(self) -> None:
        """Raise LakeGone where this account knows a lake that is gone, LeaseLost where only the lease is; LakeError."""
        if self._has("lease"):
            return
        if self.has_lost_lease:
            raise LeaseLost(
                f"the metadata table lease is gone, and the others are there: nothing is at {self.location('lease')}, "
                "which had the position of the lake, the newest batch and who works",
                remedy="binlake unlock --config FILE --why TEXT makes it again where that is safe",
            )
        if seen := known_lakes.last_seen(self._path):
            raise LakeGone(
                f"the lake is gone: nothing is at {self._path}, where this account worked on {seen:%Y-%m-%d %H:%M} UTC",
                remedy="mount its disk, or bring the folder back: nothing is lost. Only to give the lake up and copy "
                "all tables again: binlake snapshot --config FILE --begin (or begin in the bootstrap DAG's form)",
            )

    @property
    def has_lost_lease(self) -> bool:
        """Return whether the lease is gone of a lake whose other tables are there. Raises LakeError."""
        if self._has("lease"):
            return False
        evidence = ("made", *_OF_EACH_LAKE) if known_lakes.last_seen(self._path) else ("made",)
        return any(self._has(table) for table in evidence)

    def begin_again(self) -> None:
        """Allow a new lake in the place of one that is gone. Raises LakeError."""
        if not opened_tables.is_table(self.location("lease")):
            known_lakes.forget(self._path)

    def remember(self) -> None:
        """Remember that this account worked on the lake."""
        known_lakes.remember(self._path)

    def table(self, name: str) -> DeltaTable:
        """Open a metadata table, and make an empty one where there is none. Raises LakeError."""
        location = self.location(name)
        folder_errors.refuse_unwritable(location)
        try:
            return self._completed(name, opened_tables.opened(location))
        except TableNotFoundError:
            pass
        except (DeltaError, OSError) as error:
            raise folder_errors.unreadable(location, error) from error
        try:
            return opened_tables.created(
                lambda: DeltaTable.create(
                    self._new_folder(name),
                    SCHEMAS[name],
                    mode="ignore",
                    configuration=PROPERTIES,
                    storage_options=stores.storage_options(location),
                )
            )
        except (DeltaError, OSError) as error:
            raise folder_errors.unwritable(location, error) from error

    @contextmanager
    def _lent(self, name: str) -> Iterator[DeltaTable]:
        """Lend a metadata table for a write, an empty one where there is none. Raises LakeError.

        Its version is pinned: another write meanwhile makes this one conflict.
        """
        location = self.location(name)
        folder_errors.refuse_unwritable(location)
        if not opened_tables.is_table(location):
            self.table(name)
        with ExitStack() as lending:
            try:
                table = lending.enter_context(opened_tables.lent(location))
            except (DeltaError, OSError) as error:
                raise folder_errors.unreadable(location, error) from error
            yield self._completed(name, table)

    @staticmethod
    def _completed(name: str, table: DeltaTable) -> DeltaTable:
        """Give a table of an older binlake the columns that it lacks."""
        if lacking := columns_lacking(name, table):
            table.alter.add_columns(DeltaSchema.from_arrow(Schema(lacking)).fields)
        return table

    def read(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        *,
        where: str | None = None,
        newest: Newest | None = None,
    ) -> list[dict[str, Any]]:
        """Return rows as dictionaries: all of them unless ``where`` or ``newest`` choose; none when the table isn't
        there.

        Raises LakeError.
        """
        if newest is None and (plain := self._read_plainly(name, columns, where)) is not None:
            return plain
        selection = self._read(name, columns, where, newest)
        rows = _dictionaries(selection.rows)
        lacking = dict.fromkeys(selection.lacking)
        return [{**row, **lacking} for row in rows] if lacking else rows

    def read_columns(self, name: str, columns: Sequence[str], *, where: str | None = None) -> pa.Table:
        """Return rows as ``read`` does, as a table in Arrow, whose text is dictionary-encoded: for many rows."""
        import pyarrow as pa  # see _in_pyarrow

        selection = self._read(name, columns, where, encoded=True)
        rows = _in_pyarrow(selection.rows)
        for column in selection.lacking:
            kind = pa.schema(_schema_of(name, [column], encoded=True)).field(0).type
            rows = rows.append_column(column, pa.nulls(len(rows), kind))
        return rows.select(columns)

    def _read(
        self,
        name: str,
        columns: Sequence[str] | None,
        where: str | None,
        newest: Newest | None = None,
        *,
        encoded: bool = False,
    ) -> _Selection:
        location = self.location(name)
        if not opened_tables.is_table(location):
            folder_errors.refuse_hidden(location)
            if name == "lease":
                self.refuse_gone()
            return _Selection(Table.from_batches([], schema=_schema_of(name, columns, encoded=encoded)))
        try:
            with self._reading(name) as table:
                lacking = [
                    field.name for field in columns_lacking(name, table) if columns is None or field.name in columns
                ]
                here = [column for column in columns or () if column not in lacking]
                text = {column for column in here if encoded and SCHEMAS[name].field(column).type == DataType.utf8()}
                ask = partial(_selected, table, here, where, newest, text)
                rows = plain_rows.remembered(location, table, (*here, where, newest, *sorted(text)), ask)
                return _Selection(rows, lacking)
        except Exception as error:  # DataFusion's have no type of their own
            raise folder_errors.unreadable(location, error) from error

    def _plain_files(self, name: str) -> KnownFiles | None:
        """Return the data files of a table that is read and written without a query engine; None for others.

        Only where pyarrow is imported anyway, which takes as long as ten queries. Raises what deltalake raises, and
        OSError.
        """
        if name not in SCHEMAS or "pyarrow.parquet" not in sys.modules:
            return None
        from binlake.store import known_files

        return known_files.known(self.location(name), SCHEMAS[name])

    def _read_plainly(self, name: str, columns: Sequence[str] | None, where: str | None) -> list[dict[str, Any]] | None:
        """Return rows that are chosen without a query engine; None where it has to choose them, or to say why it
        can't."""
        wanted = columns or SCHEMAS[name].names if name in SCHEMAS else ()
        if not wanted or not set(wanted) <= set(SCHEMAS[name].names):
            return None
        try:
            known = self._plain_files(name)
        except (DeltaError, OSError):
            return None
        meeting = self._meeting(name, known, where) if known else None
        if meeting is None:
            return None
        return [{column: row[column] for column in wanted} for file in meeting for row in file.meeting]

    def _meeting(self, name: str, known: KnownFiles, where: str | None) -> list[ChosenRows] | None:
        """Return the files with rows that meet a condition; None where deltalake has to look, or to say what is
        damaged."""
        try:
            return plain_rows.meeting(self.location(name), known, SCHEMAS[name], where)
        except (OSError, ValueError):  # ArrowInvalid is a ValueError
            return None

    @contextmanager
    def _reading(self, name: str) -> Iterator[DeltaTable]:
        """Lend a metadata table, which is there, for a read."""
        with opened_tables.lent(self.location(name)) as table:
            yield table

    def count(self, name: str, predicate: str) -> int:
        """Return the number of rows that meet a predicate."""
        if (plain := self._read_plainly(name, None, predicate)) is not None:
            return len(plain)
        location = self.location(name)
        if not opened_tables.is_table(location):
            return 0
        try:
            with opened_tables.lent(location) as table:
                builder = QueryBuilder().register("rows", table)
                counted = _answer(builder, f"SELECT count(*) AS n FROM rows WHERE {predicate}")
        except Exception as error:  # DataFusion's have no type of their own
            raise folder_errors.unreadable(location, error) from error
        return int(counted.column("n").to_pylist()[0])

    def append(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows; missing columns are NULL. An append must never decide ownership."""
        if rows:  # they replace none, and conflict with nothing; but others may be quicker
            _APPENDING.call(lambda: self._write(name, rows, mode="append", predicate=None), WrittenMeanwhile)

    def replace(self, name: str, predicate: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Put ``rows`` in the place of those that meet ``predicate``, in one commit, which can be repeated. They must
        meet it, too: deltalake refuses others."""
        self._write(name, rows, mode="overwrite", predicate=predicate)

    def create_with(self, name: str, rows: Sequence[Mapping[str, Any]], *, again: bool = False) -> None:
        """Make the table together with its first rows. Of two callers at once one wins, the other changes nothing.

        again: a lost lease is made again. Raises LakeError, also where the store can't decide which of two writers
        wins.
        """
        folder_errors.refuse_unwritable(self.location(name))
        opened_tables.refuse_overwriting_store(self._path)
        try:
            opened_tables.created(
                lambda: write_deltalake(
                    self._new_folder(name, may_be_lost=again),
                    self._rows(name, rows),
                    mode="error",
                    configuration=PROPERTIES,
                    storage_options=stores.storage_options(self._path),
                )
            )
        except (DeltaError, OSError) as error:
            if not opened_tables.is_table(self.location(name)):
                raise folder_errors.unwritable(self.location(name), error) from error

    def _new_folder(self, name: str, *, may_be_lost: bool = False) -> str:
        location = self.location(name)
        if not may_be_lost:
            self.refuse_gone()
        if "://" not in location:
            Path(location).mkdir(parents=True, exist_ok=True)
        return location

    @staticmethod
    def _rows(name: str, rows: Sequence[Mapping[str, Any]]) -> Table:
        """Return rows in Arrow, made without pyarrow, whose arrays import pandas."""
        return Table.from_pydict(
            {field.name: Array([row.get(field.name) for row in rows], field) for field in fields_of(name)}
        )

    def _write(self, name: str, rows: Sequence[Mapping[str, Any]], *, mode: Any, predicate: str | None) -> None:
        data = self._rows(name, rows)
        try:
            if self._is_written_plainly(name, data, predicate):
                return
            with self._lent(name) as table:
                self.check()
                if predicate is None or rows:
                    write_deltalake(table, data, mode=mode, predicate=predicate)
                elif _selected(table, where=predicate).num_rows:
                    table.delete(predicate)
        except CommitFailedError as error:
            self.check()
            raise WrittenMeanwhile(f"another process wrote the metadata table {name}", remedy="run again") from error
        except (DeltaError, OSError) as error:
            raise folder_errors.unwritable(self.location(name), error) from error

    def _is_written_plainly(self, name: str, data: Table, predicate: str | None) -> bool:
        """Put rows in the place of those that meet a predicate, if there are some, without a query engine; return False
        where that isn't possible, or another was quicker."""
        folder_errors.refuse_unwritable(self.location(name))
        known = self._plain_files(name)
        if known is None:
            return False
        self.check()
        old = self._meeting(name, known, predicate) if predicate is not None else []
        if old is None:
            return False
        if not old and not data.num_rows:
            return True
        rows = [*(row for file in old for row in file.others), *_dictionaries(data)]
        return self._commits_plainly(name, known, [file.file for file in old], rows)

    def _commits_plainly(
        self, name: str, known: KnownFiles, old: Sequence[MetadataFile], rows: Sequence[dict[str, Any]]
    ) -> bool:
        """Put rows in the place of data files; return False where that is left to deltalake, or another was quicker."""
        from binlake.store import plain_writes  # imports pyarrow, as what was asked before did

        location = self.location(name)
        if not plain_writes.can_write(location, known):
            return False
        data = self._rows(name, rows)
        try:
            plain_writes.replace(location, known, old, _in_pyarrow(data), _dictionaries(data))
        except CommitFailedError:
            return False
        return True

    def swap(self, name: str, predicate: str, updates: Mapping[str, str | int | None]) -> bool:
        """Compare and swap: change the row that meets ``predicate``.

        Returns False when no row meets it, or when another writer was quicker.
        """
        try:
            swapped = self._swapped_plainly(name, predicate, updates)
            if swapped is not None:
                return swapped
            with self._lent(name) as table:
                metrics = table.update(
                    predicate=predicate,
                    updates={column: literal(value) for column, value in updates.items()},
                )
        except CommitFailedError:
            return False
        except (DeltaError, OSError) as error:
            raise folder_errors.unwritable(self.location(name), error) from error
        return bool(metrics["num_updated_rows"])

    def _swapped_plainly(self, name: str, predicate: str, updates: Mapping[str, str | int | None]) -> bool | None:
        """Change the only row of a table as ``swap`` does; None where that is left to deltalake."""
        known = self._plain_files(name)
        if known is None or known.only is None:
            return None
        meeting = self._meeting(name, known, predicate)
        if meeting is None:
            return None
        if not meeting:
            return False
        folder_errors.refuse_unwritable(self.location(name))
        changed = [{**row, **updates} for file in meeting for row in file.meeting]
        return self._commits_plainly(name, known, [known.only], changed) or None


def _schema_of(name: str, columns: Sequence[str] | None, *, encoded: bool) -> Schema:
    """Return the schema in which columns of a metadata table are read, by default all."""
    names = columns or SCHEMAS[name].names
    return Schema([Field(column, kind_read(name, column, encoded), nullable=True) for column in names])


def metadata_of(config: PipelineConfig) -> Metadata:
    """Return a source's metadata."""
    return Metadata(f"{config.root}/_binlake")
