"""Batches of seconds: after a day the newest of each hour is a version, and its run shows what all of them did."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from binlake.errors import UsageError
from binlake.lake import pins
from binlake.lake.lake_versions import LakeVersion, lake_versions, version_at, versions_read
from binlake.position import Position
from binlake.records import thinning
from binlake.records.decisions import Reason
from binlake.store.metadata import Metadata, now_us

HOUR = 3_600_000_000
MINUTE = HOUR // 60
NOW = now_us() // HOUR * HOUR
BEGAN = NOW - 30 * HOUR
"""Of the first batch; one was recorded each minute."""


def recorded(batch: int) -> int:
    return BEGAN + batch * MINUTE


@pytest.fixture
def metadata(tmp_path: Path) -> Metadata:
    """180 batches, of three hours a day ago. Each changed ``busy``, every fiftieth ``calm``: to the batch's number."""
    made = Metadata(str(tmp_path / "_binlake"))
    rows: list[dict[str, Any]] = []
    for batch in range(180):
        own = {"batch": batch, "kind": "batch", "at_us": recorded(batch), "began_us": recorded(batch) - 1000}
        rows.append({**own, "position": str(Position("s", "b.000001", 10 * batch, 1)), "committed_us": recorded(batch)})
        rows += [{**own, **table(name), "delta_version": batch} for name in changed(batch)]
    made.append("lake_versions", rows)
    made.append("pins", [{"name": "kept", "batch": 33, "who": "w", "why": "y", "at_us": 1}])
    return made


def changed(batch: int) -> Iterable[str]:
    return ("busy", "calm") if batch % 50 == 0 else ("busy",)


def table(name: str) -> dict[str, Any]:
    return {"table_id": name, "database": "d", "table": name, "status": "following"}


def versions(metadata: Metadata, hours: float | None = None) -> dict[int, LakeVersion]:
    return {version.batch: version for version in lake_versions(metadata, hours)}


def test_of_each_hour_the_newest_batch_stays_with_the_versions_that_it_had(metadata: Metadata) -> None:
    before = versions(metadata, hours=168)
    assert thinning.thin_versions(metadata, recorded(120)) == 120 - 3
    after = versions(metadata, hours=168)
    assert [batch for batch in after if batch < 120] == [33, 59, 119]
    assert [batch for batch in after if batch >= 120] == list(range(120, 180))
    for batch, version in after.items():
        assert version.tables == before[batch].tables
        assert (version.readable, version.until, version.name) == (True, before[batch].until, before[batch].name)
    read = {table.delta_version for table, _ in versions_read(metadata) if table.table_id == "busy"}
    assert read == set(after), "what tells until when one stood is read by none"
    assert len(metadata.read("lake_versions")) < 6 * 3 + 3 * 61
    assert thinning.thin_versions(metadata, recorded(120)) == 0
    with pytest.raises(UsageError, match=r"batch 60 is no version any more.*newest of each hour") as refused:
        version_at(list(after.values()), batch=60)
    assert "take batch 59 or 119" in str(refused.value.remedy)


def test_a_batch_that_was_never_recorded_doesnt_count_as_thinned(metadata: Metadata) -> None:
    metadata.replace("lake_versions", "batch = 101", [])
    metadata.append("batches", [{"batch": batch, "state": "recorded"} for batch in range(180) if batch != 101])
    metadata.append("batches", [{"batch": 101, "state": "planned"}])
    assert thinning.count_thinned(metadata, list(versions(metadata))) == 0
    gone = thinning.thin_versions(metadata, recorded(120))
    assert thinning.count_thinned(metadata, list(versions(metadata))) == gone - 33, "those between batches that stay"


def test_few_batches_of_an_hour_all_stay(metadata: Metadata) -> None:
    metadata.replace("lake_versions", "batch % 6 <> 0", [])
    assert thinning.thin_versions(metadata, recorded(120)) == 0
    assert not thinning.is_thinned(metadata)


def test_a_batch_that_is_pinned_while_others_go_stays(metadata: Metadata, monkeypatch: pytest.MonkeyPatch) -> None:
    note = thinning._note

    def noted(metadata: Metadata, batches: Iterable[int]) -> None:
        note(metadata, list(batches))
        if 70 in thinning.going(metadata):
            with pytest.raises(UsageError, match="batch 70 is being removed"):
                pins.pin(metadata, 70, "late", Reason("who", "why"))
            metadata.append("pins", [{"name": "early", "batch": 71, "who": "w", "why": "y", "at_us": 1}])

    monkeypatch.setattr(thinning, "_note", noted)
    thinning.thin_versions(metadata, recorded(120))
    assert [batch for batch in versions(metadata) if batch < 120] == [33, 59, 71, 119]
    assert [pin.name for pin in pins.read(metadata)] == ["kept", "early"]
    assert thinning.going(metadata) == set()
    assert thinning.is_thinned(metadata)


@pytest.mark.parametrize("before_us", [None, recorded(0)], ids=["all stay", "for longer"])
def test_batches_that_a_killed_run_noted_can_be_pinned_once_they_stay(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch, before_us: int | None
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(thinning, "_remove", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            thinning.thin_versions(metadata, recorded(120))
    assert 60 in thinning.going(metadata)
    assert thinning.thin_versions(metadata, before_us) == 0
    assert pins.pin(metadata, 60, "month_end", Reason("tests", "it stays")).batch == 60


def test_runs_of_an_hour_become_one_that_tells_what_all_did(metadata: Metadata) -> None:
    def run(batch: int, **what: Any) -> dict[str, Any]:
        counts = {"table": "d.busy", "inserted": 1, "updated": 2, "deleted": 0, "seconds": 0.5, "delta_version": batch}
        contents = {
            "tables": json.dumps([counts]),
            "phases": json.dumps({"merge": 0.25}),
            "why_spark": what.get("why", ""),
        }
        ended = {"started_us": recorded(batch) - 5, "ended_us": recorded(batch)}
        return {"run": f"{batch}", "kind": "sync", "batch": batch, "bytes": 7, "mutations": 3, **ended, **contents}

    metadata.append("runs", [run(batch, why="merge: x" if batch in (3, 4) else "") for batch in range(130)])
    metadata.append("runs", [{"run": "v", "kind": "verify", "batch": 3, "ended_us": recorded(3)}])
    assert thinning.thin_runs(metadata, recorded(120)) == 2 * 59
    rows = sorted(metadata.read("runs", where="kind = 'sync'"), key=lambda row: int(row["batch"]))
    assert [row["batch"] for row in rows] == [59, 119, *range(120, 130)]
    assert [row["mutations"] for row in rows[:3]] == [180, 180, 3]
    assert (rows[0]["bytes"], rows[0]["started_us"], rows[0]["why_spark"]) == (420, recorded(59) - 60 * 5, "merge: x")
    assert json.loads(rows[0]["phases"]) == {"merge": 15.0}
    assert rows[0]["message"] == "60 batches of this hour: 180 rows of 1 table"
    (busy,) = json.loads(rows[0]["tables"])
    assert (busy["inserted"], busy["updated"], busy["delta_version"]) == (60, 120, 59)
    assert metadata.count("runs", "kind = 'verify'") == 1
    assert thinning.thin_runs(metadata, recorded(120)) == 0
