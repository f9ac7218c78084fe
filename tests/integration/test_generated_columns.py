"""Generated columns that the log has in inserts alone (MariaDB 11.8): the lake computes them, or goes without them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

import comparison
from applied import AS_REPLICA, apply
from binlake.cli import command_line
from binlake.source import catalog
from feeding import carried, feed
from mirror import Mirror
from servers import Server
from virtual_columns import are_all_logged

COLUMNS = (
    "id INT PRIMARY KEY, a INT, b BIGINT UNSIGNED, p DECIMAL(8,3), q DECIMAL(5,2) UNSIGNED,"
    " total DECIMAL(9,2) AS (p * q) STORED, twice INT AS (a * 2 - 1) VIRTUAL, copy TINYINT AS (a) VIRTUAL,"
    " deeper BIGINT AS (twice + -b * 3) STORED, rounded INT AS (p) STORED, cut DECIMAL(4,1) AS (p + 0.05) VIRTUAL"
)
ROWS = (
    "(1, 5, 7, 1.005, 1.00)", "(2, -3, 0, -2.675, 9.99)", "(3, NULL, 3, NULL, 2)", "(4, 127, 9, 99.950, 0.01)",
    "(5, -100, 2, -0.5, 0)", "(6, 0, 1, 0.499, 5.55)",
)  # fmt: skip
CHANGES = (
    "UPDATE t SET a = a + 1, p = p * -1 WHERE id < 4",
    "UPDATE t SET id = id + 10 WHERE id = 2",
    "REPLACE INTO t (id, a, p, q) VALUES (3, 11, 12.345, 6.78)",
    "DELETE FROM t WHERE id = 4",
    "INSERT INTO t (id, a, b) VALUES (1, 9, 9) ON DUPLICATE KEY UPDATE q = 3.33",
)


pytestmark = pytest.mark.parametrize("server", ["mariadb"], indirect=True)


def shown(mirror: Mirror, table: str) -> list[str]:
    return [field.name for field in DeltaTable(mirror.path(table)).schema().fields]


@pytest.fixture
def followed(mirror: Mirror) -> Mirror:
    mirror.execute(
        "SET sql_mode = 'STRICT_TRANS_TABLES'",
        f"CREATE TABLE t ({COLUMNS})",
        f"INSERT INTO t (id, a, b, p, q) VALUES {', '.join(ROWS)}",
    )
    mirror.snapshot()
    return mirror


def test_arithmetic_is_computed_by_either_merge(followed: Mirror) -> None:
    for _ in range(3):  # the ways of merging take turns
        followed.execute(*CHANGES, "DELETE FROM t", f"INSERT INTO t (id, a, b, p, q) VALUES {', '.join(ROWS)}")
        followed.execute(*CHANGES)
        followed.sync()
        followed.assert_equal("t")
    assert followed.verify().equal


def test_a_table_without_a_key(mirror: Mirror) -> None:
    mirror.execute(f"CREATE TABLE t ({COLUMNS.replace(' PRIMARY KEY', '')})")
    mirror.execute(f"INSERT INTO t (id, a, b, p, q) VALUES {', '.join(ROWS)}, {ROWS[0]}")
    mirror.snapshot()
    mirror.execute(*CHANGES[:4], "UPDATE t SET a = 6 LIMIT 1")
    mirror.sync()
    mirror.assert_equal("t")


def test_files_of_the_log_are_read_alike(mirror: Mirror, tmp_path: Path) -> None:
    """Which columns the images lack follows from the release that wrote the files."""
    mirror.execute("FLUSH BINARY LOGS", f"CREATE TABLE t ({COLUMNS}, hex VARCHAR(9) AS (HEX(id)) STORED)")
    first = mirror.server.execute("SHOW BINARY LOGS")[-1][0]
    mirror.execute(f"INSERT INTO t (id, a, b, p, q) VALUES {', '.join(ROWS)}", *CHANGES)
    mirror.files = tmp_path / "archive"
    mirror.files.mkdir()
    for path in mirror.server.datadir.glob("binlog.[0-9]*[0-9]"):
        if path.name >= first:
            shutil.copy(path, mirror.files)
    mirror.snapshot()
    mirror.sync()
    assert ("hex" in shown(mirror, "t")) == are_all_logged(mirror.server)
    mirror.assert_equal("t", without=() if are_all_logged(mirror.server) else ("hex",))


def test_a_feed_of_binlog_files_has_what_the_lake_computes(mirror: Mirror) -> None:
    config = feed(mirror, format="binlog", sink=f"binlog://{mirror.folder}/out")
    mirror.follow_from_here()
    mirror.execute(f"CREATE TABLE t ({COLUMNS})", f"INSERT INTO t (id, a, b, p, q) VALUES {', '.join(ROWS)}", *CHANGES)
    mirror.sync()
    carried(mirror, config)
    folder = mirror.folder / "out" / "tests"
    with Server(mirror.server.kind, server_id=2, **AS_REPLICA[mirror.server.kind]) as target:
        apply(target, *(folder / name for name in (folder / "binlog.index").read_text().split()))
        (held, expected) = (
            comparison.read_server(compared, mirror.database, "t") for compared in (target, mirror.server)
        )
        assert sorted(map(repr, held[1])) == sorted(map(repr, expected[1]))


def test_what_is_more_than_arithmetic_is_left_out(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE s (id INT PRIMARY KEY, v VARCHAR(9), w VARCHAR(20) AS (CONCAT(v, '!')) STORED)")
    mirror.snapshot()
    mirror.execute("INSERT INTO s (id, v) VALUES (1, 'a'), (2, 'b')", "UPDATE s SET v = 'c' WHERE id = 2")
    mirror.execute("CREATE TABLE born (id INT PRIMARY KEY, v INT, w INT AS (v) STORED, x CHAR(3) AS (HEX(v)) VIRTUAL)")
    mirror.execute("INSERT INTO born (id, v) VALUES (1, 1)", "UPDATE born SET v = 2")
    mirror.sync()
    all_of_them = ["w"] if are_all_logged(mirror.server) else []
    assert shown(mirror, "s") == ["id", "v", *all_of_them]
    assert shown(mirror, "born") == ["id", "v", "w", *(["x"] if all_of_them else [])]
    assert {mirror.watermark(table)["status"] for table in ("s", "born")} == {"following"}


@pytest.mark.parametrize("policy", ["leave_out", "stop"])
def test_a_server_that_begins_to_leave_them_out_is_noticed(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """As after an upgrade: the table was copied from a server that logs them all."""
    mirror.options = {"policies": {"on_untold_column": policy}}
    mirror.execute("CREATE TABLE s (id INT PRIMARY KEY, v INT, w VARCHAR(9) AS (HEX(v)) STORED, x INT AS (v + 1))")
    mirror.execute("INSERT INTO s (id, v) VALUES (1, 1), (2, 2)")
    with monkeypatch.context() as patch:
        patch.setattr(catalog, "leaves_generated_columns_out", lambda version: False)
        mirror.snapshot()
    assert shown(mirror, "s") == ["id", "v", "w", "x"]
    mirror.execute("INSERT INTO s (id, v) VALUES (3, 3)", "UPDATE s SET v = 20 WHERE id = 2")
    mirror.sync()
    status = mirror.watermark("s")["status"]
    if are_all_logged(mirror.server):
        mirror.assert_equal("s")
    elif policy == "stop":
        assert status == "stopped"
        assert "STORED column 'w' isn't mirrored" in mirror.watermark("s")["reason"]
    else:
        assert (status, shown(mirror, "s")) == ("following", ["id", "v", "x"])
        rows = mirror.spark.read.format("delta").load(mirror.path("s")).orderBy("id").collect()
        assert [(row.v, row.x) for row in rows] == [(1, 2), (20, 21), (3, 4)]


def test_rows_that_lack_more_than_generated_columns_stop_their_table(mirror: Mirror) -> None:
    mirror.execute("CREATE TABLE s (id INT PRIMARY KEY, v INT, w INT AS (v) STORED)", "INSERT INTO s (id) VALUES (1)")
    mirror.snapshot()
    mirror.execute("SET binlog_row_image = MINIMAL", "DELETE FROM s")
    mirror.sync()
    assert mirror.watermark("s")["status"] == "stopped"
    assert "the log holds partial row images" in mirror.watermark("s")["reason"]


def test_a_listing_shows_what_the_log_has(mirror: Mirror, capsys: pytest.CaptureFixture[str]) -> None:
    mirror.execute("CREATE TABLE s (id INT PRIMARY KEY, v INT, w INT AS (v) STORED)", "INSERT INTO s (id) VALUES (1)")
    file, offset = mirror.server.execute("SHOW MASTER STATUS")[0][:2]
    mirror.execute("UPDATE s SET v = 2")
    capsys.readouterr()
    assert command_line.run(["binlog", mirror.server.uri(), "--start", f"{file}:{offset}"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.startswith(" ")]
    assert lines == ["id = 1", "v = NULL → 2", *(["w = NULL → 2"] if are_all_logged(mirror.server) else [])]
