"""``binlake.lake.open``: tables at one batch, for Arrow, pandas, polars, DuckDB."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pandas
import polars
import pyarrow as pa
import pytest

import binlake.lake
from binlake.errors import UsageError
from recorded_lake import record_lake

ORDERS = pa.schema([("id", pa.decimal128(20, 0)), ("customer", pa.int64()), ("note", pa.string())])
BLOCKED = ("pyspark", "py4j", "delta", "airflow", "pymysql", "duckdb", "polars")


def orders(*rows: tuple[int, int | None, str | None]) -> pa.Table:
    columns = zip(*((Decimal(row[0]), *row[1:]) for row in rows), strict=True)
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, ORDERS, strict=True)], ORDERS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake in which batch 1 changes both tables, batch 2 one of them."""
    folder = tmp_path_factory.mktemp("lake")
    record_lake(
        folder / "shop",
        {"shop.orders": orders((1, 10, "first")), "shop.customers": pa.table({"id": [10]})},
        {"shop.orders": orders((2, None, None), (2**64 - 1, 10, "")), "shop.customers": pa.table({"id": [11]})},
        {"shop.orders": orders((3, 11, "third"))},
    )
    return folder


@pytest.fixture
def lake(folder: Path) -> binlake.lake.Lake:
    return binlake.lake.open(folder)


def ids(rows: pa.Table) -> list[int]:
    return sorted(int(row) for row in rows["id"].to_pylist())


def test_the_newest_batch_is_opened(lake: binlake.lake.Lake) -> None:
    assert (lake.batch, lake.position) == (2, "server/binlog.000001:2000@1")
    assert lake.committed == datetime(1970, 1, 1, 2, tzinfo=UTC)
    assert lake.tables == {"shop.customers": 1, "shop.orders": 2}
    assert ids(lake.arrow("shop.orders")) == [1, 2, 3, 2**64 - 1]


