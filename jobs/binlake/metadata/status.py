"""The status of a source, read from metadata alone: no server, no JVM."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

from binlake.batch.steps import LEFT_OUT
from binlake.config import PipelineConfig
from binlake.delta.attempts import OF_KEYS
from binlake.errors import TAKEN_REMEDY
from binlake.metadata import decisions, feed_watermarks, followers, lease, verified, watermarks
from binlake.metadata.failures import FAILED
from binlake.metadata.feed_watermarks import FeedStatus
from binlake.metadata.followers import FollowerStatus
from binlake.metadata.metadata import Metadata, Newest, now_us
from binlake.moment import moment_text
from binlake.schema.table import TableName

_SUCCEEDED = "kind IN ('sync', 'bootstrap')"
"""Predicate of runs that moved the lake forward."""
_BETWEEN_TASKS_US = 10 * 60 * 1_000_000
"""Microseconds for which an open batch may have no run at work: Airflow starts the next task."""


@dataclass(frozen=True)
class SnapshotStatus:
    """A snapshot that isn't committed: how many of its chunks are copied, their rows, and when it was planned."""

    table: str
    chunks: int
    copied: int
    rows: int
    begun_us: int | None = None


@dataclass(frozen=True)
class FailedRun:
    """An attempt that failed. run: Airflow's ``DAG/RUN``, else a generated id. batch: the one that was open then."""

    run: str
    phase: str
    batch: int | None
    ended_us: int
    message: str


@dataclass(frozen=True)
class SourceStatus:
    """The source's position, its open batch, who holds its lease, and each table's watermark.

    holder_died: the holder was a process of this machine that is gone; unknown for one elsewhere. carried_us: what was
    committed before is in the lake, whether or not a batch is open: see _carried.
    """

    source: str
    batch: int
    position: str | None
    open_batch: dict[str, Any] | None
    holder: str | None
    tables: tuple[dict[str, Any], ...]
    last_run: dict[str, Any] | None
    poison: tuple[dict[str, Any], ...] = ()
    """Events that stop the open batch: file, offset, reason, remedy."""
    holder_died: bool = False
    carried_us: int | None = None
    snapshots: tuple[SnapshotStatus, ...] = ()
    feeds: tuple[FeedStatus, ...] = ()
    failed: FailedRun | None = None
    """The newest attempt, if it failed."""
    follower: FollowerStatus | None = None
    """The process that follows the log, if one does."""

    @property
    def abandoned(self) -> str:
        """Say which open batch no run works on, and why; empty if there is none."""
        opened = self.open_batch
        if opened is None or not opened["abandoned"]:
            return ""
        began = f", begun at {moment_text(opened['planned_us'])}," if opened["planned_us"] else ""
        return f"batch {opened['batch']}{began} isn't finished: {opened['abandoned']}"

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "batch": self.batch,
            "position": self.position,
            "open_batch": self.open_batch,
            "holder": self.holder,
            "holder_died": self.holder_died,
            "tables": list(self.tables),
            "last_run": self.last_run,
            "poison": list(self.poison),
            "carried_us": self.carried_us,
            "snapshots": [asdict(snapshot) for snapshot in self.snapshots],
            "feeds": [asdict(feed) for feed in self.feeds],
            "failed": asdict(self.failed) if self.failed else None,
            "follower": asdict(self.follower) if self.follower else None,
        }


def _table(config: PipelineConfig, row: dict[str, Any], through: dict[str, Any] | None) -> dict[str, Any]:
    """Return a watermark as the YAML decides now: what it leaves out isn't followed, and what it includes again will
    be."""
    name = TableName(row["database"], row["table"])
    follows = config.included(name) or config.ghost(name)
    if not follows and row["status"] in ("following", "stopped", "resnapshot", "missing"):
        row = {**row, "status": "excluded", "reason": LEFT_OUT.reason, "remedy": LEFT_OUT.remedy}
    if follows and row["status"] == "excluded":
        row = {**row, "reason": "the YAML includes it again", "remedy": "run binlake sync, which brings it up to date"}
    if follows and row["status"] in ("missing", "resnapshot") and (why := config.taken_by(name)):
        row = {**row, "reason": why, "remedy": TAKEN_REMEDY}  # a snapshot would be refused
    kept = ("status", "batch", "position", "delta_version", "reason", "remedy", "table_id")
    return {
        "table": f"{row['database']}.{row['table']}",
        **{key: row[key] for key in kept},
        "verified_through": through,
    }


def read_status(config: PipelineConfig, metadata: Metadata | None = None) -> SourceStatus:
    """Return a source's status. metadata: the source's, where the caller has it open."""
    metadata = metadata or Metadata(config.metadata_path("").rstrip("/"))
    control = lease.read(metadata)
    last = next(iter(metadata.read("runs", where=_SUCCEEDED, newest=Newest("ended_us", 1))), None)
    failed = _failed(metadata, last, is_open=control.open is not None)
    through, follower = verified.through(metadata), followers.read_status(metadata)
    tables = [_table(config, row, through.get(row["table_id"])) for row in watermarks.read(metadata)]
    return SourceStatus(
        source=config.source.name,
        batch=control.batch,
        position=str(control.position) if control.position else None,
        open_batch=_open_batch(metadata, control, failed),
        holder=control.holder,
        holder_died=control.holder_died,
        tables=tuple(sorted(tables, key=lambda row: row["table"])),
        poison=tuple(
            {key: row[key] for key in ("file", "offset", "reason", "remedy")}
            for row in (decisions.poison(metadata, control.open.batch) if control.open else [])
        ),
        carried_us=_carried(metadata, control.recorded_state, follower) if control.recorded_state else None,
        snapshots=tuple(_unfinished(metadata)),
        feeds=tuple(feed_watermarks.statuses(config, metadata)),
        failed=failed,
        follower=follower,
        last_run={**last, "tables": json.loads(last["tables"]), "phases": json.loads(last["phases"])} if last else None,
    )


