"""MariaDB logs a VECTOR as VARBINARY: a feed shows what the recorded shape says, and no other column so."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from binlake.feeds import shapes
from binlake.planner.manifest import StagedFile
from binlake.schema.datatypes import entry, is_in_bytes
from binlake.schema.table import Column, TableName, TableSchema

VECTOR = Column("v", "vector", length=2)
BYTES = Column("b", "varbinary", length=8)
LOGGED = Column("v", "varbinary", length=8)


def staged(*columns: Column) -> StagedFile:
    place = (1, 4, 0)
    return StagedFile("f", TableName("d", "t"), columns, (), 0, 0, 1, 0, 0, place, place, 1, "", {})


@pytest.mark.parametrize(
    ("recorded", "logged", "expected"),
    [
        (VECTOR, LOGGED, True),
        (VECTOR, Column("v", "varbinary", length=12), False),
        (VECTOR, VECTOR, False),  # MySQL's
        (BYTES, Column("b", "varbinary", length=8), False),
    ],
)
def test_a_vector_in_bytes_has_four_for_each_number(recorded: Column, logged: Column, expected: bool) -> None:
    assert is_in_bytes(recorded, logged) is expected


def test_every_bit_of_a_number_stays() -> None:
    stored = [struct.pack("<2I", 0x7FA00001, 0x80000000), None, b""]
    made = entry(VECTOR).stored
    assert made is not None
    parsed = made.values(pa.array(stored, pa.binary()))
    assert parsed.type == pa.list_(pa.float32())
    bits = [None if vector.as_py() is None else vector.values.to_numpy().tobytes() for vector in parsed]
    assert bits == stored


def test_a_part_of_stored_vectors_is_read_as_a_part() -> None:
    made = entry(VECTOR).stored
    assert made is not None
    stored = pa.array([struct.pack("<2f", n, -n) for n in range(4)] + [None], pa.binary())
    assert made.values(stored.slice(2)).to_pylist() == [[2, -2], [3, -3], None]
    assert made.values(stored.slice(5)).to_pylist() == []
    assert made.bytes_of(made.values(stored.slice(1))) == stored.slice(1).to_pylist()


def test_what_no_vector_has_is_refused() -> None:
    made = entry(VECTOR).stored
    assert made is not None
    with pytest.raises(ValueError, match="floats"):
        made.values(pa.array([b"12345678", b"123"], pa.binary()))
    with pytest.raises(ValueError, match="NULL inside"):
        made.bytes_of(pa.array([[1.5, None]], pa.list_(pa.float32())))


def test_a_feed_shows_numbers_for_the_vector_alone() -> None:
    schema = TableSchema((VECTOR, BYTES))
    table = shapes.table_of(staged(LOGGED, BYTES), schema)
    assert [column.type for column in table.columns] == ["vector", "varbinary"]
    row = {"v": struct.pack("<2f", 1.5, -2), "b": b"12345678"}
    image = pa.struct([("v", pa.binary()), ("b", pa.binary())])
    rows = pa.record_batch([pa.array([None], image), pa.array([row], image)], names=["before", "after"])
    shown = shapes.shown(table, rows)
    assert shown.column("after").to_pylist() == [{"v": [1.5, -2.0], "b": b"12345678"}]
    assert shown.column("before").to_pylist() == [None]
    again = shapes.shown(table, shown)
    assert again.column("after").to_pylist() == shown.column("after").to_pylist()
