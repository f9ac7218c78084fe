"""Operators of snapshots: those that copy tables, and the one that announces what was copied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from binlake.config import PipelineConfig, load
from binlake_airflow import assets, lineage, notices, summaries
from binlake_airflow.assets import run_key
from binlake_airflow.compat import AirflowFailException
from binlake_airflow.hook import BinlakeHook
from binlake_airflow.operators.source import LineageOperator, SourceOperator, is_true
from binlake_airflow.submit import BinlakeSparkOperator, airflow_errors

if TYPE_CHECKING:
    from binlake.store.metadata import Metadata
    from binlake_airflow.compat import Context


class BinlakeSnapshotOperator(LineageOperator):
    """Copy tables at one binlog position.

    :param tables: patterns of ``database.table`` (templated); without any those that aren't followed yet, and nothing
        where all are: ``*.*`` copies all of them again
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
        """Copy the tables; return a summary."""
        from binlake.doctor import beforehand
        from binlake.phases.bootstrap import has_new_tables, is_short_copy
        from binlake.store.metadata import metadata_of

        rows = [f"--keys={self.keys}"] if self.keys else []  # which may begin with a minus
        patterns = ["--tables", *self.tables] if self.tables else ["--new"]
        begin = ["--begin"] if is_true(self.begin) else []
        with airflow_errors():
            config = self.pipeline_config()
            origin = BinlakeHook.origin_of(config)
            beforehand.check_snapshot(config, origin, self.tables or (), self.keys, self.lock)
            if not self.tables and not begin and not has_new_tables(config, origin):
                self.log.info("all tables are followed, and nothing is copied: tables *.* would copy all of them again")
                return summaries.of_snapshots(metadata_of(config), [])
            short = is_short_copy(config, origin, list(self.tables or ()))
            arguments = ("--run", run_key(context), "--lock", self.lock, *begin, *rows, *patterns)
            copied = self.submit(context, *arguments, short_lived=short)
            self._lineage = lineage.of_tables(self.config_file, (table["table"] for table in copied))
            return summaries.of_snapshots(metadata_of(config), copied)


class BinlakeResnapshotOperator(LineageOperator):
    """Snapshot the tables for which a sync asked, as the log lacks their rows; usually there are none.

    As the sync's last step it fails where this run's batches stopped tables (the YAML's ``airflow.fail_on_stopped``):
    all other tables are at the run's position by then.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="snapshot", **kwargs)

    def execute(self, context: Context) -> Any:
        """Copy the tables for which a snapshot was asked; return a summary.

        Raises AirflowFailException where ``fail_on_stopped`` is set and a table was stopped.
        """
        from binlake.store.metadata import metadata_of

        with airflow_errors():
            config = self.pipeline_config()
            metadata = metadata_of(config)
            copied = self._copy(context, config, metadata)
            is_asked = config.airflow.fail_on_stopped
            stopped = stopped_by(metadata, run_key(context), _began_us(context)) if is_asked else []
        if stopped:
            error = AirflowFailException(
                "\n".join(f"{row['table']} {row['status']}: {row['reason']}\n  → {row['remedy']}" for row in stopped)
            )
            notices.notified(error, "stopped")
            raise error
        return copied

    def _copy(self, context: Context, config: PipelineConfig, metadata: Metadata) -> Any:
        from binlake.records import watermarks

        asked = [] if config.source.is_files else watermarks.asked(metadata)
        catching_up = watermarks.catching_up(metadata)
        if not asked and not catching_up:
            self.log.info("no table asks for a new snapshot")
            return None
        if catching_up:
            self.log.info("catching up: %s", ", ".join(map(str, catching_up)))
        if asked:
            self.log.warning("snapshotted again: %s", ", ".join(map(str, asked)))
        copied = self.submit(context, "--run", run_key(context), "--asked")
        self._lineage = lineage.of_tables(self.config_file, (table["table"] for table in copied))
        return summaries.of_snapshots(metadata, copied)


def stopped_by(metadata: Metadata, run: str, since_us: float = math.inf) -> list[dict[str, Any]]:
    """Return the tables (table, status, reason, remedy) that a run's batches stopped and that are stopped still, and
    those that were found to be missing since a time, in microseconds since 1970."""
    from binlake.records import watermarks
    from binlake.records.record import recorded_by

    newly = {table.table for report in recorded_by(metadata, run) for table in report.tables if table.newly_stopped}
    return [
        {"table": str(row.name), "status": row.status, "reason": row.reason, "remedy": row.remedy}
        for row in watermarks.read(metadata)
        if (row.status in ("stopped", "missing") and str(row.name) in newly)
        or (row.status == "missing" and row.updated_us >= since_us)
    ]


def _began_us(context: Context) -> float:
    """Return when the DAG's run began, in microseconds since 1970."""
    began = getattr(context.get("dag_run"), "start_date", None)
    return began.timestamp() * 1e6 if began else math.inf


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
        """Update the assets of the tables that this DAG run copied, repaired or changed."""
        from binlake.records.record import recorded_by
        from binlake.store.metadata import metadata_of

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
