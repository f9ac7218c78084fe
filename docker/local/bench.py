"""``make bench``: how fast, as ratios in one run.

A table of a million rows is bootstrapped and synced by binlake; in the same run, on the same server, plain Spark JDBC
and mysqldump copy the same table, and mysql-replication alone reads the same range of the log. Then ``binlake sync``
is run as users run it, after changes of five kinds and after none. Machines are shared and noisy: the ratios count, not
the seconds. The figures go to standard output and to .binlake/bench.json, as bars to .binlake/bench-*.svg.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

import bench_pictures as pictures
from bench_figures import Figure, keep, show
from bench_pictures import Bar, Chart
from bench_snapshot import Copied, copies, cpu_seconds, into_lake_beside, make_wide_table, of_processes, plain_jdbc
from bench_sync import SMALL_TABLES, make_small_tables, mixes, run as run_binlake
from binlake import config as configuration, pipeline
from binlake.config import PipelineConfig
from binlake.lease import lease
from binlake.position import Position
from binlake.report import Report
from binlake.source.connection import from_environment
from binlake.spark import session
from servers import Server

ROWS = int(os.environ.get("BENCH_ROWS", "1000000"))
HOME = Path(".binlake") / "bench"
LOCAL = Path(__file__).parent
SCHEMA = "CREATE TABLE {database}.narrow (id BIGINT UNSIGNED PRIMARY KEY, k INT NOT NULL, c CHAR(120), pad CHAR(60))"
FILL = (
    "INSERT INTO {database}.narrow WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {rows})"
    " SELECT n, n % 1000, LEFT(REPEAT(digits, 2), 120), LEFT(digits, 60)"
    " FROM (SELECT n, SHA2(n, 256) AS digits FROM s) x"
)
YAML = """
source: {name: bench, connection: bench, server_id: 6100}
tables: {include: ["bench.*", "wide.*", "small.*", "warm.*"]}
lake: {path: LAKE}
"""


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.monotonic()
    result = work()
    return time.monotonic() - began, result


def change(server: Server, rows: int) -> int:
    """60 % inserts, 30 % updates, 10 % deletes in statements of many rows; gives the number of mutations."""
    inserted, updated, deleted = rows * 6 // 10, rows * 3 // 10, rows // 10
    server.execute(
        "SET SESSION cte_max_recursion_depth = 100000000",
        f"INSERT INTO bench.narrow SELECT id + {ROWS * 2}, k, c, pad FROM bench.narrow ORDER BY id LIMIT {inserted}",
        f"UPDATE bench.narrow SET k = k + 1, pad = REVERSE(pad) WHERE id <= {updated}",
        f"DELETE FROM bench.narrow WHERE id > {ROWS - deleted} AND id <= {ROWS}",
    )
    return inserted + updated + deleted


def insert(server: Server, rows: int) -> int:
    """New rows at the table's end; gives the number of mutations."""
    server.execute(
        f"INSERT INTO bench.narrow SELECT id + {ROWS * 4}, k, c, pad FROM bench.narrow ORDER BY id LIMIT {rows}"
    )
    return rows


def grow(server: Server, database: str, rows: int) -> int:
    """New rows at the table's end and as many of its newest updated; gives the number of mutations."""
    newest = f"SELECT id, k, c, pad FROM {database}.narrow ORDER BY id DESC LIMIT {rows}"
    server.execute(
        f"UPDATE {database}.narrow SET k = k + 1 ORDER BY id DESC LIMIT {rows}",
        f"INSERT INTO {database}.narrow SELECT id + {rows}, k, c, pad FROM ({newest}) x",
    )
    return 2 * rows


