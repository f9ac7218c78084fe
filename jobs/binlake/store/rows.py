"""The rows of each metadata table, whose columns are the fields.

``_us`` is microseconds since 1970 UTC; positions are text. A field that may be None is NULL then, and in rows of an
older binlake, whose table lacked the column. A field with another default has it where the column is NULL.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Literal, Self

from binlake.caches import remembered
from binlake.planner.answers import ANSWERED_NO
from binlake.planner.noted_statements import NotedStatement
from binlake.planner.steps import Standstill, Status
from binlake.position import Position, Range, file_number
from binlake.schema.table import TableName, TableSchema
from binlake.serialization import loads
from binlake.store.typed_rows import OfHolder, OfTable, Row

RowKind = Literal["snapshot", "base", "batch", "beside"]
KINDS: tuple[RowKind, ...] = ("snapshot", "base", "batch", "beside")
"""The kinds of rows of lake_versions, in their order within a batch."""
WITHOUT_LIFE = "missing:"
"""Beginning of the table id of a table without a life."""


@remembered("shapes of watermarks")
def _shape(text: str) -> TableSchema:
    return loads(TableSchema, text)


@remembered("positions of watermarks")
def _position(text: str) -> Position:
    return loads(Position, text)


class LeaseRow(OfHolder, table="lease"):
    """The only row: who works on the source. batch: the newest number given out. plan: its frozen plan, None once
    recorded. position: of all tables that follow, with the other facts that hold there. Both are JSON.
    """

    holder: str | None = None
    token: str | None = None
    since_us: int = 0
    expires_us: int = 0
    batch: int = 0
    plan: str | None = None
    position: str | None = None


class FollowerRow(OfHolder, table="followers"):
    """The only row: the process that follows the log in batches of seconds. at_us: of its newest sign of life.
    carried_us: what was committed before was in the lake then. waits_for: why it carries nothing.
    """

    holder: str | None = None
    token: str | None = None
    expires_us: int = 0
    since_us: int = 0
    at_us: int = 0
    every_ms: int = 0
    carried_us: int | None = None
    batch: int | None = None
    waits_for: str = ""


class FollowerStopRow(Row, table="follower_stops"):
    """The end of a process that followed the log before its time. how: see followers.StopKind. at_us: of its end, or of
    its newest sign of life. message: of the error that ended it.
    """

    at_us: int
    holder: str
    since_us: int
    how: str
    batch: int | None = None
    message: str = ""


class MadeRow(Row, table="made"):
    """The only row: the metadata tables that were seen, JSON, see table_losses."""

    tables: str
    at_us: int

    @property
    def names(self) -> set[str]:
        """Return the tables' names."""
        return set(json.loads(self.tables))


class AwaitedRow(OfTable, table="awaited"):
    """An included table that the server had and the lake didn't. position: where the log ended then."""

    database: str
    table: str
    position: str


class FilterEstimateRow(OfTable, table="filter_estimates"):
    """About how many rows a table had at the server, and how many of them met its conditions. conditions: their texts,
    JSON."""

    database: str
    table: str
    conditions: str
    rows: int
    left: int
    at_us: int


class CopierRow(OfHolder, table="copiers"):
    """The only row: the process that copies tables beside the batches."""

    holder: str | None = None
    token: str | None = None
    expires_us: int = 0
    since_us: int = 0


class BatchRow(Row, table="batches"):
    """A batch, written when it is planned, staged, merged and recorded. range: JSON."""

    batch: int
    state: str
    start: str
    stop: str
    gtid_set: str | None = None
    range: str
    until_us: int | None = None
    attempt: str | None = None
    planned_us: int
    updated_us: int
    bytes: int = 0

    @property
    def carried(self) -> Range:
        """Return the range of the log."""
        return loads(Range, self.range)

    @property
    def end(self) -> Position:
        """Return where the range ends."""
        return Position.parse(self.stop, self.gtid_set or "")


