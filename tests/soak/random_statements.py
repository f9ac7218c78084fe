"""A server under random statements, while syncs, drivers and the server itself are killed and started again; ends with
an independent comparison, and with verify's: ``random_statements.py KIND MINUTES [SEED]``.

Statements continue beside the syncs, XA transactions among them. Every process is a real one. Only the loopback is
used, and it ends by itself.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parents[1] / "docker" / "local")]

import pymysql  # noqa: E402

import comparison  # noqa: E402
from mirror import Mirror  # noqa: E402
from random_walk import Walk  # noqa: E402
from servers import KINDS, Kind, Server  # noqa: E402

DATABASE = "soak"
_ROLLED_BACK = 1402
"""MariaDB ends a prepared transaction that changed nothing with its connection."""
CALM = 600
"""Seconds that the syncs at the end may take."""


class Writer:
    """Random statements in a thread of its own, held back while the server is down."""

    def __init__(self, server: Server, seed: int) -> None:
        self.walk = Walk(server, DATABASE, seed)
        self.idle = threading.Lock()
        self._server = server
        self._stop = threading.Event()
        self._prepared: list[str] = []
        self._random = random.Random(seed + 1)
        self._count = 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="writer")

    def __enter__(self) -> Writer:
        self._work = self._pool.submit(self._run)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._work.result()

    def _run(self) -> None:
        while not self._stop.is_set():
            with self.idle:
                if self._random.random() < 0.03:
                    self._xa()
                else:
                    self.walk.step()
            time.sleep(self._random.random() * 2)  # faster than a sync merges, batches would only grow
        with self.idle:
            while self._prepared:
                self._end_xa()

    def _xa(self) -> None:
        """Prepares a transaction, or ends one that was prepared: the walk's tables hold still for it."""
        if self._prepared:
            self._end_xa()
            return
        self._count += 1
        xid = f"'soak{self._count}'"
        table = self._random.choice(self.walk.tables)
        with suppress(pymysql.err.MySQLError), self._server.connect(database=DATABASE) as connection:
            cursor = connection.cursor()
            for statement in (f"XA START {xid}", f"DELETE FROM {table} WHERE id % 5 = 1", f"XA END {xid}"):
                cursor.execute(statement)
            cursor.execute(f"XA PREPARE {xid}")
            self._prepared.append(xid)
        # DDL would wait for it, and the walk with it: so it ends before the next statement, if not before a sync's end
        if self._random.random() < 0.5 and self._prepared:
            time.sleep(self._random.random() * 20)
        while self._prepared:
            self._end_xa()

    def _end_xa(self) -> None:
        xid = self._prepared.pop()
        end = self._random.choice(["COMMIT", "ROLLBACK"])
        try:
            self._server.execute(f"XA {end} {xid}")
        except pymysql.err.OperationalError as error:
            if error.args[0] != _ROLLED_BACK:
                raise


class Soak:
    def __init__(self, server: Server, folder: Path, seed: int) -> None:
        self.server = server
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.mirror = Mirror(server, DATABASE, folder, None)  # type: ignore[arg-type]  # its syncs are processes
        self.yaml = self.mirror.write_yaml()

    def command(self, verb: str, *arguments: str) -> subprocess.Popen[str]:
        command = [str(Path(sys.executable).with_name("binlake")), verb, "--config", str(self.yaml), *arguments]
        environment = {**os.environ, "AIRFLOW_CONN_TESTS": self.server.uri()}
        return subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def sync(self, seconds: float = CALM) -> int:
        process = self.command("sync")
        said, _ = process.communicate(timeout=seconds)
        self.counts[f"syncs that ended with {process.returncode}"] += 1
        if process.returncode not in (0, 3):
            raise AssertionError(f"a sync ended with {process.returncode}:\n{said}")
        return process.returncode

    def killed_sync(self) -> None:
        process = self.command("sync")
        time.sleep(self.random.uniform(0.5, 30))
        with suppress(ProcessLookupError):
            # the driver alone, or with its JVM and workers
            (os.kill if self.random.random() < 0.5 else os.killpg)(process.pid, signal.SIGKILL)
            self.counts["syncs killed"] += 1
        process.communicate(timeout=CALM)

    def sync_over_a_crash(self, writer: Writer) -> None:
        process = self.command("sync")
        time.sleep(self.random.uniform(0.5, 15))
        with writer.idle:
            self.server.kill() if self.random.random() < 0.7 else self.server.stop()
            self.counts["servers killed or stopped"] += 1
            time.sleep(self.random.random() * 3)
            self.server.start()
            writer.walk.reconnect()
        said, _ = process.communicate(timeout=CALM)
        if process.returncode not in (0, 3):
            raise AssertionError(f"a sync ended with {process.returncode}:\n{said}")

    def prove(self, tables: list[str]) -> None:
        """The lake equals the server, each commit is there once, and verify says so too."""
        for _ in range(6):
            if self.sync() == 0:
                break
        rows = {row["table"]: row for row in self.mirror.metadata.read("watermarks") if row["status"] != "dropped"}
        standing = {
            table: (row["status"], row["reason"]) for table, row in rows.items() if row["status"] != "following"
        }
        assert standing == {}, standing
        for table in tables:
            comparison.assert_equal(self.server, DATABASE, table, self.mirror.path(table))
            commits = self.mirror.commits(table)
            assert set(commits.values()) <= {1}, commits.most_common(3)
        process = self.command("verify")
        said, _ = process.communicate(timeout=CALM)
        assert process.returncode == 0, said


@contextmanager
def _server(kind: Kind) -> Iterator[Server]:
    with Server(kind) as server:
        server.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        yield server


def soak(kind: Kind, minutes: float, seed: int) -> None:
    print(f"{kind}: {minutes:g} minutes, seed {seed}", flush=True)
    with _server(kind) as server, tempfile.TemporaryDirectory(prefix="binlake-soak-") as folder:
        made = Soak(server, Path(folder), seed)
        made.mirror.follow_from_here()
        end = time.monotonic() + minutes * 60
        with Writer(server, seed) as writer:
            while time.monotonic() < end:
                chosen: Any = made.random.random()
                if chosen < 0.4:
                    made.sync()
                elif chosen < 0.75:
                    made.killed_sync()
                else:
                    made.sync_over_a_crash(writer)
                print(f"  {len(writer.walk.log):,} statements; {dict(made.counts)}", flush=True)
        try:
            made.prove(writer.walk.tables)
        except BaseException:
            print("the last statements:", *writer.walk.log[-60:], sep="\n  ")
            raise
        print(f"{kind}: equal after {len(writer.walk.log):,} statements; {dict(made.counts)}", flush=True)


if __name__ == "__main__":
    wanted = KINDS if sys.argv[1] == "both" else [sys.argv[1]]
    for kind in wanted:
        soak(kind, float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else random.randint(1, 10**6))  # type: ignore[arg-type]
