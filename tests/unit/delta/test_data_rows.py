"""A Delta table's rows, from any of them on: what deltalake's own reader shows, once each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap64

from binlake.delta import data_rows, deletion_vectors, delta_commits, log_files

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = [pa.field("id", pa.int64()), pa.field("later", pa.string())]


def test_from_every_row_on_what_is_marked_is_left_out_and_nothing_is_told_twice(tmp_path: Path) -> None:
    path = str(tmp_path)
    for first in (0, 5, 10):
        rows = {"id": pa.array(range(first, first + 5), pa.int64())}
        late = {"later": pa.array(["x"] * 5)} if first == 10 else {}
        write_deltalake(path, pa.table(rows | late), mode="append", schema_mode="merge" if late else None,
                        configuration=None if first else {"delta.enableDeletionVectors": "true"})  # fmt: skip
    mark(path, first_id=5, row=2)
    log = DeltaTable(path)
    whole = list(data_rows.read(log, path, FIELDS, 0))
    ids = [row["id"] for rows, _ in whole for row in rows.to_pylist()]
    assert sorted(ids) == [*range(7), *range(8, 15)]
    assert {row["id"] for rows, _ in whole for row in rows.to_pylist() if row["later"]} == set(range(10, 15))
    assert whole[-1][1] == 15, "what is hidden counts"
    for passed in range(16):
        rest = [row["id"] for rows, _ in data_rows.read(log, path, FIELDS, passed) for row in rows.to_pylist()]
        assert rest == ids[len(ids) - len(rest) :]
        assert 15 - passed - len(rest) in (0, 1)


def mark(path: str, *, first_id: int, row: int) -> None:
    log = DeltaTable(path)
    adds = log_files.added(path, log.version(), [name.rpartition("/")[2] for name in log.file_uris()])
    assert adds
    (add,) = (add.fields for add in adds.values() if json.loads(add.stats or "")["minValues"]["id"] == first_id)
    (vector,) = deletion_vectors.write(path, [BitMap64([row])])
    removed = {"path": add["path"], "dataChange": True, "partitionValues": {}, "size": add["size"]}
    again = {**add, "partitionValues": {}, "dataChange": True, "deletionVector": vector}
    delta_commits.commit(log, path, [{"remove": removed}, {"add": again}])


def test_parts_are_bounded_and_a_column_is_found_by_its_name_in_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Delta's column mapping has it, across row groups."""
    monkeypatch.setattr(data_rows, "_MOST_ROWS", 4)
    pq.write_table(pa.table({"col-1": pa.array(range(10), pa.int32())}), tmp_path / "a.parquet", row_group_size=6)
    mapped = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    field = {"name": "id", "type": "integer", "nullable": True, "metadata": mapped}
    schema = json.dumps({"type": "struct", "fields": [field]})
    size = (tmp_path / "a.parquet").stat().st_size
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {"metaData": {"id": "1", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
                      "partitionColumns": [], "configuration": {"delta.columnMapping.mode": "name"}}},
        {"add": {"path": "a.parquet", "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}},
    ]  # fmt: skip
    (tmp_path / "_delta_log").mkdir()
    delta_commits.create(str(tmp_path), actions)
    batches = list(data_rows.read(DeltaTable(str(tmp_path)), str(tmp_path), FIELDS[:1], 5))
    assert [(rows["id"].to_pylist(), passed) for rows, passed in batches] == [([5], 6), ([6, 7, 8, 9], 10)]
    with pytest.raises(KeyError):
        list(data_rows.read(DeltaTable(str(tmp_path)), str(tmp_path), FIELDS, 0))
