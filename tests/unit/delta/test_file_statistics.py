"""Bounds that readers leave out files by: none may leave out a file that has the value."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from binlake.delta import delta_commits
from binlake.delta.file_statistics import INDEXED, Statistics, without_tight_bounds
from binlake.delta.plain_files import added_file

DIGITS = Context(prec=38)


def statistics_of(*columns: pa.Array) -> dict[str, Any]:
    """Of several batches, one for each of the columns given."""
    statistics = Statistics()
    for column in columns:
        statistics.add(pa.record_batch([column], names=["c"]))
    stored: dict[str, Any] = json.loads(statistics.text())
    return stored


@pytest.mark.parametrize(
    ("values", "kind", "lowest", "highest"),
    [
        ([3, None, -7], pa.int32(), -7, 3),
        ([Decimal(18446744073709551615), Decimal(0)], pa.decimal128(20, 0), 0, 18446744073709551615),
        ([Decimal("-0.50"), Decimal("12.30")], pa.decimal128(5, 2), -0.5, 12.3),
        ([date(5, 1, 2), date(9999, 12, 31)], pa.date32(), "0005-01-02", "9999-12-31"),
        (
            [datetime(1500, 1, 2, 3, 4, 5, 123456)],
            pa.timestamp("us"),
            "1500-01-02T03:04:05.123",
            "1500-01-02T03:04:05.124",
        ),
        (
            [datetime(2020, 1, 2, 3, 4, 5, 120000, UTC)],
            pa.timestamp("us", "UTC"),
            "2020-01-02T03:04:05.120Z",
            "2020-01-02T03:04:05.120Z",
        ),
        (["b", "", "ä"], pa.string(), "", "ä"),
        (["x" * 32], pa.string(), "x" * 32, "x" * 32),
        (["x" * 33], pa.string(), "x" * 32, "x" * 32 + "\U0010ffff"),
    ],
)
def test_bounds(values: list[Any], kind: pa.DataType, lowest: object, highest: object) -> None:
    stored = statistics_of(pa.array(values, kind))
    assert (stored["minValues"], stored["maxValues"]) == ({"c": lowest}, {"c": highest})
    assert stored["numRecords"] == len(values)
    assert stored["nullCount"] == {"c": values.count(None)}


@pytest.mark.parametrize("values", [["b", None, "a", "b", "z"], [None, None], []])
def test_bounds_of_a_dictionary_are_those_of_the_values_that_it_is_used_for(values: list[str | None]) -> None:
    plain = pa.array(values, pa.string())
    unused = pa.array([*values, "0", "~"], pa.string()).dictionary_encode().slice(0, len(values))
    assert statistics_of(unused) == statistics_of(plain)
    in_chunks = pa.chunked_array([unused, pa.array(["c"]).dictionary_encode()])
    statistics = Statistics()
    statistics.add(pa.table({"c": in_chunks}))
    assert json.loads(statistics.text()) == statistics_of(plain, pa.array(["c"]))


def test_bounds_of_ascending_values_are_the_first_and_the_last() -> None:
    rows = pa.table({"c": ["a", "b", "x" * 40], "n": [3, 2, 1]})
    for part in (rows, rows.slice(1, 1), rows.slice(0, 0)):
        statistics, by_all = Statistics(), Statistics()
        statistics.add(part, ["c"])
        by_all.add(part)
        assert statistics.text() == by_all.text()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (datetime(9999, 12, 31, 23, 59, 59, 999999), pa.timestamp("us")),
        ("x" * 32 + "\U0010ffff" + "y", pa.string()),
    ],
)
def test_a_bound_that_cant_be_told_is_left_out(value: object, kind: pa.DataType) -> None:
    stored = statistics_of(pa.array([value], kind))
    assert stored["maxValues"] == {}
    assert set(stored["minValues"]) == {"c"}


def test_decimals_keep_all_their_digits() -> None:
    least, greatest = Decimal("-12345678901234567890123456789012345678"), Decimal("1E-10")
    statistics = Statistics()
    statistics.add(pa.record_batch([pa.array([least.scaleb(-10, DIGITS), greatest])], names=["c"]))
    assert '"minValues": {"c": -1234567890123456789012345678.9012345678}' in statistics.text()
    assert '"maxValues": {"c": 0.0000000001}' in statistics.text()


def test_texts_are_compared_by_their_bytes() -> None:
    """In UTF-16 the first would be the greater."""
    stored = statistics_of(pa.array(["\uffff", "\U00010000"]))
    assert (stored["minValues"], stored["maxValues"]) == ({"c": "\uffff"}, {"c": "\U00010000"})


def test_bounds_of_many_batches() -> None:
    columns = ([5, 9], [None, 7], [None], [2])
    stored = statistics_of(*(pa.array(values, pa.int64()) for values in columns))
    assert (stored["minValues"], stored["maxValues"], stored["nullCount"]) == ({"c": 2}, {"c": 9}, {"c": 2})


def test_beyond_the_indexed_columns_whole_numbers_alone_are_told() -> None:
    columns = [pa.array(["a"]) for _ in range(INDEXED + 1)] + [pa.array([1])]
    statistics = Statistics()
    statistics.add(pa.record_batch(columns, names=[f"c{number}" for number in range(len(columns))]))
    assert sorted(json.loads(statistics.text())["minValues"]) == sorted([*(f"c{n}" for n in range(INDEXED)), "c33"])


def test_loose_bounds_have_all_digits_and_characters() -> None:
    price, name = Decimal("12345678901234567890.1234567891"), "\U00020000"
    statistics = Statistics()
    statistics.add(pa.record_batch([pa.array([price], pa.decimal128(38, 10)), pa.array([name])], names=["p", "n"]))
    loose = json.loads(without_tight_bounds(statistics.text()), parse_float=Decimal)
    assert loose == {**json.loads(statistics.text(), parse_float=Decimal), "tightBounds": False}
    assert loose["maxValues"] == {"p": price, "n": name}


def test_loose_bounds_near_zero_are_what_deltalake_reads(tmp_path: Path) -> None:
    """It reads no decimal with an exponent, and a file whose key has no bounds is searched for each row."""
    path = str(tmp_path)
    rows = pa.table({"p": pa.array([Decimal("-1e-10"), Decimal(0)], pa.decimal128(38, 10)), "f": [1e-300, 1e300]})
    write_deltalake(path, rows.slice(0, 0))
    added = added_file(path, rows)
    floats = '{"minValues": {"f": 1.0E-300}, "maxValues": {"f": 1.0E300}}'
    assert json.loads(without_tight_bounds(floats)) == {**json.loads(floats), "tightBounds": False}
    delta_commits.commit(DeltaTable(path), path, [{"add": {**added, "stats": without_tight_bounds(added["stats"])}}])
    bounds = DeltaTable(path).get_add_actions()
    assert (bounds["min"][0].as_py()["p"], bounds["max"][0].as_py()["p"]) == (Decimal("-1e-10"), Decimal(0))


def test_texts_are_what_deltalake_reads(tmp_path: Path) -> None:
    names = ["\U0001f600", "\U00020000", "\U0010ffff", 'quoted "\\', "x" * 33]
    for name in names:
        rows = pa.table({"n": [name]})
        path = str(tmp_path / str(names.index(name)))
        write_deltalake(path, rows.slice(0, 0))
        delta_commits.commit(DeltaTable(path), path, [{"add": added_file(path, rows)}])
        (add,) = pa.table(DeltaTable(path).get_add_actions()).to_pylist()
        assert (add["min"]["n"], add["max"]["n"]) == (name[:32], name if len(name) < 33 else name[:32] + "\U0010ffff")


def of_footer(rows: pa.Table, **options: Any) -> dict[str, Any]:
    """Of a Parquet file with two rows in each row group."""
    file = io.BytesIO()
    pq.write_table(rows, file, row_group_size=2, **options)
    stored: dict[str, Any] = json.loads(Statistics.of_footer(pq.read_metadata(file)).text(), parse_float=Decimal)
    return stored


def test_a_footer_tells_the_same_as_the_rows() -> None:
    rows = pa.table(
        {
            "tiny": pa.array([3, None, None, None, -7], pa.int8()),
            "long": pa.array([1 << 60, 2, -(1 << 60), 0, 1]),
            "unsigned": pa.array([Decimal(18446744073709551615), None, Decimal(0), None, None], pa.decimal128(20, 0)),
            "small": pa.array([Decimal("-0.50"), Decimal("12.30"), None, None, None], pa.decimal128(5, 2)),
            "wide": pa.array([Decimal("1E-10"), Decimal(-5), None, None, Decimal(9)], pa.decimal128(38, 10)),
            "day": pa.array([date(1, 1, 1), date(9999, 12, 31), None, None, date(1969, 12, 31)]),
            "moment": pa.array(
                [datetime(1, 1, 1), *[datetime(1969, 12, 31, 23, 59, 59, 1001)] * 4], pa.timestamp("us")
            ),
            "instant": pa.array([datetime(1582, 10, 4, 1, 2, 3, 4, UTC)] * 5, pa.timestamp("us", "UTC")),
            "last": pa.array([datetime(9999, 12, 31, 23, 59, 59, 999999)] * 5, pa.timestamp("us")),
            "text": pa.array(["b", "", "\uffff", "\U00010000" + "x" * 40, None]),
            "bytes": pa.array([b"b", None, b"\xff", b"", b"1"]),
            "odd.name": pa.array([1, 2, 3, 4, 5]),
            "nothing": pa.nulls(5, pa.int64()),
            "yes": pa.array([True, False, None, None, None]),
        }
    )
    gathered = Statistics()
    gathered.add(rows)
    assert of_footer(rows, store_decimal_as_integer=True) == json.loads(gathered.text(), parse_float=Decimal)


def test_a_footer_tells_of_floating_point_numbers_too() -> None:
    rows = pa.table({"single": pa.array([0.1, None, -2.5], pa.float32()), "double": pa.array([0.1, 1e300, -1e-300])})
    stored = of_footer(rows)
    assert [float(bound) for bound in stored["minValues"].values()] == [-2.5, -1e-300]
    assert [float(bound) for bound in stored["maxValues"].values()] == [rows["single"][0].as_py(), 1e300]


def test_a_column_without_statistics_in_the_footer_has_neither_bounds_nor_a_count() -> None:
    """Texts of kilobytes have none, wherever in the file they are."""
    texts = pa.array(["a", "b", "c" * 5000, "d" * 5000, "e"])
    footer = {"id": pa.array(range(5)), "text": texts, "list": pa.array([[1.0]] * 5, pa.list_(pa.float32()))}
    stored = of_footer(pa.table(footer), write_statistics=["id"])
    assert stored == {"numRecords": 5, "minValues": {"id": 0}, "maxValues": {"id": 4}, "nullCount": {"id": 0}}


def test_one_row_group_without_bounds_takes_them_from_the_file() -> None:
    texts = pa.array(["a", "b", "c" * 5000, "d" * 5000, "e"])
    stored = of_footer(pa.table({"text": texts}))
    assert (stored["minValues"], stored["maxValues"]) == ({}, {})
