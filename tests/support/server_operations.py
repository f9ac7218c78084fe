"""Roles and grants, locks that others hold, and DDL."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

from operated_source import ACCOUNT, DATABASES, OperatedSource, quoted, session_that
from operations import Effect, operation

# roles and grants ----------------------------------------------------------------------------------------------------


@operation()
def a_role_is_granted_and_not_active(source: OperatedSource) -> Effect:
    database = source.random.choice(DATABASES)
    source.execute(
        "CREATE ROLE IF NOT EXISTS reader",
        f"GRANT SELECT, LOCK TABLES ON {database}.* TO reader",
        f"GRANT reader TO {ACCOUNT}",
        f"REVOKE SELECT, LOCK TABLES ON {database}.* FROM {ACCOUNT}",
    )
    yield
    source.execute("DROP ROLE reader")


@operation()
def a_role_is_granted_and_active(source: OperatedSource) -> Effect:
    database = source.random.choice(DATABASES)
    default = f"SET DEFAULT ROLE reader {'TO' if source.kind == 'mysql' else 'FOR'} {ACCOUNT}"
    source.execute(
        "CREATE ROLE IF NOT EXISTS reader",
        f"GRANT SELECT, LOCK TABLES ON {database}.* TO reader",
        f"GRANT reader TO {ACCOUNT}",
        default,
        f"REVOKE SELECT, LOCK TABLES ON {database}.* FROM {ACCOUNT}",
    )
    yield
    source.execute("DROP ROLE reader")


@operation()
def some_columns_may_be_read(source: OperatedSource) -> Effect:
    source.execute(f"REVOKE SELECT ON shop.* FROM {ACCOUNT}")
    for table in source.tables():
        if table.startswith("shop."):
            columns = [*source.columns(table)]
            some = columns if table != "shop.orders" else source.random.sample(columns, len(columns) - 1)
            source.execute(f"GRANT SELECT ({', '.join(some)}) ON {quoted(table)} TO {ACCOUNT}")
    yield


@operation()
def all_tables_but_one_may_be_read(source: OperatedSource) -> Effect:
    source.execute(f"REVOKE SELECT ON shop.* FROM {ACCOUNT}")
    tables = [table for table in source.tables() if table.startswith("shop.")]
    for table in source.random.sample(tables, len(tables) - 1):
        source.execute(f"GRANT SELECT ON {quoted(table)} TO {ACCOUNT}")
    yield


@operation("mysql")
def a_database_is_revoked_in_part(source: OperatedSource) -> Effect:
    database = source.random.choice(DATABASES)
    source.execute(
        "SET GLOBAL partial_revokes = ON",
        *(f"REVOKE SELECT ON {each}.* FROM {ACCOUNT}" for each in DATABASES),
        f"GRANT SELECT ON *.* TO {ACCOUNT}",
        f"REVOKE SELECT ON {database}.* FROM {ACCOUNT}",
    )
    yield
    source.execute(
        f"GRANT SELECT ON {database}.* TO {ACCOUNT}",
        f"REVOKE SELECT ON *.* FROM {ACCOUNT}",
        "SET GLOBAL partial_revokes = OFF",
    )


@operation()
def a_privilege_is_revoked(source: OperatedSource) -> Effect:
    ours = {
        "mysql": ["REPLICATION SLAVE", "REPLICATION CLIENT", "FLUSH_TABLES", "XA_RECOVER_ADMIN"],
        "mariadb": ["REPLICATION SLAVE", "BINLOG MONITOR", "RELOAD", "PROCESS"],
    }[source.kind]
    chosen = source.random.choice([*ours, "LOCK TABLES", "all locks"])
    if chosen == "all locks":
        source.execute(f"REVOKE {ours[2]} ON *.* FROM {ACCOUNT}")
    if chosen in ("all locks", "LOCK TABLES"):
        source.execute(*(f"REVOKE LOCK TABLES ON {each}.* FROM {ACCOUNT}" for each in DATABASES))
    else:
        source.execute(f"REVOKE {chosen} ON *.* FROM {ACCOUNT}")
    yield


@operation()
def the_password_is_another(source: OperatedSource) -> Effect:
    source.execute(f"ALTER USER {ACCOUNT} IDENTIFIED BY 'another'")
    yield
    source.execute(f"ALTER USER {ACCOUNT} IDENTIFIED BY '{source.password}'")


@operation()
def the_account_is_locked(source: OperatedSource) -> Effect:
    source.execute(f"ALTER USER {ACCOUNT} ACCOUNT LOCK")
    yield
    source.execute(f"ALTER USER {ACCOUNT} ACCOUNT UNLOCK")


@operation()
def the_account_has_few_connections(source: OperatedSource) -> Effect:
    most = source.random.randint(1, 3)
    source.execute(f"ALTER USER {ACCOUNT} WITH MAX_USER_CONNECTIONS {most}")
    yield
    source.execute(f"ALTER USER {ACCOUNT} WITH MAX_USER_CONNECTIONS 0")


# locks of others -----------------------------------------------------------------------------------------------------


def _held(source: OperatedSource, *statements: str, user: str = "root") -> Effect:
    """Hold locks in a session of another, for a moment or until the operation ends."""
    source.log += statements
    with ExitStack() as life:
        end = life.enter_context(session_that(source.server, *statements, user=user))
        timer = threading.Timer(source.random.uniform(0.2, 2), end)
        if source.random.random() < 0.7:
            source.log.append("… for a moment")
            timer.start()
            life.callback(timer.join)
        yield


@operation(stops_writes=True)
def a_table_is_locked(source: OperatedSource) -> Effect:
    table = source.random.choice(source.tables())
    yield from _held(source, f"LOCK TABLES {quoted(table)} {source.random.choice(['WRITE', 'READ'])}")


@operation(stops_writes=True)
def the_server_is_locked(source: OperatedSource) -> Effect:
    yield from _held(source, "FLUSH TABLES WITH READ LOCK")


@operation("mysql")
def a_backup_of_mysql_is_at_work(source: OperatedSource) -> Effect:
    yield from _held(source, "LOCK INSTANCE FOR BACKUP")


@operation("mariadb", stops_writes=True)
def a_backup_of_mariadb_is_at_work(source: OperatedSource) -> Effect:
    stages = ["START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT"]
    far = source.random.randint(1, 4)
    yield from _held(source, *(f"BACKUP STAGE {stage}" for stage in stages[:far]))


@operation(stops_writes=True)
def a_transaction_is_open(source: OperatedSource) -> Effect:
    table = quoted(source.random.choice(source.tables()))
    yield from _held(source, "BEGIN", f"SELECT COUNT(*) FROM {table}", f"DELETE FROM {table} WHERE id = '-1'")


@operation()
def a_long_select_reads_a_table(source: OperatedSource) -> Effect:
    table = quoted(source.random.choice(source.tables()))
    seconds = source.random.choice([1, 3])
    source.log.append(f"SELECT SLEEP({seconds}) FROM {table} LIMIT 1")

    def read() -> None:
        source.server.execute(f"SELECT SLEEP({seconds}), id FROM {table} LIMIT 1")

    thread = threading.Thread(target=read)
    thread.start()
    yield
    thread.join()


@operation(stops_writes=True)
def a_transaction_is_prepared(source: OperatedSource) -> Effect:
    name = f"'operated {source.number()}'"
    source.execute(
        f"XA START {name}",
        f"INSERT INTO shop.orders (id) VALUES ({source.number()})",
        f"INSERT INTO shop.visits (id) VALUES ({source.number()})",
        f"XA END {name}",
        f"XA PREPARE {name}",
    )
    yield
    source.execute(f"XA {source.random.choice(['COMMIT', 'ROLLBACK'])} {name}")


# DDL -----------------------------------------------------------------------------------------------------------------


def _ddl(source: OperatedSource) -> list[str]:
    number = source.number()
    name = f"c{number}"
    nested = "ABS(" * 300 + "id" + ")" * 300
    engine = source.random.choice(["InnoDB", "MyISAM"])
    drawn: list[list[str]] = [
        [f"ALTER TABLE shop.orders ADD COLUMN {name} VARCHAR(30) DEFAULT 'since'"],
        [f"ALTER TABLE shop.orders ADD COLUMN {name} INT FIRST", f"ALTER TABLE shop.orders DROP COLUMN {name}"],
        ["ALTER TABLE shop.visits MODIFY page VARCHAR(40)", "ALTER TABLE shop.visits MODIFY page VARCHAR(30)"],
        ["ALTER TABLE shop.visits MODIFY page VARBINARY(40)", "ALTER TABLE shop.visits MODIFY page VARCHAR(30)"],
        [f"ALTER TABLE crm.people CHANGE note {name} TEXT", f"ALTER TABLE crm.people CHANGE {name} note TEXT"],
        ["TRUNCATE TABLE shop.items"],
        ["ALTER TABLE shop.parts TRUNCATE PARTITION middle"],
        [f"CREATE TABLE shop.{name} (id INT PRIMARY KEY, v VARCHAR(30)) ENGINE={engine}"],
        [f"CREATE TABLE shop._orders_{name}_old LIKE shop.orders"],
        [f"CREATE TABLE shop.{name} (id INT PRIMARY KEY, _row_id_ INT, _file_name_ VARCHAR(30))"],
        [f"CREATE TABLE crm.{name} AS SELECT id, email FROM crm.people"],
        ["RENAME TABLE shop.visits TO crm.visits", "RENAME TABLE crm.visits TO shop.visits"],
        [
            "CREATE DATABASE IF NOT EXISTS other",
            f"CREATE TABLE other.{name} (id INT PRIMARY KEY, g INT AS ({nested}) VIRTUAL)",
        ],
        [f"CREATE TABLE shop.{name} (id INT PRIMARY KEY, v INT)", f"DROP TABLE shop.{name}"],
        [
            "CREATE TABLE shop.exchanged (id INT PRIMARY KEY, part VARCHAR(30))",
            "INSERT INTO shop.exchanged VALUES (0, 'x')",
            "ALTER TABLE shop.parts EXCHANGE PARTITION low WITH TABLE shop.exchanged",
            "DROP TABLE shop.exchanged",
        ],
    ]  # fmt: skip
    if source.kind == "mysql" or not source.release.startswith("10"):
        drawn[-1][2] += " WITHOUT VALIDATION"
    else:
        del drawn[-1]
    return source.random.choice(drawn)


@operation()
def tables_are_altered(source: OperatedSource) -> Effect:
    for statement in _ddl(source):
        source.execute(statement)
        if statement.startswith(("ALTER", "RENAME")) and source.random.random() < 0.5:
            source.write(2)
    yield


@operation()
def a_table_is_copied_by_hand(source: OperatedSource) -> Effect:
    """As with CREATE … LIKE, INSERT … SELECT and a swap of the names."""
    source.execute(
        "CREATE TABLE crm.copied LIKE crm.people",
        "INSERT INTO crm.copied SELECT * FROM crm.people",
        "RENAME TABLE crm.people TO crm.former, crm.copied TO crm.people",
    )
    yield
    source.execute("DROP TABLE crm.former")


# settings of sessions and of the server ------------------------------------------------------------------------------


@operation()
def a_setting_of_the_log_is_another(source: OperatedSource) -> Effect:
    settings: list[tuple[str, Any]] = [("binlog_row_image", "MINIMAL"), ("binlog_row_metadata", "MINIMAL"),
                                       ("binlog_row_image", "NOBLOB")]  # fmt: skip
    if source.kind == "mysql":
        settings += [("binlog_transaction_compression", "ON"), ("binlog_rows_query_log_events", "ON")]
    else:
        settings += [("log_bin_compress", "ON"), ("binlog_annotate_row_events", "OFF"), ("binlog_format", "MIXED")]
    name, value = source.random.choice(settings)
    before = source.server.variable(name)
    source.execute(f"SET GLOBAL {name} = {value}")
    yield
    source.execute(f"SET GLOBAL {name} = {int(before) if before.isdigit() else before}")


@operation(seen_by="verify")
def a_session_logs_nothing(source: OperatedSource) -> Effect:
    table = source.random.choice(["shop.orders", "shop.parts", "shop.visits", "shop.items"])
    source.execute("SET sql_log_bin = 0", f"DELETE FROM {quoted(table)} WHERE id % 3 = 1")
    yield
