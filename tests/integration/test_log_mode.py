"""The log of a table beside its mirror: SQL in, rows out."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from binlake import pipeline
from binlake.errors import TableError, UsageError
from binlake.faults import FaultPoint
from binlake.lake.opened_lake import open_lake
from binlake.phases.replay import ReplayRequest
from binlake.records import registrations
from binlake.records.status import read_status
from binlake.report import Report
from binlake.schema.table import TableName
from mirror import WAYS, by_spark_in_the_soak, in_the_soak, on_mariadb, on_mysql, sync_alone

if TYPE_CHECKING:
    from pathlib import Path

    from mirror import Mirror

Row = tuple[Any, ...]


def with_log(mirror: Mirror, *tables: str) -> None:
    mirror.modes = [{"tables": f"{mirror.database}.{table}", "log": {}} for table in tables]


def log_of(mirror: Mirror, table: str) -> DeltaTable:
    return DeltaTable(mirror.config.beside_path(TableName(mirror.database, table), "log"))


def rows_of(table: DeltaTable) -> list[dict[str, Any]]:
    stored = QueryBuilder().register("log", table).execute("SELECT * FROM log").read_all()
    return pa.table(stored).to_pylist()


def logged(mirror: Mirror, table: str, *columns: str) -> list[Row]:
    """The rows of a log in the order of their positions: the operation, and some columns before and after."""
    rows = rows_of(log_of(mirror, table))
    names = [f"{image}_{column}" for image in ("before", "after") for column in columns]
    rows.sort(key=lambda row: row["position"])
    assert len({row["position"] for row in rows}) == len(rows)
    return [(row["operation"], *(row[name] for name in names)) for row in rows]


@pytest.fixture
def followed(mirror: Mirror) -> Mirror:
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    )
    with_log(mirror, "t")
    mirror.options["merge"] = WAYS[0]
    mirror.snapshot()
    return mirror


EVERY_WAY = (
    "INSERT INTO t VALUES (3, 'c')",
    "UPDATE t SET v = 'x' WHERE id < 3",
    "UPDATE t SET id = 9 WHERE id = 1",
    "DELETE FROM t WHERE id = 2",
)
MUTATIONS = [
    ("insert", None, None, 3, "c"),
    ("update", 1, "a", 1, "x"),
    ("update", 2, "b", 2, "x"),
    ("update", 1, "x", 9, "x"),
    ("delete", 2, "x", None, None),
]


BY_TASKS = {"without_spark_mb": 0.000001}
"""A setting of ``merge`` under which all that is staged is too much for the process itself."""


@on_mysql
@pytest.mark.parametrize("way", [*WAYS, BY_TASKS], ids=["in process", "by Spark", "by Spark's tasks"])
def test_every_mutation_is_a_row(followed: Mirror, way: dict[str, float]) -> None:
    followed.options["merge"] = way
    followed.execute(*EVERY_WAY)
    followed.sync()
    assert logged(followed, "t", "id", "v") == MUTATIONS
    followed.execute("INSERT INTO t VALUES (4, 'd')")
    followed.sync()
    assert logged(followed, "t", "id", "v") == [*MUTATIONS, ("insert", None, None, 4, "d")]
    by_spark = "Spark" in log_of(followed, "t").history(1)[0]["engineInfo"]
    assert by_spark == (not way["without_spark_mb"])
    followed.assert_equal("t")


@pytest.mark.parametrize(
    ("server", "way"),
    [("mysql", WAYS[0]), ("mariadb", WAYS[0]), ("mariadb", WAYS[1]), *in_the_soak(("mysql", WAYS[1]))],
    indirect=["server"],
    ids=["mysql-in process", "mariadb-in process", "mariadb-by Spark", "mysql-by Spark"],
)
def test_a_log_without_a_mirror(mirror: Mirror, way: dict[str, int]) -> None:
    kind = "UUID" if mirror.server.kind == "mariadb" else "JSON"
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "CREATE TABLE beside (id INT PRIMARY KEY)",
    )
    mirror.modes = [{"tables": f"{mirror.database}.t", "log": {}, "mirror": False}]
    mirror.options["merge"] = way
    mirror.snapshot()
    mirror.execute(
        *EVERY_WAY,
        f"ALTER TABLE t MODIFY v VARCHAR(40), ADD n BIGINT DEFAULT 4, ADD u {kind}",
        "ALTER TABLE t MODIFY n VARCHAR(9)",
        "INSERT INTO t (id, v) VALUES (7, 'z')",
    )
    mirror.execute("TRUNCATE t", "INSERT INTO beside VALUES (1)")
    mirror.sync()
    inserted = ("insert", None, None, 7, "z")
    assert logged(mirror, "t", "id", "v") == [*MUTATIONS, inserted, ("truncate", None, None, None, None)]
    assert rows_of(DeltaTable(mirror.path("t"))) == []
    names = {f"{mirror.database}.beside", f"{mirror.database}.t__log"}
    assert set(open_lake(mirror.config).tables) == names
    mirror.options["maintain"] = {"history_hours": 24}  # commits the retention to the mirror, too
    mirror.maintain()
    assert set(open_lake(mirror.config).tables) == names
    assert [(str(table.name), table.equal) for table in mirror.verify().tables] == [
        (f"{mirror.database}.beside", True), (f"{mirror.database}.t__log", True),
    ]  # fmt: skip
    with pytest.raises(UsageError, match="t has no mirror") as refused:
        pipeline.replay(mirror.config, lambda _: mirror.spark, Report(), ReplayRequest([f"{mirror.database}.t"]))
    assert f"{mirror.database}.t__log WHERE batch <= 1" in refused.value.remedy

    mirror.execute("INSERT INTO t (id, v) VALUES (8, 'y')")
    mirror.modes = [{"tables": f"{mirror.database}.t", "log": {}}]
    mirror.sync()
    mirror.assert_equal("t")
    mirror.execute("INSERT INTO beside VALUES (2)")
    mirror.sync()
    assert set(open_lake(mirror.config).tables) == {*names, f"{mirror.database}.t"}
    mirror.modes = [{"tables": f"{mirror.database}.t", "log": {}, "mirror": False}]
    mirror.sync()
    mirror.execute("INSERT INTO beside VALUES (3)")
    mirror.sync()
    assert rows_of(DeltaTable(mirror.path("t"))) == []
    assert set(open_lake(mirror.config).tables) == names
    assert logged(mirror, "t", "id", "v")[-1] == ("insert", None, None, 8, "y")


@on_mysql
def test_logs_are_all_that_a_snapshot_brings(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    mirror.modes = [{"tables": f"{mirror.database}.t", "log": {}, "mirror": False}]
    mirror.snapshot()
    mirror.execute(*EVERY_WAY)
    mirror.sync()
    assert logged(mirror, "t", "id", "v") == MUTATIONS
    assert set(open_lake(mirror.config).tables) == {f"{mirror.database}.t__log"}


@on_mysql
def test_no_spark_is_asked_for(followed: Mirror) -> None:
    followed.execute(*EVERY_WAY)
    sync_alone(followed)
    rows = rows_of(log_of(followed, "t"))
    assert {row["batch"] for row in rows} == {1}
    assert all(row["gtid"] is None or ":" in row["gtid"] for row in rows)
    assert all(row["committed"].tzinfo for row in rows)
    followed.execute("INSERT INTO t VALUES (4, 'd')", "ALTER TABLE t ADD n INT", "INSERT INTO t VALUES (5, 'e', 5)")
    sync_alone(followed)
    assert logged(followed, "t", "id", "n")[-2:] == [("insert", None, None, 4, None), ("insert", None, None, 5, 5)]


@on_mysql
@by_spark_in_the_soak
def test_columns_come_stay_and_get_other_names(followed: Mirror, way: dict[str, int]) -> None:
    followed.options["merge"] = way
    followed.execute(
        "INSERT INTO t VALUES (3, 'c')",
        "ALTER TABLE t ADD n INT DEFAULT 7, RENAME COLUMN v TO w",
        "UPDATE t SET w = 'renamed' WHERE id = 3",
        "ALTER TABLE t DROP w",
        "INSERT INTO t VALUES (4, 4)",
        "ALTER TABLE t MODIFY n VARCHAR(9), ADD w INT",
        "INSERT INTO t VALUES (5, 'five', 50)",
    )
    followed.sync()
    assert logged(followed, "t", "id", "w__1", "n__1", "n", "w") == [
        ("insert", None, None, None, None, None, 3, "c", None, None, None),
        ("update", 3, "c", 7, None, None, 3, "renamed", 7, None, None),
        ("insert", None, None, None, None, None, 4, None, 4, None, None),
        ("insert", None, None, None, None, None, 5, None, None, "five", 50),
    ]


@on_mysql
@by_spark_in_the_soak
def test_statements_that_end_rows_are_rows(followed: Mirror, way: dict[str, int]) -> None:
    followed.options["merge"] = way
    followed.execute(
        "TRUNCATE TABLE t",
        "INSERT INTO t VALUES (1, 'again')",
        "RENAME TABLE t TO u",
        "CREATE TABLE t (id INT, x INT)",
        "INSERT INTO t VALUES (1, 1)",
        "DROP TABLE t",
    )
    followed.sync()
    assert [row[0] for row in logged(followed, "t")] == ["truncate", "insert", "rename", "insert", "drop"]
    details = [row["detail"] for row in rows_of(log_of(followed, "t")) if row["operation"] == "rename"]
    assert details == [f"to {followed.database}.u"]


@on_mariadb
@by_spark_in_the_soak
def test_rows_of_xa_and_of_what_was_rolled_back(followed: Mirror, way: dict[str, int]) -> None:
    followed.options["merge"] = way
    followed.execute("CREATE TABLE plain (id INT) ENGINE = MyISAM")
    followed.execute(
        "XA START 'x'", "INSERT INTO t VALUES (5, 'held')", "INSERT INTO t VALUES (6, 'held')", "XA END 'x'",
        "XA PREPARE 'x'",
    )  # fmt: skip
    followed.execute("INSERT INTO t VALUES (3, 'before')")
    followed.sync()
    assert logged(followed, "t", "id") == [("insert", None, 3)]
    followed.execute("XA COMMIT 'x'")
    followed.execute(
        "BEGIN", "INSERT INTO t VALUES (7, 'kept')", "SAVEPOINT s", "INSERT INTO t VALUES (8, 'rolled back')",
        "INSERT INTO plain VALUES (1)", "ROLLBACK TO s", "COMMIT",
    )  # fmt: skip
    followed.sync()
    assert logged(followed, "t", "id") == [("insert", None, number) for number in (3, 5, 6, 7)]
    held = [row for row in rows_of(log_of(followed, "t")) if row["after_v"] == "held"]
    assert {row["batch"] for row in held} == {2}
    followed.assert_equal("t")


@on_mysql
def test_a_snapshot_in_between_neither_skips_nor_repeats(followed: Mirror) -> None:
    followed.execute("INSERT INTO t VALUES (3, 'first')")
    followed.sync()
    followed.execute("INSERT INTO t VALUES (4, 'before the snapshot')")
    followed.snapshot("*.t")
    followed.execute("INSERT INTO t VALUES (5, 'behind it')")
    followed.sync()
    assert logged(followed, "t", "id") == [("insert", None, number) for number in (3, 4, 5)]
    followed.snapshot()
    followed.execute("INSERT INTO t VALUES (6, 'last')")
    followed.sync()
    assert [row[2] for row in logged(followed, "t", "id")] == [3, 4, 5, 6]
    followed.assert_equal("t")


@on_mysql
def test_a_mode_that_was_off_for_a_while_says_so(followed: Mirror) -> None:
    followed.execute("INSERT INTO t VALUES (3, 'logged')")
    followed.sync()
    modes, followed.modes = followed.modes, []
    followed.execute("INSERT INTO t VALUES (4, 'not logged')")
    followed.sync()
    followed.modes = modes
    followed.execute("INSERT INTO t VALUES (5, 'logged again')")
    followed.sync()
    assert logged(followed, "t", "id") == [("insert", None, 3), ("gap", None, None), ("insert", None, 5)]


@on_mysql
def test_what_the_server_keeps_to_itself_stays_there(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, secret VARCHAR(9), d DATE)")
    with_log(mirror, "t")
    mirror.options |= {"invalid_dates": "keep_text"}
    left_out = [f"{mirror.database}.t.secret"]
    mirror.options["tables"] = {
        "include": [f"{mirror.database}.*"], "exclude_columns": left_out, "modes": mirror.modes
    }  # fmt: skip
    mirror.snapshot()
    mirror.execute("SET SESSION sql_mode = ''", "INSERT INTO t VALUES (1, 'hidden', '0000-00-00')")
    mirror.sync()
    (row,) = rows_of(log_of(mirror, "t"))
    assert "after_secret" not in row
    assert (row["after_d"], row["after_d__text"]) == (None, "0000-00-00")


@on_mysql
def test_tables_without_a_key_and_with_odd_names(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (`a b` INT, `c;d` VARCHAR(9))")
    with_log(mirror, "t")
    mirror.options["merge"] = WAYS[0]
    mirror.snapshot()
    mirror.execute("INSERT INTO t VALUES (1, 'x'), (1, 'x')", "DELETE FROM t LIMIT 1")
    mirror.sync()
    assert logged(mirror, "t", "a b", "c;d") == [
        ("insert", None, None, 1, "x"), ("insert", None, None, 1, "x"), ("delete", 1, "x", None, None),
    ]  # fmt: skip


@on_mariadb
@by_spark_in_the_soak
def test_values_are_rendered_as_in_the_mirror(mirror: Mirror, way: dict[str, int]) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, u UUID, n INT, twice INT AS (n * 2) STORED)")
    with_log(mirror, "t")
    mirror.options["merge"] = way
    mirror.snapshot()
    mirror.execute("INSERT INTO t (id, u, n) VALUES (1, '123e4567-e89b-12d3-a456-426655440000', 4)")
    mirror.execute("UPDATE t SET n = 5")
    mirror.sync()
    text = "123e4567-e89b-12d3-a456-426655440000"
    assert logged(mirror, "t", "u", "twice") == [("insert", None, None, text, 8), ("update", text, 8, text, 10)]
    mirror.assert_equal("t")


@on_mysql
def test_rows_that_changed_without_row_events_are_a_gap(followed: Mirror) -> None:
    followed.execute("SET SESSION binlog_format = STATEMENT", "UPDATE t SET v = 'unseen'")
    followed.execute("INSERT INTO t VALUES (3, 'c')")
    followed.sync()
    assert [row[0] for row in logged(followed, "t")] == ["gap", "insert"]


@on_mysql
def test_a_table_of_the_logs_name_is_refused(followed: Mirror) -> None:
    followed.execute("INSERT INTO t VALUES (3, 'c')", "CREATE TABLE t__log (id INT PRIMARY KEY)")
    followed.execute("CREATE TABLE u (id INT PRIMARY KEY)", "RENAME TABLE u TO t__log2, t__log2 TO u")
    followed.sync()
    assert logged(followed, "t", "id") == [("insert", None, 3)]
    with pytest.raises(TableError, match=r"t__log: its place in the lake is that of the log of .*\.t,"):
        followed.snapshot()
    followed.execute("INSERT INTO t VALUES (4, 'd')")
    followed.sync()
    assert logged(followed, "t", "id") == [("insert", None, 3), ("insert", None, 4)]


@on_mysql
def test_the_log_of_a_lake_that_is_gone_is_refused(followed: Mirror, tmp_path: Path) -> None:
    for number in (3, 4):
        followed.execute(f"INSERT INTO t VALUES ({number}, 'x')")
        followed.sync()
    shutil.rmtree(followed.config.metadata_path(""))
    pipeline.bootstrap(followed.config, followed.origin, lambda _: followed.spark, Report(), begin=True)
    before = logged(followed, "t", "id")
    followed.execute("INSERT INTO t VALUES (5, 'x')")
    followed.sync()
    (problem,) = read_status(followed.config).beside
    assert "it was written before the lake was begun again" in problem.problem
    assert logged(followed, "t", "id") == before
    followed.assert_equal("t")


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
    followed.execute(*EVERY_WAY, "ALTER TABLE t ADD n INT", "INSERT INTO t VALUES (5, 'e', 5)", "TRUNCATE TABLE t")
    assert followed.sync_cut_off_at_each(points, (WAYS[0], WAYS[0], WAYS[1])) == len(points)
    assert logged(followed, "t", "id", "v") == [*MUTATIONS, ("insert", None, None, 5, "e"), ("truncate", *[None] * 4)]
    followed.assert_equal("t")


@on_mysql
def test_the_upkeep_puts_small_files_together(followed: Mirror) -> None:
    for number in range(3, 9):
        followed.execute(f"INSERT INTO t VALUES ({number}, 'x')")
        followed.sync()
    before = logged(followed, "t", "id")
    assert len(log_of(followed, "t").file_uris()) == 6
    report = followed.maintain()
    assert [table.table for table in report.tables] == [f"{followed.database}.t", f"{followed.database}.t__log"]
    assert len(log_of(followed, "t").file_uris()) == 1
    assert logged(followed, "t", "id") == before


@on_mysql
def test_the_log_goes_on_where_the_mirror_stands_still(followed: Mirror) -> None:
    followed.execute("INSERT INTO t VALUES (3, 'c')")
    followed.sync()
    followed.spark.sql(f"UPDATE delta.`{followed.path('t')}` SET v = 'changed by others'")
    followed.execute("INSERT INTO t VALUES (4, 'd')")
    stopped = followed.sync()
    assert [table.status for table in stopped.tables] == ["stopped"]
    followed.execute("INSERT INTO t VALUES (5, 'e')")
    followed.sync()
    assert [row[2] for row in logged(followed, "t", "id")] == [3, 4, 5]
    followed.snapshot("*.t")
    followed.execute("INSERT INTO t VALUES (6, 'f')")
    followed.sync()
    assert [row[2] for row in logged(followed, "t", "id")] == [3, 4, 5, 6]
    followed.assert_equal("t")


@on_mysql
def test_nothing_is_written_over_a_table_that_is_there(followed: Mirror) -> None:
    path = followed.config.beside_path(TableName(followed.database, "t"), "log")
    write_deltalake(path, pa.table({"somebody": ["else's"]}))
    followed.execute("INSERT INTO t VALUES (3, 'c')")
    followed.sync()
    (problem,) = read_status(followed.config).beside
    assert "is there, and isn't the log of" in problem.problem
    assert DeltaTable(path).to_pyarrow_table().to_pydict() == {"somebody": ["else's"]}
    followed.assert_equal("t")
    shutil.rmtree(path)
    followed.execute("INSERT INTO t VALUES (4, 'd')")
    followed.sync()
    assert read_status(followed.config).beside == ()
    assert logged(followed, "t", "id") == [("insert", None, 4)]


@on_mysql
def test_a_log_has_a_name_in_the_catalog(followed: Mirror) -> None:
    followed.options["catalog"] = {"metastore": str(followed.folder / "metastore")}
    followed.execute("INSERT INTO t VALUES (3, 'c')")
    followed.sync()
    config = followed.config
    put = registrations.changes(config, config.named_catalogs[0], followed.metadata).put
    assert {(entry.name, entry.path) for entry in put} == {
        ("t", followed.path("t")), ("t__log", f"{followed.path('t')}__log"),
    }  # fmt: skip
