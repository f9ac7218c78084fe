"""Purge: remove at once what is kept of tables from before their newest copies, as after a policy changed.

    look      what is kept (purge_look.py), and what stands in the way of removing it (purge_obstacles.py)
    past      of each table a version of its own is committed, and known to the lake's versions; then of the merged
              tables that show them, once these show that version. Then earlier data files go, the earlier part of the
              logs, and what was published as Iceberg (purged_log.py)
    staging   of the batches before the copy
    rows      of metadata that have values, and values that statements and shapes say (records/purging.py); what
              snapshots left that no run takes up again goes with their rows
    metadata  the earlier versions of binlake's own tables, in which those rows were

All of it is done under the lease, between two batches, while nobody copies tables. Pins need no lease: they are looked
for once more before the first file goes. What was decided is noted before that, so that versions that can't be read any
more say why; the run is noted last. Killed anywhere, the next purge does all of it again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from binlake.config import PipelineConfig
from binlake.delta import opened_tables
from binlake.delta.composed_parts import CONVERTED
from binlake.errors import BinlakeError, LakeError, UsageError
from binlake.faults import fault
from binlake.iceberg.table_metadata import FOLDER
from binlake.lake import merged_tables
from binlake.lease import copier
from binlake.lease.lease import Lease
from binlake.maintain import purge_look, purge_obstacles, purged_log
from binlake.maintain.maintain import PATIENCE
from binlake.maintain.purge_look import KIND, Purgeable
from binlake.maintain.purge_obstacles import Obstacle
from binlake.maintain.table_upkeep import held_between_batches
from binlake.merge.published_tables import is_published
from binlake.moment import moment_text
from binlake.planner.outcome import BesideOutcome
from binlake.records import decisions, expiry, lost_tables, table_versions, watermarks
from binlake.records.decisions import Reason
from binlake.records.expiry import OTHERS_WRITE
from binlake.records.failures import noted
from binlake.records.record import OtherRun, note_run
from binlake.report import Report, counted
from binlake.schema.table import TableName
from binlake.snapshot import attempts
from binlake.storage import files, storage_errors
from binlake.store.metadata import Metadata, metadata_of, now_us
from binlake.store.rows import ReadableRow, WatermarkRow
from binlake.store.table_schemas import SCHEMAS


@dataclass(frozen=True)
class PurgedTable:
    """A table that was purged. version: its Delta version, the only one that can be read. files, bytes: of data that
    were removed. log_files: likewise, of Delta's log."""

    table: str
    table_id: str
    version: int
    files: int
    bytes: int
    log_files: int


