"""Foreign keys that act: MySQL logs every row they change; where the server doesn't, the table isn't trusted."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from unittest import mock

import pymysql
import pytest

from binlake.cli import command_line
from binlake.delta import layout
from binlake.errors import TableError
from binlake.records.status import read_status
from binlake.schema.cascades import Cascade
from binlake.schema.table import TableName
from binlake.source.listed_tables import included_databases
from binlake.source.log import opened
from binlake.source.server import Source
from binlake.source.unlogged_cascades import unlogged_cascades
from mirror import WAYS, both_ways, sync_alone
from servers import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror import Mirror

SEED = int(os.environ.get("BINLAKE_SEED", "20"))
TABLES = (
    "CREATE TABLE grandparent (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE parent (id INT PRIMARY KEY, g INT, FOREIGN KEY (g) REFERENCES grandparent (id)"
    " ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE SET NULL)",
    "CREATE TABLE own (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES own (id) ON DELETE CASCADE)",
    "INSERT INTO grandparent VALUES (1, 1), (2, 2), (3, 3)",
    "INSERT INTO parent VALUES (10, 1), (11, 1), (20, 2), (30, 3)",
    "INSERT INTO child VALUES (100, 10), (101, 11), (200, 20), (300, 30)",
    "INSERT INTO own VALUES (1, NULL), (2, 1), (3, 2), (4, NULL)",
)
ACTING = (
    "UPDATE grandparent SET id = 22 WHERE id = 2",
    "DELETE FROM grandparent WHERE id = 1",
    "DELETE FROM own WHERE id = 1",
    "INSERT INTO grandparent VALUES (1, 9)",
    "INSERT INTO parent VALUES (10, 1)",
    "UPDATE child SET p = 10 WHERE id = 300",
)
ALL = ("grandparent", "parent", "child", "own")
RELATED = (
    "CREATE TABLE region (id INT PRIMARY KEY, code INT NOT NULL UNIQUE)",
    "CREATE TABLE shop (id INT PRIMARY KEY, Region INT, touched TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"
    " ON UPDATE CURRENT_TIMESTAMP(6), FOREIGN KEY (region) REFERENCES region (code)"
    " ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE staff (id INT PRIMARY KEY, shop INT, boss INT, told JSON,"
    " FOREIGN KEY (shop) REFERENCES shop (id) ON DELETE SET NULL ON UPDATE CASCADE,"
    " FOREIGN KEY (boss) REFERENCES staff (id) ON DELETE CASCADE)",
    "CREATE TABLE note (id INT PRIMARY KEY, staff INT, FOREIGN KEY (staff) REFERENCES staff (id) ON DELETE CASCADE)",
    "CREATE TABLE pair (a INT, b DECIMAL(5,2), PRIMARY KEY (a, b))",
    "CREATE TABLE part (id INT PRIMARY KEY, b DECIMAL(5,2), a INT, FOREIGN KEY (a, b) REFERENCES pair (a, b)"
    " ON DELETE SET NULL ON UPDATE CASCADE)",
)
FAMILY = ("region", "shop", "staff", "note", "pair", "part")


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_mysql_logs_what_cascades_change_through_all_levels(mirror: Mirror) -> None:
    mirror.execute(*TABLES)
    mirror.snapshot()
    mirror.execute(*ACTING)
    mirror.sync()
    mirror.assert_equal(*ALL)
    assert {row["status"] for row in mirror.metadata.read("watermarks")} == {"following"}


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_where_cascades_are_not_logged_their_tables_are_refused(mirror: Mirror) -> None:
    mirror.execute(*TABLES)
    with pytest.raises(TableError, match="cascades from"):
        mirror.snapshot()
    statuses = {row["table"]: row["status"] for row in mirror.metadata.read("watermarks")}
    assert statuses == {"grandparent": "following", "parent": "missing", "child": "missing", "own": "missing"}
    mirror.execute("CREATE TABLE late (id INT PRIMARY KEY, g INT)", "INSERT INTO late VALUES (1, 1)")
    mirror.sync()
    mirror.assert_equal("grandparent", "late")
    mirror.execute("ALTER TABLE late ADD FOREIGN KEY (g) REFERENCES grandparent (id) ON DELETE CASCADE")
    mirror.sync()
    assert mirror.watermark("late")["status"] == "stopped"
    assert "on_unlogged_cascade" in mirror.watermark("late")["remedy"]


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_the_status_says_why_a_table_was_refused_until_it_is_mirrored(mirror: Mirror) -> None:
    def told() -> dict[str, tuple[str, str | None, str | None]]:
        tables = read_status(mirror.config).tables
        return {row.table.partition(".")[2]: (row.status, row.reason, row.remedy) for row in tables}

    mirror.execute(*TABLES)
    with pytest.raises(TableError, match="cascades from"):
        mirror.snapshot()
    for table in ("parent", "child", "own"):
        status, reason, remedy = told()[table]
        assert status == "missing"
        assert "cascades from" in (reason or "")
        assert "on_unlogged_cascade" in (remedy or "")
    refused = told()
    with pytest.raises(TableError, match="cascades from"):  # without a table that can be copied
        mirror.snapshot(f"{mirror.database}.child")
    mirror.execute("INSERT INTO grandparent VALUES (77, 7)")
    mirror.sync()
    assert told() == refused
    mirror.options = {"policies": {"on_unlogged_cascade": "resnapshot"}}
    mirror.snapshot()
    assert {status for status, _, _ in told().values()} == {"following"}
    mirror.assert_equal("parent", "child", "own")


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
@pytest.mark.parametrize(("action", "status"), [("CASCADE", "stopped"), ("RESTRICT", "following")])
def test_a_key_that_came_and_went_before_its_batches_were_planned_stops_its_table(
    mirror: Mirror, action: str, status: str
) -> None:
    mirror.execute(
        "CREATE TABLE up (id INT PRIMARY KEY)",
        "CREATE TABLE down (id INT PRIMARY KEY, u INT)",
        "INSERT INTO up VALUES (1), (2)",
        "INSERT INTO down VALUES (10, NULL), (20, 2)",
    )
    mirror.snapshot()
    mirror.execute(
        "SET timestamp = UNIX_TIMESTAMP() - 3600",
        f"ALTER TABLE down ADD CONSTRAINT refers FOREIGN KEY (u) REFERENCES up (id) ON DELETE {action}",
        f"DELETE FROM up WHERE id = {2 if action == 'CASCADE' else 1}",
        "SET timestamp = DEFAULT",
        "ALTER TABLE down DROP FOREIGN KEY refers",
    )
    mirror.sync(until=datetime.now(UTC) - timedelta(minutes=1))
    mirror.sync()
    assert mirror.watermark("down")["status"] == status
    assert ("foreign key went" in (mirror.watermark("down")["reason"] or "")) == (status == "stopped")
    mirror.snapshot(f"{mirror.database}.down")
    mirror.sync()
    mirror.assert_equal("up", "down")


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_only_databases_that_hold_included_tables_are_asked(mirror: Mirror) -> None:
    here, there = mirror.database, f"{mirror.database}_elsewhere"
    mirror.execute(
        f"CREATE DATABASE {there}",
        f"CREATE TABLE {there}.above (id INT PRIMARY KEY)",
        f"CREATE TABLE {there}.own (id INT PRIMARY KEY,"
        f" FOREIGN KEY (id) REFERENCES {there}.above (id) ON DELETE CASCADE)",
        f"CREATE TABLE below (a INT, b INT PRIMARY KEY, KEY (b, a), CONSTRAINT far FOREIGN KEY (b)"
        f" REFERENCES {there}.above (id) ON UPDATE CASCADE)",
    )
    with opened(mirror.origin) as source:
        assert isinstance(source, Source)
        cascades = unlogged_cascades(source, included_databases(source, mirror.config))
    far = Cascade(TableName(here, "below"), TableName(there, "above"), "far", ("b",), ("id",), "RESTRICT", "CASCADE")
    assert cascades == (far,)


@pytest.fixture(scope="session")
def native_server(new_server: type[Server]) -> Iterator[Server]:
    """MySQL whose foreign keys act within InnoDB, below its log, as they did up to 9.5."""
    with new_server("mysql", innodb_native_foreign_keys=True) as running:
        yield running


@pytest.fixture
def deriving(mirror: Mirror) -> Mirror:
    mirror.options = {"policies": {"on_unlogged_cascade": "derive"}}
    return mirror


def lives(mirror: Mirror, *tables: str) -> dict[str, str]:
    """A new snapshot begins a new life."""
    return {table: mirror.watermark(table)["table_id"] for table in tables}


def assert_derived(mirror: Mirror, *tables: str) -> None:
    """What one more sync makes of them, without a snapshot."""
    before = lives(mirror, *tables)
    mirror.sync()
    mirror.assert_equal(*tables)
    assert lives(mirror, *tables) == before
    assert {mirror.watermark(table)["status"] for table in tables} == {"following"}


@pytest.mark.parametrize("server", ["mariadb", "native"], indirect=True)
def test_they_are_derived_through_all_levels(deriving: Mirror) -> None:
    deriving.execute(*TABLES)
    deriving.snapshot()
    deriving.execute(*ACTING)
    assert_derived(deriving, *ALL)
    deriving.execute("DELETE FROM grandparent", "DELETE FROM own")
    assert_derived(deriving, *ALL)


class Rows:
    """Random statements over the related tables, some of which the server refuses."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def statement(self) -> str:
        some, few = (lambda: self._chance.randrange(12)), (lambda: self._chance.randrange(4))
        null = self._chance.choice(["NULL", str(some())])
        return self._chance.choice(
            [
                f"INSERT INTO region VALUES ({some()}, {some()})",
                f"REPLACE INTO region VALUES ({some()}, {some()})",
                f"UPDATE region SET code = {some()} WHERE id = {some()}",
                f"UPDATE region SET code = code + 12 WHERE id < {few()} ORDER BY code DESC",
                f"DELETE FROM region WHERE id = {some()}",
                f"INSERT INTO shop (id, region) VALUES ({some()}, {null})",
                f"UPDATE shop SET id = {some()} WHERE id = {some()}",
                f"UPDATE shop SET region = {null} WHERE id = {some()}",
                f"DELETE FROM shop WHERE id = {some()}",
                f"INSERT INTO staff VALUES ({some()}, {null}, {null}, '[{some()}]')",
                f"INSERT INTO staff VALUES ({some()}, {some()}, {some()}, NULL)",
                f"UPDATE staff SET boss = {null}, told = '{{\"a\": {some()}}}' WHERE id = {some()}",
                f"DELETE FROM staff WHERE id = {some()}",
                f"INSERT INTO note VALUES ({some()}, {some()})",
                f"DELETE staff, note FROM staff JOIN note ON note.staff = staff.id WHERE note.id = {some()}",
                f"INSERT INTO pair VALUES ({few()}, {few()}.5)",
                f"UPDATE pair SET a = {few()}, b = {few()}.5 WHERE a = {few()} LIMIT 1",
                f"DELETE FROM pair WHERE a = {few()} LIMIT 1",
                f"INSERT INTO part VALUES ({some()}, {few()}.5, {few()})",
                f"UPDATE part SET a = {few()} WHERE id = {some()}",
            ]
        )

    def transaction(self, server: Server, database: str) -> None:
        with server.connect(database=database) as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for _ in range(self._chance.randrange(1, 6)):
                with suppress(pymysql.err.IntegrityError):
                    cursor.execute(self.statement())
            cursor.execute(self._chance.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))


