"""How far each table is known equal to the server, by the chunks that verifications noted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from binlake.config import PipelineConfig
from binlake.metadata.metadata import Metadata
from binlake.schema.table import TableName


def through(metadata: Metadata) -> dict[str, dict[str, Any]]:
    """Return, by table id, the batch, position and time up to which every chunk of a table is known equal."""
    oldest: dict[str, dict[str, Any]] = {}
    for row in metadata.read("verified", ["table_id", "batch", "position", "at_us"]):
        known = oldest.setdefault(row["table_id"], row)
        if known["batch"] is not None and (row["batch"] is None or row["batch"] < known["batch"]):
            oldest[row["table_id"]] = row
    return {
        table_id: {key: row[key] for key in ("batch", "position", "at_us")}
        for table_id, row in oldest.items()
        if row["batch"] is not None
    }


def batches(config: PipelineConfig, metadata: Metadata) -> dict[str, int | None]:
    """Return the batch up to which each table that follows the log is known equal, by ``database.table``; None for one
    of which that isn't known. What isn't verified is left out: tables without a mirror, or that the YAML leaves out."""
    by_life = through(metadata)
    lives = metadata.read("watermarks", ["table_id", "database", "table"], where="status = 'following'")
    named = {TableName(row["database"], row["table"]): row["table_id"] for row in lives}
    return {
        str(name): by_life[life]["batch"] if life in by_life else None
        for name, life in named.items()
        if config.included(name) and config.is_read(name)
    }


def least(through: Iterable[int | None]) -> int | None:
    """Return the batch up to which all of some tables are known equal; None where that isn't known of one."""
    numbers = [-1 if batch is None else batch for batch in through]
    lowest = min(numbers, default=-1)
    return None if lowest < 0 else lowest


def differs_since(metadata: Metadata, at_us: int) -> bool:
    """Tell whether a comparison that ended since a time, in microseconds, found a table to differ."""
    return metadata.count("verifications", f"at_us >= {at_us} AND equal = false") > 0
