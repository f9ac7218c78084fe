"""JSON answers about feeds and the relay's clients, from metadata and the relay's file, without values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from binlake.config import PipelineConfig
from binlake.errors import BinlakeError
from binlake.records import feed_watermarks
from binlake.records.feed_watermarks import RELAY
from binlake.relay import core as relay
from binlake.store.metadata import now_us
from binlake.store.rows import BatchRow
from binlake_airflow.page.answers import metadata_of, problem
from binlake_airflow.page.remembered import RememberedMetadata


def feeds(config: PipelineConfig) -> dict[str, Any]:
    """Return each feed's position, with the time up to which it has every commit (carried_us), and the relay's
    clients."""
    metadata = metadata_of(config)
    statuses = feed_watermarks.statuses(config, metadata)
    carried = _carried(metadata, {feed.batch for feed in statuses if feed.batch is not None})
    by_name = {feed.name: {**asdict(feed), "carried_us": carried.get(feed.batch)} for feed in statuses}
    relayed = by_name.pop(RELAY, None)
    return {
        "source": config.source.name,
        "feeds": list(by_name.values()),
        "relay": {**relayed, **_clients(config)} if relayed else None,
        "now_us": now_us(),
    }


def _carried(metadata: RememberedMetadata, batches: set[int]) -> dict[int | None, int]:
    """Return, by batch, the time up to which it has every commit."""
    if not batches:
        return {}
    where = f"batch IN ({', '.join(map(str, sorted(batches)))})"
    rows = BatchRow.read(metadata, "batch", "until_us", "planned_us", where=where)
    return {row.batch: row.until_us or row.planned_us for row in rows}


def _clients(config: PipelineConfig) -> dict[str, Any]:
    """Return the relay's clients, or why they can't be read, which must not hide anything else."""
    try:
        return {"clients": relay.last_saved(config), "clients_problem": None}
    except BinlakeError as error:
        return {"clients": [], "clients_problem": problem(error)}
