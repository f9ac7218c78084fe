"""When DAGs run: timetables of the YAML's cron expressions, and the time before which no DAG has an interval."""

from __future__ import annotations

from datetime import UTC, datetime

from binlake.errors import ConfigurationError
from binlake_airflow.compat import AirflowTimetableInvalid, CronDataIntervalTimetable

FIRST_INTERVAL = datetime(2020, 1, 1, tzinfo=UTC)


def timetable_of(schedule: str | None, key: str, file: str) -> CronDataIntervalTimetable | None:
    """Return the timetable of a cron expression. key: the YAML's key, for the error. Raises ConfigurationError."""
    if schedule is None:
        return None
    timetable = CronDataIntervalTimetable(schedule, timezone="UTC")
    try:
        timetable.validate()
    except AirflowTimetableInvalid as error:
        raise ConfigurationError(
            f"{file}:\n  {key}: {error}", remedy='write a cron expression, such as "0 * * * *"'
        ) from None
    return timetable
