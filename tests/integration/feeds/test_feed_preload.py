"""A feed that is added later: the lake's rows at a batch, then what follows."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from binlake.delta import data_rows
from binlake.errors import FeedError
from binlake.feeds import outlet as carrying
from binlake.merge import merge
from binlake.planner.steps import TableOutcome
from binlake.records import feed_watermarks
from feeding import carried, feed, lines
from mirror import Mirror, on_mysql

if TYPE_CHECKING:
    from binlake.faults import FaultPoint


@pytest.fixture
def mirror(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """Merged by nobody: the tables' rows are written by the test, as deltalake's version 0. No Spark starts."""

    def merged(config: Any, session: Any, batch: Any, steps: Any, report: Any, newest: Any) -> list[TableOutcome]:
        lives = [replace(table.life, delta_version=0) for table in steps.tables if table.steps]
        return [TableOutcome(life, 0, 0, 0, 0, 0.0) for life in lives]

    monkeypatch.setattr(merge, "apply_steps", merged)
    monkeypatch.setattr(merge, "changed_by_others", lambda *_: [])
    return mirror


@on_mysql
def test_preload_then_follow(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is a portion; each is cut off."""
    monkeypatch.setattr(data_rows, "_MOST_ROWS", 1)
    monkeypatch.setattr(carrying, "LOAD_EVERY", 1)
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9), d DECIMAL(9,2), at DATETIME(6), s TIMESTAMP NULL, b BLOB)",
        "CREATE TABLE u (id BIGINT UNSIGNED PRIMARY KEY, tags SET('x','y'))",
        "INSERT INTO t VALUES (1, 'é', 1.50, '2026-01-31 13:00:00.5', '2026-01-31 13:00:00', x'00ff')",
        "INSERT INTO t (id) VALUES (2)",
        "INSERT INTO u VALUES (18446744073709551615, 'x,y')",
    )
    mirror.sync()
    moment = datetime(2026, 1, 31, 13, 0, 0)
    of_t = {
        "id": [1, 2], "v": ["é", None], "d": [Decimal("1.50"), None], "at": [moment.replace(microsecond=500000), None],
        "s": [moment.replace(tzinfo=UTC), None], "b": [b"\x00\xff", None],
    }  # fmt: skip
    types = [
        ("id", pa.int32()), ("v", pa.string()), ("d", pa.decimal128(9, 2)), ("at", pa.timestamp("us")),
        ("s", pa.timestamp("us", "UTC")), ("b", pa.binary()),
    ]  # fmt: skip
    write_deltalake(mirror.path("t"), pa.table(of_t, schema=pa.schema(types)))
    of_u = {"id": pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0)), "tags": pa.array(["x,y"])}
    write_deltalake(mirror.path("u"), pa.table(of_u))
    config = feed(mirror, begin="lake", format={"type": "debezium", "topic": "rows", "schema_changes": False})
    with mirror.cut_off_at("feed committed"):  # the place is frozen, and no row is sent
        carried(mirror, config)
    mirror.execute("UPDATE t SET v = 'after' WHERE id = 1", "INSERT INTO t (id) VALUES (3)")
    mirror.sync()
    passed: list[int] = []
    for point in ("feed sent", "sink committed", "feed committed"):
        with mirror.cut_off_at(cast("FaultPoint", point)):
            carried(mirror, config)
        row = feed_watermarks.read(mirror.metadata, "out")
        passed += [table.passed for table in place.loading] if (place := feed_watermarks.position_of(row)) else []
    assert passed == [0, 0, 0, 0, 2, 0], "the file's own place is ahead of the row's where it was cut off between"
    carried(mirror, config)
    sent = [json.loads(line) for line in lines(mirror.folder / "out", "rows")]
    shown = [
        (value["op"], value["source"]["table"], value["source"]["snapshot"], value["after"]["id"]) for value in sent
    ]
    assert shown == [
        ("r", "t", "true", 1), ("r", "t", "true", 2), ("r", "u", "true", -1),
        ("u", "t", "false", 1), ("c", "t", "false", 3),
    ]  # fmt: skip
    assert sent[0]["after"] == sent[3]["before"], "a row of the lake is told as the log tells it"


@on_mysql
def test_tables_that_swap_their_names_meanwhile(mirror: Mirror) -> None:
    """Their rows come as the batch had them at which the feed begins, under the names of then."""
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "CREATE TABLE u (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO u VALUES (2)",
    )
    mirror.sync()
    for table, number in (("t", 1), ("u", 2)):
        write_deltalake(mirror.path(table), pa.table({"id": pa.array([number], pa.int32())}))
    config = feed(mirror, begin="lake", format={"type": "debezium", "topic": "rows", "schema_changes": False})
    with mirror.cut_off_at("feed committed"):  # the place is frozen, and no row is sent
        carried(mirror, config)
    mirror.execute("RENAME TABLE t TO x, u TO t, x TO u", "INSERT INTO t VALUES (3)")
    mirror.sync()
    carried(mirror, config)
    sent = [json.loads(line) for line in lines(mirror.folder / "out", "rows")]
    shown = [(value["op"], value["source"]["table"], value["after"]["id"]) for value in sent]
    assert shown == [("r", "t", 1), ("r", "u", 2), ("c", "t", 3)]


@on_mysql
def test_a_table_that_stands_still_is_named(mirror: Mirror) -> None:
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    mirror.sync()
    (row,) = mirror.metadata.read("watermarks")
    mirror.metadata.replace("watermarks", "batch = 1", [{**row, "status": "stopped", "reason": "why"}])
    with pytest.raises(FeedError, match=r"\.t isn't at batch 1: it is stopped"):
        carried(mirror, feed(mirror, begin="lake"))
