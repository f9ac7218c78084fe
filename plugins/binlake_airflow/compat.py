"""Airflow's names, wherever a version of Airflow keeps them. Importing this refuses an Airflow that doesn't fit.

``airflow.providers.common.compat.sdk`` has most of them. Those that it lacks are looked for in the places that they had
since Airflow 3.1. No other module of the plugin asks for a version.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from binlake_airflow import supported

supported.refuse()

from airflow.providers.common.compat.sdk import (
    DAG as DAG,
    AirflowException as AirflowException,
    AirflowFailException as AirflowFailException,
    AirflowNotFoundException as AirflowNotFoundException,
    AirflowSkipException as AirflowSkipException,
    Asset as Asset,
    AssetAlias as AssetAlias,
    BaseHook as BaseHook,
    BaseOperator as BaseOperator,
    BaseOperatorLink as BaseOperatorLink,
    BaseSensorOperator as BaseSensorOperator,
    Context as Context,
    DagRunState as DagRunState,
    DownstreamTasksSkipped as DownstreamTasksSkipped,
    Param as Param,
    ParamValidationError as ParamValidationError,
    Stats as Stats,
    TaskGroup as TaskGroup,
    TaskInstanceKey as TaskInstanceKey,
    TriggerRule as TriggerRule,
)
from airflow.sdk.definitions.param import DagParam

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from airflow.models.dagrun import DagRun
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook as SparkSubmitHook
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator as SparkSubmitOperator
    from airflow.sdk import (
        AssetOrTimeSchedule as AssetOrTimeSchedule,
        CronDataIntervalTimetable as CronDataIntervalTimetable,
    )
    from airflow.sdk.api.datamodels._generated import AssetEventResponse
    from airflow.sdk.definitions.param import ParamsDict as ParamsDict
    from airflow.sdk.exceptions import (
        AirflowRescheduleException as AirflowRescheduleException,
        AirflowTimetableInvalid as AirflowTimetableInvalid,
    )
    from airflow.serialization.definitions.dag import SerializedDAG
    from sqlalchemy.orm import Session

_PLACES = {
    "AirflowRescheduleException": ("airflow.sdk.exceptions", "airflow.exceptions"),
    "AirflowTimetableInvalid": ("airflow.sdk.exceptions", "airflow.exceptions"),
    "AssetOrTimeSchedule": ("airflow.sdk", "airflow.timetables.assets"),
    "CronDataIntervalTimetable": ("airflow.sdk", "airflow.timetables.interval"),
    "ParamsDict": ("airflow.sdk.definitions.param",),
    "SparkSubmitHook": ("airflow.providers.apache.spark.hooks.spark_submit",),
    "SparkSubmitOperator": ("airflow.providers.apache.spark.operators.spark_submit",),
}
"""Names → the modules that have them, the newest Airflow's first; imported when they are asked for."""


def __getattr__(name: str) -> Any:
    for place in _PLACES.get(name, ()):
        with suppress(ImportError, AttributeError):
            return getattr(import_module(place), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class FormField(DagParam):
    """A field of a DAG's form, as an operator's argument. Airflow 3.1 serializes no DAG with a DagParam that has no
    default."""

    def serialize(self) -> dict[str, str]:
        """Return what names the field."""
        return {"dag_id": self.current_dag.dag_id, "name": self._name}


def backoff(factor: int) -> float:
    """Return the ``retry_exponential_backoff`` by which each delay is so many times the one before; 0: all are equal.
    Airflow 3.1 only knows whether they double."""
    return type(BaseOperator.retry_exponential_backoff)(factor)


def events_since(context: Context, alias: AssetAlias, since: datetime) -> Iterable[AssetEventResponse]:
    """Return the events of an alias among the task's inlets. Airflow 3.1 brings all that it has, however old."""
    events: Any = context["inlet_events"][alias]
    if hasattr(events, "after"):  # since 3.2
        chosen: Iterable[AssetEventResponse] = events.after(since.isoformat())
        return chosen
    return [event for event in events if event.timestamp >= since]


def team_names(dags: Collection[str]) -> dict[str, str | None]:
    """Return the team of each DAG, by id, as far as Airflow has teams."""
    from airflow.models.dag import DagModel

    by_one_query = getattr(DagModel, "get_dag_id_to_team_name_mapping", None)  # since 3.2
    if by_one_query is None:
        return {dag: DagModel.get_team_name(dag) for dag in dags}
    return dict(by_one_query(list(dags))) if dags else {}


def fail_run(dag: SerializedDAG, run: DagRun, session: Session) -> None:
    """Mark a run failed, as Airflow's own UI does: its tasks are ended, and listeners hear of it."""
    from airflow.api_fastapi.core_api.services.public import dag_run as service

    if patch := getattr(service, "patch_dag_run_state", None):  # since 3.3
        from airflow.api_fastapi.core_api.datamodels.dag_run import DagRunMutableStates

        patch(dag=dag, dag_run=run, state=DagRunMutableStates.FAILED, session=session)
        return
    from airflow.api.common.mark_tasks import set_dag_run_state_to_failed
    from airflow.listeners.listener import get_listener_manager

    set_dag_run_state_to_failed(dag=dag, run_id=run.run_id, commit=True, session=session)
    try:
        get_listener_manager().hook.on_dag_run_failed(dag_run=run, msg="")
    except Exception:  # a listener is somebody else's: Airflow logs it as well
        logging.getLogger(__name__).exception("a listener failed")
