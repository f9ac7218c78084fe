"""Tables that move between databases, out of what is included, and into it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import comparison
from binlake.schema.table import TableName
from mirror import Mirror, on_mariadb, on_mysql


@pytest.fixture
def databases(mirror: Mirror) -> Iterator[tuple[str, str, str]]:
    """Two that are included, one that isn't."""
    here, there, outside = mirror.database, f"{mirror.database}_two", f"{mirror.database}_out"
    mirror.include = [f"{here}.*", f"{there}.*"]
    mirror.server.execute(f"CREATE DATABASE {there}", f"CREATE DATABASE {outside}")
    yield here, there, outside
    mirror.server.execute(f"DROP DATABASE {there}", f"DROP DATABASE {outside}")


def assert_equal(mirror: Mirror, *tables: str) -> None:
    for table in tables:
        name = TableName(*table.split("."))
        comparison.assert_equal(mirror.server, name.database, name.table, mirror.config.table_path(name))


def status(mirror: Mirror) -> dict[str, str]:
    return {f"{row['database']}.{row['table']}": row["status"] for row in mirror.metadata.read("watermarks")}


@on_mariadb
def test_moves_between_databases(mirror: Mirror, databases: tuple[str, str, str]) -> None:
    here, there, _ = databases
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))",
        "INSERT INTO t VALUES (1, 'before')",
        f"RENAME TABLE t TO {there}.t",
        f"INSERT INTO {there}.t VALUES (2, 'there')",
        "CREATE TABLE t (n INT)",
        "INSERT INTO t VALUES (1), (1)",
    )
    mirror.sync()
    assert_equal(mirror, f"{here}.t", f"{there}.t")
    mirror.execute(
        f"RENAME TABLE t TO {there}.u, {there}.t TO t",
        "UPDATE t SET v = 'back' WHERE id = 1",
        f"DELETE FROM {there}.u LIMIT 1",
        f"ALTER TABLE {there}.u RENAME TO {here}.w",
    )
    mirror.sync()
    assert_equal(mirror, f"{here}.t", f"{here}.w")
    assert {table for table, state in status(mirror).items() if state == "following"} == {f"{here}.t", f"{here}.w"}


@on_mysql
def test_moves_out_of_what_is_included_and_into_it(mirror: Mirror, databases: tuple[str, str, str]) -> None:
    here, there, outside = databases
    mirror.follow_from_here()
    mirror.execute(
        "CREATE TABLE leaves (id INT PRIMARY KEY)",
        "INSERT INTO leaves VALUES (1)",
        f"CREATE TABLE {outside}.comes (id INT PRIMARY KEY)",
        f"INSERT INTO {outside}.comes VALUES (1), (2)",
        f"CREATE TABLE {there}.stays (id INT PRIMARY KEY)",
        f"INSERT INTO {there}.stays VALUES (1)",
    )
    mirror.sync()
    mirror.execute(
        f"RENAME TABLE leaves TO {outside}.leaves, {outside}.comes TO comes",
        f"INSERT INTO {outside}.leaves VALUES (2)",
        "INSERT INTO comes VALUES (3)",
        f"INSERT INTO {there}.stays VALUES (2)",
    )
    mirror.sync()
    assert_equal(mirror, f"{here}.comes", f"{there}.stays")
    assert status(mirror)[f"{here}.leaves"] == "dropped"
    mirror.execute("DELETE FROM comes WHERE id = 1", f"RENAME TABLE {outside}.leaves TO leaves")
    mirror.sync()
    mirror.execute("INSERT INTO leaves VALUES (3)")
    mirror.sync()
    assert_equal(mirror, f"{here}.comes", f"{there}.stays", f"{here}.leaves")
