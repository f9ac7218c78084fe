"""The upkeep of a plain Delta table by the process itself: the rows of small data files in one, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from binlake.config import PipelineConfig
from binlake.delta import plain_tables
from binlake.delta.delta_actions import DeltaAction
from binlake.delta.delta_log import LakeLog
from binlake.delta.key_ranges import physical_names
from binlake.delta.layout import Rewrite
from binlake.delta.plain_files import added_file
from binlake.errors import LakeError, LeftToSpark
from binlake.merge.filled_rows import rows_of, together


def fits(rewrite: Rewrite, config: PipelineConfig) -> bool:
    """Tell whether a rewrite makes one file of few bytes."""
    return rewrite.into == 1 and rewrite.bytes <= config.merge.without_spark_bytes


class RewritingHere:
    """Rows of chosen data files, written into new ones, which nobody reads until ``commit``. Spark's way is Rewriting.

    Raises LeftToSpark where the table isn't plain.
    """

    def __init__(self, table: LakeLog, config: PipelineConfig) -> None:
        plain_tables.check_is_wanted(table.path, config)
        self._table, self._log = table, table.log()
        plain_tables.check_is_plain(self._log)
        self._old: list[DeltaAction] = []
        self._new: list[DeltaAction] = []
        self.written_files = self.written_bytes = 0

    def write(self, rewrite: Rewrite, key: Sequence[str]) -> None:
        """Write the rows of its files anew, sorted by the key. Raises LakeError where a row would be lost, LeftToSpark,
        OSError."""
        old = plain_tables.actions_of(self._log, self._table.path, [file.path for file in rewrite.files])
        rows = together(self._log, list(rows_of(self._table.path, old)))
        self._prove(old, rows.num_rows)
        self._old += old
        if rows.num_rows:
            names = physical_names(self._log)
            rows = rows.sort_by([(names[column], "ascending") for column in key]) if key else rows
            added = {**added_file(self._table.path, rows), "dataChange": False}
            self._new.append(added)
            self.written_files += 1
            self.written_bytes += added["size"]

    def _prove(self, old: Sequence[DeltaAction], rows: int) -> None:
        before = sum(json.loads(add.get("stats") or "{}").get("numRecords", -1) - _hidden(add) for add in old)
        if before != rows:
            raise LakeError(
                f"{self._table.path}: of {before:,} rows {rows:,} were written again; nothing was changed",
                remedy="run binlake verify on this table",
            )

    def commit(self, note: Mapping[str, Any]) -> bool:
        """Put the new files in the place of the old; return False where others were quicker, and nothing changed.

        The caller holds the lease, and commits of batches that came meanwhile may have left the old files as they were.
        """
        newest = self._table.log()
        if not self._are_there(newest):
            return False
        gone = [{"remove": {**plain_tables.removed(add)["remove"], "dataChange": False}} for add in self._old]
        metrics = {"numAddedFiles": len(self._new), "numRemovedFiles": len(gone)}
        actions = [*gone, *({"add": add} for add in self._new)]
        try:
            plain_tables.commit_layout(self._table.path, newest, note, metrics, actions)
        except CommitFailedError:
            return False
        return True

    def _are_there(self, newest: DeltaTable) -> bool:
        """Tell whether all old files are there, with the same rows hidden."""
        try:
            current = plain_tables.actions_of(newest, self._table.path, [add["path"] for add in self._old])
        except LeftToSpark:  # some aren't there
            return False
        return {_identity(add) for add in current} == {_identity(add) for add in self._old}


def _hidden(add: DeltaAction) -> int:
    return int((add.get("deletionVector") or {}).get("cardinality", 0))


def _identity(add: DeltaAction) -> tuple[Any, ...]:
    vector = add.get("deletionVector") or {}
    return add["path"], vector.get("storageType"), vector.get("pathOrInlineDv"), vector.get("offset")
