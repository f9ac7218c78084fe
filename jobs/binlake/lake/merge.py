"""MERGE of one table's epoch: staged mutations, compacted to the last one per key, in one Delta commit."""

from __future__ import annotations

from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from binlake.binlog.border import DELETE, INSERT, UPDATE
from binlake.config import InvalidDates
from binlake.errors import InvalidDate, SchemaMismatch
from binlake.lake.staging import StagedFile
from binlake.lake.steps import Life, MergeStep
from binlake.lake.table import LakeTable, lake_columns
from binlake.names import spark_quote
from binlake.schema import datatypes
from binlake.schema.render import RENDERERS
from binlake.schema.table import Column, TableName, TableSchema

_SNAPSHOT = "binlake snapshot --config FILE --tables '{}'"


def check_shape(name: TableName, schema: TableSchema, file: StagedFile) -> None:
    """The table map must agree with the schema we carry; raises SchemaMismatch."""
    if [column.name for column in file.columns] != [column.name for column in schema.mirrored]:
        raise _mismatch(name, file, "its columns are others")
    for logged, known in zip(file.columns, schema.mirrored, strict=True):
        if known.type not in RENDERERS and datatypes.arrow_type(logged) != datatypes.arrow_type(known):
            raise _mismatch(name, file, f"column {known.name!r} is {logged.type} in the log, {known.type} here")
    if file.key and schema.key_kind == "primary" and file.key != schema.key:
        raise _mismatch(name, file, "its primary key is another")


def _mismatch(name: TableName, file: StagedFile, why: str) -> SchemaMismatch:
    number, offset, _ = file.first
    return SchemaMismatch(
        f"{name}: file {number} of the log, offset {offset}: the recorded schema doesn't fit: {why}",
        remedy=f"snapshot this table again: {_SNAPSHOT.format(name)}",
    )


def merge_epoch(
    session: SparkSession,
    table: LakeTable,
    life: Life,
    step: MergeStep,
    *,
    version: int,
    note: dict[str, Any],
    invalid_dates: InvalidDates,
) -> None:
    """One epoch in one commit. Repeating it changes nothing."""
    for file in step.files:
        check_shape(life.name, step.schema, file)
    staged = _staged(session, life, step)
    if invalid_dates == "keep_text":
        _refuse_invalid_keys(life.name, step.schema, staged)
    with table.transaction(session, version, note):
        if step.schema.key:
            _merge_by_key(session, table, step, staged, invalid_dates)
        else:
            _merge_by_row(session, table, step, staged, invalid_dates)


def _staged(session: SparkSession, life: Life, step: MergeStep) -> DataFrame:
    """The epoch's mutations after the snapshot."""
    staged = session.read.parquet(*[file.path for file in step.files])
    number, offset = life.low.order
    if min(file.first[:2] for file in step.files) < (number, offset):
        staged = staged.where(f"file > {number} OR (file = {number} AND offset >= {offset})")
    return staged


def _refuse_invalid_keys(name: TableName, schema: TableSchema, staged: DataFrame) -> None:
    """An invalid date is NULL with its text beside it; as a key MERGE would never find it again. Raises InvalidDate."""
    dated = [column for column in schema.key if datatypes.entry(schema.column(column)).may_be_invalid_date]
    for column in dated:
        quoted = spark_quote(column)
        wrong = staged.where(
            f"(op <> {DELETE} AND after.{quoted} IS NULL) OR (op <> {INSERT} AND before.{quoted} IS NULL)"
        )
        first = wrong.selectExpr("min(struct(file, offset)) AS place").head()
        if first is not None and first["place"] is not None:
            number, offset = first["place"]
            raise InvalidDate(
                f"{name}: file {number} of the log, offset {offset}: an invalid date in column {column!r} of the key",
                remedy=f"mend the rows, then snapshot this table again: {_SNAPSHOT.format(name)}",
            )


def _image(schema: TableSchema, image: str, invalid_dates: InvalidDates) -> str:
    """The lake's columns from a staged image, as a select list."""
    selected: list[str] = []
    known = {column.name: column for column in schema.mirrored}
    for name, _ in lake_columns(schema, invalid_dates):
        value = f"{image}.{spark_quote(name)}"
        column: Column | None = known.get(name)
        if column is not None and column.type in RENDERERS:
            value = f"binlake_{column.type}({value})"
        selected.append(f"{value} AS {spark_quote(name)}")
    return ", ".join(selected)


