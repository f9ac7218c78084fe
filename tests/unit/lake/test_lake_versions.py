"""Batches recorded one after the other, and the versions of all tables that they leave."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from binlake.config import PipelineConfig
from binlake.errors import UsageError
from binlake.lake import pins
from binlake.lake.lake_versions import LakeVersion, lake_versions, version_at
from binlake.lease import lease
from binlake.lease.lease import OpenBatch, RecordedState
from binlake.planner.outcome import BatchOutcome, LifeOutcome
from binlake.planner.steps import Life, Standstill, Status
from binlake.position import Position, Range
from binlake.records import record, table_versions, watermarks
from binlake.records.decisions import Reason
from binlake.schema.table import Column, TableName, TableSchema
from binlake.store.metadata import Metadata, now_us
from binlake.store.table_schemas import SCHEMAS

SCHEMA = TableSchema((Column("id", "bigint", nullable=False),), ("id",), "primary")
DAY = 86_400_000_000


def at(offset: int) -> Position:
    return Position("server", "binlog.000001", offset, 1)


def life(table: str, begins: int = 100) -> Life:
    return Life(f"{table} from {begins}", TableName("shop", table), SCHEMA, at(begins), at(begins))


def after(
    life_of_table: Life, version: int | None, status: Status = "following", name: str | None = None
) -> LifeOutcome:
    """What a batch makes of a life."""
    called = TableName("shop", name) if name else life_of_table.name
    still = Standstill("why") if status == "stopped" else None
    return LifeOutcome(
        life_of_table.id,
        called,
        life_of_table.low,
        life_of_table.high,
        status,
        still,
        "",
        version is not None,
        delta_version=version,
    )


class Recorder:
    """Records batches whose stops are 1000 apart; batch N is planned at N o'clock."""

    def __init__(self, path: Path) -> None:
        self.metadata = Metadata(str(path / "_binlake"))
        self.batch = 0

    def snapshot(self, *lives: Life, version: int = 0) -> None:
        with lease.held(self.metadata) as held:
            versions = {life_of_table.id: version for life_of_table in lives}
            watermarks.started(held.metadata, list(lives), batch=self.batch, versions=versions, began_us=self.hour())
            if not self.batch:
                held.stand(RecordedState(0, at(100)))

    def record(self, *lives: LifeOutcome, times: int = 1) -> None:
        self.batch += 1
        start, stop = at(100 if self.batch == 1 else (self.batch - 1) * 1000), at(self.batch * 1000)
        plan = OpenBatch(self.batch, Range(start, stop, ()), "merged", planned_us=self.hour(), committed_us=self.hour())
        plan = replace(plan, outcome=BatchOutcome(lives))
        with lease.held(self.metadata) as held:
            held.open(plan)
            for _ in range(times):
                record.record_batch(held, held.metadata, plan, listed=lambda name: not name.table.startswith("_"))

    def hour(self) -> int:
        return self.batch * 3_600_000_000

    def versions(self, hours: float | None = None) -> list[LakeVersion]:
        return lake_versions(self.metadata, hours)

    def tables(self) -> dict[int, dict[str, int]]:
        return {
            version.batch: {name.removeprefix("shop."): number for name, number in version.tables.items()}
            for version in self.versions()
        }


