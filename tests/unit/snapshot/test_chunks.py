"""What is one chunk, and that metadata gives a dead snapshot back."""

from __future__ import annotations

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from binlake.config import PipelineConfig
from binlake.delta.delta_actions import DataFile
from binlake.errors import LakeError, UnsupportedColumn
from binlake.planner.steps import Life
from binlake.position import Position
from binlake.records import watermarks
from binlake.schema.invalid import KEEP_DATES
from binlake.schema.table import Column, TableName, TableSchema
from binlake.snapshot.attempts import Attempts, Copied
from binlake.snapshot.bounds import Bound, Edge
from binlake.snapshot.chunks import CHUNK_ROWS, Chunk, Records, TableSnapshot, chunk_count, plan
from binlake.source.catalog import SourceTable
from binlake.source.server import Source
from binlake.store.metadata import Metadata

NAME = TableName("d", "t")
KEYED = TableSchema((Column("id", "int", nullable=False), Column("v", "varchar", length=9)), ("id",), "primary")
P1, P2 = Position("s", "b.000001", 4, 1), Position("s", "b.000001", 99, 1)


class Unasked(Source):
    """Of a table that can't be cut the server isn't asked anything."""

    def __init__(self) -> None:
        pass

    def query(self, sql: str, args: Any = None) -> list[dict[str, Any]]:
        raise AssertionError(sql)


def table(rows: int, schema: TableSchema = KEYED, engine: str = "InnoDB") -> SourceTable:
    return SourceTable(NAME, "BASE TABLE", engine, rows, 0, schema)


@pytest.mark.parametrize(
    "source_table",
    [
        table(5),
        table(10),
        table(1000, TableSchema(KEYED.columns)),
        table(1000, replace(KEYED, sequence=True)),
        table(1000, engine="MyISAM"),
    ],
)
def test_one_chunk(source_table: SourceTable) -> None:
    assert plan(Unasked(), source_table, chunk_rows=10).chunks == [Chunk(0)]


@pytest.mark.parametrize(
    ("rows", "connections", "chunks"),
    [
        (0, 4, 1),
        (300_000, 16, 1),
        (1_000_000, 2, 2),
        (1_000_000, 16, 5),
        (2_200_000, 2, 4),
        (2_200_000, 1, 3),
        (100_000_000, 16, 112),
    ],
)
def test_every_connection_has_a_chunk(rows: int, connections: int, chunks: int) -> None:
    assert chunk_count(rows, 1_000_000, connections) == chunks


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "source": {"name": "s", "connection": "c", "server_id": 1},
            "tables": {"include": ["*.*"]},
            "lake": {"path": str(tmp_path)},
        }
    )


def records(config: PipelineConfig) -> Records:
    return Records(config, Metadata(f"{config.root}/_binlake"))


AT_50: Bound = (Edge("id", "50"),)


def begun(config: PipelineConfig, schema: TableSchema = KEYED) -> TableSnapshot:
    """A snapshot that died: with a key, one of its two chunks is staged."""
    made = plan(Unasked(), table(100, schema))
    if schema.key:
        copied = Chunk(0, None, AT_50, P1, P2, rows=7, bytes=70, lock_ms=3, attempt="snapshot-1")
        made.chunks = [copied, Chunk(1, AT_50, None)]
    records(config).save(made)
    return made


def test_a_dead_snapshot_is_taken_up(config: PipelineConfig) -> None:
    made = begun(config)
    unfinished = records(config).unfinished(table(100), lambda position: position == P1)
    assert unfinished is not None
    assert (unfinished.id, unfinished.chunks, unfinished.schema) == (made.id, made.chunks, made.schema)
    assert [chunk.number for chunk in unfinished.pending] == [1]


def test_bounds_that_are_numbers_alone_are_taken_up(config: PipelineConfig) -> None:
    """As version 0.1.0 wrote them, in the first column of any key."""
    pair = replace(KEYED, columns=(*KEYED.columns, Column("w", "int", nullable=False)), key=("id", "w"))
    begun(config, pair)
    metadata = Metadata(f"{config.root}/_binlake")
    metadata.swap("snapshots", "chunk = 0", {"upper": "-7"})
    metadata.swap("snapshots", "chunk = 1", {"lower": "-7"})
    unfinished = records(config).unfinished(table(100, pair), lambda position: True)
    assert unfinished is not None
    bound = (Edge("id", "-7"),)
    assert [(chunk.lower, chunk.upper) for chunk in unfinished.chunks] == [(None, bound), (bound, None)]
    assert unfinished.chunks[0].low == P1


