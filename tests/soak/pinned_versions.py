"""Pinned versions in a long life: ``pinned_versions.py KIND COUNT``.

Syncs in one process, looked after every fifth with the shortest retention, merged by the process itself and by Spark in
turns; every twentieth batch is pinned. Each version that is told to be readable must have the server's rows at its
position, through deltalake and, where it is pinned, through Spark; the others must be refused.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parents[1] / "docker" / "local")]

from binlake.lake import pins  # noqa: E402
from binlake.records.decisions import Reason  # noqa: E402
from binlake.spark import session  # noqa: E402
from mirror import Mirror  # noqa: E402
from servers import Kind, Server  # noqa: E402
from versions_read import BRIEF, Content, assert_true, change, rows_by_spark, server_rows  # noqa: E402

UPKEEP, PINNED, BY_SPARK = 5, 20, 7
"""Every how many syncs maintain runs, a batch is pinned, and Spark merges."""


def main(kind: Kind, count: int) -> None:
    spark = session.build("soak", master="local[2]")
    with Server(kind) as server, tempfile.TemporaryDirectory(prefix="binlake-soak-") as lake:
        server.execute("CREATE DATABASE d")
        mirror = Mirror(server, "d", Path(lake), spark, options={"maintain": BRIEF})
        mirror.execute(
            "CREATE TABLE marked (id INT PRIMARY KEY, v VARCHAR(20))",
            "CREATE TABLE plain (id INT PRIMARY KEY, v VARCHAR(20))",
            f"INSERT INTO marked VALUES {', '.join(f'({key}, {key})' for key in range(90))}",
            "INSERT INTO plain SELECT * FROM marked",
        )
        mirror.snapshot()
        known: dict[int, Content] = {0: server_rows(mirror, "marked", "plain")}
        for number in range(1, count + 1):
            change(mirror, number)
            mirror.options["merge"] = {"without_spark_mb": 0 if number % BY_SPARK == 0 else 16}
            batch = mirror.sync().batch
            assert batch is not None
            known[batch] = server_rows(mirror, "marked", "plain")
            if number % PINNED == 1:
                pins.pin(mirror.metadata, batch, f"after_{number}", Reason("soak", "to keep it"))
            if number % UPKEEP == 0:
                print(mirror.maintain().headline, flush=True)
        pinned = [version for version in assert_true(mirror, known) if version.name]
        assert len(pinned) == len(range(1, count + 1, PINNED))
        for version in pinned:
            for table, rows in known[version.batch].items():
                assert rows_by_spark(mirror, version, table) == rows, f"{table} as {version.name}"
        mirror.assert_equal("marked", "plain")
        print(f"{kind}: {len(pinned)} pinned versions are whole after {count} syncs")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))  # type: ignore[arg-type]
