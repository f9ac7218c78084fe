"""``make bench`` and ``make bench-peers``: how fast the binlog decoder is, as ratios in one run.

    bench_decoder.py [peers]

Tables go to standard output, all figures to .binlake/bench_decoder.json. Every figure comes from a process of its own;
rates are thousands of mutations per second of that process's CPU time, and by the clock.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import bench_logs
import bench_peers
from bench_logs import Log
from binlake.binlog.boundaries import transaction_boundaries
from binlake.binlog.transport import FileTransport
from servers import PRIVATE, Server, program

MEASURES = Path(__file__).with_name("bench_measures.py")
LIMIT = 600
"""Seconds of a measurement, at most."""
ALONE_SECONDS = 10
"""What mysql-replication gets for each log."""
GOALS = {  # of the ratio named; by log
    "decode : go-mysql": {"narrow": 10.0, "wide": 6.0, "single": 6.0},
    "decode : mysql-binlog-connector-java": {"narrow": 5.0, "wide": 4.0, "single": 4.0},
    "decode : mysql-replication": {"narrow": 300.0},
    "decode + Parquet : Debezium": {"narrow": 20.0, "wide": 10.0},
}

Figures = dict[str, Any]
console = Console()


def measure(what: str, log: Log | Figures, *more: str) -> Figures:
    about = json.dumps(asdict(log) if isinstance(log, Log) else log)
    command = [sys.executable, str(MEASURES), what, about, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return dict(json.loads(done.stdout.splitlines()[-1]))


def two_slices(log: Log) -> float:
    """Rows per second of two processes, each with half of the log, against one with all of it."""
    boundaries = transaction_boundaries(FileTransport(Path(log.datadir)), log.slice())
    ends = [transaction.end_offset for transaction in boundaries]
    middle = min(ends, key=lambda end: abs(end - log.size // 2))
    whole = asdict(log)
    return _side_by_side([{**whole, "size": middle}, {**whole, "start": middle}]) / _side_by_side([whole])


def _side_by_side(parts: list[Figures]) -> float:
    """Rows per second of processes that begin together, until the last has ended."""
    began = [
        subprocess.Popen(
            [sys.executable, str(MEASURES), "together", json.dumps(part)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for part in parts
    ]
    for process in began:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in began:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    ended = [json.loads(process.communicate(timeout=LIMIT)[0].splitlines()[-1]) for process in began]
    return float(sum(measured["rows"] for measured in ended) / max(measured["wall"] for measured in ended))


def alone(log: Log) -> Figures:
    """mysql-replication on the live server."""
    with Server("mysql", Path(log.datadir)) as server:
        return measure("mysql-replication", log, str(server.port), str(ALONE_SECONDS))


def wire(log: Log) -> Figures:
    """Seconds to read a log from the live server, against ``mysqlbinlog --raw``."""
    with Server("mysql", Path(log.datadir)) as server, tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        mine = measure("wire", log, str(server.port))["wall"]
        command = [*program("mysql", "mysqlbinlog"), "--read-from-remote-server", "--raw", "--host=127.0.0.1"]
        command += [f"--port={server.port}", "--user=root", f"--result-file={folder}/", log.file]
        seconds: list[float] = []
        for _ in range(5):
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds.append(time.perf_counter() - began)
    return {"wall": mine, "raw": statistics.median(seconds)}


def ours(logs: dict[str, Log]) -> dict[str, Figures]:
    figures: dict[str, Figures] = {}
    for name in ("narrow", "wide", "single"):
        console.print(f"{name} …")
        figures[f"decode, {name}"] = measure("decode", logs[name])
        figures[f"decode + Parquet, {name}"] = measure("stage", logs[name])
        figures[f"mysql-replication, {name}"] = alone(logs[name])
    console.print("excluded columns and tables …")
    bulky = logs["bulky"]
    for what in ("all", "columns", "table"):
        figures[f"decode, bulky, {what}"] = measure("decode", bulky, what)
        figures[f"decode + Parquet, bulky, {what}"] = measure("stage", bulky, what)
    console.print("the wire …")
    figures["wire, single"] = wire(logs["single"])
    console.print("cold start …")
    small = replace(logs["single"], size=_first_end(logs["single"]))
    figures["cold start"] = min((measure("cold", small) for _ in range(3)), key=lambda cold: float(cold["wall"]))
    console.print("two slices …")
    figures["two slices : one"] = {"ratio": max(two_slices(logs["narrow"]) for _ in range(2))}
    return figures


def _first_end(log: Log) -> int:
    """Where the log's first thousand transactions end."""
    boundaries = transaction_boundaries(FileTransport(Path(log.datadir)), log.slice())
    ends = [transaction.end_offset for transaction in boundaries]
    return ends[min(1000, len(ends) - 1)]


