"""Steps of DAGs as operators, beside those of bootstrap and sync: verify, resume, replay, maintain, watch, register."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.observability import stats

from binlake.config import PipelineConfig, load
from binlake.config.orchestration import Occasion
from binlake.report import Report
from binlake.spark.on_demand import SessionOnDemand
from binlake_airflow import lineage, notices, summaries
from binlake_airflow.hook import BinlakeHook
from binlake_airflow.operators import LineageOperator, SourceOperator, run_key
from binlake_airflow.submit import BinlakeSparkOperator, airflow_errors

if TYPE_CHECKING:
    from airflow.sdk import Context


def _decider(context: Context) -> str:
    """The user who triggered the run; of one that nobody did, its name."""
    return context["dag_run"].triggering_user_name or run_key(context)


class BinlakeVerifyOperator(BinlakeSparkOperator):
    """Compare every value of the lake with the server, once the lake is brought to where the server is read.

    Fails where they differ; the log tells the tables, and the keys of rows.

    :param tables: patterns of ``database.table`` (templated); without any: all
    """

    template_fields: Sequence[str] = (*BinlakeSparkOperator.template_fields, "tables")

    def __init__(self, *, tables: Any = None, **kwargs: Any) -> None:
        super().__init__(job="verify", **kwargs)
        self.tables = tables

    def execute(self, context: Context) -> Any:
        from binlake.doctor import beforehand

        config = self.pipeline_config()
        with airflow_errors():
            beforehand.check_tables(config, BinlakeHook(config.source.connection).origin(), self.tables or ())
        try:
            with airflow_errors():
                patterns = ["--tables", *self.tables] if self.tables else []
                found = self.submit(context, "--run", run_key(context), *patterns)
        except AirflowFailException as error:
            notices.tell(config, context, "verify_failed", str(error))
            raise
        return {**found, "tables": len(found["tables"])}


class BinlakeResumeOperator(BinlakeSparkOperator):
    """Paused or stopped tables go through the batches they missed, and follow again.

    It is recorded as decided by who triggered the run; those that follow already are left alone.

    :param tables: each ``database.table`` (templated)
    :param why: for those who read it later (templated)
    """

    template_fields: Sequence[str] = (*BinlakeSparkOperator.template_fields, "tables", "why")

    def __init__(self, *, tables: Any, why: Any, **kwargs: Any) -> None:
        super().__init__(job="resume", **kwargs)
        self.tables = tables
        self.why = why

    def execute(self, context: Context) -> Any:
        from binlake.doctor import beforehand
        from binlake.metadata.decisions import Reason

        reason = Reason(_decider(context), str(self.why or ""))
        with airflow_errors():
            beforehand.check_resume(self.pipeline_config(), self.tables or (), reason)
            told = self.submit(context, f"--who={reason.who}", f"--why={reason.why}", "--tables", *self.tables)
            return {"tables": len(told)}


class BinlakeReplayOperator(LineageOperator):
    """Build tables once more, as they stood after a batch, from what is staged: the server isn't asked.

    :param tables: patterns of ``database.table`` (templated)
    :param batch: its number (templated); None: the newest, unless ``as_of`` is given
    :param as_of: ISO 8601, for the batch that was recorded last by then (templated)
    :param archive: ``file://`` of a folder of binlog files, for batches that aren't staged any more (templated)
    :param prove: compare with the table's own earlier version, row by row (templated)
    :param in_place: put the newest batch's rows into the table itself (templated)
    :param why: for those who read it later, needed in place: it is recorded with who triggered the run (templated)
    """

    template_fields: Sequence[str] = (
        *BinlakeSparkOperator.template_fields, "tables", "batch", "as_of", "archive", "prove", "in_place",
        "why",
    )  # fmt: skip

    def __init__(
        self,
        *,
        tables: Any,
        batch: Any = None,
        as_of: Any = None,
        archive: Any = None,
        prove: Any = True,
        in_place: Any = False,
        why: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(job="replay", **kwargs)
        self.tables = tables
        self.batch = batch
        self.as_of = as_of
        self.archive = archive
        self.prove = prove
        self.in_place = in_place
        self.why = why

    def execute(self, context: Context) -> Any:
        from binlake.cli import replay_arguments
        from binlake.doctor import beforehand

        given = {"--batch": self.batch, "--as-of": self.as_of, "--archive": self.archive, "--why": self.why}
        arguments = [f"{name}={value}" for name, value in given.items() if value is not None]
        wanted = {"--prove": self.prove, "--in-place": self.in_place}
        arguments += [name for name, asked in wanted.items() if asked]
        asked = [f"--who={_decider(context)}", "--tables", *(self.tables or ()), *arguments]
        with airflow_errors():
            beforehand.check_replay(self.pipeline_config(), replay_arguments.request_of(asked))
            replayed = self.submit(context, *asked)
            self._lineage = lineage.of_replays(self.config_file, replayed)
            return summaries.of_replays(replayed)


class BinlakeMaintainOperator(BinlakeSparkOperator):
    """Look after the data files of all tables, and after our own metadata; where no table needs it, without Spark."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="maintain", **kwargs)

    def execute(self, context: Context) -> Any:
        from binlake import pipeline
        from binlake.maintain import maintain

        with airflow_errors():
            config = self.pipeline_config()
            metadata = pipeline.metadata_of(config)
            if maintain.wants_spark(config, metadata):
                return summaries.of_maintenance(metadata, self.submit(context, "--run", run_key(context)))
            report = Report()
            session = SessionOnDemand("binlake maintain", config, report)
            found = pipeline.maintain(config, session, report, run=run_key(context))
            self.log.info("%s; no Spark was needed", found.headline)
            return summaries.of_maintenance(metadata, found.to_json())


