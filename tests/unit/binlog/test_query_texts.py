"""Statements of the log as text."""

from __future__ import annotations

import pytest

from binlake.binlog.query_texts import savepoint_name, spaced_text, statement_text

LATIN1, UTF8MB4, EUCKR, GB18030, BINARY, CP866 = 8, 45, 19, 248, 63, 36


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
    ("raw", "collation", "text"),
    [
        (b"TRUNCATE\xa0TABLE t\xa0", LATIN1, "TRUNCATE TABLE t "),
        (b"TRUNCATE TABLE t\xff", CP866, "TRUNCATE TABLE t "),
        (b"ALTER TABLE `t\xa0`\xa0ADD\xa0a\xa0INT", LATIN1, "ALTER TABLE `t\u00a0` ADD a INT"),
        (b"ALTER TABLE t\xa0COMMENT 'a\xa0b' /* c\xa0d */", LATIN1, "ALTER TABLE t COMMENT 'a\u00a0b' /* c\u00a0d */"),
        (b"ALTER TABLE t ADD a\xa0INT DEFAULT\xa01\xa0NULL", LATIN1, "ALTER TABLE t ADD a INT DEFAULT 1 NULL"),
        ("TRUNCATE TABLE t\u00a0".encode(), UTF8MB4, "TRUNCATE TABLE t\u00a0"),
        ("TRUNCATE TABLE t\u00a0".encode(), BINARY, "TRUNCATE TABLE t\u00a0"),
    ],
)
def test_a_no_break_space_parts_words_where_a_character_is_a_byte(raw: bytes, collation: int, text: str) -> None:
    assert spaced_text(raw, collation, 0, "mysql") == text


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
