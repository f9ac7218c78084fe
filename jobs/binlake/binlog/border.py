"""The interface of the binlog room: a slice goes in, Arrow record batches and statements come out.

    read(transport, slice, wanted, …) → Mutations | Statement | Stopped | XaEvent …, at last SliceSummary

A table's mutations come in the order of the log, and before the statements that follow them. An XaEvent or RolledBack
may come before mutations that precede it in the log but are still buffered, and long after those that it concerns.

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

The struct's fields are the table map's columns by name, without those that ``wanted`` excludes, with masked ones as
they are shown (schema.masking) and others with their names and types in the lake (schema.lake_forms), with the
registry's Arrow types, all nullable, and their side columns: see schema.lake_columns. MariaDB's maps also have hidden
columns: see schema.hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from binlake.schema.lake_forms import LakeForm
from binlake.schema.mask import Mask
from binlake.schema.statement_session import UNKNOWN_SESSION, Session
from binlake.schema.table import Column, TableName
from binlake.serialization import Base64

if TYPE_CHECKING:
    import pyarrow as pa

INSERT, UPDATE, DELETE = 1, 2, 3
OPERATIONS = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}
"""The names of operations."""
PARTIAL = "the log holds partial row images"
PARTIAL_REMEDY = (
    "SET GLOBAL binlog_row_image=FULL (and reconnect the writers), then snapshot the table again: "
    "binlake snapshot --config FILE --tables TABLE"
)

Wanted = Callable[[str, str], bool | frozenset[str]]
"""(database, table) → whether its mutations are to be decoded: True, False, or the lower-case names of columns that are
left out. Columns of the primary key can't be left out; the table may lack some of the names."""


@dataclass(frozen=True)
class Withheld:
    """The columns of a table that aren't shown as they are: excluded ones, and masks, both by names in lower case."""

    excluded: frozenset[str] = frozenset()
    masks: Mapping[str, Mask] = field(default_factory=dict)


Forming = Callable[["TableName"], LakeForm]
"""A table → the names and types that its columns have in the images, where they aren't the server's."""

Masking = Callable[["TableName", "tuple[Column, ...]"], Withheld]
"""A table and the columns of its map → what is withheld of its rows, where ``wanted`` has them read. It raises
Undecodable for a table whose rows can't be masked as the YAML says; the table stops there."""


@dataclass(frozen=True)
class Mutations:
    """Some mutations of one table in one shape, in the order of the log.

    columns: the decoded columns, as the table map describes them (binlog_row_metadata=FULL). key: names of the primary
    key's columns. statements_before: how many ``Statement``s came before them in this slice. absent: names of columns
    that some of these rows' images lack, where the batch has NULL: generated columns on MariaDB 11.5 and newer, or
    columns missing from partial row images. The recorded shape shows which of the two. collations: numbers of the
    columns' collations, 0 for what isn't text; they aren't staged.
    """

    name: TableName
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    statements_before: int
    batch: pa.RecordBatch
    absent: tuple[str, ...] = ()
    collations: tuple[int, ...] = ()


@dataclass(frozen=True)
class Statement:
    """A query event that isn't BEGIN, COMMIT or the like: DDL, or DML in statement format.

    offset: the event's. ordinal: its number among the statements of the slice, from 0. database: the session's default
    database. sql_mode: the server's bits. server_charset: the default character set of new databases. error: the
    server's number of the error with which the statement failed half way; 0 if it didn't. has_xid, thread: see
    query_event.Query. session: other settings of it in the log. needs_session: it used what its session alone has,
    such as a temporary table or CONNECTION_ID().
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
    needs_session: bool = False


@dataclass(frozen=True)
class Stopped:
    """An event of a table that can't be decoded. The table's other events and other tables are still read.

    Of a table's undecodable events between two statements, the first and the last are reported, and others may not be:
    a reader that follows the table from a place between them learns that mutations are missing. raw: the bytes of the
    event, or of its table map if that can't be read; at least the first bytes.
    """

    name: TableName
    file: str
    offset: int
    reason: str
    remedy: str
    raw: Base64 = b""


@dataclass(frozen=True)
class XaEvent:
    """The preparation or outcome of an XA transaction. ``XA COMMIT … ONE PHASE`` gives both, at one offset.

    committed_us, gtid: of the transaction that contains the event.
    """

    file: str
    offset: int
    xid: str
    what: Literal["prepared", "committed", "rolled back"]
    committed_us: int = 0
    gtid: str | None = None


@dataclass(frozen=True)
class RolledBack:
    """Rows of this file that the server rolled back, with first <= (offset, row) < last.

    MariaDB logs ROLLBACK and ROLLBACK TO SAVEPOINT if the transaction also changed what can't be rolled back.
    """

    file: str
    first: tuple[int, int]
    last: tuple[int, int]


@dataclass(frozen=True)
class SliceSummary:
    """Facts about a slice as a whole, once it is read.

    gtid_set: the GTIDs of all its transactions, as the server writes a set; empty without GTID. unchecked: tables with
    rows changed by sessions with foreign_key_checks = 0, so that nothing cascaded from them. servers: on MySQL, the
    uuids in GTIDs, each with the id of the server that committed under it; without GTID, "" with the newest id.
    committed_us: when the newest of its transactions committed; 0 without a transaction. ends_open: the slice reaches
    its file's end, and the server didn't close the file there: it crashed.
    """

    gtid_set: str
    unchecked: tuple[TableName, ...] = ()
    servers: tuple[tuple[str, int], ...] = ()
    committed_us: int = 0
    ends_open: bool = False


Item = Mutations | Statement | Stopped | XaEvent | RolledBack
"""An item that ``read`` yields of a slice before its SliceSummary."""
