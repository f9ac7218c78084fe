"""Weeks of following in hours: ``weeks.py [--batches N] [--minutes N] [--seconds N] [--keep FILE]``.

A source of three tables is followed by ``pipeline.follow``, with a small change behind each batch, and after each batch
the clock continues by SECONDS: of five, 120,000 batches are a week; of sixty, 10,080. What happens by the minute, the
hour or the day happens by that clock: commits grow old, batches are thinned, files that were replaced go. The clock is
moved for this process and for MySQL by moved_clock.c, which wants a C compiler. Ends after so many batches, or minutes
of the machine's clock.

Prints, for each stretch of batches, the CPU time of a batch, memory, and what lies in the lake, and keeps these figures
in FILE as JSON, from which docker/local/weeks_pictures.py draws. In the end every table equals the server's, a pinned
batch can still be read, and nothing has grown but what is promised to stay.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parents[1] / "docker" / "local")]

from deltalake import DeltaTable  # noqa: E402

import comparison  # noqa: E402
from bench_follow import Usage  # noqa: E402
from binlake import config as configuration, lake, pipeline  # noqa: E402
from binlake.config import PipelineConfig  # noqa: E402
from binlake.interrupts import Ending  # noqa: E402
from binlake.lake import pins  # noqa: E402
from binlake.lake.lake_versions import lake_versions  # noqa: E402
from binlake.phases import follow, upkeep_beside  # noqa: E402
from binlake.phases.follow import FollowPace  # noqa: E402
from binlake.records.decisions import Reason  # noqa: E402
from binlake.report import Report  # noqa: E402
from binlake.schema.table import TableName  # noqa: E402
from binlake.source import log as source_log  # noqa: E402
from binlake.store.table_schemas import SCHEMAS  # noqa: E402
from servers import Server  # noqa: E402

STRETCH, PACED = 1_000, 50
"""Batches of a printed line, and after which minutes and hours are timed again."""
TABLES, ROWS = ("grows", "changes", "shrinks"), 2_000
LATE, MOST_MS = 1.3, 50.0
"""What the last fifth of the lines may be of the second one in CPU time and memory; milliseconds of CPU in which any
table's log opens."""
_MOST_MOVES = 4_000_000
_YAML = """
source: {name: weeks, connection: weeks, server_id: 6700}
tables: {include: ["weeks.*"]}
snapshot: {reader: direct}
lake: {path: LAKE}
"""


@dataclass(frozen=True)
class Course:
    """How far it goes. seconds: from one batch to the next by the moved clock. minutes: of the machine's clock, at
    most. keep: the file for the figures."""

    batches: int
    minutes: float
    seconds: int
    keep: Path | None


@dataclass(frozen=True)
class Stand:
    """What a stretch of batches left.

    cpu_ms: of a batch, with its part of the upkeep. opened_ms: of the dearest opening of any table's log. log_files,
    longest_log: in all logs, and in the longest. files: in the whole lake. known, readable: batches that metadata tell
    of, and versions of the lake that can be read.
    """

    batches: int
    days: float
    cpu_ms: float
    megabytes: float
    opened_ms: float
    log_files: int
    longest_log: int
    files: int
    lake_megabytes: float
    known: int
    readable: int


class Clock:
    """The clock that this process and its children have."""

    def __init__(self, seconds: int) -> None:
        self._step = seconds * 1_000_000_000
        self._move = ctypes.CDLL(os.environ["LD_PRELOAD"]).moved_clock_to
        self._move.restype, self._move.argtypes = ctypes.c_int64, [ctypes.c_int64]
        self._next = time.time_ns()

    def go_on(self) -> None:
        self._next += self._step
        self._move(self._next)


