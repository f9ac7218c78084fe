"""verify finds what differs, however small, and finds nothing where nothing does.

What is found by reading is in test_verify_without_spark.py; here both ways are compared, on the same tables, by the
soak.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from binlake.config import PipelineConfig, VerifyWay
from binlake.delta.delta_log import LakeLog
from binlake.names import spark_quote
from binlake.position import Position
from binlake.schema import datatypes
from binlake.schema.table import TableName
from binlake.source.catalog import SourceTable
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from binlake.spark import functions
from binlake.store.metadata import Metadata
from binlake.verify.hashing import hashes, server_side
from binlake.verify.hashing.hashes import TableHashes
from binlake.verify.hashing.lake_side import LakeSide
from binlake.verify.result import DifferingRow, TableResult, VerifyReport
from binlake.verify.verify import VerifyScope, verify
from comparison import assert_equal
from mirror import on_mariadb, on_mysql
from odd_values import SampleTable
from server_shape import read_schema
from servers import Server


class Mirror:
    """A database, its tables copied into Delta as the snapshot would, and verify on them."""

    def __init__(self, server: Server, database: str, lake: Path, spark: SparkSession, way: VerifyWay) -> None:
        self.server, self.database, self.spark, self.way = server, database, spark, way
        self.endpoint = Endpoint("127.0.0.1", server.port, "root", "")
        self.config = PipelineConfig.model_validate(
            {
                "source": {"name": "shop", "connection": "none", "server_id": 4001},
                "tables": {"include": [f"{database}.*"]},
                "lake": {"path": str(lake)},
                "verify": {"by": way},
            }
        )
        self.metadata = Metadata(f"{self.config.root}/_binlake")
        self.rows: list[dict[str, Any]] = []
        functions.register(spark)

    def name(self, table: str) -> TableName:
        return TableName(self.database, table)

    def path(self, table: str) -> str:
        return self.config.table_path(self.name(table))

    def delta(self, table: str) -> str:
        return f"delta.{spark_quote(self.path(table))}"

    def run(self, *statements: str) -> None:
        self.server.execute(*statements, database=self.database)

    def copy(self, table: str, **mark: Any) -> None:
        """The registry's selected values, restored by the registry."""
        with Source.open(self.endpoint, sql_mode="") as source:
            schema = read_schema(source, self.name(table))
            selected = ", ".join(
                f"{datatypes.entry(column).select(column)} AS c{index}" for index, column in enumerate(schema.columns)
            )
            rows = source.query(f"SELECT {selected} FROM `{self.database}`.`{table.replace('`', '``')}`")
        kinds = [
            "BINARY" if any(isinstance(row[f"c{index}"], bytes) for row in rows) else "STRING"
            for index in range(len(schema.columns))
        ]
        raw = self.spark.createDataFrame(
            [tuple(v if v is None or isinstance(v, bytes) else str(v) for v in row.values()) for row in rows],
            ", ".join(f"{spark_quote(c.name)} {kind}" for c, kind in zip(schema.columns, kinds, strict=True)),
        )
        restored = raw.selectExpr(
            *(f"{datatypes.entry(column).restore(column)} AS {spark_quote(column.name)}" for column in schema.columns)
        )
        mode = "none" if all(column.name.isidentifier() for column in schema.columns) else "name"
        restored.write.format("delta").option("delta.columnMapping.mode", mode).save(self.path(table))
        self.mark(table, **mark)

    def mark(self, table: str, **mark: Any) -> None:
        row = {"table_id": table, "database": self.database, "table": table, "status": "following", "batch": 1}
        self.rows.append({**row, "updated_us": 1, **mark})

    def catch_up(self, position: Position) -> None:
        rows = [{"position": str(position), **row} for row in self.rows]
        self.metadata.replace("watermarks", "true", rows)

    def verify(
        self, catch_up: Callable[[Position], None] | None = None, tables: list[str] | None = None
    ) -> VerifyReport:
        return verify(
            self.config,
            self.endpoint,
            self.session,
            self.metadata,
            catch_up or self.catch_up,
            scope=VerifyScope(tables),
        )

    def session(self, why: str) -> SparkSession:
        assert self.way == "hash", why
        return self.spark

    def result(self, table: str, catch_up: Callable[[Position], None] | None = None) -> TableResult:
        (table_result,) = self.verify(catch_up, [f"{self.database}.{table}"]).tables
        return table_result


