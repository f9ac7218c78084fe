"""An epoch of a table without Spark: the data files that may hold changed keys are written anew, in one Delta commit.

What a MERGE would do to these files, without its planning: two jobs, and a JVM for a run that needs no other. The
commit takes the place behind the very version that was read, or none: who commits meanwhile makes the step begin again.

Only what is as plain as a snapshot leaves it is done here; whatever else a table or a step may have is left to Spark,
which knows all of Delta: column mapping, deletion vectors, constraints, change data feeds, columns beside the server's.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.transaction import AddAction, RemoveAction
from numpy.typing import NDArray

from binlake.batch.steps import Life, MergeStep
from binlake.binlog.border import DELETE, UPDATE, staged_schema
from binlake.config import PipelineConfig
from binlake.faults import fault
from binlake.schema.lake_columns import LakeColumn
from binlake.schema.render import RENDERERS
from binlake.schema.table import TableSchema
from binlake.schema.virtual import judged
from binlake.state import files, key_ranges
from binlake.state.delta_log import LakeLog
from binlake.state.key_ranges import image_column
from binlake.versions import SPARK

MOST_ROWS = 1_000_000
"""Staged rows that are held at once."""
_PLACE = "place "
"""Beside columns of a key: no name of the server's ends with a space."""
_UNPACKED = 8
"""Bytes in memory for each of the limit's."""
_FEATURES = frozenset({"deletionVectors", "timestampNtz", "appendOnly", "invariants"})
"""Of a table's protocol, that ask nothing of who writes plain rows: that none of them is used is looked at."""
_SETTINGS = frozenset(
    {
        "delta.enableDeletionVectors", "delta.checkpointInterval", "delta.logRetentionDuration",
        "delta.deletedFileRetentionDuration", "delta.enableExpiredLogCleanup",
    }
)  # fmt: skip
_PLAIN_PATH = re.compile(r"[\w.=-]+(?:/[\w.=-]+)*")
"""Below the table, and the same with Delta's URL encoding as without."""
_DELTA_TYPES = {
    "TINYINT": "byte", "SMALLINT": "short", "INT": "integer", "BIGINT": "long", "FLOAT": "float", "DOUBLE": "double",
    "STRING": "string", "BINARY": "binary", "DATE": "date", "TIMESTAMP": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz", "BOOLEAN": "boolean",
}  # fmt: skip
"""Spark's names of types → Delta's."""
_WRITTEN_BY = {"org.apache.spark.version": SPARK}
"""Else older readers of Spark's refuse days before 1582 in files of which they don't know the calendar."""


@dataclass(frozen=True)
class _Plan:
    """The Delta version that was read, and of its data files those that may hold a staged key: path → bytes."""

    log: DeltaTable
    touched: dict[str, int]


def merged(
    table: LakeLog,
    life: Life,
    step: MergeStep,
    columns: Sequence[LakeColumn],
    config: PipelineConfig,
    *,
    version: int,
    note: dict[str, Any],
) -> bool:
    """One epoch in one commit; repeating it changes nothing. False: it is left to Spark, and nothing was changed.

    columns: the lake's. Raises CommitFailedError where somebody else committed meanwhile, or where the answer to our
    own commit got lost: the table's recorded version tells which; LakeError, OSError, ArrowException.
    """
    limit = int(config.merge.without_spark_mb * 1_000_000)
    if not _is_plain_step(step, columns) or sum(file.bytes for file in step.files) > limit:
        return False
    log = table.log()
    if (log.transaction_version(table.app) or -1) >= version:
        return True
    if not _is_plain_table(log, columns):
        return False
    plan = _plan(log, step)
    if sum(plan.touched.values()) > limit or not all(map(_PLAIN_PATH.fullmatch, plan.touched)):
        return False
    staged = _staged(life, step, config, limit * _UNPACKED)
    if staged is None:
        return False
    changed, newest = _newest(step.schema, columns, staged)
    rows = [newest]
    for path in plan.touched:
        room = limit * _UNPACKED - sum(part.nbytes for part in rows)
        kept = _kept(f"{table.path}/{path}", columns, step.schema.key, changed, room)
        if kept is None:
            return False
        rows.append(kept)
    _commit(table, plan, pa.concat_tables(rows), version, note)
    return True


