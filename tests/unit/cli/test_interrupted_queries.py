"""Ctrl-C ends a query at once, alone and at the prompt: real signals to real processes."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from recorded_lake import record_lake

ENDLESS = "SELECT count(*) FROM shop.t a, shop.t b, shop.t c, shop.t d WHERE (a.id * b.id + c.id) % 7 = d.id % 11"
START = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from binlake.cli import start; start.main()"
)
"""Who runs the tests may have the signal ignored."""


@pytest.fixture(scope="module")
def yaml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interrupted")
    record_lake(folder / "lake" / "shop", {"shop.t": pa.table({"id": range(3000)})}, {})
    yaml = folder / "shop.yaml"
    yaml.write_text(
        "source: {name: shop, connection: shop_mysql, server_id: 4001}\n"
        f"tables: {{include: ['shop.*']}}\nlake: {{path: {folder}/lake}}\n"
    )
    return yaml


def sql(yaml: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-c", START, "sql", "--config", str(yaml), *arguments]


def wait_until_busy(process: int) -> None:
    """Return once the engine's threads work, which other threads and the start don't."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for thread in Path(f"/proc/{process}/task").glob("*/stat"):
            name, _, rest = thread.read_text().rpartition(")")
            fields = rest.split()
            if "(tokio" in name and int(fields[11]) + int(fields[12]) > 0.3 * os.sysconf("SC_CLK_TCK"):
                return
        time.sleep(0.1)
    raise AssertionError("the query never ran")


def test_a_query_alone_is_ended(yaml: Path, tmp_path: Path) -> None:
    command = sql(yaml, "--format", "csv", "--output", str(tmp_path / "rows.csv"), ENDLESS)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_until_busy(process.pid)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert time.monotonic() - began < 3
    assert process.returncode == 130
    assert said.startswith("binlake: interrupted")
    assert list(tmp_path.iterdir()) == [], "no part of the file is left"


def test_a_query_at_the_prompt_is_ended_and_the_prompt_goes_on(yaml: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "PAGER": "cat", "TERM": "dumb"}
    process = subprocess.Popen(
        sql(yaml), stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    terminal = Terminal(ours)
    terminal.until("lake=> ")
    os.write(ours, f"{ENDLESS};\n".encode())
    (child,) = children_of(process.pid)
    wait_until_busy(child)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    terminal.until("lake=> ")
    assert time.monotonic() - began < 3
    assert not Path(f"/proc/{child}").exists(), "the query has ended"
    os.write(ours, b"SELECT count(*) AS n FROM shop.t;\n")
    assert "3000" in terminal.until("(1 row)")
    os.write(ours, b"SELECT nothing FROM shop.t;\nSELECT id FROM shop.t AT (BATCH 7);\n")
    assert "No field named nothing" in terminal.until("batch 7 isn't known as a version")
    os.write(ours, b"quit\n")
    assert process.wait(timeout=30) == 0
    assert children_of(process.pid) == []


def children_of(process: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=False)
    return [int(word) for word in listed.stdout.split()]


class Terminal:
    """What a process shows on its terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._shown = ""

    def until(self, text: str) -> str:
        """Read until a text comes; return what came before, and forget both."""
        deadline = time.monotonic() + 60
        while text not in self._shown:
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} doesn't come behind {self._shown!r}"
            self._shown += os.read(self._descriptor, 1 << 16).decode()
        before, _, self._shown = self._shown.partition(text)
        return before
