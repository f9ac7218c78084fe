"""Whole columns as Kafka Connect's Avro are what a stock reader reads, by schemas as the converter makes them."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings, strategies as st
from pydantic import ValidationError

from binlake.config.feed_config import DebeziumFormat
from binlake.errors import FeedError
from binlake.feeds.contract import FeedTable
from binlake.feeds.formats import avro, debezium_schemas as schemas
from binlake.feeds.formats.connect import Schema, type_of
from binlake.feeds.formats.connect_avro import AvroWriter, avro_schema
from binlake.schema.decimals import unscaled
from binlake.schema.table import Column, TableName

PLAIN = DebeziumFormat(type="debezium")
WRITER = AvroWriter(lambda subject, schema: 7)


def row_of(*columns: Column) -> Schema:
    fields = [type_of(column, PLAIN).schema(column, optional=column.nullable) for column in columns]
    return {"type": "struct", "optional": False, "name": "s.shop.t.Value", "fields": fields}


def read_back(column: Column, staged: pa.Array) -> list[Any]:
    """A column's values, written whole, by the schema that is registered."""
    schema = row_of(column)
    written = WRITER.column(schema["fields"][0], type_of(column, PLAIN).values(staged))
    parsed = fastavro.parse_schema(avro_schema(schema))
    values = []
    for data in WRITER.struct(schema, [written]).to_pylist():
        rest = io.BytesIO(data)
        (value,) = fastavro.schemaless_reader(rest, parsed, None).values()  # type: ignore[union-attr]
        assert not rest.read()
        values.append(value)
    return values


