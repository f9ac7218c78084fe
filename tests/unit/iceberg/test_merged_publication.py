"""A table that shows several is published as Iceberg: each reader takes the source column from the partitions."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from binlake.delta import opened_tables, plain_tables
from binlake.delta.composed_layout import ComposedColumn, with_ids
from binlake.delta.delta_schema import OWN_ID
from binlake.delta.file_columns import FileColumns
from binlake.errors import LakeError
from binlake.iceberg import published_table, table_metadata
from binlake.iceberg.iceberg_schema import IcebergSchema
from binlake.iceberg.publication import publish
from binlake.iceberg.snapshot_differences import differences
from binlake.iceberg.upkeep import expire
from iceberg_readers import READERS, assert_same, by_delta, duckdb_connection, metadata_file
from merged_table import MergedTable

COLUMNS = [("id", "INT"), ("v", "STRING")]
BOTH = pytest.mark.parametrize("version", [2, 3])


def rows(*numbers: int) -> list[dict[str, object]]:
    return [{"id": number, "v": f"v{number}"} for number in numbers]


@pytest.fixture
def merged(tmp_path: Path) -> MergedTable:
    """A table of two shards with a row each, which nobody published."""
    merged = MergedTable(tmp_path / "all" / "or ders")
    for name in ("7", "a é"):
        merged.add(name, COLUMNS).append(rows(1))
    return merged


def snapshots(merged: MergedTable) -> list[int]:
    metadata = table_metadata.newest(merged.path)
    assert metadata is not None
    return [each["snapshot-id"] for each in metadata.snapshots]


def assert_each_snapshot(merged: MergedTable) -> None:
    for snapshot in snapshots(merged):
        wanted = by_delta(merged.path, snapshot - 1)
        assert all(row["tenant"] for row in wanted)
        for name, read in READERS.items():
            assert read(merged.path, snapshot) == wanted, (name, snapshot)


@BOTH
def test_each_snapshot_has_the_source_column_behind_a_checkpoint_of_the_log(merged: MergedTable, version: int) -> None:
    """Data files that stay are read from a checkpoint then, by a process that begins."""
    merged.publish(version)
    for number in range(2, 15):
        shard = merged.shards["7" if number % 3 else "a é"]
        shard.append(rows(number))
        if number % 4 == 0:
            shard.hide({shard.files[-1]["path"]: [0], shard.files[0]["path"]: [0]})
        if number == 9:
            shard.replace(shard.files, rows(90))  # as TRUNCATE does
        if number % 2:
            published_table.forget(merged.path)
        merged.publish(version, f"batch-{number}")
    assert any(Path(merged.path, "_delta_log").glob("*.checkpoint.parquet"))
    assert_same(merged.path)
    assert_each_snapshot(merged)
    assert merged.converted == []


@BOTH
def test_an_alter_that_goes_from_shard_to_shard(merged: MergedTable, version: int) -> None:
    merged.publish(version)
    steps: list[list[tuple[str, str, str | None]]] = [
        [("new", "BIGINT", None), ("id", "INT", "id"), ("v", "STRING", "v")],
        [("new", "BIGINT", "new"), ("id", "INT", "id"), ("note", "STRING", "v")],
        [("id", "INT", "id"), ("note", "STRING", "note")],
        [("id", "BIGINT", None), ("note", "STRING", "note"), ("new", "STRING", None)],
    ]
    for number, columns in enumerate(steps):
        for shard in reversed(merged.shards.values()):
            shard.reshape(columns)
            shard.append([{name: number if kind != "STRING" else "x" for name, kind, _ in columns}])
            merged.publish(version)
            assert_same(merged.path)
    assert_each_snapshot(merged)
    fields = plain_tables.fields_of(opened_tables.opened(merged.path))
    numbers = [field["metadata"][OWN_ID] for field in fields]
    assert len({*numbers}) == len(numbers)


@BOTH
def test_a_shard_that_numbers_its_columns_otherwise_is_converted(merged: MergedTable, version: int) -> None:
    """As one that is created behind an ALTER: readers would take one column for another of its type."""
    merged.add("other", [("v", "STRING"), ("w", "STRING"), ("id", "INT")]).append([{"v": "v", "w": "w", "id": 3}])
    merged.publish(version)
    assert_same(merged.path)
    (converted,) = merged.converted
    assert merged.shards["other"].files[0]["path"].removesuffix(".parquet") in converted
    merged.publish(version)
    assert merged.converted == [converted]
    shard = merged.shards["other"]
    shard.append([{"v": "v2", "w": None, "id": 4}])
    shard.hide({shard.files[0]["path"]: [0]})
    merged.publish(version)
    assert_same(merged.path)
    assert_each_snapshot(merged)


def test_a_table_that_wasnt_published_gets_ids_with_its_next_commit(tmp_path: Path) -> None:
    merged = MergedTable(tmp_path / "t", has_ids=False)
    merged.add("7", COLUMNS).append(rows(1))
    merged.add("8", [("w", "STRING"), *COLUMNS]).append([{"w": "w", **row} for row in rows(2)])
    merged.show()
    with pytest.raises(LakeError, match="its columns have no ids yet") as caught:
        publish(merged.path)
    assert caught.value.remedy == "run binlake sync or binlake maintain: they give them ids"
    before = by_delta(merged.path)
    merged.has_ids = True
    merged.publish(3)
    assert by_delta(merged.path) == before
    assert_same(merged.path)
    merged.has_ids = False  # another source that fills it needn't publish it
    merged.shards["7"].append(rows(5))
    merged.publish(3)
    assert_same(merged.path)


def test_the_id_of_a_dropped_column_is_given_to_no_other_by_a_source_that_doesnt_publish(tmp_path: Path) -> None:
    merged = MergedTable(tmp_path / "t")
    merged.add("7", COLUMNS).append(rows(1))
    merged.add("8", [("w", "STRING"), *COLUMNS]).append([{"w": "w", **row} for row in rows(2)])
    merged.publish(3)
    merged.has_ids = False
    plain: list[tuple[str, str, str | None]] = [("id", "INT", "id"), ("v", "STRING", "v")]
    merged.shards["8"].reshape(plain)
    merged.publish(3)
    merged.shards["7"].reshape([*plain, ("x", "STRING", None), ("y", "STRING", None)])
    merged.shards["7"].append([{"x": "x", "y": "y", **row} for row in rows(3)])
    merged.publish(3)
    metadata = table_metadata.newest(merged.path)
    assert metadata is not None
    assert metadata.known_ids["w"] == 4
    assert len({*metadata.known_ids.values()}) == len(metadata.known_ids), "shard 7 gives y the id 4, too"
    assert_each_snapshot(merged)
    assert len(snapshots(merged)) == 3


def test_readers_leave_out_the_files_of_other_shards(merged: MergedTable) -> None:
    merged.publish(3)
    Path(merged.path, merged.shards["7"].path, merged.shards["7"].files[0]["path"]).unlink()
    if "DuckDB" in READERS:
        query = f"SELECT id FROM iceberg_scan('{metadata_file(merged.path)}') WHERE tenant = 'a é'"
        assert duckdb_connection().execute(query).fetchall() == [(1,)]
    if "pyiceberg" in READERS:
        from pyiceberg.table import StaticTable

        table = StaticTable.from_metadata(metadata_file(merged.path))
        assert table.scan("tenant == 'a é'").to_arrow()["id"].to_pylist() == [1]


def test_verify_finds_a_wrong_partition(merged: MergedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IcebergSchema, "partition_of", lambda self, values: {"tenant": "7"})
    merged.publish(3)
    monkeypatch.undo()
    (name,) = [add["path"] for add in merged.shards["a é"].files]
    assert differences(merged.path) == [f"statistics of {name} differ", f"partitions of {name} differ"]


def test_snapshots_go_whose_files_the_shards_upkeep_removed(merged: MergedTable) -> None:
    merged.publish(3)
    shard = merged.shards["7"]
    old = shard.files
    shard.replace(old, rows(8))
    merged.publish(3)
    merged.shards["a é"].append(rows(9))
    merged.publish(3)
    expire(merged.path, (), {}, look=True)
    assert len(snapshots(merged)) == 3
    for add in old:
        Path(shard.path, add["path"]).unlink()
    expire(merged.path, (), {}, look=True)
    assert snapshots(merged) == [2, 3]
    assert_each_snapshot(merged)


def test_ids_are_those_of_most_shards_and_never_change() -> None:
    def part(**ids: int) -> list[dict[str, object]]:
        return [{"name": name, "type": "string", "metadata": {OWN_ID: number}} for name, number in ids.items()]

    columns = [ComposedColumn(name, "string", name) for name in ("a", "b", "c")]

    def numbers(known: dict[str, int], *parts: list[dict[str, object]]) -> list[int | None]:
        return [column.number for column in with_ids(columns, known, parts)]

    assert numbers({}, part(a=1, b=2, c=3), part(b=1, a=2, c=3), part(a=1, b=2, c=3)) == [1, 2, 3]
    assert numbers({"b": 1}, part(a=1, b=2), part(a=1, b=2)) == [3, 1, 4]
    assert numbers({"gone": 2}, part(a=1, b=2, c=3)) == [1, 4, 3]
    assert numbers({}) == [1, 2, 3]


@pytest.mark.parametrize(
    ("ids", "agrees"),
    [
        ({"a": 1, "b": 2}, True),
        ({"a": 1, "b": 2, "former": 9}, True),
        ({"a": None, "b": None, "former": None}, True),
        ({"a": 2, "b": 1}, False),
        ({"a": 1, "former": 2}, False),
        ({"a": 1, "b": None}, False),
        ({"A": None}, False),
        ({"A": 1}, False),
    ],
)
def test_whether_readers_find_the_columns_of_a_data_file(ids: dict[str, int | None], agrees: bool) -> None:
    assert FileColumns(ids).agree_with({"a": 1, "b": 2}) == agrees


def test_converted_files_have_the_ids_of_the_table(merged: MergedTable) -> None:
    merged.add("other", [("v", "STRING"), ("id", "INT")]).append(rows(3))
    merged.publish(3)
    (file,) = Path(merged.path, "_converted").rglob("*.parquet")
    assert FileColumns.of(pq.read_schema(file)).ids == {"id": 1, "v": 2}
    metadata = table_metadata.newest(merged.path)
    assert metadata is not None
    assert json.loads(json.dumps(metadata.partition)) == [
        {"name": "tenant", "source-id": 2_000_000, "field-id": 1000, "transform": "identity"}
    ]


@BOTH
def test_rows_that_have_no_column_of_the_table_any_more_are_read(merged: MergedTable, version: int) -> None:
    """Their data file has a column that is gone, under a name that another shard's has with another type."""
    other = merged.add("other", [("id", "STRING")])
    other.append([{"id": "a"}, {"id": "b"}])
    other.reshape([("w", "STRING", None)])
    merged.publish(version)
    assert_same(merged.path)
    nothing = {"id": None, "v": None, "w": None, "tenant": "other"}
    assert [row for row in by_delta(merged.path) if row["tenant"] == "other"] == [nothing, nothing]
