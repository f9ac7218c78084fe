"""Checkpoints of Delta tables that are written once a second for weeks.

A checkpoint lists each file that was replaced within ``delta.deletedFileRetentionDuration``, so that Delta's own VACUUM
leaves it. Of a table with a commit every 2 s these are 300,000 files after a week, in every checkpoint. VACUUM leaves a
file for that long by its age, too. So checkpoints don't list here files that lived for less than an hour. For an older
one that got deletion vectors for less than an hour each, they record when it went with the last.

deltalake lists the log and reads the last checkpoint with all commits behind it, twice, to write the next one: 70 ms of
CPU for 60 commits, and more with each commit that was ever made. A process that follows a source does that to some
table in every second batch. Most commits only add and remove data files: of a table on a disk their actions replace
rows of the checkpoint before.
Source: Delta's protocol, "Checkpoints", "Checkpoint Schema" and "Action Reconciliation".
"""

from __future__ import annotations

import json
import math
import time
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from binlake.caches import Cache
from binlake.delta import log_files, opened_tables
from binlake.delta.delta_actions import Commit, DeltaAction, FileAction, FileKey, LogAction, Replay
from binlake.delta.delta_log import COMPUTED_STATISTICS
from binlake.errors import LakeError, StagingError
from binlake.storage import files

_SECONDS, _COMMITS = 60, 50
"""Seconds from one checkpoint to the next, unless so many commits lie between: one costs as much as reading a few
hundred commits."""
_BRIEF_SECONDS, _LOOKED_AT = 3600, 120
"""Seconds for which a file may have lived to be brief, and how many newest commits are looked at for those."""
_FEWEST = 8
"""Fewest brief files for which a checkpoint is rewritten."""
ReadCommit = Callable[[int], Commit]
_KEYS = ["add.path", "remove.path", "remove.deletionTimestamp", "remove.deletionVector.storageType",
         "remove.deletionVector.pathOrInlineDv", "remove.deletionVector.offset"]  # fmt: skip

_BY_DELTALAKE_EACH = 3600.0
"""Seconds from one checkpoint of a table that deltalake writes to the next, times the table's patience: it leaves out
what is older than promised."""
_by_deltalake: Cache[str, float] = Cache("checkpoints by deltalake")
"""When deltalake wrote a table's last checkpoint in this process, by the table's path and the monotonic clock."""
_MOST_COMMITS = 300
"""Commits by which a checkpoint is continued."""
_COLUMNS = frozenset({"add", "remove", "metaData", "protocol", "txn", "domainMetadata", "sidecar"})
_VECTOR = frozenset({"storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality"})
_FIELDS: Mapping[str, frozenset[str]] = {
    "add": frozenset(
        {"path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "tags", "deletionVector",
         "baseRowId", "defaultRowCommitVersion", "clusteringProvider"}
    ),
    "remove": frozenset(
        {"path", "deletionTimestamp", "dataChange", "extendedFileMetadata", "partitionValues", "size", "stats", "tags",
         "deletionVector", "baseRowId", "defaultRowCommitVersion"}
    ),
    "txn": frozenset({"appId", "version", "lastUpdated"}),
}  # fmt: skip
"""The fields of actions, as deltalake's checkpoints have them. Spark's have statistics in columns, too."""
_MAPS = ("partitionValues", "tags")
_UNREADABLE = (OSError, pa.ArrowException, LakeError, StagingError, ValueError, KeyError)


def patience_of(table_path: str) -> float:
    """Return how many times as long a table's checkpoints are waited for, from 1 to 2: tables that change together
    would all write theirs in the same batch, which then takes twice as long."""
    return 1 + zlib.crc32(table_path.encode()) % 64 / 64


def is_time(table_path: str, version: int, patience: float = 1.0) -> bool:
    """Return whether the newest checkpoint was written a while ago, or lies many commits back. patience: see
    ``patience_of``."""
    try:
        last = files.stat(f"{table_path}/{log_files.HINT}")
        if last is None or time.time() - last.modified >= _SECONDS * patience:
            return True
        hint = log_files.read_hint(table_path)
        return hint is None or version - hint.version >= _COMMITS * patience
    except (LakeError, StagingError, ValueError):
        return True


