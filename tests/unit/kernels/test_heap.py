"""What a process keeps of the memory that its threads gave back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


POOL = """
import sys
from binlake import pipeline
from binlake.cli import command_line

def follow(*_):
    import pyarrow
    print(pyarrow.default_memory_pool().backend_name, flush=True)
    sys.exit(0)

pipeline.follow = follow
sys.argv = ["binlake", "follow", "--config", sys.argv[1]]
command_line.run()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Arrow's other builds may lack it")
@pytest.mark.parametrize(("asked", "used"), [(None, "jemalloc"), ("system", "system")])
def test_a_follower_takes_arrows_memory_from_jemalloc(tmp_path: Path, asked: str | None, used: str) -> None:
    file = tmp_path / "shop.yaml"
    written = {
        "source": {"name": "shop", "connection": "shop", "server_id": 6600},
        "tables": {"include": ["shop.*"]},
        "lake": {"path": str(tmp_path)},
    }
    file.write_text(json.dumps(written))  # JSON is YAML
    environment = {**os.environ, "AIRFLOW_CONN_SHOP": "mysql://root@127.0.0.1:1/"}
    environment |= {"ARROW_DEFAULT_MEMORY_POOL": asked} if asked else {}
    ended = subprocess.run(
        [sys.executable, "-c", POOL, str(file)], check=True, capture_output=True, text=True, env=environment
    )
    assert ended.stdout.strip() == used
