"""The logs that the decoder's bench reads, made by a private MySQL and kept under .binlake/bench.

narrow: sysbench's table, 60 % inserts, 30 % updates, 10 % deletes in statements of a thousand rows. wide: 26 columns of
mixed types with a small JSON, changed in the same way. single: narrow rows, each update a transaction of its own.
bulky: a small row beside a large BLOB and TEXT, for columns that are excluded; its table ``beside`` is a tenth of it.

Sizes in mutations come from BENCH_NARROW, BENCH_WIDE, BENCH_SINGLE and BENCH_BULKY.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from binlake.position import FIRST_OFFSET, Slice
from servers import PRIVATE, Server

HOME = PRIVATE / "bench" / "logs"
SIZES = {
    name: int(os.environ.get(f"BENCH_{name.upper()}", default))
    for name, default in (("narrow", "300000"), ("wide", "100000"), ("single", "60000"), ("bulky", "30000"))
}
_STATEMENT = 1000
"""Rows of a statement."""

NARROW = "CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL)"
_NARROW_ROW = "n, n % 1000, LEFT(REPEAT(SHA2(n, 256), 2), 120), LEFT(SHA2(n + 7, 256), 60)"
WIDE = """CREATE TABLE t (
  id BIGINT UNSIGNED PRIMARY KEY, tiny TINYINT, tiny_u TINYINT UNSIGNED, small SMALLINT, medium MEDIUMINT, whole INT,
  whole_u INT UNSIGNED, big BIGINT, single_ FLOAT, double_ DOUBLE, price DECIMAL(12,2), exact_ DECIMAL(30,10), y YEAR,
  born DATE, moment DATETIME(6), stamp TIMESTAMP(3) NULL, clock TIME, bits BIT(8),
  state ENUM('new','open','paid','closed'), tags SET('a','b','c','d'), code CHAR(10), name VARCHAR(60),
  raw BINARY(8), note TEXT, bytes_ BLOB, doc JSON)"""
WIDE_ROW = """
  n, n % 100, n % 200, n % 30000, n % 8000000, n * 37, n * 53, n * 1000003, n / 7, n / 11, n % 100000 / 100,
  n * 1.0000000003, 1970 + n % 100, '2000-01-01' + INTERVAL n % 9000 DAY,
  '2020-01-01' + INTERVAL n * 1000017 MICROSECOND, IF(n % 10, '2021-01-01' + INTERVAL n SECOND, NULL),
  SEC_TO_TIME(n % 86400), n % 256, 1 + n % 4, n % 16, LEFT(SHA2(n, 256), 10), CONCAT('Name of number ', n),
  UNHEX(LEFT(SHA2(n, 256), 16)), IF(n % 5, CONCAT('a note about ', n, ' with some words'), NULL),
  UNHEX(LEFT(SHA2(n, 256), 32)),
  JSON_OBJECT('id', n, 'tags', JSON_ARRAY('x', 'y'), 'price', n / 8, 'active', n % 2 = 0)"""
_BULKY = "CREATE TABLE {} (id INT PRIMARY KEY, v INT, body MEDIUMBLOB, words MEDIUMTEXT)"
_BULKY_ROW = "n, n * 3, UNHEX(REPEAT(SHA2(n, 512), 30)), REPEAT(SHA2(n, 512), 15)"


@dataclass(frozen=True)
class Log:
    """One recorded log. rows: mutations in it; datadir: of the server that wrote it."""

    name: str
    datadir: str
    file: str
    size: int
    rows: int

    @property
    def path(self) -> Path:
        return Path(self.datadir) / self.file

    def slice(self) -> Slice:
        return Slice(self.file, FIRST_OFFSET, self.size, 0, False)


def logs() -> list[Log]:
    """All of them; those of other sizes than asked for are made again."""
    return [kept(name) for name in SIZES]


def kept(name: str) -> Log:
    """One of them."""
    folder = HOME / f"{name}-{SIZES[name]}"
    about = folder / "log.json"
    if not about.exists():
        for old in HOME.glob(f"{name}-*"):
            shutil.rmtree(old)
        folder.mkdir(parents=True)
        about.write_text(json.dumps(asdict(_record(name, folder / "data"))))
    return Log(**json.loads(about.read_text()))


def _record(name: str, datadir: Path) -> Log:
    with Server("mysql", datadir, cte_max_recursion_depth=100_000_000) as server:
        server.execute(f"CREATE DATABASE {name}")
        server.execute(*_statements(name, SIZES[name]), database=name)
        file, size = server.execute("SHOW BINARY LOG STATUS")[0][:2]
    return Log(name, str(datadir), str(file), int(size), SIZES[name])


def _statements(name: str, rows: int) -> Iterator[str]:
    if name == "single":
        yield from _single(rows)
    elif name == "bulky":
        for table, share in (("t", 9), ("beside", 1)):
            yield _BULKY.format(table)
            yield from _inserts(table, _BULKY_ROW, rows * share // 10)
    else:
        yield NARROW if name == "narrow" else WIDE
        yield from _mixed(_NARROW_ROW if name == "narrow" else WIDE_ROW, rows, "k" if name == "narrow" else "whole")


def numbers(first: int, last: int) -> str:
    return (
        f"(WITH RECURSIVE s (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM s WHERE n < {last}) SELECT n FROM s) x"
    )


def _inserts(table: str, row: str, rows: int) -> Iterator[str]:
    for first in range(1, rows + 1, _STATEMENT):
        yield f"INSERT INTO {table} SELECT {row} FROM {numbers(first, min(first + _STATEMENT - 1, rows))}"


def _mixed(row: str, rows: int, changed: str) -> Iterator[str]:
    inserted, updated, deleted = rows * 6 // 10, rows * 3 // 10, rows // 10
    yield from _inserts("t", row, inserted)
    for first in range(1, updated + 1, _STATEMENT):
        last = min(first + _STATEMENT - 1, updated)
        yield f"UPDATE t SET {changed} = {changed} + 1 WHERE id BETWEEN {first} AND {last}"
    for first in range(1, deleted + 1, _STATEMENT):
        yield f"DELETE FROM t WHERE id BETWEEN {first} AND {min(first + _STATEMENT - 1, deleted)}"


def _single(rows: int) -> Iterator[str]:
    kept = 10_000
    yield NARROW
    yield "SET sql_log_bin = 0"
    yield from _inserts("t", _NARROW_ROW, kept)
    yield "SET sql_log_bin = 1"
    yield (
        "CREATE PROCEDURE work (IN many INT) BEGIN DECLARE n INT DEFAULT 0; WHILE n < many DO"
        f" UPDATE t SET k = k + 1 WHERE id = 1 + n % {kept}; SET n = n + 1; END WHILE; END"
    )
    yield f"CALL work({rows})"
