"""Where in the lake staged keys can lie: by the data files' own statistics."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from binlake.binlog.border import DELETE, INSERT, UPDATE, Mutations
from binlake.binlog.staged_schema import staged_schema
from binlake.delta import delta_commits
from binlake.delta.key_order import spark_literal
from binlake.delta.key_ranges import MOST_RANGES, each_once, ranges_to_search
from binlake.delta.plain_files import added_file
from binlake.planner.manifest import StagedFile
from binlake.schema.datatypes import REGISTRY, arrow_type
from binlake.schema.invalid import FAIL
from binlake.schema.table import Column, TableName, TableSchema
from binlake.staging.staged_files import SliceWriter

ID, BIG, NAME = Column("id", "int"), Column("id", "bigint", unsigned=True), Column("id", "varchar", length=40)
TENANT, VALUE = Column("tenant", "int"), Column("v", "int")
Row = dict[str, Any]


def shape(*key: Column) -> TableSchema:
    return TableSchema((*key, VALUE), tuple(column.name for column in key), "primary")


def lake(path: Path, schema: TableSchema, *data_files: Sequence[Row]) -> DeltaTable:
    fields = pa.schema([pa.field(column.name, arrow_type(column)) for column in schema.columns])
    write_deltalake(str(path / "lake"), pa.table({field.name: pa.array([], field.type) for field in fields}))
    for rows in data_files:
        table = pa.Table.from_pylist([{"v": 0, **row} for row in rows], schema=fields)
        write_deltalake(str(path / "lake"), table, mode="append")
    return DeltaTable(str(path / "lake"))


def staged(path: Path, schema: TableSchema, *mutations: tuple[int, Row | None, Row | None]) -> StagedFile:
    """Mutations as (op, before, after)."""
    rows = [
        {"op": op, "file": 1, "offset": 4, "row": number, "committed_us": 0, "before": before, "after": after}
        for number, (op, before, after) in enumerate(mutations)
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=staged_schema(schema.columns, FAIL))
    (path / "staged").mkdir(parents=True, exist_ok=True)
    writer = SliceWriter(str(path / "staged"), 0, FAIL)
    writer.write(Mutations(TableName("shop", "t"), schema.columns, schema.key, 0, batch))
    (file,) = writer.finish()
    return file


def inserted(*rows: Row) -> list[tuple[int, Row | None, Row | None]]:
    return [(INSERT, None, row) for row in rows]


def updated(*keys: int) -> list[tuple[int, Row | None, Row | None]]:
    return [(UPDATE, {"id": key}, {"id": key}) for key in keys]


def ids(*keys: Any) -> list[Row]:
    return [{"id": key} for key in keys]


def test_keys_outside_of_all_files_are_nowhere(tmp_path: Path) -> None:
    table = lake(tmp_path, shape(ID), ids(1, 10), ids(20, 30))
    file = staged(tmp_path, shape(ID), *inserted(*ids(-5, 0, 11, 19, 31)))
    assert ranges_to_search(table, shape(ID), [file]) == ()


def test_an_empty_table_has_no_key(tmp_path: Path) -> None:
    assert ranges_to_search(lake(tmp_path, shape(ID)), shape(ID), [staged(tmp_path, shape(ID), *updated(1))]) == ()
    names = shape(NAME)
    assert ranges_to_search(lake(tmp_path / "names", names), names, []) == ()


def test_what_changed_at_both_ends_is_looked_for_there_alone(tmp_path: Path) -> None:
    table = lake(tmp_path, shape(ID), ids(1, 100), ids(101, 200), ids(201, 300))
    file = staged(tmp_path, shape(ID), *updated(1, 300), *inserted(*ids(301, 999)))
    assert ranges_to_search(table, shape(ID), [file]) == ({"id": (1, 1)}, {"id": (300, 300)})


def test_the_least_and_the_greatest_key_of_a_file_are_in_it(tmp_path: Path) -> None:
    table = lake(tmp_path, shape(ID), ids(10, 20))
    for key in (10, 20):
        file = staged(tmp_path, shape(ID), *inserted({"id": key}))
        assert ranges_to_search(table, shape(ID), [file]) == ({"id": (key, key)},)


def test_several_staged_files_count_together(tmp_path: Path) -> None:
    table = lake(tmp_path, shape(ID), ids(10, 20))
    files = [staged(tmp_path / str(key), shape(ID), *updated(key)) for key in (12, 15, 40)]
    assert ranges_to_search(table, shape(ID), files) == ({"id": (12, 15)},)


def test_old_keys_count_as_new_ones_do(tmp_path: Path) -> None:
    table = lake(tmp_path, shape(ID), ids(1, 100))
    moved = staged(tmp_path, shape(ID), (UPDATE, {"id": 50}, {"id": 500}), (DELETE, {"id": 7}, None))
    assert ranges_to_search(table, shape(ID), [moved]) == ({"id": (7, 50)},)


def test_large_unsigned_keys_are_told_apart(tmp_path: Path) -> None:
    low, high = 2**62, 2**63 - 2**20
    table = lake(tmp_path, shape(BIG), ids(Decimal(low), Decimal(high)))
    outside = staged(tmp_path, shape(BIG), *inserted(*ids(Decimal(0), Decimal(low - 2**13), Decimal(2**64 - 1))))
    assert ranges_to_search(table, shape(BIG), [outside]) == ()
    inside = staged(tmp_path, shape(BIG), *inserted({"id": Decimal(low + 1)}))
    assert ranges_to_search(table, shape(BIG), [inside]) == ({"id": (low + 1, low + 1)},)


@pytest.mark.parametrize("key", [2**53 + 1, 2**60 + 1, 2**63 - 1, 2**64 - 1])
def test_statistics_that_were_rounded_hide_no_row(tmp_path: Path, key: int) -> None:
    table = lake(tmp_path, shape(BIG), ids(Decimal(key)))
    file = staged(tmp_path, shape(BIG), *inserted({"id": Decimal(key)}))
    assert ranges_to_search(table, shape(BIG), [file]) == ({"id": (key, key)},)


def test_a_file_without_statistics_may_hold_any_key(tmp_path: Path) -> None:
    table = lake(tmp_path, shape(ID), ids(1, 2), ids(None, None))
    file = staged(tmp_path, shape(ID), *inserted(*ids(7, 9)))
    assert ranges_to_search(table, shape(ID), [file]) == ({"id": (7, 9)},)


def test_without_any_statistics_keys_may_be_anywhere(tmp_path: Path) -> None:
    table = lake(tmp_path, shape(ID))
    table.alter.set_table_properties({"delta.dataSkippingNumIndexedCols": "0"})
    fields = pa.schema([pa.field("id", pa.int32()), pa.field("v", pa.int32())])
    write_deltalake(table, pa.Table.from_pylist(ids(5), schema=fields), mode="append")
    file = staged(tmp_path, shape(ID), *inserted({"id": 7}))
    assert ranges_to_search(DeltaTable(table.table_uri), shape(ID), [file]) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [("binary", b"a"), ("varbinary", b"a"), ("bit", True), ("double", 1.0), ("float", 1.0)],
)
def test_keys_of_which_delta_tells_nothing_or_that_are_equal_beyond_their_bytes_may_be_anywhere(
    tmp_path: Path, key: str, value: object
) -> None:
    schema = shape(Column("id", key, length=1))
    table = lake(tmp_path, schema, ids(value))
    assert ranges_to_search(table, schema, [staged(tmp_path, schema, *inserted({"id": value}))]) is None


NTZ, MOMENT, DAY = Column("id", "datetime", fraction=6), Column("id", "timestamp", fraction=6), Column("id", "date")
MONEY, WIDE = Column("id", "decimal", precision=10, scale=2), Column("id", "decimal", precision=38, scale=10)
WHOLE = Column("id", "decimal", precision=30, scale=0)


def at(second: int, microsecond: int = 0) -> datetime:
    return datetime(1999, 12, 31, 23, 59, second, microsecond)


def d(text: str | int) -> Decimal:
    return Decimal(text)


LONG = "x" * 32
KEYS = [
    pytest.param(DAY, [date(1, 1, 1), date(1582, 10, 10)], [date(1582, 10, 11), date(9999, 12, 31)], id="DATE"),
    pytest.param(NTZ, [datetime(1, 1, 1), at(5, 123999)], [at(5, 125001), datetime(9999, 12, 31)], id="DATETIME"),
    pytest.param(NTZ, [at(5, 500), at(5, 999999)], [at(4), at(7)], id="DATETIME(6)"),
    pytest.param(
        MOMENT,
        [at(5, 123999).replace(tzinfo=UTC), at(9, 1).replace(tzinfo=UTC)],
        [at(5).replace(tzinfo=UTC), at(10).replace(tzinfo=UTC)],
        id="TIMESTAMP(6)",
    ),
    pytest.param(MONEY, [d("-99999999.99"), d("-0.01")], [d("0.00"), d("99999999.99")], id="negative DECIMAL"),
    pytest.param(MONEY, [d("0.07"), d("0.29")], [d("0.06"), d("0.30"), d("-0.07")], id="DECIMAL"),
    pytest.param(
        WIDE,
        [d("-1234567.0123456789"), d("1234567890123456789.0123456789")],
        [d("-1234567.1123456789"), d("1234567890124456789.0123456789")],
        id="DECIMAL(38,10)",
    ),
    pytest.param(WHOLE, [d(-(10**29)), d(-(10**20))], [d(0), d(-(10**19))], id="negative DECIMAL(30)"),
    pytest.param(NAME, ["", "a"], ["a ", "b", "\U0010ffff"], id="VARCHAR"),
    pytest.param(NAME, ["Z", "\uffff"], ["Y", "\U00010000"], id="in UTF-16 these aren't ordered so"),
    pytest.param(
        NAME, [LONG + "b", LONG + "\U0010ffff\U0010ffffy"], ["x" * 31], id="texts that differ beyond 32 characters"
    ),
    pytest.param(NAME, [LONG + "\x7f\x7f", "\U0001f600" * 40], ["x", "\U00030000"], id="long texts beyond ASCII"),
    pytest.param(NAME, ["\U00020000", "\U000fffff"], ["\U0001ffff", LONG], id="texts beyond U+20000"),
]


@pytest.mark.parametrize("writer", ["ours", "deltalake"])
@pytest.mark.parametrize(("key", "inside", "outside"), KEYS)
def test_keys_of_each_type(tmp_path: Path, writer: str, key: Column, inside: list[Any], outside: list[Any]) -> None:
    schema = shape(key)
    table = (our_lake if writer == "ours" else lake)(tmp_path, schema, ids(*inside))
    for value in inside:
        ranges = ranges_to_search(table, schema, [staged(tmp_path, schema, *inserted({"id": value}))])
        assert ranges
        assert ranges[0]["id"][0] == ranges[0]["id"][1]
    not_in_files = [
        staged(tmp_path / str(number), schema, *inserted({"id": value})) for number, value in enumerate(outside)
    ]
    ranges = ranges_to_search(table, schema, not_in_files)
    assert ranges == () or (writer == "deltalake" and key in (WIDE, WHOLE)), "deltalake tells wide decimals as doubles"


@pytest.mark.parametrize("key", ["\U00020000", "a\U00020000\U0001f600", LONG + "b"])
def test_bounds_whose_characters_are_escaped_hide_no_row(tmp_path: Path, key: str) -> None:
    """deltalake reads some escapes as those of other characters. Texts that are cut end with such a character."""
    table = our_lake(tmp_path, shape(NAME), ids(key))
    (commit,) = (tmp_path / "lake/_delta_log").glob("*1.json")
    commit.write_text("".join(map(with_escapes, commit.read_text().splitlines(keepends=True))))
    escaped = DeltaTable(table.table_uri)
    assert ranges_to_search(escaped, shape(NAME), [staged(tmp_path, shape(NAME), *inserted({"id": key}))])


def with_escapes(line: str) -> str:
    """Return a line of a commit as binlake wrote it before it knew of this."""
    action = json.loads(line)
    if "add" not in action:
        return line
    action["add"]["stats"] = json.dumps(json.loads(action["add"]["stats"]))
    return json.dumps(action) + "\n"


def our_lake(path: Path, schema: TableSchema, *data_files: Sequence[Row]) -> DeltaTable:
    """With statistics of our own."""
    table = lake(path, schema)
    fields = pa.schema(pa.schema(table.schema()))
    for rows in data_files:
        added = added_file(table.table_uri, pa.Table.from_pylist([{"v": 0, **row} for row in rows], schema=fields))
        delta_commits.commit(table, str(path / "lake"), [{"add": added}])
    return DeltaTable(str(path / "lake"))


@pytest.mark.parametrize(
    ("key", "stored", "value"),
    [
        (NTZ, "1999-12-31T23:59:05.123", at(5, 123999)),
        (MOMENT, "1999-12-31T23:59:05.123Z", at(5, 123999).replace(tzinfo=UTC)),
        (NAME, LONG + "\x7f", LONG + "~"),
        (NAME, LONG + "\U0010ffff", LONG + "\x7f"),
        (MONEY, -12.5, d("-12.50")),
        (WIDE, 1.2345678901234568e17, d("123456789012345678.9")),
    ],
)
def test_what_sparks_writer_cut_off_hides_no_row(tmp_path: Path, key: Column, stored: object, value: object) -> None:
    """Of a file with the one row. Spark tells a moment's milliseconds, of which the greatest isn't rounded up."""
    schema = shape(key)
    table = lake(tmp_path, schema)
    path = str(tmp_path / "lake")
    fields = pa.schema(pa.schema(table.schema()))
    add = added_file(path, pa.Table.from_pylist([{"id": value, "v": 0}], schema=fields))
    least = json.loads(add["stats"])["minValues"]["id"]
    stats = {"numRecords": 1, "minValues": {"id": least}, "maxValues": {"id": stored}, "nullCount": {"id": 0}}
    delta_commits.commit(table, path, [{"add": {**add, "stats": json.dumps(stats)}}])
    file = staged(tmp_path, schema, *inserted({"id": value}))
    assert ranges_to_search(DeltaTable(path), schema, [file])


def test_mariadbs_uuids_are_looked_for_by_their_text(tmp_path: Path) -> None:
    first, second = (uuid.UUID(int=number << 120 | 4 << 76 | 2 << 62) for number in (1, 9))
    schema = shape(Column("id", "uuid"))
    table = our_lake(tmp_path, schema, ids(str(first)))
    in_log = shape(Column("id", "binary", length=16))
    uuids = REGISTRY["uuid"].stored
    assert uuids is not None
    for value, is_searched in ((first, True), (second, False)):
        (stored,) = uuids.bytes_of(pa.array([str(value)]))
        file = staged(tmp_path, in_log, *inserted({"id": stored}))
        ranges = ranges_to_search(table, schema, [file])
        assert ranges == (({"id": (str(value), str(value))},) if is_searched else ())


def test_the_nearest_texts_become_one_range(tmp_path: Path) -> None:
    keys = [f"customer-{number:06}" for number in (*range(0, MOST_RANGES * 10, 10), 500_000, 500_001)]
    table = lake(tmp_path, shape(NAME), *(ids(key) for key in keys))
    ranges = ranges_to_search(table, shape(NAME), [staged(tmp_path, shape(NAME), *inserted(*ids(*keys)))])
    assert ranges is not None
    assert len(ranges) == MOST_RANGES
    assert {"id": ("customer-500000", "customer-500001")} in ranges or {"id": (keys[-1], keys[-1])} in ranges


@pytest.mark.parametrize(
    ("key", "value", "literal"),
    [
        (ID, -5, "-5"),
        (BIG, 2**64 - 1, "18446744073709551615BD"),
        (MONEY, -1250, "-12.50BD"),
        (WIDE, 10**37 + 1, "1000000000000000000000000000.0000000001BD"),
        (DAY, 0, "DATE'1970-01-01'"),
        (NTZ, 1, "TIMESTAMP_NTZ'1970-01-01 00:00:00.000001'"),
        (MOMENT, 0, "TIMESTAMP_LTZ'1970-01-01 00:00:00+00:00'"),
        (NAME, "a'b\\", "'a\\'b\\\\'"),
    ],
)
def test_in_sparks_words(key: Column, value: Any, literal: str) -> None:
    assert spark_literal(key, value) == literal


def test_all_columns_of_a_key_tell_where_it_isnt(tmp_path: Path) -> None:
    schema = shape(TENANT, ID)
    table = lake(tmp_path, schema, [{"tenant": number, "id": key} for number in (1, 2) for key in (1, 100)])
    later = staged(tmp_path, schema, *inserted({"tenant": 1, "id": 101}, {"tenant": 2, "id": 102}))
    assert ranges_to_search(table, schema, [later]) == ()
    both = staged(tmp_path, schema, *inserted({"tenant": 1, "id": 101}, {"tenant": 2, "id": 50}))
    assert ranges_to_search(table, schema, [both]) == ({"tenant": (1, 2), "id": (50, 50)},)


def test_of_many_ranges_the_nearest_become_one(tmp_path: Path) -> None:
    firsts = [number * 10 for number in range(MOST_RANGES)] + [10_000, 10_001]
    table = lake(tmp_path, shape(ID), *(ids(first) for first in firsts))
    ranges = ranges_to_search(table, shape(ID), [staged(tmp_path, shape(ID), *updated(*firsts))])
    assert ranges is not None
    assert len(ranges) == MOST_RANGES
    assert {"id": (10_000, 10_001)} in ranges
    assert all(any(span["id"][0] <= first <= span["id"][1] for span in ranges) for first in firsts)


def test_each_key_once(tmp_path: Path) -> None:
    def once(schema: TableSchema, *mutations: tuple[int, Row | None, Row | None]) -> bool:
        return each_once(schema, [staged(tmp_path, schema, *mutations)])

    single, pair = shape(ID), shape(TENANT, ID)
    assert once(single, *inserted(*ids(1, 2)), *updated(3), (DELETE, {"id": 4}, None))
    assert not once(single, *inserted({"id": 1}), *updated(1))
    assert not once(single, *inserted({"id": 1}), (DELETE, {"id": 1}, None))
    assert not once(single, (UPDATE, {"id": 1}, {"id": 2}))
    assert once(pair, *inserted({"tenant": 1, "id": 1}, {"tenant": 1, "id": 2}, {"tenant": 2, "id": 1}))
    assert once(shape(NAME), *inserted(*ids("a", "A", "a ")))


@pytest.mark.parametrize("kind", ["float", "double"])
def test_keys_that_are_equal_beyond_their_bytes_arent_told_apart(tmp_path: Path, kind: str) -> None:
    schema = shape(Column("id", kind))
    assert not each_once(schema, [staged(tmp_path, schema, *inserted(*ids(0.0, -0.0)))])
