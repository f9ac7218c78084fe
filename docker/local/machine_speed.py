"""How quick the machine is just now: its neighbours' work changes that within minutes.

A benchmark of hours that compares its end with its beginning takes the machine's own change out by this.
"""

from __future__ import annotations

import json
import time

_ROWS = [{"id": number, "name": f"name {number}", "at": "2026-01-01 00:00:00"} for number in range(1_500)]


def reference_seconds() -> float:
    """Return the CPU seconds of a fixed piece of work, some milliseconds: JSON written, read and sorted by a thread.

    CPU time doesn't count waiting for a core, so that processes beside change it little; a slower core does.
    """
    began = time.thread_time()
    rows = json.loads(json.dumps(_ROWS))
    rows.sort(key=lambda row: row["name"][::-1])
    return time.thread_time() - began
