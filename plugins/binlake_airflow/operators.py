"""The steps of the two DAGs as operators: preflight, snapshot; plan, stage, merge, record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias, BaseOperator, DagRunState
from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped

from binlake.config import PipelineConfig, load
from binlake_airflow.hook import BinlakeHook
from binlake_airflow.submit import BinlakeSparkOperator, airflow_errors, look_again

if TYPE_CHECKING:
    from airflow.sdk import Context

    from binlake.pipeline import PlanOutcome
    from binlake.state.lease import OpenBatch

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


def _emit(context: Context, source: str, table: str, extra: dict[str, Any]) -> None:
    context["outlet_events"][asset_alias(source)].add(table_asset(source, table), extra=extra)


def _open_batch(config: PipelineConfig) -> OpenBatch | None:
    from binlake import pipeline
    from binlake.state import lease

    return lease.read(pipeline.metadata_of(config)).open


class BinlakePreflightOperator(BaseOperator):
    """Check server, grants, tables, Spark and lake; a failing line fails the run, with the SQL that mends it.

    :param config_file: the source's YAML (templated)
    """

    template_fields: Sequence[str] = ("config_file",)
    ui_color = UI_COLOR

    def __init__(self, *, config_file: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config_file = config_file

    def execute(self, context: Context) -> None:
        from binlake.doctor import preflight

        with airflow_errors():
            config = load(self.config_file)
            checks = preflight(config, BinlakeHook(config.source.connection).origin())
        for check in checks:
            if check.ok is True:
                self.log.info("ok    %s: %s", check.name, check.found)
            else:
                self.log.warning("%s  %s: %s\n  → %s", check.ok or "FAIL", check.name, check.found, check.remedy)
        failed = [check for check in checks if check.ok is False]
        if failed:
            lines = "\n".join(f"{check.name}: {check.found}\n  → {check.remedy}" for check in failed)
            raise AirflowFailException(f"{len(failed)} of {len(checks)} checks failed\n{lines}")


class BinlakeSnapshotOperator(BinlakeSparkOperator):
    """Copy tables at one binlog position.

    :param tables: patterns of ``database.table`` (templated); without any: tables not followed yet, else all
    :param lock: ``flush``, ``tables`` or ``none`` (templated)
    """

    template_fields: Sequence[str] = (*BinlakeSparkOperator.template_fields, "tables", "lock")

    def __init__(self, *, tables: Any = None, lock: Any = "flush", **kwargs: Any) -> None:
        super().__init__(job="snapshot", **kwargs)
        self.tables = tables
        self.lock = lock

    def execute(self, context: Context) -> Any:
        patterns = ["--tables", *self.tables] if self.tables else []
        with airflow_errors():
            source = self.pipeline_config().source.name
            copied = self.submit(context, "--lock", self.lock, *patterns)
        for table in copied:
            _emit(context, source, str(table["table"]), {"delta_version": table["delta_version"], "snapshot": True})
        return copied


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
            copied = self.submit(context, "--asked")
        for table in copied:
            extra = {"delta_version": table["delta_version"], "snapshot": True}
            _emit(context, config.source.name, str(table["table"]), extra)
        return copied


class BinlakePlanOperator(BinlakeSparkOperator):
    """Freeze the next range of the log. Needs Spark only to finish a batch that an earlier run left open.

    A scheduled or backfilled run goes to the last commit before its data interval's end, a manual one to the head
    of the log, or to ``until``. Where nothing is new, stage and merge are skipped.

    :param until: stop before commits at or after this time, ISO 8601 (templated)
    """

    template_fields: Sequence[str] = (*BinlakeSparkOperator.template_fields, "until")

    def __init__(self, *, until: Any = None, **kwargs: Any) -> None:
        super().__init__(job="finish", **kwargs)
        self.until = until

    def execute(self, context: Context) -> None:
        self._wait_for_earlier_backfill(context)
        planned = self._plan(context, self._stop(context))
        context["ti"].xcom_push("return_value", asdict(planned))
        if planned.empty:
            following = [task.task_id for task in self.downstream_list if isinstance(task, BinlakeStageOperator)]
            raise DownstreamTasksSkipped(tasks=following)  # type: ignore[no-untyped-call]

    def _stop(self, context: Context) -> datetime | None:
        if self.until:
            moment = datetime.fromisoformat(str(self.until))
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        # A manual run has a data interval too, the last whole one: it isn't meant.
        if context["dag_run"].run_type in ("scheduled", BACKFILL):
            return context["dag_run"].data_interval_end
        return None

    def _wait_for_earlier_backfill(self, context: Context) -> None:
        """Backfills run their DAG runs side by side, whatever the DAG's max_active_runs: ours go in order."""
        if context["dag_run"].run_type != BACKFILL:
            return
        earlier = context["ti"].get_previous_dagrun(state=DagRunState.RUNNING)
        if earlier is not None and earlier.run_type == BACKFILL:
            self.log.info("%s comes first", earlier.run_id)
            raise look_again()

    def _plan(self, context: Context, until: datetime | None) -> PlanOutcome:
        from binlake import pipeline

        with airflow_errors():
            config = self.pipeline_config()
            origin = BinlakeHook(config.source.connection).origin()
            while True:
                planned = pipeline.plan(config, origin, until)
                self.log.info("%s", planned.message)
                if not planned.unfinished:
                    return planned
                finished = self.submit(context)
                self.log.info("%s", finished["message"])


