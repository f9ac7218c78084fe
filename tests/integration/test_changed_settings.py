"""The YAML is changed under a lake that is there: nothing is stale, and nothing is copied again without need."""

from __future__ import annotations

from typing import Any

import pytest
from deltalake import DeltaTable

from binlake import pipeline
from binlake.cli import command_line
from binlake.errors import ConfigurationError
from binlake.records import status
from binlake.report import Report
from mirror import Mirror, on_mariadb, on_mysql

ROWS = ("CREATE TABLE t (id INT PRIMARY KEY, v INT, d DATE)", "INSERT INTO t VALUES (1, 1, NULL), (2, 2, NULL)")
OTHER = ("CREATE TABLE u (id INT PRIMARY KEY)", "INSERT INTO u VALUES (1)")


def reading(mirror: Mirror, *exclude_columns: str, **options: Any) -> None:
    """Change what the YAML reads of the database's tables."""
    tables = {"include": [f"{mirror.database}.*"], "exclude": mirror.exclude}
    columns = [f"{mirror.database}.{column}" for column in exclude_columns]
    mirror.options = {"tables": {**tables, "exclude_columns": columns}, **options}


def leave_out(mirror: Mirror, *tables: str, **options: Any) -> None:
    mirror.exclude = [f"{mirror.database}.{table}" for table in tables]
    reading(mirror, **options)


def columns(mirror: Mirror, table: str = "t") -> list[str]:
    return [field.name for field in DeltaTable(mirror.path(table)).schema().fields]


def statuses(mirror: Mirror) -> dict[str, str]:
    tables = status.read_status(mirror.config).tables
    return {row.table.partition(".")[2]: row.status for row in tables}


@pytest.fixture
def copied(mirror: Mirror) -> Mirror:
    mirror.execute(*ROWS, *OTHER)
    mirror.snapshot()
    return mirror


@on_mysql
def test_a_table_that_comes_back_is_what_the_server_has(copied: Mirror) -> None:
    leave_out(copied, "t")
    assert statuses(copied) == {"t": "excluded", "u": "following"}
    copied.execute("UPDATE t SET v = 20 WHERE id = 2", "DELETE FROM t WHERE id = 1", "INSERT INTO u VALUES (2)")
    copied.sync()
    assert copied.watermark("t")["status"] == "excluded"
    leave_out(copied)
    (table,) = copied.sync().tables
    assert (table.status, "left it out" in table.reason) == ("copied", True)
    assert statuses(copied) == {"t": "following", "u": "following"}
    copied.assert_equal("t", "u")


