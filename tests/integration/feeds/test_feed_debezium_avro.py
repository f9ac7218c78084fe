"""Debezium's envelope as Avro: SQL in, records out that a stock reader of Avro reads by the registry's schemas."""

from __future__ import annotations

import base64
import io
import json
import struct
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import fastavro
import pytest

from binlake.cli import command_line
from binlake.errors import FeedError
from binlake.feeds import consume
from binlake.feeds.schema_registry import SchemaRegistry
from fake_registry import FakeRegistry
from feeding import feed, kept
from mirror import Mirror, on_mariadb, on_mysql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from binlake.feeds.contract import Message


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as running:
        yield running


def schema_of(registry: FakeRegistry, data: bytes) -> Any:
    """By the id that stands first."""
    assert data[0] == 0
    return json.loads(registry.schemas[int.from_bytes(data[1:5], "big") - 1])


def read(registry: FakeRegistry, data: bytes | None) -> Any:
    """A key or a value, to its last byte."""
    if data is None:
        return None
    rest = io.BytesIO(data[5:])
    row = fastavro.schemaless_reader(rest, fastavro.parse_schema(schema_of(registry, data)), None)
    assert not rest.read()
    return row


def carried(mirror: Mirror, registry: FakeRegistry, **settings: Any) -> list[Message]:
    made = {"type": "debezium", "encoding": "avro", "registry": registry.url, "schema_changes": False}
    return kept(mirror, feed(mirror, format={**made, "heartbeat": False, **settings}))


def messages(mirror: Mirror, registry: FakeRegistry, *statements: str, **settings: Any) -> list[Message]:
    """What the statements become."""
    mirror.follow_from_here()
    feed(mirror)
    mirror.execute(*statements)
    mirror.sync()
    return carried(mirror, registry, **settings)


