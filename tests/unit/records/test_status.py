"""What status says of a source: who works on it, how far it is, what isn't finished."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from binlake.cli import printing
from binlake.cli.printing import status_lines
from binlake.config import PipelineConfig
from binlake.config.table_modes import TableModes
from binlake.lease import followers, lease
from binlake.lease.holder import Holder, Watch, this_process
from binlake.lease.lease import OpenBatch, RecordedState
from binlake.position import Position, Range
from binlake.records.evidence import Evidence, evidence_of
from binlake.records.health import health_of
from binlake.records.record import LookKind, note_log
from binlake.records.status import SnapshotStatus, TableStatus, read_status
from binlake.records.watermarks import unsnapshotted_row
from binlake.schema.table import TableName
from binlake.source.ahead import Ahead, LogSeen
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import LogRow, WatermarkRow

HERE = Position("s", "b.000001", 4, 1)
ELSEWHERE = "it isn't asked"


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    """A source with a position."""
    config = PipelineConfig.model_validate(
        {
            "source": {"name": "shop", "connection": "shop", "server_id": 4001},
            "tables": {"include": ["shop.*"]},
            "lake": {"path": str(tmp_path)},
        }
    )
    with lease.held(metadata_of(config)) as held:
        held.stand(RecordedState(1, HERE))
    return config


def plan_a_batch(config: PipelineConfig, planned_us: int = 60) -> None:
    stop = replace(HERE, offset=900)
    with lease.held(metadata_of(config)) as held:
        held.open(OpenBatch(2, Range(HERE, stop, ()), planned_us=planned_us))


def metadata_of(config: PipelineConfig) -> Metadata:
    return Metadata(config.metadata_path("").rstrip("/"))


def hold(config: PipelineConfig, holder: str) -> None:
    changes: dict[str, str | int | None] = {
        "holder": holder,
        "token": "t",
        "since_us": now_us(),
        "expires_us": now_us() + 60_000_000,
    }
    metadata_of(config).swap("lease", "batch >= 0", changes)


def this_holder() -> Holder:
    holder = Holder.parse(this_process())
    assert holder is not None
    return holder


def test_a_holder_at_work(config: PipelineConfig) -> None:
    with lease.held(metadata_of(config)):
        status = read_status(config)
    assert status.to_json()["holder_died"] is False
    assert f"held by {status.holder}" in status_lines(status, ELSEWHERE)
    assert f"pid {os.getpid()}" in str(status.holder)


def test_a_holder_that_died_on_this_machine(config: PipelineConfig) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    hold(config, str(replace(this_holder(), pid=gone.pid, started=12345)))
    status = read_status(config)
    assert status.to_json()["holder_died"] is True
    said = f"pid {gone.pid} started 12345, which is dead: the next run takes over at once"
    assert any(line.endswith(said) for line in status_lines(status, ELSEWHERE))


def test_a_pid_that_another_process_has_by_now(config: PipelineConfig) -> None:
    hold(config, str(replace(this_holder(), pid=os.getppid(), started=12345)))
    assert read_status(config).holder_died


def test_of_a_holder_elsewhere_nobody_can_tell(config: PipelineConfig) -> None:
    hold(config, "other-host pid 1 started 1")
    status = read_status(config)
    assert status.to_json()["holder_died"] is False
    assert "dead" not in "".join(status_lines(status, ELSEWHERE))


@pytest.mark.parametrize(
    ("ahead", "said"),
    [
        (Ahead("b.000001:4", 0), "nothing behind"),
        (Ahead("b.000002:9", 1_500_000), "1.5 MB behind b.000002:9"),
        (Ahead("b.000009:9", None), "which the log, at b.000009:9, doesn't hold: binlake doctor says more"),
        ("no connection", "and how far behind isn't known:\n  no connection"),
    ],
)
def test_how_far_behind(config: PipelineConfig, ahead: Ahead | str, said: str) -> None:
    assert status_lines(read_status(config), ahead)[0] == f"shop: batch 0, at b.000001:4, {said}"


def test_a_thousand_tables_fit_a_terminal(config: PipelineConfig, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that follow are counted; reasons and remedies are wrapped between words."""
    why = "it holds what nobody follows, " * 9
    plain = TableStatus("shop.plain", "following", batch=7, delta_version=3)
    stopped = replace(plain, table="shop.odd", status="stopped", reason=why, remedy="fix it and " * 12)
    damaged = replace(plain, table="shop.damaged", reason="can't be read: no such file", problem="can't be read")
    rows = [replace(plain, table=f"shop.table_{n:04}") for n in range(999)]
    status = replace(
        read_status(config),
        tables=(*rows, damaged, stopped),
        holder="a-host-with-a-long-name.example.org pid 1234567 started 123456789, by an airflow task",
    )
    health = health_of(Evidence(status, now_us()))
    printing.status(status, "x " * 90, health, all_tables=False)
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    assert "table_0" not in said
    assert said.startswith("shop: 1 table is stopped.\nshop: batch 0"), "the worst is the first line"
    assert "tables: 1,000 following, 1 stopped" in said
    assert "--state following lists the 1,000" in " ".join(said.split())
    assert "shop.damaged can't be read: no such file" in said
    assert " ".join(why.split()) in " ".join(said.split())
    printing.status(status, "x", health, all_tables=True)
    assert "table_0998" in capsys.readouterr().out


