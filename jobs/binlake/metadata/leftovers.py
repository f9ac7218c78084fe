"""What dead runs leave behind outside of Delta's logs, and whether a table's folder holds more than is promised."""

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
from binlake.metadata.lease import Standing
from binlake.metadata.metadata import metadata_of
from binlake.schema.table import TableName
from binlake.storage import files
from binlake.storage.protocol import StoredFile

_COMMIT = re.compile(r"\d{20}\.json")
_OF_A_VERSION = re.compile(r"\d{20}\.")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")
_SIDE_BY_SIDE = 16
"""Files removed at once: storage behind a URL answers slowly."""


def remove_recorded(config: PipelineConfig, standing: Standing) -> list[str]:
    """Of recorded batches, only what XA transactions and feeds still wait for is kept, and what is promised to replays.
    Gives the folders that went."""
    recorded = {batch for batch in feed_watermarks.staged_batches(config) if batch <= standing.batch}
    kept = {waiting.batch for waiting in standing.prepared}
    if not recorded <= kept:
        kept |= _awaited_by_feeds(config, standing.batch, recorded)
    kept |= _promised(config, recorded - kept)
    return [_removed(config, batch) for batch in sorted(recorded - kept)]


def _awaited_by_feeds(config: PipelineConfig, newest: int, recorded: set[int]) -> set[int]:
    """All of it where that can't be told: what is the feeds' holds no sync back."""
    try:
        return feed_watermarks.awaited(config, metadata_of(config), newest, recorded)
    except LakeError:
        return recorded


def _promised(config: PipelineConfig, batches: Collection[int]) -> set[int]:
    """Those that were staged within the hours for which staging is kept."""
    if not config.maintain.staging_hours:
        return set()
    before = time.time() - config.maintain.staging_hours * HOUR_SECONDS
    found = set(batches)
    for batch in sorted(batches):  # their order is that of their times
        attempts = files.subfolders(config.staging_path(str(batch)))
        if any(int(attempt.partition("-")[0]) >= before for attempt in attempts):
            break
        found.discard(batch)
    return found


def _removed(config: PipelineConfig, batch: int) -> str:
    folder = config.staging_path(str(batch))
    files.remove_folder(folder)
    return folder


def remove_unborn(config: PipelineConfig, tables: Collection[TableName], before: float) -> list[str]:
    """Folders without any commit go where a first snapshot died: attempts alone wrote there, all of it before the time
    (seconds since 1970). Gives those that went.

    tables: whose folders stay, whatever is in them.
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
    found = files.list_files(folder)
    return bool(found) and all(file.modified < before and is_of_an_attempt(file.name) for file in found)


@dataclass(frozen=True)
class Unneeded:
    """Of a table's folder. data: files that no version of some time needs. vectors: old files of deletion vectors that
    can't be of the newest version: which they are, only Delta's own vacuum can tell."""

    data: tuple[StoredFile, ...] = ()
    vectors: int = 0


def unneeded(log: LakeLog, before: float, marked: int) -> Unneeded:
    """What was written before the time (seconds since 1970), isn't in the newest version, and in none since the time.

    Delta's VACUUM tells the same by the tombstones in its log's checkpoints; here it is told by the commits since the
    time, of which each must be there: else nothing is unneeded. marked: files of the newest version with a deletion
    vector.
    """
    old = [file for file in files.list_files(log.path) if file.modified < before]
    data = [file for file in old if file.name.endswith(".parquet")]
    vectors = max(0, sum(file.name.endswith(".bin") for file in old) - marked)
    if not data:
        return Unneeded(vectors=vectors)
    used = {_base(uri) for uri in log.log().file_uris()}
    data = [file for file in data if _base(file.name) not in used]
    told = _told_since(log, before) if data else set()
    if told is None:
        return Unneeded()
    return Unneeded(tuple(file for file in data if _base(file.name) not in told), vectors)


def expired_log(log: LakeLog, before: float) -> tuple[StoredFile, ...]:
    """Of a table's Delta log what no version since the time (seconds since 1970) needs, oldest first: all before the
    newest whole checkpoint that isn't behind the version which stood then.

    Spark removes these when it writes a checkpoint of its own; whoever else commits removes nothing.
    """
    found = sorted(files.list_files(_log_folder(log)), key=lambda file: file.name)
    since = min(
        (_version(file) for file in found if _COMMIT.fullmatch(file.name) and file.modified >= before), default=None
    )
    versions = [_version(file) for file in found if _COMMIT.fullmatch(file.name)]
    stood = max(versions, default=0) if since is None else since - 1
    base = max((version for version in _checkpoints(found) if version <= stood), default=0)
    return tuple(file for file in found if _OF_A_VERSION.match(file.name) and _version(file) < base)


def _checkpoints(found: Sequence[StoredFile]) -> list[int]:
    """Versions of those that are there in all their parts."""
    parts: dict[tuple[int, int], int] = defaultdict(int)
    for file in found:
        if match := _CHECKPOINT.fullmatch(file.name):
            parts[int(match[1]), int(match[2] or 1)] += 1
    return [version for (version, whole), there in parts.items() if there == whole]


def _version(file: StoredFile) -> int:
    return int(file.name[:20])


def _log_folder(log: LakeLog) -> str:
    return f"{log.path}/_delta_log"


def remove_log(log: LakeLog, gone: Sequence[StoredFile]) -> None:
    _remove(_log_folder(log), gone)


def remove_data(log: LakeLog, gone: Sequence[StoredFile]) -> None:
    _remove(log.path, gone)


def _remove(path: str, gone: Sequence[StoredFile]) -> None:
    """With what Hadoop keeps beside each on a local disk."""

    def remove(file: StoredFile) -> None:
        folder, _, name = f"{path}/{file.name}".rpartition("/")
        files.remove_file(f"{folder}/{name}")
        if "://" not in folder and files.exists(checksum := f"{folder}/.{name}.crc"):
            files.remove_file(checksum)

    with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="remove") as pool:
        list(pool.map(remove, gone))


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _told_since(log: LakeLog, before: float) -> set[str] | None:
    """Names of the files that commits since the time added or took away; None where one of these may be missing."""
    folder = _log_folder(log)
    found = {_base(file.name): file.modified for file in files.list_files(folder)}
    commits = {int(name[:20]): modified for name, modified in found.items() if _COMMIT.fullmatch(name)}
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
            if told := action.get("add") or action.get("remove"):
                named.add(_base(str(told["path"])))
    return named
