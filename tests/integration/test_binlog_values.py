"""Every type, every odd value: what the binlog's decoder gives is what the server itself says."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from binlake.binlog.border import DELETE, INSERT, UPDATE, Mutations, Stopped
from binlake.binlog.reader import Emitted
from binlake.schema import datatypes
from binlake.schema.table import Column
from binlog_slices import from_server, read_all, transports, written
from servers import Server

EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class Case:
    """A column's declaration and literals to store in it; ``only``: the server that has the type."""

    declared: str
    literals: tuple[str, ...]
    only: str = ""
    setup: str = ""


def _numbers(bits: int) -> tuple[str, ...]:
    return str(-(1 << bits - 1)), str((1 << bits - 1) - 1), "0", "-1", "1"


def _unsigned(bits: int) -> tuple[str, ...]:
    return "0", str((1 << bits) - 1), str(1 << bits - 1), "1"


DOUBLES = ("0e0", "-0e0", "1.5e0", "1.7976931348623157e308", "2.2250738585072014e-308", "-4.9e-320", "0.1e0", "1e15")
JSONS = (
    "'{}'", "'[]'", "'null'", "'true'", "'\"\"'", "'0'", "'-0.0'",
    "'{\"b\": 1, \"a\": [1, -2.5, \"x\", null, true, {\"deep\": [[]]}], \"ü\": \"\\\\u0001\\\\n\\\\\"\\\\\\\\/€😀\"}'",
    "'[32767, 32768, -32768, -32769, 65535, 65536, 2147483647, 2147483648, -2147483649, 4294967295, 4294967296]'",
    "'[9223372036854775807, -9223372036854775808, 18446744073709551615, 18446744073709551616]'",
    "'[1.0, 1e14, 1e15, 123456789012345.6, 1e16, 1.5e-5, 1e-14, 1e-15, 1.25e-16, 0.1, 1e308, 5e-324, 1e22, 1e100]'",
    "JSON_ARRAY(CAST(1.10 AS DECIMAL(10,2)), CAST(-0.001 AS DECIMAL(65,30)), CAST(0 AS DECIMAL(3,0)))",
    "JSON_ARRAY(CAST('2020-02-29' AS DATE))",
    "JSON_ARRAY(CAST('-00:00:01.5' AS TIME(6)), CAST('-838:59:59' AS TIME(6)))",
    "JSON_ARRAY(CAST('2020-01-01 01:02:03.000004' AS DATETIME(6)))",
    "JSON_OBJECT('t', TIMESTAMP('2020-01-01 00:00:00'), 'b', CAST('abc' AS BINARY))",
    "JSON_OBJECT('bit', b'101', 'y', CAST(2020 AS YEAR))",
    "JSON_OBJECT('long', REPEAT('x', 70000), 'k', JSON_ARRAY(1, 2, 70000, -70000))",
    "JSON_OBJECT('blob', CAST(REPEAT('y', 200) AS BINARY))",
    "JSON_ARRAY(POINT(1, 2))",
    "CONCAT('[', REPEAT('1,', 40000), '99999]')",
    "CONCAT(REPEAT('[', 99), REPEAT(']', 99))",
)  # fmt: skip

