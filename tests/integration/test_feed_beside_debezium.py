"""Message by message, field by field: what a feed says beside what Debezium's own engine says of the same server."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

import bench_peers
from binlake import merge
from feeding import carried, feed, lines
from mirror import Mirror, on_mysql

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from servers import Server

SECONDS = 90
DIFFERENT = {
    "payload.source.version": "whose it is",
    "payload.source.server_id": "isn't staged",
    "payload.source.thread": "isn't staged",
    "default": "columns' defaults aren't in the schemas",
    "payload.ts_ms": "when the message was made",
    "payload.ts_us": "when the message was made",
    "payload.ts_ns": "when the message was made",
    "payload.source.ts_us": "Debezium tells a statement's time in full milliseconds",
    "payload.source.ts_ns": "likewise",
}
"""Fields that aren't compared, by the end of their path."""

ROWS = [
    """CREATE TABLE t (id INT PRIMARY KEY, tiny TINYINT UNSIGNED, big BIGINT UNSIGNED, dec_ DECIMAL(10,2), f FLOAT,
       d DOUBLE, b1 BIT(1), b12 BIT(12), s SET('x','y'), e ENUM('u','v'), j JSON, y YEAR, da DATE, ti TIME(3),
       dt DATETIME, dt6 DATETIME(6), ts TIMESTAMP(3) NULL, ts0 TIMESTAMP NULL, bin VARBINARY(9), p POINT, g GEOMETRY,
       bl BLOB, ft FLOAT(7,3), ch CHAR(5) CHARACTER SET latin1, fb BINARY(4), tx TEXT, nn INT NOT NULL DEFAULT 7,
       t1 TINYINT(1), sm SMALLINT UNSIGNED, me MEDIUMINT UNSIGNED, iu INT UNSIGNED, du DECIMAL(20,0) UNSIGNED,
       dt3 DATETIME(3), ti6 TIME(6), vc VARCHAR(10) DEFAULT 'abc')""",
    """INSERT INTO t VALUES (1, 255, 18446744073709551615, -12345.67, 0.1, 1e300, 1, b'100000000001', 'x,y', 'v',
       '{"a": 1}', 2026, '2026-01-31', '-01:00:00.5', '2026-01-31 13:00:00', '2026-01-31 13:00:00.000001',
       '2026-01-31 15:00:00.120', '2026-01-31 15:00:00', x'00ff', ST_GeomFromText('POINT(1 2)'),
       ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326), x'0102', 1.5, 'é', x'01', 'long é😀"', 1, 1, 65535, 16777215,
       4294967295, 12345678901234567890, '2026-01-31 13:00:00.123', '838:59:59', 'x')""",
    "INSERT INTO t (id) VALUES (2)",
    """UPDATE t SET j = '[1, "é", null, true, {"b": 2}]', f = 16777216, d = -0.0, b12 = 0, s = '', e = NULL,
       da = '1969-12-31', dt = '9999-12-31 23:59:59', ti = '-838:59:59', ft = -1234.567 WHERE id = 1""",
    "UPDATE t SET id = 3 WHERE id = 2",
    "DELETE FROM t WHERE id = 1",
    "CREATE TABLE n (a INT, b VARCHAR(3))",
    "INSERT INTO n VALUES (1, 'x'), (1, 'x')",
    "UPDATE n SET a = 2 LIMIT 1",
    "BEGIN",
    "INSERT INTO t (id) VALUES (10), (11)",
    "UPDATE t SET id = id + 100 WHERE id IN (10, 11)",
    "INSERT INTO n VALUES (5, NULL)",
    "COMMIT",
    "ALTER TABLE t ADD zz INT, DROP g",
    "INSERT INTO t (id, zz) VALUES (20, 1)",
    "CREATE TABLE c (a INT, b VARCHAR(9), v INT, PRIMARY KEY (b, a))",
    "INSERT INTO c VALUES (1, 'k', 2)",
    "UPDATE c SET b = 'l' WHERE a = 1",
    "TRUNCATE n",
    "CREATE TABLE u (a INT NOT NULL, UNIQUE KEY (a))",
    "INSERT INTO u VALUES (1)",
]


