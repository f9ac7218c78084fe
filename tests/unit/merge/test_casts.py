"""Which types may stand for those of older data files."""

from __future__ import annotations

import itertools

import pyarrow as pa

from binlake.merge import casts
from binlake.merge.reshape import ReshapedColumn, widens

KINDS = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64(), "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(), "DATE": pa.date32(), "TIMESTAMP_NTZ": pa.timestamp("us"),
    "TIMESTAMP": pa.timestamp("us", "UTC"), "STRING": pa.string(), "BINARY": pa.binary(), "BOOLEAN": pa.bool_(),
    "DECIMAL(6,2)": pa.decimal128(6, 2), "DECIMAL(7,1)": pa.decimal128(7, 1), "DECIMAL(20,0)": pa.decimal128(20, 0),
    "DECIMAL(12,2)": pa.decimal128(12, 2), "DECIMAL(24,4)": pa.decimal128(24, 4),
}  # fmt: skip


def test_what_is_widened_is_read_and_nothing_narrower() -> None:
    widened = set()
    for (before, arrow_before), (after, arrow) in itertools.permutations(KINDS.items(), 2):
        if widens(ReshapedColumn("c", after, "c", before, arrow, arrow_before=arrow_before)):
            widened.add((before, after))
            assert casts.widens(arrow_before, arrow)
            assert casts.is_known(arrow_before, arrow)
            assert not casts.widens(arrow, arrow_before)
    assert len(widened) == 25
    for before, after in (("DATE", "STRING"), ("TIMESTAMP_NTZ", "TIMESTAMP"), ("DECIMAL(7,1)", "DECIMAL(6,2)")):
        assert not casts.widens(KINDS[before], KINDS[after])