@pytest.fixture(params=[pytest.param("read", marks=pytest.mark.soak), "hash"])
def mirror(server: Server, database: str, lake: Path, spark: SparkSession, request: pytest.FixtureRequest) -> Mirror:
    return Mirror(server, database, lake, spark, request.param)


hashed_by_mysql = pytest.mark.parametrize(
    ("server", "mirror"),
    [pytest.param("mysql", "read", marks=pytest.mark.soak), ("mariadb", "read"), ("mysql", "hash")],
    indirect=True,
)
"""For what depends on the way of comparing, and not on what a server hashes."""


def test_every_type_at_odd_values_is_equal(mirror: Mirror) -> None:
    table = SampleTable.of(mirror.server.kind, "odd", invalid_dates=False)
    table.create(mirror.server, mirror.database)
    mirror.run("INSERT INTO odd (id) VALUES (-1)")
    mirror.copy("odd")
    mirror.run("DELETE FROM odd WHERE id = -1")
    mirror.spark.sql(f"DELETE FROM {mirror.delta('odd')} WHERE id = -1")  # leaves a deletion vector
    report = mirror.verify()
    assert report.equal, report.to_text()
    assert assert_equal(mirror.server, mirror.database, "odd", mirror.path("odd")) == table.rows
    (noted,) = mirror.metadata.read("verifications")
    assert (noted["table"], noted["equal"], noted["source_rows"]) == ("odd", True, table.rows)
    assert noted["position"] == str(report.position)
    (run,) = mirror.metadata.read("runs")
    assert (run["kind"], run["message"], run["why_spark"]) == ("verify", report.headline, report.why_spark)


ITEMS = """CREATE TABLE items (
    id BIGINT PRIMARY KEY, name VARCHAR(40), note VARCHAR(40), at DATETIME(6), day DATETIME, seen TIMESTAMP(3) NULL,
    ratio DOUBLE, price DECIMAL(10,2), data BLOB, flag BIT(1), small TINYINT)"""
FILL = """INSERT INTO items
    SELECT n, CONCAT('name ', n), '', '2024-05-06 07:08:09.123456', '2024-05-06 07:08:09', '2024-05-06 07:08:09.5',
        0, n / 4, UNHEX('00FF10'), 1, 5
    FROM (SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d AS n FROM digits a, digits b, digits c, digits e) numbers"""
CORRUPTED = {  # id: (what the lake has instead, the column that differs)
    11: ("name = 'nome 11'", "name"),
    12: ("note = NULL", "note"),
    13: ("at = at + INTERVAL 1 MICROSECOND", "at"),
    14: ("day = day + INTERVAL 1 MICROSECOND", "day"),
    15: ("seen = seen + INTERVAL 1 MICROSECOND", "seen"),
    16: ("ratio = -0D", "ratio"),
    17: ("name = 'name 17 '", "name"),
    18: ("name = 'Name 18'", "name"),
    19: ("data = X'00FF11'", "data"),
    20: ("price = 5.01", "price"),
    21: ("flag = false", "flag"),
    22: ("small = NULL", "small"),
    23: ("name = 'näme 23'", "name"),
    24: ("ratio = 4.9E-324D", "ratio"),
    25: ("name = 'name 26'", "name"),  # 25 and 26 swap
    26: ("name = 'name 25'", "name"),
}


def changed(number: int, *columns: str) -> DifferingRow:
    return DifferingRow("changed", (("id", str(number)),), columns=columns)


