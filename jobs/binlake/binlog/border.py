"""The border of the binlog room: a slice goes in, Arrow record batches and statements come out.

    read(transport, slice, wanted, …) → Mutations | Statement | Stopped | XaEvent …, at last SliceSummary

A table's mutations come in the order of the log, and before the statements that follow them; an XaEvent or RolledBack
may come before mutations that wait for company, and those that it concerns may have come long before.

``Mutations.batch`` has the columns of STAGED_FIELDS:

| column       | Arrow                | meaning |
|--------------|----------------------|---------|
| op           | int8                 | 1 insert, 2 update, 3 delete |
| file         | int64                | number of the binlog file |
| offset       | int64                | of the outer event, bytes |
| row          | int64                | ordinal counted through all row events inside that outer event, from 0 |
| committed_us | int64                | commit time, microseconds since 1970 UTC |
| gtid         | string               | of the transaction; null without GTID |
| xid          | string               | of an XA transaction that is only prepared; else null |
| before       | struct of the table's columns | null for inserts |
| after        | struct of the table's columns | null for deletes |

The struct's fields are the table map's columns by name, without those that ``wanted`` excludes, with the registry's
Arrow types, all nullable, and their side columns: see schema.lake_columns. MariaDB's maps have columns too that it
shows nobody: see schema.hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import columns_of
from binlake.schema.statement_session import UNKNOWN_SESSION, Session
from binlake.schema.table import Column, TableName
from binlake.serialization import Base64

INSERT, UPDATE, DELETE = 1, 2, 3

Wanted = Callable[[str, str], bool | frozenset[str]]
"""(database, table) → whether its mutations are to be decoded: False for a table that is stepped over, or the names, in
lower case, of the columns that are. Columns of the primary key can't be; names that the table hasn't are no error."""


@dataclass(frozen=True)
class Mutations:
    """Some mutations of one table in one shape, in the order of the log.

    columns: those decoded, as the table map tells them (binlog_row_metadata=FULL); key: names of the primary key's.
    statements_before: how many ``Statement``s came before them in this slice. absent: names of columns that the log
    doesn't have in all of these rows' images, and that are NULL there: generated ones on MariaDB 11.5 and newer, which
    only a recorded shape tells from those that a partial row image lacks.
    """

    name: TableName
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    statements_before: int
    batch: pa.RecordBatch
    absent: tuple[str, ...] = ()


@dataclass(frozen=True)
class Statement:
    """A query event that isn't BEGIN, COMMIT or the like: DDL, or DML in statement format.

    offset: of the event; ordinal: its number among the statements of the slice, from 0.
    database: the session's default database; sql_mode: the server's bits. server_charset: of a new database.
    error: the server's number of what it failed with half way, 0 if it didn't. has_xid, thread: see events.Query.
    session: what else is told of the session.
    """

    file: str
    offset: int
    ordinal: int
    committed_us: int
    gtid: str | None
    database: str
    sql_mode: int
    text: str
    server_charset: str = "utf8mb4"
    error: int = 0
    has_xid: bool = False
    thread: int = 0
    session: Session = UNKNOWN_SESSION


@dataclass(frozen=True)
class Stopped:
    """An event of a table that can't be decoded; the table's other events and the other tables go on.

    Of a table's events between two statements that can't be, one is told where it was met, and the last before the
    second statement (or the slice's end): whoever follows the table from between them on learns that a part is missing.
    What lies between them may be left out. raw: the bytes of the event, or of its table map where that can't be read,
    or the first of them.
    """

    name: TableName
    file: str
    offset: int
    reason: str
    remedy: str
    raw: Base64 = b""


@dataclass(frozen=True)
class XaEvent:
    """What becomes of an XA transaction here. ``XA COMMIT … ONE PHASE`` is prepared and committed at one offset."""

    file: str
    offset: int
    xid: str
    what: Literal["prepared", "committed", "rolled back"]


@dataclass(frozen=True)
class RolledBack:
    """Rows of this file that the server took back, with first <= (offset, row) < last.

    MariaDB writes ROLLBACK and ROLLBACK TO SAVEPOINT where the transaction also touched what can't be taken back.
    """

    file: str
    first: tuple[int, int]
    last: tuple[int, int]


@dataclass(frozen=True)
class SliceSummary:
    """Of a slice as a whole.

    gtid_set: the GTIDs of all its transactions, as the server writes a set; empty without GTID. unchecked: tables of
    which rows were changed by sessions with foreign_key_checks = 0, so that nothing cascaded from them. servers: of
    MySQL, the uuid in GTIDs and the id of the server that committed under it; without GTID "" and the newest id.
    """

    gtid_set: str
    unchecked: tuple[TableName, ...] = ()
    servers: tuple[tuple[str, int], ...] = ()


Item = Mutations | Statement | Stopped | XaEvent | RolledBack
"""What a slice is made of."""


def staged_schema(columns: tuple[Column, ...], invalid: InvalidValues) -> pa.Schema:
    """Arrow schema of ``Mutations.batch`` and of a staged file."""
    image = pa.struct([pa.field(one.name, one.arrow) for one in columns_of(columns, invalid)])
    return pa.schema(
        [
            pa.field("op", pa.int8(), nullable=False),
            pa.field("file", pa.int64(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("row", pa.int64(), nullable=False),
            pa.field("committed_us", pa.int64(), nullable=False),
            pa.field("gtid", pa.string()),
            pa.field("xid", pa.string()),
            pa.field("before", image),
            pa.field("after", image),
        ]
    )
