"""Which virtual columns the log tells, by their expressions."""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

from binlake.ddl import statements
from binlake.ddl.dependents import Altered, recomputed
from binlake.position import Flavour
from binlake.schema import arithmetic, expressions
from binlake.schema.lexer import Token
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
    image = pa.StructArray.from_arrays(
        [pa.array([5, 6, 7, None], pa.int32()), pa.array([1, None, -(2**31), 0], pa.int32())], ["pk", "n"]
    )
    term = arithmetic.parsed(schema.column("v"), schema)
    assert arithmetic.computed(term, image, pa.int32()).to_pylist() == [3, None, 2**31 - 1, None]


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


# -- what a stranger writes --------------------------------------------------------------------------------


@contextmanager
def within_seconds(limit: float) -> Iterator[None]:
    began = time.process_time()
    yield
    assert time.process_time() - began < limit


def chain(count: int, expression: str) -> str:
    """Return the definitions of g0 to g{count - 1}; in each expression {0} is the column before."""
    columns = ", ".join(f"g{number} INT AS ({expression.format(f'g{number - 1}')})" for number in range(1, count))
    return f"g0 INT AS (pk), {columns}"


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
@pytest.mark.parametrize(
    "expression",
    [
        "ABS(" * 500 + "n" + ")" * 500,
        "(" * 20_000 + "n" + ")" * 20_000,
        "-" * 20_000 + "n",
        "CAST(" * 500 + "n" + " AS CHAR)" * 500,
        "IF(n," * 500 + "n" + ",0)" * 500,
    ],
)
def test_what_is_nested_too_deep_is_not_told(expression: str, flavour: Flavour) -> None:
    with within_seconds(5):
        schema = shape(f"INT AS ({expression})", flavour)
        assert schema.untold == (() if expression.startswith("-") else ("v",))
        if schema.untold:
            assert "more than 100 levels deep" in generated_columns(schema).left_out["v"]


@pytest.mark.parametrize("count", [99, 400, 1000])
def test_a_chain_of_columns_is_told_whatever_its_length(count: int) -> None:
    with within_seconds(5):
        schema = shape(f"INT AS (g{count - 1} + 1)", columns=f"pk INT PRIMARY KEY, {chain(count, '{0} + 1')}")
        assert schema.untold == ()


@pytest.mark.parametrize("expression", ["{0} + {0}", "{0} * {0}", "ABS({0}) + {0} + {0}"])
def test_columns_that_refer_twice_to_the_one_before_take_no_longer(expression: str) -> None:
    with within_seconds(5):
        schema = shape("INT AS (g99)", columns=f"pk INT PRIMARY KEY, {chain(100, expression)}")
        assert schema.untold == ()


def test_the_lake_computes_what_is_short_enough() -> None:
    counted = "pk INT PRIMARY KEY AUTO_INCREMENT, "
    doubled = generated_columns(shape("INT AS (n)", columns=f"n INT, {counted}{chain(100, '{0} + {0}')}"))
    assert doubled.computed == {"g0", "g1", "g2", "g3", "g4", "g5", "g6"}
    assert doubled.left_out.keys() == {f"g{number}" for number in range(7, 100)}
    with within_seconds(10):
        summed = shape(f"INT AS (pk{' + n' * 60}), w INT AS (pk{' + n' * 600})", columns=f"n INT, {counted}m INT")
        assert generated_columns(summed).computed == {"v"}
        lake_computes = arithmetic.parsed(summed.column("v"), summed)
        image = pa.StructArray.from_arrays([pa.array([2]), pa.array([3])], ["pk", "n"])
        assert arithmetic.computed(lake_computes, image, pa.int32()).to_pylist() == [2 + 60 * 3]


def test_each_expression_of_a_shape_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = replace(
        shape("INT AS (g9 * 2)", columns=f"n INT, pk INT PRIMARY KEY AUTO_INCREMENT, {chain(10, '{0} + pk')}")
    )
    read: Counter[str] = Counter()
    tokens_of = expressions.tokens_of

    def counted(virtual: Virtual) -> list[Token]:
        read[virtual.expression] += 1
        return tokens_of(virtual)

    monkeypatch.setattr(expressions, "tokens_of", counted)
    generated = generated_columns(schema)
    assert len(generated.formulas) == 11
    assert generated_columns(schema) is generated
    assert len(read) == 11
    assert set(read.values()) == {1}


def test_a_shape_travels_without_what_was_derived_from_it() -> None:
    schema = shape("INT AS (pk + 1)", columns="pk INT PRIMARY KEY AUTO_INCREMENT")
    generated = generated_columns(schema)
    copy = pickle.loads(pickle.dumps(schema))
    assert copy == schema == replace(schema)
    assert vars(copy).keys() == vars(replace(schema)).keys() < vars(schema).keys()
    assert generated_columns(copy) == generated
    without = replace(schema, unlogged=True, columns=schema.columns[:1])
    assert not generated_columns(without).formulas
    assert dumps(schema) == dumps(copy)


@pytest.mark.parametrize("expression", ["{0}", "{0} + 1", "{0} * 2 - n", "{0} + {0}"])
def test_the_work_for_a_chain_grows_with_its_length(expression: str) -> None:
    schema = shape("INT AS (n)", columns=f"n INT, pk INT PRIMARY KEY AUTO_INCREMENT, {chain(60, expression)}")
    computed = sorted(generated_columns(schema).computed)
    assert computed
    with within_seconds(5):
        formulas = arithmetic.Formulas(schema)
        image = pa.StructArray.from_arrays([pa.array([1] * 1000)] * 2, ["n", "pk"])
        for name in computed:
            assert len(arithmetic.computed(formulas.of(schema.column(name)), image, pa.int32())) == 1000


def test_expressions_of_too_many_characters_are_not_told() -> None:
    long = ", ".join(f"g{number} TEXT AS (CONCAT(s, '{'x' * 60_000}'))" for number in range(5))
    with within_seconds(5):
        schema = shape("INT AS (n + 1)", columns=f"n INT, s TEXT, {long}")
    assert schema.untold == ("g0", "g1", "g2", "g3", "g4", "v")
    assert "262,144 characters" in generated_columns(schema).left_out["v"]
    nothing: frozenset[str] = frozenset()
    assert recomputed(schema, Altered(nothing, nothing, nothing, False)) == []
    assert len(recomputed(schema, Altered(nothing, frozenset({"other"}), nothing, False))) == 6


def test_what_an_alter_reaches_takes_no_longer_for_a_chain() -> None:
    schema = shape("INT AS (g999 + 1) STORED", columns=f"pk INT PRIMARY KEY, {chain(1000, '{0} + {0}')}")
    nothing: frozenset[str] = frozenset()
    with within_seconds(5):
        assert len(recomputed(schema, Altered(frozenset({"pk"}), nothing, nothing, False))) == 1001
