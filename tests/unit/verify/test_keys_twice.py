"""Keys of several rows are found among those that were read, and of very many a share."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from binlake.schema.table import Column, TableSchema
from binlake.verify.reading import keys_twice
from binlake.verify.reading.key_cells import ComparedColumns, KeyCells, Measured
from binlake.verify.reading.keys_twice import KeysTwice, repeated_keys, rows_of


def halves(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint64)


def test_keys_that_occur_several_times() -> None:
    keys = KeysTwice()
    assert keys.twice().tolist() == []
    keys.add(halves(3, 1, 2))
    keys.add(halves(2, 4, 3, 3))
    assert keys.twice().tolist() == [2, 3]


def test_of_very_many_keys_a_share_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_twice, "MOST_HELD", 100)
    keys = KeysTwice()
    for begin in range(0, 400, 50):
        keys.add(np.arange(begin, begin + 50, dtype=np.uint64))
    keys.add(np.arange(0, 64, dtype=np.uint64))
    twice = keys.twice().tolist()
    assert twice == list(range(0, 64, 8))
    assert keys._count <= 100


SCHEMA = TableSchema((Column("id", "int"), Column("v", "varchar", length=20, charset="utf8mb4")), ("id",), "primary")


def measured(*ids: int) -> Measured:
    compared = ComparedColumns(SCHEMA)
    rows = pa.Table.from_pylist(
        [{"id": number, "v": f"row {place}"} for place, number in enumerate(ids)], compared.arrow
    )
    (batch,) = rows.combine_chunks().to_batches()
    return compared.measured(batch, KeyCells())


def test_the_rows_of_such_keys_are_named() -> None:
    keys = KeysTwice()
    parts = [measured(7, 1, 2), measured(3, 7, 4), measured(4, 5)]
    for part in parts:
        keys.add(part.keys.first)
    chosen = rows_of(parts, keys.twice())
    assert sum(part.rows.num_rows for part in chosen) == 4
    found = repeated_keys(ComparedColumns(SCHEMA), chosen, len(keys.twice()))
    assert found is not None
    assert [str(row) for row in found.rows] == ['twice x2: id="7"', 'twice x2: id="4"']
    assert found.reason.startswith("2 keys of several rows, which are in different partitions")


def test_keys_that_only_look_alike_are_none() -> None:
    parts = [measured(1, 2, 3)]
    assert repeated_keys(ComparedColumns(SCHEMA), rows_of(parts, parts[0].keys.first), 1) is None
