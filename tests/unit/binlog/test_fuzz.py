"""Enemies' logs: a short, always equal run of tests/binlogs/fuzz.py, and what such runs found."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "binlogs"))

import fuzz
import guard
import logs

from binlake.kernels import native

SECONDS = 8
FEWEST = 200


def test_damaged_logs_give_errors_or_rows() -> None:
    counts: Counter[str] = Counter()
    failures: list[str] = []
    end, seed = time.monotonic() + SECONDS, 0
    while (time.monotonic() < end or seed < FEWEST) and seed < 2000:
        fuzz.run_children(range(seed, seed + 50), counts, failures)
        seed += 50
    assert not failures, "\n".join(failures)
    assert counts.total() == seed
    assert {"rows", "stopped", "CorruptEvent"} <= set(counts)


def test_a_crash_and_a_hang_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The net has no hole: a read past the end kills the child, and the child's death is a failure with its seed."""

    def reads_too_far(seed: int, path: Path) -> str:
        if seed == 1:
            array = guard.guarded(100)
            native.crc32(array.ctypes.data, 101, np.zeros(8, np.int64).ctypes.data)
        if seed == 3:
            time.sleep(60)
        return "fine"

    monkeypatch.setattr(fuzz, "check", reads_too_far)
    monkeypatch.setattr(fuzz, "HANG", 2)
    counts: Counter[str] = Counter()
    failures: list[str] = []
    fuzz.run_children(range(5), counts, failures)
    assert counts["fine"] == 3
    assert [line.split(":")[0] for line in failures] == ["seed 1", "seed 3"]
    assert "CRASH" in failures[0]
    assert "HANG" in failures[1]


@pytest.mark.parametrize("name", logs.NAMES)
def test_sound_logs_heed_no_byte_behind_their_events(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.000001"
    path.write_bytes((logs.HERE / path.name).read_bytes())
    results = []
    for fill in (0, 0xFF):
        with guard.guarded_buffers(fill):
            results.append(fuzz.outcome(path, path.stat().st_size, fill))
    assert results[0] == results[1]
    assert results[0].split()[0] == ("stopped" if logs.log(name).expected["remedy"] else "rows")
