"""Two workers, killed and put to sleep at any point: whatever they do, the lake is the source at each watermark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from binlake import pipeline
from binlake.delta.delta_log import STEPS_PER_BATCH
from binlake.errors import LakeError, LeaseHeld, StagingError, TableError, UsageError
from binlake.lease import lease
from binlake.lease.holder import LIFETIME
from binlake.merge import apply, merge, table_progress
from binlake.phases import copies_beside, open_batch
from binlake.position import Position
from binlake.records import record
from binlake.schema.table import TableName
from mirror import in_the_soak
from model_lake import Lake
from model_server import Row
from model_worker import Waiting, Worker
from model_world import KEYLESS_TABLE, TABLES, World

A, B, HEAP = TABLES
FAULTS = (
    "planned", "slice staged", "manifest written", "rows marked", "data file written", "schema evolved",
    "epoch committed", "table merged", "merged", "recorded",
)  # fmt: skip
ACCESSES = (
    "take lease", "read lease", "read log", "freeze plan", "write batches", "write manifest", "advance to staged",
    "read manifest", "read schemas", "read watermarks", "begin step", "begin commit", "end commit", "write ddl_history",
    "write schemas", "advance to merged", "write watermarks", "commit watermarks", "write quarantine", "write runs",
    "commit runs", "move position", "remove folder", "give lease back",
)  # fmt: skip
OF_SNAPSHOT = (
    "copy chunk", "chunk copied", "write manifest", "commit snapshots", "chunks written", "commit begun",
    "begin commit", "end commit", "rows committed", "remove folder", "snapshot committed", "write schemas",
    "commit schemas", "write watermarks", "commit watermarks", "bootstrap noted", "lives begun", "move position",
    "write runs",
)  # fmt: skip
OF_CATCHING_UP = ("take lease", "give lease back", "slice staged", "begin step", "epoch committed", "write manifest")
EXPECTED: tuple[type[Exception], ...] = (LeaseHeld, LakeError, StagingError, UsageError)
ROWS, COLUMNS = ("put", "delete", "move", "twins"), ("add column", "add null column", "rename column")
OTHERS = ("truncate", "recreate", "rotate", "optimize")

NUMBERS, WHICH = st.integers(0, 99), st.integers(0, 1)
HOW = st.sampled_from(["sleeps", "dies", "sleeps too long"])
CHANGES = st.tuples(
    st.just("change"), st.sampled_from(TABLES), st.lists(st.integers(0, 3), min_size=1, max_size=2), NUMBERS
)
WORKS = st.tuples(
    st.just("work"),
    st.sampled_from(["sync"] * 7 + ["plan", "stage", "merge", "record"]),
    st.sampled_from(["here", "there"]),
    NUMBERS,
    HOW,
)
SLEEPERS = st.one_of(st.tuples(st.just("wake"), WHICH, NUMBERS, HOW), st.tuples(st.just("renew"), WHICH))
SNAPSHOTS = st.tuples(st.just("snapshot"), st.sampled_from([None, *TABLES]), NUMBERS, HOW)


class Protocol(RuleBasedStateMachine):
    """Workers that may sleep while others do their work, and wake later.

    followed: tables that are copied at first. sleeps: points at which workers do. dies: points at which they are only
    killed. of_snapshot: both, for snapshots. changes: what happens on the server. expected: what workers may raise.
    """

    followed: ClassVar[tuple[TableName, ...]] = TABLES
    sleeps: ClassVar[tuple[str, ...]] = (*FAULTS, *ACCESSES, *OF_SNAPSHOT)
    dies: ClassVar[tuple[str, ...]] = ()
    of_snapshot: ClassVar[tuple[str, ...]] = ("", *OF_SNAPSHOT)
    changes: ClassVar[tuple[str, ...]] = (*ROWS, *OTHERS)
    expected: ClassVar[tuple[type[Exception], ...]] = EXPECTED

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.asleep: list[Worker] = []
        self.values = 0
        self.failed = False

    def value(self) -> int:
        self.values += 1
        return self.values

    @initialize(marked=st.booleans())
    def follow(self, marked: bool) -> None:
        """marked: changed rows are marked by deletion vectors, as in large tables."""
        if marked:
            self.world.mark_rows()
        for name in TABLES:
            self.world.server.create(name, keyed=name != KEYLESS_TABLE)
            self.world.server.change(name, [(None, (key, self.value())) for key in range(4)])
        self.go(self.world.start("bootstrap", "here", tables=list(map(str, self.followed))), "")

    @rule(first=CHANGES, then=st.one_of(CHANGES, WORKS, WORKS, SLEEPERS, SNAPSHOTS))
    def turn(self, first: tuple[Any, ...], then: tuple[Any, ...]) -> None:
        """One rule for all: of several, Hypothesis would leave some out of each example."""
        for name, *arguments in (first, then):
            getattr(self, name)(*arguments)

    def change(self, name: TableName, keys: list[int], what: int) -> None:
        """Something happens on the server, or somebody else puts a table's data files together."""
        change(self.world, name, keys, self.changes[what % len(self.changes)], self.value)

    def work(self, job: str, host: str, point: int, how: str) -> None:
        """A worker begins, and continues up to a point, where it dies or falls asleep, or to its end."""
        if len(self.asleep) < 2:
            worker = self.world.start(job, host)
            self.asleep.append(worker)
            self.on(worker, point, how)

    def wake(self, which: int, point: int, how: str) -> None:
        if self.asleep:
            self.on(self.asleep[which % len(self.asleep)], point, how)

    def renew(self, which: int) -> None:
        renew = self.asleep[which % len(self.asleep)].renew if self.asleep else None
        if renew is not None:
            with suppress(Waiting):
                renew()

    def snapshot(self, name: TableName | None, point: int, how: str) -> None:
        if len(self.asleep) < 2:
            worker = self.world.start("bootstrap", "here", tables=name and [str(name)])
            self.asleep.append(worker)
            self.on(worker, point, how, self.of_snapshot)

    def on(self, worker: Worker, number: int, how: str, of: tuple[str, ...] = ()) -> None:
        # Most is decided at ends and commits.
        points = of or (*[""] * 8, *["begin step", "begin commit", "end commit"] * 2, *self.sleeps, *self.dies)
        point = points[number % len(points)]
        self.go(worker, point)
        if not worker.ended and (how == "dies" or point not in self.sleeps):
            worker.kill()
        elif how == "sleeps too long":
            self.world.expire()
        if worker.ended:
            self.asleep.remove(worker)

    def go(self, worker: Worker, until: str) -> None:
        worker.run(until)
        try:
            self.world.raise_failures()
            if worker.error is not None and not isinstance(worker.error, self.expected):
                raise worker.error
        except BaseException:
            self.failed = True
            raise

    def teardown(self) -> None:
        try:
            if not self.failed:
                self.world.settle()
        finally:
            self.world.close()


