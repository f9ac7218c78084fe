"""The history of a table beside its mirror: SQL in, versions of rows out."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from binlake.delta import layout
from binlake.errors import TableError
from binlake.faults import FaultPoint
from history_played import Row, path_of, play, rows_in, with_history
from mirror import WAYS, Mirror, both_ways, by_spark_in_the_soak, on_mariadb, on_mysql, sync_alone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from servers import Server


def versions(mirror: Mirror, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Versions in the order of their beginnings: these columns, and whether they are current. No two overlap."""
    rows = sorted(rows_in(path_of(mirror, table)), key=lambda row: (row["from_position"], row["to_position"] or "z"))
    for row in rows:
        assert row["is_current"] == (row["to_position"] is None) == (row["valid_to"] is None)
        assert row["to_position"] is None or row["from_position"] < row["to_position"]
        assert row["valid_to"] is None or row["valid_from"] <= row["valid_to"]
    return [(*(row[name] for name in columns), row["is_current"]) for row in rows]


@pytest.fixture
def followed(mirror: Mirror) -> Mirror:
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    )
    with_history(mirror, "t")
    mirror.options["merge"] = WAYS[0]
    mirror.snapshot()
    return mirror


EVERY_WAY = (
    "INSERT INTO t VALUES (3, 'c')",
    "UPDATE t SET v = 'x' WHERE id < 3",
    "UPDATE t SET id = 9 WHERE id = 1",
    "DELETE FROM t WHERE id = 2",
    "INSERT INTO t VALUES (2, 'back')",
)
VERSIONS = [
    (1, "a", False), (2, "b", False), (3, "c", True), (1, "x", False), (2, "x", False), (9, "x", True),
    (2, "back", True),
]  # fmt: skip


@on_mysql
@both_ways
def test_every_version_of_a_row_is_a_row(followed: Mirror, way: dict[str, int]) -> None:
    followed.options["merge"] = way
    followed.execute(*EVERY_WAY)
    followed.sync()
    assert versions(followed, "t", "id", "v") == VERSIONS
    followed.execute("UPDATE t SET v = 'y' WHERE id = 3")
    followed.sync()
    assert versions(followed, "t", "id", "v") == [*VERSIONS[:2], (3, "c", False), *VERSIONS[3:], (3, "y", True)]
    followed.assert_equal("t")


@on_mysql
def test_no_spark_is_asked_for(followed: Mirror) -> None:
    followed.execute(*EVERY_WAY)
    sync_alone(followed)
    assert versions(followed, "t", "id", "v") == VERSIONS
    followed.execute("ALTER TABLE t ADD n INT, RENAME COLUMN v TO w", "UPDATE t SET n = 5 WHERE id = 3", "TRUNCATE t")
    sync_alone(followed)
    ended = [(*row[:-1], None, False) for row in VERSIONS]
    assert versions(followed, "t", "id", "w", "n") == [*ended, (3, "c", 5, False)]


@on_mysql
def test_a_transaction_makes_one_version_unless_each_mutation_does(followed: Mirror) -> None:
    transaction = ("BEGIN", "UPDATE t SET v = 'x' WHERE id = 1", "UPDATE t SET v = 'y' WHERE id = 1",
                   "INSERT INTO t VALUES (5, 'brief')", "DELETE FROM t WHERE id = 5", "COMMIT")  # fmt: skip
    followed.execute(*transaction)
    followed.sync()
    assert versions(followed, "t", "id", "v") == [(1, "a", False), (2, "b", True), (1, "y", True)]
    shutil.rmtree(path_of(followed, "t"))
    with_history(followed, "t", per="mutation")
    followed.execute("UPDATE t SET v = 'a' WHERE id = 1")
    followed.sync()
    followed.execute(*transaction)
    followed.sync()
    assert versions(followed, "t", "id", "v") == [
        (1, "a", False), (2, "b", True), (1, "x", False), (1, "y", True), (5, "brief", False),
    ]  # fmt: skip


@on_mysql
def test_columns_that_are_not_tracked_change_the_current_version(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT, seen INT)", "INSERT INTO t VALUES (1, 1, 1)")
    with_history(mirror, "t", **{"except": ["seen"]})
    mirror.options["merge"] = WAYS[0]
    mirror.snapshot()
    mirror.execute("UPDATE t SET seen = 2", "UPDATE t SET seen = 3, v = 2", "UPDATE t SET seen = 4")
    mirror.sync()
    assert versions(mirror, "t", "v", "seen") == [(1, 2, False), (2, 4, True)]