def merges_of_growing_tables(server: Server, sync: Callable[[], Any]) -> list[Figure]:
    """The same changes at the end of two tables, of which one is ten times as large."""
    seconds: dict[str, list[float]] = {"warm": [], "bench": []}
    for database in ("warm", "bench") * 4:
        mutations = grow(server, database, ROWS // 100)
        synced = sync()
        assert synced.mutations == mutations, (synced.mutations, mutations)
        seconds[database].append(dict(synced.phases)["merge"])
    small, large = (statistics.median(seconds[database][1:]) for database in ("warm", "bench"))
    return [
        ("merge at a table's end", small, "s"),
        ("merge at the end of a table ten times as large", large, "s"),
        ("merge, table ten times as large", large / small, "x"),
    ]


def mysql_replication(server: Server, start: Position, stop: Position) -> int:
    """Rows that mysql-replication alone reads from the range, one Python object each."""
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

    reader = BinLogStreamReader(
        connection_settings={"host": "127.0.0.1", "port": server.port, "user": "root", "passwd": ""},
        server_id=6199,
        log_file=start.file,
        log_pos=start.offset,
        resume_stream=True,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )
    rows = 0
    for event in reader:
        rows += len(event.rows)
        if (reader.log_file, reader.log_pos) >= (stop.file, stop.offset - 31):  # the XID event ends the range
            break
    reader.close()
    return rows


def in_one_session(server: Server, config: PipelineConfig, tables: Sequence[Copied], report: Report) -> list[Figure]:
    """Snapshot and sync in this process, beside what plain Spark and mysql-replication take for the same."""
    endpoint = from_environment(config.source.connection)
    start_seconds, spark = timed(lambda: session.build("binlake bench"))
    report.say("a tenth of the table by each way, so that none is timed cold …")
    for warm in (config, into_lake_beside(config)):
        pipeline.bootstrap(warm, endpoint, lambda why: spark, report, tables=["warm.*"])
    plain_jdbc(spark, server, config, Copied("warm", "narrow", ROWS // 10, ""))
    copied = [figure for table in tables for figure in copies(server, config, spark, table, report)]
    report.say(f"snapshot of {SMALL_TABLES} small tables …")
    small = of_processes(lambda: pipeline.bootstrap(config, endpoint, lambda why: spark, report, tables=["small.*"]))
    grow(server, "warm", 1000)
    pipeline.sync(config, endpoint, lambda why: spark, report)
    start = lease.read(pipeline.metadata_of(config)).position
    mutations = change(server, ROWS // 5)
    report.say("sync …")
    sync, synced = timed(lambda: pipeline.sync(config, endpoint, lambda why: spark, report))
    stop = lease.read(pipeline.metadata_of(config)).position
    assert start is not None
    assert stop is not None
    appended = insert(server, ROWS // 5)
    report.say("sync of inserts …")
    inserts, of_inserts = timed(lambda: pipeline.sync(config, endpoint, lambda why: spark, report))
    assert of_inserts.mutations == appended, (of_inserts.mutations, appended)
    report.say("a table that grows …")
    growing = merges_of_growing_tables(server, lambda: pipeline.sync(config, endpoint, lambda why: spark, report))
    report.say("mysql-replication alone …")
    alone, rows = timed(lambda: mysql_replication(server, start, stop))
    assert (rows, synced.mutations) == (mutations, mutations), (rows, synced.mutations, mutations)
    spark.stop()
    phases = dict(synced.phases)
    return [
        ("Spark session, start", start_seconds, "s"),
        *copied,
        (f"snapshot of {SMALL_TABLES} small tables", small.seconds, "s"),
        (f"snapshot of {SMALL_TABLES} small tables, all cores", small.cpu_seconds, "CPU s"),
        ("sync, whole", mutations / sync, "mutations/s"),
        ("sync, stage alone", mutations / phases["stage"], "mutations/s"),
        ("sync, merge alone", mutations / phases["merge"], "mutations/s"),
        ("mysql-replication alone, no lake", mutations / alone, "mutations/s"),
        ("sync, whole : mysql-replication", alone / sync, "x"),
        ("sync, stage : mysql-replication", alone / phases["stage"], "x"),
        ("sync, inserts alone", appended / inserts, "mutations/s"),
        ("sync, inserts alone : mysql-replication", appended / inserts * alone / mutations, "x"),
        *growing,
    ]


def whole_processes(server: Server, config_file: Path, report: Report) -> list[Figure]:
    """``binlake sync`` as it is run each hour, after changes of each kind and after none."""
    figures: list[Figure] = []
    report.say("an hour without changes …")
    run_binlake("sync", config_file)
    server.execute("INSERT INTO elsewhere.t VALUES (1)")
    elsewhere = run_binlake("sync", config_file)
    nothing = run_binlake("sync", config_file)
    for what, quiet in (("an hour without changes", elsewhere), ("an hour without any log", nothing)):
        figures.append((f"{what}, whole process", quiet.seconds, "s"))
        figures.append((f"{what}, all cores", quiet.cpu_seconds, "CPU s"))
    for mix in mixes(ROWS):
        report.say(f"{mix.name} …")
        server.execute(*mix.statements)
        took = run_binlake("sync", config_file)
        if mix.mutations > 1000:
            figures.append((f"sync of {mix.name}, whole process", mix.mutations / took.seconds, "mutations/s"))
        else:
            figures.append((f"sync of {mix.name}, whole process", took.seconds, "s"))
        figures.append((f"sync of {mix.name}, all cores", took.cpu_seconds, "CPU s"))
    for way in ("--by read", "--changed", "--by hash"):
        report.say(f"verify {way} …")
        figures += verification(server, config_file, way)
    return figures


def snapshots_by_process(report: Report) -> list[Figure]:
    """The small table, by a process of its own for each reader, into a lake of its own: what a small source takes."""
    figures: list[Figure] = []
    for reader in ("jdbc", "direct"):
        name = f"snapshot of {ROWS // 10:,} rows, reader: {reader}"
        report.say(f"{name}, as a process …")
        file = HOME / f"{reader}.yaml"
        file.write_text(YAML.replace("LAKE", str(HOME.resolve() / reader)) + f"snapshot: {{reader: {reader}}}\n")
        took = run_binlake("snapshot", file, "--tables", "warm.*")
        figures.append((f"{name}, whole process", took.seconds, "s"))
        figures.append((f"{name}, whole process, all cores", took.cpu_seconds, "CPU s"))
    return figures


def verification(server: Server, config_file: Path, way: str) -> list[Figure]:
    """A verification of all tables: what it takes of binlake's side, and of the server's."""
    before = cpu_seconds(server.pid)
    verified = run_binlake("verify", config_file, *way.split())
    return [
        (f"verify {way}", verified.seconds, "s"),
        (f"verify {way}, all cores but the server's", verified.cpu_seconds, "CPU s"),
        (f"verify {way}, the server", cpu_seconds(server.pid) - before, "CPU s"),
    ]


def run() -> list[Figure]:
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    os.environ["XDG_STATE_HOME"] = str(HOME / "state")  # a lake was here before
    report = Report()
    config_file = HOME / "bench.yaml"
    config_file.write_text(YAML.replace("LAKE", str(HOME.resolve() / "lake")))
    with Server("mysql", cte_max_recursion_depth=100_000_000) as server:
        os.environ["AIRFLOW_CONN_BENCH"] = server.uri()
        config = configuration.load(config_file)
        report.say(f"a table of {ROWS:,} rows, and {SMALL_TABLES} small ones …")
        server.execute("CREATE DATABASE elsewhere", "CREATE TABLE elsewhere.t (id INT)")
        for database, rows in (("bench", ROWS), ("warm", ROWS // 10)):
            server.execute(f"CREATE DATABASE {database}", SCHEMA.format(database=database))
            server.execute(FILL.format(database=database, rows=rows))
        wide = make_wide_table(server, ROWS // 5)
        make_small_tables(server)
        tables = [Copied("bench", "narrow", ROWS, ""), wide]
        return [
            *in_one_session(server, config, tables, report),
            *snapshots_by_process(report),
            *whole_processes(server, config_file, report),
        ]


_SNAPSHOTS = (("Snapshot, rows of 180 characters", ""), ("Snapshot, 26 columns of mixed types", " of the wide table"))


def _snapshots(by_name: dict[str, float], title: str, suffix: str) -> Chart:
    bars = [
        Bar("binlake", by_name[f"snapshot{suffix}"]),
        Bar("binlake, reader: direct", by_name[f"snapshot{suffix}, reader: direct"]),
        Bar("plain Spark JDBC to Delta", by_name[f"plain Spark JDBC to Delta{suffix}"], ours=False),
        Bar("mysqldump into nothing", by_name[f"mysqldump into nothing{suffix}"], ours=False),
    ]
    return Chart(title, "rows per second", bars)


def charts(figures: Sequence[Figure]) -> list[Chart]:
    """The figures that are drawn, ours beside others'."""
    by_name = {name: value for name, value, _ in figures}
    syncs = [(name.removeprefix("sync of ").removesuffix(", whole process"), value, unit)
             for name, value, unit in figures if name.startswith("sync of ") and unit != "CPU s"]  # fmt: skip
    return [
        *(_snapshots(by_name, title, suffix) for title, suffix in _SNAPSHOTS),
        Chart(
            "Reading the log",
            "mutations per second",
            [
                Bar("binlake, staged as Parquet", by_name["sync, stage alone"]),
                Bar("binlake, merged into Delta", by_name["sync, whole"]),
                Bar("mysql-replication, read alone", by_name["mysql-replication alone, no lake"], ours=False),
            ],
        ),
        Chart(
            "A whole sync, start included",
            "mutations per second",
            [Bar(name, value) for name, value, unit in syncs if unit == "mutations/s"],
        ),
        Chart(
            "A whole sync, start included",
            "seconds",
            [
                Bar("no log at all", by_name["an hour without any log, whole process"]),
                Bar("nothing on included tables", by_name["an hour without changes, whole process"]),
                *(Bar(name, value) for name, value, unit in syncs if unit == "s"),
            ],
        ),
    ]


if __name__ == "__main__":
    figures = run()
    show(f"binlake bench: {ROWS:,} rows", figures)
    keep(figures)
    for path in pictures.write(charts(figures), HOME.parent):
        Console().print(f"drawn: {path}")