@pytest.mark.parametrize(("until", "carried"), [(None, 50), (40, 40)])
def test_up_to_when_all_is_there(config: PipelineConfig, until: int | None, carried: int) -> None:
    """By the batch recorded last, also while another is open."""
    rows = [
        {"batch": 1, "state": "recorded", "planned_us": 50, "until_us": until},
        {"batch": 2, "state": "planned", "updated_us": 60},
    ]
    metadata_of(config).append("batches", rows)
    plan_a_batch(config)
    assert read_status(config).carried_us == carried


def test_up_to_when_all_is_there_after_a_bootstrap(config: PipelineConfig) -> None:
    metadata = metadata_of(config)
    bootstrap = {"kind": "bootstrap", "tables": "[]", "phases": "{}"}
    metadata.append("runs", [{**bootstrap, "position": "another", "started_us": 30}])
    assert read_status(config).carried_us == 30
    metadata.append("batches", [{"batch": 1, "state": "recorded", "planned_us": 50, "stop": "before"}])
    assert read_status(config).carried_us == 50
    metadata.append("runs", [{**bootstrap, "position": str(HERE), "started_us": 70}])
    assert read_status(config).carried_us == 70


def test_an_open_batch_that_no_run_works_on(config: PipelineConfig) -> None:
    metadata = metadata_of(config)
    plan_a_batch(config, planned_us=1_700_000_000_000_000)
    opened = "batch 2, begun at 2023-11-14 22:13:20 UTC, isn't finished: "
    assert read_status(config).abandoned == f"{opened}no run works on it"
    metadata.append("batches", [{"batch": 2, "state": "planned", "updated_us": now_us()}])
    assert not read_status(config).abandoned, "between two tasks of one run"
    failure = {"kind": "failed", "batch": 2, "ended_us": now_us(), "message": "no", "phases": '{"merge": 1}'}
    metadata.append("runs", [failure])
    assert read_status(config).abandoned == f"{opened}its run failed in merge"
    holder = replace(this_holder(), pid=os.getppid(), started=12345)
    hold(config, str(holder))
    assert read_status(config).abandoned == f"{opened}{holder}, which worked on it, died"
    hold(config, "other-host pid 1 started 1")
    assert not read_status(config).abandoned


def test_a_snapshot_that_was_killed(config: PipelineConfig) -> None:
    def chunks(snapshot: str, at: int, *states: str) -> None:
        row = {"snapshot": snapshot, "database": "shop", "updated_us": at, "rows": 10}
        rows = [{**row, "table": snapshot[0], "chunk": number, "state": state} for number, state in enumerate(states)]
        metadata_of(config).append("snapshots", rows)

    chunks("a1", 1, "staged", "planned")
    chunks("a2", 2, "committed")
    chunks("b1", 1, "committed")
    chunks("b2", 2, "staged", "staged", "planned")
    status = read_status(config)
    assert status.snapshots == (SnapshotStatus("shop.b", 3, 2, 20, 2),)
    assert "snapshot of shop.b isn't finished: 2 of 3 chunks, 20 rows" in status_lines(status, ELSEWHERE)