@pytest.fixture
def lake(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


def test_a_batch_has_the_versions_of_tables_that_it_left_alone(lake: Recorder) -> None:
    orders, customers = life("orders"), life("customers")
    lake.snapshot(orders, customers, version=3)
    assert lake.versions() == []
    lake.record(after(orders, 4))
    lake.record()
    lake.record(after(orders, 5), after(customers, 7), times=2)  # a kill before the lease's row repeats all of it
    assert lake.tables() == {
        1: {"orders": 4, "customers": 3},
        2: {"orders": 4, "customers": 3},
        3: {"orders": 5, "customers": 7},
    }
    first = lake.versions()[0]
    assert (first.batch, first.position, first.name, first.readable) == (1, str(at(1000)), None, True)
    assert first.committed == datetime(1970, 1, 1, 1, tzinfo=UTC)


def test_a_table_that_stands_elsewhere_is_no_part_of_a_version(lake: Recorder) -> None:
    orders, stops, waits = life("orders"), life("stops"), life("waits")
    lake.snapshot(orders, stops, waits)
    lake.record(after(orders, 1), after(stops, 1))
    lake.record(after(stops, None, "stopped"))
    paused = next(row for row in watermarks.read(lake.metadata) if row.table == "waits")
    watermarks.write(lake.metadata, [replace(paused, status="paused")])
    lake.record()
    lake.record()
    watermarks.follow_again(lake.metadata, waits.id, lambda name: True, began_us=0)
    lake.record()
    assert lake.tables() == {
        1: {"orders": 1, "stops": 1, "waits": 0},
        2: {"orders": 1, "waits": 0},
        3: {"orders": 1},
        4: {"orders": 1, "waits": 0},
        5: {"orders": 1, "waits": 0},
    }
    third = lake.versions()[2]
    assert third.left_out == {"shop.stops": "stopped", "shop.waits": "paused"}
    with pytest.raises(UsageError, match=r"shop\.stops isn't part of batch 3: it is stopped"):
        third.table("shop.stops")
    with pytest.raises(UsageError, match=r"there is no table shop\.nothing"):
        third.table("shop.nothing")


def test_a_snapshot_counts_from_the_batch_that_reaches_its_position(lake: Recorder) -> None:
    orders = life("orders")
    lake.snapshot(orders)
    lake.record(after(orders, 1))
    fuzzy = replace(life("fuzzy", 1500), high=at(2500))
    lake.snapshot(life("ahead", 3500), fuzzy, version=8)
    lake.record(after(fuzzy, 9))
    lake.record()
    lake.record()
    assert lake.tables() == {
        1: {"orders": 1},
        2: {"orders": 1},
        3: {"orders": 1, "fuzzy": 9},
        4: {"orders": 1, "fuzzy": 9, "ahead": 8},
    }
    assert lake.versions()[1].left_out == {"shop.ahead": "ahead of the batch", "shop.fuzzy": "ahead of the batch"}


def test_a_new_snapshot_leaves_earlier_batches_what_they_had(lake: Recorder) -> None:
    orders = life("orders")
    lake.snapshot(orders)
    lake.record(after(orders, 1))
    lake.snapshot(life("orders", 1200), version=2)
    lake.record()
    assert lake.tables() == {1: {"orders": 1}, 2: {"orders": 2}}
    assert lake.versions()[1].table("shop.orders").table_id == "orders from 1200"


def test_renamed_and_dropped_tables_keep_the_names_that_they_had(lake: Recorder) -> None:
    first, other, scratch = life("one"), life("other"), life("scratch")
    lake.snapshot(first, other, scratch)
    lake.record(after(first, 1))
    lake.record(after(first, 5, name="other"), after(other, 6, name="one"))  # they swap their names
    lake.record(after(scratch, 0, "dropped"))
    assert lake.tables() == {
        1: {"one": 1, "other": 0, "scratch": 0},
        2: {"one": 6, "other": 5, "scratch": 0},
        3: {"one": 6, "other": 5},
    }
    assert lake.versions()[2].left_out == {}


def test_a_table_whose_folder_is_removed_ends_the_versions_that_have_it(lake: Recorder) -> None:
    orders, scratch = life("orders"), life("scratch")
    lake.snapshot(orders, scratch)
    lake.record()
    table_versions.note_readable_since(lake.metadata, scratch.name, table_versions.NEVER)
    lake.record(after(scratch, 0, "dropped"))
    lake.snapshot(life("scratch", 2500))
    lake.record()
    assert [version.readable for version in lake.versions()] == [False, True, True]
    with pytest.raises(UsageError, match="batch 1 can't be read any more"):
        lake.versions()[0].table("shop.orders")


def test_a_ghost_table_is_no_part_of_a_version(lake: Recorder) -> None:
    orders, ghost = life("orders"), life("_orders_gho", 500)
    lake.snapshot(orders)
    lake.record(after(orders, 1), after(ghost, 1))
    lake.record(after(ghost, 2, name="orders"), after(orders, 2, "dropped"))
    assert lake.tables() == {1: {"orders": 1}, 2: {"orders": 2}}


def test_upkeep_and_repairs_give_the_newest_batch_another_version(lake: Recorder) -> None:
    orders, fresh = life("orders"), life("fresh", 1500)
    lake.snapshot(orders)
    lake.record(after(orders, 1))
    lake.snapshot(fresh, version=3)
    for life_of_table, version in ((orders, 2), (fresh, 4)):
        watermarks.at_version(lake.metadata, life_of_table.id, version, lambda name: True, began_us=0)
    assert lake.tables() == {1: {"orders": 2}}
    lake.record()
    assert lake.tables() == {1: {"orders": 2}, 2: {"orders": 2, "fresh": 4}}


def test_batches_of_an_older_binlake_are_left_out(lake: Recorder) -> None:
    orders, dropped = life("orders"), life("dropped")
    lake.snapshot(orders, dropped)
    lake.record(after(orders, 1))
    lake.record(after(orders, 2), after(dropped, 3, "dropped"))
    lake.metadata.replace("lake_versions", "batch = 2", [])  # as if the second was recorded before there was this table
    watermarks.write(lake.metadata, [], [dropped.id])
    lake.record()
    lake.record()
    assert lake.tables() == {1: {"dropped": 0, "orders": 1}, 3: {"orders": 2}, 4: {"orders": 2}}
    kept = lake.versions(hours=0)[0].until
    assert kept is not None
    assert kept < datetime.now(UTC)  # nobody knows when the second replaced files


def test_until_is_the_promised_time_after_the_next_change_of_any_table(lake: Recorder) -> None:
    orders, customers = life("orders"), life("customers")
    lake.snapshot(orders, customers)
    for lives in ([after(orders, 1)], [], [after(customers, 1)], []):
        lake.record(*lives)
    hour = datetime(1970, 1, 1, tzinfo=UTC)
    until = [version.until for version in lake.versions(hours=24)]
    assert until == [hour + timedelta(hours=27), hour + timedelta(hours=27), None, None]
    assert {version.until for version in lake.versions()} == {None}


def test_what_maintain_removed_ends_the_versions_that_need_it(lake: Recorder) -> None:
    orders, customers = life("orders"), life("customers")
    lake.snapshot(orders, customers)
    for version in (1, 2, 3):
        lake.record(after(orders, version))
    table_versions.note_readable_since(lake.metadata, orders.name, 2)
    table_versions.note_readable_since(lake.metadata, customers.name, 0)
    assert [version.readable for version in lake.versions()] == [False, True, True]
    lake.metadata.append("pins", [{"name": "kept", "batch": 1}])
    first = lake.versions(hours=1)[0]
    assert (first.name, first.readable, first.until) == ("kept", True, None)


def test_old_batches_expire_except_pinned_ones_and_what_later_ones_count_by(lake: Recorder) -> None:
    orders, customers, scratch = life("orders"), life("customers"), life("scratch")
    lake.snapshot(orders, customers, scratch)
    for version in (1, 2, 3):
        lake.record(after(orders, version))
    lake.record(after(scratch, None, "dropped"))
    lake.metadata.append("pins", [{"name": "kept", "batch": 2}])
    before, now = lake.tables(), now_us()
    lake.record(after(orders, 4))
    lake.record()
    rows = lake.metadata.count("lake_versions", "true")
    assert table_versions.expire(lake.metadata, 0) == 0
    removed = table_versions.expire(lake.metadata, now)
    assert lake.metadata.count("lake_versions", "true") == rows - removed
    assert lake.tables() == {
        2: before[2],
        5: {"customers": 0, "orders": 4},
        6: {"customers": 0, "orders": 4},
    }
    assert removed == 5  # three batches, and two versions of orders that neither 2 nor 5 has
    assert table_versions.expire(lake.metadata, now) == 0


def test_an_old_batch_that_stays_as_those_before_it_werent_noted_keeps_its_tables(lake: Recorder) -> None:
    orders, customers = life("orders"), life("customers")
    lake.snapshot(orders, customers)
    for version in (1, 2):
        lake.record(after(orders, version))
    lake.metadata.replace("lake_versions", "batch = 2", [])
    for version in (3, 4, 5):
        lake.record(after(orders, version))
    before, now = lake.tables(), now_us()
    lake.record(after(orders, 6))
    table_versions.expire(lake.metadata, now)
    assert lake.tables() == {3: before[3], 6: {"customers": 0, "orders": 6}}
    table_versions.note_readable_since(lake.metadata, orders.name, 5)
    assert [version.readable for version in lake.versions()] == [False, True]


def test_a_version_is_found_by_its_batch_name_or_time(lake: Recorder) -> None:
    lake.snapshot(orders := life("orders"))
    with pytest.raises(UsageError, match="no version yet"):
        version_at(lake.versions())
    for version in (1, 2, 3):
        lake.record(after(orders, version))
    lake.metadata.append("pins", [{"name": "kept", "batch": 2}])
    versions, hour = lake.versions(), datetime(1970, 1, 1, tzinfo=UTC)
    assert version_at(versions).batch == 3
    assert version_at(versions, batch=1).batch == 1
    assert version_at(versions, name="kept").batch == 2
    assert version_at(versions, time=hour + timedelta(hours=2.5)).batch == 2
    assert version_at(versions, time=datetime(1970, 1, 1, 3)).batch == 3
    for asked, said in (
        ({"batch": 9}, "batch 9 isn't known as a version: the lake has batches 1 to 3"),
        ({"name": "lost"}, "no version is called 'lost'"),
        ({"time": hour}, "no version is as old as"),
        ({"time": hour + timedelta(hours=4)}, "isn't known yet"),
        ({"time": datetime.fromisoformat("1970-01-01T06:00+02:00")}, r"06:00:00.000000 UTC\+02:00 isn't known yet"),
        ({"time": datetime.fromisoformat("9999-12-31T23:00-02:00")}, "isn't known yet"),
    ):
        with pytest.raises(UsageError, match=said):
            version_at(versions, **asked)


def test_a_year_of_hourly_batches_is_read_at_once(tmp_path: Path) -> None:
    tables, batches, changed = 1000, 8760, 50
    metadata = Metadata(str(tmp_path))
    write_deltalake(metadata.location("lake_versions"), _year(tables, batches, changed))
    seconds = []
    for _ in range(3):
        began = time.process_time()
        versions = lake_versions(metadata, 168)
        seconds.append(time.process_time() - began)
    assert len(versions) == batches
    assert len(versions[-1].tables) == tables
    assert min(seconds) < 0.6, seconds  # 0.2 on a quiet machine


def _year(tables: int, batches: int, changed: int) -> pa.Table:
    """Each table begins in the first batch, then ``changed`` of them change in each, in turns."""
    rows = [(1, number) for number in range(tables)]
    rows += [(batch, (batch * changed + step) % tables) for batch in range(2, batches + 1) for step in range(changed)]
    number, table = [row[0] for row in rows], [row[1] for row in rows]
    columns: dict[str, list[Any]] = {
        "batch": number + list(range(1, batches + 1)),
        "table_id": [f"{row:036}" for row in table] + [None] * batches,
        "table": [f"table_{row}" for row in table] + [None] * batches,
        "delta_version": number + [None] * batches,
        "position": [None] * len(rows) + [str(at(batch * 1000)) for batch in range(1, batches + 1)],
    }
    count = len(columns["batch"])
    columns |= {"kind": ["batch"] * count, "database": ["shop"] * count, "status": ["following"] * count}
    columns |= {name: [number * DAY // 24 for number in columns["batch"]] for name in ("began_us", "at_us")}
    columns |= {"committed_us": columns["at_us"], "gtid_set": [None] * count, "folder": [None] * count}
    schema = pa.schema(SCHEMAS["lake_versions"])
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def test_a_pin_keeps_tables_whose_names_read_alike(lake: Recorder, tmp_path: Path) -> None:
    config = PipelineConfig.model_validate(
        {
            "source": {"name": "shop", "connection": "shop", "server_id": 4001},
            "tables": {"include": ["*.*"]},
            "lake": {"path": str(tmp_path)},
        }
    )
    names = TableName("a.b", "c"), TableName("a", "b.c")
    lives = [replace(life(f"{name.database} {name.table}"), name=name) for name in names]
    lake.snapshot(*lives)
    lake.record(*(after(one, 4) for one in lives))
    pins.pin(lake.metadata, 1, "both", Reason("me", "why"))
    kept = pins.PinnedVersions.of(config, lake.metadata)
    assert [kept.of_table(config.table_path(name)) for name in names] == [{4}, {4}]
