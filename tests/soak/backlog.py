"""A log that nobody read for long: ``backlog.py KIND GIGABYTES``.

Many binlog files of 100 MB with inserts, updates and deletes in one table, and then one ``binlake sync``: how many
times faster it is than the server wrote them, how busy it keeps the cores to its end, how much memory it takes; and the
lake must come out equal.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parents[1] / "docker" / "local")]

from mirror import Mirror  # noqa: E402
from servers import Kind, Server  # noqa: E402
from usage import watched  # noqa: E402

FILE_BYTES = 100 * 2**20
BLOCK = 10_000
"""Rows a statement: a transaction of some megabytes."""

TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, k INT NOT NULL, c VARCHAR(200) NOT NULL, at DATETIME(6) NOT NULL)"
INSERT = (
    "INSERT INTO t SELECT {first} + n, n % 1000, LEFT(REPEAT(SHA2(CONCAT({first}, n), 512), 2), 200), NOW(6) FROM seed"
)


def write(server: Server, gigabytes: float) -> tuple[float, int]:
    """Until the log has grown by so much: seconds it took, and the files there are then."""
    server.execute(TABLE, "CREATE TABLE seed (n INT PRIMARY KEY)", database="d")
    server.execute(f"INSERT INTO seed VALUES {', '.join(f'({n})' for n in range(BLOCK))}", database="d")
    began, block = time.monotonic(), 0
    while True:
        for _ in range(20):
            statements = [INSERT.format(first=block * BLOCK)]
            if block % 2:
                older = (block // 2) * BLOCK
                statements.append(
                    f"UPDATE t SET k = k + 1, at = NOW(6) WHERE id BETWEEN {older} AND {older + BLOCK - 1}"
                )
            if block % 10 == 9:
                statements.append(f"DELETE FROM t WHERE id BETWEEN {(block - 5) * BLOCK} AND {(block - 4) * BLOCK - 1}")
            server.execute(*statements, database="d")
            block += 1
        sizes = [int(row[1]) for row in server.execute("SHOW BINARY LOGS")]
        if sum(sizes) >= gigabytes * 1e9:
            return time.monotonic() - began, len(sizes)


def main(kind: Kind, gigabytes: float) -> None:
    with (
        Server(kind, max_binlog_size=FILE_BYTES, innodb_buffer_pool_size="1G") as server,
        tempfile.TemporaryDirectory(prefix="binlake-backlog-") as lake,
    ):
        server.execute("CREATE DATABASE d")
        mirror = Mirror(server, "d", Path(lake), None, exclude=["d.seed"])  # type: ignore[arg-type]  # a process syncs
        mirror.follow_from_here()
        took, files = write(server, gigabytes)
        print(f"{kind}: {gigabytes:g} GB in {files} files, written in {took:.0f} s", flush=True)
        command = [str(Path(sys.executable).with_name("binlake")), "sync", "--config", str(mirror.write_yaml())]
        environment = {**os.environ, "AIRFLOW_CONN_TESTS": server.uri()}
        process = subprocess.Popen(command, env=environment, start_new_session=True)
        usage = watched(process)
        assert process.returncode == 0, f"the sync ended with {process.returncode}"
        print(
            f"{kind}: synced in {usage.seconds:.0f} s, {took / usage.seconds:.1f} times as fast as it was written;"
            f" cores at work in each tenth of it: {usage.busy}; peak memory in MB: {usage.peaks}",
            flush=True,
        )
        verify = [command[0], "verify", *command[2:]]
        assert subprocess.run(verify, env=environment).returncode == 0, "the lake differs"
        print(f"{kind}: equal")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))  # type: ignore[arg-type]
