"""A mirror, its history and its upkeep keep to it that a table has no deletion vectors."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from begun_alone import begin_alone
from binlake.delta import layout, log_files, opened_tables
from binlake.delta.delta_actions import Add
from binlake.maintain import table_upkeep
from binlake.maintain.maintain import maintain
from binlake.report import Report
from binlake.spark.starting import no_session
from iceberg_readers import by_delta, ordered
from mirror import Mirror, on_mysql, sync_alone
from servers import Server
from without_spark import put, repair, rows

TABLES = ("t", "child", "t__history")
STEPS = (
    [
        "INSERT INTO t VALUES (4, 'd')",
        "UPDATE t SET v = 'x' WHERE id = 2",
        "DELETE FROM t WHERE id = 1",
        "DELETE FROM other WHERE id = 1",
    ],
    ["UPDATE t SET id = 9 WHERE id = 3", "ALTER TABLE t ADD w INT", "UPDATE t SET w = 5 WHERE id > 2"],
)


def with_vectors(mirror: Mirror, *tables: str) -> set[str]:
    """The tables of which a data file has a deletion vector."""
    return {table for table in tables if any(add.vector for add in files_of(mirror, table).values())}


def files_of(mirror: Mirror, table: str) -> dict[str, Add]:
    return log_files.files_at(mirror.path(table), mirror.version(table))


def assert_read_as_parquet(mirror: Mirror, *tables: str) -> None:
    """What knows nothing of Delta reads the tables by their data files."""
    for table in tables:
        paths = [f"{mirror.path(table)}/{name}" for name in files_of(mirror, table)]
        schema = pa.unify_schemas([pq.read_schema(path) for path in paths])
        columns = [field.name for field in opened_tables.newest(mirror.path(table)).schema().fields]
        read = pyarrow.dataset.dataset(paths, schema=schema).to_table(columns=columns)
        assert ordered(read) == by_delta(mirror.path(table)), table


def upkeep(mirror: Mirror) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(table_upkeep, "SIDE_BY_SIDE", 1)  # who asks for Spark imports it, in one thread at a time
        maintain(mirror.config, no_session, mirror.metadata, Report(quiet=True))


@on_mysql
def test_no_row_is_hidden(server: Server, database: str, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = Mirror(server, database, lake, None)  # type: ignore[arg-type]
    monkeypatch.setattr(layout, "FEW_BYTES", 0)  # rows are marked, where they may be
    place = {"path": str(mirror.folder)}
    mirror.options = {"lake": {**place, "without_deletion_vectors": ["*.t", "*.child", "*.*__history"]}}
    mirror.modes = [{"tables": "*.t", "history": {}}]
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE child (id INT PRIMARY KEY, t INT, FOREIGN KEY (t) REFERENCES t (id) ON DELETE CASCADE)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        "INSERT INTO child VALUES (10, 1), (20, 2), (30, NULL)",
        "INSERT INTO other VALUES (1), (2)",
    )
    begin_alone(mirror)
    for statements in STEPS:
        mirror.execute(*statements)
        sync_alone(mirror)
        mirror.assert_equal("t", "child")
        assert with_vectors(mirror, *TABLES, "other") <= {"other"}
        assert_read_as_parquet(mirror, *TABLES)
    put(mirror, "child", rows(mirror, "child").set_column(1, "t", pa.array([99, 98], pa.int32())))
    assert [table.repair.state for table in repair(mirror).tables if table.repair] == ["repaired"]
    mirror.assert_equal("child")
    assert with_vectors(mirror, *TABLES, "other") == {"other"}
    mirror.options = {"lake": {**place, "without_deletion_vectors": ["*.other"]}}
    upkeep(mirror)
    assert with_vectors(mirror, *TABLES, "other") == set(), "the upkeep wrote its files anew"
    mirror.execute("DELETE FROM t WHERE id = 2", "DELETE FROM other WHERE id = 2", "INSERT INTO other VALUES (7), (8)")
    sync_alone(mirror)
    mirror.assert_equal(*TABLES[:2], "other")
    assert with_vectors(mirror, *TABLES, "other") == set(), "what was taken out of the list stays as it is"
    assert_read_as_parquet(mirror, "other", "child")


@pytest.mark.soak
@on_mysql
def test_spark_merges_without_hiding_rows(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes data files again where it would mark rows otherwise, in mirrors, histories and by cascades."""
    monkeypatch.setattr(layout, "FEW_BYTES", 0)
    place = {"path": str(mirror.folder)}
    mirror.options = {
        "lake": {**place, "without_deletion_vectors": ["*.t", "*.child", "*.*__history"]},
        "merge": {"without_spark_mb": 0},
    }
    mirror.modes = [{"tables": "*.t", "history": {}}]
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE child (id INT PRIMARY KEY, t INT, FOREIGN KEY (t) REFERENCES t (id) ON DELETE CASCADE)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        "INSERT INTO child VALUES (10, 1), (20, 2), (30, NULL)",
        "INSERT INTO other VALUES (1), (2)",
    )
    mirror.snapshot()
    for statements in STEPS:
        mirror.execute(*statements)
        mirror.sync()
        mirror.assert_equal("t", "child")
        assert with_vectors(mirror, *TABLES, "other") == {"other"}
        assert_read_as_parquet(mirror, *TABLES)
    for table in ("t", "child", "other"):
        commits = opened_tables.newest(mirror.path(table)).history()
        assert any("Spark" in commit.get("engineInfo", "") for commit in commits), f"no commit of {table} is Spark's"
