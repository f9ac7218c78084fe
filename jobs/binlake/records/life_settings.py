"""Comparison of lives with the YAML, before a range is planned: what it changes about how a table is read.

Metadata says under which settings a life was read: its shape has the excluded columns and the policies on invalid
values, and its watermark says whether the YAML leaves it out. So a change of the YAML counts though no row changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from binlake.config import PipelineConfig
from binlake.errors import OF_CODE, ConfigurationError, snapshot_again, unexpected
from binlake.lease.lease import Lease, RecordedState
from binlake.planner.steps import Life, Standstill
from binlake.records import watermarks
from binlake.schema.table import TableName
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import WatermarkRow

if TYPE_CHECKING:
    from binlake.planner.rules import Rules

_CAN_CATCH_UP = ("stopped", "excluded")


def compare(held: Lease, config: PipelineConfig, recorded_state: RecordedState) -> tuple[RecordedState, list[Life]]:
    """Compare lives with the YAML and write changes; return the new recorded state, and the lives whose status changed.

    No batch may be open. Nothing is read where lives were compared with the same settings before. Raises
    ConfigurationError for an excluded column of a key.
    """
    if recorded_state.reading == config.reading:
        return recorded_state, []
    from binlake.planner.rules import Rules  # after a change of the YAML alone

    rows = {row.table_id: row for row in watermarks.read(held.metadata)}
    rules = Rules.of(config)
    changed: list[tuple[Life, WatermarkRow]] = []
    for life in watermarks.read_lives(held.metadata):
        row = rows[life.id]
        now = _under(rules, life, missed_nothing=_has_all(row, recorded_state))
        if now.status != life.status:
            changed.append((now, changed_row(row, now, recorded_state)))
    watermarks.write(held.metadata, [row for _, row in changed])
    watermarks.forget_unsnapshotted(held.metadata, _no_longer_awaited(held.metadata, config))
    return held.compared(recorded_state, config.reading), [life for life, _ in changed]


def _has_all(row: WatermarkRow, recorded_state: RecordedState) -> bool:
    """Return whether nothing was read of the log since a life that doesn't follow got its position."""
    position = row.reached
    same = position.server == recorded_state.position.server and not position < recorded_state.position
    return same and row.batch > recorded_state.batch


def _under(rules: Rules, life: Life, *, missed_nothing: bool) -> Life:
    """Return the life as it is under the rules. missed_nothing: nothing was read since the life was left out."""
    if life.status == "excluded" and missed_nothing and rules.followed(life.name):
        life = replace(life, status="following", standstill=None)
    try:
        return rules.under(life)
    except ConfigurationError as error:
        raise ConfigurationError(f"{life.name}: {error.message}", remedy=error.remedy) from None
    except OF_CODE as error:  # costs this table alone
        why = f"its shape can't be compared with the YAML: {unexpected(error)}"
        stopped = replace(life, status="stopped", standstill=Standstill(why, snapshot_again(life.name)))
        return stopped if life.status == "following" else life


def changed_row(row: WatermarkRow, now: Life, recorded_state: RecordedState) -> WatermarkRow:
    """Return the watermark of a life whose status changed; one that stops here has everything of the newest batch."""
    batch = row.batch
    if row.status == "following" and now.status in _CAN_CATCH_UP:
        batch = recorded_state.batch + 1
    elif now.status == "following":
        batch = recorded_state.batch
    return replace(row.standing(now.status, now.standstill), batch=batch, updated_us=now_us())


def _no_longer_awaited(metadata: Metadata, config: PipelineConfig) -> list[TableName]:
    """Return the tables without a life that the YAML leaves out now."""
    return [name for name in watermarks.unsnapshotted(metadata) if not config.included(name)]
