"""Rows of a feed as row events have them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from binlake.binlog.border import INSERT, Statement
from binlake.binlog.staged_schema import staged_schema
from binlake.errors import FeedError
from binlake.feeds.contract import FeedChanges, FeedContext, FeedTable, SchemaChange
from binlake.feeds.formats.binlog_events import BinlogEvents
from binlake.schema.invalid import FAIL, KEEP_DATES, InvalidValues
from binlake.schema.table import Column, TableName

DAY, TEXT = Column("d", "date"), Column("d__text", "varchar", length=30, charset="utf8mb4")


@pytest.mark.parametrize(
    ("columns", "invalid", "written"),
    [
        ((DAY,), KEEP_DATES, b"\x00" + bytes(3)),
        ((DAY, TEXT), FAIL, b"\x01" + b"\x0a0000-00-00"),
    ],
    ids=["kept beside it", "a column of its own"],
)
def test_a_text_beside_a_date(columns: tuple[Column, ...], invalid: InvalidValues, written: bytes) -> None:
    row = {"op": INSERT, "file": 1, "offset": 4, "row": 0, "committed_us": 1, "after": {"d__text": "0000-00-00"}}
    rows = pa.RecordBatch.from_pylist([row], staged_schema(columns, invalid))
    changes = FeedChanges(FeedTable(TableName("shop", "t"), columns, ()), rows, "binlog.000001")
    ((message,),) = BinlogEvents(None, FeedContext("f", "s", "server", "mysql")).changes(changes)
    assert message.value == written


def test_a_statement_with_an_excluded_column_is_not_written() -> None:
    said = Statement("binlog.000001", 4, 0, 0, None, "shop", 0, "ALTER TABLE t ADD hush INT DEFAULT 4711")
    form = BinlogEvents(None, FeedContext("f", "s", "server", "mysql"))
    tables = ((TableName("shop", "t"), None),)
    whole = SchemaChange(said, said.text, "ALTER TABLE", tables)
    assert b"4711" in b"".join(message.value or b"" for message in form.schema_change(whole))
    redacted = SchemaChange(said, "ALTER TABLE t ADD hush INT DEFAULT 0", "ALTER TABLE", tables)
    with pytest.raises(FeedError, match="excluded column"):
        form.schema_change(redacted)
