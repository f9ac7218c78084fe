"""Checkpoints of Delta tables that are written once a second for weeks.

A checkpoint tells of each file that was replaced within ``delta.deletedFileRetentionDuration``, so that Delta's own
VACUUM leaves it. Of a table with a commit every 2 s these are 300,000 files after a week, in every checkpoint. VACUUM
leaves a file for that long by its age, too. So checkpoints don't tell here of files that lived for less than an hour.
Of an older one that got deletion vectors for less than an hour each, they tell when it went with the last.
Source: Delta's protocol, "Checkpoints" and "Action Reconciliation".
"""

from __future__ import annotations

import json
import math
import time
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from binlake.delta import continued_checkpoint, delta_actions, opened_tables
from binlake.delta.log_files import FileKey, file_key
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

_BY_DELTALAKE_EACH = 3600.0
"""Seconds from one checkpoint of a table that deltalake writes to the next, times the table's patience: it leaves out
what is older than promised."""
_by_deltalake: dict[str, float] = {}
"""When deltalake wrote a table's last checkpoint in this process, by the table's path and the monotonic clock."""
_UNREADABLE = (OSError, pa.ArrowException, LakeError, StagingError, ValueError, KeyError)


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
        if not _continue(table_path, version):
            opened_tables.opened(table_path, version).create_checkpoint()
            _shorten(table_path, version)
            _by_deltalake[table_path] = time.monotonic()
    except (DeltaError, *_UNREADABLE):
        return


def _continue(table_path: str, version: int) -> bool:
    """Write a checkpoint of a table on a disk by the last one and the commits behind it; return False where deltalake
    is to write it, which then leaves out what is old."""
    waited = time.monotonic() - _by_deltalake.get(table_path, -math.inf)
    is_due = waited >= _BY_DELTALAKE_EACH * patience_of(table_path)
    if is_due or "://" in table_path:
        return False
    try:
        actions = continued_checkpoint.continued(table_path, version)
        if actions is None:
            return False
        _put(table_path, version, _without(actions, _brief_rows(table_path, version, actions)))
    except _UNREADABLE:
        return False
    return True


def _shorten(table_path: str, version: int) -> None:
    """Leave out of a checkpoint the brief files that were replaced."""
    path = f"{table_path}/_delta_log/{version:020}.checkpoint.parquet"
    with files.opened(path) as source:
        keys = pq.ParquetFile(source).read(columns=_KEYS, use_threads=False)
    if not (gone := _brief_rows(table_path, version, keys)):
        return
    with files.opened(path) as source:
        actions = pq.ParquetFile(source).read(use_threads=False)
    _put(table_path, version, _without(actions, gone))


def _brief_rows(table_path: str, version: int, actions: pa.Table) -> list[int]:
    """Return which rows of a checkpoint are about brief files that were replaced; none where they are few. actions: at
    least its columns _KEYS."""
    removed = actions["remove"].to_pylist()
    replaced = {place: file for place, file in enumerate(removed) if file and file["path"] is not None}
    if len(replaced) < _FEWEST:
        return []
    brief = _brief(table_path, version)
    there = set(pc.struct_field(actions["add"], "path").drop_null().to_pylist())
    last = _last_of_older(replaced, brief, there)
    gone = [place for place, file in replaced.items() if file_key(file) in brief and place not in last]
    return gone if len(gone) >= _FEWEST else []


def _without(actions: pa.Table, rows: Sequence[int]) -> pa.Table:
    """Return the rows of a checkpoint but for some, by their numbers."""
    kept = np.ones(actions.num_rows, np.bool_)
    kept[rows] = False
    return actions.filter(pa.array(kept))


def _put(table_path: str, version: int, actions: pa.Table) -> None:
    """Write a checkpoint's file, and that it is the newest one unless there is a newer one."""
    sink = pa.BufferOutputStream()
    pq.write_table(actions, sink)
    data = sink.getvalue().to_pybytes()
    files.replace_bytes(f"{table_path}/_delta_log/{version:020}.checkpoint.parquet", data)
    if _newest_checkpoint(table_path)["version"] <= version:
        added = actions.num_rows - actions["add"].null_count
        hint = {"version": version, "size": actions.num_rows, "sizeInBytes": len(data), "numOfAddFiles": added}
        files.replace_bytes(f"{table_path}/{_HINT}", json.dumps(hint, separators=(",", ":")).encode())


def _last_of_older(
    replaced: Mapping[int, Mapping[str, Any]], brief: Collection[FileKey], there: Collection[str]
) -> set[int]:
    """Return where it is told when a data file went that is neither brief itself nor ``there``: VACUUM removes one by
    that time where it is old enough."""
    last: dict[str, int] = {}
    for place in sorted(replaced, key=lambda place: int(replaced[place]["deletionTimestamp"] or 0)):
        last[replaced[place]["path"]] = place
    return {place for path, place in last.items() if path not in there and file_key({"path": path}) not in brief}


def _newest_checkpoint(table_path: str) -> dict[str, Any]:
    """Return what the log tells of the newest checkpoint."""
    hint: dict[str, Any] = json.loads(files.read_text(f"{table_path}/{_HINT}"))
    return hint


def _brief(table_path: str, version: int) -> set[FileKey]:
    """Return the files that the newest commits up to a version added, as far as they are of the last hour."""
    since = (time.time() - _BRIEF_SECONDS) * 1000
    brief: set[FileKey] = set()
    for number in range(version, max(-1, version - _LOOKED_AT), -1):
        actions = list(delta_actions.of_commit(table_path, number))
        at = [action["commitInfo"].get("timestamp", 0) for action in actions if "commitInfo" in action]
        if not at or at[0] < since:
            break
        brief |= {file_key(action["add"]) for action in actions if "add" in action}
    return brief
