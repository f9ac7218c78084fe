"""The tasks of one source, in their order: what the DAGs of a YAML, and the task groups of one's own, consist of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator, TaskGroup, TriggerRule

from binlake.config import PipelineConfig
from binlake_airflow.feeding import BinlakeFeedOperator
from binlake_airflow.notices import FeedStopped, TaskFailed
from binlake_airflow.operators import (
    BinlakeAnnounceOperator,
    BinlakeMergeOperator,
    BinlakePlanOperator,
    BinlakePreflightOperator,
    BinlakeRecordOperator,
    BinlakeResnapshotOperator,
    BinlakeSnapshotOperator,
    BinlakeStageOperator,
    BinlakeUnfinishedOperator,
    asset_alias,
)
from binlake_airflow.upkeep import (
    BinlakeMaintainOperator,
    BinlakeRegisterOperator,
    BinlakeReplayOperator,
    BinlakeResumeOperator,
    BinlakeVerifyOperator,
    BinlakeWatchOperator,
)

_LONGEST_DELAY = timedelta(minutes=10)


def default_args(config: PipelineConfig, file: str) -> dict[str, Any]:
    """What all tasks of the source have in common, by the section ``airflow`` of its YAML, which is ``file``."""
    told = config.airflow
    found = {
        "owner": "binlake",
        "retries": told.retries,
        "retry_delay": timedelta(seconds=told.retry_delay_seconds),
        "retry_exponential_backoff": 2,
        "max_retry_delay": _LONGEST_DELAY,
    }
    if any("failed" in asked.when for asked in told.notify):
        found["on_failure_callback"] = TaskFailed(file)
    return found | {name: value for name in ("pool", "queue") if (value := getattr(told, name))}


@dataclass(frozen=True)
class Steps:
    """Makes tasks in the DAG or task group that is open.

    file: the source's YAML, on every worker at the same path. jobs_folder: where the scripts for spark-submit lie.
    """

    file: str
    config: PipelineConfig
    jobs_folder: str | None = None

    def bootstrap(self, tables: Any = None, lock: Any = "flush", keys: Any = None, begin: Any = False) -> None:
        """tables: patterns, or what stands for them until the task runs, here and below. Others: see the operator."""
        snapshot = BinlakeSnapshotOperator(
            task_id="snapshot", tables=tables, lock=lock, keys=keys, begin=begin, **self._spark
        )
        self._preflight(tables, begin) >> snapshot
        self._end(snapshot, batches=True)

    def sync(self, until: Any = None) -> None:
        """until: ISO 8601, for a run that is neither scheduled nor backfilled."""
        with TaskGroup("unfinished"):
            found = BinlakeUnfinishedOperator(task_id="find", **self._plain)
            carried = self._carry(found)
        # None is unfinished as a rule, and the group's tasks are skipped; so are stage and merge where nothing is new.
        plan = BinlakePlanOperator(task_id="plan", until=until, trigger_rule=TriggerRule.NONE_FAILED, **self._plain)
        record = self._carry(plan, trigger_rule=TriggerRule.NONE_FAILED)
        resnapshot = BinlakeResnapshotOperator(task_id="resnapshot", **self._spark)
        self._preflight() >> found
        carried >> plan
        record >> resnapshot
        self._end(resnapshot)
        if self.config.airflow.watched_at:
            # It looks whatever happened before it, and isn't asked whether the run was a success.
            resnapshot >> self.watch().as_teardown()

    def verify(self, tables: Any = None) -> None:
        verify = BinlakeVerifyOperator(task_id="verify", tables=tables, **self._spark)
        self._preflight(tables) >> verify
        verify >> self._announce(batches=True)

    def resume(self, tables: Any, why: Any) -> None:
        """tables: names, not patterns."""
        BinlakeResumeOperator(task_id="resume", tables=tables, why=why, **self._spark)

    def replay(self, **asked: Any) -> None:
        """asked: what BinlakeReplayOperator takes."""
        BinlakeReplayOperator(task_id="replay", **asked, **self._spark)

    def feeds(self) -> None:
        """A task for each, side by side."""
        told = any("feed_stopped" in asked.when for asked in self.config.airflow.notify)
        failed = default_args(self.config, self.file).get("on_failure_callback")
        for feed in self.config.feeds:
            callbacks = [*([failed] if failed else []), *([FeedStopped(self.file, feed.name)] if told else [])]
            BinlakeFeedOperator(task_id=feed.name, feed=feed.name, on_failure_callback=callbacks, **self._plain)

    def watch(self) -> BaseOperator:
        return BinlakeWatchOperator(task_id="watch", **self._plain)

    def maintain(self) -> None:
        BinlakeMaintainOperator(task_id="maintain", **self._spark)

    @property
    def _plain(self) -> dict[str, Any]:
        return {"config_file": self.file}

    @property
    def _spark(self) -> dict[str, Any]:
        """For tasks that may start Spark."""
        pool = self.config.airflow.spark_pool
        return {**self._plain, "jobs_folder": self.jobs_folder, **({"pool": pool} if pool else {})}

    def _preflight(self, tables: Any = None, begin: Any = False) -> BaseOperator:
        return BinlakePreflightOperator(task_id="preflight", tables=tables, begin=begin, **self._plain)

    def _carry(self, found: BinlakeUnfinishedOperator | BinlakePlanOperator, **of_record: Any) -> BaseOperator:
        """Stage, merge and record the batch that ``found`` hands on; gives the last of them."""
        plan = found.output
        stage = BinlakeStageOperator(task_id="stage", plan=plan, **self._spark)
        merge = BinlakeMergeOperator(task_id="merge", plan=plan, **self._spark)
        record = BinlakeRecordOperator(task_id="record", plan=plan, **self._plain, **self._assets, **of_record)
        found >> stage >> merge >> record
        return record

    def _end(self, last: BaseOperator, *, batches: bool = False) -> None:
        """What follows the last task that changes tables: their names in a catalog, and their assets."""
        if self.config.catalog is not None:
            register = BinlakeRegisterOperator(task_id="register", **self._spark)
            last >> register
            last = register
        last >> self._announce(batches=batches)

    def _announce(self, *, batches: bool) -> BaseOperator:
        """Runs after a failed snapshot as well, and isn't asked whether the run was a success."""
        announce = BinlakeAnnounceOperator(task_id="announce", batches=batches, **self._plain, **self._assets)
        announce.as_teardown()
        return announce

    @property
    def _assets(self) -> dict[str, Any]:
        """For a task that updates tables' assets, and sees which it has updated."""
        alias = asset_alias(self.config.source.name)
        return {"inlets": [alias], "outlets": [alias]}