@on_mysql
def test_each_corruption_is_named(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_side, "ROWS_PER_RANGE", 2_500)
    mirror.run(
        "CREATE TABLE digits (d INT PRIMARY KEY)",
        "INSERT INTO digits VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)",
        ITEMS,
        FILL,
        "ANALYZE TABLE items",
    )
    mirror.copy("digits")
    mirror.copy("items")
    assert mirror.verify().equal
    cases: dict[str, list[str]] = {}
    for number, (assignment, column) in CORRUPTED.items():
        cases.setdefault(column, []).append(f"WHEN id = {number} THEN {assignment.split(' = ', 1)[1]}")
    sets = ", ".join(f"{column} = CASE {' '.join(whens)} ELSE {column} END" for column, whens in cases.items())
    mirror.spark.sql(f"UPDATE {mirror.delta('items')} SET {sets} WHERE id BETWEEN 11 AND 26")
    mirror.spark.sql(f"DELETE FROM {mirror.delta('items')} WHERE id IN (0, 9999)")
    extra = "SELECT IF(n = 1, id, -id) AS id, * EXCEPT (id) FROM {table} LATERAL VIEW EXPLODE(ARRAY(1, 2)) AS n"
    extra = f"SELECT * EXCEPT (n) FROM ({extra.format(table=mirror.delta('items'))}) WHERE id IN (30, -31)"
    mirror.spark.sql(f"INSERT INTO {mirror.delta('items')} {extra}")

    digits, items = mirror.verify().tables

    assert digits.equal
    assert items.equal is False
    assert (items.source_rows, items.lake_rows) == (10000, 10000)
    assert set(items.rows) == {
        *(changed(number, column) for number, (_, column) in CORRUPTED.items()),
        DifferingRow("missing", (("id", "0"),)),
        DifferingRow("missing", (("id", "9999"),)),
        DifferingRow("extra", (("id", "30"),)),
        DifferingRow("extra", (("id", "-31"),)),
    }
    assert items.chunks is not None
    assert items.differing is not None
    assert 1 <= items.differing <= items.chunks
    assert "nome" not in items.to_text()


@pytest.mark.parametrize(("server", "mirror"), [("mysql", "hash")], indirect=True)
def test_what_differs_is_looked_for_in_its_range_of_keys(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_side, "ROWS_PER_RANGE", 1)
    monkeypatch.setattr(hashes, "ROWS_PER_CHUNK", 1)
    keys = {"unsigned": (0, 1, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1), "signed": (-(1 << 63), -1, 0, 5, 6)}
    for table, values in keys.items():
        rows = ", ".join(f"({value}, 'k', 1)" for value in values)
        kind = "BIGINT UNSIGNED" if table == "unsigned" else "BIGINT"
        mirror.run(
            f"CREATE TABLE `{table}` (id {kind}, k VARCHAR(9), v INT, PRIMARY KEY (id, k))",
            f"INSERT INTO `{table}` VALUES {rows}",
            f"ANALYZE TABLE `{table}`",
        )
        mirror.copy(table)
    assert mirror.verify().equal
    for table, values in keys.items():
        with Source.open(mirror.endpoint) as source:
            name = mirror.name(table)
            shape = read_schema(source, name)
            cuts = server_side.cuts(source, SourceTable(name, "BASE TABLE", "InnoDB", len(values), 0, shape))
        assert cuts.ranges >= 3
        mirror.spark.sql(f"UPDATE {mirror.delta(table)} SET v = 2")
    for result in mirror.verify().tables:
        assert {int(row.key[0][1]) for row in result.rows} == set(keys[result.name.table])
        assert all(row.columns == ("v",) for row in result.rows)


@on_mariadb
def test_rows_without_a_key_count(mirror: Mirror) -> None:
    mirror.run(
        "CREATE TABLE log (who VARCHAR(20), n INT)",
        "INSERT INTO log VALUES ('a', 1), ('a', 1), ('a', 1), ('b', NULL), ('c', 3)",
    )
    mirror.copy("log")
    assert mirror.verify().equal
    mirror.spark.sql(f"INSERT INTO {mirror.delta('log')} VALUES ('a', 1), ('a', 1)")
    mirror.spark.sql(f"DELETE FROM {mirror.delta('log')} WHERE who = 'c'")
    result = mirror.result("log")
    assert (result.source_rows, result.lake_rows) == (5, 6)
    assert sorted((row.kind, row.count, row.key[0][0]) for row in result.rows) == [
        ("extra", 2, "row hash"),
        ("missing", 1, "row hash"),
    ]


