"""Comparison of lives with the YAML, before a range is planned: what it changes about how a table is read.

Metadata says under which settings a life was read: its shape has the excluded columns and the policies on invalid
values, and its watermark says whether the YAML leaves it out. So a change of the YAML counts though no row changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from binlake.batch.steps import Life
from binlake.config import PipelineConfig
from binlake.errors import ConfigurationError
from binlake.metadata import watermarks
from binlake.metadata.lease import Lease, RecordedState
from binlake.metadata.metadata import Metadata, now_us
from binlake.position import Position
from binlake.schema.table import TableName

if TYPE_CHECKING:
    from binlake.batch.rules import Rules

_CAN_CATCH_UP = ("stopped", "excluded")


def compare(held: Lease, config: PipelineConfig, recorded_state: RecordedState) -> tuple[RecordedState, list[Life]]:
    """Compare lives with the YAML and write changes; return the new recorded state, and the lives whose status changed.

    No batch may be open. Nothing is read where lives were compared with the same settings before. Raises
    ConfigurationError for an excluded column of a key.
    """
    if recorded_state.reading == config.reading:
        return recorded_state, []
    from binlake.batch.rules import Rules  # after a change of the YAML alone

    rows = {row["table_id"]: row for row in watermarks.read(held.metadata)}
    rules = Rules.of(config)
    changed: list[tuple[Life, dict[str, Any]]] = []
    for life in watermarks.read_lives(held.metadata):
        row = rows[life.id]
        now = _under(rules, life, missed_nothing=_has_all(row, recorded_state))
        if now.status != life.status:
            changed.append((now, _row(row, now, recorded_state)))
    watermarks.write(held.metadata, [row for _, row in changed])
    watermarks.forget_unsnapshotted(held.metadata, _no_longer_awaited(held.metadata, config))
    return held.compared(recorded_state, config.reading), [life for life, _ in changed]


def _has_all(row: dict[str, Any], recorded_state: RecordedState) -> bool:
    """Tell whether nothing was read of the log since a life that doesn't follow got its position."""
    position = Position.parse(row["position"], row["gtid_set"] or "")
    same = position.server == recorded_state.position.server and not position < recorded_state.position
    return same and row["batch"] > recorded_state.batch


def _under(rules: Rules, life: Life, *, missed_nothing: bool) -> Life:
    """Return the life as it is under the rules. missed_nothing: nothing was read since the life was left out."""
    if life.status == "excluded" and missed_nothing and rules.followed(life.name):
        life = replace(life, status="following", standstill=None)
    try:
        return rules.under(life)
    except ConfigurationError as error:
        raise ConfigurationError(f"{life.name}: {error.message}", remedy=error.remedy) from None


def _row(row: dict[str, Any], now: Life, recorded_state: RecordedState) -> dict[str, Any]:
    """Return the watermark of a life whose status changed; one that stops here has everything of the newest batch."""
    batch = row["batch"]
    if row["status"] == "following" and now.status in _CAN_CATCH_UP:
        batch = recorded_state.batch + 1
    elif now.status == "following":
        batch = recorded_state.batch
    return {
        **row,
        "batch": batch,
        "status": now.status,
        "reason": now.reason or None,
        "remedy": now.remedy or None,
        "updated_us": now_us(),
    }


def _no_longer_awaited(metadata: Metadata, config: PipelineConfig) -> list[TableName]:
    """Return the tables without a life that the YAML leaves out now."""
    return [name for name in watermarks.unsnapshotted(metadata) if not config.included(name)]