@pytest.fixture
def mirror(server: Server, database: str, lake: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """Without a lake: feeds read the staging, so nothing is merged, and no Spark starts."""
    monkeypatch.setattr(merge, "apply_steps", lambda *_: [])
    return Mirror(server, database, lake, cast("SparkSession", None))


@dataclass
class Engine:
    """Debezium's engine at work. messages: by topic, (key, value), without those of its snapshot."""

    process: subprocess.Popen[str]
    streaming: threading.Event = field(default_factory=threading.Event)
    messages: dict[str, list[tuple[Any, Any]]] = field(default_factory=lambda: defaultdict(list))

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            topic, key, value = line.rstrip("\n").split("\t")
            told = json.loads(value)
            if told and told["payload"].get("source", {}).get("snapshot", "false") != "false":
                if topic.endswith(".done"):
                    self.streaming.set()
                continue
            self.messages[topic].append((json.loads(key), told))


@pytest.fixture
def engine(mirror: Mirror) -> Iterator[Engine]:
    if bench_peers.program("mvn") is None:
        pytest.skip("mvn isn't installed, which brings Debezium's engine")
    bench_peers.build("debezium")
    mirror.execute("CREATE TABLE done (id INT PRIMARY KEY)", "INSERT INTO done VALUES (0)")
    command = [*bench_peers.java("debezium", "Messages"), str(mirror.server.port), mirror.database, "tests", "true"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    made = Engine(process)
    reading = threading.Thread(target=made.read)
    reading.start()
    try:
        yield made
    finally:
        process.kill()
        reading.join()
        process.wait()


def differences(theirs: Any, ours: Any, path: str = "") -> Iterator[str]:
    if any(path.endswith(end) for end in DIFFERENT):
        return
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in theirs.keys() | ours.keys():
            yield from differences(theirs.get(name), ours.get(name), f"{path}.{name}".lstrip("."))
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif theirs != ours:
        yield f"{path}: Debezium says {theirs!r}, the feed {ours!r}"


def alike(value: Any) -> Any:
    """JSON in a text as what it means: the feed has the server's own text, Debezium one without blanks."""
    for image in ("before", "after") if value else ():
        row = value["payload"].get(image)
        if row and row.get("j"):
            row["j"] = json.loads(row["j"])
    return value


@on_mysql
def test_field_by_field(mirror: Mirror, engine: Engine) -> None:
    config = feed(mirror, format={"type": "debezium", "schemas": True, "transactions": True, "truncates": True})
    assert engine.streaming.wait(SECONDS), "Debezium's engine came to no end of its snapshot"
    mirror.follow_from_here()
    mirror.execute(*ROWS, "INSERT INTO done VALUES (1)")
    mirror.sync()
    carried(mirror, config)
    assert engine.process.wait(SECONDS) == 0
    found = []
    for table in "tncu":
        topic = f"tests.{mirror.database}.{table}"
        theirs = [alike(value) for key, value in engine.messages[topic] if value or key]
        ours = [alike(json.loads(line) if line else None) for line in lines(mirror.folder / "out", topic)]
        assert len(theirs) == len(ours), topic
        for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            found += [f"{table} {number} {said}" for said in differences(one, other)]
    assert found == []


@on_mysql
def test_transactions(mirror: Mirror, engine: Engine) -> None:
    config = feed(mirror, format={"type": "debezium", "schemas": True, "transactions": True})
    assert engine.streaming.wait(SECONDS), "Debezium's engine came to no end of its snapshot"
    mirror.follow_from_here()
    mirror.execute(*ROWS, "INSERT INTO done VALUES (1)")
    mirror.sync()
    carried(mirror, config)
    assert engine.process.wait(SECONDS) == 0
    theirs = engine.messages["tests.transaction"]
    ours = [json.loads(line) for line in lines(mirror.folder / "out", "tests.transaction")]
    assert len(theirs) > 20
    found = []
    for number, ((_, one), other) in enumerate(zip(theirs, ours, strict=False)):
        for value in (one, other):
            tables = value["payload"]["data_collections"] or []
            tables.sort(key=lambda told: told["data_collection"])
        found += [f"{number} {said}" for said in differences(one, other)]
    assert found == []
