"""The formats in Avro beside a schema registry that others wrote: what they register there, a stock reader reads."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import peers
from binlake.binlog.staged_schema import staged_schema
from binlake.config.feed_config import DebeziumFormat, SpecificFormat
from binlake.errors import SinkFailed
from binlake.feeds.contract import FeedChanges, FeedContext, FeedTable
from binlake.feeds.formats.connect_avro import AvroWriter
from binlake.feeds.formats.debezium import Debezium
from binlake.feeds.formats.specific import Specific
from binlake.feeds.schema_registry import SchemaRegistry
from binlake.schema.invalid import FAIL
from binlake.schema.table import Column, TableName
from franz_registry import NAME, FranzRegistry

CONTEXT = FeedContext("bench", "shop", "server", "mysql")
COLUMNS = (Column("id", "bigint", nullable=False), Column("d", "decimal", precision=9, scale=2), Column("v", "text"))
ROW = {"id": 7, "d": Decimal("-1.50"), "v": "é"}


@pytest.fixture(autouse=True)
def _peer() -> None:
    try:
        peers.built(NAME)
    except peers.PeerMissing as missing:
        pytest.skip(f"franz-go's registry can't be had: {missing}")


@pytest.fixture
def registry() -> Iterator[FranzRegistry]:
    with FranzRegistry() as running:
        yield running


def inserted(columns: tuple[Column, ...]) -> FeedChanges:
    table = FeedTable(TableName("shop", "orders"), columns, ("id",))
    after = {column.name: ROW.get(column.name) for column in columns}
    staged = [{"op": 1, "file": 1, "offset": 4, "row": 0, "committed_us": 1, "after": after}]
    return FeedChanges(table, pa.RecordBatch.from_pylist(staged, staged_schema(columns, FAIL)), "binlog.000001")


def read(registry: FranzRegistry, data: bytes | None) -> Any:
    assert data is not None
    schema = json.loads(registry.get("schemas", "ids", int.from_bytes(data[1:5], "big"))["schema"])
    rest = io.BytesIO(data[5:])
    row = fastavro.schemaless_reader(rest, fastavro.parse_schema(schema), None)
    assert not rest.read()
    return row


def test_each_shape_is_a_version_there_and_reads_back(registry: FranzRegistry) -> None:
    client = SchemaRegistry(registry.url, "BACKWARD")
    format_ = SpecificFormat(type="specific", registry=registry.url)
    for columns in (COLUMNS[:2], COLUMNS):
        ((message,),) = Specific(format_, CONTEXT, client.register).changes(inserted(columns))
        row = read(registry, message.value)
        assert {name: row[name] for name in (column.name for column in columns)} == {
            column.name: ROW[column.name] for column in columns
        }
    assert registry.get("subjects") == client.subjects() == ["shop_orders_insert"]
    assert registry.get("subjects", "shop_orders_insert", "versions") == [1, 2]
    assert registry.get("config", "shop_orders_insert") == {"compatibilityLevel": "BACKWARD"}
    again = SchemaRegistry(registry.url)
    ((message,),) = Specific(format_, CONTEXT, again.register).changes(inserted(COLUMNS))
    assert registry.get("subjects", "shop_orders_insert", "versions") == [1, 2], "what is there has its id"
    assert again.schema(int.from_bytes((message.value or b"")[1:5], "big"))["name"]
    assert again.schema(99) is None


def test_debeziums_keys_and_envelopes(registry: FranzRegistry) -> None:
    format_ = DebeziumFormat(type="debezium", encoding="avro", registry=registry.url)
    writer = AvroWriter(SchemaRegistry(registry.url).register, format_.subjects)
    ((message,),) = Debezium(format_, CONTEXT, writer).changes(inserted(COLUMNS))
    assert read(registry, message.key) == {"id": 7}
    assert read(registry, message.value)["after"] == ROW
    assert registry.get("subjects") == ["shop.shop.orders-key", "shop.shop.orders-value"]


def test_who_isnt_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    with FranzRegistry("Bearer abc.def") as registry:
        for connection, refused in ((None, "401"), ("wrong", "403")):
            monkeypatch.setenv("AIRFLOW_CONN_WRONG", json.dumps({"extra": {"token": "x"}}))
            with pytest.raises(SinkFailed, match=refused) as denied:
                SchemaRegistry(registry.url, connection=connection).subjects()
            assert "registry_connection" in denied.value.remedy
        monkeypatch.setenv("AIRFLOW_CONN_RIGHT", json.dumps({"extra": {"token": "abc.def"}}))
        assert SchemaRegistry(registry.url, connection="right").subjects() == []