CASES = [
    *(Case(kind, _numbers(bits)) for kind, bits in
      (("TINYINT", 8), ("SMALLINT", 16), ("MEDIUMINT", 24), ("INT", 32), ("BIGINT", 64), ("TINYINT(1)", 8))),
    *(Case(f"{kind} UNSIGNED", _unsigned(bits)) for kind, bits in
      (("TINYINT", 8), ("SMALLINT", 16), ("MEDIUMINT", 24), ("INT", 32), ("BIGINT", 64))),
    Case("INT(8) ZEROFILL", ("0", "42")),
    Case("DECIMAL(10,2)", ("0", "-0.01", "99999999.99", "-99999999.99", "1")),
    Case("DECIMAL(38,10)", ("0", "-9999999999999999999999999999.9999999999", "0.0000000001")),
    Case("DECIMAL(18,9) UNSIGNED", ("0", "999999999.999999999")),
    Case("DECIMAL(65,30)", (f"-{'9' * 35}.{'9' * 30}", "0", "0.000000000000000000000000000001", "-1.5")),
    Case("DECIMAL(65,0)", ("9" * 65, f"-{'9' * 65}", "0")),
    Case("DECIMAL(30,30)", (f"0.{'9' * 30}", "-0.1", "0")),
    Case("DECIMAL(1,0)", ("0", "9", "-9")),
    Case("FLOAT", ("0", "-0e0", "1.5", "3.402823e38", "1.17549435e-38", "0.1")),
    Case("DOUBLE", DOUBLES),
    Case("DOUBLE(10,2)", ("1.25", "-99999999.99")),
    Case("BIT(1)", ("b'0'", "b'1'")),
    Case("BIT(2)", ("b'0'", "b'11'")),
    Case("BIT(17)", ("b'0'", "b'10000000000000001'")),
    Case("BIT(64)", ("b'0'", "18446744073709551615", "1")),
    Case("DATE", ("'0001-01-01'", "'1582-10-10'", "'9999-12-31'", "'1970-01-01'", "'2020-02-29'")),
    *(Case(f"DATETIME({n})", ("'0001-01-01 00:00:00'", "'9999-12-31 23:59:59'", "'1969-12-31 23:59:59.999999'",
                              "'1582-10-10 01:02:03.456789'", "'2020-02-29 12:34:56.100009'")) for n in range(7)),
    *(Case(f"TIMESTAMP({n}) NULL", ("'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "'2021-03-28 01:30:00.123456'"))
      for n in range(7)),
    *(Case(f"TIME({n})", ("'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:00.5'", "'-00:20:38.000001'",
                          "'-00:00:01.999999'", "'12:34:56.789012'", "'-01:00:00.100000'")) for n in range(7)),
    Case("YEAR", ("0", "1901", "2155", "2000", "'2000'")),
    Case("CHAR(5)", ("'foo  '", "''", "'ab'", "'äöü€😀'")),
    Case("CHAR(255)", ("REPEAT('😀', 255)", "'x'")),
    Case("VARCHAR(10)", ("'foo  '", "''", "'😀'")),
    Case("VARCHAR(300)", ("REPEAT('€', 300)", "''", "'x'")),
    Case("TINYTEXT", ("REPEAT('x', 255)", "''")),
    Case("TEXT", ("REPEAT('x', 65535)", "''")),
    Case("MEDIUMTEXT", ("REPEAT('é', 40000)", "'{\"a\":   1}'")),
    Case("LONGTEXT", ("'x'", "REPEAT('y', 100000)")),
    Case("BINARY(16)", ("x'00'", "x'0102030000'", "x''", "x'ffffffffffffffffffffffffffffff00'")),
    Case("BINARY(1)", ("x'00'", "x'20'")),
    Case("VARBINARY(20)", ("x'00'", "x'010200'", "x''", "x'20'")),
    Case("TINYBLOB", ("x'00'", "x''")),
    Case("BLOB", ("x'0020'", "REPEAT(x'ff', 60000)")),
    Case("MEDIUMBLOB", ("x'00'", "x''")),
    Case("LONGBLOB", ("x'00'", "REPEAT(x'00ff', 100000)")),
    Case("ENUM('a','b','')", ("'a'", "'b'", "''", "'nonsense'"), setup="SET sql_mode=''"),
    Case("ENUM('é','€') CHARACTER SET latin1", ("'é'", "'€'")),
    Case(f"ENUM({','.join(repr(str(n)) for n in range(300))})", ("'0'", "'299'", "'255'")),
    Case("SET('x','y','z')", ("''", "'z,x'", "'x,y,z'")),
    Case(f"SET({','.join(repr(chr(97 + n % 26) * (1 + n // 26)) for n in range(64))})", ("''", "'lll'", "'lll,a'")),
    *(Case(f"VARCHAR(40) CHARACTER SET {charset}", literals) for charset, literals in (
        ("latin1", ("'äöü€'", "x'818d8f909d'", "''")), ("gbk", ("'汉字'",)), ("big5", ("'漢字'",)),
        ("ujis", ("'漢字カナ'", "x'8fb0a1'")), ("sjis", ("'漢字カナ'", "x'b1b2'")), ("utf16", ("'a😀'",)),
        ("utf16le", ("'a😀'",)), ("ucs2", ("'a€'",)), ("utf32", ("'a😀'",)), ("utf8mb3", ("'a€'",)),
        ("cp1251", ("'Привет'",)), ("koi8r", ("'Привет'",)), ("cp932", ("'①漢字'",)), ("eucjpms", ("'漢字'",)),
        ("greek", ("'αβγ'",)), ("hebrew", ("'שלום'",)), ("swe7", ("'åäö'",)), ("euckr", ("'한글'",)),
        ("gb2312", ("'汉字'",)), ("tis620", ("'ไทย'",)), ("ascii", ("'abc'",)))),
    *(Case(f"CHAR(4) CHARACTER SET {charset}", ("'a '", "''", "'ab'")) for charset in ("utf16", "ucs2", "utf32")),
    Case("VARCHAR(40) CHARACTER SET gb18030", ("'汉字😀'", "'ḿ'"), only="mysql"),
    Case("VARCHAR(40) COLLATE utf8mb4_uca1400_ai_ci", ("'é'",), only="mariadb"),
    Case("VARCHAR(40) COLLATE latin1_swedish_nopad_ci", ("'é'",), only="mariadb"),
    Case("JSON", JSONS, only="mysql"),
    Case("JSON", ("'{\"b\":  1}'", "'[]'"), only="mariadb"),
    Case("GEOMETRY", ("POINT(1, -2)", "ST_GeomFromText('LINESTRING(0 0, 1 1)')")),
    Case("POINT", ("POINT(1e308, 0)",)),
    Case("VECTOR(3)", ("TO_VECTOR('[1, -0.5, 3e38]')", "TO_VECTOR('[0,0,0]')"), only="mysql"),
    Case("UUID", ("'123e4567-e89b-12d3-a456-426655440000'",), only="mariadb"),
    Case("INET6", ("'2001:db8::'", "'::'"), only="mariadb"),
    Case("INET4", ("'10.0.0.0'", "'0.0.0.0'"), only="mariadb"),
    Case("VARCHAR(300) COMPRESSED", ("''", "REPEAT('é', 200)", "'x'"), only="mariadb"),
    Case("TEXT COMPRESSED", ("''", "REPEAT('é', 2000)", "'x'"), only="mariadb"),
    Case("VARBINARY(300) COMPRESSED", ("''", "REPEAT(x'00', 200)", "x'00'"), only="mariadb"),
    Case("BLOB COMPRESSED", ("''", "REPEAT('ab', 2000)", "x'00'"), only="mariadb"),
]  # fmt: skip


def server_expression(column: Column, declared: str) -> str:
    """What the server is asked for, in a form that ``rendered`` gives too."""
    kind = column.type
    if declared in ("UUID", "INET4", "INET6"):
        return "HEX(c)"  # as they travel
    if kind in ("float", "double"):
        return "CAST(c AS DOUBLE)"
    if kind == "bit":
        return "c + 0"
    if kind in ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"):
        return "HEX(CONVERT(c USING utf8mb4))"
    if pa.types.is_binary(datatypes.arrow_type(column)) or kind == "vector":
        return "HEX(c)"
    if kind == "year":
        return "c + 0"
    return "CAST(c AS CHAR)" if kind in ("json", "date", "datetime", "timestamp", "time", "decimal") else "c + 0"


def rendered(column: Column, value: Any) -> Any:
    if value is None:
        return None
    kind = column.type
    if kind in ("float", "double"):
        return struct.pack("<d", value)
    if kind == "bit":
        return int(value) if isinstance(value, bool) else int.from_bytes(value, "big")
    if kind in ("json", "decimal"):
        return format(value, "f") if isinstance(value, Decimal) else value
    if isinstance(value, str):
        return value.encode().hex().upper()
    if isinstance(value, bytes):
        return value.hex().upper()
    if kind == "vector":
        return struct.pack(f"<{len(value)}f", *value).hex().upper()
    if kind == "time":
        sign, magnitude = "-" if value < 0 else "", abs(value)
        seconds, micro = divmod(magnitude, 1_000_000)
        text = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        return text + f".{micro:06d}"[: column.fraction + 1] * bool(column.fraction)
    if kind in ("datetime", "timestamp"):
        moment = EPOCH + timedelta(microseconds=value)
        return moment.isoformat(" ", "seconds") + f".{moment.microsecond:06d}"[: column.fraction + 1] * bool(
            column.fraction
        )
    return value.isoformat() if isinstance(value, date) else int(value)


def told(column: Column, value: Any) -> Any:
    """The server's answer, made comparable."""
    if value is None:
        return None
    if column.type in ("float", "double"):
        return struct.pack("<d", value)
    return value if isinstance(value, str) else int(value)


def images(column: Column, emitted: list[Emitted], side: str, op: int) -> dict[int, Any]:
    """Column c of one side by id, rendered; the columns before and after it are as written."""
    values: dict[int, Any] = {}
    for one in emitted:
        assert not isinstance(one, Stopped), one.reason
        if not isinstance(one, Mutations):
            continue
        image = one.batch.filter(pc.equal(one.batch.column("op"), op)).column(side)
        array = image.field("c")
        if pa.types.is_timestamp(array.type):
            array = array.cast(pa.int64())
        assert set(image.field("before_c").to_pylist()) <= {4_000_000_000}
        assert set(image.field("after_c").to_pylist()) <= {-1}
        values |= zip(image.field("id").to_pylist(), (rendered(column, v) for v in array.to_pylist()), strict=True)
    return values


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.only}{case.declared[:40]}")
def test_value_is_the_servers(server: Server, database: str, case: Case) -> None:
    if case.only not in ("", server.kind):
        pytest.skip(f"{server.kind} has no such type")
    connection = server.connect(database=database)
    cursor = connection.cursor()
    cursor.execute("SET time_zone='+00:00'")
    cursor.execute(f"CREATE TABLE v (id INT PRIMARY KEY, before_c INT UNSIGNED, c {case.declared}, after_c INT)")
    if case.setup:
        cursor.execute(case.setup)
    literals = (*case.literals, "NULL")
    with written(server) as made:
        for place, literal in enumerate(literals):
            cursor.execute(f"INSERT INTO v VALUES ({place}, 4000000000, {literal}, -1)")
    first = read_all(from_server(server), made.part, database)
    columns = next(one.columns for one in first if isinstance(one, Mutations))
    column = columns[2]
    expression = server_expression(column, case.declared)

    def ask() -> dict[int, Any]:
        cursor.execute(f"SELECT id, {expression} FROM v")
        return {row[0]: told(column, row[1]) for row in cursor.fetchall()}

    inserted = ask()
    cursor.execute("CREATE TEMPORARY TABLE w AS SELECT * FROM v")
    with written(server) as made_later:
        cursor.execute(f"UPDATE v JOIN w ON w.id = (v.id + 1) % {len(literals)} SET v.c = w.c")
        updated = ask()
        cursor.execute("DELETE FROM v")
    for transport in transports(server).values():
        assert images(column, read_all(transport, made.part, database), "after", INSERT) == inserted
        later = read_all(transport, made_later.part, database)
        old, new = images(column, later, "before", UPDATE), images(column, later, "after", UPDATE)
        assert old == {place: inserted[place] for place in old}
        assert inserted | new == updated
        assert images(column, later, "before", DELETE) == updated
