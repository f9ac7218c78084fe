"""Lives are compared with the YAML once, when it is another, and what changed is written down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn
from unittest import mock

import pytest

from binlake import pipeline
from binlake.config import PipelineConfig
from binlake.errors import UsageError
from binlake.lease import lease
from binlake.planner.rules import Rules
from binlake.planner.steps import Life
from binlake.records import life_settings, watermarks
from binlake.records.decisions import Reason
from binlake.records.status import read_status
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.source.endpoint import Endpoint
from binlake.store.metadata import Metadata
from binlake.store.rows import WatermarkRow
from past import Past

BATCH = 3


@pytest.fixture
def past(tmp_path: Path) -> Past:
    return Past(config(tmp_path), 1_800_000_000_000_000, tables=2, batches=BATCH).write()


def config(folder: Path, *exclude: str) -> PipelineConfig:
    source = {"name": "shop", "connection": "c", "server_id": 1}
    tables = {"include": ["shop.*"], "exclude": [f"shop.{table}" for table in exclude]}
    return PipelineConfig.model_validate({"source": source, "tables": tables, "lake": {"path": str(folder)}})


def compared(metadata: Metadata, now: PipelineConfig) -> list[tuple[str, str]]:
    with lease.held(metadata) as held:
        _, changed = life_settings.compare(held, now, recorded_state_of(held))
    return [(life.name.table, life.status) for life in changed]


def recorded_state_of(held: lease.Lease) -> lease.RecordedState:
    recorded_state = held.control().recorded_state
    assert recorded_state is not None
    return recorded_state


def row(metadata: Metadata, table: str = "table_0001") -> tuple[str, int, str]:
    (life,) = [watermark for watermark in watermarks.read(metadata) if watermark.table == table]
    return life.status, life.batch, life.position


def test_a_table_that_leaves_keeps_its_place(past: Past, tmp_path: Path) -> None:
    out, here = config(tmp_path, "table_0001"), str(past.position(BATCH))
    assert {row.table: row.status for row in read_status(out).tables}["shop.table_0001"] == "excluded"
    assert compared(past.metadata, out) == [("table_0001", "excluded")]
    assert row(past.metadata) == ("excluded", BATCH + 1, here)  # the first batch that it misses
    assert row(past.metadata, "table_0000") == ("following", BATCH, here)
    assert read_status(past.config).tables[1].reason == "the YAML includes it again"


def test_and_follows_on_where_it_missed_nothing(past: Past, tmp_path: Path) -> None:
    compared(past.metadata, config(tmp_path, "table_0001"))
    assert compared(past.metadata, past.config) == [("table_0001", "following")]
    assert row(past.metadata) == ("following", BATCH, str(past.position(BATCH)))


@pytest.mark.parametrize("batch", [BATCH, BATCH + 1])
def test_else_it_asks_for_a_snapshot(past: Past, tmp_path: Path, batch: int) -> None:
    """A snapshot of all others may let the log be followed from further on, without a batch."""
    compared(past.metadata, config(tmp_path, "table_0001"))
    with lease.held(past.metadata) as held:
        held.stand(lease.RecordedState(batch, past.position(BATCH + 1), reading=recorded_state_of(held).reading))
    assert compared(past.metadata, past.config) == [("table_0001", "resnapshot")]
    assert [str(name) for name in watermarks.asked(past.metadata)] == ["shop.table_0001"]


def test_the_same_settings_are_compared_once(past: Past, tmp_path: Path) -> None:
    assert compared(past.metadata, past.config) == []
    with mock.patch.object(watermarks, "read_lives", side_effect=AssertionError):
        assert compared(past.metadata, past.config) == []
    with lease.held(past.metadata) as held:
        held.read_under(past.config.reading)  # a snapshot under the same
        with mock.patch.object(watermarks, "read_lives", side_effect=AssertionError):
            assert life_settings.compare(held, past.config, recorded_state_of(held))[1] == []
        held.read_under(config(tmp_path, "table_0001").reading)  # a snapshot under others
        with mock.patch.object(watermarks, "read_lives", side_effect=AssertionError), pytest.raises(AssertionError):
            life_settings.compare(held, past.config, recorded_state_of(held))


def test_a_shape_that_cannot_be_compared_stops_its_table(past: Past, tmp_path: Path) -> None:
    under = Rules.under

    def failing(rules: Rules, life: Life) -> Life:
        if life.name.table == "table_0001":
            raise RecursionError
        return under(rules, life)

    with mock.patch.object(Rules, "under", failing):
        assert compared(past.metadata, config(tmp_path, "late")) == [("table_0001", "stopped")]
    (stopped,) = [table for table in read_status(past.config).tables if table.table == "shop.table_0001"]
    assert "RecursionError at" in (stopped.reason or "")
    assert row(past.metadata, "table_0000")[0] == "following"


def test_a_table_that_never_began_is_forgotten_when_it_leaves(past: Past, tmp_path: Path) -> None:
    name = TableName("shop", "late")
    missing = watermarks.unsnapshotted_row(name, "missing", "never", batch=BATCH, position=past.position(BATCH))
    watermarks.write(past.metadata, [missing])
    compared(past.metadata, config(tmp_path, "late"))
    assert watermarks.unsnapshotted(past.metadata) == frozenset()


def test_a_table_that_is_left_out_is_not_resumed(past: Past, tmp_path: Path) -> None:
    (paused,) = [watermark for watermark in WatermarkRow.read(past.metadata) if watermark.table == "table_0001"]
    watermarks.write(past.metadata, [replace(paused, status="paused")])
    out = config(tmp_path, "table_0001")
    assert compared(past.metadata, out) == []
    here, name = Endpoint("127.0.0.1", 1, "nobody", ""), past.names[1]
    with pytest.raises(UsageError, match="isn't included"):
        pipeline.resume(out, here, _no_session, Report(quiet=True), name, Reason("ada", "why"))


def _no_session(why: str) -> NoReturn:
    raise AssertionError("no Spark is needed")
