"""The newest mutations of a table, as far as their batches' staging is kept (``maintain.staging_hours``, a feed).

Which rows, when and where; never their values, but for the key where it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from binlake.batch.manifest import StagedFile
from binlake.binlog.border import DELETE, INSERT, UPDATE
from binlake.config import PipelineConfig
from binlake.errors import BinlakeError
from binlake.position import Range
from binlake.schema.table import TableName
from binlake.serialization import loads
from binlake.state import files, staging
from binlake.state.metadata import Metadata, Newest

BATCHES = 24
"""That are looked through, the newest first."""
_NAMES = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}
_TOLD = ["op", "offset", "row", "committed_us", "gtid", "xid"]


@dataclass(frozen=True)
class NewestChange:
    """One mutation. position: ``file:offset`` of its event. key: None where it wasn't asked for, or there is none."""

    batch: int
    op: str
    committed_us: int
    position: str
    gtid: str | None
    key: dict[str, str] | None


@dataclass(frozen=True)
class NewestChanges:
    """since_batch: the oldest batch that was looked through; None where no staging is kept."""

    changes: tuple[NewestChange, ...]
    since_batch: int | None


def newest_changes(
    config: PipelineConfig, metadata: Metadata, name: TableName, count: int, *, with_key: bool
) -> NewestChanges:
    """Of recorded batches, the newest first. Rows of XA transactions, which wait for their outcome, aren't told."""
    found: list[NewestChange] = []
    since: int | None = None
    wanted = ["batch", "attempt", "range"]
    for row in metadata.read("batches", wanted, where="state = 'recorded'", newest=Newest("batch", BATCHES)):
        folder = config.staging_path(str(row["batch"]), row["attempt"] or "-")
        if not files.exists(f"{folder}/manifest.json"):
            break
        since = row["batch"]
        found += _of_batch(folder, row, name, count - len(found), with_key)
        if len(found) >= count:
            break
    return NewestChanges(tuple(found), since)


def _of_batch(folder: str, row: dict[str, Any], name: TableName, count: int, with_key: bool) -> list[NewestChange]:
    try:
        manifest = staging.read_manifest(folder, row["batch"], row["attempt"])
        log_files = {number: part.file for number, part in enumerate(loads(Range, row["range"]).slices)}
        staged = [file for part in manifest.slices for file in part.files if file.name == name]
        found: list[NewestChange] = []
        for file in sorted(staged, key=lambda file: file.last, reverse=True):
            rows = _rows(file, count - len(found), with_key)
            found += [_change(one, file, row["batch"], log_files[file.slice], with_key) for one in rows]
            if len(found) >= count:
                break
    except (BinlakeError, OSError):  # it went while it was read
        return []
    return found


def _rows(file: StagedFile, count: int, with_key: bool) -> list[dict[str, Any]]:
    """The last of a file, the newest first."""
    images = [f"{image}.{column}" for image in ("before", "after") for column in file.key] if with_key else []
    found: list[dict[str, Any]] = []
    for part in files.parquet_groups_backwards(file.path, [*_TOLD, *images]):
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


def _change(row: dict[str, Any], file: StagedFile, batch: int, log_file: str, with_key: bool) -> NewestChange:
    image = (row.get("before") if row["op"] == DELETE else row.get("after")) or {}
    key = {column: _shown(image[column]) for column in file.key if column in image} if with_key else None
    position = f"{log_file}:{row['offset']}"
    return NewestChange(batch, _NAMES[row["op"]], row["committed_us"], position, row["gtid"], key or None)


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"0x{value.hex()}"
    return str(value)
