"""The actions of a Delta table's log as they stand there: what a data file was added with, and a commit of our own.

deltalake reads and writes no deletion vectors in actions; the rest of a log is its part. Delta's protocol, "Delta Log
Entries", "Checkpoints" and "Actions".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from binlake.delta import opened_tables
from binlake.errors import StagingError
from binlake.storage import files

DeltaAction = dict[str, Any]
_OF_A_FILE = ("path", "size", "modificationTime", "stats", "deletionVector")
_CHECKPOINT_EACH = 10
"""Delta's own interval, where a table has none."""


def added(table_path: str, version: int, paths: Collection[str]) -> dict[str, DeltaAction] | None:
    """The add actions of some data files that are there at a version. None where this reader doesn't find them all: a
    log may be written in more ways than it knows. Raises OSError, ArrowException."""
    try:
        found = _found(table_path, version, paths)
    except (StagingError, FileNotFoundError, ValueError, KeyError):  # a stale hint, cleaned commits, another form
        return None
    return found if found.keys() == set(paths) else None


def _found(table_path: str, version: int, paths: Collection[str]) -> dict[str, DeltaAction]:
    found: dict[str, DeltaAction] = {}
    begins = 0
    if files.exists(f"{table_path}/_delta_log/_last_checkpoint"):
        hint = json.loads(files.read_text(f"{table_path}/_delta_log/_last_checkpoint"))
        if hint["version"] > version:
            return {}
        begins = hint["version"] + 1
        found = _of_checkpoint(table_path, hint, paths)
    for number in range(begins, version + 1):
        for action in _of_commit(table_path, number):
            add, remove = action.get("add"), action.get("remove")
            if add and add["path"] in paths:
                found[add["path"]] = add
            if remove and found.get(remove["path"], {}).get("deletionVector") == remove.get("deletionVector"):
                found.pop(remove["path"], None)
    return found


def _of_commit(table_path: str, version: int) -> Iterator[DeltaAction]:
    for line in files.read_text(f"{table_path}/_delta_log/{version:020}.json").splitlines():
        if line.strip():
            yield json.loads(line)


def _of_checkpoint(table_path: str, hint: Mapping[str, Any], paths: Collection[str]) -> dict[str, DeltaAction]:
    """Nothing of a checkpoint of another form than one file or numbered parts."""
    stem, parts = f"{table_path}/_delta_log/{hint['version']:020}.checkpoint", hint.get("parts")
    names = [f"{stem}.{part:010}.{parts:010}.parquet" for part in range(1, parts + 1)] if parts else [f"{stem}.parquet"]
    found: dict[str, DeltaAction] = {}
    for name in names:
        with files.opened(name) as source:
            wanted = [f"add.{column}" for column in _OF_A_FILE]
            adds = pq.ParquetFile(source).read(columns=wanted, use_threads=False)["add"]
        chosen = [add.as_py() for add in adds if add.is_valid and add["path"].as_py() in paths]
        found |= {add["path"]: _told(add) for add in chosen}
    return found


def _told(fields: Mapping[str, Any]) -> DeltaAction:
    """A checkpoint has all columns, an action those that say something."""
    return {
        name: _told(value) if isinstance(value, dict) else value for name, value in fields.items() if value is not None
    }


def commit(log: DeltaTable, table_path: str, actions: Sequence[DeltaAction]) -> None:
    """These in the version behind the one that ``log`` was read at; raises CommitFailedError where that is taken,
    which may be by ourselves: a store that was asked twice says so, too. OSError.
    """
    version = log.version() + 1
    _write(table_path, version, actions)
    if version % int(log.metadata().configuration.get("delta.checkpointInterval", _CHECKPOINT_EACH)) == 0:
        _checkpoint(table_path, version)


def create(table_path: str, actions: Sequence[DeltaAction]) -> None:
    """A table with these in its first commit, in a folder whose log is there and empty; as ``commit``."""
    _write(table_path, 0, actions)


def _write(table_path: str, version: int, actions: Sequence[DeltaAction]) -> None:
    text = "\n".join(json.dumps(action, ensure_ascii=False, separators=(",", ":")) for action in actions) + "\n"
    try:
        files.write_if_absent(f"{table_path}/_delta_log/{version:020}.json", text)
    except FileExistsError as error:
        raise CommitFailedError(f"version {version} of {table_path} is there already") from error


def _checkpoint(table_path: str, version: int) -> None:
    """Spares others a part of the log; without it they read more, and the next one is tried again."""
    try:
        opened_tables.opened(table_path, version).create_checkpoint()
    except (DeltaError, OSError):
        return