def _failed(metadata: Metadata, last: dict[str, Any] | None, *, is_open: bool) -> FailedRun | None:
    """Return the newest attempt if it failed, and no run succeeded since. A run that found nothing leaves no row, but
    notes the server's log."""
    columns = ["run", "phases", "batch", "ended_us", "message"]
    for row in metadata.read("runs", columns, where=f"kind = '{FAILED}'", newest=Newest("ended_us", 1)):
        since = [last["ended_us"]] if last else []
        if not is_open:
            since += [seen["at_us"] for seen in metadata.read("source_log", ["at_us"], newest=Newest("at_us", 1))]
        if all(at_us <= row["ended_us"] for at_us in since):
            phase = next(iter(json.loads(row["phases"])))
            return FailedRun(row["run"], phase, row["batch"], row["ended_us"], row["message"])
    return None


def _open_batch(metadata: Metadata, control: lease.Control, failed: FailedRun | None) -> dict[str, Any] | None:
    """Return the open batch: batch, state, stop, planned_us, and ``abandoned``, why no run works on it, or None."""
    opened = control.open
    if opened is None:
        return None
    return {
        "batch": opened.batch,
        "state": opened.state,
        "stop": str(opened.range.stop),
        "planned_us": opened.planned_us or None,
        "abandoned": _abandoned(metadata, control, opened.batch, failed),
    }


def _abandoned(metadata: Metadata, control: lease.Control, batch: int, failed: FailedRun | None) -> str | None:
    if control.holder and not control.holder_died:
        return None
    if control.holder_died:
        return f"{control.holder}, which worked on it, died"
    if failed and failed.batch == batch:
        return f"its run failed in {failed.phase}"
    # Between two of Airflow's tasks nobody holds the lease.
    since_us = max(
        (row["updated_us"] for row in metadata.read("batches", ["updated_us"], where=f"batch = {batch}")), default=0
    )
    return "no run works on it" if now_us() - since_us > _BETWEEN_TASKS_US else None


def _carried(metadata: Metadata, recorded: lease.RecordedState, follower: FollowerStatus | None = None) -> int | None:
    """Return a time in microseconds: what was committed before is in the lake. None if it isn't known.

    A process that follows looks again and again, also where nothing is new, and so knows a later time than its batches.
    """
    carried = _carried_by_batches(metadata, recorded)
    if follower is None or follower.behind_seconds is None:
        return carried
    return max(carried or 0, int(follower.at_us - follower.behind_seconds * 1e6))


def _carried_by_batches(metadata: Metadata, recorded: lease.RecordedState) -> int | None:
    """Return such a time by the batches that were recorded.

    It is when the batch that was recorded last was planned, or the time at which that batch was to stop; if the log is
    followed from a bootstrap's position, it is when that bootstrap began.
    """
    where = f"batch = {recorded.batch} AND state = 'recorded'"
    batches = metadata.read("batches", ["until_us", "planned_us", "stop"], where=where)
    times = [int(row["until_us"] or row["planned_us"]) for row in batches]
    if any(row["stop"] == str(recorded.position) for row in batches):
        return max(times)
    bootstraps = metadata.read("runs", ["started_us", "position"], where="kind = 'bootstrap'")
    times += [int(row["started_us"]) for row in bootstraps if row["position"] == str(recorded.position)]
    if times or not bootstraps:
        return max(times, default=None)
    return min(int(row["started_us"]) for row in bootstraps)


def _unfinished(metadata: Metadata) -> list[SnapshotStatus]:
    """Return the newest snapshot of each table, unless it is committed."""
    chunks: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    columns = ["snapshot", "database", "table", "state", "rows", "updated_us"]
    if not metadata.read("snapshots", ["snapshot"], where="state <> 'committed'", newest=Newest("updated_us", 1)):
        return []
    for row in metadata.read("snapshots", columns):
        if row["snapshot"].endswith(OF_KEYS):
            continue
        chunks[f"{row['database']}.{row['table']}", row["snapshot"]].append(row)
    newest: dict[str, list[dict[str, Any]]] = {}
    for (table, _), rows in sorted(chunks.items(), key=lambda item: max(row["updated_us"] for row in item[1])):
        newest[table] = rows
    return [
        SnapshotStatus(
            table,
            len(rows),
            len(copied),
            sum(row["rows"] or 0 for row in copied),
            min(row["updated_us"] for row in rows),
        )
        for table, rows in sorted(newest.items())
        if any(row["state"] != "committed" for row in rows)
        for copied in [[row for row in rows if row["state"] != "planned"]]
    ]
