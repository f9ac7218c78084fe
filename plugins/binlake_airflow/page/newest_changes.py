"""The newest mutations of a table, from staging that is still kept (by ``maintain.staging_hours``, or for a feed).

Values, or only those of the key, are read if asked for, but never those of masked columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from binlake.batch.manifest import StagedFile
from binlake.binlog.border import DELETE, INSERT, UPDATE
from binlake.config import PipelineConfig
from binlake.errors import BinlakeError
from binlake.metadata.metadata import Metadata, Newest
from binlake.position import Range
from binlake.schema.table import TableName
from binlake.serialization import loads
from binlake.staging import staged_files
from binlake.storage import files, parquet_files

BATCHES = 24
"""How many batches are searched, the newest first."""
_NAMES = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}
_MASK = "***"
_MOST_LETTERS = 300
"""The most letters shown of a value."""
_COLUMNS = ["op", "offset", "row", "committed_us", "gtid", "xid"]


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
) -> NewestChanges:
    """Return at most ``count`` mutations of recorded batches, the newest first, without rows of XA transactions."""
    changes: list[NewestChange] = []
    since: int | None = None
    shown = _Shown(with_key, with_values, config.page.masked(name))
    wanted = ["batch", "attempt", "range"]
    for row in metadata.read("batches", wanted, where="state = 'recorded'", newest=Newest("batch", BATCHES)):
        folder = config.staging_path(str(row["batch"]), row["attempt"] or "-")
        if not files.exists(f"{folder}/manifest.json"):
            break
        since = row["batch"]
        changes += _of_batch(folder, row, name, count - len(changes), shown)
        if len(changes) >= count:
            break
    return NewestChanges(tuple(changes), since)


@dataclass(frozen=True)
class _Shown:
    """Which values are shown. masked: columns, in lower case, whose values aren't even read."""

    key: bool
    values: bool
    masked: frozenset[str]

    def columns(self, file: StagedFile) -> list[str]:
        """Return the columns that are shown of a file's rows."""
        every = [column.name for column in file.columns]
        return every if self.values else list(file.key) if self.key else []

    def images(self, file: StagedFile) -> list[str]:
        """Return the Parquet columns that must be read for that."""
        read = [column for column in self.columns(file) if column.lower() not in self.masked]
        return [f"{image}.{column}" for image in ("before", "after") for column in read]

    def of(self, image: dict[str, Any] | None, columns: Sequence[str], *, whole: bool) -> dict[str, str | None] | None:
        """Return an image's values as text. whole: whether the row has the image, even if nothing of it was read."""
        if not whole:
            return None
        values = {column: _MASK if column.lower() in self.masked else (image or {}).get(column) for column in columns}
        return {column: _text_of(value) for column, value in values.items()}


def _of_batch(folder: str, row: dict[str, Any], name: TableName, count: int, shown: _Shown) -> list[NewestChange]:
    try:
        manifest = staged_files.read_manifest(folder, row["batch"], row["attempt"])
        log_files = {number: part.file for number, part in enumerate(loads(Range, row["range"]).slices)}
        staged = [file for part in manifest.slices for file in part.files if file.name == name]
        changes: list[NewestChange] = []
        for file in sorted(staged, key=lambda file: file.last, reverse=True):
            rows = _rows(file, count - len(changes), shown)
            changes += [_change(mutation, file, row["batch"], log_files[file.slice], shown) for mutation in rows]
            if len(changes) >= count:
                break
    except (BinlakeError, OSError):  # it was removed while it was read
        return []
    return changes


def _rows(file: StagedFile, count: int, shown: _Shown) -> list[dict[str, Any]]:
    """Return a file's last rows, the newest first."""
    newest: list[dict[str, Any]] = []
    for part in parquet_files.staged_groups_backwards(file.path, [*_COLUMNS, *shown.images(file)]):
        newest += [row for row in _backwards(part) if row["xid"] is None and not _is_void(row, file)]
        if len(newest) >= count:
            break
    return newest[:count]


def _backwards(part: pa.Table) -> Iterator[dict[str, Any]]:
    yield from reversed(part.slice(max(0, part.num_rows - 1000)).to_pylist())


def _is_void(row: dict[str, Any], file: StagedFile) -> bool:
    """Tell whether a row was rolled back."""
    place = row["offset"], row["row"]
    return any((first, begun) <= place < (last, ended) for first, begun, last, ended in file.void)


def _change(row: dict[str, Any], file: StagedFile, batch: int, log_file: str, shown: _Shown) -> NewestChange:
    before, after = row.get("before"), row.get("after")
    key = shown.of(before if row["op"] == DELETE else after, file.key, whole=shown.key)
    images = [
        shown.of(image, shown.columns(file), whole=shown.values and row["op"] != without)
        for image, without in ((before, INSERT), (after, DELETE))
    ]
    position = f"{log_file}:{row['offset']}"
    return NewestChange(batch, _NAMES[row["op"]], row["committed_us"], position, row["gtid"], key or None, *images)


def _text_of(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            value = f"0x{value.hex()}"
    text = str(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"
