"""Operators of a batch's steps: unfinished, plan, stage, merge, record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from binlake.config import PipelineConfig, load
from binlake.errors import SparkNeeded, StagingError
from binlake.spark.on_demand import SessionOnDemand
from binlake.spark.starting import no_session
from binlake_airflow import assets, lineage, summaries
from binlake_airflow.assets import run_key
from binlake_airflow.compat import AirflowSkipException, DownstreamTasksSkipped
from binlake_airflow.hook import BinlakeHook
from binlake_airflow.operators.limits import open_batch, stop_of, wait_for_earlier_backfill
from binlake_airflow.operators.reports import tell, tell_tables
from binlake_airflow.operators.source import LineageOperator, SourceOperator
from binlake_airflow.submit import BinlakeSparkOperator, airflow_errors
from binlake_airflow.task_log import TaskReport

if TYPE_CHECKING:
    from binlake.lease.lease import OpenBatch
    from binlake.phases.outcomes import PlanOutcome
    from binlake_airflow.compat import Context


class _BatchFindingOperator(SourceOperator):
    """Base of operators that pass a batch on to stage, merge and record, or skip these if there is none.

    :param config_file: the source's YAML (templated)
    """

    def find(self, context: Context, config: PipelineConfig) -> PlanOutcome:
        raise NotImplementedError

    def execute(self, context: Context) -> None:
        wait_for_earlier_backfill(context)
        with airflow_errors():
            config = load(self.config_file)
            outcome = self.find(context, config)
        tell_tables(context, config, (*outcome.tables, *outcome.standing_still))
        self.log.info("%s", outcome.message)
        context["ti"].xcom_push("return_value", asdict(outcome))
        if outcome.empty:
            following = [task.task_id for task in self.downstream_list if isinstance(task, BinlakeStageOperator)]
            raise DownstreamTasksSkipped(tasks=following)  # type: ignore[no-untyped-call]


class BinlakeUnfinishedOperator(_BatchFindingOperator):
    """Find the batch that an earlier run left open; it is finished before the next one is planned."""

    def find(self, context: Context, config: PipelineConfig) -> PlanOutcome:
        """Return the batch that was left open; an empty outcome without one."""
        from binlake.phases.begun_before import unfinished

        return unfinished(config)


class BinlakePlanOperator(_BatchFindingOperator):
    """Freeze the next range of the log.

    A scheduled or backfilled run goes to the last commit before its data interval's end, a manual one to the head of
    the log, or to ``until``. If a batch is open, as in a retry, it is passed on instead.

    :param until: stop before commits at or after this time, ISO 8601 (templated)
    """

    template_fields: Sequence[str] = (*_BatchFindingOperator.template_fields, "until")

    def __init__(self, *, until: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.until = until

    def find(self, context: Context, config: PipelineConfig) -> PlanOutcome:
        """Plan the next batch, up to the end of the DAG run's interval or ``until``."""
        from binlake import pipeline

        return pipeline.plan(config, BinlakeHook.origin_of(config), stop_of(context, self.until))


class _BatchStepOperator(LineageOperator):
    """Base of the steps of a planned batch.

    :param plan: the plan operator's result (templated)
    """

    template_fields: Sequence[str] = (*BinlakeSparkOperator.template_fields, "plan")

    def __init__(self, *, plan: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan

    def open_batch(self, config: PipelineConfig) -> OpenBatch | None:
        """Return the batch; None if another run has finished and recorded it. Skips the task without a plan, as where
        somebody marked the plan's task as successful."""
        if self.plan is None:
            raise AirflowSkipException("nothing was planned")
        batch = open_batch(config)
        if batch is not None and batch.batch == self.plan["batch"]:
            return batch
        self.log.info("batch %s is recorded already, by another run", self.plan["batch"])
        return None


class BinlakeStageOperator(_BatchStepOperator):
    """Stage the batch's mutations as Parquet: a short range in the task's own process, a long one by Spark.

    A batch that an earlier run staged is left as it is.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="stage", **kwargs)

    def execute(self, context: Context) -> Any:
        """Stage the open batch; None where it was staged before."""
        from binlake import pipeline
        from binlake.staging.stage import is_short

        with airflow_errors():
            config = self.pipeline_config()
            batch = self.open_batch(config)
            if batch is None:
                return None
            if batch.state != "planned":
                self.log.info("batch %s is %s already, by an earlier run", batch.batch, batch.state)
                return None
            if not is_short(batch):
                return self.submit(context)
            origin, report = BinlakeHook.origin_of(config), TaskReport(self.log)
            staged = pipeline.stage(config, origin, SessionOnDemand("binlake stage", config, report), report)
            self.log.info("%s; no Spark was needed", staged.message)
            return asdict(staged)


class BinlakeMergeOperator(_BatchStepOperator):
    """Merge the batch into the Delta tables, in the task's own process where Spark isn't needed, the rest by a job."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="merge", **kwargs)

    def execute(self, context: Context) -> Any:
        """Merge the open batch, and report the lineage of its tables."""
        merged = self._merge(context)
        self._warn_of_stopped()
        self._lineage = lineage.of_batch(self.config_file, self.plan["batch"])
        return merged

    def _warn_of_stopped(self) -> None:
        """Log the tables that this batch stopped."""
        batch = open_batch(self.pipeline_config())
        for life in batch.outcome.lives if batch else ():
            if life.status == "stopped":
                self.log.warning("%s is stopped: %s\n  → %s", life.name, life.reason, life.remedy)

    def _merge(self, context: Context) -> Any:
        from binlake import pipeline
        from binlake.staging.stage import is_short

        with airflow_errors():
            config = self.pipeline_config()
            batch = self.open_batch(config)
            if batch is None:
                return None
            if batch.state == "planned":  # a merge found damaged staged files: the job stages them again
                return self.submit(context, short_lived=is_short(batch))
            try:
                merged = pipeline.merge(config, no_session, TaskReport(self.log))
            except (SparkNeeded, StagingError) as left:
                self.log.info("%s", left)
                return self.submit(context, short_lived=is_short(batch))
            self.log.info("%s; no Spark was needed", merged.message)
            return asdict(merged)


class BinlakeRecordOperator(SourceOperator):
    """Record the run, report what it did to each table, and update the tables' assets.

    :param config_file: the source's YAML (templated)
    :param plan: the plan operator's result (templated)
    """

    template_fields: Sequence[str] = (*SourceOperator.template_fields, "plan")

    def __init__(self, *, plan: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan

    def execute(self, context: Context) -> dict[str, Any]:
        """Record the batch, and return a summary. Raises AirflowSkipException where nothing was planned."""
        if self.plan is None:
            raise AirflowSkipException("nothing was planned")
        if self.plan["empty"]:
            self.log.info("%s", self.plan["message"])
            return {**self.plan, "tables": 0}
        from binlake import pipeline  # it takes long to import

        with airflow_errors():
            config = load(self.config_file)
            report = pipeline.record(config, self.plan["batch"], run_key(context))
        tell(context, config, report)
        assets.announce(context, config, assets.changes(report))
        return summaries.of_run(pipeline.metadata_of(config), report)