def test_a_committed_snapshot_keeps_no_values_of_keys(config: PipelineConfig) -> None:
    made = begun(config)
    assert "50" in json.dumps(Metadata(f"{config.root}/_binlake").read("snapshots")[0]["upper"])
    records(config).save(made, committed=True)
    rows = Metadata(f"{config.root}/_binlake").read("snapshots")
    assert [(row["lower"], row["upper"]) for row in rows] == [(None, None), (None, None)]


def test_a_dead_snapshot_is_of_no_use(config: PipelineConfig) -> None:
    begun(config)
    other = TableSchema((*KEYED.columns, Column("w", "int")), ("id",), "primary")
    assert records(config).unfinished(table(100, other), lambda position: True) is None
    assert records(config).unfinished(table(100), lambda position: False) is None
    keyless = TableSchema(KEYED.columns)
    begun(config, keyless)
    assert records(config).unfinished(table(100, keyless), lambda position: True) is None


def snapshots_versions(config: PipelineConfig) -> int:
    return DeltaTable(config.metadata_path("snapshots")).version()


def test_many_tables_are_saved_in_one_commit(config: PipelineConfig) -> None:
    begun(config)
    before = snapshots_versions(config)
    tables = [plan(Unasked(), replace(table(1), name=TableName("d", f"t{number}"))) for number in range(5)]
    records(config).save(*tables)
    assert snapshots_versions(config) == before + 1
    assert len(Metadata(f"{config.root}/_binlake").read("snapshots")) == 2 + 5


