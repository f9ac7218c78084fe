"""Shapes as metadata keep them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from binlake.schema.table import Column, Index, TableSchema, Virtual
from binlake.serialization import dump, dumps, load, loads

SHAPE = TableSchema(
    (
        Column("id", "int", nullable=False),
        Column("kind", "enum", charset="utf8mb4", values=("a", "b")),
        Column("v", "datetime", generated=True, virtual=Virtual("from_unixtime(`id`)", "mysql")),
    ),
    ("id",),
    "primary",
    frozenset({"secret"}),
    indexes=(Index("kind", ("kind", None), (None, None), unique=True, by_hash=True),),
    kept=(Column("gone", "int"),),
    untold=("v",),
)
COLUMN_BEFORE = {
    "name", "type", "unsigned", "length", "precision", "scale", "fraction", "charset", "values", "nullable", "default",
    "default_is_expression", "generated", "invisible", "auto_increment", "zerofill",
}  # fmt: skip
"""What metadata of version 0.1.0 tell of a column."""


def test_shapes_come_back_from_json() -> None:
    loaded = loads(TableSchema, dumps(SHAPE))
    assert loaded == SHAPE
    assert (loaded.indexes, loaded.kept) == (SHAPE.indexes, SHAPE.kept)
    assert loaded.column("v").virtual == SHAPE.column("v").virtual


COMMENTED = replace(
    SHAPE,
    columns=tuple(replace(column, comment=f"of {column.name}") for column in SHAPE.columns),
    kept=(Column("gone", "int", comment="it was"),),
    comment="of all",
)


def test_comments_are_kept_and_not_compared() -> None:
    assert COMMENTED == SHAPE
    assert COMMENTED.fingerprint == SHAPE.fingerprint
    loaded = loads(TableSchema, dumps(COMMENTED))
    assert (loaded.comment, loaded.lake_comments) == ("of all", {"id": "of id", "kind": "of kind", "gone": "it was"})
    assert SHAPE.commented_as(COMMENTED).comment == "of all"
    assert COMMENTED.commented_as(SHAPE).lake_comments == {"gone": "it was"}


def test_comments_of_excluded_columns_are_recorded_nowhere() -> None:
    excluding = COMMENTED.excluding(frozenset({"kind"}))
    assert "of kind" not in dumps(excluding)
    assert "of kind" not in dumps(excluding.commented_as(COMMENTED))


def test_shapes_of_older_metadata_can_be_read() -> None:
    dumped: dict[str, Any] = dump(SHAPE)
    older = {key: dumped[key] for key in ("key", "key_kind", "excluded", "charset")}
    for part in ("columns", "kept"):
        older[part] = [{key: column[key] for key in COLUMN_BEFORE} for column in dumped[part]]
    older["indexes"] = [
        {key: index[key] for key in ("name", "columns", "prefixes", "unique")} for index in dumped["indexes"]
    ]
    loaded = load(TableSchema, older)
    assert [column.name for column in loaded.mirrored] == ["id", "kind", "v"]
    assert loaded.indexes == (Index("kind", ("kind", None), (None, None), unique=True),)
