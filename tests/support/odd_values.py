"""Samples of every type at its ends, at zero, empty and odd: one list, for every test of values.

``SAMPLES`` names the registry's entry (schema/datatypes.py) that each declaration belongs to; a test holds both lists
against each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from servers import Kind, Server


@dataclass(frozen=True)
class Sample:
    """A declaration and SQL literals to store in it; NULL is added to each.

    type: the registry's name; only: the server that has it; invalid: dates that no calendar has.
    """

    type: str
    declared: str
    literals: tuple[str, ...]
    only: Kind | None = None
    invalid: tuple[str, ...] = ()


def _signed(bits: int) -> tuple[str, ...]:
    return str(-(1 << bits - 1)), str((1 << bits - 1) - 1), "0", "-1", "1"


def _unsigned(bits: int) -> tuple[str, ...]:
    return "0", str((1 << bits) - 1), str(1 << bits - 1), "1"


_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_INTEGERS = [
    *(Sample(kind, kind.upper(), _signed(bits)) for kind, bits in _BITS.items()),
    *(Sample(kind, f"{kind.upper()} UNSIGNED", _unsigned(bits)) for kind, bits in _BITS.items()),
    Sample("tinyint", "TINYINT(1)", ("5", "0", "-1", "1")),
    Sample("tinyint", "TINYINT(4) ZEROFILL", ("7", "0", "255")),
    Sample("int", "INT(8) ZEROFILL", ("42", "0", "4294967295")),
    Sample("bigint", "BIGINT(20) ZEROFILL", ("42", "0", "18446744073709551615")),
]
_NUMBERS = [
    Sample("decimal", "DECIMAL(10,2)", ("0", "-0.01", "99999999.99", "-99999999.99", "1")),
    Sample("decimal", "DECIMAL(1,0)", ("0", "9", "-9")),
    Sample("decimal", "DECIMAL(20,0)", ("-12345678901234567890", "0", "1")),
    Sample("decimal", "DECIMAL(18,9) UNSIGNED", ("0", "999999999.999999999")),
    Sample("decimal", "DECIMAL(19,9)", ("-9999999999.999999999", "0", "0.000000001")),
    Sample("decimal", "DECIMAL(8,3) ZEROFILL", ("1.5", "0", "99999.999")),
    Sample("decimal", "DECIMAL(30,30)", (f"0.{'9' * 30}", "-0.1", "0")),
    Sample("decimal", "DECIMAL(38,10)", ("0", f"-{'9' * 28}.{'9' * 10}", "0.0000000001")),
    Sample("decimal", "DECIMAL(38,30)", (f"-0.{'1' * 30}", "0", "99999999.000000000000000000000000000001")),
    Sample("decimal", "DECIMAL(39,1)", ("9" * 38 + ".9", f"-{'9' * 38}.9", "0")),
    Sample("decimal", "DECIMAL(65,30)", (f"-{'9' * 35}.{'9' * 30}", "0", "0.000000000000000000000000000001", "-1.5")),
    Sample("decimal", "DECIMAL(65,0)", ("9" * 65, f"-{'9' * 65}", "0")),
    Sample("decimal", "DECIMAL(38,38)", (f"0.{'9' * 38}", f"-0.{'0' * 37}1", "0", "-0.1"), only="mariadb"),
    Sample("decimal", "DECIMAL(38,31)", (f"-9999999.{'9' * 31}", "0", f"0.{'0' * 30}1"), only="mariadb"),
    Sample("decimal", "DECIMAL(65,38)", (f"-{'9' * 27}.{'9' * 38}", "0", f"0.{'0' * 37}1", "1.5"), only="mariadb"),
    Sample("float", "FLOAT", ("0", "-0e0", "1.5", "3.4028234663852886e38", "1.17549435e-38", "1e-45", "0.1",
                              "16777217")),
    Sample("float", "FLOAT(7,3)", ("1.234", "0", "-9999.999")),
    Sample("double", "DOUBLE", ("0e0", "-0e0", "1.5e0", "1.7976931348623157e308", "-1.7976931348623157e308",
                                "2.2250738585072014e-308", "-4.9e-320", "5e-324", "0.1e0", "1e15",
                                "3809873142719557.5e0")),
    Sample("double", "DOUBLE(10,2)", ("1.25", "-99999999.99", "0")),
    Sample("bit", "BIT(1)", ("b'0'", "b'1'")),
    Sample("bit", "BIT(2)", ("b'0'", "b'11'")),
    Sample("bit", "BIT(7)", ("85", "0", "127")),
    Sample("bit", "BIT(8)", ("255", "0", "128")),
    Sample("bit", "BIT(17)", ("b'0'", "b'10000000000000001'", "1")),
    Sample("bit", "BIT(64)", ("0", "18446744073709551615", "1")),
]  # fmt: skip
_DATES_WITHOUT_DAY = ("0000-00-00", "2020-00-10", "2020-02-30", "0000-05-05")
_MOMENTS = [
    Sample("date", "DATE", ("'0001-01-01'", "'1582-10-10'", "'9999-12-31'", "'1970-01-01'", "'2020-02-29'"),
           invalid=tuple(f"'{day}'" for day in _DATES_WITHOUT_DAY)),
    *(Sample("datetime", f"DATETIME({digits})",
             ("'0001-01-01 00:00:00'", "'9999-12-31 23:59:59'", "'1969-12-31 23:59:59.999999'",
              "'1582-10-10 01:02:03.456789'", "'1900-01-01 00:00:00.000001'", "'2020-02-29 12:34:56.100009'"),
             invalid=tuple(f"'{day} 01:02:03.456789'" for day in _DATES_WITHOUT_DAY)) for digits in range(7)),
    *(Sample("timestamp", f"TIMESTAMP({digits}) NULL",
             ("'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "'2021-03-28 01:30:00.123456'",
              "'2021-03-28 02:30:00'", "'2000-01-01 00:00:00.000001'"),
             invalid=("'0000-00-00 00:00:00'",)) for digits in range(7)),
    *(Sample("time", f"TIME({digits})",
             ("'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:00.5'", "'-00:20:38.000001'", "'-00:00:01.999999'",
              "'12:34:56.789012'", "'-01:00:00.100000'", "'838:59:58.999999'", "'-00:00:00.000001'"))
      for digits in range(7)),
    Sample("year", "YEAR", ("0", "1901", "2155", "2000", "'2000'")),
    Sample("year", "YEAR(2)", ("'00'", "69", "70", "99", "3000"), only="mariadb"),
]  # fmt: skip
_CHARSETS = {
    "latin1": ("'äöü€'", "x'818d8f909d'", "''"), "gbk": ("'汉字'",), "big5": ("'漢字'",), "koi8r": ("'Привет'",),
    "ujis": ("'漢字カナ'", "x'8fb0a1'"), "sjis": ("'漢字カナ'", "x'b1b2'"), "utf16": ("'a😀'",), "utf16le": ("'a😀'",),
    "ucs2": ("'a€'",), "utf32": ("'a😀'",), "utf8mb3": ("'a€'", "'\\\\ \\' \\\" \\n \\0'"), "cp1251": ("'Привет'",),
    "cp932": ("'①漢字'",), "eucjpms": ("'漢字'",), "greek": ("'αβγ'",), "hebrew": ("'שלום'",), "swe7": ("'åäö'",),
    "euckr": ("'한글'",), "gb2312": ("'汉字'",), "tis620": ("'ไทย'",), "ascii": ("'abc'",),
}  # fmt: skip
_LARGE_SET = ",".join(repr(chr(97 + number % 26) * (1 + number // 26)) for number in range(64))
_LARGE_ENUM = ",".join(repr(str(number)) for number in range(300))
_TEXTS = [
    Sample("char", "CHAR(5)", ("'foo  '", "''", "'ab'", "'äöü€😀'", "' '")),
    Sample("char", "CHAR(255)", ("REPEAT('😀', 255)", "'x'", "''")),
    *(Sample("char", f"CHAR(4) CHARACTER SET {charset}", ("'a '", "''", "'ab'")) for charset in
      ("utf16", "ucs2", "utf32")),
    Sample("varchar", "VARCHAR(10)", ("'foo  '", "''", "'😀'", "' '", "'tab\\t\\0 end '")),
    Sample("varchar", "VARCHAR(300)", ("REPEAT('€', 300)", "''", "'x'")),
    *(Sample("varchar", f"VARCHAR(40) CHARACTER SET {charset}", (*literals, "'a'"))
      for charset, literals in _CHARSETS.items()),
    Sample("varchar", "VARCHAR(40) CHARACTER SET gb18030", ("'汉字😀'", "'ḿ'"), only="mysql"),
    Sample("varchar", "VARCHAR(40) COLLATE utf8mb4_uca1400_ai_ci", ("'é'", "''"), only="mariadb"),
    Sample("varchar", "VARCHAR(40) COLLATE latin1_swedish_nopad_ci", ("'é '", "''"), only="mariadb"),
    Sample("varchar", "VARCHAR(300) COMPRESSED", ("''", "REPEAT('é', 200)", "'x'"), only="mariadb"),
    Sample("tinytext", "TINYTEXT", ("REPEAT('x', 255)", "''")),
    Sample("text", "TEXT", ("REPEAT('x', 65535)", "''", "'{\"a\":   1}'")),
    Sample("text", "TEXT COMPRESSED", ("''", "REPEAT('é', 2000)", "'x'"), only="mariadb"),
    Sample("mediumtext", "MEDIUMTEXT CHARACTER SET latin1", ("REPEAT('ß', 100000)", "''", "'ä '")),
    Sample("longtext", "LONGTEXT", ("'x'", "REPEAT('y', 70000)", "''")),
    Sample("longtext", "JSON", ("'{\"b\":  1}'", "'[]'"), only="mariadb"),
    Sample("enum", "ENUM('a','b é','')", ("'a'", "'b é'", "''", "'nonsense'")),
    Sample("enum", "ENUM('é','€') CHARACTER SET latin1", ("'é'", "'€'")),
    Sample("enum", f"ENUM({_LARGE_ENUM})", ("'0'", "'299'", "'255'")),
    Sample("set", "SET('x','y','z')", ("''", "'z,x'", "'x,y,z'")),
    Sample("set", "SET('é','€') CHARACTER SET latin1", ("'é,€'", "''")),
    Sample("set", f"SET({_LARGE_SET})", ("''", "'lll'", "'lll,a'")),
]  # fmt: skip
_BYTES = [
    Sample("binary", "BINARY(16)", ("x'00'", "x'0102030000'", "x''", "x'ffffffffffffffffffffffffffffff00'")),
    Sample("binary", "BINARY(1)", ("x'00'", "x'20'")),
    Sample("binary", "BINARY(255)", ("x'00'", "REPEAT(x'ff', 255)", "x'20'")),
    Sample("varbinary", "VARBINARY(20)", ("x'00'", "x'010200'", "x''", "x'20'")),
    Sample("varbinary", "VARBINARY(300)", ("REPEAT(x'ff', 300)", "x''")),
    Sample("varbinary", "VARBINARY(300) COMPRESSED", ("''", "REPEAT(x'00', 200)", "x'00'"), only="mariadb"),
    Sample("tinyblob", "TINYBLOB", ("x'00'", "x''", "REPEAT(x'ff', 255)")),
    Sample("blob", "BLOB", ("x'0020'", "REPEAT(x'ff', 60000)", "x''")),
    Sample("blob", "BLOB COMPRESSED", ("''", "REPEAT('ab', 2000)", "x'00'"), only="mariadb"),
    Sample("mediumblob", "MEDIUMBLOB", ("x'00'", "x''", "x'ff'")),
    Sample("longblob", "LONGBLOB", ("x'00'", "REPEAT(x'00ff', 50000)", "x''")),
]
_JSONS = (
    "'{}'", "'[]'", "'null'", "'true'", "'\"\"'", "'0'", "'-0.0'",
    "'{\"b\": 1, \"a\": [1, -2.5, \"x\", null, true, {\"deep\": [[]]}], \"ü\": \"\\\\u0001\\\\n\\\\\"\\\\\\\\/€😀\"}'",
    "'[32767, 32768, -32768, -32769, 65535, 65536, 2147483647, 2147483648, -2147483649, 4294967295, 4294967296]'",
    "'[9223372036854775807, -9223372036854775808, 18446744073709551615, 18446744073709551616]'",
    "'[1.0, 1e14, 1e15, 123456789012345.6, 1e16, 1.5e-5, 1e-14, 1e-15, 1.25e-16, 0.1, 1e308, 5e-324, 1e22, 1e100]'",
    "JSON_ARRAY(CAST(1.10 AS DECIMAL(10,2)), CAST(-0.001 AS DECIMAL(65,30)), CAST(0 AS DECIMAL(3,0)))",
    "JSON_ARRAY(0.1234567890123456789012345678901234567890, POW(2, -44), 2.5e-310)",
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
_SHAPES = {
    "point": ("POINT(1.5 -2)", "POINT(0 0)", "POINT(1e308 -1e-308)"),
    "linestring": ("LINESTRING(0 0,1 1,2 3)", "LINESTRING(-1 5,0 0)"),
    "polygon": ("POLYGON((0 0,4 0,4 4,0 0),(2 1,3 1,3 2,2 1))", "POLYGON((0 0,1 0,1 1,0 0))"),
    "multipoint": ("MULTIPOINT(1 1,2 2)", "MULTIPOINT(0 0)"),
    "multilinestring": ("MULTILINESTRING((0 0,1 1),(2 2,3 3))", "MULTILINESTRING((0 0,1 1))"),
    "multipolygon": ("MULTIPOLYGON(((0 0,1 0,1 1,0 0)),((5 5,6 5,6 6,5 5)))", "MULTIPOLYGON(((0 0,1 0,1 1,0 0)))"),
}
_COLLECTIONS = ("GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 0,1 1))", "GEOMETRYCOLLECTION EMPTY")


def _shapes(*texts: str) -> tuple[str, ...]:
    return tuple(f"ST_GeomFromText('{text}')" for text in texts)


_OTHERS = [
    Sample("json", "JSON", _JSONS, only="mysql"),
    Sample("geometry", "GEOMETRY", (*_shapes("POINT(1 -2)", "LINESTRING(0 0,1 1)"),
                                    "ST_GeomFromText('POINT(1.5 -2)', 4326)")),
    *(Sample(kind, kind.upper(), _shapes(*texts)) for kind, texts in _SHAPES.items()),
    Sample("point", "POINT SRID 4326",
           ("ST_GeomFromText('POINT(1.5 -2)', 4326)", "ST_GeomFromText('POINT(0 0)', 4326)"), only="mysql"),
    Sample("geomcollection", "GEOMETRYCOLLECTION", _shapes(*_COLLECTIONS), only="mysql"),
    Sample("geometrycollection", "GEOMETRYCOLLECTION", _shapes(*_COLLECTIONS), only="mariadb"),
    Sample("vector", "VECTOR(3)", ("TO_VECTOR('[1.5, -0.0, 3.4e38]')", "TO_VECTOR('[0,0,0]')"), only="mysql"),
    Sample("vector", "VECTOR(1)", ("TO_VECTOR('[1.2e-38]')", "TO_VECTOR('[-1]')"), only="mysql"),
    Sample("uuid", "UUID", ("'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000000'",
                            "'ffffffff-ffff-ffff-ffff-ffffffffff00'", "'123e4567-e89b-72d3-a456-426655440000'"),
           only="mariadb"),
    Sample("inet6", "INET6", ("'2001:db8::ff00:42:8329'", "'::'", "'::ffff:192.0.2.1'", "'2001:db8::'"),
           only="mariadb"),
    Sample("inet4", "INET4", ("'192.0.2.1'", "'0.0.0.0'", "'255.255.255.0'", "'10.0.0.0'"), only="mariadb"),
]  # fmt: skip

SAMPLES: tuple[Sample, ...] = (*_INTEGERS, *_NUMBERS, *_MOMENTS, *_TEXTS, *_BYTES, *_OTHERS)

LENIENT = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00'"
"""Lets a session store invalid dates, and '' for what isn't in an ENUM."""


