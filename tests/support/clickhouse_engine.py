"""chDB, the engine of ClickHouse in a process, which reads Delta tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from servers import PRIVATE

_CHDB = PRIVATE / "chdb"
_PROGRAM = """
import sys, chdb
for query in sys.argv[1:]:
    print(str(chdb.query(query, 'JSONCompact')).replace("\\n", " "))
"""


def is_there() -> bool:
    """Return whether docker/local/setup.sh could bring it."""
    return _CHDB.is_dir()


def read(folder: Path, *queries: str) -> list[list[tuple[Any, ...]]]:
    """Return the rows of each query. folder: where the tables are, as chDB reads below its working folder alone, which
    is the one that its process began with."""
    if not is_there():
        pytest.skip(f"{_CHDB} is missing: docker/local/setup.sh chdb brings it")
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *queries],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(_CHDB)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    if ended.returncode:
        raise RuntimeError(ended.stderr)
    return [[tuple(row) for row in json.loads(answer)["data"]] for answer in ended.stdout.splitlines()]