def write(table_path: str, version: int) -> None:
    """Write a checkpoint, so that readers read less of the log. Where it fails the next one is tried again."""
    try:
        if not _continue(table_path, version):
            opened_tables.opened(table_path, version).create_checkpoint()
            _shorten(table_path, version)
            _by_deltalake.put(table_path, time.monotonic())
    except (DeltaError, *_UNREADABLE):
        return


def write_without_past(table_path: str, version: int) -> None:
    """Write a checkpoint that says nothing of removed files. Raises what deltalake raises; LakeError, OSError,
    ArrowException."""
    opened_tables.opened(table_path, version).create_checkpoint()
    with files.opened(f"{table_path}/_delta_log/{version:020}.checkpoint.parquet") as source:
        actions = pq.ParquetFile(source).read(use_threads=False)
    _put(table_path, version, actions.filter(pc.is_null(actions["remove"])))


def _continue(table_path: str, version: int) -> bool:
    """Write a checkpoint of a table on a disk by the last one and the commits behind it; return False where deltalake
    is to write it, which then leaves out what is old."""
    waited = time.monotonic() - (_by_deltalake.get(table_path) or -math.inf)
    is_due = waited >= _BY_DELTALAKE_EACH * patience_of(table_path)
    if is_due or "://" in table_path:
        return False
    try:
        read = cache(partial(log_files.read_commit, table_path))
        actions = continued(table_path, version, read)
        if actions is None:
            return False
        _put(table_path, version, _without(actions, _brief_rows(version, actions, read)))
    except _UNREADABLE:
        return False
    return True


def _shorten(table_path: str, version: int) -> None:
    """Leave out of a checkpoint the brief files that were replaced."""
    path = f"{table_path}/_delta_log/{version:020}.checkpoint.parquet"
    with files.opened(path) as source:
        keys = pq.ParquetFile(source).read(columns=_KEYS, use_threads=False)
    if not (gone := _brief_rows(version, keys, partial(log_files.read_commit, table_path))):
        return
    with files.opened(path) as source:
        actions = pq.ParquetFile(source).read(use_threads=False)
    _put(table_path, version, _without(actions, gone))


def _brief_rows(version: int, actions: pa.Table, read: ReadCommit) -> list[int]:
    """Return which rows of a checkpoint are about brief files that were replaced; none where they are few. actions: at
    least its columns _KEYS."""
    removed = actions["remove"].to_pylist()
    replaced = {place: file for place, file in enumerate(removed) if file and file["path"] is not None}
    if len(replaced) < _FEWEST:
        return []
    brief = _brief(version, read)
    there = set(pc.struct_field(actions["add"], "path").drop_null().to_pylist())
    last = _last_of_older(replaced, brief, there)
    gone = [place for place, file in replaced.items() if FileAction(file).key in brief and place not in last]
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
    if _is_newest(table_path, version):
        added = actions.num_rows - actions["add"].null_count
        hint = {"version": version, "size": actions.num_rows, "sizeInBytes": len(data), "numOfAddFiles": added}
        files.replace_bytes(f"{table_path}/{log_files.HINT}", json.dumps(hint, separators=(",", ":")).encode())


def _last_of_older(
    replaced: Mapping[int, Mapping[str, Any]], brief: Collection[FileKey], there: Collection[str]
) -> set[int]:
    """Return the removals by which VACUUM knows when a data file went that is neither brief itself nor ``there``: it
    removes the file by that time where it is old enough."""
    last: dict[str, int] = {}
    for place in sorted(replaced, key=lambda place: int(replaced[place]["deletionTimestamp"] or 0)):
        last[replaced[place]["path"]] = place
    return {place for path, place in last.items() if path not in there and FileAction({"path": path}).key not in brief}


