"""Schemas and Delta properties of the metadata tables."""

from __future__ import annotations

from arro3.core import DataType, Field, Schema
from deltalake import DeltaTable

_TEXT, _INT, _REAL, _TRUTH = DataType.utf8(), DataType.int64(), DataType.float64(), DataType.bool()


def _schema(**fields: DataType) -> Schema:
    return Schema([Field(name, kind, nullable=True) for name, kind in fields.items()])


SCHEMAS: dict[str, Schema] = {
    # One row. batch: the newest number given out; plan: its frozen plan, null once recorded; position: where all that
    # follow stand, with what else holds there. Both are JSON.
    "lease": _schema(
        holder=_TEXT, token=_TEXT, since_us=_INT, expires_us=_INT, batch=_INT, plan=_TEXT, position=_TEXT
    ),
    # One row: the process that follows the log in batches of seconds, see followers. at_us: of its newest sign of life,
    # carried_us: what was committed before was in the lake then. waits_for: why it carries nothing.
    "followers": _schema(
        holder=_TEXT, token=_TEXT, expires_us=_INT, since_us=_INT, at_us=_INT, every_ms=_INT, carried_us=_INT,
        batch=_INT, waits_for=_TEXT,
    ),
    # One row: the process that copies tables beside the batches, see copier.
    "copiers": _schema(holder=_TEXT, token=_TEXT, expires_us=_INT, since_us=_INT),
    # One row per batch, written when it is planned, staged, merged and recorded.
    "batches": _schema(
        batch=_INT, state=_TEXT, start=_TEXT, stop=_TEXT, gtid_set=_TEXT, range=_TEXT, until_us=_INT,
        attempt=_TEXT, planned_us=_INT, updated_us=_INT, bytes=_INT,
    ),
    "runs": _schema(
        run=_TEXT, kind=_TEXT, batch=_INT, started_us=_INT, ended_us=_INT, outcome=_TEXT, position=_TEXT,
        tables=_TEXT, phases=_TEXT, bytes=_INT, mutations=_INT, message=_TEXT, why_spark=_TEXT,
    ),
    # One row per life of a table, of the last batch that changed it: one that follows stands where the lease's row
    # says by now, see watermarks.read. status: see batch.steps.Status.
    "watermarks": _schema(
        table_id=_TEXT, database=_TEXT, table=_TEXT, status=_TEXT, batch=_INT, position=_TEXT, gtid_set=_TEXT,
        low=_TEXT, high=_TEXT, delta_version=_INT, fingerprint=_TEXT, reason=_TEXT, remedy=_TEXT, updated_us=_INT,
    ),
    # The Delta version of each table from a batch on, see table_versions. began_us: before the commits that made it.
    "lake_versions": _schema(
        batch=_INT, kind=_TEXT, table_id=_TEXT, database=_TEXT, table=_TEXT, status=_TEXT, delta_version=_INT,
        position=_TEXT, gtid_set=_TEXT, committed_us=_INT, began_us=_INT, at_us=_INT,
    ),
    # From which Delta version on the files of a life under a name are all there: upkeep removed some of earlier ones.
    "readable_since": _schema(table_id=_TEXT, database=_TEXT, table=_TEXT, delta_version=_INT, at_us=_INT),
    # One row: batches whose rows are being removed from lake_versions, JSON, see thinning.
    "thinned": _schema(batches=_TEXT, at_us=_INT),
    # Names of batches whose versions of all tables are kept.
    "pins": _schema(name=_TEXT, batch=_INT, who=_TEXT, why=_TEXT, at_us=_INT),
    "ddl_history": _schema(
        batch=_INT, file=_TEXT, offset=_INT, position=_TEXT, gtid=_TEXT, committed_us=_INT, database=_TEXT,
        default_database=_TEXT, sql_mode=_INT, statement=_TEXT, kind=_TEXT, table=_TEXT, table_id=_TEXT, action=_TEXT,
        reason=_TEXT, before=_TEXT, after=_TEXT,
    ),
    # The shape of a table from a position on.
    "schemas": _schema(
        table_id=_TEXT, database=_TEXT, table=_TEXT, batch=_INT, file_number=_INT, offset=_INT, position=_TEXT,
        fingerprint=_TEXT, schema=_TEXT, why=_TEXT, at_us=_INT,
    ),
    "snapshots": _schema(
        snapshot=_TEXT, table_id=_TEXT, database=_TEXT, table=_TEXT, chunk=_INT, state=_TEXT, lower=_TEXT,
        upper=_TEXT, position=_TEXT, gtid_set=_TEXT, rows=_INT, bytes=_INT, lock_ms=_INT, path=_TEXT, schema=_TEXT,
        updated_us=_INT,
    ),
    # What stopped a table, or (without one) the run of a batch.
    "quarantine": _schema(
        batch=_INT, database=_TEXT, table=_TEXT, table_id=_TEXT, file=_TEXT, offset=_INT, reason=_TEXT,
        remedy=_TEXT, raw=DataType.binary(), at_us=_INT,
    ),
    # What people decided about tables and events. created: of the file's format description event.
    "decisions": _schema(
        at_us=_INT, who=_TEXT, why=_TEXT, action=_TEXT, database=_TEXT, table=_TEXT, batch=_INT, file=_TEXT,
        offset=_INT, created=_INT,
    ),
    # What the server said of its log when it was looked at, see source.ahead.LogSeen: the newest of each five minutes.
    # batch: the newest that was planned.
    "source_log": _schema(
        at_us=_INT, head=_TEXT, bytes_ahead=_INT, oldest_file=_TEXT, files=_INT, bytes=_INT, kept_hours=_REAL,
        batch=_INT,
    ),
    # The data files of a table's newest version, when they differed from what was noted before, see lake_sizes.
    "lake_sizes": _schema(at_us=_INT, database=_TEXT, table=_TEXT, bytes=_INT, files=_INT),
    # When a server was seen to write no log, by its clock: what it executed around then stands in none.
    "unlogged": _schema(server=_TEXT, at_us=_INT),
    # Names that a catalog was given for tables of the lake.
    "registrations": _schema(
        catalog=_TEXT, registered_database=_TEXT, registered_table=_TEXT, path=_TEXT, database=_TEXT, table=_TEXT,
        at_us=_INT,
    ),
    # Databases that a catalog was given for pinned versions. views: JSON.
    "registered_views": _schema(
        catalog=_TEXT, registered_database=_TEXT, batch=_INT, views=_TEXT, at_us=_INT,
    ),
    # One row per feed, under a lease of its own. needs: the first batch whose staging it still reads; null before it
    # began. position: JSON. keep_bytes (of log), keep_us: so much staging is kept for it.
    "feeds": _schema(
        feed=_TEXT, status=_TEXT, batch=_INT, needs=_INT, position=_TEXT, messages=_INT, reason=_TEXT, remedy=_TEXT,
        holder=_TEXT, token=_TEXT, expires_us=_INT, keep_bytes=_INT, keep_us=_INT, updated_us=_INT,
    ),
    "omissions": _schema(
        feed=_TEXT, at_us=_INT, layer=_TEXT, table=_TEXT, place=_TEXT, events=_INT, mutations=_INT, reason=_TEXT,
    ),
    # Chunks of tables: up to which batch each is known equal, null where it isn't. ranges: they are ranges of the key's
    # first column, each from ``least`` on. at_us: when its rows were read last.
    "verified": _schema(
        table_id=_TEXT, database=_TEXT, table=_TEXT, chunk=_INT, chunks=_INT, ranges=_TRUTH, least=_TEXT,
        batch=_INT, position=_TEXT, delta_version=_INT, shape=_TEXT, rows=_INT, checksum=_TEXT, at_us=_INT,
    ),
    # Rows that a repair put right, as they were before. key, columns, before (values, if they are kept): JSON.
    "repairs": _schema(
        repair=_TEXT, run=_TEXT, at_us=_INT, table_id=_TEXT, database=_TEXT, table=_TEXT, batch=_INT, position=_TEXT,
        delta_version=_INT, kind=_TEXT, rows=_INT, key=_TEXT, columns=_TEXT, before=_TEXT,
    ),
    "verifications": _schema(
        verification=_TEXT, at_us=_INT, database=_TEXT, table=_TEXT, batch=_INT, position=_TEXT,
        delta_version=_INT, source_rows=_INT, lake_rows=_INT, chunks=_INT, differing=_INT, equal=_TRUTH,
        looked_chunks=_INT, looked_rows=_INT, seconds=_REAL,
    ),
    # Verifications of all rows that began and didn't come to their end. tables: their patterns, JSON.
    "unfinished_verifications": _schema(tables=_TEXT, begun_us=_INT),
}  # fmt: skip
"""Arrow schemas of the metadata tables. ``_us`` is microseconds since 1970 UTC; positions are text."""


