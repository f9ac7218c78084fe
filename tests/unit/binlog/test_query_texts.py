"""Statements of the log as text."""

from __future__ import annotations

import pytest

from binlake.binlog.query_texts import savepoint_name, statement_text

LATIN1, UTF8MB4, EUCKR, GB18030, BINARY = 8, 45, 19, 248, 63


@pytest.mark.parametrize(
    ("raw", "collation", "text"),
    [
        (b"DROP TABLE \xe9", LATIN1, "DROP TABLE é"),
        ("DROP TABLE é".encode(), UTF8MB4, "DROP TABLE é"),
        ("DROP TABLE é".encode(), BINARY, "DROP TABLE é"),
        ("ALTER TABLE é ALTER a SET DEFAULT _latin1'".encode() + b"\xe9'", UTF8MB4, "_latin1'\ufffd'"),
        ("ALTER TABLE 가 ALTER a SET DEFAULT _latin1'".encode("euckr") + b"\xff'", EUCKR, "_latin1'\ufffd'"),
        ("ALTER TABLE é ALTER a SET DEFAULT _latin1'".encode("gb18030") + b"\xff'", GB18030, "_latin1'\ufffd'"),
    ],
)
def test_names_are_read_beside_bytes_of_another_character_set(raw: bytes, collation: int, text: str) -> None:
    read = statement_text(raw, collation)
    assert read.endswith(text)
    assert read.split()[2] in ("é", "가")


@pytest.mark.parametrize(
    ("set_by", "back_by", "name"),
    [
        (b"SAVEPOINT `s`", b"ROLLBACK TO `s`", "s"),
        (b"SAVEPOINT `one s`", b"ROLLBACK TO `One S`", "one s"),
        (b"savepoint s;", b"ROLLBACK TO SAVEPOINT s \0", "s"),
        (b'SAVEPOINT `a``b"c`', b'ROLLBACK TO "a`b""c"', 'a`b"c'),
        (b"SAVEPOINT savepoint", b"ROLLBACK TO savepoint", "savepoint"),
        ("SAVEPOINT `É;`".encode(), "ROLLBACK TO `é;`".encode(), "é;"),
    ],
)
def test_names_of_savepoints(set_by: bytes, back_by: bytes, name: str) -> None:
    assert savepoint_name(set_by) == savepoint_name(back_by) == name