WHOLE = st.integers(-(2**63), 2**63 - 1)
SINGLE = st.floats(width=32, allow_nan=False)
COLUMNS: list[tuple[Column, pa.DataType, st.SearchStrategy[Any]]] = [
    (Column("c", "bigint"), pa.int64(), WHOLE),
    (Column("c", "smallint"), pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (Column("c", "double"), pa.float64(), st.floats(allow_nan=False)),
    (Column("c", "float"), pa.float32(), SINGLE),
    (Column("c", "bit", length=1), pa.bool_(), st.booleans()),
    (Column("c", "text"), pa.string(), st.text()),
    (Column("c", "blob"), pa.binary(), st.binary()),
    (Column("c", "decimal", precision=18, scale=4), pa.decimal128(18, 4), st.decimals(-(10**13), 10**13, places=4)),
    (Column("c", "decimal", precision=38, scale=2), pa.decimal128(38, 2), st.decimals(-(10**20), 10**20, places=2)),
    (Column("c", "vector", length=3), pa.list_(pa.float32()), st.lists(SINGLE, max_size=3)),
]


@pytest.mark.parametrize(("column", "kind", "values"), COLUMNS, ids=[str(kind) for _, kind, _ in COLUMNS])
def test_columns(column: Column, kind: pa.DataType, values: st.SearchStrategy[Any]) -> None:
    @settings(deadline=None, max_examples=50)
    @given(st.lists(st.none() | values), st.integers(0, 3))
    def check(written: list[Any], start: int) -> None:
        assert read_back(column, pa.array(written, kind).slice(start)) == written[start:]

    check()


@settings(deadline=None)
@given(st.lists(WHOLE))
@example([0, -1, 127, 128, -128, -129, 2**63 - 1, -(2**63)])
def test_shortest_numbers(numbers: list[int]) -> None:
    made = avro.shortest(np.array(numbers, np.int64)).to_pylist()
    assert made == [unscaled(Decimal(number), 0) for number in numbers]


def test_a_decimal_of_65_digits() -> None:
    value = Decimal("-12345678901234567890123456789012345678901234567890123456789.123456")
    assert read_back(Column("c", "decimal", precision=65, scale=6), pa.array([str(value)])) == [value]


def test_what_is_no_date_is_null_or_the_epoch() -> None:
    days, moments = pa.array([None, 1], pa.date32()), pa.array([None, 10**6], pa.timestamp("us"))
    assert read_back(Column("c", "date"), days) == [None, 1]
    assert read_back(Column("c", "date", nullable=False), days) == [0, 1]
    assert read_back(Column("c", "datetime", nullable=False), moments) == [0, 1000]
    stamps = moments.cast(pa.timestamp("us", "UTC"))
    epoch = ["1970-01-01T00:00:00Z", "1970-01-01T00:00:01Z"]
    assert read_back(Column("c", "timestamp", nullable=False), stamps) == epoch


def test_null_where_none_may_be_is_an_error() -> None:
    schema = row_of(Column("a", "int"), Column("b", "text", nullable=False))
    fields = schema["fields"]
    there = pa.array([{"a": 1, "b": "x"}, None], pa.struct([("a", pa.int32()), ("b", pa.string())]))
    optional = {**schema, "optional": True}
    parts = [WRITER.column(field, there.field(field["field"])) for field in fields]
    assert WRITER.struct(optional, parts, there).to_pylist() == [b"\x02\x02\x02\x02x", b"\x00"]
    lost = pa.array([{"a": 1, "b": None}], there.type)
    parts = [WRITER.column(field, lost.field(field["field"])) for field in fields]
    with pytest.raises(FeedError, match="NULL in a column that is NOT NULL: b"):
        WRITER.struct(optional, parts, lost)


def optional(kind: Any) -> dict[str, Any]:
    return {"type": ["null", kind], "default": None}


def test_the_schema_that_the_converter_registers() -> None:
    """As a registry has it of Debezium 3 with AvroConverter, for a table of the same columns."""
    columns = (
        Column("id", "int", nullable=False), Column("price", "decimal", precision=10, scale=2),
        Column("small", "smallint"), Column("at", "timestamp"), Column("p", "point"), Column("q", "point"),
    )  # fmt: skip
    table = FeedTable(TableName("demo", "users"), columns, ("id",))
    types = [type_of(column, PLAIN) for column in columns]
    made = avro_schema(schemas.envelope(table, types, "server.demo.users", "mysql"))
    fields = {field.pop("name"): field for field in made["fields"]}
    del made["fields"]
    assert made == {
        "type": "record", "name": "Envelope", "namespace": "server.demo.users", "connect.version": 2,
        "connect.name": "server.demo.users.Envelope",
    }  # fmt: skip
    assert fields["after"] == optional("Value")
    assert (fields["op"], fields["ts_ms"]) == ({"type": "string"}, optional("long"))
    _, value = fields["before"]["type"]
    assert (value["name"], value.get("namespace"), value["connect.name"]) == ("Value", None, "server.demo.users.Value")
    inside = {field.pop("name"): field for field in value["fields"]}
    decimal = {
        "type": "bytes", "scale": 2, "precision": 10, "connect.version": 1, "logicalType": "decimal",
        "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
        "connect.name": "org.apache.kafka.connect.data.Decimal",
    }  # fmt: skip
    zoned = {"type": "string", "connect.version": 1, "connect.name": "io.debezium.time.ZonedTimestamp"}
    point = inside.pop("p")["type"][1]
    assert inside == {
        "id": {"type": "int"},
        "price": optional(decimal),
        "small": optional({"type": "int", "connect.type": "int16"}),
        "at": optional(zoned),
        "q": optional("io.debezium.data.geometry.Point"),
    }
    assert (point["name"], point["namespace"]) == ("Point", "io.debezium.data.geometry")
    assert fields["transaction"]["type"][1]["connect.name"] == "event.block"
    source = {field.pop("name"): field for field in fields["source"]["type"]["fields"]}
    assert source["snapshot"] == {
        "type": [
            {
                "type": "string", "connect.version": 1, "connect.default": "false",
                "connect.parameters": {
                    "allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
                },
                "connect.name": "io.debezium.data.Enum",
            },
            "null",
        ],
        "default": "false",
    }  # fmt: skip
    assert (source["gtid"], source["pos"]) == (optional("string"), {"type": "long"})


def test_names_that_avro_has_not() -> None:
    columns = [Column(name, "int") for name in ("1st", "a.b", "größe", "$")]
    schema = {**row_of(*columns), "name": "1s.shop-2.t.Value"}
    made = avro_schema(schema)
    assert fastavro.parse_schema(made)
    assert [field["name"] for field in made["fields"]] == ["_1st", "a_b", "gr__e", "_"]
    assert (made["namespace"], made["name"]) == ("_1s.shop_2.t", "Value")
    with pytest.raises(FeedError, match="the name that 'a-b' is in Avro, 'a_b'"):
        avro_schema(row_of(Column("a_b", "int"), Column("a-b", "int")))


def test_the_head_of_a_message_and_its_subject() -> None:
    asked: list[str] = []

    def register(subject: str, schema: dict[str, Any]) -> int:
        asked.append(subject)
        return 258

    writer, schema = AvroWriter(register), row_of(Column("a", "int"))
    for _ in range(2):
        key = writer.message("s.shop.t", schema, pa.scalar(b"x"), key=True)
        assert key.as_py() == b"\x00\x00\x00\x01\x02x"
    writer.message("s.shop.t", schema, pa.array([b"x"]))
    assert asked == ["s.shop.t-key", "s.shop.t-value"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"encoding": "avro"}, "needs registry"),
        ({"registry": "http://r:8081"}, "write encoding: avro"),
        ({"encoding": "avro", "registry": "http://r:8081", "schemas": True}, "are JSON's"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        DebeziumFormat(type="debezium", **settings)
