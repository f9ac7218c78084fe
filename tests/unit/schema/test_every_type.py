"""Each consumer of column types takes every type of the registry, or refuses it by name."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import Schema as DeltalakeSchema

from binlake.binlog.border import DELETE, INSERT, UPDATE, Mutations
from binlake.binlog.reader import read
from binlake.binlog.staged_schema import staged_schema
from binlake.binlog.transport import FileTransport
from binlake.config.feed_config import DebeziumFormat, FeedConfig
from binlake.ddl import statements
from binlake.ddl.changes import CreateTable
from binlake.ddl.create_statement import create_table
from binlake.delta.delta_schema import DeltaSchema
from binlake.delta.file_statistics import Statistics
from binlake.delta.key_order import order_of, spark_literal
from binlake.errors import UnsupportedColumn
from binlake.feeds.contract import FeedChanges, FeedContext, FeedTable
from binlake.feeds.formats.connect_avro import AvroWriter
from binlake.feeds.formats.debezium import Debezium
from binlake.feeds.formats.specific import Specific
from binlake.feeds.registry import FORMATS, make_format
from binlake.position import FIRST_OFFSET, Flavour, Slice
from binlake.relay.client_events import events_of
from binlake.schema import datatypes
from binlake.schema.invalid import KEEP_ALL
from binlake.schema.lake_columns import lake_columns
from binlake.schema.table import Column, TableName, TableSchema
from binlake.snapshot import restore
from binlake.snapshot.restore_arrow import Restored
from binlake.verify.hashing import hashes
from binlake.verify.planted_faults import flipped
from binlake.verify.reading.key_cells import ComparedColumns
from binlake.verify.self_test import self_test
from odd_values import SAMPLES, Sample
from written_again import written_again

NAME = TableName("shop", "t")
ID = Column("id", "int", nullable=False)


def flavour_of(sample: Sample) -> Flavour:
    return sample.only or "mysql"


def column_of(sample: Sample) -> Column:
    """Return the column that a CREATE TABLE statement with the sample's declaration gives."""
    text = f"CREATE TABLE shop.t (id INT PRIMARY KEY, v {sample.declared}) CHARACTER SET utf8mb4"
    (change,) = statements.parse(text, database="", sql_mode=0, flavour=flavour_of(sample)).changes
    assert isinstance(change, CreateTable), sample
    return change.schema.column("v")


DECLARED = [(column_of(sample), flavour_of(sample)) for sample in SAMPLES]
each_type = pytest.mark.parametrize("kind", sorted(datatypes.REGISTRY))


def declared(kind: str) -> list[tuple[Column, Flavour]]:
    """Return the sample columns of a type, each with the flavour of a server that has it."""
    return [(column, flavour) for column, flavour in DECLARED if column.type == kind]


def schema_of(column: Column) -> TableSchema:
    return TableSchema((ID, column), ("id",), "primary", charset="utf8mb4")


