"""Ways to copy a table into Delta, in one session: binlake's two readers, plain Spark JDBC; and mysqldump beside them.

Two tables: the narrow one of ``bench.py``, and the wide one of the decoder's bench (26 columns of mixed types with a
small JSON) of a fifth of its rows. Each is copied from a warm session, and timed by the clock and with the CPU seconds
of all processes below this one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_figures import Figure
from bench_logs import WIDE, WIDE_ROW, numbers
from bench_sync import Cost, cost
from binlake import pipeline
from binlake.config import PipelineConfig, SnapshotConfig
from binlake.report import Report
from binlake.source.connection import from_environment
from servers import MYSQL, Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL = Path(__file__).parent


@dataclass(frozen=True)
class Copied:
    """A table that is copied: its database, name, rows, and what figures of it are called."""

    database: str
    table: str
    rows: int
    suffix: str


def make_wide_table(server: Server, rows: int) -> Copied:
    server.execute("CREATE DATABASE wide")
    server.execute(WIDE, f"INSERT INTO t SELECT {WIDE_ROW} FROM {numbers(1, rows)}", database="wide")
    return Copied("wide", "t", rows, " of the wide table")


def copies(server: Server, config: PipelineConfig, spark: SparkSession, copied: Copied, report: Report) -> list[Figure]:
    """The table by each way, one after the other."""
    endpoint = from_environment(config.source.connection)
    tables = [f"{copied.database}.*"]

    def by(where: PipelineConfig) -> Callable[[], Any]:
        return lambda: pipeline.bootstrap(where, endpoint, lambda why: spark, report, tables=tables)

    name = f"snapshot{copied.suffix}"
    report.say(f"{name} …")
    jdbc = of_processes(by(config))
    report.say(f"{name} by our own reader …")
    direct = of_processes(by(into_lake_beside(config)))
    report.say(f"{name} by plain Spark JDBC …")
    plain = of_processes(lambda: plain_jdbc(spark, server, config, copied))
    report.say(f"{name} by mysqldump …")
    dump = mysqldump(server, copied)
    ways = {
        name: jdbc,
        f"{name}, reader: direct": direct,
        f"plain Spark JDBC to Delta{copied.suffix}": plain,
        f"mysqldump into nothing{copied.suffix}": dump,
    }
    return [
        *((way, copied.rows / took.seconds, "rows/s") for way, took in ways.items()),
        *((f"{way}, all cores", took.cpu_seconds, "CPU s") for way, took in ways.items()),
        (f"{name} : plain Spark JDBC", plain.seconds / jdbc.seconds, "x"),
        (f"{name}, reader: direct : plain Spark JDBC", plain.seconds / direct.seconds, "x"),
    ]


def into_lake_beside(config: PipelineConfig) -> PipelineConfig:
    """The same source in a lake beside, copied by our own reader of the server's protocol."""
    lake = config.lake.model_copy(update={"path": f"{config.lake.path}-direct"})
    return config.model_copy(update={"lake": lake, "snapshot": SnapshotConfig(reader="direct")})


def plain_jdbc(spark: SparkSession, server: Server, config: PipelineConfig, copied: Copied) -> None:
    """What a data engineer would write: two partitions, streaming rows, appended to Delta."""
    url = f"jdbc:mysql://127.0.0.1:{server.port}/{copied.database}"
    options = {"url": url, "dbtable": copied.table, "user": "root", "password": "", "fetchsize": str(-(2**31))}
    spans = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(copied.rows), "numPartitions": "2"}
    frame = spark.read.format("jdbc").options(**options, **spans).load()
    frame.write.format("delta").save(f"{config.lake.path}-plain/{copied.database}")


def mysqldump(server: Server, copied: Copied) -> Cost:
    """The table as SQL text, into nothing: what the server and its own client take."""
    where = [f"--socket={server.socket}", "--user=root", "--single-transaction", "--skip-lock-tables"]
    program = [str(_LOCAL / "mysql.sh"), "run", str(MYSQL), "mysqldump", "--no-defaults"]
    command = [*program, *where, "--set-gtid-purged=OFF", copied.database, copied.table]
    return of_processes(lambda: cost(command))


def of_processes(work: Callable[[], Any]) -> Cost:
    """Of what is done here, by the JVM and the server, all of them below this process."""
    began, before = time.monotonic(), tree_cpu_seconds()
    work()
    return Cost(time.monotonic() - began, tree_cpu_seconds() - before)


def cpu_seconds(process: int) -> float:
    """So far, of one process (proc(5): utime and stime, in ticks)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def tree_cpu_seconds() -> float:
    """So far, of this process, those below it, and those that they waited for (proc(5): utime to cstime, in ticks)."""
    parents: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        parents[int(path.parent.name)] = (int(fields[1]), sum(map(int, fields[11:15])))

    def is_ours(process: int) -> bool:
        while process in parents and process != os.getpid():
            process = parents[process][0]
        return process == os.getpid()

    ticks = sum(used for process, (_, used) in parents.items() if is_ours(process))
    return ticks / os.sysconf("SC_CLK_TCK")
