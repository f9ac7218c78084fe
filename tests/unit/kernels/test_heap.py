"""What a process keeps of the memory that its threads gave back."""

from __future__ import annotations

import subprocess
import sys

KEPT = """
import re, sys, threading
import numpy as np
from binlake.kernels import heap

if sys.argv[1] == "returned":
    heap.return_freed_memory()

def resident():
    return int(re.search("VmRSS:\\\\s+(\\\\d+)", open("/proc/self/status").read())[1]) / 1000

def batch():
    np.ones(24 << 20, np.uint8)  # freed at once
    buffer = np.ones(8 << 20, np.uint8)
    kept.append(bytearray(90_000))  # behind it
    del buffer
    together.wait()

kept, before, together = [], resident(), threading.Barrier(8)
threads = [threading.Thread(target=batch) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(resident() - before)
"""


def kept(way: str) -> float:
    """Return megabytes."""
    return float(subprocess.run([sys.executable, "-c", KEPT, way], check=True, capture_output=True, text=True).stdout)


def test_buffers_of_threads_go_back_to_the_system() -> None:
    assert kept("returned") < 20 < 40 < kept("by default")
