"""Commits that binlake itself writes to a Delta table's log, with the checkpoints that are due.

deltalake writes no deletion vectors in actions. Source: Delta's protocol, "Delta Log Entries".
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from binlake.delta import checkpoints, opened_tables
from binlake.delta.delta_actions import DeltaAction
from binlake.delta.log_files import commit_path
from binlake.storage import files

_ENCODED = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_CHECKPOINT_EACH = 10
"""Delta's own interval, where a table has none."""


def commit(table: DeltaTable, table_path: str, actions: Sequence[DeltaAction]) -> None:
    """Commit actions in the version behind the one that ``log`` was read at, and write a checkpoint where one is due.

    Raises what ``write`` does.
    """
    version = table.version() + 1
    write(table_path, version, actions)
    opened_tables.committed(table_path, version, actions)
    asked = table.metadata().configuration.get("delta.checkpointInterval")
    if version % int(asked or _CHECKPOINT_EACH):
        return
    if asked or checkpoints.is_time(table_path, version, checkpoints.patience_of(table_path)):
        checkpoints.write(table_path, version)


def create(table_path: str, actions: Sequence[DeltaAction]) -> None:
    """Make a table with these actions in its first commit, in a folder whose log is there and empty. Raises what
    ``commit`` does."""
    write(table_path, 0, actions)


def write(table_path: str, version: int, actions: Sequence[DeltaAction]) -> None:
    """Commit actions as a version.

    Raises CommitFailedError where that version exists, which may be this very commit if a store was asked twice;
    OSError.
    """
    text = "\n".join(_ENCODED(action) for action in actions) + "\n"
    try:
        files.write_if_absent(commit_path(table_path, version), text)
    except FileExistsError as error:
        raise CommitFailedError(f"version {version} of {table_path} is there already") from error
