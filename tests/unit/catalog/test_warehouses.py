"""Each batch is a warehouse: its tables end at their own snapshots, and what isn't there is refused in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from deltalake import DeltaTable
from fastapi.testclient import TestClient

from binlake.catalog.catalog_routes import catalog_application
from binlake.catalog.warehouses import PublishedSource, Warehouses
from binlake.errors import UsageError
from binlake.lake import pins
from binlake.maintain.maintain import maintain
from binlake.records.decisions import Reason
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.spark.starting import no_session
from binlake.store.metadata import metadata_of
from iceberg_readers import NEWEST_READERS, by_delta
from plain_table import PlainTable
from published_lake import PublishedLake, appending

ORDERS, CUSTOMERS = TableName("shop", "orders"), TableName("shop", "customers")
ODD, HIDDEN = TableName("a b", "t/ä. %"), TableName("shop", "hidden")
COLUMNS = [("id", "INT"), ("v", "STRING")]


def served(lake: PublishedLake) -> TestClient:
    application = catalog_application(Warehouses([PublishedSource.of(lake.config)]))
    return TestClient(application, base_url="http://127.0.0.1", raise_server_exceptions=False)


def with_note(table: PlainTable) -> None:
    table.reshape([("id", "INT", "id"), ("v", "STRING", "v"), ("note", "STRING", None)])
    table.append([{"id": 2, "v": "b", "note": "n"}])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> PublishedLake:
    """A lake of four batches: the second adds a column to orders, the third changes customers alone."""
    names = (ORDERS, CUSTOMERS, ODD, HIDDEN)
    tables = ["shop.orders", "shop.customers", "a b.*"]
    lake = PublishedLake(tmp_path_factory.mktemp("lake"), dict.fromkeys(names, COLUMNS), tables=tables)
    lake.batch(dict.fromkeys(names, appending({"id": 1, "v": "a"})))
    lake.batch({ORDERS: with_note})
    lake.batch({CUSTOMERS: appending({"id": 3, "v": "c"})})
    lake.batch({ORDERS: lambda table: table.hide({table.files[0]["path"]: [0]})})
    pins.pin(metadata_of(lake.config), 1, "before_note", Reason("who", "why"))
    return lake


@pytest.fixture(scope="module")
def client(lake: PublishedLake) -> TestClient:
    return served(lake)


def loaded(client: TestClient, prefix: str, name: TableName) -> dict[str, Any]:
    answer = client.get(f"/v1/{quote(prefix)}/namespaces/{quote(name.database, '')}/tables/{quote(name.table, '')}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def refusal(client: TestClient, path: str, method: str = "GET") -> tuple[int, str, str]:
    answer = client.request(method, path)
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    return error["code"], error["type"], error["message"]


@pytest.mark.parametrize(
    ("warehouse", "prefix"),
    [
        ("shop", "shop@4"),
        ("", "shop@4"),
        ("shop@2", "shop@2"),
        ("shop@before_note", "shop@1"),
        ("shop@1970-01-01T03:30", "shop@3"),
        ("shop@1970-01-01 04:00:00+00:00", "shop@4"),
        ("shop@newest", "shop@newest"),
    ],
)
def test_a_warehouse_is_a_batch_from_the_first_request_on(client: TestClient, warehouse: str, prefix: str) -> None:
    answer = client.get("/v1/config", params={"warehouse": warehouse} if warehouse else {})
    assert answer.json()["overrides"] == {"prefix": prefix}


def test_namespaces_and_tables_have_the_servers_names(client: TestClient) -> None:
    assert client.get("/v1/shop@4/namespaces").json() == {"namespaces": [["a b"], ["shop"]]}
    assert client.get("/v1/shop@4/namespaces?parent=shop").json() == {"namespaces": []}
    shop = client.get("/v1/shop%404/namespaces/shop").json()
    assert shop["namespace"] == ["shop"]
    assert shop["properties"]["binlake.batch"] == "4"
    listed = client.get("/v1/shop@4/namespaces/shop/tables").json()["identifiers"]
    assert listed == [{"namespace": ["shop"], "name": name} for name in ("customers", "orders")]
    assert client.get("/v1/shop@4/namespaces/a%20b/tables").json()["identifiers"][0]["name"] == ODD.table
    assert loaded(client, "shop@4", ODD)["metadata"]["current-snapshot-id"] == 2
    assert client.head("/v1/shop@4/namespaces/shop").status_code == 204
    assert client.head("/v1/shop@4/namespaces/shop/tables/orders").status_code == 204
    for path in ("lost", "shop/tables/hidden", "shop/tables/lost", "lost/tables/orders"):
        assert client.head(f"/v1/shop@4/namespaces/{path}").status_code == 404


def test_the_metadata_end_at_the_batch(lake: PublishedLake, client: TestClient) -> None:
    for batch, versions in lake.versions.items():
        body = loaded(client, f"shop@{batch}", ORDERS)
        metadata = body["metadata"]
        newest = versions[ORDERS] + 1
        assert metadata["current-snapshot-id"] == newest
        assert max(each["snapshot-id"] for each in metadata["snapshots"]) == newest
        assert metadata["snapshot-log"][-1]["snapshot-id"] == newest
        last = metadata["snapshots"][-1]
        assert metadata["last-sequence-number"] == last["sequence-number"]
        assert metadata["last-updated-ms"] == last["timestamp-ms"]
        assert metadata["next-row-id"] == last["first-row-id"] + last["added-rows"]
        assert metadata["refs"]["main"]["snapshot-id"] == newest
        assert all(ref["snapshot-id"] <= newest for ref in metadata["refs"].values())
        assert metadata["current-schema-id"] == last["schema-id"]
        assert [field["name"] for field in metadata["schemas"][-1]["fields"]] == ["id", "v", "note"][: 2 + (batch > 1)]
        assert ("metadata-location" in body) == (batch == 4)
    assert loaded(client, "shop@4", CUSTOMERS)["metadata"]["current-snapshot-id"] == 3
    assert loaded(client, "shop@newest", ORDERS)["metadata"] == loaded(client, "shop@4", ORDERS)["metadata"]


def test_a_batch_of_format_2_ends_there_too(tmp_path: Path) -> None:
    lake = PublishedLake(tmp_path, {ORDERS: COLUMNS}, version=2)
    lake.batch({ORDERS: appending({"id": 1, "v": "a"}, {"id": 3, "v": "c"})})
    lake.batch({ORDERS: lambda table: table.hide({table.files[0]["path"]: [0]})})
    lake.batch({ORDERS: with_note})
    client = served(lake)
    for batch, versions in lake.versions.items():
        metadata = loaded(client, f"shop@{batch}", ORDERS)["metadata"]
        assert metadata["format-version"] == 2
        assert metadata["last-sequence-number"] == metadata["snapshots"][-1]["sequence-number"] == batch + 1
        assert "next-row-id" not in metadata
        file = tmp_path / f"{batch}.metadata.json"
        file.write_text(json.dumps(metadata))
        for read in NEWEST_READERS.values():
            assert read(str(file)) == by_delta(lake.tables[ORDERS].path, versions[ORDERS])


@pytest.mark.parametrize(
    ("path", "kind", "said"),
    [
        ("config?warehouse=other", "NoSuchWarehouseException", "there is no warehouse other: take shop"),
        ("config?warehouse=shop@9", "NoSuchWarehouseException", "the nearest is batch 4"),
        ("config?warehouse=shop@lost", "NoSuchWarehouseException", "names are before_note"),
        ("config?warehouse=shop@12:61", "NoSuchWarehouseException", "is not a time"),
        ("config?warehouse=shop@2030-01-01", "NoSuchWarehouseException", "isn't known yet"),
        ("shop@9/namespaces", "NoSuchWarehouseException", "the lake has batches 1 to 4"),
        ("shop@4/namespaces/lost", "NoSuchNamespaceException", "shop@4 has no database lost: it has a b, shop"),
        ("shop@4/namespaces?parent=lost", "NoSuchNamespaceException", "no database lost"),
        ("shop@4/namespaces/shop%1Forders", "NoSuchNamespaceException", "no database shop\\u001forders"),
        ("shop@4/namespaces/shop/tables/hidden", "NoSuchTableException", "shop@4 has no table shop.hidden"),
        ("shop@4/namespaces/shop/views", "NotFoundException", "there is nothing at"),
        ("shop@4", "NotFoundException", "there is nothing at"),
    ],
)
def test_what_is_not_there_is_named(client: TestClient, path: str, kind: str, said: str) -> None:
    code, type_, message = refusal(client, f"/v1/{path}")
    assert (code, type_) == (404, kind)
    assert said in message


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT", "PATCH"])
def test_writes_are_refused(lake: PublishedLake, client: TestClient, method: str) -> None:
    before = sorted(lake.folder.rglob("*"))
    paths = ["namespaces", "namespaces/shop", "namespaces/shop/tables", "namespaces/shop/tables/orders"]
    for path in [*(f"/v1/shop/{path}" for path in paths), "/v1/shop/transactions/commit", "/"]:
        code, kind, message = refusal(client, path, method)
        assert (code, kind) == (406, "UnsupportedOperationException")
        assert message == "the catalog can only be read: binlake writes the tables"
    assert sorted(lake.folder.rglob("*")) == before


def test_a_page_elsewhere_can_not_read_with_a_visitors_browser(client: TestClient) -> None:
    assert client.get("/v1/config", headers={"host": "evil.example"}).status_code == 400


def test_a_table_without_a_snapshot_at_the_batch_is_refused_with_the_nearest(tmp_path: Path) -> None:
    lake = PublishedLake(tmp_path, dict.fromkeys((ORDERS, CUSTOMERS), COLUMNS))
    for batch in range(1, 6):
        lake.batch({ORDERS: appending({"id": batch, "v": "x"})}, publishes=batch in (1, 4))
    client = served(lake)
    table = "namespaces/shop/tables/orders"
    code, kind, message = refusal(client, f"/v1/shop@2/{table}")
    assert (code, kind) == (400, "BadRequestException")
    assert message.startswith("shop.orders isn't published at batch 2, its Delta version 2: take batch 1, ")
    assert "take batch 4," in refusal(client, f"/v1/shop@5/{table}")[2]
    assert client.head(f"/v1/shop@5/{table}").status_code == 400
    listed = client.get("/v1/shop@5/namespaces/shop/tables").json()["identifiers"]
    assert [each["name"] for each in listed] == ["customers"]


def test_a_batch_that_the_upkeep_took_is_refused_with_the_nearest(tmp_path: Path) -> None:
    """The files of batches 1 and 3 go; batch 2 is pinned, and batch 4 is the newest."""
    lake = PublishedLake(tmp_path, {ORDERS: COLUMNS})
    kept = {"delta.deletedFileRetentionDuration": "interval 0 seconds", "delta.enableExpiredLogCleanup": "false"}
    DeltaTable(lake.tables[ORDERS].path).alter.set_table_properties(kept)
    for batch in range(1, 5):
        row = {"id": batch, "v": "x"}
        lake.batch({ORDERS: lambda table, row=row: table.replace(table.files, [row])})  # type: ignore[misc]
    metadata = metadata_of(lake.config)
    pins.pin(metadata, 2, "kept", Reason("who", "why"))
    promised = lake.config.maintain.model_copy(update={"history_hours": 0})
    config = lake.config.model_copy(update={"maintain": promised})
    maintain(config, no_session, metadata, Report(quiet=True), patience=0)

    client = served(lake)
    table = "namespaces/shop/tables/orders"
    for batch, nearest in ((1, 2), (3, 2)):
        code, kind, message = refusal(client, f"/v1/config?warehouse=shop@{batch}")
        assert (code, kind) == (404, "NoSuchWarehouseException")
        assert message.startswith(f"batch {batch} can't be read any more: maintain removed files of it")
        assert f"take batch {nearest}, which is the nearest" in message
        code, kind, repeated = refusal(client, f"/v1/shop@{batch}/{table}")
        assert (code, kind, repeated) == (400, "BadRequestException", message)
    for readable in ("shop@2", "shop@kept", "shop@4", "shop"):
        assert client.get(f"/v1/{readable}/{table}").status_code == 200
    assert "shop@kept" in (page := client.get("/").text)
    assert "shop@3" not in page


def test_a_snapshot_of_another_commit_is_not_served(tmp_path: Path) -> None:
    """The folder was restored from a backup, and the versions behind it were written another time."""
    lake = PublishedLake(tmp_path, {ORDERS: COLUMNS})
    lake.batch({ORDERS: appending({"id": 1, "v": "x"})})
    commit = Path(lake.tables[ORDERS].path, "_delta_log", f"{1:020}.json")
    commit.write_text(commit.read_text() + " ")
    assert "isn't published at batch 1" in refusal(served(lake), "/v1/shop/namespaces/shop/tables/orders")[2]


def test_a_source_that_publishes_nothing_is_refused(tmp_path: Path) -> None:
    lake = PublishedLake(tmp_path, {ORDERS: COLUMNS})
    with pytest.raises(UsageError, match="aren't published as Iceberg tables"):
        PublishedSource.of(lake.config.model_copy(update={"iceberg": None}))
    code, kind, message = refusal(served(lake), "/v1/config")
    assert (code, kind) == (404, "NoSuchWarehouseException")
    assert "no batch is recorded" in message
