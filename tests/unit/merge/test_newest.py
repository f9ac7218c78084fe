"""What staged mutations leave behind: the last word on each key, in no more memory than the images take."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from binlake.binlog.border import DELETE, INSERT, UPDATE
from binlake.binlog.staged_schema import staged_schema
from binlake.errors import LeftToSpark
from binlake.merge import arrow_mutations
from binlake.merge.arrow_mutations import NUMBER, StagedMutations
from binlake.merge.lake_images import LakeImages
from binlake.merge.newest import newest_rows
from binlake.schema.invalid import FAIL
from binlake.schema.lake_columns import mirror_columns
from binlake.schema.table import Column, TableSchema
from binlake.storage import parquet_files

Row = dict[str, Any]
Mutation = tuple[int, Row | None, Row | None]
COLUMNS = (
    Column("id", "int", nullable=False),
    Column("name", "varchar", length=9, charset="utf8mb4", nullable=False),
    Column("v", "varchar", length=99, charset="utf8mb4"),
)
COUNTING: list[pa.MemoryPool] = []
"""Memory pools, which must outlive what is taken from them."""


def staged(path: Path, number: int, mutations: list[Mutation], *, backwards: bool = False) -> Any:
    """A staged file of the log's file ``number``; backwards: its rows stand against the order of the log."""
    rows = [
        {"op": op, "file": number, "offset": 100 + place // 2, "row": place % 2, "committed_us": 0, "gtid": "g",
         "xid": None, "before": before, "after": after}
        for place, (op, before, after) in enumerate(mutations)
    ]  # fmt: skip
    schema = staged_schema(COLUMNS, FAIL)
    pq.write_table(pa.Table.from_pylist(rows[::-1] if backwards else rows, schema), path)
    return SimpleNamespace(
        path=str(path), bytes=path.stat().st_size, columns=COLUMNS, first=(number, 100, 0), xids={}, void=()
    )


def newest_tables(
    files: list[Any],
    key: tuple[str, ...] = ("id",),
    low: tuple[int, int] = (0, 0),
    *,
    soft_delete: bool = False,
    most: int = 1 << 30,
) -> tuple[pa.Table, pa.Table]:
    schema = TableSchema(COLUMNS, key, "primary", soft_delete=soft_delete)
    step: Any = SimpleNamespace(schema=schema, files=files, xa=())
    life: Any = SimpleNamespace(low=SimpleNamespace(order=low))
    columns = mirror_columns(schema, FAIL)
    mutations = StagedMutations(life, step, FAIL, most)
    newest = newest_rows(mutations, LakeImages.of(schema, columns), 7)
    assert newest is not None
    return newest


def newest(files: list[Any], key: tuple[str, ...], low: tuple[int, int] = (0, 0)) -> tuple[set[Any], list[Row]]:
    """The keys that changed, and the rows that stand."""
    changed, rows = newest_tables(files, key, low)
    assert changed.num_rows == len(set(map(tuple, (row.values() for row in changed.to_pylist())))), "each key once"
    return {tuple(row.values()) for row in changed.to_pylist()}, rows.to_pylist()


def walk(chance: random.Random, count: int, key: tuple[str, ...]) -> tuple[list[Mutation], dict[Any, Row], set[Any]]:
    """Mutations, the rows that they leave, and all keys that they touched."""
    rows: dict[Any, Row] = {}
    touched: set[Any] = set()
    mutations: list[Mutation] = []
    for number in range(count):
        row = {"id": chance.randrange(12), "name": chance.choice("abc"), "v": str(number)}
        identity = tuple(row[name] for name in key)
        old = chance.choice([*rows]) if rows and chance.random() < 0.6 else None
        if old is not None and chance.random() < 0.4:
            mutations.append((DELETE, rows.pop(old), None))
            touched.add(old)
        elif identity not in rows or identity == old:
            mutations.append((UPDATE, rows.pop(old), row) if old is not None else (INSERT, None, row))
            rows[identity] = row
            touched |= {identity, old} - {None}
    return mutations, rows, touched