class WatermarkRow(OfTable, table="watermarks"):
    """A life of a table, of the last batch that changed it, or an included table that waits for one.

    One that follows is by now at the position in the lease's row, see watermarks.read. low, high: JSON, None without a
    life. frozen: whether somebody's no leaves the table as it is; None where an older binlake wrote the row.
    """

    table_id: str
    database: str
    table: str
    status: Status
    batch: int
    position: str
    gtid_set: str | None = None
    low: str | None = None
    high: str | None = None
    delta_version: int | None = None
    fingerprint: str | None = None
    reason: str | None = None
    remedy: str | None = None
    updated_us: int
    frozen: bool | None = None

    @property
    def is_frozen(self) -> bool:
        """Return whether somebody's no leaves the table as it is. What an older binlake wrote of it, in this row or in
        a batch that a newer one recorded, has that in its reason alone."""
        return bool(self.frozen) or (self.reason or "").endswith(ANSWERED_NO)

    def standing(self, status: Status, why: Standstill | None) -> Self:
        """Return the row with another status, and why it has it."""
        why = why or Standstill("")
        return replace(self, status=status, reason=why.reason or None, remedy=why.remedy or None, frozen=why.frozen)

    @property
    def has_life(self) -> bool:
        """Return whether the row is of a life, which can catch up, not of a name that waits for its first snapshot."""
        return not self.table_id.startswith(WITHOUT_LIFE)

    @property
    def reached(self) -> Position:
        """Return the position."""
        return Position.parse(self.position, self.gtid_set or "")

    @property
    def began(self) -> Position:
        """Return the position at which the life began. Raises ValueError where there is no life."""
        return _position(self.low or "")

    @property
    def snapshot(self) -> tuple[Position, Position]:
        """Return the positions between which the life's snapshot lies. Raises ValueError where there is no life."""
        return self.began, _position(self.high or "")


class VersionRow(Row, table="lake_versions"):
    """The Delta version of a table from a batch on, or a batch's own row, without a table: see table_versions.
    began_us: before the commits that made it. folder: of a table that several sources fill, in the lake.
    """

    batch: int
    kind: RowKind
    table_id: str | None = None
    database: str | None = None
    table: str | None = None
    status: str | None = None
    delta_version: int | None = None
    position: str | None = None
    gtid_set: str | None = None
    committed_us: int | None = None
    began_us: int | None = None
    at_us: int
    folder: str | None = None

    @property
    def life(self) -> str:
        """Return the table id; empty for a batch's own row."""
        return self.table_id or ""

    @property
    def name(self) -> TableName:
        """Return the table's name."""
        return TableName(self.database or "", self.table or "")

    @property
    def order(self) -> tuple[int, int]:
        """Return what the rows of a life are ordered by: the last one counts."""
        return self.batch, KINDS.index(self.kind)


class ReadableRow(OfTable, table="readable_since"):
    """From which Delta version on all files of a life under a name are there: upkeep removed some of earlier ones."""

    table_id: str
    database: str
    table: str
    delta_version: int
    at_us: int


class ThinnedRow(Row, table="thinned"):
    """The only row: batches whose rows are being removed from lake_versions, JSON, see thinning."""

    batches: str
    at_us: int


class MergedRow(OfTable, table="merged_standstills"):
    """Why a merged table is stopped, or, with a shard, why that isn't shown in it as it is."""

    database: str
    table: str
    shard: str | None = None
    reason: str
    remedy: str = ""
    at_us: int


class PinRow(Row, table="pins"):
    """The name of a batch whose versions of all tables are kept."""

    name: str
    batch: int
    who: str
    why: str
    at_us: int


class StatementRow(OfTable, table="ddl_history"):
    """A statement of the log. before, after: the server's shapes of the table, JSON. held: what is asked about it where
    the table waits for an answer, JSON of HeldChange."""

    batch: int
    file: str
    offset: int
    position: str
    gtid: str | None = None
    committed_us: int
    database: str
    default_database: str | None = None
    sql_mode: int | None = None
    statement: str
    kind: str
    table: str
    table_id: str | None = None
    action: str
    reason: str | None = None
    before: str | None = None
    after: str | None = None
    held: str | None = None

    @classmethod
    def of(cls, noted: NotedStatement) -> StatementRow:
        """Return the row that keeps a statement."""
        return cls(**vars(noted))

    @property
    def noted(self) -> NotedStatement:
        """Return the statement as the planner notes it. All columns must have been read."""
        return NotedStatement(**self.values())

    @property
    def order(self) -> tuple[int, int, int]:
        """Return what statements are ordered by: another server, after a failover, numbers its files from 1."""
        return self.batch, file_number(self.file), self.offset

    @property
    def has_shape(self) -> bool:
        """Return whether the server's shapes of the table are noted."""
        return bool(self.before or self.after)

    @property
    def shape(self) -> TableSchema | None:
        """Return the shape after the statement; None where the table isn't there."""
        return _shape(self.after) if self.after else None


