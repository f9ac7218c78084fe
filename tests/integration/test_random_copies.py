"""Random rows and schema changes while tables are copied beside the batches, cut off anywhere: the mirror is equal.

``BINLAKE_WALK_SECONDS`` a server (default 6) says how far, ``BINLAKE_WALK_SEED`` which way.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING
from unittest import mock

from binlake import faults, pipeline
from binlake.errors import LeaseHeld, TableError
from binlake.faults import FaultPoint
from binlake.lease import lease
from binlake.phases import resume
from binlake.records import watermarks
from binlake.report import Report
from binlake.snapshot import snapshot
from binlake.snapshot.snapshot import SnapshotTask
from mirror import CutOff
from random_walk import Walk

if TYPE_CHECKING:
    from mirror import Mirror

SECONDS = float(os.environ.get("BINLAKE_WALK_SECONDS", "6"))
SEED = int(os.environ.get("BINLAKE_WALK_SEED", "20261"))
MOST_TRIES = 20


class Copies:
    """Tables that are copied while the walk continues, again and again."""

    def __init__(self, mirror: Mirror, walk: Walk) -> None:
        self.mirror, self.walk, self.random = mirror, walk, walk.random
        self.outcomes: Counter[str] = Counter()
        self._is_copying = False

    def round(self) -> None:
        """Leave some tables out, take them in again while they change, and sync until all follow."""
        self._go_on()
        out = self.random.sample(self.walk.tables, 3)
        self.mirror.exclude = [f"{self.mirror.database}.{table}" for table in out]
        self.mirror.execute(*(f"ALTER TABLE {table} COMMENT 'out'" for table in out))
        self.mirror.sync()
        self._forget(out)
        self.mirror.exclude = []
        for _ in range(MOST_TRIES):
            self._copy()
            self._go_on()
            self.mirror.sync()
            if self._all_follow():
                return self.mirror.assert_equal(*self.walk.tables)
        raise AssertionError(f"not all follow: {watermarks.read(self.mirror.metadata)}")

    def _forget(self, tables: list[str]) -> None:
        """Forget that tables were ever copied."""
        rows = [row for row in self.mirror.metadata.read("watermarks") if row["table"] in tables]
        with lease.held(self.mirror.metadata) as held:
            watermarks.write(held.metadata, [], [row["table_id"] for row in rows])

    def _go_on(self) -> None:
        for _ in range(self.random.randint(1, 15)):
            self.walk.step()

    def _copy(self) -> None:
        connections = self.random.choice([1, 2])
        self.mirror.options["snapshot"] = {"reader": "direct", "connections": connections}
        lock = self.random.choice(["flush", "tables", "none"])
        task = partial(SnapshotTask, chunk_rows=self.random.choice([3, 1_000_000]))
        with (
            mock.patch.object(faults, "at_point", self._reached),
            mock.patch.object(snapshot, "SnapshotTask", task),
            mock.patch.object(resume, "_TURN", 0.0),
        ):
            try:
                session = self.mirror.spark
                pipeline.bootstrap(
                    self.mirror.config, self.mirror.origin, lambda _: session, Report(quiet=True), lock=lock
                )
                self.outcomes["copied"] += 1
            except CutOff as cut:
                self.outcomes[f"cut off at {cut}"] += 1
            except (TableError, LeaseHeld) as error:
                self.outcomes[error.message.replace(self.mirror.database, "")[3:60]] += 1

    def _reached(self, point: FaultPoint) -> None:
        if self._is_copying:
            return
        self._is_copying = True  # what a sync reaches in here isn't the copy's
        try:
            if point == "chunks written" and self.random.random() < 0.7:  # DDL would wait for a copy's open connection
                self._go_on()
                self.mirror.sync()
            if self.random.random() < 0.03:
                raise CutOff(point)
        finally:
            self._is_copying = False

    def _all_follow(self) -> bool:
        rows = {row["table"]: row for row in self.mirror.metadata.read("watermarks") if row["status"] != "dropped"}
        return {table: row["status"] for table, row in rows.items()} == dict.fromkeys(self.walk.tables, "following")


def test_random_copies_end_equal(mirror: Mirror) -> None:
    mirror.follow_from_here()
    walk = Walk(mirror.server, mirror.database, SEED)
    copies, end = Copies(mirror, walk), time.monotonic() + SECONDS
    print(f"seed {SEED}")
    try:
        mirror.sync()
        rounds = 0
        while time.monotonic() < end or not rounds:
            copies.round()
            rounds += 1
        print(f"{len(walk.log)} statements, {rounds} rounds", *copies.outcomes.items(), sep="\n")
    except BaseException:
        print(f"seed {SEED}, statement {len(walk.log)}; the last ones:", *walk.log[-80:], sep="\n")
        raise
    finally:
        walk.close()
