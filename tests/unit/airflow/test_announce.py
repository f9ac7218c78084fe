"""What a run recorded is announced by that run, once, whatever happens to its tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.execution_time.context import OutletEventAccessors

from binlake import config, pipeline
from binlake.config import PipelineConfig
from binlake.lease import lease
from binlake.lease.lease import OpenBatch, RecordedState
from binlake.phases.bootstrap import note_bootstrap
from binlake.planner.outcome import BatchOutcome, LifeOutcome
from binlake.position import Position, Range, Slice
from binlake.records.record import RunReport
from binlake.schema.table import Column, TableName, TableSchema
from binlake.snapshot.commit import SnapshotResult
from binlake.store.run_rows import TableRun
from binlake_airflow import summaries
from binlake_airflow.hook import BinlakeHook
from binlake_airflow.operators import (
    BinlakeAnnounceOperator,
    BinlakeRecordOperator,
    BinlakeSyncOperator,
    asset_alias,
    run_key,
)

YAML = """
source: {name: shop, connection: shop_mysql, server_id: 4001}
tables: {include: ["shop.*"]}
lake: {path: ./lake}
"""
START, STOP = Position("s", "b.000001", 4, 1), Position("s", "b.000001", 99, 1)
SCHEMA = TableSchema((Column("id", "int", nullable=False),), ("id",), "primary")
PLAN = {"batch": 1, "empty": False}


class Events(list[Any]):
    """What Airflow has of an alias; a double, because a unit test has no Airflow to ask."""

    def after(self, moment: str) -> Events:
        assert datetime.fromisoformat(moment) < datetime.now(UTC)
        return self


class AllEvents(list[Any]):
    """What Airflow 3.1 has of an alias: every event, in a list."""


class Inlets(dict[str, Any]):
    """The events of a task's inlets, which are asked for by an alias. Airflow 3.1 has no hash of one."""

    def __getitem__(self, alias: Any) -> Any:
        return super().__getitem__(alias.name)


class Run:
    """A DAG run whose tasks are called as Airflow calls them: a task's events count once it has succeeded."""

    def __init__(self, file: Path, run_id: str = "scheduled__1", events: list[Any] | None = None) -> None:
        self.file = str(file)
        self.run_id = run_id
        self.events = Events() if events is None else events
        self.left: Any = None
        """By the last task, in XCom."""

    @property
    def context(self) -> Any:
        run = SimpleNamespace(
            dag_id="binlake_shop_sync", run_id=self.run_id, run_after=datetime.now(UTC), run_type="manual"
        )
        inlets = Inlets({asset_alias("shop").name: self.events})
        return {"dag_run": run, "outlet_events": OutletEventAccessors(), "inlet_events": inlets}

    def _call(self, operator: Any, *, dies: bool) -> list[str]:
        context = self.context
        self.left = operator.execute(context)
        events = context["outlet_events"][asset_alias("shop")].asset_alias_events
        if not dies:
            now = datetime.now(UTC)
            self.events += [SimpleNamespace(asset=of.dest_asset_key, extra=of.extra, timestamp=now) for of in events]
        return [event.dest_asset_key.uri for event in events]

    def record(self, *, dies: bool = False) -> list[str]:
        return self._call(BinlakeRecordOperator(task_id="record", config_file=self.file, plan=PLAN), dies=dies)

    def sync(self, *, dies: bool = False, outlets: bool = True) -> list[str]:
        given = {"outlets": [asset_alias("shop")]} if outlets else {}
        return self._call(BinlakeSyncOperator(task_id="sync", config_file=self.file, **given), dies=dies)

    def announce(self, *, dies: bool = False, **options: Any) -> list[str]:
        return self._call(BinlakeAnnounceOperator(task_id="announce", config_file=self.file, **options), dies=dies)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "shop.yaml").write_text(YAML)
    return tmp_path / "shop.yaml"


@pytest.fixture
def merged(file: Path) -> Path:
    """A batch that only waits to be recorded."""
    orders = LifeOutcome(
        "life", TableName("shop", "orders"), START, START, "following", None, SCHEMA.fingerprint,
        changed=True, inserted=3, updated=2, deleted=1, delta_version=7,
    )  # fmt: skip
    part = Slice("b.000001", 4, 99, 1, False)
    batch = OpenBatch(1, Range(START, STOP, (part,)), state="merged", outcome=BatchOutcome((orders,)))
    with lease.held(pipeline.metadata_of(config.load(file))) as held:
        held.stand(RecordedState(0, START))
        held.open(batch)
    return file


def test_who_recorded_and_died_announces_when_tried_again(merged: Path) -> None:
    run = Run(merged)
    assert run.record(dies=True) == ["binlake://shop/shop.orders"]
    assert run.record() == ["binlake://shop/shop.orders"]
    (event,) = run.events
    counts = {"inserted": 3, "updated": 2, "deleted": 1}
    assert event.extra == {**counts, "batch": 1, "position": str(STOP), "delta_version": 7, "verified_through": None}


