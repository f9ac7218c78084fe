"""Rows that foreign keys changed below the log, derived from the parents' mutations.

A row of the table is as its last image says, from that image to the next (``since``, ``upto``); the first one is that
of the lake before the batch. The first of the parents' events within that time whose key the row refers to acts on it,
as InnoDB did, with those of other foreign keys at the same place; a row that stays continues under its new values.
Places in the log (``at``) compare as structs of file, offset, place, row and part. ``derived_in_process.py`` does the
same without Spark: it plays events one after the other, in some 20 µs and a kilobyte each, and can't share them out to
tasks by key, because an event's effects reach rows of any key. So the joins here are for those that are too many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from pyspark.sql import DataFrame, SparkSession, Window, functions as F

from binlake.binlog.border import DELETE, UPDATE
from binlake.merge.arrow_mutations import HELD
from binlake.merge.foreign_keys.acted_rows import DEEPEST, deeper_than_known
from binlake.merge.lake_images import LakeImages
from binlake.merge.mutations import IMAGE, PART, ChangedImages, changes, staged_rows
from binlake.names import spark_quote
from binlake.planner.steps import Life, MergeStep, ParentMutations
from binlake.schema.cascades import Cascade
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import LakeColumn, lake_columns
from binlake.schema.table import TableName, TableSchema

_AT = f"struct(file, offset, {spark_quote(HELD)} AS place, row, {{part}} AS part)"
_BEFORE_ALL = "struct(-1L AS file, -1L AS offset, -1L AS place, -1L AS row, -1 AS part)"
_END = 2**63 - 1
_AFTER_ALL = f"struct({_END}L AS file, {_END}L AS offset, {_END}L AS place, {_END}L AS row, 9 AS part)"
_FEW = 100_000
"""Events up to which the table is read where it lies; beyond it is shuffled by its foreign keys."""


def newest(
    session: SparkSession,
    life: Life,
    step: MergeStep,
    path_of: Callable[[TableName], str],
    invalid: InvalidValues,
) -> DataFrame:
    """Return the newest image of each key that the log or a cascade changed, as the lake's columns, and ``gone ``."""
    table = _Table(session, life, step, path_of, invalid)
    columns = ["key", "at", "gone", "image"]
    changes = table.derived().select(*columns)
    if table.logged is not None:
        changes = changes.union(table.logged.select(*columns))
    last = changes.groupBy("key").agg(F.expr("max_by(struct(gone, image), at)").alias("last"))
    return last.select(F.expr("last.gone").alias("gone "), "last.image.*")


