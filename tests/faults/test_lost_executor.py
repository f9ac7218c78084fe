"""An executor is lost while it copies a snapshot: its chunk goes into another wave, at a position of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cluster import executors
from fault_proxy import FaultProxy
from mirror import SHORT_LIVED, Mirror
from servers import Server

SECONDS = 240
ROWS = (
    "INSERT INTO {0} SELECT n, REPEAT('x', 200) FROM (WITH RECURSIVE s (n) AS"
    " (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000) SELECT n FROM s) x"
)
DOUBLED = "INSERT INTO {0} SELECT id + {1}, v FROM {0}"


@contextmanager
def snapshot(mirror: Mirror, port: int, master: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "binlake.cli.command_line", "snapshot", "--config", str(mirror.write_yaml())]
    connection = {"AIRFLOW_CONN_TESTS": f"mysql://root@127.0.0.1:{port}/", "SPARK_MASTER": master}
    environment = {**os.environ, **SHORT_LIVED, "SPARK_LOCAL_IP": "127.0.0.1", **connection}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()


def wait_until_copied(server: Server, process: subprocess.Popen[str]) -> None:
    """Two chunks are on their way."""
    sending = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%AS chunk%' AND info LIKE '%`v`%'"
    deadline = time.monotonic() + SECONDS
    while server.execute(sending)[0][0] < 2:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "no chunk is copied"
        time.sleep(0.1)
    time.sleep(1)


def fill(mirror: Mirror) -> None:
    for table in "ab":
        mirror.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(200))",
            ROWS.format(table),
            *(DOUBLED.format(table, 1000 << power) for power in range(5)),
        )


def continues(mirror: Mirror, proxy: FaultProxy, process: subprocess.Popen[str]) -> str:
    """What the run says, which copies the rest by itself, and ends with the lake equal."""
    proxy.delay = 0.0
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, said
    positions = {row["position"] for row in mirror.metadata.read("snapshots")}
    assert len(positions) == 2, "the lost chunk has a position of its own"
    mirror.sync()
    mirror.assert_equal("a", "b")
    return said


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_an_executor_that_is_killed(mirror: Mirror) -> None:
    """Spark counts it as a failure of the task."""
    fill(mirror)
    with FaultProxy(mirror.server.port) as proxy:
        proxy.delay = 0.03
        with snapshot(mirror, proxy.port, "local-cluster[2,1,1024]") as process:
            wait_until_copied(mirror.server, process)
            mirror.execute("UPDATE a SET v = 'meanwhile' WHERE id % 7 = 0", "DELETE FROM b WHERE id % 5 = 0")
            os.kill(executors(process.pid)[0], signal.SIGKILL)
            said = continues(mirror, proxy, process)
    assert said.count("a wave failed and is repeated") == 1
    assert "the executor that copied it was lost" in said
