"""A shape with the lake's names of columns, and with the server's."""

from __future__ import annotations

import pyarrow as pa
import pytest

from binlake.errors import ConfigurationError, UnfitColumn
from binlake.schema import datatypes
from binlake.schema.lake_forms import LakeForm, Misfit, fitted, in_form, lake_form, server_shape
from binlake.schema.table import Column, Index, TableSchema, Virtual

SHAPE = TableSchema(
    (
        Column("id", "int"),
        Column("Comment", "varchar", length=9, charset="utf8mb4"),
        Column("soft", "int", generated=True, virtual=Virtual("`id` + 1", "mysql")),
        Column("gone", "int"),
    ),
    key=("id",),
    key_kind="primary",
    excluded=frozenset({"gone"}),
    indexes=(Index("by_comment", ("Comment", None), (None, None)),),
)


def test_every_part_of_a_shape_has_the_lakes_names() -> None:
    named = in_form(SHAPE, LakeForm({"id": "order_id", "comment": "note", "gone": "other", "missing": "x"}))
    assert [column.name for column in named.columns] == ["order_id", "note", "soft", "gone"]
    assert named.key == ("order_id",)
    assert named.indexes[0].columns == ("note", None)
    assert named.columns[2].virtual is not None
    assert "order_id" in named.columns[2].virtual.expression
    assert lake_form(named).names == {"id": "order_id", "comment": "note"}
    assert server_shape(named) == SHAPE
    assert server_shape(named).indexes == SHAPE.indexes


def test_names_may_be_swapped() -> None:
    named = in_form(SHAPE, LakeForm({"id": "Comment", "comment": "id"}))
    assert [column.name for column in named.columns] == ["Comment", "id", "soft", "gone"]
    assert named.key == ("Comment",)
    assert server_shape(named) == SHAPE


@pytest.mark.parametrize("name", ["SOFT", "gone", "id"])
def test_a_name_that_another_column_has_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"the column 'Comment' can't be called '{name}' in the lake"):
        in_form(SHAPE, LakeForm({"comment": name}))


def test_the_name_of_an_excluded_column_that_the_table_lacks_is_refused() -> None:
    shape = TableSchema((Column("id", "int"), Column("text", "int")), excluded=frozenset({"note"}))
    with pytest.raises(UnfitColumn, match="'text' can't be called 'note' in the lake: the YAML excludes"):
        in_form(shape, LakeForm({"text": "note"}))


def test_comments_are_those_of_the_servers_columns() -> None:
    shape = TableSchema((Column("id", "int", comment="of id"), Column("text", "int", comment="of text")))
    named = in_form(shape, LakeForm({"id": "text", "text": "id"}))
    for other in (shape, named):
        commented = named.commented_as(other)
        assert [(column.name, column.comment) for column in commented.columns] == [("text", "of id"), ("id", "of text")]


def test_a_shape_without_other_names_has_the_fingerprint_of_before() -> None:
    assert server_shape(SHAPE) is SHAPE
    assert "server_name" not in SHAPE.uncommented()["columns"][0]


def test_whole_numbers_may_be_bigint() -> None:
    numbers = TableSchema(
        (Column("id", "bigint", unsigned=True), Column("n", "decimal", precision=20, scale=0), Column("t", "int"))
    )
    named = in_form(numbers, LakeForm({"n": "m"}, {"id": "bigint", "n": "bigint", "missing": "bigint"}))
    assert [column.shown.declared for column in named.columns] == ["bigint", "bigint", "int"]
    assert [column.declared for column in named.columns] == ["bigint unsigned", "decimal(20,0)", "int"]
    assert server_shape(named) == numbers


@pytest.mark.parametrize(
    "column",
    [
        Column("id", "decimal", precision=20, scale=2), Column("id", "varchar", length=9), Column("id", "double"),
        Column("id", "bigint", generated=True),
    ],
    ids=str,
)  # fmt: skip
def test_others_may_not(column: Column) -> None:
    with pytest.raises(ConfigurationError, match="the column 'id' can't be BIGINT in the lake"):
        in_form(TableSchema((column,)), LakeForm({}, {"id": "bigint"}))


def test_a_number_that_a_bigint_cant_hold_is_pointed_at() -> None:
    kind = pa.decimal128(20, 0)
    assert fitted(pa.array([1, None, 2**63 - 1], kind), "bigint").to_pylist() == [1, None, 2**63 - 1]
    with pytest.raises(Misfit) as misfit:
        fitted(pa.array([1, None, 2**63, 2**64 - 1], kind), "bigint")
    assert misfit.value.row == 2


def test_a_tinyint_may_be_boolean_where_it_has_0_and_1() -> None:
    flags = TableSchema((Column("on", "tinyint", length=1, default="1"), Column("id", "tinyint")), key=("id",))
    (shown, _) = in_form(flags, LakeForm({}, {"on": "boolean"})).columns
    assert (datatypes.delta_type(shown.shown), shown.shown.default) == ("BOOLEAN", "b'1'")
    with pytest.raises(ConfigurationError, match="the column 'id' can't be BOOLEAN in the lake: it is of the key"):
        in_form(flags, LakeForm({}, {"id": "boolean"}))
    assert fitted(pa.array([0, None, 1], pa.int8()), "boolean").to_pylist() == [False, None, True]
    with pytest.raises(Misfit) as misfit:
        fitted(pa.array([0, None, 2], pa.int8()), "boolean")
    assert misfit.value.row == 2