def _merge_by_key(
    session: SparkSession, table: LakeTable, step: MergeStep, staged: DataFrame, invalid_dates: InvalidDates
) -> None:
    """Keys compare as bytes: before images carry the stored key, so collations need no emulation.

    An update that changes the key is a delete of the old one and an upsert of the new one.
    """
    schema = step.schema
    names = [name for name, _ in lake_columns(schema, invalid_dates)]
    key = [spark_quote(name) for name in schema.key]
    key_list = ", ".join(key)
    changed = " OR ".join(f"NOT before.{name} <=> after.{name}" for name in key)
    staged.createOrReplaceTempView("staged")
    compacted = session.sql(f"""
        WITH changes AS (
            SELECT {_key_of(schema, "after")}, struct(file, offset, row, 1 AS part) AS __sequence,
                   false AS __gone, after AS __image
            FROM staged WHERE op <> {DELETE}
            UNION ALL
            SELECT {_key_of(schema, "before")}, struct(file, offset, row, 0 AS part) AS __sequence,
                   true AS __gone, before AS __image
            FROM staged WHERE op = {DELETE} OR (op = {UPDATE} AND ({changed}))
        ), newest AS (
            SELECT {key_list}, max_by(struct(__gone, __image), __sequence) AS __change FROM changes GROUP BY {key_list}
        )
        SELECT __change.__gone AS __gone, {_image(schema, "__change.__image", invalid_dates)} FROM newest
    """)
    condition = " AND ".join([f"t.{name} = s.{name}" for name in key] + _key_ranges(step))
    values = {spark_quote(name): f"s.{spark_quote(name)}" for name in names}
    (
        DeltaTable.forPath(session, table.path)
        .alias("t")
        .merge(compacted.alias("s"), condition)
        .whenMatchedDelete("s.__gone")
        .whenMatchedUpdate(set=values)  # type: ignore[arg-type]
        .whenNotMatchedInsert("NOT s.__gone", values=values)  # type: ignore[arg-type]
        .execute()
    )


def _key_of(schema: TableSchema, image: str) -> str:
    return ", ".join(f"{image}.{spark_quote(name)} AS {spark_quote(name)}" for name in schema.key)


def _key_ranges(step: MergeStep) -> list[str]:
    """The staged rows' key range on the target's side, so that files outside it are skipped."""
    conditions: list[str] = []
    for name in step.schema.key:
        ranges = [file.ranges.get(name) for file in step.files]
        if all(found is not None for found in ranges):
            low = min(found[0] for found in ranges if found)
            high = max(found[1] for found in ranges if found)
            conditions.append(f"t.{spark_quote(name)} BETWEEN {low} AND {high}")
    return conditions


def _merge_by_row(
    session: SparkSession, table: LakeTable, step: MergeStep, staged: DataFrame, invalid_dates: InvalidDates
) -> None:
    """Without a key, rows are told apart by all their values, and identical ones are counted.

    Of each row value that changed, all copies are deleted and the right number is inserted, in one MERGE.
    """
    names = [name for name, _ in lake_columns(step.schema, invalid_dates)]
    columns = ", ".join(spark_quote(name) for name in names)
    staged.createOrReplaceTempView("staged")
    DeltaTable.forPath(session, table.path).toDF().createOrReplaceTempView("target")
    session.sql(f"""
        SELECT {columns}, sum(difference) AS __difference FROM (
            SELECT {_image(step.schema, "after", invalid_dates)}, 1L AS difference FROM staged WHERE op <> {DELETE}
            UNION ALL
            SELECT {_image(step.schema, "before", invalid_dates)}, -1L AS difference
            FROM staged WHERE op IN ({UPDATE}, {DELETE})
        ) GROUP BY {columns} HAVING sum(difference) <> 0
    """).createOrReplaceTempView("differences")
    same = " AND ".join(f"t.{spark_quote(name)} <=> s.{spark_quote(name)}" for name in names)
    source = session.sql(f"""
        WITH counted AS (
            SELECT {", ".join(f"s.{spark_quote(name)} AS {spark_quote(name)}" for name in names)},
                   s.__difference + count(t.__present) AS copies
            FROM differences s LEFT JOIN (SELECT *, 1 AS __present FROM target) t ON {same}
            GROUP BY {", ".join(f"s.{spark_quote(name)}" for name in names)}, s.__difference
        )
        SELECT {columns}, true AS __gone FROM counted
        UNION ALL
        SELECT {columns}, false AS __gone
        FROM counted LATERAL VIEW explode(sequence(1, greatest(copies, 1))) AS copy WHERE copies > 0
    """)
    values = {spark_quote(name): f"s.{spark_quote(name)}" for name in names}
    (
        DeltaTable.forPath(session, table.path)
        .alias("t")
        .merge(source.alias("s"), f"s.__gone AND {same}")
        .whenMatchedDelete()
        .whenNotMatchedInsert("NOT s.__gone", values=values)  # type: ignore[arg-type]
        .execute()
    )
