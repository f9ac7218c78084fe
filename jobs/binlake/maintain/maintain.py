"""Maintain: the upkeep of a lake that lives for years, beside the syncs that write it.

    look      which tables may be touched, and that nobody else changed their rows
    layout    small files are put together, overlapping ones sorted by the key (delta/layout.py)
    vacuum    files that no promised version needs go, and of Delta's log what is older than promised
    metadata  our own tables: few files, rows as long as promised; what dead runs left in staging goes

A table with nothing to do costs no Spark. Why all this is safe beside a sync, and when it is killed:

1. All commits are made under the lease, and while no batch is open (held_between_batches): so no MERGE has read what we
replace, no snapshot is between its fence and its rows, no table is dropped or moved under us, and no process that looks
at the newest commit of its own table finds ours there. It is held for moments, for which
    others wait.
2. The long part, writing rows into new files, happens without the lease; nobody reads these before the commit. Delta
refuses the commit if one of the old files was taken away meanwhile: the table's files are chosen again.
3.  The commit changes no data (``dataChange = false``), carries no application id, and as many rows as it took away:
    what is recorded of a life in the table, ``recorded()``, stays. It names no life, so it belongs to whichever was
    there before it, and to upkeep (``delta_log.last_change``).
4.  After it the table's watermark knows the Delta version; before that it is proved that nobody else changed rows since
    the version known before. Killed in between, the next sync finds an OPTIMIZE there, which changes no rows.
5.  Ranges of keys that a MERGE has worked out by the files before (delta/key_ranges.py) are true of the same rows in
    any files; and by 1 no MERGE is under way.
6. A zombie, which lost the lease before we took it, may have read old files: its MERGE conflicts and begins again under
    its own transaction version, which is recorded by then. If we wake as one, our commit meets Delta's rules alone:
    it is refused, or the process that it precedes begins again; a snapshot ends with an error, and is taken up by the
    next run.
7.  The vacuum keeps what pinned versions need (lake/pins.py), and all that was needed since the look, whatever the
    promise: at the look no batch was open and the watermarks knew the newest versions, so no batch needs a file that
    was replaced by then, and files of writers that began since are younger. It commits nothing, so it may run beside
    anybody. Before files go it is written from which version on the table can be read; then pins are looked for.
8.  Tables whose snapshot isn't finished, and those that don't follow (stopped, to be snapshotted), are left alone:
    uncommitted files may be needed there. Of dropped ones, whose rows are kept as they are, replaced files go.
9.  Our own tables are only rewritten under the lease, which all their writers hold. Files that were replaced stay for
    as long as a writer may sleep.
10. Each act is whole by itself and looks for its work again: killed anywhere, the next run continues.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from deltalake.exceptions import DeltaError

from binlake.config import PipelineConfig
from binlake.config.schema_change_tools import has_tools_name
from binlake.config.units import HOUR_SECONDS
from binlake.delta import opened_tables
from binlake.delta.delta_log import LakeLog
from binlake.errors import LakeError
from binlake.faults import fault
from binlake.lake import merged_tables, pins
from binlake.lake.pins import PinnedVersions
from binlake.lease.lease import Lease
from binlake.maintain.needs import Table, needs_of
from binlake.maintain.table_upkeep import (
    MAINTAINED,
    SIDE_BY_SIDE,
    TablesUpkeep,
    TableUpkeep,
    held_between_batches,
    lives_asked,
    tables_being_copied,
    tables_beside,
)
from binlake.planner.steps import Life
from binlake.records import ddl_history, expiry, feed_watermarks, leftovers, lost_tables, watermarks
from binlake.records.expiry import MetadataUpkeep
from binlake.records.record import OtherRun, note_run
from binlake.report import Report, counted
from binlake.snapshot import attempts
from binlake.spark.starting import SessionAsked, SessionFactory
from binlake.store.metadata import Metadata, now_us

PATIENCE = 900.0
"""Seconds that are waited for a sync at work."""


@dataclass(frozen=True)
class MaintainReport:
    """The work of one run. folders_removed: those of tables that were never committed, and of dropped ones that were
    kept for pinned versions. pinned_versions: number of batches that are pinned. why_spark: why Spark was started;
    empty where it wasn't."""

    tables: tuple[TableUpkeep, ...]
    metadata: tuple[MetadataUpkeep, ...]
    staging_removed: tuple[str, ...]
    folders_removed: tuple[str, ...]
    seconds: float
    pinned_versions: int = 0
    why_spark: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return asdict(self)

    @property
    def headline(self) -> str:
        """Return one line with the numbers of files and folders that were rewritten or removed."""
        rewritten, written, removed = (
            sum(getattr(table, name) for table in self.tables)
            for name in ("rewritten_files", "written_files", "removed_files")
        )
        log = sum(table.removed_log_files for table in self.tables)
        ours = sum(table.removed_files for table in self.metadata)
        return (
            f"{counted(len(self.tables), 'table')}: {counted(rewritten, 'data file')} became {written:,}; deleted: "
            f"{counted(removed, 'old data file')}, {counted(log, 'file')} of Delta's logs, "
            f"{counted(ours, 'file')} of metadata, {counted(len(self.staging_removed), 'folder')} of staging"
            + (f", {counted(len(self.folders_removed), 'folder')} of earlier tables" if self.folders_removed else "")
            + self._pinned
        )

    @property
    def _pinned(self) -> str:
        if not self.pinned_versions:
            return ""
        megabytes = sum(table.pinned_bytes for table in self.tables) / 1e6
        versions = (
            "1 pinned version keeps" if self.pinned_versions == 1 else f"{self.pinned_versions} pinned versions keep"
        )
        return f"; {versions} {megabytes:,.1f} MB of files"