@on_mariadb
def test_or_it_reads_what_it_missed(copied: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    leave_out(copied, "t")
    copied.execute("UPDATE t SET v = 20 WHERE id = 2", "ALTER TABLE t ADD w INT DEFAULT 7")
    copied.sync()
    copied.execute("DELETE FROM t WHERE id = 1")
    copied.sync()
    leave_out(copied, policies={"on_unfollowable": "stop"})
    (table,) = copied.sync().tables
    assert (table.status, table.newly_stopped, "table resume" in table.remedy) == ("stopped", True, True)
    report = copied.verify()
    assert (report.equal, [table.name.table for table in report.unverified]) == (False, ["t"])
    resume = ["table", "resume", "--config", str(copied.write_yaml()), "--table", f"{copied.database}.t", "--why", "w"]
    version = copied.version("t")
    with pytest.MonkeyPatch.context() as variables:
        variables.setenv("AIRFLOW_CONN_TESTS", f"mysql://root@127.0.0.1:{copied.server.port}/")
        assert command_line.run(resume) == 0, capsys.readouterr().err
    assert copied.version("t") > version
    copied.assert_equal("t")


@on_mariadb
def test_what_chooses_the_same_copies_nothing(copied: Mirror) -> None:
    """Other patterns, a table left out and taken back before anything was read, columns that no table has."""
    versions = {table: copied.version(table) for table in "tu"}
    copied.include = [f"{copied.database}.t", f"{copied.database}.[u-z]*"]
    copied.options = {"tables": {"include": copied.include, "exclude_columns": [f"{copied.database}.*.nothing"]}}
    assert not copied.sync().tables
    leave_out(copied, "t")
    assert [table.status for table in copied.sync().tables] == ["excluded"]
    leave_out(copied)
    assert [table.status for table in copied.sync().tables] == ["following"]
    reading(copied, invalid_text="keep_bytes")  # of which no table has a text
    assert not copied.sync().tables
    assert versions == {table: copied.version(table) for table in "tu"}
    copied.execute("INSERT INTO t VALUES (3, 3, NULL)")
    copied.sync()
    copied.assert_equal("t")


@on_mysql
def test_a_column_taken_back_is_read(copied: Mirror) -> None:
    reading(copied, "t.v")
    copied.sync()
    assert columns(copied) == ["id", "d"]
    reading(copied)
    copied.execute("ALTER TABLE t RENAME COLUMN v TO w, ADD x INT DEFAULT 5")
    (table,) = copied.sync().tables
    assert "no longer leaves out column 'v'" in table.reason
    assert columns(copied) == ["id", "w", "d", "x"]
    copied.assert_equal("t")


@on_mariadb
def test_a_column_excluded_later_leaves_the_lake_though_no_row_was_changed(copied: Mirror) -> None:
    reading(copied, "t.v")
    (table,) = copied.sync().tables
    assert table.reason == "tables.exclude_columns leaves out column 'v', which the lake still has"
    assert columns(copied) == ["id", "d"]
    assert copied.verify().equal


@on_mariadb
def test_or_the_table_stops_and_is_not_verified(copied: Mirror) -> None:
    reading(copied, "t.v", policies={"on_unfollowable": "stop"})
    copied.execute("INSERT INTO t VALUES (3, 3, NULL)", "INSERT INTO u VALUES (2)")
    stopped = next(table for table in copied.sync().tables if table.status == "stopped")
    assert (stopped.newly_stopped, stopped.remedy.split(":")[0]) == (True, "snapshot this table again")
    assert "leaves out column 'v'" in stopped.reason
    report = copied.verify()
    assert (report.equal, len(report.compared)) == (False, 1)
    assert "1 of 1 tables equal, 1 not compared" in report.to_text()
    copied.snapshot("*.t")
    assert statuses(copied) == {"t": "following", "u": "following"}


@on_mariadb
def test_a_column_of_the_key_is_refused_before_anything_is_done(copied: Mirror) -> None:
    reading(copied, "t.ID")
    with pytest.raises(ConfigurationError, match=r"[.]t: the column 'id' can't be excluded"):
        copied.sync()
    assert copied.watermark("t")["status"] == "following"


@on_mariadb
@pytest.mark.parametrize("staged", [False, True])
def test_a_change_between_the_steps_of_a_batch(copied: Mirror, staged: bool) -> None:
    """It counts from the next staging on: a batch is merged as it was read."""
    copied.execute(
        "INSERT INTO t VALUES (3, 3, NULL)", "CREATE TABLE n (id INT PRIMARY KEY, v INT)", "INSERT INTO n VALUES (1, 1)"
    )
    pipeline.plan(copied.config, copied.origin)
    if staged:
        pipeline.stage(copied.config, copied.origin, lambda _: copied.spark, Report())
    leave_out(copied, "t")
    pipeline.stage(copied.config, copied.origin, lambda _: copied.spark, Report())
    leave_out(copied, "n")
    copied.sync()
    assert statuses(copied) == {"t": "following", "u": "following", "n": "excluded"}
    copied.assert_equal("t")
    leave_out(copied)
    copied.sync()
    assert set(statuses(copied).values()) == {"following"}
    copied.assert_equal("t", "u", "n")


@on_mariadb
def test_a_new_name_may_have_other_excluded_columns(mirror: Mirror) -> None:
    reading(mirror, "t.v")
    mirror.execute(*ROWS)
    mirror.snapshot()
    mirror.execute("RENAME TABLE t TO u", "INSERT INTO u VALUES (3, 3, NULL)")
    mirror.sync()
    assert mirror.watermark("u")["status"] == "stopped", "nobody said that its column may be shown"
    mirror.snapshot(f"{mirror.database}.u")
    assert mirror.watermark("u")["status"] == "following"
    mirror.assert_equal("u")
