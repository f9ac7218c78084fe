"""JSON answers for the page, with the keys of ``binlake status --json``, from metadata and Airflow's own database.

The source's server isn't asked, as an answer must not wait for it. Times are microseconds since 1970 UTC.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sqlalchemy.exc import OperationalError

from binlake.caches import remembered
from binlake.config import PipelineConfig
from binlake.errors import BinlakeError, ConfigurationError
from binlake.lease.holder import Holder
from binlake.records import runs
from binlake.records.evidence import AirflowState, evidence_of
from binlake.records.health import health_of
from binlake.records.status import SourceStatus, read_status
from binlake.store.metadata import now_us
from binlake_airflow.page.remembered import RememberedMetadata
from binlake_airflow.page.totals import Totals

log = logging.getLogger(__name__)

MINUTE = 60_000_000
VERIFIED_DAYS = 91
"""Days of verifications in an answer."""
HOUR, DAY = 60 * MINUTE, 24 * 60 * MINUTE
_DATABASE_REMEDY = (
    "try again; if this comes often and it is SQLite, of which one process writes at a time, give Airflow PostgreSQL"
    " or MySQL"
)


@remembered("metadata on the page")
def _remembered(path: str) -> RememberedMetadata:
    return RememberedMetadata(path)


def metadata_of(config: PipelineConfig) -> RememberedMetadata:
    """Return a source's metadata, the same object for all requests, as it caches what it reads."""
    return _remembered(config.metadata_path("").rstrip("/"))


@remembered("totals on the page")
def totals_of(metadata: RememberedMetadata) -> Totals:
    """Return the totals of a source's runs, the same object for all requests."""
    return Totals(metadata)


def problem(error: Exception) -> dict[str, str]:
    """Return an error's message and remedy; of an unexpected error, only its type."""
    if isinstance(error, BinlakeError):
        return {"detail": error.message, "remedy": error.remedy}
    if isinstance(error, OperationalError):
        log.warning("Airflow's database can't be used", exc_info=error)
        return {"detail": f"Airflow's own database can't be used: {error.orig}", "remedy": _DATABASE_REMEDY}
    log.error("the page met an unexpected error", exc_info=error)
    return {"detail": f"unexpected {type(error).__name__}", "remedy": "the API server's log says more"}


def broken(file: Path, error: ConfigurationError, *, may_edit: bool) -> dict[str, Any]:
    """Return the answer about a YAML that can't be loaded. may_edit: the user may edit it."""
    known = {"source": file.stem, "file": file.name, "health": "bad", "error": problem(error)}
    return {**known, "may": {"fix": may_edit}}


def source(file: Path, config: PipelineConfig, airflow: AirflowState, unreadable: Mapping[str, str]) -> dict[str, Any]:
    """Return the answer about one source. unreadable: see Evidence. Raises BinlakeError if its metadata can't be
    read."""
    metadata = metadata_of(config)
    now = now_us()
    status = read_status(config, metadata)
    known = replace(evidence_of(config, metadata, status, now, airflow), unreadable=unreadable)
    health = health_of(known)
    hours = runs.mutations_by(metadata, minute(now) - DAY, HOUR, 24)
    minutes = runs.mutations_by(metadata, minute(now) - HOUR, 5 * MINUTE, 12)
    return {
        **_without_tables(status),
        "file": file.name,
        "error": None,
        "schedule": config.schedule,
        "health": health.level,
        "sentence": health.sentence,
        "advice": [asdict(item) for item in health.advice],
        "verified": asdict(health.compared),
        "is_copied_first": known.is_copied_first,
        "at_work": sorted(known.at_work),
        "may_be_unlocked": _may_be_unlocked(status, known.at_work),
        "repair": config.verify.repair,
        "history_hours": config.maintain.history_hours,
        "rows_changed": {"hour": sum(minutes), "day": sum(hours), "by_5_minutes": minutes, "by_hour": hours},
        "lag": {"seconds": known.lag_seconds, "known_us": known.lag_known_us},
        "log": asdict(known.log) if known.log else None,
        "dags": {what: asdict(state) for what, state in known.dags.items()},
        "now_us": now,
    }


def _may_be_unlocked(status: SourceStatus, at_work: Collection[str]) -> bool:
    """Return whether a process holds the lease that isn't seen to be alive here, nor by Airflow at work."""
    holder = Holder.parse(status.holder or "")
    return bool(status.holder) and not at_work and (status.holder_died or holder is None or not holder.lives)


def minute(us: int) -> int:
    """Return a time cut to the full minute, so that repeated questions are answered from memory."""
    return us - us % MINUTE


def _without_tables(status: SourceStatus) -> dict[str, Any]:
    """Return the status without the tables, which have an answer of their own."""
    answer = status.to_json()
    del answer["tables"]
    last = answer["last_run"]
    answer["last_run"] = {key: last[key] for key in last if key != "tables"} if last else None
    return {**answer, "table_counts": dict(Counter(row.status for row in status.tables))}


def newest_runs(config: PipelineConfig, before_us: int | None, count: int) -> dict[str, Any]:
    """Return the newest runs, at most ``count``.

    before_us: only those before this time, µs since 1970 UTC; None for all.
    """
    entries = runs.newest(metadata_of(config), count, before_us=before_us)
    return {"source": config.source.name, "runs": [asdict(entry) for entry in entries], "now_us": now_us()}


def run(config: PipelineConfig, batch: int) -> dict[str, Any] | None:
    """Return the answer about a batch; None if it is unknown or its rows were removed."""
    entry = runs.of_batch(metadata_of(config), batch)
    if entry is None:
        return None
    answer = asdict(entry) | {"source": config.source.name, "now_us": now_us()}
    if entry.range:
        start, stop = entry.range.start, entry.range.stop
        answer["range"] = {
            "start": str(start),
            "stop": str(stop),
            "gtid_set": stop.gtid_set,
            "bytes": entry.range.size,
            "slices": [asdict(part) for part in entry.range.slices],
        }
    return answer
