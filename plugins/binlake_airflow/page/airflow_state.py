"""Facts that Airflow alone knows about sources: their DAGs, runs that failed and why, and whether a scheduler is
alive."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.log.log_reader import TaskLogReader
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from sqlalchemy import func, select
from sqlalchemy.orm import Session, joinedload

from binlake.caches import remembered
from binlake.records.evidence import AirflowState, DagState, FailedDagRun
from binlake_airflow.page.access import DAGS, Dag, dag_id

log = logging.getLogger(__name__)

ReadsLogs = Callable[[str, Dag], bool]
"""Tells whether the user may read the logs of a source's DAG."""
_FAILURES_KEPT = timedelta(days=30)
"""For how long a failed run is shown if no other run came after it."""
_MOST_LINES = 100_000
"""The most lines of a task's log that are read for its reason."""
_MOST_LETTERS = 300


def airflow_states(sources: Collection[str], reads_logs: ReadsLogs) -> dict[str, AirflowState]:
    """Return what Airflow knows, by source. Why runs failed is left out of DAGs whose logs the user may not read."""
    wanted: dict[str, tuple[str, Dag]] = {dag_id(source, what): (source, what) for source in sources for what in DAGS}
    dags: dict[str, dict[str, DagState]] = {source: {} for source in sources}
    failed: dict[str, dict[str, FailedDagRun]] = {source: {} for source in sources}
    columns = (DagModel.dag_id, DagModel.is_paused, DagModel.next_dagrun_create_after)
    with create_session() as session:
        rows = session.execute(select(*columns).where(DagModel.dag_id.in_(wanted), ~DagModel.is_stale)).all()
        for dag, run in _failed_runs(session, [dag for dag, _, _ in rows]).items():
            source, what = wanted[dag]
            failed[source][what] = _failure(session, run, with_reason=reads_logs(source, what))
        at_work = _at_work(session, [dag for dag, _, _ in rows])
    for dag, is_paused, due in rows:
        source, what = wanted[dag]
        dags[source][what] = DagState(dag, is_paused, _us(due) if due else None)
    heartbeat_us, is_alive = _scheduler()
    working: dict[str, dict[str, int | None]] = {source: {} for source in sources}
    for dag, since_us in at_work.items():
        source, what = wanted[dag]
        working[source][what] = since_us
    return {
        source: AirflowState(dags[source], failed[source], heartbeat_us, is_alive, working[source])
        for source in sources
    }


def _us(moment: Any) -> int:
    return int(moment.timestamp() * 1e6)


def _scheduler() -> tuple[int | None, bool]:
    """Return a scheduler's newest sign of life, and whether it is recent."""
    job = SchedulerJobRunner.most_recent_job()
    if job is None or job.latest_heartbeat is None:
        return None, False
    return _us(job.latest_heartbeat), bool(job.is_alive())


def _at_work(session: Session, dags: Collection[str]) -> dict[str, int | None]:
    """Return since when a run of each DAG that has one runs; None while its runs are queued."""
    begun = select(DagRun.dag_id, func.min(DagRun.start_date)).where(
        DagRun.dag_id.in_(dags), DagRun.state.in_((DagRunState.RUNNING, DagRunState.QUEUED))
    )
    return {dag: _us(since) if since else None for dag, since in session.execute(begun.group_by(DagRun.dag_id))}


def _failed_runs(session: Session, dags: Collection[str]) -> dict[str, DagRun]:
    """Return the newest run that is over of each DAG where it failed."""
    failed = _newest_ends(session, dags, DagRunState.FAILED)
    succeeded = _newest_ends(session, list(failed), DagRunState.SUCCESS)
    standing = {dag: end for dag, end in failed.items() if dag not in succeeded or succeeded[dag] < end}
    if not standing:
        return {}
    runs = session.scalars(select(DagRun).where(DagRun.dag_id.in_(standing), DagRun.state == DagRunState.FAILED))
    return {run.dag_id: run for run in runs if run.end_date == standing[run.dag_id]}


def _newest_ends(session: Session, dags: Collection[str], state: DagRunState) -> Mapping[str, datetime]:
    since = datetime.now(UTC) - _FAILURES_KEPT
    ends = select(DagRun.dag_id, func.max(DagRun.end_date)).where(
        DagRun.dag_id.in_(dags), DagRun.state == state, DagRun.end_date > since
    )
    return {dag: end for dag, end in session.execute(ends.group_by(DagRun.dag_id)) if end} if dags else {}


def _failure(session: Session, run: DagRun, *, with_reason: bool) -> FailedDagRun:
    """Return what is known of a failed run, by the task that failed first."""
    tasks = (
        select(TaskInstance)
        .where(
            TaskInstance.dag_id == run.dag_id,
            TaskInstance.run_id == run.run_id,
            TaskInstance.state == TaskInstanceState.FAILED,
        )
        .order_by(TaskInstance.end_date)
        .options(joinedload(TaskInstance.dag_run), joinedload(TaskInstance.dag_model))
    )
    task = session.scalars(tasks).first()
    ended = _us(run.end_date)
    if task is None:
        return FailedDagRun(run.run_id, ended)
    return FailedDagRun(run.run_id, ended, task.task_id, _reason(_Attempt(task)) if with_reason else "")


class _Attempt:
    """A task's attempt; two are equal that are the same attempt of the same task."""

    def __init__(self, task: TaskInstance) -> None:
        self.task = task
        self._key = (task.dag_id, task.run_id, task.task_id, task.map_index, task.try_number, task.end_date)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Attempt) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _reason(attempt: _Attempt) -> str:
    """Return why a task failed, by its log; empty where that can't be read."""
    try:
        return _in_log(attempt)
    except Exception as error:  # whatever a log's store raises: the run's failure is shown without its reason
        log.warning("the log of %s in %s can't be read: %s", attempt.task.task_id, attempt.task.dag_id, error)
        return ""


@remembered("reasons of failed tasks on the page")
def _in_log(attempt: _Attempt) -> str:
    lines, _ = TaskLogReader().read_log_chunks(attempt.task, attempt.task.try_number, {"end_of_log": True})
    return last_words(islice(lines, _MOST_LINES))


def last_words(lines: Iterable[Any]) -> str:
    """Return a log's last error, without any its last line that says something. lines: Airflow's messages."""
    error, last = "", ""
    for line in lines:
        event = str(getattr(line, "event", "") or "").strip()
        details = getattr(line, "error_detail", None) or []
        if raised := next((str(detail.get("exc_value") or "") for detail in details), ""):
            error = raised
        elif str(getattr(line, "level", "")).lower() in ("error", "critical") and event:
            error = event
        if event and not event.startswith("::"):
            last = event
    first = next((part.strip() for part in (error or last).splitlines() if part.strip()), "")
    return first if len(first) <= _MOST_LETTERS else f"{first[:_MOST_LETTERS]}…"
