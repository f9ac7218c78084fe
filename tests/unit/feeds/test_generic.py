"""mypipe's generic Avro, read by an Avro reader that others wrote."""

from __future__ import annotations

import io
import uuid
from datetime import datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import example, given, strategies as st

from binlake.binlog.staged_schema import staged_schema
from binlake.config.feed_config import GenericFormat
from binlake.feeds import consume
from binlake.feeds.contract import FeedChanges, FeedContext, FeedTable
from binlake.feeds.formats import generic
from binlake.schema.invalid import FAIL
from binlake.schema.table import Column, TableName

COLUMNS = (
    Column("id", "int"), Column("big", "bigint"), Column("huge", "bigint", unsigned=True),
    Column("flag", "bit", length=1), Column("name", "varchar", length=9, charset="utf8mb4"), Column("raw", "blob"),
    Column("price", "decimal", precision=9, scale=2), Column("at", "datetime", fraction=6),
)  # fmt: skip
TABLE = FeedTable(TableName("shop", "orders"), COLUMNS, ("id",))
OLD: dict[str, Any] = {
    "id": -1, "big": 2**62, "huge": Decimal(2**64 - 1), "flag": True, "name": "é", "raw": b"\x00\xff",
    "price": Decimal("-1.50"), "at": datetime(2026, 1, 31, 13),
}  # fmt: skip
NEW: dict[str, Any] = {**dict.fromkeys(OLD), "id": 300}


def messages(*rows: tuple[int, dict[str, Any] | None, dict[str, Any] | None], gtid: str | None = None) -> list[Any]:
    staged = [
        {
            "op": op,
            "file": 1,
            "offset": 4,
            "row": number,
            "committed_us": 5,
            "gtid": gtid,
            "before": before,
            "after": after,
        }
        for number, (op, before, after) in enumerate(rows)
    ]
    batch = pa.RecordBatch.from_pylist(staged, schema=staged_schema(COLUMNS, FAIL))
    form = generic.Generic(GenericFormat(type="generic"), FeedContext("f", "s", "server", "mysql"))
    return [message for (message,) in form.changes(FeedChanges(TABLE, batch, "binlog.000001"))]


def read(value: bytes) -> dict[str, Any]:
    """By the schema of the message's type, to its last byte."""
    assert (value[0], value[2:4]) == (0, b"\x00\x00")
    rest = io.BytesIO(value[4:])
    row = fastavro.schemaless_reader(rest, fastavro.parse_schema(generic.schema(value[1])), None)
    assert not rest.read()
    assert isinstance(row, dict)
    return row


def test_an_insert_an_update_and_a_delete() -> None:
    insert, update, delete = messages((1, None, OLD), (2, OLD, NEW), (3, NEW, None), gtid="u:1")
    row = read(insert.value)
    assert (insert.topic, insert.key, insert.value[1]) == ("shop_orders_generic", b"[-1]", 1)
    assert (row["database"], row["table"]) == ("shop", "orders")
    assert row["integers"] == {"id": -1, "flag": 1}
    assert row["longs"] == {"big": 2**62}
    assert row["bytes"] == {"raw": b"\x00\xff"}
    assert row["strings"] == {
        "huge": "18446744073709551615",
        "name": "é",
        "price": "-1.50",
        "at": "2026-01-31 13:00:00.000000",
    }
    changed = read(update.value)
    assert {name: value for name, value in changed.items() if name.startswith("old_")} == {
        f"old_{name}": row[name] for name in ("bytes", "integers", "strings", "longs")
    }
    assert (changed["new_integers"], changed["new_strings"], changed["new_longs"]) == ({"id": 300}, {}, {})
    gone = read(delete.value)
    assert (gone["integers"], delete.key) == ({"id": 300}, b"[300]")
    assert row["txid"] == changed["txid"] == gone["txid"]
    assert uuid.UUID(bytes=row["txid"])
    assert row["tableId"] == gone["tableId"]


@pytest.mark.parametrize(
    ("column", "arrow", "value", "text"),
    [
        (Column("c", "float"), pa.float32(), 1.1, "1.1"),
        (Column("c", "float"), pa.float32(), -3.4e38, "-3.4e38"),
        (Column("c", "double"), pa.float64(), 5.0, "5"),
        (Column("c", "double"), pa.float64(), -0.0, "-0"),
        (Column("c", "double"), pa.float64(), 1e22, "1e22"),
        (Column("c", "datetime"), pa.timestamp("us"), datetime(999, 1, 31, 13), "0999-01-31 13:00:00"),
        (Column("c", "datetime", fraction=2), pa.timestamp("us"), datetime(2026, 1, 31, 13), "2026-01-31 13:00:00.00"),
        (Column("c", "decimal", precision=9, scale=8), pa.decimal128(9, 8), Decimal("1E-8"), "0.00000001"),
    ],
)
def test_values_are_the_servers_texts(column: Column, arrow: pa.DataType, value: Any, text: str) -> None:
    image = pa.StructArray.from_arrays([pa.array([value, None], arrow)], ["c"])
    rows = pa.RecordBatch.from_arrays(
        [pa.array([1, 1], pa.int8()), pa.nulls(2, pa.string()), pa.nulls(2, image.type), image],
        ["op", "gtid", "before", "after"],
    )
    form = generic.Generic(GenericFormat(type="generic"), FeedContext("f", "s", "server", "mysql"))
    changes = FeedChanges(FeedTable(TableName("shop", "rates"), (column,), ()), rows, "binlog.000001")
    strings = [read(message.value or b"")["strings"] for (message,) in form.changes(changes)]
    assert strings == [{"c": text}, {}]


def test_a_key_has_the_shortest_text_of_a_float() -> None:
    image = pa.StructArray.from_arrays([pa.array([1.1], pa.float32())], ["c"])
    rows = pa.RecordBatch.from_arrays([pa.nulls(1, image.type), image], ["before", "after"])
    table = FeedTable(TableName("shop", "rates"), (Column("c", "float"),), ("c",))
    assert list(generic.keys(table, rows)) == [b"[1.1]"]


def test_without_a_gtid_there_is_no_txid() -> None:
    (insert,) = messages((1, None, NEW))
    assert read(insert.value)["txid"] is None


def test_the_console_shows_its_fields() -> None:
    (update,) = messages((2, OLD, NEW))
    line = consume.readable(update.value)
    assert line.startswith('{"op": "update", "database": "shop", "table": "orders", ')
    assert '"old_bytes": {"raw": "0x00ff"}' in line
    assert '"new_integers": {"id": 300}' in line
    assert consume.readable(None) == "(tombstone)"


@given(st.binary(max_size=80) | st.binary(max_size=80).map(lambda rest: b"\x00\x02\x00\x00" + rest))
@example(b"\x00\x01\x00\x00" + b"\xff" * 9 + b"\x01")
def test_the_console_shows_any_message(value: bytes) -> None:
    assert consume.readable(value).isprintable()


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_number(value: int) -> None:
    assert fastavro.schemaless_reader(io.BytesIO(generic.number(value)), {"type": "long"}, None) == value


@pytest.mark.parametrize("value", [0, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_numbers_at_the_edges_of_their_bytes(value: int) -> None:
    assert fastavro.schemaless_reader(io.BytesIO(generic.number(value)), {"type": "long"}, None) == value
