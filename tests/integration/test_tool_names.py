"""A name that looks like a tool's decides nothing: excluded rows stay on the server, and copies are followed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirror import on_mariadb, on_mysql

if TYPE_CHECKING:
    from mirror import Mirror

SECRET = "not-to-be-seen"


@pytest.fixture
def keeping(mirror: Mirror) -> Mirror:
    """Its staging stays after a batch, to be looked at."""
    mirror.options = {"maintain": {"staging_hours": 1}, "merge": {"without_spark_mb": 16}}
    mirror.reader = "direct"
    return mirror


def reading(mirror: Mirror, **tables: Any) -> None:
    mirror.options["tables"] = {"include": [f"{mirror.database}.*"], **tables}


def staged(mirror: Mirror) -> set[str]:
    """The tables of which some rows were staged."""
    manifests = Path(mirror.folder).rglob("manifest.json")
    slices = [part for path in manifests for part in json.loads(path.read_text())["slices"]]
    return {file["name"]["table"] for part in slices for file in part["files"]}


def holding(mirror: Mirror, text: str) -> list[Path]:
    """Files of the lake, metadata and all, that hold a text."""
    return [path for path in Path(mirror.folder).rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def actions(mirror: Mirror) -> set[str]:
    return {row["action"] for row in mirror.history()}


def test_what_is_excluded_stays_on_the_server_whatever_its_name(keeping: Mirror) -> None:
    mirror = keeping
    reading(mirror, exclude=[f"{mirror.database}._*"])
    mirror.execute(
        "CREATE TABLE staff (id INT PRIMARY KEY, v VARCHAR(30))",
        "INSERT INTO staff VALUES (1, 'seen')",
        "CREATE TABLE _staff_new (id INT PRIMARY KEY, v VARCHAR(30))",
        f"INSERT INTO _staff_new VALUES (1, '{SECRET}')",
    )
    mirror.snapshot()
    mirror.execute(
        f"INSERT INTO _staff_new VALUES (2, '{SECRET}')",
        "CREATE TABLE _staff_gho LIKE staff",
        f"INSERT INTO _staff_gho VALUES (3, '{SECRET}')",
        "ALTER TABLE _staff_gho ADD w INT",
        f"INSERT INTO _staff_gho VALUES (4, '{SECRET}', 4)",
        "INSERT INTO staff VALUES (2, 'seen')",
    )
    mirror.sync()
    assert staged(mirror) == {"staff"}
    assert not holding(mirror, SECRET)
    assert not Path(mirror.config.ghosts).exists()
    mirror.assert_equal("staff")
    # A swap with what wasn't read asks for the table's own rows.
    mirror.execute("UPDATE _staff_gho SET v = 'seen'", "RENAME TABLE staff TO _staff_del, _staff_gho TO staff")
    mirror.sync()
    mirror.assert_equal("staff")


@on_mysql
def test_only_a_copy_made_while_it_is_followed_is_a_ghost(keeping: Mirror) -> None:
    mirror = keeping
    reading(mirror, include=[f"{mirror.database}.staff", f"{mirror.database}.orders"])
    mirror.execute(
        "CREATE TABLE staff (id INT PRIMARY KEY, v VARCHAR(30))",
        "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(30))",
        "CREATE TABLE _staff_gho LIKE staff",
        f"INSERT INTO _staff_gho VALUES (1, '{SECRET}')",
    )
    mirror.snapshot()
    mirror.execute(
        f"INSERT INTO _staff_gho VALUES (2, '{SECRET}')",
        "CREATE TABLE _orders_new (id INT PRIMARY KEY, salary VARCHAR(30))",
        f"INSERT INTO _orders_new VALUES (1, '{SECRET}')",
        "INSERT INTO orders VALUES (1, 'seen')",
    )
    mirror.sync()
    assert staged(mirror) == {"orders"}
    # Dropped and made as a copy, it is one from there on.
    mirror.execute(
        f"INSERT INTO _staff_gho VALUES (3, '{SECRET}')",
        "DROP TABLE _staff_gho",
        "CREATE TABLE _staff_gho LIKE staff",
        "INSERT INTO _staff_gho VALUES (4, 'seen')",
    )
    mirror.sync()
    assert staged(mirror) == {"orders", "_staff_gho"}
    # And no longer, once another table has its name.
    mirror.execute(
        "INSERT INTO _staff_gho VALUES (5, 'seen')",
        "RENAME TABLE staff TO _staff_del, _staff_gho TO staff",
        "CREATE TABLE _staff_gho (id INT PRIMARY KEY, salary VARCHAR(30))",
        f"INSERT INTO _staff_gho VALUES (1, '{SECRET}')",
        "INSERT INTO staff VALUES (6, 'seen')",
    )
    mirror.sync()
    mirror.assert_equal("staff", "orders")
    assert "resnapshot asked" not in actions(mirror)
    assert not holding(mirror, SECRET)


@on_mariadb
def test_a_ghosts_rows_are_read_wherever_the_log_has_them(keeping: Mirror) -> None:
    mirror = keeping
    reading(mirror, include=[f"{mirror.database}.t"], exclude_columns=[f"{mirror.database}._t_new.own"])
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(30))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    mirror.snapshot()
    copy = "CREATE TABLE _t_new (id INT PRIMARY KEY, v VARCHAR(30))"
    mirror.execute(copy, "ALTER TABLE _t_new ADD w INT")
    mirror.sync()  # it has no rows yet
    mirror.execute("INSERT INTO _t_new SELECT id, v, 1 FROM t", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (3, 'c')")
    mirror.execute("INSERT INTO _t_new VALUES (3, 'c', 1)", "RENAME TABLE t TO _t_old, _t_new TO t")
    mirror.sync()
    mirror.assert_equal("t")
    # Its statement and its rows in several files of the log, which are read side by side.
    mirror.execute("DROP TABLE _t_old", copy.replace("))", "), w INT)"), "FLUSH BINARY LOGS")
    mirror.execute("INSERT INTO _t_new SELECT * FROM t", "FLUSH BINARY LOGS", "ALTER TABLE _t_new ADD x INT")
    mirror.execute("RENAME TABLE t TO _t_old, _t_new TO t", "INSERT INTO t VALUES (4, 'd', 1, 1)")
    mirror.sync()
    mirror.assert_equal("t")
    assert not actions(mirror) & {"resnapshot asked", "stopped"}


@on_mysql
def test_a_copy_lacks_the_columns_that_its_table_and_its_own_name_exclude(keeping: Mirror) -> None:
    mirror = keeping
    excluded = [f"{mirror.database}.t.secret", f"{mirror.database}._t_gho.more"]
    reading(mirror, exclude_columns=excluded)
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, secret VARCHAR(30), v INT)", f"INSERT INTO t VALUES (1, '{SECRET}', 1)"
    )
    mirror.snapshot()
    for table in ("_t_gho", "lhmn_t", "_vt_vrp_6ace8bcef73211ea87e9f875a4d24e90_20200915120410_"):
        mirror.execute(
            f"CREATE TABLE {table} LIKE t",
            f"ALTER TABLE {table} ADD more VARCHAR(30)",
            f"INSERT INTO {table} SELECT t.*, '{SECRET}' FROM t",
        )
    mirror.sync()
    mirror.assert_equal(
        "_t_gho", "_vt_vrp_6ace8bcef73211ea87e9f875a4d24e90_20200915120410_", without=["secret", "more"]
    )
    mirror.execute("RENAME TABLE t TO _t_del, lhmn_t TO t", f"UPDATE _t_del SET secret = '{SECRET} again'")
    mirror.sync()
    mirror.sync()
    mirror.assert_equal("t", "_t_del", without=["secret"])
    assert not [path for path in holding(mirror, f"{SECRET} again") if "_staging" in path.parts]


@on_mariadb
def test_a_dropped_table_is_a_tools_by_what_it_did_not_by_its_name(mirror: Mirror) -> None:
    mirror.reader = "direct"
    mirror.options = {"merge": {"without_spark_mb": 16}}
    mirror.execute(
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(9), w INT)" for name in ("t", "_kept_old", "_t_chkpnt")),
        *(f"INSERT INTO {name} VALUES (1, 'seen', 1)" for name in ("t", "_kept_old", "_t_chkpnt")),
    )
    mirror.snapshot()
    mirror.execute(
        "CREATE TABLE _t_new LIKE t",  # made, and dropped without a swap
        "INSERT INTO _t_new SELECT * FROM t",
        "CREATE TABLE _t_ghc (id INT PRIMARY KEY, v INT)",
        "RENAME TABLE _kept_old TO _renamed_old",
        "CREATE TABLE lhmn_t LIKE t",
        "ALTER TABLE lhmn_t DROP COLUMN w, ADD x INT",
        "INSERT INTO lhmn_t SELECT id, v, 1 FROM t",
    )
    mirror.sync()
    mirror.execute("RENAME TABLE t TO lhma_2026_09_28_12_00_00_123_t, lhmn_t TO t")
    mirror.sync()
    mirror.execute(
        *("DROP TABLE _t_new", "DROP TABLE _t_ghc", "DROP TABLE _renamed_old", "DROP TABLE _t_chkpnt"),
        "DROP TABLE lhma_2026_09_28_12_00_00_123_t",
        "CREATE TABLE _vt_vrp_x LIKE t",
        "INSERT INTO _vt_vrp_x SELECT * FROM t",
        "RENAME TABLE t TO _vt_hld_x, _vt_vrp_x TO t",
        "DROP TABLE _vt_hld_x",
        "CREATE TABLE _t_ghc (id BIGINT PRIMARY KEY, last_update TIMESTAMP, hint VARCHAR(64), value VARCHAR(255))",
        "DROP TABLE _t_ghc",
    )
    mirror.sync()
    mirror.assert_equal("t")
    there = {name for name in kept_names(mirror) if Path(mirror.path(name)).exists()}
    assert there == {"t", "_t_new", "_renamed_old", "_t_chkpnt"}
    mirror.maintain()
    assert there == {name for name in kept_names(mirror) if Path(mirror.path(name)).exists()}


def kept_names(mirror: Mirror) -> set[str]:
    return {row["table"] for row in mirror.metadata.read("watermarks")} | {"_vt_hld_x", "_t_ghc"}
