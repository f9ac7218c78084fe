"""The catalog's page: what may be read, and lines that work when they are copied."""

from __future__ import annotations

import base64
import html
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from binlake.catalog.catalog_clients import CatalogClients
from binlake.catalog.catalog_routes import catalog_application
from binlake.catalog.warehouses import PublishedSource, Warehouses
from binlake.lake import pins
from binlake.lake.duckdb_views import load_extension
from binlake.records.decisions import Reason
from binlake.schema.table import TableName
from binlake.store.metadata import metadata_of
from iceberg_readers import READERS, duckdb_connection
from own_catalog import running
from published_lake import PublishedLake, appending

ORDERS, ODD, STOCK = TableName("shop", "orders"), TableName("shop", "<b>&'\"`$x"), TableName("stock", "items")
SECRET = "a-secret-of-tests-0123456789"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> PublishedLake:
    """A lake of 30 batches, one of which is pinned."""
    columns = [("id", "INT")]
    lake = PublishedLake(tmp_path_factory.mktemp("lake"), {name: columns for name in (ORDERS, ODD, STOCK)})
    for _ in range(30):
        lake.batch({})
    lake.batch({ORDERS: appending({"id": 1})})
    pins.pin(metadata_of(lake.config), 12, "before_migration", Reason("who", "why"))
    return lake


def client_of(lake: PublishedLake, clients: CatalogClients | None = None) -> TestClient:
    application = catalog_application(Warehouses([PublishedSource.of(lake.config)]), clients)
    return TestClient(application, base_url="http://127.0.0.1:8181", raise_server_exceptions=False)


def lines_of(page: str) -> dict[str, str]:
    """The lines to copy, by their engine."""
    parts = re.findall(r"<details[^>]*><summary>(.*?)</summary><pre>(.*?)</pre>", page, re.DOTALL)
    return {engine: html.unescape(lines) for engine, lines in parts}


def test_the_newest_batches_pins_and_some_older_ones_are_listed(lake: PublishedLake) -> None:
    answer = client_of(lake).get("/")
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "<script" not in answer.text
    shown = re.findall(r"<td>(shop@\w+)</td>", answer.text)
    assert shown == [
        *(f"shop@{number}" for number in (31, 30, 29, 28, 27, 22, 17)), "shop@before_migration",
        *(f"shop@{number}" for number in (7, 1)),
    ]  # fmt: skip
    assert re.findall(r"<li>(.*?)</li>", answer.text) == [html.escape(name.table) for name in (ODD, ORDERS, STOCK)]
    assert list(lines_of(answer.text)) == ["DuckDB", "pyiceberg", "polars", "Spark", "Trino"]
    assert "SECRET" not in answer.text


def test_without_a_secret_the_page_says_nothing(lake: PublishedLake, tmp_path: Path) -> None:
    path = tmp_path / "clients"
    path.touch(0o600)
    path.write_text(f"stock {SECRET} shop:stock.*\nnothing nothing-{SECRET} other\n")
    client = client_of(lake, CatalogClients.read(str(path), 60))
    for headers in ({}, {"Authorization": "Basic eDp5"}, basic("nothing", SECRET)):
        answer = client.get("/", headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Basic")
        assert "stock" not in answer.text
    for headers in (basic("stock", SECRET), basic("", SECRET), {"Authorization": f"Bearer {SECRET}"}):
        text = client.get("/", headers=headers).text
        assert re.findall(r"<li>(.*?)</li>", text) == ["items"]
        assert "orders" not in text
        assert SECRET not in text
        assert all("ID" in lines and "SECRET" in lines for lines in lines_of(text).values())
    assert "nothing that you may read" in client.get("/", headers=basic("nothing", f"nothing-{SECRET}")).text


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def test_a_source_of_which_nothing_can_be_read_says_why(tmp_path: Path) -> None:
    text = client_of(PublishedLake(tmp_path, {ORDERS: [("id", "INT")]})).get("/").text
    assert "no batch is recorded" in text
    assert lines_of(text) == {}


@pytest.mark.skipif("DuckDB" not in READERS or "pyiceberg" not in READERS, reason="a reader isn't installed")
def test_the_lines_read_the_table(tmp_path: Path) -> None:
    """Of a table whose name every language must quote."""
    lake = PublishedLake(tmp_path, {ODD: [("id", "INT")]})
    lake.batch({ODD: appending({"id": 1})})
    lake.batch({ODD: appending({"id": 2}, {"id": 3})})
    with running("--config", lake.write_yaml()) as address:
        lines = lines_of(urllib.request.urlopen(address, timeout=30).read().decode())
        connection = duckdb_connection().cursor()
        load_extension(connection, "httpfs")
        statements = [part for part in lines["DuckDB"].split(";") if not re.match(r"\s*(INSTALL|LOAD|$)", part)]
        try:
            for statement in statements:
                connection.execute(statement)
            assert connection.fetchall() == [(3, 1)]
        finally:
            for alias in ("shop", "before"):
                connection.execute(f"DETACH {alias}")
        for engine, name in (("pyiceberg", "table"), ("polars", "rows")):
            names: dict[str, Any] = {}
            exec(lines[engine], names)
            assert len(names[name]) == 3
