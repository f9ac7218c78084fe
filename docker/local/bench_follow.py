"""How fresh a followed lake is: bench_follow.py [SECONDS] [CHANGES A SECOND] [TABLES] [EVERY] [ROWS]

``binlake follow`` as a process of its own, while a writer changes rows of many tables at a steady pace. Of each
transaction it prints how long after its commit it could be read: from the commit time in the log to the write of the
lease's row that records its batch. EVERY: seconds from one look at the log to the next. ROWS: of each table
at first. The figures are added to .binlake/bench.json.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench_figures import Figure, keep, show
from bench_sync import run
from binlake import config as configuration, pipeline
from binlake.binlog.boundaries import transaction_boundaries
from binlake.config import PipelineConfig
from binlake.lease import lease
from binlake.lease.lease import RecordedState
from binlake.position import FIRST_OFFSET, Position, Slice
from binlake.records import feed_watermarks
from binlake.report import Report
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from binlake.store import formats
from machine_speed import reference_seconds
from servers import PRIVATE, Server, die_with_parent
from side_thread import beside

HOME = PRIVATE / "bench" / "follow"
ROWS, IN_A_TRANSACTION = 2_000, 5
_YAML = """
source: {name: follow, connection: follow, server_id: 6600}
tables: {include: ["follow.*"]}
lake: {path: LAKE}
"""
_BINLAKE = str(Path(sys.executable).parent / "binlake")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    """Of a process: seconds of all cores so far, and megabytes of memory now."""

    cpu_seconds: float
    megabytes: float

    @classmethod
    def of(cls, pid: int) -> Usage:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return cls((int(fields[11]) + int(fields[12])) / _TICKS, pages * _PAGE / 1e6)


@dataclass
class Freshness:
    """Of a followed lake. delays: of each transaction, in the order of the log: when it committed, in seconds since
    1970, and after how many seconds it could be read. usage: of the follower, every second. reference: CPU seconds of a
    fixed piece of work, every second."""

    delays: list[tuple[float, float]] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    reference: list[float] = field(default_factory=list)
    batches: int = 0
    changes: int = 0

    def percentile(self, share: float, since: float = 0.0, until: float = float("inf")) -> float:
        """Return a percentile of the delays of transactions that committed within some time."""
        chosen = sorted(delay for committed, delay in self.delays if since <= committed < until)
        return chosen[min(len(chosen) - 1, int(share * len(chosen)))]

    @property
    def cores(self) -> float:
        """Return how many cores were busy, without the first seconds."""
        warm = self.usage[len(self.usage) // 10 :]
        return (warm[-1].cpu_seconds - warm[0].cpu_seconds) / max(1, len(warm) - 1)


class Writer:
    """Changes rows of tables at a steady pace: of ten transactions six insert, three update and one deletes."""

    def __init__(self, server: Server, tables: Sequence[str], pace: float, rows: int = ROWS) -> None:
        """tables: their names, ``database.table``. pace: changes a second. rows: of each table at first."""
        self._server, self._tables, self._pace = server, tables, pace
        self._chance = random.Random(5)
        self._newest = [rows] * len(tables)
        self.changes = 0

    def prepare(self) -> None:
        """Make the tables."""
        rows = ", ".join(f"({row}, {row}, 'name {row}', NOW())" for row in range(1, self._newest[0] + 1))
        for table in self._tables:
            self._server.execute(
                f"CREATE DATABASE IF NOT EXISTS {table.partition('.')[0]}",
                f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, v INT, name VARCHAR(40), at DATETIME)",
                f"INSERT INTO {table} VALUES {rows}",
            )

    def at_work(self) -> AbstractContextManager[None]:
        return beside(self._work)

    def _work(self, over: threading.Event) -> None:
        began, transactions = time.monotonic(), 0
        with self._server.connect() as connection, connection.cursor() as cursor:
            while not over.is_set():
                table = self._chance.randrange(len(self._tables))
                self.changes += cursor.execute(self._statement(table))
                transactions += 1
                due = began + transactions * IN_A_TRANSACTION / self._pace
                time.sleep(max(0.0, due - time.monotonic()))

    def _statement(self, table: int) -> str:
        kind = self._chance.randrange(10)
        if kind < 6:
            first = self._newest[table] + 1
            self._newest[table] += IN_A_TRANSACTION
            rows = ", ".join(f"({row}, {row}, 'new', NOW())" for row in range(first, first + IN_A_TRANSACTION))
            return f"INSERT INTO {self._tables[table]} VALUES {rows}"
        ids = ", ".join(str(self._chance.randrange(1, self._newest[table])) for _ in range(IN_A_TRANSACTION))
        if kind < 9:
            return f"UPDATE {self._tables[table]} SET v = v + 1, at = NOW() WHERE id IN ({ids})"
        return f"DELETE FROM {self._tables[table]} WHERE id IN ({ids})"


class RecordedTimes:
    """When each batch was recorded, in seconds since 1970: when the commit to the lease's table that says so was
    written. It must be looked for every few minutes, as the follower shortens that table's log."""

    def __init__(self, config: PipelineConfig) -> None:
        self._folder = Path(pipeline.metadata_of(config).location("lease"))
        self._read: set[str] = set()
        self.by_batch: dict[int, float] = {}

    def look(self) -> None:
        for commit in sorted((self._folder / "_delta_log").glob("*.json")):
            if commit.name in self._read:
                continue
            self._read.add(commit.name)
            for line in commit.read_text().splitlines():
                if path := json.loads(line).get("add", {}).get("path"):
                    (text,) = pq.read_table(self._folder / path, columns=["position"])["position"].to_pylist()
                    if text:
                        batch = formats.read(RecordedState, text).batch
                        self.by_batch.setdefault(batch, commit.stat().st_mtime)


