"""One transaction far larger than the memory it is carried with: ``big_transaction.py KIND GIGABYTES``.

The driver's JVM has a heap of one gigabyte, and the readers no more than they need; the lake must come out equal. Says
the peak memory of the JVM and of the Python workers.
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

from deltalake import DeltaTable, QueryBuilder  # noqa: E402

from mirror import Mirror  # noqa: E402
from servers import Kind, Server  # noqa: E402
from usage import watched  # noqa: E402

ROW = 1000
"""Bytes of a row that don't compress."""


def fill(server: Server, rows: int) -> None:
    """Rows of random bytes, in one transaction."""
    server.execute("CREATE TABLE big (id BIGINT PRIMARY KEY, v VARBINARY(1000))", database="d")
    seed = 1000
    server.execute("CREATE TABLE seed (n INT PRIMARY KEY)", database="d")
    server.execute(f"INSERT INTO seed VALUES {', '.join(f'({n})' for n in range(seed))}", database="d")
    random = "RANDOM_BYTES(1000)" if server.kind == "mysql" else "UNHEX(REPEAT(SHA2(RAND(), 512), 16))"
    server.execute(
        f"INSERT INTO big SELECT a.n * {seed} * {seed} + b.n * {seed} + c.n, LEFT({random}, {ROW})"
        f" FROM seed a JOIN seed b JOIN seed c WHERE a.n * {seed} + b.n < {rows // seed}",
        database="d",
    )


def main(kind: Kind, gigabytes: float) -> None:
    rows = int(gigabytes * 1e9 / ROW)
    with (
        Server(kind, innodb_buffer_pool_size="1G") as server,
        tempfile.TemporaryDirectory(prefix="binlake-big-") as lake,
    ):
        server.execute("CREATE DATABASE d")
        mirror = Mirror(server, "d", Path(lake), None)  # type: ignore[arg-type]  # its sync is a process
        mirror.follow_from_here()
        began = time.monotonic()
        fill(server, rows)
        print(f"{kind}: a transaction of {rows:,} rows, {gigabytes:g} GB, written in {time.monotonic() - began:.0f} s")
        command = [str(Path(sys.executable).with_name("binlake")), "sync", "--config", str(mirror.write_yaml())]
        environment = {**os.environ, "AIRFLOW_CONN_TESTS": server.uri(), "BINLAKE_DRIVER_MEMORY": "1g"}
        process = subprocess.Popen(command, env=environment, start_new_session=True)
        usage = watched(process)
        assert process.returncode == 0, f"the sync ended with {process.returncode}"
        rows_there, sum_there = server.execute("SELECT COUNT(*), SUM(CRC32(v) % 1000003) FROM big", database="d")[0]
        assert equal(mirror, int(rows_there), int(sum_there)), "the lake differs"
        print(f"{kind}: equal after {usage.seconds:.0f} s; peak memory in MB: {usage.peaks}")


def equal(mirror: Mirror, rows: int, checksum: int) -> bool:
    import zlib

    count, total = 0, 0
    for batch in QueryBuilder().register("big", DeltaTable(mirror.path("big"))).execute("SELECT v FROM big"):
        values = batch.column(0).to_pylist() if hasattr(batch, "column") else batch["v"].to_pylist()
        count += len(values)
        total += sum(zlib.crc32(value) % 1000003 for value in values)
    return (count, total) == (rows, checksum)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))  # type: ignore[arg-type]
