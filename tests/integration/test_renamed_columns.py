"""Columns that have another name in the lake than on the server."""

from __future__ import annotations

import io
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from binlake import pipeline
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.snapshot import cutting, jdbc
from binlake.source.catalog import read_tables
from binlake.source.server import Source
from binlake.verify.reading import key_cells, lake_rows
from feeding import carried, feed
from mirror import Mirror, on_mysql, sync_alone
from servers import Server
from without_spark import no_spark, path, put, repair, rows, verify

COLUMNS = (
    "id BIGINT PRIMARY KEY, comment VARCHAR(40) COMMENT 'what was said', status VARCHAR(9), cents INT,"
    " twice BIGINT AS (cents * 2) STORED, soft BIGINT AS (cents + id) VIRTUAL, UNIQUE (comment, id)"
)


@pytest.fixture
def renaming(server: Server, database: str, lake: Path) -> Mirror:
    """A database with columns that are renamed, whose lake is written without Spark."""
    mirror = Mirror(server, database, lake, None, reader="direct")  # type: ignore[arg-type]
    named = {"comment": "note", "id": "order_id", "cents": "price_cents", "status": "state"}
    mirror.options = {
        "columns": [{"columns": f"{database}.orders.{name}", "rename": other} for name, other in named.items()],
        "rows": [{"tables": f"{database}.orders", "where": "status <> 'draft'"}],
    }
    return mirror


def make(mirror: Mirror) -> None:
    """Create the table, with three rows of which a condition leaves one out."""
    mirror.execute(
        f"CREATE TABLE orders ({COLUMNS})",
        "INSERT INTO orders (id, comment, status, cents) VALUES"
        " (1, 'one', 'paid', 10), (2, 'two', 'draft', 20), (3, NULL, 'paid', 30)",
        "CREATE TABLE plain (id INT PRIMARY KEY, comment TEXT)",
        "INSERT INTO plain VALUES (1, 'as it is')",
    )


def snapshot(mirror: Mirror, *patterns: str) -> None:
    pipeline.bootstrap(mirror.config, mirror.origin, no_spark, Report(io.StringIO()), tables=list(patterns) or None)


def shown(mirror: Mirror, table: str = "orders") -> list[tuple[Any, ...]]:
    """The rows of the lake's table by the columns that it has from the server."""
    read = rows(mirror, table)
    return sorted(tuple(row.values()) for row in read.to_pylist())


def test_the_lake_has_the_other_name_from_snapshot_log_and_statements(renaming: Mirror) -> None:
    mirror = renaming
    mirror.modes = [{"tables": f"{mirror.database}.orders", "log": {}, "history": {"track": ["note", "state"]}}]
    make(mirror)
    snapshot(mirror)
    assert rows(mirror, "orders").column_names == ["order_id", "note", "state", "price_cents", "twice", "soft"]
    assert rows(mirror, "plain").column_names == ["id", "comment"]
    assert shown(mirror) == [(1, "one", "paid", 10, 20, 11), (3, None, "paid", 30, 60, 33)]
    mirror.execute(
        "UPDATE orders SET status = 'paid' WHERE id = 2",
        "UPDATE orders SET id = 4, comment = 'four' WHERE id = 1",
        "DELETE FROM orders WHERE id = 3",
        "INSERT INTO orders (id, comment, status, cents) VALUES (5, 'five', 'draft', 50), (6, 'six', 'new', 60)",
        "ALTER TABLE orders MODIFY comment VARCHAR(80) FIRST, ADD tax DECIMAL(5, 2) DEFAULT 1.50, MODIFY cents BIGINT",
        "UPDATE orders SET comment = 'changed' WHERE id = 6",
        "ALTER TABLE orders RENAME COLUMN tax TO duty",
    )
    sync_alone(mirror)
    assert mirror.watermark("orders")["status"] == "following", mirror.watermark("orders")["reason"]
    assert rows(mirror, "orders").column_names == [
        "note", "order_id", "state", "price_cents", "twice", "soft", "duty",
    ]  # fmt: skip
    assert [(row[1], row[0]) for row in shown(mirror)] == [(6, "changed"), (4, "four"), (2, "two")]
    assert verify(mirror).equal
    log, history = (DeltaTable(f"{path(mirror, 'orders')}__{kind}").schema().to_json() for kind in ("log", "history"))
    assert '"before_note"' in log
    assert '"note"' in history
    assert 'comment"' not in log + history