@on_mysql
@by_spark_in_the_soak
def test_columns_come_stay_and_get_other_names(followed: Mirror, way: dict[str, int]) -> None:
    followed.options["merge"] = way
    followed.execute("UPDATE t SET v = 'x' WHERE id = 1", "ALTER TABLE t ADD n INT NOT NULL DEFAULT 7")
    followed.sync()
    assert versions(followed, "t", "id", "v", "n") == [(1, "a", None, False), (2, "b", 7, True), (1, "x", 7, True)]
    followed.execute(
        "ALTER TABLE t RENAME COLUMN v TO w",
        "UPDATE t SET n = 8 WHERE id = 1",
        "ALTER TABLE t DROP w",
        "UPDATE t SET n = 9 WHERE id = 1",
        "ALTER TABLE t MODIFY n VARCHAR(9)",
        "UPDATE t SET n = 'nine' WHERE id = 1",
    )
    followed.sync()
    assert versions(followed, "t", "id", "w", "n__1", "n") == [
        (1, "a", None, None, False), (2, "b", 7, "7", True), (1, "x", 7, None, False), (1, "x", 8, None, False),
        (1, None, 9, "9", False), (1, None, None, "nine", True),
    ]  # fmt: skip
    followed.assert_equal("t")


@on_mysql
def test_statements_that_end_rows_close_versions(followed: Mirror) -> None:
    followed.execute("TRUNCATE TABLE t", "INSERT INTO t VALUES (1, 'again')", "DROP TABLE t")
    followed.sync()
    assert versions(followed, "t", "id", "v") == [(1, "a", False), (2, "b", False), (1, "again", False)]
    followed.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), n INT)", "INSERT INTO t VALUES (1, 'new', 1)")
    followed.sync()
    assert versions(followed, "t", "id", "v", "n")[-1] == (1, "new", 1, True)
    assert len(versions(followed, "t")) == 4


