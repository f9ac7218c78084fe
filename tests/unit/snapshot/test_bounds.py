"""Bounds: the conditions on both their sides leave out no row and share none, and text gives them back."""

from __future__ import annotations

from decimal import Decimal
from itertools import product
from typing import Any

import pytest

from binlake.schema.table import Column, TableSchema
from binlake.snapshot import bounds
from binlake.snapshot.bounds import Bound, Edge
from binlake.source.catalog import KeyPart

KIND = Column("kind", "enum", values=("x", "y", "z"), charset="latin1")
PAIR = TableSchema((Column("a", "int"), Column("b", "int"), KIND), ("a", "b", "kind"), "primary")


def rows_of(condition: str) -> set[tuple[int, ...]]:
    """Those of 25 rows of which a condition is true, by Python's reading of it."""
    expression = condition.replace(" = ", " == ").replace("OR", "or").replace("AND", "and").replace("`", "")
    return {(a, b) for a, b in product(range(5), range(5)) if eval(expression, {}, {"a": a, "b": b})}


@pytest.mark.parametrize("descending", [*product((False, True), repeat=2)])
@pytest.mark.parametrize("bound", [(2,), (2, 3), (0, 0), (4, 4)])
def test_a_bound_parts_all_rows(bound: tuple[int, ...], descending: tuple[bool, bool]) -> None:
    edges: Bound = tuple(
        Edge(name, str(at), down) for name, at, down in zip(("a", "b"), bound, descending, strict=False)
    )

    def place(row: tuple[int, ...]) -> list[int]:
        return [-at if down else at for at, down in zip(row[: len(bound)], descending, strict=False)]

    every = set(product(range(5), range(5)))
    assert rows_of(bounds.before(PAIR, edges)) == {row for row in every if place(row) < place(bound)}
    assert rows_of(bounds.from_on(PAIR, edges)) == {row for row in every if place(row) >= place(bound)}
    assert rows_of(bounds.behind(PAIR, edges)) == {row for row in every if place(row) > place(bound)}


def test_the_values_of_an_enum_are_listed() -> None:
    bound = (Edge("kind", "2"), Edge("a", "7"))
    assert bounds.before(PAIR, bound) == "(`kind` IN (0, 1) OR (`kind` = 2 AND `a` < 7))"
    assert bounds.from_on(PAIR, bound) == "(`kind` IN (3) OR (`kind` = 2 AND `a` >= 7))"
    assert bounds.behind(PAIR, (Edge("kind", "3"),)) == "FALSE"
    assert bounds.behind(PAIR, (Edge("kind", "1", descending=True),)) == "`kind` IN (0)"


@pytest.mark.parametrize("bound", [None, (Edge("a", "1"),), (Edge("a", "_sjis X'95' COLLATE c", True), Edge("b", "2"))])
def test_bounds_as_text(bound: Bound | None) -> None:
    assert bounds.read(bounds.write(bound), PAIR) == bound


def test_a_number_alone_is_of_the_first_column() -> None:
    assert bounds.read("-12", PAIR) == (Edge("a", "-12"),)


@pytest.mark.parametrize(
    ("column", "value", "literal"),
    [
        (Column("k", "bigint", unsigned=True), 2**64 - 1, "18446744073709551615"),
        (Column("k", "int", zerofill=9), "000000012", "12"),
        (Column("k", "decimal", precision=30, scale=12), Decimal("0E-12"), "0.000000000000"),
        (Column("k", "double"), "[-1.2345678901234567e-300]", "-1.2345678901234567e-300"),
        (Column("k", "float"), "[0.5]", "0.5e0"),
        (Column("k", "varchar", charset="sjis"), "835C", "_sjis X'835C' COLLATE sjis_bin"),
        (Column("k", "binary"), "", "_binary X''"),
        (Column("k", "date"), "2020-02-29", "DATE'2020-02-29'"),
        (Column("k", "date"), "2020-02-30", None),
        (Column("k", "datetime"), "0000-00-00 00:00:00", None),
        (Column("k", "datetime", fraction=3), "1000-01-01 00:00:00.125", "TIMESTAMP'1000-01-01 00:00:00.125'"),
        (Column("k", "time"), "-838:59:59", "TIME'-838:59:59'"),
        (Column("k", "inet6"), "::1", "CAST('::1' AS INET6)"),
    ],
)
def test_literals(column: Column, value: Any, literal: str | None) -> None:
    bound = bounds.of_row([KeyPart(column, collation="sjis_bin")], {"k0": value})
    assert bound == (None if literal is None else (Edge("k", literal),))


@pytest.mark.parametrize(
    "column",
    [
        Column("k", "year", length=2),
        Column("k", "set", values=("a",)),
        Column("k", "enum", values=tuple(map(str, range(256)))),
        Column("k", "geometry"),
        Column("k", "text"),
    ],
)
def test_types_that_are_no_bounds(column: Column) -> None:
    assert not bounds.is_usable(KeyPart(column))
