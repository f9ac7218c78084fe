"""A dictionary as a data contract and as dbt's sources is valid by the schemas that their owners publish."""

from __future__ import annotations

import gzip
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import yaml
from jsonschema.validators import validator_for  # type: ignore[import-untyped]

from binlake.cli.dictionary_formats import Dictionary, written
from binlake.lake.dictionary import DictionaryColumn, DictionaryTable, TableExtent
from binlake.lake.table_at import TableAt
from binlake.schema.foreign_key import ForeignKey
from binlake.schema.table import TableName

if TYPE_CHECKING:
    from binlake.lake.lake_versions import LakeVersion

STANDARDS = Path(__file__).parent / "standards"
TYPES = (
    "boolean", "byte", "short", "integer", "long", "float", "double", "decimal(38,10)", "string", "binary", "date",
    "timestamp", "timestamp_ntz", "array<float>",
)  # fmt: skip
ODD = ("id", "a b", "c.d", "é", "x-y", "2z", "`q`", "sel'ect", "{{ now }}", "a/b#c")
ORDERS, LINES = TableName("shop", "orders"), TableName("shop", "order lines.v-2 ä")
OTHERS, ITSELF = TableName("other", "orders"), TableName("shop", "2x")
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
ROOTS = ("/lake/shop", "s3://lake/shop", "s3a://lake/shop", "abfss://lake@account.dfs.core.windows.net/shop",
         "hdfs://host:8020/shop")  # fmt: skip


def table(name: TableName, columns: tuple[str, ...], key: tuple[str, ...], *, verified: bool) -> DictionaryTable:
    described = tuple(
        DictionaryColumn(
            column,
            number + 1,
            TYPES[number % len(TYPES)],
            "" if number % 3 == 2 else "bigint unsigned",
            nullable=column not in key,
            in_key=key.index(column) + 1 if column in key else 0,
            comment="it's {{ a }} | comment\nof two lines" if number % 2 else "",
        )
        for number, column in enumerate(columns)
    )
    proved: tuple[Any, Any] = (7, MOMENT) if verified else (None, None)
    return DictionaryTable(TableAt(name, f"/lake/{name}", 3), "", described, key, "primary", *proved)


def dictionary(root: str, *, is_chosen: bool) -> Dictionary:
    tables = [
        table(ORDERS, ("id", "customer", "shop"), ("id",), verified=True),
        table(LINES, ODD, ("id",), verified=False),
        table(OTHERS, ("id", "k", *(f"c{number}" for number in range(20))), ("id", "k"), verified=True),
        table(ITSELF, ODD, ("a b", "c.d"), verified=False),
        table(TableName("shop", "without_columns"), (), (), verified=False),
    ]
    keys = [
        ForeignKey(ORDERS, "plain", ("customer",), OTHERS, ("id",)),
        ForeignKey(ORDERS, "odd", ("shop",), LINES, ("a b",)),
        ForeignKey(LINES, "several", ("x-y", "é"), OTHERS, ("id", "k")),
        ForeignKey(LINES, "back", ("id",), ORDERS, ("id",)),
        ForeignKey(ITSELF, "itself", ("a b", "c.d"), ITSELF, ("2z", "`q`")),
    ]
    version = cast("LakeVersion", SimpleNamespace(batch=4, committed=MOMENT))
    return Dictionary("shop", root, version, is_chosen, tables, {ORDERS: TableExtent(1, 2, 3)}, keys)


def faults(standard: str, text: str) -> list[str]:
    with gzip.open(STANDARDS / f"{standard}.json.gz") as file:
        schema = json.load(file)
    return [f"{error.json_path}: {error.message}" for error in validator_for(schema)(schema).iter_errors(parsed(text))]


def parsed(text: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(text)
    return document


@pytest.mark.parametrize("root", ROOTS)
def test_a_data_contract_is_valid(root: str) -> None:
    text = written(dictionary(root, is_chosen=True), "odcs")
    assert faults("odcs-3.1.0", text) == []
    assert faults("odcs-3.1.0", re.sub("kind: .*", "kind: Nothing", text)), "the schema refuses something"


def test_references_of_a_data_contract_lead_to_its_columns() -> None:
    contract = parsed(written(dictionary("/lake/shop", is_chosen=True), "odcs"))
    places = {}
    for of_table in contract["schema"]:
        for column in of_table["properties"]:
            where = of_table["physicalName"], column["name"]
            places[f"{of_table['name']}.{column['name']}"] = where
            places[f"schema/{of_table['id']}/properties/{column['id']}"] = where
    orders, lines, _, itself, _ = contract["schema"]
    referred = [each["to"] for column in orders["properties"] for each in column.get("relationships", ())]
    assert [places[each] for each in referred] == [("other.orders", "id"), (str(LINES), "a b")]
    (several,) = lines["relationships"]
    assert [places[each] for each in several["from"]] == [(str(LINES), "x-y"), (str(LINES), "é")]
    assert [places[each] for each in itself["relationships"][0]["to"]] == [(str(ITSELF), "2z"), (str(ITSELF), "`q`")]


@pytest.mark.parametrize("is_chosen", [True, False])
def test_dbts_sources_are_valid(is_chosen: bool) -> None:
    text = written(dictionary("/lake/shop", is_chosen=is_chosen), "dbt")
    assert faults("dbt-1.12.6", text) == []
    assert faults("dbt-1.12.6", text.replace("period: hour", "period: eon")), "the schema refuses something"
