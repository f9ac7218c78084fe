"""Peers of the decoder, built from docker/peers and run on the bench's own logs.

go-mysql and mysql-binlog-connector-java read the file, Debezium's embedded engine the live server. A peer whose tools
(go, mvn) are missing is left out, and said so.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bench_logs import Log
from servers import PRIVATE, ROOT, Server

PEERS = ROOT / "docker" / "peers"
BUILT = PRIVATE / "bench" / "peers"
BUILD_SECONDS = 900
TOOLS = {"go_mysql": "go", "connector_java": "mvn", "debezium": "mvn"}
PASSES, SECONDS = 8, 40.0
"""Of a file reader: at most so many passes, and no new one after so many seconds."""

Say = Callable[[str], None]
Figures = dict[str, float]


def built(say: Say) -> list[str]:
    """Names of the peers that can run."""
    ready: list[str] = []
    for name, tool in TOOLS.items():
        if program(tool) is None:
            say(f"skipped {name}: {tool} isn't installed")
            continue
        say(f"building {name} …")
        build(name)
        ready.append(name)
    return ready


def program(tool: str) -> str | None:
    return shutil.which(tool) or shutil.which(tool, path="/usr/local/go/bin:/usr/share/maven/bin")


def build(name: str) -> None:
    """Its tool is there."""
    tool, target = TOOLS[name], BUILT / name
    shutil.copytree(PEERS / name, target, dirs_exist_ok=True)
    command = [str(program(tool)), *(["build", "-o", "peer", "."] if tool == "go" else ["-q", "-B", "package"])]
    done = subprocess.run(command, cwd=target, capture_output=True, text=True, timeout=BUILD_SECONDS)
    if done.returncode:
        raise SystemExit(f"{name} doesn't build:\n{(done.stdout + done.stderr)[-2000:]}")


def java(name: str, main: str) -> list[str]:
    """The command of a peer's class, without its arguments."""
    target = BUILT / name / "target"
    return ["java", "-Xmx2g", "-cp", f"{target / 'peer.jar'}:{target / 'lib'}/*", f"peers.{main}"]


def _lines(command: list[str], seconds: float) -> list[Figures]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def read_file(name: str, log: Log) -> Figures:
    """The best pass of a reader of files, by CPU time: a warm one."""
    command = [str(BUILT / name / "peer")] if name == "go_mysql" else java(name, "ConnectorJava")
    passes = _lines([*command, str(log.path), str(PASSES), str(SECONDS)], 10 * SECONDS)
    assert all(one["rows"] >= log.rows for one in passes), (name, log.name, passes)
    return min(passes, key=lambda one: one["cpu"])


def debezium(log: Log, seconds: float = 240, broker: str | None = None) -> Figures:
    """Debezium's big-batch setting on the live server that wrote the log; it reads from the log's beginning. broker:
    into which it writes its JSON."""
    with Server("mysql", Path(log.datadir)) as server:
        created = f"{server.variable('server_uuid')}:1"  # it can't start from an empty set
        place = [str(server.port), log.name, log.file, created]
        main, target = ("ToBroker", [broker]) if broker else ("Debezium", [])
        command = [*java("debezium", main), *place, str(log.rows), str(seconds), *target]
        figures = _lines(command, seconds + 60)[-1]
    assert figures["rows"] > 0, f"Debezium gave nothing of {log.name}: {asdict(log)}"
    return figures
