"""The known chunks of a table that may have changed since they were compared, by the keys of the rows that commits
touched.

The server's rows change through its log alone, which the mirror merges: where no commit touched a chunk, it is what it
was on both sides. Changes that the log lacks are found when the chunk's turn comes to be read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from binlake.delta import data_rows
from binlake.delta.data_rows import TouchedRows
from binlake.delta.key_order import KeyOrder, Values
from binlake.schema.table import Column
from binlake.verify.reading.key_cells import ROWS_PER_CHUNK, KeyCells
from binlake.verify.reading.known_chunks import KnownChunks
from binlake.verify.reading.lake_rows import LakeRows
from binlake.verify.reading.row_checksums import Flags

_MOST_KEYS = 5_000_000
"""The most touched rows whose keys are held; of more, every chunk may have changed."""


def unchanged(lake: LakeRows, known: KnownChunks) -> KnownChunks | None:
    """Return what is still known of a table, with chunks that grew divided; None where all must be compared again.

    Raises what LakeRows raises.
    """
    versions = sorted({chunk.through.delta_version for chunk in known.chunks if chunk})
    if not versions or versions[-1] > lake.version:
        return None
    for version in versions:
        touched = data_rows.touched_since(lake.path, version, lake.version)
        if touched is None:
            return None
        of_version = np.array([bool(chunk and chunk.through.delta_version == version) for chunk in known.chunks])
        if touched and not known.cells.can_be_chosen:
            known = known.without(of_version)
        elif touched:
            keys = _keys(lake, touched, known.cells)
            if keys is None:
                return None
            known = _without_keys(known, keys, of_version)
    return known


def _keys(lake: LakeRows, touched: TouchedRows, cells: KeyCells) -> Values | None:
    """Return the touched rows' values of the key's first column, ascending; None for too many, or of files that are
    gone."""
    assert cells.column is not None
    assert cells.order is not None
    parts: list[Values] = []
    rows = 0
    try:
        for values in _read(lake, touched, cells.column, cells.order):
            parts.append(values)
            rows += len(values)
            if rows > _MOST_KEYS:
                return None
    except FileNotFoundError:
        return None
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, cells.order.dtype)


def _read(lake: LakeRows, touched: TouchedRows, column: Column, order: KeyOrder) -> Iterator[Values]:
    fields = [pa.field(column.name, order.arrow)]
    for path, numbers in touched.items():
        for batch in data_rows.of_numbers(lake.log, lake.path, fields, unquote(path), numbers):
            values = batch.column(0)
            yield order.plain(values.drop_null())
            if values.null_count:  # of an invalid date, which is in the first chunk
                yield np.array([order.lowest], order.dtype)


def _without_keys(known: KnownChunks, keys: Values, of_version: Flags) -> KnownChunks:
    """Return what is known without the chunks of these keys, which are divided where so many keys may have come."""
    assert known.cells.edges is not None
    counts = np.bincount(np.searchsorted(known.cells.edges, keys, side="right"), minlength=known.cells.chunks)
    left = known.without((counts > 0) & of_version)
    ends = np.cumsum(counts)
    edges: list[Values] = []
    chunks = []
    for number, (count, end) in enumerate(zip(counts.tolist(), ends.tolist(), strict=True)):
        here = keys[end - count : end]
        was = known.chunks[number]
        grew = left.chunks[number] is None and (was.rows if was else 0) + count >= 2 * ROWS_PER_CHUNK
        inner = np.unique(here[ROWS_PER_CHUNK::ROWS_PER_CHUNK]) if grew else here[:0]
        inner = inner[inner > known.cells.edges[number - 1]] if number else inner
        edges += [known.cells.edges[number - 1 : number], inner] if number else [inner]
        chunks += [left.chunks[number], *([None] * len(inner))]
    cells = replace(known.cells, edges=np.concatenate(edges).astype(known.cells.edges.dtype))
    return KnownChunks(cells, tuple(chunks))
