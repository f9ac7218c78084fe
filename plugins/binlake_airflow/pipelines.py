"""The DAGs of a folder of YAML files: for each source a bootstrap and a sync."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, Param, TriggerRule
from airflow.sdk.exceptions import AirflowTimetableInvalid

from binlake.config import PipelineConfig, load
from binlake.errors import ConfigurationError
from binlake_airflow.operators import (
    BinlakeMergeOperator,
    BinlakePlanOperator,
    BinlakePreflightOperator,
    BinlakeRecordOperator,
    BinlakeResnapshotOperator,
    BinlakeSnapshotOperator,
    BinlakeStageOperator,
    asset_alias,
)

_DEFAULTS: dict[str, Any] = {
    "owner": "binlake",
    "retries": 3,
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": 2,
    "max_retry_delay": timedelta(minutes=10),
}
_FIRST_INTERVAL = datetime(2020, 1, 1, tzinfo=UTC)

_BOOTSTRAP_DOC = """
Copies tables of **{source}** into Delta Lake, all at one binlog position; the sync DAG follows the log from there.

Without `tables` it copies those that aren't followed yet (a table that was added to `{file}`), or all of them when all
are followed. Tables that aren't copied stay as they are.
"""
_SYNC_DOC = """
Carries the Delta tables of **{source}** forward along the binlog: preflight → plan → stage → merge → record.

A scheduled run, or a backfilled one, goes to the last commit before its data interval's end; a run triggered by hand
goes to the head of the log. An interval that is merged already ends as a proved no-op. Every table that isn't stopped
stands at one position after each run. Settings: `{file}`.
"""


def dags_of(folder: Path, *, jobs_folder: str | None = None) -> dict[str, DAG]:
    """All DAGs of ``folder/*.yaml`` by id.

    A broken file costs its own source's DAGs only. It shows among Airflow's import errors, with its keys.
    """
    found: dict[str, DAG] = {}
    files: dict[str, Path] = {}
    problems: list[str] = []
    for file in sorted(folder.glob("*.yaml")):
        try:
            config = load(file)
            if twin := files.get(config.source.name):
                raise ConfigurationError(
                    f"{file}:\n  source.name: {config.source.name!r} is the source of {twin.name}",
                    remedy="give each source a name of its own",
                )
            files[config.source.name] = file
            made = [_bootstrap(config, file, jobs_folder), _sync(config, file, jobs_folder)]
        except ConfigurationError as error:
            problems.append(str(error))
            continue
        found |= {dag.dag_id: dag for dag in made}
    if problems:
        found["binlake_broken_pipelines"] = _broken(problems)
    return found


def _broken(problems: list[str]) -> DAG:
    """Airflow keeps one import error per Python file, but takes the file's other DAGs when one doesn't validate."""

    class BrokenPipelines(DAG):
        def validate(self) -> None:
            raise ConfigurationError("\n".join(problems))

    return BrokenPipelines("binlake_broken_pipelines", schedule=None)


def _timetable(config: PipelineConfig, file: Path) -> CronDataIntervalTimetable | None:
    if config.schedule is None:
        return None
    timetable = CronDataIntervalTimetable(config.schedule, timezone="UTC")
    try:
        timetable.validate()
    except AirflowTimetableInvalid as error:
        raise ConfigurationError(
            f"{file}:\n  schedule: {error}", remedy='write a cron expression, such as "0 * * * *"'
        ) from None
    return timetable


def _bootstrap(config: PipelineConfig, file: Path, jobs_folder: str | None) -> DAG:
    source = config.source.name
    dag = DAG(
        f"binlake_{source}_bootstrap",
        schedule=None,
        start_date=_FIRST_INTERVAL,
        catchup=False,
        max_active_runs=1,
        default_args=_DEFAULTS,
        tags={"binlake", source},
        doc_md=_BOOTSTRAP_DOC.format(source=source, file=file.name),
        params={
            "tables": Param(
                None,
                type=["null", "array"],
                title="Tables",
                description="database.table, one pattern a line; empty: tables that aren't followed yet, else all",
            ),
            "lock": Param(
                "flush",
                enum=["flush", "tables", "none"],
                title="Lock",
                description="flush: FLUSH TABLES WITH READ LOCK for a moment; tables: LOCK TABLES; none: lock-free",
            ),
        },
    )
    with dag:
        preflight = BinlakePreflightOperator(task_id="preflight", config_file=str(file))
        snapshot = BinlakeSnapshotOperator(
            task_id="snapshot",
            config_file=str(file),
            jobs_folder=jobs_folder,
            tables=dag.param("tables"),
            lock=dag.param("lock"),
            outlets=[asset_alias(source)],
        )
        preflight >> snapshot
    return dag


def _sync(config: PipelineConfig, file: Path, jobs_folder: str | None) -> DAG:
    source = config.source.name
    dag = DAG(
        f"binlake_{source}_sync",
        schedule=_timetable(config, file),
        start_date=_FIRST_INTERVAL,
        catchup=False,
        max_active_runs=1,
        default_args=_DEFAULTS,
        tags={"binlake", source},
        doc_md=_SYNC_DOC.format(source=source, file=file.name),
        params={
            "until": Param(
                None,
                type=["null", "string"],
                format="date-time",
                title="Until",
                description="Stop before commits at or after this time; empty: the head of the log",
            )
        },
    )
    with dag:
        preflight = BinlakePreflightOperator(task_id="preflight", config_file=str(file))
        plan = BinlakePlanOperator(
            task_id="plan", config_file=str(file), jobs_folder=jobs_folder, until=dag.param("until")
        )
        stage = BinlakeStageOperator(task_id="stage", config_file=str(file), jobs_folder=jobs_folder, plan=plan.output)
        merge = BinlakeMergeOperator(task_id="merge", config_file=str(file), jobs_folder=jobs_folder, plan=plan.output)
        record = BinlakeRecordOperator(
            task_id="record",
            config_file=str(file),
            plan=plan.output,
            # Stage and merge are skipped where nothing is new: that is told, too.
            trigger_rule=TriggerRule.NONE_FAILED,
            outlets=[asset_alias(source)],
        )
        resnapshot = BinlakeResnapshotOperator(
            task_id="resnapshot", config_file=str(file), jobs_folder=jobs_folder, outlets=[asset_alias(source)]
        )
        preflight >> plan >> stage >> merge >> record >> resnapshot
    return dag
