"""Staged files that are read once, though a table's mirror and what modes keep beside it each want their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from binlake.planner.manifest import StagedFile
from binlake.planner.steps import MergeStep
from binlake.staging import staged_rows
from binlake.storage import parquet_files
from binlake.storage.kinds import storage_of
from binlake.storage.protocol import Storage

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
        self._storage: Storage | None = None

    def read(self, file: StagedFile, most: int, columns: Sequence[str]) -> pa.Table | None:
        """Return some columns of a staged file's rows, None where these take more than ``most`` bytes of memory.

        ``xid`` may be left out of a file without XA transactions. Raises OSError and ArrowException.
        """
        self._left[file.path] -= 1
        rows = self._kept.pop(file.path) if file.path in self._kept else staged_rows.take(file.path)
        if self._left[file.path] > 0:
            if rows is None:
                wanted = [name for name in COLUMNS if file.xids or name != "xid"]
                rows = self._within(file, self._room(), wanted)
            if rows is not None:
                self._kept[file.path] = rows
        if rows is None:
            return self._within(file, most, columns)
        chosen = _repeating(rows.select([name for name in rows.column_names if name in columns]))
        return chosen if chosen.nbytes <= most else None

    def parts(
        self, file: StagedFile, columns: Sequence[str], *, narrow: bool = False, share: tuple[int, int] = (0, 1)
    ) -> Iterator[pa.Table]:
        """Read some columns of a large staged file, which isn't kept: see ``parquet_files.read_parts``."""
        return parquet_files.read_parts(file.path, columns, narrow=narrow, storage=self._opened(file), share=share)

    def _within(self, file: StagedFile, most: int, columns: Sequence[str]) -> pa.Table | None:
        storage = self._opened(file)
        return parquet_files.read_within(file.path, most, columns, repeating=REPEATING, storage=storage)

    def _opened(self, file: StagedFile) -> Storage:
        """Return the storage of staged files, which all lie in one lake."""
        if self._storage is None:
            self._storage = storage_of(file.path)
        return self._storage

    def _room(self) -> int:
        return _HELD - sum(int(rows.nbytes) for rows in self._kept.values())


def _repeating(rows: pa.Table) -> pa.Table:
    """Return rows with REPEATING columns as dictionary arrays, as they are read from a file."""
    for place, name in enumerate(rows.column_names):
        if name in REPEATING and pa.types.is_string(rows[name].type):
            rows = rows.set_column(place, name, rows[name].dictionary_encode())
    return rows
