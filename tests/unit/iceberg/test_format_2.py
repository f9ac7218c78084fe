"""Tables of Iceberg's format 2: deleted rows are in Parquet files, for readers that know no vectors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import clickhouse_engine
from binlake.delta import deletion_vectors, log_files
from binlake.iceberg import hidden_rows, position_deletes, published_table, table_metadata, upkeep
from binlake.iceberg.publication import publish
from binlake.iceberg.snapshot_differences import differences
from binlake.iceberg.table_metadata import TableMetadata
from iceberg_readers import READERS, assert_same, by_delta
from killed_writes import killed_at_each
from plain_table import PlainTable
from type_ends import KINDS


def newest(table: PlainTable) -> TableMetadata:
    metadata = table_metadata.newest(table.path)
    assert metadata is not None
    return metadata


def rows(numbers: Iterable[int]) -> list[dict[str, Any]]:
    return [{"id": number, "v": f"v{number}"} for number in numbers]


def published(table: PlainTable, *, known: bool = True) -> TableMetadata:
    """Publish the table in format 2; not known: by another process."""
    if not known:
        published_table.forget(table.path)
    publish(table.path, None, 2)
    assert_same(table.path)
    assert newest(table).format_version == 2
    return newest(table)


def files_of_deletes(table: PlainTable) -> list[Path]:
    return sorted(Path(table.path, "_iceberg/metadata").glob("*.parquet"))


@pytest.fixture
def table(tmp_path: Path) -> PlainTable:
    """A table of two data files, published."""
    table = PlainTable(tmp_path / "a b" / "t'ä", [("id", "INT"), ("v", "STRING")])
    table.append(rows(range(10)))
    table.append(rows(range(10, 20)))
    published(table)
    return table


def test_a_file_has_the_positions_of_one_data_file(table: PlainTable) -> None:
    first, second = [add["path"] for add in table.files]
    table.hide({first: [7, 2, 1], second: [0]})
    published(table)
    assert len(files_of_deletes(table)) == 2
    known = published_table.known(table.path)
    assert known is not None
    for about, mark in known.marks.items():
        read = pq.read_table(table_metadata.path_at(mark["file_path"]))
        ids = [int(field.metadata[b"PARQUET:field_id"]) for field in read.schema]
        assert (read.column_names, ids) == (["file_path", "pos"], [2147483546, 2147483545])
        assert not any(field.nullable for field in read.schema)
        assert set(read["file_path"].to_pylist()) == {about}
        assert read["pos"].to_pylist() == ([1, 2, 7] if about.endswith(first) else [0])
        assert mark["record_count"] == len(read)


@pytest.mark.parametrize("known", [True, False])
def test_rows_are_hidden_shown_and_replaced(table: PlainTable, known: bool) -> None:
    first, second = [add["path"] for add in table.files]
    changes: list[Callable[[], None]] = [
        lambda: table.hide({first: [1, 2], second: [3]}),
        lambda: table.hide({first: [5]}),
        lambda: table.hide({first: [6, 7]}),
        lambda: table.restore(table.version - 1),
        lambda: table.restore(3),
        lambda: table.replace([table.files[0]], rows([100])),
        lambda: table.reshape([("n", "INT", None), ("id", "INT", "id"), ("w", "STRING", "v")]),
        lambda: table.append([{"n": 1, "id": 7, "w": "w"}]),
        lambda: table.hide({add["path"]: [0] for add in table.files}),
    ]
    for change in changes:
        change()
        metadata = published(table, known=known)
    for snapshot in metadata.snapshots:
        version = int(snapshot["summary"]["delta-version"])
        for name, read in READERS.items():
            assert read(table.path, version + 1) == by_delta(table.path, version), (name, version)


def test_each_type_is_read(tmp_path: Path) -> None:
    named = {kind: f"c{number}" for number, kind in enumerate(KINDS)}
    table = PlainTable(tmp_path / "t", [(name, kind) for kind, name in named.items()])
    table.append([{named[kind]: values[place % len(values)] for kind, values in KINDS.items()} for place in range(4)])
    table.hide({table.files[0]["path"]: [1]})
    published(table)


def test_another_format_begins_the_table_again(table: PlainTable) -> None:
    """Format 3 forbids files that format 2 needs, and a format can't be lowered."""
    table.hide({table.files[0]["path"]: [1, 2]})
    identity = published(table).content["table-uuid"]
    publish(table.path, None, 3)
    assert_same(table.path)
    assert newest(table).format_version == 3
    assert newest(table).content["table-uuid"] != identity
    assert len(newest(table).snapshots) == 1
    table.hide({table.files[0]["path"]: [3]})
    published(table)
    assert len(newest(table).snapshots) == 1


