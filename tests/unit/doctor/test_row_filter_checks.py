"""What conditions leave of a table, as the server estimates it: conditions in, the question and the sentence out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from binlake.doctor.row_filter_checks import rows_left
from binlake.schema.table import Column, TableName, TableSchema
from binlake.source.catalog import SourceTable

SCHEMA = TableSchema((Column("id", "int", nullable=False), Column("a", "int"), Column("b", "int")), ("id",), "primary")


class Server:
    """A server that estimates a tenth of 500 rows, and keeps what it was asked."""

    is_mariadb = False
    asked = ""

    def query(self, text: str) -> list[dict[str, Any]]:
        self.asked = text
        return [{"rows": 500, "filtered": 10}]


@pytest.mark.parametrize(
    ("where", "snapshot_where", "asked", "said"),
    [
        ("a = 1 OR b = 2", "", "((`a` = 1) OR (`b` = 2))", "a = 1 OR b = 2"),
        ("", "a = 1 OR b = 2", "((`a` = 1) OR (`b` = 2))", "a = 1 OR b = 2 (in snapshots alone)"),
        (
            "a = 1 OR b = 2", "NOT a = 3 OR b = 4",
            "((`a` = 1) OR (`b` = 2)) AND ((NOT (`a` = 3)) OR (`b` = 4))",
            "(a = 1 OR b = 2) AND (NOT a = 3 OR b = 4) (the latter in snapshots alone)",
        ),
        ("", "", "", ""),
    ],
)  # fmt: skip
def test_each_condition_is_asked_and_shown_in_brackets(where: str, snapshot_where: str, asked: str, said: str) -> None:
    server: Any = Server()
    schema = replace(SCHEMA, where=where, snapshot_where=snapshot_where)
    left = rows_left(server, SourceTable(TableName("shop", "t"), "BASE TABLE", "InnoDB", 500, 0, schema))
    assert server.asked.partition(" WHERE ")[2] == asked
    assert left == (f", of which {said} leaves about 50" if said else "")
