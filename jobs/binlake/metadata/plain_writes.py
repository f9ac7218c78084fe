"""Writes to a metadata table that need no query engine: rows that come, and a row in the place of the only one.

deltalake plans each write as a query, which costs ten times as much as the file and the commit. A source that is
followed is written for a dozen times a batch. Each tenth commit is left to deltalake, which writes a checkpoint with it
and cleans the log up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from binlake.delta import delta_actions, plain_tables
from binlake.delta.plain_files import added_file
from binlake.metadata.table_schemas import CHECKPOINT_EACH
from binlake.storage import files


def can_write(location: str, table: DeltaTable) -> bool:
    """Tell whether the next commit to a table may be written here: on a disk, where two writers are kept apart."""
    if "://" in location or not files.writes_if_absent(location):
        return False
    is_by_deltalake = (table.version() + 2) % CHECKPOINT_EACH == 0
    return not is_by_deltalake and not table.protocol().reader_features


def append(location: str, table: DeltaTable, rows: pa.Table) -> None:
    """Add rows in the version behind the one that ``table`` was opened at.

    Raises CommitFailedError where that version is there by now; OSError.
    """
    _commit(location, table, "WRITE", {"mode": "Append"}, [{"add": added_file(location, rows)}])


def only_file(table: DeltaTable) -> dict[str, Any] | None:
    """Return path and size of a table's data file; None unless it is the only one, and has one row."""
    added = table.get_add_actions()
    if added.num_rows != 1 or added["num_records"].to_pylist() != [1]:
        return None
    return {"path": added["path"].to_pylist()[0], "size": added["size_bytes"].to_pylist()[0]}


def replace_file(location: str, table: DeltaTable, old: Mapping[str, Any], rows: pa.Table) -> None:
    """Put a file of these rows in the place of another. Raises as ``append`` does."""
    actions = [plain_tables.removed(dict(old)), {"add": added_file(location, rows)}]
    _commit(location, table, "UPDATE", {}, actions)


def _commit(
    location: str, table: DeltaTable, operation: str, parameters: Mapping[str, Any], actions: list[dict[str, Any]]
) -> None:
    info = plain_tables.commit_info(operation, parameters, {}, {}, table.version())
    delta_actions.write(location, table.version() + 1, [{"commitInfo": info}, *actions])
