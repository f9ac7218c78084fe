"""How many cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of CPU time that all processes of a container get, and in how many they get them."""


def available_cores() -> int:
    """Return the number of cores that this process may run on, at most a container's quota, rounded up to whole cores,
    as a JVM counts them. Source: Linux's documentation, "Control Group v2"."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = QUOTA.read_text().split()
        return max(1, min(cores, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no such group, or "max"
        return cores