def maintain(
    config: PipelineConfig,
    session: SessionFactory,
    metadata: Metadata,
    report: Report,
    *,
    tables: list[str] | None = None,
    run: str | None = None,
    patience: float = PATIENCE,
) -> MaintainReport:
    """Rewrite and vacuum the tables that patterns name, else all, and our own.

    run: its name in metadata's runs. patience: seconds to wait for a sync at work. Raises UsageError where a batch
    stays open, LeaseHeld where another run works for longer, and a table's error once the others are done.
    """
    began, began_us = time.monotonic(), now_us()
    lost_tables.refuse(metadata, "maintain")
    asking = SessionAsked(session)
    if config.tables.merge_tables:  # they name the newest files of their shards, before older ones go
        with held_between_batches(metadata, patience) as held:
            merged_tables.refresh(config, held, report)
    work = TablesUpkeep(config, asking, metadata, report, patience)
    done = work.tables(tables)
    feed_watermarks.forget_dead_tails(metadata)  # staging is kept for them otherwise
    with held_between_batches(metadata, patience) as held:
        work.note_sizes(held)
        ours = expiry.keep_metadata(held.metadata, config.maintain)
        fault("metadata compacted")
        removed = _remove_leftovers(config, held)
        unneeded = [*_remove_unborn(config, held), *_remove_dropped(config, held)]
        fault("leftovers removed")
        if config.reached_catalogs:
            from binlake.registered import published_names  # most sources have no catalog

            published_names.follow_all(config, held.metadata, report)
        seconds = round(time.monotonic() - began, 2)
        pinned = len(pins.read(held.metadata))
        result = MaintainReport(tuple(done), tuple(ours), tuple(removed), tuple(unneeded), seconds, pinned, asking.why)
        _note(held, result, run, began_us)
    report.say(result.headline)
    for error in work.failed:
        raise error
    return result


def wants_spark(config: PipelineConfig, metadata: Metadata, tables: Sequence[str] | None = None) -> bool:
    """Return whether the upkeep of the tables that patterns name, else of any, needs Spark now.

    Needs neither server nor Spark. A table that can't be read is reported by the upkeep, which continues with the
    others. Raises UsageError for a pattern that no table matches.
    """
    looked = time.time()
    pinned = PinnedVersions((), {})  # they hold back no Spark

    def one_wants(life: Life) -> bool:
        with suppress(LakeError, DeltaError, OSError):
            asked = [Table(life, LakeLog.of(config, life.name, life.id)), *tables_beside(config, life.name)]
            return any(table.log.exists() and needs_of(config, table, looked, pinned).spark for table in asked)
        return False

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        lives = (life for life in lives_asked(metadata, tables) if life.status in MAINTAINED)
        return any(pool.map(one_wants, lives))


def _remove_leftovers(config: PipelineConfig, held: Lease) -> list[str]:
    """Remove what recorded batches and dead snapshots left in staging; return the folders."""
    recorded_state = held.control().recorded_state
    removed = leftovers.remove_recorded(config, recorded_state) if recorded_state else []
    return removed + attempts.remove_dead(config, lambda: expiry.unfinished_snapshots(held.metadata))


def _remove_unborn(config: PipelineConfig, held: Lease) -> list[str]:
    """Remove folders of tables that were never committed, unless a snapshot may continue there; return them."""
    lives = {life.name for life in watermarks.read_lives(held.metadata)}
    before = time.time() - config.maintain.history_hours * HOUR_SECONDS
    return leftovers.remove_unborn(config, lives | tables_being_copied(held.metadata), before)


def _remove_dropped(config: PipelineConfig, held: Lease) -> list[str]:
    """Remove folders of dropped tables that no pinned version needs any more; return them."""
    lives = watermarks.read_lives(held.metadata)
    living = {life.name for life in lives if life.status != "dropped"}
    names = {life.name for life in lives if config.goes_when_dropped(life.name) or has_tools_name(life.name.table)}
    there = (name for name in sorted(names - living) if opened_tables.is_table(config.table_path(name)))
    position = held.control().position
    gone = [
        name
        for name in there
        if config.goes_when_dropped(name) or (position and ddl_history.was_tools(held.metadata, name, position.flavour))
    ]
    return [config.table_path(name) for name in pins.remove_dropped(config, held.metadata, gone)]


def _note(held: Lease, result: MaintainReport, run: str | None, began_us: int) -> None:
    control = held.control()
    noted = OtherRun(
        kind="maintain",
        run=run,
        batch=control.batch,
        position=control.position,
        phase=("maintain", result.seconds),
        message=result.headline,
        began_us=began_us,
        tables=[asdict(table) for table in result.tables],
        size=sum(table.removed_bytes for table in result.tables),
        why_spark=result.why_spark,
    )
    note_run(held.metadata, noted)
