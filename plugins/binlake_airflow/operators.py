"""The DAGs' steps as operators: preflight, snapshot; unfinished, plan, stage, merge, record; register, announce."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias, BaseOperator, DagRunState
from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped
from airflow.sdk.observability import stats

from binlake.config import PipelineConfig, load
from binlake.errors import SparkNeeded, StagingError
from binlake.moment import parse_moment
from binlake_airflow import lineage, notices
from binlake_airflow.hook import BinlakeHook
from binlake_airflow.links import PageLink
from binlake_airflow.submit import BinlakeSparkOperator, airflow_errors, look_again

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pyspark.sql import SparkSession

    from binlake.merge import SessionFactory
    from binlake.pipeline import PlanOutcome
    from binlake.state.lease import OpenBatch
    from binlake.state.record import RunReport
    from binlake_airflow.lineage import TableLineage

UI_COLOR = "#e8f0fb"
BACKFILL = "backfill"
"""The run type of a backfill's DAG runs."""


def asset_alias(source: str) -> AssetAlias:
    """Stands for all tables of a source: which these are, only the server knows."""
    return AssetAlias(f"binlake/{source}")


def table_asset(source: str, table: str) -> Asset:
    """One mirrored table; ``table`` is ``database.table``. DAGs can be scheduled on it."""
    encoded = quote(table, safe=" ")
    return Asset(name=f"{source}/{table}", uri=f"binlake://{source}/{encoded.replace(' ', '%20')}")


_STANDING_STILL = ("stopped", "missing", "resnapshot")
_CLOCKS_AGREE = timedelta(days=1)
"""How far the clocks of Airflow's hosts may differ at most."""


def run_key(context: Context) -> str:
    """What metadata calls this DAG run in what it records; its retries and its cleared tasks are the same run."""
    return f"{context['dag_run'].dag_id}/{context['dag_run'].run_id}"


def _announce(context: Context, source: str, extras: Mapping[str, dict[str, Any]]) -> None:
    """An asset event for each table, but for those that Airflow has already: the task was cleared after its success.

    Airflow keeps events together with a task's success, so a task that died announced nothing.
    """
    if not extras:
        return
    alias = asset_alias(source)
    since = context["dag_run"].run_after - _CLOCKS_AGREE
    known = [(event.asset.uri, event.extra) for event in context["inlet_events"][alias].after(since.isoformat())]
    for table, extra in extras.items():
        asset = table_asset(source, table)
        if (asset.uri, extra) not in known:
            context["outlet_events"][alias].add(asset, extra=extra)


def _open_batch(config: PipelineConfig) -> OpenBatch | None:
    from binlake import pipeline
    from binlake.state import lease

    return lease.read(pipeline.metadata_of(config)).open


def session_of(step: str, config: PipelineConfig) -> SessionFactory:
    """For a step that shouldn't need Spark: only where other runs changed the batch meanwhile it does."""

    def build() -> SparkSession:
        from binlake.lake import session

        return session.build(f"binlake {step}", spark=config.spark, lake=config.root)

    return build


def _no_session() -> SparkSession:
    """For a step of which a job does what needs Spark."""
    raise SparkNeeded("the rest is merged by Spark")


