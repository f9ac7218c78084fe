"""Kinds of tables that MariaDB alone has: copied, followed, and found equal by verify."""

from __future__ import annotations

import pytest

from binlake.errors import TableError
from mirror import Mirror, on_mariadb


@on_mariadb
def test_a_sequence(mirror: Mirror) -> None:
    mirror.execute("CREATE SEQUENCE s CACHE 5", "DO NEXTVAL(s)", "CREATE SEQUENCE idle")
    mirror.snapshot()
    mirror.assert_equal("s", "idle")
    assert mirror.verify().equal
    mirror.execute("DO NEXTVAL(s)", *["DO NEXTVAL(s)"] * 9, "DO SETVAL(s, 100)")
    report = mirror.verify()
    assert (report.equal, len(report.compared)) == (True, 2)
    mirror.assert_equal("s", "idle")
    assert mirror.watermark("s")["status"] == "following"


@on_mariadb
def test_a_versioned_table_is_its_current_rows(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v TEXT UNIQUE) WITH SYSTEM VERSIONING",
        "INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three')",
        "DELETE FROM t WHERE id = 3",
    )
    mirror.snapshot()
    assert mirror.verify().equal
    mirror.execute(
        "UPDATE t SET v = 'due' WHERE id = 2", "DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (3, 'tre')"
    )
    assert mirror.verify().equal
    mirror.assert_equal("t")
    assert mirror.watermark("t")["status"] == "following"


@on_mariadb
def test_versions_by_transaction_are_refused(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, s BIGINT UNSIGNED AS ROW START, e BIGINT UNSIGNED AS ROW END,"
        " PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING"
    )
    with pytest.raises(TableError, match="versioned by transactions"):
        mirror.snapshot()


@on_mariadb
@pytest.mark.parametrize("policy", ["derive", "resnapshot"])
def test_what_cascades_from_a_versioned_table_is_snapshotted_anew(mirror: Mirror, policy: str) -> None:
    """A delete is logged as an update there."""
    mirror.options = {"policies": {"on_unlogged_cascade": policy}}
    mirror.execute(
        "CREATE TABLE parent (id INT PRIMARY KEY) WITH SYSTEM VERSIONING",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "INSERT INTO parent VALUES (1), (2)",
        "INSERT INTO child VALUES (1, 1), (2, 2)",
    )
    mirror.snapshot()
    mirror.execute("DELETE FROM parent WHERE id = 1")
    mirror.sync()
    mirror.assert_equal("parent", "child")
