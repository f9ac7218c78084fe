"""A binlog file of our own, in others' hands: mysqlbinlog reads it, a fresh server that applies it equals the source.

MySQL applies what ``mysqlbinlog`` prints, MariaDB takes the file as a replica's relay log.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import comparison
from applied import AS_REPLICA, apply_as_relay_log, apply_by_mysqlbinlog
from binlake.binlog.reader import Emitted, read
from binlake.binlog.transport import FileTransport
from binlake.schema.invalid import KEEP_ALL
from binlog_slices import written
from odd_values import LENIENT, SampleTable
from servers import KINDS, Server, program
from written_again import written_again

DATABASE = "anew"

CHANGES = """
CREATE TABLE parents (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(40) NOT NULL DEFAULT 'é');
CREATE TABLE bare (a INT, b TEXT CHARACTER SET latin1, c CHAR(3) CHARACTER SET cp1251, e VARCHAR(9) CHARACTER SET sjis);
INSERT INTO bare VALUES (1, 'ä€', 'жщэ', '日本'), (1, 'ä€', 'жщэ', '日本'), (NULL, NULL, NULL, NULL);
BEGIN; INSERT INTO parents VALUES (1, 'one'), (2, 'two'); UPDATE bare SET a = a + 1 LIMIT 2; DELETE FROM parents WHERE
id = 1; INSERT INTO parents VALUES (9, 'nine'); UPDATE parents SET id = id + 100; COMMIT;
ALTER TABLE parents ADD COLUMN born DATETIME(3) NOT NULL DEFAULT '2020-01-01', MODIFY name VARCHAR(300);
INSERT INTO parents (name) VALUES (REPEAT('x', 300)), (NULL);
RENAME TABLE parents TO elders; CREATE TABLE parents LIKE elders;
INSERT INTO parents SELECT * FROM elders; TRUNCATE TABLE elders;
SET sql_mode = 'ANSI_QUOTES'; CREATE TABLE "odd ""name" ("a`b" INT PRIMARY KEY, e ENUM('ä','b') CHARACTER SET latin1);
INSERT INTO "odd ""name" VALUES (1, 'ä'), (2, NULL); SET sql_mode = DEFAULT;
DROP TABLE bare
"""


def everything(server: Server, samples: SampleTable) -> list[Emitted]:
    """What the statements logged, as our reader tells it."""
    columns = ", ".join(samples.columns)
    with written(server) as made:
        server.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        samples.create(server, DATABASE)
        server.execute(
            LENIENT,
            f"INSERT INTO samples SELECT id + 1000, {columns} FROM samples",
            f"INSERT INTO samples SELECT id + 2000, {columns} FROM samples WHERE id < 1000",
            "UPDATE samples a JOIN samples b ON b.id = (a.id - 999) SET "
            + ", ".join(f"a.{name} = b.{name}" for name in samples.columns)
            + " WHERE a.id BETWEEN 1000 AND 1999",
            "DELETE FROM samples WHERE id >= 2000",
            *(change.strip() for change in CHANGES.split(";")),
            database=DATABASE,
        )
    return list(read(FileTransport(server.datadir), made.part, lambda *_: True, invalid=KEEP_ALL))


@pytest.fixture(scope="module", params=KINDS)
def source(request: pytest.FixtureRequest, new_server: type[Server]) -> Iterator[Server]:
    with new_server(request.param) as running:
        yield running


@pytest.fixture(scope="module")
def file(source: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    emitted = everything(source, SampleTable.of(source.kind, "samples", invalid_dates=True))
    path = tmp_path_factory.mktemp("binlog") / "binlog.000001"
    path.write_bytes(written_again(emitted, source.kind))
    return path


def tables(server: Server) -> list[str]:
    asked = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{DATABASE}' ORDER BY 1"
    return [row[0] for row in server.execute(asked)]


def contents(server: Server, table: str) -> tuple[list[comparison.Declared], Counter[comparison.Row]]:
    columns, rows = comparison.read_server(server, DATABASE, table)
    return columns, Counter(rows)


def test_a_server_that_applies_it_equals_the_source(source: Server, file: Path) -> None:
    with Server(source.kind, server_id=2, **AS_REPLICA[source.kind]) as target:
        apply = apply_by_mysqlbinlog if source.kind == "mysql" else apply_as_relay_log
        apply(target, file)
        assert tables(target) == tables(source) == ["elders", 'odd "name', "parents", "samples"]
        for table in tables(source):
            assert contents(target, table) == contents(source, table)
        if source.kind == "mysql":  # applied again it changes nothing: its GTIDs are known
            apply(target, file)
            assert contents(target, "parents") == contents(source, "parents")


def test_mysqlbinlog_prints_its_rows_and_shapes(mysql_server: Server, tmp_path: Path) -> None:
    with written(mysql_server) as made:
        mysql_server.execute(
            "DROP DATABASE IF EXISTS printed", "CREATE DATABASE printed",
            "CREATE TABLE printed.t (id INT UNSIGNED PRIMARY KEY, e ENUM('a', 'ä') CHARACTER SET latin1,"
            " d DECIMAL(5,2))",
            "INSERT INTO printed.t VALUES (1, 'ä', -1.5)", "UPDATE printed.t SET d = NULL", "DELETE FROM printed.t",
        )  # fmt: skip
    file = tmp_path / "binlog.000001"
    file.write_bytes(written_again(read(FileTransport(mysql_server.datadir), made.part, lambda *_: True), "mysql"))
    command = [*program("mysql", "mysqlbinlog"), "--no-defaults", "--verify-binlog-checksum", "-v"]
    command += ["--base64-output=DECODE-ROWS", "--print-table-metadata", str(file)]
    printed = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout.decode("latin-1")
    rows = [line[4:] for line in printed.splitlines() if line.startswith("### ")]
    assert rows == [
        "INSERT INTO `printed`.`t`", "SET", "  @1=1", "  @2=2", "  @3=-1.50",
        "UPDATE `printed`.`t`", "WHERE", "  @1=1", "  @2=2", "  @3=-1.50", "SET", "  @1=1", "  @2=2", "  @3=NULL",
        "DELETE FROM `printed`.`t`", "WHERE", "  @1=1", "  @2=2", "  @3=NULL",
    ]  # fmt: skip
    assert "# Columns(`id` INT UNSIGNED NOT NULL," in printed
    assert "`e` ENUM('a', 'ä') CHARSET latin1 COLLATE latin1_swedish_ci" in printed
    assert "# Primary Key(id)" in printed
