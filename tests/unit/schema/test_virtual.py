"""Which virtual columns the log tells, by their expressions."""

from __future__ import annotations

import pytest

from binlake.ddl import statements
from binlake.position import Flavour
from binlake.schema import arithmetic
from binlake.schema.table import TableSchema, Virtual
from binlake.schema.virtual import generated_columns, leaving_out, renamed
from binlake.serialization import dumps, loads
from virtual_columns import COLUMNS, COMPUTED, OFFSETS, REFUSED


def shape(declared: str, flavour: Flavour = "mariadb", columns: str = COLUMNS) -> TableSchema:
    parsed = statements.parse(f"CREATE TABLE t ({columns}, v {declared})", database="d", sql_mode=0, flavour=flavour)
    (created,) = parsed.changes
    assert isinstance(created, statements.CreateTable)
    return created.schema


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
@pytest.mark.parametrize("declared", COMPUTED)
def test_told(declared: str, flavour: Flavour) -> None:
    schema = shape(declared, flavour)
    assert schema.untold == ()
    assert schema.mirrored[-1].name == "v"
    assert not generated_columns(schema).computed


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
@pytest.mark.parametrize(("declared", "why"), REFUSED)
def test_untold(declared: str, why: str, flavour: Flavour) -> None:
    schema = shape(declared, flavour)
    assert schema.untold == ("v",)
    assert schema.logged[-1].name == "v"
    assert schema.mirrored[-1].name != "v"
    assert why in generated_columns(schema).left_out["v"]


@pytest.mark.parametrize("declared", OFFSETS)
def test_only_mysql_reads_offsets_out_of_texts(declared: str) -> None:
    assert shape(declared, "mysql").untold == ("v",)
    assert shape(declared, "mariadb").untold == ()


def test_mysql_keeps_the_mode_of_week_in_the_definition() -> None:
    assert shape("INT AS (WEEK(dt))", "mysql").untold == ()
    assert "default_week_format" in generated_columns(shape("INT AS (WEEK(dt))", "mariadb")).left_out["v"]


@pytest.mark.parametrize("declared", ["DATETIME AS (FROM_UNIXTIME(n)) STORED", "DATETIME AS (NOW()) PERSISTENT"])
def test_what_is_stored_is_as_logged(declared: str) -> None:
    assert shape(declared).untold == ()


def test_a_column_over_one_that_is_not_told_is_not_told() -> None:
    schema = shape("INT AS (YEAR(w) + 1)", columns=f"{COLUMNS}, w DATETIME AS (FROM_UNIXTIME(n))")
    assert schema.untold == ("w", "v")


def test_columns_that_are_not_told_are_no_key() -> None:
    schema = shape(
        "BIGINT AS (UNIX_TIMESTAMP(dt)) NOT NULL UNIQUE, UNIQUE KEY (n)", "mysql", "n INT NOT NULL, dt DATETIME"
    )
    assert schema.key == ("n",)


def test_columns_the_lake_computes_are_no_key() -> None:
    schema = shape("INT AS (pk + 1) NOT NULL UNIQUE", columns="pk INT NOT NULL AUTO_INCREMENT, KEY (pk)")
    assert schema.key == ()


def test_arithmetic_over_auto_increment_is_computed() -> None:
    schema = shape("INT AS (pk + n * -2)")
    assert generated_columns(schema).computed == {"v"}
    product = "CAST(CAST(CAST(after.`n` AS DECIMAL(10,0)) AS DECIMAL(38,0)) * CAST((-CAST(2 AS DECIMAL(1,0))) AS"
    product += " DECIMAL(38,0)) AS DECIMAL(38,0))"
    total = f"CAST(CAST(CAST(after.`pk` AS DECIMAL(10,0)) AS DECIMAL(38,0)) + CAST({product} AS DECIMAL(38,0))"
    total += " AS DECIMAL(38,0))"
    assert arithmetic.sql(arithmetic.parsed(schema.column("v"), schema), "after") == (
        f"IF({total} IS NULL, NULL, GREATEST(LEAST({total}, 2147483647BD), -2147483648BD))"
    )


def test_arithmetic_over_a_column_that_never_leaves_the_server_is_not_told() -> None:
    schema = leaving_out(shape("INT AS (pk + n)").excluding(frozenset({"n"})))
    assert schema.untold == ("v",)


def test_the_expression_is_kept_as_the_default_sql_mode_reads_it() -> None:
    ansi_quotes = 1 << 2
    parsed = statements.parse(
        "CREATE TABLE t (\"a b\" INT, s TEXT, v TEXT AS (CONCAT(\"a b\", 'it''s', s)))",
        database="d",
        sql_mode=ansi_quotes,
        flavour="mysql",
    )
    (created,) = parsed.changes
    assert isinstance(created, statements.CreateTable)
    virtual = created.schema.column("v").virtual
    assert virtual is not None
    assert virtual.expression == "CONCAT ( `a b` , 'it''s' , s )"


def test_renamed_columns_are_renamed_within_expressions() -> None:
    virtual = Virtual("`a` + A(b) + 'a'", "mariadb")
    assert renamed(virtual, {"a": "x`y", "b": "c"}).expression == "`x``y` + A ( `c` ) + 'a'"


def test_shapes_are_equal_however_an_expression_is_written() -> None:
    assert shape("INT AS (n+1)") == shape("INT AS ((`n` + 1))")
    assert shape("INT AS (n+1)") != shape("INT AS (n+1) STORED")


def test_shapes_come_back_from_json() -> None:
    schema = shape("DATETIME AS (FROM_UNIXTIME(n))")
    assert loads(TableSchema, dumps(schema)) == schema
