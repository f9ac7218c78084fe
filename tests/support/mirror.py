"""A source, its lake, and the engine's calls on them, in the tests' own process and Spark session."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn
from unittest import mock

import pytest
from deltalake import DeltaTable

import comparison
from binlake import faults, pipeline
from binlake.config import MergeConfig, PipelineConfig
from binlake.delta import layout
from binlake.faults import FaultPoint
from binlake.lease import lease
from binlake.lease.lease import RecordedState
from binlake.maintain.maintain import MaintainReport, maintain
from binlake.phases.verification import VerifyRequest
from binlake.position import Position
from binlake.records import watermarks
from binlake.records.record import RunReport
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.source.catalog import database_charsets
from binlake.source.endpoint import Endpoint
from binlake.source.folder import Folder
from binlake.source.log import Origin
from binlake.source.server import Source
from binlake.storage import accounts
from binlake.store.metadata import Metadata
from servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from binlake.snapshot.snapshot import SnapshotResult
    from binlake.verify.verify import VerifyReport


Merge = Literal["rewrite", "spark", "mark"]
"""By Spark, or without it: files are rewritten, as in small tables, or their rows marked, as in large ones."""
MERGES: tuple[Merge, ...] = ("rewrite", "spark", "mark")

MOST_RUNS = 60
SHORT_LIVED = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1"}
"""For processes whose JVM lives for seconds: to optimise their code costs more than it gives back."""

on_mysql, on_mariadb = (pytest.mark.parametrize("server", [kind], indirect=True) for kind in ("mysql", "mariadb"))
"""For a test of what is the same on both: the corpus of cases shows what isn't."""


WAYS = ({"without_spark_mb": 16}, {"without_spark_mb": 0})
"""Settings of ``merge`` under which small tables are merged by the process itself, and by Spark."""


def in_the_soak(*values: Any) -> list[Any]:
    """Return values of a parameter whose tests run in the soak alone; tuples for several parameters."""
    several = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*value, marks=pytest.mark.soak) for value in several]


_MERGED = ("in process", "by Spark")
both_ways = pytest.mark.parametrize("way", WAYS, ids=_MERGED)
by_spark_in_the_soak = pytest.mark.parametrize("way", [WAYS[0], *in_the_soak(WAYS[1])], ids=_MERGED)
"""For tables beside mirrors, which the same code writes however the mirror is merged: one test each shows that Spark's
merges lead there, too."""


def merges_from(first: Merge) -> tuple[Merge, ...]:
    """Return the ways of merging of a test's syncs in their order, beginning with one of them.

    Spark merges in the tests that begin with it, a third: a sync of it takes as long as ten by the process.
    """
    at = MERGES.index(first)
    return tuple(way for way in MERGES[at:] + MERGES[:at] if first == "spark" or way != "spark")


class CutOff(BaseException):
    """As if the process had been killed here: nobody takes it for a failure."""


def _no_spark(why: str) -> NoReturn:
    pytest.fail("Spark was asked for")  # no error of code, which would cost its table alone


def sync_alone(mirror: Mirror) -> str:
    """A sync that must not ask for Spark; gives what it said."""
    said = io.StringIO()
    pipeline.sync(mirror.config, mirror.origin, _no_spark, Report(said))
    return said.getvalue()


