"""Queries over tables of a lake: how names are resolved, what is refused, what an error says."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from binlake.errors import LakeError, UsageError
from binlake.lake.sql_session import SqlSession
from binlake.lake.table_at import TableAt
from binlake.schema.table import TableName

TABLES = {
    ("shop", "orders"): pa.table({"id": [1, 2], "total": ["1.50", None]}),
    ("shop", "Odd name"): pa.table({"Mixed": [7]}),
    ("shop", 'a"b`c'): pa.table({"n": [8]}),
    ("shop", "customers"): pa.table({"id": [3]}),
    ("crm", "customers"): pa.table({"id": [4]}),
    ("CRM", "people"): pa.table({"id": [5]}),
    ("public", "notes"): pa.table({"id": [6]}),
    ("do.tted", "things"): pa.table({"id": [9]}),
}
GONE = TableName("shop", "gone")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[TableAt]:
    root = tmp_path_factory.mktemp("lake")
    made = [TableAt.of(str(root), TableName(*name), 0) for name in TABLES]
    for table, rows in zip(made, TABLES.values(), strict=True):
        write_deltalake(table.path, rows)
        write_deltalake(table.path, rows, mode="append")  # version 1 has every row twice
    return made


@pytest.fixture
def session(tables: list[TableAt]) -> SqlSession:
    return SqlSession([*tables, TableAt(GONE, f"{tables[0].path}/nowhere", 0)])


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT id FROM shop.orders ORDER BY id", [1, 2]),
        ('SELECT "id" FROM "shop"."orders" ORDER BY 1', [1, 2]),
        ("SELECT `id` FROM `shop`.`orders` ORDER BY 1", [1, 2]),
        ("SELECT id FROM orders ORDER BY id", [1, 2]),
        ("SELECT orders.id FROM orders ORDER BY orders.id", [1, 2]),
        ("SELECT shop.orders.id FROM shop.orders ORDER BY 1", [1, 2]),
        ("SELECT o.id FROM shop.orders AS o ORDER BY o.id", [1, 2]),
        ('SELECT Mixed FROM shop."Odd name"', [7]),
        ("SELECT Mixed FROM `Odd name`", [7]),
        ('SELECT n FROM shop."a""b`c"', [8]),
        ('SELECT n FROM shop.`a"b``c`', [8]),
        ("SELECT id FROM crm.customers UNION ALL SELECT id FROM shop.customers ORDER BY 1", [3, 4]),
        ("SELECT id FROM CRM.people", [5]),
        ("SELECT id FROM public.notes", [6]),
        ("SELECT id FROM notes", [6]),
    ],
)
def test_names_are_the_servers(session: SqlSession, query: str, rows: list[int]) -> None:
    assert [row for (row,) in values(session.table(query))] == rows


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("orders", "shop.orders"),
        ("`orders`", "shop.orders"),
        ('crm."customers"', "crm.customers"),
        ('"Odd name"', "shop.Odd name"),
        ("shop.Odd name", "shop.Odd name"),
        ('shop."a""b`c"', 'shop.a"b`c'),
        ('shop.`a"b``c`', 'shop.a"b`c'),
        ('shop.a"b`c', 'shop.a"b`c'),
        ('"do.tted".things', "do.tted.things"),
        ("things", "do.tted.things"),
        ("nothing", "nothing"),
        ("shop.nothing", "shop.nothing"),
        ('"shop', '"shop'),
        ("", ""),
    ],
)
def test_a_table_is_named_as_a_query_does(session: SqlSession, written: str, name: str) -> None:
    assert session.full_name(written) == name
    with pytest.raises(UsageError, match="several databases have a table customers"):
        session.full_name("customers")


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("WITH orders AS (SELECT 42 AS id) SELECT id FROM orders", [42]),
        ("WITH orders AS (SELECT id + 10 AS id FROM shop.orders) SELECT id FROM orders ORDER BY id", [11, 12]),
        ("WITH orders AS (SELECT 42 AS id) SELECT id FROM shop.orders ORDER BY id", [1, 2]),
        ("SELECT id FROM (SELECT max(id) AS id FROM shop.orders) AS customers", [2]),
        ("SELECT id FROM shop.orders WHERE id IN (SELECT id - 1 FROM shop.customers)", [2]),
        ("SELECT (SELECT max(id) FROM crm.customers) FROM shop.customers", [4]),
        ("SELECT count(*) FROM shop.orders WHERE 'shop.customers' = total", [0]),
        ("SELECT id -- of shop.nothing\nFROM shop.orders WHERE id > 1;", [2]),
        ("(SELECT id FROM shop.customers)", [3]),
        ("VALUES (1), (2)", [1, 2]),
        ("SELECT things.id FROM shop.customers AS things", [3]),
        ("SELECT id FROM shop.customers WHERE 'gone' <> 'things'", [3]),
    ],
)
def test_what_is_called_like_a_table_stays_what_it_is(session: SqlSession, query: str, rows: list[int]) -> None:
    assert [row for (row,) in values(session.table(query))] == rows


def test_a_table_is_read_at_its_version_alone(tables: list[TableAt]) -> None:
    later = SqlSession([TableAt(table.name, table.path, 1) for table in tables])
    assert values(later.table("SELECT count(*) FROM shop.orders")) == [(4,)]
    assert values(SqlSession(tables).table("SELECT count(*) FROM shop.orders")) == [(2,)]


def test_text_comes_as_text_and_null_as_null(session: SqlSession) -> None:
    rows = session.table("SELECT total, [total] AS listed FROM shop.orders ORDER BY id")
    assert rows.schema.types == [pa.string(), pa.list_(pa.string())]
    assert rows.to_pylist() == [{"total": "1.50", "listed": ["1.50"]}, {"total": None, "listed": [None]}]


def test_times_are_pythons(session: SqlSession) -> None:
    rows = session.table("SELECT now() AS n, TIMESTAMP '2026-01-02 03:04:05.000006' AS at")
    assert rows.schema.field("at").type == pa.timestamp("us")
    assert rows["n"].to_pylist()[0].year >= 2026
    assert rows["at"].to_pylist() == [datetime(2026, 1, 2, 3, 4, 5, 6)]
    reckoned = session.table("SELECT now() - TIMESTAMP '2026-01-02' AS age, TIME '10:00:00.123456789' AS clock")
    assert reckoned.schema.types == [pa.duration("us"), pa.time64("us")]


def test_a_time_that_nanoseconds_can_not_hold(tmp_path: Path) -> None:
    table = TableAt.of(str(tmp_path), TableName("shop", "prices"), 0)
    until = [datetime(9999, 12, 31, 23, 59, 59), datetime(2026, 1, 31), datetime(1000, 1, 1)]
    write_deltalake(table.path, pa.table({"id": [1, 2, 3], "until": pa.array(until, pa.timestamp("us"))}))
    session = SqlSession([table])
    for literal in ("'9999-12-31 23:59:59'", "TIMESTAMP '9999-12-31 23:59:59'", "DATE '9999-12-31'"):
        with pytest.raises(UsageError) as raised:
            session.table(f"SELECT id FROM shop.prices WHERE until >= {literal}")
        assert "TIMESTAMP(6) '9999-12-31 23:59:59'" in raised.value.remedy
    exact = "SELECT id FROM shop.prices WHERE until = TIMESTAMP(6) '9999-12-31 23:59:59'"
    assert session.table(exact)["id"].to_pylist() == [1]
    early = "SELECT id FROM shop.prices WHERE until < TIMESTAMP(6) '1600-01-01'"
    assert session.table(early)["id"].to_pylist() == [3]


def test_a_number_of_more_digits_than_doubles_have_is_refused_or_exact(tmp_path: Path) -> None:
    table = TableAt.of(str(tmp_path), TableName("shop", "sums"), 0)
    sums = [Decimal("12345678901234567.89"), Decimal("12345678901234567.90"), Decimal("0.10")]
    ids = [2**53, 2**53 + 1, 3]
    write_deltalake(table.path, pa.table({"id": ids, "total": pa.array(sums, pa.decimal128(20, 2))}))
    session = SqlSession([table])
    for number in ("12345678901234567.89", "9007199254740993.0", "123456789012345678901"):
        with pytest.raises(UsageError, match="has more digits than DataFusion's numbers") as raised:
            session.table(f"SELECT id FROM sums WHERE total >= {number}")
        assert f"'{number}'" in raised.value.remedy
    for condition, found in {
        "total = '12345678901234567.89'": [2**53],
        "total > '12345678901234567.89' -- 12345678901234567.89": [2**53 + 1],
        "total = 0.1": [3],
        "id = 9007199254740993": [2**53 + 1],
        "id < 18446744073709551615 AND total < 1.50": [3],
    }.items():
        assert session.table(f"SELECT id FROM sums WHERE {condition}")["id"].to_pylist() == found


def test_a_session_runs_many_queries(session: SqlSession) -> None:
    assert values(session.table("SELECT count(*) FROM shop.orders")) == [(2,)]
    assert values(session.table("SELECT count(*) FROM shop.orders, orders AS o")) == [(4,)]


@pytest.mark.parametrize(
    ("query", "message", "remedy"),
    [
        ("SELECT * FROM shop.ordrs", "there is no table shop.ordrs; did you mean shop.orders?", "shop.customers, "),
        ("SELECT * FROM customer", "did you mean", "this version of the lake has"),
        ("SELECT * FROM sales.orders", "there is no table sales.orders; did you mean shop.orders?", ""),
        ("SELECT * FROM customers", "several databases have a table customers", "crm.customers or shop.customers"),
        ("SELECT * FROM Orders", "there is no table Orders; did you mean shop.orders?", ""),
        ("SELECT nothing FROM shop.orders", "No field named nothing", "fix the query"),
        ("SELECT ID FROM shop.orders", "Did you mean 'shop.orders.id'?", "fix the query"),
        ("SELECT id FROM shop.orders WHERE", "the query can't be run", "fix the query"),
        ("SELECT 1 / 0", "Divide by zero", "fix the query"),
        ("SELECT 1; SELECT 2", "single SQL statement", "fix the query"),
        ("", "there is no query", "SELECT"),
        ("-- nothing", "there is no query", "SELECT"),
        ("SHOW TABLES", "SHOW isn't a query", "\\d lists the tables"),
        ('SELECT * FROM "do.tted".things', "a database with a dot", "arrow"),
    ],
)
def test_what_is_wrong_is_said(session: SqlSession, query: str, message: str, remedy: str) -> None:
    with pytest.raises(UsageError) as raised:
        session.table(query)
    assert message in raised.value.message
    assert remedy in raised.value.remedy
    assert "enable_ident_normalization" not in raised.value.message


@pytest.mark.parametrize(
    ("databases", "remedy"),
    [
        (("shop", "sp ace", "d.ot"), 'write shop."ü:ber" or "sp ace"."ü:ber"'),
        (("d.ot", "e.ot"), "read the table by binlake.lake.open(…).arrow(…): see binlake help analysts"),
    ],
)
def test_a_table_of_several_databases_is_to_be_written_as_queries_do(
    tmp_path: Path, databases: tuple[str, ...], remedy: str
) -> None:
    tables = [TableAt.of(str(tmp_path), TableName(database, "ü:ber"), 0) for database in databases]
    for table in tables:
        write_deltalake(table.path, pa.table({"id": [1]}))
    with pytest.raises(UsageError, match="several databases have a table ü:ber") as raised:
        SqlSession(tables).table('SELECT id FROM "ü:ber"')
    assert raised.value.remedy == remedy


def test_a_table_that_can_not_be_opened_is_said_where_it_is_read(session: SqlSession) -> None:
    for name in ("shop.gone", "gone"):
        with pytest.raises(LakeError, match=r"shop\.gone"):
            session.table(f"SELECT * FROM {name}")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO shop.orders SELECT * FROM shop.orders",
        "insert into shop.orders values (1, '2')",
        "UPDATE shop.orders SET id = 3",
        "DELETE FROM shop.orders",
        "DROP TABLE shop.orders",
        "CREATE TABLE copied AS SELECT * FROM shop.orders",
        "SET datafusion.execution.batch_size = 1",
        "COPY (SELECT 1) TO '{folder}/copied.csv'",
        "COPY shop.orders TO '{folder}/copied.csv'",
        "EXPLAIN ANALYZE INSERT INTO shop.orders SELECT * FROM shop.orders",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/copied.csv'",
        "EXPLAIN FORMAT 'tree' COPY (SELECT 1) TO '{folder}/copied.csv'",
        "/* SELECT */ DELETE FROM shop.orders",
        "WITH one AS (SELECT 1) INSERT INTO shop.orders SELECT * FROM one",
        "CREATE EXTERNAL TABLE read STORED AS CSV LOCATION '/etc/passwd'",
    ],
)
def test_nothing_but_a_query_is_run(session: SqlSession, tables: list[TableAt], tmp_path: Path, statement: str) -> None:
    with pytest.raises(UsageError):
        session.table(statement.format(folder=tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert all(DeltaTable(table.path).version() == 1 for table in tables)


def test_a_limit_is_kept_or_refused(tables: list[TableAt]) -> None:
    session = SqlSession([TableAt(table.name, table.path, 1) for table in tables])
    for query in ("SELECT 1 FROM shop.orders LIMIT 1", "SELECT * FROM (SELECT 1 FROM orders limit 1)"):
        with pytest.raises(UsageError, match="LIMIT isn't kept"):
            session.table(query)
    for query in (
        "SELECT id FROM shop.orders LIMIT 1",
        "SELECT 1 FROM shop.orders WHERE id > 0 LIMIT 1",
        "SELECT 1 FROM shop.orders ORDER BY id LIMIT 1",
        "SELECT count(*) FROM shop.orders LIMIT 1",
        "SELECT 1 LIMIT 1",
    ):
        assert session.table(query).num_rows == 1


def test_a_plan_is_shown(session: SqlSession) -> None:
    plan = session.table("EXPLAIN SELECT id FROM shop.orders WHERE id > 1").to_pylist()
    assert any("id" in row["plan"] and "Filter" in row["plan"] for row in plan)
    assert [row["column_name"] for row in session.table("DESCRIBE shop.orders").to_pylist()] == ["id", "total"]


def test_files_that_are_gone_are_said_to_be(tmp_path: Path) -> None:
    table = TableAt.of(str(tmp_path), TableName("shop", "orders"), 0)
    write_deltalake(table.path, pa.table({"id": [1]}))
    assert SqlSession([table]).table("SELECT id FROM shop.orders").num_rows == 1
    for file in Path(table.path).glob("*.parquet"):
        file.unlink()
    with pytest.raises(LakeError, match=r"shop\.orders: files of its Delta version 0 are gone"):
        SqlSession([table]).table("SELECT id FROM shop.orders")


def test_a_version_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    table = TableAt.of(str(tmp_path), TableName("shop", "orders"), 0)
    write_deltalake(table.path, pa.table({"id": [1]}))
    later = TableAt(table.name, table.path, 7)
    with pytest.raises(LakeError, match="its Delta version 7 are gone"):
        SqlSession([later]).table("SELECT * FROM shop.orders")
    (Path(table.path) / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(LakeError, match="its Delta version 0 are gone"):
        SqlSession([table]).table("SELECT * FROM shop.orders")


def values(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows.to_pylist()]
