"""Operators for the other steps of the DAGs: verify, resume, replay, maintain, watch, register."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from binlake import names
from binlake.config import PipelineConfig, load
from binlake.config.catalogs_config import CatalogOccasion
from binlake.config.orchestration import Occasion
from binlake.errors import SparkNeeded, UsageError
from binlake.spark.on_demand import SessionOnDemand
from binlake.spark.starting import no_session
from binlake_airflow import lineage, notices, summaries
from binlake_airflow.assets import run_key
from binlake_airflow.compat import AirflowFailException, Stats
from binlake_airflow.hook import BinlakeHook
from binlake_airflow.operators.source import LineageOperator, SourceOperator, is_true
from binlake_airflow.submit import BinlakeSparkOperator, airflow_errors
from binlake_airflow.task_log import TaskReport

if TYPE_CHECKING:
    from binlake.source.log import Origin
    from binlake_airflow.compat import Context


def _decider(context: Context) -> str:
    """Return the user who triggered the run, or the run's name if nobody did."""
    return context["dag_run"].triggering_user_name or run_key(context)


class BinlakeVerifyOperator(BinlakeSparkOperator):
    """Compare every value of the lake with the server; the lake is first brought to the position at which it is read.

    It reads both sides in the task's own process. A job does it where the YAML's ``verify.by`` is ``hash``, or
    something needs Spark. Fails if they differ; the log names the tables, and the keys of rows. Where the YAML's
    ``verify.repair`` is ``auto``, it fails only if differing rows couldn't be put right.

    :param tables: patterns of ``database.table`` (templated); without any: all
    :param changed: compare what may have changed since it was compared, and a share of the rest (templated); None: as
        the YAML's ``verify.changed`` says in a scheduled run, else everything
    :param repair: put differing rows right, unless ``verify.repair`` is ``never`` (templated)
    """

    template_fields: Sequence[str] = (*BinlakeSparkOperator.template_fields, "tables", "changed", "repair")

    def __init__(self, *, tables: Any = None, changed: Any = None, repair: Any = False, **kwargs: Any) -> None:
        super().__init__(job="verify", **kwargs)
        self.tables = tables
        self.changed = changed
        self.repair = repair

    def execute(self, context: Context) -> Any:
        """Compare the lake with the server, and return a summary. Raises AirflowFailException where they differ."""
        from binlake import pipeline
        from binlake.doctor import beforehand

        config = self.pipeline_config()
        origin = BinlakeHook.origin_of(config)
        try:
            with airflow_errors():
                beforehand.check_tables(config, origin, self.tables or ())
                result = self._verified(context, config, origin)
        except AirflowFailException as error:
            notices.tell(config, context, "verify_failed", str(error))
            notices.notified(error, "verify_failed")
            raise
        return summaries.of_verification(config, pipeline.metadata_of(config), result)

    def _verified(self, context: Context, config: PipelineConfig, origin: Origin) -> dict[str, Any]:
        """Compare, and repair if that is wanted; return the report as JSON. Raises BinlakeError, and a job's error as
        Airflow's, where the lake differs or wasn't repaired."""
        from binlake import pipeline
        from binlake.phases.verification import VerifyRequest

        tables, changed = list(self.tables or ()), self._is_of_changed(context, config)
        if is_true(self.repair):
            return self._repaired(context, config, origin, tables)
        if config.verify.by == "read":
            report, run = TaskReport(self.log), run_key(context)
            try:
                asked = VerifyRequest(tables or None, changed=changed, replica=BinlakeHook.replica_of(config))
                compared = pipeline.verify(config, origin, no_session, report, asked, run)
            except SparkNeeded as left:
                self.log.info("%s", left)
            else:
                self.log.info("%s; no Spark was needed", compared.to_text_without_keys())
                if not compared.differing or config.verify.repair != "auto":
                    compared.refuse_unequal()
                    return compared.to_json()
                differing = [names.pattern_of(table.name.database, table.name.table) for table in compared.differing]
                result = self._repaired_by_itself(context, config, origin, differing)
                compared.refuse_unverified()
                return result
        return self._verified_by_job(context, config, origin, ["--changed"] if changed else [])

    def _verified_by_job(
        self, context: Context, config: PipelineConfig, origin: Origin, options: list[str]
    ) -> dict[str, Any]:
        from binlake.records import verified
        from binlake.store.metadata import metadata_of, now_us

        tables, began_us = list(self.tables or ()), now_us()
        asked = [*options, *(["--tables", *tables] if tables else [])]
        try:
            compared: dict[str, Any] = self.submit(context, "--run", run_key(context), *asked)
            return compared
        except AirflowFailException:
            if config.verify.repair != "auto" or not verified.differs_since(metadata_of(config), began_us):
                raise
        return self._repaired_by_itself(context, config, origin, tables)

    def _repaired_by_itself(
        self, context: Context, config: PipelineConfig, origin: Origin, tables: list[str]
    ) -> dict[str, Any]:
        """Repair tables, and notify of it."""
        result = self._repaired(context, config, origin, tables)
        repaired = [table["name"] for table in result["tables"] if table["repair"]]
        said = "the lake differed from the server, and no longer did when it was to be put right"
        if repaired:
            said = f"rows of {', '.join(summaries.first(repaired))} differed from the server, and were put right"
        remedy = "find out who changes the lake's tables, or the server's without its log"
        notices.tell(config, context, "verify_failed", said, remedy)
        return result

    def _repaired(self, context: Context, config: PipelineConfig, origin: Origin, tables: list[str]) -> dict[str, Any]:
        """Repair tables. Raises UsageError where the YAML forbids it, and CheckFailed where a table still differs."""
        from binlake import pipeline
        from binlake.phases.verification import RepairRequest

        if config.verify.repair == "never":
            raise UsageError("verify.repair is never", remedy="set it to ask or auto in the YAML")
        report = TaskReport(self.log)
        session = SessionOnDemand("binlake repair", config, report)
        asked = RepairRequest(tables or None, replica=BinlakeHook.replica_of(config))
        repaired_tables = pipeline.repair(config, origin, session, report, asked, run_key(context))
        self.log.info("%s", repaired_tables.to_text_without_keys())
        repaired_tables.refuse_unrepaired()
        return repaired_tables.to_json()

    def _is_of_changed(self, context: Context, config: PipelineConfig) -> bool:
        if config.verify.by != "read":
            return False
        if self.changed is None:
            return config.verify.changed and context["dag_run"].run_type == "scheduled"
        return is_true(self.changed)