@dataclass
class Mirror:
    """One database of a server, mirrored."""

    server: Server
    database: str
    folder: Path
    spark: SparkSession
    include: list[str] = field(default_factory=list)
    exclude: list[str] = field(default_factory=list)
    modes: list[dict[str, Any]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    server_id: int = 7100
    url: str = ""
    """The lake's address in the place of the folder."""
    files: Path | None = None
    """Read the log from this folder instead of the server."""
    reader: Literal["jdbc", "direct"] = "jdbc"
    """Who copies its snapshots: Spark, or the process by itself."""
    merges: tuple[Merge, ...] = MERGES
    """How the rows of its syncs are merged, in turn."""
    turns: int = 0
    """How many of its syncs took their turn."""

    @property
    def config(self) -> PipelineConfig:
        config = PipelineConfig.model_validate(
            {
                "source": {
                    "name": "tests",
                    "connection": self.files.as_uri() if self.files else "tests",
                    "server_id": self.server_id,
                },
                "tables": {
                    "include": self.include or [f"{self.database}.*"],
                    "exclude": self.exclude,
                    "modes": self.modes,
                },
                "lake": {"path": self.url or str(self.folder)},
                "snapshot": {"reader": self.reader},
                **self.options,
            }
        )
        accounts.use(config.root, config.lake.connection)
        return config

    def write_yaml(self) -> Path:
        """The configuration as a file, for the command line."""
        path = self.folder / "source.yaml"
        path.write_text(json.dumps(self.config.model_dump()))  # JSON is YAML
        return path

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("127.0.0.1", self.server.port, "root", "")

    @property
    def origin(self) -> Origin:
        return Folder(self.files) if self.files else self.endpoint

    @property
    def metadata(self) -> Metadata:
        return pipeline.metadata_of(self.config)

    def execute(self, *statements: str) -> None:
        self.server.execute(*statements, database=self.database)

    def follow_from_here(self) -> None:
        """Follow the log from the head on, without a snapshot: every table is born in the log."""
        from binlake.binlog.integrity import format_description

        with Source.open(self.endpoint) as source, lease.held(self.metadata) as held:
            file, offset, gtid_set = source.head()
            created = format_description(source.transport(self.server_id), file)
            start = Position(source.server_identity, file, offset, created, gtid_set)
            held.stand(RecordedState(held.control().batch, start, database_charsets(source)))

    def snapshot(self, *patterns: str, lock: Any = "flush") -> list[SnapshotResult]:
        return pipeline.bootstrap(
            self.config, self.origin, lambda _: self.spark, Report(), tables=list(patterns) or None, lock=lock
        )

    def sync(self, **options: Any) -> RunReport:
        """Sync; where the options don't say how rows are merged, by the next of ``merges``."""
        if "merge" in self.options:
            return self._sync(self.config, layout.FEW_BYTES, options)
        way = self.merges[self.turns % len(self.merges)]
        self.turns += 1
        merge = MergeConfig(without_spark_mb=0 if way == "spark" else 16)
        config = self.config.model_copy(update={"merge": merge})
        return self._sync(config, 0 if way == "mark" else layout.FEW_BYTES, options)

    def _sync(self, config: PipelineConfig, small: int, options: dict[str, Any]) -> RunReport:
        with mock.patch.object(layout, "FEW_BYTES", small):
            return pipeline.sync(config, self.origin, lambda _: self.spark, Report(), **options)

    @contextmanager
    def cut_off_at(self, point: FaultPoint, after: int = 0) -> Iterator[None]:
        """What runs in here is cut off when it reaches the point, which it must. after: how often it passes before."""
        left = after

        def cut_off(reached: FaultPoint) -> None:
            nonlocal left
            if reached == point:
                left -= 1
                if left < 0:
                    raise CutOff(point)

        before, faults.at_point = faults.at_point, cut_off
        try:
            with pytest.raises(CutOff):
                yield
        finally:
            faults.at_point = before

    def sync_cut_off(
        self,
        chance: random.Random,
        share: float,
        most: int | None = None,
        points: Sequence[FaultPoint] = ("epoch committed",),
    ) -> None:
        """A sync that is cut off after a share of its Delta commits, and begun again until it comes to its end.

        most: how many of its runs are cut off; without it all until one comes through, which each must get nearer to.
        points: where it is cut off, in the place of its commits.
        """

        def cut_off(point: FaultPoint) -> None:
            if point in points and chance.random() < share:
                raise CutOff(point)

        before = faults.at_point
        try:
            for run in range(MOST_RUNS):
                faults.at_point = cut_off if most is None or run < most else before
                with suppress(CutOff):
                    self.sync()
                    return
        finally:
            faults.at_point = before
        raise AssertionError(f"not done after {MOST_RUNS} runs")

    def sync_cut_off_at_each(self, points: Sequence[FaultPoint], ways: Sequence[dict[str, int]]) -> int:
        """Sync until a run comes to its end, each cut off at the next of these points; return how many were.

        ways: settings of ``merge`` by which the runs merge, in turn.
        """
        for run in range(MOST_RUNS):
            self.options["merge"] = ways[run % len(ways)]
            try:
                with self.cut_off_at(points[run % len(points)]):
                    self.sync()
            except pytest.fail.Exception:  # nothing cut it off
                return run
        raise AssertionError(f"not done after {MOST_RUNS} runs")

    def maintain(self, *patterns: str, patience: float = 0) -> MaintainReport:
        return maintain(
            self.config, lambda _: self.spark, self.metadata, Report(), tables=list(patterns) or None, patience=patience
        )

    def verify(self, *patterns: str) -> VerifyReport:
        asked = VerifyRequest(list(patterns) or None)
        return pipeline.verify(self.config, self.origin, lambda _: self.spark, Report(), asked)

    def path(self, table: str) -> str:
        return self.config.table_path(TableName(self.database, table))

    def version(self, table: str) -> int:
        return int(DeltaTable(self.path(table)).version())

    def assert_equal(self, *tables: str, without: Collection[str] = ()) -> None:
        """Each table's Delta copy equals the server's, by a comparison that shares no code with the engine. without:
        columns that the lake must not have."""
        for table in tables:
            comparison.assert_equal(self.server, self.database, table, self.path(table), without=without)

    def commits(self, *tables: str) -> Counter[tuple[str, int, int]]:
        """How often each (life, batch, step) was committed to the Delta tables of these, so far as they are there."""
        logs = [DeltaTable(self.path(table)) for table in tables if DeltaTable.is_deltatable(self.path(table))]
        user_metadata = [json.loads(commit.get("userMetadata") or "{}") for log in logs for commit in log.history()]
        notes = [note["binlake"] for note in user_metadata if "binlake" in note]
        return Counter((note["life"], note["batch"], note["step"]) for note in notes if "step" in note)

    def assert_each_once(self, *tables: str) -> None:
        for table in tables:
            assert set(self.commits(table).values()) == {1}

    def watermark(self, table: str) -> dict[str, Any]:
        rows = [row.values() for row in watermarks.read(self.metadata) if row.table == table]
        assert rows, f"{table} has no watermark"
        return max(rows, key=lambda row: row["updated_us"])

    def history(self) -> list[dict[str, Any]]:
        rows = self.metadata.read("ddl_history")
        return sorted(rows, key=lambda row: (row["batch"], row["file"], row["offset"]))
