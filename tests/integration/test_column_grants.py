"""An account that may read some columns of a table only: the server shows no others, and the grant is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from binlake import pipeline
from binlake.doctor.preflight import preflight
from binlake.errors import TableError
from binlake.phases.bootstrap import KeysAsked
from binlake.phases.verification import VerifyRequest
from binlake.report import Report
from binlake.source.endpoint import Endpoint
from mirror import Mirror

ACCOUNT = "'partial'@'%'"


@pytest.fixture
def account(mirror: Mirror) -> Iterator[Endpoint]:
    """It may read a table with a secret column, one whose secret is invisible, two without columns of their keys, and a
    whole one."""
    every = "RELOAD, REPLICATION SLAVE, " + (
        "BINLOG MONITOR" if mirror.server.kind == "mariadb" else "REPLICATION CLIENT"
    )
    more = [f"GRANT XA_RECOVER_ADMIN ON *.* TO {ACCOUNT}"] if mirror.server.kind == "mysql" else []
    mirror.reader = "direct"
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, secret INT)",
        "CREATE TABLE hidden (id INT PRIMARY KEY, v INT, secret INT INVISIBLE)",
        "CREATE TABLE keyed (id INT PRIMARY KEY, v INT, w INT UNIQUE)",
        "CREATE TABLE half (id INT, v INT, k INT NOT NULL, UNIQUE (id, k), PRIMARY KEY (k, id))",
        "CREATE TABLE whole (id INT PRIMARY KEY, v INT, bytes VARBINARY(4) DEFAULT 0xA3FF)",
        *(f"INSERT INTO {table} (id, v) VALUES (1, 1)" for table in ("t", "hidden", "keyed", "whole")),
        "INSERT INTO half VALUES (1, 1, 1)",
        f"CREATE USER {ACCOUNT} IDENTIFIED BY 'x'",
        *(f"GRANT {every} ON *.* TO {ACCOUNT}", f"GRANT LOCK TABLES ON {mirror.database}.* TO {ACCOUNT}", *more),
        f"GRANT SELECT ON {mirror.database}.whole TO {ACCOUNT}",
        *(f"GRANT SELECT (id, v) ON {mirror.database}.{table} TO {ACCOUNT}" for table in ("t", "hidden", "half")),
        f"GRANT SELECT (v) ON {mirror.database}.keyed TO {ACCOUNT}",
    )
    yield replace(mirror.endpoint, user="partial", password="x")
    mirror.execute(f"DROP USER {ACCOUNT}")


def snapshot(mirror: Mirror, account: Endpoint, table: str) -> Any:
    tables = [f"{mirror.database}.{table}"]
    return pipeline.bootstrap(mirror.config, account, lambda _: mirror.spark, Report(), tables=tables)


def test_a_table_of_which_some_columns_may_be_read_is_refused_and_the_grant_named(
    mirror: Mirror, account: Endpoint
) -> None:
    for table in ("t", "hidden", "keyed", "half"):
        with pytest.raises(TableError, match="SELECT is granted on some of its columns only") as refused:
            snapshot(mirror, account, table)
        assert f"GRANT SELECT ON `{mirror.database}`.`{table}` TO `partial`@`%`;" in refused.value.remedy
        checks = preflight(mirror.config, account, spark_checks=False)
        failed = [check for check in checks if check.name == f"table {mirror.database}.{table}" and check.ok is False]
        assert any("GRANT SELECT ON" in check.remedy for check in failed)
    snapshot(mirror, account, "whole")
    mirror.assert_equal("whole")
    mirror.execute(f"GRANT SELECT ON {mirror.database}.t TO {ACCOUNT}")
    snapshot(mirror, account, "t")
    mirror.assert_equal("t")


def test_a_right_that_is_taken_away_later_is_named_and_the_column_stays(mirror: Mirror, account: Endpoint) -> None:
    mirror.execute(f"GRANT SELECT ON {mirror.database}.t TO {ACCOUNT}")
    snapshot(mirror, account, "t")
    mirror.execute(f"REVOKE SELECT ON {mirror.database}.t FROM {ACCOUNT}")
    mirror.execute(f"GRANT SELECT (id, v) ON {mirror.database}.t TO {ACCOUNT}")
    asked = VerifyRequest([f"{mirror.database}.t"])
    (table,) = pipeline.verify(mirror.config, account, lambda _: mirror.spark, Report(), asked).tables
    assert table.state == "failed"
    assert f"GRANT SELECT ON `{mirror.database}`.`t`" in table.remedy
    keys = KeysAsked([f"{mirror.database}.t"], "1..2")
    for copied in (
        lambda: snapshot(mirror, account, "t"),
        lambda: pipeline.snapshot_keys(mirror.config, account, lambda _: mirror.spark, Report(), keys),
    ):
        with pytest.raises(TableError, match="SELECT is granted on some of its columns only"):
            copied()
    mirror.execute(f"REVOKE SELECT (id) ON {mirror.database}.t FROM {ACCOUNT}")  # its key's
    (table,) = pipeline.verify(mirror.config, account, lambda _: mirror.spark, Report(), asked).tables
    assert (table.state, f"GRANT SELECT ON `{mirror.database}`.`t`" in table.remedy) == ("failed", True)
    mirror.execute("INSERT INTO t VALUES (2, 2, 2)")
    pipeline.sync(mirror.config, account, lambda _: mirror.spark, Report())
    mirror.assert_equal("t")
