"""Rows that a condition leaves out aren't in the lake: not from the snapshot, not from the log, and they go if they
leave it. Nothing here starts Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import comparison
from binlake import pipeline
from binlake.doctor.preflight import preflight
from binlake.errors import BinlakeError
from binlake.records import status
from binlake.records.status import TableStatus
from binlake.report import Report
from binlake_airflow.page import tables as page_tables
from feeding import carried, feed, plain_lines
from mirror import Mirror, on_mysql
from servers import Server
from without_spark import no_spark, path, put, repair, result, rows, sync, verify

WHERE = "status <> 'draft' AND tenant IN (1, 2)"
ORDERS = "CREATE TABLE orders (id INT PRIMARY KEY, tenant INT, status VARCHAR(20), note VARCHAR(40))"


@pytest.fixture
def alone(server: Server, database: str, lake: Path) -> Mirror:
    mirror = Mirror(server, database, lake, None, reader="direct")  # type: ignore[arg-type]
    filtered(mirror)
    return mirror


def filtered(mirror: Mirror, where: str = WHERE, **options: Any) -> None:
    mirror.options = {"rows": [{"tables": f"{mirror.database}.*", "where": where}], **options}


def begin_alone(mirror: Mirror) -> None:
    pipeline.bootstrap(mirror.config, mirror.origin, no_spark, Report())


def assert_filtered(mirror: Mirror, *tables: str, where: str = WHERE) -> None:
    """The lake has the rows that the server selects by the condition, and verify says so."""
    for table in tables:
        comparison.assert_equal(mirror.server, mirror.database, table, path(mirror, table), where=where)
        assert verify(mirror, f"{mirror.database}.{table}").equal, table


def state(mirror: Mirror, table: str) -> TableStatus:
    tables = status.read_status(mirror.config).tables
    return next(row for row in tables if row.table == f"{mirror.database}.{table}")


def test_rows_come_in_and_leave(alone: Mirror) -> None:
    alone.execute(
        ORDERS,
        "CREATE TABLE keyless (tenant INT, status CHAR(10) CHARACTER SET latin1, v DOUBLE)",
        "INSERT INTO orders VALUES (1, 1, 'new', 'in'), (2, 1, 'Draft ', 'out'), (3, 9, 'new', 'out'),"
        " (4, NULL, 'new', 'out'), (5, 2, NULL, 'out'), (6, 2, 'paid', 'in'), (7, 2, 'paid', 'in'),"
        " (8, 1, 'draft', '')",
        "INSERT INTO keyless VALUES (1, 'new', 1), (1, 'new', 1), (1, 'draft', 1), (9, 'new', 1)",
    )
    begin_alone(alone)
    assert_filtered(alone, "orders", "keyless")
    alone.execute(
        "UPDATE orders SET note = 'still in' WHERE id = 1",
        "UPDATE orders SET status = 'new' WHERE id = 2",
        "UPDATE orders SET tenant = 9 WHERE id = 6",
        "UPDATE orders SET note = 'still out' WHERE id = 3",
        "UPDATE orders SET id = 70 WHERE id = 7",
        "UPDATE orders SET id = 40, tenant = 1 WHERE id = 4",
        "UPDATE orders SET id = 10, status = 'DRAFT' WHERE id = 1",
        "INSERT INTO orders VALUES (11, 1, 'new', 'in'), (12, 3, 'new', 'out')",
        "DELETE FROM orders WHERE id IN (5, 12)",
        "UPDATE keyless SET status = 'draft' LIMIT 1",
        "UPDATE keyless SET tenant = 2 WHERE tenant = 9",
        "DELETE FROM keyless WHERE status = 'new' AND tenant = 1",
        "XA START 'x'", "UPDATE orders SET tenant = 3 WHERE id = 11", "XA END 'x'", "XA PREPARE 'x'",
    )  # fmt: skip
    sync(alone)
    alone.execute("XA COMMIT 'x'", "INSERT INTO orders VALUES (13, 1, 'x', ''), (14, 1, 'draft', '')")
    sync(alone)
    assert_filtered(alone, "orders", "keyless")
    alone.execute("TRUNCATE orders", "INSERT INTO orders VALUES (1, 1, 'draft', ''), (2, 2, 'a', '')")
    alone.execute(ORDERS.replace("orders", "late"), "INSERT INTO late SELECT * FROM orders")
    sync(alone)
    assert_filtered(alone, "orders", "keyless", "late")


def test_statements_on_the_columns_of_a_condition(alone: Mirror) -> None:
    alone.execute(*(ORDERS.replace("orders", name) for name in ("wider", "collated", "renamed", "gone")))
    begin_alone(alone)
    for name in ("wider", "collated", "renamed", "gone"):
        alone.execute(f"INSERT INTO {name} VALUES (1, 1, 'new', ''), (2, 1, 'Draft', ''), (3, 9, 'new', '')")
    sync(alone)
    alone.execute(
        "ALTER TABLE wider MODIFY tenant BIGINT, ADD more INT DEFAULT 7 FIRST, RENAME COLUMN note TO remark",
        "INSERT INTO wider VALUES (1, 4, 2, 'new', ''), (1, 5, 2, 'draft', '')",
        "ALTER TABLE collated MODIFY status VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "INSERT INTO collated VALUES (4, 1, 'Draft', '')",
        "ALTER TABLE renamed RENAME COLUMN status TO state",
        "INSERT INTO renamed VALUES (4, 1, 'new', '')",
        "ALTER TABLE gone DROP status",
        "INSERT INTO gone VALUES (4, 1, '')",
    )
    sync(alone)
    sync(alone)
    assert_filtered(alone, "wider", "collated")
    for name, word in (("renamed", "renames"), ("gone", "drops")):
        stopped = state(alone, name)
        said = (stopped.status, word in str(stopped.reason), "rows" in str(stopped.remedy))
        assert said == ("stopped", True, True)


def test_a_copy_of_a_schema_change_tool_has_the_same_rows(alone: Mirror) -> None:
    alone.execute(ORDERS, "INSERT INTO orders VALUES (1, 1, 'new', ''), (2, 1, 'draft', ''), (3, 9, 'x', '')")
    begin_alone(alone)
    alone.execute(
        "CREATE TABLE _orders_gho LIKE orders",
        "ALTER TABLE _orders_gho MODIFY status VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, ADD w INT",
        "INSERT INTO _orders_gho (id, tenant, status, note) SELECT * FROM orders",
        "UPDATE orders SET status = 'DRAFT' WHERE id = 2",
        "UPDATE _orders_gho SET status = 'DRAFT' WHERE id = 2",
        "RENAME TABLE orders TO _orders_del, _orders_gho TO orders",
        "INSERT INTO orders VALUES (4, 1, 'draft', '', 1), (5, 1, 'Draft', '', 1)",
    )
    sync(alone)
    assert_filtered(alone, "orders")
    assert rows(alone, "orders").column("id").to_pylist().count(2) == 1


@on_mysql
def test_a_feed_has_what_comes_in_and_leaves(alone: Mirror) -> None:
    config = feed(alone)
    alone.follow_from_here()
    alone.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, tenant INT, status VARCHAR(9))",
        "INSERT INTO t VALUES (1, 1, 'secret'), (2, 1, 'draft'), (3, 9, 'hidden')",
        "UPDATE t SET status = 'draft' WHERE id = 1",
        "UPDATE t SET tenant = 8 WHERE id = 3",
        "UPDATE t SET status = 'new' WHERE id = 2",
        "DELETE FROM t",
    )
    sync(alone)
    carried(alone, config)
    assert [line.partition("{")[0] for line in plain_lines(alone)[1:]] == [
        "insert t ",
        "delete t ",
        "insert t ",
        "delete t ",
    ]
    assert "hidden" not in str(plain_lines(alone))


@on_mysql
def test_a_changed_condition_copies_the_table_again(alone: Mirror) -> None:
    alone.execute(ORDERS, "INSERT INTO orders VALUES (1, 1, 'new', ''), (2, 1, 'draft', '')")
    begin_alone(alone)
    for where in ("tenant = 1", "status = 'draft'"):
        filtered(alone, where)
        sync(alone)
        assert_filtered(alone, "orders", where=where)
    alone.options = {}
    sync(alone)
    assert_filtered(alone, "orders", where="TRUE")


def test_a_value_of_which_nothing_is_certain_stops_its_table(alone: Mirror) -> None:
    alone.execute(ORDERS, "INSERT INTO orders VALUES (1, 1, 'new', '')")
    begin_alone(alone)
    alone.execute("INSERT INTO orders VALUES (2, 1, 'größer', ''), (3, 1, 'dräft', '')")
    sync(alone)
    stopped = state(alone, "orders")
    assert (stopped.status, "plain ASCII" in str(stopped.reason), "dräft" in str(stopped)) == (
        "stopped",
        True,
        False,
    )


def test_images_without_the_column_stop_their_table(alone: Mirror) -> None:
    alone.execute(ORDERS, "INSERT INTO orders VALUES (1, 1, 'new', '')")
    begin_alone(alone)
    alone.execute("SET binlog_row_image = MINIMAL", "UPDATE orders SET note = 'x'")
    sync(alone)
    assert (state(alone, "orders").status, "partial" in (state(alone, "orders").reason or "")) == ("stopped", True)


@on_mysql
def test_deleted_rows_stay_and_verify_finds_what_should_not_be_there(alone: Mirror) -> None:
    alone.modes = [{"tables": f"{alone.database}.*", "soft_delete": True, "history": {}}]
    alone.execute(ORDERS, "INSERT INTO orders VALUES (1, 1, 'new', ''), (2, 1, 'draft', ''), (3, 2, 'b', '')")
    begin_alone(alone)
    alone.execute("UPDATE orders SET status = 'draft' WHERE id = 1", "UPDATE orders SET status = 'x' WHERE id = 2")
    sync(alone)
    there = {row["id"]: row["_deleted"] for row in rows(alone, "orders").to_pylist()}
    assert (there, verify(alone).equal) == ({1: True, 2: False, 3: False}, True)
    lake = rows(alone, "orders")
    secret = next(row for row in lake.to_pylist() if row["id"] == 3) | {"id": 9, "status": "draft"}
    put(alone, "orders", pa.concat_tables([lake, pa.Table.from_pylist([secret], lake.schema)]))
    assert not verify(alone).equal
    repair(alone)
    assert verify(alone).equal


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("state = 1", "no column 'state'"),
        ("id = '1'", "a number without quotes"),
        ("status = 1", "the value in quotes"),
        ("status > 'a'", "whose order isn't known"),
    ],
)
@on_mysql
def test_a_condition_that_does_not_fit_the_table_is_refused_by_name(alone: Mirror, where: str, said: str) -> None:
    filtered(alone, where)
    alone.execute("CREATE TABLE orders (id INT PRIMARY KEY, status VARCHAR(9))")
    with pytest.raises(BinlakeError, match=said):
        begin_alone(alone)


def test_doctor_says_what_a_condition_leaves_and_which_collation_it_cannot_have(alone: Mirror) -> None:
    filtered(alone, "tenant <= 3 AND name <> 'x'")
    alone.options["rows"].append({"tables": f"{alone.database}.nothing", "where": "id = 1"})
    named = "name VARCHAR(9) CHARACTER SET utf8mb4 COLLATE {}"
    alone.execute(
        f"CREATE TABLE known (id INT PRIMARY KEY, tenant INT, {named.format('utf8mb4_general_ci')}, KEY (tenant))",
        f"CREATE TABLE roman (id INT PRIMARY KEY, tenant INT, {named.format('utf8mb4_roman_ci')})",
        "INSERT INTO known VALUES " + ", ".join(f"({number}, {number}, 'a')" for number in range(1, 101)),
        "ANALYZE TABLE known",
    )
    checks = {check.name: check for check in preflight(alone.config, alone.endpoint, spark_checks=False)}
    known, roman = (checks[f"table {alone.database}.{name}"] for name in ("known", "roman"))
    left = "rows, of which tenant <= 3 AND name <> 'x' leaves about "
    assert (known.ok, left in known.found) == (True, True)
    assert (roman.ok, "collation (number 239)" in roman.found) == (False, True)
    assert (checks["rows"].ok, "nothing" in checks["rows"].found) == ("warn", True)
    with pytest.raises(BinlakeError, match="number 239"):
        begin_alone(alone)


def test_a_condition_of_snapshots_alone(alone: Mirror) -> None:
    since = {"tables": f"{alone.database}.*", "snapshot_where": "tenant >= 2"}
    alone.options = {"rows": [since, {"tables": f"{alone.database}.orders", "where": "status <> 'draft'"}]}
    alone.execute(
        ORDERS, "CREATE TABLE plain (id VARCHAR(9) PRIMARY KEY, tenant INT, note TEXT)",
        "INSERT INTO orders VALUES (1, 2, 'new', ''), (2, 1, 'new', ''), (3, 1, 'new', ''), (4, 1, 'new', ''),"
        " (5, NULL, 'new', ''), (6, 2, 'draft', ''), (7, 1, 'draft', ''), (8, 1, 'new', '')",
        "INSERT INTO plain SELECT id, tenant, status FROM orders", "ANALYZE TABLE orders, plain",
    )  # fmt: skip
    begin_alone(alone)
    assert sorted(rows(alone, "orders")["id"].to_pylist()) == [1]
    assert sorted(rows(alone, "plain")["id"].to_pylist()) == ["1", "6"]
    for name in ("orders", "plain"):
        estimate = page_tables.table(alone.config, f"{alone.database}.{name}")["filter_estimate"]
        assert 0 <= estimate["left"] <= estimate["rows"] == 8, estimate
    assert verify(alone).equal, "rows that the snapshot left out are no differences"
    alone.execute(
        "UPDATE orders SET note = 'x' WHERE id = 2", "DELETE FROM orders WHERE id = 3",
        "UPDATE orders SET id = 40 WHERE id = 4", "UPDATE orders SET status = 'draft' WHERE id = 5",
        "UPDATE orders SET status = 'new' WHERE id = 7", "INSERT INTO orders VALUES (9, 1, 'new', '')",
        "UPDATE plain SET tenant = 1 WHERE id = '1'", "UPDATE plain SET tenant = 3 WHERE id = '2'",
        "ALTER TABLE plain ADD more INT DEFAULT 5", "DELETE FROM plain WHERE id = '4'",
    )  # fmt: skip
    sync(alone)
    assert sorted(rows(alone, "orders")["id"].to_pylist()) == [1, 2, 7, 9, 40]
    assert sorted(rows(alone, "plain")["id"].to_pylist()) == ["1", "2", "6"]
    assert verify(alone).equal
    for name in ("orders", "plain"):
        lake = rows(alone, name)
        kept = [row for row in lake.to_pylist() if str(row["id"]) not in ("1", "9", "6")]
        put(alone, name, pa.Table.from_pylist(kept, lake.schema))
    missing = {table.name.table: [(row.kind, row.key[0][1]) for row in table.rows] for table in verify(alone).tables}
    assert missing == {"orders": [("missing", "1")], "plain": [("missing", "6")]}
    repair(alone)
    assert verify(alone).equal
    assert sorted(rows(alone, "orders")["id"].to_pylist()) == [1, 2, 7, 40], "9 is beyond the snapshot, and not known"
    lake = rows(alone, "orders")
    wrong = [{**row, "note": "wrong"} if row["id"] == 40 else row for row in lake.to_pylist()]
    put(alone, "orders", pa.Table.from_pylist(wrong, lake.schema))
    assert [(row.kind, row.columns) for row in result(alone, "orders").rows] == [("changed", ("note",))]
    repair(alone)
    assert verify(alone).equal


def test_where_deleted_rows_stay_one_that_no_snapshot_copied_comes_with_its_delete(alone: Mirror) -> None:
    """Its last values are in the log, as those of a row that is updated, and then deleted."""
    alone.options = {"rows": [{"tables": f"{alone.database}.*", "snapshot_where": "tenant >= 2"}]}
    alone.modes = [{"tables": f"{alone.database}.*", "soft_delete": True}]
    alone.execute(
        "CREATE TABLE kept (id INT PRIMARY KEY, tenant INT)", "INSERT INTO kept VALUES (1, 2), (2, 1), (3, 1), (4, 1)"
    )
    begin_alone(alone)
    alone.execute(
        "DELETE FROM kept WHERE id = 2", "UPDATE kept SET tenant = 0 WHERE id = 3", "DELETE FROM kept WHERE id = 3"
    )
    sync(alone)
    there = {row["id"]: (row["tenant"], row["_deleted"]) for row in rows(alone, "kept").to_pylist()}
    assert there == {1: (2, False), 2: (1, True), 3: (0, True)}
    assert verify(alone).equal


def test_a_partitioned_table_with_a_condition_of_snapshots_is_compared_some_chunks_at_a_time(
    alone: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is asked for the whole table for each group of chunks, where their ranges are too many."""
    filtered(alone, "tenant > 0")
    alone.options["rows"].append({"tables": f"{alone.database}.*", "snapshot_where": "tenant >= 2"})
    alone.execute(
        "CREATE TABLE parts (id INT PRIMARY KEY, tenant INT) PARTITION BY HASH (id) PARTITIONS 3",
        f"INSERT INTO parts VALUES {', '.join(f'({n}, {n % 4})' for n in range(400))}",
    )
    begin_alone(alone)
    alone.execute("UPDATE parts SET tenant = 5 WHERE id % 100 = 1")
    sync(alone)
    for module in ("lake_rows", "key_cells"):
        monkeypatch.setattr(f"binlake.verify.reading.{module}.ROWS_PER_CHUNK", 50)
    monkeypatch.setattr("binlake.verify.reading.lake_rows._MOST_TIMES", 100)
    monkeypatch.setattr("binlake.verify.reading.by_read._TOGETHER", 1)
    assert verify(alone).equal
    monkeypatch.setattr("binlake.verify.reading.server_rows._MOST_RANGES", 0)
    compared = result(alone, "parts")
    assert (compared.equal, compared.rows) == (True, ())
    assert (compared.source_rows, compared.lake_rows) == (204, 204)
    put(alone, "parts", rows(alone, "parts").slice(1))
    assert [row.kind for row in result(alone, "parts").rows] == ["missing"]
