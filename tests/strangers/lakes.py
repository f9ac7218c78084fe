"""Lakes that follow a server from now on, and what they say once a script was fed again."""

from __future__ import annotations

import random
import re
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql

from binlake.errors import TableError, UsageError
from mirror import Merge, Mirror
from servers import Server
from strangers.feeding import Connections, Fed, end_prepared
from strangers.reduce import reduced
from strangers.verdict import SYSTEM, Verdict, drop_all, judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SNAPSHOT = Fed("", "-- snapshot")
"""Stands in a script where all tables that are there were snapshotted."""


class Lakes:
    """One after the other, each of an emptied server."""

    def __init__(
        self, server: Server, spark: SparkSession, folder: Path, chance: random.Random, merges: tuple[Merge, ...]
    ) -> None:
        self.server, self.spark, self.folder, self.merges = server, spark, folder, merges
        self.options: dict[str, Any] = {
            "invalid_dates": "keep_text",
            "policies": {"on_unlogged_cascade": chance.choice(["stop", "derive", "resnapshot"])},
        }
        self._made = 0

    def fresh(self, *, snapshots: bool) -> Mirror:
        """An empty server, and a lake that follows its log from here.

        snapshots: there will be some. The lake then holds a table at once: one of whose tables all are snapshotted
        begins at that position.
        """
        drop_all(self.server)
        shutil.rmtree(self.folder / f"lake{self._made}", ignore_errors=True)
        self._made += 1
        folder = self.folder / f"lake{self._made}"
        folder.mkdir()
        exclude = [f"{name}.*" for name in SYSTEM]
        mirror = Mirror(self.server, "", folder, self.spark, include=["*.*"], exclude=exclude, options=self.options)
        mirror.merges = self.merges
        mirror.follow_from_here()
        if snapshots:
            self.server.execute("CREATE DATABASE held", "CREATE TABLE held.t (a INT)")
            mirror.sync()
        return mirror

    def verdicts(self, database: str, script: Sequence[Fed]) -> list[Verdict]:
        """A script fed to an empty server, over connections that begin in the database."""
        mirror = self.fresh(snapshots=SNAPSHOT in script)
        self.server.execute(f"CREATE DATABASE `{database}`")
        connections = Connections(self.server)
        try:
            for fed in script:
                if fed == SNAPSHOT:
                    connections.rest()
                    snapshot(mirror)
                else:
                    with suppress(pymysql.err.MySQLError, ValueError):
                        connections.run(fed.connection, fed.text, database)
        finally:
            connections.rest()
            connections.close()
            end_prepared(self.server)
        return verdicts_of(mirror)

    def smallest(self, verdict: Verdict, script: Sequence[Fed], seconds: float) -> list[Fed]:
        """The fewest of a file's statements after which the table has the same failure; none where they alone don't do
        it."""

        def still(part: Sequence[Fed]) -> bool:
            return any(other.kind == verdict.kind for other in self.verdicts(database, part))

        end = time.monotonic() + seconds
        database = verdict.database or script[0].text.split("`")[1]
        for part in (_of_table(script, verdict), _of_database(script, database), list(script)):
            if part and time.monotonic() < end and still(part):
                return reduced(part, still, end - time.monotonic())
        return []


def _of_table(script: Sequence[Fed], verdict: Verdict) -> list[Fed]:
    """The statements of its database that name the table or set something; none where no table is known."""
    named = re.compile(rf"\b(set|{re.escape(verdict.table)})\b" if verdict.table else "(?!)", re.IGNORECASE)
    return [fed for fed in _of_database(script, verdict.database) if fed == SNAPSHOT or named.search(fed.text)]


def _of_database(script: Sequence[Fed], database: str) -> list[Fed]:
    """From its creation to that of the file's next one, and what was set before."""
    settings = [fed for fed in script if re.match(r"set\b", fed.text, re.IGNORECASE)]
    begins = [number for number, fed in enumerate(script) if fed.text == f"CREATE DATABASE `{database}`"]
    if not begins:
        return list(script)
    (first,) = begins
    ends = [number for number, fed in enumerate(script) if number > first and fed.text.startswith("CREATE DATABASE `")]
    within = script[first + 1 : min(ends, default=len(script))]
    return [fed for fed in settings if fed not in within] + list(within)


def snapshot(mirror: Mirror, databases: Sequence[str] = ()) -> None:
    """What is there, or that of some databases. Tables that can't be snapshotted are left to the log."""
    with suppress(TableError, UsageError):
        mirror.snapshot(*(f"{database}.*" for database in databases))


def verdicts_of(mirror: Mirror) -> list[Verdict]:
    """The verdicts once the lake is synced. A sync that fails is one of them."""
    try:
        mirror.sync()
    except Exception as error:
        return [Verdict("", "", "crash", f"{type(error).__name__}: {error}")]
    return judge(mirror)
