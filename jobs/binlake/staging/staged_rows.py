"""Rows of small staged files that this process wrote, until they are merged.

Who follows a source stages and merges in one process: to read the files of a batch of one second again costs a tenth of
its CPU. A staged file never changes, so its rows are those that were written. Nothing is lost with what is forgotten:
the file has it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pyarrow as pa

MOST_OF_A_FILE = 1 << 20
"""Bytes of memory."""
_MOST = 16 << 20
"""Bytes of memory of all files. Beyond them the oldest are forgotten."""


class StagedRows:
    """Rows of staged files by their paths."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Sequence[pa.RecordBatch], int]] = {}
        self._bytes = 0
        self._keeping = threading.Lock()

    def keep(self, path: str, batches: Sequence[pa.RecordBatch], size: int) -> None:
        """Remember all rows of a new file. size: their bytes of memory."""
        with self._keeping:
            self._kept[path] = batches, size
            self._bytes += size
            while self._bytes > _MOST:
                self._drop(next(iter(self._kept)))

    def take(self, path: str) -> pa.Table | None:
        """Return the rows of a file, which are forgotten then; None where they aren't known."""
        with self._keeping:
            batches = self._drop(path)
        return pa.Table.from_batches(list(map(_as_read, batches))) if batches else None

    def _drop(self, path: str) -> Sequence[pa.RecordBatch]:
        batches, size = self._kept.pop(path, ((), 0))
        self._bytes -= size
        return batches


def _as_read(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows whose missing images have missing values: the decoder may leave others there, a file has none."""
    columns = {
        name: _without_images(values) if pa.types.is_struct(values.type) and values.null_count else values
        for name, values in zip(batch.schema.names, batch.columns, strict=True)
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)


def _without_images(images: pa.StructArray) -> pa.StructArray:
    return pa.StructArray.from_arrays(images.flatten(), fields=list(images.type), mask=images.is_null())


staged_rows = StagedRows()
