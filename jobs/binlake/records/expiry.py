"""Expiry of the metadata tables: how long they keep rows, in few files. Needs no JVM.

Rows are removed once they are older than promised, unless somebody may still ask for them: the newest of its kind,
batches that a table has yet to catch up with, what stopped a table that is still stopped, unfinished snapshots. Like
every caller that replaces rows, this one must hold the lease.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from binlake.config import MaintainConfig
from binlake.config.units import DAY_US, HOUR_SECONDS
from binlake.delta import opened_tables
from binlake.delta.log_files import LogFiles
from binlake.errors import LakeError, WrittenMeanwhile
from binlake.records import ddl_history, lake_sizes, table_versions
from binlake.records.record import log_noted
from binlake.records.snapshot_ids import OF_KEYS
from binlake.schema.table import TableName
from binlake.storage import files, storage_errors
from binlake.storage.protocol import StoredFile
from binlake.store.conditions import literal
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import BatchRow, ChunkRow, SizeRow, StatementRow, VersionRow, WatermarkRow
from binlake.store.run_rows import RunRow
from binlake.store.table_schemas import CHECKPOINT_EACH, SCHEMAS, TOMBSTONE_SECONDS

_FEWEST = 8
"""Fewest data files of a metadata table that are worth a rewrite."""
OTHERS_WRITE = ("feeds", "pins", "followers", "copiers")
"""Tables with few rows whose writers don't hold the lease: what conflicts there is tried again next time."""
_COPIERS = "snapshots"
"""The table that is written without the lease, too, while tables are copied beside the batches."""
TOMBSTONES, _LOGGED = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
_BY_DEFAULT = {TOMBSTONES: 168, _LOGGED: 720}
"""Delta's default retention, in hours."""


@dataclass(frozen=True)
class MetadataUpkeep:
    """The upkeep of one metadata table. Files are its data files."""

    table: str
    files_before: int
    files_after: int
    rows_expired: int
    removed_files: int
    removed_bytes: int


def interval(hours: float) -> str:
    """Return hours as Delta's properties have them."""
    return f"interval {round(hours * HOUR_SECONDS)} seconds"


def retention(current: Mapping[str, str], *, history_hours: float, log_hours: float) -> dict[str, str]:
    """Return the properties in which a table's retention of removed files and of its log isn't as promised.

    current: the table's properties.
    """
    return {
        key: interval(hours)
        for key, hours in {TOMBSTONES: history_hours, _LOGGED: log_hours}.items()
        if current.get(key, interval(_BY_DEFAULT[key])) != interval(hours)
    }


def keep_metadata(metadata: Metadata, promised: MaintainConfig) -> list[MetadataUpkeep]:
    """Expire rows of the metadata tables, and keep their files few. Raises LakeError, LeaseHeld."""
    expired = expire(metadata, promised)
    there = [name for name in SCHEMAS if opened_tables.is_table(metadata.location(name))]
    done: list[MetadataUpkeep] = []
    for name in there:
        with suppress(LakeError) if name in (*OTHERS_WRITE, _COPIERS) else nullcontext():
            done.append(_keep(metadata, name, expired.get(name, 0), promised.metadata_hours))
    return done


def expire(metadata: Metadata, promised: MaintainConfig) -> dict[str, int]:
    """Remove expired rows of the metadata tables, and return their number by table. The caller holds the lease while no
    batch is open. Raises LakeError, LeaseHeld."""
    old, old_quarantine = now_us() - int(promised.runs_days * DAY_US), now_us() - int(promised.quarantine_days * DAY_US)
    marks = WatermarkRow.read(metadata)
    not_following = [row for row in marks if row.status not in ("following", "excluded", "dropped")]
    stopped = ", ".join(literal(row.table_id) for row in not_following)
    runs = [row.ended_us for row in RunRow.read(metadata, "kind", "ended_us") if row.kind in ("sync", "bootstrap")]
    batches = [row.batch for row in BatchRow.read(metadata, "batch")]
    seen = log_noted(metadata)
    behind = [row.batch for row in not_following if row.has_life]
    needed = min([*behind, max(batches, default=0)])
    predicates = {
        "runs": f"ended_us < {min(old, max(runs, default=old))}",
        "batches": f"updated_us < {old} AND state = 'recorded' AND batch < {needed}",
        "verifications": f"at_us < {old}",
        "repairs": f"at_us < {old}",
        "follower_stops": f"at_us < {old}",
        "source_log": f"at_us < {min(old, seen.at_us if seen else old)}",
        "quarantine": f"at_us < {old_quarantine}" + (f" AND table_id NOT IN ({stopped})" if stopped else ""),
    }
    removed = {name: _remove(metadata, name, predicate) for name, predicate in predicates.items()}
    removed[_COPIERS] = _forget_snapshots(metadata, old)
    removed["verified"] = _forget_lives(metadata, marks)
    removed[SizeRow.TABLE] = lake_sizes.expire(metadata, old)
    removed[VersionRow.TABLE] = table_versions.expire(metadata, old)
    if promised.ddl_history_days is not None:
        removed["ddl_history"] = _forget_shapes(metadata, now_us() - int(promised.ddl_history_days * DAY_US))
    return removed