def value_of(column: Column) -> Any:
    """Return a value of the column as Arrow takes it."""
    if column.values:
        return column.values[0]
    if (stored := STORED_AS_TEXT.get(column.type)) is not None:
        return stored
    arrow = datatypes.arrow_type(column)
    if pa.types.is_boolean(arrow):
        return True
    if pa.types.is_list(arrow):
        return [1.5] * (column.length or 1)
    if pa.types.is_binary(arrow):
        width = {"bit": ((column.length or 1) + 7) // 8, "binary": column.length}.get(column.type)
        return POINT if column.type in GEOMETRIES else b"\1" * (width or 1)
    if pa.types.is_decimal(arrow):
        return Decimal(0) if column.precision == column.scale else Decimal(1)
    if pa.types.is_date(arrow):
        return date(2026, 1, 31)
    if pa.types.is_timestamp(arrow):
        return datetime(2026, 1, 31, 13, tzinfo=UTC if arrow.tz else None)
    if pa.types.is_string(arrow):
        return f"{Decimal(1):.{column.scale or 0}f}" if column.type == "decimal" else "a"
    return {"year": 2026, "time": 1_000_000}.get(column.type, 1)


STORED_AS_TEXT = {
    "json": '{"a": 1}', "uuid": "123e4567-e89b-12d3-a456-426655440000", "inet4": "192.0.2.1", "inet6": "2001:db8::1",
}  # fmt: skip
GEOMETRIES = {
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geomcollection",
    "geometrycollection",
}  # fmt: skip
POINT = bytes.fromhex("00000000010100000000000000000000000000000000000000")


def staged(column: Column) -> pa.RecordBatch:
    """Return an insert of a value, an update to NULL and a delete, as the stage step writes them."""
    full, empty = {"id": 1, "v": value_of(column)}, {"id": 1, "v": None}
    rows = [
        {"op": op, "file": 1, "offset": 4 + number, "row": number, "committed_us": 1, "before": before, "after": after}
        for number, (op, before, after) in enumerate(
            ((INSERT, None, full), (UPDATE, full, empty), (DELETE, empty, None))
        )
    ]
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, staged_schema((ID, column), KEEP_ALL)), file)
    return pq.read_table(file).combine_chunks().to_batches()[0]


def test_the_samples_are_of_every_type() -> None:
    assert {sample.type for sample in SAMPLES} == set(datatypes.REGISTRY)


def test_a_type_that_is_not_registered_is_refused_by_name() -> None:
    column = Column("v", "hologram")
    consumers: list[Callable[[], Any]] = [
        lambda: datatypes.arrow_type(column),
        lambda: datatypes.delta_type(column),
        lambda: staged_schema((ID, column), KEEP_ALL),
        lambda: lake_columns(schema_of(column), KEEP_ALL),
        lambda: restore.expressions(schema_of(column), KEEP_ALL),
        lambda: Restored(schema_of(column), KEEP_ALL),
        lambda: hashes.server_value(column),
        lambda: hashes.lake_shown(column),
        lambda: order_of(column),
    ]
    for consumer in consumers:
        with pytest.raises(UnsupportedColumn, match="HOLOGRAM"):
            consumer()


def test_samples_are_declared_as_the_registry_names_them() -> None:
    assert [column.type for column, _ in DECLARED] == [sample.type for sample in SAMPLES]


@each_type
def test_create_statements_are_read_back_as_they_were(kind: str) -> None:
    for column, flavour in declared(kind):
        text = create_table(NAME, schema_of(column), flavour)
        (change,) = statements.parse(text, database="", sql_mode=0, flavour=flavour).changes
        assert isinstance(change, CreateTable)
        again = change.schema.column("v")
        assert (again.type, again.declared, again.values) == (column.type, column.declared, column.values)


@each_type
def test_a_binlog_file_is_decoded_to_what_was_written(kind: str, tmp_path: Path) -> None:
    """But for UUID, INET4, INET6 and MariaDB's VECTOR, which travel as bytes and are rendered when they are merged."""
    for number, (column, flavour) in enumerate(declared(kind)):
        path = tmp_path / f"binlog.{number:06}"
        path.write_bytes(written_again([Mutations(NAME, (ID, column), ("id",), 1, staged(column))], flavour))
        part = Slice(path.name, FIRST_OFFSET, path.stat().st_size, 0, True)
        emitted = read(FileTransport(path), part, lambda database, table: True, invalid=KEEP_ALL)
        (mutations,) = [item for item in emitted if isinstance(item, Mutations)]
        value = mutations.batch.column("after")[0].as_py()["v"]
        if (stored := datatypes.made_late(column)) is not None:
            value = stored.values(pa.array([value], pa.binary()))[0].as_py()
        assert value == value_of(column), column.declared


@each_type
def test_the_lake_has_a_type_for_it(kind: str) -> None:
    for column, _ in declared(kind):
        columns = lake_columns(schema_of(column), KEEP_ALL)
        text = DeltaSchema.of(columns, "t").text({})
        arrow = pa.schema(DeltalakeSchema.from_json(text).to_arrow())
        assert arrow.field("v").type == datatypes.arrow_type(column), column.declared