def test_who_follows_is_told_with_how_far_behind_or_why_nothing_is_carried(config: PipelineConfig) -> None:
    metadata = metadata_of(config)
    followers.prepare(metadata)
    assert read_status(config).to_json()["follower"] is None
    follower = followers.Follower(metadata, 0.5)
    follower.begin(Watch())
    with follower.kept():
        assert f"followed every 0.5 s, by {this_process()}" in status_lines(read_status(config), ELSEWHERE)
        follower.carried(now_us() - 1_800_000, 1)
        follower.update()
        status = read_status(config)
        assert status.follower is not None
        assert f"followed every 0.5 s, 1.8 s behind, by {this_process()}" in status_lines(status, ELSEWHERE)
        assert status.to_json()["follower"]["batch"] == 1
        assert status.carried_us is not None
        assert 1.8 <= (now_us() - status.carried_us) / 1e6 < 60, "though no batch was recorded"
        follower.waits("the server is away")
        follower.update()
        assert "  it waits: the server is away" in status_lines(read_status(config), ELSEWHERE)
        metadata.swap("followers", "true", {"at_us": now_us() - 20_000_000})
        silent = status_lines(read_status(config), ELSEWHERE)
        assert any(line.endswith("one that waits or is started takes over") for line in silent)
    assert read_status(config).follower is None


def test_a_table_whose_place_in_the_lake_is_that_of_a_history_is_not_to_be_snapshotted(config: PipelineConfig) -> None:
    for table in ("x__history", "y"):
        row = unsnapshotted_row(TableName("shop", table), "missing", "never snapshotted", batch=1, position=HERE)
        WatermarkRow.append(metadata_of(config), [row])
    modes = [TableModes.model_validate({"tables": "shop.x", "history": {}})]
    history, other = read_status(
        config.model_copy(update={"tables": config.tables.model_copy(update={"modes": modes})})
    ).tables
    assert history.reason == "its place in the lake is that of the history of shop.x, which tables.modes asks for"
    assert history.remedy == "rename the table, exclude it, or take the mode out of tables.modes"
    assert (other.reason, (other.remedy or "").partition(" --config")[0]) == ("never snapshotted", "binlake snapshot")


def test_a_lake_whose_connection_leads_elsewhere_says_so_first(config: PipelineConfig) -> None:
    """By what the server says now, though it was right when its log was noted last."""
    metadata = metadata_of(config)
    seen = {"head": "b.000001:4", "bytes_ahead": 0, "oldest_file": "b.000001", "files": 1, "bytes": 4, "server": "s"}
    metadata.append("source_log", [{**seen, "at_us": now_us()}])
    status = read_status(config)
    well = health_of(evidence_of(config, metadata, status, now_us()))
    assert well.level == "good"
    ahead = Ahead("c.000007:9", None, server="other")
    wrong = health_of(evidence_of(config, metadata, status, now_us(), ahead=ahead))
    assert wrong.sentence == (
        "The lake belongs to another server: it follows s, and the connection leads to other."
    )  # fmt: skip


def test_a_look_that_found_nothing_proves_what_a_batch_would_also_once_something_is_written(
    config: PipelineConfig,
) -> None:
    """Otherwise one new row on a server that was idle for a day is a lag of a day."""
    look = {"head": "b.1:4", "files": 1, "bytes": 4, "batch": 1, "bytes_ahead": 0, "kind": "look"}
    metadata_of(config).append("source_log", [
        {**look, "at_us": 70}, {**look, "at_us": 80}, {**look, "at_us": 88, "batch": 2},
        {**look, "at_us": 89, "bytes_ahead": 90},
    ])  # fmt: skip
    assert read_status(config).carried_us == 80, "batch 2 isn't recorded"


def test_what_a_sync_found_is_noted_beside_looks_of_others(config: PipelineConfig) -> None:
    seen = LogSeen(0, "b.000001:4", 0, "b.000001", 1, 9, 24.0)
    looks: tuple[tuple[int, LookKind], ...] = ((3, "look"), (5, "nothing new"), (6, "nothing new"), (7, "look"))
    for at_us, kind in looks:
        note_log(metadata_of(config), replace(seen, at_us=at_us), 1, kind)
    assert {row.kind: row.at_us for row in LogRow.read(metadata_of(config))} == {"nothing new": 6, "look": 7}
    assert read_status(config).nothing_new_us == 6
