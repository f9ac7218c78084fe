"""Writes to a metadata table that need no query engine: rows that come, and files in the place of small ones.

deltalake plans each write as a query, which costs ten times as much as the file and the commit. A source that is
followed is written for a dozen times a batch. Where a checkpoint is due the commit is left to deltalake, which writes
it and cleans the log up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from binlake.delta import checkpoints, delta_commits, plain_tables
from binlake.delta.plain_files import added_file
from binlake.storage import files
from binlake.store import plain_rows
from binlake.store.known_files import KnownFiles, MetadataFile
from binlake.store.table_schemas import CHECKPOINT_EACH


def can_write(location: str, known: KnownFiles) -> bool:
    """Return whether the next commit to a table may be written here: where two writers exclude each other, and no
    checkpoint is due."""
    writes_checkpoint = (known.version + 2) % CHECKPOINT_EACH == 0
    is_due = writes_checkpoint and checkpoints.is_time(location, known.version + 2)
    return not is_due and files.writes_if_absent(location)


def replace(
    location: str, known: KnownFiles, old: Sequence[MetadataFile], rows: pa.Table, dictionaries: list[dict[str, Any]]
) -> None:
    """Put rows in the place of data files, in the version behind the known one. old: may be empty, and so may the rows.

    dictionaries: the same rows, to be remembered.
    Raises CommitFailedError where that version is there by now; OSError.
    """
    actions = [plain_tables.removed({"path": file.path, "size": file.size}) for file in old]
    if rows.num_rows:
        added = added_file(location, rows)
        plain_rows.keep(location, added["path"], dictionaries)
        actions.append({"add": added})
    parameters: Mapping[str, Any] = {"mode": "Overwrite" if old else "Append"}
    info = plain_tables.commit_info("WRITE", parameters, {}, {}, known.version)
    delta_commits.write(location, known.version + 1, [{"commitInfo": info}, *actions])
    plain_rows.forget(location, [file.path for file in old])
