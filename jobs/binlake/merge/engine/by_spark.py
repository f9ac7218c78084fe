"""Merge one table's epoch by Delta's MERGE: staged mutations, compacted to the last one per key, in one commit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from binlake.delta import key_ranges
from binlake.delta.key_order import spark_literal
from binlake.errors import (
    InvalidDate,
    InvalidText,
    LeftToSpark,
    TableError,
    snapshot_again,
)
from binlake.merge.delta_names import refused_by_merge
from binlake.merge.engine import task_appends
from binlake.merge.foreign_keys import derived
from binlake.merge.lake_table import LakeTable
from binlake.merge.mirror_epoch import MirrorEpoch
from binlake.merge.mutations import AT, IMAGE, PART, ChangedImages, changes
from binlake.merge.table_engine import here_or_by_spark
from binlake.names import spark_quote
from binlake.planner.steps import MergeStep
from binlake.schema.lake_columns import LakeColumn
from binlake.schema.table import TableSchema

_FLOATING = re.compile("FLOAT|DOUBLE")
_IMAGE = spark_quote(IMAGE)
_SEQUENCE = f"struct({', '.join(map(spark_quote, (*AT, PART)))})"


def merge_by_spark(session: SparkSession, table: LakeTable, epoch: MirrorEpoch) -> None:
    """Merge an epoch by Spark in one commit; repeating it changes nothing. table: the mirror."""
    config, schema, version, note = epoch.config, epoch.schema, epoch.version, epoch.note
    if epoch.step.staged:
        _refuse_invalid_keys(session, epoch)
    if epoch.step.parents:
        newest = derived.newest(session, epoch.life, epoch.step, config.table_path, config.invalid)
        with table.transaction(session, version, note):
            _merge_newest(session, table, epoch, newest)
        return
    if epoch.is_appended_to:
        _append(session, table, epoch, _changes(session, epoch).selectExpr(f"{_IMAGE}.*"), each=True)
        return
    if schema.key and not schema.sequence:
        _apply_by_key(session, table, epoch)
        return
    with table.transaction(session, version, note):
        if schema.sequence:
            _merge_newest(session, table, epoch, _newest_row(session, epoch))
        else:
            _merge_by_row(session, table, epoch)


def _changes(session: SparkSession, epoch: MirrorEpoch, *, every: bool = False) -> DataFrame:
    """Return the images of the mirror's columns that came and went. every: also old ones of updates of one key."""
    changed = changes(session, epoch.life, epoch.step, ChangedImages.of(epoch, every=every), epoch.config.invalid)
    assert changed is not None
    return changed


def _refuse_invalid_keys(session: SparkSession, epoch: MirrorEpoch) -> None:
    """Refuse rows whose key has an invalid value: it is NULL in the lake, so MERGE would never match it again.

    Raises InvalidDate, InvalidText.
    """
    name, key = epoch.life.name, epoch.schema.key
    for side in (column for column in epoch.columns if column.is_side and column.source.name in key):
        wrong = _changes(session, epoch, every=True).where(f"{_IMAGE}.{spark_quote(side.source.name)} IS NULL")
        first = wrong.selectExpr("min(struct(file, offset)) AS place").head()
        if first is not None and first["place"] is not None:
            number, offset = first["place"]
            error_type: type[TableError] = InvalidDate if side.holds == "text" else InvalidText
            what = "an invalid date" if side.holds == "text" else "text that isn't valid in its character set"
            raise error_type(
                f"{name}: file {number} of the log, offset {offset}: {what} in column {side.source.name!r} of the key",
                remedy=f"fix the rows, then {snapshot_again(name)}",
            )


def _apply_by_key(session: SparkSession, table: LakeTable, epoch: MirrorEpoch) -> None:
    """Append rows whose keys lie outside of the lake's key ranges; merge the others.

    The log isn't asked whether an insert is new: a row that a snapshot, a cascade below the log or a session without a
    log left in the lake is found by its key, and no row is there twice.
    """
    schema, step = epoch.schema, epoch.step
    each_once = key_ranges.each_once(schema, step.staged)
    newest = _newest(session, epoch, each_once=each_once)
    ranges = key_ranges.ranges_to_search(table.opened(), schema, step.staged)
    if ranges == ():
        _append(session, table, epoch, newest.where("NOT `gone `").drop("gone "), each=each_once)
        return
    range_condition = _condition(schema, ranges) if ranges is not None else " AND ".join(_staged_ranges(step))
    with table.transaction(session, epoch.version, epoch.note):
        _merge_newest(session, table, epoch, newest, range_condition)


def _append(session: SparkSession, table: LakeTable, epoch: MirrorEpoch, rows: DataFrame, *, each: bool) -> None:
    """Append the rows that an epoch leaves.

    rows: as Spark makes them. each: whether these are the images that came, each of them; then the tasks that read them
    write them.
    """

    def by_tasks() -> None:
        if not each:
            raise LeftToSpark("a key occurs twice")
        task_appends.append_images(session, epoch)

    here_or_by_spark(by_tasks, lambda why: table.append(session, rows, epoch.version, epoch.note))


