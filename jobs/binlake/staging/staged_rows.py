"""Rows of small staged files that this process wrote, until they are merged.

A follower stages and merges in one process: reading the files of a batch of one second again costs a tenth of its CPU.
A staged file never changes, so its rows are those that were written. Forgetting rows loses nothing: the file has them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from binlake.caches import Cache

MOST_OF_A_FILE = 1 << 20
"""Bytes of memory."""
_kept: Cache[str, tuple[Sequence[pa.RecordBatch], int]] = Cache("rows of staged files", lambda kept: kept[1])


def keep(path: str, batches: Sequence[pa.RecordBatch], size: int) -> None:
    """Remember all rows of a new file. size: their bytes of memory."""
    _kept.put(path, (batches, size))


def take(path: str) -> pa.Table | None:
    """Return the rows of a file, which are forgotten then; None where they aren't known."""
    batches, _ = _kept.take(path) or ((), 0)
    return pa.Table.from_batches(list(map(_as_read, batches))) if batches else None


def _as_read(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows whose missing images have missing values: the decoder may leave others there, a file has none."""
    columns = {
        name: _without_images(values) if pa.types.is_struct(values.type) and values.null_count else values
        for name, values in zip(batch.schema.names, batch.columns, strict=True)
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)


def _without_images(images: pa.StructArray) -> pa.StructArray:
    return pa.StructArray.from_arrays(images.flatten(), fields=list(images.type), mask=images.is_null())
