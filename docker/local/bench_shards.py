"""A table of 64 databases beside the same rows in one: what it costs that they are shards.

bench_shards.py [ROWS] [SHARDS] [KIND]    whole ``binlake`` processes in turns; the figures go to .binlake/bench.json

ROWS are in all shards together. Both are mirrored from one server, each by a source of its own; a sync carries as many
new rows again. SOURCES in the environment divides the shards among several sources that fill one table, and READER says
who copies the snapshots (``snapshot.reader``). FOLLOW is for how many seconds each is followed in the place of the
syncs, while PACE rows change in a second.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import bench_follow
from bench_figures import Figure, keep, show
from bench_sync import Cost, run
from binlake.report import Report
from servers import PRIVATE, Kind, Server

ROUNDS = 5
HOME = PRIVATE / "bench" / "shards"
_COLUMNS = "id INT PRIMARY KEY, customer INT, status VARCHAR(20), total DECIMAL(10,2), placed DATETIME"
_ROWS = "SELECT {first} + n, n % 977, CONCAT('status ', n % 7), n / 7, '2026-01-01' + INTERVAL n SECOND FROM bench.n"
_YAML = """
source: {{name: {name}, connection: shards, server_id: {number}}}
tables: {{include: ["{include}"]}}
lake: {{path: "{lake}"}}
snapshot: {{reader: {reader}}}
"""
_ENTRY = '{from: "tenant_%.orders", into: "all.orders", source_column: tenant}'
_OF_SOURCES = (
    '{{from: "tenant_{name}_%.orders", into: "all.orders", source_column: tenant, source_name_column: region, '
    "sources: [{sources}], folder: company}}"
)


@dataclass(frozen=True)
class Sources:
    """The sources whose tables are compared. files: their YAMLs. databases: in which their tables are."""

    what: str
    files: Sequence[Path]
    databases: Sequence[str]

    def run(self, command: str) -> Cost:
        """Run a command for each of them, one after the other."""
        costs = [run(command, file) for file in self.files]
        return Cost(sum(cost.seconds for cost in costs), sum(cost.cpu_seconds for cost in costs))

    def change(self, server: Server, first: int, rows: int) -> None:
        """Add so many rows to the tables together; the first of each table has a number behind ``first``."""
        each = rows // len(self.databases)
        select = f"{_ROWS.format(first=first)} WHERE n <= {each}"
        server.execute(*(f"INSERT INTO {database}.orders {select}" for database in self.databases))


def alone(home: Path) -> Sources:
    """One table of one database."""
    return Sources("one table", [_written(home, "alone", 6600, "plain.*")], ["plain"])


def sharded(home: Path, shards: int) -> Sources:
    """So many databases that are one table of the lake."""
    text = f"merge_tables:\n  - {_ENTRY}\n"
    databases = [f"tenant_{number}" for number in range(shards)]
    return Sources(f"{shards} shards", [_written(home, "shards", 6610, "tenant_*.*", text)], databases)


def of_sources(home: Path, shards: int, count: int) -> Sources:
    """So many databases of several sources, that are one table of the lake."""
    names = [f"part{number}" for number in range(count)]
    files, databases = [], []
    for number, name in enumerate(names):
        entry = _OF_SOURCES.format(name=name, sources=", ".join(names))
        files.append(_written(home, name, 6620 + 10 * number, f"tenant_{name}_*.*", f"merge_tables:\n  - {entry}\n"))
        databases += [f"tenant_{name}_{shard}" for shard in range(shards // count)]
    return Sources(f"{count} sources of {shards // count} shards", files, databases)


def _written(home: Path, name: str, number: int, include: str, more: str = "") -> Path:
    file = home / f"{name}.yaml"
    lake = (home / "lake").resolve()
    reader = os.environ.get("READER", "jdbc")
    file.write_text(_YAML.format(name=name, number=number, include=include, lake=lake, reader=reader) + more)
    return file


def figures(kind: Kind, rows: int, compared: Sequence[Sources], report: Report) -> list[Figure]:
    """Return the CPU seconds of snapshots and syncs, and their ratios to the first of these."""
    with Server(kind) as server:
        os.environ["AIRFLOW_CONN_SHARDS"] = server.uri()
        most = rows // min(len(sources.databases) for sources in compared)
        server.execute("CREATE DATABASE bench", "CREATE TABLE bench.n (n INT PRIMARY KEY)")
        digits = "(SELECT 0 d" + "".join(f" UNION SELECT {digit}" for digit in range(1, 10)) + ")"
        places = " + ".join(f"{10**place} * p{place}.d" for place in range(7))
        tables = ", ".join(f"{digits} p{place}" for place in range(len(str(most))))
        number = " + ".join(places.split(" + ")[: len(str(most))])
        server.execute(f"INSERT INTO bench.n SELECT 1 + {number} FROM {tables}")
        for sources in compared:
            for database in sources.databases:
                server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.orders ({_COLUMNS})")
            sources.change(server, 0, rows)
        snapshots = [[sources.run("snapshot")] for sources in compared]
        syncs: list[list[Cost]] = [[] for _ in compared]
        for turn in range(1, ROUNDS + 1):
            report.say(f"round {turn} of {ROUNDS} …")
            for sources, costs in zip(compared, syncs, strict=True):
                sources.change(server, turn * 10_000_000, rows)
                costs.append(sources.run("sync"))
    return [
        figure
        for command, measured in (("snapshot", snapshots), ("sync", syncs))
        for figure in _ratios(f"{command} of {rows:,} rows", compared, measured)
    ]


def followed(kind: Kind, rows: int, compared: Sequence[Sources], seconds: float, report: Report) -> list[Figure]:
    """Return how fresh the tables are and how many cores they take while they are followed, one after the other."""
    pace = float(os.environ.get("PACE", "200"))
    shown: list[Figure] = []
    with Server(kind) as server:
        os.environ["AIRFLOW_CONN_SHARDS"] = server.uri()
        for sources in compared:
            tables = [f"{database}.orders" for database in sources.databases]
            writer = bench_follow.Writer(server, tables, pace, rows // len(tables))
            writer.prepare()
            sources.run("snapshot")
            report.say(f"{sources.what}: {pace:,.0f} changes a second for {seconds:,.0f} s …")
            measured = bench_follow.followed(server, sources.files[0], writer, seconds)
            shown += bench_follow.figures(measured, sources.what, seconds)
    of_first, of_shards = (value for name, value, _ in shown if name.endswith("cores busy"))
    return [*shown, (f"followed, {compared[1].what} : {compared[0].what}, cores busy", of_shards / of_first, "times")]


def _ratios(what: str, compared: Sequence[Sources], measured: Sequence[Sequence[Cost]]) -> list[Figure]:
    medians = [statistics.median(cost.cpu_seconds for cost in costs) for costs in measured]
    shown: list[Figure] = []
    for sources, seconds in zip(compared, medians, strict=True):
        shown.append((f"{what}, {sources.what}", seconds, "CPU s"))
        if sources is not compared[0]:
            shown.append((f"{what}, {sources.what} : {compared[0].what}", seconds / medians[0], "times"))
    return shown


def main(rows: int, shards: int, kind: Kind) -> None:
    """Measure, show and keep the figures."""
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    os.environ["XDG_STATE_HOME"] = str(HOME / "state")  # a lake was here before
    compared = [alone(HOME), sharded(HOME, shards)]
    if seconds := float(os.environ.get("FOLLOW", "0")):
        measured = followed(kind, rows, compared, seconds, Report())
    else:
        if count := int(os.environ.get("SOURCES", "0")):
            compared = [sharded(HOME, shards), of_sources(HOME, shards, count)]
        measured = figures(kind, rows, compared, Report())
    shutil.rmtree(HOME)
    show("shards", measured)
    keep(measured)


if __name__ == "__main__":
    asked = sys.argv[1:]
    main(
        int(asked[0]) if asked else 6_400,
        int(asked[1]) if len(asked) > 1 else 64,
        "mariadb" if "mariadb" in asked[2:] else "mysql",
    )
