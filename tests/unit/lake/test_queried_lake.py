"""Queries that see two versions at once, what became of rows between them, and what is known of tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from binlake.errors import UsageError
from binlake.lake import pins
from binlake.lake.opened_lake import Lake, open_lake
from binlake.lake.table_moments import AskedVersion, replaced
from binlake.records.decisions import Reason
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import ReadableRow
from recorded_lake import record_lake

LOG = [("operation", pa.string()), ("batch", pa.int64()), ("position", pa.string())]
IMAGES = [
    (f"{which}_{name}", kind)
    for which in ("before", "after")
    for name, kind in (("id", pa.int64()), ("note", pa.string()), ("price", pa.float64()))
]


def orders(*rows: tuple[int, str | None, float | None]) -> pa.Table:
    names = ("id", "note", "price")
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    kinds = (pa.int64(), pa.string(), pa.float64())
    return pa.table([pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)], names)


def logged(*rows: tuple[Any, ...]) -> pa.Table:
    """Rows of a log: operation, batch, position, then the row before and after; NULL for an image that isn't."""
    flat = [(*row[:3], *(row[3] or (None,) * 3), *(row[4] or (None,) * 3)) for row in rows]
    schema = pa.schema([*LOG, *IMAGES])
    columns = zip(*flat, strict=True) if flat else ((),) * len(schema)
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema)


MUTATIONS = [
    ("insert", 1, "1", None, (1, "a", 0.0)),
    ("insert", 1, "2", None, (2, "b", None)),
    ("insert", 1, "3", None, (3, "c", 1.0)),
    ("update", 2, "4", (1, "a", 0.0), (1, "a", -0.0)),
    ("update", 2, "5", (2, "b", None), (2, "x", None)),
    ("update", 2, "6", (2, "x", None), (2, "b", None)),
    ("delete", 2, "7", (3, "c", 1.0), None),
    ("insert", 2, "8", None, (4, "d", None)),
    ("update", 2, "9", (4, "d", None), (5, "d", None)),
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake in which batch 2 sets a zero's sign, changes a row forth and back, and deletes and inserts rows."""
    root = tmp_path_factory.mktemp("lake") / "shop"
    first = [("a", 1), ("a", 1), ("b", None)]
    second = [("a", 1), ("b", None), ("b", None), ("c", 2)]
    visits, later = (
        pa.table({"page": [row[0] for row in rows], "n": pa.array([row[1] for row in rows], pa.int64())})
        for rows in (first, second)
    )
    record_lake(
        root,
        {"shop.orders": orders(), "shop.visits": visits, "shop.orders__log": logged(), "shop.same": visits},
        {
            "shop.orders": orders((1, "a", 0.0), (2, "b", None), (3, "c", 1.0)),
            "shop.orders__log": logged(*MUTATIONS[:3]),
        },
        {
            "shop.orders": orders((1, "a", -0.0), (2, "b", None), (5, "d", None)),
            "shop.visits": later,
            "shop.orders__log": logged(*MUTATIONS),
        },
        mode="overwrite",
    )
    pins.pin(Metadata(f"{root}/_binlake"), 1, "before", Reason("me", "for a test"))
    return open_lake(root.parent)


def rows(lake: Lake, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(query).to_pylist()]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT id FROM shop.orders AT (BATCH 1) ORDER BY id", [1, 2, 3]),
        ("SELECT orders.id FROM orders at ( batch 1 ) WHERE orders.id > 1 ORDER BY 1", [2, 3]),
        ("SELECT id FROM shop . `orders` AT (TIMESTAMP '1970-01-01T01:30') ORDER BY id", [1, 2, 3]),
        ('SELECT id FROM "shop"."orders" AT (PIN before) ORDER BY id', [1, 2, 3]),
        ("SELECT id FROM shop.orders AT (PIN 'before') AS old ORDER BY old.id", [1, 2, 3]),
        ("SELECT n.id FROM shop.orders n LEFT ANTI JOIN shop.orders AT (BATCH 1) o ON n.id = o.id", [5]),
        ("SELECT (SELECT count(*) FROM orders AT (BATCH 1)) - count(*) FROM orders AT (BATCH 2)", [0]),
        ("SELECT 'shop.orders AT (BATCH 9)' -- orders AT (BATCH 9)", ["shop.orders AT (BATCH 9)"]),
        ("SELECT batch FROM (VALUES (1)) AS at (batch)", [1]),
    ],
)
def test_a_table_may_be_read_at_a_version_of_its_own(lake: Lake, query: str, expected: list[Any]) -> None:
    assert [row for (row,) in rows(lake, query)] == expected