class ProtocolWithColumns(Protocol):
    """Columns that come and change their names, under workers that only die."""

    sleeps: ClassVar[tuple[str, ...]] = ()
    dies: ClassVar[tuple[str, ...]] = (*FAULTS, *ACCESSES)
    changes: ClassVar[tuple[str, ...]] = (*ROWS, *COLUMNS, *OTHERS)


class ProtocolWithKills(Protocol):
    """Workers that only die, where a phase of a run ends."""

    sleeps: ClassVar[tuple[str, ...]] = ()
    dies: ClassVar[tuple[str, ...]] = FAULTS


class ProtocolBetweenPhases(Protocol):
    """Workers that fall asleep where a phase moves the lease on."""

    sleeps: ClassVar[tuple[str, ...]] = ("freeze plan", "advance to staged", "advance to merged", "move position")


class ProtocolBetweenSteps(ProtocolWithColumns):
    """Workers that die between the steps of a batch."""

    dies: ClassVar[tuple[str, ...]] = ("epoch committed",) * 8
    changes: ClassVar[tuple[str, ...]] = ("put", *COLUMNS)


class ProtocolWithCopies(Protocol):
    """Tables that are copied beside the batches, by workers that sleep and die while others carry these."""

    followed: ClassVar[tuple[TableName, ...]] = (A,)
    sleeps: ClassVar[tuple[str, ...]] = (*Protocol.sleeps, *OF_CATCHING_UP)
    of_snapshot: ClassVar[tuple[str, ...]] = (*Protocol.of_snapshot, *OF_CATCHING_UP)
    expected: ClassVar[tuple[type[Exception], ...]] = (*EXPECTED, TableError)

    def work(self, job: str, host: str, point: int, how: str) -> None:
        """Two of three workers copy."""
        if point % 3:
            self.snapshot(TABLES[point % 2 + 1], point, how)
        else:
            super().work(job, host, point, how)


