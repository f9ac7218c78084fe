"""All that is known of a source and decides its health: its metadata, its limits, and what Airflow alone knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from binlake.config import PipelineConfig
from binlake.config.orchestration import RepairPolicy
from binlake.config.units import HOUR_US
from binlake.lease import lease
from binlake.records import runs, watermarks
from binlake.records.decisions import CANCELLED, Reason
from binlake.records.record import log_noted
from binlake.records.runs import Verified
from binlake.records.status import SourceStatus
from binlake.source.ahead import Ahead, LogSeen
from binlake.store.metadata import Metadata
from binlake.store.rows import DecisionRow, ShapeRow


@dataclass(frozen=True)
class LogStanding(LogSeen):
    """The server's log as last seen, compared with what is merged.

    bytes_ahead: bytes of log that aren't merged. kept_until_us: the time before which the log that is needed next isn't
    purged by age; None if it is kept for ever, or the retention is unknown.
    """

    kept_until_us: int | None = None


@dataclass(frozen=True)
class HealthLimits:
    """The settings that say what is healthy, see PipelineConfig, AirflowConfig and VerifyConfig. repair: who may put
    differing rows right. watched_at: when Airflow's DAG of the limits looks at the log."""

    schedule: str | None = None
    lag_minutes: float | None = None
    retention_hours: float | None = None
    verify_schedule: str | None = None
    repair: RepairPolicy = "ask"
    watched_at: str | None = None

    @classmethod
    def of(cls, config: PipelineConfig) -> HealthLimits:
        """Return the limits of a source."""
        airflow, verify = config.airflow, config.verify
        return cls(
            config.schedule,
            airflow.lag_minutes,
            airflow.retention_hours,
            verify.schedule,
            verify.repair,
            airflow.watched_at,
        )


@dataclass(frozen=True)
class DagState:
    """A DAG of the source in Airflow. next_run_us: when the scheduler makes its next run."""

    dag_id: str
    is_paused: bool
    next_run_us: int | None


@dataclass(frozen=True)
class FailedDagRun:
    """The newest run of a DAG that is over, where it failed. task: that failed first, empty where none did. reason: the
    last line of its log that says something; empty where that isn't known."""

    run_id: str
    ended_us: int
    task: str = ""
    reason: str = ""


@dataclass(frozen=True)
class AirflowState:
    """What Airflow knows. dags, failed: by kind (bootstrap, sync …). heartbeat_us: the newest sign of life of a
    scheduler; None where none gave one. is_alive: whether that is recent. at_work: since when a run of each kind that
    has one runs; None while all of them are queued."""

    dags: Mapping[str, DagState] = field(default_factory=dict)
    failed: Mapping[str, FailedDagRun] = field(default_factory=dict)
    heartbeat_us: int | None = None
    is_alive: bool = True
    at_work: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """The facts about a source that are known at one time. compared: the newest comparison of each table with the
    server, by ``database.table``. log: None before the first look at it. airflow: None where it isn't asked.
    unreadable: why the files of a table can't be read, by its name. unmirrored: tables without a mirror to compare.
    cancelled: who ended runs that failed in Airflow, and why, by ``DAG/RUN``."""

    status: SourceStatus
    now_us: int
    limits: HealthLimits = HealthLimits()
    compared: Mapping[str, Verified] = field(default_factory=dict)
    log: LogStanding | None = None
    airflow: AirflowState | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)
    unmirrored: frozenset[str] = frozenset()
    cancelled: Mapping[str, Reason] = field(default_factory=dict)

    @property
    def dags(self) -> Mapping[str, DagState]:
        """Return the DAGs that Airflow has, by kind."""
        return self.airflow.dags if self.airflow else {}

    @property
    def is_copied_first(self) -> bool:
        """Return whether the first snapshot is being taken, from the moment on at which its run is queued."""
        is_held = bool(self.status.holder) and not self.status.holder_died
        return self.status.position is None and (is_held or "bootstrap" in self.at_work)

    @property
    def at_work(self) -> Mapping[str, int | None]:
        """Return Airflow's runs at work, see AirflowState."""
        return self.airflow.at_work if self.airflow else {}

    @property
    def carried_us(self) -> int | None:
        """Return the time before which the lake has every commit; None if it isn't known."""
        return carried_us(self.status, self.log)

    @property
    def lag_seconds(self) -> float | None:
        """Return how far behind the lake is, see the function of this name."""
        return lag_seconds(self.status, self.log, self.now_us)

    @property
    def lag_known_us(self) -> int | None:
        """Return the time of the look by which ``lag_seconds`` is known; None before the first one."""
        looks = [self.log.at_us if self.log else None, self.status.follower.at_us if self.status.follower else None]
        return max((us for us in looks if us is not None), default=None)

    @property
    def headroom_seconds(self) -> float | None:
        """Return for how many seconds the log that is needed next is kept; None if that isn't known, or for ever."""
        return (self.log.kept_until_us - self.now_us) / 1e6 if self.log and self.log.kept_until_us else None


