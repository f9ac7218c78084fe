"""Delta tables by deltalake, in every kind of storage: each is opened here, with the options of its store.

A process that follows a source asks each table after each of its own commits which transaction version is recorded, and
with which actions its data files were added. deltalake reads the newest checkpoint and all commits behind it for that;
here only the commits are read that came since, each once, and none that this process made. A table is known by the file
of its newest commit, so that one that was removed and made again isn't taken for it. In a store everything is read each
time.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from arro3.core import Array, DataType, Table
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from binlake.caches import Cache
from binlake.delta import log_files
from binlake.delta.delta_actions import Add, Commit, DeltaAction, Replay, of_kind
from binlake.errors import LakeError
from binlake.storage import files, storage_errors, stores

_Result = TypeVar("_Result")
_LENT_TIMES, _CONTINUED_TIMES, _KEPT_SECONDS = 100, 1000, 60.0
"""How often an open table is lent, as its log in memory grows with each commit; how often one that is read is continued
by commits, as statistics of some may be left out; and how long both are kept in between. To open one lists all its log.
"""
_MOST_FILES = 64
"""Data files of a table whose actions are known, of more the oldest go."""
_COMMIT_OR_CHECKPOINT = re.compile(r"\d{20}\.(json$|checkpoint)")

CommitFile = tuple[int, int, int]
"""Inode, time and size of the file of a commit."""


class _Lent(NamedTuple):
    """An open table that nobody uses. times: how often it was lent. since: by the monotonic clock. commit: the file of
    its newest commit."""

    table: DeltaTable
    times: int
    since: float
    commit: CommitFile | None


@dataclass(frozen=True)
class _KnownLog:
    """The known part of a table's log, up to a version. commit: the file of the newest commit. recorded: transaction
    versions by application id, of those that were asked for or came since. files: add actions by path, likewise. info:
    what the newest commit says of itself; None where it isn't known. table: as it was opened to be read, at the
    version; since: when, by the monotonic clock; times: how often it was continued.
    """

    version: int
    commit: CommitFile
    recorded: Mapping[str, int | None] = field(default_factory=dict)
    files: Mapping[str, Add] = field(default_factory=dict)
    info: DeltaAction | None = None
    table: DeltaTable | None = None
    since: float = 0.0
    times: int = 0


_lent: Cache[tuple[str, tuple[tuple[str, str], ...]], tuple[_Lent, ...]] = Cache("tables to be lent")
"""By their paths and the options of their stores: none is lent to another account."""
_logs: Cache[str, _KnownLog] = Cache("logs of tables")


def opened(path: str, version: int | None = None) -> DeltaTable:
    """Open a table. A hint at its newest checkpoint that is wrong is removed, as deltalake refuses it.

    Raises what deltalake raises, and ConfigurationError.
    """
    options = stores.storage_options(path)
    try:
        return DeltaTable(path, version=version, storage_options=options)
    except DeltaError as error:
        if "_last_checkpoint" not in str(error) or not log_files.remove_wrong_hint(path):
            raise
        return DeltaTable(path, version=version, storage_options=options)


@contextmanager
def lent(path: str) -> Iterator[DeltaTable]:
    """Lend a table at its newest version, which nobody else has meanwhile.

    A table that was lent before is only brought up to date behind a new commit. One whose use failed isn't kept, nor
    one in a store: there it would cost as much to see that the table wasn't removed and made again meanwhile. Raises
    what deltalake raises, and ConfigurationError.
    """
    place = _place(path)
    lent = _taken(place)
    if lent is None or lent.commit != commit_file(path, lent.table.version()):
        lent = _Lent(opened(path), 0, 0.0, None)
    elif _has_next(path, lent.table.version()):
        lent.table.update_incremental()
    yield lent.table
    commit = commit_file(path, lent.table.version())
    if commit and lent.times < _LENT_TIMES:
        others = _lent.take(place) or ()
        _lent.put(place, (*others, _Lent(lent.table, lent.times + 1, time.monotonic(), commit)))


def _taken(place: tuple[str, tuple[tuple[str, str], ...]]) -> _Lent | None:
    fresh = [lent for lent in _lent.take(place) or () if time.monotonic() - lent.since < _KEPT_SECONDS]
    if len(fresh) > 1:
        _lent.put(place, tuple(fresh[:-1]))
    return fresh[-1] if fresh else None


def newest(path: str) -> DeltaTable:
    """Return a table at its newest version, to be read only: others may have the same object.

    One that was opened before is returned again while no commit came, and continued by commits that change rows alone.
    Raises what deltalake raises, and ConfigurationError.
    """
    if "://" in path:
        return opened(path)
    known = _logs.get(path)
    if known and known.table and time.monotonic() - known.since < _KEPT_SECONDS and _is_there(path, known):
        if not _has_next(path, known.version):
            return known.table
        later = _continued(path, known) if _is_fresh(known) else None
        if later and later.table:
            _logs.put(path, later)
            return later.table
    table = opened(path)
    if known := _at(path, table.version()):
        _logs.put(path, replace(known, table=table, since=time.monotonic(), times=0))
    return table


def forget(path: str) -> None:
    """Forget what is known of a table, as files of its log are gone from which an open one may read on."""
    _logs.drop([path])
    _lent.take(_place(path))


def _place(path: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return path, tuple(sorted((stores.storage_options(path) or {}).items()))


def transaction_version(path: str, table: DeltaTable, app: str) -> int | None:
    """Return the version that a table records for an application id; None without. table: as it was opened.

    Raises what deltalake raises.
    """
    known = _at(path, table.version())
    if known and app in known.recorded:
        return known.recorded[app]
    recorded = table.transaction_version(app)
    if known:
        _keep(path, replace(known, recorded={**known.recorded, app: recorded}))
    return recorded


def added(path: str, version: int, paths: Collection[str]) -> dict[str, Add] | None:
    """Return the add actions of data files that exist at a version, by path; None where not all are found.

    Raises OSError, ArrowException.
    """
    known = _at(path, version)
    if known and known.files.keys() >= set(paths):
        return {name: known.files[name] for name in paths}
    actions = log_files.added(path, version, paths)
    if known and actions:
        _keep(path, replace(known, files=_newest_files({**known.files, **actions})))
    return actions


def committed(path: str, version: int, actions: Iterable[DeltaAction]) -> None:
    """Remember a commit that this process just made of these actions, so that it needn't be read."""
    known = _logs.get(path)
    if known is None or known.version != version - 1 or not (_is_fresh(known) and _is_there(path, known)):
        return
    commit = Commit(version, [of_kind(*each) for action in actions for each in action.items()])
    if commit.is_of_plain_files and (later := _behind(path, known, [commit])):
        _logs.put(path, later)


