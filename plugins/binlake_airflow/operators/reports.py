"""Reports of what a batch did to each table: in a task's log, by the YAML's notifiers, and as metrics."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from binlake.config import PipelineConfig
from binlake_airflow import assets, notices
from binlake_airflow.compat import Stats

if TYPE_CHECKING:
    from binlake.records.record import RunReport
    from binlake.store.run_rows import TableRun
    from binlake_airflow.compat import Context

log = logging.getLogger(f"airflow.task.{__name__}")


def tell(context: Context, config: PipelineConfig, report: RunReport) -> None:
    """Report what a batch did to each table: in the log, by the YAML's notifiers, and as metrics."""
    from binlake.cli import printing

    for line in printing.run_lines(report):
        log.info("%s", line)
    log.info("it is at %s", report.position)
    tell_tables(context, config, report.tables)
    _count(config.source.name, report)


def tell_tables(context: Context, config: PipelineConfig, tables: Iterable[TableRun]) -> None:
    """Report tables that don't follow: in the log, and newly stopped ones by the YAML's notifiers."""
    for table in tables:
        if table.status in assets.STANDING_STILL:
            log.warning("%s %s: %s\n  → %s", table.table, table.status, table.reason, table.remedy)
        if table.newly_stopped:
            notices.tell(config, context, "stopped", f"{table.table} stopped: {table.reason}", table.remedy)


def _count(source: str, report: RunReport) -> None:
    """Count mutations, bytes and seconds as metrics of Airflow (StatsD, OpenTelemetry)."""
    for name, number in (("mutations", report.mutations), ("bytes", report.bytes)):
        Stats.incr(f"binlake.{source}.{name}", number)
    for phase, seconds in report.phases:
        Stats.timing(f"binlake.{source}.{phase}", timedelta(seconds=seconds))
