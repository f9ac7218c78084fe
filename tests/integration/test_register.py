"""The lake's tables by name in a catalog: they follow the server's, and nobody else's name is touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlake import pipeline
from binlake.config.catalogs_config import HiveCatalogConfig
from binlake.errors import LakeError, UsageError
from binlake.phases.register import registration_due
from binlake.report import Report
from binlake.spark.named_tables import session_settings
from hive_metastore import hive_metastore
from mirror import SHORT_LIVED, Mirror, on_mysql

READ = """
import json, sys
from binlake.spark import session
spark = session.build("analyst", short_lived=True, more=json.loads(sys.argv[1]))
print(json.dumps([list(row) for row in spark.sql(sys.argv[2]).collect()]))
"""


@pytest.fixture
def named(mirror: Mirror) -> Iterator[Mirror]:
    """In the tests' own session, whose catalog is in memory. Who merges is nothing to it."""
    mirror.merges = ("rewrite",)
    mirror.options = {"catalog": {}, "policies": {"on_drop_table": "drop"}}
    yield mirror
    mirror.spark.sql(f"DROP SCHEMA IF EXISTS {mirror.database} CASCADE")


def register(mirror: Mirror) -> list[str]:
    """Gives the catalog's names afterwards."""
    pipeline.register(mirror.config, lambda _: mirror.spark, Report())
    return names(mirror)


def names(mirror: Mirror, database: str = "") -> list[str]:
    """The catalog's tables and views; Spark lists the session's temporary views beside them, in every database."""
    shown = mirror.spark.sql(f"SHOW TABLES IN {database or mirror.database}").collect()
    return sorted(row["tableName"] for row in shown if not row["isTemporary"])


def count(mirror: Mirror, name: str) -> int:
    return mirror.spark.table(f"{mirror.database}.{name}").count()


@on_mysql
def test_names_follow_the_tables(named: Mirror) -> None:
    named.execute("CREATE TABLE moved (id INT PRIMARY KEY COMMENT 'the key') COMMENT 'moves'")
    named.execute("INSERT INTO moved VALUES (1), (2)")
    named.execute("CREATE TABLE goes (id INT PRIMARY KEY)", "CREATE TABLE made_anew (id INT PRIMARY KEY)")
    named.snapshot()
    versions = {table: named.version(table) for table in ("moved", "goes", "made_anew")}
    assert register(named) == ["goes", "made_anew", "moved"]
    assert count(named, "moved") == 2
    assert comments(named, "moved") == ("moves", "the key")
    assert {table: named.version(table) for table in versions} == versions

    named.execute("RENAME TABLE moved TO `Moved on`", "DROP TABLE goes", "DROP TABLE made_anew")
    named.execute("CREATE TABLE made_anew (name VARCHAR(9) PRIMARY KEY)", "INSERT INTO made_anew VALUES ('a')")
    named.execute("CREATE TABLE born (id INT PRIMARY KEY)", "ALTER TABLE `Moved on` COMMENT 'it moved'")
    named.sync()
    assert register(named) == ["born", "made_anew", "moved_on"]
    assert count(named, "moved_on") == 2
    assert comments(named, "moved_on") == ("it moved", "the key")
    assert named.spark.table(f"{named.database}.made_anew").collect() == [("a",)]


def comments(mirror: Mirror, name: str) -> tuple[str | None, str | None]:
    """The catalog's, of the table and of its column ``id``."""
    catalog, table = mirror.spark.catalog, f"{mirror.database}.{name}"
    (described,) = (column.description for column in catalog.listColumns(table) if column.name == "id")
    return catalog.getTable(table).description, described