def _remove(metadata: Metadata, name: str, predicate: str) -> int:
    """Remove rows that meet a predicate, and return their number; nothing is committed where there is none."""
    rows = metadata.count(name, predicate)
    if rows:
        metadata.replace(name, predicate, [])
    return rows


def _forget_lives(metadata: Metadata, marks: Sequence[WatermarkRow]) -> int:
    """Remove what is known equal of lives that ended, and return its rows; what is noted of tables beside mirrors
    stays. A verification that writes meanwhile goes first: it doesn't hold the lease. marks: all watermarks."""
    living = {row.table_id for row in marks if row.status != "dropped"}
    versions = VersionRow.read(metadata, "table_id", where="table_id IS NOT NULL")
    beside = {row.life for row in versions} - {row.table_id for row in marks}
    with suppress(WrittenMeanwhile):
        if living:
            staying = ", ".join(map(literal, sorted(living | beside)))
            return _remove(metadata, "verified", f"table_id NOT IN ({staying})")
    return 0


def _forget_snapshots(metadata: Metadata, old: int) -> int:
    """Remove snapshots that have ended, and return their rows. A process that copies tables meanwhile has
    precedence."""
    with suppress(WrittenMeanwhile):
        if ended := _snapshots_ended(metadata, old):
            return _remove(metadata, _COPIERS, f"snapshot IN ({', '.join(map(literal, ended))})")
    return 0


def _snapshots_ended(metadata: Metadata, old: int) -> list[str]:
    """Return committed snapshots, except the newest of each table, and those of key ranges."""
    chunks: dict[str, list[ChunkRow]] = defaultdict(list)
    for row in ChunkRow.read(metadata, "snapshot", "database", "table", "state", "updated_us"):
        chunks[row.snapshot].append(row)
    newest: dict[TableName, int] = defaultdict(int)
    updated = {snapshot: max(row.updated_us for row in rows) for snapshot, rows in chunks.items()}
    for snapshot, rows in chunks.items():
        name = rows[0].name
        newest[name] = max(newest[name], updated[snapshot])
    return [
        snapshot
        for snapshot, rows in chunks.items()
        if snapshot.endswith(OF_KEYS)  # of a run that died: the caller holds the lease
        or (all(row.state == "committed" for row in rows) and updated[snapshot] < min(old, newest[rows[0].name]))
    ]


def unfinished_snapshots(metadata: Metadata) -> dict[str, TableName]:
    """Return the table of each snapshot that isn't committed, by its id."""
    rows = ChunkRow.read(metadata, "snapshot", "database", "table", "state")
    return {row.snapshot: row.name for row in rows if row.state != "committed"}


def _forget_shapes(metadata: Metadata, old: int) -> int:
    """Remove statements before a time, except the last of each table, and the last that says the table's shape at that
    time: others leave the shape as it is."""
    rows = [row for row in ddl_history.statements(metadata) if row.committed_us < old]
    last = {(row.name, with_shape): number for number, row in enumerate(rows) for with_shape in {False, row.has_shape}}
    kept = sorted(set(last.values()))
    if gone := len(rows) - len(kept):
        StatementRow.replace(metadata, f"committed_us < {old}", [rows[number] for number in kept])
    return gone


def _keep(metadata: Metadata, name: str, expired: int, hours: float) -> MetadataUpkeep:
    """Compact a table, and delete files that were replaced more than ``hours`` ago.

    A run that slept longer than that between writing a file and its commit would commit a file that is gone.
    """
    try:
        table = metadata.table(name)
        before = len(table.file_uris())
        if before >= _FEWEST and name not in ("lease", *OTHERS_WRITE):
            metadata.check()
            table.optimize.compact()
        kept = min(hours, TOMBSTONE_SECONDS / HOUR_SECONDS)
        if properties := retention(table.metadata().configuration, history_hours=kept, log_hours=hours):
            table.alter.set_table_properties(properties)
        if table.version() - LogFiles.of(metadata.location(name)).base(table.version()) >= CHECKPOINT_EACH:
            table.create_checkpoint()  # commits go behind one alone, and syncs write one a minute at most
        table.cleanup_metadata()
        removed = _remove_replaced(metadata.location(name), table, hours)
    except (DeltaError, OSError) as error:
        raise storage_errors.failed(f"the upkeep of the metadata table {name} failed", error) from error
    after = len(table.file_uris())
    return MetadataUpkeep(name, before, after, expired, len(removed), sum(file.bytes for file in removed))


def _remove_replaced(location: str, table: DeltaTable, hours: float) -> list[StoredFile]:
    """Delete data files that the newest version doesn't have, and return them."""
    table.update_incremental()
    used = {uri.rpartition("/")[2] for uri in table.file_uris()}
    before = time.time() - hours * 3600
    old = [
        file
        for file in files.list_files(location)
        if file.name.endswith(".parquet") and file.modified < before and file.name not in used
    ]
    for file in old:
        files.remove_below(location, file.name)
    return old
