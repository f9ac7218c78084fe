"""The list of known misreadings: it covers every code of every character set, and forgives nothing beside it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from pymysqlreplication.row_event import RowsEvent, find_charset

from binlake.schema import charsets
from binlake.schema.table import Column
from binlake.second_opinion.border_values import same
from binlake.second_opinion.misread import MISREADINGS

COLLATIONS = [number for number in range(1, 4096) if charsets.charset(number) not in (None, "binary")]


def forgiven(column: Column, ours: Any, theirs: Any) -> bool:
    return any(
        misreading.columns(column) and (misreading.values is None or misreading.values(column, ours, theirs))
        for misreading in MISREADINGS
    )


def codes(charset: str) -> Iterator[bytes]:
    """Every code of one byte and of two, and of three behind 0x8f; of Unicode's forms some characters."""
    if charset.startswith(("utf", "ucs")) or charset == "gb18030":
        codec = {"utf16": "utf-16-be", "ucs2": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}
        for point in (*range(0, 0xD800, 101), 0xE7C7, 0x1E3F, 0x0800, 0x0700):
            yield chr(point).encode(codec.get(charset, "gb18030" if charset == "gb18030" else "utf-8"))
        return
    yield from (bytes([byte]) for byte in range(256))
    if charsets.bytes_per_character(charset) > 1:
        yield from (bytes([a, b]) for a in range(0x80, 256) for b in range(256))
    if charsets.bytes_per_character(charset) > 2:
        yield from (bytes([0x8F, a, b]) for a in range(0x80, 256) for b in range(0x80, 256))


def by_package(encoding: str, code: bytes) -> str | bytes | None:
    """As its RowsEvent does it; None where it fails, and the whole event with it."""
    try:
        return code.decode(RowsEvent.charset_to_encoding(encoding))
    except LookupError:
        return code
    except UnicodeDecodeError:
        return None


def test_each_code_of_each_character_set_is_the_same_or_known_to_be_misread() -> None:
    asked = {
        (str(charsets.charset(number)), find_charset(str(number), dbms)[0])
        for number in COLLATIONS
        for dbms in ("mysql", "mariadb")
        if find_charset(str(number), dbms)[1]  # of others see test_second_opinion
    }
    assert len({charset for charset, _ in asked}) == 40
    read: set[str] = set()
    for charset, encoding in sorted(asked):
        column = Column("c", "varchar", charset=charset)
        for code in codes(charset):
            try:
                ours = charsets.decoder(charset)(code)
            except UnicodeDecodeError:
                continue
            theirs = by_package(encoding, code)
            if theirs is None:
                continue
            if same(column, ours, theirs):
                read.add(charset)
            else:
                assert forgiven(column, ours, theirs), (charset, encoding, code.hex())
    assert {"utf8mb4", "utf8mb3", "latin1", "ascii", "gbk", "cp932", "koi8r", "euckr"} <= read


INT = Column("c", "int")
YEAR = Column("c", "year")
STAMP = Column("c", "timestamp")
DATE = Column("c", "date")
TIME = Column("c", "time", fraction=6)
SET = Column("c", "set", charset="utf8mb4", values=("a",))
BINARY = Column("c", "binary", length=4)
JSON = Column("c", "json")
SJIS = Column("c", "varchar", charset="sjis")
TEXT = Column("c", "varchar", charset="utf8mb4")


@pytest.mark.parametrize(
    ("column", "ours", "theirs"),
    [
        (YEAR, 0, 1900),
        (STAMP, "0000-00-00 00:00:00", datetime(1970, 1, 1)),
        (DATE, "2020-00-10", None),
        (TIME, -1, timedelta(microseconds=-999_999)),
        (SET, "", None),
        (BINARY, b"\1\0\0\0", b"\1"),
        (BINARY, b"\0\0\0\0", ""),
        (JSON, "null", None),
        (SJIS, "a\\", "a＼"),
        (Column("c", "enum", charset="latin1", values=("é",)), "é", ""),
        (Column("c", "char", charset="ucs2"), "a", b"\0a"),
    ],
)
def test_a_known_misreading(column: Column, ours: Any, theirs: Any) -> None:
    assert forgiven(column, ours, theirs)


@pytest.mark.parametrize(
    ("column", "ours", "theirs"),
    [
        (INT, 0, 1900),
        (TIME, 1, "of another type"),
        (YEAR, 0, 1901),
        (YEAR, 1901, 1900),
        (STAMP, "0000-00-00 00:00:00", None),
        (STAMP, datetime(1970, 1, 1, 0, 0, 1), datetime(1970, 1, 1)),
        (DATE, datetime(2020, 1, 1), None),
        (DATE, None, datetime(2020, 1, 1)),
        (TIME, 1, timedelta(microseconds=2)),
        (TIME, -1_000_000, timedelta(seconds=-2)),
        (SET, "a", None),
        (BINARY, b"\1\0\0\0", b"\2"),
        (BINARY, b"\1\0\0\0", b"\1\0\0\0\0"),
        (JSON, "{}", None),
        (JSON, '{"a": 1}', {b"a": 2}),
        (SJIS, "b\\", "a＼"),
        (SJIS, "a", "＼"),
        (TEXT, "Ã¤", "ä"),
        (Column("c", "varchar", charset="latin1"), "Ã¤", "ä"),
        (Column("c", "enum", charset="latin1", values=("e",)), "e", ""),
    ],
)
def test_anything_else_is_a_difference(column: Column, ours: Any, theirs: Any) -> None:
    assert not same(column, ours, theirs)
    assert not forgiven(column, ours, theirs)
