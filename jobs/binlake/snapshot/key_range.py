"""Copying the rows of a key range again.

    copy      the range is read as a snapshot reads a chunk: through a read view, with a lock held for a moment
    catch up  the lake is brought to exactly the position at which the range was read (pipeline.py)
    put       the rows replace those that the lake has in the range, in one commit

So the table is at one position all the time, and a process that dies in between has changed nothing. The range is given
in the first column of the key, which must be an integer or a decimal: their order is the same on the server and in the
lake. Texts compare by collations, and the lake can't hold every date that the server can.
"""

from __future__ import annotations

import re
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation, localcontext

from pyspark.sql import SparkSession

from binlake.config import PipelineConfig
from binlake.delta.delta_log import LakeLog
from binlake.delta.delta_schema import DeltaSchema
from binlake.errors import SNAPSHOTTED_BY_ITSELF, StagingError, TableError, UsageError
from binlake.faults import fault
from binlake.merge.engine.exchange import exchange
from binlake.merge.own_values import WrittenInSql
from binlake.merge.position_texts import boundary_text
from binlake.names import spark_quote
from binlake.planner.steps import Life
from binlake.records.snapshot_ids import OF_KEYS
from binlake.schema import datatypes
from binlake.schema.lake_columns import mirror_columns
from binlake.schema.table import Column, TableName, TableSchema
from binlake.snapshot import restore
from binlake.snapshot.bounds import Bound, Edge
from binlake.snapshot.chunks import Chunk, Records, TableSnapshot
from binlake.snapshot.commit import SnapshotResult, result_of
from binlake.snapshot.own_files import as_written, retained_rows
from binlake.snapshot.snapshot import SnapshotTask, works_with
from binlake.snapshot.spark_sessions import SparkSessions
from binlake.snapshot.waves import Member, TableChanged, TableRefused, run_wave
from binlake.source.catalog import SourceTable, read_tables
from binlake.source.locks import LockMode
from binlake.source.read_lock import PATIENCE, flush_or_tables
from binlake.source.server import Source
from binlake.spark import data_files
from binlake.spark.session import OwnSessions
from binlake.spark.starting import SessionFactory
from binlake.store.metadata import now_us

BETWEEN = ".."
_NUMBERS = re.compile(r"TINYINT|SMALLINT|INT|BIGINT|DECIMAL\(\d+,\d+\)")
"""Types of the lake's columns that ranges can be given in."""
_DIGITS = 100
"""Decimal precision of the arithmetic; more than any column has."""


@dataclass(frozen=True)
class KeysBetween:
    """A range of keys. first, last: both included; None if the range is open there."""

    column: Column
    first: Decimal | None
    last: Decimal | None

    @property
    def bounds(self) -> tuple[Bound | None, Bound | None]:
        """Return a chunk's bounds [lower, upper). They ascend in the column's own order, whichever way the index is
        sorted."""
        step = Decimal(1).scaleb(-(self.column.scale or 0))
        lower = None if self.first is None else (Edge(self.column.name, f"{self.first:f}"),)
        if self.last is None:
            return lower, None
        with localcontext(prec=_DIGITS):
            return lower, (Edge(self.column.name, f"{self.last + step:f}"),)

    def in_lake(self, kind: str) -> str:
        """Return the range as a Spark SQL condition. kind: the column's type in the lake."""
        name = spark_quote(self.column.name)
        literal = "CAST('{:f}' AS " + (kind if kind.startswith("DECIMAL") else "BIGINT") + ")"
        ends = [f"{name} >= {literal.format(self.first)}"] if self.first is not None else []
        ends += [f"{name} <= {literal.format(self.last)}"] if self.last is not None else []
        return " AND ".join(ends)


def parse(text: str, name: TableName, schema: TableSchema) -> KeysBetween:
    """Parse ``FIRST..LAST``. Raises UsageError for a text that is no range of this table's key."""
    if not schema.key:
        raise UsageError(f"{name} has no key", remedy="leave --keys out: its rows are copied all or none")
    column = schema.column(schema.key[0])
    if column.mask is not None:
        raise UsageError(f"{name}'s key is masked", remedy="leave --keys out to copy the whole table")
    column = column.shown
    if _NUMBERS.fullmatch(datatypes.entry(column).delta(column)) is None:
        raise UsageError(
            f"{name}'s key begins with {column.name}, a {column.declared}",
            remedy="ranges can be of whole numbers and of decimals of up to 38 digits; leave --keys out to copy "
            "the whole table",
        )
    first, between, last = (part.strip() for part in text.partition(BETWEEN))
    if not between or not (first or last):
        raise UsageError(
            f"{text!r} is no range of keys", remedy="write FIRST..LAST, both included, such as 1000..1999 or 1000.."
        )
    keys = KeysBetween(column, _number(first, column), _number(last, column))
    if keys.first is not None and keys.last is not None and keys.first > keys.last:
        raise UsageError(f"{text!r} begins behind its end", remedy=f"write {last}..{first}")
    return keys


def _number(text: str, column: Column) -> Decimal | None:
    if not text:
        return None
    digits = column.scale or 0
    with suppress(InvalidOperation), localcontext(prec=_DIGITS):
        value = Decimal(text)
        least, most = _limits(column)
        if value.is_finite() and least <= value <= most and value == round(value, digits):
            return round(value, digits)
    raise UsageError(f"{text!r} is no value of {column.name}, a {column.declared}", remedy="write one that it can hold")


