"""The world of the protocol, in which the real pipeline runs: without a network, Spark or a JVM.

The source is small and in memory (model_server), so are the metadata tables (model_store). The lake is a folder of real
Delta tables, which the engine reads and commits to as it always does; what it asks Spark for is done there, too
(model_lake). Workers run one at a time; each stops where it is told to: at the pipeline's own fault points, and before
accesses to what workers share (model_worker).
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest

from binlake import faults, pipeline
from binlake.binlog import integrity
from binlake.config import PipelineConfig
from binlake.delta import layout, opened_tables
from binlake.errors import LeftToSpark
from binlake.lease import held_row, holder
from binlake.merge import apply, conflicts, lake_table
from binlake.merge.engine import by_spark, in_process
from binlake.merge.mirror_epoch import MirrorEpoch
from binlake.phases import bootstrap, copies_beside, plan, refused_tables, resume, snapshots
from binlake.position import Position
from binlake.records import watermarks
from binlake.report import Report
from binlake.retries import steady
from binlake.schema.table import TableName
from binlake.serialization import loads
from binlake.snapshot import snapshot
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from binlake.staging import stage
from binlake.storage import files
from binlake.store import metadata
from model_lake import Lake, Session, Transaction, merge_by_row
from model_server import CREATED, Server, two_chunks
from model_store import Store
from model_worker import Lock, RenewingEvent, RenewingThread, Schedule, Worker, submit_at_once

TABLES = tuple(TableName("d", name) for name in ("a", "b", "heap"))
KEYLESS_TABLE = TABLES[-1]
NO_PATIENCE: dict[str, Any] = {"_WAITED": dict.fromkeys(held_row._WAITED, 0.0), "PATIENCE": 0.0}
"""Nobody gives anything back while a worker waits: the others sleep."""
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where folders lie in memory."""


def _with_large_tables(merge: Callable[..., None]) -> Callable[..., None]:
    """Let Spark merge every other batch of a table without a key, as if it were a large one."""

    def merge_small(epoch: MirrorEpoch) -> None:
        if not epoch.schema.key and epoch.batch % 2:
            raise LeftToSpark("the table is large")
        merge(epoch)

    return merge_small


def _by_turns() -> Callable[..., bool]:
    """Let this process commit every other snapshot, and Spark those between."""
    turns = cycle([True, False])
    return lambda config, session: next(turns)


