"""Peers of the decoder, built from docker/peers and run on the bench's own logs.

go-mysql and mysql-binlog-connector-java read the file, Debezium's embedded engine the live server. A peer whose tools
(go, mvn) are missing is left out, and said so.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import peers
from bench_logs import Log
from servers import Server

PASSES, SECONDS = 8, 40.0
"""Of a file reader: at most so many passes, and no new one after so many seconds."""

Say = Callable[[str], None]
Figures = dict[str, float]


def built(say: Say) -> list[str]:
    """Names of the peers that can run."""
    ready: list[str] = []
    for name in ("go_mysql", "connector_java", "debezium"):
        say(f"building {name} …")
        try:
            peers.built(name)
        except peers.PeerMissing as missing:
            say(f"skipped {name}: {missing}")
        else:
            ready.append(name)
    return ready


def _lines(command: list[str], seconds: float) -> list[Figures]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def read_file(name: str, log: Log) -> Figures:
    """The best pass of a reader of files, by CPU time: a warm one."""
    command = [str(peers.BUILT / name / "peer")] if name == "go_mysql" else peers.java(name, "ConnectorJava", "-Xmx2g")
    passes = _lines([*command, str(log.path), str(PASSES), str(SECONDS)], 10 * SECONDS)
    assert all(figures["rows"] >= log.rows for figures in passes), (name, log.name, passes)
    return min(passes, key=lambda figures: figures["cpu"])


def debezium(log: Log, seconds: float = 240, broker: str | None = None) -> Figures:
    """Debezium's big-batch setting on the live server that wrote the log; it reads from the log's beginning. broker:
    into which it writes its JSON."""
    with Server("mysql", Path(log.datadir)) as server:
        created = f"{server.variable('server_uuid')}:1"  # it can't start from an empty set
        place = [str(server.port), log.name, log.file, created]
        main, target = ("ToBroker", [broker]) if broker else ("Debezium", [])
        command = [*peers.java("debezium", main, "-Xmx2g"), *place, str(log.rows), str(seconds), *target]
        figures = _lines(command, seconds + 60)[-1]
    assert figures["rows"] > 0, f"Debezium gave nothing of {log.name}: {asdict(log)}"
    return figures