def info_at(path: str, version: int) -> DeltaAction | None:
    """Return what a commit says of itself, where it is the newest that is known; else None."""
    known = _logs.get(path)
    there = known is not None and known.version == version and _is_there(path, known)
    return known.info if known and there else None


def _at(path: str, version: int) -> _KnownLog | None:
    """Return what is known of a log at a version; None where it isn't known by a file."""
    if (commit := commit_file(path, version)) is None:
        return None
    known = _logs.get(path)
    if known and (known.version, known.commit) == (version, commit):
        return known
    later = _continued(path, known, version) if known and known.version < version else None
    if later is None or later.commit != commit:
        return _KnownLog(version, commit)
    _logs.put(path, later)
    return later


def _continued(path: str, known: _KnownLog, until: int | None = None) -> _KnownLog | None:
    """Return what is known of a log behind the commits that came, up to a version or behind all; None where deltalake
    has to read it."""
    commits = log_files.commits_of_files(path, known.version, until)
    return _behind(path, known, commits) if commits and _is_there(path, known) else None


def _behind(path: str, known: _KnownLog, commits: Sequence[Commit]) -> _KnownLog | None:
    """Return what is known of a log behind the next commits, which change data files alone; None where the last one is
    gone."""
    from binlake.delta import continued_table  # imports pyarrow, which a status doesn't need

    version = known.version + len(commits)
    if (commit := commit_file(path, version)) is None:
        return None
    replay = Replay(dict(known.files)).take_all(commits)
    recorded = {**known.recorded, **{app: each.version for app, each in replay.recorded.items()}}
    table = known.table and continued_table.continued(path, known.table, commits, opened)
    newest, info = _newest_files(replay.files), commits[-1].info
    return _KnownLog(version, commit, recorded, newest, info, table, time.monotonic(), known.times + 1)