def delays(server: Server, config: PipelineConfig, recorded: dict[int, float]) -> list[tuple[float, float]]:
    """Return of each transaction of the recorded batches when it committed, and after how long it could be read."""
    rows = sorted(pipeline.metadata_of(config).read("batches"), key=lambda row: row["batch"])
    by_commit: list[tuple[float, float]] = []
    with Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as source:
        sizes = source.binary_logs()
        transport = source.transport()
        for row in (row for row in rows if row["batch"] in recorded):
            start, stop = Position.parse(row["start"]), Position.parse(row["stop"])
            for file, size in sizes:
                if not start.file <= file <= stop.file:
                    continue
                first = start.offset if file == start.file else FIRST_OFFSET
                last = stop.offset if file == stop.file else size
                for transaction in transaction_boundaries(transport, Slice(file, first, last, 0, whole=False)):
                    committed = transaction.committed_us / 1e6
                    by_commit.append((committed, recorded[row["batch"]] - committed))
    return by_commit


def measure(
    seconds: float,
    pace: float,
    tables: int,
    report: Report,
    at_end: Callable[[Server, PipelineConfig], None] = lambda server, config: None,
    feeds: str = "",
    every: float = 1.0,
    rows: int = ROWS,
) -> Freshness:
    """Follow for some time, and tell how fresh the lake was. at_end: is called when all is in the lake. feeds: of the
    YAML, which are carried beside. every: seconds from one look at the log to the next. rows: of each table at
    first."""
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    os.environ["XDG_STATE_HOME"] = str(HOME / "state")  # a lake was here before
    file = HOME / "follow.yaml"
    file.write_text(_YAML.replace("LAKE", str(HOME.resolve() / "lake")) + feeds)
    with Server("mysql", max_binlog_size="128M") as server:
        os.environ["AIRFLOW_CONN_FOLLOW"] = server.uri()
        writer = Writer(server, [f"follow.t{number}" for number in range(tables)], pace, rows)
        writer.prepare()
        run("snapshot", file)
        report.say(f"{pace:,.0f} changes a second in {tables} tables for {seconds:,.0f} s …")
        measured = followed(server, file, writer, seconds, every)
        at_end(server, configuration.load(file))
    return measured


