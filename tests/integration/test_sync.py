"""The log is followed: what happens on the server happens in the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirror import Mirror


def test_a_table_born_in_the_log_is_created_and_filled(mirror: Mirror) -> None:
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(10,2), at DATETIME(3))",
        "INSERT INTO t VALUES (1, 'one', 1.50, '2024-02-29 12:00:00.123'), (2, NULL, NULL, NULL), (3, '', -0.01, NULL)",
        "UPDATE t SET name = 'zwei' WHERE id = 2",
        "UPDATE t SET id = 30 WHERE id = 3",
        "DELETE FROM t WHERE id = 1",
    )
    report = mirror.sync()
    mirror.assert_equal("t")
    (table,) = report.tables
    assert (table.inserted, table.updated, table.deleted) == (3, 2, 1)
    assert mirror.watermark("t")["status"] == "following"


def test_a_second_sync_with_nothing_new_commits_nothing(mirror: Mirror) -> None:
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.sync()
    version = mirror.version("t")
    report = mirror.sync()
    assert mirror.version("t") == version
    assert report.message.startswith("nothing new: proved up to ")
    assert report.tables == ()
