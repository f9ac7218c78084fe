"""Task groups for your own DAGs: a whole bootstrap or sync in one line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from binlake.config import load
from binlake_airflow.compat import TaskGroup
from binlake_airflow.steps import Steps, default_args


def binlake_bootstrap(
    config_file: str | Path,
    *,
    group_id: str = "bootstrap",
    tables: Sequence[str] | Any = None,
    lock: str | Any = "flush",
    keys: str | Any = None,
    begin: bool | Any = False,
    jobs_folder: str | None = None,
) -> TaskGroup:
    """Return the tasks that copy tables at one binlog position, from preflight to the tables' assets.

    :param config_file: the source's YAML, on every worker at the same path
    :param tables: patterns of ``database.table`` (templated); without any those that aren't followed yet, and nothing
        where all are: ``*.*`` copies all of them again
    :param lock: ``flush``, ``tables`` or ``none`` (templated)
    :param keys: ``FIRST..LAST`` (templated): copy only these rows of one followed table, by the first column of its key
    :param begin: begin a new lake if the known one is gone (templated)
    :param jobs_folder: of the scripts for spark-submit; by default beside the engine, or where its wheel put them

    Raises ConfigurationError when the YAML is wrong, which Airflow shows as the DAG's import error.
    """
    group, steps = _group(config_file, group_id, jobs_folder)
    with group:
        steps.bootstrap(tables, lock, keys, begin)
    return group


def binlake_sync(
    config_file: str | Path, *, group_id: str = "sync", until: Any = None, jobs_folder: str | None = None
) -> TaskGroup:
    """Return the tasks that merge the log up to the data interval's end, from preflight to the tables' assets.

    :param until: for runs that aren't scheduled: stop before commits at or after this time, ISO 8601 (templated)

    The other parameters, and the errors raised, are those of ``binlake_bootstrap``. Give the DAG a
    ``CronDataIntervalTimetable`` and ``max_active_runs=1``: then a backfill runs its intervals in order.
    """
    group, steps = _group(config_file, group_id, jobs_folder)
    with group:
        steps.sync(until)
    return group


def _group(config_file: str | Path, group_id: str, jobs_folder: str | None) -> tuple[TaskGroup, Steps]:
    config = load(config_file)
    group = TaskGroup(
        group_id,
        default_args=default_args(config, str(config_file)),  # type: ignore[arg-type]  # attrs' converter hides what it takes
        tooltip=f"{config.source.name}, by binlake",
    )
    return group, Steps(str(config_file), config, jobs_folder)
