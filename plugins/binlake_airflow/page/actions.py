"""Actions of the page: trigger runs of a source's DAGs, and decide about tables and events.

A run is triggered as in Airflow's own UI, and a decision is recorded as by ``binlake table``, both with the user's
name. Airflow's audit log has each request.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from airflow.api_fastapi.logging.decorators import action_logging
from airflow.models.dagbag import DBDagBag
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import State, TaskInstanceState
from fastapi import APIRouter, HTTPException
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from binlake import names
from binlake.config import PipelineConfig
from binlake.records import decisions, waiting_changes, watermarks
from binlake.records.decisions import CANCELLED, Reason
from binlake.schema.table import TableName
from binlake.store.metadata import metadata_of
from binlake_airflow.compat import fail_run
from binlake_airflow.page.access import (
    Dag,
    Reader,
    ReaderDep,
    SourceDep,
    guarded,
    may_cancel,
    may_edit,
    may_edit_dag,
    may_trigger,
)
from binlake_airflow.page.action_notes import Asked, Why, note, reason_of
from binlake_airflow.page.dag_runs import AT_WORK, dag_of, trigger, unpause as unpause_dag
from binlake_airflow.page.remedies import Answer

_MOST_TABLES = 10_000


class RunAsked(Asked):
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


class ReplayAsked(RunAsked):
    """A request to build tables once more. tables: ``database.table``. batch: as they were behind it; None for the
    newest. prove: compare every row with the table's own earlier version."""

    tables: list[str] = Field(min_length=1, max_length=_MOST_TABLES)
    batch: int | None = Field(default=None, ge=0, lt=2**63)
    prove: bool = True


class ResumeAsked(RunAsked):
    """A request to resume or repair tables. tables: ``database.table``. why: the reason to record."""

    tables: list[str] = Field(min_length=1, max_length=_MOST_TABLES)
    why: Why


class DecisionAsked(Asked):
    """A request to decide about a table. why: the reason to record."""

    why: Why


class CancelAsked(Asked):
    """A request to cancel a run. run_id: Airflow's."""

    run_id: str = Field(max_length=250)


class SkipAsked(DecisionAsked):
    """A request to skip an event. file, offset: its place, as the status shows it."""

    file: str
    offset: int = Field(ge=0, lt=2**63)


class AnswerAsked(DecisionAsked):
    """An answer to the schema change at which a table waits. place: of the statement that the user saw, FILE:POS."""

    yes: bool
    place: str = Field(max_length=300)


router = APIRouter(prefix="/api/sources/{source}")


@router.post("/sync", dependencies=guarded(may_trigger("sync"), action_logging("binlake_sync")))
def sync(loaded: SourceDep, reader: ReaderDep, asked: SyncAsked) -> Answer:
    """Sync up to the log's head, or up to ``until``."""
    until = asked.until.replace(tzinfo=asked.until.tzinfo or UTC) if asked.until else None
    conf = {"until": until.isoformat()} if until else {}
    return _run(loaded[1], "sync", conf, reader, asked)


@router.post("/verify", dependencies=guarded(may_trigger("verify"), action_logging("binlake_verify")))
def verify(loaded: SourceDep, reader: ReaderDep, asked: TablesAsked) -> Answer:
    """Trigger a run of the verify DAG, for the tables asked for."""
    return _run_of_tables(loaded[1], "verify", {}, reader, asked)


@router.post("/repair", dependencies=guarded(may_edit, may_trigger("verify"), action_logging("binlake_repair")))
def repair(loaded: SourceDep, reader: ReaderDep, asked: ResumeAsked) -> Answer:
    """Put differing rows right; the verify DAG does it, since the server must be read. Raises 409 where the YAML
    forbids it."""
    config = loaded[1]
    if config.verify.repair == "never":
        raise HTTPException(409, "verify.repair is never in the YAML")
    tables = _known(config, asked.tables)
    conf = {"tables": _patterns(tables), "repair": True}
    return _run(config, "verify", conf, reader, asked, action="repair", tables=tables)


