"""An unexpected error while a statement, a shape or a file is followed costs the table that it concerns alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import pytest

from binlake.binlog.border import Statement
from binlake.config import Policy
from binlake.ddl import create_table, statements
from binlake.planner import statement_follower
from binlake.planner.epochs import split
from binlake.planner.manifest import Manifest, StagedFile, StagedSlice
from binlake.planner.rules import Rules
from binlake.planner.steps import BatchSteps, Life, MergeStep, MoveStep, TableSteps
from binlake.planner.walk import BatchInputs
from binlake.position import Position, Range, Slice
from binlake.schema import lexer, virtual
from binlake.schema.table import Column, TableName, TableSchema

FILE = "binlog.000001"
ID = Column("id", "int", nullable=False)
SCHEMA = TableSchema((ID, Column("v", "varchar", length=20, charset="utf8mb4")), ("id",), "primary")
T, U, OTHER = TableName("shop", "t"), TableName("shop", "u"), TableName("other", "t")


def at(offset: int) -> Position:
    return Position("server", FILE, offset, 1)


def row(offset: int, before: int, name: TableName) -> StagedFile:
    place = (1, offset, 0)
    return StagedFile(f"{name}", name, SCHEMA.columns, ("id",), 0, before, 1, 0, 0, place, place, 1, "", {})


def followed(
    *texts: str, on_unfollowable: Literal["stop", "resnapshot"] = "stop", lives: Sequence[Life] | None = None
) -> BatchSteps:
    """Return the steps of a batch with these statements, before and behind each of which t and u get a row."""
    listed = tuple(Statement(FILE, 100 * n, n, 0, None, "shop", 0, text) for n, text in enumerate(texts, 1))
    files = tuple(row(100 * n + 50, n, name) for n in range(len(texts) + 1) for name in (T, U))
    if lives is None:
        lives = [Life(f"life of {name}", name, SCHEMA, at(4), at(4)) for name in (T, U)]
    rules = Rules(lambda name: name.database == "shop", policy=lambda name: Policy(on_unfollowable=on_unfollowable))
    read = Range(at(4), at(100_000), (Slice(FILE, 4, 100_000, 1, False),))
    return split(Manifest(7, "a", (StagedSlice(0, files, listed, ()),)), BatchInputs("s", rules, read, lives))


def table(steps: BatchSteps, name: TableName) -> TableSteps:
    (named,) = (table for table in steps.tables if table.life.name == name)
    return named


def assert_goes_on(steps: BatchSteps, name: TableName, merges: int = 1) -> None:
    assert table(steps, name).life.status == "following"
    assert [type(step) for step in table(steps, name).steps] == [MergeStep] * merges


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, error: BaseException) -> Iterator[None]:
    def fails(*arguments: Any, **options: Any) -> Any:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(module, name, fails)
        yield


ERRORS = [RecursionError("at '…'"), MemoryError(), KeyError("secret value"), ValueError("secret value")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_alteration_that_fails_stops_its_table(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    with failing(monkeypatch, statements, "evolve", error):
        steps = followed("ALTER TABLE t ADD n INT")
    assert_goes_on(steps, U)
    stopped = table(steps, T).life
    assert stopped.status == "stopped"
    assert stopped.schema == SCHEMA
    assert stopped.standstill is not None
    assert stopped.standstill.reason.startswith(f"{FILE}:100: this statement can't be followed: {type(error).__name__}")
    assert "secret" not in stopped.standstill.reason
    assert "binlake snapshot" in stopped.standstill.remedy
    assert [(note.table, note.action) for note in steps.history] == [("t", "stopped")]


def test_an_alteration_that_fails_has_its_table_copied_anew_where_the_policy_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with failing(monkeypatch, statement_follower, "reshapes", RecursionError()):
        steps = followed("ALTER TABLE t ADD n INT", on_unfollowable="resnapshot")
    assert table(steps, T).life.status == "resnapshot"
    assert table(steps, T).life.schema == SCHEMA
    assert_goes_on(steps, U)


def test_a_table_that_another_takes_the_place_of_stays_where_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with failing(monkeypatch, statement_follower, "why_left_out", RecursionError()):
        steps = followed("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY)", on_unfollowable="resnapshot")
    assert [living.life.name for living in steps.tables] == [T, U]
    assert dict(steps.asked)[T].startswith(f"{FILE}:100: this statement can't be followed: RecursionError")
    assert_goes_on(steps, U)


def test_a_new_table_that_fails_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with failing(monkeypatch, create_table, "with_key", RecursionError()):
        steps = followed("CREATE TABLE w (id INT PRIMARY KEY)", on_unfollowable="resnapshot")
    assert "its columns can't be read: RecursionError at" in dict(steps.asked)[TableName("shop", "w")]
    for name in (T, U):
        assert_goes_on(steps, name)


def test_a_table_of_no_concern_is_not_analysed(monkeypatch: pytest.MonkeyPatch) -> None:
    with failing(monkeypatch, create_table, "with_key", RecursionError()):
        steps = followed("CREATE TABLE other.t (id INT PRIMARY KEY)")
    assert not steps.history
    for name in (T, U):
        assert_goes_on(steps, name)


def test_a_renaming_that_fails_costs_the_tables_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with failing(monkeypatch, statement_follower, "MoveStep", ValueError()):
        steps = followed("RENAME TABLE t TO other.x, other.y TO shop.y, u TO v", "CREATE TABLE w (id INT PRIMARY KEY)")
    assert {t.life.status for t in steps.tables if t.life.name.table in ("t", "u", "v")} <= {"stopped", "dropped"}
    assert table(steps, TableName("shop", "w")).life.status == "following"
    assert not any(isinstance(step, MoveStep) for t in steps.tables for step in t.steps)


def test_a_parser_that_fails_costs_the_tables_that_the_text_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with failing(monkeypatch, statements, "alter_table", KeyError()):
        steps = followed("ALTER TABLE t ADD n INT", "ALTER TABLE other.t ADD n INT")
    assert_goes_on(steps, U)
    assert table(steps, T).life.status == "stopped"
    assert "KeyError at" in table(steps, T).life.reason


def test_rows_that_cannot_be_added_cost_their_table(monkeypatch: pytest.MonkeyPatch) -> None:
    add_file = TableSteps.add_file

    def adding(self: TableSteps, file: StagedFile, turn: int) -> None:
        if file.name == T:
            raise RecursionError
        add_file(self, file, turn)

    monkeypatch.setattr(TableSteps, "add_file", adding)
    steps = followed()
    assert table(steps, T).life.status == "stopped"
    assert table(steps, T).life.reason.startswith(f"{FILE}:50: its mutations can't be merged: RecursionError")
    assert_goes_on(steps, U)


def test_settings_that_cannot_be_compared_cost_their_table(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = replace(SCHEMA, untold=("odd",))
    lives = [Life("t", T, odd, at(4), at(4)), Life("u", U, SCHEMA, at(4), at(4))]
    under = Rules.under

    def failing_for_one(rules: Rules, life: Life) -> Life:
        if life.name == T:
            raise RecursionError
        return under(rules, life)

    monkeypatch.setattr(Rules, "under", failing_for_one)
    steps = followed(lives=lives)
    assert table(steps, T).life.status == "stopped"
    assert_goes_on(steps, U)


# -- statements as long as the servers take them ---------------------------------------------------------------------


CLAUSES = ", ".join(["ALTER c SET DEFAULT 1"] * (lexer.MOST_TOKENS // 5))


def test_a_statement_that_is_too_long_costs_the_tables_that_its_text_names() -> None:
    began = time.process_time()
    steps = followed(f"ALTER TABLE other.x {CLAUSES}, RENAME TO `T`")
    assert_goes_on(steps, U)
    assert table(steps, T).life.status == "stopped"
    assert "too long to be read" in table(steps, T).life.reason
    assert time.process_time() - began < 20


def test_a_table_whose_own_statement_is_too_long_stops() -> None:
    steps = followed(f"ALTER TABLE t {CLAUSES}")
    assert_goes_on(steps, U)
    assert "more than 200,000 words and symbols" in table(steps, T).life.reason


def test_a_long_statement_on_a_table_of_no_concern_costs_nothing() -> None:
    steps = followed(f"ALTER TABLE other.x {CLAUSES}", f"CREATE TABLE other.y (c INT, {CLAUSES})")
    for name in (T, U):
        assert_goes_on(steps, name, merges=1)


def test_chains_of_another_database_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = ", ".join(f"g{n} INT AS (g{n - 1} + g{n - 1})" for n in range(1, 31))
    with failing(monkeypatch, virtual, "tokens_of", RecursionError()):
        steps = followed(
            f"CREATE TABLE other.x (id INT PRIMARY KEY, g0 INT AS (ABS({'(' * 500}id{')' * 501}), {columns})"
        )
    for name in (T, U):
        assert_goes_on(steps, name)