@on_mysql
def test_a_table_that_gets_another_name_ends_here_and_begins_there(mirror: Mirror) -> None:
    mirror.execute(*(f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(20))" for name in "tu"))
    mirror.execute("INSERT INTO t VALUES (1, 'of t')", "INSERT INTO u VALUES (1, 'of u'), (2, 'of u')")
    with_history(mirror, "t", "u", "x")
    mirror.options["merge"] = WAYS[0]
    mirror.snapshot()
    mirror.execute("RENAME TABLE t TO s, u TO t, s TO u", "UPDATE t SET v = 'new' WHERE id = 2")
    mirror.sync()
    assert versions(mirror, "t", "id", "v") == [
        (1, "of t", False), (2, "of u", False), (1, "of u", True), (2, "new", True),
    ]  # fmt: skip
    assert sorted(versions(mirror, "u", "id", "v")) == [(1, "of t", True), (1, "of u", False), (2, "of u", False)]
    mirror.execute("RENAME TABLE u TO x")
    mirror.sync()
    assert not any(row[-1] for row in versions(mirror, "u"))
    assert versions(mirror, "x", "id", "v") == [(1, "of t", True)]


@on_mysql
def test_rows_are_closed_where_a_table_that_is_not_mirrored_takes_the_name(followed: Mirror) -> None:
    followed.exclude = [f"{followed.database}.aside", f"{followed.database}.other"]
    followed.execute("CREATE TABLE other (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO other VALUES (7, 'other')")
    followed.execute("UPDATE t SET v = 'x' WHERE id = 1")
    followed.sync()
    followed.execute("RENAME TABLE t TO aside, other TO t", "INSERT INTO t VALUES (8, 'late')")
    followed.sync()
    assert versions(followed, "t", "id", "v")[:3] == [(1, "a", False), (2, "b", False), (1, "x", False)]
    followed.sync()
    followed.execute("INSERT INTO t VALUES (9, 'last')")
    followed.sync()
    assert {row for row in versions(followed, "t", "id", "v") if row[-1]} == {
        (7, "other", True), (8, "late", True), (9, "last", True),
    }  # fmt: skip
    followed.assert_equal("t")


@on_mysql
@pytest.mark.parametrize(("way", "lock"), [(WAYS[0], "flush"), (WAYS[1], "none")], ids=["in process", "by Spark"])
def test_a_snapshot_in_between_writes_only_what_differs(followed: Mirror, way: dict[str, int], lock: str) -> None:
    followed.execute("UPDATE t SET v = 'first' WHERE id = 1")
    followed.sync()
    followed.execute("UPDATE t SET v = 'before' WHERE id = 1")
    followed.options["merge"] = way
    followed.snapshot("*.t", lock=lock)
    followed.options["merge"] = WAYS[0]
    followed.execute("UPDATE t SET v = 'behind' WHERE id = 1")
    followed.sync()
    assert versions(followed, "t", "id", "v") == [
        (1, "a", False), (2, "b", True), (1, "first", False), (1, "before", False), (1, "behind", True),
    ]  # fmt: skip
    followed.execute("SET SESSION binlog_format = STATEMENT", "UPDATE t SET v = 'unseen' WHERE id = 2")
    followed.sync()
    followed.execute("INSERT INTO t VALUES (3, 'c')")
    followed.sync()
    assert versions(followed, "t", "id", "v")[1] == (2, "b", False)
    assert versions(followed, "t", "id", "v")[-2:] in (
        [(2, "unseen", True), (3, "c", True)], [(3, "c", True), (2, "unseen", True)]
    )  # fmt: skip
    followed.assert_equal("t")


@on_mysql
@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ("databricks", ["__START_AT", "__END_AT"]),
        ("fivetran", ["_fivetran_start", "_fivetran_end", "_fivetran_active"]),
        ("dbt", ["dbt_valid_from", "dbt_valid_to"]),
    ],
)
def test_columns_have_the_names_of_other_tools(mirror: Mirror, columns: str, names: list[str]) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    with_history(mirror, "t", columns=columns)
    mirror.options["merge"] = WAYS[0]
    mirror.snapshot()
    mirror.execute("UPDATE t SET v = 2")
    mirror.sync()
    former, latter = sorted(rows_in(path_of(mirror, "t")), key=lambda row: row["from_position"])
    assert [*former] == [*names, "from_position", "to_position", "id", "v"]
    assert former[names[1]] == latter[names[0]] is not None
    assert latter[names[1]] is None
    assert [row[names[2]] for row in (former, latter)] == [False, True] if len(names) > 2 else True


