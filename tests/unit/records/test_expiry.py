"""Our own tables: rows go when their time is over and nobody may ask for them, files when they were replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from binlake.config import MaintainConfig
from binlake.planner.steps import Status
from binlake.position import Position
from binlake.records.expiry import MetadataUpkeep, keep_metadata, unfinished_snapshots
from binlake.records.record import LOG_NOTED_EACH_US, log_noted, note_log
from binlake.records.watermarks import unsnapshotted_row
from binlake.schema.table import TableName
from binlake.source.ahead import LogSeen
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import LogRow, WatermarkRow

DAY = 24 * 3600 * 1_000_000


@pytest.fixture
def metadata(tmp_path: Path) -> Metadata:
    return Metadata(str(tmp_path / "_binlake"))


def ago(days: float) -> int:
    return now_us() - int(days * DAY)


def keep(metadata: Metadata, **promised: Any) -> dict[str, MetadataUpkeep]:
    return {expired.table: expired for expired in keep_metadata(metadata, MaintainConfig(**promised))}


def left(metadata: Metadata, name: str, column: str) -> list[Any]:
    return sorted(row[column] for row in metadata.read(name))


def test_nothing_is_made_where_nothing_is(metadata: Metadata) -> None:
    assert keep(metadata) == {}


def test_runs_stay_for_their_days_and_the_newest_for_ever(metadata: Metadata) -> None:
    for kind, days in (("sync", 300), ("sync", 200), ("maintain", 150)):
        metadata.append("runs", [{"run": f"{kind} {days}", "kind": kind, "ended_us": ago(days)}])
    assert keep(metadata)["runs"].rows_expired == 1
    assert left(metadata, "runs", "run") == ["maintain 150", "sync 200"]
    metadata.append("runs", [{"run": "new", "kind": "sync", "ended_us": ago(1)}])
    assert keep(metadata)["runs"].rows_expired == 2
    assert left(metadata, "runs", "run") == ["new"]


def test_of_looks_at_the_log_the_newest_of_each_five_minutes_stays_for_the_days_of_runs(metadata: Metadata) -> None:
    def noted(at_us: int) -> None:
        note_log(metadata, LogSeen(at_us, "b.000001:4", 0, "b.000001", 1, 9, 24.0), 7)

    began = ago(100) // LOG_NOTED_EACH_US * LOG_NOTED_EACH_US
    for minutes in (0, 4, 6, 9, 12):
        noted(began + minutes * 60_000_000)
    assert [(at - began) // 60_000_000 for at in left(metadata, "source_log", "at_us")] == [4, 9, 12]
    assert keep(metadata)["source_log"].rows_expired == 2, "the newest stays for ever"
    noted(ago(1))
    assert keep(metadata)["source_log"].rows_expired == 1
    assert [log_noted(metadata)] == LogRow.read(metadata)


def test_of_old_sizes_each_tables_newest_stays_unless_it_is_gone(metadata: Metadata) -> None:
    for table, days, files in (("a", 300, 1), ("a", 200, 2), ("b", 200, 3), ("b", 150, 0), ("a", 1, 4)):
        row = {"at_us": ago(days), "database": "d", "table": table, "bytes": 9 * files, "files": files}
        metadata.append("lake_sizes", [row])
    assert keep(metadata)["lake_sizes"].rows_expired == 3
    assert left(metadata, "lake_sizes", "files") == [2, 4]
    assert keep(metadata)["lake_sizes"].rows_expired == 0


def test_batches_that_a_table_has_yet_to_catch_up_with_stay(metadata: Metadata) -> None:
    for batch in range(1, 8):
        state = "recorded" if batch < 7 else "merged"
        metadata.append("batches", [{"batch": batch, "state": state, "updated_us": ago(100)}])
    metadata.append("watermarks", [{"table_id": "a", "status": "following", "batch": 2}])
    metadata.append("watermarks", [{"table_id": "b", "status": "paused", "batch": 4}])
    assert keep(metadata)["batches"].rows_expired == 3
    assert left(metadata, "batches", "batch") == [4, 5, 6, 7]
    metadata.replace("watermarks", "table_id = 'b'", [])
    keep(metadata)
    assert left(metadata, "batches", "batch") == [7]


@pytest.mark.parametrize("status", ["missing", "resnapshot"])
def test_a_table_that_was_never_snapshotted_needs_no_batch(metadata: Metadata, status: Status) -> None:
    for batch in range(1, 4):
        metadata.append("batches", [{"batch": batch, "state": "recorded", "updated_us": ago(100)}])
    name, position = TableName("d", "never"), Position("server", "b.000001", 4, 1)
    WatermarkRow.append(metadata, [unsnapshotted_row(name, status, "why", batch=1, position=position)])
    assert keep(metadata)["batches"].rows_expired == 2
    assert left(metadata, "batches", "batch") == [3]


def test_the_quarantine_keeps_what_stopped_a_table_that_stands_still(metadata: Metadata) -> None:
    rows = [("a", 100), ("b", 100), (None, 100), ("b", 1)]
    metadata.append(
        "quarantine", [{"table_id": key, "reason": f"{key} {days}", "at_us": ago(days)} for key, days in rows]
    )
    metadata.append("watermarks", [{"table_id": "a", "status": "stopped", "batch": 1}])
    keep(metadata)
    assert left(metadata, "quarantine", "reason") == ["None 100", "a 100", "b 1"]
    metadata.replace("watermarks", "table_id = 'a'", [])
    keep(metadata)
    assert left(metadata, "quarantine", "reason") == ["b 1"]


def test_snapshots_that_aren_t_done_and_the_newest_of_each_table_stay(metadata: Metadata) -> None:
    rows = [("first", "t", "committed", 300), ("second", "t", "committed", 200), ("dead", "t", "staged", 250),
            ("other", "u", "committed", 400)]  # fmt: skip
    for snapshot, table, state, days in rows:
        chunk = {"database": "d", "table": table, "state": state, "updated_us": ago(days)}
        metadata.append("snapshots", [{"snapshot": snapshot, "chunk": number, **chunk} for number in range(2)])
    assert keep(metadata)["snapshots"].rows_expired == 2
    assert set(left(metadata, "snapshots", "snapshot")) == {"second", "dead", "other"}
    assert unfinished_snapshots(metadata) == {"dead": TableName("d", "t")}


def test_what_is_known_of_former_lives_goes(metadata: Metadata) -> None:
    for life in ("former", "dropped", "following", "stopped"):
        metadata.append("verified", [{"table_id": life, "chunk": number} for number in range(2)])
    assert keep(metadata)["verified"].rows_expired == 0
    metadata.append("watermarks", [{"table_id": "dropped", "status": "dropped", "batch": 2}])
    metadata.append("watermarks", [{"table_id": life, "status": life, "batch": 2} for life in ("following", "stopped")])
    assert keep(metadata)["verified"].rows_expired == 4
    assert left(metadata, "verified", "table_id") == ["following", "following", "stopped", "stopped"]


def statement(table: str, file: str, offset: int, days: float, after: str | None = "{}") -> dict[str, Any]:
    about = {"batch": 1, "file": file, "offset": offset, "committed_us": ago(days), "after": after}
    return {**about, "database": "d", "table": table}


def test_the_ddl_history_stays_for_ever_or_as_long_as_shapes_are_promised(metadata: Metadata) -> None:
    for table, offset, days in (("t", 1, 900), ("t", 2, 800), ("t", 3, 10), ("u", 4, 700)):
        metadata.append("ddl_history", [statement(table, "binlog.000001", offset, days)])
    keep(metadata)
    assert left(metadata, "ddl_history", "offset") == [1, 2, 3, 4]
    assert keep(metadata, ddl_history_days=100)["ddl_history"].rows_expired == 1
    assert left(metadata, "ddl_history", "offset") == [2, 3, 4], (
        "what stood a hundred days ago is told by the last before"
    )


def test_the_last_statement_of_a_table_is_the_last_in_the_log_that_tells_its_shape(metadata: Metadata) -> None:
    """In one batch the log may continue in a new file, and a statement may change a table but no shape."""
    before, behind = "binlog.999999", "binlog.1000000"
    rows = [statement("t", before, 900, 800), statement("t", behind, 200, 799), statement("u", before, 300, 700),
            statement("u", before, 400, 699, after=None), statement("u", before, 500, 698, after=None)]  # fmt: skip
    metadata.append("ddl_history", rows)
    assert keep(metadata, ddl_history_days=100)["ddl_history"].rows_expired == 2
    assert left(metadata, "ddl_history", "offset") == [200, 300, 500]


def test_a_table_has_few_files_and_what_was_replaced_goes_after_its_time(metadata: Metadata, tmp_path: Path) -> None:
    for number in range(20):
        metadata.append("runs", [{"run": f"{number}", "kind": "sync", "ended_us": ago(0)}])
    folder = tmp_path / "_binlake" / "runs"
    assert len(DeltaTable(str(folder)).file_uris()) == 20
    assert keep(metadata)["runs"] == MetadataUpkeep("runs", 20, 1, 0, 0, 0)
    assert len(list(folder.glob("*.parquet"))) == 21, "a run that sleeps may still come to commit"
    expired = keep(metadata, metadata_hours=0)["runs"]
    assert (expired.files_before, expired.files_after, expired.removed_files) == (1, 1, 20)
    assert len(list(folder.glob("*.parquet"))) == 1
    assert len(metadata.read("runs")) == 20
    metadata.append("runs", [{"run": "more", "kind": "sync", "ended_us": ago(0)}])
    assert len(metadata.read("runs")) == 21


def test_the_log_of_a_table_ends_somewhere(metadata: Metadata, tmp_path: Path) -> None:
    log = tmp_path / "_binlake" / "runs" / "_delta_log"
    counts = []
    for _ in range(4):
        for number in range(30):
            metadata.append("runs", [{"run": f"{number}", "kind": "sync", "ended_us": ago(0)}])
        keep(metadata, metadata_hours=0)
        counts.append(len(list(log.iterdir())))
    assert max(counts[1:]) <= counts[0] + 30, counts
    checkpoint = pq.read_table(max(log.glob("*.checkpoint.parquet")), columns=["remove"])
    assert checkpoint["remove"].null_count == checkpoint.num_rows, "files that went aren't told of for a week"
