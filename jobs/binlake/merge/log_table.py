"""The log of a table: a row for every mutation, and for what else happened, in the order of the binlog.

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

Rows are only added, and never written anew: a dropped column stays, a renamed one has its new name in all rows. A
column that gets another type in the lake steps aside under a name with a number, before_{name}__1, and begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from binlake.batch.steps import BesideStep, EventBeside, MergeStep, RowsBeside
from binlake.binlog.border import DELETE, INSERT, UPDATE
from binlake.delta import plain_tables
from binlake.delta.delta_schema import delta_type
from binlake.errors import LeftToSpark, SchemaMismatch
from binlake.merge.arrow_mutations import ordered_mutations
from binlake.merge.beside_commit import BesideColumn, BesideCommit, BesideRows
from binlake.merge.epoch import check_shape
from binlake.merge.newest import lake_images
from binlake.merge.position_texts import mutation_text_in_sql, mutation_texts
from binlake.merge.reshape import ReshapedColumn
from binlake.schema.lake_columns import LakeColumn, lake_columns
from binlake.schema.render import RENDERERS, is_vector_in_bytes
from binlake.schema.table import TableSchema
from binlake.schema.virtual import computed_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIME = pa.timestamp("us", "UTC")
_OWN = (
    BesideColumn("operation", "STRING", pa.string()), BesideColumn("committed", "TIMESTAMP", _TIME),
    BesideColumn("batch", "BIGINT", pa.int64()), BesideColumn("position", "STRING", pa.string()),
    BesideColumn("gtid", "STRING", pa.string()), BesideColumn("detail", "STRING", pa.string()),
)  # fmt: skip
_REPEATING = ("operation", "committed", "batch", "gtid")
_ASCENDING = ("position",)
_OPERATIONS = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}
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
        return _rows_by_spark(session, step, columns, commit)

    commit.append(BesideRows(wanted, _REPEATING, in_process, by_spark, ascending=_ASCENDING))


def _shape(commit: BesideCommit, merge: MergeStep) -> TableSchema:
    """Return the shape of the rows: that of the mirror, or where the mirror stands at another place the staged one."""
    known = merge.schema
    try:
        for file in merge.staged:
            check_shape(commit.name, known, file)
    except SchemaMismatch:
        by_name = {column.name: column for column in known.columns}
        columns = []
        for staged in merge.staged[0].columns:
            same = by_name.get(staged.name, staged)
            in_bytes = same.type in RENDERERS or is_vector_in_bytes(same, staged)
            columns.append(same if in_bytes else staged)
        shown = tuple(column for column in columns if column.name not in known.hidden)
        return TableSchema(shown, versioned=known.versioned)
    return known


def _image_columns(columns: Sequence[LakeColumn]) -> list[BesideColumn]:
    return [
        BesideColumn(f"{image}_{column.name}", column.delta, column.arrow) for image in _IMAGES for column in columns
    ]


def _rows(step: RowsBeside, columns: Sequence[LakeColumn], commit: BesideCommit) -> pa.Table:
    """Return a step's mutations as the log has them. Raises LeftToSpark, StagingError."""
    most = 8 * commit.config.merge.without_spark_bytes
    staged = ordered_mutations(step.life, step.merge, commit.config.invalid, most, commit.reads)
    numbers = staged["op"].combine_chunks().to_numpy()
    places = [staged[name].to_numpy() for name in ("file", "offset", "row")]
    rows = {
        "operation": pa.DictionaryArray.from_arrays(numbers - min(_OPERATIONS), list(_OPERATIONS.values())),
        "committed": staged["committed_us"].cast(_TIME),
        "batch": pa.repeat(pa.scalar(commit.batch, pa.int64()), staged.num_rows),
        "position": mutation_texts(*places),
        "gtid": staged["gtid"].unify_dictionaries(),  # of others the writer gives dictionaries up
    }
    computed = computed_columns(step.merge.schema)
    for image in _IMAGES:
        images = lake_images(columns, staged, image, computed)
        rows |= {f"{image}_{name}": images[name] for name in images.column_names}
    return pa.table(rows)