def change(world: World, name: TableName, keys: list[int], what: str, value: Callable[[], int]) -> None:
    server = world.server
    if what == "add column":
        server.add_column(name, value())
    elif what == "add null column":
        server.add_column(name, None)
    elif what == "rename column":
        server.rename_column(name)
    elif what == "truncate":
        server.truncate(name)
    elif what == "recreate":
        server.drop(name)
        server.create(name, keyed=name != KEYLESS_TABLE)
    elif what == "rotate":
        server.rotate()
    elif what == "optimize":
        world.optimize(name)
    else:
        server.change(name, row_changes(world, name, keys, what, value))


def row_changes(
    world: World, name: TableName, keys: list[int], what: str, value: Callable[[], int]
) -> list[tuple[Row | None, Row | None]]:
    """Rows with these keys are inserted, else updated, deleted or moved; a table without a key gets twins."""
    table = world.server.tables[name]
    rows: dict[int | None, Row] = {row[0]: row for row in table.rows}
    changes: list[tuple[Row | None, Row | None]] = []
    for key in dict.fromkeys(keys):
        old, rest = rows.get(key), (value(),) * (len(table.schema.columns) - 1)
        new: Row | None = (key, *rest)
        if old is not None and what == "delete":
            new = None
        elif old is not None and what == "move" and key + 4 not in rows:
            new = (key + 4, *rest)
        changes.append((old, new))
        if what == "twins" and not table.schema.key:
            changes.append((None, new))
    return changes


