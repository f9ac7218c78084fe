"""A table of the lake that MySQL and MariaDB fill together, in a folder and in a store: SQL on both in, rows out."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from binlake.lake.opened_lake import open_lake
from companies import POINTS, SOURCES, Companies, ordered, walk
from mirror import Mirror, in_the_soak, sync_alone
from object_store import ObjectStore
from servers import Server

TYPES = (
    "id BIGINT UNSIGNED PRIMARY KEY, v VARCHAR(20) CHARACTER SET latin1, n TINYINT(1), amount DECIMAL(12,3), day DATE, "
    "at DATETIME(3), doc JSON, kind ENUM('a','b'), raw VARBINARY(8), x DOUBLE, whole INT"
)
_VALUES = (
    "(1, 'é', 1, 1.250, '2026-01-31', '2026-01-31 23:59:59.999', '{{\"a\": 1}}', 'b', X'00FF', 1e300, {whole})",
    "(18446744073709551615, '', 0, -999999999.999, '1000-01-01', NULL, NULL, 'a', '', -0.5, NULL)",
    "(2, NULL, NULL, NULL, NULL, '1970-01-01', '[]', NULL, NULL, NULL, -{whole})",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, ObjectStore(tmp_path_factory.mktemp("s3")) as running:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(params=["folder", "store"])
def companies(
    request: pytest.FixtureRequest, mysql_server: Server, mariadb_server: Server, lake: Path
) -> Iterator[Companies]:
    """eu on MySQL and us on MariaDB, without Spark."""
    stem = f"two_{uuid.uuid4().hex[:8]}"
    url = ""
    if request.param == "store":
        request.getfixturevalue("store")
        url = f"s3://lake/{stem}"
    no_spark: Any = None
    mirror = Mirror(mysql_server, stem, lake, no_spark, reader="direct", url=url)
    with ExitStack() as stack:
        yield Companies(mirror, stack, {"eu": mysql_server, "us": mariadb_server})


def _fill(companies: Companies) -> None:
    for number, source in enumerate(SOURCES, 1):
        for tenant in (7, 8):
            companies.add(source, tenant, TYPES)
            values = ", ".join(_VALUES).format(whole=number * tenant)
            companies.execute(source, tenant, f"INSERT INTO orders VALUES {values}")
        companies.mirrors[source].snapshot()


def test_both_servers_fill_one_table_in_their_own_time(companies: Companies) -> None:
    _fill(companies)
    assert companies.rows() == companies.server_rows()
    eu, us = companies.mirrors.values()
    companies.execute("eu", 7, "UPDATE orders SET v = 'x', at = at - INTERVAL 1 DAY", "DELETE FROM orders WHERE id = 2")
    companies.execute("us", 7, f"INSERT INTO orders SELECT id + 10, {TYPES_BUT_ID} FROM orders WHERE id < 9")
    companies.execute("us", 8, "UPDATE orders SET id = 3 WHERE id = 1")
    companies.sync_at_once()
    assert companies.rows() == companies.server_rows()
    for source in reversed(SOURCES):
        companies.execute(source, 7, "ALTER TABLE orders DROP COLUMN x, ADD COLUMN note VARCHAR(9) DEFAULT 'new' FIRST")
        companies.execute(source, 7, "ALTER TABLE orders RENAME COLUMN v TO w", "INSERT INTO orders (id) VALUES (70)")
        sync_alone(companies.mirrors[source])
        assert companies.rows() == companies.server_rows(), source
    companies.execute("us", 8, "DROP TABLE orders")
    companies.tenants["us"].remove(8)
    companies.execute("eu", 8, "TRUNCATE TABLE orders")
    companies.sync_at_once()
    assert companies.rows() == companies.server_rows()
    assert eu.verify().equal
    assert us.verify().equal
    for source, mirror in companies.mirrors.items():
        read = ordered(open_lake(mirror.config).arrow("all.orders").to_pylist())
        assert {row["region"] for row in read} == {*SOURCES}
        assert [row for row in read if row["region"] == source] == companies.rows(source), "the other's may be older"


TYPES_BUT_ID = ", ".join(part.split()[0] for part in TYPES.split(", ") if " " in part)[len("id, ") :]


@pytest.mark.soak
def test_cut_off_and_begun_again_while_the_other_server_is_synced(companies: Companies) -> None:
    for source in SOURCES:
        for tenant in (7, 8):
            companies.add(source, tenant, "id INT PRIMARY KEY, v VARCHAR(20), n INT")
            companies.execute(source, tenant, "INSERT INTO orders VALUES (1, 'a', 1), (2, 'b', 2)")
        companies.mirrors[source].snapshot()
    for number, point in enumerate(POINTS[1:], start=3):
        for source, other in (SOURCES, SOURCES[::-1]):
            companies.execute(source, 7, f"INSERT INTO orders (id) VALUES ({number})", "DELETE FROM orders LIMIT 1")
            companies.execute(source, 8, f"ALTER TABLE orders ADD COLUMN c{number} INT DEFAULT {number}")
            with companies.mirrors[source].cut_off_at(point):
                companies.mirrors[source].sync()
            companies.execute(other, 7, "UPDATE orders SET v = CONCAT(COALESCE(v, ''), 'x')")
            sync_alone(companies.mirrors[other])
            sync_alone(companies.mirrors[source])
            assert companies.rows() == companies.server_rows(), f"{source}, {point}"


@pytest.mark.parametrize(("count", "rounds"), in_the_soak((2, 20), (4, 60)))
def test_a_random_walk_over_the_shards_of_two_servers_equals_their_union(
    companies: Companies, count: int, rounds: int
) -> None:
    walk(companies, random.Random(rounds), count, rounds)
