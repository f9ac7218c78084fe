"""Merge one table's epoch by Delta's MERGE: staged mutations, compacted to the last one per key, in one commit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from binlake.batch.steps import Life, MergeStep
from binlake.binlog.border import DELETE, INSERT, UPDATE
from binlake.config import PipelineConfig
from binlake.delta import key_ranges
from binlake.delta.delta_log import STEPS_PER_BATCH
from binlake.delta.key_order import spark_literal
from binlake.errors import (
    InvalidDate,
    InvalidText,
    TableError,
    snapshot_again,
)
from binlake.merge import derived
from binlake.merge.lake_table import LakeTable
from binlake.merge.mutations import lake_image, staged_rows
from binlake.merge.own_values import WrittenInSql, own_in_sql
from binlake.merge.position_texts import mutation_text_in_sql
from binlake.names import spark_quote
from binlake.schema.lake_columns import LakeColumn, own_columns
from binlake.schema.table import TableName, TableSchema

_FLOATING = re.compile("FLOAT|DOUBLE")


def merge_by_spark(
    session: SparkSession,
    table: LakeTable,
    life: Life,
    step: MergeStep,
    columns: Sequence[LakeColumn],
    config: PipelineConfig,
    version: int,
    note: dict[str, Any],
) -> None:
    """Merge an epoch by Spark in one commit; repeating it changes nothing."""
    staged = staged_rows(session, life, step, config.invalid)
    if staged is not None:
        _refuse_invalid_keys(life.name, step.schema, columns, staged)
    if step.parents:
        newest = derived.newest(session, life, step, config.table_path, config.invalid)
        with table.transaction(session, version, note):
            _merge_newest(session, table, step, newest, columns)
        return
    assert staged is not None
    if step.schema.sequence:
        with table.transaction(session, version, note):
            _merge_newest(session, table, step, _newest_row(step.schema, staged, columns), columns)
        return
    if not step.schema.key and config.policies.of(life.name).without_key == "append":
        rows = staged.selectExpr("after").selectExpr(*lake_image(step.schema, columns, "after"))
        table.append(session, rows, version, note)
        return
    if step.schema.key:
        _apply_by_key(session, table, step, staged, columns, version, note)
        return
    with table.transaction(session, version, note):
        _merge_by_row(session, table, step, staged, columns)


def _refuse_invalid_keys(
    name: TableName, schema: TableSchema, columns: Sequence[LakeColumn], staged: DataFrame
) -> None:
    """Refuse rows whose key has an invalid value: it is NULL in the lake, so MERGE would never match it again.

    Raises InvalidDate, InvalidText.
    """
    for side in (column for column in columns if column.is_side and column.source.name in schema.key):
        quoted = spark_quote(side.source.name)
        wrong = staged.where(
            f"(op <> {DELETE} AND after.{quoted} IS NULL) OR (op <> {INSERT} AND before.{quoted} IS NULL)"
        )
        first = wrong.selectExpr("min(struct(file, offset)) AS place").head()
        if first is not None and first["place"] is not None:
            number, offset = first["place"]
            error_type: type[TableError] = InvalidDate if side.holds == "text" else InvalidText
            what = "an invalid date" if side.holds == "text" else "text that isn't valid in its character set"
            raise error_type(
                f"{name}: file {number} of the log, offset {offset}: {what} in column {side.source.name!r} of the key",
                remedy=f"mend the rows, then {snapshot_again(name)}",
            )


def _apply_by_key(
    session: SparkSession,
    table: LakeTable,
    step: MergeStep,
    staged: DataFrame,
    columns: Sequence[LakeColumn],
    version: int,
    note: dict[str, Any],
) -> None:
    """Append rows whose keys lie outside of the lake's key ranges; merge the others.

    The log isn't asked whether an insert is new: what a snapshot, a cascade below the log or a session without a log
    left in the lake is found by its key, and no row comes to stand there twice.
    """
    newest = _newest(session, step, staged, columns, version // STEPS_PER_BATCH)
    ranges = key_ranges.ranges_to_search(table.log(), step.schema, step.staged)
    if ranges == ():
        table.append(session, newest.where("NOT `gone `").drop("gone "), version, note)
        return
    range_condition = _condition(step.schema, ranges) if ranges is not None else " AND ".join(_staged_ranges(step))
    with table.transaction(session, version, note):
        _merge_newest(session, table, step, newest, columns, range_condition)


def _newest(
    session: SparkSession, step: MergeStep, staged: DataFrame, columns: Sequence[LakeColumn], batch: int
) -> DataFrame:
    """Return the newest image of each key as the mirror's columns, and ``gone ``.

    Keys compare as bytes: before images carry the stored key, so collations need no emulation. An update that changes
    the key is a delete of the old one and an upsert of the new one.
    """
    schema, server = step.schema, [column for column in columns if column.holds != "own"]
    staged = staged.selectExpr("*", _origin(schema))
    if key_ranges.each_once(schema, step.staged):
        last = staged.selectExpr("after IS NULL AS `gone `", "`origin `", "coalesce(after, before) AS `image `")
        return last.selectExpr(*_stands(schema, "", batch), *lake_image(schema, server, "`image `"))
    key = [spark_quote(name) for name in schema.key]
    key_list = ", ".join(key)
    changed = " OR ".join(f"NOT before.{name} <=> after.{name}" for name in key)
    image = lake_image(schema, server, "`change `.`image `")
    stands = _stands(schema, "`change `.", batch)
    staged.createOrReplaceTempView("staged")
    return session.sql(f"""
        WITH changes AS (
            SELECT {_key_of(schema, "after")}, struct(file, offset, place, row, 1 AS part) AS `sequence `,
                   false AS `gone `, `origin `, after AS `image `
            FROM staged WHERE op <> {DELETE}
            UNION ALL
            SELECT {_key_of(schema, "before")}, struct(file, offset, place, row, 0 AS part) AS `sequence `,
                   true AS `gone `, `origin `, before AS `image `
            FROM staged WHERE op = {DELETE} OR (op = {UPDATE} AND ({changed}))
        ), newest AS (
            SELECT {key_list}, max_by(struct(`gone `, `origin `, `image `), `sequence `) AS `change `
            FROM changes GROUP BY {key_list}
        )
        SELECT {", ".join([*stands, *image])} FROM newest
    """)


def _origin(schema: TableSchema) -> str:
    """Return as SQL where a mutation comes from, so far as the mirror tells that of its rows."""
    if not own_columns(schema):
        return "CAST(NULL AS BOOLEAN) AS `origin `"
    return "struct(committed_us, file, offset, number) AS `origin `"


def _stands(schema: TableSchema, change: str, batch: int) -> list[str]:
    """Return, as SQL, whether a key's row goes, and the mirror's own columns. A deleted row that stays doesn't go.

    change: before the names of the newest change's columns.
    """
    gone, origin = f"{change}`gone `", f"{change}`origin `"
    position = mutation_text_in_sql(f"{origin}.file", f"{origin}.offset", f"{origin}.number")
    own = own_in_sql(schema, WrittenInSql(f"{batch}L", f"{origin}.committed_us", position), gone)
    goes = "false" if schema.soft_delete else gone
    return [f"{goes} AS `gone `", *(f"{value} AS {spark_quote(name)}" for name, value in own.items())]


def _merge_newest(
    session: SparkSession,
    table: LakeTable,
    step: MergeStep,
    newest: DataFrame,
    columns: Sequence[LakeColumn],
    range_condition: str = "",
) -> None:
    """Merge the newest row of each key.

    newest: the lake's columns as they are at last, and ``__gone``. range_condition: what also holds of every row of the
    table that has one of the keys, so that files are skipped.
    """
    key = [spark_quote(name) for name in step.schema.key]
    names = [column.name for column in columns]
    condition = (
        " AND ".join([*(f"t.{name} = s.{name}" for name in key), *([range_condition] if range_condition else [])])
        or "true"
    )
    values = {spark_quote(name): f"s.{spark_quote(name)}" for name in names}
    (
        DeltaTable.forPath(session, table.path)
        .alias("t")
        .merge(newest.alias("s"), condition)
        .whenMatchedDelete("s.`gone `")
        .whenMatchedUpdate(set=values)  # type: ignore[arg-type]
        .whenNotMatchedInsert("NOT s.`gone `", values=values)  # type: ignore[arg-type]
        .execute()
    )


def _newest_row(schema: TableSchema, staged: DataFrame, columns: Sequence[LakeColumn]) -> DataFrame:
    """Return the newest row of a sequence, of which each logged row replaces the one before."""
    newest = staged.selectExpr("max_by(after, struct(file, offset, row)) AS image").where("image IS NOT NULL")
    return newest.selectExpr("false AS `gone `", *lake_image(schema, columns, "image"))


def _key_of(schema: TableSchema, image: str) -> str:
    return ", ".join(f"{image}.{spark_quote(name)} AS {spark_quote(name)}" for name in schema.key)


def _condition(schema: TableSchema, ranges: Sequence[Mapping[str, key_ranges.KeyRange]]) -> str:
    """Return the SQL condition that limits the target's rows to the key ranges."""

    def between(name: str, low: Any, high: Any) -> str:
        ends = (spark_literal(schema.column(name), end) for end in (low, high))
        return f"t.{spark_quote(name)} BETWEEN {' AND '.join(ends)}"

    boxes = (" AND ".join(between(name, *ends) for name, ends in key_range.items()) for key_range in ranges)
    return "(" + " OR ".join(f"({box})" for box in boxes) + ")"


