"""The operator of a whole sync in one task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from binlake.config import PipelineConfig
from binlake.errors import SparkNeeded
from binlake.spark.starting import no_session
from binlake_airflow import assets, lineage, summaries
from binlake_airflow.assets import asset_alias, run_key
from binlake_airflow.hook import BinlakeHook
from binlake_airflow.operators.limits import open_batch, stop_of, wait_for_earlier_backfill
from binlake_airflow.operators.reports import tell
from binlake_airflow.operators.source import LineageOperator
from binlake_airflow.submit import BinlakeSparkOperator, airflow_errors
from binlake_airflow.task_log import TaskReport

if TYPE_CHECKING:
    from binlake_airflow.compat import Context


class BinlakeSyncOperator(LineageOperator):
    """A whole sync in one task, from plan to record, with new snapshots of tables whose rows the log can't provide.

    It runs in the task's own process until something needs Spark; then a job does the rest, and continues the batch
    that was begun. It stops where a BinlakePlanOperator would. Preflight and a catalog's names have operators of their
    own.

    :param until: stop before commits at or after this time, ISO 8601 (templated)

    With ``outlets=[asset_alias(source)]`` it updates the assets of the tables that changed.
    """

    template_fields: Sequence[str] = (*BinlakeSparkOperator.template_fields, "until")

    def __init__(self, *, until: Any = None, **kwargs: Any) -> None:
        # The inlets show which events were emitted already.
        super().__init__(job="sync", **{"inlets": kwargs.get("outlets"), **kwargs})
        self.until = until

    def execute(self, context: Context) -> Any:
        """Carry the lake along the log, and report each batch that ended in this try."""
        from binlake.records.record import recorded_by
        from binlake.store.metadata import metadata_of

        wait_for_earlier_backfill(context)
        with airflow_errors():
            config = self.pipeline_config()
            result = self._sync(context, config)
            metadata = metadata_of(config)
            recorded = recorded_by(metadata, run_key(context))
            copied = assets.copies(metadata, run_key(context))
        ended_now = {result["batch"], *(run["batch"] for run in result["earlier"])}
        now = [report for report in recorded if report.batch in ended_now]
        for report in now:
            tell(context, config, report)
        if not now:
            self.log.info("%s", result["message"])
        events = [*(change for report in recorded for change in assets.changes(report)), *copied]
        if asset_alias(config.source.name) in self.outlets:
            assets.announce(context, config, events)
        self._lineage = lineage.of_tables(self.config_file, (name for name, _ in events))
        return summaries.of_sync(metadata, result, now)

    def _sync(self, context: Context, config: PipelineConfig) -> dict[str, Any]:
        """Sync; return the run's report as JSON."""
        from binlake import pipeline
        from binlake.staging.stage import is_short
        from binlake.store.metadata import now_us

        until, began_us = stop_of(context, self.until), now_us()
        origin = BinlakeHook.origin_of(config)
        try:
            report = pipeline.sync(config, origin, no_session, TaskReport(self.log), until=until, run=run_key(context))
        except SparkNeeded as left:
            self.log.info("%s", left)
            begun = open_batch(config)
            # After a batch that was begun before, any length of log may follow.
            short = begun is not None and is_short(begun) and begun.planned_us >= began_us
            asked = ["--until", until.isoformat()] if until else []
            done: dict[str, Any] = self.submit(context, "--run", run_key(context), *asked, short_lived=short)
            return done
        self.log.info("no Spark was needed")
        return report.to_json()