@dataclass(frozen=True)
class _Table:
    """A table in one batch. ``logged``: what the log says (key, at, gone, image), None where it says nothing."""

    session: SparkSession
    life: Life
    step: MergeStep
    path_of: Callable[[TableName], str]
    invalid: InvalidValues

    @property
    def schema(self) -> TableSchema:
        return self.step.schema

    @cached_property
    def columns(self) -> tuple[LakeColumn, ...]:
        return lake_columns(self.schema, self.invalid)

    @cached_property
    def images(self) -> LakeImages:
        return LakeImages.of(self.schema, self.columns)

    @cached_property
    def logged(self) -> DataFrame | None:
        changed = changes(self.session, self.life, self.step, ChangedImages(self.schema, self.images), self.invalid)
        if changed is None:
            return None
        image = spark_quote(IMAGE)
        at = _AT.format(part=f"CAST({spark_quote(PART)} AS INT)")
        key = _struct(image, self.schema.key)
        return changed.selectExpr(f"{key} AS key", f"{at} AS at", "`gone ` AS gone", f"{image} AS image")

    # cascades --------------------------------------------------------------------------------------------------------
    def derived(self) -> DataFrame:
        """Return the rows that cascades changed: key, at, gone, before (the image until then) and image."""
        given = [
            self._events(number, mutations)
            for number, mutations in enumerate(self.step.parents)
            if mutations.parent is not None
        ]
        given += [self._own_events(number, cascade) for number, cascade in self._to_itself() if self.step.staged]
        changes = self._acted(reduce(DataFrame.union, given))
        for _ in range(DEEPEST):
            own = [_of_changes(number, cascade, changes) for number, cascade in self._to_itself()]
            if not own:
                return changes
            deeper = self._acted(reduce(DataFrame.union, [*given, *own]))
            if _same(changes, deeper):
                return changes
            changes = deeper
        raise deeper_than_known(self.life.name)

    def _to_itself(self) -> list[tuple[int, Cascade]]:
        return [
            (number, mutations.cascade)
            for number, mutations in enumerate(self.step.parents)
            if mutations.parent is None
        ]

    def _events(self, number: int, mutations: ParentMutations) -> DataFrame:
        """Return what was deleted from the parent, or changed its key: at, number of the foreign key, gone, old and new
        key."""
        assert mutations.parent is not None
        assert mutations.step is not None
        parent = _Table(self.session, mutations.parent, mutations.step, self.path_of, self.invalid)
        parts = []
        if mutations.step.staged:
            parts.append(parent._own_events(number, mutations.cascade))
        if mutations.step.parents:
            parts.append(_of_changes(number, mutations.cascade, parent.derived()))
        file, offset = self.life.low.order
        return reduce(DataFrame.union, parts).where(f"at.file > {file} OR (at.file = {file} AND at.offset >= {offset})")

    def _own_events(self, number: int, cascade: Cascade) -> DataFrame:
        staged = staged_rows(self.session, self.life, self.step, self.images, self.invalid)
        assert staged is not None
        rows = staged.where(f"op IN ({UPDATE}, {DELETE})")
        return _events(
            number, cascade, rows.selectExpr(f"{_AT.format(part=0)} AS at", f"op = {DELETE} AS gone", "before", "after")
        )

    def _acted(self, events: DataFrame) -> DataFrame:
        """Return what the events did to the rows."""
        cascades = [mutations.cascade for mutations in self.step.parents]
        events = events.localCheckpoint()
        if events.limit(_FEW + 1).count() <= _FEW:  # of checkpointed rows Spark doesn't know how many they are
            events = F.broadcast(events)
        rows = self._rows(cascades, events)
        changes: list[DataFrame] = []
        while True:
            hits = [self._hit(rows, events, number, cascade) for number, cascade in enumerate(cascades)]
            met = F.expr("collect_list(struct(at, gone, image)) AS hits"), F.first("before").alias("before")
            first = (
                reduce(DataFrame.union, hits)
                .groupBy("key", "since")  # not by images: Spark groups by numbers without the sign of a zero
                .agg(F.expr("min(at) AS at"), *met, F.first("upto").alias("upto"))
                .withColumn("hits", F.expr("filter(hits, hit -> hit.at = at)"))
                .selectExpr("key", "at", "exists(hits, hit -> hit.gone) AS gone", "before", *self._together(), "upto")
                .localCheckpoint()
            )
            changes.append(first.select("key", "at", "gone", "before", "image"))
            rows = first.where("NOT gone").selectExpr("key", "image", "at AS since", "upto")
            if rows.isEmpty():
                return reduce(DataFrame.union, changes)

    def _rows(self, cascades: Sequence[Cascade], events: DataFrame) -> DataFrame:
        """Return rows with the time in which they looked so: those of the lake that an event may match, and the
        log's."""
        names = ", ".join(spark_quote(column.name) for column in self.columns)
        lake = (
            self.session.read.format("delta")
            .option("versionAsOf", self.life.delta_version)
            .load(self.path_of(self.life.name))
            .selectExpr(f"struct({names}) AS image")
            .selectExpr(f"{_struct('image', self.schema.key)} AS key", "image")
        )
        met = [
            lake.alias("r").join(events.alias("e"), F.expr(_refers(number, cascade)), "left_semi")
            for number, cascade in enumerate(cascades)
        ]
        candidates = reduce(DataFrame.union, met).dropDuplicates(["key"])
        logged = self.logged
        if logged is None:
            return candidates.selectExpr("key", "image", f"{_BEFORE_ALL} AS since", f"{_AFTER_ALL} AS upto")
        first = logged.groupBy("key").agg(F.min("at").alias("first"))
        upto = f"coalesce(first, {_AFTER_ALL}) AS upto"
        stood = candidates.join(first, "key", "left").selectExpr("key", "image", f"{_BEFORE_ALL} AS since", upto)
        following = F.lead("at").over(Window.partitionBy("key").orderBy("at"))
        came = logged.withColumn("next", following).where("NOT gone")
        return stood.union(came.selectExpr("key", "image", "at AS since", f"coalesce(next, {_AFTER_ALL}) AS upto"))

    def _hit(self, rows: DataFrame, events: DataFrame, number: int, cascade: Cascade) -> DataFrame:
        """Return rows with the events that matched them, and what these made of them."""
        matches = rows.alias("r").join(
            events.alias("e"), F.expr(f"{_refers(number, cascade)} AND e.at > r.since AND e.at < r.upto")
        )
        goes = "e.gone" if cascade.delete == "CASCADE" else "false"
        return matches.selectExpr(
            "r.key",
            "r.since",
            "r.upto",
            "e.at",
            f"{goes} AS gone",
            "r.image AS before",
            f"{self._set(cascade)} AS image",
        )

    def _together(self) -> list[str]:
        """Return the image of a row that foreign keys changed at one place, with the columns that each of them set."""
        names = {name for mutations in self.step.parents for name in mutations.cascade.columns}
        values: list[str] = []
        for column in self.columns:
            quoted = spark_quote(column.name)
            value = f"before.{quoted}"
            if column.name in names:
                sets = f"filter(hits, hit -> NOT hit.image.{quoted} <=> before.{quoted})"
                value = f"CASE WHEN size({sets}) > 0 THEN {sets}[0].image.{quoted} ELSE {value} END"
            values.append(f"{value} AS {quoted}")
        return [f"struct({', '.join(values)}) AS image"]

    def _set(self, cascade: Cascade) -> str:
        """Return the row's image after the event."""
        values: list[str] = []
        for column in self.columns:
            value = f"r.image.{spark_quote(column.name)}"
            if column.name in cascade.columns:
                place = cascade.columns.index(column.name)
                deleted = value if cascade.delete == "CASCADE" else "NULL"
                updated = f"e.new.c{place}" if cascade.update == "CASCADE" else "NULL"
                value = f"CAST(CASE WHEN e.gone THEN {deleted} ELSE {updated} END AS {column.delta})"
            values.append(f"{value} AS {spark_quote(column.name)}")
        return f"struct({', '.join(values)})"


