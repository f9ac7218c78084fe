"""What other readers of Delta tables can read themselves: the table in sql/README.md is true."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, QueryBuilder

import clickhouse_engine
from binlake.lake.table_at import TableAt
from binlake.lake.view_statements import named_views, statements
from binlake.schema.table import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "sql" / "README.md"
FEATURES = ("deletion vectors", "column mapping", "type widening")
STATEMENTS = {
    "deletion vectors": (
        "CREATE TABLE {t} (id INT, v STRING) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        "INSERT INTO {t} SELECT /*+ REPARTITION(1) */ * FROM VALUES (1, 'one'), (2, 'two'), (3, 'three')",
        "DELETE FROM {t} WHERE id = 3",
    ),
    "column mapping": (
        "CREATE TABLE {t} (id INT, a STRING, b STRING) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "INSERT INTO {t} VALUES (1, 'wrong', 'one'), (2, 'wrong', 'two')",
        "ALTER TABLE {t} DROP COLUMN a",
        "ALTER TABLE {t} RENAME COLUMN b TO v",
    ),
    "type widening": (
        "CREATE TABLE {t} (id SMALLINT, v STRING) USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        "INSERT INTO {t} VALUES (1, 'one')",
        "ALTER TABLE {t} ALTER COLUMN id TYPE INT",
        "INSERT INTO {t} VALUES (2, 'two')",
    ),
}
ROWS = [(1, "one"), (2, "two")]
Rows = list[tuple[Any, ...]]


def by_query_builder(path: str) -> Rows:
    read = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT id, v FROM t").read_all()
    return [tuple(row.values()) for row in read.to_struct_array().to_pylist()]


def by_pyarrow(path: str) -> Rows:
    return [(row["id"], row["v"]) for row in DeltaTable(path).to_pyarrow_table().to_pylist()]


def by_polars(path: str) -> Rows:
    import polars

    return polars.scan_delta(path).select("id", "v").collect().rows()


def by_duckdb(path: str) -> Rows:
    import duckdb

    from binlake.lake.duckdb_views import load_extension

    with duckdb.connect() as connection:
        load_extension(connection, "delta")
        return connection.execute(f"SELECT id, v FROM delta_scan('{path}')").fetchall()


def by_chdb(path: str) -> Rows:
    (rows,) = clickhouse_engine.read(Path(path).parent, f"SELECT id, v FROM deltaLakeLocal('{path}')")
    return rows


READERS: dict[str, Callable[[str], Rows]] = {
    "`binlake sql`, deltalake's QueryBuilder": by_query_builder,
    "DuckDB": by_duckdb,
    "polars": by_polars,
    "deltalake's `to_pyarrow_table`, `to_pandas`": by_pyarrow,
    "chDB, the engine of ClickHouse": by_chdb,
}


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A table of each feature, by Spark."""
    root = tmp_path_factory.mktemp("features")
    paths = {feature: str(root / feature.replace(" ", "_")) for feature in FEATURES}
    for feature, path in paths.items():
        for statement in STATEMENTS[feature]:
            spark.sql(statement.format(t=f"delta.`{path}`"))
    return paths


def listed() -> dict[str, dict[str, str]]:
    """The page's table: by reader and feature what it says."""
    rows = re.findall(r"^\| (.+) \| (yes|no) \| (yes|no) \| (yes|no) \|$", PAGE.read_text(), re.MULTILINE)
    return {reader: dict(zip(FEATURES, said, strict=True)) for reader, *said in rows}


def test_the_page_lists_these_readers() -> None:
    assert listed().keys() == {"Spark with Delta", *READERS}


@pytest.mark.parametrize("feature", FEATURES)
def test_spark_reads_all(made: dict[str, str], spark: SparkSession, feature: str) -> None:
    read = spark.sql(f"SELECT id, v FROM delta.`{made[feature]}` ORDER BY id").collect()
    assert [tuple(row) for row in read] == ROWS
    assert listed()["Spark with Delta"][feature] == "yes"


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_reads_what_the_page_says(made: dict[str, str], reader: str, feature: str) -> None:
    """It gives the rows, or fails: none gives others."""
    if listed()[reader][feature] == "yes":
        assert sorted(READERS[reader](made[feature])) == ROWS
    else:
        with pytest.raises(Exception, match=r"\w") as raised:
            READERS[reader](made[feature])
        assert not isinstance(raised.value, ImportError)


def test_printed_views_are_of_their_version(made: dict[str, str], spark: SparkSession) -> None:
    """Version 1 has the row that version 2 deleted."""
    import duckdb

    from binlake.lake.duckdb_views import load_extension

    shown = named_views([TableAt(TableName("features", "Deleted Rows"), made["deletion vectors"], 1)], "1")
    for statement in statements("spark", shown):
        spark.sql(statement)
    assert spark.table("features__at_1.deleted_rows").count() == 3
    spark.sql("DROP DATABASE features__at_1 CASCADE")
    with duckdb.connect() as connection:
        load_extension(connection, "delta")  # where it isn't installed, LOAD delta fails: it is left out here
        for statement in statements("duckdb", shown)[1:]:
            connection.execute(statement)
        assert connection.execute("SELECT count(*) FROM features__at_1.deleted_rows").fetchall() == [(3,)]
