"""The shape that a table had at a place of the log or at a time, also behind a failover."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlake.records.ddl_history import Moment, shape_at
from binlake.schema.table import Column, TableName, TableSchema
from binlake.serialization import dumps
from binlake.store.metadata import Metadata

NAME = TableName("shop", "orders")
MINUTE = 60_000_000


def of_columns(*names: str) -> TableSchema:
    return TableSchema(tuple(Column(name, "bigint", nullable=False) for name in names), ("id",), "primary")


@pytest.fixture
def metadata(tmp_path: Path) -> Metadata:
    """A table that was copied in file 9 of one server, and altered in file 2 of the one that took over."""
    made = Metadata(str(tmp_path))
    about = {"database": NAME.database, "table": NAME.table, "table_id": "life"}
    copied, altered = dumps(of_columns("id")), dumps(of_columns("id", "total"))
    place = {"batch": 0, "file_number": 9, "offset": 500, "position": "first/binlog.000009:500@1", "at_us": MINUTE}
    made.append("schemas", [{**about, **place, "schema": copied, "why": "snapshot"}])
    place = {"batch": 7, "file": "binlog.000002", "offset": 100, "position": "second/binlog.000002:100@1"}
    made.append("ddl_history", [{**about, **place, "committed_us": 9 * MINUTE, "before": copied, "after": altered}])
    return made


@pytest.mark.parametrize(
    ("at", "columns"),
    [
        ("1970-01-01T00:02", ["id"]),
        ("1970-01-01T00:08:59.999999", ["id"]),
        ("1970-01-01T00:09", ["id", "total"]),
        ("2026-01-31", ["id", "total"]),
        ("binlog.000009:500", ["id"]),
        ("binlog.000010:4", ["id"]),
        ("binlog.000002:100", ["id", "total"]),
        ("binlog.000003:4", ["id", "total"]),
    ],
)
def test_the_shape_that_a_table_had(metadata: Metadata, at: str, columns: list[str]) -> None:
    schema = shape_at(metadata, NAME, Moment.parse(at)).schema
    assert schema is not None
    assert [column.name for column in schema.columns] == columns
