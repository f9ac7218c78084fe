"""Tables built once more from what is staged equal what they were: batch by batch, by Delta's own time travel."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from binlake import pipeline
from binlake.delta import opened_tables as tables
from binlake.errors import UsageError
from binlake.phases.replay import ReplayedTable, ReplayRequest
from binlake.records.decisions import Reason
from binlake.report import Report
from binlake.source.folder import Folder
from binlake.store.metadata import query
from mirror import Mirror, on_mysql

ASKED = Reason("ann", "somebody changed it")


def replayed(mirror: Mirror, *tables: str, **asked: Any) -> list[ReplayedTable]:
    patterns = [f"{mirror.database}.{table}" for table in tables]
    return pipeline.replay(mirror.config, lambda _: mirror.spark, Report(), ReplayRequest(patterns, **asked))


def rows(path: str, version: int | None = None) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in query(path, version=version).to_pylist())


def assert_was(mirror: Mirror, table: str, replayed_table: ReplayedTable, version: int) -> None:
    """Columns, rows and their multiplicity are those of the table's own earlier version."""
    assert rows(replayed_table.path) == rows(mirror.path(table), version)
    assert replayed_table.rows == rows(replayed_table.path).total()


@pytest.fixture
def written_again(mirror: Mirror) -> None:
    """Batches mark no rows in data files."""
    mirror.merges = ("rewrite",)


@pytest.fixture
def shop(mirror: Mirror) -> dict[str, list[int]]:
    """Delta versions of two tables after their snapshot and after each of three batches."""
    mirror.options = {"maintain": {"staging_hours": 24}}
    mirror.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(20), price DECIMAL(9,2))",
        "CREATE TABLE visits (page VARCHAR(20))",
        "INSERT INTO orders VALUES (1, 'a', 1.5), (2, 'b', NULL), (3, 'ä', 2)",
        "INSERT INTO visits VALUES ('home'), ('home'), (NULL)",
    )
    mirror.snapshot()
    versions = {table: [mirror.version(table)] for table in ("orders", "visits")}
    for statements in (
        ["UPDATE orders SET note = 'B' WHERE id = 2", "INSERT INTO visits VALUES ('home'), ('cart')"],
        [
            "DELETE FROM orders WHERE id = 1",
            "ALTER TABLE orders ADD paid DATE, DROP price",
            "UPDATE orders SET id = 9, paid = '2026-01-31' WHERE id = 3",
            "DELETE FROM visits WHERE page = 'home' LIMIT 1",
            "CREATE TABLE born (id INT PRIMARY KEY)",
            "XA START 'later'",
            "INSERT INTO visits VALUES ('prepared'), ('prepared')",
            "XA END 'later'",
            "XA PREPARE 'later'",
        ],
        ["XA COMMIT 'later'", "INSERT INTO visits VALUES ('again')", "TRUNCATE born", "INSERT INTO born VALUES (1)"],
    ):
        mirror.execute(*statements)
        mirror.sync()
        for table, of_table in versions.items():
            of_table.append(mirror.version(table))
    return versions


@on_mysql
def test_each_batch_is_what_time_travel_shows(mirror: Mirror, shop: dict[str, list[int]]) -> None:
    before = rows(mirror.path("orders"))
    # What the YAML asks about by now was followed then.
    now = [{"tables": "*.*", "add": "freeze", "drop": "ask"}]
    mirror.options = {**(mirror.options or {}), "on_schema_change": now}
    for batch in (1, 2):
        for built in replayed(mirror, "orders", "visits", batch=batch, prove=True):
            table = built.table.partition(".")[2]
            assert (built.batch, built.from_batch, built.batches) == (batch, 0, batch)
            assert built.equals_version == shop[table][batch]
            assert_was(mirror, table, built, shop[table][batch])
    runs = sorted(mirror.metadata.read("runs", where="kind = 'replay'"), key=lambda row: row["ended_us"])
    assert [(row["batch"], [table["table"] for table in json.loads(row["tables"])]) for row in runs] == [
        (batch, [f"{mirror.database}.{table}" for table in ("orders", "visits")]) for batch in (1, 2)
    ]
    assert all(table["path"].startswith(f"{mirror.config.root}/_replayed/") for table in json.loads(runs[0]["tables"]))
    # A time stands for the batch that was recorded last.
    moment = datetime.now(UTC)
    time.sleep(0.01)
    mirror.execute("INSERT INTO born VALUES (2)")
    mirror.sync()
    (born,) = replayed(mirror, "b*", as_of=moment)
    assert born.batch == 3
    assert_was(mirror, "born", born, mirror.version("born") - 1)
    # Beside the tables that are there: these stand where they stood.
    assert {table: mirror.version(table) for table in shop} == {table: of_table[-1] for table, of_table in shop.items()}
    assert rows(mirror.path("orders")) == before
    assert_refused(mirror)


