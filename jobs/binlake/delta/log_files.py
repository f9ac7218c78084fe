"""The files of a Delta log as they are read: commits, checkpoints, and the hint at the newest checkpoint; and which
data files and files of deletion vectors a version of the table needs.

deltalake does the rest, but reads no deletion vectors in actions. Source: Delta's protocol, "Delta Log Entries",
"Checkpoints", "Last Checkpoint File" and "Deletion Vectors".
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

from binlake.delta.delta_actions import (
    VECTOR_KEY,
    Add,
    Commit,
    DeltaAction,
    FileAction,
    LogAction,
    Recorded,
    Remove,
    Replay,
    actions_in,
)
from binlake.errors import LakeError, StagingError
from binlake.storage import files
from binlake.storage.protocol import StoredFile

_COMMIT = re.compile(r"\d{20}\.json")
_OF_A_VERSION = re.compile(r"\d{20}\.")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")
_PARTITION = "partitionValues"
_OF_A_FILE = ("path", _PARTITION, "size", "modificationTime", "stats", "deletionVector")
_NAMES = ("path", *(f"deletionVector.{field}" for field in VECTOR_KEY))
"""Fields of add actions: those that are kept, and those that the names of files are in."""
_MOST_COMMITS = 100
"""Commits that are read to continue what is known of a log: of more, its checkpoint is quicker."""
HINT = "_delta_log/_last_checkpoint"
"""The file that names the newest checkpoint. Readers that don't know it list the log. deltalake 1.6 refuses a table
whose hint names a checkpoint that is newer than all that are there."""
_MOST_PARTS = 100_000
_MOST_VERSION = (1 << 63) - 1


@dataclass(frozen=True)
class LogFiles:
    """The files of a table's Delta log that belong to versions, oldest version first."""

    table_path: str
    files: tuple[StoredFile, ...]

    @classmethod
    def of(cls, table_path: str) -> LogFiles:
        """List a table's log. Raises LakeError."""
        listed = sorted(files.list_files(f"{table_path}/_delta_log"), key=lambda file: file.name)
        return cls(table_path, tuple(file for file in listed if _OF_A_VERSION.match(file.name)))

    @cached_property
    def commits(self) -> dict[int, float]:
        """Return the time of each commit, seconds since 1970, by its version."""
        return {_version(file): file.modified for file in self.files if _COMMIT.fullmatch(file.name)}

    @cached_property
    def checkpoints(self) -> dict[int, list[str]]:
        """Return the names of the files of each checkpoint that has all its parts, by its version."""
        parts: dict[tuple[int, int], list[str]] = defaultdict(list)
        for file in self.files:
            if match := _CHECKPOINT.fullmatch(file.name):
                parts[int(match[1]), int(match[2] or 1)].append(file.name)
        return {version: names for (version, whole), names in parts.items() if len(names) == whole}

    def operations(self, largest: int, names: Collection[str]) -> dict[int, dict[str, Any]]:
        """Return the commitInfo of commits whose operation has one of some names, by their versions.

        largest: the most bytes that such a commit has; larger ones aren't read. Raises LakeError.
        """
        small = [_version(file) for file in self.files if _COMMIT.fullmatch(file.name) and file.bytes <= largest]
        told = {version: read_commit(self.table_path, version).info for version in small}
        return {version: info for version, info in told.items() if info.get("operation") in names}

    def base(self, version: int) -> int:
        """Return the newest checkpoint at or before a version; -1 where there is none."""
        place = bisect_right(self._bases, version)
        return self._bases[place - 1] if place else -1

    @cached_property
    def _bases(self) -> list[int]:
        return sorted(self.checkpoints)

    def stood_at(self, time: float) -> int:
        """Return the version that stood at a time, seconds since 1970, as far as the log reaches back."""
        since = [version for version, modified in self.commits.items() if modified >= time]
        return min(since) - 1 if since else max(self.commits, default=-1)

    def has(self, first: int, last: int) -> bool:
        """Return whether all commits from one version to another are there."""
        return self.commits.keys() >= set(range(max(0, first), last + 1))

    def expired(self, stood: int, kept: Collection[int]) -> tuple[StoredFile, ...]:
        """Return the files that no version since ``stood`` needs, and none of the versions ``kept``.

        These are all before the newest complete checkpoint at or before ``stood``, except what leads from a checkpoint
        to a kept version.
        """
        base = max(0, self.base(stood))
        leading: set[int] = set()
        for version in kept:
            leading.update(range(max(0, self.base(version)), version + 1))
        return tuple(file for file in self.files if _version(file) < base and _version(file) not in leading)

    def needed_by(self, version: int) -> set[str] | None:
        """Return the names of the files that a version needs, without their folders; None where its log isn't whole.

        Raises OSError, ArrowException.
        """
        base = self.base(version)
        if not self.has(base + 1, version):
            return None
        replay = Replay({add.path: add for add in self._added_by(base)})
        replay.take(_read_each(self.table_path, range(base + 1, version + 1)))
        return {name for add in replay.files.values() for name in add.names}

    def lacking(self, versions: Collection[int], there: Collection[str]) -> set[int]:
        """Return which of some versions need a file that isn't there; those whose log isn't whole are left out.

        there: names of files, without their folders. Raises LakeError, OSError, ArrowException.
        """
        lacking, held = set[int](), frozenset(there)
        replay, at = Replay(), -1  # of files that aren't there alone
        for version in sorted(versions):
            base = self.base(version)
            if not self.has(base + 1, version):
                continue
            if base > at:
                replay, at = Replay({add.path: add for add in self._added_by(base) if not add.names <= held}), base
            actions = _read_each(self.table_path, range(at + 1, version + 1))
            replay.take(action for action in actions if not (isinstance(action, Add) and action.names <= held))
            at = version
            if replay.files:
                lacking.add(version)
        return lacking

    def _added_by(self, checkpoint: int) -> Iterator[Add]:
        """Yield the data files of a checkpoint; none with -1."""
        names = [f"{self.table_path}/_delta_log/{name}" for name in self.checkpoints.get(checkpoint, ())]
        return map(Add, _of_checkpoint(names, "add", _NAMES))

    def named_since(self, version: int) -> set[str] | None:
        """Return the names of the files that commits behind a version added or removed; None where one is missing."""
        newest = max(self.commits, default=version)
        if not self.has(version, newest):
            return None
        actions = _read_each(self.table_path, range(version + 1, newest + 1))
        return {name for action in actions if isinstance(action, FileAction) for name in action.names}

    def removed_by(self, gone: Collection[StoredFile]) -> set[str]:
        """Return the names of the files that the commits among these files of the log removed. Raises LakeError."""
        versions = (_version(file) for file in gone if _COMMIT.fullmatch(file.name))
        actions = _read_each(self.table_path, versions)
        return {name for action in actions if isinstance(action, Remove) for name in action.names}