class SourceOperator(BaseOperator):
    """A step of one source, which needs no Spark.

    :param config_file: the source's YAML (templated)
    """

    template_fields: Sequence[str] = ("config_file",)
    ui_color = UI_COLOR
    operator_extra_links = (PageLink(),)

    def __init__(self, *, config_file: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config_file = config_file


class BinlakePreflightOperator(SourceOperator):
    """Check server, grants, tables, Spark and lake; a failing line fails the run, with the SQL that mends it.

    :param config_file: the source's YAML (templated)
    :param tables: patterns of ``database.table`` that the run is asked for (templated): each must match a table
    """

    template_fields: Sequence[str] = (*SourceOperator.template_fields, "tables")

    def __init__(self, *, tables: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tables = tables

    def execute(self, context: Context) -> None:
        from binlake.preflight.doctor import preflight
        from binlake.state import failures
        from binlake.state.metadata import metadata_of, now_us

        began_us = now_us()
        with airflow_errors():
            config = load(self.config_file)
            origin = BinlakeHook(config.source.connection).origin()
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


class BinlakeSnapshotOperator(BinlakeSparkOperator):
    """Copy tables at one binlog position.

    :param tables: patterns of ``database.table`` (templated); without any: tables not followed yet, else all
    :param lock: ``flush``, ``tables`` or ``none`` (templated)
    :param keys: ``FIRST..LAST`` (templated): of one table that is followed, only the rows whose key begins with a value
        from the first to the last
    """

    template_fields: Sequence[str] = (*BinlakeSparkOperator.template_fields, "tables", "lock", "keys")

    def __init__(self, *, tables: Any = None, lock: Any = "flush", keys: Any = None, **kwargs: Any) -> None:
        super().__init__(job="snapshot", **kwargs)
        self.tables = tables
        self.lock = lock
        self.keys = keys

    def execute(self, context: Context) -> Any:
        from binlake.preflight import beforehand

        rows = [f"--keys={self.keys}"] if self.keys else []  # which may begin with a minus
        patterns = ["--tables", *self.tables] if self.tables else []
        with airflow_errors():
            config = self.pipeline_config()
            origin = BinlakeHook(config.source.connection).origin()
            beforehand.check_snapshot(config, origin, self.tables or (), self.keys, self.lock)
            return self.submit(context, "--run", run_key(context), "--lock", self.lock, *rows, *patterns)


class BinlakeResnapshotOperator(BinlakeSparkOperator):
    """Snapshot the tables whose rows a sync couldn't tell from the log alone; usually there are none."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="snapshot", **kwargs)

    def execute(self, context: Context) -> Any:
        from binlake import pipeline
        from binlake.state import watermarks

        with airflow_errors():
            config = self.pipeline_config()
            asked = watermarks.asked(pipeline.metadata_of(config))
            if not asked or config.source.is_files:
                self.log.info("no table asks for a new snapshot")
                return []
            self.log.warning("snapshotted anew: %s", ", ".join(map(str, asked)))
            return self.submit(context, "--run", run_key(context), "--asked")


class BinlakeAnnounceOperator(SourceOperator):
    """Update the assets of the tables that this run's snapshots copied.

    A task of its own, because Airflow drops the events of one that fails, as a snapshot does when it copied all tables
    but one: make it a teardown, which runs whatever happened before it.

    :param config_file: the source's YAML (templated)
    :param batches: also of the tables that a batch changed which this run recorded: a verification, and a range of keys
        that is read anew, bring the lake to where they read the server
    """

    def __init__(self, *, batches: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.batches = batches

    def execute(self, context: Context) -> None:
        from binlake import pipeline
        from binlake.bootstrap import tables_copied
        from binlake.state.record import recorded_by

        with airflow_errors():
            config = load(self.config_file)
            metadata = pipeline.metadata_of(config)
            copied = tables_copied(metadata, run_key(context))
            recorded = recorded_by(metadata, run_key(context)) if self.batches else []
        for table in copied:
            self.log.info("%s was copied, Delta version %s", table["table"], table["delta_version"])
        changed = {name: extra for report in recorded for name, extra in _changes(report).items()}
        snapshots = {
            table["table"]: {"delta_version": table["delta_version"], "table_id": table["table_id"], "snapshot": True}
            for table in copied
        }
        _announce(context, config.source.name, {**changed, **snapshots})


class _BatchFindingOperator(SourceOperator):
    """Hands a batch on to stage, merge and record; where there is none, these are skipped.

    :param config_file: the source's YAML (templated)
    """

    def found(self, context: Context, config: PipelineConfig) -> PlanOutcome:
        raise NotImplementedError

    def execute(self, context: Context) -> None:
        self._wait_for_earlier_backfill(context)
        with airflow_errors():
            found = self.found(context, load(self.config_file))
        self.log.info("%s", found.message)
        context["ti"].xcom_push("return_value", asdict(found))
        if found.empty:
            following = [task.task_id for task in self.downstream_list if isinstance(task, BinlakeStageOperator)]
            raise DownstreamTasksSkipped(tasks=following)  # type: ignore[no-untyped-call]

    def _wait_for_earlier_backfill(self, context: Context) -> None:
        """Backfills run their DAG runs side by side, whatever the DAG's max_active_runs: ours go in order."""
        if context["dag_run"].run_type != BACKFILL:
            return
        earlier = context["ti"].get_previous_dagrun(state=DagRunState.RUNNING)
        if earlier is not None and earlier.run_type == BACKFILL:
            self.log.info("%s comes first", earlier.run_id)
            raise look_again()


class BinlakeUnfinishedOperator(_BatchFindingOperator):
    """Find the batch that an earlier run left open: it is carried through before the next is planned."""

    def found(self, context: Context, config: PipelineConfig) -> PlanOutcome:
        from binlake import pipeline

        return pipeline.unfinished(config)


class BinlakePlanOperator(_BatchFindingOperator):
    """Freeze the next range of the log.

    A scheduled or backfilled run goes to the last commit before its data interval's end, a manual one to the head
    of the log, or to ``until``. A batch that is open already is handed on instead: its own, when it is tried again.

    :param until: stop before commits at or after this time, ISO 8601 (templated)
    """

    template_fields: Sequence[str] = (*_BatchFindingOperator.template_fields, "until")

    def __init__(self, *, until: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.until = until

    def found(self, context: Context, config: PipelineConfig) -> PlanOutcome:
        from binlake import pipeline

        return pipeline.plan(config, BinlakeHook(config.source.connection).origin(), self._stop(context))

    def _stop(self, context: Context) -> datetime | None:
        if self.until:
            return parse_moment(str(self.until), "until")
        # A manual run has a data interval too, the last whole one: it isn't meant.
        if context["dag_run"].run_type in ("scheduled", BACKFILL):
            return context["dag_run"].data_interval_end
        return None


class _BatchStepOperator(BinlakeSparkOperator):
    """A step of the batch that plan froze.

    :param plan: what plan gave (templated)
    """

    template_fields: Sequence[str] = (*BinlakeSparkOperator.template_fields, "plan")

    def __init__(self, *, plan: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan

    def open_batch(self, config: PipelineConfig) -> OpenBatch | None:
        """The batch; None when another run, which found it unfinished, has recorded it."""
        found = _open_batch(config)
        if found is not None and found.batch == self.plan["batch"]:
            return found
        self.log.info("batch %s is recorded already, by another run", self.plan["batch"])
        return None


class BinlakeStageOperator(_BatchStepOperator):
    """Stage the batch's mutations as Parquet: a short range in the task's own process, a long one by Spark.

    Nothing is done to a batch that an earlier run staged.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="stage", **kwargs)

    def execute(self, context: Context) -> Any:
        from binlake import pipeline
        from binlake.report import Report
        from binlake.stage import is_short

        with airflow_errors():
            config = self.pipeline_config()
            found = self.open_batch(config)
            if found is None:
                return None
            if found.state != "planned":
                self.log.info("batch %s is %s already, by an earlier run", found.batch, found.state)
                return None
            if not is_short(found):
                return self.submit(context)
            origin = BinlakeHook(config.source.connection).origin()
            staged = pipeline.stage(config, origin, session_of("stage", config), Report())
            self.log.info("%s; no Spark was needed", staged.message)
            return asdict(staged)


class BinlakeMergeOperator(_BatchStepOperator):
    """Merge the batch into the Delta tables: what needs no Spark in the task's own process, the rest by a job."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="merge", **kwargs)
        self._lineage: tuple[TableLineage, ...] = ()

    def execute(self, context: Context) -> Any:
        merged = self._merge(context)
        if lineage.is_collected():
            self._lineage = lineage.of_batch(self.config_file, self.plan["batch"])
        return merged

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """For the provider openlineage: each table that the batch changed, from the source to the lake."""
        return lineage.facets(self._lineage)

    def _merge(self, context: Context) -> Any:
        from binlake import pipeline
        from binlake.report import Report
        from binlake.stage import is_short

        with airflow_errors():
            config = self.pipeline_config()
            found = self.open_batch(config)
            if found is None:
                return None
            if found.state == "planned":  # a merge found staged files damaged: the job stages them anew
                return self.submit(context, short_lived=is_short(found))
            try:
                merged = pipeline.merge(config, _no_session, Report())
            except (SparkNeeded, StagingError) as left:
                self.log.info("%s", left)
                return self.submit(context, short_lived=is_short(found))
            self.log.info("%s; no Spark was needed", merged.message)
            return asdict(merged)


class BinlakeRecordOperator(SourceOperator):
    """Record the run, say what it did to each table, and update the tables' assets.

    :param config_file: the source's YAML (templated)
    :param plan: what plan gave (templated)
    """

    template_fields: Sequence[str] = (*SourceOperator.template_fields, "plan")

    def __init__(self, *, plan: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan

    def execute(self, context: Context) -> dict[str, Any]:
        from binlake import pipeline

        with airflow_errors():
            config = load(self.config_file)
            if self.plan["empty"]:
                self.log.info("%s", self.plan["message"])
                return {**self.plan, "tables": []}
            report = pipeline.record(config, self.plan["batch"], run_key(context))
        self.log.info("%s (%s)", report.message, report.position)
        changes = _changes(report)
        for table in report.tables:
            if table.status in _STANDING_STILL:
                self.log.warning("%s %s: %s\n  → %s", table.table, table.status, table.reason, table.remedy)
                if table.newly_stopped:
                    notices.tell(config, context, "stopped", f"{table.table} stopped: {table.reason}", table.remedy)
                continue
            self.log.info("%s: %s", table.table, changes[table.table])
        _announce(context, config.source.name, changes)
        _count(config.source.name, report)
        return report.to_json()


def _changes(report: RunReport) -> dict[str, dict[str, Any]]:
    """What an asset's event tells of each table that a batch brought up to its position."""
    return {
        table.table: {
            "inserted": table.inserted, "updated": table.updated, "deleted": table.deleted,
            "batch": report.batch, "position": report.position, "delta_version": table.delta_version,
        }
        for table in report.tables
        if table.status not in _STANDING_STILL
    }  # fmt: skip


def _count(source: str, report: RunReport) -> None:
    """As metrics of Airflow's, by whatever it is set to (StatsD, OpenTelemetry)."""
    for name, number in (("mutations", report.mutations), ("bytes", report.bytes)):
        stats.incr(f"binlake.{source}.{name}", number)
    for phase, seconds in report.phases:
        stats.timing(f"binlake.{source}.{phase}", timedelta(seconds=seconds))