class Weeks:
    """Beside the batches: changes rows, moves the clock, looks, and ends it all."""

    def __init__(self, server: Server, config: PipelineConfig, course: Course, ending: Ending) -> None:
        self._server, self._config, self._course, self._ending = server, config, course, ending
        self._ends = time.monotonic() + course.minutes * 60
        self._metadata = pipeline.metadata_of(config)
        self._chance, self._clock = random.Random(7), Clock(course.seconds)
        self._connection = server.connect(database="weeks")
        self._newest, self._least, self._number = ROWS, 1, 0
        self._seen: int | None = None
        self._cpu, self._wall = time.process_time(), time.monotonic()
        self.expected: list[tuple[object, ...]] = []
        self.stands: list[Stand] = []

    def begin(self, config: PipelineConfig, batch: int | None) -> None:
        if batch is not None and batch == self._seen:
            return
        self._seen = batch
        if batch is not None:
            self._number += 1
            if self._number % PACED == 0:
                self._pace()
            if self._number % STRETCH == 0:
                self._look()
            if self._number == PACED:
                pins.pin(self._metadata, batch, "early", Reason("soak", "to keep it"))
                self.expected = list(self._server.execute("SELECT id, v FROM weeks.changes ORDER BY id"))
        if self._number >= self._course.batches or time.monotonic() > self._ends:
            self._ending.asked = True
            return
        self._clock.go_on()
        self._change()

    def end(self) -> None:
        self._connection.close()

    def _change(self) -> None:
        with self._connection.cursor() as cursor:
            kind = self._number % 3
            if kind == 0:
                self._newest += 1
                cursor.execute("INSERT INTO grows VALUES (%s, 'new', NOW())", (self._newest,))
            elif kind == 1:
                changed = f"at {self._number}", self._chance.randrange(1, ROWS + 1)
                cursor.execute("UPDATE changes SET v = %s, at = NOW() WHERE id = %s", changed)
            else:
                cursor.execute("DELETE FROM shrinks WHERE id = %s", (self._least,))
                cursor.execute("INSERT INTO shrinks VALUES (%s, 'again', NOW())", (self._least + ROWS,))
                self._least += 1
        self._connection.commit()

    def _pace(self) -> None:
        """Let what happens each minute and each hour of a monotonic clock happen after as many batches."""
        now = time.monotonic()
        each, self._wall = (now - self._wall) / PACED, now
        follow._SUMMED_EVERY = each * 60 / self._course.seconds
        upkeep_beside._EVERY = each * 3600 / self._course.seconds

    def _look(self) -> None:
        cpu = time.process_time()
        tables = {Path(self._config.table_path(TableName("weeks", table))) for table in TABLES}
        tables |= {Path(self._metadata.location(name)) for name in SCHEMAS}
        logs = {table: len(list((table / "_delta_log").glob("*"))) for table in tables if table.is_dir()}
        sizes = [size for folder, _, names in _walked(self._config) for size in _sizes(folder, names)]
        versions = lake_versions(self._metadata, self._config.maintain.history_hours)
        stand = Stand(
            self._number,
            round(self._number * self._course.seconds / 86400, 2),
            round((cpu - self._cpu) / STRETCH * 1e3, 1),
            round(Usage.of(os.getpid()).megabytes),
            round(max(map(_opened_ms, logs)), 1),
            sum(logs.values()),
            max(logs.values()),
            len(sizes),
            round(sum(sizes) / 1e6, 1),
            self._metadata.count("batches", "state = 'recorded'"),
            sum(version.readable for version in versions),
        )
        self.stands.append(stand)
        print(" ".join(f"{value:>14}" for value in astuple(stand)), flush=True)
        if self._course.keep:
            kept = {"seconds": self._course.seconds, "stands": [asdict(stand) for stand in self.stands]}
            self._course.keep.write_text(json.dumps(kept, indent=1) + "\n")
        self._cpu = time.process_time()


def _walked(config: PipelineConfig) -> Sequence[tuple[str, list[str], list[str]]]:
    return list(os.walk(config.root))


def _sizes(folder: str, names: Sequence[str]) -> Iterator[int]:
    """Yield the bytes of files; the upkeep beside may have removed some since they were listed."""
    for name in names:
        with suppress(FileNotFoundError):
            yield os.stat(f"{folder}/{name}").st_size


