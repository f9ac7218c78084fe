"""Each privilege of sql/grants_*.sql is needed: what its comment says fails without it, and the doctor names it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from binlake.binlog.integrity import format_description
from binlake.config import PipelineConfig
from binlake.doctor.preflight import preflight
from binlake.errors import AccessDenied
from binlake.schema.table import TableName
from binlake.source import lock_waits
from binlake.source.endpoint import Endpoint
from binlake.source.locks import LockMode
from binlake.source.read_lock import read_lock
from binlake.source.server import Source
from mirror import on_mysql
from servers import Kind, Server

SQL = Path(__file__).parents[2] / "sql"
ACCOUNT = "'binlake'@'%'"
PRIVILEGES: dict[Kind, list[str]] = {
    "mysql": ["REPLICATION SLAVE", "REPLICATION CLIENT", "FLUSH_TABLES", "XA_RECOVER_ADMIN", "SELECT", "LOCK TABLES"],
    "mariadb": ["REPLICATION SLAVE", "BINLOG MONITOR", "RELOAD", "PROCESS", "SELECT", "LOCK TABLES"],
}
SEEN_BY = {"metadata_locks", "threads"}
"""Tables of MySQL's performance_schema by which the account sees the statements of others."""


def statements(kind: Kind, database: str) -> list[str]:
    """The grants as the project gives them, for this database."""
    text = re.sub(r"^--.*", "", (SQL / f"grants_{kind}.sql").read_text(), flags=re.M).replace("`shop`", f"`{database}`")
    return [statement.strip() for statement in text.split(";") if statement.strip()]


@pytest.fixture
def account(server: Server, database: str) -> Iterator[Endpoint]:
    """What sql/grants_*.sql makes."""
    server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (7)", database=database)
    server.execute(f"CREATE USER {ACCOUNT} IDENTIFIED BY 'x'", *statements(server.kind, database))
    yield Endpoint("127.0.0.1", server.port, "binlake", "x")
    server.execute(f"DROP USER {ACCOUNT}")


def locked(source: Source, mode: LockMode, table: TableName) -> LockMode:
    """How the tables were locked after all."""
    with read_lock(source, mode, [table]) as held:
        return held.mode


Use = Callable[[Source, TableName], object]
USES: dict[str, Use] = {
    "REPLICATION SLAVE": lambda source, table: format_description(source.transport(7400), source.head()[0]),
    "REPLICATION CLIENT": lambda source, table: (source.head(), source.binary_logs()),
    "BINLOG MONITOR": lambda source, table: (source.head(), source.binary_logs()),
    "XA_RECOVER_ADMIN": lambda source, table: locked(source, "flush", table),
    "SELECT": lambda source, table: source.query(f"SELECT id FROM `{table.database}`.`{table.table}`"),
    "LOCK TABLES": lambda source, table: locked(source, "tables", table),
}


def test_the_file_grants_what_is_tried_here(server: Server, database: str) -> None:
    given = [re.match(r"GRANT (.*) ON (?!performance_schema)", text) for text in statements(server.kind, database)]
    assert [name for match in given if match for name in match[1].split(", ")] == PRIVILEGES[server.kind]
    seen = re.findall(r"GRANT SELECT ON performance_schema\.(\w+) TO", "; ".join(statements(server.kind, database)))
    assert set(seen) == (SEEN_BY if server.kind == "mysql" else set())


def test_all_of_them_are_enough(server: Server, database: str, account: Endpoint, lake: Path) -> None:
    with Source.open(account) as source:
        for privilege in set(PRIVILEGES[server.kind]) & set(USES):
            USES[privilege](source, TableName(database, "t"))
        assert locked(source, "flush", TableName(database, "t")) == "flush"
    checked = checks(account, database, lake)
    assert {text.partition(" ")[0] for ok, text in checked if ok is not True} == {
        "sync_binlog",
        "innodb_flush_log_at_trx_commit",
    }  # as our servers are


def checks(account: Endpoint, database: str, lake: Path) -> list[tuple[object, str]]:
    config = PipelineConfig.model_validate(
        {
            "source": {"name": "tests", "connection": "c", "server_id": 7400},
            "tables": {"include": [f"{database}.*"]},
            "lake": {"path": str(lake)},
        }
    )
    return [(check.ok, f"{check.name} → {check.remedy}") for check in preflight(config, account, spark_checks=False)]


@pytest.mark.parametrize("server", ["mysql", "mariadb"], indirect=True)
def test_each_is_needed(server: Server, database: str, account: Endpoint, lake: Path) -> None:
    table = TableName(database, "t")
    for privilege in PRIVILEGES[server.kind]:
        on = f"`{database}`.*" if privilege in ("SELECT", "LOCK TABLES") else "*.*"
        server.execute(f"REVOKE {privilege} ON {on} FROM {ACCOUNT}")
        with Source.open(account) as source:
            if privilege in ("FLUSH_TABLES", "RELOAD"):
                assert locked(source, "flush", table) == "tables"
            elif privilege == "PROCESS":
                assert not lock_waits.may_see(source)
            else:
                with pytest.raises(AccessDenied) as denied:
                    USES[privilege](source, table)
                assert denied.value.remedy
                assert not denied.value.retryable
        said = [text for ok, text in checks(account, database, lake) if ok is not True and f"GRANT {privilege}" in text]
        # The tables are locked one by one only where the account may not flush.
        assert said or privilege == "LOCK TABLES", f"the doctor doesn't miss {privilege}"
        server.execute(f"GRANT {privilege} ON {on} TO {ACCOUNT}")


@on_mysql
@pytest.mark.parametrize("table", sorted(SEEN_BY))
def test_the_doctor_misses_what_shows_long_statements(
    server: Server, database: str, account: Endpoint, lake: Path, table: str
) -> None:
    server.execute(f"REVOKE SELECT ON performance_schema.{table} FROM {ACCOUNT}")
    with Source.open(account) as source:
        assert not lock_waits.may_see(source)
    said = [text for ok, text in checks(account, database, lake) if ok is not True]
    assert [text for text in said if f"GRANT SELECT ON performance_schema.{table} TO" in text]


def test_an_account_that_may_lock_nothing_is_told_both_ways(server: Server, database: str, account: Endpoint) -> None:
    flush = "RELOAD" if server.kind == "mariadb" else "FLUSH_TABLES"
    server.execute(f"REVOKE {flush} ON *.* FROM {ACCOUNT}", f"REVOKE LOCK TABLES ON `{database}`.* FROM {ACCOUNT}")
    with Source.open(account) as source, pytest.raises(AccessDenied, match="neither the server nor its tables") as said:
        locked(source, "flush", TableName(database, "t"))
    assert "RELOAD" in said.value.remedy
    assert "LOCK TABLES" in said.value.remedy
