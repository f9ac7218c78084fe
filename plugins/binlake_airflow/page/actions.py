"""Actions of the page: trigger runs of a source's DAGs, and decide about tables and events.

A run is triggered as in Airflow's own UI, and a decision is recorded as by ``binlake table``, both with the user's
name. Airflow's audit log has each request.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from airflow.api.common.trigger_dag import trigger_dag
from airflow.api_fastapi.logging.decorators import action_logging
from airflow.models.dag import DagModel
from airflow.models.dagbag import DBDagBag
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, State, TaskInstanceState
from airflow.utils.types import DagRunTriggeredByType
from fastapi import APIRouter, Depends, HTTPException
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from sqlalchemy import select
from sqlalchemy.orm import Session

from binlake import names
from binlake.config import PipelineConfig
from binlake.delta import opened_tables
from binlake.records import decisions, watermarks
from binlake.records.decisions import Reason
from binlake.schema.table import TableName
from binlake.store.metadata import metadata_of
from binlake_airflow.compat import AirflowException, ParamValidationError, fail_run
from binlake_airflow.page.access import (
    Dag,
    Reader,
    ReaderDep,
    SourceDep,
    dag_id,
    from_here,
    may_cancel,
    may_edit,
    may_read,
    may_trigger,
)
from binlake_airflow.page.remedies import Answer

_MOST_TABLES = 10_000
Why = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]
"""The reason for a decision, which is recorded."""


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RunAsked(_Asked):
    """A request to run a DAG. unpause: also unpause the DAG, which doesn't run while it is paused."""

    unpause: bool = False


class SyncAsked(RunAsked):
    """A request to sync. until: stop before commits at or after this time; UTC if it has no time zone."""

    until: datetime | None = None


class TablesAsked(RunAsked):
    """A request about tables. tables: ``database.table``; if empty, the DAG's default applies."""

    tables: list[str] = Field(default=[], max_length=_MOST_TABLES)


class BootstrapAsked(TablesAsked):
    """A request to bootstrap. keys: ``FIRST..LAST`` of the only table named, as the DAG's param ``keys``."""

    lock: Literal["flush", "tables", "none"] = "flush"
    keys: str | None = Field(default=None, max_length=200)


class ResumeAsked(RunAsked):
    """A request to resume tables. tables: ``database.table``. why: the reason to record."""

    tables: list[str] = Field(min_length=1, max_length=_MOST_TABLES)
    why: Why


class DecisionAsked(_Asked):
    """A request to decide about a table. why: the reason to record."""

    why: Why


class CancelAsked(_Asked):
    """A request to cancel a run. run_id: Airflow's."""

    run_id: str = Field(max_length=250)


class SkipAsked(DecisionAsked):
    """A request to skip an event. file, offset: its place, as the status shows it."""

    file: str
    offset: int = Field(ge=0, lt=2**63)


def _guarded(*guards: Any) -> list[Any]:
    """Return the guards in order: requests of other sites' pages are refused before the audit log is written."""
    return [Depends(guard) for guard in (from_here, may_read, *guards)]


router = APIRouter(prefix="/api/sources/{source}")


@router.post("/sync", dependencies=_guarded(may_trigger("sync"), action_logging("binlake_sync")))
def sync(loaded: SourceDep, reader: ReaderDep, asked: SyncAsked) -> Answer:
    """Sync up to the log's head, or up to ``until``."""
    until = asked.until.replace(tzinfo=asked.until.tzinfo or UTC) if asked.until else None
    conf = {"until": until.isoformat()} if until else {}
    return _run(loaded[1], "sync", conf, reader, asked)


@router.post("/verify", dependencies=_guarded(may_trigger("verify"), action_logging("binlake_verify")))
def verify(loaded: SourceDep, reader: ReaderDep, asked: TablesAsked) -> Answer:
    """Trigger a run of the verify DAG, for the tables asked for."""
    return _run(loaded[1], "verify", _conf_of_tables(loaded[1], asked), reader, asked)


