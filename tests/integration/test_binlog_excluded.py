"""Columns that are excluded are stepped over: the others come as if the table hadn't them."""

from __future__ import annotations

import pytest

from binlake.binlog.border import Mutations
from binlake.binlog.reader import read
from binlake.errors import ConfigurationError
from binlog_slices import from_server, read_all, rows, written
from servers import Server

# each type that is stepped over stands before one that is read
DECLARED = {
    "number": "BIGINT",
    "price": "DECIMAL(40,10)",
    "moment": "DATETIME(5)",
    "bits": "BIT(13)",
    "state": "ENUM('a','b')",
    "letters": "CHAR(7)",
    "raw": "BINARY(5)",
    "body": "LONGBLOB",
    "words": "MEDIUMTEXT",
    "doc": "JSON",
    "place": "POINT",
    "note": "VARCHAR(300)",
}
VALUES = """{}, {}, 12345678901234567890.5, '2020-01-02 03:04:05.67', 77, 'b', 'ab', 'x', REPEAT('b', 70000),
  REPEAT('w', 3000), '{{"a": [1, 2]}}', ST_GeomFromText('POINT(1 2)'), 'short'"""


def _fill(server: Server, database: str) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in DECLARED.items())
    nulls = ", ".join("NULL" for _ in DECLARED)
    server.execute(
        f"CREATE TABLE a (id INT PRIMARY KEY, {columns})",
        f"INSERT INTO a VALUES ({VALUES.format(1, 10)}), (2, {nulls}), ({VALUES.format(3, 30)})",
        "UPDATE a SET number = number + 1 WHERE id = 1",
        "DELETE FROM a WHERE id = 3",
        database=database,
    )


@pytest.mark.parametrize(
    "excluded",
    [
        {"body", "words", "doc", "place"},
        {name for place, name in enumerate(DECLARED) if place % 2},
        {name for place, name in enumerate(DECLARED) if not place % 2},
        {*DECLARED},
        {"there is no such column"},
    ],
    ids=["large", "odd", "even", "all", "none"],
)
def test_the_others_are_as_they_were(server: Server, database: str, excluded: set[str]) -> None:
    with written(server) as made:
        _fill(server, database)
    whole = rows(read_all(from_server(server), made.part, database))
    wanted = lambda schema, table: frozenset(excluded) if schema == database else False  # noqa: E731
    emitted = list(read(from_server(server), made.part, wanted))
    kept = ["id", *(name for name in DECLARED if name not in excluded)]
    for item in emitted:
        if isinstance(item, Mutations):
            assert [column.name for column in item.columns] == kept
            assert [field.name for field in item.batch.schema.field("after").type] == kept
    for row in whole:
        for image in ("before", "after"):
            row[image] = row[image] and {name: row[image][name] for name in kept}
    assert rows(emitted) == whole
    assert len(whole) == 5


def test_a_key_column_cannot_be_excluded(server: Server, database: str) -> None:
    with written(server) as made:
        _fill(server, database)
    with pytest.raises(ConfigurationError, match="id can't be excluded"):
        list(read(from_server(server), made.part, lambda schema, table: schema == database and frozenset({"id"})))
