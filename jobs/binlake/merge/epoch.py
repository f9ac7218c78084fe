"""One table's epoch in one Delta commit, once it is checked that its rows fit the mirror."""

from __future__ import annotations

from typing import Any

from binlake.binlog.border import DELETE, UPDATE
from binlake.config import PipelineConfig
from binlake.delta.delta_log import LakeLog
from binlake.errors import LeftToSpark, SchemaMismatch, UnfollowedStatement, snapshot_again
from binlake.merge.arrow_mutations import StagedMutations
from binlake.merge.lake_images import check_shape
from binlake.merge.mirror_epoch import MirrorEpoch
from binlake.merge.shared_reads import SharedReads
from binlake.merge.table_engine import EngineChoice
from binlake.planner.steps import Life, MergeStep
from binlake.schema.invalid import KEEP_ALL
from binlake.schema.lake_columns import mirror_columns, side_columns


def _check_side_columns(epoch: MirrorEpoch) -> None:
    """Check that the lake has the side columns that the YAML asks for, and no others. Raises SchemaMismatch."""
    name, schema = epoch.life.name, epoch.schema
    others = {column.name for column in (*schema.mirrored, *schema.kept)}
    have = {field.name for field in epoch.table.opened().schema().fields} - others
    wanted = {column.name for column in epoch.columns}
    for side in side_columns(schema.mirrored, KEEP_ALL):
        if (side.name in have) != (side.name in wanted - others):
            policy = "invalid_dates" if side.holds == "text" else "invalid_text"
            raise SchemaMismatch(
                f"{name}: the lake was made under another {policy} than the YAML has, so column {side.name!r} differs",
                remedy=f"take {policy} back, or {snapshot_again(name)}",
            )


def _refuse_changes(epoch: MirrorEpoch) -> None:
    updated, deleted = _changed(epoch)
    if updated or deleted:
        number, offset, _ = min(file.first for file in epoch.step.staged)
        raise UnfollowedStatement(
            f"{epoch.life.name}: file {number} of the log, from offset {offset}: {updated} rows were updated, "
            f"{deleted} deleted in a table without a key that is only appended to (without_key: append)",
            remedy=f"set without_key: exact for this table, then {snapshot_again(epoch.life.name)}",
        )


def _changed(epoch: MirrorEpoch) -> tuple[int, int]:
    """Return how many rows were updated, and how many deleted, without what was taken back or concerns former rows.

    All that was logged counts where it takes too much memory to be looked at.
    """
    _, updated, deleted = epoch.step.counts
    if not (updated or deleted) or not (epoch.schema.row_end or any(file.void for file in epoch.step.staged)):
        return updated, deleted
    try:
        kinds = StagedMutations.of(epoch).newest()["op"].to_pylist()
    except LeftToSpark:
        return updated, deleted
    return kinds.count(UPDATE), kinds.count(DELETE)


def merge_epoch(
    engines: EngineChoice,
    log: LakeLog,
    life: Life,
    step: MergeStep,
    config: PipelineConfig,
    *,
    version: int,
    note: dict[str, Any],
    reads: SharedReads | None = None,
) -> None:
    """Merge one epoch in one commit; repeating it changes nothing. reads: where others read the same staged files.

    Nothing is committed to a mirror without rows: only its columns follow the log.
    Raises UnfollowedStatement where rows changed in a table that only grows (without_key: append).
    """
    for file in step.staged:
        check_shape(life.name, step.schema, file)
    if step.schema.without_rows:
        return
    columns = mirror_columns(step.schema, config.invalid)
    epoch = MirrorEpoch(log, life, step, columns, config, version, note, reads or SharedReads())
    if epoch.is_appended_to:
        _refuse_changes(epoch)
    _check_side_columns(epoch)
    engines.change(lambda engine: engine.merge(epoch))
