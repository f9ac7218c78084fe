"""The newest mutations of a table, from staging that is still kept (by ``maintain.staging_hours``, or for a feed).

Values, or only those of the key, are read if asked for, but never those of masked columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from binlake.binlog.border import DELETE, INSERT, OPERATIONS
from binlake.config import PipelineConfig
from binlake.errors import BinlakeError
from binlake.planner.manifest import StagedFile
from binlake.relay.client_events import text_in
from binlake.schema.datatypes import made_late
from binlake.schema.lake_columns import side_names
from binlake.schema.table import Column, TableName, TableSchema
from binlake.staging import staged_files
from binlake.storage import files, parquet_files
from binlake.store.conditions import Newest
from binlake.store.metadata import Metadata
from binlake.store.rows import BatchRow
from binlake.verify.result import MASK

BATCHES = 24
"""How many batches are searched, the newest first."""
_MOST_LETTERS = 300
"""The most letters shown of a value."""


@dataclass(frozen=True)
class NewestChange:
    """One mutation. position: ``file:offset`` of its event. key, before, after: values as text, by column; None if they
    weren't asked for, or there are none."""

    batch: int
    op: str
    committed_us: int
    position: str
    gtid: str | None
    key: dict[str, str | None] | None
    before: dict[str, str | None] | None = None
    after: dict[str, str | None] | None = None


@dataclass(frozen=True)
class NewestChanges:
    """The newest mutations. since_batch: the oldest batch that was searched; None if no staging is kept."""

    changes: tuple[NewestChange, ...]
    since_batch: int | None


def newest_changes(
    config: PipelineConfig,
    metadata: Metadata,
    name: TableName,
    count: int,
    *,
    with_key: bool,
    with_values: bool = False,
    schema: TableSchema | None = None,
) -> NewestChanges:
    """Return at most ``count`` mutations of recorded batches, the newest first, without rows of XA transactions.

    schema: the table's, which has facts about types that the log lacks.
    """
    changes: list[NewestChange] = []
    since: int | None = None
    shown = _Shown(with_key, with_values, config.masked_on_page(name), schema.columns if schema else ())
    newest = Newest("batch", BATCHES)
    for row in BatchRow.read(metadata, "batch", "attempt", "range", where="state = 'recorded'", newest=newest):
        folder = config.staging_path(str(row.batch), row.attempt or "-")
        if not files.exists(f"{folder}/manifest.json"):
            break
        since = row.batch
        changes += _of_batch(folder, row, name, count - len(changes), shown)
        if len(changes) >= count:
            break
    return NewestChanges(tuple(changes), since)


@dataclass(frozen=True)
class _Shown:
    """Rules for the values that are shown. masked: columns, in lower case, whose values aren't even read. recorded: the
    table's columns."""

    key: bool
    values: bool
    masked: frozenset[str]
    recorded: tuple[Column, ...]

    def columns(self, file: StagedFile) -> list[str]:
        """Return the columns that are shown of a file's rows."""
        every = [column.name for column in file.columns]
        return every if self.values else list(file.key) if self.key else []

    def images(self, file: StagedFile) -> list[str]:
        """Return the Parquet columns that must be read for that."""
        sides = side_names(file.columns)
        read = [column for column in self.columns(file) if column.lower() not in self.masked]
        return [
            f"{image}.{name}" for image in ("before", "after") for column in read for name in (column, *sides[column])
        ]

    def of(
        self, image: dict[str, Any] | None, columns: Sequence[str], file: StagedFile, *, whole: bool
    ) -> dict[str, str | None] | None:
        """Return an image's values as text. whole: whether the row has the image, even if nothing of it was read."""
        if not whole:
            return None
        sides, known = side_names(file.columns), {column.name: self._described(column) for column in file.columns}
        return {
            column: MASK if column.lower() in self.masked else _text_of(image or {}, known[column], sides[column])
            for column in columns
        }

    def _described(self, staged: Column) -> Column:
        """Return a staged column as it is recorded, if that is the same column."""
        for column in self.recorded:
            if column.name == staged.name and (column.type == staged.type or made_late(column)):
                return column
        return staged


def _of_batch(folder: str, row: BatchRow, name: TableName, count: int, shown: _Shown) -> list[NewestChange]:
    try:
        manifest = staged_files.read_manifest(folder, row.batch, row.attempt or "")
        log_files = {number: part.file for number, part in enumerate(row.carried.slices)}
        staged = [file for part in manifest.slices for file in part.files if file.name == name]
        changes: list[NewestChange] = []
        for file in sorted(staged, key=lambda file: file.last, reverse=True):
            rows = _rows(file, count - len(changes), shown)
            changes += [_change(mutation, file, row.batch, log_files[file.slice], shown) for mutation in rows]
            if len(changes) >= count:
                break
    except (BinlakeError, OSError):  # it was removed while it was read
        return []
    return changes


@dataclass(frozen=True)
class _StagedMutation:
    """A row of a staged file. before, after: the values that were read of its images, by column."""

    op: int
    offset: int
    row: int
    committed_us: int
    gtid: str | None
    xid: str | None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


_COLUMNS = [field.name for field in fields(_StagedMutation) if field.name not in ("before", "after")]


def _rows(file: StagedFile, count: int, shown: _Shown) -> list[_StagedMutation]:
    """Return a file's last rows, the newest first."""
    newest: list[_StagedMutation] = []
    for part in parquet_files.staged_groups_backwards(file.path, [*_COLUMNS, *shown.images(file)]):
        newest += [row for row in _backwards(part) if row.xid is None and not _is_void(row, file)]
        if len(newest) >= count:
            break
    return newest[:count]


def _backwards(part: pa.Table) -> Iterator[_StagedMutation]:
    for row in reversed(part.slice(max(0, part.num_rows - 1000)).to_pylist()):
        yield _StagedMutation(**row)


def _is_void(row: _StagedMutation, file: StagedFile) -> bool:
    """Return whether a row was rolled back."""
    place = row.offset, row.row
    return any((first, begun) <= place < (last, ended) for first, begun, last, ended in file.void)


def _change(row: _StagedMutation, file: StagedFile, batch: int, log_file: str, shown: _Shown) -> NewestChange:
    key = shown.of(row.before if row.op == DELETE else row.after, file.key, file, whole=shown.key)
    images = [
        shown.of(image, shown.columns(file), file, whole=shown.values and row.op != without)
        for image, without in ((row.before, INSERT), (row.after, DELETE))
    ]
    position = f"{log_file}:{row.offset}"
    return NewestChange(batch, OPERATIONS[row.op], row.committed_us, position, row.gtid, key or None, *images)


def _text_of(image: Mapping[str, Any], column: Column, sides: Sequence[str]) -> str | None:
    """Return a value as the server shows it; bytes that are no text, in hexadecimal. sides: see text_in."""
    value = image.get(column.name)
    if isinstance(value, bytes) and (stored := made_late(column)) is not None:
        return str(stored.values(pa.array([value], pa.binary()))[0].as_py())
    data = text_in({column.name: None, **image}, column, sides)
    if data is None:
        return None
    text = data.decode(errors="replace")
    if text.encode() != data or (isinstance(value, bytes) and (column.type == "bit" or not text.isprintable())):
        text = f"0x{data.hex()}"
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"