def test_what_format_3_has_is_left_out(table: PlainTable) -> None:
    metadata = newest(table)
    assert "next-row-id" not in metadata.content
    assert all("first-row-id" not in snapshot for snapshot in metadata.snapshots)
    table.append(rows([20]))
    published(table)
    older = newest(table).as_of(metadata.content["current-snapshot-id"])
    assert older is not None
    assert "next-row-id" not in older.content
    assert older.sequence_number == newest(table).sequence_number - 1


def test_files_go_with_the_snapshots_that_need_them(table: PlainTable) -> None:
    first = table.files[0]
    table.hide({first["path"]: [1]})
    published(table)
    table.hide({first["path"]: [2]})
    published(table)
    table.replace([add for add in table.files if add["path"] == first["path"]], rows([1]))
    table.hide({table.files[0]["path"]: [0]})
    published(table)
    assert len(files_of_deletes(table)) == 3
    for file in Path(table.path, "_iceberg/metadata").iterdir():
        os.utime(file, (time.time() - 90_000, time.time() - 90_000))
    upkeep.expire(table.path, [first["path"]], {})
    assert len(files_of_deletes(table)) == 1
    Path(table.path, first["path"]).unlink()
    assert_same(table.path)


def test_killed_at_any_write_the_next_publication_continues(table: PlainTable) -> None:
    number = 20

    def change() -> None:
        nonlocal number
        table.append(rows(range(number, number + 4)))
        table.hide({add["path"]: [number % 3] for add in table.files[-3:-1]})
        number += 4

    for _ in killed_at_each(table, change, lambda: publish(table.path, None, 2)):
        before = {each["snapshot-id"] for each in newest(table).snapshots}
        publish(table.path, None, 2)
        assert {each["snapshot-id"] for each in newest(table).snapshots} == before | {table.version + 1}
        assert differences(table.path) == []
    assert_same(table.path)


WRONG: dict[str, Callable[[list[int]], list[int]]] = {
    "one more": lambda positions: [*positions, 9],
    "another": lambda positions: [positions[0] + 1, *positions[1:]],
    "out of order": lambda positions: positions[::-1],
}


@pytest.mark.parametrize("what", [*WRONG, "of another data file"])
def test_a_wrong_file_differs(table: PlainTable, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write = position_deletes.write

    def wrong(path: str, address: str, positions: pa.Int64Array) -> int:
        if change := WRONG.get(what):
            return write(path, address, pa.array(change(positions.to_pylist())))
        return write(path, f"{address}x", positions)

    monkeypatch.setattr(position_deletes, "write", wrong)
    table.hide({table.files[0]["path"]: [1, 3]})
    publish(table.path, None, 2)
    (said,) = differences(table.path)
    assert said.startswith("the deletion vector of")


def test_the_vector_that_a_file_is_of_is_in_its_name(table: PlainTable) -> None:
    table.hide({table.files[0]["path"]: [1]})
    published(table)
    (add,) = (add for add in log_files.files_at(table.path, table.version).values() if add.vector)
    (file,) = files_of_deletes(table)
    assert hidden_rows.key_in(str(file)) == hidden_rows.key_of(add)
    assert list(deletion_vectors.read(table.path, add.vector or {})) == [1]


def test_clickhouse_reads_it(tmp_path: Path) -> None:
    table = PlainTable(tmp_path / "t", [("id", "INT"), ("v", "STRING")])
    table.append(rows(range(10)))
    table.hide({table.files[0]["path"]: [1, 2]})
    published(table)
    table.reshape([("n", "INT", None), ("id", "INT", "id"), ("w", "STRING", "v")])
    table.append([{"n": 5, "id": 99, "w": "x"}])
    metadata = published(table)
    source = f"icebergLocal('{table.path}', SETTINGS iceberg_metadata_file_path = '{metadata.path}')"
    (read,) = clickhouse_engine.read(tmp_path, f"SELECT n, id, w FROM {source} ORDER BY id")
    assert read == [(row["n"], row["id"], row["w"]) for row in sorted(by_delta(table.path), key=lambda row: row["id"])]
