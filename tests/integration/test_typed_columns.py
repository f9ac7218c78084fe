"""Columns that have another type in the lake than on the server."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from binlake import pipeline
from binlake.errors import BinlakeError
from binlake.lake.opened_lake import open_lake
from binlake.report import Report
from iceberg_readers import assert_same
from mirror import Mirror, on_mysql, sync_alone
from servers import Server
from without_spark import no_spark, repair, rows, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id BIGINT UNSIGNED PRIMARY KEY, total DECIMAL(25, 0), small INT UNSIGNED, plain BIGINT UNSIGNED, note TEXT"
GREATEST, BEYOND = 2**63 - 1, 2**63
BIGINT = [("id", pa.int64()), ("total", pa.int64()), ("small", pa.int64()), ("plain", pa.decimal128(20, 0))]


@pytest.fixture
def typed(server: Server, database: str, lake: Path) -> Mirror:
    """A database with columns that are BIGINT in the lake, written without Spark."""
    mirror = Mirror(server, database, lake, None, reader="direct")  # type: ignore[arg-type]
    names = ("id", "total", "small")
    mirror.options = {"columns": [{"columns": f"{database}.*.{name}", "type": "bigint"} for name in names]}
    return mirror


def make(mirror: Mirror) -> None:
    mirror.execute(
        f"CREATE TABLE numbers ({COLUMNS})",
        f"INSERT INTO numbers VALUES (1, -{GREATEST}, 4000000000, {BEYOND}, 'a'), ({GREATEST}, NULL, NULL, NULL, 'b')",
        "CREATE TABLE others (id INT PRIMARY KEY)",
        "INSERT INTO others VALUES (1)",
    )


def snapshot(mirror: Mirror, *patterns: str) -> None:
    pipeline.bootstrap(mirror.config, mirror.origin, no_spark, Report(io.StringIO()), tables=list(patterns) or None)


def types(mirror: Mirror) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in rows(mirror, "numbers").schema][:4]


def test_whole_numbers_are_bigint_from_snapshot_log_and_statements(typed: Mirror) -> None:
    mirror = typed
    make(mirror)
    snapshot(mirror)
    assert types(mirror) == BIGINT
    mirror.execute(
        f"INSERT INTO numbers VALUES (3, {GREATEST}, 1, 5, 'c')",
        "UPDATE numbers SET id = 4, total = -5 WHERE id = 1",
        f"DELETE FROM numbers WHERE id = {GREATEST}",
        "ALTER TABLE numbers MODIFY small BIGINT UNSIGNED, MODIFY total DECIMAL(30, 0), ADD more INT DEFAULT 7",
        "UPDATE numbers SET small = 5000000000 WHERE id = 3",
    )
    sync_alone(mirror)
    assert mirror.watermark("numbers")["status"] == "following", mirror.watermark("numbers")["reason"]
    assert types(mirror) == BIGINT
    ids = {row["id"]: (row["total"], row["small"]) for row in rows(mirror, "numbers").to_pylist()}
    assert ids == {3: (GREATEST, 5000000000), 4: (-5, 4000000000)}
    assert verify(mirror).equal
    repair(mirror)
    snapshot(mirror, f"{mirror.database}.numbers")
    assert verify(mirror).equal


def test_a_greater_value_in_the_log_stops_the_table_by_name(typed: Mirror) -> None:
    mirror = typed
    make(mirror)
    snapshot(mirror)
    mirror.execute(
        "INSERT INTO numbers VALUES (2, 2, 2, 2, 'fits')",
        f"INSERT INTO numbers VALUES ({BEYOND}, 2, 2, 2, 'does not')",
        "INSERT INTO others VALUES (2)",
    )
    sync_alone(mirror)
    mark = mirror.watermark("numbers")
    assert mark["status"] == "stopped"
    assert "a value of column 'id' doesn't fit BIGINT, the type that the YAML (columns) gives it" in mark["reason"]
    assert "take the column off its entry of columns in the YAML (type)" in mark["remedy"]
    assert rows(mirror, "others").num_rows == 2
    del mirror.options["columns"][0]
    snapshot(mirror, f"{mirror.database}.numbers")
    sync_alone(mirror)
    assert rows(mirror, "numbers").num_rows == 4
    assert verify(mirror).equal


@on_mysql
def test_a_greater_value_in_a_snapshot_refuses_the_table_by_name(typed: Mirror) -> None:
    mirror = typed
    make(mirror)
    mirror.execute(f"INSERT INTO numbers VALUES ({BEYOND}, 2, 2, 2, 'does not')")
    with pytest.raises(BinlakeError) as refused:
        snapshot(mirror)
    assert "numbers: a value of column 'id' doesn't fit BIGINT" in f"{refused.value}"
    assert rows(mirror, "others").num_rows == 1


@on_mysql
@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("MODIFY total VARCHAR(40)", "the column 'total' can't be BIGINT in the lake: it is VARCHAR(40)"),
        (f"ADD more BIGINT UNSIGNED NOT NULL DEFAULT {BEYOND}", "old rows got in column 'more' doesn't fit BIGINT"),
    ],
)
def test_a_statement_that_a_type_cant_follow_stops_the_table(typed: Mirror, statement: str, why: str) -> None:
    mirror = typed
    mirror.options["columns"].append({"columns": f"{mirror.database}.numbers.more", "type": "bigint"})
    make(mirror)
    snapshot(mirror)
    mirror.execute(f"ALTER TABLE numbers {statement}", "INSERT INTO others VALUES (2)")
    sync_alone(mirror)
    assert mirror.watermark("numbers")["status"] == "stopped"
    assert why in mirror.watermark("numbers")["reason"]
    assert rows(mirror, "others").num_rows == 2


@on_mysql
def test_a_column_that_gets_a_name_with_a_type_is_copied_again_and_stops_where_a_value_is_greater(
    typed: Mirror,
) -> None:
    mirror = typed
    mirror.options["columns"].append({"columns": f"{mirror.database}.numbers.more", "type": "bigint"})
    make(mirror)
    snapshot(mirror)
    mirror.execute("ALTER TABLE numbers RENAME COLUMN plain TO more", "INSERT INTO others VALUES (2)")
    sync_alone(mirror)
    assert mirror.watermark("numbers")["status"] != "following"
    assert str(BEYOND) not in mirror.watermark("numbers")["reason"]
    assert rows(mirror, "others").num_rows == 2
    mirror.execute("UPDATE numbers SET more = 5")
    snapshot(mirror, f"{mirror.database}.numbers")
    assert rows(mirror, "numbers").schema.field("more").type == pa.int64()
    assert verify(mirror).equal


@on_mysql
def test_a_table_that_cant_have_a_type_is_refused_alone(typed: Mirror) -> None:
    mirror = typed
    make(mirror)
    mirror.execute("CREATE TABLE named (id VARCHAR(9) PRIMARY KEY)")
    with pytest.raises(BinlakeError, match="named: the column 'id' can't be BIGINT in the lake") as refused:
        snapshot(mirror)
    assert "take the column off its entry of columns in the YAML" in refused.value.remedy
    assert verify(mirror, f"{mirror.database}.numbers", f"{mirror.database}.others").equal


@on_mysql
def test_a_changed_type_asks_for_a_snapshot(typed: Mirror) -> None:
    mirror = typed
    make(mirror)
    snapshot(mirror)
    mirror.options |= {"policies": {"on_unfollowable": "stop"}, "columns": mirror.options["columns"][1:]}
    mirror.execute("INSERT INTO numbers VALUES (2, 2, 2, 2, 'c')")
    sync_alone(mirror)
    why = "for column 'id' the YAML (columns) asks for BIGINT UNSIGNED, and the lake has BIGINT"
    assert why in mirror.watermark("numbers")["reason"]
    snapshot(mirror, f"{mirror.database}.*")
    assert verify(mirror).equal


def test_flags_are_booleans_where_they_are_0_and_1(typed: Mirror) -> None:
    mirror = typed
    names = ("on", "off")
    mirror.options["columns"] = [{"columns": f"{mirror.database}.*.{name}", "type": "boolean"} for name in names]
    mirror.execute(
        "CREATE TABLE flags (id INT PRIMARY KEY, `on` TINYINT(1) NOT NULL DEFAULT 1)",
        "INSERT INTO flags VALUES (1, 0), (2, 1)",
    )
    snapshot(mirror)
    mirror.execute(
        "INSERT INTO flags VALUES (3, 1)",
        "ALTER TABLE flags ADD `off` TINYINT(1) NOT NULL DEFAULT 1, ADD n INT",
        "INSERT INTO flags VALUES (4, 0, 0, 5)",
        "UPDATE flags SET `on` = 1 - `on` WHERE id < 3",
    )
    sync_alone(mirror)
    assert {row["id"]: (row["on"], row["off"]) for row in rows(mirror, "flags").to_pylist()} == {
        1: (True, True), 2: (False, True), 3: (True, True), 4: (False, False)
    }  # fmt: skip
    assert verify(mirror).equal
    mirror.execute("UPDATE flags SET `on` = 2 WHERE id = 1")
    sync_alone(mirror)
    assert "a value of column 'on' doesn't fit BOOLEAN" in mirror.watermark("flags")["reason"]
    with pytest.raises(BinlakeError, match="flags: a value of column 'on' doesn't fit BOOLEAN"):
        snapshot(mirror, f"{mirror.database}.flags")


@on_mysql
def test_a_published_table_and_what_is_known_of_it_have_the_lakes_names_and_types(typed: Mirror) -> None:
    mirror = typed
    mirror.options["columns"].append({"columns": f"{mirror.database}.*.id", "rename": "number"})
    mirror.options["iceberg"] = {"every": "batch"}
    make(mirror)
    snapshot(mirror)
    mirror.execute("INSERT INTO numbers VALUES (3, 4, 5, 6, 'c')", "UPDATE numbers SET total = 8 WHERE id = 1")
    sync_alone(mirror)
    assert_same(mirror.path("numbers"))
    known = open_lake(mirror.config).sql(
        "SELECT column_name, lake_type, column_type FROM information_schema.columns"
        " WHERE table_name = 'numbers' ORDER BY ordinal_position LIMIT 2"
    )
    assert [tuple(row.values()) for row in known.to_pylist()] == [
        ("number", "long", "bigint unsigned"),
        ("total", "long", "decimal(25,0)"),
    ]


@on_mysql
def test_spark_copies_merges_and_compares_them(typed: Mirror, spark: SparkSession) -> None:
    mirror, flags = typed, f"{typed.database}.flags"
    mirror.spark, mirror.reader = spark, "jdbc"
    mirror.options["columns"] += [
        {"columns": f"{flags}.flag", "type": "boolean"},
        {"columns": f"{flags}.flag", "rename": "is_on"},
        {"columns": f"{flags}.id", "rename": "flag_id"},
    ]
    mirror.options |= {"merge": {"without_spark_mb": 0}, "verify": {"by": "hash"}}
    mirror.options["rows"] = [{"tables": flags, "where": "id < 9"}]
    make(mirror)
    mirror.execute("CREATE TABLE flags (id INT PRIMARY KEY, flag TINYINT)")
    mirror.execute("INSERT INTO flags VALUES (1, 0), (2, NULL), (9, 1)")
    mirror.snapshot()
    assert types(mirror) == BIGINT
    mirror.execute(
        f"INSERT INTO numbers VALUES (3, {GREATEST}, 1, 5, 'c')", "UPDATE numbers SET total = 8 WHERE id = 1",
        "ALTER TABLE flags MODIFY flag TINYINT FIRST, ADD n INT", "UPDATE flags SET flag = 1, id = id + 2",
        "INSERT INTO flags VALUES (0, 5, 1), (NULL, 10, 1)",
    )  # fmt: skip
    mirror.sync()
    there = rows(mirror, "flags").sort_by("flag_id")
    assert there.column_names == ["is_on", "flag_id", "n"]
    assert [tuple(row.values())[:2] for row in there.to_pylist()] == [(True, 3), (True, 4), (False, 5)]
    assert mirror.verify().equal
    mirror.execute(f"INSERT INTO numbers VALUES ({BEYOND}, 2, 2, 2, 'does not')")
    with pytest.raises(BinlakeError, match="numbers: a value of column 'id' doesn't fit BIGINT"):
        mirror.snapshot(f"{mirror.database}.numbers")