@on_mysql
def test_rows_are_put_right_and_copied_again_under_the_other_name(renaming: Mirror) -> None:
    mirror = renaming
    make(mirror)
    snapshot(mirror)
    there = rows(mirror, "orders")
    put(mirror, "orders", there.slice(1))
    compared = verify(mirror, f"{mirror.database}.orders")
    assert not compared.equal
    repair(mirror)
    assert verify(mirror).equal
    mirror.execute("UPDATE orders SET comment = 'again' WHERE id = 3")
    snapshot(mirror, f"{mirror.database}.orders")
    sync_alone(mirror)
    assert verify(mirror).equal
    assert ("again", 3) in [(row[1], row[0]) for row in shown(mirror)]


@on_mysql
def test_a_changed_name_asks_for_a_snapshot(renaming: Mirror) -> None:
    mirror = renaming
    make(mirror)
    entries, mirror.options["columns"] = mirror.options["columns"], []
    mirror.options["policies"] = {"on_unfollowable": "stop"}
    snapshot(mirror)
    mirror.options["columns"] = entries
    mirror.execute("INSERT INTO orders (id, comment, status) VALUES (7, 'seven', 'paid')")
    sync_alone(mirror)
    mark = mirror.watermark("orders")
    assert mark["status"] == "stopped"
    assert "the YAML (columns) calls column 'comment' 'note', and the lake 'comment'" in mark["reason"]
    assert "binlake snapshot --config FILE --tables" in mark["remedy"]
    snapshot(mirror, f"{mirror.database}.orders")
    assert "note" in rows(mirror, "orders").column_names
    assert verify(mirror).equal


@on_mysql
def test_a_column_that_the_server_renames_has_the_servers_name_from_there(renaming: Mirror) -> None:
    mirror = renaming
    make(mirror)
    snapshot(mirror)
    mirror.execute(
        "ALTER TABLE orders DROP COLUMN soft, CHANGE comment remark VARCHAR(40)",
        "INSERT INTO orders (id, remark, status) VALUES (7, 'seven', 'paid')",
        "ALTER TABLE orders ADD comment INT",  # a column of the former name has the entry's
        "UPDATE orders SET comment = 5 WHERE id = 7",
    )
    sync_alone(mirror)
    assert mirror.watermark("orders")["status"] == "following", mirror.watermark("orders")["reason"]
    seven = next(row for row in rows(mirror, "orders").to_pylist() if row["order_id"] == 7)
    assert (seven["remark"], seven["note"]) == ("seven", 5)
    assert verify(mirror).equal


@on_mysql
def test_a_name_that_another_column_gets_stops_the_table_alone(renaming: Mirror) -> None:
    mirror = renaming
    make(mirror)
    snapshot(mirror)
    mirror.execute(
        "ALTER TABLE orders ADD note INT",
        "INSERT INTO orders (id, comment, note, status) VALUES (7, 'seven', 1, 'paid')",
        "INSERT INTO plain VALUES (2, 'goes on')",
    )
    sync_alone(mirror)
    mark = mirror.watermark("orders")
    assert mark["status"] == "stopped"
    assert "the column 'comment' can't be called 'note' in the lake: the column 'note'" in mark["reason"]
    assert "(rename)" in mark["remedy"]
    assert len(shown(mirror, "plain")) == 2
    mirror.options["columns"][0]["rename"] = "said"
    snapshot(mirror, f"{mirror.database}.orders")
    assert {"said", "note"} <= set(rows(mirror, "orders").column_names)
    assert verify(mirror).equal


@on_mysql
def test_a_feed_has_the_lakes_names(renaming: Mirror) -> None:
    mirror = renaming
    make(mirror)
    snapshot(mirror)
    sent = feed(mirror, format={"type": "debezium", "topic": "all"})
    carried(mirror, sent)
    mirror.execute("INSERT INTO orders (id, comment, status) VALUES (7, 'seven', 'paid')")
    sync_alone(mirror)
    carried(mirror, sent)
    written = b"".join(file.read_bytes() for file in (mirror.folder / "out").rglob("*") if file.is_file())
    assert {b"note", b"order_id"} <= set(re.findall(rb"\w+", written))


