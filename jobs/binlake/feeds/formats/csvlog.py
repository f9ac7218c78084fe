"""The format ``csv``: a line per mutation and statement, for people, spreadsheets and log shippers (RFC 4180).

committed, file, position, row, gtid, operation, database, table, key, before, after

The last three are JSON, or empty; a statement is in ``after``. Files have no header, as several runs may write one.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from binlake.binlog.border import OPERATIONS
from binlake.config.feed_config import CsvFormat
from binlake.feeds.contract import FeedChanges, FeedContext, Format, Message, SchemaChange
from binlake.feeds.formats.text import moment, plain, rows_of
from binlake.feeds.formats.topics import Topics
from binlake.schema.table import TableName

COLUMNS = (
    "committed", "file", "position", "row", "gtid", "operation", "database", "table", "key", "before", "after",
)  # fmt: skip


class CsvLog(Format):
    """The format ``csv``. ``${hour}`` in the topic is the commit's hour, so that each hour can have its own file."""

    def __init__(self, config: CsvFormat, context: FeedContext) -> None:
        self._topics = Topics(config.topic, context, hour="")

    def _line(self, name: TableName, committed_us: int, fields: Sequence[object]) -> Message:
        hour = datetime.fromtimestamp(committed_us / 1_000_000, UTC).strftime("%Y-%m-%dT%H")
        topic = self._topics.of(name, hour=hour)
        out = io.StringIO()
        csv.writer(out, lineterminator="").writerow([moment(committed_us), *fields])
        return Message(topic, None, out.getvalue().encode())

    def changes(self, changes: FeedChanges) -> Sequence[Sequence[Message]]:
        """Return a line for each row."""
        return [[self._row(changes, row)] for row in rows_of(changes.rows)]

    def _row(self, changes: FeedChanges, row: dict[str, Any]) -> Message:
        name = changes.table.name
        shown = row["after"] or row["before"]
        key = {column: shown[column] for column in changes.table.key} or None
        word = "read" if changes.snapshot else OPERATIONS[row["op"]]
        place = (changes.file, row["offset"], row["row"], row["gtid"])
        images = [_json(image) for image in (key, row["before"], row["after"])]
        return self._line(name, row["committed_us"], [*place, word, name.database, name.table, *images])

    def schema_change(self, change: SchemaChange) -> Sequence[Message]:
        """Return a line with the statement, its white space made single spaces."""
        statement = change.statement
        name = change.tables[0][0]
        place = (statement.file, statement.offset, 0, statement.gtid)
        fields = [*place, change.kind.lower(), name.database, name.table, "", ""]
        text = " ".join(change.text.split())
        return [self._line(name, statement.committed_us, [*fields, text])]


def _json(value: dict[str, Any] | None) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=plain)