@router.post("/bootstrap", dependencies=guarded(may_trigger("bootstrap"), action_logging("binlake_bootstrap")))
def bootstrap(loaded: SourceDep, reader: ReaderDep, asked: BootstrapAsked) -> Answer:
    """Snapshot tables; those that are followed already are copied again."""
    conf: dict[str, Any] = {"lock": asked.lock}
    if asked.keys:
        if len(asked.tables) != 1:
            raise HTTPException(400, "a range of keys is of one table")
        conf["keys"] = asked.keys
    return _run_of_tables(loaded[1], "bootstrap", conf, reader, asked, action="snapshot")


@router.post("/maintain", dependencies=guarded(may_trigger("maintain"), action_logging("binlake_maintain")))
def maintain(loaded: SourceDep, reader: ReaderDep, asked: TablesAsked) -> Answer:
    """Trigger a run of the maintain DAG, for the tables asked for."""
    return _run_of_tables(loaded[1], "maintain", {}, reader, asked)


@router.post("/feeds", dependencies=guarded(may_trigger("feeds"), action_logging("binlake_feeds")))
def feeds(loaded: SourceDep, reader: ReaderDep, asked: RunAsked) -> Answer:
    """Run all of the source's feeds, including stopped ones."""
    return _run(loaded[1], "feeds", {}, reader, asked)


@router.post("/replay", dependencies=guarded(may_trigger("replay"), action_logging("binlake_replay")))
def replay(loaded: SourceDep, reader: ReaderDep, asked: ReplayAsked) -> Answer:
    """Build tables once more beside the lake's, as they were behind a batch."""
    tables = _known(loaded[1], asked.tables)
    conf: dict[str, Any] = {"tables": _patterns(tables), "prove": asked.prove}
    if asked.batch is not None:
        conf["batch"] = asked.batch
    return _run(loaded[1], "replay", conf, reader, asked, tables=tables)


@router.post("/resume", dependencies=guarded(may_trigger("resume"), action_logging("binlake_resume")))
def resume(loaded: SourceDep, reader: ReaderDep, asked: ResumeAsked) -> Answer:
    """Resume paused and stopped tables; a DAG does it, since the log must be read, and records it once it is done."""
    tables = _known(loaded[1], asked.tables)
    conf = {"tables": asked.tables, "why": asked.why}
    return _run(loaded[1], "resume", conf, reader, asked, action="resume asked for", tables=tables)


@router.post("/dags/{what}/unpause", dependencies=guarded(may_edit_dag, action_logging("binlake_unpause")))
def unpause(what: Dag, loaded: SourceDep, reader: ReaderDep, asked: Asked) -> Answer:
    """Unpause one of the source's DAGs."""
    dag = dag_of(loaded[1].source.name, what)
    unpause_dag(dag, loaded[1].source.name, what, reader)
    result = f"{dag.dag_id} is unpaused"
    return Answer({"message": note(loaded[1], f"unpause {what}", reason_of(reader, asked), result)})


