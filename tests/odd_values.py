"""A table that holds every type at odd values, on either server."""

from __future__ import annotations

from servers import Kind, Server

Definition = tuple[str, str, tuple[str, str, str]]
"""(column, its type, SQL of three values: an extreme, a zero or empty one, another)."""

COMMON: list[Definition] = [
    ("ti", "TINYINT", ("-128", "0", "127")),
    ("tiu", "TINYINT UNSIGNED", ("255", "0", "128")),
    ("tb", "TINYINT(1)", ("5", "0", "-1")),
    ("tz", "TINYINT(4) ZEROFILL", ("7", "0", "255")),
    ("si", "SMALLINT", ("-32768", "0", "32767")),
    ("siu", "SMALLINT UNSIGNED", ("65535", "0", "32768")),
    ("mi", "MEDIUMINT", ("-8388608", "0", "8388607")),
    ("miu", "MEDIUMINT UNSIGNED", ("16777215", "0", "8388608")),
    ("i", "INT", ("-2147483648", "0", "2147483647")),
    ("iu", "INT UNSIGNED", ("4294967295", "0", "2147483648")),
    ("iz", "INT(8) ZEROFILL", ("42", "0", "4294967295")),
    ("bi", "BIGINT", ("-9223372036854775808", "0", "9223372036854775807")),
    ("biu", "BIGINT UNSIGNED", ("18446744073709551615", "0", "9223372036854775808")),
    ("de", "DECIMAL(10,2)", ("-99999999.99", "0", "0.5")),
    ("deu", "DECIMAL(38,10) UNSIGNED", ("1234567890123456789012345678.0123456789", "0", "0.0000000001")),
    ("dez", "DECIMAL(8,3) ZEROFILL", ("1.5", "0", "99999.999")),
    ("de0", "DECIMAL(20,0)", ("-12345678901234567890", "0", "1")),
    ("de38", "DECIMAL(38,30)", ("-0.111111111111111111111111111111", "0", "99999999.000000000000000000000000000001")),
    ("dex", "DECIMAL(65,30)", (f"-{'9' * 35}.{'9' * 30}", "0", "0.000000000000000000000000000001")),
    ("f", "FLOAT", ("3.4028234e38", "-0e0", "1.1")),
    ("d", "DOUBLE", ("1.7976931348623157e308", "-0e0", "-2.2250738585072014e-308")),
    ("d1", "DOUBLE", ("5e-324", "1e15", "3809873142719557.5e0")),
    ("d2", "DOUBLE(10,2)", ("12.34", "0", "-0.5")),
    ("f2", "FLOAT(7,3)", ("1.234", "0", "-9999.999")),
    ("b1", "BIT(1)", ("1", "0", "1")),
    ("b7", "BIT(7)", ("85", "0", "127")),
    ("b17", "BIT(17)", ("65536", "0", "1")),
    ("b64", "BIT(64)", ("18446744073709551615", "0", "1")),
    ("da", "DATE", ("'9999-12-31'", "'0001-01-01'", "'1582-10-10'")),
    ("dt", "DATETIME", ("'1000-01-01 00:00:00'", "'0001-01-01 00:00:00'", "'2020-01-01 01:02:03'")),
    ("dt3", "DATETIME(3)", ("'2020-02-29 23:59:59.999'", "'1582-10-10 00:00:00'", "'1900-01-01 00:00:00.001'")),
    ("dt6", "DATETIME(6)", ("'9999-12-31 23:59:59.999999'", "'1900-01-01 00:00:00.000001'", "'0999-01-01'")),
    ("ts", "TIMESTAMP NULL", ("'2038-01-19 03:14:07'", "'1970-01-01 00:00:01'", "'2021-03-28 02:30:00'")),
    ("ts1", "TIMESTAMP(1) NULL", ("'1970-01-01 00:00:01.1'", "'2038-01-19 03:14:07.9'", "'2000-01-01'")),
    ("ts6", "TIMESTAMP(6) NULL", ("'2020-06-01 12:00:00.000001'", "'2000-03-26 01:30:00.5'", "'1999-12-31'")),
    ("tm", "TIME", ("'-838:59:59'", "'00:00:00'", "'23:00:00'")),
    ("tm2", "TIME(2)", ("'-00:00:00.50'", "'-00:20:38'", "'838:59:58.99'")),
    ("tm6", "TIME(6)", ("'838:59:58.999999'", "'-00:00:00.000001'", "'-01:00:00.1'")),
    ("y", "YEAR", ("2155", "0", "1901")),
    ("c", "CHAR(5)", ("'foo  '", "''", "'a b'")),
    ("vl", "VARCHAR(50) CHARACTER SET latin1", ("'äöü€'", "''", "' '")),
    ("vg", "VARCHAR(50) CHARACTER SET gbk", ("'中文'", "''", "'a'")),
    ("v16", "VARCHAR(50) CHARACTER SET utf16", ("'😀x'", "''", "'é'")),
    ("vs", "VARCHAR(50) CHARACTER SET sjis", ("'テスト'", "''", "'ｱ'")),
    ("v8", "VARCHAR(300) CHARACTER SET utf8mb4", ("'😀 Ж '", "''", "'a '")),
    ("v3", "VARCHAR(30) CHARACTER SET utf8mb3", ("'é'", "''", "'\\\\ \\' \\\" \\n \\0'")),
    ("tx", "TEXT", ("'long text\\n\\0 end '", "''", "REPEAT('ä', 30000)")),
    ("mt", "MEDIUMTEXT CHARACTER SET latin1", ("'ä'", "''", "REPEAT('ß', 100000)")),
    ("bn", "BINARY(5)", ("x'0102'", "x''", "x'0000000000'")),
    ("vb", "VARBINARY(30)", ("x'00ff00'", "x''", "x'20'")),
    ("bl", "BLOB", ("x'00'", "x''", "x'ff'")),
    ("lb", "LONGBLOB", ("REPEAT(x'ff00', 70000)", "x''", "x'00'")),
    ("e", "ENUM('a','b é','')", ("'b é'", "''", "'a'")),
    ("s", "SET('x','y','z')", ("'x,z'", "''", "'y'")),
    ("el", "ENUM('ä','ö') CHARACTER SET latin1", ("'ö'", "'ä'", "'ö'")),
    ("j", "JSON", ("""'{"b": 1.0, "a": [1, 2.5e300, null, true, "é\\\\n"], "n": 18446744073709551615}'""",
                   "'null'", "'[]'")),
    ("g", "GEOMETRY", ("ST_GeomFromText('LINESTRING(0 0,1 1,2 3)')", "ST_GeomFromText('POINT(1 1)')",
                       "ST_GeomFromText('MULTIPOINT(1 1,2 2)')")),
    ("p", "POINT", ("ST_GeomFromText('POINT(1.5 -2)')", "ST_GeomFromText('POINT(0 0)')",
                    "ST_GeomFromText('POINT(1 1)')")),
]  # fmt: skip
OF_KIND: dict[Kind, list[Definition]] = {
    "mysql": [
        ("v", "VECTOR(3)", ("STRING_TO_VECTOR('[1.5,-0.0,3.4e38]')", "STRING_TO_VECTOR('[0,0,0]')", "NULL")),
        ("ps", "POINT SRID 4326", ("ST_GeomFromText('POINT(1.5 -2)', 4326)", "NULL", "NULL")),
    ],
    "mariadb": [
        ("u", "UUID", ("'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000000'",
                       "'ffffffff-ffff-ffff-ffff-ffffffffff00'")),
        ("ip6", "INET6", ("'2001:db8::ff00:42:8329'", "'::'", "'::ffff:192.0.2.1'")),
        ("ip4", "INET4", ("'192.0.2.1'", "'0.0.0.0'", "'255.255.255.0'")),
    ],
}  # fmt: skip


def create_odd_table(server: Server, database: str, table: str) -> None:
    """Four rows, with keys 1 to 4; the fourth holds NULL in every other column."""
    definitions = [*COMMON, *OF_KIND[server.kind]]
    columns = ", ".join(f"{name} {kind}" for name, kind, _ in definitions)
    rows = [", ".join(values[index] for *_, values in definitions) for index in range(3)]
    server.execute(
        "SET SESSION sql_mode = 'NO_ENGINE_SUBSTITUTION'",
        f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, {columns}) CHARACTER SET utf8mb4",
        *(f"INSERT INTO {table} VALUES ({number}, {row})" for number, row in enumerate(rows, start=1)),
        f"INSERT INTO {table} (id) VALUES (4)",
        database=database,
    )
