"""A range is staged alike by this process and by Spark's executors."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from binlake import pipeline
from binlake.binlog.transport import FileTransport
from binlake.errors import BinlogError
from binlake.lease import lease
from binlake.merge.merge import manifest_of
from binlake.report import Report
from binlake.staging import stage
from mirror import Mirror, on_mysql

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from binlake.planner.manifest import Manifest


@pytest.fixture
def followed(mirror: Mirror) -> Mirror:
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", "CREATE TABLE u (v VARCHAR(20), j JSON)")
    return mirror


def staged(mirror: Mirror, monkeypatch: pytest.MonkeyPatch, *, limit: int) -> tuple[Manifest, list[pa.Table]]:
    """The open batch staged, with this limit to what the process reads itself, and given back to be staged again."""
    asked: list[str] = []

    def session(why: str) -> SparkSession:
        asked.append(why)
        return mirror.spark

    monkeypatch.setattr(stage, "SHORT_RANGE", limit)
    pipeline.stage(mirror.config, mirror.origin, session, Report())
    assert bool(asked) == (limit == 0)
    with lease.held(mirror.metadata) as held:
        opened = held.control().open
        assert opened is not None
        manifest = manifest_of(mirror.config, opened)
        tables = [pq.read_table(file.path) for file in manifest.files]
        held.advance(replace(opened, state="planned", attempt="", phases=(), content=""))
    return manifest, tables


def test_spark_and_this_process_stage_the_same(followed: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    followed.execute(
        "INSERT INTO t VALUES (1, 'one'), (2, NULL)",
        "INSERT INTO u VALUES ('same', '{\"a\": 1}'), ('same', NULL)",
        "FLUSH BINARY LOGS",
        "ALTER TABLE t ADD n INT DEFAULT 7",
        "UPDATE t SET id = 3 WHERE id = 1",
        "FLUSH BINARY LOGS",
        "DELETE FROM u LIMIT 1",
    )
    pipeline.plan(followed.config, followed.origin)
    here, rows_here = staged(followed, monkeypatch, limit=1 << 30)
    on_spark, rows_on_spark = staged(followed, monkeypatch, limit=0)
    assert len(here.slices) == 3
    assert here.content == on_spark.content
    assert [file.checksum for file in here.files] == [file.checksum for file in on_spark.files]
    assert rows_here == rows_on_spark
    (finished,) = followed.sync().earlier
    followed.assert_equal("t", "u")
    (noted,) = followed.metadata.read("runs", where=f"kind = 'sync' AND batch = {finished.batch}")
    assert noted["why_spark"].startswith(f"stage: batch {finished.batch} has 0 MB of log, above 0 MB")
    assert finished.to_json()["why_spark"] == noted["why_spark"]


@on_mysql
def test_a_damaged_event_is_told_the_same_by_both(
    followed: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its place, and its bytes in the quarantine."""
    followed.execute("INSERT INTO t VALUES (1, 'one')")
    pipeline.plan(followed.config, followed.origin)
    begun = lease.read(followed.metadata).open
    assert begun is not None
    damaged = tmp_path / "log"
    damaged.mkdir()
    for part in begun.range.slices:
        data = bytearray((followed.server.datadir / part.file).read_bytes())
        data[part.stop - 1] ^= 1  # of the last event's checksum
        (damaged / part.file).write_bytes(data)
    errors = []
    for limit in (1 << 30, 0):
        monkeypatch.setattr(stage, "SHORT_RANGE", limit)
        transport = FileTransport(damaged)
        with pytest.raises(BinlogError) as caught:
            stage.stage_batch(lambda _: followed.spark, followed.config, [transport], begun, Report())
        errors.append((type(caught.value), str(caught.value), caught.value.raw))
    assert errors[0] == errors[1]
    assert "the checksum is wrong" in errors[0][1]


SYNC = """
import sys
from binlake.cli import command_line
code = command_line.run(["sync", "--config", sys.argv[1]])
print("pyspark" in sys.modules or "py4j" in sys.modules)
sys.exit(code)
"""


@on_mysql
def test_changes_of_tables_that_arent_included_need_no_jvm(followed: Mirror) -> None:
    followed.sync()
    followed.include = [f"{followed.database}.t"]
    followed.execute("INSERT INTO u VALUES ('a', NULL)")
    environment = {**os.environ, "AIRFLOW_CONN_TESTS": followed.server.uri()}
    ended = subprocess.run(
        [sys.executable, "-c", SYNC, str(followed.write_yaml())], env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert "no row changed" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "False"