@router.post("/dags/{what}/cancel", dependencies=guarded(may_cancel, action_logging("binlake_cancel")))
def cancel(what: Dag, loaded: SourceDep, reader: ReaderDep, asked: CancelAsked) -> Answer:
    """Mark a run failed, so that its tasks are ended, as in Airflow's own UI, and record who did it; a task that
    announces what was recorded still runs, and the run ends after it. Raises 409 if it isn't at work."""
    config = loaded[1]
    dag = dag_of(config.source.name, what)
    with create_session() as session:
        run = session.scalar(select(DagRun).where(DagRun.dag_id == dag.dag_id, DagRun.run_id == asked.run_id))
        if run is None or run.state not in AT_WORK:
            raise HTTPException(409, f"{dag.dag_id} has no run {asked.run_id} at work")
        serialized = DBDagBag().get_dag_for_run(run, session=session)
        if serialized is None:
            raise HTTPException(409, f"Airflow has no DAG {dag.dag_id} of that run any more")
        left = {task.id for task in _tasks(dag.dag_id, asked.run_id, session) if task.state not in State.finished}
        fail_run(serialized, run, session)
        session.flush()
        for task in _tasks(dag.dag_id, asked.run_id, session):  # Airflow 3.2 lets go of those that were read before
            if task.id in left and task.state == TaskInstanceState.SKIPPED:  # of such alone Airflow makes a success
                task.state = TaskInstanceState.UPSTREAM_FAILED
    result, run_key = "its tasks are being ended", f"{dag.dag_id}/{asked.run_id}"
    message = note(config, f"{what}{CANCELLED}", reason_of(reader, asked), result, run=run_key)
    return Answer({"message": f"{message}; what is committed stays, and the next run continues there"})


def _tasks(dag: str, run: str, session: Session) -> Sequence[TaskInstance]:
    of_run = select(TaskInstance).where(TaskInstance.dag_id == dag, TaskInstance.run_id == run)
    return session.scalars(of_run.execution_options(populate_existing=True)).all()


@router.post("/tables/{table:path}/pause", dependencies=guarded(may_edit, action_logging("binlake_pause")))
def pause(table: str, loaded: SourceDep, reader: ReaderDep, asked: DecisionAsked) -> Answer:
    """Pause a table, in the user's name."""
    (name,) = _known(loaded[1], [table])
    return Answer({"message": decisions.pause(loaded[1], name, Reason(reader.name, asked.why))})


@router.post("/tables/{table:path}/resnapshot", dependencies=guarded(may_edit, action_logging("binlake_resnapshot")))
def resnapshot(table: str, loaded: SourceDep, reader: ReaderDep, asked: DecisionAsked) -> Answer:
    """Ask for a snapshot of a table by the next sync, in the user's name."""
    (name,) = _known(loaded[1], [table])
    return Answer({"message": decisions.resnapshot(loaded[1], name, Reason(reader.name, asked.why))})


@router.post(
    "/tables/{table:path}/schema-change", dependencies=guarded(may_edit, action_logging("binlake_schema_change"))
)
def schema_change(table: str, loaded: SourceDep, reader: ReaderDep, asked: AnswerAsked) -> Answer:
    """Answer the schema change at which a table waits, in the user's name."""
    (name,) = _known(loaded[1], [table])
    reason = Reason(reader.name, asked.why)
    return Answer({"message": waiting_changes.answer(loaded[1], name, reason, yes=asked.yes, place=asked.place)})


@router.post("/skip-event", dependencies=guarded(may_edit, action_logging("binlake_skip_event")))
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


def _patterns(tables: Sequence[TableName]) -> list[str]:
    return [names.pattern_of(name.database, name.table) for name in tables]


def _run_of_tables(
    config: PipelineConfig, what: Dag, conf: dict[str, Any], reader: Reader, asked: TablesAsked, action: str = ""
) -> Answer:
    """Trigger the DAG for the tables asked for; without any, its own default applies."""
    tables = _known(config, asked.tables)
    of_tables = {"tables": _patterns(tables)} if tables else {}
    return _run(config, what, {**conf, **of_tables}, reader, asked, action=action, tables=tables)


def _run(
    config: PipelineConfig,
    what: Dag,
    conf: dict[str, Any],
    reader: Reader,
    asked: RunAsked,
    *,
    action: str = "",
    tables: Sequence[TableName] = (),
) -> Answer:
    """Trigger the DAG, and record who asked for it. action: what is recorded, if not the DAG's kind."""
    run = trigger(config.source.name, what, conf, reader, unpauses=asked.unpause)
    reason = reason_of(reader, asked)
    message = note(config, action or what, reason, run.message, run=run.key, names=tables)
    return Answer({"message": message, "dag_id": run.dag_id, "run_id": run.run_id})
