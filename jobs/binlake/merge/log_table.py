"""The log of a table: a row for every mutation, and for other events, in the order of the binlog.

| column                    | holds |
|---------------------------|-------|
| operation                 | insert, update, delete; truncate, drop, rename; gap: changes that aren't known by row;
|                           | repair: the mirror's row was put right |
| committed                 | when the transaction committed |
| batch                     | the batch that brought it |
| position                  | its place in the log: see position_texts.py |
| gtid                      | the transaction's; NULL without GTID |
| detail                    | of a rename the other name, of a gap the reason, of a repair its id |
| before_{name}             | the mirror's columns before the mutation; NULL in an insert |
| after_{name}              | the same after it; NULL in a delete |

Rows are only added, and never rewritten: a dropped column stays, a renamed one has its new name in all rows. A column
that gets another type in the lake steps aside under a name with a number, before_{name}__1, and begins again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from binlake.binlog.border import OPERATIONS
from binlake.delta import plain_tables
from binlake.errors import LeftToSpark, SchemaMismatch
from binlake.merge.arrow_mutations import COMMIT, NUMBER, StagedMutations
from binlake.merge.beside_commit import BesideCommit
from binlake.merge.lake_images import LakeImages, check_shape
from binlake.merge.mirror_epoch import UNPACKED
from binlake.merge.position_texts import mutation_texts
from binlake.merge.reshape import BesideColumn, reshaped
from binlake.merge.table_engine import AppendedRows
from binlake.planner.steps import BesideStep, EventBeside, MergeStep, RowsBeside
from binlake.schema.datatypes import is_in_bytes
from binlake.schema.lake_columns import LakeColumn, lake_columns
from binlake.schema.table import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from binlake.merge.mutations import TaskRows

_TIME = pa.timestamp("us", "UTC")
_OWN = (
    BesideColumn("operation", "STRING", pa.string()), BesideColumn("committed", "TIMESTAMP", _TIME),
    BesideColumn("batch", "BIGINT", pa.int64()), BesideColumn("position", "STRING", pa.string()),
    BesideColumn("gtid", "STRING", pa.string()), BesideColumn("detail", "STRING", pa.string()),
)  # fmt: skip
_REPEATING = ("operation", "committed", "batch", "gtid")
_ASCENDING = ("position",)
_IMAGES = ("before", "after")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def write(step: BesideStep, commit: BesideCommit) -> None:
    """Add a step's rows to the log; repeating it changes nothing."""
    match step:
        case RowsBeside():
            _write_rows(step, commit)
        case EventBeside(what="alter"):
            if step.renamed and commit.table.exists():
                _reshape(commit, (), step.renamed)
        case EventBeside(what="create" | "anew" | "end"):
            return
        case EventBeside(what="begin"):
            if commit.table.exists():
                why = "the log wasn't read into this table up to here"
                commit.append(_event_rows(replace(step, what="gap", detail=why), commit.batch))
        case EventBeside():
            commit.append(_event_rows(step, commit.batch))


def _write_rows(step: RowsBeside, commit: BesideCommit) -> None:
    held = [commit_ for file, commit_ in step.merge.xa if file.path in commit.lost]
    xa = tuple((file, end) for file, end in step.merge.xa if file.path not in commit.lost)
    merge = replace(step.merge, xa=xa)
    if held:
        why = f"the staged rows of the XA transaction {held[0].xid} are missing or damaged"
        commit.append(_event_rows(EventBeside("gap", *held[0].committed, detail=why), commit.batch))
        return
    schema = _shape(commit, merge)
    step = replace(step, merge=replace(merge, schema=schema))
    columns = lake_columns(schema, commit.config.invalid)
    wanted = (*_OWN, *_image_columns(columns))
    if commit.table.exists():
        _reshape(commit, wanted, ())
    most = commit.config.merge.without_spark_bytes

    def in_process() -> pa.Table:
        if sum(file.bytes for file in merge.staged) > most:
            raise LeftToSpark(f"{sum(file.bytes for file in merge.staged) / 1e6:,.1f} MB of its rows are staged")
        return _rows(step, columns, commit)

    def by_spark(session: SparkSession) -> DataFrame:
        return by_tasks().frame(session)

    def by_tasks() -> TaskRows:
        return _rows_by_tasks(step, columns, commit)

    commit.append(AppendedRows(wanted, _REPEATING, in_process, by_spark, by_tasks, _ASCENDING))


def _shape(commit: BesideCommit, merge: MergeStep) -> TableSchema:
    """Return the shape of the rows: that of the mirror, or where the mirror is at another place the staged one."""
    known = merge.schema
    try:
        for file in merge.staged:
            check_shape(commit.name, known, file)
    except SchemaMismatch:
        by_name = {column.name: column for column in known.columns}
        columns = []
        for staged in merge.staged[0].columns:
            same = by_name.get(staged.name, staged)
            columns.append(same if is_in_bytes(same, staged) else staged)
        shown = tuple(column for column in columns if column.name not in known.hidden)
        return TableSchema(shown, versioned=known.versioned)
    return known


def _image_columns(columns: Sequence[LakeColumn]) -> list[BesideColumn]:
    return [
        BesideColumn(f"{image}_{column.name}", column.delta, column.arrow) for image in _IMAGES for column in columns
    ]


