"""Transactions, statements, stops and refusals of the binlog reader, on both servers."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
from pathlib import Path

import pytest

from binlake.binlog.border import Mutations, Statement, Stopped, XaEvent
from binlake.binlog.boundaries import transaction_boundaries
from binlake.binlog.integrity import format_description
from binlake.binlog.reader import read
from binlake.binlog.transport import FileTransport
from binlake.errors import CorruptEvent, PositionLost
from binlake.position import Slice
from binlake.schema.invalid import KEEP_DATES
from binlake.source.dump import ServerTransport
from binlake.source.endpoint import Endpoint
from binlog_slices import from_server, position, read_all, rows, transports, written
from servers import Server


def test_transactions_statements_and_order(server: Server, database: str) -> None:
    run = lambda *statements: server.execute(*statements, database=database)  # noqa: E731
    run("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "CREATE TABLE b (id INT, v INT, KEY (id))")
    with written(server) as made:
        run("INSERT INTO a VALUES (1, 1), (2, 2)")
        run("BEGIN", "INSERT INTO a VALUES (3, 3)", "INSERT INTO b VALUES (1, 1)", "UPDATE a SET v = 9", "COMMIT")
        run("BEGIN", "INSERT INTO a VALUES (4, 4)", "ROLLBACK")
        run("BEGIN", "INSERT INTO a VALUES (5, 5)", "SAVEPOINT s", "INSERT INTO a VALUES (6, 6)", "ROLLBACK TO s",
            "COMMIT")  # fmt: skip
        run("ALTER TABLE a ADD COLUMN w VARCHAR(5) DEFAULT 'é'")
        run("INSERT INTO a VALUES (7, 7, 'x')", "DELETE FROM a WHERE id < 3")
    for transport in transports(server).values():
        emitted = read_all(transport, made.part, database)
        kinds = [type(item).__name__ for item in emitted]
        assert kinds == ["Mutations", "Mutations", "Statement", "Mutations", "SliceSummary"]
        statement = emitted[2]
        assert isinstance(statement, Statement)
        assert statement.database == database
        assert statement.ordinal == 0
        assert "DEFAULT 'é'" in statement.text
        first, last = emitted[0], emitted[3]
        assert isinstance(first, Mutations)
        assert isinstance(last, Mutations)
        assert (first.statements_before, last.statements_before) == (0, 1)
        assert first.key == ("id",)
        assert [(r["op"], (r["after"] or r["before"])["id"]) for r in rows(emitted, "a")] == [
            (1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3), (1, 5), (1, 7), (3, 1), (3, 2),
        ]  # fmt: skip
        assert all(r["gtid"] for r in rows(emitted))
        sequence = [(r["offset"], r["row"]) for r in rows(emitted, "a")]
        assert sequence == sorted(set(sequence))
        limits = list(transaction_boundaries(transport, made.part))
        assert len(limits) == 6
        assert limits[0].start_offset == made.part.start
        assert limits[-1].end_offset == made.part.stop
        assert all(a.end_offset == b.start_offset for a, b in itertools.pairwise(limits))
        assert {r["gtid"] for r in rows(emitted)} <= {limit.gtid for limit in limits}
        assert {r["committed_us"] for r in rows(emitted)} <= {limit.committed_us for limit in limits}


def test_statements_tell_of_their_session(server: Server, database: str) -> None:
    """Every setting in a slice that begins there: nothing of an earlier statement is needed."""
    mysql = server.kind == "mysql"
    asks = {
        "SET explicit_defaults_for_timestamp = OFF": ("ADD a TIMESTAMP NULL", {"explicit_timestamps": False}),
        "SET explicit_defaults_for_timestamp = ON": ("ADD b TIMESTAMP NULL", {"explicit_timestamps": True}),
        "SET timestamp = 1577836800.123456": (
            "ADD c DATETIME(3) DEFAULT NOW(3)",
            {"began": 1577836800, "microsecond": 123456, "time_zone": "+00:00"},
        ),
        "SET time_zone = '-03:00', timestamp = 7": (
            "ADD d DATETIME DEFAULT NOW()",
            {"began": 7, "time_zone": "-03:00"},
        ),
        "SET time_zone = 'SYSTEM'": ("ADD e TIMESTAMP DEFAULT '2020-02-02 02:02:02'", {"time_zone": "SYSTEM"}),
        "SET timestamp = 9.75": ("ADD f INT", {"began": 9, **({"explicit_timestamps": None} if mysql else {})}),
    }
    server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=database)
    for setting, (clause, expected) in asks.items():
        with written(server) as made:
            server.execute(setting, f"ALTER TABLE t {clause}", database=database)
        for transport in transports(server).values():
            (statement,) = (item for item in read_all(transport, made.part, database) if isinstance(item, Statement))
            assert {name: getattr(statement.session, name) for name in expected} == expected, clause


def test_unwanted_tables_are_stepped_over(server: Server, database: str) -> None:
    server.execute("CREATE TABLE a (id INT)", "CREATE TABLE b (id INT)", database=database)
    with written(server) as made:
        server.execute("INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (1)", database=database)
    emitted = list(read(from_server(server), made.part, lambda schema, table: table == "b"))
    assert [item.name.table for item in emitted if isinstance(item, Mutations)] == ["b"]


def test_xa(server: Server, database: str) -> None:
    server.execute("CREATE TABLE a (id INT PRIMARY KEY)", database=database)
    with written(server) as made:
        for xid, number, end in (("'x','y',7", 1, "COMMIT"), ("'r'", 2, "ROLLBACK")):
            server.execute(f"XA START {xid}", f"INSERT INTO a VALUES ({number})", f"XA END {xid}", f"XA PREPARE {xid}",
                           f"XA {end} {xid}", database=database)  # fmt: skip
        server.execute("XA START 'o'", "INSERT INTO a VALUES (3)", "XA END 'o'", "XA COMMIT 'o' ONE PHASE",
                       "INSERT INTO a VALUES (4)", database=database)  # fmt: skip
    emitted = read_all(from_server(server), made.part, database)
    assert not [item for item in emitted if isinstance(item, Statement)]
    outcomes = {item.xid: item.what for item in emitted if isinstance(item, XaEvent) and item.what != "prepared"}
    prepared = [item.xid for item in emitted if isinstance(item, XaEvent) and item.what == "prepared"]
    assert sorted(prepared) == sorted(outcomes)
    seen = {row["after"]["id"]: row["xid"] for row in rows(emitted)}
    assert seen[1] == "X'78',X'79',7"
    assert seen[2] == "X'72',X'',1"
    assert seen[4] is None
    assert outcomes.pop("X'78',X'79',7") == "committed"
    assert outcomes.pop("X'72',X'',1") == "rolled back"
    # one phase: either no prepared transaction at all, or one that is committed at once
    assert outcomes == ({seen[3]: "committed"} if seen[3] else {})


def test_many_columns_and_nulls(server: Server, database: str) -> None:
    count = 1000
    names = [f"c{n}" for n in range(count)]
    server.execute(f"CREATE TABLE a ({', '.join(f'{n} SMALLINT' for n in names)})", database=database)
    values = [None if n % 3 else n for n in range(count)]
    with written(server) as made:
        server.execute(
            f"INSERT INTO a VALUES ({', '.join('NULL' if v is None else str(v) for v in values)})", database=database
        )
    assert list(rows(read_all(from_server(server), made.part, database))[0]["after"].values()) == values


def test_event_beyond_16_mib(server: Server, database: str) -> None:
    server.execute("SET GLOBAL max_allowed_packet = 134217728")
    server.execute("CREATE TABLE a (id INT, b LONGBLOB)", database=database)
    with written(server) as made:
        server.execute("INSERT INTO a VALUES (1, REPEAT('x', 40000000)), (2, 'y')", database=database)
    for transport in transports(server).values():
        got = rows(read_all(transport, made.part, database))
        assert [(r["after"]["id"], len(r["after"]["b"])) for r in got] == [(1, 40_000_000), (2, 1)]


@pytest.mark.parametrize("invalid", ["0000-00-00", "2020-00-10", "2020-02-31", "0000-05-05"])
def test_invalid_dates(server: Server, database: str, invalid: str) -> None:
    declared = "d DATE, t DATETIME(3), s TIMESTAMP(2) NULL"
    allow = "SET sql_mode='ALLOW_INVALID_DATES', time_zone='+00:00'"
    server.execute(f"CREATE TABLE a (id INT, {declared})", database=database)
    with written(server) as made:
        server.execute(
            allow,
            "INSERT INTO a VALUES (0, '2020-01-01', '2020-01-01', '2020-01-01')",
            f"INSERT INTO a VALUES (1, '{invalid}', '{invalid} 01:02:03.456', '0000-00-00')",
            database=database,
        )
        server.execute("CREATE TABLE later (id INT)", "INSERT INTO later VALUES (1)", database=database)
    text = server.execute(
        "SELECT CAST(d AS CHAR), CAST(t AS CHAR), CAST(s AS CHAR) FROM a WHERE id=1", database=database
    )
    failed = read_all(from_server(server), made.part, database)
    stops = [item for item in failed if isinstance(item, Stopped)]
    assert len(stops) == 1
    assert stops[0].name.table == "a"
    assert invalid not in stops[0].reason + stops[0].remedy
    assert [r["after"]["id"] for r in rows(failed, "a")] == [0]
    assert len(rows(failed, "later")) == 1
    kept = rows(read_all(from_server(server), made.part, database, invalid=KEEP_DATES), "a")
    after = kept[1]["after"]
    assert (after["d__text"], after["t__text"], after["s__text"]) == text[0]
    assert after["d"] is after["t"] is after["s"] is None
    assert kept[0]["after"]["d__text"] is None


@pytest.mark.parametrize(
    ("setting", "value", "remedy"),
    [("binlog_row_image", "MINIMAL", "binlog_row_image=FULL"), ("binlog_row_metadata", "MINIMAL", "metadata=FULL")],
)
def test_partial_information_stops_the_table(
    server: Server, database: str, setting: str, value: str, remedy: str
) -> None:
    server.execute("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a VALUES (1, 1)", database=database)
    with server.setting(setting, value), written(server) as made:
        server.execute("UPDATE a SET v = 2", database=database)
    stopped = [item for item in read_all(from_server(server), made.part, database) if isinstance(item, Stopped)]
    assert len(stopped) == 1
    assert remedy in stopped[0].remedy


def test_compressed_transactions(server: Server, database: str) -> None:
    server.execute("CREATE TABLE a (id INT PRIMARY KEY, v TEXT)", database=database)
    if server.kind == "mariadb":
        server.execute("SET GLOBAL log_bin_compress=ON", "SET GLOBAL log_bin_compress_min_len=10")
    on = "SET binlog_transaction_compression=ON" if server.kind == "mysql" else "SELECT 1"
    try:
        with written(server) as made:
            server.execute(on, "INSERT INTO a VALUES (1, REPEAT('ab', 5000)), (2, 'x')", "UPDATE a SET v = 'y'",
                           "DELETE FROM a", f"CREATE TABLE c (id INT) COMMENT '{'c' * 500}'",
                           database=database)  # fmt: skip
    finally:
        if server.kind == "mariadb":
            server.execute("SET GLOBAL log_bin_compress=OFF")
    for transport in transports(server).values():
        emitted = read_all(transport, made.part, database)
        assert [r["op"] for r in rows(emitted)] == [1, 1, 2, 2, 3, 3]
        assert rows(emitted)[0]["after"]["v"] == "ab" * 5000
        sequence = [(r["offset"], r["row"]) for r in rows(emitted)]
        assert sequence == sorted(set(sequence))
        assert "c" * 500 in next(item.text for item in emitted if isinstance(item, Statement))


def test_tagged_gtid(mysql_server: Server) -> None:
    server = mysql_server
    server.execute("CREATE DATABASE tg", "CREATE TABLE tg.a (id INT)")
    with written(server) as made:
        server.execute("SET gtid_next='AUTOMATIC:mytag'", "INSERT INTO tg.a VALUES (1)")
        server.execute("INSERT INTO tg.a VALUES (2)")
    tagged, plain = rows(read_all(from_server(server), made.part, "tg"))
    uuid = server.variable("server_uuid")
    assert tagged["gtid"] == f"{uuid}:mytag:1"
    assert plain["gtid"].startswith(f"{uuid}:")
    assert plain["gtid"].count(":") == 1
    assert 0 <= plain["committed_us"] - tagged["committed_us"] < 60_000_000
    assert len(str(plain["committed_us"])) == 16
    server.execute("DROP DATABASE tg")


def test_whole_files_and_their_ends(server: Server, database: str) -> None:
    server.execute("CREATE TABLE a (id INT)", database=database)
    file, _ = position(server)
    server.execute("INSERT INTO a VALUES (1)", "FLUSH BINARY LOGS", database=database)
    size = dict(row[:2] for row in server.execute("SHOW BINARY LOGS"))[file]
    for transport in transports(server).values():
        created = format_description(transport, file)
        whole = Slice(file, 4, size, created, True)
        assert len(rows(read_all(transport, whole, database))) == 1
        with pytest.raises(PositionLost, match="numbering"):
            read_all(transport, dataclasses.replace(whole, created=created - 1), database)
        last = list(transaction_boundaries(transport, whole))[-1]
        with pytest.raises(PositionLost, match="continues after"):
            read_all(transport, dataclasses.replace(whole, stop=last.end_offset), database)
        with pytest.raises(PositionLost, match="ends at"):
            read_all(transport, dataclasses.replace(whole, stop=size + 100), database)
        with pytest.raises(CorruptEvent):
            read_all(transport, dataclasses.replace(whole, stop=last.end_offset - 3), database)
        with pytest.raises((CorruptEvent, PositionLost)):
            read_all(transport, dataclasses.replace(whole, start=last.end_offset - 3), database)
        with pytest.raises(PositionLost):
            read_all(transport, dataclasses.replace(whole, file="binlog.999999"), database)


def test_damage_is_seen(server: Server, database: str, tmp_path: Path) -> None:
    server.execute("CREATE TABLE a (id INT)", "INSERT INTO a VALUES (123456)", database=database)
    file, stop = position(server)
    shutil.copy(server.datadir / file, tmp_path / file)
    data = bytearray((tmp_path / file).read_bytes())
    at = data.rindex((123456).to_bytes(4, "little"))
    data[at] ^= 1
    (tmp_path / file).write_bytes(data)
    with pytest.raises(CorruptEvent, match="checksum"):
        read_all(FileTransport(tmp_path), Slice(file, 4, stop, 0, False), database)


def test_readers_side_by_side_and_server_id_in_use(server: Server, database: str) -> None:
    server.execute("CREATE TABLE a (id INT)", "INSERT INTO a VALUES (1)", database=database)
    file, stop = position(server)
    endpoint = Endpoint("127.0.0.1", server.port, "root", "")
    parts = [Slice(file, 4, stop, 0, False)] * 2
    readers = [
        read(ServerTransport(endpoint, 77_000 + number, server.kind), part, lambda schema, table: schema == database)
        for number, part in enumerate(parts)
    ]
    results = [[next(reader) for reader in readers], [len(list(reader)) for reader in readers]]
    assert results[1][0] == results[1][1]
