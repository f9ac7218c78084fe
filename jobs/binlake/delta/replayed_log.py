"""What this process read of a Delta table's log before, continued by the commits behind it.

A process that follows a source asks each table after each of its own commits which transaction version is recorded, and
with which actions its data files were added. deltalake and ``delta_actions`` read the newest checkpoint and all commits
behind it for that; here only the commits are read that came since. A table is known by the file of the newest commit
that was read, so that one that was removed and made anew isn't taken for it. In a store everything is read each time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection
from dataclasses import dataclass, field

import pyarrow as pa
from deltalake import DeltaTable

from binlake.delta import delta_actions
from binlake.delta.delta_actions import DeltaAction
from binlake.delta.opened_tables import Commit, commit_file, drop_surplus
from binlake.errors import StagingError

_MOST_TABLES, _MOST_FILES = 256, 64
"""Tables that are remembered, of more any goes; data files of each, of more the oldest."""
_MOST_COMMITS = 100
"""Commits that are read to continue: of more, the checkpoint is quicker."""


@dataclass
class _Replayed:
    """A table's log up to a version. commit: the file of the newest commit. recorded: transaction versions by
    application id, of those that were asked for or came since. files: add actions by path, likewise."""

    version: int
    commit: Commit
    recorded: dict[str, int | None] = field(default_factory=dict)
    files: dict[str, DeltaAction] = field(default_factory=dict)

    def take(self, action: DeltaAction) -> None:
        """Continue by an action of the next commit."""
        if transaction := action.get("txn"):
            self.recorded[transaction["appId"]] = int(transaction["version"])
        delta_actions.replay(self.files, action)


_Place = tuple[int, str]
"""The process and a path."""
_replayed: dict[_Place, _Replayed] = {}
_keeping = threading.Lock()


def transaction_version(table_path: str, log: DeltaTable, app: str) -> int | None:
    """Return the version that a table records for an application id; None without. log: as it was opened.

    Raises what deltalake raises.
    """
    replayed = _up_to(table_path, log.version())
    if replayed and app in replayed.recorded:
        recorded = replayed.recorded[app]
    else:
        recorded = log.transaction_version(app)
        if replayed:
            replayed.recorded[app] = recorded
    _keep(table_path, replayed)
    return recorded


def added(table_path: str, version: int, paths: Collection[str]) -> dict[str, DeltaAction] | None:
    """Return the add actions of data files that exist at a version, by path; None where not all are found.

    Raises OSError, ArrowException.
    """
    replayed = _up_to(table_path, version)
    if replayed and replayed.files.keys() >= set(paths):
        actions: dict[str, DeltaAction] | None = {path: replayed.files[path] for path in paths}
    else:
        actions = delta_actions.added(table_path, version, paths)
        if replayed and actions:
            replayed.files |= actions
    _keep(table_path, replayed)
    return actions


def _up_to(table_path: str, version: int) -> _Replayed | None:
    """Return what is known of a log up to a version, which nobody else has meanwhile; None where it isn't known by a
    file."""
    commit = commit_file(table_path, version)
    if commit is None:
        return None
    with _keeping:
        known = _replayed.pop((os.getpid(), table_path), None)
    if known and _continue(table_path, known, version) and commit == commit_file(table_path, version):
        known.version, known.commit = version, commit
        return known
    return _Replayed(version, commit)


def _continue(table_path: str, known: _Replayed, version: int) -> bool:
    """Read the commits up to a version; return False where the log can't be continued to it."""
    if not 0 <= version - known.version <= _MOST_COMMITS:
        return False
    if known.commit != commit_file(table_path, known.version):
        return False
    try:
        for number in range(known.version + 1, version + 1):
            for action in delta_actions.of_commit(table_path, number):
                known.take(action)
    except (StagingError, OSError, pa.ArrowException, ValueError, KeyError):  # cleaned up, or of another form
        return False
    return True


def _keep(table_path: str, replayed: _Replayed | None) -> None:
    if replayed is None:
        return
    for path in list(replayed.files)[:-_MOST_FILES]:
        del replayed.files[path]
    with _keeping:
        _replayed[os.getpid(), table_path] = replayed
        drop_surplus(_replayed, _MOST_TABLES)