@hashed_by_mysql
def test_keys_of_text_and_odd_names(mirror: Mirror) -> None:
    mirror.run(
        "CREATE TABLE `odd``table. x; DROP TABLE t` ("
        " `k 1` VARCHAR(20) COLLATE utf8mb4_bin, `k.2` BINARY(3), `ä``'\"%s` INT, binlake_key INT,"
        " PRIMARY KEY (`k 1`, `k.2`))",
        "INSERT INTO `odd``table. x; DROP TABLE t` VALUES"
        " ('a', 'x', 1, 1), ('A', 'x', 1, 1), ('a', 'y', 1, 1), ('€\n😀', 'z', 1, 1)",
    )
    table = "odd`table. x; DROP TABLE t"
    mirror.copy(table)
    assert mirror.verify().equal
    mirror.spark.sql(f"UPDATE {mirror.delta(table)} SET `ä``'\"%s` = 2 WHERE `k 1` IN ('A', '€\n😀')")
    (result,) = mirror.verify().tables
    assert set(result.rows) == {
        DifferingRow("changed", (("k 1", "A"), ("k.2", "0x780000")), columns=("ä`'\"%s",)),
        DifferingRow("changed", (("k 1", "€\n😀"), ("k.2", "0x7A0000")), columns=("ä`'\"%s",)),
    }


@on_mysql
def test_a_thousand_columns(mirror: Mirror) -> None:
    columns = ", ".join(f"c{number} VARCHAR(4) CHARACTER SET latin1" for number in range(1000))
    values = ", ".join("NULL" if number % 7 == 0 else f"'{number}'" for number in range(1000))
    mirror.run(f"CREATE TABLE wide (id INT PRIMARY KEY, {columns})", f"INSERT INTO wide VALUES (1, {values})")
    mirror.copy("wide")
    mirror.spark.sql(f"UPDATE {mirror.delta('wide')} SET c999 = '99', c0 = ''")
    assert mirror.result("wide").rows == (changed(1, "c0", "c999"),)


@hashed_by_mysql
def test_the_views_stand_at_the_position(mirror: Mirror) -> None:
    """Rows that come after the lock aren't seen, not even by what is looked into last."""
    mirror.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3)")
    mirror.copy("t")
    mirror.spark.sql(f"DELETE FROM {mirror.delta('t')} WHERE id = 2")

    def write_on(position: Position) -> None:
        mirror.run("INSERT INTO t VALUES (4)", "DELETE FROM t WHERE id IN (1, 2)")
        mirror.catch_up(position)

    result = mirror.result("t", write_on)
    assert (result.source_rows, result.lake_rows) == (3, 2)
    assert result.rows == (DifferingRow("missing", (("id", "2"),)),)


@on_mysql
def test_rows_that_a_data_file_still_holds_are_deleted_all_the_same(mirror: Mirror) -> None:
    mirror.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3), (4)")
    mirror.copy("t")
    marked = "SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)"
    mirror.spark.sql(f"ALTER TABLE {mirror.delta('t')} {marked}")
    mirror.spark.sql(f"DELETE FROM {mirror.delta('t')} WHERE id = 2")
    assert LakeLog(mirror.path("t"), "").rows() == 3
    assert mirror.result("t").rows == (DifferingRow("missing", (("id", "2"),)),)
    mirror.run("DELETE FROM t WHERE id = 2")
    assert mirror.result("t").equal


@on_mysql
@pytest.mark.parametrize(
    "change", ["INSERT INTO {} VALUES (9, 9)", "DELETE FROM {}", "ALTER TABLE {} ADD COLUMN w INT"]
)
def test_a_table_that_is_written_meanwhile_is_read_as_it_was(mirror: Mirror, change: str) -> None:
    mirror.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    mirror.copy("t")
    with Source.open(mirror.endpoint) as source:
        schema = read_schema(source, mirror.name("t"))
    whole, then = TableHashes(schema, 1), LakeSide(mirror.spark, mirror.path("t"), schema)
    before = then.aggregate(whole)
    mirror.spark.sql(change.format(mirror.delta("t")))
    assert then.aggregate(whole) == before
    assert sorted(row.shown for row in then.keyed_hashes(whole, [0])) == [("1",), ("2",)]


