"""Columns that are excluded don't leave the server: not by the snapshot, the log, DDL or verify."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

import planted_secrets
from binlake import pipeline
from binlake.doctor.preflight import preflight
from binlake.errors import ConfigurationError, TableError
from binlake.report import Report
from mirror import Mirror, sync_alone
from without_spark import no_spark

if TYPE_CHECKING:
    from servers import Server

SECRET = "not-to-be-seen"


@pytest.fixture
def excluding(mirror: Mirror) -> Mirror:
    mirror.options = {
        "tables": {"include": [f"{mirror.database}.*"], "exclude_columns": [f"{mirror.database}.*.Secret"]}
    }
    return mirror


def columns(mirror: Mirror, table: str) -> list[str]:
    return [field.name for field in DeltaTable(mirror.path(table)).schema().fields]


def test_an_excluded_column_stays_on_the_server(excluding: Mirror) -> None:
    mirror = excluding
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, SECRET VARCHAR(30), v INT)",
        f"INSERT INTO t VALUES (1, '{SECRET}', 1), (2, '{SECRET}', 2)",
        "CREATE TABLE keyless (secret TEXT, v INT)",
        f"INSERT INTO keyless VALUES ('{SECRET}', 1), ('other {SECRET}', 1)",
    )
    mirror.snapshot()
    assert columns(mirror, "t") == ["id", "v"]
    mirror.execute(
        f"UPDATE t SET secret = 'other {SECRET}' WHERE id = 1",
        "UPDATE t SET v = 20 WHERE id = 2",
        f"INSERT INTO t VALUES (3, '{SECRET}', 3)",
        "ALTER TABLE t ADD w INT DEFAULT 7 AFTER SECRET",
        f"INSERT INTO t VALUES (4, '{SECRET}', 8, 4)",
        "ALTER TABLE keyless ADD w INT",
        "DELETE FROM keyless LIMIT 1",
        f"CREATE TABLE late (id INT PRIMARY KEY, `secret` VARCHAR(30) DEFAULT '{SECRET}', v INT)",
        "INSERT INTO late (id, v) VALUES (1, 1)",
        "ALTER TABLE late ADD x INT",
    )
    mirror.sync()
    assert columns(mirror, "t") == ["id", "w", "v"]
    assert columns(mirror, "late") == ["id", "v", "x"]
    rows = mirror.spark.read.format("delta").load(mirror.path("t")).orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, 7, 1), (2, 7, 20), (3, 7, 3), (4, 8, 4)]
    assert mirror.verify().equal
    assert not found_in(Path(mirror.folder), SECRET)


def test_an_excluded_column_stays_on_the_server_under_another_name(excluding: Mirror) -> None:
    mirror = excluding
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, secret VARCHAR(30), v INT)", f"INSERT INTO t VALUES (1, '{SECRET}', 1)"
    )
    mirror.snapshot()
    mirror.execute("ALTER TABLE t RENAME COLUMN secret TO plain", f"UPDATE t SET v = 2, plain = 'other {SECRET}'")
    mirror.sync()
    table = mirror.watermark("t")
    assert table["status"] == "stopped"
    assert "'secret', which the YAML masks or excludes, is called plain now" in table["reason"]
    assert "tables.exclude_columns in the YAML" in table["remedy"]
    assert columns(mirror, "t") == ["id", "v"]
    assert not found_in(Path(mirror.folder), SECRET)
    mirror.options["tables"]["exclude_columns"].append(f"{mirror.database}.t.plain")
    mirror.snapshot(f"{mirror.database}.t")
    mirror.execute(f"UPDATE t SET v = 3, plain = 'next {SECRET}'")
    mirror.sync()
    assert mirror.verify().equal
    assert not found_in(Path(mirror.folder), SECRET)


def found_in(folder: Path, text: str) -> list[Path]:
    """Files in which a text stands as it is; those of the metadata tables are compressed."""
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


@pytest.fixture
def alone(server: Server, database: str, lake: Path) -> Mirror:
    """Tables of which a column is excluded under one name alone; nothing here starts Spark."""
    mirror = Mirror(server, database, lake, None, include=[f"{database}.*"], reader="direct")  # type: ignore[arg-type]
    names = [f"{database}.{table}.secret" for table in ("t", "far", "odd", "waits")]
    tables = {"include": [f"{database}.*"], "exclude": [f"{database}.away*"], "exclude_columns": names}
    mirror.options = {"tables": tables, "on_schema_change": [{"tables": "*.waits", "retype": "freeze"}]}
    return mirror


def test_a_column_that_is_excluded_under_one_name_of_its_table_is_shown_under_none(alone: Mirror) -> None:
    mirror, tables = alone, ("t", "far", "odd", "waits", "plain")
    for table in tables:
        mirror.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, secret VARCHAR(30), v INT)",
            f"INSERT INTO {table} VALUES (1, '{SECRET}', 1)",
        )
    pipeline.bootstrap(mirror.config, mirror.origin, no_spark, Report(quiet=True), tables=[f"{mirror.database}.[!p]*"])
    mirror.execute(
        "SET SESSION binlog_format = 'STATEMENT'", "UPDATE odd SET v = 2", "SET SESSION binlog_format = 'ROW'",
        "ALTER TABLE odd CHANGE secret shown VARCHAR(30)", "ALTER TABLE waits MODIFY v BIGINT",
        "RENAME TABLE t TO t2, far TO away, waits TO waits2",
        f"INSERT INTO t2 VALUES (2, '{SECRET}', 2)", f"INSERT INTO away VALUES (2, '{SECRET}', 2)",
    )  # fmt: skip
    sync_alone(mirror)
    mirror.execute(
        "RENAME TABLE away TO away2", "RENAME TABLE away2 TO near", f"INSERT INTO near VALUES (3, '{SECRET}', 3)"
    )
    sync_alone(mirror)
    sync_alone(mirror)
    for table in ("t2", "waits2"):
        stopped = mirror.watermark(table)
        assert (stopped["status"], "is in a table of another name now" in stopped["reason"]) == ("stopped", True)
    odd = mirror.watermark("odd")
    assert (odd["status"], "may have another name since a statement" in odd["reason"]) == ("stopped", True)
    waits = mirror.watermark("near")
    assert waits["reason"].startswith(f"it may be what {mirror.database}.far was, of which the YAML masks or excludes")
    with pytest.raises(TableError):
        pipeline.bootstrap(mirror.config, mirror.origin, no_spark, Report(quiet=True), unnamed="new")
    assert not planted_secrets.found_in(Path(mirror.folder), [SECRET])


def test_a_table_that_comes_back_in_a_later_batch_shows_no_column_that_was_excluded(alone: Mirror) -> None:
    mirror = alone
    mirror.options["tables"]["exclude_columns"] = [f"{mirror.database}.far.secret"]
    mirror.execute(
        "CREATE TABLE far (id INT PRIMARY KEY, secret VARCHAR(30), v INT)", f"INSERT INTO far VALUES (1, '{SECRET}', 1)"
    )
    pipeline.bootstrap(mirror.config, mirror.origin, no_spark, Report(quiet=True))
    mirror.execute("RENAME TABLE far TO away", f"INSERT INTO away VALUES (2, '{SECRET}', 2)")
    sync_alone(mirror)
    mirror.execute("RENAME TABLE away TO near", f"INSERT INTO near VALUES (3, '{SECRET}', 3)")
    pipeline.plan(mirror.config, mirror.origin)
    pipeline.stage(mirror.config, mirror.origin, no_spark, Report(quiet=True))
    assert not planted_secrets.found_in(Path(mirror.folder), [SECRET])
    sync_alone(mirror)


def said_in_metadata(mirror: Mirror) -> str:
    """All that the metadata tables hold of tables and statements."""
    return str([mirror.metadata.read(name) for name in ("ddl_history", "schemas", "watermarks", "snapshots")])


def test_defaults_of_an_excluded_column_stand_nowhere(excluding: Mirror) -> None:
    mirror = excluding
    mirror.execute(
        f"CREATE TABLE before_it (id INT PRIMARY KEY, secret VARCHAR(30) DEFAULT '{SECRET}', v INT DEFAULT 7)"
    )
    mirror.snapshot()
    mirror.execute(
        f"CREATE TABLE t (id INT PRIMARY KEY, `secret` VARCHAR(30) DEFAULT '{SECRET}' COMMENT '{SECRET}',"
        " v INT DEFAULT 5)",
        f"ALTER TABLE t ALTER Secret SET DEFAULT 'new {SECRET}', ADD w INT DEFAULT 8",
        "INSERT INTO t (id) VALUES (1)",
        f"ALTER TABLE before_it MODIFY secret VARCHAR(40) DEFAULT 'new {SECRET}'",
        "INSERT INTO before_it (id) VALUES (1)",
    )
    mirror.sync()
    rows = mirror.spark.read.format("delta").load(mirror.path("t")).collect()
    assert [tuple(row) for row in rows] == [(1, 5, 8)]
    said = said_in_metadata(mirror)
    assert "ALTER TABLE t ALTER Secret SET DEFAULT '***'" in said
    assert SECRET not in said
    assert not found_in(Path(mirror.folder), SECRET)
    assert mirror.verify().equal


def test_the_key_cant_be_excluded(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    mirror.options = {"tables": {"include": [f"{mirror.database}.*"], "exclude_columns": [f"{mirror.database}.t.ID"]}}
    with pytest.raises(ConfigurationError, match="'id' can't be excluded: it belongs to the key"):
        mirror.snapshot()
    failed = [check for check in preflight(mirror.config, mirror.origin, spark_checks=False) if check.ok is False]
    assert [(check.name, "tables.exclude_columns" in check.remedy) for check in failed] == [("columns", True)]
