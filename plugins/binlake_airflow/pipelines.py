"""The DAGs of a folder of YAML files: for each source a bootstrap, a sync, a verify and a maintain."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator, CronDataIntervalTimetable, Param, TaskGroup, TriggerRule
from airflow.sdk.exceptions import AirflowTimetableInvalid

from binlake.config import PipelineConfig
from binlake.errors import ConfigurationError
from binlake_airflow.operators import (
    BinlakeAnnounceOperator,
    BinlakeMaintainOperator,
    BinlakeMergeOperator,
    BinlakePlanOperator,
    BinlakePreflightOperator,
    BinlakeRecordOperator,
    BinlakeRegisterOperator,
    BinlakeResnapshotOperator,
    BinlakeSnapshotOperator,
    BinlakeStageOperator,
    BinlakeUnfinishedOperator,
    BinlakeVerifyOperator,
    asset_alias,
)
from binlake_airflow.sources import sources_of

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
A batch that an earlier run left open is carried through first, by the tasks of the group `unfinished`; the same run
then goes on with the rest of the log.

A scheduled run, or a backfilled one, goes to the last commit before its data interval's end; a run triggered by hand
goes to the head of the log. An interval that is merged already ends as a proved no-op. Every table that isn't stopped
stands at one position after each run. Settings: `{file}`.
"""

_VERIFY_DOC = """
Compares every value of the Delta tables of **{source}** with the server: it is read consistently, at one position, to
which the lake is brought by a sync of its own. Where they differ it fails, and the log tells the keys of rows; the page
of binlake tells when each table was compared last. Settings: `{file}`.
"""

_MAINTAIN_DOC = """
Looks after the lake of **{source}**: small and overlapping data files are put together, files and rows that nobody was
promised go, of the tables and of binlake's own metadata. It may run beside the sync, which waits for moments at most.
What is promised, and when this runs, stands under `maintain` in `{file}`.
"""


def dags_of(folder: Path | str, *, jobs_folder: str | None = None) -> dict[str, DAG]:
    """All DAGs of ``folder/*.yaml`` by id.

    A broken file costs its own source's DAGs only. It shows among Airflow's import errors, with its keys.
    """
    found: dict[str, DAG] = {}
    problems: list[str] = []
    for file, config in sources_of(Path(folder)):
        try:
            if isinstance(config, ConfigurationError):
                raise config
            made = [make(config, file, jobs_folder) for make in (_bootstrap, _sync, _verify, _maintain)]
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


def _timetable(schedule: str | None, key: str, file: Path) -> CronDataIntervalTimetable | None:
    """key: the YAML's, for the error."""
    if schedule is None:
        return None
    timetable = CronDataIntervalTimetable(schedule, timezone="UTC")
    try:
        timetable.validate()
    except AirflowTimetableInvalid as error:
        raise ConfigurationError(
            f"{file}:\n  {key}: {error}", remedy='write a cron expression, such as "0 * * * *"'
        ) from None
    return timetable


def _dag(config: PipelineConfig, file: Path, what: str, doc: str, **settings: Any) -> DAG:
    """``binlake_{source}_{what}``, which nothing schedules unless ``settings`` do."""
    source = config.source.name
    return DAG(
        f"binlake_{source}_{what}",
        start_date=_FIRST_INTERVAL,
        catchup=False,
        max_active_runs=1,
        default_args=_DEFAULTS,
        tags={"binlake", source},
        doc_md=doc.format(source=source, file=file.name),
        **{"schedule": None, **settings},
    )


def _bootstrap(config: PipelineConfig, file: Path, jobs_folder: str | None) -> DAG:
    params = {
        "tables": _tables("tables that aren't followed yet, else all"),
        "lock": Param(
            "flush",
            enum=["flush", "tables", "none"],
            title="Lock",
            description="flush: FLUSH TABLES WITH READ LOCK for a moment; tables: LOCK TABLES; none: lock-free",
        ),
    }
    dag = _dag(config, file, "bootstrap", _BOOTSTRAP_DOC, params=params)
    with dag:
        preflight = BinlakePreflightOperator(task_id="preflight", config_file=str(file))
        snapshot = BinlakeSnapshotOperator(
            task_id="snapshot",
            config_file=str(file),
            jobs_folder=jobs_folder,
            tables=dag.param("tables"),
            lock=dag.param("lock"),
        )
        preflight >> snapshot
        _end(snapshot, config, file, jobs_folder)
    return dag


