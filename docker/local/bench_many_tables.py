"""A sync of ten changed tables among ten thousand that are followed: what changed is what it costs.

bench_many_tables.py [TABLES]    each as a whole ``binlake sync``; the figures are added to .binlake/bench.json

One empty table is snapshotted. The others are given its rows in metadata, and its Delta log, under their own ids, for
ten thousand snapshots would take a quarter of an hour.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
from pathlib import Path

from bench_figures import Figure, keep, show
from bench_sync import Cost, run
from binlake import config as configuration, pipeline
from binlake.config import PipelineConfig
from binlake.report import Report
from binlake.schema.table import TableName
from servers import PRIVATE, Server

CHANGED, ROUNDS = 10, 3
HOME = PRIVATE / "bench" / "many"
_YAML = """
source: {name: many, connection: many, server_id: 6500}
tables: {include: ["many.*"]}
lake: {path: LAKE}
"""


def follow_all(config: PipelineConfig, tables: int) -> None:
    """As if each had been snapshotted with the first."""
    metadata = pipeline.metadata_of(config)
    (watermark,), (schema,) = metadata.read("watermarks"), metadata.read("schemas")
    first, folder = watermark["table_id"], Path(config.table_path(TableName("many", "t0")))
    ids = {f"t{number}": f"{first[:-8]}{number:08x}" for number in range(1, tables)}
    for name, row in (("watermarks", watermark), ("schemas", schema)):
        more = [{**row, "table_id": table_id, "table": table} for table, table_id in ids.items()]
        metadata.replace(name, f"table_id <> '{first}'", more)
    for table, table_id in ids.items():
        shutil.copytree(folder, folder.with_name(table))
        for commit in (folder.with_name(table) / "_delta_log").glob("*.json"):
            commit.write_text(commit.read_text().replace(first, table_id))


def figures(tables: int, report: Report) -> list[Figure]:
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    os.environ["XDG_STATE_HOME"] = str(HOME / "state")  # a lake was here before
    file = HOME / "many.yaml"
    file.write_text(_YAML.replace("LAKE", str(HOME.resolve() / "lake")))
    with Server("mysql") as server:
        os.environ["AIRFLOW_CONN_MANY"] = server.uri()
        report.say(f"{tables:,} tables …")
        columns = "id INT PRIMARY KEY, v VARCHAR(20), at DATETIME, amount DECIMAL(10,2)"
        server.execute(
            "CREATE DATABASE many", *(f"CREATE TABLE many.t{number} ({columns})" for number in range(tables))
        )
        run("snapshot", file, "--tables", "many.t0")
        follow_all(configuration.load(file), tables)
        costs = [_changed(server, file, number, report) for number in range(ROUNDS)]
    what = f"sync of {CHANGED} of {tables:,} tables"
    shutil.rmtree(HOME)
    return [
        (f"{what}, whole process", statistics.median(cost.seconds for cost in costs), "s"),
        (f"{what}, all cores", statistics.median(cost.cpu_seconds for cost in costs), "CPU s"),
    ]


def _changed(server: Server, file: Path, number: int, report: Report) -> Cost:
    report.say(f"{CHANGED} of them change …")
    server.execute(*(f"INSERT INTO many.t{table} VALUES ({number}, 'v', NULL, 1)" for table in range(CHANGED)))
    return run("sync", file)


if __name__ == "__main__":
    asked = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    measured = figures(asked, Report())
    show("many tables", measured)
    keep(measured)
