"""Operators for the DAGs' steps: preflight, snapshot, unfinished, plan, stage, merge, record, sync, announce."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, DagRunState
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped
from airflow.sdk.observability import stats

from binlake.config import PipelineConfig, load
from binlake.errors import SparkNeeded, StagingError
from binlake.moment import parse_moment
from binlake.spark.on_demand import SessionOnDemand
from binlake.spark.starting import no_session
from binlake_airflow import assets, lineage, notices, summaries
from binlake_airflow.assets import asset_alias as asset_alias, run_key as run_key, table_asset as table_asset
from binlake_airflow.hook import BinlakeHook
from binlake_airflow.links import PageLink
from binlake_airflow.submit import BinlakeSparkOperator, airflow_errors, look_again
from binlake_airflow.task_log import TaskReport

if TYPE_CHECKING:
    from airflow.sdk import Context

    from binlake.metadata.lease import OpenBatch
    from binlake.metadata.metadata import Metadata
    from binlake.metadata.record import RunReport, TableRun
    from binlake.phases.outcomes import PlanOutcome
    from binlake_airflow.lineage import TableLineage

log = logging.getLogger(f"airflow.task.{__name__}")
UI_COLOR = "#e8f0fb"
BACKFILL = "backfill"
"""The run type of DAG runs of a backfill."""


def _open_batch(config: PipelineConfig) -> OpenBatch | None:
    from binlake import pipeline
    from binlake.metadata import lease

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


class SourceOperator(BaseOperator):
    """Base of a source's steps that need no Spark.

    :param config_file: the source's YAML (templated)
    """

    template_fields: Sequence[str] = ("config_file",)
    ui_color = UI_COLOR
    operator_extra_links = (PageLink(),)

    def __init__(self, *, config_file: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config_file = config_file


def is_true(value: Any) -> bool:
    """Tell whether a form's field, or its rendered template, is true."""
    return str(value).lower() == "true"


