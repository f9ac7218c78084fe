"""Transactions of every kind: XA over several ranges, savepoints, engines mixed, one that is open while a sync runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import DeltaTable

from binlake import faults
from binlake.lease import lease
from mirror import Mirror, on_mariadb, on_mysql

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from binlake.planner.steps import PreparedXa


def waiting(mirror: Mirror) -> tuple[PreparedXa, ...]:
    recorded_state = lease.read(mirror.metadata).recorded_state
    return recorded_state.prepared if recorded_state else ()


def ready(mirror: Mirror) -> None:
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE b (id INT, v VARCHAR(20))",
        "INSERT INTO a VALUES (1, 'one'), (2, 'two'), (3, 'three')",
        "INSERT INTO b VALUES (1, 'same'), (1, 'same')",
    )


def prepare(mirror: Mirror, xid: str, *statements: str, settings: str = "SET @any = 0") -> None:
    """An XA transaction of a connection that is gone afterwards."""
    mirror.execute(settings, f"XA START {xid}", *statements, f"XA END {xid}", f"XA PREPARE {xid}")


def staged_batches(mirror: Mirror) -> list[str]:
    folder = mirror.folder / "tests" / "_staging"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_xa_waits_for_its_outcome_over_several_batches(mirror: Mirror) -> None:
    ready(mirror)
    prepare(mirror, "'kept'", "INSERT INTO a VALUES (10, 'xa')", "UPDATE a SET v = 'xa' WHERE id = 1",
            "DELETE FROM b LIMIT 1", "UPDATE a SET v = 'xa again' WHERE id = 10")  # fmt: skip
    prepare(mirror, "'dropped','branch',9", "DELETE FROM a WHERE id = 2")
    mirror.execute("INSERT INTO a VALUES (4, 'plain')")
    mirror.sync()
    mirror.assert_equal("a", "b")  # what is prepared shows on neither side
    assert staged_batches(mirror) == ["1"]
    mirror.execute("UPDATE a SET v = 'later' WHERE id = 3")
    mirror.sync()
    mirror.assert_equal("a", "b")
    mirror.execute("XA COMMIT 'kept'", "XA ROLLBACK 'dropped','branch',9", "UPDATE a SET v = 'after' WHERE id = 10")
    mirror.sync()
    mirror.assert_equal("a", "b")
    assert staged_batches(mirror) == []
    assert waiting(mirror) == ()


def test_xa_within_one_batch_and_its_id_used_again(mirror: Mirror) -> None:
    ready(mirror)
    prepare(mirror, "'x'", "INSERT INTO a VALUES (10, 'lost')")
    mirror.execute("XA ROLLBACK 'x'")
    prepare(mirror, "'x'", "INSERT INTO a VALUES (11, 'kept')", "UPDATE b SET v = 'x' LIMIT 1")
    mirror.execute("INSERT INTO a VALUES (12, 'between')", "XA COMMIT 'x'", "UPDATE a SET v = 'after' WHERE id = 11")
    mirror.execute("XA START 'one'", "DELETE FROM a WHERE id = 3", "XA END 'one'", "XA COMMIT 'one' ONE PHASE")
    mirror.sync()
    mirror.assert_equal("a", "b")


@on_mysql
def test_xa_is_prepared_in_one_event_where_transactions_are_compressed(mirror: Mirror) -> None:
    ready(mirror)
    compressed = "SET binlog_transaction_compression = ON"
    prepare(mirror, "'x'", "INSERT INTO a VALUES (10, 'lost')", settings=compressed)
    mirror.execute("XA ROLLBACK 'x'")
    prepare(mirror, "'x'", "INSERT INTO a VALUES (11, 'kept')", "UPDATE b SET v = 'x' LIMIT 1", settings=compressed)
    mirror.execute("XA COMMIT 'x'")
    mirror.sync()
    mirror.assert_equal("a", "b")
    prepare(mirror, "'y'", "UPDATE a SET v = 'y' WHERE id = 11", "INSERT INTO b VALUES (9, 'y')", settings=compressed)
    mirror.sync()
    mirror.execute("XA COMMIT 'y'")
    mirror.sync()
    mirror.assert_equal("a", "b")


def test_the_rows_of_xa_come_with_a_commit_behind_a_change_of_another_table(mirror: Mirror) -> None:
    ready(mirror)
    prepare(mirror, "'x'", "UPDATE a SET id = id + 100 WHERE id > 1")
    mirror.execute("ALTER TABLE b ADD COLUMN n INT DEFAULT 5", "INSERT INTO b VALUES (9, 'new', 1)", "XA COMMIT 'x'")
    mirror.sync()
    mirror.assert_equal("a", "b")


def test_a_batch_with_a_commit_of_xa_is_cut_off_and_repeated(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    ready(mirror)
    prepare(mirror, "'x'", "INSERT INTO b VALUES (5, 'x'), (5, 'x')", "INSERT INTO a VALUES (10, 'x')")
    mirror.sync()
    mirror.execute("XA COMMIT 'x'")
    for point in ("epoch committed", "merged", "recorded"):

        def cut_off(reached: str, wanted: str = point) -> None:
            if reached == wanted:
                raise KeyboardInterrupt(reached)

        with monkeypatch.context() as faulty:
            faulty.setattr(faults, "at_point", cut_off)
            try:
                mirror.sync()
            except KeyboardInterrupt:
                continue
    mirror.sync()
    mirror.assert_equal("a", "b")
    assert staged_batches(mirror) == []


@on_mariadb
def test_rows_that_waited_are_damaged(mirror: Mirror) -> None:
    ready(mirror)
    prepare(mirror, "'x'", "INSERT INTO a VALUES (10, 'x')")
    mirror.sync()
    (held,) = waiting(mirror)
    for path in _files(mirror.folder / "tests" / "_staging" / str(held.batch)):
        path.write_bytes(path.read_bytes()[:-1])
    mirror.execute("XA COMMIT 'x'", "INSERT INTO b VALUES (7, 'continues')")
    mirror.sync()
    mirror.assert_equal("b")
    assert mirror.watermark("a")["status"] == "stopped"
    assert "XA transaction" in mirror.watermark("a")["reason"]
    mirror.snapshot(f"{mirror.database}.a")
    mirror.assert_equal("a")


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.parquet")]


TRANSACTIONS = [
    ("COMMIT", "INSERT INTO a VALUES (20, 'kept')", "SAVEPOINT s", "INSERT INTO a VALUES (21, 'lost')",
     "ROLLBACK TO SAVEPOINT s", "UPDATE a SET v = 'kept too' WHERE id = 1"),
    ("COMMIT", "INSERT INTO a VALUES (30, 'kept')", "SAVEPOINT s", "INSERT INTO a VALUES (31, 'lost')",
     "CREATE TEMPORARY TABLE tmp (i INT)", "DROP TEMPORARY TABLE tmp", "SAVEPOINT `t u`", "DELETE FROM b LIMIT 1",
     "ROLLBACK TO s", "INSERT INTO a VALUES (32, 'kept')"),
    ("COMMIT", "INSERT INTO a VALUES (33, 'kept')", "SAVEPOINT `one s`", "INSERT INTO a VALUES (34, 'lost')",
     "CREATE TEMPORARY TABLE tmp (i INT)", "DROP TEMPORARY TABLE tmp", "SAVEPOINT `two s`",
     "INSERT INTO a VALUES (35, 'lost')", "ROLLBACK TO `one s`", "INSERT INTO a VALUES (36, 'kept')"),
    ("ROLLBACK", "INSERT INTO a VALUES (40, 'lost')", "CREATE TEMPORARY TABLE tmp (i INT)",
     "DROP TEMPORARY TABLE tmp", "UPDATE b SET v = 'lost'"),
]  # fmt: skip
"""How each ends, and its statements. Where something can't be taken back, MariaDB logs what was, and a ROLLBACK."""
WITH_PLAIN = [
    ("COMMIT", "INSERT INTO a VALUES (50, 'kept')", "SAVEPOINT s", "UPDATE a SET v = 'lost'",
     "INSERT INTO plain VALUES (1, 1)", "ROLLBACK TO s", "INSERT INTO a VALUES (51, 'kept')"),
    ("ROLLBACK", "DELETE FROM a", "INSERT INTO plain VALUES (2, 2)", "UPDATE plain SET v = 9"),
]  # fmt: skip
"""With an engine that takes nothing back, which MySQL refuses where it writes GTIDs."""