@on_mysql
def test_tables_that_can_have_no_history_are_refused(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE keyless (id INT)", "CREATE TABLE taken (id INT PRIMARY KEY, valid_from DATE)")
    with_history(mirror, "keyless", "taken", "later")
    for name, why in (("keyless", "it has no key"), ("taken", "'valid_from' has the name of one of the history's")):
        with pytest.raises(TableError, match=why) as refused:
            mirror.snapshot(f"*.{name}")
        assert "log: {}" in refused.value.remedy
    mirror.execute("CREATE TABLE fine (id INT PRIMARY KEY)")
    mirror.snapshot("*.fine")
    mirror.execute("CREATE TABLE later (id INT)", "INSERT INTO fine VALUES (1)")
    mirror.sync()
    mirror.assert_equal("fine")


@on_mariadb
def test_rows_of_xa_and_of_what_was_rolled_back(followed: Mirror) -> None:
    followed.execute("CREATE TABLE plain (id INT PRIMARY KEY) ENGINE = MyISAM")
    followed.execute("XA START 'x'", "UPDATE t SET v = 'held' WHERE id = 1", "XA END 'x'", "XA PREPARE 'x'")
    followed.execute("UPDATE t SET v = 'meanwhile' WHERE id = 2")
    followed.sync()
    followed.execute("XA COMMIT 'x'", "UPDATE t SET v = 'after' WHERE id = 1")
    followed.execute(
        "BEGIN", "INSERT INTO t VALUES (7, 'kept')", "SAVEPOINT s", "UPDATE t SET v = 'rolled back' WHERE id = 2",
        "INSERT INTO plain VALUES (1)", "ROLLBACK TO s", "COMMIT",
    )  # fmt: skip
    followed.sync()
    assert versions(followed, "t", "id", "v") == [
        (2, "b", False), (1, "a", False), (2, "meanwhile", True), (1, "held", False), (1, "after", True),
        (7, "kept", True),
    ]  # fmt: skip
    followed.assert_equal("t")


@on_mariadb
def test_a_system_versioned_table_has_the_versions_of_its_current_rows(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING", "INSERT INTO t VALUES (1, 1)")
    with_history(mirror, "t")
    mirror.snapshot()
    mirror.execute("UPDATE t SET v = 2", "DELETE FROM t", "INSERT INTO t VALUES (1, 3)")
    mirror.sync()
    assert versions(mirror, "t", "id", "v") == [(1, 1, False), (1, 2, False), (1, 3, True)]


@on_mysql
def test_a_history_begins_and_begins_again_where_its_mode_does(followed: Mirror) -> None:
    modes, followed.modes = followed.modes, []
    followed.execute("UPDATE t SET v = 'x' WHERE id = 1")
    followed.sync()
    followed.modes = modes
    followed.execute("UPDATE t SET v = 'y' WHERE id = 1")
    followed.sync()
    assert sorted(versions(followed, "t", "id", "v")) == [(1, "x", False), (1, "y", True), (2, "b", True)]
    followed.modes = []
    followed.execute("UPDATE t SET v = 'unseen' WHERE id = 1", "DELETE FROM t WHERE id = 2")
    followed.sync()
    followed.modes = modes
    followed.execute("UPDATE t SET v = 'z' WHERE id = 1")
    followed.sync()
    assert sorted(versions(followed, "t", "id", "v")) == [
        (1, "unseen", False), (1, "x", False), (1, "y", False), (1, "z", True), (2, "b", False),
    ]  # fmt: skip


def test_positions_of_a_log_that_began_anew_are_greater(
    new_server: type[Server], lake: Path, spark: SparkSession
) -> None:
    with new_server("mysql") as server:
        server.execute("CREATE DATABASE d")
        mirror = Mirror(server, "d", lake, spark, options={"merge": WAYS[0]})
        mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        with_history(mirror, "t")
        mirror.snapshot()
        mirror.execute(*(f"UPDATE t SET v = 'number {number}' WHERE id = 1" for number in range(30)))
        mirror.sync()
        before = versions(mirror, "t", "id", "v")
        server.execute("RESET BINARY LOGS AND GTIDS")
        mirror.execute("UPDATE t SET v = 'unseen' WHERE id = 2")
        mirror.snapshot("d.*")
        for change in ("new log", "newer"):
            mirror.execute(f"UPDATE t SET v = '{change}' WHERE id = 2")
            mirror.sync()
        of_ids = versions(mirror, "t", "id", "v")
        assert of_ids[-3:] == [(2, "unseen", False), (2, "new log", False), (2, "newer", True)]
        assert len(of_ids) == len(before) + 3
        newest = max(rows_in(path_of(mirror, "t")), key=lambda row: row["from_position"])
        assert newest["from_position"].startswith("a0000")
        mirror.assert_equal("t")


@on_mysql
def test_cut_off_at_one_point_after_another(followed: Mirror) -> None:
    """Each run continues with what the one before left, and is cut off at the next commit or before it."""
    points: tuple[FaultPoint, ...] = (
        "data file written",
        "epoch committed",
        "schema evolved",
        "table merged",
        "merged",
    )
    followed.execute(*EVERY_WAY, "ALTER TABLE t ADD n INT NOT NULL DEFAULT 5", "INSERT INTO t VALUES (5, 'e', 6)")
    assert followed.sync_cut_off_at_each(points, (WAYS[0], WAYS[0], WAYS[1])) == len(points)
    assert versions(followed, "t", "id", "v") == [*VERSIONS, (5, "e", True)]
    followed.execute("ALTER TABLE t MODIFY n VARCHAR(9)", "UPDATE t SET n = 'x' WHERE id = 5")
    followed.snapshot("*.t")
    assert followed.sync_cut_off_at_each(points, WAYS[:1]) >= 2
    of_ids = versions(followed, "t", "id", "n")
    assert [row for row in of_ids if row[0] == 5][-1] == (5, "x", True)
    assert len([row for row in of_ids if row[-1]]) == 4
    followed.assert_equal("t")


@on_mysql
def test_the_upkeep_puts_small_files_together(followed: Mirror) -> None:
    for number in range(6):
        followed.execute(f"UPDATE t SET v = 'number {number}' WHERE id = 1")
        followed.sync()
    before = versions(followed, "t", "id", "v")
    followed.maintain()
    assert len(DeltaTable(path_of(followed, "t")).file_uris()) == 1
    followed.execute("UPDATE t SET v = 'behind' WHERE id = 1")
    followed.sync()
    assert versions(followed, "t", "id", "v") == [*before[:-1], (*before[-1][:-1], False), (1, "behind", True)]


@on_mysql
def test_versions_in_a_file_that_was_written_lately_are_marked_and_it_is_written_anew_later(
    followed: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    for floor in ("_TINY", "_TINY_OF_MANY"):
        monkeypatch.setattr(layout, floor, 0)
    for row, bytes_per_second, marked in ((1, 0, 1), (2, 1e9, 0)):
        monkeypatch.setattr(layout, "_PER_SECOND", bytes_per_second)
        followed.execute(f"UPDATE t SET v = 'behind' WHERE id = {row}")
        sync_alone(followed)
        vectors = DeltaTable(path_of(followed, "t")).deletion_vectors().read_all()
        assert sum(not kept for vector in vectors["selection_vector"].to_pylist() for kept in vector) == marked
    closed, current = [(1, "a", False), (2, "b", False)], [(1, "behind", True), (2, "behind", True)]
    assert versions(followed, "t", "id", "v") == [*closed, *current]
    followed.assert_equal("t")


@on_mysql
def test_the_history_goes_on_where_the_mirror_stands_still(followed: Mirror) -> None:
    followed.execute("UPDATE t SET v = 'x' WHERE id = 1")
    followed.sync()
    followed.spark.sql(f"UPDATE delta.`{followed.path('t')}` SET v = 'changed by others'")
    followed.execute("UPDATE t SET v = 'y' WHERE id = 1")
    followed.sync()
    followed.execute("UPDATE t SET v = 'z' WHERE id = 1")
    followed.sync()
    expected = [(1, "a", False), (2, "b", True), (1, "x", False), (1, "y", False), (1, "z", True)]
    assert versions(followed, "t", "id", "v") == expected
    followed.snapshot("*.t")
    followed.execute("DELETE FROM t WHERE id = 2")
    followed.sync()
    assert versions(followed, "t", "id", "v") == [expected[0], (2, "b", False), *expected[2:]]


@on_mariadb
def test_random_transactions_make_the_history_that_their_log_tells(mirror: Mirror) -> None:
    play(mirror, 7, 600, 6)


@pytest.mark.soak
@on_mysql
def test_random_transactions_make_versions_of_all_their_mutations(mirror: Mirror) -> None:
    play(mirror, 8, 300, 3, per="mutation")


@on_mysql
def test_the_queries_of_the_page_say_what_they_promise(mirror: Mirror) -> None:
    page = (Path(__file__).parents[2] / "sql" / "MODES.md").read_text()
    queries = page.partition("```sql\n-- as of a day")[2].partition("```")[0]
    as_of, per_day, first = queries.replace("shop.orders__history", "history").split(";")[:3]
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, status VARCHAR(9))", "INSERT INTO t VALUES (1, 'new')")
    with_history(mirror, "t")
    mirror.options["merge"] = WAYS[0]
    mirror.snapshot()
    mirror.execute("UPDATE t SET status = 'paid'", "INSERT INTO t VALUES (2, 'new')", "DELETE FROM t WHERE id = 1")
    mirror.sync()
    history = QueryBuilder().register("history", DeltaTable(path_of(mirror, "t")))

    def ask(query: str) -> list[Row]:
        return pa.table(history.execute(query).read_all()).to_pylist()

    day = max(row["valid_from"] for row in rows_in(path_of(mirror, "t"))).date()
    tomorrow = as_of.replace("2026-11-01", str(day + timedelta(days=1)))
    assert [(row["id"], row["status"]) for row in ask(tomorrow)] == [(2, "new")]
    assert ask(as_of.replace("2026-11-01", "2000-01-01")) == []
    assert sum(row["versions"] for row in ask(per_day)) == 3
    assert sorted((row["id"], row["status"]) for row in ask(first)) == [(1, "new"), (2, "new")]
