"""The sink binlog://: SQL in, binlog files out, which a fresh server applies and then equals the source."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

import comparison
from applied import AS_REPLICA, apply
from binlake import merge
from binlake.errors import FeedError
from feeding import carried, feed
from mirror import Mirror, on_mysql
from odd_values import SampleTable
from servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from binlake.faults import FaultPoint


@pytest.fixture
def mirror(server: Server, database: str, lake: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """Without a lake: feeds read the staging, so nothing is merged, and no Spark starts."""
    monkeypatch.setattr(merge, "apply_steps", lambda *_: [])
    return Mirror(server, database, lake, cast("SparkSession", None), options={"invalid_dates": "keep_text"})


def files(mirror: Mirror) -> list[Path]:
    folder = mirror.folder / "out" / "tests"
    return [folder / name for name in (folder / "binlog.index").read_text().split()]


def assert_applied(mirror: Mirror, *tables: str) -> None:
    """A server with the empty database applies the files, and has the source's tables."""
    with Server(mirror.server.kind, server_id=2, **AS_REPLICA[mirror.server.kind]) as target:
        target.execute("SET sql_log_bin = 0", f"CREATE DATABASE {mirror.database} CHARACTER SET utf8mb4")
        apply(target, *files(mirror))
        for table in tables:
            assert contents(target, mirror.database, table) == contents(mirror.server, mirror.database, table), table


def contents(server: Server, database: str, table: str) -> Counter[comparison.Row]:
    return Counter(comparison.read_server(server, database, table)[1])


def test_a_server_that_applies_the_files_equals_the_source(mirror: Mirror) -> None:
    """All types, transactions over tables, DDL, renames, XA, and files that end while it goes on."""
    settings = {"url": f"binlog://{mirror.folder}/out", "settings": {"file_mb": 0.02}}
    config = feed(mirror, format="binlog", sink=settings)
    mirror.follow_from_here()
    SampleTable.of(mirror.server.kind, "samples", invalid_dates=True).create(mirror.server, mirror.database)
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(20))", "CREATE TABLE b (id INT, v TEXT)")
    mirror.sync()
    carried(mirror, config)
    mirror.execute(
        "BEGIN", "INSERT INTO a VALUES (1, 'one'), (2, 'two')", "INSERT INTO b VALUES (1, 'b')",
        "UPDATE a SET v = 'eins' WHERE id = 1", "DELETE FROM a WHERE id = 2", "COMMIT",
        "XA START 'x'", "INSERT INTO b VALUES (2, 'prepared')", "XA END 'x'", "XA PREPARE 'x'",
    )  # fmt: skip
    mirror.sync()
    mirror.execute("INSERT INTO a VALUES (3, 'plain')", "XA COMMIT 'x'")
    mirror.execute(
        "ALTER TABLE a ADD COLUMN n INT DEFAULT 7 FIRST", "INSERT INTO a VALUES (5, 4, 'four')",
        "RENAME TABLE a TO c", "UPDATE c SET id = id + 10", "DELETE FROM samples WHERE id = 0",
        "UPDATE samples SET id = id + 1000 WHERE id < 5",
    )  # fmt: skip
    mirror.sync()
    carried(mirror, config)
    assert len(files(mirror)) > 1
    assert_applied(mirror, "samples", "b", "c")


@on_mysql
@pytest.mark.parametrize("point", ["feed sent", "sink committed", "feed committed"])
def test_cut_off_anywhere_each_transaction_is_written_once(mirror: Mirror, point: FaultPoint) -> None:
    config = feed(mirror, format="binlog", sink=f"binlog://{mirror.folder}/out")
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE t (id INT, v INT)", "INSERT INTO t VALUES (1, 1), (1, 1)")
    mirror.sync()
    carried(mirror, config)
    mirror.execute("INSERT INTO t VALUES (2, 2)", "UPDATE t SET v = v + 1", "INSERT INTO t SELECT * FROM t")
    mirror.sync()
    with mirror.cut_off_at(point):
        carried(mirror, config)
    carried(mirror, config)
    assert_applied(mirror, "t")


@on_mysql
def test_what_cannot_be_applied_stops_the_feed_and_not_the_mirror(mirror: Mirror) -> None:
    mirror.options["tables"] = {"include": [f"{mirror.database}.*"], "exclude_columns": [f"{mirror.database}.t.secret"]}
    config = feed(mirror, format="binlog", sink=f"binlog://{mirror.folder}/out")
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, secret INT)", "INSERT INTO t VALUES (1, 1)")
    mirror.sync()
    with pytest.raises(FeedError, match="without the columns secret"):
        carried(mirror, config)
    mirror.execute("INSERT INTO t VALUES (2, 2)")
    assert mirror.sync().batch == 2