def _version(file: StoredFile) -> int:
    return int(file.name[:20])


def commit_path(table_path: str, version: int) -> str:
    """Return the path of a commit's file."""
    return f"{table_path}/_delta_log/{version:020}.json"


def read_commit(table_path: str, version: int) -> Commit:
    """Read a commit. Raises StagingError where it can't be read, as it is gone; ValueError."""
    text = files.read_text(commit_path(table_path, version))
    return Commit(version, list(actions_in(text)), _digest(text))


def digest_of_commit(table_path: str, version: int) -> str:
    """Return a hash of a commit's file; empty where it is gone, as old ones go."""
    path = commit_path(table_path, version)
    return _digest(files.read_text(path)) if version >= 0 and files.exists(path) else ""


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _read_each(table_path: str, versions: Iterable[int]) -> Iterator[LogAction]:
    """Yield the actions of commits, which may be many: none is held. Raises as ``read_commit``."""
    for version in versions:
        yield from actions_in(files.read_text(commit_path(table_path, version)))


def commits_of_files(table_path: str, version: int, until: int | None = None) -> list[Commit] | None:
    """Return the commits behind a version, the oldest first; with None up to the newest one of a table on a disk.

    Returns None where one of them is gone, changes more than data files, or has a path that Delta's log encodes; and
    where there are so many that a checkpoint is quicker.
    """
    commits: list[Commit] = []
    for number in count(version + 1):
        if number > until if until is not None else not os.path.exists(commit_path(table_path, number)):
            return commits
        try:
            commit = read_commit(table_path, number)
            if len(commits) == _MOST_COMMITS or not commit.is_of_plain_files:
                return None
        except (StagingError, OSError, ValueError, KeyError):
            return None
        commits.append(commit)
    raise AssertionError


def added(table_path: str, version: int, paths: Collection[str]) -> dict[str, Add] | None:
    """Return the add actions of data files that exist at a version, by path.

    Returns None where not all are found: a log may be written in ways that this reader doesn't know. Raises OSError,
    ArrowException.
    """
    try:
        actions = _added(table_path, version, frozenset(paths))
    except (StagingError, FileNotFoundError, ValueError, KeyError):  # a stale hint, cleaned commits, another form
        return None
    return {path: actions[path] for path in paths} if actions.keys() >= set(paths) else None


def files_at(table_path: str, version: int) -> dict[str, Add]:
    """Return the add actions of all data files that exist at a version, by path. Raises LakeError where the log doesn't
    lead there, StagingError, OSError, ArrowException."""
    log = LogFiles.of(table_path)
    base = log.base(version)
    if not log.has(base + 1, version):
        raise LakeError(f"{table_path}: its log doesn't lead to version {version}")
    names = [f"{table_path}/_delta_log/{name}" for name in log.checkpoints.get(base, ())]
    replay = Replay({add.path: add for add in map(Add, _of_checkpoint(names, "add", _OF_A_FILE))})
    return replay.take(_read_each(table_path, range(base + 1, version + 1))).files


