"""The doctor finds each thing that is wrong, and says what fixes it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from binlake.config import PipelineConfig
from binlake.doctor.check import Check, missing_grants
from binlake.doctor.preflight import preflight
from binlake.errors import ConfigurationError, ServerSettingError, TableError
from binlake.position import FIRST_OFFSET, Slice
from binlake.source.endpoint import Endpoint
from binlake.source.folder import Folder
from binlake.source.log import readers
from binlake.source.server import Source
from mirror import Mirror
from servers import Server
from virtual_columns import are_all_logged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pipeline_config(lake: Path, database: str, **options: Any) -> PipelineConfig:
    tables = {
        "include": options.pop("include", [f"{database}.*"]),
        "exclude": options.pop("exclude", []),
        "exclude_columns": options.pop("exclude_columns", []),
        "modes": options.pop("modes", []),
    }
    source = {"name": "tests", "connection": "c", "server_id": options.pop("server_id", 7300)}
    return PipelineConfig.model_validate({"source": source, "tables": tables, "lake": {"path": str(lake)}, **options})


def examine(server: Server, lake: Path, database: str, *, user: str = "root", **options: Any) -> list[Check]:
    endpoint = Endpoint("127.0.0.1", server.port, user, "s3cret" if user != "root" else "")
    return preflight(pipeline_config(lake, database, **options), endpoint, spark_checks=False)


def failing(checks: list[Check]) -> dict[str, str]:
    return {check.name: check.remedy for check in checks if check.ok is False}


def pressed(server: Server, monkeypatch: pytest.MonkeyPatch, user: str = "root:") -> tuple[bool, str]:
    """What Airflow's button for testing a connection tells."""
    from binlake_airflow.hook import BinlakeHook

    monkeypatch.setenv("AIRFLOW_CONN_TESTED", f"mysql://{user}@127.0.0.1:{server.port}/")
    return BinlakeHook("tested").test_connection()


