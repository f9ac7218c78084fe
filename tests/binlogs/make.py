"""Makes the logs beside it: small real files of both servers under many settings, and what they hold as JSON.

    .venv/bin/python tests/binlogs/make.py [NAME …]        (with docker/local and tests on PYTHONPATH)

The expected mutations are the server's word, not our decoder's: a plain SELECT before and after each statement.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logs import plain

import comparison
from odd_values import LENIENT, SampleTable
from servers import Kind, Server, Setting, version

HERE = Path(__file__).parent
TABLE = "f.t"
DELETE, INSERT, UPDATE = 3, 1, 2

CREATE = """CREATE TABLE t (id INT PRIMARY KEY, u BIGINT UNSIGNED, n DECIMAL(12,3), d DOUBLE, dt DATETIME(3),
  v VARCHAR(300), l VARCHAR(20) CHARACTER SET latin1, b BLOB, e ENUM('a','é'), bi BINARY(4), j JSON)"""
LONG_JSON = "JSON_OBJECT('a', REPEAT('x', 100), 'b', JSON_ARRAY(1, 2.5, 'é', NULL))"
CHANGES = (
    f"INSERT INTO t VALUES (1, 18446744073709551615, -1.5, 0.1, '2020-02-29 01:02:03.456', '€', 'ä', x'00ff', 'é',"
    f" x'0100', {LONG_JSON}), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),"
    f" (3, 0, 0, -0e0, '0001-01-01', '', '', '', 'a', '', '[]')",
    "UPDATE t SET v = 'changed', u = 7 WHERE id = 1",
    "UPDATE t SET id = 20 WHERE id = 2",
    "BEGIN",
    "INSERT INTO t (id, v) VALUES (5, REPEAT('long ', 60))",
    "UPDATE t SET d = 2.25, j = JSON_SET(j, '$.b', 2)",
    "DELETE FROM t WHERE id > 4",
    "COMMIT",
    "ALTER TABLE t ADD COLUMN w INT UNSIGNED DEFAULT 9",
    "INSERT INTO t (id) VALUES (6)",
    "DELETE FROM t WHERE id = 1",
)
ELSEWHERE = "elsewhere: "
"""Before what another session does."""
XA = (
    "INSERT INTO t (id, v) VALUES (1, 'plain')",
    "XA START 'held','branch',3; INSERT INTO t (id, v) VALUES (2, 'held'); UPDATE t SET v = 'x' WHERE id = 1; XA END "
    "'held','branch',3; XA PREPARE 'held','branch',3",
    f"{ELSEWHERE}INSERT INTO t (id, v) VALUES (3, 'between')",
    "XA COMMIT 'held','branch',3",
    "XA START 'lost'; DELETE FROM t; XA END 'lost'; XA PREPARE 'lost'; XA ROLLBACK 'lost'",
    "XA START 'one'; INSERT INTO t (id, v) VALUES (4, 'one phase'); XA END 'one'; XA COMMIT 'one' ONE PHASE",
)


@dataclass(frozen=True)
class Fixture:
    """One file. remedy: part of what a table that stops must advise; session: statements of the writing session."""

    name: str
    kind: Kind
    settings: dict[str, Setting] = field(default_factory=dict)
    session: tuple[str, ...] = ()
    changes: tuple[str, ...] = CHANGES
    create: str = CREATE
    remedy: str = ""
    dirty: bool = True


def _types(kind: Kind) -> Fixture:
    """Every sample that is short."""
    every = SampleTable.of(kind, "t", invalid_dates=True)
    short = tuple(sample for sample in every.samples if not any("REPEAT" in text for text in sample.literals))
    table = SampleTable("t", short, invalid_dates=True)
    sets = ", ".join(f"t.{name} = s.{name}" for name in table.columns)
    changes = (
        f"INSERT INTO t SELECT * FROM s WHERE id < {table.rows}",
        f"UPDATE t JOIN s ON s.id = (t.id + 1) % {table.rows} SET {sets} WHERE t.id < 4",
        "DELETE FROM t WHERE id > 6",
    )
    literals = [", ".join(table.literal(place, row) for place in range(len(short))) for row in range(table.rows)]
    declared = ", ".join(f"c{place} {sample.declared}" for place, sample in enumerate(short))
    fill = tuple(f"INSERT INTO s VALUES ({row}, {values})" for row, values in enumerate(literals))
    session = (LENIENT, "CREATE TEMPORARY TABLE s LIKE t", *fill)
    return Fixture(f"{kind}-types", kind, {}, session, changes, f"CREATE TABLE t (id INT PRIMARY KEY, {declared})")


FIXTURES = (
    _types("mysql"),
    Fixture("mysql-plain", "mysql"),
    Fixture("mysql-checksum-none", "mysql", {"binlog_checksum": "NONE"}),
    Fixture("mysql-compressed", "mysql", {"binlog_transaction_compression": True}),
    Fixture("mysql-compressed-checksum-none", "mysql",
            {"binlog_transaction_compression": True, "binlog_checksum": "NONE"}),
    Fixture("mysql-minimal", "mysql", {"binlog_row_image": "MINIMAL"}, remedy="binlog_row_image=FULL"),
    Fixture("mysql-noblob", "mysql", {"binlog_row_image": "NOBLOB"}, remedy="binlog_row_image=FULL"),
    Fixture("mysql-partial-json", "mysql", {"binlog_row_value_options": "PARTIAL_JSON"}),
    Fixture("mysql-metadata-minimal", "mysql", {"binlog_row_metadata": "MINIMAL"}, remedy="metadata=FULL"),
    Fixture("mysql-anonymous", "mysql", {"gtid_mode": False, "enforce_gtid_consistency": False}),
    Fixture("mysql-tagged", "mysql", {}, ("SET gtid_next = 'AUTOMATIC:fixture'",)),
    Fixture("mysql-rows-query", "mysql", {"binlog_rows_query_log_events": True}),
    Fixture("mysql-xa", "mysql", changes=XA, dirty=False),
    _types("mariadb"),
    Fixture("mariadb-plain", "mariadb"),
    Fixture("mariadb-checksum-none", "mariadb", {"binlog_checksum": "NONE"}),
    Fixture("mariadb-compressed", "mariadb", {"log_bin_compress": True, "log_bin_compress_min_len": 10}),
    Fixture("mariadb-compressed-checksum-none", "mariadb",
            {"log_bin_compress": True, "log_bin_compress_min_len": 10, "binlog_checksum": "NONE"}),
    Fixture("mariadb-minimal", "mariadb", {"binlog_row_image": "MINIMAL"}, remedy="binlog_row_image=FULL"),
    Fixture("mariadb-noblob", "mariadb", {"binlog_row_image": "NOBLOB"}, remedy="binlog_row_image=FULL"),
    Fixture("mariadb-metadata-minimal", "mariadb", {"binlog_row_metadata": "MINIMAL"}, remedy="metadata=FULL"),
    Fixture("mariadb-no-metadata", "mariadb", {"binlog_row_metadata": "NO_LOG"}, remedy="metadata=FULL"),
    Fixture("mariadb-without-annotation", "mariadb", {"binlog_annotate_row_events": False}),
    Fixture("mariadb-compressed-columns", "mariadb",
            create=CREATE.replace("VARCHAR(300)", "VARCHAR(300) COMPRESSED").replace("b BLOB", "b BLOB COMPRESSED")),
    Fixture("mariadb-xa", "mariadb", changes=XA, dirty=False),
)  # fmt: skip

State = dict[int, dict[str, Any]]
Mutation = tuple[int, dict[str, Any] | None, dict[str, Any] | None]


def state_of(server: Server) -> State:
    columns, rows = comparison.read_server(server, *TABLE.split("."))
    return {row[0]: {c.name: plain(value) for c, value in zip(columns, row, strict=True)} for row in rows}


def difference(before: State, after: State) -> list[Mutation]:
    """What one statement did, in the order of the key; a row that is gone while another came has moved."""
    gone, came = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    if gone and came:
        return [(UPDATE, before[old], after[new]) for old, new in zip(gone, came, strict=True)]
    changed = [key for key in sorted(before.keys() & after.keys()) if before[key] != after[key]]
    return [
        *((INSERT, None, after[key]) for key in came),
        *((UPDATE, before[key], after[key]) for key in changed),
        *((DELETE, before[key], None) for key in gone),
    ]


def make(fixture: Fixture) -> None:
    # Each statement's effect is read before its transaction ends, unless it is to be seen whole.
    isolation: Setting = "READ-UNCOMMITTED" if fixture.dirty else "READ-COMMITTED"
    mutations: list[Mutation] = []
    with Server(fixture.kind, **{"transaction_isolation": isolation, **fixture.settings}) as server:
        clock = "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)"
        begun = server.execute(clock)[0][0]
        server.execute("CREATE DATABASE f CHARACTER SET utf8mb4")
        with server.connect(database="f") as connection, connection.cursor() as cursor:
            for statement in (fixture.create, *fixture.session):
                cursor.execute(statement)
            state = state_of(server)
            for change in fixture.changes:
                before = state
                if change.startswith(ELSEWHERE):
                    server.execute(change.removeprefix(ELSEWHERE), database="f")
                else:
                    for statement in change.split("; "):
                        cursor.execute(statement)
                state = state_of(server)
                if not change.startswith("ALTER"):
                    mutations += difference(before, state)
        ended = server.execute(clock)[0][0]
        columns, _ = comparison.read_server(server, *TABLE.split("."))
        executed = "gtid_executed" if fixture.kind == "mysql" else "gtid_binlog_pos"
        expected = {
            "server": f"{fixture.kind} {version(fixture.kind)}",
            "table": TABLE,
            "committed_us": [begun, ended],
            "gtids": server.variable(executed),
            "remedy": fixture.remedy,
            "columns": {c.name: [c.type, c.unsigned, c.precision, c.scale] for c in columns},
            "mutations": mutations,
        }
        server.execute("FLUSH BINARY LOGS")
        shutil.copy(server.datadir / "binlog.000001", HERE / f"{fixture.name}.000001")
    (HERE / f"{fixture.name}.000001").chmod(0o644)
    lines = [json.dumps(mutation, ensure_ascii=False) for mutation in mutations]
    text = json.dumps({**expected, "mutations": []}, ensure_ascii=False, indent=1)
    text = text.replace('"mutations": []', '"mutations": [\n  ' + ",\n  ".join(lines) + "\n ]")
    (HERE / f"{fixture.name}.json").write_text(text + "\n")
    print(f"{fixture.name}: {(HERE / f'{fixture.name}.000001').stat().st_size} bytes, {len(mutations)} mutations")


def main() -> None:
    for fixture in FIXTURES:
        if not sys.argv[1:] or fixture.name in sys.argv[1:]:
            make(fixture)


if __name__ == "__main__":
    main()