def _added(table_path: str, version: int, paths: frozenset[str]) -> dict[str, Add]:
    names = [path.rpartition("/")[2] for path in paths]
    checkpoint, begins = checkpoint_before(table_path, version)

    def asked() -> Iterator[FileAction]:
        for number in range(begins, version + 1):
            text = files.read_text(commit_path(table_path, number))
            if not all(name.isascii() and name not in text for name in names):  # others can be escaped in JSON
                yield from (each for each in actions_in(text) if isinstance(each, FileAction) and each.path in paths)

    since = list(asked())
    before = paths - {action.path for action in since}  # to read a checkpoint takes longer than ten commits
    there = _of_checkpoint(checkpoint, "add", _OF_A_FILE, before) if before else ()
    return Replay({fields["path"]: Add(fields) for fields in there}).take(since).files


def recorded(table_path: str, version: int) -> dict[str, int] | None:
    """Return the recorded version of each application id at a version, which may be an old one; None where the log is
    written in ways that this reader doesn't know. Raises LakeError, OSError, ArrowException."""
    try:
        checkpoint, begins = _listed_checkpoint(table_path, version)
        known = map(Recorded, _of_checkpoint(checkpoint, "txn", ("appId", "version")))
        replay = Replay(recorded={each.app: each for each in known})
        replay.take(_read_each(table_path, range(begins, version + 1)))
    except (StagingError, FileNotFoundError, ValueError, KeyError):
        return None
    return {app: each.version for app, each in replay.recorded.items()}


def _of_checkpoint(
    names: Sequence[str], kind: str, fields: Sequence[str], paths: Collection[str] | None = None
) -> Iterator[DeltaAction]:
    """Yield some fields of a checkpoint's actions of one kind, the first of which each has. paths: of data files, whose
    actions are asked for alone. Raises FileNotFoundError for other forms."""
    import pyarrow as pa  # for this alone
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    for name in names:
        with files.opened(name) as source:
            rows = pq.ParquetFile(source).read(columns=[f"{kind}.{field}" for field in fields], use_threads=False)
        own = pc.struct_field(rows[kind], fields[0])
        wanted = pc.is_valid(own) if paths is None else pc.is_in(own, pa.array(paths, pa.string()))
        yield from map(_without_none, rows[kind].filter(wanted).to_pylist())


def _without_none(fields: Mapping[str, Any]) -> DeltaAction:
    """Return the fields without those that are None: a checkpoint has all columns, an action only some."""
    there = {
        name: _without_none(value) if isinstance(value, dict) else value
        for name, value in fields.items()
        if value is not None
    }
    return {**there, _PARTITION: dict(there[_PARTITION])} if _PARTITION in there else there  # Arrow's maps are pairs


@dataclass(frozen=True)
class CheckpointHint:
    """The newest checkpoint. parts: number of its files; None for one file without a number."""

    version: int
    parts: int | None = None

    def paths(self, table_path: str) -> list[str]:
        """Return the paths of the checkpoint's files."""
        stem = f"{table_path}/_delta_log/{self.version:020}.checkpoint"
        if self.parts is None:
            return [f"{stem}.parquet"]
        return [f"{stem}.{part:010}.{self.parts:010}.parquet" for part in range(1, self.parts + 1)]


def read_hint(table_path: str) -> CheckpointHint | None:
    """Return a table's hint; None where there is none.

    Raises ValueError where the file isn't a hint, LakeError and StagingError where it can't be read.
    """
    if not files.exists(f"{table_path}/{HINT}"):
        return None
    try:
        hint = json.loads(files.read_text(f"{table_path}/{HINT}"))
    except RecursionError:
        raise ValueError(f"{table_path}/{HINT} is nested too deep") from None
    version, parts = (hint.get("version"), hint.get("parts")) if isinstance(hint, dict) else (None, None)
    if type(version) is not int or not 0 <= version <= _MOST_VERSION:
        raise ValueError(f"{table_path}/{HINT} names no version")
    if parts is not None and (type(parts) is not int or not 1 <= parts <= _MOST_PARTS):
        raise ValueError(f"{table_path}/{HINT} names no number of parts")
    return CheckpointHint(version, parts)


def remove_wrong_hint(table_path: str) -> bool:
    """Remove a hint that names a checkpoint which isn't there, or none at all. Returns whether it was removed.

    It stays where that can't be found out, or it can't be removed.
    """
    try:
        hint = read_hint(table_path)
        if hint is None or hint.version in LogFiles.of(table_path).checkpoints:
            return False
    except (LakeError, StagingError):
        return False
    except ValueError:
        pass
    with suppress(LakeError):
        files.remove_file(f"{table_path}/{HINT}")
        return True
    return False


def checkpoint_before(table_path: str, version: int) -> tuple[list[str], int]:
    """Return the paths of the newest checkpoint, of one file or numbered parts, and the first commit behind it. Raises
    KeyError where that is behind ``version``."""
    try:
        hint = read_hint(table_path)
    except ValueError:
        return _listed_checkpoint(table_path, version)
    if hint is None:
        return [], 0
    if hint.version > version:
        raise KeyError(version)
    return hint.paths(table_path), hint.version + 1


def _listed_checkpoint(table_path: str, version: int) -> tuple[list[str], int]:
    """Do the same as ``checkpoint_before`` by listing the log."""
    log = LogFiles.of(table_path)
    newest = log.base(version)
    names = log.checkpoints[newest] if newest >= 0 else []
    return [f"{table_path}/_delta_log/{name}" for name in names], newest + 1
