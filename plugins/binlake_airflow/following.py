"""Operators of a source that is followed in batches of seconds: the task that follows, and the check that one does."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from binlake.config import load
from binlake.config.pipeline_config import YamlOnDisk
from binlake.errors import NoSnapshotYet
from binlake.interrupts import Ending
from binlake.spark.on_demand import SessionOnDemand
from binlake_airflow.compat import AirflowException
from binlake_airflow.feeding import with_connections
from binlake_airflow.hook import BinlakeHook
from binlake_airflow.operators.source import SourceOperator
from binlake_airflow.submit import airflow_errors, look_again
from binlake_airflow.task_log import TaskReport

if TYPE_CHECKING:
    from binlake.phases.follow import Followed
    from binlake_airflow.compat import Context

RESTART_DELAY = timedelta(seconds=5)
"""From the end of a task that was killed to its next try. It doesn't grow with tries: they count for a day."""
_TRY_AGAIN = timedelta(minutes=1)
"""For which a task waits, without a worker slot, that can't begin."""
_LOOK_FOR_PAUSE = 3.0
"""Seconds between two looks whether the DAG is paused."""
_BEHIND_SECONDS = 60.0
"""How far behind a follower may be that looks at the log every second; one that looks less often, ten looks."""


class BinlakeFollowOperator(SourceOperator):
    """Follow the log in batches of seconds for some hours, and carry the source's feeds; or wait while another
    process does.

    It ends between two steps when the task is killed, its DAG is paused, or the process that supervises it is dead.
    Spark is started inside the task, where a step needs it. The DAG begins a run as soon as one has ended: so a task
    that can't begin waits, before the first snapshot and where the run before it failed, too.

    :param config_file: the source's YAML (templated)
    :param hours: after which the task ends, so that another begins with a log of its own
    """

    template_fields: Sequence[str] = SourceOperator.template_fields

    def __init__(self, *, hours: float = 24, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hours = hours
        self._ending: Ending | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Follow the log until the task's time is up or the DAG is paused, and return what was done."""
        self._ending = Ending()
        try:
            with _while_supervised(context, self._ending):
                followed = self._follow(self._ending)
        except NoSnapshotYet as error:
            self.log.info("%s", error)
            raise look_again(_TRY_AGAIN) from None
        except Exception as error:
            if _failed_before(context):
                self.log.error("%s\n  it is tried again in a minute", error)
                raise look_again(_TRY_AGAIN) from None
            with airflow_errors():
                raise
        self.log.info("%s", followed.headline)
        return {"batches": followed.batches, "mutations": followed.mutations}

    def _follow(self, ending: Ending) -> Followed:
        from binlake.kernels import heap

        heap.return_freed_memory()  # before the others import pyarrow
        from binlake import pipeline
        from binlake.feeds.feeds_beside import FeedsBeside, FeedsOfSource
        from binlake.feeds.registry import PARTS
        from binlake.phases.follow import FollowPace

        config = load(self.config_file)
        report, file = TaskReport(self.log), YamlOnDisk(self.config_file, config)
        return pipeline.follow(
            file.read,
            BinlakeHook.origin_of(config),
            SessionOnDemand(f"binlake {config.source.name} follow", config, report),
            report,
            FollowPace(None, None, self.hours * 3600),
            ending,
            [FeedsOfSource(file.read, FeedsBeside(report, with_connections(PARTS)))],
        )

    def on_kill(self) -> None:
        """Ask the follower to end after its present step."""
        if self._ending is not None:
            self._ending.ask()


def _failed_before(context: Context) -> bool:
    """Return whether the run before this one failed."""
    run = context["ti"].get_previous_dagrun()
    return run is not None and run.state == "failed"


@contextmanager
def _while_supervised(context: Context, ending: Ending) -> Iterator[None]:
    """Ask for the end once the task's DAG is paused, which Airflow itself lets no task know; or once the task is an
    orphan, which nobody could end any more: a scheduler that is killed leaves its tasks.

    A DAG that is paused from the beginning, as that of a test may be, doesn't count.
    """
    task, over, supervisor = context["ti"], threading.Event(), _parent()

    def is_paused() -> bool:
        return bool(task.get_dag(task.dag_id).is_paused)

    def look() -> None:
        was_paused = True
        while not over.is_set():
            if _parent() != supervisor:
                ending.ask()
                return
            with suppress(Exception):  # the API server is away: it is asked again
                paused = is_paused()
                if paused and not was_paused:
                    ending.ask(is_pause=True)
                was_paused = paused
            over.wait(_LOOK_FOR_PAUSE)

    thread = threading.Thread(target=look, name="look for pause", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def _parent() -> int:
    return os.getppid()


class BinlakeFollowedOperator(SourceOperator):
    """Check that a process follows the log, and is no more than a minute (or ten looks at the log) behind.

    :param config_file: the source's YAML (templated)
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the follower's state.

        Raises AirflowException where none follows, or it is silent or too far behind.
        """
        from binlake.lease import followers
        from binlake.store.metadata import metadata_of

        with airflow_errors():
            config = load(self.config_file)
            follower = followers.read_status(metadata_of(config))
        begin = f"unpause binlake_{config.source.name}_follow, or start binlake follow"
        if follower is None or follower.is_dead:
            died = f": {follower.holder}, which did, is dead" if follower else ""
            raise AirflowException(f"nobody follows the log{died}\n  → {begin}")
        if follower.cannot_write:
            raise AirflowException(f"{follower.holder} follows the log, and can give no sign: {follower.cannot_write}")
        if follower.is_silent:
            silent = f"{follower.holder} followed the log, and gives no sign of life: it hangs or is dead"
            raise AirflowException(f"{silent}\n  → end that process where it still runs, and {begin}")
        behind = follower.behind_seconds
        if behind is None or behind > max(_BEHIND_SECONDS, 10 * follower.every_seconds):
            far = "has carried nothing yet" if behind is None else f"is {behind:,.0f} s behind"
            why = f": {follower.waits_for}" if follower.waits_for else ""
            raise AirflowException(f"{follower.holder} follows the log, and {far}{why}\n  → see its log")
        self.log.info("%s follows the log, %.1f s behind", follower.holder, behind)
        return {"behind_seconds": behind, "batch": follower.batch}
