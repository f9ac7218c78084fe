"""The DAGs of a source as the page's actions use them: they are triggered, paused and unpaused in the user's name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from airflow.api.common.trigger_dag import trigger_dag
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunTriggeredByType
from fastapi import HTTPException
from sqlalchemy import and_, or_, select

from binlake_airflow.compat import AirflowException, ParamValidationError
from binlake_airflow.page.access import Dag, Reader, dag_id

AT_WORK = (DagRunState.RUNNING, DagRunState.QUEUED)


@dataclass(frozen=True)
class Triggered:
    """A run that was triggered."""

    message: str
    dag_id: str
    run_id: str

    @property
    def key(self) -> str:
        """Return ``DAG/RUN``, as records of runs name it."""
        return f"{self.dag_id}/{self.run_id}"


def known_dag(source: str, what: Dag) -> DagModel | None:
    """Return the DAG; None if Airflow doesn't know it, or its file is broken."""
    dag = DagModel.get_current(dag_id(source, what))
    return None if dag is None or dag.is_stale or dag.has_import_errors else dag


def dag_of(source: str, what: Dag) -> DagModel:
    """Return the DAG. Raises 409 if Airflow doesn't know it, or its file is broken."""
    dag = known_dag(source, what)
    if dag is None:
        raise HTTPException(409, f"Airflow has no DAG {dag_id(source, what)} yet: look at its import errors")
    return dag


def set_paused(dag: DagModel, *, paused: bool) -> None:
    """Pause or unpause the DAG."""
    with create_session() as session:
        session.merge(dag).is_paused = paused


def unpause(dag: DagModel, source: str, what: Dag, reader: Reader) -> None:
    """Unpause the DAG. Raises 403 if the user may not edit it."""
    if not reader.may_edit(source, what):
        raise HTTPException(403, f"you may not edit the DAG {dag.dag_id}, and it is paused")
    set_paused(dag, paused=False)


def trigger(source: str, what: Dag, conf: dict[str, Any], reader: Reader, *, unpauses: bool) -> Triggered:
    """Trigger the DAG. unpauses: unpause it, too. Raises 400 if Airflow refuses ``conf``, which it checks against the
    DAG's params."""
    dag = dag_of(source, what)
    if unpauses and dag.is_paused:
        unpause(dag, source, what, reader)
    try:
        run = trigger_dag(
            dag.dag_id, triggered_by=DagRunTriggeredByType.UI, triggering_user_name=reader.name, conf=conf
        )
    except (AirflowException, ParamValidationError, ValueError) as error:
        raise HTTPException(400, str(error)) from None
    if run is None:
        raise HTTPException(409, f"Airflow made no run of {dag.dag_id}")
    waits = dag.is_paused and not unpauses
    message = f"{dag.dag_id} is paused: the run waits until it is unpaused" if waits else "the run is queued"
    return Triggered(message, dag.dag_id, run.run_id)


def at_work(source: str, kinds: Iterable[Dag]) -> list[str]:
    """Return the ids of runs of some of the source's DAGs that run or are queued."""
    dags = [dag_id(source, what) for what in kinds]
    runs = select(DagRun.run_id).where(DagRun.dag_id.in_(dags), DagRun.state.in_(AT_WORK)).order_by(DagRun.id)
    with create_session() as session:
        return list(session.scalars(runs))


def states_of(keys: Iterable[str]) -> dict[str, str]:
    """Return the states of runs that Airflow knows, by ``DAG/RUN``."""
    pairs = {tuple(key.split("/", 1)) for key in keys if "/" in key}
    if not pairs:
        return {}
    wanted = or_(*(and_(DagRun.dag_id == dag, DagRun.run_id == run) for dag, run in pairs))
    with create_session() as session:
        rows = session.execute(select(DagRun.dag_id, DagRun.run_id, DagRun.state).where(wanted))
        return {f"{dag}/{run}": str(state) for dag, run, state in rows}