def _newest_files(files: Mapping[str, Add]) -> Mapping[str, Add]:
    return {path: files[path] for path in list(files)[-_MOST_FILES:]}


def _keep(path: str, known: _KnownLog) -> None:
    """Remember what is known of a log, unless it is known at a later version."""
    there = _logs.get(path)
    if there is None or there.version <= known.version or not _is_there(path, there):
        _logs.put(path, known)


def _is_fresh(known: _KnownLog) -> bool:
    """Return whether a table may be continued by further commits."""
    return known.times < _CONTINUED_TIMES and time.monotonic() - known.since < _KEPT_SECONDS


def _is_there(path: str, known: _KnownLog) -> bool:
    """Return whether a table wasn't removed and made again since."""
    return known.commit == commit_file(path, known.version)


def _has_next(path: str, version: int) -> bool:
    return os.path.exists(log_files.commit_path(path, version + 1))


def commit_file(path: str, version: int) -> CommitFile | None:
    """Return what distinguishes the file of a commit from any other; None where it isn't there, or the table is in a
    store."""
    if "://" in path:
        return None
    try:
        stat = os.stat(log_files.commit_path(path, version))
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def is_table(path: str) -> bool:
    """Return whether a table is at a path. Raises LakeError where that can't be found out."""
    try:
        if "://" in path:
            return bool(DeltaTable.is_deltatable(path, stores.storage_options(path)))
        known = _logs.get(path)
        if known and commit_file(path, known.version):  # a log of thousands of commits needn't be listed
            return True
        with os.scandir(f"{path}/_delta_log") as entries:
            return any(_COMMIT_OR_CHECKPOINT.match(entry.name) for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (DeltaError, OSError) as error:
        raise storage_errors.failed(f"can't look for a Delta table at {path}", error) from error


def created(create: Callable[[], _Result]) -> _Result:
    """Make a table's first commit by ``create``, and return what that returns.

    It is repeated where S3 answers with HTTP 409 because another conditional write of the name is under way. deltalake
    does so itself for further commits; for the first it looks for another's commit, and finds none.
    """

    def is_under_way(error: Exception) -> bool:
        return isinstance(error, DeltaError) and "Invalid table version" in str(error)

    return stores.CONFLICTS.call(create, is_under_way)


def refuse_overwriting_store(folder: str) -> None:
    """Raise LakeError for an object store that takes two commits for one version, which loses the first.

    The store is tried below the folder; a file system isn't tried.
    """
    if stores.store_of(folder) is None:
        return
    path, options = f"{folder}/_probe-{uuid.uuid4().hex[:12]}", stores.storage_options(folder)
    try:
        write_deltalake(path, Table.from_pydict({"n": Array([0], DataType.int64())}), storage_options=options)
        if stores.store_of(folder) == "azure" and files.has_folder(path):
            raise LakeError(
                f"{folder}: the storage account has a hierarchical namespace, on which two runs that race weren't "
                "proved safe",
                remedy="use an account without one, s3://, or a folder that all hosts share",
            )
        first, second = opened(path), opened(path)
        first.update(updates={"n": "1"})
        try:
            second.update(updates={"n": "2"})
        except CommitFailedError:
            return
    except (DeltaError, OSError) as error:
        raise storage_errors.failed(f"can't write a Delta table below {folder}", error) from error
    finally:
        files.remove_folder(path)
    raise LakeError(
        f"{folder}: the store took two commits for one version of a table: it doesn't know If-None-Match",
        remedy="use a store with conditional writes: on this one two runs would overwrite each other's commits",
    )
