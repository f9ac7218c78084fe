"""An executor is lost while it copies a snapshot: its chunk goes into another wave, at a position of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from fault_proxy import FaultProxy
from mirror import SHORT_LIVED, Mirror
from servers import Server, free_port

SECONDS = 240
ROWS = (
    "INSERT INTO {0} SELECT n, REPEAT('x', 200) FROM (WITH RECURSIVE s (n) AS"
    " (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000) SELECT n FROM s) x"
)
DOUBLED = "INSERT INTO {0} SELECT id + {1}, v FROM {0}"


def descendants(process: int) -> Iterator[int]:
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            yield child
            yield from descendants(child)


def executors(process: int) -> list[int]:
    """Of Spark, below a process of ours."""
    commands = {one: Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0") for one in descendants(process)}
    backend = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
    return [one for one, words in commands.items() if backend in words and words[0].endswith(b"java")]


def spark_class(*words: str) -> subprocess.Popen[bytes]:
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, **SHORT_LIVED, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"}
    return subprocess.Popen(
        [str(home / "bin" / "spark-class"), *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A master's URL, and two workers with a core each, on loopback."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    started = [spark_class(f"{deploy}.master.Master", *here, "--port", str(port))]
    try:
        for number in range(2):
            place = ("--work-dir", str(folder / f"worker{number}"), "--cores", "1", "--memory", "1g")
            started.append(spark_class(f"{deploy}.worker.Worker", *here, *place, master))
        yield master, started[1:]
    finally:
        for process in started:
            for one in [*descendants(process.pid), process.pid]:
                os.kill(one, signal.SIGKILL)
            process.wait()


@contextmanager
def snapshot(mirror: Mirror, port: int, master: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "binlake.cli", "snapshot", "--config", str(mirror.write_yaml())]
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


def goes_on(mirror: Mirror, proxy: FaultProxy, process: subprocess.Popen[str]) -> str:
    """What the run says, which copies the rest by itself, and ends with the lake equal."""
    proxy.delay = 0.0
    mirror.execute("UPDATE a SET v = 'meanwhile' WHERE id % 7 = 0", "DELETE FROM b WHERE id % 5 = 0")
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
            os.kill(executors(process.pid)[0], signal.SIGKILL)
            said = goes_on(mirror, proxy, process)
    assert said.count("a wave failed and is repeated") == 1
    assert "the executor that copied it was lost" in said


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_a_machine_that_is_lost(mirror: Mirror, tmp_path: Path) -> None:
    """Spark runs the task again, which its gate refuses; the core that is left does all the rest."""
    fill(mirror)
    with FaultProxy(mirror.server.port) as proxy, cluster(tmp_path) as (master, workers):
        proxy.delay = 0.03
        with snapshot(mirror, proxy.port, master) as process:
            wait_until_copied(mirror.server, process)
            (executor,) = executors(workers[0].pid)
            os.kill(workers[0].pid, signal.SIGKILL)
            os.kill(executor, signal.SIGKILL)
            said = goes_on(mirror, proxy, process)
    assert said.count("a wave failed and is repeated") == 1
    assert "the executor that copied it was lost" in said