@pytest.mark.parametrize(
    ("query", "said", "remedy"),
    [
        ("SELECT * FROM shop.orders AT (BATCH 9)", "batch 9 isn't known as a version", "the nearest is batch 2"),
        ("SELECT * FROM shop.orders AT (BATCH nine)", "'BATCH nine' names no version", "AT (BATCH 120)"),
        ("SELECT * FROM shop.orders AT (TIMESTAMP 1970)", "names no version", "AT (TIMESTAMP '2026-01-31T12:00')"),
        ("SELECT * FROM shop.orders AT (TIMESTAMP 'then')", "'then' is not a time", "write a time such as"),
        ("SELECT * FROM shop.orders AT (PIN month_end)", "no version is called 'month_end'", "names are before"),
        ("SELECT * FROM shop.ordrs AT (BATCH 1)", "there is no table shop.ordrs; did you mean shop.orders?", ""),
        ("SELECT * FROM changes('shop.orders', 2, 1)", "goes from batch 2 back to 1", "changes('shop.orders', 1, 2)"),
        ("SELECT * FROM changes('shop.orders', one, 2)", "'one' names no version", "changes('shop.orders', 120, 125)"),
    ],
)
def test_a_version_that_is_not_there_is_said(lake: Lake, query: str, said: str, remedy: str) -> None:
    with pytest.raises(UsageError) as raised:
        lake.sql(query)
    assert said in raised.value.message
    assert remedy in raised.value.remedy


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 'changes(''t'', 1, 2)', \"t AT (BATCH 1)\" FROM t /* u AT (BATCH 1) */ -- u AT (BATCH 1)",
        "SELECT a AT TIME ZONE 'UTC' FROM t AS at (batch, pin)",
        "SELECT changes(a, 1, 2) FROM t",
        "WITH changes (a, b) AS (SELECT 1, 2) SELECT a FROM changes",
    ],
)
def test_a_query_without_versions_stays_as_it_is(query: str) -> None:
    def never(*asked: object) -> str:
        raise AssertionError(asked)

    assert replaced(query, never, never) == query


def test_names_and_versions_are_taken_from_the_text() -> None:
    seen: list[tuple[str, AskedVersion]] = []

    def table(written: str, asked: AskedVersion) -> str:
        seen.append((written, asked))
        return "T"

    text = 'SELECT 1 FROM a . "b""c" AT (BATCH 7) x, (SELECT * FROM `d e`\nAT(PIN p)) y, a.b.c AT (BATCH 1)'
    assert replaced(text, table, lambda *_: "") == ("SELECT 1 FROM T x, (SELECT * FROM T) y, a.b.c AT (BATCH 1)")
    assert seen == [('a."b""c"', AskedVersion(batch=7)), ("`d e`", AskedVersion(name="p"))]


CHANGES = [
    ("delete", 1, 3, "c", 1.0, None, None, None),
    ("insert", 1, None, None, None, 5, "d", None),
    ("update", 1, 1, "a", 0.0, 1, "a", -0.0),
]