class ShapeRow(OfTable, table="schemas"):
    """The shape of a table from a position on. schema: JSON."""

    table_id: str
    database: str
    table: str
    batch: int
    file_number: int
    offset: int
    position: str
    fingerprint: str
    schema: str
    why: str
    at_us: int

    @property
    def order(self) -> tuple[int, int, int]:
        """Return what shapes are ordered by: another server, after a failover, numbers its files from 1."""
        return self.batch, self.file_number, self.offset

    @property
    def shape(self) -> TableSchema:
        """Return the shape."""
        return _shape(self.schema)


class ChunkRow(OfTable, table="snapshots"):
    """A chunk of a table's snapshot."""

    snapshot: str
    table_id: str | None
    database: str
    table: str
    chunk: int
    state: str
    lower: str | None = None
    upper: str | None = None
    position: str | None = None
    gtid_set: str | None = None
    rows: int = 0
    bytes: int = 0
    lock_ms: int = 0
    path: str = ""
    schema: str
    updated_us: int
    partitions: str | None = None


class QuarantineRow(Row, table="quarantine"):
    """The reason that stopped a table, or, without one, the run of a batch."""

    batch: int
    database: str | None = None
    table: str | None = None
    table_id: str | None = None
    file: str | None = None
    offset: int | None = None
    reason: str
    remedy: str = ""
    raw: bytes | None = None
    at_us: int


class DecisionRow(Row, table="decisions"):
    """A person's decision or request about a table, an event or the source. created: of the file's format description
    event. run: of Airflow, ``DAG/RUN``, that was asked for. result: what came of it at once.
    """

    at_us: int
    who: str
    why: str
    action: str
    database: str | None = None
    table: str | None = None
    batch: int | None = None
    file: str | None = None
    offset: int | None = None
    created: int | None = None
    run: str | None = None
    result: str | None = None


class LogRow(Row, table="source_log"):
    """The state of the server's log when it was looked at, see source.ahead.LogSeen: the newest of each five minutes,
    by kind.

    batch: the newest that was planned. kind: ``planned`` where a sync planned a batch, ``nothing new`` where it found
    nothing, ``look`` of a look alone; None where an older binlake noted it.
    """

    at_us: int
    head: str
    bytes_ahead: int | None = None
    oldest_file: str | None = None
    files: int | None = None
    bytes: int | None = None
    kept_hours: float | None = None
    batch: int | None = None
    server: str | None = None
    kind: str | None = None


class SizeRow(OfTable, table="lake_sizes"):
    """The data files of a table's newest version, when they differed from what was noted before, see lake_sizes."""

    at_us: int
    database: str
    table: str
    bytes: int
    files: int


class UnloggedRow(Row, table="unlogged"):
    """When a server was seen to write no log, by its clock: transactions that it executed around then are in none. Or,
    with a gap (JSON), when its log was seen last to lack changes, by ours. ended_us: when it was seen first without
    the gap.
    """

    server: str
    at_us: int
    gap: str | None = None
    ended_us: int | None = None


class RegistrationRow(OfTable, table="registrations"):
    """The name that a catalog was given for a table of the lake."""

    catalog: str
    registered_database: str
    registered_table: str
    path: str
    database: str
    table: str
    at_us: int


class ViewsRow(Row, table="registered_views"):
    """A database that a catalog was given for a pinned version. views: JSON."""

    catalog: str
    registered_database: str
    batch: int
    views: str
    at_us: int


class FeedRow(OfHolder, table="feeds"):
    """A feed, under a lease of its own. needs: the first batch whose staging it still reads; None before it began.
    position: JSON. keep_bytes (of log), keep_us: so much staging is kept for it.
    """

    feed: str
    status: str
    batch: int | None = None
    needs: int | None = None
    position: str | None = None
    messages: int = 0
    reason: str = ""
    remedy: str = ""
    holder: str | None = None
    token: str | None = None
    expires_us: int = 0
    keep_bytes: int
    keep_us: int
    updated_us: int


class OmissionRow(Row, table="omissions"):
    """Events of a table that a feed left out for one reason."""

    feed: str
    at_us: int
    layer: str
    table: str
    place: str
    events: int
    mutations: int
    reason: str
