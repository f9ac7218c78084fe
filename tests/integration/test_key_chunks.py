"""Tables are cut along any key: each chunk is a range of its index, and together they hold every row once."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from binlake.lease import lease
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.snapshot import bounds, cutting, jdbc
from binlake.snapshot.bounds import Bound
from binlake.snapshot.chunks import plan
from binlake.snapshot.snapshot import SnapshotTask, snapshot
from binlake.source.catalog import SourceTable, read_tables
from binlake.source.endpoint import Endpoint
from binlake.source.listed_tables import included_tables
from binlake.source.server import Source
from mirror import Mirror, on_mariadb
from servers import Server
from writers import writing

ROWS, CHUNK = 600, 110
ODD_LETTERS = "ELT(n % 8 + 1, 'a', 'Ä', 'ß', 'Z', 'z', 'é', ' ', '漢')"
RANDOM = "SHA2(n, 256)"


@dataclass(frozen=True)
class Key:
    """A key's columns as they are declared, the key over them, and SQL of the key of row ``n``."""

    columns: str
    values: str
    key: str = "PRIMARY KEY (k)"


def text_key(kind: str, collation: str, letters: str = ODD_LETTERS, tail: str = "") -> Key:
    return Key(f"k {kind} COLLATE {collation}", f"CONCAT({letters}, LEFT({RANDOM}, 16){tail})")


BOTH = {
    "serial": Key("k INT", "n * 3 - 900"),
    "snowflake": Key("k BIGINT UNSIGNED", "18446744073709551615 - n * n * n * 4611"),
    "zerofilled": Key("k INT(9) ZEROFILL", "n * n * 461"),
    "amount": Key("k DECIMAL(30,10)", "(n - 300) * 1.0000000001"),
    "zero_amount": Key("k DECIMAL(20,12)", "(n - 111) * 0.000000000001"),
    "single": Key("k FLOAT", "(n - 300) * 0.1"),
    "rounded": Key("k DOUBLE(20,2)", "(n - 300) * 0.1"),
    "tiny": Key("k DOUBLE", "-1.2345678901234567e-300 * (n + 1)"),
    "bits": Key("k BIT(64)", "18446744073709551615 - n * 4611"),
    "day": Key("k DATE", "DATE'1000-01-01' + INTERVAL n DAY"),
    "moment": Key("k DATETIME(6)", "TIMESTAMP'1000-01-01 00:00:00' + INTERVAL n * 1001 MICROSECOND"),
    "instant": Key("k TIMESTAMP(3)", "TIMESTAMP'2000-01-01 00:00:00' + INTERVAL n * 1001000 MICROSECOND"),
    "span": Key("k TIME(6)", "SEC_TO_TIME((n - 300) * 1000.5)"),
    "digest": Key("k BINARY(16)", f"UNHEX(LEFT({RANDOM}, 32))"),
    "zero_bytes": Key("k VARBINARY(40)", "UNHEX(CONCAT(LPAD(HEX(n % 30), 4, '0'), REPEAT('00', n DIV 30)))"),
    "uuid_text": Key("k CHAR(36) CHARACTER SET latin1", "UUID()"),
    "no_case": text_key("VARCHAR(40)", "utf8mb4_general_ci"),
    "bytewise": text_key("VARCHAR(40)", "utf8mb4_bin", tail=", ' '"),
    "german": text_key("CHAR(40)", "latin1_german1_ci", "ELT(n % 7 + 1, 'a', 'Ä', 'ß', 'Z', 'z', 'é', ' ')"),
    "wide": text_key("VARCHAR(40)", "utf16_general_ci"),
    "backslashes": text_key("VARCHAR(40)", "sjis_japanese_ci", "ELT(n % 4 + 1, 'a', 'ソ', '表', '漢')"),
    "chinese": text_key("VARCHAR(40)", "gbk_chinese_ci", "ELT(n % 3 + 1, 'a', '漢', '中')"),
    "kinds": Key("a ENUM('z','y','','x') NOT NULL, b INT", "n % 4 + 1, n", "PRIMARY KEY (a, b)"),
    "years": Key("a YEAR, b INT", "IF(n % 9 = 0, 0, 1900 + n % 9), n", "PRIMARY KEY (a, b)"),
    "tenants": Key(
        "a INT, b VARCHAR(20) COLLATE utf8mb4_general_ci, c DATETIME(3)",
        "n % 3, CONCAT('B', n % 5), TIMESTAMP'2020-01-01 00:00:00' + INTERVAL n MINUTE",
        "PRIMARY KEY (a, b, c)",
    ),
    "one_tenant": Key("a INT, b INT", "7, n", "PRIMARY KEY (a, b)"),
    "odd_name": Key("`k0``%s` VARCHAR(20) COLLATE utf8mb4_bin", f"LEFT({RANDOM}, 20)", "PRIMARY KEY (`k0``%s`)"),
    "downwards": Key("a INT, b VARCHAR(20)", f"n % 3, LEFT({RANDOM}, 9)", "PRIMARY KEY (a DESC, b)"),
    "counted_down": Key("k INT", "n", "PRIMARY KEY (k DESC)"),
    "unique_alone": Key("k VARCHAR(40) NOT NULL", f"LEFT({RANDOM}, 40)", "UNIQUE KEY u (k)"),
    "unique_pair": Key(
        "a INT NOT NULL, b INT NOT NULL, c INT", "n % 5, n, NULL", "UNIQUE KEY o (c), UNIQUE KEY u (b, a)"
    ),
    "parted": Key("a INT, b INT", "n * n, n", "PRIMARY KEY (a, b)"),
}
MYSQL = {
    "no_pad": text_key("VARCHAR(40)", "utf8mb4_0900_ai_ci", tail=", ' '"),
    "no_pad_char": text_key("CHAR(40)", "utf8mb4_0900_as_cs"),
    "hidden": Key("w INT", "n % 7", "KEY (w)"),
}
MARIADB = {
    "uuid": Key("k UUID", "INSERT(INSERT(UUID(), 1, 8, LEFT(SHA2(n, 256), 8)), 25, 12, LEFT(SHA2(n, 256), 12))"),
    "inet6": Key("k INET6", f"INET6_NTOA(UNHEX(LEFT({RANDOM}, 32)))"),
    "inet4": Key("k INET4", "INET_NTOA(n * n * 4611)"),
    "no_pad": text_key("VARCHAR(40)", "utf8mb4_nopad_bin", tail=", ' '"),
    "newest": text_key("VARCHAR(40)", "utf8mb4_uca1400_ai_ci"),
    "versioned": Key("k VARCHAR(40)", f"LEFT({RANDOM}, 40)"),
}
UNCUT = {
    "beginning": Key("k VARCHAR(40)", f"LEFT({RANDOM}, 40)", "PRIMARY KEY (k(20))"),
    "sets": Key("a SET('z','y','x') NOT NULL, b INT", "n % 8, n", "PRIMARY KEY (a, b)"),
    "keyless": Key("k INT", "n", "KEY (k)"),
    "nullable": Key("k INT", "n", "UNIQUE KEY (k)"),
}
COPIED = {
    "snowflake",
    "amount",
    "bits",
    "moment",
    "digest",
    "no_case",
    "kinds",
    "tenants",
    "downwards",
    "parted",
    "inet6",
}
"""Keys whose tables are copied by Spark in each run of the tests; the others in the long ones."""
OF_KIND = {"mysql": BOTH | MYSQL, "mariadb": BOTH | MARIADB}


