"""Statements cut a table's mutations into epochs; identity is a life, not a name."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pytest

from binlake.binlog.border import Statement, Stopped, XaEvent
from binlake.config import Policy
from binlake.config.table_modes import BesideMode, HistoryMode
from binlake.merge.reshape import lake_columns_after
from binlake.planner.epochs import split
from binlake.planner.manifest import Manifest, StagedFile, StagedSlice
from binlake.planner.rules import Rules
from binlake.planner.steps import (
    BatchSteps,
    CreateStep,
    EventBeside,
    LeaveStep,
    Life,
    MergeStep,
    MoveStep,
    ReshapeStep,
    RowsBeside,
    Status,
    TableSteps,
    TruncateStep,
)
from binlake.planner.walk import BatchInputs
from binlake.position import Position, Range, Slice
from binlake.schema.cascades import Cascade
from binlake.schema.invalid import FAIL, KEEP_DATES, InvalidValues
from binlake.schema.statement_session import Session
from binlake.schema.table import Column, TableName, TableSchema, Virtual
from binlake.serialization import loads

FILE = "binlog.000001"
ID = Column("id", "bigint", nullable=False)
SCHEMA = TableSchema((ID, Column("v", "varchar", length=20, charset="utf8mb4")), ("id",), "primary")
T, A, B, C = (TableName("shop", name) for name in "tabc")
VITESS = TableName("shop", "_vt_vrp_6ace8bcef73211ea87e9f875a4d24e90_20200915120410_")
OLD = TableName("shop", "_vt_hld_6ace8bcef73211ea87e9f875a4d24e90_20200915120410_")


def at(offset: int, file: str = FILE) -> Position:
    return Position("server", file, offset, 1)


def life(name: TableName = T, low: int = 4, status: Status = "following") -> Life:
    return Life(f"life of {name}", name, SCHEMA, at(low), at(low), status)


def mutations(offset: int, before: int = 0, name: TableName = T, slice_: int = 0) -> StagedFile:
    sequence = (1 + slice_, offset, 0)
    return StagedFile(
        f"{name}-{offset}", name, SCHEMA.columns, ("id",), slice_, before, 1, 0, 0, sequence, sequence, 1, "", {}
    )


def statement(offset: int, ordinal: int, text: str, file: str = FILE) -> Statement:
    return Statement(file, offset, ordinal, 0, None, "shop", 0, text)


def steps_of(
    *slices: StagedSlice,
    lives: Sequence[Life] = (life(),),
    without_life: Sequence[TableName] = (),
    policy: Policy | None = None,
    going: Sequence[TableName] = (),
    invalid: InvalidValues = FAIL,
    beside: Sequence[TableName] = (),
    histories: Sequence[TableName] = (),
    keeping: Sequence[TableName] = (),
    cascades: Sequence[Cascade] | None = None,
    declaring: Sequence[str] = (),
    excluded: Sequence[str] = (),
    withheld: Mapping[TableName, Collection[str]] = MappingProxyType({}),
) -> BatchSteps:
    def modes(name: TableName) -> tuple[BesideMode, ...]:
        return ("history",) if name in histories else ("log",) if name in beside else ()

    rules = Rules(
        included=lambda name: name.database == "shop" and not name.table.startswith("_"),
        ghost=lambda name: name.database == "shop" and (name.table.endswith("_gho") or name == VITESS),
        policy=lambda name: policy or Policy(),
        goes_when_dropped=lambda name: name in going,
        invalid=invalid,
        beside=modes,
        history=lambda name: HistoryMode() if name in histories else None,
        excluding=lambda name, schema: replace(
            schema.excluding(frozenset(excluded)) if excluded else schema, soft_delete=name in keeping
        ),
        soft_delete=lambda name: name in keeping,
        withheld=lambda name: frozenset(withheld.get(name, ())),
        confidential=lambda name: frozenset(withheld.get(name, ())),
    )
    read = Range(at(4), at(10_000), tuple(Slice(FILE, 4, 10_000, 1, False) for _ in slices))
    inputs = BatchInputs("s", rules, read, lives, unsnapshotted=without_life, cascades=cascades, declaring=declaring)
    return split(Manifest(7, "a", slices), inputs)


def a_slice(*items: StagedFile | Statement | Stopped | XaEvent, number: int = 0) -> StagedSlice:
    return StagedSlice(
        number,
        tuple(item for item in items if isinstance(item, StagedFile)),
        tuple(item for item in items if isinstance(item, Statement)),
        tuple(item for item in items if isinstance(item, Stopped)),
        tuple(item for item in items if isinstance(item, XaEvent)),
    )


def table_of(steps: BatchSteps) -> TableSteps:
    assert len(steps.tables) == 1
    return steps.tables[0]


def test_mutations_of_several_slices_are_one_epoch() -> None:
    table = table_of(steps_of(a_slice(mutations(10)), a_slice(mutations(4, slice_=1), number=1)))
    assert [len(step.files) for step in table.steps if isinstance(step, MergeStep)] == [2]


def test_add_column_cuts_epochs_in_order() -> None:
    ddl = statement(50, 0, "ALTER TABLE t ADD COLUMN n INT NOT NULL DEFAULT 7 AFTER id")
    table = table_of(steps_of(a_slice(mutations(10), ddl, mutations(60, before=1))))
    _, reshape, _ = table.steps
    assert [type(step) for step in table.steps] == [MergeStep, ReshapeStep, MergeStep]
    assert isinstance(reshape, ReshapeStep)
    assert [(column.name, text) for column, text in reshape.fills] == [("n", "7")]
    assert [column.name for column in table.life.schema.columns] == ["id", "n", "v"]


@pytest.mark.parametrize(("invalid", "status"), [(KEEP_DATES, "following"), (FAIL, "resnapshot")])
def test_a_date_that_no_calendar_has_comes_where_its_text_is_kept(invalid: InvalidValues, status: str) -> None:
    ddl = statement(50, 0, "ALTER TABLE t ADD d DATE NOT NULL")
    table = table_of(steps_of(a_slice(ddl), invalid=invalid))
    assert table.life.status == status
    fills = [text for step in table.steps if isinstance(step, ReshapeStep) for _, text in step.fills]
    assert fills == (["0000-00-00"] if invalid is KEEP_DATES else [])


def test_a_column_that_was_there_gets_the_time_for_null() -> None:
    schema = TableSchema((ID, Column("ts", "timestamp")), ("id",), "primary")
    ddl = statement(50, 0, "ALTER TABLE t MODIFY ts TIMESTAMP NOT NULL")
    known = replace(ddl, session=Session(explicit_timestamps=True, began=1577836800))
    table = table_of(steps_of(a_slice(known), lives=[replace(life(), schema=schema)]))
    (reshape,) = table.steps
    assert isinstance(reshape, ReshapeStep)
    assert [(column.name, text) for column, text in reshape.fills] == [("ts", "2020-01-01 00:00:00")]


def test_a_nullable_column_needs_no_fill() -> None:
    table = table_of(steps_of(a_slice(statement(50, 0, "ALTER TABLE shop.t ADD n INT"))))
    (reshape,) = table.steps
    assert isinstance(reshape, ReshapeStep)
    assert reshape.fills == ()


def test_a_comment_cuts_no_epoch_and_comes_last() -> None:
    table = table_of(steps_of(a_slice(
        mutations(10), statement(50, 0, "ALTER TABLE t COMMENT 'first', MODIFY v VARCHAR(20) COMMENT 'of v'"),
        mutations(60, before=1), statement(70, 1, "ALTER TABLE t COMMENT 'last'"), mutations(80, before=2),
    )))  # fmt: skip
    assert kinds(table) == ["MergeStep", "DescribeStep"]
    assert (table.life.schema.comment, table.life.schema.lake_comments) == ("last", {"v": "of v"})
    assert table.life.fingerprint == life().fingerprint


@pytest.mark.parametrize("status", ["following", "stopped"])
def test_a_comment_is_no_event_to_the_tables_beside(status: Status) -> None:
    ddl = statement(50, 0, "ALTER TABLE t COMMENT 'x', ENGINE = InnoDB")
    staged = a_slice(mutations(10), ddl, mutations(60, before=1))
    (beside,) = steps_of(staged, lives=[life(status=status)], histories=[T], beside=[T]).beside
    assert "alter" not in [step.what for step in beside.steps if isinstance(step, EventBeside)]


def test_comments_are_given_where_they_may_have_been_lost() -> None:
    """What an older binlake recorded has none; a table that is made, or whose rows are written again, loses its own."""
    commented = replace(life(), schema=replace(SCHEMA, comment="of t"))
    widened, renamed = "ALTER TABLE t MODIFY id DECIMAL(30)", "RENAME TABLE t TO u"
    created = "CREATE TABLE u (id INT PRIMARY KEY COMMENT 'the key')"
    assert kinds(table_of(steps_of(a_slice(statement(50, 0, widened)), lives=[commented]))) == [
        "ReshapeStep",
        "DescribeStep",
    ]
    assert kinds(table_of(steps_of(a_slice(statement(50, 0, widened))))) == ["ReshapeStep"]
    assert kinds(table_of(steps_of(a_slice(statement(50, 0, renamed)), lives=[commented])))[-1] == "DescribeStep"
    assert kinds(table_of(steps_of(a_slice(statement(50, 0, created)), lives=[]))) == ["CreateStep", "DescribeStep"]
    taken = f"{created} COMMENT ''"
    alter = statement(60, 1, "ALTER TABLE u COMMENT 'x'")
    steps = steps_of(a_slice(statement(50, 0, taken), alter), lives=[])
    assert kinds(table_of(steps)) == ["CreateStep", "DescribeStep"]
    dropped = a_slice(statement(50, 0, "ALTER TABLE t COMMENT 'x'"), statement(60, 1, "DROP TABLE t"))
    assert kinds(table_of(steps_of(dropped))) == []
    assert kinds(table_of(steps_of(a_slice(mutations(10)), lives=[commented]))) == ["MergeStep"]


def test_truncate_stands_between_epochs() -> None:
    table = table_of(steps_of(a_slice(mutations(10), statement(50, 0, "TRUNCATE t"), mutations(60, before=1))))
    assert [type(step) for step in table.steps] == [MergeStep, TruncateStep, MergeStep]


KEEPING = replace(life(), schema=replace(SCHEMA, soft_delete=True))


def test_where_deleted_rows_stay_truncate_leaves_a_table_with_rows() -> None:
    truncated = statement(50, 0, "TRUNCATE t"), statement(60, 1, "ALTER TABLE t ADD n INT")
    assert [type(step) for step in table_of(steps_of(a_slice(*truncated))).steps] == [TruncateStep, CreateStep]
    table = table_of(steps_of(a_slice(*truncated), lives=[KEEPING], keeping=[T]))
    first, second = table.steps
    assert isinstance(first, TruncateStep)
    assert first.committed_us is not None
    assert isinstance(second, ReshapeStep)


def test_where_deleted_rows_stay_another_key_asks_for_a_snapshot() -> None:
    other = statement(50, 0, "ALTER TABLE t DROP PRIMARY KEY, MODIFY v VARCHAR(20) NOT NULL, ADD PRIMARY KEY (v)")
    renamed = statement(50, 0, "ALTER TABLE t RENAME COLUMN id TO number")
    for ddl, status in ((other, "resnapshot"), (renamed, "following")):
        table = table_of(steps_of(a_slice(ddl), lives=[KEEPING], keeping=[T]))
        assert table.life.status == status


def test_where_deleted_rows_stay_a_copy_that_takes_the_place_is_copied_anew() -> None:
    ghost = TableName("shop", "_t_gho")
    swap = statement(50, 0, "RENAME TABLE t TO _t_del, _t_gho TO t")
    filled = replace(life(ghost), schema=KEEPING.schema)
    for keeping, steps in (((T, ghost), [LeaveStep]), ((), [MoveStep, LeaveStep])):
        lives = [KEEPING, filled] if keeping else [life(), life(ghost)]
        _, table = steps_of(a_slice(swap), lives=lives, keeping=keeping).tables
        assert [type(step) for step in table.steps] == steps
        assert (table.life.name, table.life.status) == (T, "resnapshot" if keeping else "following")


def test_drop_and_create_are_two_lives() -> None:
    steps = steps_of(
        a_slice(
            mutations(10),
            statement(50, 0, "DROP TABLE `t` /* generated by server */"),
            statement(60, 1, "CREATE TABLE t (k INT PRIMARY KEY)"),
            mutations(70, before=2),
        )
    )
    old, new = steps.tables
    assert (old.life.status, new.life.status) == ("dropped", "following")
    assert [type(step) for step in new.steps] == [CreateStep, MergeStep]
    assert old.life.id != new.life.id


def kinds(table: TableSteps) -> list[str]:
    return [type(step).__name__ for step in table.steps]


def again(*names: str) -> StagedSlice:
    """For each name a life that is made, filled and dropped."""
    items: list[StagedFile | Statement] = []
    for number, name in enumerate(names):
        offset, table = 100 * number + 10, TableName("shop", name)
        items += [
            statement(offset, 2 * number, f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, v VARCHAR(20))"),
            mutations(offset + 10, 2 * number + 1, table),
            statement(offset + 20, 2 * number + 1, f"DROP TABLE {name}"),
        ]
    return a_slice(*items)


def test_of_many_lives_at_one_path_only_the_last_is_done() -> None:
    steps = steps_of(again(*["n"] * 300), lives=[])
    assert [kinds(table) for table in steps.tables] == [[]] * 299 + [["CreateStep", "MergeStep"]]
    assert len(steps.history) == 600


def test_a_dropped_table_is_merged_up_to_its_end_unless_its_folder_goes() -> None:
    dropped = a_slice(mutations(10), statement(50, 0, "DROP TABLE t"))
    assert kinds(table_of(steps_of(dropped))) == ["MergeStep"]
    assert kinds(table_of(steps_of(dropped, going=[T]))) == []


def test_a_table_made_and_dropped_whose_folder_goes_is_never_made() -> None:
    steps = steps_of(again("n", "t", "n"), lives=[], going=[TableName("shop", "n")])
    assert [kinds(table) for table in steps.tables] == [[], ["CreateStep", "MergeStep"], []]


def test_a_table_in_whose_place_another_was_made_costs_nothing() -> None:
    log = mutations(10), statement(50, 0, "DROP TABLE t"), statement(60, 1, "CREATE TABLE t (id INT)")
    steps = steps_of(a_slice(*log, statement(70, 2, "DROP TABLE t")))
    assert [kinds(table) for table in steps.tables] == [[], ["CreateStep"]]
    assert [kinds(table) for table in steps_of(a_slice(*log), going=[T]).tables] == [[], ["CreateStep"]]


def test_nor_does_one_that_another_was_renamed_over() -> None:
    steps = steps_of(
        a_slice(
            mutations(10), statement(50, 0, "DROP TABLE t"), statement(60, 1, "RENAME TABLE a TO t"), mutations(70, 2)
        ),
        lives=[life(), life(A)],
    )
    assert [kinds(table) for table in steps.tables] == [[], ["MoveStep", "LeaveStep", "MergeStep"]]


def test_a_dropped_table_that_moved_before_is_done_as_long_as_a_path_shows_it() -> None:
    moved = mutations(10), statement(50, 0, "RENAME TABLE t TO u"), statement(60, 1, "DROP TABLE u")
    whole = ["MergeStep", "MoveStep", "LeaveStep"]
    u = TableName("shop", "u")
    assert kinds(table_of(steps_of(a_slice(*moved)))) == whole
    assert kinds(table_of(steps_of(a_slice(*moved), going=[u]))) == whole  # the path of its old name is left empty
    made = statement(70, 2, "CREATE TABLE u (id INT)"), statement(80, 3, "CREATE TABLE t (id INT)")
    assert kinds(steps_of(a_slice(*moved, made[0])).tables[0]) == whole
    assert kinds(steps_of(a_slice(*moved, *made)).tables[0]) == []
    assert kinds(steps_of(a_slice(*moved, made[1]), going=[u]).tables[0]) == []


def test_nor_does_one_with_which_the_other_had_changed_names_before() -> None:
    log = (
        mutations(10),
        statement(50, 0, "RENAME TABLE t TO tmp, a TO t, tmp TO a"),
        statement(60, 1, "DROP TABLE a"),
        statement(70, 2, "RENAME TABLE t TO a"),
    )
    first, second = steps_of(a_slice(*log), lives=[life(), life(A)], going=[A]).tables
    assert (first.life.status, kinds(first)) == ("dropped", [])
    assert (second.life.name, kinds(second)) == (A, ["MoveStep", "MoveStep", "LeaveStep"])


def test_rows_of_a_life_that_goes_on_elsewhere_are_done() -> None:
    steps = steps_of(
        a_slice(mutations(10), statement(50, 0, "RENAME TABLE t TO u"), statement(60, 1, "CREATE TABLE t (id INT)"))
    )
    assert [kinds(table) for table in steps.tables] == [["MergeStep", "MoveStep", "LeaveStep"], ["CreateStep"]]


def test_a_repeated_walk_gives_the_same_steps() -> None:
    slices = a_slice(statement(60, 0, "CREATE TABLE n (k INT PRIMARY KEY)"), mutations(70, 1, TableName("shop", "n")))
    assert steps_of(slices) == steps_of(slices)


def test_what_lies_before_the_snapshot_is_skipped() -> None:
    steps = steps_of(a_slice(mutations(10), statement(50, 0, "ALTER TABLE t DROP COLUMN v")), lives=[life(low=100)])
    assert (table_of(steps).steps, table_of(steps).life.status) == ([], "following")


@pytest.mark.parametrize(("policy", "status"), [("resnapshot", "resnapshot"), ("stop", "stopped")])
def test_what_the_log_cant_tell_asks_for_a_snapshot_or_stops_its_table_alone(policy: str, status: str) -> None:
    other = TableName("shop", "o")
    steps = steps_of(
        a_slice(
            mutations(10),
            statement(50, 0, "ALTER TABLE t MODIFY v INT"),
            mutations(60, before=1),
            mutations(61, before=1, name=other),
        ),
        lives=[life(), life(other)],
        policy=Policy.model_validate({"on_unfollowable": policy}),
    )
    stopped, going_on = steps.tables
    # what is snapshotted again may be half done; what stops stays at the position it has
    assert (stopped.life.status, len(stopped.steps)) == (status, 1 if status == "resnapshot" else 0)
    assert stopped.life.schema == SCHEMA or status == "resnapshot"
    assert stopped.life.reason.startswith("binlog.000001:50: ")
    assert ("--tables" in stopped.life.remedy) == (policy == "stop")
    assert (going_on.life.status, len(going_on.steps)) == ("following", 1)


def lives_after(steps: BatchSteps) -> dict[str, tuple[str, str]]:
    return {table.life.id: (str(table.life.name), table.life.status) for table in steps.tables}


def test_a_renamed_table_is_copied_and_says_where_it_went() -> None:
    table = table_of(steps_of(a_slice(mutations(10), statement(50, 0, "RENAME TABLE t TO u"))))
    u = TableName("shop", "u")
    assert table.steps[1:] == [MoveStep(T, u), LeaveStep(T, u)]
    assert table.life.name == u


def test_names_that_are_swapped_are_moved_to_each_others_paths() -> None:
    swap = statement(50, 0, "RENAME TABLE a TO tmp, b TO a, tmp TO b")
    steps = steps_of(a_slice(mutations(10, name=A), swap, mutations(60, 1, B)), lives=[life(A), life(B)])
    assert lives_after(steps) == {"life of shop.a": ("shop.b", "following"), "life of shop.b": ("shop.a", "following")}
    first, second = steps.tables
    assert [type(step) for step in first.steps] == [MergeStep, MoveStep, MergeStep]
    assert (first.turns, second.steps) == ([0, 1, 2], [MoveStep(B, A)])


def test_a_ghost_takes_the_place_of_its_table() -> None:
    ghost = TableName("shop", "_t_gho")
    steps = steps_of(
        a_slice(
            statement(10, 0, "CREATE TABLE _t_gho LIKE t"),
            statement(20, 1, "ALTER TABLE _t_gho ADD at DATETIME DEFAULT CURRENT_TIMESTAMP"),
            mutations(30, 2, ghost),
            statement(40, 3, "RENAME TABLE t TO _t_del, _t_gho TO t"),
            statement(50, 4, "DROP TABLE _t_del"),
        )
    )
    old, new = steps.tables
    assert (old.life.name, old.life.status) == (T, "dropped")
    assert kinds(old) == []
    assert (new.life.name, new.life.status) == (T, "following")
    assert [type(step) for step in new.steps] == [CreateStep, CreateStep, MergeStep, MoveStep, LeaveStep]


def test_a_table_that_comes_from_elsewhere_is_snapshotted() -> None:
    steps = steps_of(a_slice(statement(50, 0, "RENAME TABLE _x TO u")))
    assert [name for name, _ in steps.asked] == [TableName("shop", "u")]


def test_a_table_that_comes_from_elsewhere_replaces_one_whose_drop_was_not_logged() -> None:
    moved = statement(50, 0, "RENAME TABLE _x TO t")
    steps = steps_of(a_slice(mutations(10), moved, mutations(60, before=1)))
    assert [name for name, _ in steps.asked] == [T]
    assert lives_after(steps) == {"life of shop.t": ("shop.t", "dropped")}


@pytest.mark.parametrize(
    ("pairs", "name", "asked"),
    [
        ("_missing TO t, t TO u", "shop.u", []),
        ("_missing TO t", "shop.t", []),
        ("t TO u, _missing TO u", "shop.u", []),
        ("_missing TO t, t TO u, u TO t", "shop.t", []),
        ("t TO u, _there TO t", "shop.u", [T]),
    ],
)
def test_rename_if_exists_does_nothing_to_tables_that_are_not_there(
    pairs: str, name: str, asked: list[TableName]
) -> None:
    steps = steps_of(a_slice(mutations(10), statement(50, 0, f"RENAME TABLE IF EXISTS {pairs}")))
    assert lives_after(steps) == {"life of shop.t": (name, "following")}
    assert [wanted for wanted, _ in steps.asked] == asked


def test_a_name_that_was_snapshotted_after_the_rename_is_left_alone() -> None:
    steps = steps_of(a_slice(statement(50, 0, "RENAME TABLE a TO b")), lives=[life(A), life(B, low=100)])
    assert lives_after(steps) == {"life of shop.a": ("shop.a", "dropped"), "life of shop.b": ("shop.b", "following")}


def test_a_stopped_table_that_is_renamed_asks_for_a_snapshot_under_its_new_name() -> None:
    steps = table_of(steps_of(a_slice(statement(50, 0, "RENAME TABLE t TO u")), lives=[life(status="stopped")]))
    assert (str(steps.life.name), steps.life.status, steps.steps) == ("shop.u", "resnapshot", [])


@pytest.mark.parametrize("status", ["following", "stopped", "resnapshot", "paused"])
@pytest.mark.parametrize("shown", [True, False])
def test_a_table_that_gets_a_name_by_which_a_column_is_not_withheld_stops(status: Status, shown: bool) -> None:
    withheld = {T: ["v"]} if shown else {T: ["v"], TableName("shop", "u"): ["v"]}
    renamed = a_slice(statement(50, 0, "RENAME TABLE t TO u"))
    after = table_of(steps_of(renamed, lives=[life(status=status)], withheld=withheld)).life
    assert (str(after.name), after.status == "stopped") == ("shop.u", shown)
    assert ("'v', which the YAML masks or excludes, is in a table of another name now" in after.reason) == shown


def test_a_table_that_would_show_a_withheld_column_stops_where_deleted_rows_stay_under_its_new_name() -> None:
    renamed = a_slice(statement(50, 0, "RENAME TABLE a TO t"))
    table = table_of(steps_of(renamed, lives=[life(A)], keeping=[T], withheld={A: ["v"]}))
    assert ([type(step) for step in table.steps], table.life.status) == ([LeaveStep], "stopped")
    assert "'v', which the YAML masks or excludes, is in a table of another name now" in table.life.reason


def test_a_copy_shows_what_the_table_of_its_new_name_showed() -> None:
    """The copy's own name doesn't say of which table it is: it withholds what any table of the database does."""
    swapped = f"RENAME TABLE t TO {OLD.table}, {VITESS.table} TO t"
    for text, status in ((swapped, "following"), (f"RENAME TABLE {VITESS.table} TO t", "stopped")):
        lives = [life(VITESS), *([life()] if text == swapped else [])]
        steps = steps_of(a_slice(statement(50, 0, text)), lives=lives, withheld={VITESS: ["v"], OLD: ["v"]})
        assert {table.life.id: table.life.status for table in steps.tables}[f"life of {VITESS}"] == status


def test_truncate_can_stop_a_table() -> None:
    policy = Policy(on_truncate="stop")
    steps = table_of(steps_of(a_slice(mutations(10), statement(50, 0, "TRUNCATE t")), policy=policy))
    assert (steps.life.status, steps.steps) == ("stopped", [])


def test_statements_elsewhere_never_matter() -> None:
    steps = steps_of(a_slice(statement(50, 0, "ALTER TABLE other.t FROBNICATE ~~ '"), mutations(60, before=1)))
    assert table_of(steps).life.status == "following"


@pytest.mark.parametrize(
    ("policy", "status", "action"), [("resnapshot", "resnapshot", "resnapshot asked"), ("stop", "stopped", "stopped")]
)
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("UPDATE t SET v = 'x'", "t"),
        ("INSERT INTO a SELECT * FROM t", "a"),
        ("CALL p()", "abt"),
        ("SELECT f()", "abt"),
        ("DROP TABLE t, 'a", "abt"),
    ],
)
def test_rows_changed_without_row_events_ask_for_a_snapshot_or_stop_their_tables(
    text: str, named: str, policy: str, status: str, action: str
) -> None:
    steps = steps_of(
        a_slice(mutations(10), statement(50, 0, text), mutations(60, before=1), mutations(61, 1, B)),
        lives=[life(), life(A), life(B)],
        policy=Policy.model_validate({"on_unfollowable": policy}),
    )
    statuses = {table.life.name.table: table.life.status for table in steps.tables}
    assert statuses == {name: status if name in named else "following" for name in "abt"}
    assert {(row.table, row.action) for row in steps.history} == {(name, action) for name in named}
    assert all((row.reason or "").startswith("binlog.000001:50: ") for row in steps.history)
    merged = {
        table.life.name.table: [
            file.first[1] for step in table.steps if isinstance(step, MergeStep) for file in step.files
        ]
        for table in steps.tables
    }
    # what came before is merged where a snapshot follows, what comes after waits for it
    assert merged["t"] == ([10, 60] if "t" not in named else [10] if policy == "resnapshot" else [])
    assert merged["b"] == ([61] if "b" not in named else [])


@pytest.mark.parametrize(
    ("clause", "statuses"),
    [
        ("EXCHANGE PARTITION p WITH TABLE b", ("resnapshot", "resnapshot")),
        ("CONVERT TABLE b TO PARTITION p VALUES LESS THAN (5)", ("resnapshot", "dropped")),
        ("IMPORT TABLESPACE", ("resnapshot", "following")),
        ("DROP PARTITION p", ("following", "following")),
    ],
)
def test_rows_that_come_without_row_events_come_into_an_empty_table_too(
    clause: str, statuses: tuple[Status, Status]
) -> None:
    made = [statement(50 + place, place, f"CREATE TABLE {name} LIKE t") for place, name in enumerate("ab")]
    _, *tables = steps_of(a_slice(*made, statement(60, 2, f"ALTER TABLE a {clause}"))).tables
    assert tuple(table.life.status for table in tables) == statuses


@pytest.mark.parametrize("rename", ["t TO a", "t TO a, b TO t"])
def test_a_table_that_lost_a_foreign_key_is_found_under_its_new_name(rename: str) -> None:
    lost = statement(50, 0, "ALTER TABLE t DROP FOREIGN KEY f")
    steps = steps_of(
        a_slice(lost, statement(60, 1, f"RENAME TABLE {rename}")),
        lives=[life(), life(B)],
        policy=Policy.model_validate({"on_unlogged_cascade": "derive"}),
        cascades=(),
    )
    assert [table.life.status for table in steps.tables] == ["resnapshot", "following"]


@pytest.mark.parametrize(
    ("action", "status"),
    [
        ("ON DELETE CASCADE", "stopped"),
        ("ON/**/UPDATE -- whichever\n SET/* */NULL", "stopped"),
        ("ON DELETE RESTRICT /* once ON DELETE CASCADE */", "following"),
    ],
)
def test_a_foreign_key_that_came_and_went_in_one_batch_stops_the_table_where_it_cascades(
    action: str, status: Status
) -> None:
    steps = steps_of(
        a_slice(
            statement(50, 0, f"ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (id) REFERENCES a (id) {action}"),
            statement(60, 1, "ALTER TABLE t DROP/**/FOREIGN/**/KEY f"),
        ),
        policy=Policy(on_unlogged_cascade="stop"),
        cascades=(),
    )
    assert table_of(steps).life.status == status


@pytest.mark.parametrize(("declaring", "status"), [([life().id], "stopped"), ([], "following")])
def test_a_foreign_key_that_an_earlier_batch_brought_stops_the_table_when_it_goes(
    declaring: list[str], status: Status
) -> None:
    steps = steps_of(
        a_slice(statement(50, 0, "ALTER TABLE t DROP FOREIGN KEY f")),
        policy=Policy(on_unlogged_cascade="stop"),
        cascades=(),
        declaring=declaring,
    )
    assert table_of(steps).life.status == status


@pytest.mark.parametrize("way", ["derive", "resnapshot"])
def test_what_a_foreign_key_changed_before_it_went_may_have_cascaded_further(way: str) -> None:
    steps = steps_of(
        a_slice(statement(50, 0, "ALTER TABLE t DROP FOREIGN KEY f")),
        lives=[life(), life(A), life(B)],
        policy=Policy.model_validate({"on_unlogged_cascade": way}),
        cascades=[Cascade(A, T, "g", ("id",), ("id",), "CASCADE", "RESTRICT")],
    )
    assert [table.life.status for table in steps.tables] == ["resnapshot", "resnapshot", "following"]


def test_nothing_is_derived_for_a_table_whose_log_begins_to_lack_columns() -> None:
    computed = Column(
        "g", "varchar", length=9, charset="utf8mb4", generated=True, stored=Virtual("UPPER(v)", "mariadb")
    )
    child = replace(life(A), schema=replace(SCHEMA, columns=(*SCHEMA.columns, computed)), delta_version=3)
    deleted = replace(mutations(10), inserted=0, deleted=1)
    steps = steps_of(
        a_slice(deleted, mutations(20, name=A), replace(mutations(30, name=A), absent=("g",))),
        lives=[replace(life(), delta_version=3), child],
        policy=Policy.model_validate({"on_unlogged_cascade": "derive"}),
        cascades=[Cascade(A, T, "f", ("id",), ("id",), "CASCADE", "RESTRICT")],
    )
    assert [table.life.status for table in steps.tables] == ["following", "resnapshot"]


def test_a_kept_column_leaves_its_name_to_the_texts_of_invalid_dates() -> None:
    told = Column("d__text", "varchar", length=9, charset="utf8mb4")
    steps = steps_of(
        a_slice(statement(50, 0, "ALTER TABLE t DROP d__text"), statement(60, 1, "ALTER TABLE t ADD d DATE")),
        lives=[replace(life(), schema=replace(SCHEMA, columns=(*SCHEMA.columns, told)))],
        policy=Policy.model_validate({"on_drop_column": "keep"}),
        invalid=KEEP_DATES,
    )
    reshape = table_of(steps).steps[-1]
    assert isinstance(reshape, ReshapeStep)
    names = [column.name for column in lake_columns_after(reshape, KEEP_DATES)]
    assert names == ["id", "v", "d", "d__text", "d__text__dropped"]


@pytest.mark.parametrize("policy", ["keep", "drop"])
def test_a_kept_column_stays_whatever_becomes_of_the_table_and_of_the_policy(policy: str) -> None:
    kept = replace(SCHEMA, columns=(ID,), kept=SCHEMA.columns[1:])
    steps = steps_of(
        a_slice(statement(50, 0, "TRUNCATE t"), statement(60, 1, "ALTER TABLE t ADD v INT")),
        lives=[replace(life(), schema=kept)],
        policy=Policy.model_validate({"on_drop_column": policy}),
    )
    truncate, reshape = table_of(steps).steps
    assert isinstance(truncate, TruncateStep)
    assert isinstance(reshape, ReshapeStep)
    columns = [(column.name, column.origin) for column in lake_columns_after(reshape, FAIL)]
    assert columns == [("id", "id"), ("v", None), ("v__dropped", "v")]


def test_rows_changed_without_row_events_before_the_snapshot_do_not_matter() -> None:
    steps = steps_of(a_slice(statement(50, 0, "UPDATE t, u SET v = 'x'"), mutations(200)), lives=[life(low=100)])
    assert (table_of(steps).life.status, len(table_of(steps).steps)) == ("following", 1)
    assert [(row.table, row.action, row.reason) for row in steps.history] == [
        ("t", "not applied", "before the snapshot"),
        ("u", "not applied", "this table isn't mirrored"),
    ]


def test_rows_changed_without_row_events_leave_a_stopped_table_as_it_is() -> None:
    steps = steps_of(a_slice(statement(50, 0, "UPDATE t SET v = 'x'")), lives=[life(status="stopped")])
    assert table_of(steps).life.status == "stopped"
    assert [(row.action, row.reason) for row in steps.history] == [("not applied", "this table is stopped")]


def test_what_becomes_of_the_shape_of_a_stopped_table_is_told_beside_it() -> None:
    steps = steps_of(
        a_slice(
            statement(50, 0, "ALTER TABLE t ADD COLUMN w INT"),
            statement(60, 1, "TRUNCATE TABLE t"),
            statement(70, 2, "ALTER TABLE t ALTER COLUMN nowhere SET DEFAULT 5"),
            statement(80, 3, "ALTER TABLE t ADD COLUMN x INT"),
        ),
        lives=[life(status="stopped")],
    )
    assert [column.name for column in table_of(steps).life.schema.columns] == ["id", "v"]
    shapes = [(names(row.before), names(row.after)) for row in steps.history]
    assert shapes == [
        (["id", "v"], ["id", "v", "w"]),
        (["id", "v", "w"], ["id", "v", "w"]),
        (["id", "v", "w"], None),
        (None, None),
    ]
    assert {row.action for row in steps.history} == {"not applied"}


def names(shape: str | None) -> list[str] | None:
    return None if shape is None else [column.name for column in loads(TableSchema, shape).columns]


def test_a_table_that_cannot_be_decoded_stops() -> None:
    steps = steps_of(a_slice(mutations(10), Stopped(T, FILE, 40, "missing column metadata", "SET GLOBAL …")))
    assert (table_of(steps).life.status, table_of(steps).life.remedy) == ("stopped", "SET GLOBAL …")


def test_a_table_born_in_the_batch_keeps_no_rows_from_around_an_event_that_cannot_be_decoded() -> None:
    """Those behind it would stand without it."""
    born = statement(10, 0, "CREATE TABLE u (id BIGINT PRIMARY KEY)")
    name = TableName("shop", "u")
    whole, other = statement(30, 1, "ALTER TABLE u ADD v INT"), statement(35, 2, "CREATE TABLE o (i INT)")
    stopped = Stopped(name, FILE, 50, "missing column metadata", "SET GLOBAL …")
    files = [mutations(20, 1, name), mutations(32, 2, name), mutations(40, 3, name)]
    steps = steps_of(a_slice(*files, born, whole, other, stopped), lives=[])
    (table,) = [table for table in steps.tables if table.life.name == name]
    assert table.life.status == "stopped"
    assert [type(step) for step in table.steps] == [CreateStep, MergeStep, ReshapeStep]


def test_an_included_table_without_snapshot_is_said() -> None:
    steps = steps_of(a_slice(mutations(10, name=TableName("shop", "late"))))
    assert steps.missing == (TableName("shop", "late"),)


LATE = TableName("shop", "late")


@pytest.mark.parametrize(
    "text", ["DROP TABLE late", "DROP DATABASE shop", "RENAME TABLE late TO _late", "CREATE TABLE late (id INT)"]
)
def test_a_name_without_a_life_is_forgotten_when_its_table_goes(text: str) -> None:
    steps = steps_of(a_slice(statement(50, 0, text)), without_life=[LATE])
    assert (steps.gone, steps.missing) == ((LATE,), ())


def test_it_is_missed_again_when_it_comes_back() -> None:
    steps = steps_of(
        a_slice(statement(50, 0, "RENAME TABLE late TO _late"), mutations(60, before=1, name=LATE)),
        without_life=[LATE],
    )
    assert (steps.gone, steps.missing) == ((LATE,), (LATE,))


def test_names_without_a_life_that_are_swapped_are_asked_for() -> None:
    swap = statement(50, 0, "RENAME TABLE late TO tmp, later TO late, tmp TO later")
    steps = steps_of(a_slice(swap), without_life=[LATE, TableName("shop", "later")])
    assert {name.table for name, _ in steps.asked} == {"late", "later"}


def test_a_new_table_whose_columns_are_not_told_is_asked_for() -> None:
    steps = steps_of(a_slice(statement(50, 0, "CREATE TABLE late AS SELECT * FROM _other")))
    assert steps.asked == ((LATE, f"{FILE}:50: its columns come from a query, logged in statement format"),)
    assert [row.action for row in steps.history] == ["resnapshot asked"]


@pytest.mark.parametrize("like", [life(status="paused"), life(low=60)])
def test_a_table_like_one_whose_columns_are_not_known_then_is_asked_for(like: Life) -> None:
    steps = steps_of(a_slice(statement(50, 0, "CREATE TABLE late LIKE t")), lives=[like])
    assert steps.asked == ((LATE, f"{FILE}:50: the columns of shop.t aren't known here"),)


def test_a_table_like_one_has_not_the_columns_that_the_lake_keeps_of_it() -> None:
    kept = replace(SCHEMA, kept=(Column("old", "int"),))
    steps = steps_of(a_slice(statement(50, 0, "CREATE TABLE late LIKE t")), lives=[replace(life(), schema=kept)])
    assert [table.life.schema.kept for table in steps.tables if table.life.name == LATE] == [()]


@pytest.mark.parametrize(("has_xid", "status"), [(False, "resnapshot"), (True, "following")])
def test_a_temporary_table_of_an_earlier_batch_is_not_taken_for_the_table(has_xid: bool, status: Status) -> None:
    of_session = replace(statement(50, 0, "TRUNCATE t"), needs_session=True, has_xid=has_xid)
    table = table_of(steps_of(a_slice(of_session)))
    assert (table.life.status, bool(table.steps)) == (status, has_xid)


def test_sessions_of_another_file_are_others() -> None:
    made, emptied = statement(50, 0, "CREATE TEMPORARY TABLE t (a INT)"), statement(60, 1, "TRUNCATE t")
    assert table_of(steps_of(a_slice(made, emptied))).steps == []
    later = statement(4, 0, "TRUNCATE t", file="binlog.000002")
    assert [type(step) for step in table_of(steps_of(a_slice(made), a_slice(later, number=1))).steps] == [TruncateStep]


def test_history_has_every_statement_with_what_was_done() -> None:
    steps = steps_of(
        a_slice(
            statement(40, 0, "ALTER TABLE t ADD n INT"),
            statement(50, 1, "ALTER TABLE t DROP PARTITION p"),
            statement(60, 2, "CREATE USER u IDENTIFIED BY 'secret'"),
        )
    )
    assert [(row.offset, row.action) for row in steps.history] == [(40, "followed"), (50, "resnapshot asked")]
    assert '"n"' in (steps.history[0].after or "")
    assert "secret" not in str(steps.history)


def test_what_statements_say_of_an_excluded_column_is_nowhere_in_history_or_shapes() -> None:
    made = "CREATE TABLE a (id INT PRIMARY KEY, Hush VARCHAR(9) DEFAULT 'secret' COMMENT 'secret', v INT DEFAULT 7)"
    steps = steps_of(
        a_slice(
            statement(40, 0, made),
            statement(50, 1, "ALTER TABLE a ALTER hush SET DEFAULT 'secret', ADD w INT DEFAULT 8"),
            statement(60, 2, "ALTER TABLE t ADD hush INT DEFAULT 4711, ADD n INT DEFAULT 5"),
            statement(70, 3, "ALTER TABLE t ADD o INT DEFAULT 6"),
        ),
        excluded=["hush"],
    )
    assert {row.action for row in steps.history} == {"followed"}
    assert "secret" not in str(steps)
    assert "4711" not in str(steps)
    assert steps.history[1].statement == "ALTER TABLE a ALTER hush SET DEFAULT '***', ADD w INT DEFAULT 0"
    assert steps.history[3].statement == "ALTER TABLE t ADD o INT DEFAULT 6"
    defaults = {table.life.name: {c.name: c.default for c in table.life.schema.columns} for table in steps.tables}
    assert defaults[A] == {"id": None, "Hush": None, "v": "7", "w": "8"}
    assert defaults[T] == {"id": None, "v": None, "hush": None, "n": "5", "o": "6"}


def beside_of(batch_steps: BatchSteps, name: TableName = T) -> list[str]:
    """The steps of the tables beside a name's mirror, as the event's name or the paths of the files."""
    steps = next(table.steps for table in batch_steps.beside if table.name == name)
    return [
        step.what if isinstance(step, EventBeside) else " ".join(file.path for file in step.merge.staged)
        for step in steps
        if isinstance(step, EventBeside | RowsBeside)
    ]


LOG = (
    mutations(100), statement(150, 0, "ALTER TABLE t ADD n INT"), mutations(200, before=1),
    statement(250, 1, "TRUNCATE TABLE t"), statement(260, 2, "RENAME TABLE t TO a"), statement(270, 3, "DROP TABLE a"),
)  # fmt: skip


@pytest.mark.parametrize("status", ["following", "stopped", "paused", "resnapshot"])
@pytest.mark.parametrize("low", [4, 180, 9_000])
def test_what_is_beside_a_mirror_misses_nothing_whatever_becomes_of_the_mirror(status: Status, low: int) -> None:
    steps = steps_of(a_slice(*LOG), lives=[life(low=low, status=status)], beside=[T])
    assert beside_of(steps) == ["begin", "shop.t-100", "alter", "shop.t-200", "truncate", "rename"]
    assert all(table.name == T for table in steps.beside)


def test_renamed_columns_are_told_beside_a_mirror() -> None:
    steps = steps_of(a_slice(statement(150, 0, "ALTER TABLE t RENAME COLUMN v TO w, ADD n INT")), beside=[T])
    (renamed,) = [step.renamed for step in steps.beside[0].steps if isinstance(step, EventBeside) and step.renamed]
    assert renamed == (("v", "w"),)


def test_a_history_is_told_what_its_mirror_follows() -> None:
    steps = steps_of(
        a_slice(
            statement(110, 0, "ALTER TABLE t ADD n INT DEFAULT 7"),
            statement(120, 1, "RENAME TABLE t TO x, a TO t"),
            statement(130, 2, "DROP TABLE t"),
            statement(140, 3, "CREATE TABLE t (id INT PRIMARY KEY)"),
            statement(150, 4, "CREATE TABLE b (id INT)"),
        ),
        lives=[life(), life(A)],
        histories=[T, B],
    )
    _, alter, left, came, _, create = next(table.steps for table in steps.beside if table.name == T)
    assert [event.what for event in (alter, left, came, create) if isinstance(event, EventBeside)] == [
        "alter", "rename", "rename", "create",
    ]  # fmt: skip
    for event, born in ((alter, f"life of {T}"), (came, f"life of {A}")):
        assert isinstance(event, EventBeside)
        assert event.life is not None
        assert event.life.id == born
    assert isinstance(alter, EventBeside)
    assert alter.reshape is not None
    assert isinstance(left, EventBeside)
    assert (left.is_replaced, left.life) == (True, None)
    assert [row.reason for row in steps.history if row.table == "b"] == [
        f"{FILE}:150: it has no key, by which a history distinguishes rows"
    ]


def test_what_was_altered_before_a_snapshot_is_not_followed_by_a_history() -> None:
    steps = steps_of(a_slice(*LOG), lives=[life(low=180)], histories=[T])
    (alter,) = [step for step in steps.beside[0].steps if isinstance(step, EventBeside) and step.what == "alter"]
    assert alter.life is None


def test_nothing_is_collected_of_other_tables() -> None:
    assert steps_of(a_slice(*LOG), beside=[B]).beside == ()