def carried_us(status: SourceStatus, log: LogStanding | None) -> int | None:
    """Return the time before which the lake has every commit, by metadata or by a look at the log, which proves as much
    where the log had nothing more. None if it isn't known."""
    if status.carried_us is None or log is None or log.bytes_ahead != 0:
        return status.carried_us
    return max(status.carried_us, log.at_us)


def lag_seconds(status: SourceStatus, log: LogStanding | None, now_us: int) -> float | None:
    """Return for how many seconds there may be commits that the lake lacks, by the newest look at the log, so that it
    doesn't grow while nothing is written; None if that isn't known."""
    follower, carried = status.follower, carried_us(status, log)
    if follower and follower.behind_seconds is not None and (log is None or follower.at_us >= log.at_us):
        return follower.behind_seconds
    if carried is None:
        return None
    return 0.0 if log and log.bytes_ahead == 0 else max(0.0, (now_us - carried) / 1e6)


def evidence_of(
    config: PipelineConfig,
    metadata: Metadata,
    status: SourceStatus,
    now_us: int,
    airflow: AirflowState | None = None,
    ahead: Ahead | None = None,
) -> Evidence:
    """Return what metadata have about a source. ahead: what its log has beyond the lake now, where it was asked."""
    return Evidence(
        status=status,
        now_us=now_us,
        limits=HealthLimits.of(config),
        compared=comparisons(metadata, status),
        log=log_standing(metadata, status, now_us, ahead),
        airflow=airflow,
        unmirrored=frozenset(text for text, name in watermarks.names(metadata).items() if not config.is_read(name)),
        cancelled=_cancelled(metadata, status.source, airflow.failed if airflow else {}),
    )


def _cancelled(metadata: Metadata, source: str, failed: Mapping[str, FailedDagRun]) -> dict[str, Reason]:
    """Return who cancelled which of the runs, and why."""
    runs_failed = {f"binlake_{source}_{what}/{run.run_id}" for what, run in failed.items()}
    if not runs_failed:
        return {}
    made = DecisionRow.read(metadata, "who", "why", "action", "run", where="run IS NOT NULL")
    by_run = {row.run: Reason(row.who, row.why) for row in made if row.action.endswith(CANCELLED)}
    return {run: reason for run, reason in by_run.items() if run in runs_failed}


def log_standing(
    metadata: Metadata, status: SourceStatus, now_us: int = 0, ahead: Ahead | None = None
) -> LogStanding | None:
    """Return what is known of the server's log; None before the first run that noted it. ahead: what it has beyond the
    lake at ``now_us``; None where it wasn't asked."""
    seen = log_noted(metadata)
    if seen is None:
        return None
    known = LogStanding(**{key: value for key, value in seen.values().items() if key not in ("batch", "kind")})
    if ahead:
        known = replace(known, at_us=now_us, head=ahead.head, bytes_ahead=ahead.bytes, server=ahead.server or None)
    elif known.bytes_ahead is not None and (opened := lease.read(metadata).open):  # what is planned counts as merged
        known = replace(known, bytes_ahead=known.bytes_ahead + opened.range.size)
    carried, kept = carried_us(status, known), known.kept_hours
    return replace(known, kept_until_us=int(carried + kept * HOUR_US) if kept and carried else None)


def comparisons(metadata: Metadata, status: SourceStatus) -> dict[str, Verified]:
    """Return the newest comparison of each table's present life: one of an earlier life says nothing of it."""
    newest = runs.all_last_verified(metadata)
    began: dict[str, tuple[bool, int]] = {}
    for row in ShapeRow.read(metadata, "table_id", "why", "at_us") if newest else []:
        known = (row.why == "snapshot", row.at_us)
        began[row.table_id] = min(began.get(row.table_id, known), known, key=_earlier)
    return {
        table: newest[table]
        for table, life in ((row.table, row.table_id) for row in status.tables)
        if table in newest and newest[table].at_us >= began.get(life or "", (False, 0))[1]
    }


def _earlier(began: tuple[bool, int]) -> tuple[bool, int]:
    is_snapshot, at_us = began
    return not is_snapshot, at_us
