"""Decisions of people about tables and events; each is recorded with the person who made it and the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from binlake.config import PipelineConfig
from binlake.config.column_policies import masks_any
from binlake.errors import SNAPSHOTTED_BY_ITSELF, UsageError, resume_command
from binlake.lease import copier, lease
from binlake.lease.lease import Lease
from binlake.planner.steps import Life, Standstill, Status
from binlake.position import Slice
from binlake.records import feed_watermarks, watermarks
from binlake.schema.table import TableName
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import DecisionRow, QuarantineRow, WatermarkRow

if TYPE_CHECKING:
    from binlake.binlog.locate import Place

CANCELLED = " cancelled"
"""How the action ends that ended a run of Airflow; the DAG's kind comes before it."""


@dataclass(frozen=True)
class Reason:
    """The person who decides, and why: words for those who read it later."""

    who: str
    why: str

    def __str__(self) -> str:
        return f"by {self.who}: {self.why}" if self.why else f"by {self.who}"


def note(metadata: Metadata, action: str, reason: Reason, names: Iterable[TableName] = (), **about: Any) -> None:
    """Record what a person decided or asked for. names: the tables that it is about. about: more of its columns."""
    columns = {"at_us": now_us(), **vars(reason), "action": action, **about}
    DecisionRow.append(metadata, [DecisionRow(**columns, **vars(name)) for name in names] or [DecisionRow(**columns)])


def pause(config: PipelineConfig, name: TableName, reason: Reason) -> str:
    """Leave a table as it is while the others continue, and return a message; resume brings it up to them."""
    with lease.held(_metadata(config)) as held:
        metadata = held.metadata
        refuse_open_batch(held)
        row = row_of(metadata, name, "following")
        _set(metadata, row, "paused", f"paused {reason}", resume_command(name))
        result = f"{name} is paused at {row.position}"
        note(metadata, "pause", reason, [name], batch=row.batch, result=result)
    return result


def resnapshot(config: PipelineConfig, name: TableName, reason: Reason) -> str:
    """Let the next sync snapshot the table again, and return a message."""
    with lease.held(_metadata(config)) as held:
        metadata = held.metadata
        refuse_open_batch(held)
        row = row_of(metadata, name, "following", "stopped", "paused", "catching up", "missing", "resnapshot")
        _set(metadata, row, "resnapshot", f"asked for {reason}", SNAPSHOTTED_BY_ITSELF)
        result = f"{name} is snapshotted again by the next sync"
        note(metadata, "resnapshot", reason, [name], batch=row.batch, result=result)
    return result


def skip_event(config: PipelineConfig, place: Place, reason: Reason) -> str:
    """Step over the event that stopped the open batch from now on, and return a message."""
    file, offset = place
    with lease.held(_metadata(config)) as held:
        metadata = held.metadata
        opened = held.control().open
        stopped = [row for row in poison(metadata, opened.batch if opened else -1) if (row.file, row.offset) == place]
        if opened is None or not stopped:
            raise UsageError(
                f"nothing stopped at {file}:{offset}", remedy="binlake status names the event that stops the open batch"
            )
        if not stopped[0].raw and (masks_any(config.columns) or config.tables.exclude_columns):
            raise UsageError(
                f"{file}:{offset} can't be stepped over where columns are masked or excluded: it may have given one of"
                " them another name, under which its values would be shown",
                remedy="run binlake snapshot --config FILE to begin again, behind it",
            )
        if not stopped[0].raw:
            raise UsageError(
                f"{file}:{offset} can't be stepped over: where its event ends isn't known ({stopped[0].reason})",
                remedy=stopped[0].remedy,
            )
        created = next(part.created for part in opened.range.slices if part.file == file)
        result = f"{file}:{offset} is stepped over; what it did is not in the lake. Verify the tables it may concern"
        about: dict[str, Any] = {"file": file, "offset": offset, "created": created, "batch": opened.batch}
        note(metadata, "skip-event", reason, **about, result=result)
    return result


def unlock(config: PipelineConfig, reason: Reason, feed: str | None = None) -> str:
    """Take the lease of the source and the copying of its tables, or the lease of a feed, from a holder whose end can't
    be seen from here, and return a message.

    Raises UsageError where the holder is alive here.
    """
    metadata = _metadata(config)
    about = f"source {config.source.name}" if feed is None else f"feed {feed}"
    if feed is None:
        holders = [lease.take_away(metadata), copier.take_away(metadata)]
    else:
        holders = [feed_watermarks.take_away(metadata, feed)]
    holder = next(filter(None, holders), None)
    if holder is None:
        return f"nobody holds {about}"
    result = f"{about} is free: it was held by {holder}, which can write nothing of it any more"
    note(metadata, "unlock", reason, result=result)
    return result


def skips(metadata: Metadata) -> Callable[[Slice], frozenset[int]]:
    """Return a function that gives the offsets of a slice's events that are to be stepped over."""
    rows = [row for row in DecisionRow.read(metadata) if row.action == "skip-event"]

    def of(part: Slice) -> frozenset[int]:
        return frozenset(row.offset or 0 for row in rows if (row.file, row.created) == (part.file, part.created))

    return of


def poison(metadata: Metadata, batch: int) -> list[QuarantineRow]:
    """Return the events that stop a batch, without those that were decided upon."""
    decided = {(row.file, row.offset) for row in DecisionRow.read(metadata) if row.batch == batch}
    return [
        row
        for row in QuarantineRow.read(metadata)
        if row.batch == batch and row.table is None and (row.file, row.offset) not in decided
    ]


def following(metadata: Metadata, name: TableName) -> Life:
    """Return a table's life. Raises UsageError where it follows no log."""
    row = row_of(metadata, name, "following")
    return next(life for life in watermarks.read_lives(metadata) if life.id == row.table_id)


def _metadata(config: PipelineConfig) -> Metadata:
    return Metadata(config.metadata_path("").rstrip("/"))


def refuse_open_batch(held: Lease) -> None:
    """Raise UsageError where a batch is open."""
    opened = held.control().open
    if opened is not None:
        raise UsageError(
            f"batch {opened.batch} is open ({opened.state})", remedy="run binlake sync to finish it, then decide again"
        )


def row_of(metadata: Metadata, name: TableName, *allowed: Status) -> WatermarkRow:
    """Return the watermark of a table's life. Raises UsageError where there is none in such a state."""
    rows = [row for row in watermarks.read(metadata) if row.name == name]
    living = [row for row in rows if row.status != "dropped"]
    if not living:
        raise watermarks.not_known(metadata, name)
    row = living[0]
    if row.status not in allowed:
        raise UsageError(f"{name} is {row.status}", remedy=f"this is for a table that is {' or '.join(allowed)}")
    return row


def _set(metadata: Metadata, row: WatermarkRow, status: Status, reason: str, remedy: str) -> None:
    changed = row.standing(status, Standstill(reason, remedy))
    watermarks.write(metadata, [replace(changed, updated_us=now_us())])


def row_to_resume(metadata: Metadata, name: TableName) -> WatermarkRow:
    """Return the watermark of a table that can go through what it missed. Raises UsageError."""
    return row_of(metadata, name, "paused", "stopped", "catching up")


def follows(metadata: Metadata, name: TableName) -> bool:
    """Return whether a table follows the log."""
    rows = WatermarkRow.read(metadata, "database", "table", "status")
    return any(row.name == name and row.status == "following" for row in rows)
