"""Settings for Airflow in a source's YAML: where tasks run, how often they are retried, and who is notified."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from binlake.config.section import Section
from binlake.config.yaml_file import DOTTED


def _is_schedule(schedule: str) -> str:
    from croniter import croniter

    if not croniter.is_valid(schedule):
        raise ValueError(f"{schedule!r} is not a cron expression; write five fields, such as 0 * * * *")
    return schedule


Schedule = Annotated[str, AfterValidator(_is_schedule)]
"""A cron expression."""
Occasion = Literal["lag", "retention", "stopped", "feed_stopped", "verify_failed", "failed"]
"""An occasion to notify. lag, retention: a limit was reached. stopped: a table newly stopped. feed_stopped: a feed
can't go on, and its task isn't retried. verify_failed: the lake differs from the server. failed: a task failed, and
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
