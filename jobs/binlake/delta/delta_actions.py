"""The actions of a Delta table's log, as they are read: those with which a data file was added, those of a commit.

deltalake does the rest, but reads no deletion vectors in actions. Source: Delta's protocol, "Delta Log Entries",
"Checkpoints" and "Actions".
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from binlake.delta.log_files import lines_of
from binlake.errors import StagingError
from binlake.storage import files

DeltaAction = dict[str, Any]
_OF_A_FILE = ("path", "size", "modificationTime", "stats", "deletionVector")
_FILES_ALONE = frozenset({"commitInfo", "txn", "add", "remove"})
"""Actions that leave a table's schema, settings and protocol as they are."""
_MOST_COMMITS = 100


def added(table_path: str, version: int, paths: Collection[str]) -> dict[str, DeltaAction] | None:
    """Return the add actions of data files that exist at a version, by path.

    Returns None where not all are found: a log may be written in ways that this reader doesn't know. Raises OSError,
    ArrowException.
    """
    try:
        actions = _added(table_path, version, frozenset(paths))
    except (StagingError, FileNotFoundError, ValueError, KeyError):  # a stale hint, cleaned commits, another form
        return None
    return actions if actions.keys() == set(paths) else None


def _added(table_path: str, version: int, paths: frozenset[str]) -> dict[str, DeltaAction]:
    actions: dict[str, DeltaAction] = {}
    names = [path.rpartition("/")[2] for path in paths]
    checkpoint, begins = checkpoint_before(table_path, version)
    for row in _of_checkpoint(checkpoint, "add", _OF_A_FILE):
        if row["path"].as_py() in paths:
            actions[row["path"].as_py()] = _without_none(row.as_py())
    for number in range(begins, version + 1):
        text = _commit_text(table_path, number)
        if all(name.isascii() and name not in text for name in names):
            continue  # other characters can be escaped in JSON
        for action in _actions_in(text):
            if action.get("add", {}).get("path") in paths or "remove" in action:
                replay(actions, action)
    return actions


def replay(added: dict[str, DeltaAction], action: DeltaAction) -> None:
    """Change the add actions of the files that exist, by path, by an action of the next commit.

    A file that gets another deletion vector is removed with the old one and added with the new one, in any order.
    """
    if add := action.get("add"):
        added[add["path"]] = add
    remove = action.get("remove")
    if remove and added.get(remove["path"], {}).get("deletionVector") == remove.get("deletionVector"):
        added.pop(remove["path"], None)


def rows_in(add: DeltaAction) -> int | None:
    """Return the number of rows of the data file that an action adds, those too that a deletion vector hides; None
    where its statistics don't tell."""
    rows: int | None = json.loads(add.get("stats") or "{}").get("numRecords")
    return rows


def transactions(table_path: str, version: int) -> dict[str, int] | None:
    """Return the recorded version of each application id at a version; None where the log is written in ways that this
    reader doesn't know. Raises OSError, ArrowException."""
    try:
        checkpoint, begins = checkpoint_before(table_path, version)
        known = [row.as_py() for row in _of_checkpoint(checkpoint, "txn", ("appId", "version"))]
        recorded = {row["appId"]: int(row["version"]) for row in known}
        for number in range(begins, version + 1):
            for action in of_commit(table_path, number):
                if transaction := action.get("txn"):
                    recorded[transaction["appId"]] = int(transaction["version"])
    except (StagingError, FileNotFoundError, ValueError, KeyError):
        return None
    return recorded


def checkpoint_before(table_path: str, version: int) -> tuple[list[str], int]:
    """Return the paths of the newest checkpoint, of one file or numbered parts, and the first commit behind it. Raises
    KeyError where that is behind ``version``."""
    if not files.exists(f"{table_path}/_delta_log/_last_checkpoint"):
        return [], 0
    hint = json.loads(files.read_text(f"{table_path}/_delta_log/_last_checkpoint"))
    if hint["version"] > version:
        raise KeyError(version)
    stem, parts = f"{table_path}/_delta_log/{hint['version']:020}.checkpoint", hint.get("parts")
    names = [f"{stem}.{part:010}.{parts:010}.parquet" for part in range(1, parts + 1)] if parts else [f"{stem}.parquet"]
    return names, hint["version"] + 1


def of_commit(table_path: str, version: int) -> Iterator[DeltaAction]:
    """Yield a commit's actions. Raises StagingError where it can't be read, as it is gone; ValueError."""
    yield from _actions_in(_commit_text(table_path, version))


def commits_of_files(table_path: str, version: int) -> list[list[DeltaAction]] | None:
    """Return the actions of each commit behind a version, the oldest first, of a table on a disk.

    Returns None where one of them is gone, changes more than data files, or has a path that Delta's log encodes; and
    where there are so many that a checkpoint is quicker.
    """
    commits: list[list[DeltaAction]] = []
    while os.path.exists(f"{table_path}/_delta_log/{version + len(commits) + 1:020}.json"):
        try:
            actions = list(of_commit(table_path, version + len(commits) + 1))
        except (StagingError, OSError, ValueError):
            return None
        if len(commits) == _MOST_COMMITS or not all(map(is_of_files, actions)):
            return None
        commits.append(actions)
    return commits


def is_of_files(action: DeltaAction) -> bool:
    """Tell whether an action leaves a table's schema, settings and protocol as they are, and has a plain path."""
    paths = (action[kind]["path"] for kind in ("add", "remove") if kind in action)
    return action.keys() <= _FILES_ALONE and not any("%" in path for path in paths)


def _commit_text(table_path: str, version: int) -> str:
    return files.read_text(f"{table_path}/_delta_log/{version:020}.json")


def _actions_in(text: str) -> Iterator[DeltaAction]:
    for line in lines_of(text):
        if line.strip():
            yield json.loads(line)


def _of_checkpoint(names: Sequence[str], kind: str, fields: Sequence[str]) -> Iterator[pa.StructScalar]:
    """Yield some fields of a checkpoint's actions of one kind. Raises FileNotFoundError for other forms."""
    for name in names:
        with files.opened(name) as source:
            rows = pq.ParquetFile(source).read(columns=[f"{kind}.{field}" for field in fields], use_threads=False)
        yield from (row for row in rows[kind] if row.is_valid)


def _without_none(fields: Mapping[str, Any]) -> DeltaAction:
    """Return the fields without those that are None: a checkpoint has all columns, an action only some."""
    return {
        name: _without_none(value) if isinstance(value, dict) else value
        for name, value in fields.items()
        if value is not None
    }
