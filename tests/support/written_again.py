"""What was read from a log, as a binlog file of our own writing."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

from binlake.binlog.border import Mutations, Statement
from binlake.binlog.reader import Emitted
from binlake.binlog_writer import table_map_bytes
from binlake.binlog_writer.log_writer import BinlogWriter, Head, RowEvent
from binlake.binlog_writer.row_bytes import RowImages
from binlake.position import Flavour
from binlake.schema.invalid import KEEP_ALL

Row = tuple[Mutations, int]


def in_order(emitted: Iterable[Emitted]) -> Iterator[Row | Statement]:
    """Each row and statement where it stood in the log."""
    placed: list[tuple[tuple[int, int], Row | Statement]] = []
    for item in emitted:
        if isinstance(item, Statement):
            placed.append(((item.offset, 0), item))
        if isinstance(item, Mutations):
            offsets, rows = item.batch.column("offset").to_pylist(), item.batch.column("row").to_pylist()
            placed += [((offset, row), (item, at)) for at, (offset, row) in enumerate(zip(offsets, rows, strict=True))]
    yield from (item for _, item in sorted(placed, key=lambda item: item[0]))


def transactions(emitted: Iterable[Emitted]) -> Iterator[list[Row] | Statement]:
    """Rows of one GTID together; without one, each row by itself."""
    opened: list[Row] = []
    known: str | None = None
    for item in in_order(emitted):
        gtid = None if isinstance(item, Statement) else item[0].batch.column("gtid")[item[1]].as_py()
        if opened and (gtid is None or gtid != known):
            yield opened
            opened = []
        if isinstance(item, Statement):
            yield item
        else:
            opened.append(item)
            known = gtid
    if opened:
        yield opened


def written_again(emitted: Iterable[Emitted], flavour: Flavour, next_file: str = "binlog.000002") -> bytes:
    """A whole file, each row in an event of its own."""
    out = io.BytesIO()
    writer = BinlogWriter.begun(out, flavour, server_id=7, created_us=1_600_000_000_000_000)
    images: dict[int, RowImages] = {}
    table_ids: dict[object, int] = {}

    def event(mutations: Mutations, row: int) -> RowEvent:
        fields = table_map_bytes.fields_of(mutations.columns)
        if id(mutations) not in images:
            images[id(mutations)] = RowImages(mutations, fields, KEEP_ALL)
        made = images[id(mutations)]
        table_id = table_ids.setdefault((mutations.name, mutations.columns), len(table_ids) + 1)
        body = table_map_bytes.table_map(table_id, mutations.name, fields, mutations.key, flavour)
        both = [side[row] for side in (made.before, made.after)]
        return RowEvent(made.op[row], body, len(fields), [image for image in both if image is not None])

    for transaction in transactions(emitted):
        if isinstance(transaction, Statement):
            writer.statement(Head(transaction.committed_us, transaction.gtid), transaction)
            continue
        batch, row = transaction[0][0].batch, transaction[0][1]
        head = Head(batch.column("committed_us")[row].as_py(), batch.column("gtid")[row].as_py())
        writer.transaction(head, [event(*placed) for placed in transaction])
    writer.close(next_file)
    assert writer.end.offset == len(out.getvalue())
    return out.getvalue()
