"""Buffering of each table's batches: small ones are joined to large ones, in the order of the table's rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from binlake.binlog.border import Mutations
from binlake.binlog.columns import TableDecoder
from binlake.schema.table import TableName

MOST_ROWS = 1 << 16
MOST_BYTES = 64 << 20
"""Limits of a table's batch: rows, and bytes of Arrow. All buffered tables together may hold twice the bytes."""
_LARGE = 8
"""A batch larger than an eighth of either limit is passed on uncopied."""


@dataclass
class _Waiting:
    """The buffered batches of a table in one shape. absent: columns that the images of some rows lacked."""

    decoder: TableDecoder
    absent: set[str]
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0


class Batches:
    """Buffered batches by table. ``statements``: how many statements came before them in the slice."""

    def __init__(self) -> None:
        self._waiting: dict[TableName, _Waiting] = {}
        self.statements = 0

    def add(
        self, name: TableName, decoder: TableDecoder, batches: list[pa.RecordBatch], absent: set[str]
    ) -> Iterator[Mutations]:
        """Add a table's next batches. Yields what is buffered if the shape changes or a limit is reached."""
        waiting = self._waiting.get(name)
        if waiting is not None and waiting.decoder is not decoder:
            yield from self.flush(name)
            waiting = None
        if waiting is None:
            waiting = self._waiting[name] = _Waiting(decoder, absent)
        for batch in batches:
            waiting.batches.append(batch)
            waiting.rows += batch.num_rows
            waiting.size += batch.nbytes
        if waiting.rows >= MOST_ROWS or waiting.size >= MOST_BYTES:
            yield from self.flush(name)

    def flush_excess(self) -> Iterator[Mutations]:
        """Yield everything if all tables together hold too much."""
        if sum(waiting.size for waiting in self._waiting.values()) > 2 * MOST_BYTES:
            yield from self.flush_all()

    def flush_all(self) -> Iterator[Mutations]:
        """Yield the buffered mutations of all tables, and keep none."""
        for name in list(self._waiting):
            yield from self.flush(name)

    def flush(self, name: TableName) -> Iterator[Mutations]:
        """Yield a table's buffered mutations, joined to few large batches, and keep none."""
        waiting = self._waiting.pop(name, None)
        if waiting is None or not waiting.rows:
            return
        decoder = waiting.decoder
        for batch in _joined(waiting.batches, decoder.schema):
            shown = ((column.served_name, column.name) for column in decoder.columns)
            absent = tuple(sorted(name for served, name in shown if served in waiting.absent))
            yield Mutations(name, decoder.columns, decoder.key, self.statements, batch, absent, decoder.collations)


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in [*batches, None]:
        large = batch is None or batch.num_rows * _LARGE > MOST_ROWS or batch.nbytes * _LARGE > MOST_BYTES
        if group and (large or rows > MOST_ROWS or size > MOST_BYTES):
            if len(group) == 1:
                yield group[0]
            else:
                yield from pa.Table.from_batches(group, schema).combine_chunks().to_batches()
            group, rows, size = [], 0, 0
        if batch is not None and large:
            yield batch
        elif batch is not None:
            group.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