def peers(logs: dict[str, Log]) -> dict[str, Figures]:
    figures: dict[str, Figures] = {}
    ready = bench_peers.built(console.print)
    for peer, title in (("go_mysql", "go-mysql"), ("connector_java", "mysql-binlog-connector-java")):
        for name in ("narrow", "wide", "single") if peer in ready else ():
            console.print(f"{title}, {name} …")
            figures[f"{title}, {name}"] = bench_peers.read_file(peer, logs[name])
    for name in ("narrow", "wide") if "debezium" in ready else ():
        console.print(f"Debezium, {name} …")
        figures[f"Debezium, {name}"] = bench_peers.debezium(logs[name])
    return figures


def ratios(figures: dict[str, Figures]) -> dict[str, float]:
    by_title: dict[str, float] = {}
    for title in GOALS:
        mine, peer = title.split(" : ")
        # Debezium has two cores and uses both: by the clock. The others: by CPU time.
        by = "wall" if peer == "Debezium" else "cpu"
        for name in ("narrow", "wide", "single"):
            if f"{peer}, {name}" in figures:
                first, second = figures[f"{mine}, {name}"], figures[f"{peer}, {name}"]
                by_title[f"{title}, {name}"] = first["rows"] / first[by] / (second["rows"] / second[by])
    for way in ("decode", "decode + Parquet"):
        for what in ("columns", "table"):
            seconds = [figures[f"{way}, bulky, {part}"]["cpu"] for part in ("all", what)]
            by_title[f"{way}: all but a tenth excluded ({what})"] = seconds[0] / seconds[1]
    by_title["mysqlbinlog --raw : reading live, single"] = (
        figures["wire, single"]["raw"] / figures["wire, single"]["wall"]
    )
    by_title["two slices : one"] = figures["two slices : one"]["ratio"]
    return by_title


def show(figures: dict[str, Figures], ratios: dict[str, float]) -> None:
    rates = Table(title="thousand mutations")
    for head in ("reader", "per CPU second", "per second", "peak MB"):
        rates.add_column(head, justify="left" if head == "reader" else "right")
    for title, figure in figures.items():
        if "cpu" in figure and "bulky" not in title:
            by_cpu, by_clock = (f"{figure['rows'] / figure[by] / 1e3:,.1f}" for by in ("cpu", "wall"))
            rates.add_row(title, by_cpu, by_clock, f"{figure['peak_mb']:,.0f}" if "peak_mb" in figure else "")
    console.print(rates)
    compared = Table(title="ratios")
    for head in ("what", "ratio", "goal"):
        compared.add_column(head, justify="left" if head == "what" else "right")
    goals = {f"{title}, {name}": goal for title, by_log in GOALS.items() for name, goal in by_log.items()}
    goals |= {title: 3.0 for title in ratios if "excluded" in title}
    goals["two slices : one"] = 1.7
    goals["mysqlbinlog --raw : reading live, single"] = 1 / 1.5
    for title, ratio in ratios.items():
        goal = goals.get(title)
        colour = "" if goal is None else "[green]" if ratio >= goal else "[red]"
        compared.add_row(title, f"{colour}{ratio:,.1f}", "" if goal is None else f"{goal:g}")
    console.print(compared)
    console.print(f"cold start of a stage task: {figures['cold start']['wall']:.1f} s (goal: 3)")


def main(with_peers: bool) -> None:
    logs = {log.name: log for log in bench_logs.logs()}
    load, cores = os.getloadavg()[0], os.cpu_count()
    console.print(
        f"load {load:.1f} on {cores} cores: ratios by the clock (Debezium, two slices) want the machine alone"
    )
    figures = ours(logs)
    if with_peers:
        figures |= peers(logs)
    by_title = ratios(figures)
    show(figures, by_title)
    kept = {"load": load, "cores": cores, "mutations": bench_logs.SIZES, "figures": figures, "ratios": by_title}
    (PRIVATE / "bench_decoder.json").write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:] == ["peers"])
