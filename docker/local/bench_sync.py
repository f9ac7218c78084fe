"""Syncs as users run them: whole ``binlake`` processes, timed with the JVM's processor time, for changes of each kind.

The table of ``bench.py`` and a hundred small ones; between the syncs the server changes what the mix says.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from servers import Server

SMALL_TABLES = 100
_BINLAKE = str(Path(sys.executable).parent / "binlake")
_PR_SET_CHILD_SUBREAPER = 36
_ORPHAN_SECONDS = 30


@dataclass(frozen=True)
class Cost:
    """Of a process and all that it started: seconds by the clock, and of all cores."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Mix:
    """What the server changes before a sync. mutations: rows that it changes."""

    name: str
    statements: tuple[str, ...]
    mutations: int


def mixes(rows: int) -> Iterator[Mix]:
    """Six of them, of a table of ``rows`` rows: four change many, two next to nothing."""
    tenth, half = rows // 10, rows // 2
    newer = (
        "SELECT most + ROW_NUMBER() OVER (), k, c, pad FROM bench.narrow, (SELECT MAX(id) AS most FROM bench.narrow) x"
    )
    yield Mix("inserts alone", (f"INSERT INTO bench.narrow {newer} LIMIT {2 * tenth}",), 2 * tenth)
    mixed = (
        f"INSERT INTO bench.narrow {newer} LIMIT {tenth * 12 // 10}",
        f"UPDATE bench.narrow SET k = k + 1 WHERE id > {half} ORDER BY id LIMIT {tenth * 6 // 10}",
        f"DELETE FROM bench.narrow WHERE id > {half * 5 // 4} ORDER BY id LIMIT {tenth * 2 // 10}",
    )
    yield Mix("60 % inserts, 30 % updates, 10 % deletes", mixed, 2 * tenth)
    update = f"UPDATE bench.narrow SET k = k + 1 ORDER BY id DESC LIMIT {tenth}"
    yield Mix("newest rows updated", (update,), tenth)
    every = f"UPDATE bench.narrow SET k = k + 1 WHERE id % 10 = 0 AND id <= {half}"
    yield Mix("every tenth row updated", (every,), half // 10)
    ends = tuple(f"UPDATE bench.narrow SET k = k + 1 ORDER BY id {order} LIMIT 1" for order in ("ASC", "DESC"))
    yield Mix("two rows far apart", ends, 2)
    small = tuple(f"UPDATE small.t{number} SET v = v + 1" for number in range(SMALL_TABLES))
    yield Mix("two rows in each of 100 tables", small, 2 * SMALL_TABLES)


def make_small_tables(server: Server) -> None:
    server.execute("CREATE DATABASE small")
    for number in range(SMALL_TABLES):
        server.execute(
            f"CREATE TABLE small.t{number} (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO small.t{number} VALUES (1, 0), (2, 0)",
        )


def run(command: str, config_file: Path, *arguments: str) -> Cost:
    """A ``binlake`` command, with all that it starts; raises CalledProcessError."""
    return cost([_BINLAKE, command, "--config", str(config_file), *arguments])


def cost(command: Sequence[str]) -> Cost:
    """Of a process and what it leaves behind: the JVM ends a moment after its Python. Raises CalledProcessError."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    others, before = _children(), resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    seconds = time.monotonic() - began
    if done.returncode:
        sys.stderr.buffer.write(done.stderr)
        done.check_returncode()
    _reap(others)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _children() -> set[int]:
    return {int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


def _reap(others: set[int]) -> None:
    end = time.monotonic() + _ORPHAN_SECONDS
    while (orphans := _children() - others) and time.monotonic() < end:
        for pid in orphans:
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.05)