def as_json_has_it(value: Any) -> Any:
    """Bytes in base64, a decimal the digits that they are of, inside of records and arrays, too."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        digits = int("".join(map(str, value.as_tuple().digits))) * (-1 if value < 0 else 1)
        length = (digits if digits >= 0 else ~digits).bit_length() // 8 + 1
        return as_json_has_it(digits.to_bytes(length, "big", signed=True))
    if isinstance(value, dict):
        return {name: as_json_has_it(item) for name, item in value.items()}
    return value


TYPES = """id INT PRIMARY KEY, tiny TINYINT UNSIGNED, big BIGINT UNSIGNED, dec_ DECIMAL(10,2),
    wide DECIMAL(60,5) NOT NULL, f FLOAT, d DOUBLE, b1 BIT(1), b12 BIT(12), s SET('x','y'), e ENUM('u','v'), j JSON,
    y YEAR, da DATE, ti TIME(3), dt DATETIME NOT NULL, dt6 DATETIME(6), ts TIMESTAMP(3) NULL, ts0 TIMESTAMP NULL,
    bin VARBINARY(9), p POINT, q POINT, l LINESTRING, v TEXT"""
ROWS = """(1, 255, 18446744073709551615, -12345.67, 1234567890123456789012345678901234567890.12345, 0.1, 1e300, 1,
     b'100000000001', 'x,y', 'v', '{"a": 1}', 2026, '2026-01-31', '-01:00:00.5', '2026-01-31 13:00:00',
     '2026-01-31 13:00:00.000001', '2026-01-31 15:00:00.120', '2026-01-31 15:00:00', x'00ff',
     ST_GeomFromText('POINT(1 2)'), ST_GeomFromText('POINT(3 4)'), ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326),
     'a"\\n\u00e9'),
    (2, NULL, NULL, NULL, -0.00001, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '1969-12-31 23:59:59',
     NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"""


@on_mysql
@pytest.mark.parametrize(
    "settings",
    [{}, {"bigint_unsigned": "precise", "decimals": "string", "binary": "hex"}, {"decimals": "double"}],
    ids=["default", "strings", "doubles"],
)
def test_avro_tells_what_json_tells(mirror: Mirror, registry: FakeRegistry, settings: dict[str, str]) -> None:
    feed(mirror)
    mirror.follow_from_here()
    mirror.execute(
        f"CREATE TABLE t ({TYPES})",
        f"INSERT INTO t VALUES {ROWS}",
        "UPDATE t SET v = 'b' WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
    )
    mirror.sync()
    plain = {"type": "debezium", "schema_changes": False, "heartbeat": False, "transactions": True, **settings}
    config = feed(mirror, name="plain", format=plain)
    as_json = [message for message in kept(mirror, config) if not message.topic.endswith(".transaction")]
    made = carried(mirror, registry, transactions=True, **settings)
    as_avro = [message for message in made if not message.topic.endswith(".transaction")]
    assert (
        [message.topic for message in as_avro]
        == [message.topic for message in as_json]
        == [f"tests.{mirror.database}.t"] * 5
    )
    for message, other in zip(as_avro, as_json, strict=True):
        assert read(registry, message.key) == json.loads(other.key or b"")
        if other.value is None:
            assert message.value is None
            continue
        value, expected = read(registry, message.value), json.loads(other.value)
        for image in (value, expected):
            assert image.pop("ts_ms") == image.pop("ts_us") // 1000 == image.pop("ts_ns") // 1_000_000
        for image in filter(None, (expected["before"], expected["after"])):
            image["f"] = image["f"] and struct.unpack("<f", struct.pack("<f", image["f"]))[0]
        assert as_json_has_it(value) == expected
    first = read(registry, as_avro[0].value)["after"]
    assert (first["p"]["x"], first["q"]["y"], first["l"]["srid"], first["b1"]) == (1.0, 4.0, 4326, True)
    if not settings:
        assert first["wide"] == Decimal("1234567890123456789012345678901234567890.12345")
        assert (first["big"], first["bin"], first["b12"]) == (-1, b"\x00\xff", bytes([0x01, 0x08]))


@on_mysql
def test_deletes_moves_and_what_the_schemas_are_called(mirror: Mirror, registry: FakeRegistry) -> None:
    sent = messages(
        mirror, registry,
        "CREATE TABLE t (id INT PRIMARY KEY, `odd-name` VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'a')",
        "UPDATE t SET id = 2 WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
    )  # fmt: skip
    said = [(read(registry, message.key)["id"], read(registry, message.value)) for message in sent]
    first, second = {"id": 1, "odd_name": "a"}, {"id": 2, "odd_name": "a"}
    assert [(key, value and (value["op"], value["before"], value["after"])) for key, value in said] == [
        (1, ("c", None, first)), (1, ("d", first, None)), (1, None),
        (2, ("c", None, second)), (2, ("d", second, None)), (2, None),
    ]  # fmt: skip
    (name, new_key), (other, old_key) = sent[1].headers[0], sent[3].headers[0]
    assert (name, read(registry, new_key)) == ("__debezium.newkey", {"id": 2})
    assert (other, read(registry, old_key)) == ("__debezium.oldkey", {"id": 1})
    readable = consume.readable(sent[0].value, SchemaRegistry(registry.url).schema)
    assert '"after": {"id": 1, "odd_name": "a"}' in readable
    topic = f"tests.{mirror.database}.t"
    assert registry.subjects == {f"{topic}-key": [2], f"{topic}-value": [1]}
    key, value = (schema_of(registry, data or b"") for data in (sent[0].key, sent[0].value))
    assert key == {
        "type": "record", "name": "Key", "namespace": topic, "fields": [{"name": "id", "type": "int"}],
        "connect.name": f"{topic}.Key",
    }  # fmt: skip
    assert (value["name"], value["namespace"], value["connect.name"]) == ("Envelope", topic, f"{topic}.Envelope")
    assert value["fields"][1] == {"name": "after", "type": ["null", "Value"], "default": None}


@on_mysql
def test_an_alter_is_a_version_and_a_refusal_is_told(mirror: Mirror, registry: FakeRegistry) -> None:
    sent = messages(
        mirror, registry,
        "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", "ALTER TABLE t ADD n INT",
        "INSERT INTO t VALUES (2, 2)",
    )  # fmt: skip
    assert [read(registry, message.value)["after"] for message in sent] == [{"id": 1}, {"id": 2, "n": 2}]
    topic = f"tests.{mirror.database}.t"
    assert registry.subjects == {f"{topic}-key": [2], f"{topic}-value": [1, 3]}
    old, newest = (fastavro.parse_schema(schema_of(registry, message.value or b"")) for message in sent)
    data = io.BytesIO((sent[0].value or b"")[5:])
    resolved = cast("dict[str, Any]", fastavro.schemaless_reader(data, old, newest))
    assert resolved["after"] == {"id": 1, "n": None}
    mirror.execute("ALTER TABLE t MODIFY n VARCHAR(9)", "INSERT INTO t VALUES (3, 'x')")
    mirror.sync()
    with pytest.raises(FeedError, match=f"refused /subjects/{topic}-value/versions: 409 .* incompatible: n"):
        carried(mirror, registry)
    (stopped,) = [row for row in mirror.metadata.read("feeds") if row["status"] == "stopped"]
    assert "compatibility" in stopped["remedy"]
    (last,) = carried(mirror, registry, compatibility="NONE")
    assert read(registry, last.value)["after"] == {"id": 3, "n": "x"}


@on_mariadb
def test_transactions_schema_changes_and_a_heartbeat(mirror: Mirror, registry: FakeRegistry) -> None:
    more = {"transactions": True, "schema_changes": True, "heartbeat": True}
    sent = messages(
        mirror, registry,
        "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT)",
        "BEGIN", "INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (1)", "INSERT INTO t VALUES (2)", "COMMIT",
        **more,
    )  # fmt: skip
    created, _, began, _, keyless, second, ended = sent
    assert read(registry, created.key) == {"databaseName": mirror.database}
    creation = read(registry, created.value)
    assert (creation["ddl"], creation["source"]["connector"]) == ("CREATE TABLE t (id INT PRIMARY KEY)", "mariadb")
    (change,) = creation["tableChanges"]
    assert (change["type"], change["table"]["primaryKeyColumnNames"]) == ("CREATE", ["id"])
    assert [(column["name"], column["typeName"]) for column in change["table"]["columns"]] == [("id", "INT")]
    assert read(registry, began.value)["status"] == "BEGIN"
    assert keyless.key is None
    block = read(registry, second.value)["transaction"]
    assert (block["total_order"], block["data_collection_order"]) == (3, 2)
    assert read(registry, ended.key) == {"id": block["id"]}
    counts = {
        collection["data_collection"]: collection["event_count"]
        for collection in read(registry, ended.value)["data_collections"]
    }
    assert counts == {f"{mirror.database}.t": 2, f"{mirror.database}.u": 1}
    value = schema_of(registry, second.value or b"")
    assert [field["type"].get("name") for field in value["fields"] if field["name"] == "source"] == ["Source"]
    assert "io.debezium.connector.mariadb" in json.dumps(value)
    (beat,) = carried(mirror, registry, **more)
    assert (beat.topic, read(registry, beat.key)) == ("__debezium-heartbeat.tests", {"serverName": "tests"})
    assert read(registry, beat.value)["ts_ms"]


@on_mariadb
def test_the_command_line(mirror: Mirror, registry: FakeRegistry, capsys: pytest.CaptureFixture[str]) -> None:
    feed(mirror)
    yaml = str(mirror.write_yaml())
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    mirror.sync()
    asked = ["tail", "--config", yaml, "--table", "*.a", "--registry", registry.url, "--format"]
    assert command_line.run([*asked, "debezium"]) == 0
    assert f"tests.{mirror.database}.a-value" in registry.subjects
    assert command_line.run([*asked, "generic"]) == 2
    assert "debezium may have one" in capsys.readouterr().err


def test_a_consumer_ends_with_the_tables_rows(mirror: Mirror, registry: FakeRegistry) -> None:
    """By key, what the last message of each says; a tombstone ends it."""
    writes = [
        f"REPLACE INTO t VALUES ({number * 7 % 13}, 'é{number}', {number} / 7, '1969-12-{number % 31 + 1}',"
        f" '2026-02-03 04:05:06.{number:06}', {number} - 30.5)"
        if number % 3
        else f"UPDATE t SET id = {100 + number}, day = NULL WHERE id = {number % 13}"
        for number in range(1, 60)
    ]
    columns = "id INT PRIMARY KEY, v TEXT, f DOUBLE, day DATE, at DATETIME(6), d DECIMAL(9,3) NOT NULL"
    made = messages(mirror, registry, f"CREATE TABLE t ({columns})", *writes, "DELETE FROM t WHERE id < 3")
    rows: dict[int, Any] = {}
    for message in made:
        key, value = read(registry, message.key)["id"], read(registry, message.value)
        if value is None or value["after"] is None:
            rows.pop(key, None)
        else:
            rows[key] = value["after"]
    epoch = datetime(1970, 1, 1)
    stored = [
        (key, row["v"], row["f"], None if row["day"] is None else date(1970, 1, 1) + timedelta(days=row["day"]),
         epoch + timedelta(microseconds=row["at"]), row["d"])
        for key, row in sorted(rows.items())
    ]  # fmt: skip
    assert stored == list(mirror.server.execute("SELECT * FROM t ORDER BY id", database=mirror.database))
