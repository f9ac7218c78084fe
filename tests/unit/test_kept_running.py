"""Programs that are kept running, by processes that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kept_running import LONGEST_WAIT, STEADY, KeptRunning


@contextmanager
def keeping(script: str, said: list[str], clock: Callable[[], float]) -> Iterator[tuple[KeptRunning, list[int]]]:
    """A shell script as the program ``scheduler``, and the ids of its processes so far."""
    pids: list[int] = []

    def start(name: str) -> subprocess.Popen[bytes]:
        assert name == "scheduler"
        process = subprocess.Popen(["sh", "-c", script], start_new_session=True)
        pids.append(process.pid)
        return process

    kept = KeptRunning(start, said.append, clock)
    kept.begin("scheduler")
    try:
        yield kept, pids
    finally:
        kept.stop()
    assert not [pid for pid in pids if is_alive(pid)]


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def wait_until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_that_is_killed_is_started_again_without_what_it_had_started(tmp_path: Path) -> None:
    said: list[str] = []
    now, worker = [1000.0], tmp_path / "worker"
    with keeping(f"sleep 600 & echo $! > {worker}.new; mv {worker}.new {worker}; wait", said, lambda: now[0]) as (
        kept,
        pids,
    ):
        wait_until(worker.exists)
        of_the_first = int(worker.read_text())
        kept.look()
        assert (len(pids), said) == (1, [])
        now[0] += STEADY + 1
        os.kill(pids[0], signal.SIGKILL)
        wait_until(lambda: kept.ended() == ["scheduler"])
        assert is_alive(of_the_first), "killed alone, it leaves its worker"
        kept.look()
        assert said == ["scheduler ended (killed by SIGKILL): it is started again in 1 s"]
        wait_until(lambda: not is_alive(of_the_first))
        kept.look()
        assert len(pids) == 1, "it waits"
        now[0] += 1
        kept.look()
        kept.look()
        assert len(pids) == 2
        assert is_alive(pids[1])
        assert len(said) == 1


def test_one_that_ends_at_once_is_started_less_and_less_often() -> None:
    said: list[str] = []
    now = [0.0]
    with keeping("exit 3", said, lambda: now[0]) as (kept, pids):
        waits = []
        for ends in range(1, 10):
            wait_until(lambda: bool(kept.ended()))
            kept.look()
            assert len(said) == ends
            before = now[0]
            while len(pids) == ends:
                now[0] += 0.5
                kept.look()
            waits.append(now[0] - before)
    assert waits == [1, 2, 4, 8, 16, 32, LONGEST_WAIT, LONGEST_WAIT, LONGEST_WAIT]
    assert said[0] == "scheduler ended (exit code 3): it is started again in 1 s"
