"""The format ``binlog``: mutations as they stand in row events, for the sink ``binlog://`` alone (see binlog_folder).

A message is a row's images, or what lies between rows; its headers say which. A feed that changes rows of a table whose
columns aren't all in the feed can't be applied, so it stops: columns that the YAML excludes, and VIRTUAL ones that the
log doesn't tell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from binlake.binlog.border import DELETE, INSERT, UPDATE, Mutations
from binlake.binlogfile import shape
from binlake.binlogfile.rows import RowImages
from binlake.errors import FeedError
from binlake.feeds.contract import FeedChanges, FeedContext, FeedTable, Format, Message, SchemaChange, TransactionEnd
from binlake.schema.invalid import InvalidValues
from binlake.serialization import dumps

BEGIN, END, STATEMENT, ROWS, TABLE_MAP = "begin", "end", "statement", "rows", "map"
"""Names of headers."""


class BinlogEvents(Format):
    """See above. Each source transaction begins with its GTID and the time of its commit."""

    wants_transactions = True

    def __init__(self, config: Any, context: FeedContext) -> None:
        self._flavour = context.flavour
        self._server = context.server

    def changes(self, changes: FeedChanges) -> Sequence[Sequence[Message]]:
        table = changes.table
        _check(table)
        fields = shape.fields_of(table.columns)
        told = f"{table.name}{table.columns}{table.key}".encode()
        table_id = int.from_bytes(hashlib.blake2b(told, digest_size=5).digest(), "little") + 1
        table_map = shape.table_map(table_id, table.name, fields, table.key, self._flavour)
        mutations = Mutations(table.name, table.columns, table.key, 0, changes.rows)
        images = RowImages(mutations, fields, _invalid(changes))
        kinds = {
            op: ((ROWS, bytes([op]) + len(fields).to_bytes(2, "little")), (TABLE_MAP, table_map))
            for op in (INSERT, UPDATE, DELETE)
        }
        return [
            [Message(str(table.name), before, after, kinds[op])]
            for op, before, after in zip(images.op, images.before, images.after, strict=True)
        ]

    def schema_change(self, change: SchemaChange) -> Sequence[Message]:
        if change.kind == "DML":
            raise FeedError(
                f"{change.statement.file}:{change.statement.offset}: a statement was logged in the place of its rows",
                remedy="copy the tables to where the log is applied, then: binlake feed --feed NAME --anew now",
            )
        return [Message("", None, dumps(change.statement).encode(), ((STATEMENT, self._flavour.encode()),))]

    def transaction_began(self, transaction: str, committed_us: int) -> Sequence[Message]:
        gtid = "" if transaction.startswith("file=") else transaction
        told = committed_us.to_bytes(8, "little") + gtid.encode()
        return [Message("", None, told, ((BEGIN, self._flavour.encode()),))]

    def transaction_ended(self, transaction: TransactionEnd) -> Sequence[Message]:
        return [Message("", None, None, ((END, b""),))]


def _check(table: FeedTable) -> None:
    if table.schema is not None and len(table.columns) < len(table.schema.columns):
        known = {column.name for column in table.columns}
        missing = ", ".join(column.name for column in table.schema.columns if column.name not in known)
        raise FeedError(
            f"{table.name}: a binlog without the columns {missing} can't be applied",
            remedy="exclude the table from the feed",
        )


def _invalid(changes: FeedChanges) -> InvalidValues:
    """Which side columns the rows have."""
    names = {field.name for field in changes.rows.schema.field("after").type}

    def beside(side: str) -> bool:
        return any(f"{column.name}{side}" in names for column in changes.table.columns)

    return InvalidValues("keep_text" if beside("__text") else "fail", "keep_bytes" if beside("__bytes") else "fail")
