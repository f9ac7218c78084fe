"""Rows of small staged files, remembered from their writing until they are merged."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from binlake.binlog.border import DELETE, INSERT, UPDATE, Mutations
from binlake.binlog.staged_schema import staged_schema
from binlake.merge.shared_reads import COLUMNS, REPEATING, SharedReads
from binlake.planner.manifest import StagedFile
from binlake.schema.invalid import FAIL
from binlake.schema.mask import Mask
from binlake.schema.table import Column, TableName
from binlake.staging import staged_files, staged_rows
from binlake.staging.staged_files import SliceWriter

NAME, SHAPE = TableName("d", "t"), (Column("n", "int"),)
OPERATIONS = [INSERT, UPDATE, DELETE]


@pytest.fixture(autouse=True)
def known() -> ModuleType:
    staged_rows._kept.clear()
    return staged_rows


def mutations(rows: int) -> Mutations:
    """Return mutations of an insert, an update and a delete in turn; where an image is missing, its values aren't."""
    schema = staged_schema(SHAPE, FAIL)
    numbers = pa.array(range(rows), pa.int64())
    columns = {name: numbers for name in ("file", "offset", "row", "committed_us")}
    columns["op"] = pa.array([OPERATIONS[row % 3] for row in range(rows)], pa.int8())
    columns["gtid"] = columns["xid"] = pa.nulls(rows, pa.string())
    values = numbers.cast(pa.int32())
    for image, missing in (("before", INSERT), ("after", DELETE)):
        absent = pa.array([operation.as_py() == missing for operation in columns["op"]])
        columns[image] = pa.StructArray.from_arrays([values], ["n"], mask=absent)
    return Mutations(
        NAME, SHAPE, ("n",), 0, pa.RecordBatch.from_arrays([columns[n] for n in schema.names], schema=schema)
    )


def staged(folder: Path, *rows: int) -> StagedFile:
    writer = SliceWriter(str(folder), 0, FAIL)
    for count in rows:
        writer.write(mutations(count))
    (file,) = writer.finish()
    return file


def test_rows_are_those_of_the_file_and_are_forgotten_when_taken(tmp_path: Path, known: ModuleType) -> None:
    file = staged(tmp_path, 7, 5)
    rows = known.take(file.path)
    assert rows == pq.read_table(file.path)
    assert known.take(file.path) is None


def test_values_of_a_missing_image_are_missing(tmp_path: Path, known: ModuleType) -> None:
    rows = known.take(staged(tmp_path, 3).path)
    assert rows is not None
    assert rows["before"].chunk(0).field("n").to_pylist() == [None, 1, 2]
    assert rows["after"].chunk(0).field("n").to_pylist() == [0, 1, None]


def test_readers_get_the_same_rows_without_the_file(tmp_path: Path) -> None:
    file = staged(tmp_path, 7)
    read = pq.read_table(file.path, read_dictionary=list(REPEATING))
    Path(file.path).unlink()
    assert SharedReads().read(file, 1 << 20, COLUMNS) == read


def test_a_file_of_many_rows_is_not_remembered(
    tmp_path: Path, known: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_files, "MOST_OF_A_FILE", mutations(7).batch.nbytes)
    (tmp_path / "few").mkdir()
    assert known.take(staged(tmp_path / "few", 7).path) is not None
    assert known.take(staged(tmp_path, 7, 5).path) is None


def test_files_make_room_for_others(known: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_rows._kept, "most", 250)
    for path in ("a", "b", "c"):
        known.keep(path, [mutations(1).batch], 100)
    assert [known.take(path) is not None for path in ("a", "b", "c")] == [False, True, True]
    known.keep("d", [mutations(1).batch], 250)
    assert known.take("d") is not None


def test_hashes_are_not_compressed(tmp_path: Path) -> None:
    digest = Column("it's.a", "char", length=64, charset="ascii", mask=Mask("hash", 64, "a key"))
    columns = (*SHAPE, digest, Column("v", "vector", length=2))
    schema = staged_schema(columns, FAIL)
    image = pa.array([{"n": 1, "it's.a": "ab" * 32, "v": [0.5, 1.0]}] * 20_000, schema.field("after").type)
    numbers = pa.array(range(20_000), pa.int64())
    values: dict[str, pa.Array] = dict.fromkeys(("file", "offset", "row", "committed_us"), numbers)
    values |= {"op": pa.array([INSERT] * 20_000, pa.int8()), "before": image, "after": image}
    values |= dict.fromkeys(("gtid", "xid"), pa.nulls(20_000, pa.string()))
    rows = pa.RecordBatch.from_arrays([values[name] for name in schema.names], schema=schema)
    writer = SliceWriter(str(tmp_path), 0, FAIL)
    writer.write(Mutations(NAME, columns, ("n",), 0, rows))
    (file,) = writer.finish()
    group = pq.ParquetFile(file.path).metadata.row_group(0)
    parts = [group.column(number) for number in range(group.num_columns)]
    packed = {part.path_in_schema: part.compression for part in parts}
    assert {name for name, way in packed.items() if way == "UNCOMPRESSED"} == {"before.it's.a", "after.it's.a"}
    assert set(packed.values()) == {"ZSTD", "UNCOMPRESSED"}
    assert {"before.v.list.element", "after.v.list.element"} <= packed.keys()
    assert pq.read_table(file.path).to_batches()[0].equals(rows)