class BinlakeWatchOperator(SourceOperator):
    """Look how far the lake is behind, and for how long the server keeps what is read next; tell where a limit of the
    YAML's section ``airflow`` is met.

    Both are metrics of Airflow's, too: ``binlake.SOURCE.lag_seconds``, ``lag_bytes``, ``headroom_seconds`` and
    ``tables_stopped``. Make it a teardown: it is needed most where a sync failed.

    :param config_file: the source's YAML (templated)
    """

    def execute(self, context: Context) -> dict[str, Any]:
        from binlake.phases.watch import watch

        with airflow_errors():
            config = load(self.config_file)
            found = watch(config, BinlakeHook(config.source.connection).origin())
        values = {**asdict(found), "tables_stopped": len(found.stopped)}
        for name in ("lag_seconds", "lag_bytes", "headroom_seconds", "tables_stopped"):
            if values[name] is not None:
                stats.gauge(f"binlake.{config.source.name}.{name}", values[name])
        limits = config.airflow
        if limits.lag_minutes is not None and (found.lag_seconds or 0) > limits.lag_minutes * 60:
            behind = f"{(found.lag_seconds or 0) / 60:,.0f} minutes, {(found.lag_bytes or 0) / 1e6:,.1f} MB of log"
            self._warn(context, config, "lag", f"the lake is behind: {behind}", "see why syncs fail or take so long")
        if limits.retention_hours is not None and found.headroom_seconds is not None:
            hours = found.headroom_seconds / 3600
            if hours < limits.retention_hours:
                said = f"the log that is read next may be purged in {hours:,.1f} hours"
                self._warn(context, config, "retention", said, "run a sync, or let the server keep its log longer")
        return {**values, "stopped": summaries.first(found.stopped)}

    def _warn(self, context: Context, config: PipelineConfig, event: Occasion, message: str, remedy: str) -> None:
        self.log.warning("%s\n  → %s", message, remedy)
        notices.tell(config, context, event, message, remedy)


class BinlakeRegisterOperator(BinlakeSparkOperator):
    """Give the catalog that the YAML names the tables' names; where it has them all, without Spark."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="register", **kwargs)

    def execute(self, context: Context) -> Any:
        from binlake import pipeline

        with airflow_errors():
            if pipeline.registration_due(self.pipeline_config()):
                done = self.submit(context, short_lived=True)
                return {name: len(done[name]) for name in ("registered", "dropped")}
        self.log.info("the catalog has all names")
        return None
