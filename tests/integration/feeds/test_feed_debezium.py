"""Debezium's envelope: SQL in, its JSON out; a consumer of it ends with the table's rows."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from feeding import carried, feed, lines
from mirror import Mirror, on_mysql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def messages(mirror: Mirror, *statements: str, topic: str | None = None, **settings: Any) -> list[Any]:
    """What the statements become; a tombstone is None."""
    made = {"type": "debezium", **settings}
    if topic is None:
        made["topic"] = "rows"
    config = feed(mirror, format=made)
    mirror.follow_from_here()
    mirror.execute(*statements)
    mirror.sync()
    carried(mirror, config)
    written = lines(mirror.folder / "out", topic or "rows")
    return [json.loads(line) if line else None for line in written]


def test_the_envelope(mirror: Mirror) -> None:
    values = messages(
        mirror,
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'a\"\\n\u00e9')",
        "UPDATE t SET v = NULL WHERE id = 1",
        "UPDATE t SET id = 2 WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
    )
    said = [found_one and (found_one["op"], found_one["before"], found_one["after"]) for found_one in values]
    first = {"id": 1, "v": 'a"\n\u00e9'}
    assert said == [
        ("c", None, first),
        ("u", first, {"id": 1, "v": None}),
        ("d", {"id": 1, "v": None}, None),
        None,
        ("c", None, {"id": 2, "v": None}),
        ("d", {"id": 2, "v": None}, None),
        None,
    ]
    source = values[0]["source"]
    assert (source["connector"], source["name"], source["db"]) == (mirror.server.kind, "tests", mirror.database)
    assert (source["table"], source["snapshot"], source["row"], source["query"]) == ("t", "false", 0, None)
    assert source["file"].startswith("binlog.")
    assert source["gtid"]
    assert values[0]["ts_ms"] >= source["ts_ms"] > 1_700_000_000_000


@on_mysql
def test_types_as_the_connectors_documentation_has_them(mirror: Mirror) -> None:
    (message,) = messages(
        mirror,
        "SET time_zone = '+02:00'",
        """CREATE TABLE t (id INT PRIMARY KEY, tiny TINYINT UNSIGNED, big BIGINT UNSIGNED, dec_ DECIMAL(10,2),
           f FLOAT, d DOUBLE, b1 BIT(1), b12 BIT(12), s SET('x','y'), e ENUM('u','v'), j JSON, y YEAR, da DATE,
           ti TIME(3), dt DATETIME, dt6 DATETIME(6), ts TIMESTAMP(3) NULL, ts0 TIMESTAMP NULL, bin VARBINARY(9),
           p POINT)""",
        """INSERT INTO t VALUES (1, 255, 18446744073709551615, -12345.67, 0.1, 1e300, 1, b'100000000001', 'x,y', 'v',
           '{"a": 1}', 2026, '2026-01-31', '-01:00:00.5', '2026-01-31 13:00:00', '2026-01-31 13:00:00.000001',
           '2026-01-31 15:00:00.120', '2026-01-31 15:00:00', x'00ff', ST_GeomFromText('POINT(1 2)'))""",
        schemas=True,
    )
    row = message["payload"]["after"]
    unscaled = int.from_bytes(base64.b64decode(row.pop("dec_")), "big", signed=True)
    assert Decimal(unscaled).scaleb(-2) == Decimal("-12345.67")
    point = row.pop("p")
    assert (point["x"], point["y"], point["srid"]) == (1.0, 2.0, None)
    assert base64.b64decode(row.pop("b12")) == bytes([0x01, 0x08])
    assert base64.b64decode(row.pop("bin")) == b"\x00\xff"
    assert row == {
        "id": 1, "tiny": 255, "big": -1, "f": 0.1, "d": 1e300, "b1": True, "s": "x,y", "e": "v", "j": '{"a": 1}',
        "y": 2026, "da": 20484, "ti": -3_600_500_000, "dt": 1769864400000, "dt6": 1769864400000001,
        "ts": "2026-01-31T13:00:00.120Z", "ts0": "2026-01-31T13:00:00Z",
    }  # fmt: skip
    fields = {field["field"]: field for field in message["schema"]["fields"][1]["fields"]}
    assert {name: (kind["type"], kind.get("name")) for name, kind in fields.items()} == {
        "id": ("int32", None), "tiny": ("int16", None), "big": ("int64", None),
        "dec_": ("bytes", "org.apache.kafka.connect.data.Decimal"), "f": ("float", None), "d": ("double", None),
        "b1": ("boolean", None), "b12": ("bytes", "io.debezium.data.Bits"), "s": ("string", "io.debezium.data.EnumSet"),
        "e": ("string", "io.debezium.data.Enum"), "j": ("string", "io.debezium.data.Json"),
        "y": ("int32", "io.debezium.time.Year"), "da": ("int32", "io.debezium.time.Date"),
        "ti": ("int64", "io.debezium.time.MicroTime"), "dt": ("int64", "io.debezium.time.Timestamp"),
        "dt6": ("int64", "io.debezium.time.MicroTimestamp"), "ts": ("string", "io.debezium.time.ZonedTimestamp"),
        "ts0": ("string", "io.debezium.time.ZonedTimestamp"), "bin": ("bytes", None),
        "p": ("struct", "io.debezium.data.geometry.Point"),
    }  # fmt: skip
    assert not fields["id"]["optional"]


def test_transactions_schema_changes_and_a_heartbeat(mirror: Mirror) -> None:
    statements = (
        "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT)",
        "BEGIN", "INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (1)", "INSERT INTO t VALUES (2)", "COMMIT",
        "INSERT INTO u VALUES (2)",
    )  # fmt: skip
    values = messages(mirror, *statements, transactions=True, topic="tests.transaction")
    assert [(value["status"], value["event_count"]) for value in values] == [
        ("BEGIN", None),
        ("END", 3),
        ("BEGIN", None),
        ("END", 1),
    ]
    counts = {collection["data_collection"]: collection["event_count"] for collection in values[1]["data_collections"]}
    assert counts == {f"{mirror.database}.t": 2, f"{mirror.database}.u": 1}
    (second,) = [json.loads(line) for line in lines(mirror.folder / "out", f"tests.{mirror.database}.t")][1:]
    block = second["transaction"]
    assert (block["id"], block["total_order"], block["data_collection_order"]) == (values[0]["id"], 3, 2)
    first = json.loads(lines(mirror.folder / "out", "tests")[0])
    assert (first["databaseName"], first["ddl"]) == (mirror.database, "CREATE TABLE t (id INT PRIMARY KEY)")
    (change,) = first["tableChanges"]
    assert (change["type"], change["table"]["primaryKeyColumnNames"]) == ("CREATE", ["id"])
    carried(mirror, feed(mirror, format={"type": "debezium"}))
    assert json.loads(lines(mirror.folder / "out", "~5F_debezium-heartbeat.tests")[0])["ts_ms"]


ROW = "STRUCT<id: INT, v: STRING, f: DOUBLE, day: INT, at: BIGINT>"
COLUMNS = ("row.v", "row.f", "date_from_unix_date(row.day)", "CAST(timestamp_micros(row.at) AS TIMESTAMP_NTZ)")


def test_a_consumer_ends_with_the_tables_rows(mirror: Mirror, spark: SparkSession) -> None:
    """Spark's SQL: by key, what the last message of each says."""
    writes = [
        f"REPLACE INTO t VALUES ({number * 7 % 13}, 'é{number}', {number} / 7, '1969-12-{number % 31 + 1}',"
        f" '2026-02-03 04:05:06.{number:06}')"
        if number % 3
        else f"UPDATE t SET id = {100 + number}, day = NULL WHERE id = {number % 13}"
        for number in range(1, 60)
    ]
    config = feed(mirror, format={"type": "debezium", "topic": "rows"})
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v TEXT, f DOUBLE, day DATE, at DATETIME(6))",
        *writes,
        "DELETE FROM t WHERE id < 3",
    )
    mirror.sync()
    carried(mirror, config)
    said = [(place, line) for place, line in enumerate(lines(mirror.folder / "out", "rows")) if line]
    parsed = spark.createDataFrame(said, "place INT, line STRING").selectExpr(
        "place", f"from_json(line, 'op STRING, before {ROW}, after {ROW}') AS one"
    )
    newest = parsed.selectExpr("COALESCE(one.after.id, one.before.id) AS key", "place", "one.after AS row")
    newest = newest.groupBy("key").agg(F.max_by("row", "place").alias("row")).where("row IS NOT NULL")
    rows = newest.selectExpr("key", *COLUMNS).orderBy("key").collect()
    assert [tuple(row) for row in rows] == list(
        mirror.server.execute("SELECT * FROM t ORDER BY id", database=mirror.database)
    )