@on_mysql
def test_pinned_versions_have_views(named: Mirror) -> None:
    named.options = {"catalog": {"pinned_views": True}}
    named.execute("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    named.snapshot()
    named.execute("INSERT INTO t VALUES (1), (2)")
    batch = named.sync().batch
    pin = {"name": "month_end", "batch": batch, "who": "we", "why": "books are closed", "at_us": 0}
    named.metadata.append("pins", [pin])
    named.execute("INSERT INTO t VALUES (3)", "DELETE FROM t WHERE id = 1", "DROP TABLE u")
    named.sync()
    database = f"{named.database}__at_month_end"
    named.spark.range(1).createOrReplaceTempView("of_the_session")
    assert registration_due(named.config)
    register(named)
    assert (names(named, database), ids(named, f"{database}.t")) == (["t", "u"], [1, 2])
    assert ids(named, f"{named.database}.t") == [2, 3]
    assert not registration_due(named.config)

    named.spark.sql(f"CREATE OR REPLACE VIEW {database}.u AS SELECT 'of somebody else' AS v")
    named.metadata.replace("pins", "name = 'month_end'", [])
    named.metadata.append("pins", [{**pin, "name": "year_end"}])
    register(named)
    assert ids(named, f"{named.database}__at_year_end.t") == [1, 2]
    assert names(named, database) == ["u"]
    named.options = {"catalog": {}}
    register(named)
    assert not named.spark.catalog.databaseExists(f"{named.database}__at_year_end")
    named.spark.sql(f"DROP SCHEMA {database} CASCADE")


def ids(mirror: Mirror, name: str) -> list[int]:
    return sorted(row["id"] for row in mirror.spark.table(name).collect())


@on_mysql
def test_a_view_of_somebody_else_is_left_alone(named: Mirror) -> None:
    named.options = {"catalog": {"pinned_views": True}}
    named.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    named.snapshot()
    named.execute("INSERT INTO t VALUES (1)")
    named.metadata.append("pins", [{"name": "kept", "batch": named.sync().batch, "who": "we", "why": "", "at_us": 0}])
    database = f"{named.database}__at_kept"
    named.spark.sql(f"CREATE SCHEMA {database}")
    named.spark.sql(f"CREATE VIEW {database}.t AS SELECT 7 AS id")
    for _ in range(2):
        with pytest.raises(LakeError, match=rf"{database}\.t is another's"):
            register(named)
        assert ids(named, f"{database}.t") == [7]
    named.spark.sql(f"DROP VIEW {database}.t")
    register(named)
    assert ids(named, f"{database}.t") == [1]
    named.spark.sql(f"DROP SCHEMA {database} CASCADE")


@on_mysql
def test_nobody_is_asked_where_nothing_changed(named: Mirror) -> None:
    named.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    named.snapshot()
    register(named)
    named.execute("INSERT INTO t VALUES (1)")
    named.sync()
    assert not registration_due(named.config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(named, "spark", None)
        pipeline.register(named.config, lambda _: named.spark, Report())


@on_mysql
def test_the_name_of_another_is_left_alone_and_told(named: Mirror, tmp_path: Path) -> None:
    named.execute("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    named.snapshot()
    named.spark.sql(f"CREATE SCHEMA {named.database}")
    named.spark.sql(f"CREATE TABLE {named.database}.t (theirs INT) USING delta LOCATION '{tmp_path}/theirs'")
    with pytest.raises(LakeError, match=rf"{named.database}\.t is another's table, at .*/theirs"):
        register(named)
    assert names(named) == ["t", "u"]
    assert named.spark.table(f"{named.database}.t").columns == ["theirs"]
    assert registration_due(named.config)
    named.spark.sql(f"DROP TABLE {named.database}.t")
    register(named)
    assert named.spark.table(f"{named.database}.t").columns == ["id"]


@on_mysql
def test_what_was_registered_before_a_kill_is_found_done(named: Mirror) -> None:
    named.execute("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    named.snapshot()
    with named.cut_off_at("name registered"):
        register(named)
    assert len(names(named)) == 1
    assert register(named) == ["t", "u"]
    assert not registration_due(named.config)


@on_mysql
def test_a_yaml_without_a_catalog_is_told(mirror: Mirror) -> None:
    with pytest.raises(UsageError, match="names no catalog"):
        pipeline.register(mirror.config, lambda _: mirror.spark, Report())


@on_mysql
def test_a_sync_fills_a_metastore_that_others_read(mirror: Mirror, tmp_path: Path) -> None:
    """The command line's own processes: the session that merges, then one with the metastore."""
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    mirror.snapshot()
    mirror.execute("RENAME TABLE t TO u", "INSERT INTO u VALUES (3)")
    with hive_metastore(tmp_path / "metastore") as address:
        mirror.options = {"catalog": {"metastore": address}}
        environment = {**os.environ, **SHORT_LIVED, "AIRFLOW_CONN_TESTS": mirror.server.uri()}
        sync = [sys.executable, "-m", "binlake.cli.command_line", "sync", "--config", str(mirror.write_yaml())]
        done = subprocess.run(sync, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert f"registered {mirror.database}.u" in done.stderr
        settings = json.dumps(session_settings([HiveCatalogConfig(kind="hive", metastore=address)]))
        asked = f"SELECT id FROM {mirror.database}.u ORDER BY id"
        read = subprocess.check_output([sys.executable, "-c", READ, settings, asked], cwd=tmp_path, text=True)
    assert json.loads(read) == [[1], [2], [3]]


@on_mysql
@pytest.mark.soak
def test_names_in_a_metastore_follow_the_tables(mirror: Mirror, tmp_path: Path) -> None:
    """Dropped, made again, renamed, and two whose names differ by case alone, until one of them has another."""
    mirror.execute("CREATE TABLE goes (id INT PRIMARY KEY)", "CREATE TABLE made_anew (id INT PRIMARY KEY)")
    mirror.execute("CREATE TABLE moved (id INT PRIMARY KEY)", "INSERT INTO moved VALUES (1), (2)")
    mirror.execute("CREATE TABLE Orders (id INT PRIMARY KEY)", "CREATE TABLE orders (name VARCHAR(9) PRIMARY KEY)")
    mirror.snapshot()
    with hive_metastore(tmp_path / "metastore") as address:
        mirror.options = {"catalog": {"metastore": address}, "policies": {"on_drop_table": "drop"}}
        yaml, settings = (
            str(mirror.write_yaml()),
            json.dumps(session_settings([HiveCatalogConfig(kind="hive", metastore=address)])),
        )
        environment = {**os.environ, **SHORT_LIVED, "AIRFLOW_CONN_TESTS": mirror.server.uri()}

        def sync() -> tuple[int, str]:
            command = [sys.executable, "-m", "binlake.cli.command_line", "sync", "--config", yaml]
            done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
            return done.returncode, done.stderr

        def read(asked: str) -> list[list[object]]:
            said = subprocess.check_output([sys.executable, "-c", READ, settings, asked], cwd=tmp_path, text=True)
            return json.loads(said)  # type: ignore[no-any-return]

        code, said = sync()
        assert code == 3
        assert f"{mirror.database}.orders would be {mirror.database}.Orders and {mirror.database}.orders" in said
        assert [row[1] for row in read(f"SHOW TABLES IN {mirror.database}")] == ["goes", "made_anew", "moved"]

        mirror.execute("RENAME TABLE moved TO moved_on, Orders TO orders_before", "DROP TABLE goes, made_anew")
        mirror.execute("CREATE TABLE made_anew (name VARCHAR(9) PRIMARY KEY)", "INSERT INTO made_anew VALUES ('a')")
        assert sync()[0] == 0
        names = sorted(str(row[1]) for row in read(f"SHOW TABLES IN {mirror.database}"))
        assert names == ["made_anew", "moved_on", "orders", "orders_before"]
        everything = "SELECT name FROM {0}.made_anew UNION ALL SELECT CAST(COUNT(*) AS STRING) FROM {0}.moved_on"
        assert read(everything.format(mirror.database)) == [["a"], ["2"]]
