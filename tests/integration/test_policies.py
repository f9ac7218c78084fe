"""What the YAML's policies make of statements that don't only change rows, and what schema changes cost."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from deltalake import DeltaTable

from binlake.cli import command_line
from binlake.delta import layout
from binlake.errors import TableError
from binlake.records import ddl_history
from binlake.schema.table import TableName
from mirror import WAYS, Mirror, in_the_soak, on_mariadb, on_mysql, sync_alone


def fields(mirror: Mirror, table: str) -> list[str]:
    return [field.name for field in DeltaTable(mirror.path(table)).schema().fields]


def rows(mirror: Mirror, table: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in mirror.spark.read.format("delta").load(mirror.path(table)).orderBy("id").collect()]


@on_mariadb
def test_a_dropped_column_can_be_kept(mirror: Mirror) -> None:
    mirror.options = {"policies": {"on_drop_column": "keep"}}
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)", "INSERT INTO t VALUES (1, 10, 100), (2, 20, 200)"
    )
    mirror.snapshot()
    mirror.execute("ALTER TABLE t DROP a", "INSERT INTO t VALUES (3, 300)", "UPDATE t SET b = 201 WHERE id = 2")
    mirror.sync()
    assert fields(mirror, "t") == ["id", "b", "a"]
    assert rows(mirror, "t") == [(1, 100, 10), (2, 201, 20), (3, 300, None)]
    assert mirror.verify().equal
    mirror.execute(
        "ALTER TABLE t ADD a VARCHAR(9) DEFAULT 'new'", "ALTER TABLE t MODIFY b BIGINT", "DELETE FROM t WHERE id = 1"
    )
    mirror.sync()
    assert fields(mirror, "t") == ["id", "b", "a", "a__dropped"]
    assert rows(mirror, "t") == [(2, 201, "new", 20), (3, 300, "new", None)]
    assert mirror.verify().equal


UNTOLD = "v DATETIME AS (FROM_UNIXTIME(n)) VIRTUAL"
"""The log has it in the time zone of whoever wrote the row."""


@on_mysql
def test_the_lake_goes_without_a_column_that_the_log_does_not_tell(
    mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.execute(f"CREATE TABLE t (id INT PRIMARY KEY, n INT, {UNTOLD})", "INSERT INTO t (id, n) VALUES (1, 1)")
    mirror.snapshot()
    assert "VIRTUAL column 'v' isn't mirrored: its expression calls FROM_UNIXTIME" in capsys.readouterr().err
    mirror.execute(
        f"CREATE TABLE u (id INT PRIMARY KEY, n INT, {UNTOLD})",
        "SET time_zone = '-03:00'",
        "INSERT INTO t (id, n) VALUES (2, 2)",
        "INSERT INTO u (id, n) VALUES (2, 2)",
    )
    mirror.sync()
    assert fields(mirror, "t") == fields(mirror, "u") == ["id", "n"]
    assert mirror.verify().equal
    (created,) = mirror.history()
    assert "VIRTUAL column 'v' isn't mirrored" in created["reason"]


@on_mariadb
def test_or_the_table_is_not_mirrored(mirror: Mirror) -> None:
    mirror.options = {"policies": {"on_untold_column": "stop"}}
    mirror.execute(
        f"CREATE TABLE t (id INT PRIMARY KEY, n INT, {UNTOLD})",
        "CREATE TABLE u (id INT PRIMARY KEY, n INT)",
    )
    with pytest.raises(TableError, match="VIRTUAL column 'v'"):
        mirror.snapshot()
    mirror.execute(f"ALTER TABLE u ADD {UNTOLD}", f"CREATE TABLE w (id INT PRIMARY KEY, n INT, {UNTOLD})")
    mirror.sync()
    assert mirror.watermark("u")["status"] == "stopped"
    assert "(on_untold_column: stop)" in mirror.watermark("u")["reason"]
    assert mirror.watermark("w")["status"] == "missing"
    assert {row["action"] for row in mirror.history()} == {"stopped"}


@on_mariadb
@pytest.mark.parametrize("policy", ["keep", "drop"])
def test_a_dropped_table_is_kept_and_marked_or_goes(mirror: Mirror, policy: str) -> None:
    mirror.options = {"policies": {"on_drop_table": policy}}
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.snapshot()
    mirror.execute("DROP TABLE t")
    mirror.sync()
    assert mirror.watermark("t")["status"] == "dropped"
    assert Path(mirror.path("t")).exists() == (policy == "keep")
    mirror.execute("CREATE TABLE t (k INT PRIMARY KEY)", "INSERT INTO t VALUES (7)")
    mirror.sync()
    mirror.assert_equal("t")


@on_mariadb
def test_of_a_table_made_again_and_again_only_the_last_life_is_merged(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.snapshot()
    before = mirror.version("t")
    lives = [
        ("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY)", f"INSERT INTO t VALUES ({number})")
        for number in range(300)
    ]
    mirror.execute("INSERT INTO t VALUES (2)", *[statement for life in lives for statement in life])
    mirror.sync_cut_off(random.Random(), 1.0)
    mirror.assert_equal("t")
    mirror.assert_each_once("t")
    assert mirror.version("t") - before <= 3  # a claim, the CREATE, the rows
    assert len(mirror.history()) == 600
    assert [row["status"] for row in mirror.metadata.read("watermarks")] == ["following"]
    assert len(mirror.metadata.read("schemas")) == 2


@on_mysql
@pytest.mark.parametrize("policy", ["keep", "drop"])
def test_of_tables_made_and_dropped_between_two_runs_the_last_of_a_name_is_kept(mirror: Mirror, policy: str) -> None:
    mirror.options = {"policies": {"on_drop_table": policy}}
    mirror.follow_from_here()
    for batch in range(2):
        mirror.execute(
            *("CREATE TABLE t (id INT PRIMARY KEY)", f"INSERT INTO t VALUES ({batch})", "DROP TABLE t"),
            *("CREATE TABLE t (id INT PRIMARY KEY)", f"INSERT INTO t VALUES ({10 + batch})", "DROP TABLE t"),
        )
        mirror.sync_cut_off(random.Random(), 1.0)
        marks = [row["status"] for row in mirror.metadata.read("watermarks")]
        if policy == "keep":
            assert (rows(mirror, "t"), marks) == ([(10 + batch,)], ["dropped"])
        else:
            assert (Path(mirror.path("t")).exists(), marks) == (False, [])


@on_mysql
def test_a_ghost_table_leaves_nothing_behind(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.snapshot()
    mirror.execute("CREATE TABLE _t_gho LIKE t", "INSERT INTO _t_gho VALUES (1)")
    mirror.sync()
    ghost = Path(mirror.config.table_path(TableName(mirror.database, "_t_gho")))
    assert ghost.exists()
    mirror.execute("DROP TABLE _t_gho")
    mirror.sync()
    assert not ghost.exists()


@on_mariadb
def test_a_renamed_tables_old_path_says_where_it_went(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.snapshot()
    mirror.execute("RENAME TABLE t TO u")
    mirror.sync()
    newest = DeltaTable(mirror.path("t")).history(1)[0]
    assert json.loads(newest["userMetadata"])["binlake"]["moved_to"] == f"{mirror.database}.u"
    assert rows(mirror, "t") == []
    mirror.assert_equal("u")


@on_mysql
def test_a_rename_or_drop_writes_no_data_file(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)",
        "SET SESSION cte_max_recursion_depth = 1000000",
        "INSERT INTO t WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000000)"
        " SELECT n, n, n FROM s",
    )
    mirror.snapshot()
    before = mirror.version("t")
    mirror.execute("ALTER TABLE t RENAME COLUMN a TO aa", "ALTER TABLE t DROP b", "ALTER TABLE t MODIFY aa INT FIRST")
    mirror.sync()
    for version in range(before + 1, mirror.version("t") + 1):
        log = Path(mirror.path("t")) / "_delta_log" / f"{version:020}.json"
        kinds = {kind for line in log.read_text().splitlines() for kind in json.loads(line)}
        assert kinds <= {"commitInfo", "metaData", "protocol", "txn"}
    assert fields(mirror, "t") == ["aa", "id"]
    assert mirror.spark.read.format("delta").load(mirror.path("t")).where("aa = id").count() == 1_000_000


@on_mysql
def test_types_can_be_widened_without_a_rewrite(mirror: Mirror) -> None:
    mirror.options = {"type_widening": True}
    mirror.execute(
        "CREATE TABLE t (id SMALLINT PRIMARY KEY, n TINYINT, u INT, d DECIMAL(6,2), f FLOAT, day DATE, v VARCHAR(9))",
        "INSERT INTO t VALUES (1, -128, 7, -9999.99, 1.1, '2024-02-29', 'v'), (2, NULL, NULL, NULL, NULL, NULL, NULL)",
    )
    mirror.snapshot()
    before = {file.partition("/")[2] for file in DeltaTable(mirror.path("t")).file_uris()}
    mirror.execute(
        "ALTER TABLE t MODIFY id BIGINT, MODIFY n INT, MODIFY u DECIMAL(14,2), MODIFY d DECIMAL(20,6), MODIFY f DOUBLE,"
        " CHANGE day moment DATETIME, DROP v",
        "INSERT INTO t VALUES (9223372036854775807, 2147483647, 1.25, 0.123456, 1e300, '2024-01-01 12:00:00')",
    )
    mirror.sync()
    assert before <= {file.partition("/")[2] for file in DeltaTable(mirror.path("t")).file_uris()}
    assert mirror.verify().equal
    assert fields(mirror, "t") == ["id", "n", "u", "d", "f", "moment"]


WIDENED = (
    "ALTER TABLE w MODIFY id BIGINT, MODIFY d DECIMAL(20,6), MODIFY day DATETIME(3), MODIFY n INT, MODIFY f DOUBLE,"
    " MODIFY u DECIMAL(24,4)"
)


@on_mysql
@pytest.mark.parametrize("altered", [WAYS[0], *in_the_soak(WAYS[1])], ids=["in process", "by Spark"])
def test_widened_tables_are_merged_by_either_after_either(mirror: Mirror, altered: dict[str, int]) -> None:
    days = [f"'{year}-03-0{number}'" for number, year in enumerate((1000, 1582, 2024, 9999, 2023, 2022), start=1)]
    rows = ", ".join(f"({n}, {n}{n}.5, {day}, -{n}, {n}.1, {n}, 'v')" for n, day in enumerate(days, start=1))
    mirror.options = {"type_widening": True, "merge": altered}
    mirror.execute(
        "CREATE TABLE w (id SMALLINT, d DECIMAL(6,2), day DATE, n TINYINT, f FLOAT, u INT, v TEXT,"
        " PRIMARY KEY (day, id, d))",
        f"INSERT INTO w VALUES {rows}",
    )
    mirror.snapshot()
    before = set(DeltaTable(mirror.path("w")).file_uris())
    mirror.execute(WIDENED)
    sync_alone(mirror) if altered["without_spark_mb"] else mirror.sync()
    assert set(DeltaTable(mirror.path("w")).file_uris()) == before
    for small, changes in (
        (0, ["UPDATE w SET v = 'marked' WHERE id = 1", "DELETE FROM w WHERE id = 2"]),
        (layout.FEW_BYTES, ["UPDATE w SET n = 2147483647, u = 1.25 WHERE id = 3", "UPDATE w SET id = 40 WHERE id = 4"]),
        (
            0,
            [
                "UPDATE w SET f = 1e300 WHERE id = 40",
                "INSERT INTO w VALUES (9, 0.123456, '2024-01-01 12:00', 1, 1, 1, '')",
            ],
        ),
    ):
        mirror.options["merge"] = WAYS[0]
        mirror.execute(*changes)
        with mock.patch.object(layout, "FEW_BYTES", small):
            sync_alone(mirror)
    assert mirror.verify().equal
    mirror.execute("ALTER TABLE w RENAME COLUMN n TO m, DROP v, COMMENT 'wide', MODIFY f DOUBLE COMMENT 'c'")
    sync_alone(mirror)
    mirror.options["merge"] = WAYS[1]
    mirror.execute("UPDATE w SET m = 5 WHERE id = 5", "DELETE FROM w WHERE id = 9")
    mirror.sync()
    assert mirror.verify().equal
    mirror.options["merge"] = WAYS[0]
    mirror.execute("TRUNCATE w")
    sync_alone(mirror)
    assert not DeltaTable(mirror.path("w")).file_uris()


@on_mysql
def test_the_shape_of_a_table_at_any_place(
    mirror: Mirror, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    mirror.snapshot()
    mirror.execute("ALTER TABLE t ADD b INT", "ALTER TABLE t RENAME COLUMN a TO renamed", "DROP TABLE t")
    mirror.sync()
    name = TableName(mirror.database, "t")
    shapes = ddl_history.shapes(mirror.metadata, name)
    names = [[column.name for column in shape.schema.columns] if shape.schema else None for shape in shapes]
    assert names == [["id", "a"], ["id", "a", "b"], ["id", "renamed", "b"], None]
    place = shapes[1].position.rpartition("/")[2].partition("@")[0]
    assert ddl_history.shape_at(mirror.metadata, name, ddl_history.Moment.parse(place)) == shapes[1]
    asked = ["history", "--config", str(mirror.write_yaml()), "--table", str(name)]
    assert command_line.run([*asked, "--at", place]) == 0
    assert "renamed" not in capsys.readouterr().out
    assert command_line.run([*asked, "--at", "2999-01-01"]) == 0
    assert f"there is no {name}" in capsys.readouterr().out
    assert command_line.run([*asked, "--at", "1999-01-01"]) == 2
    assert "nothing is known" in capsys.readouterr().err
    assert command_line.run(["history", "--config", str(mirror.write_yaml()), "--at", place]) == 2


def test_a_table_without_a_key_can_be_appended_to(mirror: Mirror) -> None:
    mirror.options = {"policies": {"without_key": "append"}}
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE t (v VARCHAR(9), u UUID)"
        if mirror.server.kind == "mariadb"
        else "CREATE TABLE t (v VARCHAR(9), u INT)"
    )
    mirror.sync()
    mirror.execute("INSERT INTO t (v) VALUES ('same'), ('same')")
    mirror.sync_cut_off(random.Random(1), 0.5)
    mirror.execute("INSERT INTO t (v) VALUES ('same'), (NULL)")
    mirror.sync()
    mirror.assert_equal("t")
    mirror.execute("DELETE FROM t LIMIT 1")
    assert mirror.sync().tables[0].newly_stopped
    assert "without_key: append" in mirror.watermark("t")["reason"]