def changes_of_orders(lake: Lake, origin: str) -> list[tuple[Any, ...]]:
    query = "SELECT * FROM changes('shop.orders', 1, 2) ORDER BY operation"
    found = lake.sql(query)
    assert set(found["origin"].to_pylist()) == {origin}
    return [tuple(row.values()) for row in found.drop_columns(["origin"]).to_pylist()]


def test_what_became_of_rows_between_two_batches(lake: Lake) -> None:
    assert changes_of_orders(lake, "versions") == CHANGES
    assert str(changes_of_orders(lake, "versions")[2][-1]) == "-0.0"
    assert rows(lake, "SELECT * FROM changes('shop.same', PIN before, 2)") == []
    assert rows(lake, "SELECT count(*) FROM changes('orders', TIMESTAMP '1970-01-01T01:30', BATCH 2) AS c") == [(3,)]


def test_equal_rows_of_a_table_without_a_key_are_counted(lake: Lake) -> None:
    asked = "SELECT operation, \"rows\", before_page, after_page, after_n FROM changes('visits', 1, 2) ORDER BY 1, 4"
    assert rows(lake, asked) == [
        ("delete", 1, "a", None, None),
        ("insert", 1, None, "b", None),
        ("insert", 1, None, "c", 2),
    ]


def test_a_log_tells_what_files_can_not_any_more(lake: Lake) -> None:
    pins.unpin(lake.metadata, "before")
    gone = ReadableRow(table_id="life of shop.orders", database="shop", table="orders", delta_version=2, at_us=now_us())
    ReadableRow.append(lake.metadata, [gone])
    with pytest.raises(UsageError, match="batch 1 can't be read any more") as raised:
        lake.sql("SELECT * FROM shop.visits AT (BATCH 1)")
    assert "take batch 2, which is the nearest" in raised.value.remedy
    assert changes_of_orders(lake, "log") == CHANGES
    with pytest.raises(UsageError, match="batch 1 can't be read any more"):
        lake.sql("SELECT * FROM changes('visits', 1, 2)")


def test_information_schema_tells_of_tables_and_columns(lake: Lake) -> None:
    tables = (
        "SELECT table_name, table_rows, key_columns, batch FROM information_schema.tables WHERE table_name <> 'same'"
    )
    assert rows(lake, f"{tables} ORDER BY 1") == [
        ("orders", 3, "id", 2),
        ("orders__log", 9, "id", 2),
        ("visits", 4, "id", 2),
    ]
    columns = "SELECT column_name, column_type, is_nullable, column_key, lake_type FROM INFORMATION_SCHEMA.COLUMNS"
    assert rows(lake, f"{columns} WHERE table_name = 'orders' ORDER BY ordinal_position") == [
        ("id", "bigint", "NO", "PRI", "long"),
        ("note", "", "YES", "", "string"),
        ("price", "", "YES", "", "double"),
    ]


@pytest.mark.parametrize(
    ("statement", "first"),
    [
        ("SHOW TABLES", ("shop", "orders")),
        ("show full tables from `shop` like 'v%';", ("shop", "visits")),
        ("SHOW DATABASES", ("shop",)),
        ("DESCRIBE shop.orders", ("id", "bigint", "NO", "PRI", "long", "")),
        ("desc `orders`;", ("id", "bigint", "NO", "PRI", "long", "")),
        ("SHOW COLUMNS FROM orders", ("id", "bigint", "NO", "PRI", "long", "")),
    ],
)
def test_what_is_shown_and_described(lake: Lake, statement: str, first: tuple[Any, ...]) -> None:
    assert rows(lake, statement)[0] == first


def test_what_is_not_there_is_not_described(lake: Lake) -> None:
    with pytest.raises(UsageError, match=r"there is no table shop\.ordrs; did you mean shop\.orders\?"):
        lake.sql("DESCRIBE shop.ordrs")
    with pytest.raises(UsageError, match="SHOW isn't a query"):
        lake.sql("SHOW CREATE TABLE orders")
