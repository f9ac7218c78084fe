"""A job ends with the process that submitted it."""

from __future__ import annotations

import errno
import subprocess
import sys
import time
from pathlib import Path

import pytest

from binlake.job.submitter import LOCK_FILE, hold

BEGIN = "import sys, time; from binlake.job import submitter; "
SUBMITTER = BEGIN + "held = submitter.hold(sys.argv[1]); print(flush=True); time.sleep(60)"
JOB = BEGIN + "submitter.end_with_submitter(); print(flush=True); time.sleep(float(sys.argv[1]))"


def started(program: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """A process that has come as far as to say so."""
    command = [sys.executable, "-c", program, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={"PYTHONPATH": ":".join(sys.path), **environment})
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_job_ends_when_its_submitter_is_killed(tmp_path: Path) -> None:
    lock = str(tmp_path / "lock")
    submitter = started(SUBMITTER, lock)
    job = started(JOB, "60", **{LOCK_FILE: lock})
    with pytest.raises(subprocess.TimeoutExpired):
        job.wait(0.5)
    submitter.kill()
    submitter.wait()
    assert job.wait(10) == 143


def test_a_job_whose_submitter_was_gone_before_it_began_ends(tmp_path: Path) -> None:
    assert started(JOB, "60", **{LOCK_FILE: str(tmp_path / "never made")}).wait(10) == 143


def test_a_file_system_without_locks_leaves_the_job_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A double, because no file system of this machine is without them."""

    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    assert hold(str(tmp_path / "lock")) is None


def test_a_job_that_is_done_waits_for_nobody(tmp_path: Path) -> None:
    lock = str(tmp_path / "lock")
    submitter = started(SUBMITTER, lock)
    began = time.monotonic()
    assert started(JOB, "0", **{LOCK_FILE: lock}).wait(10) == 0
    assert started(JOB, "0").wait(10) == 0
    assert time.monotonic() - began < 20
    submitter.kill()
    submitter.wait()
