"""Avro of each table's own, by a schema registry: SQL in, records out that a stock reader of Avro reads."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

import peers
from apicurio_registry import ApicurioRegistry
from binlake.errors import FeedError, SinkFailed
from binlake.feeds import carry as carrying, consume
from binlake.feeds.carry import Parts
from binlake.feeds.contract import Message
from binlake.feeds.registry import make_format
from binlake.feeds.schema_registry import SchemaRegistry
from fake_registry import FakeRegistry
from feeding import Kept, feed, kept
from mirror import Mirror, on_mariadb, on_mysql

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as running:
        yield running


def carried(mirror: Mirror, registry: FakeRegistry, **settings: Any) -> list[Message]:
    return kept(mirror, feed(mirror, format={"type": "specific", "registry": registry.url, **settings}))


def read(registry: FakeRegistry, message: Message) -> dict[str, Any]:
    """By the schema that its first bytes name, to its last byte."""
    value = message.value
    assert value is not None
    assert value[0] == 0
    rest = io.BytesIO(value[5:])
    schema = fastavro.parse_schema(json.loads(registry.schemas[int.from_bytes(value[1:5], "big") - 1]))
    row = fastavro.schemaless_reader(rest, schema, None)
    assert not rest.read()
    assert isinstance(row, dict)
    return {
        name: value_of_column
        for name, value_of_column in row.items()
        if name not in ("database", "table", "tableId", "txid")
    }


def read_back(registry: ApicurioRegistry, message: Message) -> Any:
    data = message.value or b""
    schema = json.loads(registry.get("schemas", "ids", int.from_bytes(data[1:5], "big"))["schema"])
    return fastavro.schemaless_reader(io.BytesIO(data[5:]), fastavro.parse_schema(schema), None)


@on_mysql
def test_a_record_for_each_table_operation_and_shape(mirror: Mirror, registry: FakeRegistry) -> None:
    mirror.follow_from_here()
    feed(mirror)
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, u BIGINT UNSIGNED, d DECIMAL(9,2), f FLOAT, b BIT(1), da DATE,"
        " dt DATETIME(6), ts TIMESTAMP NULL, ti TIME, v VARCHAR(9), bl BLOB)",
        "INSERT INTO t VALUES (1, 18446744073709551615, -1.50, 0.5, 1, '2026-01-31', '2026-01-31 13:00:00.000001',"
        " '2026-01-31 13:00:00', '-01:00:00', 'é', x'00ff')",
        "ALTER TABLE t ADD n INT",
        "UPDATE t SET n = 7, v = NULL WHERE id = 1",
        "DELETE FROM t WHERE id = 1",
    )
    mirror.sync()
    insert, update, delete = carried(mirror, registry)
    row = {
        "id": 1, "u": Decimal(2**64 - 1), "d": Decimal("-1.50"), "f": 0.5, "b": True, "da": date(2026, 1, 31),
        "dt": datetime(2026, 1, 31, 13, 0, 0, 1), "ts": datetime(2026, 1, 31, 13, tzinfo=UTC), "ti": -3_600_000_000,
        "v": "é", "bl": b"\x00\xff",
    }  # fmt: skip
    assert read(registry, insert) == row
    schema_of = SchemaRegistry(registry.url).schema
    assert '"v": "é", "bl": "0x00ff"}' in consume.readable(insert.value, schema_of)
    changed = read(registry, update)
    assert {name: item for name, item in changed.items() if name.startswith("old_")} == {
        f"old_{name}": item for name, item in {**row, "n": None}.items()
    }
    assert (changed["new_n"], changed["new_v"]) == (7, None)
    assert read(registry, delete) == {**row, "n": 7, "v": None}
    name = f"{mirror.database}_t"
    assert [message.topic for message in (insert, update, delete)] == [f"{name}_specific"] * 3
    assert sorted(registry.subjects) == [f"{name}_{op}" for op in ("delete", "insert", "update")]


@on_mariadb
def test_a_shape_is_a_version_and_what_the_registry_refuses_is_told(mirror: Mirror, registry: FakeRegistry) -> None:
    mirror.follow_from_here()
    feed(mirror)
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", "ALTER TABLE t ADD n INT",
        "INSERT INTO t VALUES (2, 2)",
    )  # fmt: skip
    mirror.sync()
    messages = carried(mirror, registry, wire="mypipe")
    assert [(message.value or b"")[:4] for message in messages] == [bytes([0, 1, 0, 1]), bytes([0, 1, 0, 2])]
    assert registry.subjects == {f"{mirror.database}_t_insert": [1, 2]}
    mirror.execute("ALTER TABLE t MODIFY n VARCHAR(9)", "INSERT INTO t VALUES (3, 'x')")
    mirror.sync()
    with pytest.raises(FeedError, match="409 Schema being registered is incompatible: n"):
        carried(mirror, registry)
    (stopped,) = [row for row in mirror.metadata.read("feeds") if row["status"] == "stopped"]
    assert "compatibility" in stopped["remedy"]
    assert [read(registry, message)["n"] for message in carried(mirror, registry, compatibility="NONE")] == ["x"]


@on_mariadb
def test_by_the_rules_of_a_real_registry(mirror: Mirror, tmp_path: Path) -> None:
    """Both kinds of Avro: an ALTER is a version, one that readers can't follow is refused, and the mirror continues."""
    try:
        running = ApicurioRegistry(tmp_path)
    except peers.PeerMissing as missing:
        pytest.skip(f"Apicurio's registry can't be had: {missing}")
    mirror.follow_from_here()
    feed(mirror)
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, d DECIMAL(9,2), v TEXT NOT NULL)", "INSERT INTO t VALUES (1, 1.5, 'a')",
        "ALTER TABLE t ADD n INT, DROP d", "INSERT INTO t VALUES (2, 'b', 2)",
    )  # fmt: skip
    mirror.sync()
    with running as registry:
        plain = {"registry": registry.url, "compatibility": "BACKWARD", "topic": "t"}
        envelopes = {"type": "debezium", "encoding": "avro", "schema_changes": False, "heartbeat": False}
        kinds = {f"{mirror.database}_t_insert": {"type": "specific"}, "t-value": envelopes}

        def rows(kind: dict[str, Any], **settings: Any) -> list[dict[str, Any]]:
            config = feed(mirror, name=kind["type"], format={**kind, **plain, **settings})
            read_rows = [read_back(registry, message) for message in kept(mirror, config)]
            return [row.get("after") or row for row in read_rows]

        for subject, kind in kinds.items():
            first, second = rows(kind)
            assert (first["id"], first["d"], first["v"]) == (1, Decimal("1.50"), "a")
            assert (second["id"], second["v"], second["n"]) == (2, "b", 2)
            assert registry.get("config", subject) == {"compatibilityLevel": "BACKWARD"}
        mirror.execute("ALTER TABLE t MODIFY n VARCHAR(9)", "INSERT INTO t VALUES (3, 'c', 'x')")
        mirror.sync()
        for subject, kind in kinds.items():
            with pytest.raises(
                FeedError, match=f"refused /subjects/{subject}/versions: 409 .*[Ii]ncompatible"
            ) as caught:
                rows(kind)
            assert "compatibility" in caught.value.remedy
            assert registry.get("subjects", subject, "versions") == [1, 2]
        mirror.execute("INSERT INTO t VALUES (4, 'd', 'y')")
        mirror.sync()
        for kind in kinds.values():
            assert [row["n"] for row in rows(kind, compatibility="NONE")] == ["x", "y"]


@on_mysql
def test_a_registry_that_isnt_there_is_told(mirror: Mirror, registry: FakeRegistry) -> None:
    mirror.follow_from_here()
    config = feed(mirror, format={"type": "specific", "registry": "http://127.0.0.1:1"})
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.sync()
    with pytest.raises(SinkFailed, match=r"http://127\.0\.0\.1:1 didn't answer"):
        carrying.carry(mirror.config, config, Parts(make_format, lambda feed, source: Kept()))
