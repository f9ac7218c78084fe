"""What servers write about themselves."""

from __future__ import annotations

from typing import Any

import pytest

from binlake.source.locks import owned_gtids
from binlake.source.server import Source, version_numbers
from recorded_server import RecordedServer, Row


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("9.7.4", (9, 7, 4)),
        ("8.4.3-0ubuntu1", (8, 4, 3)),
        ("10.11.14-MariaDB-0+deb12u2-log", (10, 11, 14)),
        ("5.5.5-10.11.6-MariaDB", (10, 11, 6)),
        ("odd", (0, 0, 0)),
    ],
)
def test_version(text: str, numbers: tuple[int, ...]) -> None:
    assert version_numbers(text) == numbers


class Owning(Source):
    def __init__(self, owned: str) -> None:
        self.owned = owned

    def query(self, sql: str, args: Any = None) -> list[dict[str, Any]]:
        return [{"owned": self.owned}]


A, B = "d2faa92e-e565-11f1-b0c4-02fc00000001", "12345678-e565-11f1-b0c4-02fc00000002"


@pytest.mark.parametrize(
    ("text", "gtids"),
    [
        ("", set()),
        (f"{A}:5#12", {f"{A}:5"}),
        (f"{A}:7#153:5#152{B}:1#9", {f"{A}:5", f"{A}:7", f"{B}:1"}),
        (f"{A}:7#1{A}:tag:5#12{B}:9#155", {f"{A}:7", f"{A}:tag:5", f"{B}:9"}),
    ],
)
def test_owned_gtids(text: str, gtids: set[str]) -> None:
    assert owned_gtids(Owning(text)) == gtids


def test_a_file_that_mysql_encrypts_is_as_long_as_its_events() -> None:
    """On its disk it begins with 512 bytes about its key, which no position counts."""
    listed: list[Row] = [
        {"Log_name": "binlog.000001", "File_size": 1638, "Encrypted": "Yes"},
        {"Log_name": "binlog.000002", "File_size": 475, "Encrypted": "No"},
    ]
    answers = {"SHOW BINARY LOGS": listed}
    assert RecordedServer("9.7.4", {}, answers).binary_logs() == (("binlog.000001", 1126), ("binlog.000002", 475))
