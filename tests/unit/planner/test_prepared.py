"""Rows of XA transactions wait for the outcome, and take its place in the log."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from binlake.binlog.border import Statement, XaEvent
from binlake.planner.epochs import split
from binlake.planner.manifest import Manifest, StagedFile, StagedSlice
from binlake.planner.rules import Rules
from binlake.planner.steps import BatchSteps, Life, MergeStep, PreparedXa, ReshapeStep
from binlake.planner.walk import BatchInputs
from binlake.position import Position, Range, Slice
from binlake.schema.mask import Mask
from binlake.schema.table import Column, TableName, TableSchema
from binlake.serialization import dumps, loads

FILE = "binlog.000001"
SCHEMA = TableSchema((Column("id", "bigint", nullable=False),), ("id",), "primary")
T = TableName("shop", "t")


def at(offset: int) -> Position:
    return Position("server", FILE, offset, 1)


def staged(first: int, last: int, *xids: str, before: int = 0) -> StagedFile:
    counts = dict.fromkeys(xids, (1, 0, 0))
    return StagedFile(
        f"at {first}", T, SCHEMA.columns, ("id",), 0, before, 0, 0, 0, (1, first, 0), (1, last, 0), 1, "", {}, counts
    )


def event(offset: int, what: Literal["prepared", "committed", "rolled back"], xid: str = "x") -> XaEvent:
    return XaEvent(FILE, offset, xid, what)


def steps_of(
    *items: StagedFile | XaEvent | Statement,
    before: BatchSteps | None = None,
    low: int = 4,
    batch: int = 7,
    shape: TableSchema = SCHEMA,
    left_out: int | None = None,
) -> BatchSteps:
    part = StagedSlice(
        0,
        tuple(item for item in items if isinstance(item, StagedFile)),
        tuple(item for item in items if isinstance(item, Statement)),
        (),
        tuple(item for item in items if isinstance(item, XaEvent)),
        left_out=() if left_out is None else ((T, left_out),),
    )
    read = Range(at(4), at(10_000), (Slice(FILE, 4, 10_000, 1, False),))
    lives = [Life("life", T, shape, at(low), at(low))]
    rules = Rules(included=lambda name: True, excluding=lambda name, schema: schema)
    inputs = BatchInputs("s", rules, read, lives, before.prepared if before else ())
    return split(Manifest(batch, "a", (part,)), inputs)


def committed(steps: BatchSteps) -> list[tuple[str, tuple[int, int]]]:
    """(file, where its XA rows are committed) of all merges."""
    merges = [step for step in steps.tables[0].steps if isinstance(step, MergeStep)]
    return [(file.path, commit.committed) for step in merges for file, commit in step.xa]


def test_rows_wait_for_a_later_batch() -> None:
    first = steps_of(staged(100, 120, "x"), event(130, "prepared"))
    assert first.tables[0].steps == []
    assert [(transaction.xid, transaction.batch) for transaction in first.prepared] == [("x", 7)]
    second = steps_of(before=first, batch=8)
    assert second.prepared == first.prepared
    third = steps_of(event(900, "committed"), before=second, batch=9)
    assert committed(third) == [("at 100", (1, 900))]
    assert third.prepared == ()


def test_what_waits_survives_as_json() -> None:
    first = steps_of(staged(100, 120, "x"), event(130, "prepared"))
    assert loads(PreparedXa, dumps(first.prepared[0])) == first.prepared[0]


def test_a_rollback_leaves_nothing() -> None:
    steps = steps_of(staged(100, 120, "x"), event(130, "prepared"), event(200, "rolled back"))
    assert steps.tables[0].steps == []
    assert steps.prepared == ()


def test_an_id_that_is_used_again_means_other_rows() -> None:
    steps = steps_of(
        staged(100, 320, "x"),
        event(130, "prepared"),
        event(200, "rolled back"),
        event(330, "prepared"),
        event(400, "committed"),
    )
    (step,) = steps.tables[0].steps
    assert isinstance(step, MergeStep)
    assert [(commit.after, commit.prepared) for _, commit in step.xa] == [(130, 330)]


def test_one_phase_is_prepared_and_committed_at_one_offset() -> None:
    steps = steps_of(staged(100, 120, "x"), event(130, "prepared"), event(130, "committed"))
    assert committed(steps) == [("at 100", (1, 130))]


def test_a_snapshot_before_the_commit_lacks_the_rows_and_one_behind_it_has_them() -> None:
    log = (staged(100, 120, "x"), event(130, "prepared"), event(200, "committed"))
    assert committed(steps_of(*log, low=150))
    assert not committed(steps_of(*log, low=250))


def test_rows_come_in_the_shape_the_table_has_at_the_commit() -> None:
    statement = Statement(FILE, 150, 0, 0, None, "shop", 0, "ALTER TABLE t ADD n INT")
    steps = steps_of(staged(100, 120, "x"), event(130, "prepared"), statement, event(200, "committed"))
    assert [type(step) for step in steps.tables[0].steps] == [ReshapeStep, MergeStep]


def test_a_commit_of_rows_that_nobody_read_asks_for_snapshots() -> None:
    table = steps_of(event(200, "committed", "y")).tables[0]
    assert table.life.status == "resnapshot"
    assert "XA COMMIT of y" in table.life.reason
    assert steps_of(event(200, "rolled back", "y")).tables[0].life.status == "following"
    assert steps_of(event(200, "committed", "y"), low=300).tables[0].life.status == "following"


def test_counts_are_of_what_ended() -> None:
    both = replace(staged(100, 320, "x", "y"), inserted=5)
    (step,) = steps_of(both, event(330, "prepared"), event(400, "committed")).tables[0].steps
    assert isinstance(step, MergeStep)
    assert step.counts == (6, 0, 0)


@pytest.mark.parametrize("low", [140, 950], ids=["before the commit", "behind it"])
@pytest.mark.parametrize(
    ("rows", "left_out", "shape", "why"),
    [
        ((), 100, SCHEMA, "the condition in rows"),
        ((staged(100, 120, "x"),), None, replace(SCHEMA, where="id > 5"), "the condition in rows"),
        ((staged(100, 120, "x"),), None, SCHEMA.masking({"id": Mask("hash", 64, "key")}), "columns were masked"),
    ],
    ids=["no condition any more", "a condition now", "a mask now"],
)
def test_rows_that_were_staged_under_other_settings_than_the_snapshot_are_not_merged(
    rows: tuple[StagedFile, ...], left_out: int | None, shape: TableSchema, why: str, low: int
) -> None:
    first = steps_of(*rows, event(130, "prepared"), left_out=left_out)
    (table,) = steps_of(event(900, "committed"), before=first, batch=8, shape=shape, low=low).tables
    assert not table.steps
    if low > 900:
        assert table.life.status == "following"
    else:
        assert table.life.status == "resnapshot"
        assert why in table.life.reason


def test_rows_that_were_staged_under_the_same_condition_are_merged() -> None:
    shape = replace(SCHEMA, where="id > 5")
    first = steps_of(staged(100, 120, "x"), event(130, "prepared"), left_out=100, shape=shape)
    second = steps_of(event(900, "committed"), before=first, batch=8, shape=shape)
    assert committed(second) == [("at 100", (1, 900))]
