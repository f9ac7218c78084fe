"""The upkeep of a plain Delta table by the process itself: the rows of small data files in one, without a JVM.

Batches are carried while rows are rewritten. Rows that they take out of the old files meanwhile, by marks or by
rewriting the rest themselves, are marked in the new file, too: a table that changes every second would have no quiet
moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from numpy.typing import NDArray
from pyroaring import BitMap64

from binlake.config import PipelineConfig
from binlake.delta import deletion_vectors, plain_tables, recent_rows
from binlake.delta.delta_actions import DeltaAction, counted_rows
from binlake.delta.delta_log import LakeLog
from binlake.delta.key_ranges import physical_names
from binlake.delta.layout import Rewrite
from binlake.delta.plain_files import added_file
from binlake.errors import LakeError
from binlake.merge.filled_rows import rows_of, together


def fits(rewrite: Rewrite, config: PipelineConfig) -> bool:
    """Return whether a rewrite makes one file of few bytes."""
    return rewrite.into == 1 and rewrite.bytes <= config.merge.without_spark_bytes


@dataclass(frozen=True)
class _Written:
    """Rows of old data files in a new one. old, new: add actions; new is None where there is no row. order: for each
    row of the new file, its number among the rows of the old ones that weren't hidden; None where they are the same."""

    old: Sequence[DeltaAction]
    new: DeltaAction | None
    order: NDArray[np.uint32] | None

    def hidden_since(self, table_path: str, current: Mapping[str, DeltaAction]) -> BitMap64:
        """Return the numbers of rows in the new file that aren't in the old ones any more.

        current: add actions of the old files that are there. Raises OSError.
        """
        gone: list[NDArray[np.bool_]] = []
        for add in self.old:
            there = np.ones(counted_rows(add), np.bool_)
            there[_hidden(table_path, add)] = False
            now = np.zeros_like(there) if add["path"] not in current else there.copy()
            if add["path"] in current:
                now[_hidden(table_path, current[add["path"]])] = False
            gone.append(~now[there])
        in_order = np.concatenate(gone)
        return BitMap64(np.flatnonzero(in_order if self.order is None else in_order[self.order]).astype(np.uint64))


class RewritingHere:
    """Rows of chosen data files, written into new ones, which nobody reads until ``commit``. Spark's way is Rewriting.

    Raises LeftToSpark where the table isn't plain.
    """

    def __init__(self, log: LakeLog, config: PipelineConfig) -> None:
        plain_tables.check_is_wanted(log.path, config)
        self._table, self._log = log, log.opened()
        plain_tables.check_is_plain(self._log)
        self._written: list[_Written] = []
        self.written_files = self.written_bytes = 0

    def write(self, rewrite: Rewrite, key: Sequence[str]) -> bool:
        """Write the rows of its files to new ones, sorted by the key; return False where others replaced a file. Raises
        LakeError where a row would be lost, LeftToSpark, OSError."""
        old = plain_tables.actions_of(self._log, self._table.path, [file.path for file in rewrite.files])
        if len(old) != len(rewrite.files):
            return False
        rows = together(self._log, list(rows_of(self._table.path, old)))
        self._prove(old, rows.num_rows)
        added, order = None, None
        if rows.num_rows:
            if key:
                names = physical_names(self._log)
                places = pc.sort_indices(rows, [(names[column], "ascending") for column in key])
                rows, order = rows.take(places), places.cast(pa.uint32()).to_numpy()
            added = {**added_file(self._table.path, rows), "dataChange": False}
            self.written_files += 1
            self.written_bytes += added["size"]
        self._written.append(_Written(old, added, order))
        return True

    def _prove(self, old: Sequence[DeltaAction], rows: int) -> None:
        before = sum(counted_rows(add) - int((add.get("deletionVector") or {}).get("cardinality", 0)) for add in old)
        if before != rows:
            raise LakeError(
                f"{self._table.path}: of {before:,} rows {rows:,} were written again; nothing was changed",
                remedy="run binlake verify on this table",
            )

    def commit(self, note: Mapping[str, Any]) -> bool:
        """Put the new files in the place of the old; return False where others were quicker, and nothing changed.

        The caller holds the lease, and saw that nobody but batches and upkeep changed the table meanwhile.
        """
        newest = self._table.opened()
        if newest.metadata().configuration != self._log.metadata().configuration:
            return False  # a purge, which removes what no commit names, sets one
        paths = {str(path) for path in pa.table(newest.get_add_actions())["path"].to_pylist()}
        old = [add["path"] for written in self._written for add in written.old if add["path"] in paths]
        current = {add["path"]: add for add in plain_tables.actions_of(newest, self._table.path, old)}
        added: list[DeltaAction] = []
        for written in self._written:
            hidden = written.hidden_since(self._table.path, current)
            if written.new is not None and len(hidden) < counted_rows(written.new):
                added += self._marked(newest, written.new, hidden)
        gone = [{"remove": {**plain_tables.removed(add)["remove"], "dataChange": False}} for add in current.values()]
        metrics = {"numAddedFiles": len(added), "numRemovedFiles": len(gone)}
        try:
            plain_tables.commit_layout(self._table.path, newest, note, metrics, [*gone, *added])
        except CommitFailedError:
            return False
        recent_rows.forget(f"{self._table.path}/{path}" for path in current)
        return True

    def _marked(self, table: DeltaTable, add: DeltaAction, hidden: BitMap64) -> list[DeltaAction]:
        """Return the action that adds a new file, with a deletion vector where rows of it are hidden; or that adds one
        without these rows, where the table has no deletion vectors."""
        if not hidden:
            return [{"add": add}]
        return [
            {"add": {**action["add"], "dataChange": False}}
            for action in plain_tables.marked(table, self._table.path, [(add, hidden)])
        ]


def _hidden(table_path: str, add: DeltaAction) -> NDArray[np.int64]:
    """Return the numbers of rows that a file's deletion vector hides, as an index."""
    marks = deletion_vectors.hidden(table_path, add)
    return np.fromiter(marks, np.int64, len(marks))
