"""Delta tables by deltalake, in every kind of storage: each is opened here, with the options of its store."""

from __future__ import annotations

import os
import random
import re
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from arro3.core import Array, DataType, Table
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from binlake.errors import LakeError
from binlake.storage import files, storage_errors, stores

_Result = TypeVar("_Result")
_LENT_TIMES, _CONTINUED_TIMES, _KEPT_SECONDS = 100, 1000, 60.0
"""How often an open table is lent, as its log in memory grows with each commit; how often one that is read is continued
by commits, as statistics of some may be left out; and how long both are kept in between. To open one lists all its log.
"""

_COMMIT_OR_CHECKPOINT = re.compile(r"\d{20}\.(json$|checkpoint)")

Commit = tuple[int, int, int]
"""Inode, time and size of the file of a commit."""


class _Kept(NamedTuple):
    """An open table that nobody uses. lent: how often it was. since: by the monotonic clock. commit: its newest."""

    table: DeltaTable
    lent: int
    since: float
    commit: Commit | None


_Place = tuple[int, str, tuple[tuple[str, str], ...]]
"""The process, a path, and the options of its store: a table isn't lent to a forked process or another account."""
_kept: dict[_Place, list[_Kept]] = defaultdict(list)
_read_only: dict[tuple[int, str], _Kept] = {}
_MOST_KEPT = 256
"""Tables that are kept open to be read, and to be lent: one takes 0.1 MB, and a megabyte with 1,000 files. Where there
are more, any of them goes: batches use the same ones in the same order, so that the oldest is needed soonest."""
_keeping = threading.Lock()


def opened(path: str, version: int | None = None) -> DeltaTable:
    """Open a table. Raises what deltalake raises, and ConfigurationError."""
    return DeltaTable(path, version=version, storage_options=stores.storage_options(path))


@contextmanager
def lent(path: str) -> Iterator[DeltaTable]:
    """Lend a table at its newest version, which nobody else has meanwhile.

    A table that was lent before is only brought up to date behind a new commit. One whose use failed isn't kept, nor
    one in a store: there it would cost as much to see that the table wasn't removed and made anew meanwhile.
    Raises what deltalake raises, and ConfigurationError.
    """
    place: _Place = (os.getpid(), path, tuple(sorted((stores.storage_options(path) or {}).items())))
    kept = _taken(place)
    if kept is None or kept.commit != _newest_commit(path, kept.table):
        kept = _Kept(opened(path), 0, 0.0, None)
    elif _has_next(path, kept.table):
        kept.table.update_incremental()
    yield kept.table
    commit = _newest_commit(path, kept.table)
    if commit and kept.lent < _LENT_TIMES:
        with _keeping:
            _kept[place].append(_Kept(kept.table, kept.lent + 1, time.monotonic(), commit))
            drop_surplus(_kept, _MOST_KEPT)


def newest(path: str) -> DeltaTable:
    """Return a table at its newest version, to be read only: others may have the same object.

    One that was opened before is returned again while no commit came, and continued by commits that change rows alone.
    Raises what deltalake raises, and ConfigurationError.
    """
    if "://" in path:
        return opened(path)
    place = os.getpid(), path
    with _keeping:
        kept = _read_only.get(place)
    table, times = None, 0
    if kept and _is_current(path, kept):
        if not _has_next(path, kept.table):
            return kept.table
        if kept.lent < _CONTINUED_TIMES:
            table, times = _continued(path, kept), kept.lent + 1
    if table is None:
        table, times = opened(path), 0
    with _keeping:
        _read_only.pop(place, None)
        _read_only[place] = _Kept(table, times, time.monotonic(), _newest_commit(path, table))
        drop_surplus(_read_only, _MOST_KEPT)
    return table


def _continued(path: str, kept: _Kept) -> DeltaTable | None:
    """Return a table with the commits that came; None where it has to be opened anew."""
    from binlake.delta import continued_table  # imports pyarrow, which a status doesn't need

    table = continued_table.continued(path, kept.table, opened)
    return table if kept.commit == _newest_commit(path, kept.table) else None


def drop_surplus(kept: dict[Any, Any], most: int) -> None:
    """Drop entries, chosen at random, until there are at most so many. The caller holds the lock of ``kept``."""
    while len(kept) > most:
        del kept[random.choice(tuple(kept))]


def _has_next(path: str, table: DeltaTable) -> bool:
    return os.path.exists(f"{path}/_delta_log/{table.version() + 1:020}.json")


def _is_current(path: str, kept: _Kept) -> bool:
    """Tell whether a table was used lately, and wasn't removed and made anew since."""
    is_fresh = kept.commit is not None and time.monotonic() - kept.since < _KEPT_SECONDS
    return is_fresh and kept.commit == _newest_commit(path, kept.table)


def _newest_commit(path: str, table: DeltaTable) -> Commit | None:
    """Return the commit of an open table's version; None where it isn't there, or the table is in a store."""
    return commit_file(path, table.version())


def commit_file(path: str, version: int) -> Commit | None:
    """Return what tells the file of a commit from any other; None where it isn't there, or the table is in a store."""
    if "://" in path:
        return None
    try:
        stat = os.stat(f"{path}/_delta_log/{version:020}.json")
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _taken(place: _Place) -> _Kept | None:
    with _keeping:
        waiting = _kept.pop(place, [])
        fresh = [kept for kept in waiting if time.monotonic() - kept.since < _KEPT_SECONDS]
        if len(fresh) > 1:
            _kept[place] = fresh[:-1]
    return fresh[-1] if fresh else None


def is_table(path: str) -> bool:
    """Tell whether a table is at a path. Raises LakeError where that can't be found out."""
    try:
        if "://" in path:
            return bool(DeltaTable.is_deltatable(path, stores.storage_options(path)))
        with _keeping:
            kept = _read_only.get((os.getpid(), path))
        if kept and _newest_commit(path, kept.table):  # a log of thousands of commits needn't be listed
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
    for _ in range(stores.CONFLICTS):
        try:
            return create()
        except DeltaError as error:
            if "Invalid table version" not in str(error):
                raise
            time.sleep(stores.CONFLICT_SECONDS)
    return create()


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