class BinlakePreflightOperator(SourceOperator):
    """Check server, grants, tables, Spark and lake; a failing check fails the run, with the SQL that fixes it.

    :param config_file: the source's YAML (templated)
    :param tables: patterns of ``database.table`` that the run was given (templated): each must match a table
    :param begin: a new lake may take the place of one that is gone (templated)
    """

    template_fields: Sequence[str] = (*SourceOperator.template_fields, "tables", "begin")

    def __init__(self, *, tables: Any = None, begin: Any = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.begin = begin

    def execute(self, context: Context) -> None:
        from binlake.doctor.preflight import preflight
        from binlake.metadata import failures
        from binlake.metadata.metadata import metadata_of, now_us

        began_us = now_us()
        with airflow_errors():
            config = load(self.config_file)
            origin = BinlakeHook(config.source.connection).origin()
            if is_true(self.begin):
                metadata_of(config).begin_anew()
            checks = preflight(config, origin, patterns=self.tables or ())
        for check in checks:
            if check.ok is True:
                self.log.info("ok    %s: %s", check.name, check.found)
            else:
                self.log.warning("%s  %s", check.ok or "FAIL", check.text)
        for problem in notices.problems(config):
            self.log.warning("nobody will be told by %s", problem)
        failed = [check for check in checks if check.ok is False]
        if failed:
            lines = "\n".join(check.text for check in failed)
            said = f"{len(failed)} of {len(checks)} checks failed\n{lines}"
            failures.note(metadata_of(config), "preflight", said, began_us)
            raise AirflowFailException(said)


class LineageOperator(BinlakeSparkOperator):
    """Base of operators that report the lineage of each changed table to the provider openlineage."""

    _lineage: tuple[TableLineage, ...] = ()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return the lineage. The provider calls this after the task's success."""
        return lineage.facets(self._lineage)


class BinlakeSnapshotOperator(LineageOperator):
    """Copy tables at one binlog position.

    :param tables: patterns of ``database.table`` (templated); without any: tables not followed yet, else all
    :param lock: ``flush``, ``tables`` or ``none`` (templated)
    :param keys: ``FIRST..LAST`` (templated): copy only these rows of one followed table, by the first column of its key
    :param begin: a new lake may take the place of one that is gone (templated)
    """

    template_fields: Sequence[str] = (*BinlakeSparkOperator.template_fields, "tables", "lock", "keys", "begin")

    def __init__(
        self, *, tables: Any = None, lock: Any = "flush", keys: Any = None, begin: Any = False, **kwargs: Any
    ) -> None:
        super().__init__(job="snapshot", **kwargs)
        self.begin = begin
        self.tables = tables
        self.lock = lock
        self.keys = keys

    def execute(self, context: Context) -> Any:
        from binlake.doctor import beforehand
        from binlake.metadata.metadata import metadata_of
        from binlake.phases.bootstrap import is_short_copy

        rows = [f"--keys={self.keys}"] if self.keys else []  # which may begin with a minus
        patterns = ["--tables", *self.tables] if self.tables else []
        begin = ["--begin"] if is_true(self.begin) else []
        with airflow_errors():
            config = self.pipeline_config()
            origin = BinlakeHook(config.source.connection).origin()
            beforehand.check_snapshot(config, origin, self.tables or (), self.keys, self.lock)
            short = is_short_copy(config, origin, list(self.tables or ()))
            arguments = ("--run", run_key(context), "--lock", self.lock, *begin, *rows, *patterns)
            copied = self.submit(context, *arguments, short_lived=short)
            self._lineage = lineage.of_tables(self.config_file, (table["table"] for table in copied))
            return summaries.of_snapshots(metadata_of(config), copied)


class BinlakeResnapshotOperator(LineageOperator):
    """Snapshot the tables for which a sync asked, as the log lacks their rows; usually there are none.

    As the sync's last step it fails where this run's batches stopped tables (the YAML's ``airflow.fail_on_stopped``):
    all other tables stand at the run's position by then.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="snapshot", **kwargs)

    def execute(self, context: Context) -> Any:
        from binlake.metadata.metadata import metadata_of

        with airflow_errors():
            config = self.pipeline_config()
            metadata = metadata_of(config)
            copied = self._copy(context, config, metadata)
            stopped = stopped_by(metadata, run_key(context)) if config.airflow.fail_on_stopped else []
        if stopped:
            raise AirflowFailException(
                "\n".join(f"{row['table']} stopped: {row['reason']}\n  → {row['remedy']}" for row in stopped)
            )
        return copied

    def _copy(self, context: Context, config: PipelineConfig, metadata: Metadata) -> Any:
        from binlake.metadata import watermarks

        asked = watermarks.asked(metadata)
        if not asked or config.source.is_files:
            self.log.info("no table asks for a new snapshot")
            return None
        self.log.warning("snapshotted anew: %s", ", ".join(map(str, asked)))
        copied = self.submit(context, "--run", run_key(context), "--asked")
        self._lineage = lineage.of_tables(self.config_file, (table["table"] for table in copied))
        return summaries.of_snapshots(metadata, copied)


def stopped_by(metadata: Metadata, run: str) -> list[dict[str, Any]]:
    """Return the tables (table, reason, remedy) that a run's batches stopped and that are stopped still."""
    from binlake.metadata import watermarks
    from binlake.metadata.record import recorded_by

    newly = {table.table for report in recorded_by(metadata, run) for table in report.tables if table.newly_stopped}
    if not newly:
        return []
    rows = [{**row, "table": f"{row['database']}.{row['table']}"} for row in watermarks.read(metadata)]
    return [row for row in rows if row["status"] == "stopped" and row["table"] in newly]


class BinlakeAnnounceOperator(SourceOperator):
    """Update the assets of the tables that this run's snapshots copied.

    It is a separate task because Airflow drops the events of a failed one, and a snapshot fails if one of its tables
    does. Make it a teardown, which runs whatever happened before it.

    :param config_file: the source's YAML (templated)
    :param batches: also update the assets of tables changed by batches that this run recorded, as a verification and
        the copy of a key range do, and of tables that it repaired
    """

    def __init__(self, *, batches: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.batches = batches

    def execute(self, context: Context) -> None:
        from binlake.metadata.metadata import metadata_of
        from binlake.metadata.record import recorded_by

        with airflow_errors():
            config = load(self.config_file)
            metadata = metadata_of(config)
            copied = assets.copies(metadata, run_key(context))
            recorded = recorded_by(metadata, run_key(context)) if self.batches else []
            repaired = assets.repairs(metadata, run_key(context)) if self.batches else []
        for table, extra in copied:
            self.log.info("%s was copied, Delta version %s", table, extra["delta_version"])
        changed = [event for report in recorded for event in assets.changes(report)]
        assets.announce(context, config, [*changed, *copied, *repaired])


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
        tell_tables(context, config, outcome.tables)
        self.log.info("%s", outcome.message)
        context["ti"].xcom_push("return_value", asdict(outcome))
        if outcome.empty:
            following = [task.task_id for task in self.downstream_list if isinstance(task, BinlakeStageOperator)]
            raise DownstreamTasksSkipped(tasks=following)  # type: ignore[no-untyped-call]


class BinlakeUnfinishedOperator(_BatchFindingOperator):
    """Find the batch that an earlier run left open; it is finished before the next one is planned."""

    def find(self, context: Context, config: PipelineConfig) -> PlanOutcome:
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
        from binlake import pipeline

        return pipeline.plan(config, BinlakeHook(config.source.connection).origin(), stop_of(context, self.until))


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
        batch = _open_batch(config)
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
            origin, report = BinlakeHook(config.source.connection).origin(), TaskReport(self.log)
            staged = pipeline.stage(config, origin, SessionOnDemand("binlake stage", config, report), report)
            self.log.info("%s; no Spark was needed", staged.message)
            return asdict(staged)


class BinlakeMergeOperator(_BatchStepOperator):
    """Merge the batch into the Delta tables, in the task's own process where Spark isn't needed, the rest by a job."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="merge", **kwargs)

    def execute(self, context: Context) -> Any:
        merged = self._merge(context)
        self._warn_of_stopped()
        self._lineage = lineage.of_batch(self.config_file, self.plan["batch"])
        return merged

    def _warn_of_stopped(self) -> None:
        """Log the tables that this batch stopped."""
        batch = _open_batch(self.pipeline_config())
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


class BinlakeSyncOperator(LineageOperator):
    """A whole sync in one task, from plan to record, with new snapshots of tables whose rows the log can't provide.

    It runs in the task's own process until something needs Spark; then a job does the rest, and goes on with the batch
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
        from binlake.metadata.metadata import metadata_of
        from binlake.metadata.record import recorded_by

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
        from binlake.metadata.metadata import now_us
        from binlake.staging.stage import is_short

        until, began_us = stop_of(context, self.until), now_us()
        origin = BinlakeHook(config.source.connection).origin()
        try:
            report = pipeline.sync(config, origin, no_session, TaskReport(self.log), until=until, run=run_key(context))
        except SparkNeeded as left:
            self.log.info("%s", left)
            begun = _open_batch(config)
            # After a batch that was begun before, any length of log may follow.
            short = begun is not None and is_short(begun) and begun.planned_us >= began_us
            asked = ["--until", until.isoformat()] if until else []
            done: dict[str, Any] = self.submit(context, "--run", run_key(context), *asked, short_lived=short)
            return done
        self.log.info("no Spark was needed")
        return report.to_json()


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


def tell(context: Context, config: PipelineConfig, report: RunReport) -> None:
    """Report what a batch did to each table: in the log, by the YAML's notifiers, and as metrics."""
    from binlake.cli import printing

    for line in printing.run_lines(report):
        log.info("%s", line)
    log.info("it stands at %s", report.position)
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
        stats.incr(f"binlake.{source}.{name}", number)
    for phase, seconds in report.phases:
        stats.timing(f"binlake.{source}.{phase}", timedelta(seconds=seconds))
