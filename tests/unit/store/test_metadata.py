"""Compare and swap decides; appends never do."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from binlake.errors import LakeError
from binlake.records import runs
from binlake.store.metadata import Metadata
from binlake.store.table_schemas import SCHEMAS


@pytest.fixture
def metadata(tmp_path: Path) -> Metadata:
    return Metadata(str(tmp_path / "a b" / "_binlake"))


def test_tables_appear_when_first_written(metadata: Metadata) -> None:
    assert metadata.read("runs") == []
    metadata.append("runs", [{"run": "r", "message": "it's"}])
    assert [row["message"] for row in metadata.read("runs")] == ["it's"]


def test_a_table_of_an_older_binlake_gets_the_columns_it_lacks(tmp_path: Path) -> None:
    newest = pa.schema(SCHEMAS["runs"])
    older = newest.remove(newest.get_field_index("why_spark"))
    row = {name: None for name in older.names}
    write_deltalake(f"{tmp_path}/runs", pa.Table.from_pylist([{**row, "run": "old", "ended_us": 1}], schema=older))
    metadata = Metadata(str(tmp_path))
    assert [run.why_spark for run in runs.newest(metadata, 2)] == [""]
    assert metadata.read("runs")[0]["why_spark"] is None
    assert metadata.read_columns("runs", ["why_spark"])["why_spark"].to_pylist() == [None]
    metadata.append("runs", [{"run": "new", "ended_us": 2, "why_spark": "stage: much log"}])
    metadata.replace("runs", "run = 'old'", [{"run": "old", "ended_us": 1, "why_spark": "merge: no key"}])
    assert [run.why_spark for run in runs.newest(metadata, 2)] == ["stage: much log", "merge: no key"]


def test_swap_changes_one_row_once(metadata: Metadata) -> None:
    metadata.create_with("lease", [{"batch": 0}])
    assert metadata.swap("lease", "batch = 0", {"batch": 1, "holder": "it's"})
    assert not metadata.swap("lease", "batch = 0", {"batch": 1})
    assert metadata.read("lease", ["batch", "holder"]) == [{"batch": 1, "holder": "it's"}]


def test_a_stale_swap_loses(metadata: Metadata, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata.create_with("lease", [{"batch": 0}])
    stale = metadata.table("lease")
    assert metadata.swap("lease", "batch = 0", {"batch": 1})
    monkeypatch.setattr(metadata, "table", lambda name: stale)
    assert not metadata.swap("lease", "batch = 0", {"batch": 7})


def test_two_first_rows_leave_one(metadata: Metadata) -> None:
    metadata.create_with("lease", [{"batch": 0}])
    metadata.create_with("lease", [{"batch": 0}])
    assert len(metadata.read("lease")) == 1


def test_replace_is_repeatable(metadata: Metadata) -> None:
    metadata.append("ddl_history", [{"batch": 1, "statement": "a"}])
    for _ in range(2):
        metadata.replace("ddl_history", "batch = 2", [{"batch": 2, "statement": "b"}])
    assert sorted(row["statement"] for row in metadata.read("ddl_history")) == ["a", "b"]
    metadata.replace("ddl_history", "batch = 2", [])
    assert [row["statement"] for row in metadata.read("ddl_history")] == ["a"]


def test_no_more_than_ten_commits_are_read_to_open_a_table(tmp_path: Path) -> None:
    metadata = Metadata(str(tmp_path))
    metadata.create_with("lease", [{"batch": 0}])
    for batch in range(12):
        assert metadata.swap("lease", f"batch = {batch}", {"batch": batch + 1})
    checkpoint = tmp_path / "lease" / "_delta_log" / "_last_checkpoint"
    assert json.loads(checkpoint.read_text())["version"] == 9


def test_of_many_who_swap_a_row_at_once_one_wins(tmp_path: Path) -> None:
    metadata = Metadata(str(tmp_path))
    metadata.create_with("lease", [{"batch": 0}])
    with ThreadPoolExecutor(6) as pool:
        for batch in range(24):
            swaps = [partial(metadata.swap, "lease", f"batch = {batch}", {"batch": batch + 1}) for _ in range(6)]
            assert sum(pool.map(lambda swap: swap(), swaps)) == 1
            assert metadata.read("lease", ["batch"]) == [{"batch": batch + 1}]


def test_rows_that_many_add_at_once_all_stay(metadata: Metadata) -> None:
    def add(number: int) -> None:
        metadata.append("runs", [{"run": f"{number}"}])

    add(0)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(add, range(1, 60)))
    assert sorted(int(row["run"]) for row in metadata.read("runs", ["run"])) == list(range(60))


def test_a_row_is_only_put_in_the_place_of_one_that_stays_alone(metadata: Metadata) -> None:
    metadata.append("feeds", [{"feed": "a", "batch": 1}, {"feed": "b", "batch": 1}])
    metadata.append("feeds", [{"feed": "c", "batch": 1}])
    assert metadata.swap("feeds", "feed = 'b' AND batch = 1", {"batch": 2})
    assert not metadata.swap("feeds", "feed = 'b' AND batch = 1", {"batch": 3})
    assert {row["feed"]: row["batch"] for row in metadata.read("feeds")} == {"a": 1, "b": 2, "c": 1}


def test_what_another_wrote_is_read(metadata: Metadata) -> None:
    others = Metadata(str(Path(metadata.location("runs")).parent))
    for number in range(3):
        others.append("runs", [{"run": f"{number}"}])
        assert len(metadata.read("runs")) == len(metadata.read("runs")) == number + 1
    shutil.rmtree(metadata.location("runs"))
    for number in range(3):
        others.append("runs", [{"run": f"anew {number}"}])
    assert {row["run"] for row in metadata.read("runs")} == {"anew 0", "anew 1", "anew 2"}


def test_an_unwritable_lake_says_what_to_do(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(LakeError, match="writable"):
        Metadata(str(blocked)).append("runs", [{"run": "r"}])


def test_every_table_of_the_plan_has_a_schema() -> None:
    assert set(SCHEMAS) == {
        "batches", "runs", "lease", "watermarks", "ddl_history", "schemas", "snapshots", "quarantine",
        "decisions", "source_log", "unlogged", "verifications", "verified", "repairs", "registrations", "feeds",
        "omissions", "lake_versions", "readable_since", "pins", "registered_views", "followers", "copiers",
        "catalog_problems", "unfinished_verifications", "thinned", "lake_sizes", "made", "awaited", "follower_stops",
        "merged_standstills", "filter_estimates",
    }  # fmt: skip
