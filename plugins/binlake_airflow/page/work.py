"""The work on a source at the moment: Airflow's runs and their tasks, and how far a step has come. It is asked every
second or two, so it reads neither metadata tables nor Delta logs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from sqlalchemy import select

from binlake.config import PipelineConfig
from binlake.records import step_progress
from binlake.store.metadata import now_us
from binlake_airflow.page.access import DAGS, Dag, dag_id


@dataclass
class RunAtWork:
    """A run of one of the source's DAGs that isn't over. since_us: when it began, None while it is queued. tasks: that
    run now, each with its begin."""

    what: Dag
    dag_id: str
    run_id: str
    since_us: int | None
    tasks: list[dict[str, Any]] = field(default_factory=list)


def work(config: PipelineConfig) -> dict[str, Any]:
    """Return the runs at work, and the steps that reported how far they are."""
    source = config.source.name
    return {
        "source": source,
        "runs": [asdict(run) for run in _runs(source)],
        "steps": [asdict(step) for step in step_progress.read(config)],
        "now_us": now_us(),
    }


def _runs(source: str) -> list[RunAtWork]:
    kinds: dict[str, Dag] = {dag_id(source, what): what for what in DAGS}
    at_work = (DagRunState.RUNNING, DagRunState.QUEUED)
    of_runs = select(DagRun.dag_id, DagRun.run_id, DagRun.start_date).where(
        DagRun.dag_id.in_(kinds), DagRun.state.in_(at_work)
    )
    of_tasks = select(
        TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, TaskInstance.start_date
    ).where(TaskInstance.dag_id.in_(kinds), TaskInstance.state == TaskInstanceState.RUNNING)  # fmt: skip
    with create_session() as session:
        runs = {(dag, run): RunAtWork(kinds[dag], dag, run, _us(begun)) for dag, run, begun in session.execute(of_runs)}
        for dag, run, task, begun in session.execute(of_tasks):
            if known := runs.get((dag, run)):
                known.tasks.append({"task": task, "since_us": _us(begun)})
    return sorted(runs.values(), key=lambda run: (run.since_us is None, run.since_us or 0))


def _us(moment: Any) -> int | None:
    return int(moment.timestamp() * 1e6) if moment else None
