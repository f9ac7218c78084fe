"""Staged files that several want are read once, and kept no longer than one of them may ask."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from binlake.merge import shared_reads
from binlake.merge.shared_reads import COLUMNS, REPEATING, SharedReads
from binlake.storage import kinds, parquet_files
from binlake.storage.protocol import Storage

IMAGES = ("op", "before", "after")


def staged(path: Path, text: str) -> Any:
    rows = pa.table({name: [1, 2, 3] for name in COLUMNS[:6]} | {name: [text] * 3 for name in COLUMNS[6:]})
    pq.write_table(rows, path)
    return SimpleNamespace(path=str(path), bytes=path.stat().st_size, xids={"xa": (1, 1, 1)})


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were read."""
    seen: list[str] = []
    read_within = parquet_files.read_within

    def counted(path: str, *more: Any, **named: Any) -> pa.Table | None:
        seen.append(Path(path).name)
        return read_within(path, *more, **named)

    monkeypatch.setattr(parquet_files, "read_within", counted)
    return seen


def test_a_file_is_read_once_for_all_who_want_it_and_again_behind_them(tmp_path: Path, reads: list[str]) -> None:
    file, other = staged(tmp_path / "shared", "x"), staged(tmp_path / "alone", "y")
    both: list[Any] = [SimpleNamespace(staged=[file, other]), SimpleNamespace(staged=[file])]
    shared = SharedReads(both)
    for columns in (IMAGES, COLUMNS):
        rows = shared.read(file, 1 << 20, columns)
        assert rows is not None
        assert rows.equals(pq.read_table(file.path, columns=list(columns), read_dictionary=list(REPEATING)))
    assert reads == ["shared"]
    shared.read(other, 1 << 20, IMAGES)
    shared.read(file, 1 << 20, IMAGES)  # begun again, because somebody else committed
    assert reads == ["shared", "alone", "shared"]


def test_the_storage_of_all_files_is_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    storage_of = kinds.storage_of

    def noted(path: str) -> Storage:
        asked.append(Path(path).name)
        return storage_of(path)

    for module in ("merge.shared_reads", "storage.files"):
        monkeypatch.setattr(f"binlake.{module}.storage_of", noted)
    reads = SharedReads()
    for name in ("first", "second"):
        file = staged(tmp_path / name, name)
        assert reads.read(file, 1 << 20, IMAGES) is not None
        assert [part.num_rows for part in reads.parts(file, IMAGES, narrow=True)] == [3]
    assert asked == ["first"]


def test_what_takes_much_memory_is_not_kept(tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = staged(tmp_path / "first", "x" * 1000), staged(tmp_path / "second", "y" * 1000)
    monkeypatch.setattr(shared_reads, "_HELD", 12_000)
    both: list[Any] = [SimpleNamespace(staged=[first, second])] * 2
    shared = SharedReads(both)
    for _ in both:
        assert shared.read(first, 1 << 20, IMAGES) is not None
        assert shared.read(second, 1 << 20, IMAGES) is not None
    assert reads == ["first", "second", "second", "second"]  # the first of them to see how large it is


def test_rows_beyond_a_limit_are_none_for_each_reader(tmp_path: Path) -> None:
    file = staged(tmp_path / "file", "x" * 1000)
    both: list[Any] = [SimpleNamespace(staged=[file])] * 3
    shared = SharedReads(both)
    assert shared.read(file, 100, COLUMNS) is None
    assert shared.read(file, 1 << 20, IMAGES) is not None
    assert shared.read(file, 100, COLUMNS) is None


def test_large_steps_are_read_by_each_alone(tmp_path: Path, reads: list[str]) -> None:
    file = staged(tmp_path / "file", "x")
    file.bytes = shared_reads.SMALL + 1
    both: list[Any] = [SimpleNamespace(staged=[file])] * 2
    shared = SharedReads(both)
    for _ in both:
        assert shared.read(file, 1 << 20, IMAGES) is not None
    assert reads == ["file", "file"]
