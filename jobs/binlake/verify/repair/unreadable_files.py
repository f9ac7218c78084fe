"""Files of a Delta table that are damaged or gone: the table is made readable without them.

A repair then finds the rows that they held missing, and puts them back from the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from binlake.delta import deletion_vectors, delta_commits, opened_tables, plain_tables
from binlake.delta.delta_actions import Add, DeltaAction
from binlake.delta.log_files import LogFiles, commit_path, read_commit
from binlake.errors import LakeError, StagingError
from binlake.storage import files

_DAMAGED = (OSError, pa.ArrowException, LakeError, StagingError, ValueError, KeyError)


def lost_commits(table_path: str) -> list[int]:
    """Return the versions between the newest checkpoint and the newest commit of which no commit is there; none where
    the first commit is gone, without which nothing can be read. Raises LakeError."""
    log = LogFiles.of(table_path)
    newest = max(log.commits, default=-1)
    lost = [version for version in range(log.base(newest) + 1, newest) if version not in log.commits]
    return [] if 0 in lost else lost


def fill(table_path: str, versions: Sequence[int], note: Mapping[str, Any]) -> None:
    """Write commits in the place of lost ones, of which nothing is known but that they gave files other deletion
    vectors, where later commits take these away. versions: ascending. note: what they say of themselves.

    Raises CommitFailedError, DeltaError, OSError, StagingError and LeftToSpark.
    """
    newest = max(LogFiles.of(table_path).commits)
    for version in versions:
        log = opened_tables.opened(table_path, version - 1)
        adds = plain_tables.actions_of(log, table_path, pa.table(log.get_add_actions())["path"].to_pylist())
        info = plain_tables.commit_info("Manual Update", {}, note, {}, version - 1)
        gone = _replaced_by(table_path, range(version + 1, newest + 1), {add["path"]: add for add in adds})
        delta_commits.write(table_path, version, [{"commitInfo": info}, *map(plain_tables.removed, gone)])
    # A reader that continues what it read of the log before reads all of it again behind a commit of metadata.
    log = opened_tables.opened(table_path)
    same = plain_tables.metadata_with(log, log.schema().to_json(), log.metadata().configuration)
    info = plain_tables.commit_info("Manual Update", {}, note, {}, newest)
    delta_commits.write(table_path, newest + 1, [{"commitInfo": info}, same])


def _replaced_by(table_path: str, later: range, active: Mapping[str, DeltaAction]) -> list[DeltaAction]:
    """Return those of some files that had other deletion vectors before later commits took them away."""
    known = {Add(add).key for add in active.values()}
    replaced: dict[str, DeltaAction] = {}
    for version in later:
        if not files.exists(commit_path(table_path, version)):
            continue  # it is lost, too
        commit = read_commit(table_path, version)
        gone = (remove for remove in commit.removed if remove.path in active and remove.key not in known)
        replaced |= {remove.path: active[remove.path] for remove in gone}
        known |= {add.key for add in commit.added}
    return list(replaced.values())


def unreadable_files(table: DeltaTable, table_path: str) -> list[DeltaAction]:
    """Return the add actions of data files that can't be read, or of which the deletion vector can't be. All files are
    read. Raises LeftToSpark where the log is in a form that isn't read here."""
    adds = plain_tables.actions_of(table, table_path, pa.table(table.get_add_actions())["path"].to_pylist())
    return [add for add in adds if not _is_readable(table_path, add)]


def _is_readable(table_path: str, add: DeltaAction) -> bool:
    try:
        deletion_vectors.hidden(table_path, add)
        with files.opened(f"{table_path}/{add['path']}") as source:
            for _ in pq.ParquetFile(source).iter_batches(use_threads=False):
                pass
    except _DAMAGED:
        return False
    return True
