"""What a table beside a mirror costs: the same changes synced without it and with it, in turn, in one process.

bench_modes.py [ROWS]    the figures are added to .binlake/bench.json

The processor's time of this process counts, from the plan to the record; the reading of the log is part of it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from typing import Any

from bench_figures import Figure, keep, show
from binlake import pipeline
from binlake.config import PipelineConfig
from binlake.report import Report
from binlake.source.connection import from_environment
from binlake.spark import session
from servers import PRIVATE, Server

MODES: dict[str, dict[str, Any]] = {"mirror": {}, "log": {"log": {}}, "history": {"history": {}}}
ROUNDS = 16
"""A sync takes a third of a second: of few rounds the ratios differ by a third from run to run."""
HOME = PRIVATE / "bench" / "modes"
_FILL = (
    "INSERT INTO modes.t WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {rows})"
    " SELECT n, n % 1000, n / 7, NOW(6), SHA2(n, 256) FROM s"
)


def config_of(mode: str, number: int) -> PipelineConfig:
    modes = [{"tables": "modes.t", **MODES[mode]}] if MODES[mode] else []
    return PipelineConfig.model_validate(
        {
            "source": {"name": mode, "connection": "modes", "server_id": 6600 + 20 * number},
            "tables": {"include": ["modes.*"], "modes": modes},
            "lake": {"path": str(HOME.resolve() / "lake")},
        }
    )


def change(server: Server, rows: int, number: int) -> None:
    """Insert, update and delete in statements of many rows: of ten mutations six, three and one."""
    first, last = rows * (number + 1), rows * (number + 1) + rows * 6 // 10
    server.execute(
        f"INSERT INTO modes.t SELECT id + {first}, k, amount, at, note FROM modes.t WHERE id <= {last - first}",
        f"UPDATE modes.t SET k = k + 1, note = REVERSE(note) ORDER BY id DESC LIMIT {rows * 3 // 10}",
        f"DELETE FROM modes.t WHERE id > {first} ORDER BY id LIMIT {rows // 10}",
    )


def figures(rows: int, report: Report) -> list[Figure]:
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    os.environ["XDG_STATE_HOME"] = str(HOME / "state")  # a lake was here before
    costs: dict[str, list[float]] = {mode: [] for mode in MODES}
    with Server("mysql", cte_max_recursion_depth=100_000_000) as server:
        os.environ["AIRFLOW_CONN_MODES"] = server.uri()
        server.execute(
            "CREATE DATABASE modes",
            "CREATE TABLE modes.t (id BIGINT PRIMARY KEY, k INT, amount DECIMAL(12, 2), at DATETIME(6), note CHAR(64))",
            _FILL.format(rows=rows),
        )
        endpoint, spark = from_environment("modes"), session.build("binlake bench")
        configs = {mode: config_of(mode, number) for number, mode in enumerate(MODES)}
        for config in configs.values():
            pipeline.bootstrap(config, endpoint, lambda why: spark, report)
        for number in range(ROUNDS):
            report.say(f"round {number + 1} of {ROUNDS} …")
            change(server, rows, number)
            for place in range(len(MODES)):
                mode = tuple(MODES)[(place + number) % len(MODES)]  # none is always the first that reads the log
                config = configs[mode]
                began = time.process_time()
                pipeline.sync(config, endpoint, lambda why: spark, Report())
                costs[mode].append(time.process_time() - began)
        spark.stop()
    shutil.rmtree(HOME)
    typical = {mode: statistics.median(seconds[1:]) for mode, seconds in costs.items()}
    measured = [(f"sync with {mode}, of {rows:,} mutations", seconds, "CPU s") for mode, seconds in typical.items()]
    alone = typical.pop("mirror")
    return [
        *measured,
        *((f"sync with {mode} : mirror alone", cost / alone, "x") for mode, cost in typical.items()),
    ]


if __name__ == "__main__":
    asked = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    measured = figures(asked, Report())
    show("modes of tables", measured)
    keep(measured)
