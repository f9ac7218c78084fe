"""Actions of the page about a source as a whole: following, pausing, pinned versions, a dead run's lease, removal."""

from __future__ import annotations

from collections.abc import Sequence

from airflow.api_fastapi.logging.decorators import action_logging
from airflow.models.dag import DagModel
from fastapi import APIRouter, Depends
from pydantic import Field

from binlake.config import PipelineConfig
from binlake.errors import UsageError
from binlake.lake import pins
from binlake.lease import lease
from binlake.phases.unlock import unlock as free
from binlake.report import counted
from binlake.store.metadata import metadata_of, now_us
from binlake_airflow.page import answers, tables as tables_of
from binlake_airflow.page.access import (
    DAGS,
    Dag,
    Reader,
    ReaderDep,
    SourceDep,
    dag_id,
    guarded,
    may_edit,
    may_edit_dag,
    may_read,
    may_remove,
    may_trigger,
)
from binlake_airflow.page.action_notes import Asked, note, reason_of
from binlake_airflow.page.dag_runs import at_work, dag_of, known_dag, set_paused, trigger, unpause
from binlake_airflow.page.remedies import Answer

CARRIERS: tuple[Dag, ...] = ("sync", "follow", "verify", "maintain", "feeds")
"""The DAGs that work on a source by themselves."""


class PinAsked(Asked):
    """A request to keep a batch's version of all tables under a name."""

    batch: int = Field(ge=0, lt=2**63)
    name: str = Field(max_length=63)


class UnpinAsked(Asked):
    """A request to give a pinned version up. name: of the version."""

    name: str = Field(max_length=63)


class ResumeSourceAsked(Asked):
    """A request to unpause a source's DAGs. dags: their kinds; those that aren't paused, or aren't there, are left."""

    dags: list[Dag] = Field(min_length=1)


router = APIRouter(prefix="/api/sources/{source}")


@router.post("/follow/start", dependencies=guarded(may_trigger("follow"), action_logging("binlake_follow_start")))
def start_following(loaded: SourceDep, reader: ReaderDep, asked: Asked) -> Answer:
    """Unpause the DAG that follows the log, and trigger a run of it where none waits. Raises 409 where one is at work
    already."""
    config = loaded[1]
    source, reason = config.source.name, reason_of(reader, asked)
    dag, runs = dag_of(source, "follow"), at_work(config.source.name, ["follow"])
    if not runs:
        run = trigger(source, "follow", {}, reader, unpauses=True)
        message = note(config, "follow on", reason, run.message, run=run.key)
        return Answer({"message": message, "dag_id": run.dag_id, "run_id": run.run_id})
    if not dag.is_paused:
        raise UsageError(f"the run {runs[0]} follows the log already", remedy="where it hangs, cancel it first")
    unpause(dag, source, "follow", reader)
    result = f"{dag.dag_id} is unpaused, and its run continues"
    message = note(config, "follow on", reason, result, run=f"{dag.dag_id}/{runs[0]}")
    return Answer({"message": message, "dag_id": dag.dag_id, "run_id": runs[0]})


@router.post("/follow/stop", dependencies=guarded(may_trigger("follow"), action_logging("binlake_follow_stop")))
def stop_following(loaded: SourceDep, reader: ReaderDep, asked: Asked) -> Answer:
    """Pause the DAG that follows the log; its task ends by itself, between two steps."""
    config = loaded[1]
    dag = _editable(config, "follow", reader)
    set_paused(dag, paused=True)
    result = f"{dag.dag_id} is paused: its task ends within seconds, and syncs carry the lake from here on"
    return Answer({"message": note(config, "follow off", reason_of(reader, asked), result)})


@router.post("/pause", dependencies=guarded(may_edit, action_logging("binlake_pause_source")))
def pause(loaded: SourceDep, reader: ReaderDep, asked: Asked) -> Answer:
    """Pause all of the source's DAGs that work by themselves. What runs ends as usual; only a follower ends soon."""
    config = loaded[1]
    chosen = [dag for what in CARRIERS if (dag := known_dag(config.source.name, what)) and not dag.is_paused]
    if not chosen:
        raise UsageError("no DAG of it runs by itself", remedy="nothing to do: it is paused already")
    _set_all(config, chosen, reader, paused=True)
    result = f"paused: {', '.join(dag.dag_id for dag in chosen)}"
    return Answer({"message": note(config, "source paused", reason_of(reader, asked), result)})