def numbers(first: int, last: int) -> str:
    digits = "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL"
    digits += " SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
    every = f"SELECT x.d + 10 * y.d + 100 * z.d AS n FROM {digits} x, {digits} y, {digits} z"
    return f"(SELECT n FROM ({every}) every_n WHERE n BETWEEN {first} AND {last}) numbered"


def created(server: Server, database: str, keys: dict[str, Key], rows: int = ROWS) -> None:
    """A table for each key, with ``rows`` rows and their number as ``ordinal``."""
    statements: list[str] = []
    for name, key in keys.items():
        more = {"versioned": " WITH SYSTEM VERSIONING", "parted": " PARTITION BY HASH (b) PARTITIONS 3"}.get(name, "")
        generated = "ON" if name == "hidden" else "OFF"
        if server.kind == "mysql":
            statements.append(f"SET SESSION sql_generate_invisible_primary_key = {generated}")
        statements.append(f"CREATE TABLE {name} (ordinal INT, v VARCHAR(90), {key.columns}, {key.key}){more}")
        statements.append(inserted(name, key, 1, rows))
        statements.append(f"ANALYZE TABLE {name}")
    server.execute("SET SESSION sql_mode = ''", *statements, database=database)


def inserted(name: str, key: Key, first: int, last: int) -> str:
    return f"INSERT IGNORE INTO {name} SELECT n, REPEAT('v', 90), {key.values} FROM {numbers(first, last)}"


def of(source: Source, database: str, name: str) -> SourceTable:
    table = TableName(database, name)
    return read_tables(source, [table])[table]