def read_a_row_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every staged file for a large one, and read its rows in the smallest parts."""
    monkeypatch.setattr(arrow_mutations, "SMALL", 0)
    monkeypatch.setattr(parquet_files, "_FEW_ROWS", 1)
    monkeypatch.setattr(parquet_files, "_COMBINED", 0)


@pytest.mark.parametrize("key", [("id",), ("name",), ("name", "id")], ids=["number", "text", "two columns"])
@pytest.mark.parametrize("backwards", [False, True], ids=["in order", "backwards"])
@pytest.mark.parametrize("count", [3, 200])
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_the_last_word_on_each_key_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: tuple[str, ...], backwards: bool, count: int, large: bool
) -> None:
    if large:
        read_a_row_at_a_time(monkeypatch)
    for seed in range(5):
        mutations, rows, touched = walk(random.Random(seed), count, key)
        half = len(mutations) // 2
        parts = [
            staged(tmp_path / f"{number}.parquet", number, part, backwards=backwards)
            for number, part in ((1, mutations[:half]), (2, mutations[half:]))
        ]
        changed, stand = newest(parts[::-1] if backwards else parts, key)
        assert changed == touched
        assert sorted(map(repr, stand)) == sorted(map(repr, rows.values()))


def test_mutations_before_the_snapshot_are_left_out(tmp_path: Path) -> None:
    rows = [{"id": number, "name": "n", "v": "v"} for number in range(4)]
    file = staged(tmp_path / "1.parquet", 1, [(INSERT, None, row) for row in rows])
    assert newest([file], ("id",), low=(1, 101)) == ({(2,), (3,)}, rows[2:])


def test_large_files_that_take_too_much_memory_are_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_a_row_at_a_time(monkeypatch)
    rows = [{"id": number, "name": "n", "v": "v" * 99} for number in range(100)]
    file = staged(tmp_path / "1.parquet", 1, [(INSERT, None, row) for row in rows])
    with pytest.raises(LeftToSpark, match="the staged rows take more than 0 MB of memory"):
        newest_tables([file], most=5_000)


@pytest.mark.parametrize(("small", "most"), [(8_000_000, 1.6), (0, 1.35)], ids=["small", "large"])
def test_rows_under_new_keys_are_held_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int, most: float
) -> None:
    monkeypatch.setattr(arrow_mutations, "SMALL", small)
    monkeypatch.setattr(parquet_files, "_COMBINED", 1 << 19)
    rows = [{"id": number, "name": "n", "v": "v" * 99} for number in range(50_000)]
    file = staged(tmp_path / "1.parquet", 1, [(INSERT, None, row) for row in rows])
    counting = pa.proxy_memory_pool(pa.default_memory_pool())
    COUNTING.append(counting)
    before = pa.default_memory_pool()
    pa.set_memory_pool(counting)
    try:
        changed, stand = newest_tables([file])
    finally:
        pa.set_memory_pool(before)
    assert (changed.num_rows, stand.num_rows) == (50_000, 50_000)
    assert counting.max_memory() < most * stand.nbytes


@pytest.mark.parametrize("seed", range(10))
def test_deleted_rows_stand_with_their_last_values_where_they_stay(tmp_path: Path, seed: int) -> None:
    chance, key = random.Random(seed), chance_key(seed)
    mutations, rows, touched = walk(chance, chance.choice((3, 40, 200)), key)
    gone: dict[Any, Row] = {}
    for _, before, after in mutations:
        if before is not None:
            gone[tuple(before[name] for name in key)] = before
        if after is not None:
            gone.pop(tuple(after[name] for name in key), None)
    changed, newest = newest_tables([staged(tmp_path / "a", 1, mutations)], key, soft_delete=True)
    assert changed.num_rows == newest.num_rows == len(touched)
    standing = newest.to_pylist()
    live = [{name: row[name] for name in ("id", "name", "v")} for row in standing if not row["_deleted"]]
    left = [{name: row[name] for name in ("id", "name", "v")} for row in standing if row["_deleted"]]
    assert sorted(live, key=str) == sorted(rows.values(), key=str)
    assert sorted(left, key=str) == sorted(gone.values(), key=str)
    assert all(row["_deleted"] == (row["_deleted_at"] is not None) for row in standing)


def chance_key(seed: int) -> tuple[str, ...]:
    return ("id", "name") if seed % 2 else ("id",)


@pytest.mark.parametrize("shares", [1, 2, 7])
def test_shares_of_a_file_have_all_its_rows_once(tmp_path: Path, shares: int) -> None:
    """Also where a file has fewer row groups than shares."""
    file = staged(tmp_path / "f.parquet", 1, [(INSERT, None, {"id": n, "name": "n", "v": None}) for n in range(1000)])
    pq.write_table(pq.read_table(file.path), file.path, row_group_size=300)
    step: Any = SimpleNamespace(schema=TableSchema(COLUMNS, ("id",), "primary"), files=[file], xa=())
    life: Any = SimpleNamespace(low=SimpleNamespace(order=(1, 150)))
    mutations = StagedMutations(life, step, FAIL, 1 << 30)
    parts = [part for number in range(shares) for part in mutations.unordered((number, shares))]
    there = pa.concat_tables(parts).sort_by([("offset", "ascending"), ("row", "ascending")])
    assert there[NUMBER].equals(there["row"])
    names = ["op", "file", "offset", "row", "after"]
    assert there.select(names).to_pylist() == mutations.ordered().select(names).to_pylist() != []
