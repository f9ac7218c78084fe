"""Lives are compared with the YAML before a range is planned: what it changed about what is read of a table.

What a life was read under stands in metadata: its shape has the columns that were excluded and the policies on invalid
values, and its watermark says whether the YAML leaves it out. So the log alone decides nothing here: a change counts
though no row was changed since.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from binlake.batch.rules import Rules
from binlake.batch.steps import Life
from binlake.config import PipelineConfig
from binlake.errors import ConfigurationError
from binlake.metadata import watermarks
from binlake.metadata.lease import Lease, Standing
from binlake.metadata.metadata import Metadata, now_us
from binlake.position import Position
from binlake.schema.table import TableName

_CAN_CATCH_UP = ("stopped", "excluded")


def compare(held: Lease, config: PipelineConfig, standing: Standing) -> tuple[Standing, list[Life]]:
    """What stands then, and the lives whose status changed with the YAML, once that is written down; no batch may be
    open.

    Nothing is read where they were compared with the same settings before. Raises ConfigurationError for an excluded
    column of a key.
    """
    if standing.reading == config.reading:
        return standing, []
    rows = {row["table_id"]: row for row in watermarks.read(held.metadata)}
    rules = Rules.of(config)
    changed: list[tuple[Life, dict[str, Any]]] = []
    for life in watermarks.read_lives(held.metadata):
        row = rows[life.id]
        now = _under(rules, life, missed_nothing=_has_all(row, standing))
        if now.status != life.status:
            changed.append((now, _row(row, now, standing)))
    watermarks.write(held.metadata, [row for _, row in changed])
    watermarks.forget_lifeless(held.metadata, _no_longer_awaited(held.metadata, config))
    return held.compared(standing, config.reading), [life for life, _ in changed]


def _has_all(row: dict[str, Any], standing: Standing) -> bool:
    """Whether nothing was read of the log since the life that doesn't follow got its place."""
    position = Position.parse(row["position"], row["gtid_set"] or "")
    same = position.server == standing.position.server and not position < standing.position
    return same and row["batch"] > standing.batch


def _under(rules: Rules, life: Life, *, missed_nothing: bool) -> Life:
    """missed_nothing: of what others read since the life was left out."""
    if life.status == "excluded" and missed_nothing and rules.followed(life.name):
        life = replace(life, status="following", standstill=None)
    try:
        return rules.under(life)
    except ConfigurationError as error:
        raise ConfigurationError(f"{life.name}: {error.message}", remedy=error.remedy) from None


def _row(row: dict[str, Any], now: Life, standing: Standing) -> dict[str, Any]:
    """The watermark of a life whose status changed; one that stops here has everything of the newest batch."""
    batch = row["batch"]
    if row["status"] == "following" and now.status in _CAN_CATCH_UP:
        batch = standing.batch + 1
    elif now.status == "following":
        batch = standing.batch
    return {
        **row,
        "batch": batch,
        "status": now.status,
        "reason": now.reason or None,
        "remedy": now.remedy or None,
        "updated_us": now_us(),
    }


def _no_longer_awaited(metadata: Metadata, config: PipelineConfig) -> list[TableName]:
    """Tables without a life that the YAML leaves out by now."""
    return [name for name in watermarks.lifeless(metadata) if not config.included(name)]
