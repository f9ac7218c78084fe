"""The removal of a Delta table's past: data files of earlier versions, and what the log says of them.

It is safe beside writers without the lease, and where it is killed:

1. The folder is listed first, then a version is committed that changes a setting of the table. A writer that began
   before conflicts with that commit, so nothing that was listed, and isn't in that version, is committed any more.
2. A checkpoint of that version holds all that the table is. Then the earlier part of the log goes. Such a writer would
   find the number of its commit free: so the newest of the earlier commits become empty ones.
3. Killed anywhere, the next purge begins with a version of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deltalake.exceptions import CommitFailedError

from binlake.delta import checkpoints, opened_tables, plain_tables
from binlake.delta.delta_log import LakeLog
from binlake.delta.delta_schema import PURGED
from binlake.delta.log_files import LogFiles, commit_path
from binlake.errors import LakeError
from binlake.records import leftovers
from binlake.storage import files
from binlake.storage.kinds import storage_of
from binlake.storage.protocol import StoredFile
from binlake.store.metadata import now_us

_TRIES = 5
_UNFINISHED = re.compile(r"[._].*\.tmp|\d{20}\..*#\d+")
"""Temporary files of commits: those of binlake, Hadoop and deltalake, and of object_store."""
_EMPTY_COMMITS = 20
"""How many of the newest earlier commits become empty ones: a writer tries the number behind the one that it read."""


@dataclass(frozen=True)
class Past:
    """A table's past, which is about to go. version: the one that stays. there: the files that were in the table's
    folder before its commit. unfinished: names of temporary files that were in the log's folder then."""

    path: str
    version: int
    there: Sequence[StoredFile]
    unfinished: Sequence[str] = ()


@dataclass(frozen=True)
class RemovedPast:
    """What was removed. files, bytes: of data. log_files: of the log."""

    files: int
    bytes: int
    log_files: int


def leave(path: str, note: Mapping[str, Any], below: str = "") -> Past:
    """Commit the version that stays of a table. note: is written into the commit's information. below: a folder in that
    of the table, whose data files alone are the table's own. Raises LakeError, OSError, what deltalake raises."""
    for _ in range(_TRIES):
        there, unfinished = data_files(path, below), _unfinished(path)
        table = opened_tables.opened(path)
        try:
            plain_tables.commit_settings(path, table, note, {PURGED: str(now_us())})
        except CommitFailedError:
            continue
        return Past(path, int(table.version()) + 1, there, unfinished)
    raise LakeError(f"{path} is written by others all the time", remedy="run it again")


def data_files(path: str, below: str = "") -> list[StoredFile]:
    """Return the data files and files of deletion vectors in a table's folder, or in one below it. Raises LakeError."""
    there = files.list_files(f"{path}/{below}" if below else path)
    there = [replace(file, name=f"{below}/{file.name}") for file in there] if below else there
    return [file for file in there if file.name.endswith((".parquet", ".bin"))]


def _unfinished(path: str) -> list[str]:
    """Return the names of the log's temporary files, which no reader reads. A commit at work that had one has a version
    by now, or conflicts."""
    folder = f"{path}/_delta_log"
    names = [file.name for file in storage_of(folder).list(folder).files]
    return [name for name in names if _UNFINISHED.fullmatch(name)]


def remove(past: Past) -> RemovedPast:
    """Remove a table's past. Raises LakeError, OSError, ArrowException, what deltalake raises."""
    checkpoints.write_without_past(past.path, past.version)
    log, log_files = LakeLog(past.path, ""), LogFiles.of(past.path)
    needed = log_files.needed_by(past.version)
    if needed is None:
        raise LakeError(f"{past.path}: the log of version {past.version} isn't whole", remedy="run it again")
    gone = [file for file in past.there if file.name.rpartition("/")[2] not in needed]
    leftovers.remove_data(log, gone)
    earlier = [file for file in log_files.files if int(file.name[:20]) < past.version]
    commits = sorted(version for version in log_files.commits if version < past.version)[-_EMPTY_COMMITS:]
    emptied = {commit_path(past.path, version).rpartition("/")[2] for version in commits}
    leftovers.remove_log(log, [file for file in earlier if file.name not in emptied])
    for version in commits:
        _empty(past.path, version)
    for name in past.unfinished:
        files.remove_below(past.path, f"_delta_log/{name}")
    opened_tables.forget(past.path)
    return RemovedPast(len(gone), sum(file.bytes for file in gone), len(earlier) - len(commits))


def _empty(path: str, version: int) -> None:
    """Put a commit that says nothing in the place of another, and remove the checksum that Hadoop keeps of that."""
    info = plain_tables.commit_info("SET TBLPROPERTIES", {"properties": "{}"}, {}, {}, version - 1 if version else None)
    place = commit_path(path, version)
    files.replace_bytes(place, (json.dumps({"commitInfo": info}) + "\n").encode())
    checksum = f"_delta_log/.{place.rpartition('/')[2]}.crc"
    if "://" not in path and files.exists(f"{path}/{checksum}"):
        files.remove_below(path, checksum)