@each_type
def test_the_merge_without_spark_takes_it(kind: str) -> None:
    """Its statistics are written, and those of a key's column are compared."""
    for column, _ in declared(kind):
        statistics = Statistics()
        statistics.add(pa.table({"v": pa.array([value_of(column), None], datatypes.arrow_type(column))}))
        assert json.loads(statistics.text())["nullCount"] == {"v": 1}
        order = order_of(column)
        if order is not None:
            plain = order.plain(pa.array([value_of(column)], order.arrow))
            assert spark_literal(column, plain[0]), column.declared


@each_type
def test_both_snapshot_readers_and_verify_take_it(kind: str) -> None:
    for column, _ in declared(kind):
        entry, schema = datatypes.entry(column), schema_of(column)
        assert all("`v`" in made(column) for made in (entry.select, entry.restore, entry.server_text, entry.lake_text))
        assert all("`v`" in made(column) for made in (hashes.server_value, hashes.server_shown, hashes.lake_shown))
        assert any("`v`" in expression for expression in restore.expressions(schema, KEEP_ALL))
        assert Restored(schema, KEEP_ALL).arrow.field("v").type == datatypes.arrow_type(column)


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "without key"])
@each_type
def test_verify_by_reading_finds_faults_in_it(kind: str, keyed: bool) -> None:
    for column, _ in declared(kind):
        schema = schema_of(column) if keyed else TableSchema((ID, column), (), "none", charset="utf8mb4")
        compared = ComparedColumns(schema)
        empties: dict[type, Any] = {str: "", bytes: b""}
        empty = empties.get(type(value_of(column)))
        values = [value_of(column), flipped(datatypes.arrow_type(column), value_of(column)), None, empty]
        made = {"id": pa.array([1, 2, 3, 4], pa.int32()), "v": pa.array(values, datatypes.arrow_type(column))}
        columns = [made.get(field.name, pa.nulls(4, field.type)) for field in compared.arrow]
        tested = self_test(NAME, compared, pa.RecordBatch.from_arrays(columns, schema=compared.arrow))
        assert not tested.missed, (column.declared, tested.missed)
        wanted = {"flipped bit", "missing row", "twin", "swapped pair", "NULL for a value", "stale row"}
        wanted |= {"wrong time zone"} if pa.types.is_timestamp(datatypes.arrow_type(column)) else set()
        assert set(tested.planted) - {"truncated text"} == wanted
        assert ("truncated text" in tested.planted) == (empty is not None)


@each_type
def test_feeds_and_the_relay_take_it(kind: str) -> None:
    for column, flavour in declared(kind):
        table = FeedTable(NAME, (ID, column), ("id",), schema_of(column))
        changes = FeedChanges(table, staged(column), "binlog.000001")
        for name in (*FORMATS, "debezium avro", "relay"):
            assert len([*messages(name, changes, flavour)]) == 3, (name, column.declared)


def messages(name: str, changes: FeedChanges, flavour: Flavour) -> Any:
    context = FeedContext("f", "s", "server", flavour)
    if name == "relay":
        return events_of(changes)
    if name == "debezium avro":
        return Debezium(DebeziumFormat(type="debezium"), context, AvroWriter(registered, "TopicName")).changes(changes)
    sink = "binlog:///feed" if name == "binlog" else "file:///feed"
    encoding = {"type": name} | ({"registry": "http://127.0.0.1:1"} if name == "specific" else {})
    feed = FeedConfig.model_validate({"name": "f", "include": ["shop.*"], "format": encoding, "sink": sink})
    if name == "specific":
        return Specific(feed.format, context, registered).changes(changes)  # type: ignore[arg-type]
    return make_format(feed, context).changes(changes)


def registered(*_: Any) -> int:
    return 1
