"""What Iceberg beside Delta costs, and how quickly it is read.

bench_iceberg.py [ROWS]    the figures are added to .binlake/bench.json

The same changes are synced into two lakes in turn, one of them with ``iceberg: {every: batch}``, by processes as users
run them; then DuckDB reads the table by its extension for Iceberg and by the one for Delta; then both are followed.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import bench_follow
from bench_figures import Figure, keep, show
from bench_sync import Cost, run
from binlake.iceberg import table_metadata
from binlake.lake.duckdb_views import load_extension
from binlake.names import ansi_string
from binlake.report import Report
from servers import PRIVATE, Server

HOME = PRIVATE / "bench" / "iceberg"
PUBLISHED = "iceberg: {every: batch}\n"
WAYS = {"Delta alone": "", "Iceberg beside": PUBLISHED}
ROUNDS, READS = 9, 15
_YAML = """
source: {{name: iceberg{number}, connection: iceberg, server_id: {server_id}}}
tables: {{include: ["iceberg.*"]}}
lake: {{path: {lake}}}
"""
_FILL = (
    "INSERT INTO iceberg.t WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {rows})"
    " SELECT n, n % 1000, n / 7, NOW(6), SHA2(n, 256) FROM s"
)
_QUERIES = {
    "all rows": "SELECT COUNT(*), SUM(k), SUM(amount), MAX(placed), MAX(note) FROM {table}",
    "one row": "SELECT * FROM {table} WHERE id = 4711",
}


def change(server: Server, rows: int, number: int) -> int:
    """Insert, update and delete in statements of many rows; of ten mutations six, three and one."""
    first, new = rows * (number + 1), rows // 10 * 6 // 10
    server.execute(
        f"INSERT INTO iceberg.t SELECT id + {first}, k, amount, placed, note FROM iceberg.t WHERE id <= {new}",
        f"UPDATE iceberg.t SET k = k + 1 WHERE id > {number * 1000} ORDER BY id LIMIT {new // 2}",
        f"DELETE FROM iceberg.t WHERE id > {rows // 2} ORDER BY id LIMIT {new // 6}",
    )
    return new + new // 2 + new // 6


def costs(server: Server, files: dict[str, Path], rows: int, report: Report) -> list[Figure]:
    """Whole syncs, in turn."""
    measured: dict[str, list[Cost]] = {way: [] for way in WAYS}
    mutations = 0
    for number in range(ROUNDS):
        report.say(f"round {number + 1} of {ROUNDS} …")
        mutations = change(server, rows, number)
        for place in range(len(WAYS)):
            way = tuple(WAYS)[(place + number) % len(WAYS)]  # none is always the first that reads the log
            measured[way].append(run("sync", files[way]))
    cpu = {way: statistics.median(cost.cpu_seconds for cost in taken[1:]) for way, taken in measured.items()}
    clock = {way: statistics.median(cost.seconds for cost in taken[1:]) for way, taken in measured.items()}
    before, after = WAYS
    what = f"sync of {mutations:,} mutations"
    return [
        *((f"{what}, {way}, all cores", seconds, "CPU s") for way, seconds in cpu.items()),
        (f"{what}, Iceberg beside : Delta alone, all cores", cpu[after] / cpu[before], "x"),
        (f"{what}, Iceberg beside : Delta alone, clock", clock[after] / clock[before], "x"),
    ]


def reads(path: str) -> list[Figure]:
    """DuckDB's reading by both extensions, in turn, each time with what it knows of the table forgotten."""
    metadata = table_metadata.newest(path)
    assert metadata is not None
    tables = {
        "delta": f"delta_scan({ansi_string(path)})",
        "iceberg": f"iceberg_scan({ansi_string(metadata.path)})",
    }
    measured: list[Figure] = []
    for name, query in _QUERIES.items():
        taken: dict[str, list[float]] = {extension: [] for extension in tables}
        answers: dict[str, Any] = {}
        for number in range(READS):
            for extension in list(tables)[:: 1 if number % 2 else -1]:
                connection = connected()
                began = time.perf_counter()
                answers[extension] = connection.execute(query.format(table=tables[extension])).fetchall()
                taken[extension].append(time.perf_counter() - began)
        assert answers["delta"] == answers["iceberg"], answers
        typical = {extension: statistics.median(seconds) for extension, seconds in taken.items()}
        measured += [(f"DuckDB, {name}, by {extension}", each * 1000, "ms") for extension, each in typical.items()]
        measured.append((f"DuckDB, {name}, iceberg : delta", typical["iceberg"] / typical["delta"], "x"))
    return measured


def connected() -> Any:
    """Return a connection with the extensions, which has read nothing yet."""
    import duckdb

    connection = duckdb.connect()
    for extension in ("avro", "iceberg", "delta"):
        load_extension(connection, extension)
    return connection


def followed(seconds: float, report: Report) -> list[Figure]:
    """The freshness of both, each followed twice in turn; of the two the better one counts, as others' load adds."""
    p95: dict[str, list[float]] = {way: [] for way in WAYS}
    for way in (*WAYS, *reversed(WAYS)):
        p95[way].append(bench_follow.measure(seconds, 1000, 50, report, feeds=WAYS[way]).percentile(0.95))
    best = {way: min(measured) for way, measured in p95.items()}
    before, after = WAYS
    what = "followed, commit to readable, p95"
    return [
        *((f"{what}, {way}", each, "s") for way, each in best.items()),
        (f"{what}, Iceberg beside : Delta alone", best[after] / best[before], "x"),
    ]


def figures(rows: int, report: Report) -> list[Figure]:
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    os.environ["XDG_STATE_HOME"] = str(HOME / "state")  # a lake was here before
    files = {}
    for number, (way, section) in enumerate(WAYS.items()):
        lake = HOME.resolve() / f"lake{number}"
        files[way] = HOME / f"{number}.yaml"
        files[way].write_text(_YAML.format(number=number, server_id=6700 + 20 * number, lake=lake) + section)
    with Server("mysql", cte_max_recursion_depth=100_000_000) as server:
        os.environ["AIRFLOW_CONN_ICEBERG"] = server.uri()
        server.execute(
            "CREATE DATABASE iceberg",
            "CREATE TABLE iceberg.t (id BIGINT PRIMARY KEY, k INT, amount DECIMAL(12, 2), placed DATETIME(6),"
            " note CHAR(64))",
            _FILL.format(rows=rows),
        )
        for file in files.values():
            run("snapshot", file)
        measured = costs(server, files, rows, report)
    return [*measured, *reads(str(HOME.resolve() / "lake1" / "iceberg1" / "iceberg" / "t"))]


if __name__ == "__main__":
    asked = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    said = Report()
    measured = [*figures(asked, said), *followed(60, said)]
    show("Iceberg beside Delta", measured)
    keep(measured)
    shutil.rmtree(HOME)
