"""How values of a log are printed."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from binlake.binlog.border import DELETE, INSERT, UPDATE, Item, Mutations
from binlake.cli import command_line, logview
from binlake.position import Slice
from binlake.schema.table import Column, TableName

COLUMNS = (Column("rate", "decimal", precision=20, scale=10), Column("f", "float"))
IMAGE = pa.struct([("rate", pa.decimal128(20, 10)), ("f", pa.float32())])


PLACE = {"file": 1, "offset": 5, "row": 0, "committed_us": 0, "gtid": None, "xid": None}


def batch_of(image: pa.DataType, *rows: dict[str, Any]) -> pa.RecordBatch:
    kinds = [("op", pa.int8()), *((name, pa.int64()) for name in ("file", "offset", "row", "committed_us"))]
    schema = pa.schema([*kinds, ("gtid", pa.string()), ("xid", pa.string()), ("before", image), ("after", image)])
    return pa.RecordBatch.from_pylist([PLACE | row for row in rows], schema)


@dataclass
class OneBatch:
    """A log with some mutations of one table."""

    item: Mutations
    slices = (Slice("binlog.000001", 4, 9, 0, True),)

    def events(self) -> Iterator[object]:
        raise NotImplementedError

    def mutations(self, wanted: object = None) -> Iterator[Item]:
        yield self.item


def printed(form: str, item: Mutations, folder: Path | None = None) -> str:
    out = io.StringIO()
    logview.show_mutations(OneBatch(item), [], form, out, folder)  # type: ignore[arg-type]
    return out.getvalue()


def test_small_decimals_have_no_exponent_and_a_float_its_shortest_text() -> None:
    row = batch_of(IMAGE, {"op": INSERT, "after": {"rate": Decimal("1E-8"), "f": 1.1}})
    item = Mutations(TableName("shop", "t"), COLUMNS, (), 0, row)
    assert json.loads(printed("json", item))["after"] == {"rate": "0.0000000100", "f": 1.1}
    assert printed("text", item).splitlines()[1:] == ["    rate = 0.0000000100", "    f = 1.1"]


@pytest.fixture
def partial() -> Mutations:
    """Mutations whose images lack columns, as MariaDB 11.5 and newer leaves generated ones out."""
    columns = (Column("id", "bigint"), Column("note", "varchar"), Column("n", "bigint"))
    image = pa.struct([("id", pa.int64()), ("note", pa.string()), ("n", pa.int64())])
    rows = batch_of(
        image, {"op": UPDATE, "before": {"id": 1}, "after": {"n": 7}}, {"op": DELETE, "before": {"id": 2}}
    )  # fmt: skip
    return Mutations(TableName("shop", "t"), columns, ("id",), 0, rows, absent=("id", "note", "n"))


def test_partial_images_are_told_as_far_as_they_go(partial: Mutations, tmp_path: Path) -> None:
    shown = [line for line in printed("text", partial).splitlines() if line.startswith(" ")]
    assert shown == ["    id = 1", "    n → 7", "    id = 2"]
    images = [(row["before"], row["after"]) for row in map(json.loads, printed("json", partial).splitlines())]
    assert images == [({"id": 1}, {"n": 7}), ({"id": 2}, None)]
    printed("csv", partial, tmp_path)
    lines = (tmp_path / "shop.t.csv").read_text().splitlines()
    assert [line.split(",")[-3:] for line in lines] == [["id", "note", "n"], ["", "", "7"], ["2", "", ""]]


def test_csv_tells_null_from_an_empty_text(tmp_path: Path) -> None:
    columns = (Column("note", "varchar"), Column("n", "bigint"))
    image = pa.struct([("note", pa.string()), ("n", pa.int64())])
    notes = ["", None, 'a "b",\r\nc', " x"]
    rows = batch_of(image, *({"op": INSERT, "after": {"note": note, "n": 1}} for note in notes))
    printed("csv", Mutations(TableName("shop", "t"), columns, (), 0, rows), tmp_path)
    text = (tmp_path / "shop.t.csv").read_bytes().decode()
    place = "insert,binlog.000001,5,0,1970-01-01 00:00:00.000000+00:00,,,"
    assert text.split(place)[1:] == ['"",1\n', ",1\n", '"a ""b"",\r\nc",1\n', " x,1\n"]


@pytest.mark.parametrize("option", ["--table", "--output"])
def test_events_are_all_listed_or_none(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(["binlog", "file:///nowhere", "--events", option, "shop.t"]) == 2
    assert "leave --table and --output out" in capsys.readouterr().err