def test_what_one_thread_fails_to_save_fails_for_all_that_wait(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, other = (plan(Unasked(), replace(table(1), name=TableName("d", name))) for name in ("one", "other"))
    metadata = Metadata(f"{config.root}/_binlake")
    recorded = Records(config, metadata)
    replacing, waiting = threading.Event(), threading.Event()

    def failing(name: str, predicate: str, rows: list[dict[str, Any]]) -> None:
        replacing.set()
        waiting.wait(10)
        raise LakeError("full", remedy="")

    with monkeypatch.context() as full, ThreadPoolExecutor(2) as pool:
        full.setattr(metadata, "replace", failing)
        first = pool.submit(recorded.save, planned)
        replacing.wait(10)
        second = pool.submit(recorded.save, other)
        waiting.set()
        assert isinstance(first.exception(), LakeError)
        assert isinstance(second.exception(), LakeError)
    recorded.save()
    assert {row["table"] for row in metadata.read("snapshots")} == {"one", "other"}


def copied(config: PipelineConfig, made: TableSnapshot, size: int = 70) -> tuple[Attempts, Path]:
    """The first chunk's files as they lie there: in staging, and in the table's folder."""
    attempts, attempt = records(config).attempts(made), made.chunks[0].attempt
    attempts.begin(attempt)
    file = Path(attempts.data_folder(attempt)) / "part.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(bytes(size))
    attempts.done(attempt, Copied((DataFile(f"{attempt}/part.parquet", 70, 7, "{}"),)))
    return attempts, file


def test_forgotten_snapshots_lose_their_files(config: PipelineConfig) -> None:
    made = begun(config)
    attempts, file = copied(config, made)
    tables_own = file.parent.parent / "part.parquet"
    tables_own.touch()
    records(config).forget(NAME, but=made.id)
    assert file.exists()
    records(config).forget(NAME)
    assert not file.parent.exists()
    assert not Path(attempts.folder).exists()
    assert tables_own.exists()
    assert records(config).unfinished(table(100), lambda position: True) is None


def test_what_was_given_to_delta_is_removed_by_nobody(config: PipelineConfig) -> None:
    """A commit may know the files, though the run that made it died before it could say so."""
    made = begun(config)
    attempts, file = copied(config, made)
    attempts.give()
    records(config).forget(NAME)
    assert file.exists()
    assert not Path(attempts.folder).exists()


def test_what_died_while_it_was_removed_is_removed_by_the_next_run(config: PipelineConfig) -> None:
    made = begun(config)
    attempts, file = copied(config, made)
    records(config).clean()
    assert records(config).lost(made) == []
    Metadata(f"{config.root}/_binlake").replace("snapshots", "true", [])
    older = Path(config.staging_path("snapshot", "of-an-older-version", "0"))
    older.mkdir(parents=True)
    records(config).clean()
    assert not file.exists()
    assert not any(Path(attempts.folder).parent.iterdir())


def test_what_is_copied_again_goes(config: PipelineConfig) -> None:
    made = begun(config)
    _, file = copied(config, made)
    records(config).copy_again(made, made.chunks[:1])
    assert not file.exists()
    unfinished = records(config).unfinished(table(100), lambda position: True)
    assert unfinished is not None
    assert [chunk.number for chunk in unfinished.pending] == [0, 1]


def test_of_a_committed_snapshot_only_staging_is_removed(config: PipelineConfig) -> None:
    made = begun(config)
    attempts, file = copied(config, made)
    attempts.give()
    records(config).save(made, committed=True)
    records(config).clean()
    assert file.exists()
    assert not Path(attempts.folder).exists()


def test_chunks_as_an_older_version_staged_them_are_copied_anew(config: PipelineConfig) -> None:
    """They were Parquet in staging, under ids whose digests say nothing of the lake's columns."""
    made = plan(Unasked(), table(100))
    made.id = f"{made.id.partition('-')[0]}-01234567"
    made.chunks = [Chunk(0, None, None, P1, P2, rows=7, bytes=70)]
    records(config).save(made)
    folder = Path(config.staging_path("snapshot", made.id, "0"))
    folder.mkdir(parents=True)
    (folder / "part-00000.snappy.parquet").touch()
    Metadata(f"{config.root}/_binlake").swap("snapshots", "true", {"path": str(folder)})
    assert records(config).unfinished(table(100), lambda position: True) is None
    records(config).forget(NAME)
    assert not folder.parent.exists()
    assert Metadata(f"{config.root}/_binlake").read("snapshots") == []


def test_another_policy_makes_other_files(config: PipelineConfig) -> None:
    dated = replace(KEYED, columns=(*KEYED.columns, Column("d", "date")))
    begun(config, dated)
    assert records(config).unfinished(table(100, dated), lambda position: True) is not None
    keeping = config.model_copy(update={"invalid_dates": "keep_text"})
    assert records(keeping).unfinished(table(100, dated), lambda position: True) is None


def test_chunks_are_lost_when_a_file_is_gone_or_cut_or_not_known(config: PipelineConfig) -> None:
    made = begun(config)
    attempts, file = copied(config, made)
    assert records(config).lost(made) == []
    listed = Path(attempts.staging_folder(made.chunks[0].attempt)) / "copied.json"
    for path in (file, listed):
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        assert records(config).lost(made) == made.chunks[:1]
        path.unlink()
        assert records(config).lost(made) == made.chunks[:1]
        path.write_bytes(whole)
    assert records(config).lost(made) == []
    made.put(replace(made.chunks[0], rows=8))
    assert records(config).lost(made) == made.chunks[:1]


@pytest.mark.parametrize(
    ("rows", "size", "most"),
    [(0, 0, CHUNK_ROWS), (1_000_000, 256 << 20, 1_000_000), (1000, 256 << 30, 1000), (2**20, 2**30, 2**18)],
)
def test_wide_rows_make_more_files(rows: int, size: int, most: int) -> None:
    assert plan(Unasked(), replace(table(rows, TableSchema(KEYED.columns)), size=size)).rows_per_file == most


def test_a_column_named_as_a_side_column_is_refused() -> None:
    twice = replace(KEYED, columns=(*KEYED.columns, Column("d", "date"), Column("D__TEXT", "int")))
    assert plan(Unasked(), table(1, twice)).chunks == [Chunk(0)]
    with pytest.raises(UnsupportedColumn, match="'d__text'"):
        plan(Unasked(), table(1, twice), KEEP_DATES)


def test_only_the_newest_committed_one_counts(config: PipelineConfig) -> None:
    made = begun(config)
    made.table_id = "id"
    records(config).save(made, committed=True)
    committed = records(config).committed(table(100))
    assert committed is not None
    assert (committed.table_id, committed.low, committed.high, committed.rows) == ("id", P1, P2, 7)
    time.sleep(0.01)
    begun(config)
    assert records(config).committed(table(100)) is None
    assert os.path.isdir(config.root)


def test_deleted_rows_of_an_unknown_condition_do_not_stay(config: PipelineConfig) -> None:
    known = records(config)
    kept = replace(KEYED, soft_delete=True, where="id > 1")
    planned = plan(Unasked(), table(5, kept), chunk_rows=10)
    assert not known.keeps_deleted(planned), "no life is known"
    assert known.keeps_deleted(plan(Unasked(), table(5, replace(kept, where="")), chunk_rows=10))
    life = Life("a", NAME, kept, P1, P1)
    watermarks.started(Metadata(f"{config.root}/_binlake"), [life], batch=0, versions={"a": 0})
    assert known.keeps_deleted(planned)
