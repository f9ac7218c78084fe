"""binlake beside Flink CDC with Paimon, on one MariaDB: the same table, the same changes, from the server to the lake.

Flink CDC 3.5 asks for SHOW MASTER STATUS, which MySQL has no more since 8.4; MariaDB answers it. Flink's job runs on
and commits every two seconds, so its figures hold no start but the snapshot's; binlake's are those of whole processes.
The table is ``bench.py``'s narrow one; the changes are 60 % inserts, 30 % updates, 10 % deletes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import peers
from bench_figures import Figure, keep, show
from bench_snapshot import tree_cpu_seconds
from bench_sync import Cost, run
from binlake.report import Report
from servers import PRIVATE, Server

ROWS = int(os.environ.get("BENCH_FLINK_ROWS", "500000"))
HOME = PRIVATE / "bench" / "flink"
_SECONDS = 600
_YAML = """
source: {name: flink, connection: flink, server_id: 6400}
tables: {include: ["shop.*"]}
lake: {path: LAKE}
"""
_TABLE = "CREATE TABLE narrow (id BIGINT UNSIGNED PRIMARY KEY, k INT NOT NULL, c CHAR(120), pad CHAR(60))"
_FILL = f"INSERT INTO narrow SELECT seq, seq % 1000, REPEAT(SHA2(seq, 224), 2), SHA2(seq, 224) FROM seq_1_to_{ROWS}"
_CHANGES = (
    f"INSERT INTO narrow SELECT id + {ROWS}, k, c, pad FROM narrow ORDER BY id LIMIT {ROWS * 6 // 20}",
    f"UPDATE narrow SET k = k + 1, pad = REVERSE(pad) WHERE id <= {ROWS * 3 // 20}",
    f"DELETE FROM narrow WHERE id > {ROWS - ROWS // 20} AND id <= {ROWS}",
)
MUTATIONS = ROWS * 6 // 20 + ROWS * 3 // 20 + ROWS // 20


def figures(report: Report) -> list[Figure]:
    """Raises PeerMissing where Flink can't be built."""
    report.say("building flink_cdc …")
    peers.built("flink_cdc")
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    os.environ["XDG_STATE_HOME"] = str(HOME / "state")  # a lake was here before
    with Server("mariadb", max_statement_time=0) as server:
        server.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
        server.execute(_TABLE, _FILL, database="shop")
        ours = HOME / "flink.yaml"
        ours.write_text(_YAML.replace("LAKE", str(HOME / "lake")))
        os.environ["AIRFLOW_CONN_FLINK"] = server.uri()
        report.say(f"snapshot of {ROWS:,} rows of MariaDB …")
        snapshot = run("snapshot", ours)
        with _flink(server) as warehouse:
            report.say("the same by Flink CDC …")
            theirs = _until(warehouse, ROWS)
            server.execute("SET SESSION max_statement_time = 0", *_CHANGES, database="shop")
            report.say(f"{MUTATIONS:,} mutations by Flink CDC …")
            followed = _until(warehouse, ROWS + MUTATIONS)
        report.say("the same by binlake …")
        sync = run("sync", ours)
    ways = {
        "snapshot of MariaDB, whole process": (ROWS, snapshot, "rows/s"),
        "snapshot by Flink CDC into Paimon": (ROWS, theirs, "rows/s"),
        "sync of MariaDB, whole process": (MUTATIONS, sync, "mutations/s"),
        "Flink CDC into Paimon, its job running": (MUTATIONS, followed, "mutations/s"),
    }
    return [
        *((name, rows / took.seconds, unit) for name, (rows, took, unit) in ways.items()),
        *((f"{name}, all cores", took.cpu_seconds, "CPU s") for name, (_, took, _) in ways.items()),
        ("sync of MariaDB : Flink CDC", followed.seconds / sync.seconds, "x"),
    ]


@contextmanager
def _flink(server: Server) -> Iterator[Path]:
    """Its job at work; gives the folder of the table of Paimon. It ends with the block, or by itself."""
    warehouse = HOME / "paimon"
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.util", "java.nio")]
    command = peers.java("flink_cdc", "FlinkCdc", "-Xmx3g", *opened)
    with (HOME / "flink.log").open("wb") as log:
        job = subprocess.Popen(
            [*command, str(server.port), "shop", str(warehouse), str(2 * _SECONDS)], stdout=log, stderr=log
        )
        try:
            yield warehouse / "default.db" / "narrow"
        finally:
            job.kill()
            job.wait()


def _until(table: Path, records: int) -> Cost:
    """What it takes until so many records, of all commits so far, stand in the table."""
    began, before = time.monotonic(), tree_cpu_seconds()
    while _committed(table) < records:
        if time.monotonic() > began + _SECONDS:
            raise SystemExit(f"Flink CDC committed {_committed(table):,} of {records:,} records: {HOME / 'flink.log'}")
        time.sleep(0.1)
    return Cost(time.monotonic() - began, tree_cpu_seconds() - before)


def _committed(table: Path) -> int:
    """Records that commits brought, compactions left out (Paimon's documentation, "Snapshot": deltaRecordCount)."""
    records = 0
    for path in table.glob("snapshot/snapshot-*"):
        snapshot = json.loads(path.read_text())
        if snapshot["commitKind"] == "APPEND":
            records += snapshot["deltaRecordCount"]
    return records


if __name__ == "__main__":
    try:
        compared = figures(Report())
    except peers.PeerMissing as missing:
        raise SystemExit(f"skipped Flink CDC: {missing}") from None
    show(f"binlake beside Flink CDC: {ROWS:,} rows, {MUTATIONS:,} mutations", compared)
    keep(compared)