def _tables(without: str) -> Param:
    """without: which tables are meant where none is named."""
    return Param(
        None,
        type=["null", "array"],
        title="Tables",
        description=f"database.table, one pattern a line; empty: {without}",
    )


def _sync(config: PipelineConfig, file: Path, jobs_folder: str | None) -> DAG:
    source = config.source.name
    until = Param(
        None,
        type=["null", "string"],
        format="date-time",
        title="Until",
        description="Stop before commits at or after this time; empty: the head of the log",
    )
    schedule = _timetable(config.schedule, "schedule", file)
    dag = _dag(config, file, "sync", _SYNC_DOC, schedule=schedule, params={"until": until})
    with dag:
        preflight = BinlakePreflightOperator(task_id="preflight", config_file=str(file))
        with TaskGroup("unfinished"):
            found = BinlakeUnfinishedOperator(task_id="find", config_file=str(file))
            carried = _carry(found, source, file, jobs_folder)
        # None is unfinished as a rule, and the group's tasks are skipped; so are stage and merge where nothing is new.
        plan = BinlakePlanOperator(
            task_id="plan", config_file=str(file), until=dag.param("until"), trigger_rule=TriggerRule.NONE_FAILED
        )
        record = _carry(plan, source, file, jobs_folder, trigger_rule=TriggerRule.NONE_FAILED)
        resnapshot = BinlakeResnapshotOperator(task_id="resnapshot", config_file=str(file), jobs_folder=jobs_folder)
        preflight >> found
        carried >> plan
        record >> resnapshot
        _end(resnapshot, config, file, jobs_folder)
    return dag


def _verify(config: PipelineConfig, file: Path, jobs_folder: str | None) -> DAG:
    dag = _dag(config, file, "verify", _VERIFY_DOC, params={"tables": _tables("all")})
    with dag:
        preflight = BinlakePreflightOperator(task_id="preflight", config_file=str(file))
        verify = BinlakeVerifyOperator(
            task_id="verify", config_file=str(file), jobs_folder=jobs_folder, tables=dag.param("tables")
        )
        preflight >> verify
    return dag


def _maintain(config: PipelineConfig, file: Path, jobs_folder: str | None) -> DAG:
    schedule = _timetable(config.maintain.schedule, "maintain.schedule", file)
    dag = _dag(config, file, "maintain", _MAINTAIN_DOC, schedule=schedule)
    with dag:
        BinlakeMaintainOperator(task_id="maintain", config_file=str(file), jobs_folder=jobs_folder)
    return dag


def _carry(
    found: BinlakeUnfinishedOperator | BinlakePlanOperator,
    source: str,
    file: Path,
    jobs_folder: str | None,
    **of_record: Any,
) -> BaseOperator:
    """Stage, merge and record the batch that ``found`` hands on; gives the last of them."""
    settings: dict[str, Any] = {"config_file": str(file), "plan": found.output}
    stage = BinlakeStageOperator(task_id="stage", jobs_folder=jobs_folder, **settings)
    merge = BinlakeMergeOperator(task_id="merge", jobs_folder=jobs_folder, **settings)
    record = BinlakeRecordOperator(task_id="record", **settings, **_assets(source), **of_record)
    found >> stage >> merge >> record
    return record


def _end(last: BaseOperator, config: PipelineConfig, file: Path, jobs_folder: str | None) -> None:
    """What follows the last task that changes tables: their names in a catalog, and their assets."""
    if config.catalog is not None:
        register = BinlakeRegisterOperator(task_id="register", config_file=str(file), jobs_folder=jobs_folder)
        last >> register
        last = register
    last >> _announce(config.source.name, file)


def _announce(source: str, file: Path) -> BaseOperator:
    """Runs after a failed snapshot as well, and isn't asked whether the run was a success."""
    announce = BinlakeAnnounceOperator(task_id="announce", config_file=str(file), **_assets(source))
    announce.as_teardown()
    return announce


def _assets(source: str) -> dict[str, Any]:
    """For a task that updates tables' assets, and sees which it has updated."""
    return {"inlets": [asset_alias(source)], "outlets": [asset_alias(source)]}