def _staged_ranges(step: MergeStep) -> list[str]:
    """Return conditions that limit the target's rows to the staged key range, for files without statistics."""
    conditions: list[str] = []
    for name in step.schema.key:
        ranges = [file.ranges.get(name) for file in step.staged]
        if all(bounds is not None for bounds in ranges):
            low = min(bounds[0] for bounds in ranges if bounds)
            high = max(bounds[1] for bounds in ranges if bounds)
            conditions.append(f"t.{spark_quote(name)} BETWEEN {low} AND {high}")
    return conditions


def _merge_by_row(
    session: SparkSession, table: LakeTable, step: MergeStep, staged: DataFrame, columns: Sequence[LakeColumn]
) -> None:
    """Merge a table without a key: rows are told apart by all their values, and identical ones are counted.

    Copies that come are inserted. Of each row value of which copies go, all are deleted, and those that stay inserted
    again, with what the lake keeps of columns that the server dropped, in one MERGE.
    """
    names, kept = [column.name for column in columns], [column.name for column in step.schema.kept]
    listed = ", ".join(map(spark_quote, names))
    lacking = "".join(f", NULL AS {spark_quote(name)}" for name in kept)
    before, after = (lake_image(step.schema, columns, image) for image in ("before", "after"))
    staged.createOrReplaceTempView("staged")
    DeltaTable.forPath(session, table.path).toDF().createOrReplaceTempView("target")
    session.sql(f"""
        SELECT {_one_of_each(columns)}, sum(`difference `) AS `difference ` FROM (
            SELECT {", ".join(after)}, 1L AS `difference ` FROM staged WHERE op <> {DELETE}
            UNION ALL
            SELECT {", ".join(before)}, -1L AS `difference `
            FROM staged WHERE op IN ({UPDATE}, {DELETE})
        ) GROUP BY {", ".join(_exact(column) for column in columns)} HAVING sum(`difference `) <> 0
    """).createOrReplaceTempView("differences")
    same = " AND ".join(f"{_exact(column, 't.')} <=> {_exact(column, 's.')}" for column in columns)
    there = ", ".join(f"t.{spark_quote(name)}" for name in [*names, *kept])
    stay = ", ".join(map(spark_quote, [*names, *kept]))
    copies = ", ".join(_exact(column, "t.") for column in columns)
    source = session.sql(f"""
        WITH fewer AS (
            SELECT {there}, -s.`difference ` AS `going `,
                   row_number() OVER (PARTITION BY {copies} ORDER BY {copies}) AS `number `
            FROM target t JOIN differences s ON {same} WHERE s.`difference ` < 0
        )
        SELECT {listed}{lacking}, true AS `gone ` FROM differences WHERE `difference ` < 0
        UNION ALL
        SELECT {stay}, false AS `gone ` FROM fewer WHERE `number ` > `going `
        UNION ALL
        SELECT {listed}{lacking}, false AS `gone `
        FROM differences LATERAL VIEW explode(sequence(1L, greatest(`difference `, 1L))) AS `copy `
        WHERE `difference ` > 0
    """)
    values = {spark_quote(name): f"s.{spark_quote(name)}" for name in [*names, *kept]}
    (
        DeltaTable.forPath(session, table.path)
        .alias("t")
        .merge(source.alias("s"), f"s.`gone ` AND {same}")
        .whenMatchedDelete()
        .whenNotMatchedInsert("NOT s.`gone `", values=values)  # type: ignore[arg-type]
        .execute()
    )


def _exact(column: LakeColumn, row: str = "") -> str:
    """Return a column as SQL by which its values are told apart: Spark compares and groups numbers without the sign of
    a zero, and texts with it. row: before its name."""
    value = f"{row}{spark_quote(column.name)}"
    return f"CAST({value} AS STRING)" if _FLOATING.search(column.delta) else value


def _one_of_each(columns: Sequence[LakeColumn]) -> str:
    """Return the columns as SQL over rows that are grouped by ``_exact``: a group's rows are all the same."""

    def first_of(column: LakeColumn) -> str:
        name = spark_quote(column.name)
        return f"first({name}) AS {name}" if _FLOATING.search(column.delta) else name

    return ", ".join(map(first_of, columns))