def _struct(image: str, names: Sequence[str]) -> str:
    return f"struct({', '.join(f'{image}.{spark_quote(name)} AS {spark_quote(name)}' for name in names)})"


def _numbered(image: str, names: Sequence[str]) -> str:
    return f"struct({', '.join(f'{image}.{spark_quote(name)} AS c{n}' for n, name in enumerate(names))})"


def _refers(number: int, cascade: Cascade) -> str:
    """Return the condition that the row ``r`` refers to the event ``e``; NULL refers to nothing."""
    same = (f"r.image.{spark_quote(name)} = e.old.c{place}" for place, name in enumerate(cascade.columns))
    return " AND ".join([f"e.number = {number}", *same])


def _of_changes(number: int, cascade: Cascade, changes: DataFrame) -> DataFrame:
    """Return the events of a parent whose own rows were changed by cascades."""
    return _events(number, cascade, changes.selectExpr("at", "gone", "before", "image AS after"))


def _events(number: int, cascade: Cascade, rows: DataFrame) -> DataFrame:
    old, new = _numbered("before", cascade.referenced), _numbered("after", cascade.referenced)
    acting = []
    if cascade.on_delete:
        acting.append("gone")
    if cascade.on_update:
        acting.append(f"(NOT gone AND NOT {old} <=> {new})")
    return rows.where(" OR ".join(acting)).selectExpr(
        "at", f"{number} AS number", "gone", f"{old} AS old", f"{new} AS new"
    )


def _same(first: DataFrame, second: DataFrame) -> bool:
    left, right = (rows.select("key", "at", "gone") for rows in (first, second))
    return left.exceptAll(right).isEmpty() and right.exceptAll(left).isEmpty()
