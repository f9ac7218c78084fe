"""The sink binlog://: SQL in, binlog files out, which a fresh server applies and then equals the source."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import comparison
from applied import AS_REPLICA, apply
from binlake.binlog.staged_schema import staged_schema
from binlake.errors import FeedError
from binlake.feeds.shapes import shown, table_of
from binlake.merge import merge
from binlake.planner.manifest import Manifest
from binlake.planner.steps import TableOutcome
from binlake.records.watermarks import read_lives
from feeding import carried, feed
from mirror import Mirror, on_mysql
from odd_values import SampleTable
from servers import Server

if TYPE_CHECKING:
    from binlake.faults import FaultPoint


@pytest.fixture
def mirror(mirror: Mirror) -> Mirror:
    mirror.options = {"invalid_dates": "keep_text"}
    return mirror


def files(mirror: Mirror) -> list[Path]:
    folder = mirror.folder / "out" / "tests"
    return [folder / name for name in (folder / "binlog.index").read_text().split()]


def assert_applied(mirror: Mirror, *tables: str) -> None:
    """A server with nothing in it applies the files, and has the source's tables."""
    with Server(mirror.server.kind, server_id=2, **AS_REPLICA[mirror.server.kind]) as target:
        apply(target, *files(mirror))
        for table in tables:
            assert contents(target, mirror.database, table) == contents(mirror.server, mirror.database, table), table


def contents(server: Server, database: str, table: str) -> Counter[comparison.Row]:
    return Counter(comparison.read_server(server, database, table)[1])


def test_a_server_that_applies_the_files_equals_the_source(mirror: Mirror) -> None:
    """All types, transactions over tables, DDL, renames, XA, and files that end while it continues."""
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


def lay_down(mirror: Mirror) -> None:
    """The tables' rows that are staged, all of them inserts, as the lake has them; merged by nobody, to version 0."""
    (manifest,) = Path(mirror.config.staging_path("1")).rglob("manifest.json")
    files = Manifest.from_json(manifest.read_text()).files
    for life in read_lives(mirror.metadata):
        image = staged_schema(life.schema.mirrored, mirror.config.invalid).field("after").type
        parts = [
            shown(table_of(file, life.schema), part).column("after")
            for file in files if file.name == life.name for part in pq.read_table(file.path).to_batches()
        ]  # fmt: skip
        rows = pa.chunked_array(parts, image).combine_chunks() if parts else pa.array([], image)
        write_deltalake(mirror.path(life.name.table), pa.table(rows.flatten(), schema=pa.schema(list(image))))


def test_an_empty_server_gets_the_tables_of_the_lake_and_what_follows(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All types, keys of texts that differ by case and blanks alone, a table without rows, and what the log does to
    them; cut off in between, too."""

    def merged(config: Any, session: Any, batch: Any, steps: Any, report: Any, newest: Any) -> list[TableOutcome]:
        lives = [replace(table.life, delta_version=0) for table in steps.tables if table.steps]
        return [TableOutcome(life, 0, 0, 0, 0, 0.0) for life in lives]

    monkeypatch.setattr(merge, "apply_steps", merged)
    monkeypatch.setattr(merge, "changed_by_others", lambda *_: [])
    config = feed(mirror, format="binlog", sink=f"binlog://{mirror.folder}/out", begin="lake")
    mirror.options["feeds"] = [{**mirror.options["feeds"][0], "begin": "oldest"}]  # the staging is kept for the test
    mirror.follow_from_here()
    SampleTable.of(mirror.server.kind, "samples", invalid_dates=True).create(mirror.server, mirror.database)
    mirror.execute(
        "CREATE TABLE texts (t VARCHAR(20) COLLATE utf8mb4_bin NOT NULL UNIQUE, long_one TEXT, n INT DEFAULT 7,"
        " e ENUM('a''b','c\\\\d') NOT NULL DEFAULT 'c\\\\d', KEY (n), KEY part (long_one(5)), FULLTEXT KEY (long_one))",
        "INSERT INTO texts (t) VALUES ('a'), ('A'), ('á')",
        "CREATE TABLE numbered (id INT UNSIGNED ZEROFILL AUTO_INCREMENT PRIMARY KEY, b BIT(3) DEFAULT b'101',"
        " v VARBINARY(4) DEFAULT 'x', at TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP)",
        "INSERT INTO numbered (id) VALUES (1), (7)",
        "CREATE TABLE without_rows (g POINT NOT NULL, d DECIMAL(9,2) UNSIGNED ZEROFILL, SPATIAL KEY (g))"
        " CHARACTER SET latin1",
    )
    mirror.sync()
    lay_down(mirror)
    for point in ("feed sent", "sink committed"):
        with mirror.cut_off_at(cast("FaultPoint", point)):
            carried(mirror, config)
    carried(mirror, config)
    mirror.execute(
        "ALTER TABLE texts DROP KEY part, ADD COLUMN later VARCHAR(9)",
        "INSERT INTO texts (t, later) VALUES ('b', 'x')", "INSERT INTO numbered (v) VALUES ('y')",
        "UPDATE samples SET id = id + 1000 WHERE id < 5", "INSERT INTO without_rows VALUES (POINT(1, 2), 1.5)",
        "CREATE TABLE new (v TEXT)", "INSERT INTO new VALUES ('é')",
    )  # fmt: skip
    mirror.sync()
    carried(mirror, config)
    assert_applied(mirror, "samples", "texts", "numbered", "without_rows", "new")