@on_mysql
def test_shards_and_masks_have_the_other_names(renaming: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror, name = renaming, renaming.database
    monkeypatch.setenv("AIRFLOW_CONN_PII_KEY", json.dumps({"password": "a key that nobody knows"}))
    mirror.options = {
        "columns": [
            {"columns": f"{name}.*.email", "hash": {"key": "pii_key", "length": 32}},
            {"columns": f"{name}.*.email", "rename": "email_hash"},
        ],
        "merge_tables": [{"from": f"{name}.orders_%", "into": "all.orders", "source_column": "tenant"}],
    }
    for number in (1, 2):
        mirror.execute(
            f"CREATE TABLE orders_{number} (email VARCHAR(40) PRIMARY KEY, n INT)",
            f"INSERT INTO orders_{number} VALUES ('a@b.c', {number})",
        )
    snapshot(mirror)
    mirror.execute(
        "INSERT INTO orders_1 VALUES ('d@e.f', 3)", "UPDATE orders_2 SET n = 5", "DELETE FROM orders_1 LIMIT 1"
    )
    sync_alone(mirror)
    table = DeltaTable(f"{mirror.config.root}/all/orders")
    asked = "SELECT tenant, n, length(email_hash) AS size FROM t ORDER BY 1, 2"
    read = pa.table(QueryBuilder().register("t", table).execute(asked).read_all()).to_pydict()
    assert read == {"tenant": ["1", "2"], "n": [3, 5], "size": [32, 32]}
    assert verify(mirror).equal


@on_mysql
def test_changes_of_foreign_keys_are_derived_under_the_other_names(renaming: Mirror) -> None:
    mirror, name = renaming, renaming.database
    mirror.options = {
        "columns": [
            {"columns": f"{name}.parents.id", "rename": "parent"},
            {"columns": f"{name}.children.parent_id", "rename": "parent"},
        ],
        "policies": {"on_unlogged_cascade": "derive"},
    }
    mirror.execute(
        "CREATE TABLE parents (id INT PRIMARY KEY)",
        "CREATE TABLE children (id INT PRIMARY KEY, parent_id INT,"
        " FOREIGN KEY (parent_id) REFERENCES parents (id) ON DELETE CASCADE)",
        "INSERT INTO parents VALUES (1), (2)",
        "INSERT INTO children VALUES (1, 1), (2, 2), (3, 1)",
    )
    snapshot(mirror)
    mirror.execute("DELETE FROM parents WHERE id = 1")
    sync_alone(mirror)
    assert shown(mirror, "children") == [(2, 2)]
    assert verify(mirror).equal


@on_mysql
def test_a_tools_copy_takes_the_tables_place_under_the_other_names(renaming: Mirror) -> None:
    mirror = renaming
    make(mirror)
    snapshot(mirror)
    mirror.execute(
        "CREATE TABLE _orders_gho LIKE orders",
        "ALTER TABLE _orders_gho ADD tax INT",
        "INSERT INTO _orders_gho (id, comment, status, cents) SELECT id, comment, status, cents FROM orders",
        "INSERT INTO _orders_gho (id, comment, status, tax) VALUES (8, 'eight', 'paid', 1)",
        "RENAME TABLE orders TO _orders_del, _orders_gho TO orders",
        "UPDATE orders SET comment = 'nine' WHERE id = 8",
    )
    sync_alone(mirror)
    assert mirror.watermark("orders")["status"] == "following", mirror.watermark("orders")["reason"]
    assert rows(mirror, "orders").column_names[:2] == ["order_id", "note"]
    assert [(row[0], row[1]) for row in shown(mirror)] == [(1, "one"), (3, None), (8, "nine")]
    assert verify(mirror, f"{mirror.database}.orders").equal


@on_mysql
def test_chunks_of_the_key_are_cut_and_compared_by_the_servers_names(
    renaming: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, name = renaming, renaming.database
    for module in (key_cells, lake_rows):
        monkeypatch.setattr(module, "ROWS_PER_CHUNK", 500)
    mirror.options = {
        "columns": [{"columns": f"{name}.t.{column}", "rename": f"{column}_key"} for column in ("a", "b")]
        + [{"columns": f"{name}.t.a", "type": "bigint"}],
    }
    mirror.execute(
        "CREATE TABLE digits (n INT PRIMARY KEY)",
        "INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)",
        "CREATE TABLE t (a BIGINT UNSIGNED, b INT, v INT, PRIMARY KEY (a, b))",
        "INSERT INTO t SELECT x.n * 10 + y.n, z.n * 4 + w.n, w.n FROM digits x, digits y, digits z, digits w"
        " WHERE w.n < 4",
        "ANALYZE TABLE t",
    )
    with Source.open(mirror.endpoint) as source:
        table = read_tables(source, [TableName(name, "t")], mirror.config.excluding)[TableName(name, "t")]
        cuts = cutting.cut(source, table.name, table.schema, 1000, 4)
        queries = [jdbc.chunk_query(table.name, table.schema, *ends) for ends in pairwise([None, *cuts, None])]
        counts = [len(source.query(query)) for query in queries]
    assert (len(counts) > 3, sum(counts)) == (True, 4000)
    snapshot(mirror)
    assert rows(mirror, "t").num_rows == 4000
    mirror.execute("DELETE FROM t WHERE a = 17", "UPDATE t SET b = b + 100 WHERE a = 23")
    sync_alone(mirror)
    (compared,) = verify(mirror, f"{name}.t").tables
    assert (compared.equal, compared.lake_rows) == (True, 3960)
    assert compared.chunks is not None
    assert compared.chunks > 1
