"""Checkpoints of Delta tables that are written once a second for weeks.

A checkpoint tells of each file that was replaced within ``delta.deletedFileRetentionDuration``, so that Delta's own
VACUUM leaves it. Of a table with a commit every 2 s these are 300,000 files after a week, in every checkpoint. VACUUM
leaves a file for that long by its age, too. So checkpoints don't tell here of files that lived for less than an hour.
Of an older one that got deletion vectors for less than an hour each, they tell when it went with the last.
Source: Delta's protocol, "Checkpoints" and "Action Reconciliation".
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from binlake.delta import delta_actions, opened_tables
from binlake.errors import LakeError, StagingError
from binlake.storage import files

_HINT = "_delta_log/_last_checkpoint"
_SECONDS, _COMMITS = 60, 50
"""Seconds from one checkpoint to the next, unless so many commits lie between: one costs as much as reading a few
hundred commits."""
_BRIEF_SECONDS, _LOOKED_AT = 3600, 120
"""Seconds for which a file may have lived to be brief, and how many newest commits are looked at for those."""
_FEWEST = 8
"""Fewest brief files for which a checkpoint is written anew."""
_KEYS = ["add.path", "remove.path", "remove.deletionTimestamp", "remove.deletionVector.storageType",
         "remove.deletionVector.pathOrInlineDv", "remove.deletionVector.offset"]  # fmt: skip

_FileKey = tuple[Any, ...]
"""What identifies a data file with its deletion vector."""


def patience_of(table_path: str) -> float:
    """Return how many times as long a table's checkpoints are waited for, from 1 to 2: tables that change together
    would all write theirs in the same batch, which then takes twice as long."""
    return 1 + zlib.crc32(table_path.encode()) % 64 / 64


def is_time(table_path: str, version: int, patience: float = 1.0) -> bool:
    """Tell whether the newest checkpoint was written a while ago, or lies many commits back. patience: see
    ``patience_of``."""
    try:
        last = files.stat(f"{table_path}/{_HINT}")
        if last is None or time.time() - last.modified >= _SECONDS * patience:
            return True
        return version - int(_newest_checkpoint(table_path)["version"]) >= _COMMITS * patience
    except (LakeError, StagingError, ValueError, KeyError):
        return True


def write(table_path: str, version: int) -> None:
    """Write a checkpoint, so that readers read less of the log. Where it fails the next one is tried again."""
    try:
        opened_tables.opened(table_path, version).create_checkpoint()
        _shorten(table_path, version)
    except (DeltaError, OSError, pa.ArrowException, LakeError, StagingError, ValueError, KeyError):
        return


def _shorten(table_path: str, version: int) -> None:
    """Leave out of a checkpoint the brief files that were replaced."""
    path = f"{table_path}/_delta_log/{version:020}.checkpoint.parquet"
    with files.opened(path) as source:
        keys = pq.ParquetFile(source).read(columns=_KEYS, use_threads=False)
    removed = keys["remove"].to_pylist()
    replaced = {place: file for place, file in enumerate(removed) if file and file["path"] is not None}
    if len(replaced) < _FEWEST:
        return
    brief = _brief(table_path, version)
    there = {file["path"] for file in keys["add"].to_pylist() if file}
    last = _last_of_older(replaced, brief, there)
    gone = [place for place, file in replaced.items() if _key(file) in brief and place not in last]
    if len(gone) < _FEWEST:
        return
    with files.opened(path) as source:
        actions = pq.ParquetFile(source).read(use_threads=False)
    kept = np.ones(actions.num_rows, np.bool_)
    kept[gone] = False
    sink = pa.BufferOutputStream()
    pq.write_table(actions.filter(pa.array(kept)), sink)
    data = sink.getvalue().to_pybytes()
    files.replace_bytes(path, data)
    if (newest := _newest_checkpoint(table_path))["version"] == version:
        shorter = {**newest, "size": int(kept.sum()), "sizeInBytes": len(data)}
        files.replace_bytes(f"{table_path}/{_HINT}", json.dumps(shorter, separators=(",", ":")).encode())


def _last_of_older(
    replaced: Mapping[int, Mapping[str, Any]], brief: Collection[_FileKey], there: Collection[str]
) -> set[int]:
    """Return where it is told when a data file went that is neither brief itself nor ``there``: VACUUM removes one by
    that time where it is old enough."""
    last: dict[str, int] = {}
    for place in sorted(replaced, key=lambda place: int(replaced[place]["deletionTimestamp"] or 0)):
        last[replaced[place]["path"]] = place
    return {place for path, place in last.items() if path not in there and _key({"path": path}) not in brief}


def _newest_checkpoint(table_path: str) -> dict[str, Any]:
    """Return what the log tells of the newest checkpoint."""
    hint: dict[str, Any] = json.loads(files.read_text(f"{table_path}/{_HINT}"))
    return hint


def _brief(table_path: str, version: int) -> set[_FileKey]:
    """Return the files that the newest commits up to a version added, as far as they are of the last hour."""
    since = (time.time() - _BRIEF_SECONDS) * 1000
    brief: set[_FileKey] = set()
    for number in range(version, max(-1, version - _LOOKED_AT), -1):
        actions = list(delta_actions.of_commit(table_path, number))
        at = [action["commitInfo"].get("timestamp", 0) for action in actions if "commitInfo" in action]
        if not at or at[0] < since:
            break
        brief |= {_key(action["add"]) for action in actions if "add" in action}
    return brief


def _key(action: Mapping[str, Any]) -> _FileKey:
    vector = action.get("deletionVector") or {}
    return action["path"], vector.get("storageType"), vector.get("pathOrInlineDv"), vector.get("offset")