@dataclass(frozen=True)
class PurgeReport:
    """A look at tables, or a purge of them. kept: what the look found. purged: nothing after a look alone."""

    looked: tuple[Purgeable, ...]
    purged: tuple[PurgedTable, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        tables = [
            {
                "table": str(each.name),
                "copied_us": each.since_us,
                "is_done": each.is_done,
                "kept": [asdict(kept) for kept in each.kept if kept.count],
                "obstacles": [asdict(obstacle) for obstacle in each.obstacles],
            }
            for each in self.looked
        ]
        return {"tables": tables, "purged": [asdict(table) for table in self.purged]}

    def to_text(self) -> str:
        """Return the report for people."""
        if self.purged:
            return "\n".join(_said(table) for table in self.purged)
        return "\n".join(line for each in self.looked for line in _lines(each))

    def refuse_obstacles(self) -> None:
        """Raise UsageError where something stands in the way of a table."""
        _refuse([(each.name, obstacle) for each in self.looked for obstacle in each.obstacles])


def _refuse(blocked: Sequence[tuple[TableName, Obstacle]]) -> None:
    """Raise UsageError with the first obstacle of tables, if there is one."""
    if blocked:
        (name, obstacle), more = blocked[0], len(blocked) - 1
        others = f"; {counted(more, 'other reason')}: --dry-run lists all" if more else ""
        raise UsageError(f"{name} can't be purged: {obstacle.why}{others}", remedy=obstacle.remedy)


def _lines(each: Purgeable) -> Iterator[str]:
    copied = f"{each.name}, copied {moment_text(each.since_us)}"
    if each.is_done:
        yield f"{copied}: nothing is kept from before, it was purged"
        return
    yield f"{copied}; kept from before:"
    for kept in each.kept:
        if kept.count:
            size = f", {kept.bytes / 1e6:,.1f} MB" if kept.bytes else ""
            yield f"  {kept.count:,} {kept.what}{size}"
    yield "  earlier versions of binlake's own tables, which go whole"
    for obstacle in each.obstacles:
        yield f"  not possible now: {obstacle.why}"
        yield f"    → {obstacle.remedy}"


def _said(table: PurgedTable) -> str:
    return (
        f"{table.table} is purged: {counted(table.files, 'data file')} ({table.bytes / 1e6:,.1f} MB) of earlier"
        f" versions are gone; Delta version {table.version} is the only one that can be read"
    )


def look(config: PipelineConfig, patterns: Sequence[str]) -> PurgeReport:
    """Return what is kept of the tables that patterns match, and what stands in the way. Changes nothing."""
    return PurgeReport(tuple(purge_look.look(config, metadata_of(config), patterns)))


@noted(KIND)
def purge(
    config: PipelineConfig,
    report: Report,
    patterns: Sequence[str],
    reason: Reason,
    *,
    run: str | None = None,
    patience: float = PATIENCE,
) -> PurgeReport:
    """Remove what is kept of the tables that patterns match from before their newest copies.

    run: its name in metadata's runs. patience: seconds to wait for a sync at work. Raises UsageError where something
    stands in the way, before anything is removed; LeaseHeld, LakeError.
    """
    began, began_us, metadata = time.monotonic(), now_us(), metadata_of(config)
    lost_tables.refuse(metadata, "maintain")
    with copier.held(metadata), held_between_batches(metadata, patience) as held:
        merged_tables.refresh(config, held, report)  # they show what upkeep, or a purge that was killed, committed
        looked = PurgeReport(tuple(purge_look.look(config, held.metadata, patterns)))
        looked.refuse_obstacles()
        asked = [each for each in looked.looked if not each.is_done]
        if not asked:
            return looked
        batch = held.control().batch
        with _as_lake_error(config):
            left = [_left(config, held, each) for each in asked]
            with _restored_if_refused(held.metadata, left):
                left += _merged_left(config, held, left, report)
                _refuse_new_pins(held.metadata, left)
            decisions.note(held.metadata, KIND, reason, [each.name for each in left], batch=batch, result=_RESULT)
            done = [_purged(config, held, past, report) for past in left]
            _purge_staging(config, asked)
            fault("staging purged")
            for each in asked:
                each.rows.purge()
            attempts.remove_dead(config, lambda: expiry.unfinished_snapshots(held.metadata))
            fault("rows purged")
            _purge_metadata(config, held)
        result = replace(looked, purged=tuple(done))
        _note(held, result, run, began_us, time.monotonic() - began)
    report.say(result.to_text())
    return result


_RESULT = "versions before this batch can't be read any more"


@contextmanager
def _as_lake_error(config: PipelineConfig) -> Iterator[None]:
    try:
        yield
    except BinlakeError:
        raise
    except Exception as error:  # deltalake's and Avro's have no type in common
        raise storage_errors.failed(f"a purge in {config.root} failed", error) from error


@dataclass(frozen=True)
class _Left:
    """A table whose past is about to go. copies: of schema change tools, whose folders go. noted: from which versions
    on it could be read before."""

    name: TableName
    table_id: str
    copies: Sequence[TableName]
    past: purged_log.Past
    noted: Sequence[ReadableRow]


def _left(config: PipelineConfig, held: Lease, each: Purgeable) -> _Left:
    """Commit the version that stays of a table, and note that earlier ones can't be read any more."""
    path, began_us = config.table_path(each.name), now_us()
    held.check()
    past = purged_log.leave(path, _note_of(config))
    fault("past left")
    rows = [
        replace(row, delta_version=past.version)
        for row in WatermarkRow.read(held.metadata)
        if row.table_id == each.life.id
    ]
    watermarks.write_beside(held.metadata, rows, config.is_listed, began_us=began_us)
    noted = table_versions.note_readable_since(held.metadata, each.name, past.version)
    return _Left(each.name, each.life.id, each.copies, past, noted)


def _merged_left(config: PipelineConfig, held: Lease, shards: Sequence[_Left], report: Report) -> list[_Left]:
    """Do the same for the tables that show purged ones, once they show the versions that stay of these. Their data
    files are those of the shards, but for some that are in a folder of their own."""
    named = dict.fromkeys(filter(None, (purge_obstacles.merged_of(config, each.name) for each in shards)))
    merged = [name for name in named if opened_tables.is_table(config.table_path(name))]
    if merged:
        merged_tables.refresh(config, held, report)
    for name in merged:
        own = [each for each in shards if purge_obstacles.merged_of(config, each.name) == name]
        _refuse_shown_as_before(config.table_path(name), own)
    left = []
    for name in merged:
        path, began_us = config.table_path(name), now_us()
        held.check()
        past = purged_log.leave(path, _note_of(config), CONVERTED)
        fault("past left")
        table_id = str(opened_tables.newest(path).metadata().id)
        outcome = BesideOutcome(name, table_id, "following", past.version)
        table_versions.note_going_on(held.metadata, outcome, began_us=began_us)
        noted = table_versions.note_readable_since(held.metadata, name, past.version)
        left.append(_Left(name, table_id, (), past, noted))
    return left


def _refuse_shown_as_before(path: str, shards: Sequence[_Left]) -> None:
    """Raise LakeError where a merged table doesn't show a shard at the version that stays of it."""
    from binlake.delta import composed_table  # it imports pyarrow, which most lakes don't need for this

    for each in shards:
        version = composed_table.shown_version(path, each.past.path)
        if version not in (None, each.past.version):
            raise LakeError(
                f"{each.name} can't be purged: {path} doesn't show it as it is",
                remedy="binlake status says why; then purge",
            )


@contextmanager
def _restored_if_refused(metadata: Metadata, left: Sequence[_Left]) -> Iterator[None]:
    """Note that all versions can be read as before, where the block refuses that they go."""
    try:
        yield
    except BinlakeError:
        for each in left:
            table_versions.restore_readable_since(metadata, each.name, each.noted, each.past.version)
        raise


def _refuse_new_pins(metadata: Metadata, left: Sequence[_Left]) -> None:
    """Raise UsageError where a version that is about to go was pinned since the look."""

    def pinned(each: _Left) -> Iterator[Obstacle]:
        name, version = each.name, each.past.version
        return purge_obstacles.pinned(metadata, lambda table: table.name == name and table.delta_version < version)

    _refuse([(each.name, obstacle) for each in left for obstacle in pinned(each)])


def _purged(config: PipelineConfig, held: Lease, left: _Left, report: Report) -> PurgedTable:
    """Remove the past of a table."""
    past = left.past
    held.check()
    _publish_alone(config, held, left.name, report)
    gone = purged_log.remove(past)
    for copy in left.copies:
        files.remove_folder(config.table_path(copy))
    fault("past removed")
    return PurgedTable(str(left.name), left.table_id, past.version, gone.files, gone.bytes, gone.log_files)


def _publish_alone(config: PipelineConfig, held: Lease, name: TableName, report: Report) -> None:
    """Publish a table's only version as Iceberg; what was published, and isn't any more, goes."""
    path = config.table_path(name)
    if not is_published(config, name):
        files.remove_folder(f"{path}/{FOLDER.partition('/')[0]}")
        return
    from binlake.iceberg.publication import publish_alone  # it imports fastavro

    publish_alone(path)
    if config.reached_catalogs:
        from binlake.registered import published_names

        published_names.begin_again(config, held.metadata, name, path, report)


def _purge_staging(config: PipelineConfig, asked: Sequence[Purgeable]) -> None:
    for batch in sorted({batch for each in asked for batch in each.batches}):
        files.remove_folder(config.staging_path(str(batch)))


def _purge_metadata(config: PipelineConfig, held: Lease) -> None:
    """Remove earlier versions of binlake's own tables; those that others write have no values of rows."""
    for name in SCHEMAS:
        location = held.metadata.location(name)
        if name not in OTHERS_WRITE and opened_tables.is_table(location):
            held.check()
            purged_log.remove(purged_log.leave(location, _note_of(config)))
            fault("metadata purged")


def _note_of(config: PipelineConfig) -> dict[str, Any]:
    return {"binlake": {"source": config.source.name, "maintain": KIND}}


def _note(held: Lease, result: PurgeReport, run: str | None, began_us: int, seconds: float) -> None:
    control = held.control()
    of_run = OtherRun(
        kind=KIND,
        run=run,
        batch=control.batch,
        position=control.position,
        phase=(KIND, round(seconds, 2)),
        message=result.to_text(),
        began_us=began_us,
        tables=[asdict(table) for table in result.purged],
        size=sum(table.bytes for table in result.purged),
    )
    note_run(held.metadata, of_run)
