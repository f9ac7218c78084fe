"""Whole columns as Kafka Connect's JSON are what each value is by itself."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings, strategies as st

from binlake.binlog.border import INSERT, UPDATE
from binlake.binlog.staged_schema import staged_schema
from binlake.config.feed_config import DebeziumFormat
from binlake.feeds.contract import FeedChanges, FeedContext, FeedTable, TransactionEnd
from binlake.feeds.formats import connect_json
from binlake.feeds.formats.connect import type_of
from binlake.feeds.formats.connect_json import JsonWriter, encoded
from binlake.feeds.formats.debezium import Debezium
from binlake.feeds.formats.joining import quoted
from binlake.position import Flavour
from binlake.schema.decimals import unscaled
from binlake.schema.invalid import FAIL
from binlake.schema.table import Column, TableName

BORDERS = [
    sign * ((1 << bits) + near) for bits in (7, 8, 15, 16, 23, 31, 39, 47, 55, 62) for near in (-1, 0, 1)
    for sign in (1, -1)
]  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
@example([0, -1, 2**63 - 1, -(2**63), *BORDERS])
def test_numbers_in_base64(numbers: list[int]) -> None:
    made = connect_json.base64_texts(np.array(numbers, np.int64)).to_pylist()
    assert made == [encoded(unscaled(Decimal(number), 0)) for number in numbers]


@settings(deadline=None)
@given(st.lists(st.none() | st.text()))
@example(['"', "\\", "\0", "\n\t\x1f", "\x7f", "é😀", "", None, "plain"])
def test_texts(texts: list[str | None]) -> None:
    made = quoted(pa.array(texts, pa.string())).to_pylist()
    assert [None if text is None else json.loads(text) for text in made] == texts


def test_pieces_are_the_rows_in_order_and_none_is_large() -> None:
    rows = pa.record_batch({"text": ["x" * (40 << 20), "a", "y" * (40 << 20), "b", "c", "z" * (70 << 20)]})
    table = FeedTable(TableName("shop", "notes"), (), ())
    numbered = [("gtid", number, number) for number in range(rows.num_rows)]
    pieces = [*FeedChanges(table, rows, "binlog.000001", numbered).pieces()]
    assert pa.concat_batches([piece.rows for piece in pieces]) == rows
    assert [transaction for piece in pieces for transaction in piece.transactions] == numbered
    assert all(piece.rows.nbytes <= 64 << 20 or piece.rows.num_rows == 1 for piece in pieces)
    assert len(pieces) < rows.num_rows


def test_decimals_of_a_slice_with_nulls() -> None:
    numbers = [Decimal("1.25"), None, Decimal("-99999999.99"), Decimal("0.00"), None]
    column = Column("d", "decimal", precision=10, scale=2)
    kind = type_of(column, DebeziumFormat(type="debezium"))
    schema = kind.schema(column, optional=True)
    for start in range(len(numbers)):
        values = kind.values(pa.array(numbers, pa.decimal128(10, 2)).slice(start, 3))
        made = JsonWriter().column(schema, values).to_pylist()
        assert made == [
            "null" if number is None else encoded(unscaled(number, 2)) for number in numbers[start : start + 3]
        ]


def test_all_digits_of_a_decimal_are_kept() -> None:
    value = Decimal("-12345678901234567890123456789012345678901234567890123456789.123456")
    assert int.from_bytes(unscaled(value, 6), "big", signed=True) == -int(str(value)[1:].replace(".", ""))


def test_the_servers_id_of_mariadb_stands_in_its_gtid_and_mysqls_is_that_of_its_uuid() -> None:
    columns = (Column("id", "int"),)
    rows = [
        {"op": INSERT, "file": 1, "offset": 4, "row": 0, "committed_us": 1, "gtid": gtid, "after": {"id": 1}}
        for gtid in ("0-42-7", None)
    ]
    uuids = [f"3e11fa47-71ca-11e1-9e33-c80aa942956{number}" for number in range(3)]
    batch = pa.RecordBatch.from_pylist(rows, schema=staged_schema(columns, FAIL))
    changes = FeedChanges(FeedTable(TableName("a", "t"), columns, ()), batch, "binlog.000001")
    gtids = pa.array([f"{uuids[0]}:7", f"{uuids[1]}:tag:9"])
    of_mysql = batch.set_column(5, "gtid", gtids)
    settings = DebeziumFormat(type="debezium")

    def server_ids(flavour: Flavour, changes: FeedChanges = changes) -> list[int]:
        form = Debezium(settings, FeedContext("f", "s", "server", flavour), JsonWriter())
        return [json.loads(message.value or b"")["source"]["server_id"] for (message,) in form.changes(changes)]

    assert (server_ids("mariadb"), server_ids("mysql")) == ([42, 0], [0, 0])
    two = dict(zip(uuids, (11, 12), strict=False))
    for servers, wanted in (({uuids[0]: 11}, [11, 11]), (two, [11, 12]), ({uuids[0]: 11, uuids[2]: 13}, [11, 0])):
        assert server_ids("mysql", replace(changes, rows=of_mysql, servers=servers)) == wanted


def test_the_namespace_of_topics_schemas_and_sources_is_the_feeds_own() -> None:
    columns = (Column("id", "int"),)
    row = {"op": INSERT, "file": 1, "offset": 4, "row": 0, "committed_us": 1, "after": {"id": 1}}
    batch = pa.RecordBatch.from_pylist([row], schema=staged_schema(columns, FAIL))
    changes = FeedChanges(FeedTable(TableName("a", "t"), columns, ("id",)), batch, "binlog.000001")
    end = TransactionEnd("uuid:1", 1, {TableName("a", "t"): 1})

    def names(**made: Any) -> list[str]:
        config = DebeziumFormat(type="debezium", schemas=True, **made)
        form = Debezium(config, FeedContext("f", "shop", "server", "mysql"), JsonWriter(schemas=True))
        ((message,),) = form.changes(changes)
        value = json.loads(message.value or b"")
        topics = [sent.topic for sent in (message, *form.heartbeat(1), *form.transaction_ended(end))]
        return [*topics, value["payload"]["source"]["name"], value["schema"]["name"]]

    assert names() == ["shop.a.t", "__debezium-heartbeat.shop", "shop.transaction", "shop", "shop.a.t.Envelope"]
    assert names(topic_prefix="acme.${source}-${feed}", topic="${prefix}.${source}.${table}") == [
        "acme.shop-f.shop.t", "__debezium-heartbeat.acme.shop-f", "acme.shop-f.transaction", "acme.shop-f",
        "acme.shop_f.a.t.Envelope",
    ]  # fmt: skip
    for wrong in ("a b", "${db}", "a/b", ""):
        with pytest.raises(ValueError, match="may hold letters"):
            DebeziumFormat(type="debezium", topic_prefix=wrong)


@pytest.mark.parametrize(
    ("key", "old", "new", "settings"),
    [
        (Column("k", "float", nullable=False), 0.0, -0.0, {}),
        (Column("k", "float", nullable=False), 1.0, 2.0, {}),
        (Column("k", "date", nullable=False), None, date(1970, 1, 1), {}),
        (Column("k", "decimal", nullable=False, precision=38, scale=0), Decimal(2**60), Decimal(2**60 + 1),
         {"decimals": "double"}),
    ],
)  # fmt: skip
def test_an_update_counts_as_many_events_as_it_is_messages(
    key: Column, old: Any, new: Any, settings: dict[str, Any]
) -> None:
    place = {"file": 1, "offset": 4, "row": 0, "committed_us": 1}
    rows = [
        {"op": UPDATE, **place, "before": {"k": before}, "after": {"k": after}}
        for before, after in ((old, new), (new, new))
    ]
    batch = pa.RecordBatch.from_pylist(
        [{"op": INSERT, **place, "after": {"k": new}}, *rows], schema=staged_schema((key,), FAIL)
    )
    changes = FeedChanges(FeedTable(TableName("a", "t"), (key,), ("k",)), batch, "binlog.000001")
    config = DebeziumFormat(type="debezium", transactions=True, tombstones=False, **settings)
    form = Debezium(config, FeedContext("f", "s", "server", "mysql"), JsonWriter())
    assert form.events(changes) == [len(messages) for messages in form.changes(changes)]
