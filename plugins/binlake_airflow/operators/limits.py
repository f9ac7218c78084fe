"""Up to where a run carries the lake, and which batch is open when it begins."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any

from binlake.config import PipelineConfig
from binlake.moment import parse_moment
from binlake_airflow.compat import DagRunState
from binlake_airflow.submit import look_again

if TYPE_CHECKING:
    from binlake.lease.lease import OpenBatch
    from binlake_airflow.compat import Context

log = logging.getLogger(f"airflow.task.{__name__}")
BACKFILL = "backfill"
"""The run type of DAG runs of a backfill."""


def open_batch(config: PipelineConfig) -> OpenBatch | None:
    """Return the batch that is open; None if none is."""
    from binlake import pipeline
    from binlake.lease import lease

    return lease.read(pipeline.metadata_of(config)).open


def wait_for_earlier_backfill(context: Context) -> None:
    """Reschedule the task while an earlier run of a backfill is running.

    Airflow runs a backfill's DAG runs in parallel, whatever the DAG's max_active_runs is; these must run in order.
    """
    if context["dag_run"].run_type != BACKFILL:
        return
    earlier = context["ti"].get_previous_dagrun(state=DagRunState.RUNNING)
    if earlier is not None and earlier.run_type == BACKFILL:
        log.info("%s comes first", earlier.run_id)
        raise look_again()


def stop_of(context: Context, until: Any) -> datetime | None:
    """Return the commit time before which a run stops, None for the head of the log.

    It is ``until``, ISO 8601, if given; else the end of a scheduled or backfilled run's data interval. Raises
    UsageError.
    """
    if until:
        return parse_moment(str(until), "until")
    # A manual run also has a data interval, the last complete one, which doesn't count.
    if context["dag_run"].run_type in ("scheduled", BACKFILL):
        return context["dag_run"].data_interval_end
    return None