def _limits(column: Column) -> tuple[Decimal, Decimal]:
    if column.type == "decimal":
        digits, scale = column.precision or 0, column.scale or 0
        most = Decimal(10**digits - 1).scaleb(-scale)
        return -most, most
    bits = 64 if column.type == "bigint" and column.unsigned else 63
    return Decimal(-(2**63)), Decimal(2**bits - 1)


@dataclass(frozen=True)
class CopiedRange:
    """Rows that were read and that the lake doesn't have yet."""

    keys: KeysBetween
    table: TableSnapshot
    records: Records


def asked(
    source: Source, config: PipelineConfig, name: TableName, text: str, lock: str
) -> tuple[SourceTable, KeysBetween]:
    """Return the table as the server has it, and the range parsed from ``text``.

    Raises UsageError, SourceError, LakeError; TableError for a table whose columns aren't known.
    """
    if lock == "none":
        raise UsageError("a range of keys is read under a lock", remedy="use --lock flush or --lock tables")
    table = read_tables(source, [name], config.excluding)[name]
    if table.unreadable:
        raise TableError(f"{name}: {table.unreadable}", remedy=table.remedy)
    keys = parse(text, name, table.schema)
    restore.refuse_twice(name, table.schema, config.invalid)
    return table, keys


def copy(session: SessionFactory, task: SnapshotTask, name: TableName, text: str) -> CopiedRange:
    """Copy the range given by ``text``. Raises UsageError, SourceError, LakeError; TableError for unreadable rows."""
    on_server, keys = asked(task.source, task.config, name, text, task.lock)
    sessions = SparkSessions(session).for_copies(f"rows of {name} are copied by Spark")
    identity = f"{uuid.uuid4().hex[:12]}{OF_KEYS}"
    table = TableSnapshot(identity, name, on_server.schema, on_server.engine, on_server.rows, on_server.size)
    table.chunks = [Chunk(0, *keys.bounds)]
    table.partitions = tuple(partition.name for partition in on_server.partitions)
    records = Records(task.config, task.metadata)
    records.clean()
    records.forget(name, ending=OF_KEYS)
    records.save(table)
    began = time.monotonic()
    copying = works_with(lambda: sessions, task, records, watch=lambda written: None)

    def read_under(mode: LockMode, patience: float) -> None:
        waiting = replace(copying, lock_patience=patience)
        run_wave(waiting, [Member(table, table.chunks[0])], mode, until_copied=not table.transactional)

    try:
        if task.lock == "flush" and table.transactional:
            flush_or_tables([name], read_under, task.report.say)
        else:
            read_under("tables", PATIENCE)  # without views its writers alone wait
    except TableChanged as changed:
        raise TableError(f"{name}: DDL while its rows were read", remedy="run it again") from changed
    except TableRefused as refused:
        raise refused.error from None
    table.seconds = time.monotonic() - began
    return CopiedRange(keys, table, records)


def put(session: SparkSession, config: PipelineConfig, copied: CopiedRange, life: Life, batch: int) -> SnapshotResult:
    """Replace the table's rows in the range by the copied ones, in one commit.

    The lake must be at the position where the rows were read, under a lease. batch: the newest one that the table has.
    Raises TableError if the table has other columns, InvalidDate, LakeError, StagingError, LeaseHeld; after an error
    the table is unchanged.
    """
    table, records = copied.table, copied.records
    attempts = records.attempts(table)
    (chunk,) = table.chunks
    if records.lost(table):
        raise StagingError(f"{table.name}: files of copied rows are missing or damaged", remedy="run it again")
    files = attempts.copied(chunk.attempt)
    restore.refuse_dates(table.name, table.schema, files.invalid_dates)
    log = LakeLog.of(config, table.name, life.id)
    log.refuse_others({life.id}, life.delta_version or 0)
    columns = mirror_columns(table.schema, config.invalid)
    kinds = {column.name: column.delta for column in columns}
    with OwnSessions(session).lend() as own:
        _refuse_other_columns(own, log, table.name, kinds)
        rows = data_files.read(own, log.path, DeltaSchema.of(columns, table.id), files.files)
        note = {
            "source": config.source.name,
            "life": life.id,
            "batch": batch,
            "position": str(table.low),
            "gtid_set": table.low.gtid_set,
            "range_anew": table.id,
        }
        fault("commit begun")
        where = copied.keys.in_lake(kinds[copied.keys.column.name])
        written = WrittenInSql.at_once(0, files.opened_us or now_us(), boundary_text(*table.low.order))
        rows = as_written(rows, table.schema, written)
        if table.schema.soft_delete:
            there = own.read.format("delta").load(log.path).where(where)
            rows = rows.unionByName(retained_rows(there, rows, table.schema, columns, written, [life.schema.masks]))
        version = exchange(
            own, log.path, where, rows, table.schema.key, note, records.check, rows_per_file=table.rows_per_file
        )
    fault("rows committed")
    records.drop(table)
    table.table_id = life.id
    return replace(result_of(config, table), delta_version=version)


def _refuse_other_columns(session: SparkSession, log: LakeLog, name: TableName, kinds: dict[str, str]) -> None:
    there = {
        field.name: field.dataType.simpleString().upper()
        for field in session.read.format("delta").load(log.path).schema.fields
    }
    if wrong := sorted(column for column in there.keys() | kinds.keys() if there.get(column) != kinds.get(column)):
        raise TableError(
            f"{name}: the lake's columns are others than the server's: {', '.join(wrong)}",
            remedy=f"copy the whole table: leave --keys out ({SNAPSHOTTED_BY_ITSELF} where a sync asked for it)",
        )