@hashed_by_mysql
def test_an_alter_needs_not_wait_and_is_said(mirror: Mirror) -> None:
    mirror.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    mirror.copy("t")
    mirror.spark.sql(f"DELETE FROM {mirror.delta('t')} WHERE id = 2")

    def alter(position: Position) -> None:
        mirror.run("SET SESSION lock_wait_timeout = 10", "ALTER TABLE t ADD COLUMN v INT NOT NULL, ALGORITHM=COPY")
        mirror.catch_up(position)

    result = mirror.result("t", alter)
    assert not result.equal
    assert result.reason


@hashed_by_mysql
def test_an_engine_without_views_is_read_under_the_lock(mirror: Mirror) -> None:
    mirror.run("CREATE TABLE t (id INT PRIMARY KEY) ENGINE=MyISAM", "INSERT INTO t VALUES (1), (2)")
    mirror.copy("t")

    def write_on(position: Position) -> None:
        mirror.run("INSERT INTO t VALUES (3)")
        mirror.catch_up(position)

    assert mirror.result("t", write_on).equal


@on_mysql
def test_what_isnt_compared_is_said(mirror: Mirror) -> None:
    mirror.run(*(f"CREATE TABLE {name} (id INT PRIMARY KEY)" for name in ("fresh", "good", "halted", "late")))
    mirror.copy("good")
    mirror.mark("halted", status="stopped", reason="ALTER TABLE", remedy="snapshot")
    mirror.mark("gone", status="dropped")
    mirror.mark("late", position="server/log.000001:4@0")
    report = mirror.verify()
    assert [(result.name.table, result.state, result.equal) for result in report.tables] == [
        ("fresh", "missing", None),
        ("gone", "dropped", None),
        ("good", "compared", True),
        ("halted", "stopped", None),
        ("late", "failed", None),
    ]
    assert not report.equal
    assert mirror.verify(tables=[f"{mirror.database}.good"]).equal


@on_mariadb
def test_wrong_columns_are_a_difference(mirror: Mirror) -> None:
    mirror.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    mirror.copy("t")
    mirror.run("ALTER TABLE t ADD COLUMN w INT, DROP COLUMN v")
    result = mirror.result("t")
    assert result.equal is False
    assert result.reason == "columns differ: w is missing, should be INT; v is INT, should be absent"


@hashed_by_mysql
def test_invalid_dates_kept_as_text(mirror: Mirror) -> None:
    mirror.server.execute(
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'",
        "CREATE TABLE t (id INT PRIMARY KEY, a DATE, b DATETIME(3), c TIMESTAMP NULL)",
        "INSERT INTO t VALUES (1, '0000-00-00', '2020-02-30 01:02:03.5', '0000-00-00 00:00:00'), (2, NULL, NULL, NULL)",
        database=mirror.database,
    )
    texts = "'0000-00-00' AS a__text, '2020-02-30 01:02:03.500' AS b__text, '0000-00-00 00:00:00' AS c__text"
    dates = "CAST(NULL AS DATE) AS a, CAST(NULL AS TIMESTAMP_NTZ) AS b, CAST(NULL AS TIMESTAMP) AS c"
    rows = f"SELECT 1 AS id, {dates}, {texts} UNION ALL SELECT 2, NULL, NULL, NULL, NULL, NULL, NULL"
    mirror.spark.sql(rows).write.format("delta").save(mirror.path("t"))
    mirror.mark("t")
    assert mirror.result("t").equal
    assert assert_equal(mirror.server, mirror.database, "t", mirror.path("t")) == 2
    mirror.spark.sql(f"UPDATE {mirror.delta('t')} SET c__text = NULL WHERE id = 1")
    assert mirror.result("t").rows == (changed(1, "c"),)