@router.post("/unpause", dependencies=guarded(may_edit, action_logging("binlake_resume_source")))
def resume(loaded: SourceDep, reader: ReaderDep, asked: ResumeSourceAsked) -> Answer:
    """Unpause the source's DAGs that are asked for."""
    config = loaded[1]
    kinds = [what for what in DAGS if what in asked.dags]
    chosen = [dag for what in kinds if (dag := known_dag(config.source.name, what)) and dag.is_paused]
    if not chosen:
        raise UsageError("none of these DAGs is paused", remedy="nothing to do: they run by themselves")
    _set_all(config, chosen, reader, paused=False)
    result = f"unpaused: {', '.join(dag.dag_id for dag in chosen)}"
    return Answer({"message": note(config, "source resumed", reason_of(reader, asked), result)})


@router.get("/pins", dependencies=[Depends(may_read)])
def pinned(loaded: SourceDep) -> Answer:
    """Return the pinned versions, by their batches, with who pinned them and why."""
    file, config = loaded
    rows = [row.values() for row in pins.read(answers.metadata_of(config))]
    return Answer({"source": config.source.name, "file": file.name, "pins": rows, "now_us": now_us()})


@router.post("/pins", dependencies=guarded(may_edit, action_logging("binlake_pin")))
def pin(loaded: SourceDep, reader: ReaderDep, asked: PinAsked) -> Answer:
    """Keep a batch's version of all tables under a name."""
    version = pins.pin(metadata_of(loaded[1]), asked.batch, asked.name, reason_of(reader, asked))
    count = counted(len(version.tables), "table")
    return Answer({"message": f"batch {version.batch} is kept as {version.name}: {count} at one position"})


@router.post("/unpin", dependencies=guarded(may_edit, action_logging("binlake_unpin")))
def unpin(loaded: SourceDep, reader: ReaderDep, asked: UnpinAsked) -> Answer:
    """Give a pinned version up: the upkeep may then remove its files."""
    batch = pins.unpin(metadata_of(loaded[1]), asked.name, reason_of(reader, asked))
    message = f"batch {batch} isn't kept any more: the upkeep removes its files once no promise needs them"
    return Answer({"message": message})


@router.post("/unlock", dependencies=guarded(may_edit, action_logging("binlake_unlock")))
def unlock(loaded: SourceDep, reader: ReaderDep, asked: Asked) -> Answer:
    """Take the lease from a run that is dead. Raises 409 where its process is seen to be alive."""
    return Answer({"message": free(loaded[1], reason_of(reader, asked))})


@router.get("/removal", dependencies=[Depends(may_read)])
def removal(loaded: SourceDep) -> Answer:
    """Return what stays behind where the source is removed, and what hinders that now."""
    file, config = loaded
    return Answer(
        {
            "source": config.source.name, "file": str(file), **tables_of.sizes_of_lake(config),
            "hindrance": _hindrance(config), "now_us": now_us(),
        }
    )  # fmt: skip


@router.post("/remove", dependencies=guarded(may_edit, may_remove, action_logging("binlake_remove_source")))
def remove(loaded: SourceDep, reader: ReaderDep, asked: Asked) -> Answer:
    """Remove the source's YAML, and nothing else. Raises 409 where something works on it, or the file must stay."""
    file, config = loaded
    if hindrance := _hindrance(config):
        raise UsageError(hindrance, remedy="wait for its end, or cancel it, then remove the source")
    try:
        file.unlink()
    except OSError as error:
        raise UsageError(f"{file} can't be removed: {error.strerror}", remedy="remove it where it comes from") from None
    result = f"{file.name} is removed; the lake at {config.root} stays"
    message = note(config, "source removed", reason_of(reader, asked), result)
    return Answer({"message": f"{message}; Airflow gives its DAGs up within minutes"})


def _hindrance(config: PipelineConfig) -> str:
    """Return what works on the source, so that it can't be removed now; empty where nothing does."""
    if runs := at_work(config.source.name, DAGS):
        return f"the run {runs[0]} is at work"
    control = lease.read(metadata_of(config))
    works = control.holder and not control.holder_died and control.expires_us > now_us()
    return f"{control.holder} works on it" if works else ""


def _editable(config: PipelineConfig, what: Dag, reader: Reader) -> DagModel:
    """Return the DAG. Raises 403 if the user may not edit it, 409 if Airflow doesn't know it."""
    may_edit_dag(config.source.name, what, reader)
    return dag_of(config.source.name, what)


def _set_all(config: PipelineConfig, dags: Sequence[DagModel], reader: Reader, *, paused: bool) -> None:
    """Pause or unpause DAGs. Raises 403 before anything is changed if the user may not edit each of them."""
    for what in DAGS:
        if any(dag.dag_id == dag_id(config.source.name, what) for dag in dags):
            may_edit_dag(config.source.name, what, reader)
    for dag in dags:
        set_paused(dag, paused=paused)
