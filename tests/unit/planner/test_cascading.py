"""Which cascades can be derived from the parents' mutations."""

from dataclasses import replace

import pytest

from binlake.planner.cascading import CascadedBatch
from binlake.planner.steps import Life, TableSteps
from binlake.position import Position
from binlake.schema.cascades import Cascade
from binlake.schema.table import Column, Index, TableName, TableSchema

ID, UP, TEXT = Column("id", "int"), Column("up", "int"), Column("name", "varchar", length=9, charset="utf8mb4")
SCHEMA = TableSchema((ID, UP, TEXT), ("id",), "primary", indexes=(Index("name", ("name",), (None,), unique=True),))
A, B, C = (TableName("d", name) for name in "abc")
START = 100


def at(offset: int) -> Position:
    return Position("server", "binlog.000001", offset, 1)


def key(child: TableName, parent: TableName, name: str = "up", column: str = "id", **actions: str) -> Cascade:
    chosen = {"delete": "CASCADE", "update": "RESTRICT", **actions}
    return Cascade(child, parent, f"{child.table}_{parent.table}", (name,), (column,), **chosen)  # type: ignore[arg-type]


def table(name: TableName, low: int = 4, high: int | None = None, schema: TableSchema = SCHEMA) -> TableSteps:
    return TableSteps(Life(name.table, name, schema, at(low), at(high or low), delta_version=3))


def batch(*acting: Cascade, tables: tuple[TableSteps, ...] = ()) -> CascadedBatch:
    known = {name: table(name) for name in (A, B, C)} | {name.life.name: name for name in tables}
    return CascadedBatch(acting, known, at(START), {TableName("d", "altered")}, {TableName("d", "unchecked")})


def test_parents_come_before_their_children() -> None:
    steps = batch(key(C, B), key(B, A), key(A, A))
    assert steps.in_order() == [A, B, C]
    assert [steps.refusal(name) for name in (A, B, C)] == ["", "", ""]


@pytest.mark.parametrize(
    ("acting", "tables", "why"),
    [
        ([key(A, B), key(B, A)], (), "in a circle"),
        ([key(C, A), key(C, B), key(B, A)], (), "in two ways"),
        ([key(C, A), key(C, A, "id")], (), "in two ways"),
        ([key(C, TableName("d", "unknown"))], (), "d.unknown isn't followed"),
        ([key(C, A)], (table(C, schema=replace(SCHEMA, key=(), key_kind="none")),), "d.c has no key"),
        ([key(C, A)], (table(C, 4, START + 1),), "snapshotted without a lock"),
        ([key(C, A)], (table(A, START + 1),), "d.a was snapshotted in the same range"),
        ([key(C, A, "name", "name")], (), "equality the server decides"),
        ([key(C, A, column="up")], (), "isn't unique"),
        ([key(C, A, "gone")], (), "isn't mirrored"),
        ([key(C, A, "id", update="CASCADE")], (), "the table's own key"),
        ([key(C, A, delete="SET DEFAULT")], (), "sets a default"),
        ([key(C, A)], (table(A, schema=replace(SCHEMA, versioned=True)),), "system-versioned"),
        ([key(C, A)], (table(C, schema=replace(SCHEMA, versioned=True)),), "system-versioned"),
    ],
)
def test_what_cannot_be_derived(acting: list[Cascade], tables: tuple[TableSteps, ...], why: str) -> None:
    assert why in batch(*acting, tables=tables).refusal(acting[0].child)


def test_a_child_of_what_cannot_be_derived_cannot_either() -> None:
    steps = batch(key(B, A, "name", "name"), key(C, B))
    assert "d.b is snapshotted again" in steps.refusal(C)


def test_generated_columns_follow_the_key_unseen() -> None:
    computed = replace(SCHEMA, columns=(*SCHEMA.columns, Column("twice", "int", generated=True)))
    assert "generated columns" in batch(key(C, A, delete="SET NULL"), tables=(table(C, schema=computed),)).refusal(C)
    assert batch(key(C, A), tables=(table(C, schema=computed),)).refusal(C) == ""


@pytest.mark.parametrize("name", ["altered", "unchecked"])
def test_a_parent_that_was_touched_otherwise(name: str) -> None:
    parent = TableName("d", name)
    assert str(parent) in batch(key(C, parent), tables=(table(parent),)).refusal(C)
