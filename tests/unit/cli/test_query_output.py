"""Rows of a query in each format."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from binlake.cli import query_output, sql_commands
from binlake.errors import UsageError

ROWS = pa.table(
    {
        "id": pa.array([1, 18446744073709551615], pa.decimal128(20, 0)),
        "total": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "note": pa.array(["", 'a "b",\nc\x1b[31m'], pa.string()),
        "raw": pa.array([b"\x00\xff", None], pa.binary()),
        "at": pa.array([datetime(2026, 1, 2, 3, 4, 5, 6), None], pa.timestamp("us")),
        "seen": pa.array([datetime(2026, 1, 2, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "day": pa.array([date(2026, 1, 2), None], pa.date32()),
        "tags": pa.array([["x", None], None], pa.list_(pa.string())),
    }
)


def written(rows: pa.Table, form: str, folder: Path) -> str:
    count = query_output.write(rows.schema, rows.to_batches(), form, folder / "out")
    assert count == rows.num_rows
    return (folder / "out").read_text()


def test_a_table_is_aligned_and_holds_no_control_characters(tmp_path: Path) -> None:
    assert written(ROWS.select(["id", "note", "raw"]), "table", tmp_path).splitlines() == [
        "                  id | note              | raw",
        "---------------------+-------------------+-------",
        "                   1 |                   | 0x00ff",
        '18446744073709551615 | a "b",\\nc\\x1b[31m | NULL',
        "(2 rows)",
    ]


def test_wide_characters_take_two_places(tmp_path: Path) -> None:
    rows = pa.table({"name": ["東京", "Oslo"], "n": [1, 2]})
    assert written(rows, "table", tmp_path).splitlines()[2:4] == ["東京 | 1", "Oslo | 2"]


def test_csv_tells_null_from_an_empty_text(tmp_path: Path) -> None:
    assert written(ROWS, "csv", tmp_path) == (
        '"id","total","note","raw","at","seen","day","tags"\n'
        '1,1.50,"","0x00ff",2026-01-02 03:04:05.000006,2026-01-02 00:00:00.000000Z,2026-01-02,"[""x"", null]"\n'
        '18446744073709551615,,"a ""b"",\nc\x1b[31m",,,,,\n'
    )


@pytest.mark.parametrize("form", ["csv", "json", "table"])
def test_small_decimals_have_no_exponent(form: str, tmp_path: Path) -> None:
    small = [Decimal("0E-10"), Decimal("-1E-10"), Decimal("1.5"), None]
    rows = pa.table({"rate": pa.array(small, pa.decimal128(38, 10))})
    text = written(rows, form, tmp_path)
    assert all(number in text for number in ("0.0000000000", "-0.0000000001", "1.5000000000"))
    assert "E-" not in text


@pytest.mark.parametrize("form", ["csv", "json", "table"])
def test_floats_are_those_of_their_shortest_text(form: str, tmp_path: Path) -> None:
    single = pa.array([1.1, -3.4e38, 0.1, None], pa.float32())
    rows = pa.table({"rate": single, "points": pa.array([[0.3], [], [None, -0.0], None], pa.list_(pa.float32()))})
    text = written(rows, form, tmp_path)
    assert all(number in text for number in ("1.1", "-3.4e+38", "0.1", "[0.3]", "[null, -0.0]"))
    assert "00000" not in text


@pytest.mark.parametrize("form", ["csv", "json", "table"])
def test_a_stretch_of_time_is_told_in_words(form: str, tmp_path: Path) -> None:
    rows = pa.table({"age": pa.array([timedelta(days=2, seconds=5), None], pa.duration("us"))})
    assert "2 days, 0:00:05" in written(rows, form, tmp_path)
    months = pa.table({"months": pa.array([(1, 0, 0)], pa.month_day_nano_interval())})
    assert written(months, form, tmp_path)


def test_json_is_an_object_a_line(tmp_path: Path) -> None:
    first, second = map(json.loads, written(ROWS, "json", tmp_path).splitlines())
    assert first == {
        "id": "1",
        "total": "1.50",
        "note": "",
        "raw": "0x00ff",
        "at": "2026-01-02 03:04:05.000006",
        "seen": "2026-01-02 00:00:00.000000+00:00",
        "day": "2026-01-02",
        "tags": ["x", None],
    }
    assert (second["id"], second["total"]) == ("18446744073709551615", None)


def test_json_has_text_for_numbers_that_it_does_not_have(tmp_path: Path) -> None:
    rows = pa.table({"a": [float("nan")], "b": [[1.5, float("-inf")]]})
    assert written(rows, "json", tmp_path) == '{"a": "nan", "b": [1.5, "-inf"]}\n'


def test_parquet_keeps_types(tmp_path: Path) -> None:
    query_output.write(ROWS.schema, ROWS.to_batches(), "parquet", tmp_path / "out")
    assert parquet.read_table(tmp_path / "out").equals(ROWS)


@pytest.mark.parametrize("form", sql_commands.FORMATS)
def test_no_rows_are_written_as_none(form: str, tmp_path: Path) -> None:
    assert query_output.write(ROWS.schema, [], form, tmp_path / "out") == 0
    assert (tmp_path / "out").is_file()


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        raise UsageError("the query failed")

    (tmp_path / "out").write_text("before")
    with pytest.raises(UsageError, match="the query failed"):
        query_output.write(ROWS.schema, batches(), "csv", tmp_path / "out")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out", "before")]


def test_what_is_no_file_stays_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("before")
    (tmp_path / "link").symlink_to("rows")
    assert query_output.write(pa.schema([("n", pa.int64())]), [], "csv", tmp_path / "link") == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "rows").read_text() == '"n"\n'
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert query_output.write(pa.schema([("n", pa.int64())]), [], "csv", tmp_path / "pipe") == 0
    assert os.read(reader, 100) == b'"n"\n'
    os.close(reader)
    with pytest.raises(UsageError, match="Is a directory"):
        query_output.write(pa.schema([]), [], "csv", tmp_path)


def test_what_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"can't write .*nowhere/out: No such file or directory"):
        query_output.write(ROWS.schema, [], "csv", tmp_path / "nowhere" / "out")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(UsageError, match="Parquet isn't for a terminal"):
        query_output.write(ROWS.schema, [], "parquet", None)
    twice = pa.schema([("id", pa.int64()), ("id", pa.int64())])
    for form in ("json", "parquet"):
        with pytest.raises(UsageError, match="several columns are called id"):
            query_output.write(twice, [], form, tmp_path / "out")
    assert query_output.write(twice, [], "csv", tmp_path / "out") == 0