def followed(server: Server, file: Path, writer: Writer, seconds: float, every: float = 1.0) -> Freshness:
    """Follow a source whose tables are snapshotted while a writer changes them for some time; return how fresh the lake
    was. file: the source's YAML, beside which the follower's log lies. every: seconds from one look at the log to the
    next."""
    config, measured = configuration.load(file), Freshness()
    process = subprocess.Popen(
        [_BINLAKE, "follow", "--config", str(file), "--every", f"{every:g}s", "--json"],
        stdout=subprocess.PIPE, stderr=open(file.with_suffix(".log"), "wb"), preexec_fn=die_with_parent,  # noqa: SIM115
    )  # fmt: skip
    _wait_for_batches(config, writer, 3)
    recorded, began, before = RecordedTimes(config), time.time(), writer.changes
    with writer.at_work():
        for second in range(round(seconds)):
            measured.usage.append(Usage.of(process.pid))
            measured.reference.append(reference_seconds())
            if second % 60 == 30:
                recorded.look()
            time.sleep(1)
    measured.changes = writer.changes - before
    _wait_for_the_head(server, config)
    _wait_for_feeds(config)
    recorded.look()
    process.send_signal(signal.SIGTERM)
    outcome: dict[str, Any] = json.loads(process.communicate()[0])
    assert process.returncode == 0
    measured.batches = outcome["batches"]
    measured.delays = [delay for delay in delays(server, config, recorded.by_batch) if delay[0] >= began]
    return measured


def _wait_for_the_head(server: Server, config: PipelineConfig) -> None:
    metadata = pipeline.metadata_of(config)
    with Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as source:
        while (position := lease.read(metadata).position) and (position.file, position.offset) != source.head()[:2]:
            time.sleep(0.2)


def _wait_for_feeds(config: PipelineConfig) -> None:
    metadata = pipeline.metadata_of(config)
    while any(feed.behind for feed in feed_watermarks.statuses(config, metadata)):
        time.sleep(0.2)


def _wait_for_batches(config: PipelineConfig, writer: Writer, count: int) -> None:
    """Until the follower is warm."""
    metadata = pipeline.metadata_of(config)
    with writer.at_work():
        while metadata.count("batches", "state = 'recorded'") < count:
            time.sleep(1)


def figures(measured: Freshness, tables: int | str, seconds: float, rows: int = ROWS) -> list[Figure]:
    """Return what was measured. tables: their number, or what they are."""
    pace = measured.changes / seconds
    what = f"followed, {tables} tables" if isinstance(tables, int) else f"followed, {tables}"
    what += f" of {rows:,} rows" if rows != ROWS else ""
    return [
        (f"{what}: changes", pace, "/s"),
        (f"{what}: commit to readable, p50", measured.percentile(0.5), "s"),
        (f"{what}: commit to readable, p95", measured.percentile(0.95), "s"),
        (f"{what}: commit to readable, p99", measured.percentile(0.99), "s"),
        (f"{what}: batches", measured.batches / seconds, "/s"),
        (f"{what}: cores busy", measured.cores, ""),
        (f"{what}: memory", max(sample.megabytes for sample in measured.usage), "MB"),
    ]


if __name__ == "__main__":
    asked = [float(text) for text in sys.argv[1:]]
    seconds, pace, tables, every, rows = (*asked, *(120.0, 1000.0, 50.0, 1.0, float(ROWS))[len(asked) :])
    freshness = measure(seconds, pace, int(tables), Report(), every=every, rows=int(rows))
    measured = figures(freshness, int(tables), seconds, int(rows))
    show("following", measured)
    print("load of the machine:", " ".join(f"{load:.1f}" for load in os.getloadavg()))
    keep(measured)