def test_a_batch_is_found_by_number_and_time(lake: binlake.lake.Lake) -> None:
    first = lake.at(batch=1)
    assert first.tables == {"shop.customers": 1, "shop.orders": 1}
    assert ids(first.arrow("shop.orders")) == [1, 2, 2**64 - 1]
    for time in ("1970-01-01T01:30", "1970-01-01T02:30+01:00", datetime(1970, 1, 1, 1, 30, tzinfo=UTC)):
        assert lake.at(time=time).batch == 1
    assert lake.at(batch=numpy.int64(2)).batch == 2
    assert first.at().batch == 2
    assert [version.batch for version in first.versions()] == [1, 2]
    both = {"batch": 1, "time": "1970-01-01T02:30"}
    for wrong in ({"batch": 7}, {"name": "month_end"}, {"time": "1969-01-01"}, {"time": "then"}, both):
        with pytest.raises(UsageError):
            lake.at(**wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"time": date(1970, 1, 2)}, "what the lake was at 1970-01-02 00:00:00.000000 UTC isn't known yet"),
        ({"time": 7}, "time '7' is not a time"),
        ({"batch": "1"}, "batch='1' is no whole number"),
        ({"batch": 1.5}, r"batch=1\.5 is no whole number"),
    ],
)
def test_a_version_is_asked_for_by_values_of_several_types(
    lake: binlake.lake.Lake, wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        lake.at(**wrong)


def test_columns_rows_and_their_number_are_chosen(lake: binlake.lake.Lake) -> None:
    chosen = lake.arrow("shop.orders", columns=["note", "id"], where="customer = 10 AND note <> '' -- only")
    assert chosen.to_pylist() == [{"note": "first", "id": Decimal(1)}]
    assert lake.arrow("shop.orders", where="id > 1", limit=1).num_rows == 1
    assert lake.arrow("shop.orders").schema.equals(ORDERS)
    with pytest.raises(UsageError, match="No field named nothing"):
        lake.arrow("shop.orders", columns=["nothing"])
    with pytest.raises(UsageError, match="can't be run"):
        lake.arrow("shop.orders", where="customer =")
    with pytest.raises(UsageError, match="names no column"):
        lake.arrow("shop.orders", columns=[])


def test_pandas_keeps_whole_numbers_and_null(lake: binlake.lake.Lake) -> None:
    frame = lake.pandas("shop.orders", columns=["id", "customer", "note"]).sort_values("id", ignore_index=True)
    assert frame["customer"].dtype == pandas.ArrowDtype(pa.int64())
    assert frame["customer"].tolist()[0::2] == [10, 11]
    assert frame["customer"].isna().tolist() == [False, True, False, False]
    assert frame["id"].tolist() == [1, 2, 3, 2**64 - 1]
    assert frame["note"].isna().tolist() == [False, True, False, False]


def test_polars_has_the_same_rows(lake: binlake.lake.Lake) -> None:
    frame = lake.polars("shop.orders", where="id < 3").sort("id")
    assert frame.schema["id"] == polars.Decimal(20, 0)
    assert frame.rows() == [(Decimal(1), 10, "first"), (Decimal(2), None, None)]


def test_duckdb_has_a_view_of_each_table(lake: binlake.lake.Lake) -> None:
    with lake.at(batch=1).duckdb() as connection:
        joined = "SELECT o.id FROM shop.orders AS o JOIN shop.customers AS c ON c.id = o.customer ORDER BY o.id"
        assert connection.sql(joined).fetchall() == [(1,), (2**64 - 1,)]
        ((_, plan),) = connection.sql("EXPLAIN SELECT note FROM shop.orders WHERE customer = 10").fetchall()
        assert "Projections: note" in plan, "other columns aren't read"
        assert "Filters: customer=10" in plan, "nor what can't have such a row"
    with lake.duckdb("shop.c*") as connection:
        assert connection.sql("SELECT count(*) FROM shop.customers").fetchall() == [(2,)]
        assert "orders" not in str(connection.sql("SHOW ALL TABLES"))


@pytest.mark.parametrize("name", ["東京", "é", "it's é", "50% 😀"])
def test_duckdb_reads_tables_whose_names_are_not_ascii(name: str, tmp_path: Path) -> None:
    record_lake(tmp_path / "lake" / "shop", {f"shop.{name}": pa.table({"id": [1]})}, {})
    opened = binlake.lake.open(tmp_path / "lake")
    assert opened.duckdb().execute(f'SELECT id FROM shop."{name}"').fetchall() == [(1,)]


@pytest.mark.parametrize("database", ["temp", "system", "memory", "main"])
def test_duckdb_has_databases_that_are_called_like_its_own(database: str, tmp_path: Path) -> None:
    record_lake(tmp_path / "lake" / "shop", {f"{database}.t": pa.table({"id": [1]})}, {})
    with binlake.lake.open(tmp_path / "lake").duckdb() as connection:
        assert connection.execute(f"SELECT id FROM memory.{database}.t").fetchall() == [(1,)]


def test_sql_joins_tables(lake: binlake.lake.Lake) -> None:
    rows = lake.sql("SELECT c.id, count(o.id) AS n FROM shop.customers c LEFT JOIN shop.orders o ON o.customer = c.id "
                    "GROUP BY c.id ORDER BY c.id")  # fmt: skip
    assert rows.to_pylist() == [{"id": 10, "n": 2}, {"id": 11, "n": 1}]


def test_a_wrong_name_is_said(lake: binlake.lake.Lake) -> None:
    with pytest.raises(UsageError, match=r"did you mean shop\.orders"):
        lake.arrow("shop.order")
    with pytest.raises(UsageError, match=r"there is no table shop\.x\*"):
        lake.duckdb("shop.x*")


def test_a_lake_is_found_by_its_path_and_source(folder: Path, tmp_path: Path) -> None:
    assert binlake.lake.open(str(folder), source="shop").batch == 2
    with pytest.raises(UsageError, match="has no source 'crm'"):
        binlake.lake.open(folder, source="crm")
    with pytest.raises(UsageError, match="there is no lake at"):
        binlake.lake.open(tmp_path)
    record_lake(tmp_path / "a", {"a.t": pa.table({"id": [1]})}, {})
    record_lake(tmp_path / "b", {"b.t": pa.table({"id": [1]})}, {})
    assert binlake.lake.open(tmp_path, "b").tables == {"b.t": 0}
    with pytest.raises(UsageError) as raised:
        binlake.lake.open(tmp_path)
    assert raised.value.remedy == "name one by source=: a, b"


def test_a_lake_is_found_by_its_yaml(folder: Path, tmp_path: Path) -> None:
    yaml = tmp_path / "shop.yaml"
    yaml.write_text(
        "source: {name: shop, connection: shop_mysql, server_id: 4001}\n"
        f"tables: {{include: ['shop.*']}}\nlake: {{path: {folder}}}\n"
    )
    assert binlake.lake.open(yaml).batch == binlake.lake.open(yaml, source="shop").batch == 2
    with pytest.raises(UsageError, match="is of the source shop, not of 'crm'"):
        binlake.lake.open(yaml, source="crm")


def test_a_reader_needs_neither_spark_nor_airflow_nor_a_server(folder: Path) -> None:
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({BLOCKED}))\n"
        "import binlake.lake\n"
        f"lake = binlake.lake.open({str(folder)!r})\n"
        "print(lake.at(batch=1).arrow('shop.orders').num_rows, len(lake.pandas('shop.orders')))\n"
        "for ask in (lake.polars, lake.duckdb):\n"
        "    try: ask('shop.orders')\n"
        "    except Exception as error: print(error.remedy)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.stdout.splitlines() == ["3 4", "pip install 'binlake[polars]'", "pip install 'binlake[duckdb]'"], (
        ended.stderr
    )
