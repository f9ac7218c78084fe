"""Values of the newest mutations, as the server shows them."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from binlake.binlog.border import INSERT, Mutations
from binlake.binlog.staged_schema import staged_schema
from binlake.planner.manifest import Manifest, StagedSlice
from binlake.position import Position, Range, Slice
from binlake.schema.invalid import FAIL, KEEP_ALL, InvalidValues
from binlake.schema.table import Column, TableName, TableSchema
from binlake.serialization import dumps
from binlake.staging import staged_files
from binlake.staging.staged_files import SliceWriter
from binlake_airflow.page.newest_changes import newest_changes

NAME = TableName("shop", "t")
START = Position.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562/binlog.000001:4@1700000000")
RANGE = Range(START, START, (Slice("binlog.000001", 4, 1 << 30, 0, whole=False),))
ID = Column("id", "int", nullable=False)
BATCH = {"batch": 1, "attempt": "attempt", "range": dumps(RANGE)}
METADATA = cast("Any", SimpleNamespace(read=lambda *_, **__: [BATCH]))


def shown(
    folder: Path,
    values: dict[str, Any],
    *columns: Column,
    invalid: InvalidValues = FAIL,
    recorded: tuple[Column, ...] = (),
    masked: frozenset[str] = frozenset(),
) -> dict[str, str | None] | None:
    """What is shown of a row that was inserted, but its key. recorded: how the server declares the columns."""
    row = {"op": INSERT, "file": 1, "offset": 4, "row": 0, "committed_us": 1, "after": {"id": 1, **values}}
    writer = SliceWriter(str(folder), 0, invalid)
    made = pa.RecordBatch.from_pylist([row], staged_schema((ID, *columns), invalid))
    writer.write(Mutations(NAME, (ID, *columns), ("id",), 0, made))
    staged_files.write_manifest(str(folder), Manifest(1, "attempt", (StagedSlice(0, writer.finish(), (), ()),)))
    config = cast("Any", SimpleNamespace(staging_path=lambda *_: str(folder), masked_on_page=lambda _: masked))
    schema = TableSchema((ID, *recorded), ("id",), "primary") if recorded else None
    answer = newest_changes(config, METADATA, NAME, 10, with_key=True, with_values=True, schema=schema)
    (change,) = answer.changes
    assert change.after is not None
    return {name: text for name, text in change.after.items() if name != "id"}


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        (Column("c", "time", fraction=1), -3_600_500_000, "-01:00:00.5"),
        (Column("c", "time"), 0, "00:00:00"),
        (Column("c", "timestamp", fraction=0), datetime(2026, 1, 31, 13), "2026-01-31 13:00:00"),
        (Column("c", "datetime", fraction=3), datetime(999, 1, 31, 13), "0999-01-31 13:00:00.000"),
        (Column("c", "date"), date(999, 1, 31), "0999-01-31"),
        (Column("c", "year"), 0, "0000"),
        (Column("c", "decimal", precision=9, scale=8), Decimal("1E-8"), "0.00000001"),
        (Column("c", "bigint", unsigned=True), Decimal(2**64 - 1), "18446744073709551615"),
        (Column("c", "float"), 0.1, "0.1"),
        (Column("c", "double"), 1e300, "1e300"),
        (Column("c", "bit", length=1), True, "1"),
        (Column("c", "bit", length=8), b"A", "0x41"),
        (Column("c", "varbinary", length=9), b"plain", "plain"),
        (Column("c", "varbinary", length=9), b"\x00\x01", "0x0001"),
        (Column("c", "varbinary", length=9), b"\xff", "0xff"),
        (Column("c", "text", charset="utf8mb4"), "two\nlines", "two\nlines"),
        (Column("c", "text", charset="utf8mb4"), "", ""),
        (Column("c", "text", charset="utf8mb4"), None, None),
        (Column("c", "vector", length=2), [0.5, 5.0], "[0.5,5]"),
    ],
)
def test_a_value_has_the_servers_text(tmp_path: Path, column: Column, value: Any, text: str | None) -> None:
    assert shown(tmp_path, {"c": value}, column) == {"c": text}


def test_what_the_log_doesnt_tell_of_a_type_is_known_from_the_tables_schema(tmp_path: Path) -> None:
    stored = bytes.fromhex("123e4567e89b72d3a456426655440000")
    columns = Column("u", "binary", length=16), Column("n", "int", unsigned=True), Column("f", "float")
    recorded = (
        Column("u", "uuid"), Column("n", "int", unsigned=True, zerofill=5), Column("f", "float", precision=7, scale=3),
    )  # fmt: skip
    texts = shown(tmp_path, {"u": stored, "n": 42, "f": 0.1}, *columns, recorded=recorded)
    assert texts == {"u": "123e4567-e89b-72d3-a456-426655440000", "n": "00042", "f": "0.100"}


def test_an_invalid_value_is_shown_as_it_was_kept_unless_it_is_masked(tmp_path: Path) -> None:
    columns = Column("d", "date"), Column("v", "text", charset="utf8mb4")
    kept = {"d__text": "0000-00-00", "v__bytes": b"\xff"}
    assert shown(tmp_path, kept, *columns, invalid=KEEP_ALL) == {"d": "0000-00-00", "v": "0xff"}
    masked = shown(tmp_path, kept, *columns, invalid=KEEP_ALL, masked=frozenset({"d", "v"}))
    assert masked == {"d": "***", "v": "***"}
