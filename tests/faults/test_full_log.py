"""A server whose log's disk is full: who asks it says for what it waits, and continues by itself once there is room.

A server tries a write that found no room again after a minute (MY_WAIT_FOR_USER_TO_FIX_PANIC, mysys/my_write.cc).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mirror import Mirror
from servers import KINDS, Kind, Server

pytestmark = pytest.mark.soak
SAID_WITHIN, MENDED_WITHIN = 20.0, 90.0
"""Seconds; of the second a server takes up to sixty."""


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """A file system of its own, of four megabytes."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no room, and return the file that takes it."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while room := os.statvfs(folder).f_bavail * os.statvfs(folder).f_bsize:
            file.write(bytes(room))
    return ballast


@contextmanager
def running(mirror: Mirror, command: str, said: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command in a process of its own. said: the file of what it says."""
    words = [sys.executable, "-m", "binlake.cli.command_line", command, "--config", str(mirror.write_yaml())]
    environment = {**os.environ, "AIRFLOW_CONN_TESTS": mirror.server.uri()}
    with said.open("wb") as file, subprocess.Popen(words, env=environment, stdout=file, stderr=file) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(text: str, said: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while text not in said.read_text():
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_sync_and_status_wait_aloud_and_go_on(kind: Kind, new_server: type[Server], lake: Path, tmp_path: Path) -> None:
    with disk(tmp_path / "disk") as small, new_server(kind, log_bin=str(small / "binlog")) as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v TEXT)")
        mirror = Mirror(server, "d", lake, spark=None, reader="direct")  # type: ignore[arg-type]
        mirror.options = {"merge": {"without_spark_mb": 16}}
        mirror.snapshot()
        mirror.execute("INSERT INTO t VALUES (1, 'before')")
        ballast = fill(small)
        writer = threading.Thread(target=mirror.execute, args=("INSERT INTO t VALUES (2, REPEAT('x', 9000))",))
        writer.start()
        said = {command: tmp_path / command for command in ("sync", "status")}
        with running(mirror, "sync", said["sync"]) as sync, running(mirror, "status", said["status"]) as status:
            for text in said.values():
                wait_for("where the disk of its log is full, make room there", text, SAID_WITHIN)
            assert sync.poll() is status.poll() is None
            ballast.unlink()
            writer.join(MENDED_WITHIN)
            assert not writer.is_alive()
            assert sync.wait(MENDED_WITHIN) == 0, said["sync"].read_text()
            assert status.wait(MENDED_WITHIN) == 0, said["status"].read_text()
        mirror.sync()
        mirror.assert_equal("t")
