"""Lines of the format ``text``."""

from __future__ import annotations

import pyarrow as pa

from binlake.binlog.border import UPDATE
from binlake.binlog.staged_schema import staged_schema
from binlake.config.feed_config import TextFormat
from binlake.feeds.contract import FeedChanges, FeedContext, FeedTable
from binlake.feeds.formats.text import Text
from binlake.schema.invalid import FAIL
from binlake.schema.table import Column, TableName

COLUMNS = (Column("id", "int", nullable=False), Column("f", "double"), Column("g", "float"))


def test_an_update_shows_what_differs_in_the_servers_text() -> None:
    row = {
        "op": UPDATE, "file": 1, "offset": 4, "row": 0, "committed_us": 0,
        "before": {"id": 1, "f": 0.0, "g": 1.1}, "after": {"id": 1, "f": -0.0, "g": 1.1},
    }  # fmt: skip
    batch = pa.RecordBatch.from_pylist([row], schema=staged_schema(COLUMNS, FAIL))
    changes = FeedChanges(FeedTable(TableName("a", "t"), COLUMNS, ("id",)), batch, "binlog.000001")
    form = Text(TextFormat(type="text"), FeedContext("f", "s", "server", "mysql"))
    ((message,),) = form.changes(changes)
    assert (message.value or b"").decode().endswith('update a.t {"id": 1} {"f": 0.0 → -0.0}')