def cuts(source: Source, table: SourceTable) -> list[tuple[Bound | None, Bound | None]]:
    points = cutting.cut(source, table.name, table.schema, CHUNK, -(-ROWS // CHUNK))
    return list(pairwise([None, *points, None]))


def rows_of(source: Source, table: SourceTable, lower: Bound | None, upper: Bound | None) -> list[int]:
    """The numbers of the rows that a chunk selects."""
    place = [column.name for column in table.schema.mirrored].index("ordinal")
    query = jdbc.chunk_query(table.name, table.schema, lower, upper)
    return [int(row["number"]) for row in source.query(f"SELECT c{place} AS number FROM ({query}) AS chunk")]


def of_server(server: Server) -> Source:
    return Source.open(Endpoint("127.0.0.1", server.port, "root", ""))


def test_every_key_is_cut_into_ranges_of_its_index(server: Server, database: str) -> None:
    keys = OF_KIND[server.kind]
    created(server, database, keys)
    with of_server(server) as source:
        for name in keys:
            table = of(source, database, name)
            total = sorted(rows_of(source, table, None, None))
            chunks = cuts(source, table)
            rows = [rows_of(source, table, *chunk) for chunk in chunks]
            assert len(chunks) >= len(total) // CHUNK > 3, name
            assert max(map(len, rows)) <= 1.5 * CHUNK, name
            assert sorted(number for numbers in rows for number in numbers) == total, name
            index = "PRIMARY" if table.schema.key_kind == "primary" else "u"
            for chunk in chunks:
                plan = cutting.explain(source, jdbc.chunk_query(table.name, table.schema, *chunk))
                assert (plan["type"], plan["key"]) == ("range", index), (name, plan)


def test_a_whole_table_is_read_in_the_order_of_its_key(server: Server, database: str) -> None:
    """Though another index holds all columns, and is the smaller one."""
    server.execute(
        "CREATE TABLE p (a INT, b INT, PRIMARY KEY (a, b), KEY other (b))",
        "CREATE TABLE u (a INT NOT NULL, b INT NOT NULL, UNIQUE KEY `k``u` (a, b), KEY other (b))",
        *(f"INSERT INTO {name} SELECT n, 1000 - n FROM {numbers(0, 999)}" for name in "pu"),
        database=database,
    )
    with of_server(server) as source:
        for name, index in (("p", "PRIMARY"), ("u", "k`u")):
            table = of(source, database, name)
            free = cutting.explain(source, jdbc.whole_query(table.name, table.schema))
            assert free["key"] == "other" or server.kind == "mariadb", "which by its statistics may take either"
            query = jdbc.chunk_query(table.name, table.schema, None, None)
            assert cutting.explain(source, query)["key"] in (index, None)
            rows = [int(row["c0"]) for row in source.query(query)]
            assert rows == sorted(rows)
            assert len(rows) == 1000


def test_numbers_that_lie_evenly_need_no_walk(server: Server, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[str] = []
    walk = cutting._walk

    def watching(source: Source, name: TableName, *rest: Any) -> list[Bound]:
        walked.append(name.table)
        return walk(source, name, *rest)

    monkeypatch.setattr(cutting, "_walk", watching)
    names = ("serial", "counted_down", "snowflake")
    created(server, database, {name: BOTH[name] for name in names})
    with of_server(server) as source:
        for name in names:
            assert len(cuts(source, of(source, database, name))) >= ROWS // CHUNK
    assert walked == ["snowflake"]


def test_bounds_stand_in_metadata_as_text(server: Server, database: str) -> None:
    keys = OF_KIND[server.kind]
    created(server, database, keys)
    with of_server(server) as source:
        for name in keys:
            table = of(source, database, name)
            for bound, _ in cuts(source, table):
                assert bounds.read(bounds.write(bound), table.schema) == bound


def test_rows_that_come_after_the_cut_are_in_one_chunk_each(server: Server, database: str) -> None:
    keys = OF_KIND[server.kind]
    created(server, database, keys)
    with of_server(server) as source:
        chunks = {name: cuts(source, of(source, database, name)) for name in keys}
        later = [inserted(name, key, first, last) for name, key in keys.items() for first, last in ((0, 0), (601, 900))]
        server.execute("SET SESSION sql_mode = ''", *later, database=database)
        for name in keys:
            table = of(source, database, name)
            rows = [number for chunk in chunks[name] for number in rows_of(source, table, *chunk)]
            assert sorted(rows) == sorted(rows_of(source, table, None, None)), name
            assert len(rows) > ROWS, name


def test_bounds_part_the_rows_whatever_becomes_of_the_index(server: Server, database: str) -> None:
    """As where a dead snapshot continues: an index or a collation that has changed is no change of the shape."""
    keys = {name: BOTH[name] for name in ("no_case", "downwards")}
    created(server, database, keys)
    with of_server(server) as source:
        chunks = {name: cuts(source, of(source, database, name)) for name in keys}
        server.execute(
            "ALTER TABLE no_case MODIFY k VARCHAR(40) COLLATE utf8mb4_bin",
            "ALTER TABLE downwards DROP PRIMARY KEY, ADD PRIMARY KEY (a, b DESC)",
            database=database,
        )
        for name in keys:
            table = of(source, database, name)
            rows = [number for chunk in chunks[name] for number in rows_of(source, table, *chunk)]
            assert sorted(rows) == list(range(1, ROWS + 1)), name


def test_what_cant_be_cut_is_one_chunk(server: Server, database: str) -> None:
    created(server, database, UNCUT)
    with of_server(server) as source:
        for name in UNCUT:
            assert cuts(source, of(source, database, name)) == [(None, None)], name
            assert len(plan(source, of(source, database, name), chunk_rows=CHUNK).chunks) == 1


def test_an_invalid_date_is_no_bound(server: Server, database: str) -> None:
    keys = {name: Key("k DATE", "DATE'1000-01-01' + INTERVAL n DAY") for name in ("one", "many")}
    created(server, database, keys)
    server.execute(
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'",
        "UPDATE one SET k = '0000-00-00' WHERE ordinal = 1",
        "UPDATE many SET k = CONCAT(1000 + ordinal, '-02-30')",
        database=database,
    )
    with of_server(server) as source:
        few, many = of(source, database, "one"), of(source, database, "many")
        assert sorted(n for chunk in cuts(source, few) for n in rows_of(source, few, *chunk)) == [*range(1, ROWS + 1)]
        assert cuts(source, many) == [(None, None)]


@on_mariadb
def test_text_that_isnt_valid_is_parted_or_one_chunk(server: Server, database: str) -> None:
    half = "CONVERT(x'0000D83D' USING utf32)"
    keys = {
        charset: Key(f"k VARCHAR(20) CHARACTER SET {charset}", f"CONCAT({half}, CAST(n AS CHAR CHARACTER SET utf32))")
        for charset in ("utf8mb4", "utf32")
    }
    created(server, database, keys)
    with of_server(server) as source:
        for name in keys:
            table = of(source, database, name)
            rows = [number for chunk in cuts(source, table) for number in rows_of(source, table, *chunk)]
            assert sorted(rows) == list(range(1, ROWS + 1)), name


def test_a_table_that_cant_be_read_is_one_chunk(server: Server, database: str) -> None:
    created(server, database, {"digest": BOTH["digest"]})
    with of_server(server) as source:
        table = of(source, database, "digest")
        server.execute("ALTER TABLE digest DISCARD TABLESPACE", database=database)
        assert cuts(source, table) == [(None, None)]
        server.execute("DROP TABLE digest", database=database)
        assert cuts(source, table) == [(None, None)]


def changing(keys: dict[str, Key]) -> Callable[[Any, int], None]:
    """Rows are inserted, deleted and get other keys in all tables."""

    def work(cursor: Any, number: int) -> None:
        cursor.execute("SET SESSION sql_mode = ''")
        for name in keys:
            cursor.execute(inserted(name, keys[name], 200 + number % 700, 203 + number % 700))
            cursor.execute(f"DELETE FROM {name} WHERE ordinal = {number * 7 % 200}")
            cursor.execute(f"UPDATE {name} SET v = {number} WHERE ordinal % 20 = {number % 20}")
            if keys[name].columns.startswith("k "):
                cursor.execute(
                    f"UPDATE IGNORE {name}, {numbers(900, 999)} SET k = {keys[name].values}"
                    f" WHERE ordinal = n - 800 AND n % 25 = {number % 25}"
                )

    return work


@pytest.mark.parametrize(
    ("reader", "names"),
    [
        pytest.param("jdbc", COPIED, id="some"),
        pytest.param("jdbc", BOTH | MYSQL | MARIADB, id="all", marks=pytest.mark.soak),
        pytest.param("direct", BOTH | MYSQL | MARIADB, id="all-direct", marks=pytest.mark.soak),
    ],
)
def test_any_key_is_copied_exactly_while_rows_are_written(mirror: Mirror, reader: str, names: Container[str]) -> None:
    from binlake.phases.bootstrap import begin_lives

    mirror.options = {"snapshot": {"reader": reader}}
    keys = {name: key for name, key in OF_KIND[mirror.server.kind].items() if name in names}
    created(mirror.server, mirror.database, keys, 200)
    with writing(mirror, changing(keys)), Source.open(mirror.endpoint) as source, lease.held(mirror.metadata) as held:
        batch = held.control().batch
        task = SnapshotTask(mirror.config, mirror.endpoint, source, mirror.metadata, Report(), batch, chunk_rows=CHUNK)
        results, failures = snapshot(lambda why: mirror.spark, task, included_tables(source, mirror.config))
        begin_lives(held, mirror.metadata, source, results, batch)
    assert not failures
    rows = mirror.metadata.read("snapshots")
    assert {row["table"] for row in rows if row["chunk"] > 0} == set(keys)
    assert not [row for row in rows if row["lower"] or row["upper"]]
    mirror.sync()
    mirror.assert_equal(*keys)
