"""The actions of a Delta table's log: with which a data file was added, and commits of binlake's own.

deltalake does the rest, but reads and writes no deletion vectors in actions. Source: Delta's protocol, "Delta Log
Entries", "Checkpoints" and "Actions".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from binlake.delta import checkpoints
from binlake.errors import StagingError
from binlake.storage import files

DeltaAction = dict[str, Any]
_OF_A_FILE = ("path", "size", "modificationTime", "stats", "deletionVector")
_CHECKPOINT_EACH = 10
"""Delta's own interval, where a table has none."""


def added(table_path: str, version: int, paths: Collection[str]) -> dict[str, DeltaAction] | None:
    """Return the add actions of data files that exist at a version, by path.

    Returns None where not all are found: a log may be written in ways that this reader doesn't know. Raises OSError,
    ArrowException.
    """
    try:
        actions = _added(table_path, version, paths)
    except (StagingError, FileNotFoundError, ValueError, KeyError):  # a stale hint, cleaned commits, another form
        return None
    return actions if actions.keys() == set(paths) else None


def _added(table_path: str, version: int, paths: Collection[str]) -> dict[str, DeltaAction]:
    actions: dict[str, DeltaAction] = {}
    names = [path.rpartition("/")[2] for path in paths]
    begins = 0
    if files.exists(f"{table_path}/_delta_log/_last_checkpoint"):
        hint = json.loads(files.read_text(f"{table_path}/_delta_log/_last_checkpoint"))
        if hint["version"] > version:
            return {}
        begins = hint["version"] + 1
        actions = _of_checkpoint(table_path, hint, paths)
    for number in range(begins, version + 1):
        text = _commit_text(table_path, number)
        if all(name.isascii() and name not in text for name in names):
            continue  # other characters can be escaped in JSON
        for action in _actions_in(text):
            add, remove = action.get("add"), action.get("remove")
            if add and add["path"] in paths:
                actions[add["path"]] = add
            if remove and actions.get(remove["path"], {}).get("deletionVector") == remove.get("deletionVector"):
                actions.pop(remove["path"], None)
    return actions


def of_commit(table_path: str, version: int) -> Iterator[DeltaAction]:
    """Yield a commit's actions. Raises FileNotFoundError where it is gone; OSError, ValueError."""
    yield from _actions_in(_commit_text(table_path, version))


def _commit_text(table_path: str, version: int) -> str:
    return files.read_text(f"{table_path}/_delta_log/{version:020}.json")


def _actions_in(text: str) -> Iterator[DeltaAction]:
    for line in text.splitlines():
        if line.strip():
            yield json.loads(line)


def _of_checkpoint(table_path: str, hint: Mapping[str, Any], paths: Collection[str]) -> dict[str, DeltaAction]:
    """Return the add actions in a checkpoint of one file or numbered parts. Raises FileNotFoundError for other
    forms."""
    stem, parts = f"{table_path}/_delta_log/{hint['version']:020}.checkpoint", hint.get("parts")
    names = [f"{stem}.{part:010}.{parts:010}.parquet" for part in range(1, parts + 1)] if parts else [f"{stem}.parquet"]
    actions: dict[str, DeltaAction] = {}
    for name in names:
        with files.opened(name) as source:
            wanted = [f"add.{column}" for column in _OF_A_FILE]
            adds = pq.ParquetFile(source).read(columns=wanted, use_threads=False)["add"]
        chosen = [add.as_py() for add in adds if add.is_valid and add["path"].as_py() in paths]
        actions |= {add["path"]: _without_none(add) for add in chosen}
    return actions


def _without_none(fields: Mapping[str, Any]) -> DeltaAction:
    """Return the fields without those that are None: a checkpoint has all columns, an action only some."""
    return {
        name: _without_none(value) if isinstance(value, dict) else value
        for name, value in fields.items()
        if value is not None
    }


def commit(log: DeltaTable, table_path: str, actions: Sequence[DeltaAction]) -> None:
    """Commit actions in the version behind the one that ``log`` was read at.

    Raises CommitFailedError where that version exists, which may be this very commit if a store was asked twice;
    OSError.
    """
    version = log.version() + 1
    _write(table_path, version, actions)
    asked = log.metadata().configuration.get("delta.checkpointInterval")
    if version % int(asked or _CHECKPOINT_EACH) == 0 and (asked or checkpoints.is_time(table_path, version)):
        checkpoints.write(table_path, version)


def create(table_path: str, actions: Sequence[DeltaAction]) -> None:
    """Make a table with these actions in its first commit, in a folder whose log is there and empty. Raises what
    ``commit`` does."""
    _write(table_path, 0, actions)


def _write(table_path: str, version: int, actions: Sequence[DeltaAction]) -> None:
    text = "\n".join(json.dumps(action, ensure_ascii=False, separators=(",", ":")) for action in actions) + "\n"
    try:
        files.write_if_absent(f"{table_path}/_delta_log/{version:020}.json", text)
    except FileExistsError as error:
        raise CommitFailedError(f"version {version} of {table_path} is there already") from error