@dataclass(frozen=True)
class SampleTable:
    """A table ``name (id INT PRIMARY KEY, c0, c1 …)`` with a column for each sample of a server.

    rows: each column's literals and NULL, repeated down the rows, so that neighbours differ.
    """

    name: str
    samples: tuple[Sample, ...]
    invalid_dates: bool

    @classmethod
    def of(cls, kind: Kind, name: str, *, invalid_dates: bool) -> SampleTable:
        return cls(name, tuple(sample for sample in SAMPLES if sample.only in (None, kind)), invalid_dates)

    @property
    def columns(self) -> list[str]:
        return [f"c{place}" for place in range(len(self.samples))]

    def _cycles(self) -> list[tuple[str, ...]]:
        return [(*sample.literals, *(sample.invalid if self.invalid_dates else ()), "NULL") for sample in self.samples]

    @property
    def rows(self) -> int:
        return max(map(len, self._cycles()))

    def literal(self, place: int, row: int) -> str:
        cycle = self._cycles()[place]
        return cycle[row % len(cycle)]

    def create(self, server: Server, database: str) -> None:
        """The table, with keys from 0 on."""
        declared = ", ".join(f"c{place} {sample.declared}" for place, sample in enumerate(self.samples))
        cycles = self._cycles()
        server.execute(
            LENIENT,
            f"CREATE TABLE {self.name} (id INT PRIMARY KEY, {declared}) CHARACTER SET utf8mb4",
            *(
                f"INSERT INTO {self.name} VALUES ({row}, {', '.join(cycle[row % len(cycle)] for cycle in cycles)})"
                for row in range(self.rows)
            ),
            database=database,
        )
