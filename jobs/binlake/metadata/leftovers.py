"""Files to delete: what dead runs left outside of Delta's logs, and what a table's folder holds beyond its history."""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from binlake.config import PipelineConfig
from binlake.config.units import HOUR_SECONDS
from binlake.delta.attempts import is_of_an_attempt
from binlake.delta.delta_log import LakeLog
from binlake.errors import LakeError
from binlake.metadata import feed_watermarks
from binlake.metadata.lease import RecordedState
from binlake.metadata.metadata import metadata_of
from binlake.schema.table import TableName
from binlake.storage import files
from binlake.storage.protocol import StoredFile

_COMMIT = re.compile(r"\d{20}\.json")
_OF_A_VERSION = re.compile(r"\d{20}\.")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")
_SIDE_BY_SIDE = 16
"""Files deleted at once: storage behind a URL answers slowly."""


def remove_recorded(config: PipelineConfig, recorded_state: RecordedState) -> list[str]:
    """Delete the staging of recorded batches, and return the folders.

    Kept is what XA transactions and feeds still wait for, and what is promised to replays.
    """
    recorded = {batch for batch in feed_watermarks.staged_batches(config) if batch <= recorded_state.batch}
    kept = {waiting.batch for waiting in recorded_state.prepared}
    if not recorded <= kept:
        kept |= _awaited_by_feeds(config, recorded_state.batch, recorded)
    kept |= _promised(config, recorded - kept)
    return [_removed(config, batch) for batch in sorted(recorded - kept)]


def _awaited_by_feeds(config: PipelineConfig, newest: int, recorded: set[int]) -> set[int]:
    """Return the batches that feeds wait for; all where that can't be found out, as feeds must not hold a sync back."""
    try:
        return feed_watermarks.awaited(config, metadata_of(config), newest, recorded)
    except LakeError:
        return recorded


def _promised(config: PipelineConfig, batches: Collection[int]) -> set[int]:
    """Return the batches that were staged within the hours for which staging is kept."""
    if not config.maintain.staging_hours:
        return set()
    before = time.time() - config.maintain.staging_hours * HOUR_SECONDS
    promised = set(batches)
    for batch in sorted(batches):  # their order is that of their times
        attempts = files.subfolders(config.staging_path(str(batch)))
        if any(int(attempt.partition("-")[0]) >= before for attempt in attempts):
            break
        promised.discard(batch)
    return promised


def _removed(config: PipelineConfig, batch: int) -> str:
    folder = config.staging_path(str(batch))
    files.remove_folder(folder)
    return folder


def remove_unborn(config: PipelineConfig, tables: Collection[TableName], before: float) -> list[str]:
    """Delete the folders of tables whose first snapshot died, and return them.

    Such a folder has no commit, and only files of attempts, all written before a time (seconds since 1970). tables:
    their folders stay, whatever is in them.
    """
    kept = {config.table_path(name) for name in tables}
    folders = [
        f"{root}/{database}/{table}"
        for root in (config.root, config.ghosts)
        for database in files.subfolders(root)
        if not database.startswith("_")
        for table in files.subfolders(f"{root}/{database}")
    ]
    unborn = [folder for folder in folders if folder not in kept and _is_unborn(folder, before)]
    for folder in unborn:
        files.remove_folder(folder)
    return unborn


def _is_unborn(folder: str, before: float) -> bool:
    if files.list_files(f"{folder}/_delta_log"):
        return False
    inside = files.list_files(folder)
    return bool(inside) and all(file.modified < before and is_of_an_attempt(file.name) for file in inside)


@dataclass(frozen=True)
class Unneeded:
    """Unneeded files in a table's folder.

    data: files that no version since some time needs. vectors: number of old files of deletion vectors that can't be of
    the newest version; only Delta's own VACUUM can tell which they are.
    """

    data: tuple[StoredFile, ...] = ()
    vectors: int = 0