def _newest(session: SparkSession, epoch: MirrorEpoch, *, each_once: bool) -> DataFrame:
    """Return the newest image of each key as the mirror's columns, and ``gone ``: false of a deleted row that stays.

    each_once: whether no key occurs twice.
    """
    schema, changed = epoch.schema, _changes(session, epoch)
    gone = "false" if schema.soft_delete else "`gone `"
    if each_once:
        return changed.selectExpr(f"{gone} AS `gone `", f"{_IMAGE}.*")
    # By Spark's aggregate: newest.py over rows that are shuffled by their keys takes 1.3 to 1.4 times the processor
    # time of this, a tenth more of the whole merge (a million mutations of ten columns).
    last = changed.groupBy(*(expr(f"{_IMAGE}.{spark_quote(name)}") for name in schema.key)).agg(
        expr(f"max_by(struct({gone} AS `gone `, {_IMAGE}), {_SEQUENCE}) AS `change `")
    )
    return last.selectExpr("`change `.`gone `", f"`change `.{_IMAGE}.*")


def _merge_newest(
    session: SparkSession,
    table: LakeTable,
    epoch: MirrorEpoch,
    newest: DataFrame,
    range_condition: str = "",
) -> None:
    """Merge the newest row of each key.

    newest: the lake's columns after the epoch, and ``__gone``. range_condition: also true of every row of the table
    that has one of the keys, so that files are skipped.
    """
    key = [spark_quote(name) for name in epoch.schema.key]
    names = [column.name for column in epoch.columns]
    condition = (
        " AND ".join([*(f"t.{name} = s.{name}" for name in key), *([range_condition] if range_condition else [])])
        or "true"
    )
    if refused_by_merge(table.columns()):
        there, coming = session.read.format("delta").load(table.path), newest.where("NOT `gone `").alias("s")
        kept = [f"t.{spark_quote(name)}" for name in there.columns if name not in names]
        rows = coming.join(there.alias("t"), expr(condition), "left").selectExpr(
            *(f"s.{spark_quote(name)}" for name in names), *kept
        )
        _replace(table, there, newest, condition, rows)
        return
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


def _replace(table: LakeTable, there: DataFrame, going: DataFrame, condition: str, coming: DataFrame) -> None:
    """Write the whole table again, for one whose columns have names that Delta's MERGE can't distinguish from its own.

    there: its rows, of which those go that have a match in ``going``. condition: over a row t and its match s. coming:
    rows that are added.
    """
    staying = there.alias("t").join(going.alias("s"), expr(condition), "left_anti")
    rows = staying.unionByName(coming.select(*map(spark_quote, there.columns)))
    rows.write.format("delta").mode("overwrite").save(table.path)


def _newest_row(session: SparkSession, epoch: MirrorEpoch) -> DataFrame:
    """Return the newest row of a sequence, of which each logged row replaces the one before."""
    came = _changes(session, epoch, every=True).where("NOT `gone `")
    newest = came.selectExpr(f"max_by({_IMAGE}, {_SEQUENCE}) AS {_IMAGE}").where(f"{_IMAGE} IS NOT NULL")
    return newest.selectExpr("false AS `gone `", f"{_IMAGE}.*")


def _condition(schema: TableSchema, ranges: Sequence[Mapping[str, key_ranges.KeyRange]]) -> str:
    """Return the SQL condition that limits the target's rows to the key ranges."""

    def between(name: str, low: Any, high: Any) -> str:
        ends = (spark_literal(schema.shown(name), end) for end in (low, high))
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


def _merge_by_row(session: SparkSession, table: LakeTable, epoch: MirrorEpoch) -> None:
    """Merge a table without a key: rows are identified by all their values, and identical ones are counted.

    Copies that come are inserted. Where copies of a row value go, all of its copies are deleted, and those that stay
    are inserted again, with what the lake keeps of columns that the server dropped, in one MERGE.
    """
    columns = epoch.columns
    names, kept = [column.name for column in columns], [column.name for column in epoch.schema.kept]
    listed = ", ".join(map(spark_quote, names))
    lacking = "".join(f", NULL AS {spark_quote(name)}" for name in kept)
    _changes(session, epoch, every=True).createOrReplaceTempView("changed")
    DeltaTable.forPath(session, table.path).toDF().createOrReplaceTempView("target")
    session.sql(f"""
        SELECT {_one_of_each(columns)}, sum(`difference `) AS `difference `
        FROM (SELECT {_IMAGE}.*, IF(`gone `, -1L, 1L) AS `difference ` FROM changed)
        GROUP BY {", ".join(_exact(column) for column in columns)} HAVING sum(`difference `) <> 0
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
    if refused_by_merge(table.columns()):
        rows = session.read.format("delta").load(table.path)
        _replace(table, rows, source.where("`gone `"), same, source.where("NOT `gone `"))
        return
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
    """Return a column as SQL by which its values are distinguished: Spark compares and groups numbers without the sign
    of a zero, and texts with it. row: before its name."""
    value = f"{row}{spark_quote(column.name)}"
    return f"CAST({value} AS STRING)" if _FLOATING.search(column.delta) else value


def _one_of_each(columns: Sequence[LakeColumn]) -> str:
    """Return the columns as SQL over rows that are grouped by ``_exact``: a group's rows are all the same."""

    def first_of(column: LakeColumn) -> str:
        name = spark_quote(column.name)
        return f"first({name}) AS {name}" if _FLOATING.search(column.delta) else name

    return ", ".join(map(first_of, columns))
