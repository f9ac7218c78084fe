"""One table's epoch in one Delta commit: ``in_process`` merges few rows of plain tables, Delta's MERGE all others.

Needs no pyspark before Spark is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from binlake.batch.manifest import StagedFile
from binlake.batch.steps import Life, MergeStep
from binlake.binlog.border import DELETE, UPDATE
from binlake.config import PipelineConfig
from binlake.delta.delta_log import LakeLog
from binlake.errors import LeftToSpark, SchemaMismatch, UnfollowedStatement, snapshot_again
from binlake.merge import in_process
from binlake.merge.arrow_mutations import newest_mutations
from binlake.merge.shared_reads import SharedReads
from binlake.schema import datatypes
from binlake.schema.invalid import KEEP_ALL
from binlake.schema.lake_columns import LakeColumn, mirror_columns, side_columns
from binlake.schema.render import RENDERERS, is_vector_in_bytes
from binlake.schema.table import TableName, TableSchema

if TYPE_CHECKING:
    from binlake.spark.starting import SessionFactory


def check_shape(name: TableName, schema: TableSchema, file: StagedFile) -> None:
    """Compare a staged file's columns with the schema that metadata have. Raises SchemaMismatch."""
    shown = [column for column in file.columns if column.name not in schema.hidden]
    if [column.name for column in shown] != [column.name for column in schema.logged]:
        raise _mismatch(
            name, file, _other_columns([column.name for column in shown], [column.name for column in schema.logged])
        )
    if schema.row_end is not None and not any(column.name == schema.row_end for column in file.columns):
        raise _mismatch(name, file, f"the column {schema.row_end!r} is missing")
    for logged, known in zip(shown, schema.logged, strict=True):
        in_bytes = known.type in RENDERERS or is_vector_in_bytes(known, logged)
        if not in_bytes and datatypes.arrow_type(logged) != datatypes.arrow_type(known):
            raise _mismatch(name, file, f"column {known.name!r} is {logged.type} in the log, {known.type} here")
    key = tuple(column for column in file.key if column != schema.row_end)
    if schema.key_kind == "primary" and key != schema.key:
        raise _mismatch(name, file, "its primary key is another")


def _other_columns(logged: list[str], known: list[str]) -> str:
    more, less = (", ".join(sorted({*names} - {*others})) for names, others in ((logged, known), (known, logged)))
    said = [f"the log has {more}, which the recorded shape lacks"] if more else []
    said += [f"the log lacks {less}, which the recorded shape has"] if less else []
    return "its columns are others: " + ("; ".join(said) or "they stand in another order")


def _check_side_columns(name: TableName, schema: TableSchema, columns: Sequence[LakeColumn], table: LakeLog) -> None:
    """Check that the lake has the side columns that the YAML asks for, and no others. Raises SchemaMismatch."""
    others = {column.name for column in (*schema.mirrored, *schema.kept)}
    have = {field.name for field in table.log().schema().fields} - others
    wanted = {column.name for column in columns}
    for side in side_columns(schema.mirrored, KEEP_ALL):
        if (side.name in have) != (side.name in wanted - others):
            policy = "invalid_dates" if side.holds == "text" else "invalid_text"
            raise SchemaMismatch(
                f"{name}: the lake was made under another {policy} than the YAML has, so column {side.name!r} differs",
                remedy=f"take {policy} back, or {snapshot_again(name)}",
            )


def _mismatch(name: TableName, file: StagedFile, why: str) -> SchemaMismatch:
    number, offset, _ = file.first
    return SchemaMismatch(
        f"{name}: file {number} of the log, offset {offset}: the recorded schema doesn't fit: {why}",
        remedy=snapshot_again(name),
    )


def _refuse_changes(life: Life, step: MergeStep, config: PipelineConfig, reads: SharedReads | None) -> None:
    updated, deleted = _changed(life, step, config, reads)
    if updated or deleted:
        number, offset, _ = min(file.first for file in step.staged)
        raise UnfollowedStatement(
            f"{life.name}: file {number} of the log, from offset {offset}: {updated} rows were updated, {deleted} "
            "deleted in a table without a key that is only appended to (without_key: append)",
            remedy=f"set without_key: exact for this table, then {snapshot_again(life.name)}",
        )


def _changed(life: Life, step: MergeStep, config: PipelineConfig, reads: SharedReads | None) -> tuple[int, int]:
    """Return how many rows were updated, and how many deleted, without what was taken back or concerns former rows.

    All that was logged counts where it takes too much memory to be looked at.
    """
    _, updated, deleted = step.counts
    if not (updated or deleted) or not (step.schema.row_end or any(file.void for file in step.staged)):
        return updated, deleted
    most = config.merge.without_spark_bytes * in_process.UNPACKED
    try:
        kinds = newest_mutations(life, step, config.invalid, most, reads=reads)["op"].to_pylist()
    except LeftToSpark:
        return updated, deleted
    return kinds.count(UPDATE), kinds.count(DELETE)


def merge_epoch(
    spark: SessionFactory,
    table: LakeLog,
    life: Life,
    step: MergeStep,
    config: PipelineConfig,
    *,
    version: int,
    note: dict[str, Any],
    reads: SharedReads | None = None,
) -> None:
    """Merge one epoch in one commit; repeating it changes nothing. spark: asked where this process can't merge it.
    reads: where others read the same staged files.

    Nothing is committed to a mirror without rows: only its columns follow the log.
    Raises UnfollowedStatement where rows changed in a table that only grows (without_key: append).
    """
    for file in step.staged:
        check_shape(life.name, step.schema, file)
    if step.schema.without_rows:
        return
    if not step.schema.key and config.policies.of(life.name).without_key == "append":
        _refuse_changes(life, step, config, reads)
    columns = mirror_columns(step.schema, config.invalid)
    _check_side_columns(life.name, step.schema, columns, table)
    try:
        in_process.merge(table, life, step, columns, config, version=version, note=note, reads=reads)
    except LeftToSpark as left:
        session = spark(str(left))
        from binlake.merge.by_spark import merge_by_spark
        from binlake.merge.lake_table import LakeTable

        merge_by_spark(session, LakeTable(table.path, table.app), life, step, columns, config, version, note)