def test_what_was_rolled_back_never_was(mirror: Mirror) -> None:
    ready(mirror)
    mirror.execute("CREATE TABLE plain (id INT PRIMARY KEY, v INT) ENGINE=MyISAM", "INSERT INTO plain VALUES (7, 7)")
    transactions = TRANSACTIONS + (WITH_PLAIN if mirror.server.kind == "mariadb" else [])
    with mirror.server.connect(database=mirror.database, autocommit=False) as connection:
        for end, *statements in transactions:
            for statement in [*statements, end]:
                connection.cursor().execute(statement)
    mirror.sync()
    mirror.assert_equal("a", "b", "plain")


def test_a_range_never_ends_inside_a_transaction(mirror: Mirror) -> None:
    ready(mirror)
    with mirror.server.connect(database=mirror.database, autocommit=False) as connection:
        connection.cursor().execute("INSERT INTO a VALUES (30, 'open')")
        mirror.sync()
        assert 30 not in _ids(mirror)
        connection.cursor().execute("INSERT INTO a VALUES (31, 'open')")
        connection.commit()
    mirror.sync()
    assert {30, 31} <= _ids(mirror)
    mirror.assert_equal("a", "b")


def _ids(mirror: Mirror) -> set[int]:
    from binlake.store.metadata import query

    assert DeltaTable.is_deltatable(mirror.path("a"))
    return {row["id"] for row in query(mirror.path("a")).to_pylist()}