def _opened_ms(table: Path) -> float:
    """Return the milliseconds of CPU that it takes to open a table that nobody has open, the least of three times: the
    upkeep may be at work beside it."""
    times = []
    for _ in range(3):
        began = time.process_time()
        DeltaTable(str(table))
        times.append((time.process_time() - began) * 1e3)
    return min(times)


class NoSpark:
    def __call__(self, why: str, /) -> NoReturn:
        raise AssertionError(f"Spark is asked for: {why}")

    def rest(self, seconds: float) -> None:
        pass


def main(course: Course) -> None:
    follow._SUMMED_EVERY, upkeep_beside._FIRST, upkeep_beside._EVERY = 1.0, 10.0, 60.0
    with tempfile.TemporaryDirectory(prefix="binlake-weeks-") as home, Server("mysql") as server:
        file = Path(home) / "weeks.yaml"
        file.write_text(_YAML.replace("LAKE", f"{home}/lake"))
        os.environ |= {"AIRFLOW_CONN_WEEKS": server.uri(), "XDG_STATE_HOME": f"{home}/state"}
        config = configuration.load(file)
        prepare(server)
        origin, ending = source_log.origin(config.source), Ending()
        pipeline.bootstrap(config, origin, NoSpark(), Report(quiet=True))
        weeks = Weeks(server, config, course, ending)
        print(" ".join(f"{field.name:>14}" for field in fields(Stand)), flush=True)
        pace = FollowPace(every=0.0, spark_idle=60.0)
        followed = pipeline.follow(lambda: config, origin, NoSpark(), Report(quiet=True), pace, ending, [weeks])
        for table in TABLES:
            comparison.assert_equal(server, "weeks", table, config.table_path(TableName("weeks", table)))
        early = lake.open(file).at(name="early").arrow("weeks.changes", columns=["id", "v"])
        assert sorted(zip(*early.to_pydict().values(), strict=True)) == weeks.expected
        print(f"equal after {followed.batches:,} batches, and so is the pinned one")
    assert_flat(weeks.stands)


def prepare(server: Server) -> None:
    server.execute("CREATE DATABASE weeks")
    for table in TABLES:
        rows = ", ".join(f"({row}, 'row {row}', NOW())" for row in range(1, ROWS + 1))
        server.execute(
            f"CREATE TABLE weeks.{table} (id BIGINT PRIMARY KEY, v VARCHAR(40), at DATETIME)",
            f"INSERT INTO weeks.{table} VALUES {rows}",
        )


def assert_flat(stands: Sequence[Stand]) -> None:
    early, late = stands[min(1, len(stands) - 1)], stands[-max(1, len(stands) // 5) :]
    grown = {
        name: max(getattr(stand, name) for stand in late) / getattr(early, name) for name in ("cpu_ms", "megabytes")
    }
    opened = max(stand.opened_ms for stand in late)
    print("late to early:", {name: round(value, 2) for name, value in grown.items()}, "opened in", opened, "ms")
    assert max(grown.values()) <= LATE, grown
    assert opened <= MOST_MS, opened


def under_moved_clock() -> NoReturn:
    """Run this program again, under a clock that can be moved, and end."""
    if shutil.which("cc") is None:
        sys.exit("weeks.py compiles moved_clock.c, and there is no C compiler: install gcc and libc6-dev")
    with tempfile.TemporaryDirectory(prefix="binlake-clock-") as folder:
        library, moves = Path(folder) / "moved_clock.so", Path(folder) / "moves"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, HERE / "moved_clock.c", "-ldl"], check=True)
        with moves.open("wb") as file:
            file.truncate(8 + 16 * _MOST_MOVES)
        environment = {**os.environ, "LD_PRELOAD": str(library), "MOVED_CLOCK": str(moves)}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)


if __name__ == "__main__":
    if "MOVED_CLOCK" not in os.environ:
        under_moved_clock()
    options = argparse.ArgumentParser()
    options.add_argument("--batches", type=int, default=10_000)
    options.add_argument("--minutes", type=float, default=60.0)
    options.add_argument("--seconds", type=int, default=5)
    options.add_argument("--keep", type=Path)
    main(Course(**vars(options.parse_args())))
