"""Foreign keys that act: MySQL logs every row they change; where the server doesn't, the table isn't trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from binlake.errors import TableError

if TYPE_CHECKING:
    from mirror import Mirror

TABLES = (
    "CREATE TABLE grandparent (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE parent (id INT PRIMARY KEY, g INT, FOREIGN KEY (g) REFERENCES grandparent (id)"
    " ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE SET NULL)",
    "CREATE TABLE own (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES own (id) ON DELETE CASCADE)",
    "INSERT INTO grandparent VALUES (1, 1), (2, 2), (3, 3)",
    "INSERT INTO parent VALUES (10, 1), (11, 1), (20, 2), (30, 3)",
    "INSERT INTO child VALUES (100, 10), (101, 11), (200, 20), (300, 30)",
    "INSERT INTO own VALUES (1, NULL), (2, 1), (3, 2), (4, NULL)",
)
ACTING = (
    "UPDATE grandparent SET id = 22 WHERE id = 2",
    "DELETE FROM grandparent WHERE id = 1",
    "DELETE FROM own WHERE id = 1",
    "INSERT INTO grandparent VALUES (1, 9)",
    "INSERT INTO parent VALUES (10, 1)",
    "UPDATE child SET p = 10 WHERE id = 300",
)
ALL = ("grandparent", "parent", "child", "own")


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_mysql_logs_what_cascades_change_through_all_levels(mirror: Mirror) -> None:
    mirror.execute(*TABLES)
    mirror.snapshot()
    mirror.execute(*ACTING)
    mirror.sync()
    mirror.assert_equal(*ALL)
    assert {row["status"] for row in mirror.metadata.read("watermarks")} == {"following"}


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_where_cascades_are_not_logged_their_tables_are_refused(mirror: Mirror) -> None:
    mirror.execute(*TABLES)
    with pytest.raises(TableError, match="cascades from"):
        mirror.snapshot()
    assert {row["table"] for row in mirror.metadata.read("watermarks")} == {"grandparent"}
    mirror.execute("CREATE TABLE late (id INT PRIMARY KEY, g INT)", "INSERT INTO late VALUES (1, 1)")
    mirror.sync()
    mirror.assert_equal("grandparent", "late")
    mirror.execute("ALTER TABLE late ADD FOREIGN KEY (g) REFERENCES grandparent (id) ON DELETE CASCADE")
    mirror.sync()
    assert mirror.watermark("late")["status"] == "stopped"
    assert "on_unlogged_cascade" in mirror.watermark("late")["remedy"]


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_by_policy_they_are_snapshotted_anew_where_their_parents_rows_go(mirror: Mirror) -> None:
    mirror.options = {"policies": {"on_unlogged_cascade": "resnapshot"}}
    mirror.execute(*TABLES)
    mirror.snapshot()
    lives = {table: mirror.watermark(table)["table_id"] for table in ALL}
    mirror.execute("INSERT INTO parent VALUES (40, 3)", "UPDATE child SET p = 40 WHERE id = 300")
    mirror.sync()
    assert lives == {table: mirror.watermark(table)["table_id"] for table in ALL}
    mirror.execute(*ACTING)
    mirror.sync()
    mirror.assert_equal(*ALL)
    assert {row["status"] for row in mirror.metadata.read("watermarks")} == {"following"}