def assert_refused(mirror: Mirror) -> None:
    """What can't be, before anything is built."""
    shutil.rmtree(f"{mirror.config.root}/_replayed")
    with pytest.raises(UsageError, match="the lake has no table that matches"):
        replayed(mirror, "orders", "nothing")
    with pytest.raises(UsageError, match="batch 99 isn't recorded"):
        replayed(mirror, "orders", batch=99)
    with pytest.raises(UsageError, match="no batch is known that was recorded by 2020"):
        replayed(mirror, "orders", as_of=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(UsageError, match="began its life here behind batch 1"):
        replayed(mirror, "born", batch=1)
    with pytest.raises(UsageError, match="must be what the newest batch left"):
        replayed(mirror, "orders", batch=1, in_place=ASKED)
    assert not Path(f"{mirror.config.root}/_replayed").exists()


@on_mysql
def test_a_table_that_somebody_changed_is_put_right_in_place(mirror: Mirror, shop: dict[str, list[int]]) -> None:
    mirror.spark.sql(f"UPDATE delta.`{mirror.path('orders')}` SET note = 'mine'")
    mirror.execute("INSERT INTO orders VALUES (10, 'on', NULL)")
    mirror.sync()
    assert mirror.watermark("orders")["status"] == "stopped"
    (built,) = replayed(mirror, "orders", in_place=ASKED)
    assert built.path == mirror.path("orders")
    (noted,) = mirror.metadata.read("decisions")
    assert (noted["action"], noted["who"], noted["why"]) == ("replay", "ann", "somebody changed it")
    assert (noted["database"], noted["table"], noted["batch"]) == (mirror.database, "orders", built.batch)
    mirror.assert_equal("orders")
    assert mirror.watermark("orders")["status"] == "following"
    mirror.execute("UPDATE orders SET note = 'follows' WHERE id = 10", "ALTER TABLE orders ADD n INT DEFAULT 7")
    mirror.sync()
    mirror.assert_equal("orders", "visits", "born")
    (again,) = replayed(mirror, "orders", prove=True)
    assert again.equals_version == mirror.version("orders")


@on_mysql
@pytest.mark.usefixtures("written_again")
def test_what_is_not_staged_any_more_is_named_and_read_from_an_archive(
    mirror: Mirror, shop: dict[str, list[int]], tmp_path: Path
) -> None:
    shutil.rmtree(Path(mirror.config.staging_path("1")))
    with pytest.raises(UsageError, match="from batch 0 on it lacks the staging of batch 1") as lacking:
        replayed(mirror, "orders")
    assert "--archive" in lacking.value.remedy
    for path in mirror.server.datadir.glob("binlog.[0-9]*"):
        shutil.copy(path, tmp_path)
    for built in replayed(mirror, "orders", "visits", archive=Folder(tmp_path)):
        table = built.table.partition(".")[2]
        assert_was(mirror, table, built, shop[table][3])
    assert_begins_with_the_oldest_whole_version(mirror, shop["visits"])
    assert_staging_goes_when_its_hours_are_over(mirror)


def assert_begins_with_the_oldest_whole_version(mirror: Mirror, versions: list[int]) -> None:
    """The snapshot's file is gone, as after a VACUUM, and so is one that the second batch wrote again."""

    def names(version: int) -> set[str]:
        return {file.rpartition("/")[2] for file in tables.opened(mirror.path("visits"), version).file_uris()}

    gone = (names(versions[0]) | names(versions[1])) - names(versions[2])
    for file in Path(mirror.path("visits")).rglob("*.parquet"):
        if file.name in gone:
            file.unlink()
    (built,) = replayed(mirror, "visits", prove=True)
    assert (built.from_batch, built.batches, built.equals_version) == (2, 1, versions[3])
    assert_was(mirror, "visits", built, versions[3])


def staged(mirror: Mirror) -> set[str]:
    return {folder.name for folder in Path(mirror.config.staging_path()).iterdir() if folder.name.isdigit()}


def assert_staging_goes_when_its_hours_are_over(mirror: Mirror) -> None:
    assert staged(mirror) == {"2", "3"}
    for attempt in Path(mirror.config.staging_path("2")).iterdir():  # as if it had been staged two days ago
        attempt.rename(attempt.with_name(f"{int(time.time()) - 48 * 3600}-{attempt.name.partition('-')[2]}"))
    mirror.sync()
    assert staged(mirror) == {"3"}
    mirror.options = {}
    mirror.sync()
    assert staged(mirror) == set()