def _rows_by_spark(
    session: SparkSession, step: RowsBeside, columns: Sequence[LakeColumn], commit: BesideCommit
) -> DataFrame:
    """Return the same rows as Spark reads them."""
    from binlake.merge.mutations import lake_image, staged_rows

    staged = staged_rows(session, step.life, step.merge, commit.config.invalid)
    assert staged is not None
    names = ", ".join(f"{number}, '{name}'" for number, name in _OPERATIONS.items())
    images = [part for image in _IMAGES for part in lake_image(step.merge.schema, columns, image, f"{image}_")]
    return staged.selectExpr(
        f"element_at(map({names}), CAST(op AS INT)) AS operation",
        "timestamp_micros(committed_us) AS committed",
        f"CAST({commit.batch} AS BIGINT) AS batch",
        f"{mutation_text_in_sql('file', 'offset', 'number')} AS position",
        "gtid",
        "CAST(NULL AS STRING) AS detail",
        *images,
    )


def _event_rows(event: EventBeside, batch: int) -> BesideRows:
    """Return the row of something else that happened to the table."""
    values = _own_values(event, batch, np.array([event.number], np.int64))
    table = pa.table({column.name: values[column.name] for column in _OWN})
    kinds = ", ".join(f"{column.name} {column.kind}" for column in _OWN)
    rows = [tuple(row.values()) for row in table.to_pylist()]
    return BesideRows(_OWN, _REPEATING, lambda: table, lambda session: session.createDataFrame(rows, kinds))


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
    commit.append(BesideRows(wanted, _REPEATING, lambda: table, lambda session: session.createDataFrame(table)))


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
    fields = plain_tables.fields_of(commit.table.log())
    columns = reshaped(
        fields, wanted, [(f"{image}_{old}", f"{image}_{new}") for image in _IMAGES for old, new in renamed]
    )
    if any(column.origin != column.name for column in columns):
        commit.reshape(columns)


def reshaped(
    fields: Sequence[Mapping[str, Any]],
    wanted: Sequence[BesideColumn],
    renamed: Sequence[tuple[str, str]],
    begun: Sequence[str] = (),
) -> list[ReshapedColumn]:
    """Return a log's columns once it has those that are wanted.

    fields: of its Delta schema. A column in whose place another comes, of another type or by a new name, steps aside
    under a name with a number. begun: those of ``wanted`` that begin without a value, also where one of the name was
    dropped before.
    """
    names = {old.lower(): new for old, new in renamed}
    kinds = {column.name.lower(): column for column in wanted}
    come, anew = {new.lower() for _, new in renamed}, {name.lower() for name in begun}
    have = {field["name"].lower() for field in fields}
    taken = have | kinds.keys() | come
    columns: list[ReshapedColumn] = []
    stay: set[str] = set()
    for field in fields:
        name, lower, same = field["name"], field["name"].lower(), str(field["type"])
        new = names.get(lower, name)
        if new.lower() in kinds and (lower in names or lower not in come):
            wanted_here = kinds[new.lower()]
            new = wanted_here.name
            if delta_type(wanted_here.kind) != field["type"] or (lower in anew and lower not in names):
                new = _aside(new, taken)
        elif lower in come and lower not in names:
            new = _aside(name, taken)
        stay.add(new.lower())
        columns.append(ReshapedColumn(new, same, name, same, pa.null()))
    columns += [
        ReshapedColumn(column.name, column.kind, None, None, column.arrow)
        for column in wanted
        if column.name.lower() not in stay
    ]
    return columns


def _aside(name: str, taken: set[str]) -> str:
    """Return a free name for a column that steps aside, and take it."""
    number = 1
    while f"{name}__{number}".lower() in taken:
        number += 1
    taken.add(f"{name}__{number}".lower())
    return f"{name}__{number}"
