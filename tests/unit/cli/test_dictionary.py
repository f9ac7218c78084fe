"""``binlake dictionary``: what is known of a small lake's tables, in each format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from binlake.cli import command_line, dictionary_command
from binlake.lake.dictionary import server_text
from binlake.lake.opened_lake import open_lake
from binlake.schema.foreign_key import ForeignKey
from binlake.schema.table import Column, TableName
from binlake.store.metadata import Metadata
from binlake.store.run_rows import VerifiedRow
from recorded_lake import record_lake

ORDERS, CUSTOMERS = TableName("shop", "orders"), TableName("shop", "customers")
Written = Callable[..., str]


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dictionary")
    note = pa.field("note", pa.string(), metadata={"comment": "what they | said"})
    customer = pa.field("customer", pa.int64(), metadata={"comment": "{{ env_var('HOME') }} {%"})
    orders = pa.table([[1, 2], [7, 7], ["a", None]], pa.schema([pa.field("id", pa.int64()), customer, note]))
    root = folder / "lake" / "shop"
    record_lake(root, {"shop.orders": orders, "shop.customers": pa.table({"id": [7]})}, {"shop.orders": orders})
    verified = VerifiedRow(
        table_id="life of shop.orders", database="shop", table="orders", chunk=0, chunks=1, batch=1, at_us=3_600_000_000
    )
    VerifiedRow.append(Metadata(f"{root}/_binlake"), [verified])
    path = folder / "shop.yaml"
    path.write_text(
        "source: {name: shop, connection: shop_mysql, server_id: 4001}\n"
        f"tables: {{include: ['shop.*']}}\nlake: {{path: {folder}/lake}}\n"
    )
    return path


@pytest.fixture
def written(configured: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Written:
    """The dictionary in a format, as if the server had a foreign key."""
    key = ForeignKey(ORDERS, "bought", ("customer",), CUSTOMERS, ("id",))
    monkeypatch.setattr(dictionary_command, "_foreign_keys", lambda *_: [key])

    def write(*arguments: str) -> str:
        assert command_line.run(["dictionary", "--config", str(configured), *arguments]) == 0
        return capsys.readouterr().out

    return write


def test_foreign_keys_have_the_lakes_names_of_columns() -> None:
    key = ForeignKey(ORDERS, "bought", ("customer", "shop"), CUSTOMERS, ("id", "shop"))
    child, parent = {"customer": "shop", "shop": "customer"}, {"id": "id", "shop": "store"}
    assert dictionary_command._in_lake(key, child, parent) == ForeignKey(
        ORDERS, "bought", ("shop", "customer"), CUSTOMERS, ("id", "store")
    )
    assert dictionary_command._in_lake(key, child, {"id": "id"}) is None


def test_people_read_markdown(written: Written) -> None:
    text = written()
    assert '    "shop.customers" ||--o{ "shop.orders" : "customer"' in text
    assert "2 tables at batch 1, with all that was committed by 1970-01-01 01:00:00 UTC." in text
    assert "Key (primary): id. 4 rows, " in text
    assert "Equal to the server up to batch 1, compared at 1970-01-01 01:00:00 UTC." in text
    assert "| id | bigint | no | 1 | long |  |" in text
    assert r"| note |  | yes |  | string | what they \| said |" in text
    assert "- customer → shop.customers (id)" in text


def test_dbt_has_sources_with_tests_and_freshness(written: Written, configured: Path) -> None:
    (source,) = yaml.safe_load(written("--format", "dbt", "--tables", "shop.*"))["sources"]
    customers, orders = source["tables"]
    root = f"{configured.parent}/lake/shop"
    assert source["config"]["loaded_at_query"].startswith("SELECT make_timestamp(max(committed_us)) FROM delta_scan(")
    assert orders["config"]["meta"]["external_location"] == f"delta_scan('{root}/shop/orders')"
    assert orders["config"]["meta"]["verified_batch"] == 1
    assert [column.get("data_tests") for column in orders["columns"]] == [
        ["unique", "not_null"],
        [{"relationships": {"arguments": {"to": "source('shop', 'customers')", "field": "id"}}}],
        None,
    ]
    (chosen,) = yaml.safe_load(written("--format", "dbt", "--batch", "1"))["sources"]
    assert chosen["tables"][1]["config"]["meta"]["external_location"].endswith("/shop/orders', version => 1)")
    assert customers["name"] == "customers"


def test_dbt_runs_nothing_that_a_comment_of_the_server_has(written: Written) -> None:
    (source,) = yaml.safe_load(written("--format", "dbt"))["sources"]
    assert source["tables"][1]["columns"][1]["description"] == "{ { env_var('HOME') }} { %"


def test_a_data_contract_names_keys(written: Written) -> None:
    contract = yaml.safe_load(written("--format", "odcs"))
    assert {contract[key] for key in ("apiVersion", "kind", "version")} == {"v3.1.0", "DataContract", "1"}
    _, orders = contract["schema"]
    identity, customer, note = orders["properties"]
    assert identity == {
        "id": "id", "name": "id", "logicalType": "integer", "physicalType": "bigint", "required": True,
        "description": "", "primaryKey": True, "primaryKeyPosition": 1, "unique": True,
    }  # fmt: skip
    assert customer["relationships"] == [{"type": "foreignKey", "to": "customers.id"}]
    assert (note["logicalType"], note["physicalType"]) == ("string", "string")


def test_programs_read_json(written: Written, tmp_path: Path) -> None:
    written("--format", "json", "--output", str(tmp_path / "dictionary.json"))
    known = json.loads((tmp_path / "dictionary.json").read_text())
    customers, orders = known["tables"]
    assert (known["batch"], customers["rows"], orders["rows"]) == (1, 1, 4)
    assert orders["foreign_keys"] == [
        {"name": "bought", "columns": ["customer"], "table": "shop.customers", "referenced": ["id"]}
    ]
    assert orders["columns"][0]["server_type"] == "bigint"


def test_without_the_server_there_are_no_foreign_keys(
    configured: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_MYSQL", "mysql://nobody@127.0.0.1:1/")
    assert command_line.run(["dictionary", "--config", str(configured), "--format", "json"]) == 0
    output = capsys.readouterr()
    assert all(table["foreign_keys"] == [] for table in json.loads(output.out)["tables"])
    assert "foreign keys are left out, as the server can't be asked" in output.err
    assert command_line.run(["dictionary", "--config", str(configured), "--no-server", "--format", "json"]) == 0
    assert capsys.readouterr().err == ""


def test_an_enum_is_described_with_its_values(configured: Path) -> None:
    assert server_text(Column("state", "enum", values=("new", "it's"))) == "enum('new','it''s')"
    assert open_lake(configured).described("shop.orders").key == ("id",)