class World:
    """Everything outside a worker. ``check`` raises AssertionError where a promise is broken."""

    def __init__(self) -> None:
        self.clock = 1_000_000_000
        self.folder = tempfile.mkdtemp(prefix="binlake-model-", dir=_MEMORY)
        self.failures: list[AssertionError] = []
        self.loses_answer = False
        self.begun: set[TableName] = set()
        """Tables that a snapshot began to follow."""
        self.schedule = Schedule()
        self.server = Server(lambda: self.clock, self.schedule.reach)
        self.store = Store(self.schedule.reach, self.moved)
        self.lake = Lake(self.schedule.reach)
        self.patch = pytest.MonkeyPatch()
        self.config = PipelineConfig.model_validate(
            {
                "source": {"name": "s", "connection": "s", "server_id": 1, "server_ids": 1},
                "tables": {"include": ["d.*"]},
                "lake": {"path": self.folder},
                "policies": {"on_drop_table": "keep"},
            }
        )
        self._position: Position | None = None
        self._jumps: set[Position] = set()
        try:
            self._install()
        except BaseException:
            self.close()
            raise

    def _install(self) -> None:
        self._install_server()
        self._install_spark()
        self._install_processes()
        put = self.patch.setattr
        put(faults, "at_point", self._fault)
        put(metadata, "Metadata", lambda path: self.store)
        put(opened_tables, "opened", self.lake.opened)
        put(opened_tables, "is_table", self.lake.is_table)
        put(conflicts, "_TRYING", replace(conflicts._TRYING, pause=steady(0)))
        put(snapshot, "_PAUSE", 0)
        put(resume, "_TURN", 0.0)
        put(resume, "_GAP", 0.0)
        put(apply._Group, "_run_step", self.schedule.stopping_at("begin step", apply._Group._run_step))
        put(files, "write_if_absent", self.schedule.stopping_at("end commit", self._answering(files.write_if_absent)))
        for function, point in (
            ("write_text", "write manifest"),
            ("read_text", "read manifest"),
            ("remove_folder", "remove folder"),
        ):
            put(files, function, self.schedule.stopping_at(point, getattr(files, function)))

    def _install_server(self) -> None:
        put = self.patch.setattr
        put(Source, "open", self._opened)
        for module in (bootstrap, snapshots):
            put(module, "included_tables", lambda source, config: sorted(self.server.tables))
        put(copies_beside, "unlogged_cascades", lambda source, databases: [])
        put(bootstrap, "with_all_gtids", lambda transport, position: position)
        put(refused_tables, "refused_for_gaps", lambda source, names: {})
        put(refused_tables, "refused_for_engines", lambda source, names: {})
        put(refused_tables, "refused_for_cascades", lambda config, source, names: {})
        put(snapshot, "format_description", lambda transport, file: CREATED)
        put(snapshot, "read_tables", self.server.source_tables)
        put(snapshot, "plan", two_chunks)
        put(snapshot, "run_wave", self.server.run_wave)
        put(integrity, "describe_file", lambda transport, file: SimpleNamespace(created=CREATED))
        put(plan, "transaction_boundaries", self.server.boundaries)
        put(stage, "read", self.server.read_slice)

    def _install_spark(self) -> None:
        put = self.patch.setattr
        put(lake_table, "OptimisticTransaction", Transaction)
        put(by_spark, "_merge_by_row", merge_by_row)
        put(in_process, "merge", _with_large_tables(in_process.merge))
        put(snapshots, "_is_in_process", _by_turns())

    def _install_processes(self) -> None:
        put, schedule = self.patch.setattr, self.schedule
        put(metadata, "time", SimpleNamespace(time_ns=lambda: self.clock * 1000))
        put(holder, "os", schedule)
        put(holder, "_machine", schedule.machine)
        put(holder, "_start_of", schedule.start_of)
        threads = {"Lock": Lock, "Event": RenewingEvent, "Thread": lambda target, **_: RenewingThread(schedule, target)}
        put(held_row, "threading", SimpleNamespace(**threads))
        for module, name in ((held_row, "_WAITED"), (resume, "PATIENCE"), (copies_beside, "PATIENCE")):
            put(module, name, NO_PATIENCE[name])
        put(ThreadPoolExecutor, "submit", submit_at_once)

    def expire(self) -> None:
        """Let so much time go by that whoever sleeps loses its lease."""
        self.clock += (holder.LIFETIME + 1) * 1_000_000

    def mark_rows(self) -> None:
        """Treat tables as large ones, whose changed rows are marked by deletion vectors."""
        self.patch.setattr(layout, "FEW_BYTES", 0)

    def optimize(self, name: TableName) -> None:
        """Let somebody else put a table's data files together."""
        path = self.config.table_path(name)
        if self.lake.is_table(path):
            self.lake.optimize(path)

    def lose_an_answer(self) -> None:
        """Make the store say of the next commit that its version is there already, because it was asked twice."""
        self.loses_answer = True

    def _answering(self, write: Callable[[str, str], None]) -> Callable[[str, str], None]:
        def written(path: str, text: str) -> None:
            write(path, text)
            if self.loses_answer:
                self.loses_answer = False
                raise FileExistsError(path)

        return written

    def close(self) -> None:
        for worker in self.schedule.workers:
            if not worker.ended:
                worker.kill()
        self.patch.undo()
        shutil.rmtree(self.folder)

    def start(self, job: str, host: str, **options: Any) -> Worker:
        """Return a new process; it stands before its first access."""
        report = Report(io.StringIO())
        origin = Endpoint("server", 3306, "", "")
        spark: Any = lambda _: Session(self.lake)  # noqa: E731  # typed as what it stands for
        jobs: dict[str, Callable[[], object]] = {
            "bootstrap": lambda: self.begun.update(
                result.name for result in pipeline.bootstrap(self.config, origin, spark, report, **options)
            ),
            "sync": lambda: pipeline.sync(self.config, origin, spark, report, **options),
            "plan": lambda: pipeline.plan(self.config, origin, **options),
            "stage": lambda: pipeline.stage(self.config, origin, spark, report),
            "merge": lambda: pipeline.merge(self.config, spark, report),
            "record": lambda: pipeline.record(self.config),
        }
        return self.schedule.start(host, job, jobs[job])

    def _fault(self, point: str) -> None:
        if point == "recorded":
            try:
                self.check()
            except AssertionError as error:
                self.failures.append(error)
        self.schedule.reach(point)

    def _opened(self, endpoint: object) -> Server:
        self.schedule.reach("read log")
        return self.server

    # promises --------------------------------------------------------------------------------------------------------
    def moved(self, position: Position) -> None:
        """The position up to which all is recorded is another now."""
        if self._position is not None and position < self._position:
            self.failures.append(AssertionError(f"the position went back from {self._position} to {position}"))
        self._position = position
        # A sync takes the snapshots that were asked for, too.
        lows = [loads(Position, row["low"]) for row in self.store.peek("watermarks") if row["low"]]
        worker = self.schedule.running
        if worker and (worker.job == "bootstrap" or position in lows):
            self._jumps.add(position)

    def check(self, *, at_end: bool = False) -> None:
        """The lake is the source at each watermark; nothing was committed twice; no range is missing.

        at_end: a snapshot that was committed and then killed is no excuse any more.
        """
        self._check_ranges()
        for name in self.server.named:
            path = self.config.table_path(name)
            repeated = self.lake.repeated(path)
            assert not repeated, f"committed twice to {name}: {repeated}"
            lost = self.lake.lost_files(path) if self.lake.commits(path) else []
            assert not lost, f"files of {name} are gone: {lost}"
        rows = self.store.watermarks()
        lives = Counter(row["table"] for row in rows if row["status"] == "following")
        assert not lives or max(lives.values()) == 1, f"a table has two lives: {lives}"
        for row in rows:
            waits = row["status"] == "resnapshot" and not at_end  # the same run takes it up
            assert waits or row["status"] not in ("stopped", "resnapshot"), f"{row['table']}: {row['reason']}"
            if row["status"] == "following":
                self._check_table(row, at_end)

    def _check_ranges(self) -> None:
        batches = {row["batch"]: row for row in self.store.peek("batches")}
        for number, row in batches.items():
            following = batches.get(number + 1)
            if following is not None:
                start = Position.parse(following["start"])
                assert start == Position.parse(row["stop"]) or start in self._jumps, f"a gap before batch {number + 1}"

    def _check_table(self, row: dict[str, Any], at_end: bool) -> None:
        name, position = TableName(row["database"], row["table"]), Position.parse(row["position"])
        begins = self._is_ahead(name) and not at_end
        if position < loads(Position, row["high"]) or begins:
            return
        there, expected = self.lake.content(self.config.table_path(name)), self.server.at(position).get(name)
        assert there == expected, f"{name} at {position.short}: {there}, the source had {expected}"

    def _is_ahead(self, name: TableName) -> bool:
        """Return whether a new snapshot is in the lake, whose life is about to begin."""
        life = self.lake.newest_snapshot(self.config.table_path(name))
        return life is not None and all(row["table_id"] != life for row in self.store.peek("watermarks"))

    def settle(self) -> None:
        """Wake everything that sleeps until it ends; then a run carries the lake to the source's head."""
        for worker in self.schedule.workers:
            if not worker.ended:
                worker.run()
        self.expire()
        last = self.start("sync", "settling")
        last.run()
        self.raise_failures()
        if self._position is None:
            return
        if last.error is not None:
            raise AssertionError(f"the last run failed: {last.error!r}") from last.error
        assert self._position == self.server.position
        self.check(at_end=True)
        assert not (catching_up := watermarks.catching_up(self.store)), f"left behind: {catching_up}"
        following = {row["table"] for row in self.store.peek("watermarks") if row["status"] == "following"}
        lost = {name.table for name in self.begun & set(self.server.tables)} - following
        assert not lost, f"no longer followed: {lost}"

    def raise_failures(self) -> None:
        if self.failures:
            raise self.failures[0]