class BinlakeResumeOperator(BinlakeSparkOperator):
    """Carry paused or stopped tables through the batches that they missed, so that they follow again.

    The decision is recorded with the user who triggered the run; tables that follow already are left alone.

    :param tables: each ``database.table`` (templated)
    :param why: the reason, which is recorded (templated)
    """

    template_fields: Sequence[str] = (*BinlakeSparkOperator.template_fields, "tables", "why")

    def __init__(self, *, tables: Any, why: Any, **kwargs: Any) -> None:
        super().__init__(job="resume", **kwargs)
        self.tables = tables
        self.why = why

    def execute(self, context: Context) -> Any:
        """Resume the tables by a job, and return how many."""
        from binlake.doctor import beforehand
        from binlake.records.decisions import Reason

        reason = Reason(_decider(context), str(self.why or ""))
        with airflow_errors():
            beforehand.check_resume(self.pipeline_config(), self.tables or (), reason)
            resumed = self.submit(context, f"--who={reason.who}", f"--why={reason.why}", "--tables", *self.tables)
            return {"tables": len(resumed)}


class BinlakeReplayOperator(LineageOperator):
    """Build tables again as they were after a batch, from staged files, without the server.

    :param tables: patterns of ``database.table`` (templated)
    :param batch: its number (templated); None: the newest, unless ``as_of`` is given
    :param as_of: ISO 8601, for the last batch recorded by then (templated)
    :param archive: ``file://`` of a folder of binlog files, for batches that aren't staged any more (templated)
    :param prove: compare with the table's own earlier version, row by row (templated)
    :param in_place: put the newest batch's rows into the table itself (templated)
    :param why: the reason, needed for in_place; it is recorded with the user who triggered the run (templated)
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
        """Build the tables again by a job, report their lineage, and return a summary."""
        from binlake.cli import replay_arguments
        from binlake.doctor import beforehand

        given = {"--batch": self.batch, "--as-of": self.as_of, "--archive": self.archive, "--why": self.why}
        arguments = [f"{name}={value}" for name, value in given.items() if value is not None]
        wanted = {"--prove": self.prove, "--in-place": self.in_place}
        arguments += [name for name, asked in wanted.items() if is_true(asked)]
        asked = [f"--who={_decider(context)}", "--tables", *(self.tables or ()), *arguments]
        with airflow_errors():
            beforehand.check_replay(self.pipeline_config(), replay_arguments.request_of(asked))
            replayed = self.submit(context, *asked)
            self._lineage = lineage.of_replays(self.config_file, replayed)
            return summaries.of_replays(replayed)


class BinlakeMaintainOperator(BinlakeSparkOperator):
    """Maintain the data files of tables and of the metadata; without Spark if no table needs it.

    :param tables: patterns of ``database.table`` (templated); without any: all
    """

    template_fields: Sequence[str] = (*BinlakeSparkOperator.template_fields, "tables")

    def __init__(self, *, tables: Any = None, **kwargs: Any) -> None:
        super().__init__(job="maintain", **kwargs)
        self.tables = tables

    def execute(self, context: Context) -> Any:
        """Maintain the tables, by a job where one needs Spark, and return a summary."""
        from binlake import pipeline
        from binlake.maintain import maintain

        with airflow_errors():
            config = self.pipeline_config()
            metadata = pipeline.metadata_of(config)
            tables = list(self.tables or ())
            if maintain.wants_spark(config, metadata, tables):
                named = ["--tables", *tables] if tables else []
                return summaries.of_maintenance(metadata, self.submit(context, "--run", run_key(context), *named))
            report = TaskReport(self.log)
            session = SessionOnDemand("binlake maintain", config, report)
            result = pipeline.maintain(config, session, report, tables or None, run_key(context))
            self.log.info("%s; no Spark was needed", result.headline)
            return summaries.of_maintenance(metadata, result.to_json())


class BinlakeWatchOperator(SourceOperator):
    """Check how far the lake is behind, and how long the server keeps the log that is needed next.

    Notifies if a limit of the YAML's section ``airflow`` is reached. The values are also metrics of Airflow:
    ``binlake.SOURCE.lag_seconds``, ``lag_bytes``, ``headroom_seconds``, ``tables_stopped`` and ``verified_through``.
    Make it a teardown: it is needed most after a failed sync.

    :param config_file: the source's YAML (templated)
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Write the measurements to Airflow's metrics, notify of limits that are reached, and return them."""
        from binlake.phases.watch import watch
        from binlake.records import metrics

        with airflow_errors():
            config = load(self.config_file)
            watched = watch(config, BinlakeHook.origin_of(config))
        health = watched.health
        values = {**asdict(replace(watched, health=None)), "tables_stopped": len(watched.stopped)}
        values |= {"health": health.level, "sentence": health.sentence} if health else {}
        shared = (metrics.LAG_SECONDS.stat, metrics.LAG_BYTES.stat, metrics.HEADROOM_SECONDS.stat)
        for name in (*shared, "tables_stopped", "verified_through"):
            if values[name] is not None:
                Stats.gauge(f"binlake.{config.source.name}.{name}", values[name])
        if health:
            self.log.info("%s", health.sentence)
            for advice in health.advice:
                if advice.occasion:
                    self._warn(context, config, advice.occasion, advice.what, advice.remedy)
        for reason in watched.gaps:
            remedy = "binlake doctor says what to set; the tables that missed changes stop, and ask for a snapshot"
            self._warn(context, config, "lag", f"the log lacks changes: {reason}", remedy)
        return {**values, "stopped": summaries.first(watched.stopped)}

    def _warn(self, context: Context, config: PipelineConfig, event: Occasion, message: str, remedy: str) -> None:
        self.log.warning("%s\n  → %s", message, remedy)
        notices.tell(config, context, event, message, remedy)


class BinlakeRegisterOperator(BinlakeSparkOperator):
    """Register the tables' names in the YAML's catalogs, by a job where Spark is needed.

    :param every: after which step: the catalogs that follow each ``batch``, or with ``snapshot`` all of them
    """

    def __init__(self, *, every: CatalogOccasion = "batch", **kwargs: Any) -> None:
        super().__init__(job="register", **kwargs)
        self.every = every

    def execute(self, context: Context) -> Any:
        """Register the names, and return the counts; None where the catalogs have all of them."""
        from binlake.phases.register import register, registration_due

        with airflow_errors():
            config = self.pipeline_config()
            if not registration_due(config, self.every):
                self.log.info("the catalogs have all names")
                return None
            try:
                done = register(config, no_session, TaskReport(self.log), self.every).to_json()
            except SparkNeeded:
                done = self.submit(context, "--every", self.every, short_lived=True)
            return {name: len(done[name]) for name in ("registered", "dropped")}
