"""What the page is told of feeds, and of the relay's clients: from metadata and the relay's file, without values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from binlake.config import PipelineConfig
from binlake.errors import BinlakeError
from binlake.metadata import feed_watermarks
from binlake.metadata.feed_watermarks import RELAY
from binlake.metadata.metadata import now_us
from binlake.relay import core as relay
from binlake_airflow.page.answers import metadata_of, problem
from binlake_airflow.page.remembered import RememberedMetadata


def feeds(config: PipelineConfig) -> dict[str, Any]:
    """Each feed's place, with when that was up to date (carried_us), and what the relay told its clients."""
    metadata = metadata_of(config)
    found = feed_watermarks.statuses(config, metadata)
    carried = _carried(metadata, {feed.batch for feed in found if feed.batch is not None})
    told = {feed.name: {**asdict(feed), "carried_us": carried.get(feed.batch)} for feed in found}
    relayed = told.pop(RELAY, None)
    return {
        "source": config.source.name,
        "feeds": list(told.values()),
        "relay": {**relayed, **_clients(config)} if relayed else None,
        "now_us": now_us(),
    }


def _carried(metadata: RememberedMetadata, batches: set[int]) -> dict[int | None, int]:
    """By batch, up to when it tells all that was committed."""
    if not batches:
        return {}
    where = f"batch IN ({', '.join(map(str, sorted(batches)))})"
    rows = metadata.read("batches", ["batch", "until_us", "planned_us"], where=where)
    return {row["batch"]: row["until_us"] or row["planned_us"] for row in rows}


def _clients(config: PipelineConfig) -> dict[str, Any]:
    """Or why they can't be told: that hides nothing else."""
    try:
        return {"clients": relay.last_saved(config), "clients_problem": None}
    except BinlakeError as error:
        return {"clients": [], "clients_problem": problem(error)}