def unneeded(log: LakeLog, before: float, marked: int) -> Unneeded:
    """Return files written before a time (seconds since 1970) that are neither in the newest version nor in any since
    then.

    Delta's VACUUM finds them by the tombstones in its log's checkpoints; here the commits since the time are read.
    Where one of them is missing, nothing is unneeded. marked: number of the newest version's files with a deletion
    vector.
    """
    old = [file for file in files.list_files(log.path) if file.modified < before]
    data = [file for file in old if file.name.endswith(".parquet")]
    vectors = max(0, sum(file.name.endswith(".bin") for file in old) - marked)
    if not data:
        return Unneeded(vectors=vectors)
    used = {_base(uri) for uri in log.log().file_uris()}
    data = [file for file in data if _base(file.name) not in used]
    named = _named_since(log, before) if data else set()
    if named is None:
        return Unneeded()
    return Unneeded(tuple(file for file in data if _base(file.name) not in named), vectors)


def expired_log(log: LakeLog, before: float) -> tuple[StoredFile, ...]:
    """Return the files of a table's Delta log that no version since a time (seconds since 1970) needs, oldest first.

    These are all before the newest complete checkpoint of the version that stood then, or an earlier one. Spark deletes
    them when it writes a checkpoint of its own; other writers delete nothing.
    """
    listed = sorted(files.list_files(_log_folder(log)), key=lambda file: file.name)
    since = min(
        (_version(file) for file in listed if _COMMIT.fullmatch(file.name) and file.modified >= before), default=None
    )
    versions = [_version(file) for file in listed if _COMMIT.fullmatch(file.name)]
    stood = max(versions, default=0) if since is None else since - 1
    base = max((version for version in _checkpoints(listed) if version <= stood), default=0)
    return tuple(file for file in listed if _OF_A_VERSION.match(file.name) and _version(file) < base)


def _checkpoints(log_files: Sequence[StoredFile]) -> list[int]:
    """Return the versions of checkpoints that have all their parts."""
    parts: dict[tuple[int, int], int] = defaultdict(int)
    for file in log_files:
        if match := _CHECKPOINT.fullmatch(file.name):
            parts[int(match[1]), int(match[2] or 1)] += 1
    return [version for (version, whole), there in parts.items() if there == whole]


def _version(file: StoredFile) -> int:
    return int(file.name[:20])


def _log_folder(log: LakeLog) -> str:
    return f"{log.path}/_delta_log"


def remove_log(log: LakeLog, gone: Sequence[StoredFile]) -> None:
    """Delete files of a table's Delta log."""
    _remove(_log_folder(log), gone)


def remove_data(log: LakeLog, gone: Sequence[StoredFile]) -> None:
    """Delete files of a table."""
    _remove(log.path, gone)


def _remove(path: str, gone: Sequence[StoredFile]) -> None:
    """Delete files, and the checksum files that Hadoop keeps beside them on a local disk."""

    def remove(file: StoredFile) -> None:
        folder, _, name = f"{path}/{file.name}".rpartition("/")
        files.remove_file(f"{folder}/{name}")
        if "://" not in folder and files.exists(checksum := f"{folder}/.{name}.crc"):
            files.remove_file(checksum)

    with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="remove") as pool:
        list(pool.map(remove, gone))


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _named_since(log: LakeLog, before: float) -> set[str] | None:
    """Return the names of files that commits since a time added or removed; None where a commit may be missing."""
    folder = _log_folder(log)
    modified_at = {_base(file.name): file.modified for file in files.list_files(folder)}
    commits = {int(name[:20]): modified for name, modified in modified_at.items() if _COMMIT.fullmatch(name)}
    since = [version for version, modified in commits.items() if modified >= before]
    if not since:
        return set()
    first, last = min(since), max(commits)
    if not commits.keys() >= set(range(max(0, first - 1), last + 1)):
        return None
    named: set[str] = set()
    for version in range(first, last + 1):
        for line in files.read_text(f"{folder}/{version:020}.json").splitlines():
            action = json.loads(line)
            if file := action.get("add") or action.get("remove"):
                named.add(_base(str(file["path"])))
    return named
