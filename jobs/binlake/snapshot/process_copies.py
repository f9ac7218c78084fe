"""Copies by this process itself: a thread for each chunk reads the server's protocol and writes Parquet.

Kernels and Arrow do nearly all of that without the interpreter's lock, so that threads work side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from binlake.errors import LakeError, SourceError
from binlake.snapshot import direct, few_rows, jdbc, restore, resultset
from binlake.snapshot.attempts import Copied
from binlake.snapshot.chunks import Chunk, TableSnapshot
from binlake.snapshot.copying import ChunkCopy, Copying, Member, Selected, TableRefused, server_failure
from binlake.snapshot.direct import DataFiles, QueriedRows, ServerFailed, ViewsOpened
from binlake.snapshot.few_rows import FewRows
from binlake.snapshot.restore_arrow import NoText, NoValue
from binlake.storage import storage_errors

_UNREACHED = "check that the server runs and is reached from here, then run again"


class ProcessCopy(ChunkCopy):
    """A copy by the thread that runs it."""

    def __init__(self, copying: Copying, member: Member, opened: Callable[[], ViewsOpened]) -> None:
        super().__init__(copying, member, opened)
        self._rows: QueriedRows | None = None

    def run(self, query: jdbc.ChunkQuery) -> Chunk:
        """Copy the rows of a query to data files, and return the staged chunk."""
        self._rows = QueriedRows(query)
        return self._noted(partial(self._copy, self._rows))

    def run_few(self, selected: Selected) -> Chunk:
        """Write rows that are in memory to data files, and return the staged chunk."""
        return self._noted(lambda: self._written(selected()))

    def cancel(self) -> None:
        """End the query; ``run`` then raises in its thread."""
        if self._rows is not None:
            self._rows.cancel()

    def _copy(self, rows: QueriedRows) -> Copied:
        # Where a row is refused the connection ends at once: it keeps DDL away from the table.
        with closing(rows.columns(len(self._member.table.schema.mirrored))) as columns:
            return self._written(columns)

    def _written(self, rows: Iterable[list[pa.BinaryArray]]) -> Copied:
        table, invalid = self._member.table, self._copying.invalid
        path, most = self._attempts.table_path, table.rows_per_file
        target = DataFiles(path, self._attempt, table.schema, invalid, most)
        return direct.copied(rows, target, self._opened if table.schema.row_metadata else None)

    def _translated(self, error: Exception) -> Exception:
        return _translated(self._copying, self._member, self.folder, error)


def _translated(copying: Copying, member: Member, folder: str, error: Exception) -> Exception:
    match error:
        case NoText(number=number):
            return TableRefused(member.table, restore.not_text(member.table.name, member.table.schema, number))
        case ServerFailed(error=failure):
            return server_failure(copying, member, str(member), failure, _UNREACHED)
        case NoValue():
            return SourceError(f"{member}: {error}", remedy="run binlake doctor")
        case LakeError(message=message):
            return storage_errors.failed(f"copying {member} to {folder} failed", OSError(message))
        case OSError():
            return storage_errors.failed(f"copying {member} to {folder} failed", error)
        case pa.ArrowException():  # its message may quote a value
            wrong = f"{member}: its rows couldn't be written: {type(error).__name__}"
            return SourceError(wrong, remedy="set snapshot.reader: jdbc in the YAML, and report it")
    return error


class ProcessFewRows(FewRows):
    """Few rows by a connection of this process."""

    @contextmanager
    def _reader(self) -> Iterator[_QueryReader]:
        endpoint, mariadb = self._copying.endpoint, self._copying.source.is_mariadb
        with ExitStack() as stack:
            with self._translating(self._wave[0]), direct.server_errors():
                connection = stack.enter_context(direct.session_with(endpoint, mariadb=mariadb))
            yield _QueryReader(connection)

    def _translated(self, member: Member, error: Exception) -> Exception:
        return _translated(self._copying, member, "no folder yet", error)


@dataclass(frozen=True)
class _FewRowsQuery:
    """A table's query. weight: the one that counts its rows and bytes. columns: how many it selects."""

    weight: str
    text: str
    columns: int


@dataclass(frozen=True)
class _QueryReader:
    connection: Any

    def execute(self, statement: str) -> None:
        self._answer(statement)

    def _answer(self, statement: str) -> Sequence[Any]:
        with direct.server_errors(), self.connection.cursor() as cursor:
            cursor.execute(statement)
            answered: Sequence[Any] = cursor.fetchall()
            return answered

    def prepared(self, table: TableSnapshot) -> _FewRowsQuery:
        weight = jdbc.weight_query(table.name, table.schema, few_rows.MOST_ROWS + 1)
        text = jdbc.chunk_query(table.name, table.schema, None, None)
        return _FewRowsQuery(weight, text, len(table.schema.mirrored))

    def read(self, query: _FewRowsQuery) -> Selected | None:
        """Return the rows, None if there are more than a few. One view serves both: the rows read are those counted."""
        ((count, weight),) = self._answer(query.weight)
        if int(count) > few_rows.MOST_ROWS or int(weight) > few_rows.MOST_BYTES:
            return None
        with direct.server_errors():
            rows: list[list[pa.BinaryArray]] = list(resultset.answer(self.connection, query.text, query.columns))
        return lambda: rows
