"""Settings of how a source's work is run: by Airflow's tasks, by a process that follows the log, by verifications."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from binlake.config import units
from binlake.config.section import Section
from binlake.config.yaml_file import DOTTED

VerifyWay = Literal["read", "hash"]
RepairPolicy = Literal["ask", "auto", "never"]


def _is_schedule(schedule: str) -> str:
    from croniter import croniter

    if not croniter.is_valid(schedule):
        raise ValueError(f"{schedule!r} is not a cron expression; write five fields, such as 0 * * * *")
    return schedule


def _is_duration(text: str) -> str:
    units.seconds_of(text)
    return text


def _is_share(share: str) -> str:
    if not re.fullmatch(r"\d{1,3}([.]\d+)?%", share) or not 0 < float(share[:-1]) <= 100:
        raise ValueError(f"{share!r} is not a share; write a percentage above 0%, up to 100%, such as 5%")
    return share


Schedule = Annotated[str, AfterValidator(_is_schedule)]
"""A cron expression."""
Duration = Annotated[str, AfterValidator(_is_duration)]
"""A length of time, as units.seconds_of reads it."""
Share = Annotated[str, AfterValidator(_is_share)]
"""A percentage, as text."""
Occasion = Literal["lag", "retention", "stopped", "feed_stopped", "verify_failed", "failed"]
"""An occasion to notify. lag, retention: a limit was reached. stopped: a table newly stopped. feed_stopped: a feed
can't continue, and its task isn't retried. verify_failed: the lake differs from the server. failed: a task failed, and
isn't retried."""
_WATCHED = "*/10 * * * *"


class NotifyConfig(Section):
    """One notification. when: the occasions. notifier: the dotted name of an Airflow notifier, or of a function of the
    task's context. arguments: the notifier's; secrets belong in a connection that they name."""

    when: Annotated[list[Occasion], Field(min_length=1)]
    notifier: Annotated[str, Field(pattern=DOTTED)]
    arguments: dict[str, Any] = {}


class AirflowConfig(Section):
    """Settings of all tasks of the source's DAGs and task groups.

    pool: Airflow's; None for the default one. spark_pool: for tasks that may start Spark; None for ``pool``. queue: for
    executors with queues; None for the default one. retry_delay_seconds: seconds before the first retry, doubled for
    each further one, up to ten minutes.

    lag_minutes: how many minutes the lake may be behind. retention_hours: how many hours at least the server must still
    keep the log that is needed next. None: no limit. watch_schedule: when both are checked, besides at the end of each
    sync; None: every ten minutes if there is a limit, else never. fail_on_stopped: a sync run whose batches stopped a
    table fails at its end.
    """

    pool: Annotated[str, Field(min_length=1)] | None = None
    spark_pool: Annotated[str, Field(min_length=1)] | None = None
    queue: Annotated[str, Field(min_length=1)] | None = None
    retries: Annotated[int, Field(ge=0, le=100)] = 3
    retry_delay_seconds: Annotated[float, Field(ge=0, le=86400)] = 30
    lag_minutes: Annotated[float, Field(ge=0)] | None = None
    retention_hours: Annotated[float, Field(gt=0)] | None = None
    watch_schedule: Schedule | None = None
    fail_on_stopped: bool = True
    notify: list[NotifyConfig] = []

    @property
    def watched_at(self) -> str | None:
        """The schedule of the checks of lag and retention; None for none."""
        has_limit = self.lag_minutes is not None or self.retention_hours is not None
        return self.watch_schedule or (_WATCHED if has_limit else None)


class FollowConfig(Section):
    """How ``binlake follow`` works.

    every: how often the log is looked at. spark_idle: how long Spark stays once nothing needs it. batch_mb: after so
    many megabytes (10**6 bytes) of log a batch ends, before the next transaction.
    """

    every: Duration = "1s"
    spark_idle: Duration = "5min"
    batch_mb: Annotated[float, Field(gt=0)] = 256

    @property
    def every_seconds(self) -> float:
        """Return ``every`` in seconds."""
        return units.seconds_of(self.every)

    @property
    def spark_idle_seconds(self) -> float:
        """Return ``spark_idle`` in seconds."""
        return units.seconds_of(self.spark_idle)

    @property
    def batch_bytes(self) -> int:
        """Return ``batch_mb`` in bytes."""
        return units.bytes_of_mb(self.batch_mb)


class VerifyConfig(Section):
    """How the lake is compared with the server.

    connection: an Airflow connection's id, of a replica that is read in the source's place; None for the source itself.
    by: ``read`` reads both sides' rows; ``hash`` lets the server hash its own. connections: how many read the server
    at once; None for as many as there are cores. rows_per_second: the most rows that they read together; None for no
    limit. max_threads_running: nothing begins to be read while more other threads run on the server; None for no limit.
    without_spark_rows: where Spark's executors are on a cluster, they read the tables with more rows than these.
    schedule: when the verify DAG runs; None: only when somebody triggers it. changed: whether its scheduled runs
    compare only what may have changed since it was compared, and a share of the rest. share: of all rows, in percent.
    repair: whether the verify DAG puts differing rows right: when somebody asks for it, by itself, or never.
    after_crash: whether the next comparison is of all rows once the server crashed that may lose what it has logged.
    """

    connection: Annotated[str, Field(min_length=1)] | None = None
    by: VerifyWay = "read"
    connections: Annotated[int, Field(ge=1, le=64)] | None = None
    rows_per_second: Annotated[int, Field(ge=1)] | None = None
    max_threads_running: Annotated[int, Field(ge=1)] | None = None
    without_spark_rows: Annotated[int, Field(ge=0)] = 50_000_000
    schedule: Schedule | None = "@daily"
    changed: bool = True
    share: Share = "5%"
    repair: RepairPolicy = "ask"
    after_crash: Literal["all", "as_ever"] = "all"

    @property
    def share_of_rows(self) -> float:
        """Return ``share`` as a fraction from 0 to 1."""
        return float(self.share.removesuffix("%")) / 100
