"""A shape says no value of columns that are withheld."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binlake.schema.table import Column, TableSchema, Virtual
from binlake.schema.virtual import leaving_out
from binlake.schema.withheld_values import without_values

ID = Column("id", "int", nullable=False)
KIND = Column("kind", "enum", charset="utf8mb4", values=("zq", "b"), default="zq", comment="zq")


def shape(*columns: Column) -> TableSchema:
    return TableSchema((ID, *columns), ("id",), "primary")


def computed(name: str, expression: str, kind: str = "varchar") -> Column:
    return Column(name, kind, length=9, charset="utf8mb4", generated=True, virtual=Virtual(expression, "mysql"))


def test_members_defaults_and_comments_of_withheld_columns_go() -> None:
    other = replace(KIND, name="other")
    shown = without_values(shape(KIND, other), {"kind"})
    assert shown.columns[1:] == (Column("kind", "enum", charset="utf8mb4"), other)
    assert shown.columns[1].comment == ""
    assert without_values(shown, {"kind"}) == shown
    kept = without_values(replace(shape(), kept=(KIND,)), {"kind"})
    assert kept.kept == (Column("kind", "enum", charset="utf8mb4"),)


def test_a_column_that_has_another_name_in_the_lake_is_withheld_by_that_of_the_server() -> None:
    renamed = replace(KIND, name="sort", server_name="kind")
    assert without_values(shape(renamed), {"kind"}).column("sort").values == ()
    assert without_values(shape(renamed), {"sort"}).column("sort").values == KIND.values


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("`kind` = 'zq'", "`kind` = '***'"),
        ("if(kind = x'7a71', 918273, id + 5)", "if ( kind = x'' , 0 , id + 0 )"),
        ("concat(id, 'zq')", "concat(id, 'zq')"),
    ],
)
def test_literals_go_where_a_withheld_column_is_read(expression: str, shown: str) -> None:
    virtual = without_values(shape(KIND, computed("g", expression)), {"kind"}).column("g").virtual
    assert virtual is not None
    assert virtual.expression == shown


def test_literals_of_expressions_that_are_too_long_to_be_analysed_go() -> None:
    long = computed("g", "concat(id, 'zq')" + " + 1" * 70_000)
    virtual = without_values(shape(KIND, long), {"kind"}).column("g").virtual
    assert virtual is not None
    assert "zq" not in virtual.expression
    assert leaving_out(without_values(shape(KIND, long), {"kind"})).untold == leaving_out(shape(KIND, long)).untold


@pytest.mark.parametrize(
    ("kind", "expression"),
    [
        ("date", "if(kind = 'zq', d, '2020-01-01 00:00:00+01:00')"),
        ("date", "if(kind = 'zq', d, '2020-01-01')"),
        ("varchar", "if(kind = 'zq', date_format(d, '%M zq'), '')"),
        ("varchar", "if(kind = 'zq', date_format(d, '%Y zq'), '')"),
    ],
)
def test_the_lake_has_the_same_columns(kind: str, expression: str) -> None:
    plain = shape(KIND, Column("d", "date"), computed("g", expression, kind))
    assert leaving_out(without_values(plain, {"kind"})).untold == leaving_out(plain).untold
