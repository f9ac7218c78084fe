"""What a process and all that it starts take, looked at while it runs: memory and processor time."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

_LOOK_SECONDS = 0.3


@dataclass
class Usage:
    """seconds by the clock; cpu_seconds of all cores. busy: for each tenth of the time the cores that were at work.

    peaks: megabytes of the JVM and of the largest Python process.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peaks: dict[str, int] = field(default_factory=lambda: {"java": 0, "python": 0})
    busy: list[float] = field(default_factory=list)


def watched(process: subprocess.Popen[bytes]) -> Usage:
    """Of a process that leads a session of its own, once it has ended."""
    usage, began, looks = Usage(), time.monotonic(), [(0.0, 0.0)]
    spent: dict[tuple[int, int], int] = {}
    while process.poll() is None:
        _look(process.pid, usage.peaks, spent)
        looks.append((time.monotonic() - began, sum(spent.values()) / os.sysconf("SC_CLK_TCK")))
        time.sleep(_LOOK_SECONDS)
    usage.seconds, usage.cpu_seconds = looks[-1]
    usage.busy = _tenths(looks)
    return usage


def _look(session: int, peaks: dict[str, int], spent: dict[tuple[int, int], int]) -> None:
    """At the session's processes that live. spent: clock ticks of each that was ever seen, by its id and its start."""
    page = os.sysconf("SC_PAGE_SIZE")
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as stat:
                name, rest = stat.read().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        fields = rest.split()
        if int(fields[3]) != session:
            continue
        spent[int(entry), int(fields[19])] = int(fields[11]) + int(fields[12])
        kind = "java" if name == "java" else "python" if "python" in name else ""
        if kind:
            peaks[kind] = max(peaks[kind], int(fields[21]) * page // 2**20)


def _tenths(looks: Sequence[tuple[float, float]]) -> list[float]:
    """Cores at work in each tenth of the time."""
    whole = looks[-1][0] or 1.0
    marks = [next(cpu for at, cpu in looks if at >= whole * tenth / 10) for tenth in range(11)]
    return [round((after - before) / (whole / 10), 1) for before, after in itertools.pairwise(marks)]
