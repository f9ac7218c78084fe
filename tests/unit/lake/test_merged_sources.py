"""What the sources that fill one table keep for each other: promised and pinned versions, and notes of what can't be
read."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from binlake.config import PipelineConfig
from binlake.delta.composed_parts import TablePart
from binlake.delta.composed_sources import PartSources
from binlake.delta.composed_table import compose
from binlake.delta.delta_log import LakeLog
from binlake.delta.log_files import LogFiles
from binlake.errors import WrittenMeanwhile
from binlake.lake import lake_versions, merged_sources
from binlake.lake.pins import PinnedVersions
from binlake.maintain.needs import Table
from binlake.maintain.table_upkeep import TablesUpkeep
from binlake.planner.steps import Life
from binlake.position import Position
from binlake.records import table_versions
from binlake.report import Report
from binlake.schema.table import TableName, TableSchema
from binlake.spark.starting import no_session
from binlake.store.metadata import Metadata
from binlake.store.rows import PinRow, ReadableRow, VersionRow

ORDERS = TableName("all", "orders")
HERE = Position("server", "binlog.000001", 4, 1)
DAY = 24 * 3600


class TwoSources:
    """The lake of eu and us, whose table has versions 0 to 9: as many, but for the newest, are days old."""

    def __init__(self, folder: Path) -> None:
        entry = {
            "from": "tenant_%.orders", "into": "all.orders", "source_column": "tenant",
            "source_name_column": "region", "sources": ["eu", "us"], "folder": "company",
        }  # fmt: skip
        self.config = PipelineConfig.model_validate(
            {
                "source": {"name": "eu", "connection": "eu", "server_id": 7},
                "tables": {"include": ["*.*"]},
                "lake": {"path": str(folder)},
                "merge_tables": [entry],
                "maintain": {"history_hours": 24},
            }
        )
        self.path = self.config.table_path(ORDERS)
        self.eu, self.us = (Metadata(f"{folder}/{name}/_binlake") for name in ("eu", "us"))
        self.now = time.time()
        part = TablePart("tenant_7.orders", "region=eu.tenant=7", "7")
        for number in range(10):
            write_deltalake(f"{self.path}/{part.folder}", pa.table({"id": [number]}), mode="append")
            sources = PartSources("region", "eu", ["eu", "us"], 24.0)
            compose(self.path, "tenant", [part], {}, sources=sources)
            commit = Path(self.path, f"_delta_log/{number:020}.json")
            at = self.now - (9 - number) * DAY
            os.utime(commit, (at, at))
        self.table_id = str(DeltaTable(self.path).metadata().id)

    def note(self, source: Metadata, batch: int, version: int, age: float, **more: Any) -> None:
        """Record a batch of a source that shows a version. age: seconds."""
        at_us = int((self.now - age) * 1_000_000)
        own = VersionRow(
            batch=batch, kind="batch", position=str(HERE), gtid_set="", committed_us=at_us, began_us=at_us, at_us=at_us
        )
        of_table = {"table_id": self.table_id, "folder": "company", "status": "following", **vars(ORDERS), **more}
        row = replace(own, **{"position": None, "delta_version": version, **of_table})
        VersionRow.append(source, [own, row])

    def since(self, source: Metadata) -> dict[str, int]:
        return {row.table_id: row.delta_version for row in ReadableRow.read(source)}


@pytest.fixture
def two(tmp_path: Path) -> TwoSources:
    return TwoSources(tmp_path)


def test_a_batch_that_another_source_ended_a_moment_ago_stays_as_long_as_is_promised(two: TwoSources) -> None:
    two.note(two.us, 1, 2, 7 * DAY)
    two.note(two.us, 2, 9, 60)
    assert merged_sources.versions_kept(two.config, two.eu, two.now) == {two.path: {2}}
    noted = merged_sources.note_readable_since(two.config, two.eu, ORDERS, 8, two.now)
    assert noted.version == 8
    assert two.since(two.us) == {two.table_id: 2}
    later = two.now + 8 * DAY
    assert 2 not in merged_sources.versions_kept(two.config, two.eu, later)[two.path]
    merged_sources.note_readable_since(two.config, two.eu, ORDERS, 8, later)
    assert two.since(two.us) == {two.table_id: 8}


def test_a_pin_of_another_source_is_seen_behind_the_note(two: TwoSources, monkeypatch: pytest.MonkeyPatch) -> None:
    two.note(two.us, 1, 2, 7 * DAY)
    two.note(two.us, 2, 9, 6 * DAY)
    monkeypatch.setattr(merged_sources, "LEAST_HOURS", 0.0)
    upkeep = TablesUpkeep(two.config, no_session, two.eu, Report(quiet=True), 0)
    upkeep._looked = two.now + 30 * DAY
    upkeep._pinned = PinnedVersions.of(two.config, two.eu, upkeep._looked)
    PinRow.append(two.us, [PinRow(name="kept", batch=1, who="w", why="y", at_us=1)])
    life = Life("", TableName("tenant_7", "orders"), TableSchema(()), HERE, HERE)
    shard = f"{two.path}/region=eu.tenant=7"
    pinned = upkeep._note_going(Table(life, LakeLog(shard, "")), 5)
    assert 2 not in upkeep._pinned.of_table(shard)
    assert 2 in pinned.of_table(shard)


def test_a_table_of_the_name_that_one_source_filled_alone_is_another_one(two: TwoSources) -> None:
    two.note(two.us, 1, 5, 7 * DAY, table_id="former", folder=None)
    two.note(two.us, 2, 9, 60)
    merged_sources.note_readable_since(two.config, two.eu, ORDERS, 8, two.now)
    assert two.since(two.us) == {two.table_id: 8}
    table_versions.note_readable_since(two.us, ORDERS, 3)
    assert two.since(two.us) == {two.table_id: 8, "former": 3}


def test_the_folder_of_a_table_is_that_of_its_newest_batch(two: TwoSources) -> None:
    two.note(two.us, 1, 9, 7 * DAY)
    two.note(two.us, 2, 9, 6 * DAY, status="dropped", delta_version=None, folder=None)
    assert lake_versions._read(two.us).folders == {ORDERS: "company"}
    two.note(two.us, 3, 5, 60, table_id="alone", folder=None)
    assert lake_versions._read(two.us).folders == {}


def test_a_note_is_tried_again_while_another_source_writes(two: TwoSources, monkeypatch: pytest.MonkeyPatch) -> None:
    two.note(two.eu, 1, 9, 60)
    noted, tries = table_versions.note_readable_since, list[int]()

    def busy(*arguments: Any) -> list[ReadableRow]:
        tries.append(1)
        if len(tries) == 2:
            raise WrittenMeanwhile("another process wrote it")
        return noted(*arguments)

    monkeypatch.setattr(table_versions, "note_readable_since", busy)
    merged_sources.note_readable_since(two.config, two.eu, ORDERS, 8, two.now)
    assert two.since(two.eu) == {two.table_id: 8}
    assert len(tries) == 3


def test_what_another_source_noted_meanwhile_stays_where_a_note_is_taken_back(two: TwoSources) -> None:
    two.note(two.eu, 1, 9, 60)
    two.note(two.eu, 2, 9, 30, table_id="other")
    before = table_versions.note_readable_since(two.eu, ORDERS, 3, "company")
    table_versions.note_readable_since(two.eu, ORDERS, 5, "company")
    table_versions.restore_readable_since(two.eu, ORDERS, before, 3)
    assert {*two.since(two.eu).values()} == {5}
    before = table_versions.note_readable_since(two.eu, ORDERS, 7, "company")
    table_versions.restore_readable_since(two.eu, ORDERS, before, 7)
    assert {*two.since(two.eu).values()} == {5}


def test_versions_that_the_log_stood_at_later_are_covered_by_the_promised_hours(two: TwoSources) -> None:
    two.note(two.us, 1, 9, 60)
    assert LogFiles.of(two.path).stood_at(two.now - 24 * 7 * 3600) < 9
    assert merged_sources.versions_kept(two.config, two.eu, two.now) == {two.path: set()}
