"""Staged files that are read once, though a table's mirror and what modes keep beside it each want their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa

from binlake.batch.manifest import StagedFile
from binlake.batch.steps import MergeStep
from binlake.staging.staged_rows import staged_rows
from binlake.storage import parquet_files

COLUMNS = ("op", "before", "after", "file", "offset", "row", "xid", "committed_us", "gtid")
"""All that a staged file has."""
REPEATING = ("gtid",)
"""Columns with few values, which are read as dictionary arrays."""
SMALL = 8_000_000
"""Bytes of a step's staged files up to which they are read at once: of more, a mirror's merge reads a part at a
time."""
_HELD = 32 << 20
"""Bytes of memory that one table's rows may take between their readers."""


class SharedReads:
    """The staged files of tables that are merged one after the other, in one thread.

    A file is kept in memory from its first reader to its last one, where it has several and is small.
    """

    def __init__(self, readers: Iterable[MergeStep] = ()) -> None:
        """readers: a step for each time that its files will be read."""
        small = [step for step in readers if sum(file.bytes for file in step.staged) <= SMALL]
        self._left = Counter(path for step in small for path in {file.path for file in step.staged})
        self._kept: dict[str, pa.Table] = {}

    def read(self, file: StagedFile, most: int, columns: Sequence[str]) -> pa.Table | None:
        """Return some columns of a staged file's rows, None where these take more than ``most`` bytes of memory.

        ``xid`` may be left out of a file without XA transactions. Raises OSError and ArrowException.
        """
        self._left[file.path] -= 1
        rows = self._kept.pop(file.path) if file.path in self._kept else staged_rows.take(file.path)
        if self._left[file.path] > 0:
            if rows is None:
                wanted = [name for name in COLUMNS if file.xids or name != "xid"]
                rows = parquet_files.read_within(file.path, self._room(), wanted, repeating=REPEATING)
            if rows is not None:
                self._kept[file.path] = rows
        if rows is None:
            return parquet_files.read_within(file.path, most, columns, repeating=REPEATING)
        chosen = _repeating(rows.select([name for name in rows.column_names if name in columns]))
        return chosen if chosen.nbytes <= most else None

    def _room(self) -> int:
        return _HELD - sum(int(rows.nbytes) for rows in self._kept.values())


def _repeating(rows: pa.Table) -> pa.Table:
    """Return rows with REPEATING columns as dictionary arrays, as they are read from a file."""
    for place, name in enumerate(rows.column_names):
        if name in REPEATING and pa.types.is_string(rows[name].type):
            rows = rows.set_column(place, name, rows[name].dictionary_encode())
    return rows
