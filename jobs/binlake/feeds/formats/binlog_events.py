"""The format ``binlog``: mutations as row events have them, only for the sink ``binlog://`` (see binlog_folder).

A message is a row's images, or a statement or transaction boundary; its headers say which. A feed that begins with the
lake creates each table before its rows, as far as metadata describe it (ddl/create_statement.py), and every feed
creates the database of a table that the log creates, unless it exists. These transactions aren't the source's: if the
source has GTIDs, they get GTIDs of a made-up server, derived from the feed's name, the table and the place in the log.

A binlog without some columns of a table can't be applied, so the feed stops at such tables: columns that the YAML
excludes, and VIRTUAL ones that the log doesn't contain.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Sequence
from typing import Any

from binlake.binlog.border import DELETE, INSERT, UPDATE, Mutations, Statement
from binlake.binlog_writer import table_map_bytes
from binlake.binlog_writer.row_bytes import RowImages
from binlake.ddl.create_statement import create_database, create_table
from binlake.errors import FeedError
from binlake.feeds.contract import FeedChanges, FeedContext, FeedTable, Format, Message, SchemaChange, TransactionEnd
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import side_names
from binlake.schema.statement_session import Session
from binlake.serialization import dumps

BEGIN, END, STATEMENT, ROWS, TABLE_MAP = "begin", "end", "statement", "rows", "map"
"""Names of headers."""
_END = Message("", None, None, ((END, b""),))
_NAMESPACE = uuid.UUID("b1a7e1a6-0000-5000-8000-62696e6c6f67")


class BinlogEvents(Format):
    """The format ``binlog``. Each source transaction begins with its GTID and the time of its commit."""

    wants_transactions = True

    def __init__(self, config: Any, context: FeedContext) -> None:
        self._flavour, self._context = context.flavour, context
        self._databases: set[str] = set()

    def changes(self, changes: FeedChanges) -> Sequence[Sequence[Message]]:
        """Return a message with both images for each row; rows of a snapshot are a transaction of their own."""
        table = changes.table
        _check(table)
        fields = table_map_bytes.fields_of(table.columns)
        description = f"{table.name}{table.columns}{table.key}".encode()
        table_id = int.from_bytes(hashlib.blake2b(description, digest_size=5).digest(), "little") + 1
        table_map = table_map_bytes.table_map(table_id, table.name, fields, table.key, self._flavour)
        mutations = Mutations(table.name, table.columns, table.key, 0, changes.rows)
        images = RowImages(mutations, fields, _invalid(changes))
        kinds = {
            op: ((ROWS, bytes([op]) + len(fields).to_bytes(2, "little")), (TABLE_MAP, table_map))
            for op in (INSERT, UPDATE, DELETE)
        }
        messages = [
            [Message(str(table.name), before, after, kinds[op])]
            for op, before, after in zip(images.op, images.before, images.after, strict=True)
        ]
        return self._as_transaction(changes, messages) if changes.snapshot else messages

    def _as_transaction(self, changes: FeedChanges, messages: list[list[Message]]) -> list[list[Message]]:
        """Put rows of the lake, which have no transaction, into one."""
        if messages:
            number = changes.rows.column("row")[0].as_py() + 2
            committed_us = changes.rows.column("committed_us")[0].as_py()
            messages[0].insert(0, self._begin(committed_us, self._own_gtid(str(changes.table.name), number) or ""))
            messages[-1].append(_END)
        return messages

    def table(self, table: FeedTable) -> Sequence[Message]:
        """Return CREATE DATABASE and CREATE TABLE of the table.

        Raises FeedError for a sequence, or without its schema.
        """
        _check(table)
        schema = table.schema
        if schema is None or schema.sequence:
            raise FeedError(
                f"{table.name} is a sequence, which can't be made from the lake's rows",
                remedy="exclude it from the feed",
            )
        text = create_table(table.name, schema, self._flavour)
        create = self._create(str(table.name), table.name.database, text)
        return [*self._database(table.name.database, "utf8mb4"), create]

    def _database(self, name: str, charset: str) -> list[Message]:
        """Return the creation of a database, once per run. charset: the default if none is recorded."""
        if name in self._databases:
            return []
        self._databases.add(name)
        return [self._create(name, "", create_database(name, self._context.charsets.get(name, charset)))]

    def _create(self, of: str, database: str, text: str) -> Message:
        """Return the message of a CREATE statement that isn't the source's. of: the name that its GTID is made from."""
        here, at_us = self._context.standing, time.time_ns() // 1000
        file, offset = (here.file, here.offset) if here else ("", 0)
        session = Session(explicit_timestamps=True)
        return self._statement(
            Statement(file, offset, 0, at_us, self._own_gtid(of, 1), database, 0, text, session=session)
        )

    def _statement(self, statement: Statement) -> Message:
        return Message("", None, dumps(statement).encode(), ((STATEMENT, self._flavour.encode()),))

    def _own_gtid(self, of: str, number: int) -> str | None:
        """Return a made-up GTID; None if the source has none, and for MariaDB, whose events need none."""
        here = self._context.standing
        if here is None or not here.gtid_set or self._flavour == "mariadb":
            return None
        name = f"binlake {self._context.source}/{self._context.feed} {of} {here.file}:{here.offset}"
        return f"{uuid.uuid5(_NAMESPACE, name)}:{number}"

    def schema_change(self, change: SchemaChange) -> Sequence[Message]:
        """Return the statement, after CREATE DATABASE for each database of a new table.

        Raises FeedError for a statement that was logged in the place of rows, and for one that names an excluded
        column.
        """
        if change.kind == "DML":
            raise FeedError(
                f"{change.statement.file}:{change.statement.offset}: a statement was logged in the place of its rows",
                remedy="copy the tables to where the log is applied, then: binlake feed --feed NAME --restart-from now",
            )
        if change.text != change.statement.text:
            raise FeedError(
                f"{change.tables[0][0]}: a statement names an excluded column, and can't be written whole",
                remedy="exclude the table from the feed",
            )
        databases: list[Message] = []
        if change.kind == "CREATE TABLE":
            for name in sorted({table.database for table, _ in change.tables}):
                databases += self._database(name, change.statement.server_charset)
        return [*databases, self._statement(change.statement)]

    def transaction_began(self, transaction: str, committed_us: int) -> Sequence[Message]:
        """Return the transaction's GTID, with its commit time; a transaction of a log without GTIDs has none."""
        return [self._begin(committed_us, "" if transaction.startswith("file=") else transaction)]

    def _begin(self, committed_us: int, gtid: str) -> Message:
        body = committed_us.to_bytes(8, "little") + gtid.encode()
        return Message("", None, body, ((BEGIN, self._flavour.encode()),))

    def transaction_ended(self, transaction: TransactionEnd) -> Sequence[Message]:
        """Return the event that ends a transaction."""
        return [_END]


