"""A table whose shape can't be read has a reason, and the others are read."""

from __future__ import annotations

import re
from typing import Any

import pytest

from binlake.ddl.keys import with_key
from binlake.schema.table import TableName, TableSchema
from binlake.source import catalog
from binlake.source.catalog import read_schemas, read_tables
from recorded_server import RecordedServer

ODD, PLAIN = TableName("shop", "odd"), TableName("shop", "plain")
COLUMN = {
    "d": "shop", "name": "id", "type": "int", "declared": "int", "value": None, "extra": "", "nullable": "NO",
    "charset": None, "length": None, "digits": 10, "scale": 0, "fraction": None, "expression": None, "comment": "",
}  # fmt: skip


def server(odd: dict[str, Any]) -> RecordedServer:
    tables = [
        {
            "d": "shop", "t": name, "collation": "utf8mb4_bin", "kind": "BASE TABLE", "comment": "", "engine": "InnoDB",
            "n": 1, "size": 1, "rows": 1, "parts": 0,
        }
        for name in ("odd", "plain")
    ]  # fmt: skip
    return RecordedServer("9.7.4", answers={
        "information_schema.tables": tables,
        "information_schema.columns": [{**COLUMN, "t": "plain"}, {**COLUMN, "t": "odd", **odd}],
        "information_schema.statistics": [],
    })  # fmt: skip


@pytest.mark.parametrize("error", [RecursionError(), MemoryError(), KeyError("secret"), ValueError("secret")])
def test_an_unexpected_error_in_a_shape_costs_its_table(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(schema: TableSchema, *keys: Any) -> TableSchema:
        if schema.columns[0].comment == "odd":
            raise error
        return with_key(schema, *keys)

    monkeypatch.setattr(catalog, "with_key", failing)
    source = server({"comment": "odd"})
    assert read_schemas(source, [ODD, PLAIN]).keys() == {PLAIN}
    tables = read_tables(source, [ODD, PLAIN])
    assert re.fullmatch(
        rf"its shape can't be read: {type(error).__name__} at test_unreadable_tables.py:\d+", tables[ODD].unreadable
    )
    assert not tables[ODD].schema.columns
    assert not tables[PLAIN].unreadable
    assert [column.name for column in tables[PLAIN].schema.columns] == ["id"]


def test_entries_that_are_not_understood_cost_their_table() -> None:
    tables = read_tables(server({"type": "decimal", "digits": "many", "scale": 2}), [ODD, PLAIN])
    assert tables[ODD].unreadable.startswith("its shape can't be read: ValueError at catalog.py:")
    assert not tables[PLAIN].unreadable


def test_an_unexpected_error_in_what_the_yaml_excludes_costs_its_table() -> None:
    def excluding(name: TableName, schema: TableSchema) -> TableSchema:
        if name == ODD:
            raise RecursionError
        return schema

    tables = read_tables(server({}), [ODD, PLAIN], excluding)
    assert tables[ODD].unreadable.startswith("its shape can't be read: RecursionError")
    assert not tables[PLAIN].unreadable