def _is_plain_step(step: MergeStep, columns: Sequence[LakeColumn]) -> bool:
    """Rows with a key, whose last word alone counts."""
    schema = step.schema
    special = step.parents or step.xa or schema.sequence or schema.row_end or judged(schema).computed
    if special or not schema.key or not step.files or sum(file.rows for file in step.files) > MOST_ROWS:
        return False
    if any(file.xids or file.void for file in step.files):
        return False
    keys = [column for column in columns if column.source.name in schema.key]
    return not any(column.is_side or pa.types.is_floating(column.arrow) for column in keys)


def _is_plain_table(log: DeltaTable, columns: Sequence[LakeColumn]) -> bool:
    protocol, metadata = log.protocol(), log.metadata()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if features - _FEATURES or set(metadata.configuration) - _SETTINGS or metadata.partition_columns:
        return False
    fields = json.loads(log.schema().to_json())["fields"]
    if any(field["metadata"] or not field["nullable"] for field in fields):
        return False
    if {field["name"]: field["type"] for field in fields} != {one.name: _delta_type(one) for one in columns}:
        return False
    return not any(batch.num_rows for batch in pa.RecordBatchReader.from_stream(log.deletion_vectors()))


def _delta_type(column: LakeColumn) -> str | None:
    """None of what isn't known here, which no table has."""
    kind = column.delta.upper()
    return kind.lower().replace(" ", "") if kind.startswith("DECIMAL(") else _DELTA_TYPES.get(kind)


def _plan(log: DeltaTable, step: MergeStep) -> _Plan:
    added = pa.table(log.get_add_actions())
    ranges = key_ranges.ranges_to_search(log, step.schema, step.staged)
    touched = np.full(added.num_rows, ranges is None)
    if ranges:
        bounds = key_ranges.bounds_of(log, added, step.schema)
        for one in ranges:
            touched |= np.logical_and.reduce([_meets(bounds[name], *bound) for name, bound in one.items()])
    there = added.filter(pa.array(touched))
    return _Plan(log, dict(zip(there["path"].to_pylist(), there["size_bytes"].to_pylist(), strict=True)))


def _meets(spans: key_ranges.Spans | None, low: int, high: int) -> NDArray[np.bool_]:
    assert spans is not None  # ranges are told of columns that have bounds alone
    return (spans.low <= high) & (spans.high >= low) & spans.found


def _staged(life: Life, step: MergeStep, config: PipelineConfig, most: int) -> pa.Table | None:
    """The epoch's mutations after the snapshot, in the order of the log, with ``number``: their place in it. None where
    they take more than ``most`` bytes of memory."""
    parts: list[pa.Table] = []
    for file in step.files:
        part = files.parquet_rows(file.path, most - sum(one.nbytes for one in parts))
        if part is None:
            return None
        parts.append(part.cast(staged_schema(file.columns, config.invalid)))
    rows = pa.concat_tables(parts, promote_options="default")
    number, offset = life.low.order
    if min(file.first[:2] for file in step.files) < (number, offset):
        here = pc.and_(pc.equal(rows["file"], number), pc.greater_equal(rows["offset"], offset))
        rows = rows.filter(pc.or_(pc.greater(rows["file"], number), here))
    rows = rows.take(pc.sort_indices(rows, [(name, "ascending") for name in ("file", "offset", "row")]))
    return rows.append_column("number", pa.array(np.arange(rows.num_rows)))


