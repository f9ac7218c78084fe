"""The material of a replay: the versions of a table with which it can begin, and the batches that are still staged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from deltalake.exceptions import DeltaError

from binlake.config import PipelineConfig
from binlake.delta import opened_tables
from binlake.delta.delta_log import LakeLog, changes_rows, note_of
from binlake.errors import LakeError, UsageError
from binlake.lease.lease import OpenBatch
from binlake.position import Position, Range
from binlake.storage import files
from binlake.store import formats
from binlake.store.metadata import Metadata
from binlake.store.rows import BatchRow

_RECORDED = "recorded.json"


def keep(config: PipelineConfig, batch: OpenBatch) -> None:
    """Write beside a merged batch's manifest what else is needed to merge it again."""
    folder = config.staging_path(str(batch.batch), batch.attempt)
    files.write_text(f"{folder}/{_RECORDED}", formats.written(batch))


def kept(config: PipelineConfig, batch: int) -> OpenBatch | None:
    """Return a recorded batch; None where its staging is gone, or wasn't to be kept."""
    folder = config.staging_path(str(batch))
    for attempt in files.subfolders(folder):
        if files.exists(path := f"{folder}/{attempt}/{_RECORDED}"):
            return formats.read(OpenBatch, files.read_text(path))
    return None


@dataclass(frozen=True)
class RecordedBatch:
    """A row of ``batches``. updated_us: when it was recorded."""

    batch: int
    range: Range
    updated_us: int


def recorded(metadata: Metadata) -> dict[int, RecordedBatch]:
    """Return the recorded batches that metadata still has, by number."""
    rows = BatchRow.read(metadata, "batch", "range", "updated_us", where="state = 'recorded'")
    return {row.batch: RecordedBatch(row.batch, row.carried, row.updated_us) for row in rows}


def newest_at(batches: Iterable[RecordedBatch], moment: datetime) -> int:
    """Return the batch that was recorded last at a time. Raises UsageError where none is known."""
    at_us = int(moment.timestamp() * 1_000_000)
    known = [batch.batch for batch in batches if batch.updated_us <= at_us]
    if not known:
        raise UsageError(
            f"no batch is known that was recorded by {moment:%Y-%m-%d %H:%M:%S %Z}",
            remedy="name a later time; how long batches are listed is maintain.runs_days of the YAML",
        )
    return max(known)


@dataclass(frozen=True)
class Base:
    """A version of a table's life with which a replay can begin.

    batch: the newest one in it. snapshot: where the life began in the log, if the version is its snapshot.
    """

    version: int
    batch: int
    snapshot: Position | None = None


def bases(log: LakeLog, life: str, snapshot_batch: int) -> list[Base]:
    """Return the versions of a life that are the result of a whole batch, oldest first, except where others changed
    rows.

    snapshot_batch: the newest batch that was given out when the life's snapshot was taken.
    """
    if not log.exists():
        return []
    by_batch: dict[int, Base] = {}
    ours = True
    for commit in reversed(list(log.history())):
        note, version = note_of(commit), int(commit["version"])
        if note.get("life") != life:
            ours = ours and (bool(note) or not changes_rows(commit))
            continue
        ours = ours or "replayed" in note  # every row was written again
        if "range_anew" in note:  # no version before it has the rows that came beside the log
            by_batch.clear()
        if note.get("snapshot"):
            by_batch, ours = {snapshot_batch: Base(version, snapshot_batch, _position(note))}, True
        elif "batch" in note and ours:
            by_batch[note["batch"]] = Base(version, note["batch"])
    return [by_batch[batch] for batch in sorted(by_batch)]


def _position(note: dict[str, Any]) -> Position:
    return Position.parse(note["position"], note.get("gtid_set") or "")


def is_readable(log: LakeLog, version: int) -> bool:
    """Return whether a version's log and all its data files are still there."""
    try:
        uris = opened_tables.opened(log.path, version).file_uris()
        there = {file.name.rpartition("/")[2] for file in files.list_files(log.path)}
    except (DeltaError, OSError, LakeError):
        return False
    return all(uri.rpartition("/")[2] in there for uri in uris)
