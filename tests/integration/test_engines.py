"""Storage engines: a table whose rows aren't those that the log tells is refused by name, the others continue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from binlake.doctor.preflight import preflight
from binlake.errors import TableError
from mirror import on_mariadb, on_mysql
from servers import Server

if TYPE_CHECKING:
    from mirror import Mirror

MERGED = "ENGINE=MERGE UNION=(one, other) INSERT_METHOD=LAST"


def doctor(mirror: Mirror) -> dict[str, str]:
    """What fails, by line."""
    checks = preflight(mirror.config, mirror.endpoint, spark_checks=False)
    return {check.name: check.found for check in checks if check.ok is False}


def refused(mirror: Mirror, *patterns: str) -> str:
    with pytest.raises(TableError) as raised:
        mirror.snapshot(*patterns)
    return raised.value.message


def lakes(mirror: Mirror) -> set[str]:
    return {row["table"] for row in mirror.metadata.read("watermarks") if row["status"] == "following"}


@on_mysql
def test_a_table_that_keeps_no_rows_is_refused_and_the_others_go_on(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE hole (id INT PRIMARY KEY) ENGINE=BLACKHOLE", "CREATE TABLE t (id INT PRIMARY KEY)")
    assert doctor(mirror) == {f"table {mirror.database}.hole": "the engine BLACKHOLE keeps no rows"}
    assert refused(mirror) == f"{mirror.database}.hole: the engine BLACKHOLE keeps no rows"
    assert lakes(mirror) == {"t"}


@on_mysql
def test_a_table_made_without_rows_is_copied_once_it_keeps_them(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    mirror.snapshot()
    mirror.execute(
        "CREATE TABLE hole (id INT PRIMARY KEY) ENGINE = BLACKHOLE",
        "CREATE TABLE alike LIKE hole",
        "INSERT INTO hole VALUES (1)",
        "INSERT INTO alike VALUES (1)",
    )
    mirror.sync()
    mirror.execute("INSERT INTO hole VALUES (2)")
    mirror.sync()
    assert lakes(mirror) == {"t"}
    mirror.execute("ALTER TABLE hole ENGINE=InnoDB", "ALTER TABLE alike ENGINE=InnoDB", "INSERT INTO hole VALUES (3)")
    mirror.sync()
    mirror.assert_equal("t", "hole", "alike")


@on_mysql
@pytest.mark.parametrize("rows", ["INSERT INTO t VALUES (1)", "DO 0"], ids=["rows", "empty"])
def test_a_table_that_loses_its_rows_to_its_engine(mirror: Mirror, rows: str) -> None:
    mirror.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    mirror.snapshot()
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)", rows, "ALTER TABLE t ENGINE=BLACKHOLE, COMMENT='c'")
    mirror.execute("INSERT INTO t VALUES (2)")
    mirror.sync()
    assert mirror.watermark("t")["status"] == "resnapshot"
    assert "the engine BLACKHOLE keeps no rows" in mirror.watermark("t")["reason"]
    mirror.execute("ALTER TABLE t ENGINE=InnoDB", "INSERT INTO t VALUES (3)")
    mirror.sync()
    mirror.assert_equal("t", "other")


def test_a_merge_table_and_its_members_are_refused(mirror: Mirror) -> None:
    """Rows written through it are logged under its name, and stand in its members."""
    mirror.execute(
        "CREATE TABLE one (id INT PRIMARY KEY) ENGINE=MyISAM",
        "CREATE TABLE other LIKE one",
        "CREATE TABLE third LIKE one",
        f"CREATE TABLE merged (id INT PRIMARY KEY) {MERGED}",
        "INSERT INTO merged VALUES (1)",
    )
    mirror.exclude = [f"{mirror.database}.merged"]
    member = f"its rows change through the MERGE table {mirror.database}.merged, and are logged under its name"
    names = [f"{mirror.database}.{name}" for name in ("one", "other")]
    assert doctor(mirror) == {f"table {name}": member for name in names}
    assert refused(mirror) == f"{names[0]}: {member}"
    assert lakes(mirror) == {"third"}
    mirror.execute("ALTER TABLE merged UNION=(third)", "INSERT INTO merged VALUES (2)")
    mirror.sync()
    assert mirror.watermark("third")["status"] == "resnapshot"
    assert member in mirror.watermark("third")["reason"]
    mirror.execute("DROP TABLE merged", "INSERT INTO third VALUES (3)")
    mirror.snapshot()
    mirror.sync()
    mirror.assert_equal("one", "other", "third")


def test_a_merge_table_made_over_tables_that_are_followed(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE one (id INT PRIMARY KEY) ENGINE=MyISAM", "CREATE TABLE other LIKE one")
    mirror.snapshot()
    mirror.execute(f"CREATE TABLE merged (id INT PRIMARY KEY) {MERGED}", "INSERT INTO merged VALUES (1)")
    mirror.sync()
    assert lakes(mirror) == set()


@on_mysql
def test_a_memory_table_is_refused_where_the_log_may_leave_out_that_a_restart_emptied_it(mirror: Mirror) -> None:
    with Server("mysql") as own:
        mirror.server = own
        own.execute(f"CREATE DATABASE {mirror.database}")
        mirror.execute("CREATE TABLE t (id INT PRIMARY KEY) ENGINE=MEMORY", "INSERT INTO t VALUES (1)")
        assert "loses its rows" in refused(mirror)
        own.restart()
        _, stood, *_ = own.execute("SHOW BINARY LOG STATUS")[0]
        mirror.execute(f"SELECT table_rows FROM information_schema.tables WHERE table_schema = '{mirror.database}'")
        assert mirror.server.execute(f"SELECT COUNT(*) FROM {mirror.database}.t") == [(0,)]
        assert own.execute("SHOW BINARY LOG STATUS")[0][1] == stood


@on_mariadb
def test_a_memory_table_that_a_restart_emptied(mirror: Mirror) -> None:
    """At its first use after a start the server logs a TRUNCATE of it."""
    with Server(mirror.server.kind) as own:
        mirror.server = own
        own.execute(f"CREATE DATABASE {mirror.database}")
        restarted(mirror)


def restarted(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE used (id INT PRIMARY KEY) ENGINE=MEMORY",
        "CREATE TABLE unused (id INT PRIMARY KEY) ENGINE=HEAP",
        "CREATE TABLE copied LIKE used",
        "INSERT INTO used VALUES (1)",
        "INSERT INTO unused VALUES (1)",
        "INSERT INTO copied VALUES (1)",
    )
    mirror.snapshot(f"{mirror.database}.*used")
    mirror.execute("INSERT INTO used VALUES (2)")
    mirror.server.restart()
    mirror.execute("INSERT INTO used VALUES (3)")
    mirror.snapshot(f"{mirror.database}.copied")
    mirror.execute("INSERT INTO copied VALUES (4)")
    report = mirror.verify()
    assert report.equal, report.to_text()
    mirror.sync()
    mirror.assert_equal("used", "unused", "copied")
