"""What waits in the lease's row between merge and record, and what record makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from binlake.binlog.border import Statement
from binlake.lease import lease
from binlake.lease.lease import OpenBatch, RecordedState
from binlake.planner.epochs import split
from binlake.planner.manifest import Manifest, StagedFile, StagedSlice
from binlake.planner.outcome import BatchOutcome, DefaultCharset, outcome_of
from binlake.planner.rules import Rules
from binlake.planner.steps import BatchSteps, Life, PreparedXa, Standstill, TableOutcome, rebased
from binlake.planner.walk import BatchInputs
from binlake.position import Position, Range, Slice
from binlake.records import record, runs, watermarks
from binlake.records.record import RunReport
from binlake.schema.table import Column, TableName, TableSchema
from binlake.store import formats
from binlake.store.metadata import Metadata

FILE = "binlog.000001"
SCHEMA = TableSchema(
    tuple(Column(f"column_{number}", "bigint", nullable=number > 0) for number in range(20)), ("column_0",), "primary"
)


def at(offset: int, server: str = "server") -> Position:
    return Position(server, FILE, offset, 1)


def life(table: str, low: int = 100, **about: Any) -> Life:
    return Life(f"life of {table}", TableName("shop", table), SCHEMA, at(low), at(low), delta_version=3, **about)


def staged(table: str) -> StagedFile:
    return StagedFile(
        f"{table}.parquet", TableName("shop", table), SCHEMA.columns, SCHEMA.key, 0, 0, 1, 0, 0, (1, 200, 0),
        (1, 210, 0), 1, "", {},
    )  # fmt: skip


def planned(start: Position, stop: Position) -> OpenBatch:
    return OpenBatch(1, Range(start, stop, (Slice(FILE, start.offset, stop.offset, 1, whole=False),)))


def steps_of(lives: list[Life], plan: OpenBatch, *items: StagedFile | Statement) -> BatchSteps:
    files = tuple(item for item in items if isinstance(item, StagedFile))
    statements = tuple(item for item in items if isinstance(item, Statement))
    lives = [rebased(life_of_table, at(100), plan.range.start) for life_of_table in lives]
    inputs = BatchInputs("s", Rules(lambda name: True), plan.range, lives)
    return split(Manifest(1, "a", (StagedSlice(0, files, statements, ()),)), inputs)


def merged(lives: list[Life], steps: BatchSteps) -> BatchOutcome:
    done = [TableOutcome(table.life, 1, 0, 0, 4, 0.5) for table in steps.tables if table.steps]
    return outcome_of(steps, done, lives)


@contextmanager
def open_batch(metadata: Metadata, lives: list[Life], plan: OpenBatch) -> Iterator[lease.Lease]:
    with lease.held(metadata) as held:
        watermarks.started(metadata, lives, batch=0, versions={life_of_table.id: 3 for life_of_table in lives})
        held.stand(RecordedState(0, at(100)))
        held.open(plan)
        yield held


def run(metadata: Metadata, lives: list[Life], *items: StagedFile | Statement, server: str = "server") -> RunReport:
    """A batch from 100 to 900, recorded."""
    plan = planned(at(100, server), at(900, server))
    with open_batch(metadata, lives, plan) as held:
        stored = watermarks.read_lives(metadata, open_batch=1)
        steps = steps_of(stored, plan, *items)
        record.note_schemas(held.metadata, plan, steps)
        held.advance(replace(plan, state="merged", outcome=merged(stored, steps)))
        opened = held.control().open
        assert opened is not None
        return record.record_batch(held, held.metadata, opened)


@pytest.fixture
def metadata(tmp_path: Path) -> Metadata:
    return Metadata(str(tmp_path / "_binlake"))


def marks(metadata: Metadata) -> dict[str, tuple[Any, ...]]:
    fields = ("status", "batch", "position", "delta_version")
    return {row.table: tuple(getattr(row, field) for field in fields) for row in watermarks.read(metadata)}


def test_the_leases_row_holds_what_the_batch_changed_and_no_more(metadata: Metadata) -> None:
    lives = [life(f"table_{number}") for number in range(2000)]
    changed = [f"table_{number}" for number in range(0, 2000, 200)]
    report = run(metadata, lives, *map(staged, changed))
    texts = [row[column] or "" for row in _versions_of_the_lease(metadata) for column in ("plan", "position")]
    assert any(texts)
    assert max(map(len, texts)) < 64_000
    assert [table.table for table in report.tables] == [f"shop.{table}" for table in changed]
    assert report.message == f"batch 1: 10 rows of 10 tables, up to {at(900).short}"
    assert marks(metadata) == {
        life_of_table.name.table: ("following", 1, str(at(900)), 4 if life_of_table.name.table in changed else 3)
        for life_of_table in lives
    }


def test_a_batch_writes_the_rows_of_what_it_changed_and_moves_all_others_at_once(metadata: Metadata) -> None:
    lives = [life("quiet"), life("busy"), life("ahead", low=2000)]
    run(metadata, lives, staged("busy"))
    written = {row["table"]: (row["batch"], row["position"]) for row in metadata.read("watermarks")}
    assert written == {"quiet": (0, str(at(100))), "busy": (1, str(at(900))), "ahead": (0, str(at(2000)))}
    assert {table: place[:3] for table, place in marks(metadata).items()} == {
        "quiet": ("following", 1, str(at(900))),
        "busy": ("following", 1, str(at(900))),
        "ahead": ("following", 1, str(at(2000))),
    }


def test_a_table_that_stops_following_keeps_the_place_it_had_come_to(metadata: Metadata) -> None:
    run(metadata, [life("quiet"), life("busy")], staged("busy"))
    quiet = next(row for row in watermarks.read(metadata) if row.table == "quiet")
    watermarks.write(metadata, [replace(quiet, status="paused")])
    with lease.held(metadata) as held:
        held.stand(RecordedState(2, at(1500)))
    assert {table: place[:3] for table, place in marks(metadata).items()} == {
        "quiet": ("paused", 1, str(at(900))),
        "busy": ("following", 2, str(at(1500))),
    }


def test_position_charsets_and_prepared_transactions_move_in_one_commit(metadata: Metadata) -> None:
    plan = planned(at(100), at(900))
    waits = PreparedXa("X'61',X'',1", 1, 1, 200, 300, ())
    outcome = BatchOutcome(prepared=(waits,), charsets=(DefaultCharset("shop", "latin1"),))
    with open_batch(metadata, [life("quiet")], plan) as held:
        held.advance(replace(plan, state="merged", outcome=outcome))
        opened = held.control().open
        assert opened is not None
        record.record_batch(held, held.metadata, opened)
        assert held.control().recorded_state == RecordedState(1, at(900), {"shop": "latin1"}, (waits,))
    before, after = [row["position"] for row in _versions_of_the_lease(metadata) if row["position"]][-3:-1]
    assert json.loads(before)["batch"] == 0
    assert formats.read(RecordedState, after) == RecordedState(1, at(900), {"shop": "latin1"}, (waits,))


def _versions_of_the_lease(metadata: Metadata) -> Iterator[dict[str, Any]]:
    from binlake.store.metadata import query

    location = f"{metadata._path}/lease"
    for version in range(metadata.table("lease").version() + 1):
        yield from query(location, version=version).to_pylist()


def test_lives_that_the_batch_left_alone_stand_where_they_stood_or_at_its_stop(metadata: Metadata) -> None:
    stopped = Standstill("why", "what to do")
    lives = [life("quiet"), life("ahead", low=2000), life("halted", status="stopped", standstill=stopped)]
    report = run(metadata, lives)
    assert marks(metadata) == {
        "quiet": ("following", 1, str(at(900)), 3),
        "ahead": ("following", 1, str(at(2000)), 3),
        "halted": ("stopped", 0, str(at(100)), 3),
    }
    (table,) = report.tables
    assert (table.table, table.status, table.reason, table.remedy) == ("shop.halted", "stopped", "why", "what to do")
    assert not table.newly_stopped


def test_a_range_of_another_server_changes_every_life_that_follows(metadata: Metadata) -> None:
    run(metadata, [life("quiet"), life("busy")], staged("busy"), server="other")
    lives = {life_of_table.name.table: life_of_table for life_of_table in watermarks.read_lives(metadata)}
    assert {life_of_table.low for life_of_table in lives.values()} == {at(100, "other")}
    assert marks(metadata)["quiet"] == ("following", 1, str(at(900, "other")), 3)


def test_a_shape_that_needs_no_step_is_told(metadata: Metadata) -> None:
    alter = Statement(FILE, 300, 0, 1, None, "shop", 0, "ALTER TABLE quiet ALTER column_1 SET DEFAULT 5")
    run(metadata, [life("quiet")], alter)
    (row,) = metadata.read("watermarks")
    (recorded,) = watermarks.read_lives(metadata)
    assert recorded.schema.column("column_1").default == "5"
    assert row["fingerprint"] == recorded.fingerprint != SCHEMA.fingerprint


def test_what_began_after_the_merge_is_left_as_it_is(metadata: Metadata) -> None:
    plan = planned(at(100), at(900))
    lives = [life("busy"), life("quiet")]
    anew = replace(life("busy", low=950), id="another life")
    with open_batch(metadata, lives, plan) as held:
        held.advance(replace(plan, state="merged", outcome=merged(lives, steps_of(lives, plan, staged("busy")))))
        watermarks.started(held.metadata, [anew], batch=1, versions={anew.id: 9})
        opened = held.control().open
        assert opened is not None
        assert record.names_dropped(held.metadata, opened) == []
        for _ in range(2):  # a kill before the lease's row is written repeats all of it
            record.record_batch(held, held.metadata, opened)
    assert marks(metadata) == {
        "busy": ("following", 1, str(at(950)), 9),
        "quiet": ("following", 1, str(at(900)), 3),
    }


def test_a_batch_of_seconds_has_a_row_once_it_is_recorded_and_is_known_before(tmp_path: Path) -> None:
    metadata, plan = Metadata(str(tmp_path / "_binlake")), planned(at(100), at(900))
    with lease.held(metadata, by_turns=True) as held:
        held.open(plan)
        record.note_open(held, plan)
    assert metadata.read("batches") == []
    open_one = runs.of_batch(metadata, 1)
    assert open_one is not None
    assert (open_one.state, open_one.range, open_one.run) == ("planned", plan.range, None)
    assert runs.of_batch(metadata, 2) is None
    with lease.held(metadata) as held:
        record.note_open(held, plan)
    assert [row["state"] for row in metadata.read("batches")] == ["planned"]