def _check(table: FeedTable) -> None:
    if masked := ", ".join(column.name for column in table.columns if column.mask is not None):
        raise FeedError(
            f"{table.name}: a binlog in which {masked} is masked can't be applied",
            remedy="exclude the table from the feed",
        )
    if renamed := ", ".join(column.name for column in table.columns if column.server_name or column.lake_type):
        raise FeedError(
            f"{table.name}: a binlog in which {renamed} has another name or type than in statements can't be applied",
            remedy="exclude the table from the feed",
        )
    if table.schema is not None and len(table.columns) < len(table.schema.columns):
        known = {column.name for column in table.columns}
        missing = ", ".join(column.name for column in table.schema.columns if column.name not in known)
        raise FeedError(
            f"{table.name}: a binlog without the columns {missing} can't be applied",
            remedy="exclude the table from the feed",
        )


def _invalid(changes: FeedChanges) -> InvalidValues:
    """Return the policies under which the rows have the side columns that they have."""
    names = {field.name for field in changes.rows.schema.field("after").type}
    sides = [side for known in side_names(changes.table.columns).values() for side in known if side in names]

    def beside(side: str) -> bool:
        return any(name.endswith(side) for name in sides)

    return InvalidValues("keep_text" if beside("__text") else "fail", "keep_bytes" if beside("__bytes") else "fail")