SETTINGS = settings(
    max_examples=25,
    stateful_step_count=25,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


MACHINES = (Protocol, ProtocolWithColumns, ProtocolWithCopies)


@pytest.mark.parametrize(
    ("machine", "examples"),
    [*((machine, 25) for machine in MACHINES), *in_the_soak(*((machine, 300) for machine in MACHINES))],
)
def test_whatever_happens_the_lake_is_the_source(machine: type[Protocol], examples: int) -> None:
    run_state_machine_as_test(machine, settings=settings(SETTINGS, max_examples=examples))


# planted bugs: a model that doesn't find them proves nothing ---------------------------------------------------------
def record_before_merge(patch: pytest.MonkeyPatch) -> None:
    """The position moves, then the rows come."""
    apply_steps, record_batch = merge.apply_steps, record.record_batch
    waiting: list[Any] = []

    def later(*arguments: Any) -> list[Any]:
        waiting[:] = [arguments]
        return []

    def recorded_first(*arguments: Any) -> Any:
        report = record_batch(*arguments)
        while waiting:
            apply_steps(*waiting.pop())
        return report

    patch.setattr(merge, "apply_steps", later)
    patch.setattr(open_batch, "record_batch", recorded_first)


def widen_the_range(patch: pytest.MonkeyPatch) -> None:
    """A retry plans the open batch again, up to where the log ends by then."""
    plan = pipeline.plan_batch

    def anew(held: lease.Lease, *arguments: Any) -> Any:
        begun = held.control().open
        if begun is not None and begun.state != "merged":
            held.update(plan=None, batch=begun.batch - 1)
        return plan(held, *arguments)

    patch.setattr(pipeline, "plan_batch", anew)


def version_as(patch: pytest.MonkeyPatch, version: Callable[[int, int], int]) -> None:
    for module in (apply, table_progress):
        patch.setattr(module, "transaction_version", version)


def version_without_batch(patch: pytest.MonkeyPatch) -> None:
    version_as(patch, lambda batch, step: step)


def version_without_step(patch: pytest.MonkeyPatch) -> None:
    version_as(patch, lambda batch, step: batch)


def version_as_product(patch: pytest.MonkeyPatch) -> None:
    """Three times three is more than four times one."""
    version_as(patch, lambda batch, step: batch * step)


def steps_numbered_anew(patch: pytest.MonkeyPatch) -> None:
    """A retry counts from one those steps that are left."""

    def left(self: Any, progress: Any, number: int, step: Any) -> None:
        done = progress.recorded % STEPS_PER_BATCH if progress.recorded // STEPS_PER_BATCH == self._batch else 0
        if number > done:
            run(self, progress, number - done, step)

    run = apply._Group._step
    patch.setattr(apply._Group, "_step", left)


def lease_not_checked(patch: pytest.MonkeyPatch) -> None:
    """Whoever has lost the lease continues all the same."""

    def update(self: Any, **changes: Any) -> None:
        expires_us = self.control().since_us + LIFETIME * 1_000_000
        self._metadata.swap("lease", "true", {**changes, "expires_us": expires_us})

    patch.setattr(lease.Lease, "update", update)
    patch.setattr(lease.Lease, "check", lambda self: None)


PLANTED = {
    record_before_merge: Protocol,
    widen_the_range: ProtocolWithKills,
    version_without_batch: Protocol,
    version_without_step: Protocol,
    version_as_product: Protocol,
    steps_numbered_anew: ProtocolBetweenSteps,
    lease_not_checked: ProtocolBetweenPhases,
}
"""Each with the machine that comes upon it soon."""


FOUND_LATE = (lease_not_checked,)


@pytest.mark.parametrize(
    "plant",
    [*(plant for plant in PLANTED if plant not in FOUND_LATE), *in_the_soak(*FOUND_LATE)],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    once = settings(SETTINGS, max_examples=300, phases=[Phase.generate], report_multiple_bugs=False)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(PLANTED[plant], settings=once)


# smallest examples ---------------------------------------------------------------------------------------------------
@pytest.fixture
def world() -> Iterator[World]:
    """Two tables and one without a key, followed, with a row each."""
    yield from begun(*TABLES)


def begun(*copied: TableName) -> Iterator[World]:
    """Yield a world of three tables with a row each, of which some were copied."""
    made = World()
    for number, name in enumerate(TABLES):
        made.server.create(name, keyed=name != KEYLESS_TABLE)
        made.server.change(name, [(None, (1, number))])
    done(made.start("bootstrap", "here", tables=list(map(str, copied))))
    yield made
    made.close()


def done(worker: Worker) -> None:
    worker.run()
    assert worker.error is None, worker.error


def stopped_at(world: World, job: str, *points: str, **options: Any) -> Worker:
    worker = world.start(job, "here", **options)
    for point in points:
        worker.run(point)
        assert not worker.ended, f"{point} isn't reached: {worker.error}"
    return worker


def insert(world: World, name: TableName, key: int) -> None:
    width = len(world.server.tables[name].schema.columns)
    world.server.change(name, [(None, (key,) * width)])


@pytest.mark.parametrize("skips", [True, False])
def test_a_merge_that_wakes_after_another_did_it_is_left_out(
    world: World, skips: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lake, "skips", skips)
    insert(world, HEAP, 2)
    sleeper = stopped_at(world, "sync", "begin commit")
    world.expire()
    done(world.start("sync", "there"))
    sleeper.run()
    assert isinstance(sleeper.error, LeaseHeld)
    with nullcontext() if skips else pytest.raises(AssertionError, match="committed twice"):
        world.settle()


def test_killed_when_the_shapes_of_a_batch_are_written_and_its_merge_is_not(world: World) -> None:
    world.server.add_column(A, 7)
    stopped_at(world, "sync", "advance to merged").kill()
    world.settle()


def test_snapshotted_anew_between_merge_and_record(world: World) -> None:
    insert(world, B, 2)
    stopped_at(world, "sync", "merged").kill()
    done(world.start("bootstrap", "here", tables=[str(A)]))
    world.settle()


def test_a_snapshot_leaves_an_open_batch_to_be_finished_that_other_tables_have_a_part_of(world: World) -> None:
    insert(world, A, 2)
    done(world.start("bootstrap", "here", tables=[str(B), str(HEAP)]))
    insert(world, HEAP, 2)
    stopped_at(world, "sync", "merged").kill()
    done(world.start("bootstrap", "here", tables=[str(A)]))
    world.settle()


def test_a_snapshot_of_all_tables_takes_the_place_of_an_open_batch(world: World) -> None:
    insert(world, HEAP, 2)
    stopped_at(world, "sync", "begin step").kill()
    done(world.start("bootstrap", "here", tables=[str(name) for name in TABLES]))
    assert world.store.peek("lease")[0]["plan"] is None
    world.settle()


def test_killed_between_a_snapshots_commit_and_its_life(world: World) -> None:
    insert(world, HEAP, 2)
    stopped_at(world, "bootstrap", "write schemas", tables=[str(HEAP)]).kill()
    world.settle()


@pytest.mark.parametrize("point", ["begin step", "data file written", "end commit"])
def test_a_merge_that_wakes_after_a_new_snapshot(world: World, point: str) -> None:
    (row,) = world.server.tables[A].rows
    world.server.change(A, [(row, (1, 10))])
    sleeper = stopped_at(world, "sync", point)
    world.expire()
    world.server.change(A, [((1, 10), (1, 20))])
    done(world.start("bootstrap", "here", tables=[str(A)]))
    sleeper.run()
    world.settle()


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("point", ["begin step", "data file written", "end commit"])
def test_who_commits_between_a_merges_look_and_its_commit_makes_it_begin_again(
    world: World, point: str, marked: bool
) -> None:
    if marked:
        world.mark_rows()
    world.server.change(A, [((1, 0), (1, 10)), (None, (2, 20))])
    sleeper = stopped_at(world, "sync", point)
    world.optimize(A)
    done(sleeper)
    world.check(at_end=True)
    world.settle()


@pytest.mark.parametrize("point", ["rows marked", "data file written", "end commit", "epoch committed"])
def test_killed_around_a_merges_commit(world: World, point: str) -> None:
    world.mark_rows()
    world.server.change(A, [(None, (2, 2)), (None, (3, 3))])
    done(world.start("sync", "here"))
    world.server.change(A, [((1, 0), (1, 10)), ((2, 2), None)])
    stopped_at(world, "sync", point).kill()
    world.settle()


def test_a_merge_that_wakes_after_another_run_did_it_commits_nothing(world: World) -> None:
    insert(world, A, 2)
    sleeper = stopped_at(world, "sync", "end commit")
    world.expire()
    done(world.start("sync", "there"))
    sleeper.run()
    assert isinstance(sleeper.error, LeaseHeld)
    world.settle()


def test_a_merge_whose_commit_is_not_answered_is_not_repeated(world: World) -> None:
    insert(world, A, 2)
    world.lose_an_answer()
    done(world.start("sync", "here"))
    assert not world.loses_answer, "nothing was committed"
    world.settle()


def test_a_record_that_wakes_after_the_next_batch(world: World) -> None:
    insert(world, A, 2)
    sleeper = stopped_at(world, "sync", "write watermarks")
    world.expire()
    insert(world, A, 3)
    done(world.start("sync", "here"))
    sleeper.run()
    world.settle()


def test_a_snapshot_whose_life_begins_after_the_log_was_read_on(world: World) -> None:
    new = TableName("d", "new")
    world.server.create(new, keyed=True)
    insert(world, new, 1)
    sleeper = stopped_at(world, "bootstrap", "write schemas", tables=[str(new)])
    world.expire()
    insert(world, new, 2)
    done(world.start("sync", "here"))
    sleeper.run()
    world.settle()


# copies beside the batches -------------------------------------------------------------------------------------------
@pytest.fixture
def partly() -> Iterator[World]:
    """As ``world``, but one of the tables was copied alone."""
    yield from begun(A)


def copied_and_asleep(world: World) -> Worker:
    """Return a worker that copied table b, and sleeps while others carry batches with changes of it."""
    insert(world, A, 2)
    done(world.start("sync", "here"))
    sleeper = stopped_at(world, "bootstrap", "chunks written", tables=[str(B)])
    for key in (2, 3):
        insert(world, B, key)
        done(world.start("sync", "there"))
    return sleeper


def follow_at_once(patch: pytest.MonkeyPatch) -> None:
    """A table that was copied follows at once, and what it missed is left out."""
    patch.setattr(Position, "reaches", lambda position, watermark: True)


def commit_under_the_newest_batch(patch: pytest.MonkeyPatch) -> None:
    """What a table missed counts as merged."""
    before = copies_beside._batch_before
    newest = lambda metadata, control, low: control.batch  # noqa: E731  # typed as what it stands for
    turns = iter([before, newest])
    patch.setattr(copies_beside, "_batch_before", lambda *arguments: next(turns, before)(*arguments))


def use_copies_of_what_was_made_anew(patch: pytest.MonkeyPatch) -> None:
    """A life that began while its table was copied is replaced."""
    patch.setattr(copies_beside.CopiesBeside, "_refuse_begun", lambda *arguments: None)


COPIES = (None, follow_at_once, commit_under_the_newest_batch, use_copies_of_what_was_made_anew)


@pytest.mark.parametrize("plant", COPIES)
def test_a_copy_goes_through_the_batches_that_it_missed(
    partly: World, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None] | None
) -> None:
    sleeper = copied_and_asleep(partly)
    if plant is use_copies_of_what_was_made_anew:
        change(partly, B, [], "recreate", int)
        insert(partly, B, 4)
        done(partly.start("sync", "there"))
    if plant is not None:
        plant(monkeypatch)
    sleeper.run()
    insert(partly, B, 9)
    with nullcontext() if plant is None else pytest.raises(AssertionError):
        partly.settle()
        assert {B.table, A.table} <= {row["table"] for row in partly.store.watermarks() if row["status"] == "following"}


@pytest.mark.parametrize("point", ["end commit", "write schemas", "write watermarks", "give lease back", "begin step"])
def test_killed_when_a_copy_is_committed_or_catches_up(partly: World, point: str) -> None:
    sleeper = copied_and_asleep(partly)
    sleeper.run(point)
    assert not sleeper.ended, sleeper.error
    sleeper.kill()
    insert(partly, B, 5)
    partly.settle()


def test_a_copy_that_wakes_after_another_was_taken(partly: World) -> None:
    sleeper = copied_and_asleep(partly)
    partly.expire()
    done(partly.start("bootstrap", "there", tables=[str(B)]))
    insert(partly, B, 5)
    done(partly.start("sync", "there"))
    sleeper.run()
    assert isinstance(sleeper.error, LeaseHeld)
    partly.settle()
