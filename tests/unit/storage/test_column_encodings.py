"""Data files are encoded as their values deserve, and read back as they were, by whoever reads Parquet."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from binlake.storage import parquet_files

ROWS = 40_000


def _rows(count: int = ROWS) -> pa.Table:
    numbers = np.arange(count)
    digests = [hashlib.sha256(str(number).encode()).hexdigest() for number in numbers]
    return pa.table(
        {
            "id": numbers,
            "few": numbers % 1000,
            "digest": digests,
            "digests again": [digests[number // 7] for number in numbers],
            "text": [f"a text that has much in common with others: {number}" for number in numbers],
            "seldom": pa.array([number if number % 5000 == 0 else None for number in numbers]),
            "nothing": pa.nulls(count, pa.string()),
            "a.b": [number % 2 == 0 for number in numbers],
            "list": pa.array([[float(number), 1.0] for number in numbers], pa.list_(pa.float32())),
        }
    )


def _encoded(path: Path) -> dict[str, tuple[bool, bool]]:
    """Return for each column of a file's first row group whether it has a dictionary, and whether it is compressed."""
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {column.path_in_schema: (column.has_dictionary_page, column.compression == "SNAPPY") for column in columns}


def test_each_column_has_what_spares_it_something(tmp_path: Path) -> None:
    path, rows = tmp_path / "data.parquet", _rows()
    parquet_files.write_data_file(str(path), rows)
    encoded = _encoded(path)
    assert encoded["id"] == (False, True)
    assert encoded["few"][0]
    assert encoded["digest"] == (False, False)
    assert encoded["digests again"] == (True, True)
    assert encoded["text"] == (False, True)
    assert encoded["seldom"] == encoded["nothing"] == (True, True)
    assert pq.read_table(path).equals(rows)
    assert all(pq.read_metadata(path).row_group(0).column(number).is_stats_set for number in range(2))


@pytest.mark.parametrize("count", [100, ROWS])
@pytest.mark.parametrize("repeating", [None, ["few"]])
def test_texts_of_a_dictionary_are_read_back_as_texts(
    count: int, repeating: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = pa.array([["one", None, "another"][number % 3] for number in range(count)])
    rows = pa.table({"few": texts, "id": np.arange(count)}).replace_schema_metadata({"writer": "this"})
    given = rows.set_column(0, "few", rows["few"].dictionary_encode())
    for number, most in enumerate((parquet_files._ROW_GROUP, 1)):
        path = tmp_path / f"{number}.parquet"
        monkeypatch.setattr(parquet_files, "_ROW_GROUP", most)
        parquet_files.write_data_file(str(path), given, repeating)
        assert pq.read_table(path).equals(rows, check_metadata=True)
        assert _encoded(path)["few"][0] or count < ROWS


def test_a_file_is_encoded_as_its_first_row_group_asks(tmp_path: Path) -> None:
    path, rows = tmp_path / "data.parquet", _rows()
    sink = parquet_files.DataFileSink(str(path), rows.schema)
    for batch in rows.to_batches(max_chunksize=7_000):
        sink.write(batch)
    assert sink.close() == path.stat().st_size
    assert _encoded(path)["digest"] == (False, False)
    assert _encoded(path)["digests again"] == (True, True)
    assert pq.read_table(path).equals(rows)


def test_only_the_named_columns_of_a_log_have_a_dictionary(tmp_path: Path) -> None:
    path, rows = tmp_path / "data.parquet", _rows()
    parquet_files.write_data_file(str(path), rows, ["few"])
    assert {name for name, (dictionary, _) in _encoded(path).items() if dictionary} == {"few"}
    assert _encoded(path)["digest"] == (False, False)
    assert pq.read_table(path).equals(rows)


def test_a_few_wide_rows_and_none_at_all(tmp_path: Path) -> None:
    wide = pa.table({"text": ["x" * 3_000_000, "y" * 2_000_000, None], "id": [1, 2, 3]})
    path = tmp_path / "wide.parquet"
    parquet_files.write_data_file(str(path), wide)
    assert path.stat().st_size < 1_000_000
    assert pq.read_table(path).equals(wide)
    sink = parquet_files.DataFileSink(str(tmp_path / "none.parquet"), wide.schema)
    sink.close()
    assert pq.read_table(tmp_path / "none.parquet").equals(wide.slice(0, 0))
