"""Metadata tables of a source that is followed: short logs, few files, and nothing that was replaced stays."""

from __future__ import annotations

from pathlib import Path
from secrets import token_urlsafe

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from binlake.lease import lease
from binlake.records import short_tables
from binlake.records.expiry import TOMBSTONES
from binlake.store.metadata import Metadata, now_us


@pytest.fixture
def metadata(tmp_path: Path) -> Metadata:
    return Metadata(str(tmp_path / "_binlake"))


def log_of(metadata: Metadata, name: str) -> Path:
    return Path(metadata.location(name)) / "_delta_log"


def run(number: int) -> dict[str, object]:
    return {"run": f"{number}", "kind": "sync", "ended_us": now_us()}


def test_commits_of_minutes_ago_go_and_the_files_that_they_replaced(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lease.held(metadata) as held:
        for _ in range(60):
            held.update()
    assert short_tables.shorten(metadata) == 0
    monkeypatch.setattr(short_tables, "_FEWEST_COMMITS", 50)
    assert short_tables.shorten(metadata) == 0
    monkeypatch.setattr(short_tables, "_LOG_MINUTES", 0)
    log = log_of(metadata, "lease")
    commits, data = len(list(log.glob("*.json"))), len(list(log.parent.glob("*.parquet")))
    assert data >= 60
    uncommitted = log.parent / "part-00000-of-a-run-that-sleeps.parquet"
    uncommitted.touch()
    assert short_tables.shorten(metadata) >= 100
    assert len(list(log.glob("*.json"))) < commits - 45
    assert len(list(log.parent.glob("*.parquet"))) < data - 45
    assert uncommitted.exists(), "it may come to commit it"
    assert lease.read(metadata).token is None
    with lease.held(metadata) as held:
        held.check()


def test_small_files_are_put_together_under_the_lease(metadata: Metadata) -> None:
    for number in range(40):
        metadata.append("runs", [run(number)])
    with lease.held(metadata) as held:
        assert short_tables.put_together(held.metadata) == 40
        assert short_tables.put_together(held.metadata) == 0
    assert len(DeltaTable(metadata.location("runs")).file_uris()) == 1
    metadata.append("runs", [run(40)])
    assert {row["run"] for row in metadata.read("runs")} == {f"{number}" for number in range(41)}


def test_files_that_were_put_together_wait_for_others_of_their_size(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sizes() -> list[int]:
        return sorted(metadata.table("runs").get_add_actions()["size_bytes"].to_pylist())

    def minute(number: int) -> int:
        for place in range(4):
            metadata.append("runs", [{**run(4 * number + place), "message": token_urlsafe(6_000)}])
        with lease.held(metadata) as held:
            return short_tables.put_together(held.metadata)

    monkeypatch.setattr(short_tables, "_FEWEST_FILES", 4)
    monkeypatch.setattr(short_tables, "_TARGETS", (50_000, 1 << 20))
    assert [minute(number) for number in range(4)] == [4, 4, 4, 4]
    assert len(sizes()) == 4
    with lease.held(metadata) as held:
        assert short_tables.put_together(held.metadata) == 4
    assert len(sizes()) == 1
    assert len(metadata.read("runs")) == 16


def test_checkpoints_don_t_tell_for_a_week_what_was_replaced(metadata: Metadata) -> None:
    metadata.append("runs", [run(0)])
    table = metadata.table("runs")
    kept = table.metadata().configuration[TOMBSTONES]
    table.alter.set_table_properties({TOMBSTONES: "interval 0 seconds"})  # as another binlake may have made it
    for number in range(20):
        metadata.replace("runs", "true", [run(number)])
    checkpoint = pq.read_table(max(log_of(metadata, "runs").glob("*.checkpoint.parquet")), columns=["remove"])
    assert checkpoint["remove"].null_count == checkpoint.num_rows
    with lease.held(metadata) as held:
        short_tables.put_together(held.metadata)
    assert metadata.table("runs").metadata().configuration[TOMBSTONES] == kept == "interval 60 seconds"
    assert len(metadata.read("runs")) == 1
