"""Names are data: what would be SQL, a path, a template or a script elsewhere is mirrored like any other name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from binlake.cli import command_line
from binlake.names import mysql_quote
from binlake.spark import session
from mirror import Mirror
from servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE = "../x`'\";--\n%s<b>"
SQL = "'; DROP TABLE victim; -- `"
LOOKUP = "${jndi:ldap://127.0.0.1/a}\n../../up[x]^|"
SCRIPT = "<script>alert(1)</script>%20{0}☃"
"""Identifiers hold no character beyond U+FFFF, on either server."""
LINK = "a link to the lake"
VALUE = "'; DROP TABLE victim; -- ${jndi:ldap://127.0.0.1/a} ../../up \n\t<script>alert(1)</script> %s {0} \\ 🐬"


@pytest.fixture
def odd(server: Server, tmp_path: Path, lake: Path, spark: SparkSession) -> Iterator[Mirror]:
    server.execute(f"CREATE DATABASE {mysql_quote(DATABASE)} CHARACTER SET utf8mb4")
    (tmp_path / LINK).symlink_to(lake)
    # The first dot of a pattern parts database and table.
    yield Mirror(server, DATABASE, tmp_path / LINK, spark, include=["??/x*<b>.*"])
    server.execute(f"DROP DATABASE {mysql_quote(DATABASE)}")


def create(mirror: Mirror, table: str, *columns: str) -> None:
    declared = ", ".join(f"{mysql_quote(column)} VARCHAR(200) DEFAULT 'x'" for column in columns)
    mirror.execute(f"CREATE TABLE {mysql_quote(table)} (id INT PRIMARY KEY, {declared})")


def insert(mirror: Mirror, table: str, key: int, column: str, value: str = VALUE) -> None:
    with mirror.server.connect(database=mirror.database) as connection, connection.cursor() as cursor:
        name = f"{mysql_quote(table)} (id, {mysql_quote(column)})".replace("%", "%%")
        cursor.execute(f"INSERT INTO {name} VALUES (%s, %s)", (key, value))


def test_odd_names_are_mirrored_and_do_nothing(
    odd: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    create(odd, "victim", "v")
    create(odd, SQL, SQL, LOOKUP)
    create(odd, LOOKUP, SCRIPT, "id2")
    insert(odd, "victim", 1, "v")
    insert(odd, SQL, 1, LOOKUP)
    insert(odd, LOOKUP, 1, SCRIPT)
    odd.snapshot()
    odd.assert_equal("victim", SQL, LOOKUP)

    insert(odd, SQL, 2, SQL)
    odd.execute(
        f"ALTER TABLE {mysql_quote(LOOKUP)} RENAME COLUMN {mysql_quote(SCRIPT)} TO {mysql_quote(SQL)},"
        f" ADD {mysql_quote(LOOKUP)} VARCHAR(99) DEFAULT '{{0}} ''; DROP'",
        f"RENAME TABLE {mysql_quote(SQL)} TO {mysql_quote(SCRIPT)}",
        f"CREATE TABLE {mysql_quote('_delta_log')} (id INT PRIMARY KEY, {mysql_quote('_metadata')} INT)",
        "INSERT INTO _delta_log VALUES (1, 2)",
    )
    insert(odd, LOOKUP, 2, SQL)
    odd.sync()
    odd.assert_equal("victim", SCRIPT, LOOKUP, "_delta_log")
    assert odd.verify().equal

    monkeypatch.setattr(session, "build", lambda name, **options: odd.spark)
    monkeypatch.setenv("AIRFLOW_CONN_TESTS", odd.server.uri())
    for command in ("doctor", "status", "history"):
        assert command_line.run([command, "--config", str(odd.write_yaml())]) == 0, capsys.readouterr()
    assert "DROP TABLE victim" in capsys.readouterr().out
    # Nothing was written but the lake, and in it nothing but the source.
    assert {path.name for path in tmp_path.iterdir()} == {"lake", LINK}
    assert {path.name for path in odd.folder.iterdir()} == {"tests", "source.yaml"}
    assert len([path for path in (odd.folder / "tests").iterdir() if not path.name.startswith("_")]) == 1


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_what_reads_like_a_variable_of_spark_stays_text(mirror: Mirror) -> None:
    """``${env:…}`` would bring the job's environment, where a password may stand, into the lake."""
    mirror.follow_from_here()
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY, `${env:HOME}` INT)", "INSERT INTO t VALUES (1, 1)")
    mirror.sync()
    mirror.execute("ALTER TABLE t ADD v VARCHAR(40) DEFAULT '${env:HOME}'", "UPDATE t SET `${env:HOME}` = 2")
    mirror.sync()
    mirror.assert_equal("t")