@router.post("/repair", dependencies=_guarded(may_edit, may_trigger("verify"), action_logging("binlake_repair")))
def repair(loaded: SourceDep, reader: ReaderDep, asked: ResumeAsked) -> Answer:
    """Put differing rows right; the verify DAG does it, since the server must be read. Raises 409 where the YAML
    forbids it."""
    config = loaded[1]
    if config.verify.repair == "never":
        raise HTTPException(409, "verify.repair is never in the YAML")
    answer = _run(config, "verify", {"tables": _patterns(config, asked.tables), "repair": True}, reader, asked)
    for name in _known(config, asked.tables):
        reason = Reason(reader.name, asked.why)
        decisions.note(metadata_of(config), "repair", reason, database=name.database, table=name.table)
    return answer


@router.post("/bootstrap", dependencies=_guarded(may_trigger("bootstrap"), action_logging("binlake_bootstrap")))
def bootstrap(loaded: SourceDep, reader: ReaderDep, asked: BootstrapAsked) -> Answer:
    """Snapshot tables; those that are followed already are copied again."""
    conf: dict[str, Any] = {"lock": asked.lock, **_conf_of_tables(loaded[1], asked)}
    if asked.keys:
        if len(asked.tables) != 1:
            raise HTTPException(400, "a range of keys is of one table")
        conf["keys"] = asked.keys
    return _run(loaded[1], "bootstrap", conf, reader, asked)


@router.post("/maintain", dependencies=_guarded(may_trigger("maintain"), action_logging("binlake_maintain")))
def maintain(loaded: SourceDep, reader: ReaderDep, asked: TablesAsked) -> Answer:
    """Trigger a run of the maintain DAG, for the tables asked for."""
    return _run(loaded[1], "maintain", _conf_of_tables(loaded[1], asked), reader, asked)


@router.post("/feeds", dependencies=_guarded(may_trigger("feeds"), action_logging("binlake_feeds")))
def feeds(loaded: SourceDep, reader: ReaderDep, asked: RunAsked) -> Answer:
    """Run all of the source's feeds, including stopped ones."""
    return _run(loaded[1], "feeds", {}, reader, asked)


@router.post("/resume", dependencies=_guarded(may_trigger("resume"), action_logging("binlake_resume")))
def resume(loaded: SourceDep, reader: ReaderDep, asked: ResumeAsked) -> Answer:
    """Resume paused and stopped tables; a DAG does it, since the log must be read."""
    _known(loaded[1], asked.tables)
    return _run(loaded[1], "resume", {"tables": asked.tables, "why": asked.why}, reader, asked)


@router.post("/dags/{what}/unpause", dependencies=_guarded(action_logging("binlake_unpause")))
def unpause(what: Dag, loaded: SourceDep, reader: ReaderDep) -> Answer:
    """Unpause one of the source's DAGs."""
    dag = _dag(loaded[1].source.name, what)
    _unpause(dag, loaded[1].source.name, what, reader)
    return Answer({"message": f"{dag.dag_id} is unpaused"})


@router.post("/dags/{what}/cancel", dependencies=_guarded(may_cancel, action_logging("binlake_cancel")))
def cancel(what: Dag, loaded: SourceDep, reader: ReaderDep, asked: CancelAsked) -> Answer:
    """Mark a run failed, so that its tasks are ended, as in Airflow's own UI, and record who did it; a task that
    announces what was recorded still runs, and the run ends after it. Raises 409 if it isn't at work."""
    config = loaded[1]
    dag = _dag(config.source.name, what)
    with create_session() as session:
        run = session.scalar(select(DagRun).where(DagRun.dag_id == dag.dag_id, DagRun.run_id == asked.run_id))
        if run is None or run.state not in (DagRunState.RUNNING, DagRunState.QUEUED):
            raise HTTPException(409, f"{dag.dag_id} has no run {asked.run_id} at work")
        serialized = DBDagBag().get_dag_for_run(run, session=session)
        if serialized is None:
            raise HTTPException(409, f"Airflow has no DAG {dag.dag_id} of that run any more")
        left = [task for task in _tasks(run, session) if task.state not in State.finished]
        fail_run(serialized, run, session)
        session.flush()
        for task in left:
            session.refresh(task)
            if task.state == TaskInstanceState.SKIPPED:  # of such tasks alone Airflow would make a success
                task.state = TaskInstanceState.UPSTREAM_FAILED
    _note_cancelled(config, what, Reason(reader.name, f"run {asked.run_id}"))
    return Answer({"message": "its tasks are being ended; what is committed stays, and the next run goes on there"})


