"""The newest mutations of a table, as far as their batches' staging is kept (``maintain.staging_hours``, a feed).

Which rows, when and where; their values, or the key's, where that is asked for, and never those of masked columns.
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
"""That are looked through, the newest first."""
_NAMES = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}
_MASK = "***"
_MOST_LETTERS = 300
"""Of one value."""
_TOLD = ["op", "offset", "row", "committed_us", "gtid", "xid"]


@dataclass(frozen=True)
class NewestChange:
    """One mutation. position: ``file:offset`` of its event. key, before, after: values as text, by column; None where
    they weren't asked for, or there is none."""

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
    """since_batch: the oldest batch that was looked through; None where no staging is kept."""

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
    """Of recorded batches, the newest first. Rows of XA transactions, which wait for their outcome, aren't told."""
    found: list[NewestChange] = []
    since: int | None = None
    shown = _Shown(with_key, with_values, config.page.masked(name))
    wanted = ["batch", "attempt", "range"]
    for row in metadata.read("batches", wanted, where="state = 'recorded'", newest=Newest("batch", BATCHES)):
        folder = config.staging_path(str(row["batch"]), row["attempt"] or "-")
        if not files.exists(f"{folder}/manifest.json"):
            break
        since = row["batch"]
        found += _of_batch(folder, row, name, count - len(found), shown)
        if len(found) >= count:
            break
    return NewestChanges(tuple(found), since)


@dataclass(frozen=True)
class _Shown:
    """Which values are told. masked: columns, in small letters, whose values aren't read at all."""

    key: bool
    values: bool
    masked: frozenset[str]

    def columns(self, file: StagedFile) -> list[str]:
        """That are told of a file's rows."""
        every = [column.name for column in file.columns]
        return every if self.values else list(file.key) if self.key else []

    def images(self, file: StagedFile) -> list[str]:
        """As Parquet names what is read for that."""
        read = [column for column in self.columns(file) if column.lower() not in self.masked]
        return [f"{image}.{column}" for image in ("before", "after") for column in read]

    def of(self, image: dict[str, Any] | None, columns: Sequence[str], *, whole: bool) -> dict[str, str | None] | None:
        """An image's values; whole: the row has one, though nothing of it was read."""
        if not whole:
            return None
        told = {column: _MASK if column.lower() in self.masked else (image or {}).get(column) for column in columns}
        return {column: _told(value) for column, value in told.items()}


def _of_batch(folder: str, row: dict[str, Any], name: TableName, count: int, shown: _Shown) -> list[NewestChange]:
    try:
        manifest = staged_files.read_manifest(folder, row["batch"], row["attempt"])
        log_files = {number: part.file for number, part in enumerate(loads(Range, row["range"]).slices)}
        staged = [file for part in manifest.slices for file in part.files if file.name == name]
        found: list[NewestChange] = []
        for file in sorted(staged, key=lambda file: file.last, reverse=True):
            rows = _rows(file, count - len(found), shown)
            found += [_change(one, file, row["batch"], log_files[file.slice], shown) for one in rows]
            if len(found) >= count:
                break
    except (BinlakeError, OSError):  # it went while it was read
        return []
    return found


def _rows(file: StagedFile, count: int, shown: _Shown) -> list[dict[str, Any]]:
    """The last of a file, the newest first."""
    found: list[dict[str, Any]] = []
    for part in parquet_files.staged_groups_backwards(file.path, [*_TOLD, *shown.images(file)]):
        found += [row for row in _backwards(part) if row["xid"] is None and not _is_void(row, file)]
        if len(found) >= count:
            break
    return found[:count]


def _backwards(part: pa.Table) -> Iterator[dict[str, Any]]:
    yield from reversed(part.slice(max(0, part.num_rows - 1000)).to_pylist())


def _is_void(row: dict[str, Any], file: StagedFile) -> bool:
    """Rolled back."""
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


def _told(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            value = f"0x{value.hex()}"
    said = str(value)
    return said if len(said) <= _MOST_LETTERS else f"{said[:_MOST_LETTERS]}…"