@pytest.fixture
def tables(server: Server, database: str) -> str:
    server.execute("CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    return database


def test_a_good_server_passes(server: Server, tables: str, lake: Path) -> None:
    checks = examine(server, lake, tables)
    assert failing(checks) == {}
    assert [check for check in checks if check.name == f"table {tables}.t" and check.ok is True]


def test_it_runs_beside_others_and_beside_a_sync_that_reads_the_log(server: Server, tables: str, lake: Path) -> None:
    """Three at once, while a reader of a batch waits in the middle of its file."""
    server.execute(*["INSERT INTO t SELECT COALESCE(MAX(id), 0) + 1 FROM t"] * 3, database=tables)
    server.execute("CREATE TABLE wide (id INT PRIMARY KEY, body LONGBLOB)", database=tables)
    server.execute(*[f"INSERT INTO wide VALUES ({n}, REPEAT('x', 8000000))" for n in range(4)], database=tables)
    with Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as source:
        file, offset, _ = source.head()
        part = Slice(file, FIRST_OFFSET, offset, 0, whole=False)
        reading = readers(source, pipeline_config(lake, tables).source)[0].chunks(part)
        size = next(reading).size
        with ThreadPoolExecutor(3) as threads:
            for checks in threads.map(lambda _: examine(server, lake, tables), range(6)):
                assert failing(checks) == {}
        assert size + sum(chunk.size for chunk in reading) == offset - FIRST_OFFSET


@pytest.fixture
def changed(server: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """A global setting changed for one test."""
    variable, value = request.param
    with server.setting(variable, value):
        yield variable


@pytest.mark.parametrize(
    "changed",
    [("binlog_format", "STATEMENT"), ("binlog_row_image", "MINIMAL"), ("binlog_row_metadata", "MINIMAL")],
    indirect=True,
    ids=lambda change: change[0],
)
def test_a_wrong_setting_is_named_with_its_sql(
    server: Server, tables: str, lake: Path, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = failing(examine(server, lake, tables))
    assert list(failed) == [changed]
    assert pressed(server, monkeypatch) == (
        False, f"{changed}: {server.variable(changed)}\n  → {failed[changed]}",
    )  # fmt: skip
    server.execute(failed[changed].partition(";")[0])
    assert failing(examine(server, lake, tables)) == {}
    ready, said = pressed(server, monkeypatch)
    assert ready, said
    assert "can be mirrored\nbut sync_binlog: 0" in said
    *_, checked = said.splitlines()
    for part in ("account: root@", "binlog_row_image: FULL;", "binlog stream: readable as a replica;", "tables: "):
        assert part in checked


def test_a_log_kept_too_short(server: Server, tables: str, lake: Path) -> None:
    with server.setting("binlog_expire_logs_seconds", 3600):
        remedy = failing(examine(server, lake, tables, schedule="0 * * * *"))["retention"]
        assert "binlog_expire_logs_seconds = 604800" in remedy
        server.execute(remedy)
        assert failing(examine(server, lake, tables, schedule="0 * * * *")) == {}


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_server_without_a_log(
    kind: Any, lake: Path, monkeypatch: pytest.MonkeyPatch, new_server: type[Server]
) -> None:
    with new_server(kind, skip_log_bin=True) as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        failed = failing(examine(server, lake, "d"))
        ready, said = pressed(server, monkeypatch)
    assert "restart" in failed["log_bin"]
    assert (ready, said) == (False, f"log_bin: OFF\n  → {failed['log_bin']}")


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_log_that_leaves_something_out(
    kind: Any, lake: Path, spark: SparkSession, tmp_path: Path, new_server: type[Server]
) -> None:
    updates = "log_replica_updates" if kind == "mysql" else "log_slave_updates"
    with new_server(kind, binlog_ignore_db="hidden", **{updates: False}) as server:
        for database in ("seen", "hidden"):
            server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
        checks = {check.name: check for check in examine(server, lake, "seen")}
        assert checks["whole log"].ok == "warn"
        assert checks["sync_binlog"].ok == "warn"
        assert "restart" in failing(examine(server, lake, "hidden"))["whole log"]
        mirror = Mirror(server, "hidden", tmp_path, spark)
        with pytest.raises(TableError, match="leave out hidden"):
            mirror.snapshot()
        replica = (
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1'"
            if kind == "mysql"
            else "CHANGE MASTER TO MASTER_HOST = '127.0.0.1'"
        )
        if kind == "mariadb":
            server.execute("SET GLOBAL gtid_slave_pos = '0-9-1'")
            server.create_account("seeing", "s3cret", [f"{', '.join(GRANTS[kind])} ON *.*", "SELECT ON seen.*"])
            checks = {check.name: check for check in examine(server, lake, "seen", user="seeing")}
            assert (checks["whole log"].ok, "REPLICA MONITOR" in checks["whole log"].remedy) == ("warn", True)
        server.execute(replica)
        assert f"{updates}=ON" in failing(examine(server, lake, "seen"))["whole log"]
        mirror.database = "seen"
        with pytest.raises(ServerSettingError, match="replicates from others"):
            mirror.snapshot()


def test_a_wrong_password_is_one_clear_line(server: Server, lake: Path) -> None:
    server.create_account("wrongpw", "another")
    checks = preflight(
        pipeline_config(lake, "d"), Endpoint("127.0.0.1", server.port, "wrongpw", "s3cret"), spark_checks=False
    )
    assert "password" in failing(checks)["server"]
    assert "s3cret" not in str(checks)


GRANTS = {
    "mysql": ["REPLICATION SLAVE", "REPLICATION CLIENT", "XA_RECOVER_ADMIN", "FLUSH_TABLES"],
    "mariadb": ["REPLICATION SLAVE", "BINLOG MONITOR", "RELOAD"],
}


def test_each_missing_grant_is_named_with_its_sql(
    server: Server, tables: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = GRANTS[server.kind]
    for missing in needed:
        given = ", ".join(grant for grant in needed if grant != missing)
        server.create_account("some", "s3cret", [f"{given} ON *.*", f"SELECT ON {tables}.*"])
        checks = examine(server, lake, tables, user="some")
        said = [check for check in checks if check.ok is not True and missing in f"{check.name} {check.remedy}"]
        assert said, f"{missing} isn't missed"
        assert f"GRANT {missing} ON *.* TO `some`" in said[0].remedy
        assert said[0].remedy in pressed(server, monkeypatch, "some:s3cret")[1]
        server.execute(said[0].remedy.partition(";")[0])
        again = examine(server, lake, tables, user="some")
        assert not [check for check in again if check.ok is not True and missing in f"{check.name} {check.remedy}"]
        server.execute("DROP USER some")


def test_all_missing_grants_are_said_in_one_round(server: Server, tables: str, lake: Path) -> None:
    server.create_account("some", "s3cret", ["USAGE ON *.*"])
    grants = missing_grants(examine(server, lake, tables, user="some"))
    assert f"GRANT SELECT ON `{tables}`.* TO `some`" in "\n".join(grants).replace("\\_", "_")
    for grant in GRANTS[server.kind]:
        assert len([sql for sql in grants if f"GRANT {grant} ON *.* TO `some`" in sql]) == 1
    for sql in grants:
        server.execute(sql)
    again = examine(server, lake, tables, user="some")
    assert (failing(again), missing_grants(again)) == ({}, [])
    server.execute("DROP USER some")


def test_a_table_that_is_not_there(server: Server, tables: str, lake: Path) -> None:
    checks = examine(server, lake, tables, include=[f"{tables}.*", f"{tables}.nowhere", f"{tables}.no*re"])
    assert list(failing(checks)) == [f"table {tables}.nowhere"]
    assert f"no included table matches {tables}.no*re" in [check.found for check in checks if check.ok == "warn"]
    assert failing(examine(server, lake, tables, include=["nowhere.*"]))["tables"]
    server.execute("CREATE TABLE secret (id INT PRIMARY KEY)", database=tables)
    checks = examine(server, lake, tables, exclude=[f"{tables}.secret", f"{tables}.secrets", "mysql.*"])
    warned = [check.found for check in checks if check.name == "tables.exclude"]
    assert warned == [f"no table that the account sees matches {tables}.secrets"]


def test_excluded_and_masked_columns_that_no_table_has(server: Server, tables: str, lake: Path) -> None:
    server.execute("CREATE TABLE users (id INT PRIMARY KEY, Password VARCHAR(9), email VARCHAR(9))", database=tables)
    columns = [f"{tables}.*.password", f"{tables}.t.password", f"{tables}.users.pasword"]
    checks = examine(server, lake, tables, exclude_columns=columns, page={"mask_columns": [f"{tables}.users.e_mail"]})
    warned = [(check.name, check.found) for check in checks if check.ok == "warn" and "." in check.name]
    assert warned == [
        ("tables.exclude_columns", f"no included table has {tables}.t.password"),
        ("tables.exclude_columns", f"no included table has {tables}.users.pasword"),
        ("page.mask_columns", f"no included table has {tables}.users.e_mail"),
    ]
    assert failing(checks) == {}


def test_modes_of_tables_and_columns_that_are_not_there(server: Server, tables: str, lake: Path) -> None:
    server.execute("CREATE TABLE orders (id INT PRIMARY KEY, Status INT, seen DATETIME)", database=tables)
    history = {"track": ["status", "total*"], "except": ["seen", "updated_at"]}
    modes = [
        {"tables": f"{tables}.order", "log": {}},
        {"tables": f"{tables}.orders", "history": history},
        {"tables": f"{tables}.*", "row_metadata": ["batch"]},
    ]
    checks = examine(server, lake, tables, modes=modes)
    assert [check.found for check in checks if check.name == "tables.modes" and check.ok == "warn"] == [
        f"no included table matches {tables}.order",
        f"no table that matches {tables}.orders has a column total* (track)",
        f"no table that matches {tables}.orders has a column updated_at (except)",
    ]
    assert failing(checks) == {}


def test_a_server_id_in_use(server: Server, tables: str, lake: Path) -> None:
    own = int(server.variable("server_id"))
    assert "server_id" in failing(examine(server, lake, tables, server_id=own))["our server ids"]
    source_config = pipeline_config(lake, tables, server_id=own).source
    with Source.open(Endpoint("127.0.0.1", server.port, "root", "")) as source:
        with pytest.raises(ConfigurationError, match=f"server_id {own} is the server's own") as caught:
            readers(source, source_config)
        assert "source.server_id" in caught.value.remedy


def test_tables_that_cannot_be_mirrored(server: Server, database: str, lake: Path) -> None:
    server.execute(
        "CREATE TABLE keyed_by_date (d DATE PRIMARY KEY)",
        "CREATE TABLE clash (id INT PRIMARY KEY, d DATE, d__text INT)",
        "CREATE TABLE clash_of_bytes (v VARCHAR(9) CHARACTER SET utf8mb4 PRIMARY KEY, v__bytes INT)",
        "CREATE TABLE no_key (id INT)",
        "CREATE TABLE old (id INT PRIMARY KEY) ENGINE=MyISAM",
        database=database,
    )
    checks = examine(server, lake, database, invalid_dates="keep_text", invalid_text="keep_bytes")
    assert set(failing(checks)) == {f"table {database}.{name}" for name in ("keyed_by_date", "clash", "clash_of_bytes")}
    warned = {check.name: check.found for check in checks if check.ok == "warn"}
    assert "no key" in warned[f"table {database}.no_key"]
    assert "MyISAM" in warned[f"table {database}.old"]


def test_sequences_and_versioned_tables_are_taken(mariadb_server: Server, lake: Path) -> None:
    mariadb_server.execute(
        "CREATE OR REPLACE DATABASE odd",
        "CREATE SEQUENCE odd.s",
        "CREATE TABLE odd.v (id INT PRIMARY KEY) WITH SYSTEM VERSIONING",
        "CREATE TABLE odd.by_transaction (id INT PRIMARY KEY, s BIGINT UNSIGNED AS ROW START,"
        " e BIGINT UNSIGNED AS ROW END, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING",
    )
    checks = {check.name: check for check in examine(mariadb_server, lake, "odd")}
    assert [checks[f"table odd.{name}"].ok for name in ("s", "v", "by_transaction")] == [True, True, False]
    assert "logged as statements" in checks["table odd.by_transaction"].found
    mariadb_server.execute("DROP DATABASE odd")


def test_columns_that_the_log_does_not_tell(server: Server, tables: str, lake: Path) -> None:
    server.execute("ALTER TABLE t ADD ts TIMESTAMP NULL, ADD v DATE AS (DATE(ts)) VIRTUAL", database=tables)
    warned = {check.name: check.found for check in examine(server, lake, tables) if check.ok == "warn"}
    why = "its expression shows the TIMESTAMP 'ts'" if are_all_logged(server) else "MariaDB 11.5 and newer leave"
    assert f"'v' isn't mirrored: {why}" in warned[f"table {tables}.t"]
    failed = failing(examine(server, lake, tables, policies={"on_untold_column": "stop"}))
    assert "STORED" in failed[f"table {tables}.t"]


def test_cascades_that_are_not_logged(server: Server, database: str, lake: Path) -> None:
    server.execute(
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
        database=database,
    )
    refused = f"table {database}.c" in failing(examine(server, lake, database))
    assert refused == (server.kind == "mariadb")


def test_a_setting_of_sparks_that_is_not_to_be_chosen(lake: Path) -> None:
    config = pipeline_config(lake, "d", spark={"conf": {"spark.task.maxFailures": 4}})
    checks = preflight(config, Folder(lake), spark_checks=False)
    assert "spark.conf" in failing(checks)["Spark settings"]


def test_an_unwritable_lake(server: Server, tables: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "writable" in failing(examine(server, tmp_path / "file", tables))["lake"]


@pytest.mark.parametrize(("up", "ok"), [(True, True), (False, "warn")])
def test_a_metastore_that_is_down_is_a_warning(lake: Path, up: bool, ok: bool | str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"thrift://127.0.0.1:{listening.getsockname()[1]}"
        if not up:
            listening.close()
        config = pipeline_config(lake, "none", catalog={"metastore": address})
        checks = preflight(config, Folder(lake / "no logs"), spark_checks=False)
    (check,) = [check for check in checks if check.name == "catalog spark_catalog"]
    assert check.ok == ok
    assert address in check.found


def test_a_table_that_the_server_itself_cannot_read_is_named(server: Server, database: str, lake: Path) -> None:
    server.execute(
        "CREATE TABLE part (id INT PRIMARY KEY) ENGINE = MyISAM",
        "CREATE TABLE whole (id INT PRIMARY KEY) ENGINE = MERGE UNION = (part)",
        "DROP TABLE part",
        database=database,
    )
    (check,) = [check for check in examine(server, lake, database) if "Unable to open underlying table" in check.found]
    assert (check.name, check.ok) == (f"table {database}.whole", False)
    assert f"exclude: [{database}.whole]" in check.remedy.replace('"', "")
