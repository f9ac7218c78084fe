"""What the page is told, in the words of ``binlake status --json``: from metadata and Airflow's own database alone.

The source's server isn't asked: an answer must not wait for it. Times are microseconds since 1970 UTC.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from sqlalchemy import select

from binlake.config import PipelineConfig
from binlake.errors import BinlakeError, ConfigurationError
from binlake.schema.table import TableName, TableSchema
from binlake.state import history, runs
from binlake.state.metadata import now_us
from binlake.state.remembered import RememberedMetadata
from binlake.state.runs import MutationCounts
from binlake.state.status import SourceStatus, read_status
from binlake_airflow.page.health import DagState, advise, health

log = logging.getLogger(__name__)

MINUTE = 60_000_000
HOUR, DAY = 60 * MINUTE, 24 * 60 * MINUTE
TABLE_DAYS = 30
"""A table's runs are told of so many days."""


@lru_cache(maxsize=512)
def _remembered(path: str) -> RememberedMetadata:
    return RememberedMetadata(path)


def metadata_of(config: PipelineConfig) -> RememberedMetadata:
    """The same for all requests: it remembers."""
    return _remembered(config.metadata_path("").rstrip("/"))


def problem(error: Exception) -> dict[str, str]:
    """What is told of an error; of one that isn't ours its kind alone."""
    if isinstance(error, BinlakeError):
        return {"detail": error.message, "remedy": error.remedy}
    log.error("the page met an unexpected error", exc_info=error)
    return {"detail": f"unexpected {type(error).__name__}", "remedy": "the API server's log tells more"}


def broken(file: Path, error: ConfigurationError) -> dict[str, Any]:
    """A file that is no source yet."""
    return {"source": file.stem, "file": file.name, "health": "bad", "error": problem(error)}


def dag_states(sources: list[str]) -> dict[str, dict[str, DagState]]:
    """Of each source, by what the DAG does."""
    wanted = {f"binlake_{source}_{what}": (source, what) for source in sources for what in _DAGS}
    found: dict[str, dict[str, DagState]] = {source: {} for source in sources}
    columns = (DagModel.dag_id, DagModel.is_paused, DagModel.next_dagrun_create_after)
    with create_session() as session:
        rows = session.execute(select(*columns).where(DagModel.dag_id.in_(wanted), ~DagModel.is_stale)).all()
    for dag_id, is_paused, due in rows:
        source, what = wanted[dag_id]
        found[source][what] = DagState(dag_id, is_paused, int(due.timestamp() * 1e6) if due else None)
    return found


_DAGS = ("bootstrap", "sync", "verify", "maintain")


def source(file: Path, config: PipelineConfig, dags: dict[str, DagState]) -> dict[str, Any]:
    """One source. Raises BinlakeError where its metadata can't be read."""
    metadata = metadata_of(config)
    now = now_us()
    found = read_status(config, metadata)
    advice = advise(found, schedule=config.schedule, dags=dags, now=datetime.fromtimestamp(now / 1e6, UTC))
    day = runs.changes_since(metadata, _minute(now - DAY))
    hour = runs.changes_since(metadata, _minute(now - HOUR))
    return {
        **_of_source(found),
        "file": file.name,
        "error": None,
        "schedule": config.schedule,
        "health": health(advice),
        "advice": [asdict(one) for one in advice],
        "rows_changed": {"hour": sum(one.rows for one in hour.values()), "day": sum(one.rows for one in day.values())},
        "dags": {what: asdict(state) for what, state in dags.items()},
        "now_us": now,
    }


def _minute(us: int) -> int:
    """The full minute: a question that is asked again is remembered."""
    return us - us % MINUTE


def _of_source(found: SourceStatus) -> dict[str, Any]:
    """The status without what each table says, which has an answer of its own."""
    told = found.to_json()
    del told["tables"]
    last = told["last_run"]
    told["last_run"] = {key: last[key] for key in last if key != "tables"} if last else None
    return {**told, "table_counts": dict(Counter(row["status"] for row in found.tables))}


def tables(config: PipelineConfig) -> dict[str, Any]:
    """All tables of a source, with what changed in the last day."""
    metadata = metadata_of(config)
    now = now_us()
    day = runs.changes_since(metadata, _minute(now - DAY))
    found = read_status(config, metadata)
    wanted = ["database", "table", "updated_us"]
    written = {f"{row['database']}.{row['table']}": row["updated_us"] for row in metadata.read("watermarks", wanted)}
    rows = [
        {**row, "updated_us": written.get(row["table"]), "day": _changed(day.get(row["table"]))} for row in found.tables
    ]
    return {"source": config.source.name, "tables": rows, "now_us": now}


def _changed(found: MutationCounts | None) -> dict[str, int] | None:
    return asdict(found) if found else None


def table(config: PipelineConfig, name: str) -> dict[str, Any] | None:
    """One table by ``database.table``; None where the source has none of that name."""
    metadata = metadata_of(config)
    now = now_us()
    found = read_status(config, metadata)
    row = next((row for row in found.tables if row["table"] == name), None)
    if row is None:
        return None
    table_name = _name_of(metadata, row["table_id"], name)
    schema = history.schema_now(metadata, row["table_id"])
    verified = runs.last_verified(metadata, table_name)
    kept = ("batch", "file", "offset", "committed_us", "statement", "kind", "action", "reason")
    since = _minute(now - TABLE_DAYS * DAY)
    return {
        **row,
        "source": config.source.name,
        "path": config.table_path(table_name),
        "schema": _schema(schema) if schema else None,
        "verified": asdict(verified) if verified else None,
        "history": [{key: one[key] for key in kept} for one in history.statements(metadata, table_name)],
        "runs": [
            {"batch": one.batch, "ended_us": one.ended_us, **asdict(one.did)}
            for one in runs.of_table(metadata, name, since_us=since)
        ],
        "runs_days": TABLE_DAYS,
        "now_us": now,
    }


def _name_of(metadata: RememberedMetadata, table_id: str, name: str) -> TableName:
    """Its two parts: a dot may stand in either."""
    for row in metadata.read("watermarks", ["table_id", "database", "table"]):
        if row["table_id"] == table_id:
            return TableName(row["database"], row["table"])
    return TableName(*name.split(".", 1))


def _schema(schema: TableSchema) -> dict[str, Any]:
    mirrored = set(schema.mirrored)
    return {
        "columns": [
            {
                "name": column.name,
                "type": column.declared,
                "nullable": column.nullable,
                "charset": column.charset,
                "default": column.default,
                "in_lake": column in mirrored,
            }
            for column in schema.columns
        ],
        "key": list(schema.key),
        "key_kind": schema.key_kind,
    }


def newest_runs(config: PipelineConfig, before_us: int | None, count: int) -> dict[str, Any]:
    found = runs.newest(metadata_of(config), count, before_us=before_us)
    return {"source": config.source.name, "runs": [asdict(one) for one in found], "now_us": now_us()}


def run(config: PipelineConfig, batch: int) -> dict[str, Any] | None:
    """One batch; None where it isn't known, or known no more."""
    found = runs.of_batch(metadata_of(config), batch)
    if found is None:
        return None
    told = asdict(found) | {"source": config.source.name, "now_us": now_us()}
    if found.range:
        start, stop = found.range.start, found.range.stop
        told["range"] = {
            "start": str(start),
            "stop": str(stop),
            "gtid_set": stop.gtid_set,
            "bytes": found.range.size,
            "slices": [asdict(part) for part in found.range.slices],
        }
    return told