def _is_newest(table_path: str, version: int) -> bool:
    """Return whether the hint names no later checkpoint than that of a version."""
    try:
        hint = log_files.read_hint(table_path)
    except ValueError:
        return True
    return hint is None or hint.version <= version


def _brief(version: int, read: ReadCommit) -> set[FileKey]:
    """Return the files that the newest commits up to a version added, as far as they are of the last hour."""
    since = (time.time() - _BRIEF_SECONDS) * 1000
    brief: set[FileKey] = set()
    for number in range(version, max(-1, version - _LOOKED_AT), -1):
        commit = read(number)
        if commit.info.get("timestamp", 0) < since:
            break
        if commit.info.get("operation") == COMPUTED_STATISTICS:
            continue  # its files are older
        brief |= {add.key for add in commit.added}
    return brief


def continued(table_path: str, version: int, read: ReadCommit | None = None) -> pa.Table | None:
    """Return the rows of a table's checkpoint at a version: those of the newest checkpoint before it, changed by the
    commits in between. Rows that deltalake would leave out by their age stay.

    Returns None where deltalake has to write it: the last checkpoint isn't as deltalake writes it, or commits change
    more than data files. read: reads a commit of the table. Raises OSError, StagingError, ValueError, KeyError,
    ArrowException where the log can't be read.
    """
    names, begins = log_files.checkpoint_before(table_path, version)
    if len(names) != 1 or version - begins >= _MOST_COMMITS:
        return None
    with files.opened(names[0]) as source:
        checkpoint = pq.ParquetFile(source).read(use_threads=False)
    commits = list(map(read or partial(log_files.read_commit, table_path), range(begins, version + 1)))
    if not (all(map(_is_known, commits)) and _is_of_deltalake(checkpoint)):
        return None
    replay = Replay().take_all(commits)
    changed: dict[FileKey, LogAction] = {**replay.gone, **{add.key: add for add in replay.files.values()}}
    rows = [{action.kind: _as_row(action.fields)} for action in [*changed.values(), *replay.recorded.values()]]
    kept = checkpoint.filter(pa.array(_kept(checkpoint, changed, replay.recorded)))
    return pa.concat_tables([kept, pa.Table.from_pylist(rows, checkpoint.schema)])


def _is_known(commit: Commit) -> bool:
    """Return whether a commit has no other actions, and no other fields, than are known here."""
    return commit.is_of_plain_files and all(
        action.fields.keys() <= _FIELDS[action.kind] and (action.fields.get("deletionVector") or {}).keys() <= _VECTOR
        for action in commit.actions
        if action.kind in _FIELDS
    )


def _is_of_deltalake(checkpoint: pa.Table) -> bool:
    """Return whether a checkpoint has the columns and fields that deltalake writes, and no parts in other files."""
    if set(checkpoint.column_names) != _COLUMNS or checkpoint["sidecar"].null_count < checkpoint.num_rows:
        return False
    return all({field.name for field in checkpoint.schema.field(kind).type} == _FIELDS[kind] for kind in _FIELDS)


def _kept(checkpoint: pa.Table, changed: Collection[FileKey], recorded: Collection[str]) -> np.ndarray:
    """Return which rows of a checkpoint no later action replaces. changed: data files. recorded: application ids."""
    apps = pc.is_in(pc.struct_field(checkpoint["txn"], "appId"), pa.array(recorded, pa.string()))
    kept: np.ndarray = ~apps.to_numpy()
    paths = pa.array({path for path, *_ in changed}, pa.string())
    for kind in ("add", "remove"):
        may_go = pc.is_in(pc.struct_field(checkpoint[kind], "path"), paths)
        for place in np.flatnonzero(may_go.to_numpy()):
            kept[place] = FileAction(checkpoint[kind][int(place)].as_py()).key not in changed
    return kept


def _as_row(fields: DeltaAction) -> dict[str, Any]:
    """Return an action's fields as Arrow takes them."""
    return {name: list(value.items()) if name in _MAPS and value else value for name, value in fields.items()}