@pytest.mark.parametrize("events", [Events, AllEvents])
def test_a_record_that_is_cleared_after_its_success_announces_nothing(
    merged: Path, events: Callable[[], list[Any]]
) -> None:
    run = Run(merged, events=events())
    assert run.record()
    assert run.record() == []


def test_airflow_3_1_brings_events_of_earlier_runs_too(merged: Path) -> None:
    run = Run(merged, events=AllEvents())
    assert run.record()
    run.events[0].timestamp -= timedelta(days=2)
    assert run.record()


def test_a_batch_that_another_recorded_is_its_to_announce(merged: Path) -> None:
    pipeline.record(config.load(merged), 1, "somebody else")
    assert Run(merged).record() == []


def test_a_sync_in_one_task_that_recorded_and_died_announces_when_tried_again(
    merged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sync(config: PipelineConfig, *_: Any, until: None, run: str) -> RunReport:
        return pipeline.record(config, 1, run)

    monkeypatch.setattr(pipeline, "sync", sync)
    monkeypatch.setattr(BinlakeHook, "origin", lambda hook: None)
    run = Run(merged)
    assert run.sync(dies=True) == run.sync() == ["binlake://shop/shop.orders"]
    assert run.sync() == []
    assert (run.left["batch"], run.left["batches"], run.left["mutations"], run.left["tables"]) == (1, [1], 6, 1)
    assert Run(merged, "another").sync() == []
    BinlakeSyncOperator(task_id="alone", config_file=str(merged)).execute(Run(merged).context)  # it has no outlets


def test_what_is_left_in_xcom_is_small_however_many_tables_there_are(merged: Path) -> None:
    metadata = pipeline.metadata_of(config.load(merged))
    tables = [TableRun(f"shop.table_{n}", "stopped", 1, 1, 1, None, "b.000001:4", 0.1, "r" * 99) for n in range(1000)]
    report = RunReport(7, str(STOP), "recorded", 3000, 99, tuple(tables), (("merge", 1.5),))
    run, synced = summaries.of_run(metadata, report), summaries.of_sync(metadata, report.to_json(), [report])
    snapshots = summaries.of_snapshots(metadata, [copied("t", 0).to_json()] * 1000)
    assert run["tables"] == synced["tables"] == snapshots["tables"] == 1000
    assert snapshots["rows"] == 5000
    assert run["standing_still"] == synced["standing_still"] == [f"shop.table_{n}" for n in range(20)]
    assert metadata.location("runs") == run["runs"]
    assert all(len(json.dumps(assets)) < 2000 for assets in (run, synced, snapshots))


def test_a_batch_that_a_verification_recorded_is_announced_by_its_run(merged: Path) -> None:
    run = Run(merged)
    pipeline.record(config.load(merged), 1, run_key(run.context))
    assert run.announce() == []
    assert run.announce(batches=True) == ["binlake://shop/shop.orders"]
    assert run.announce(batches=True) == []
    assert (run.events[0].extra["batch"], run.events[0].extra["inserted"]) == (1, 3)
    assert Run(merged, "another").announce(batches=True) == []


def test_tables_of_which_a_run_put_rows_right_are_announced_once(file: Path) -> None:
    run = Run(file)
    metadata = pipeline.metadata_of(config.load(file))
    common = {"database": "shop", "table": "orders", "batch": 7, "position": str(STOP), "delta_version": 9, "at_us": 1}
    for name, rows in ((run_key(run.context), 2), (run_key(run.context), 3), ("another", 1), (None, 1)):
        metadata.append("repairs", [{**common, "run": name, "rows": rows}])
    assert run.announce() == []
    assert run.announce(batches=True) == ["binlake://shop/shop.orders"]
    assert run.announce(batches=True) == []
    assert run.events[0].extra == {
        "repaired": 5, "batch": 7, "position": str(STOP), "delta_version": 9, "verified_through": None,
    }  # fmt: skip


def copied(table: str, version: int) -> SnapshotResult:
    return SnapshotResult(TableName("shop", table), f"life of {table}", SCHEMA, START, START, 5, 50, 1.0, 0, version)


def test_what_a_runs_snapshots_copied_is_announced_once(file: Path) -> None:
    run = Run(file)
    metadata = pipeline.metadata_of(config.load(file))
    note_bootstrap(metadata, run_key(run.context), 0, 1, [copied("orders", 0)])  # and failed for another table
    note_bootstrap(metadata, run_key(run.context), 0, 2, [copied("lines", 3)])
    note_bootstrap(metadata, None, 0, 2, [copied("others", 0)])
    assert run.announce(dies=True) == run.announce() == ["binlake://shop/shop.orders", "binlake://shop/shop.lines"]
    assert run.announce() == []
    assert run.events[1].extra == {
        "delta_version": 3, "table_id": "life of lines", "snapshot": True, "verified_through": None,
    }  # fmt: skip