def _newest(schema: TableSchema, columns: Sequence[LakeColumn], staged: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The staged keys, old and new ones, and the rows that stand at last, both as the lake has them.

    Keys compare as bytes: before images carry the stored key, so collations need no emulation. An update that changes
    the key deletes the old one, and then writes the new one.
    """
    came = staged.filter(pc.not_equal(staged["op"], DELETE))
    left = staged.filter(pc.or_(pc.equal(staged["op"], DELETE), _moved(schema, staged)))
    keys = {image: _images(columns, rows, image) for image, rows in (("after", came), ("before", left))}
    ranks = {"after": pc.add(pc.multiply(came["number"], 2), 1), "before": pc.multiply(left["number"], 2)}
    changes = pa.concat_tables(
        [keys[image].select(schema.key).append_column(_PLACE, ranks[image]) for image in ("before", "after")]
    )
    last = changes.group_by(list(schema.key), use_threads=False).aggregate([(_PLACE, "max")])
    stands = pc.is_in(ranks["after"], value_set=last[f"{_PLACE}_max"].combine_chunks())
    return last.select(schema.key), keys["after"].filter(stands)


def _moved(schema: TableSchema, staged: pa.Table) -> pa.ChunkedArray:
    """Whether a mutation is an update that changes the key."""
    differs = [
        pc.fill_null(pc.not_equal(image_column(staged, "before", name), image_column(staged, "after", name)), True)
        for name in schema.key
    ]
    return pc.and_(pc.equal(staged["op"], UPDATE), reduce(pc.or_, differs))


def _images(columns: Sequence[LakeColumn], rows: pa.Table, image: str) -> pa.Table:
    """The lake's columns from a staged image."""
    found = {}
    for column in columns:
        stored = image_column(rows, image, column.name)
        if _is_rendered(column):
            render = RENDERERS[column.source.type]
            texts = [None if data is None else render(data) for data in stored.to_pylist()]
            stored = pa.chunked_array([pa.array(texts, pa.string())])
        found[column.name] = stored
    return pa.table(found)


def _kept(
    path: str, columns: Sequence[LakeColumn], key: Sequence[str], changed: pa.Table, most: int
) -> pa.Table | None:
    """Rows of a data file whose key isn't among the changed ones; None where its types aren't those we write, or they
    take more than ``most`` bytes of memory."""
    wanted = pa.schema([(one.name, pa.string() if _is_rendered(one) else one.arrow) for one in columns])
    found = files.parquet_rows(path, most)
    if found is None:
        return None
    for field in wanted:
        if field.name not in found.column_names:  # written before the column came
            found = found.append_column(field, pa.nulls(found.num_rows, field.type))
    found = found.select(wanted.names)
    if [field.type for field in found.schema] != [field.type for field in wanted]:
        return None
    numbered = found.select(key).append_column(_PLACE, pa.array(np.arange(found.num_rows)))
    stays = numbered.join(changed, list(key), join_type="left anti", use_threads=False)
    return found.take(stays[_PLACE].combine_chunks().sort()).replace_schema_metadata(None)


def _is_rendered(column: LakeColumn) -> bool:
    return not column.is_side and column.source.type in RENDERERS


def _commit(table: LakeLog, plan: _Plan, rows: pa.Table, version: int, note: dict[str, Any]) -> None:
    """A data file without its commit stays for VACUUM: a store may say that the version was there when it is ours."""
    now = time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = [
        RemoveAction(path, True, now, size, {}) for path, size in plan.touched.items()
    ]
    name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    if rows.num_rows:
        size = files.write_parquet(f"{table.path}/{name}", rows.replace_schema_metadata(_WRITTEN_BY))
        fault("data file written")
        actions.append(AddAction(name, size, {}, now, True, _statistics(rows)))
    told = CommitProperties(
        custom_metadata={"userMetadata": json.dumps(note, ensure_ascii=False)},
        max_commit_retries=0,
        app_transactions=[Transaction(table.app, version, now)],
    )
    # Delta's retention of its log is looked after by maintain.
    after = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
    plan.log.create_write_transaction(
        actions, "append", plan.log.schema(), commit_properties=told, post_commithook_properties=after
    )


def _statistics(rows: pa.Table) -> str:
    """Delta's of a data file: the bounds of whole numbers, by which keys are looked for."""
    bounds = {name: pc.min_max(rows[name]).as_py() for name in rows.column_names if _is_whole(rows[name].type)}
    known = {name: one for name, one in bounds.items() if one["min"] is not None}
    return json.dumps(
        {
            "numRecords": rows.num_rows,
            "minValues": {name: int(one["min"]) for name, one in known.items()},
            "maxValues": {name: int(one["max"]) for name, one in known.items()},
            "nullCount": {name: rows[name].null_count for name in rows.column_names},
        }
    )


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0))
