"""How values of a log are printed."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa

from binlake.binlog.border import INSERT, Item, Mutations
from binlake.cli import logview
from binlake.position import Slice
from binlake.schema.table import Column, TableName

COLUMNS = (Column("rate", "decimal", precision=20, scale=10), Column("f", "float"))
IMAGE = pa.struct([("rate", pa.decimal128(20, 10)), ("f", pa.float32())])


class OneRow:
    """A log with one inserted row."""

    slices = (Slice("binlog.000001", 4, 9, 0, True),)

    def events(self) -> Iterator[object]:
        raise NotImplementedError

    def mutations(self, wanted: object = None) -> Iterator[Item]:
        batch = pa.record_batch({
            "op": pa.array([INSERT], pa.int8()), "file": [1], "offset": [5], "row": [0], "committed_us": [0],
            "gtid": pa.nulls(1, pa.string()), "xid": pa.nulls(1, pa.string()), "before": pa.nulls(1, IMAGE),
            "after": pa.array([{"rate": Decimal("1E-8"), "f": 1.1}], IMAGE),
        })  # fmt: skip
        yield Mutations(TableName("shop", "t"), COLUMNS, (), 0, batch)


def printed(form: str) -> str:
    out = io.StringIO()
    logview.show_mutations(OneRow(), [], form, out, None)  # type: ignore[arg-type]
    return out.getvalue()


def test_small_decimals_have_no_exponent_and_a_float_its_shortest_text() -> None:
    assert json.loads(printed("json"))["after"] == {"rate": "0.0000000100", "f": 1.1}
    assert printed("text").splitlines()[1:] == ["    rate = 0.0000000100", "    f = 1.1"]