TOMBSTONE_SECONDS = 60
"""For so long a checkpoint tells of files that were replaced. Nobody asks it: upkeep looks at commits and at the age of
files. Of Delta's week a source that is followed would write 100,000 of them behind every tenth commit."""
CHECKPOINT_EACH = 10
"""Commits to a metadata table from one checkpoint to the next, at least. A process that follows writes one a minute, or
behind fifty commits, see plain_writes: it doesn't read the log behind each commit."""
PROPERTIES = {
    "delta.checkpointInterval": str(CHECKPOINT_EACH),
    "delta.deletedFileRetentionDuration": f"interval {TOMBSTONE_SECONDS} seconds",
}
"""A sync opens these tables some thirty times, and each commit since the last checkpoint is read again: of the
default's hundred that is 40 ms for each time, of ten it is 9."""


def kind_read(name: str, column: str, encoded: bool) -> DataType:
    """Return the type in which a column is read. encoded: text is dictionary-encoded."""
    kind = SCHEMAS[name].field(column).type
    return DataType.dictionary(DataType.int32(), _TEXT) if encoded and kind == _TEXT else kind


def columns_lacking(name: str, table: DeltaTable) -> list[Field]:
    """Return the columns that a table lacks because an older binlake created it; none of a table that only that one
    knew."""
    there = {field.name for field in table.schema().fields}
    return [field for field in fields_of(name) if field.name not in there] if name in SCHEMAS else []


def fields_of(name: str) -> list[Field]:
    """Return the columns of a metadata table."""
    schema = SCHEMAS[name]
    return [schema.field(column) for column in schema.names]
