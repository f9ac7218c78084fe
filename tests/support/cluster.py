"""Spark's standalone cluster on loopback: a master, workers with a core each, and a driver that takes orders.

Each worker has an address, a folder and a Python of its own, and nothing of this checkout's in its environment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from mirror import SHORT_LIVED
from servers import free_port

SECONDS = 150
_DEPLOY = "org.apache.spark.deploy"
_OURS = ("PYTHON", "BINLAKE", "SPARK", "AIRFLOW")


def descendants(process: int) -> Iterator[int]:
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # ended just now
            for child in map(int, task.read_text().split()):
                yield child
                yield from descendants(child)


def executors(process: int) -> list[int]:
    """Of Spark, below a process of ours."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in descendants(process)}
    backend = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
    return [pid for pid, words in commands.items() if backend in words and words[0].endswith(b"java")]


def python_with(folder: Path, *, packages: bool) -> Path:
    """A virtual environment without binlake: with the packages that binlake is on, which ours lends it, or none."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    if packages:
        (site,) = (folder / "lib").glob("python*/site-packages")
        # A .pth that is in a folder named by a .pth isn't read, so the checkout itself isn't lent.
        (site / "lent.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin"


def environment(**more: str) -> dict[str, str]:
    """Of a driver: this process's, but for the workers' Python, which a session in this process leaves in it."""
    here = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    return {**here, **SHORT_LIVED, "SPARK_LOCAL_IP": "127.0.0.1", **more}


class Cluster:
    """Worker n is the host 127.0.0.n and runs the ``python3`` of its folder of programs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        port, self._page = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{port}"
        place = ("--port", str(port), "--webui-port", str(self._page))
        self._master = self._start("127.0.0.1", Path("/usr/bin"), "master.Master", *place)
        self._workers: dict[int, subprocess.Popen[bytes]] = {}

    def start_worker(self, number: int, python: Path, java_home: Path | None = None) -> None:
        folder = str(self._folder / f"worker{number}")
        place = ("--work-dir", folder, "--cores", "1", "--memory", "1g", "--webui-port", "0")
        self._workers[number] = self._start(
            f"127.0.0.{number}", python, "worker.Worker", *place, self.url, java_home=java_home
        )

    def wait_for_workers(self) -> None:
        """Until the master knows each: one that comes before its master asks again after some 10 s."""
        wait_until(lambda: self._alive() == len(self._workers), "not every worker has come to its master")

    def _alive(self) -> int:
        with (
            suppress(OSError, ValueError),
            urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=10) as page,
        ):
            return int(json.load(page)["aliveworkers"])
        return 0

    def kill_worker(self, number: int) -> None:
        """As when its machine is lost."""
        _kill(self._workers.pop(number))

    def executors(self, number: int) -> list[int]:
        return executors(self._workers[number].pid)

    def _start(
        self, host: str, python: Path, daemon: str, *words: str, java_home: Path | None = None
    ) -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        own = {
            **{name: value for name, value in os.environ.items() if not name.startswith(_OURS)},
            **SHORT_LIVED,
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": host,
            "PATH": f"{python}:{os.environ['PATH']}",
            **({"JAVA_HOME": str(java_home)} if java_home else {}),
        }
        command = [str(home / "bin" / "spark-class"), f"{_DEPLOY}.{daemon}", "--host", host]
        self._folder.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [*command, *words],
            cwd=self._folder,
            env=own,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        for process in (*self._workers.values(), self._master):
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    for pid in [*descendants(process.pid), process.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


@contextmanager
def cluster(folder: Path, *pythons: Path) -> Iterator[Cluster]:
    """With a worker for each Python, from 127.0.0.2 on."""
    started = Cluster(folder)
    try:
        for number, python in enumerate(pythons, 2):
            started.start_worker(number, python)
        started.wait_for_workers()
        yield started
    finally:
        started.close()


class Driver:
    """A process that works in ``folder``, and runs binlake's commands in one Spark session (see on_a_cluster.py)."""

    def __init__(self, folder: Path, **more: str) -> None:
        self._said = folder / "driver.log"
        self._seen = 0
        program = Path(__file__).with_name("on_a_cluster.py")
        with self._said.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(program)],
                cwd=folder,
                env=environment(**more),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def begin(self, *arguments: str) -> None:
        """A command of binlake's; or ``at POINT``, after which whoever comes to this point says so."""
        assert self._process.stdin
        print(json.dumps(arguments), file=self._process.stdin, flush=True)

    def answer(self) -> str:
        """The exit code of the command, or the point that it has come to."""
        assert self._process.stdout
        for line in self._process.stdout:  # a JVM may say something, too
            word, _, answer = line.strip().partition(" ")
            if word == "answer":
                return answer
        raise AssertionError(self.said())

    def run(self, *arguments: str) -> str:
        """What a command says that comes to its end."""
        self.begin(*arguments)
        code = self.answer()
        said = self.said()
        assert code == "0", said
        return said

    def said(self) -> str:
        """Since it was asked last."""
        text = self._said.read_text()
        new, self._seen = text[self._seen :], len(text)
        return new

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            pipe.close()
        try:
            self._process.wait(SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


@contextmanager
def driver(folder: Path, **more: str) -> Iterator[Driver]:
    started = Driver(folder, **more)
    try:
        yield started
    finally:
        started.close()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
