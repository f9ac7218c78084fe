"""A process carries feeds as batches come: killed, ended, beside one that fails, each message stands once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from binlake.cli import command_line
from feeding import feed, lines
from mirror import Mirror, on_mysql
from servers import die_with_parent

BINLAKE = (sys.executable, "-m", "binlake.cli.command_line")
SECONDS = 60


def until(is_so: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def start(life: ExitStack, file: Path, said: Path, *options: str, command: str = "feed") -> subprocess.Popen[bytes]:
    """Start a command that follows. said: the file to which it writes."""
    with open(said, "ab") as stream:
        process = subprocess.Popen(
            [*BINLAKE, command, "--follow", "--config", str(file), *options],
            stdout=stream, stderr=stream, preexec_fn=_as_in_a_terminal,
        )  # fmt: skip
    life.callback(process.wait)
    life.callback(process.kill)
    return process


def _as_in_a_terminal() -> None:
    """A shell lets what it starts in the background ignore SIGINT, and so the tests' own processes."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def ids(folder: Path) -> list[int]:
    if not (folder / "tests" / "_position.json").exists():
        return []
    return [json.loads(line)["after"]["id"] for line in lines(folder)]


@on_mysql
def test_batches_are_carried_as_they_come_whoever_is_killed(mirror: Mirror, tmp_path: Path) -> None:
    made = {"type": "debezium", "topic": "all", "schema_changes": False, "heartbeat": False}
    feed(mirror, format=made)
    (own,) = mirror.options["feeds"]
    mirror.options["feeds"] = [
        own,
        {**own, "name": "away", "sink": {"url": "http://127.0.0.1:9/", "settings": {"retries": 0}}},
    ]
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (0)")
    mirror.sync()
    out, said, file = mirror.folder / "out", tmp_path / "said", mirror.write_yaml()
    with ExitStack() as life:
        process = start(life, file, said)
        until(lambda: ids(out) == [0])
        for number in range(1, 4):
            mirror.execute(f"INSERT INTO a VALUES ({number})")
            mirror.sync()
            until(lambda number=number: ids(out) == [*range(number + 1)])
        until(lambda: b"feed away: " in said.read_bytes())
        process.kill()
        process.wait()
        mirror.execute("INSERT INTO a VALUES (4)")
        mirror.sync()
        process = start(life, file, tmp_path / "told", "--feed", "out", "--quiet", "--json")
        until(lambda: ids(out) == [*range(5)])
        assert command_line.run(["feed", "--config", str(file), "--feed", "out"]) == 0, "somebody carries it"
        assert command_line.run(["feed", "--config", str(file), "--feed", "out", "--restart-from", "now"]) == 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    (run,) = json.loads((tmp_path / "told").read_text())
    assert (run["feed"], run["messages"], run["batch"]) == ("out", 1, 5)
    assert command_line.run(["feed", "--config", str(file), "--feed", "out"]) == 0
    assert ids(out) == [*range(5)]


def places(mirror: Mirror) -> list[int | None]:
    """Return the batch up to which each feed and each process that prints has come."""
    return [row["batch"] for row in mirror.metadata.read("feeds")]


@on_mysql
def test_what_is_recorded_is_printed_until_an_interrupt_and_staging_is_kept_for_it(
    mirror: Mirror, tmp_path: Path
) -> None:
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (0)")
    mirror.sync()
    said = tmp_path / "said"
    with ExitStack() as life:
        process = start(life, mirror.write_yaml(), said, "--quiet", command="tail")
        until(lambda: places(mirror) == [1])
        for number in (1, 2):
            mirror.execute(f"INSERT INTO a VALUES ({number})")
            mirror.sync()
        until(lambda: len(said.read_text().splitlines()) == 2)
        until(lambda: places(mirror) == [3])
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
    assert [line.partition(" insert ")[2].split("} ")[0] for line in said.read_text().splitlines()] == [
        f'{mirror.database}.a {{"id": {number}' for number in (1, 2)
    ]
    assert places(mirror) == [], "nothing keeps staging any more"