def _rows(step: RowsBeside, columns: Sequence[LakeColumn], commit: BesideCommit) -> pa.Table:
    """Return a step's mutations as the log has them. Raises LeftToSpark, StagingError."""
    most = UNPACKED * commit.config.merge.without_spark_bytes
    staged = StagedMutations(step.life, step.merge, commit.config.invalid, most, commit.reads).ordered()
    return _logged(staged, commit.batch, LakeImages.of(step.merge.schema, columns))


def _logged(staged: pa.Table, batch: int, images: LakeImages) -> pa.Table:
    """Return staged mutations as the log has them."""
    numbers = staged["op"].combine_chunks().to_numpy()
    number = NUMBER if NUMBER in staged.column_names else "row"
    places = [staged[name].to_numpy() for name in ("file", "offset", number)]
    rows = {
        "operation": pa.DictionaryArray.from_arrays(numbers - min(OPERATIONS), list(OPERATIONS.values())),
        "committed": staged["committed_us"].cast(_TIME),
        "batch": pa.repeat(pa.scalar(batch, pa.int64()), staged.num_rows),
        "position": mutation_texts(*places),
        "gtid": staged["gtid"].unify_dictionaries(),  # of others the writer gives dictionaries up
    }
    for image in _IMAGES:
        of_image = images.rows(staged, image)
        rows |= {f"{image}_{name}": of_image[name] for name in of_image.column_names}
    return pa.table(rows)


def _rows_by_tasks(step: RowsBeside, columns: Sequence[LakeColumn], commit: BesideCommit) -> TaskRows:
    """Return the same rows as Spark's tasks read them."""
    from binlake.merge.mutations import TaskRows

    batch, images = commit.batch, LakeImages.of(step.merge.schema, columns)
    schema = pa.schema([(column.name, column.arrow) for column in (*_OWN, *_image_columns(columns))])

    def made(staged: pa.Table) -> pa.Table:
        rows = _logged(staged, batch, images)
        return rows.append_column("detail", pa.nulls(rows.num_rows, pa.string())).select(schema.names)

    return TaskRows(step.life, step.merge, commit.config.invalid, made, schema, COMMIT)


def _event_rows(event: EventBeside, batch: int) -> AppendedRows:
    """Return the row of something else that happened to the table."""
    values = _own_values(event, batch, np.array([event.number], np.int64))
    table = pa.table({column.name: values[column.name] for column in _OWN})
    kinds = ", ".join(f"{column.name} {column.kind}" for column in _OWN)
    rows = [tuple(row.values()) for row in table.to_pylist()]
    return AppendedRows(_OWN, _REPEATING, lambda: table, lambda session: session.createDataFrame(rows, kinds))


def write_repaired(
    event: EventBeside, schema: TableSchema, before: pa.Table, after: pa.Table, commit: BesideCommit
) -> None:
    """Add a row for each row of the mirror that was put right.

    event: what the rows have in common; its number is that of the first. before, after: rows of the mirror, with its
    columns, in the same places; all NULL where there was none.
    """
    columns = lake_columns(schema, commit.config.invalid)
    wanted = (*_OWN, *_image_columns(columns))
    _reshape(commit, wanted, ())
    numbers = np.arange(event.number, event.number + before.num_rows, dtype=np.int64)
    rows = _own_values(event, commit.batch, numbers)
    for image, values in zip(_IMAGES, (before, after), strict=True):
        rows |= {f"{image}_{column.name}": values[column.name].cast(column.arrow) for column in columns}
    table = pa.table(rows)

    def frame(session: SparkSession) -> DataFrame:
        from binlake.merge.mutations import spark_columns

        return session.createDataFrame(table, spark_columns(table.schema))

    commit.append(AppendedRows(wanted, _REPEATING, lambda: table, frame))


def _own_values(event: EventBeside, batch: int, numbers: NDArray[np.int64]) -> dict[str, pa.Array]:
    """Return a log's own columns of rows of one event, which have these numbers in it."""
    at = None if event.committed_us is None else _EPOCH + timedelta(microseconds=event.committed_us)
    place = [np.full(len(numbers), number, np.int64) for number in (event.file, event.offset)]
    values: Mapping[str, Any] = {
        "operation": event.what, "committed": at, "batch": batch, "gtid": event.gtid, "detail": event.detail or None,
    }  # fmt: skip
    kinds = {column.name: column.arrow for column in _OWN}
    own = {name: pa.repeat(pa.scalar(value, kinds[name]), len(numbers)) for name, value in values.items()}
    return {**own, "position": mutation_texts(place[0], place[1], numbers)}


def _reshape(commit: BesideCommit, wanted: Sequence[BesideColumn], renamed: Sequence[tuple[str, str]]) -> None:
    """Give the log the columns that it lacks, and renamed ones their new names."""
    fields = plain_tables.fields_of(commit.table.opened())
    columns = reshaped(
        fields, wanted, [(f"{image}_{old}", f"{image}_{new}") for image in _IMAGES for old, new in renamed]
    )
    if any(column.origin != column.name for column in columns):
        commit.reshape(columns)