def _tasks(run: DagRun, session: Session) -> Sequence[TaskInstance]:
    of_run = select(TaskInstance).where(TaskInstance.dag_id == run.dag_id, TaskInstance.run_id == run.run_id)
    return session.scalars(of_run).all()


def _note_cancelled(config: PipelineConfig, what: Dag, reason: Reason) -> None:
    """Record that a run was cancelled; nothing where no lake was begun."""
    metadata = metadata_of(config)
    if opened_tables.is_table(metadata.location("lease")):
        decisions.note(metadata, f"{what} cancelled", reason)


@router.post("/tables/{table:path}/pause", dependencies=_guarded(may_edit, action_logging("binlake_pause")))
def pause(table: str, loaded: SourceDep, reader: ReaderDep, asked: DecisionAsked) -> Answer:
    """Pause a table, in the user's name."""
    (name,) = _known(loaded[1], [table])
    return Answer({"message": decisions.pause(loaded[1], name, Reason(reader.name, asked.why))})


@router.post("/tables/{table:path}/resnapshot", dependencies=_guarded(may_edit, action_logging("binlake_resnapshot")))
def resnapshot(table: str, loaded: SourceDep, reader: ReaderDep, asked: DecisionAsked) -> Answer:
    """Ask for a snapshot of a table by the next sync, in the user's name."""
    (name,) = _known(loaded[1], [table])
    return Answer({"message": decisions.resnapshot(loaded[1], name, Reason(reader.name, asked.why))})


@router.post("/skip-event", dependencies=_guarded(may_edit, action_logging("binlake_skip_event")))
def skip_event(loaded: SourceDep, reader: ReaderDep, asked: SkipAsked) -> Answer:
    """Decide to skip an event, in the user's name."""
    place, reason = (asked.file, asked.offset), Reason(reader.name, asked.why)
    return Answer({"message": decisions.skip_event(loaded[1], place, reason)})


def _known(config: PipelineConfig, asked: Sequence[str]) -> list[TableName]:
    """Return the names of tables that the source has. Raises 404 for any other."""
    known = watermarks.names(metadata_of(config))
    if unknown := [name for name in asked if name not in known]:
        raise HTTPException(404, f"the source {config.source.name} has no table {unknown[0]!r}")
    return [known[name] for name in asked]


def _patterns(config: PipelineConfig, asked: Sequence[str]) -> list[str]:
    return [names.pattern_of(name.database, name.table) for name in _known(config, asked)]


def _conf_of_tables(config: PipelineConfig, asked: TablesAsked) -> dict[str, Any]:
    """Return the part of a run's conf that names its tables; nothing where none was named."""
    return {"tables": _patterns(config, asked.tables)} if asked.tables else {}


def _dag(source: str, what: Dag) -> DagModel:
    """Return the DAG. Raises 409 if Airflow doesn't know it, or its file is broken."""
    dag = DagModel.get_current(dag_id(source, what))
    if dag is None or dag.is_stale or dag.has_import_errors:
        raise HTTPException(409, f"Airflow has no DAG {dag_id(source, what)} yet: look at its import errors")
    return dag


def _unpause(dag: DagModel, source: str, what: Dag, reader: Reader) -> None:
    """Unpause the DAG. Raises 403 if the user may not edit it."""
    if not reader.may_edit(source, what):
        raise HTTPException(403, f"you may not edit the DAG {dag.dag_id}, and it is paused")
    with create_session() as session:
        session.merge(dag).is_paused = False


def _run(config: PipelineConfig, what: Dag, conf: dict[str, Any], reader: Reader, asked: RunAsked) -> Answer:
    """Trigger the DAG. Raises 400 if Airflow refuses ``conf``, which it checks against the DAG's params."""
    dag = _dag(config.source.name, what)
    if asked.unpause and dag.is_paused:
        _unpause(dag, config.source.name, what, reader)
    try:
        run = trigger_dag(
            dag.dag_id, triggered_by=DagRunTriggeredByType.UI, triggering_user_name=reader.name, conf=conf
        )
    except (AirflowException, ParamValidationError, ValueError) as error:
        raise HTTPException(400, str(error)) from None
    waits = dag.is_paused and not asked.unpause
    message = f"{dag.dag_id} is paused: the run waits until it is unpaused" if waits else "the run is queued"
    return Answer({"message": message, "dag_id": dag.dag_id, "run_id": run.run_id if run else None})
