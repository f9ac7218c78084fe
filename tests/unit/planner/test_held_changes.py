"""Schema changes that the YAML doesn't let a table follow: it stands still before the statement."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from binlake.binlog.border import Statement
from binlake.config.schema_changes import SchemaChangePolicy
from binlake.planner.answers import Answer, HeldChange, patterns_left_out, renamed
from binlake.planner.epochs import split
from binlake.planner.manifest import Manifest, StagedFile, StagedSlice
from binlake.planner.rules import Rules
from binlake.planner.steps import BatchSteps, Life, MergeStep, ReshapeStep, Status, TableSteps
from binlake.planner.walk import BatchInputs
from binlake.position import Position, Range, Slice
from binlake.schema.table import Column, TableName, TableSchema
from binlake.serialization import loads

FILE = "binlog.000001"
V = Column("v", "varchar", length=20, charset="utf8mb4")
SCHEMA = TableSchema((Column("id", "bigint", nullable=False), V), ("id",), "primary")
T, GHOST = TableName("shop", "t"), TableName("shop", "_t_gho")
FREEZE = SchemaChangePolicy(add="freeze", drop="freeze", rename="freeze", retype="freeze")
SWAP = "RENAME TABLE t TO _t_del, _t_gho TO t"


def at(offset: int) -> Position:
    return Position("server", FILE, offset, 1)


def life(name: TableName = T, status: Status = "following", schema: TableSchema = SCHEMA) -> Life:
    return Life(f"life of {name}", name, schema, at(4), at(4), status)


def rows(offset: int, before: int = 0, name: TableName = T, columns: tuple[Column, ...] = SCHEMA.columns) -> StagedFile:
    sequence = (1, offset, 0)
    return StagedFile(f"{offset}", name, columns, ("id",), 0, before, 1, 0, 0, sequence, sequence, 1, "", {})


def steps_of(
    *items: StagedFile | str,
    policy: SchemaChangePolicy = FREEZE,
    lives: Sequence[Life] = (life(),),
    ghosts_are_included: bool = False,
    answers: Sequence[Answer] = (),
) -> BatchSteps:
    """The steps of a batch with these files and statements."""
    texts = [item for item in items if isinstance(item, str)]
    statements = tuple(
        Statement(FILE, 100 * (number + 1), number, 0, None, "shop", 0, text) for number, text in enumerate(texts)
    )
    files = tuple(item for item in items if isinstance(item, StagedFile))
    rules = Rules(
        included=lambda name: ghosts_are_included or not name.table.startswith("_"),
        ghost=lambda name: not ghosts_are_included and name.table.endswith("_gho"),
        schema_changes=lambda name: policy,
    )
    inputs = BatchInputs(
        "s", rules, Range(at(4), at(10_000), (Slice(FILE, 4, 10_000, 1, False),)), lives, answers=answers
    )
    return split(Manifest(7, "a", (StagedSlice(0, files, statements, ()),)), inputs)


def table_of(steps: BatchSteps, name: TableName = T) -> TableSteps:
    return next(table for table in steps.tables if table.life.name == name and table.life.status != "dropped")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ALTER TABLE t ADD n INT", "adds 'n' int (on_schema_change, add: freeze)"),
        ("ALTER TABLE t DROP v", "drops 'v' (on_schema_change, drop: freeze)"),
        ("ALTER TABLE t RENAME COLUMN v TO w", "renames 'v' to 'w' (on_schema_change, rename: freeze)"),
        ("ALTER TABLE t MODIFY v VARCHAR(99)", "changes the type of 'v' from varchar(20) to varchar(99)"),
        ("ALTER TABLE t CHANGE v w TEXT, ADD n INT", "renames 'v' to 'w', changes the type of 'v' from varchar(20) to"),
    ],
)
def test_a_frozen_table_keeps_its_position_before_the_statement(text: str, why: str) -> None:
    table = table_of(steps_of(rows(50), text, rows(150, before=1)))
    assert (table.life.status, table.steps, table.life.schema) == ("stopped", [], SCHEMA)
    assert table.life.reason.startswith(f"{FILE}:100: the statement ")
    assert why in table.life.reason
    assert table.life.remedy.count("binlake table res") == 2


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE t MODIFY v VARCHAR(20) FIRST", "ALTER TABLE t ALTER v SET DEFAULT 'a'", "CREATE INDEX i ON t (v)",
        "ALTER TABLE t COMMENT 'orders'", "ALTER TABLE t MODIFY id BIGINT(20) NOT NULL", "TRUNCATE TABLE t",
    ],
)  # fmt: skip
def test_what_changes_no_columns_is_followed(text: str) -> None:
    assert table_of(steps_of(rows(50), text, rows(150, before=1))).life.status == "following"


def test_kinds_that_the_policy_lets_go_are_followed() -> None:
    policy = SchemaChangePolicy(drop="freeze")
    table = table_of(steps_of(rows(50), "ALTER TABLE t ADD n INT", policy=policy))
    assert [type(step) for step in table.steps] == [MergeStep, ReshapeStep]
    assert table_of(steps_of("ALTER TABLE t ADD n INT, DROP v", policy=policy)).life.status == "stopped"


def test_a_frozen_table_that_is_dropped_ends_and_one_that_is_renamed_stays_frozen() -> None:
    dropped = steps_of("ALTER TABLE t ADD n INT", "DROP TABLE t")
    assert [table.life.status for table in dropped.tables] == ["dropped"]
    renamed = table_of(steps_of("ALTER TABLE t ADD n INT", "RENAME TABLE t TO u"), TableName("shop", "u"))
    assert renamed.life.status == "stopped"
    assert "it is renamed, and a statement before adds 'n' int" in renamed.life.reason


ASK = SchemaChangePolicy(add="ask", drop="ask", rename="ask", retype="ask")


def answered(offset: int, *, yes: bool) -> Answer:
    return Answer("life of shop.t", T, FILE, offset, 1, yes)


def test_a_table_that_asks_waits_and_says_what_an_answer_does() -> None:
    steps = steps_of(rows(50), "ALTER TABLE t ADD n INT, DROP v", policy=ASK)
    table, (row,) = table_of(steps), steps.history
    assert (table.life.status, table.steps, row.action) == ("stopped", [], "waits")
    assert "binlake table schema-change --config FILE --table 'shop.t' --yes|--no" in table.life.remedy
    held = loads(HeldChange, row.held or "")
    assert (held.changes, held.asked, held.left_out) == (
        ("adds 'n' int", "drops 'v'"),
        ("add: ask", "drop: ask"),
        ("n",),
    )
    assert held.no == "the lake goes without 'n' from there on; the lake keeps 'v', with NULL in newer rows"


@pytest.mark.parametrize(
    ("text", "freezes"),
    [
        ("ALTER TABLE t ADD n INT", False), ("ALTER TABLE t DROP v", False),
        ("ALTER TABLE t MODIFY v TEXT", True), ("ALTER TABLE t RENAME COLUMN v TO w, ADD n INT", True),
        ("ALTER TABLE t ADD `a.b` INT", True),  # no pattern names it
        ("ALTER TABLE t DROP v, ADD v INT", True),  # what the name means afterwards isn't clear
        ("ALTER TABLE t DROP PRIMARY KEY, ADD n INT PRIMARY KEY", True),
    ],
)  # fmt: skip
def test_a_no_without_an_exact_meaning_freezes(text: str, freezes: bool) -> None:
    (row,) = steps_of(text, policy=ASK).history
    assert loads(HeldChange, row.held or "").freezes == freezes


def test_after_a_yes_the_statement_is_followed_and_the_next_one_asked_about() -> None:
    texts = ("ALTER TABLE t ADD n INT", "ALTER TABLE t ADD m INT")
    steps = steps_of(*texts, policy=ASK, answers=[answered(100, yes=True)])
    assert [row.action for row in steps.history] == ["followed", "waits"]
    assert (table_of(steps).life.status, table_of(steps).steps) == ("stopped", [])
    steps = steps_of(*texts, policy=ASK, answers=[answered(100, yes=True), answered(200, yes=True)])
    assert [type(step) for step in table_of(steps).steps] == [ReshapeStep, ReshapeStep]


def test_after_a_no_a_dropped_column_is_kept_for_good() -> None:
    table = table_of(steps_of("ALTER TABLE t DROP v", policy=ASK, answers=[answered(100, yes=False)]))
    assert [column.name for column in table.life.schema.kept] == ["v"]
    (reshape,) = table.steps
    assert isinstance(reshape, ReshapeStep)
    assert reshape.kept_origins == ("v",)


def test_after_a_no_a_retyped_column_freezes_its_table() -> None:
    steps = steps_of("ALTER TABLE t MODIFY v TEXT", policy=ASK, answers=[answered(100, yes=False)])
    assert (table_of(steps).life.status, steps.history[0].action) == ("stopped", "stopped")


@pytest.mark.parametrize("policy", [SchemaChangePolicy(), FREEZE, ASK])
def test_an_answer_counts_whatever_the_policy_is_by_now(policy: SchemaChangePolicy) -> None:
    yes, no = answered(100, yes=True), replace(answered(100, yes=False), freezes=False)
    assert table_of(steps_of("ALTER TABLE t MODIFY v TEXT", policy=policy, answers=[yes])).life.status == "following"
    table = table_of(steps_of("ALTER TABLE t DROP v", policy=policy, answers=[no]))
    assert [column.name for column in table.life.schema.kept] == ["v"]
    steps = steps_of("ALTER TABLE t MODIFY v TEXT", policy=policy, answers=[replace(no, freezes=True)])
    assert (table_of(steps).life.status, steps.history[0].action) == ("stopped", "stopped")
    assert table_of(steps).life.reason.endswith("and the answer is no")


def test_of_freeze_and_ask_freeze_counts() -> None:
    policy = SchemaChangePolicy(add="ask", drop="freeze")
    assert steps_of("ALTER TABLE t ADD n INT, DROP v", policy=policy).history[0].action == "stopped"


def test_a_tools_copy_waits_for_a_snapshot() -> None:
    steps = steps_of("ALTER TABLE _t_gho ADD n INT", SWAP, lives=(life(), life(GHOST)), policy=ASK)
    (row,) = [row for row in steps.history if row.table == "t"]
    held = loads(HeldChange, row.held or "")
    assert (row.action, held.copies, held.freezes, held.left_out) == ("waits", True, False, ("n",))


def test_answers_follow_a_table_to_its_new_name() -> None:
    given = replace(answered(100, yes=False), left_out=("n",))
    assert patterns_left_out([given]) == ("shop.t.n",)
    assert patterns_left_out(renamed((given,), [(T, TableName("shop", "u"))])) == ("shop.u.n",)
    assert patterns_left_out(renamed((given,), [(GHOST, T), (T, TableName("shop", "_t_del"))])) == ("shop.t.n",)


GHOST_SCHEMA = SCHEMA.with_columns((*SCHEMA.columns, Column("n", "int")))


@pytest.mark.parametrize("included", [False, True])
def test_a_tools_copy_with_other_columns_does_not_take_the_place(included: bool) -> None:
    lives = (life(), life(GHOST))
    steps = steps_of(
        "ALTER TABLE _t_gho ADD n INT", rows(150, 1, GHOST, GHOST_SCHEMA.columns), SWAP, "DROP TABLE _t_del",
        lives=lives, ghosts_are_included=included,
    )  # fmt: skip
    table = table_of(steps)
    assert (table.life.id, table.life.status, table.steps) == ("life of shop.t", "stopped", [])
    assert "a tool's copy takes the table's place, and adds 'n' int" in table.life.reason
    assert [copy.life.status for copy in steps.tables if copy.life.id == "life of shop._t_gho"] == ["dropped"]
    assert [row.action for row in steps.history if row.table == "t"] == ["stopped"]


def test_a_tools_copy_with_the_same_columns_does() -> None:
    steps = steps_of("ALTER TABLE _t_gho ENGINE=InnoDB", SWAP, lives=(life(), life(GHOST)))
    assert table_of(steps).life.id == "life of shop._t_gho"
    stopped = replace(life(), status="stopped")
    assert table_of(steps_of(SWAP, lives=(stopped, life(GHOST)))).life.status == "following"


def test_a_column_that_came_while_another_went_may_be_renamed() -> None:
    policy = SchemaChangePolicy(rename="freeze")
    copy = SCHEMA.with_columns((SCHEMA.columns[0], replace(V, name="w")))
    table = table_of(steps_of(SWAP, lives=(life(), life(GHOST, schema=copy)), policy=policy))
    assert (table.life.status, table.life.id) == ("stopped", "life of shop.t")
    assert "perhaps renames 'v'" in table.life.reason


def test_a_copy_that_is_not_known_does_not_take_the_place_either() -> None:
    table = table_of(steps_of(SWAP))
    assert (table.life.id, table.life.status) == ("life of shop.t", "stopped")
