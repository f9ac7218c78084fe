"""pt-online-schema-change itself, while rows change: the mirror follows its copy and its cut-over."""

from __future__ import annotations

import itertools
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mirror import Mirror


def write_until(mirror: Mirror, done: threading.Event) -> None:
    for number in itertools.count(10_000):
        if done.is_set():
            return
        mirror.execute(
            f"INSERT INTO t (id, v) VALUES ({number}, 'during')",
            f"UPDATE t SET v = 'changed' WHERE id = {number % 2000 + 1}",
            f"DELETE FROM t WHERE id = {number % 997 + 1}",
        )


# Debian's version of the tool asks servers for SHOW MASTER STATUS, which MySQL 8.4 took away.
@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_the_tools_copy_takes_the_tables_place_without_a_snapshot(mirror: Mirror) -> None:
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9), n INT)",
        "INSERT INTO t SELECT seq, 'row', seq FROM seq_1_to_2000",
    )
    mirror.snapshot()
    done = threading.Event()
    writer = threading.Thread(target=write_until, args=(mirror, done))
    writer.start()
    try:
        tool = subprocess.run(
            [
                "pt-online-schema-change",
                "--alter", "ADD COLUMN extra INT NOT NULL DEFAULT 3, MODIFY v VARCHAR(50), DROP COLUMN n",
                "--execute", "--no-version-check", "--chunk-size=200", "--chunk-time=0", "--recursion-method=none",
                f"S={mirror.server.socket},u=root,D={mirror.database},t=t",
            ],
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
    finally:
        done.set()
        writer.join()
    assert tool.returncode == 0, tool.stdout + tool.stderr
    report = mirror.sync()
    mirror.assert_equal("t")
    (table,) = [table for table in report.tables if table.table.endswith(".t") and table.status != "dropped"]
    assert table.status == "following"
    actions = {row["action"] for row in mirror.history()}
    assert "resnapshot asked" not in actions
    assert "stopped" not in actions