PAIR = (
    "CREATE TABLE up (id INT PRIMARY KEY, name VARCHAR(9) UNIQUE, v INT)",
    "CREATE TABLE down (id INT PRIMARY KEY, up INT, CONSTRAINT refers FOREIGN KEY (up) REFERENCES up (id)"
    " ON DELETE CASCADE)",
    "INSERT INTO up VALUES (1, 'one', 1), (2, 'two', 2), (3, 'three', 3)",
    "INSERT INTO down VALUES (10, 1), (11, 1), (20, 2), (30, 3)",
)


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
@pytest.mark.parametrize(
    ("acting", "why"),
    [
        (["DELETE FROM up WHERE id = 1", "ALTER TABLE up ADD w INT"], "a statement changed"),
        (["DELETE FROM up WHERE id = 1", "ALTER TABLE down DROP FOREIGN KEY refers"], "a foreign key went"),
        (["SET foreign_key_checks = 0", "DELETE FROM up WHERE id = 2"], "foreign_key_checks = 0"),
    ],
    ids=["altered", "dropped", "unchecked"],
)
def test_what_cannot_be_told_for_certain_is_snapshotted_anew(deriving: Mirror, acting: list[str], why: str) -> None:
    deriving.execute(*PAIR)
    deriving.snapshot()
    before = lives(deriving, "up", "down")
    deriving.execute(*acting)
    with deriving.cut_off_at("recorded"):
        deriving.sync()
    assert deriving.watermark("down")["status"] == "resnapshot"
    assert why in deriving.watermark("down")["reason"]
    deriving.sync()
    deriving.assert_equal("up", "down")
    after = lives(deriving, "up", "down")
    assert after["up"] == before["up"]
    assert after["down"] != before["down"]


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_a_paused_table_cannot_catch_up_where_they_are_not_logged(
    deriving: Mirror, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_TESTS", deriving.server.uri())
    deriving.execute(*PAIR)
    deriving.snapshot()
    asked = ["--config", str(deriving.write_yaml()), "--table", f"{deriving.database}.down", "--why", "a test"]
    assert command_line.run(["table", "pause", *asked]) == 0
    deriving.execute("DELETE FROM up WHERE id = 1")
    deriving.sync()
    assert command_line.run(["table", "resume", *asked]) == 2
    assert "can't catch up: foreign key 'refers' cascades" in capsys.readouterr().err


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_what_random_statements_cascade_is_derived(deriving: Mirror) -> None:
    rows = Rows(SEED)
    deriving.execute(*RELATED)
    for _ in range(60):
        rows.transaction(deriving.server, deriving.database)
    deriving.snapshot()
    before = lives(deriving, *FAMILY)
    for _ in range(100):
        rows.transaction(deriving.server, deriving.database)
    deriving.sync_cut_off(random.Random(SEED), 0.5)
    deriving.assert_equal(*FAMILY)
    deriving.assert_each_once(*FAMILY)
    assert lives(deriving, *FAMILY) == before


@pytest.mark.parametrize("server", ["mariadb", "native"], indirect=True)
def test_what_random_statements_cascade_is_derived_without_spark(deriving: Mirror) -> None:
    rows = Rows(SEED + 1)
    deriving.options["merge"] = WAYS[0]
    deriving.execute(*RELATED)
    for _ in range(40):
        rows.transaction(deriving.server, deriving.database)
    deriving.snapshot()
    before = lives(deriving, *FAMILY)
    for turn in range(8):
        for _ in range(25):
            rows.transaction(deriving.server, deriving.database)
        with mock.patch.object(layout, "FEW_BYTES", layout.FEW_BYTES if turn % 2 else 0):  # rewritten, or marked
            sync_alone(deriving)
        deriving.assert_equal(*FAMILY)
    assert lives(deriving, *FAMILY) == before


ONE, TWO, THREE = (f"'123e4567-e89b-12d3-a456-42665544000{number}'" for number in range(3))
ODD_KEYS = (
    "CREATE TABLE twice (id INT PRIMARY KEY, a INT, b INT, FOREIGN KEY (a) REFERENCES twice (id) ON DELETE SET NULL,"
    " FOREIGN KEY (b) REFERENCES twice (id) ON DELETE SET NULL)",
    "CREATE TABLE named (id UUID PRIMARY KEY)",
    "CREATE TABLE naming (id INT PRIMARY KEY, n UUID, z DOUBLE,"
    " FOREIGN KEY (n) REFERENCES named (id) ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE bytes (id BINARY(4) PRIMARY KEY)",
    "CREATE TABLE held (id VARCHAR(9) PRIMARY KEY, `b c` BINARY(4),"
    " FOREIGN KEY (`b c`) REFERENCES bytes (id) ON DELETE SET NULL ON UPDATE CASCADE)",
    "INSERT INTO twice VALUES (1, NULL, NULL), (2, 1, 1), (3, 1, 2), (4, 2, 1)",
    f"INSERT INTO named VALUES ({ONE}), ({TWO})",
    f"INSERT INTO naming VALUES (1, {ONE}, -0e0), (2, {TWO}, -0e0), (3, NULL, 1)",
    "INSERT INTO bytes VALUES (X'01000000'), (X'02030000')",
    "INSERT INTO held VALUES ('a', X'01000000'), ('B ', X'02030000')",
)
ON_ODD_KEYS = (
    "DELETE FROM twice WHERE id = 1",
    f"DELETE FROM named WHERE id = {ONE}",
    f"UPDATE named SET id = {THREE} WHERE id = {TWO}",
    "DELETE FROM bytes WHERE id = X'01000000'",
    "UPDATE bytes SET id = X'05000000'",
)


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
@both_ways
def test_a_row_refers_twice_and_by_odd_types(deriving: Mirror, way: dict[str, int]) -> None:
    deriving.options["merge"] = way
    deriving.execute(*ODD_KEYS)
    deriving.snapshot()
    deriving.execute(*ON_ODD_KEYS)
    assert_derived(deriving, "twice", "named", "naming", "bytes", "held")


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_prepared_transactions_act_where_they_end(deriving: Mirror) -> None:
    deriving.options["merge"] = WAYS[0]
    deriving.execute(*PAIR)
    deriving.snapshot()
    deriving.execute(
        "XA START 'x'",
        "DELETE FROM up WHERE id = 1",
        "INSERT INTO up VALUES (5, 'five', 5), (6, 'six', 6)",
        "INSERT INTO down VALUES (50, 5), (51, 5), (60, 3)",
        "UPDATE down SET up = 3 WHERE id = 50",
        "DELETE FROM up WHERE id = 5",
        "UPDATE down SET up = 6 WHERE id = 60",
        "DELETE FROM up WHERE id = 6",
        "XA END 'x'",
        "XA PREPARE 'x'",
        "XA COMMIT 'x'",
    )
    deriving.execute("INSERT INTO up VALUES (1, 'new', 1)", "INSERT INTO down VALUES (10, 1), (12, 1)")
    deriving.execute(
        "XA START 'y'", "UPDATE down SET up = 2 WHERE id = 10", "DELETE FROM up WHERE id = 1", "XA END 'y'"
    )
    deriving.execute("XA START 'z'", "DELETE FROM up WHERE id = 2", "XA END 'z'", "XA PREPARE 'z'", "XA COMMIT 'z'")
    sync_alone(deriving)
    deriving.assert_equal("up", "down")


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_by_policy_they_are_snapshotted_anew_where_their_parents_rows_go(mirror: Mirror) -> None:
    mirror.options = {"policies": {"on_unlogged_cascade": "resnapshot"}}
    mirror.execute(*TABLES)
    mirror.snapshot()
    lives = {table: mirror.watermark(table)["table_id"] for table in ALL}
    mirror.execute("INSERT INTO parent VALUES (40, 3)", "UPDATE child SET p = 40 WHERE id = 300")
    mirror.sync()
    assert lives == {table: mirror.watermark(table)["table_id"] for table in ALL}
    mirror.execute(*ACTING)
    mirror.sync()
    mirror.assert_equal(*ALL)
    assert {row["status"] for row in mirror.metadata.read("watermarks")} == {"following"}
