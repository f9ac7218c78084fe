"""Whatever conversion() promises of a changed type is what both servers do: for every pair of types, at the edges."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pymysql
import pytest
from pymysql.cursors import Cursor

from binlake.ddl.conversion import Conversion, conversion
from binlake.schema import datatypes
from binlake.schema.table import Column, TableName
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from server_shape import read_schema
from servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTEGERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
TYPES = (
    *INTEGERS,
    *(f"{name} UNSIGNED" for name in INTEGERS),
    *("TINYINT(1)", "INT(5) ZEROFILL", "BIT(1)", "BIT(9)", "BIT(16)", "YEAR"),
    *("DECIMAL(5,2)", "DECIMAL(7,2)", "DECIMAL(9,4) UNSIGNED", "DECIMAL(10,0)", "DECIMAL(20,0)", "DECIMAL(24,3)"),
    *("DECIMAL(38,10)", "DECIMAL(38,6)", "DECIMAL(65,0)", "DECIMAL(50,10)", "DECIMAL(60,10)", "DECIMAL(65,12)"),
    *("FLOAT", "DOUBLE", "FLOAT(7,3)", "DOUBLE UNSIGNED"),
    *("DATE", "TIME", "TIME(3)", "TIME(6)", "DATETIME", "DATETIME(3)", "DATETIME(6)"),
    *("TIMESTAMP NULL", "TIMESTAMP(3) NULL"),
    *("CHAR(5) CHARSET utf8mb4", "CHAR(9) CHARSET latin1", "VARCHAR(5) CHARSET utf8mb4", "VARCHAR(9) CHARSET utf8mb4"),
    *(f"VARCHAR(9) CHARSET {name}" for name in ("latin1", "ascii", "utf8mb3", "cp1251", "sjis", "utf16", "ucs2")),
    *("VARCHAR(255) CHARSET utf8mb4", "TINYTEXT CHARSET utf8mb4", "TINYTEXT CHARSET latin1", "TEXT CHARSET utf8mb4"),
    *("TEXT CHARSET latin1", "MEDIUMTEXT CHARSET utf8mb3", "LONGTEXT CHARSET utf8mb4"),
    *(
        "ENUM('a','B','é') CHARSET utf8mb4",
        "ENUM('a','B','é','c') CHARSET utf8mb4",
        "ENUM('é','c','B','a') CHARSET latin1",
    ),
    *("ENUM('b','a','E') CHARSET utf8mb4", "SET('a','b') CHARSET utf8mb4", "SET('x','a','b') CHARSET utf8mb4"),
    *("SET('b','a','c') CHARSET utf8mb4", "SET('a','b','c') CHARSET utf8mb4"),
    *("BINARY(4)", "BINARY(8)", "VARBINARY(4)", "VARBINARY(9)", "VARBINARY(40)", "TINYBLOB", "BLOB", "LONGBLOB"),
    *("POINT", "GEOMETRY"),
)
OF_KIND = {"mysql": ("JSON", "VECTOR(3)", "VECTOR(4)"), "mariadb": ("UUID", "INET4", "INET6", "YEAR(2)")}

NUMBERS = (
    *("0", "1", "-1", "5", "99", "100", "127", "128", "-128", "255", "-129", "999", "1000", "32767", "-32768", "65535"),
    *("8388607", "-8388608", "16777215", "2147483647", "-2147483648", "4294967295", "9223372036854775807"),
    *("-9223372036854775808", "18446744073709551615", "9999999999", "99999999999999999999", "0.1", "-0.01", "1.25"),
    *("123.45", "-999.99", "99999.99", "0.0000001", "12345.6789", "9999999999999999999999999999.9999999999", "1e-7"),
    *("1.5e10", "-0e0", "3.4e38", "1e300", "16777217", "9007199254740993", "2020", "1901", "2155"),
)
DATES = (
    *("'2020-02-29'", "'0001-01-01'", "'9999-12-31'", "'1000-01-01'", "'0000-00-00'", "'2020-00-00'", "'1582-10-10'"),
    *("'2020-01-01 01:02:03'", "'2038-01-19 03:14:07'", "'2020-06-30 23:59:59.999999'", "'2020-01-01 00:00:00.5'"),
    *(
        "'00:00:00'",
        "'-838:59:59'",
        "'838:59:59'",
        "'-00:00:01'",
        "'12:34:56.789012'",
        "'-00:00:00.000001'",
        "'23:59:59.9995'",
    ),
)
TEXTS = (
    *(
        "''",
        "' '",
        "'a'",
        "'A'",
        "'b'",
        "'B'",
        "'c'",
        "'a,b'",
        "'b,a,c'",
        "'x,a'",
        "'a  '",
        "'abc      '",
        "'  a'",
        "'ab\\tc'",
    ),
    *(
        "'é'",
        "'E'",
        "'ÿ'",
        "'€'",
        "'Ж'",
        "'日本'",
        "'～'",
        "'😀'",
        "'¥'",
        "'abcde'",
        "'abcdefghi'",
        "'日本日本日本日本日'",
    ),
    *("'5'", "'007'", "'[1]'", r"'{\"a\": 1.50}'", "REPEAT('a', 200)", "CONCAT(REPEAT('a', 200), REPEAT(' ', 40))"),
    *(
        "REPEAT('é', 127)",
        "REPEAT('x', 60000)",
        "CONCAT('y', REPEAT(' ', 65000))",
        "x'00'",
        "x'61006200'",
        "x'FF20'",
        "x'20202020'",
    ),
    *("'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000000'", "'::'", "'::ffff:1.2.3.4'"),
    *("'::1.2.3.4'", "'2001:db8::1'", "'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'", "'255.255.255.255'", "'0.0.0.0'"),
    *(
        "ST_GeomFromText('POINT(1 2)')",
        "ST_GeomFromText('LINESTRING(0 0, 1 1)')",
        "x'0000803F000000400000404000008040'",
        "x'0000803F0000004000004040'",
    ),
)
MODES = {True: "STRICT_TRANS_TABLES,ALLOW_INVALID_DATES", False: "ALLOW_INVALID_DATES"}


@dataclass
class Changed:
    """A changed type, what is promised of it, and by id the values before and after, as the snapshot selects them.

    texts: the server's texts of both where they are dates.
    """

    before: Column
    after: Column
    promise: Conversion
    strict: bool
    old: dict[int, Any]
    new: dict[int, Any]
    texts: tuple[dict[int, Any], dict[int, Any]]

    def __str__(self) -> str:
        return f"{self.before} → {self.after} ({'strict' if self.strict else 'not strict'}: {self.promise})"


Pair = tuple[str, Column, Conversion]
"""The new type as written and as shown, and what is promised."""


@pytest.fixture
def source(server: Server) -> Iterator[Source]:
    with Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as opened:
        yield opened


@pytest.fixture
def cursor(server: Server, database: str) -> Iterator[Cursor]:
    with closing(server.connect(database=database)) as connection, connection.cursor() as opened:
        yield opened


def shapes(cursor: Cursor, source: Source, database: str, types: tuple[str, ...]) -> dict[str, Column]:
    """How the server shows each type."""
    definitions = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(types))
    cursor.execute(f"CREATE TABLE shown ({definitions})")
    schema = read_schema(source, TableName(database, "shown"))
    return dict(zip(types, schema.columns, strict=True))


def values(cursor: Cursor, column: Column, expression: str | None = None) -> dict[int, Any]:
    cursor.execute(f"SELECT id, {expression or datatypes.entry(column).select(column)} FROM changed")
    return dict(cursor.fetchall())


def texts(cursor: Cursor, column: Column) -> dict[int, Any]:
    """Of dates, which the lake may keep as text; of other types nothing."""
    dated = datatypes.entry(column).may_be_invalid_date
    return values(cursor, column, f"CAST({column.name} AS CHAR)") if dated else {}


def fill(cursor: Cursor, type_: str) -> None:
    """The table ``samples`` with every value that the type takes without a complaint, and NULL."""
    cursor.execute("SET sql_mode = %s", (MODES[True],))
    cursor.execute("DROP TABLE IF EXISTS samples")
    cursor.execute(f"CREATE TABLE samples (id INT AUTO_INCREMENT PRIMARY KEY, v {type_})")
    cursor.execute("INSERT INTO samples (v) VALUES (NULL)")
    for value in (*NUMBERS, *DATES, *TEXTS):
        taken(cursor, f"INSERT INTO samples (v) VALUES ({value})")
    if type_ in ("POINT", "GEOMETRY"):
        # MariaDB 11.4.5 takes an empty text for a geometry, and then can't copy it to another column.
        cursor.execute("DELETE FROM samples WHERE LENGTH(v) = 0")
    cursor.execute("COMMIT")


def taken(cursor: Cursor, statement: str) -> bool:
    try:
        cursor.execute(statement)
    except pymysql.err.MySQLError:
        return False
    return True


def fitting(cursor: Cursor, pairs: list[Pair]) -> list[str]:
    """For each new type the conditions under which strict mode takes a sample: by trying each one."""
    columns = ", ".join(f"v{number} {type_}" for number, (type_, _, _) in enumerate(pairs))
    cursor.execute("DROP TABLE IF EXISTS tried")
    cursor.execute(f"CREATE TABLE tried ({columns})")
    cursor.execute("SELECT id FROM samples")
    ids = [str(row[0]) for row in cursor.fetchall()]
    conditions: list[str] = []
    for number, (type_, _, _) in enumerate(pairs):
        insert = f"INSERT INTO tried (v{number}) SELECT v FROM samples WHERE id = "
        conditions.append(f"id IN ({','.join(id_ for id_ in ids if taken(cursor, insert + id_))})")
        if type_ == "BIGINT UNSIGNED":
            # INSERT takes larger DECIMALs; ALTER TABLE of MySQL refuses them as "Truncated incorrect DECIMAL value".
            conditions[-1] += " AND v <= 9223372036854775807"
    cursor.execute("COMMIT")
    return conditions


def changed(cursor: Cursor, type_: str, before: Column, pairs: list[Pair], strict: bool) -> list[Changed]:
    """All pairs of one type in one ALTER TABLE: a column for each, with the samples that fit."""
    cursor.execute("SET sql_mode = %s", (MODES[True],))
    conditions = fitting(cursor, pairs) if strict else ["TRUE"] * len(pairs)
    columns = [Column(**{**vars(before), "name": f"v{number}"}) for number in range(len(pairs))]
    cursor.execute("DROP TABLE IF EXISTS changed")
    cursor.execute(f"CREATE TABLE changed (id INT PRIMARY KEY, {', '.join(f'{c.name} {type_}' for c in columns)})")
    cursor.execute("INSERT INTO changed (id) SELECT id FROM samples")
    for number, condition in enumerate(conditions):
        cursor.execute(f"UPDATE changed JOIN samples USING (id) SET changed.v{number} = samples.v WHERE {condition}")
    cursor.execute("COMMIT")
    old = [(values(cursor, column), texts(cursor, column)) for column in columns]
    cursor.execute("SET sql_mode = %s", (MODES[strict],))
    cursor.execute("ALTER TABLE changed " + ", ".join(f"MODIFY v{n} {pair[0]}" for n, pair in enumerate(pairs)))
    changes: list[Changed] = []
    for column, (_, shown, promise), (was, text) in zip(columns, pairs, old, strict=True):
        after = Column(**{**vars(shown), "name": column.name})
        both = (text, texts(cursor, after))
        changes.append(Changed(column, after, promise, strict, was, values(cursor, after), both))
    return changes


def promised(cursor: Cursor, shown: dict[str, Column]) -> Iterator[Changed]:
    """Every pair of types with a promise, carried out."""
    cursor.execute("SET autocommit = 0")
    for type_, before in shown.items():
        pairs: dict[bool, list[Pair]] = {False: [], True: []}
        for new_type, after in shown.items():
            for strict in (False, True):
                promise = conversion(before, after, strict=strict)
                if promise.kind != "unprovable" and new_type != type_:
                    pairs[strict].append((new_type, after, promise))
                    break  # what holds without strict mode holds under it
        if any(pairs.values()):
            fill(cursor, type_)
        for strict, some in pairs.items():
            if some:
                yield from changed(cursor, type_, before, some, strict)


def as_sent(value: Any) -> str | bytes | None:
    """Numbers as text, which Spark reads back without loss."""
    return value if value is None or isinstance(value, bytes) else str(value)


def in_the_lake(spark: SparkSession, changes: list[Changed]) -> tuple[list[list[Any]], list[list[Any]]]:
    """Per change its old values, cast, and its new ones, both as the lake has them: one Spark job for all."""
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    from binlake.spark import functions

    functions.register(spark)
    columns: list[list[str | bytes | None]] = []
    expressions: list[str] = []
    for number, change in enumerate(changes):
        columns.append([as_sent(change.old[id_]) for id_ in change.new])
        columns.append([as_sent(value) for value in change.new.values()])
        for side, column in (("old", change.before), ("new", change.after)):
            name = f"{side}{number}"
            renamed = Column(**{**vars(column), "name": name})
            expression = datatypes.entry(column).restore(renamed)
            if side == "old":
                expression = f"CAST({expression} AS {datatypes.delta_type(change.after)})"
            expressions.append(f"{expression} AS {name}")
    fields = [
        StructField(f"{side}{place}", BinaryType() if any(isinstance(v, bytes) for v in column) else StringType())
        for (place, side), column in zip(itertools.product(range(len(changes)), ("old", "new")), columns, strict=True)
    ]
    rows = list(itertools.zip_longest(*columns))
    table = spark.createDataFrame(rows, StructType(fields)).selectExpr(*expressions).collect()
    sizes = [len(change.new) for change in changes]
    lists = [[row[place] for row in table] for place in range(len(columns))]
    return (
        [lists[2 * n][: sizes[n]] for n in range(len(changes))],
        [lists[2 * n + 1][: sizes[n]] for n in range(len(changes))],
    )


def test_every_promise_is_what_the_server_does(
    server: Server, database: str, source: Source, cursor: Cursor, spark: SparkSession
) -> None:
    shown = shapes(cursor, source, database, (*TYPES, *OF_KIND[server.kind]))
    changes = list(promised(cursor, shown))
    assert len(changes) > 1000
    wrong: list[str] = []
    for change in changes:
        if change.before.type in ("date", "datetime", "timestamp"):
            was, is_now = change.texts
            texts_told = {id_: text and text + change.promise.date_suffix for id_, text in was.items()}
            if texts_told != is_now:
                wrong.append(f"{change}: the text {texts_told} is {is_now}")
        if change.promise.kind == "same":
            assert datatypes.delta_type(change.before) == datatypes.delta_type(change.after)
    cast, new = in_the_lake(spark, changes)
    for change, cast_values, is_ in zip(changes, cast, new, strict=True):
        for id_, a, b in zip(change.new, cast_values, is_, strict=True):
            if repr(a) != repr(b):
                wrong.append(f"{change}: {change.old[id_]!r:.60} became {b!r:.60}, told was {a!r:.60}")
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:60])


@pytest.mark.parametrize(
    ("type_", "value", "new_type", "became"),
    [
        # Under one collation the servers refuse it; which it was, the shape doesn't tell.
        ("VARCHAR(9) COLLATE utf8mb4_bin", "'abc      '", "VARCHAR(5) COLLATE utf8mb4_general_ci", "abc  "),
        ("VARCHAR(9)", "'abc  '", "CHAR(9)", "abc"),
        ("DECIMAL(9,3)", "1.005", "DECIMAL(9,2)", "1.01"),
        ("ENUM('a','b')", "'a'", "ENUM('A','b')", "A"),
        ("VARCHAR(9)", "'a'", "ENUM('A','b')", "A"),
        ("INT(5) ZEROFILL", "7", "VARCHAR(9)", "00007"),
        ("BINARY(2)", "'ab'", "BINARY(3)", "ab\0"),
        ("YEAR", "0", "VARCHAR(4)", "0000"),
    ],
)
def test_what_strict_mode_lets_pass_is_not_promised(
    source: Source, database: str, cursor: Cursor, type_: str, value: str, new_type: str, became: str
) -> None:
    name = TableName(database, "passed")
    cursor.execute("SET sql_mode = %s", (MODES[True],))
    cursor.execute(f"CREATE TABLE passed (v {type_})")
    cursor.execute(f"INSERT INTO passed VALUES ({value})")
    before = read_schema(source, name).columns[0]
    cursor.execute(f"ALTER TABLE passed MODIFY v {new_type}")
    after = read_schema(source, name).columns[0]
    cursor.execute("SELECT CAST(v AS CHAR) FROM passed")
    assert cursor.fetchall() == ((became,),)
    promise = conversion(before, after, strict=True)
    assert promise.kind == "unprovable"
    assert promise.reason


def test_null_becomes_another_value_without_strict_mode_alone(source: Source, database: str, cursor: Cursor) -> None:
    name = TableName(database, "nulls")
    cursor.execute("SET sql_mode = %s", (MODES[True],))
    cursor.execute("CREATE TABLE nulls (v INT)")
    cursor.execute("INSERT INTO nulls VALUES (NULL)")
    before = read_schema(source, name).columns[0]
    assert not taken(cursor, "ALTER TABLE nulls MODIFY v INT NOT NULL")
    cursor.execute("SET sql_mode = %s", (MODES[False],))
    cursor.execute("ALTER TABLE nulls MODIFY v INT NOT NULL")
    after = read_schema(source, name).columns[0]
    cursor.execute("SELECT v FROM nulls")
    assert cursor.fetchall() == ((0,),)
    assert conversion(before, after, strict=False).kind == "unprovable"
    assert conversion(before, after, strict=True).kind == "same"
    assert conversion(after, before, strict=False).kind == "same"
