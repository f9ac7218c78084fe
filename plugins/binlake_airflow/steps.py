"""The tasks of one source in their order, for the DAGs of a YAML and for task groups in your own DAGs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from binlake.config import PipelineConfig
from binlake.config.catalogs_config import CatalogOccasion
from binlake_airflow.compat import BaseOperator, TaskGroup, TriggerRule, backoff
from binlake_airflow.feeding import BinlakeFeedOperator
from binlake_airflow.following import RESTART_DELAY, BinlakeFollowedOperator, BinlakeFollowOperator
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
    """Return the arguments of all tasks of a source, by the section ``airflow`` of its YAML. file: the YAML."""
    settings = config.airflow
    arguments = {
        "owner": "binlake",
        "retries": settings.retries,
        "retry_delay": timedelta(seconds=settings.retry_delay_seconds),
        "retry_exponential_backoff": backoff(2),
        "max_retry_delay": _LONGEST_DELAY,
    }
    if any("failed" in asked.when for asked in settings.notify):
        arguments["on_failure_callback"] = TaskFailed(file)
    return arguments | {name: value for name in ("pool", "queue") if (value := getattr(settings, name))}


def arguments_of_feed(config: PipelineConfig, file: str, feed: str) -> dict[str, Any]:
    """Return the arguments of a task that carries a feed, by the section ``airflow`` of its source. file: that YAML."""
    arguments = default_args(config, file)
    failed = arguments.pop("on_failure_callback", None)
    callbacks = [failed] if failed else []
    if any("feed_stopped" in asked.when for asked in config.airflow.notify):
        callbacks.insert(0, FeedStopped(file, feed))  # what it has sent, the other leaves out
    return {**arguments, "on_failure_callback": callbacks, "feed": feed, "config_file": file}


@dataclass(frozen=True)
class Steps:
    """Maker of tasks in the open DAG or task group.

    file: the source's YAML, on every worker at the same path. jobs_folder: folder of the scripts for spark-submit.
    """

    file: str
    config: PipelineConfig
    jobs_folder: str | None = None

    def bootstrap(self, tables: Any = None, lock: Any = "flush", keys: Any = None, begin: Any = False) -> None:
        """Make the tasks of a bootstrap. tables: patterns, or an expression rendered when the task runs; others as in
        BinlakeSnapshotOperator."""
        snapshot = BinlakeSnapshotOperator(
            task_id="snapshot", tables=tables, lock=lock, keys=keys, begin=begin, **self._spark
        )
        self._preflight(tables, begin) >> snapshot
        self._end(snapshot, batches=True)

    def sync(self, until: Any = None) -> None:
        """Make the tasks of a sync. until: ISO 8601, for a run that is neither scheduled nor backfilled."""
        with TaskGroup("unfinished"):
            finder = BinlakeUnfinishedOperator(task_id="find", **self._plain)
            carried = self._carry(finder)
        # Usually no batch is unfinished, and the group's tasks are skipped; so are stage and merge if nothing is new.
        plan = BinlakePlanOperator(task_id="plan", until=until, trigger_rule=TriggerRule.NONE_FAILED, **self._plain)
        record = self._carry(plan, trigger_rule=TriggerRule.NONE_FAILED)
        resnapshot = BinlakeResnapshotOperator(task_id="resnapshot", **self._spark)
        self._preflight() >> finder
        carried >> plan
        record >> resnapshot
        self._end(resnapshot)
        if self.config.airflow.watched_at:
            # As a teardown it runs whatever happened before, and doesn't decide whether the run succeeded.
            resnapshot >> self.watch().as_teardown()
        if self.config.follow is not None:
            BinlakeFollowedOperator(task_id="followed", **self._plain)  # beside the others, which continue without one

    def follow(self) -> None:
        """Make the task that follows the log in batches of seconds."""
        BinlakeFollowOperator(
            task_id="follow", retry_delay=RESTART_DELAY, retry_exponential_backoff=backoff(0), **self._plain
        )

    def verify(self, tables: Any = None, changed: Any = None, repair: Any = False) -> None:
        """Make the tasks of a verification. The arguments are those of BinlakeVerifyOperator."""
        asked = {"tables": tables, "changed": changed, "repair": repair}
        verify = BinlakeVerifyOperator(task_id="verify", **asked, **self._spark)
        self._preflight(tables) >> verify
        verify >> self._announce(batches=True)

    def resume(self, tables: Any, why: Any) -> None:
        """Make the task that resumes tables. tables: names, not patterns."""
        BinlakeResumeOperator(task_id="resume", tables=tables, why=why, **self._spark)

    def replay(self, **asked: Any) -> None:
        """Make the task of a replay. asked: arguments of BinlakeReplayOperator."""
        BinlakeReplayOperator(task_id="replay", **asked, **self._spark)

    def feeds(self) -> None:
        """Make a task for each feed; they run in parallel."""
        for feed in self.config.feeds:
            BinlakeFeedOperator(task_id=feed.name, **arguments_of_feed(self.config, self.file, feed.name))

    def watch(self) -> BaseOperator:
        """Make the task that checks lag and retention."""
        return BinlakeWatchOperator(task_id="watch", **self._plain)

    def maintain(self, tables: Any = None) -> None:
        """Make the task of the upkeep. tables: patterns, or an expression rendered when the task runs; None: all."""
        BinlakeMaintainOperator(task_id="maintain", tables=tables, **self._spark)

    @property
    def _plain(self) -> dict[str, Any]:
        return {"config_file": self.file}

    @property
    def _spark(self) -> dict[str, Any]:
        """Arguments of tasks that may start Spark."""
        pool = self.config.airflow.spark_pool
        return {**self._plain, "jobs_folder": self.jobs_folder, **({"pool": pool} if pool else {})}

    def _preflight(self, tables: Any = None, begin: Any = False) -> BaseOperator:
        return BinlakePreflightOperator(task_id="preflight", tables=tables, begin=begin, **self._plain)

    def _carry(self, finder: BinlakeUnfinishedOperator | BinlakePlanOperator, **of_record: Any) -> BaseOperator:
        """Make the tasks that stage, merge and record the batch that ``finder`` passes on; return the last one."""
        plan = finder.output
        stage = BinlakeStageOperator(task_id="stage", plan=plan, **self._spark)
        merge = BinlakeMergeOperator(task_id="merge", plan=plan, **self._spark)
        record = BinlakeRecordOperator(task_id="record", plan=plan, **self._plain, **self._assets, **of_record)
        finder >> stage >> merge >> record
        return record

    def _end(self, last: BaseOperator, *, batches: bool = False) -> None:
        """Make the tasks after the last one that changes tables: register names in catalogs, and update assets.

        batches: whether they are those of a snapshot, which updates assets of all batches.
        """
        if self.config.catalogs:
            every: CatalogOccasion = "snapshot" if batches else "batch"
            register = BinlakeRegisterOperator(task_id="register", every=every, **self._spark)
            last >> register
            last = register
        last >> self._announce(batches=batches)

    def _announce(self, *, batches: bool) -> BaseOperator:
        """Make the teardown that updates assets: it also runs after a failed snapshot."""
        announce = BinlakeAnnounceOperator(task_id="announce", batches=batches, **self._plain, **self._assets)
        announce.as_teardown()
        return announce

    @property
    def _assets(self) -> dict[str, Any]:
        """Arguments of a task that updates tables' assets and sees which it has updated."""
        alias = asset_alias(self.config.source.name)
        return {"inlets": [alias], "outlets": [alias]}