class _BatchStepOperator(BinlakeSparkOperator):
    """A step of the batch that plan froze.

    :param plan: what plan gave (templated)
    """

    template_fields: Sequence[str] = (*BinlakeSparkOperator.template_fields, "plan")

    def __init__(self, *, plan: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan

    def is_still_open(self, config: PipelineConfig) -> bool:
        """Another run, which found the batch unfinished, may have carried it on."""
        found = _open_batch(config)
        if found is not None and found.batch == self.plan["batch"]:
            return True
        self.log.info("batch %s is recorded already, by another run", self.plan["batch"])
        return False


class BinlakeStageOperator(_BatchStepOperator):
    """Stage the batch's mutations as Parquet."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="stage", **kwargs)

    def execute(self, context: Context) -> Any:
        with airflow_errors():
            return self.submit(context) if self.is_still_open(self.pipeline_config()) else None


class BinlakeMergeOperator(_BatchStepOperator):
    """Merge the batch into the Delta tables; without staged mutations Spark isn't started."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="merge", **kwargs)

    def execute(self, context: Context) -> Any:
        from binlake import pipeline
        from binlake.lake import session
        from binlake.report import Report

        with airflow_errors():
            config = self.pipeline_config()
            if not self.is_still_open(config):
                return None
            if not pipeline.nothing_staged(config):
                return self.submit(context)
            merged = pipeline.merge(config, lambda: session.build("merge"), Report())
            self.log.info("%s; no Spark was needed", merged.message)
            return asdict(merged)


class BinlakeRecordOperator(BaseOperator):
    """Record the run, say what it did to each table, and update the tables' assets.

    :param config_file: the source's YAML (templated)
    :param plan: what plan gave (templated)
    """

    template_fields: Sequence[str] = ("config_file", "plan")
    ui_color = UI_COLOR

    def __init__(self, *, config_file: str, plan: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config_file = config_file
        self.plan = plan

    def execute(self, context: Context) -> dict[str, Any]:
        from binlake import pipeline

        with airflow_errors():
            config = load(self.config_file)
            found = _open_batch(config)
            if self.plan["empty"] or found is None or found.batch != self.plan["batch"]:
                message = (
                    self.plan["message"] if self.plan["empty"] else f"batch {self.plan['batch']} is recorded already"
                )
                self.log.info("%s", message)
                return {**self.plan, "message": message, "tables": []}
            report = pipeline.record(config)
        self.log.info("%s (%s)", report.message, report.position)
        for table in report.tables:
            if table.status in ("stopped", "missing", "resnapshot"):
                self.log.warning("%s %s: %s\n  → %s", table.table, table.status, table.reason, table.remedy)
                continue
            counts = {"inserted": table.inserted, "updated": table.updated, "deleted": table.deleted}
            self.log.info("%s: %s, Delta version %s", table.table, counts, table.delta_version)
            extra = {**counts, "batch": report.batch, "position": report.position, "delta_version": table.delta_version}
            _emit(context, config.source.name, table.table, extra)
        return report.to_json()
