"""Compressed transactions are read in pieces: where a piece ends can't be seen in what comes out."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from binlake.binlog import payload
from binlake.binlog.border import Mutations
from binlake.errors import Malformed
from binlog_slices import from_server, read_all, rows, written
from servers import Server


@pytest.mark.parametrize("piece", [1, 300, 20_000])
def test_a_transaction_of_many_pieces(mysql_server: Server, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    server = mysql_server
    server.execute("CREATE DATABASE pieces", "CREATE TABLE pieces.a (id INT PRIMARY KEY, v TEXT)",
                   "CREATE TABLE pieces.b (id INT)", "CREATE TABLE pieces.unwanted (id INT)")  # fmt: skip
    try:
        with written(server) as made:
            server.execute(
                "SET binlog_transaction_compression=ON",
                "SET SESSION cte_max_recursion_depth = 5000",
                "INSERT INTO pieces.a WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 2000)"
                " SELECT n, REPEAT(CHAR(97 + n % 26), n % 300) FROM s",
                "BEGIN",
                "UPDATE pieces.a SET v = CONCAT(v, '!') WHERE id <= 500",
                "INSERT INTO pieces.b SELECT id FROM pieces.a WHERE id <= 700",
                "INSERT INTO pieces.unwanted SELECT id FROM pieces.a",
                "DELETE FROM pieces.a WHERE id > 1500",
                "COMMIT",
            )
        whole = rows(read_all(from_server(server), made.part, "pieces"))
        monkeypatch.setattr(payload, "PIECE", piece)
        emitted = read_all(from_server(server), made.part, "pieces")
    finally:
        server.execute("DROP DATABASE pieces")
    order = lambda row: (row["offset"], row["row"])  # noqa: E731
    assert sorted(rows(emitted), key=order) == sorted(whole, key=order)
    assert len({order(row) for row in whole}) == len(whole) == 2000 + 500 + 700 + 2000 + 500
    texts = {row["after"]["id"]: row["after"]["v"] for row in rows(emitted, "a") if row["op"] == 2}
    assert texts == {n: chr(97 + n % 26) * (n % 300) + "!" for n in range(1, 501)}
    assert {item.name.table for item in emitted if isinstance(item, Mutations)} == {"a", "b", "unwanted"}


def _body(data: bytes, promised: int, algorithm: int = 0) -> bytes:
    compressed = pa.compress(data, "zstd", asbytes=True) if algorithm == 0 else data
    fields = b""
    for kind, value in ((1, len(compressed)), (2, algorithm), (3, promised)):
        packed = bytes([value]) if value < 251 else b"\xfe" + struct.pack("<Q", value)
        fields += bytes([kind, len(packed)]) + packed
    return fields + b"\0" + compressed


def _event(size: int) -> bytes:
    return struct.pack("<IBIIIH", 0, 3, 1, size, 0, 0) + bytes(size - 19)


EVENTS = _event(19) + _event(5000) + _event(40)


@pytest.mark.parametrize("algorithm", [0, 255])
@pytest.mark.parametrize("piece", [1, 19, 64, 4096, 1 << 20])
def test_pieces_hold_whole_events(monkeypatch: pytest.MonkeyPatch, piece: int, algorithm: int) -> None:
    monkeypatch.setattr(payload, "PIECE", piece)
    body = pa.py_buffer(_body(EVENTS, len(EVENTS), algorithm))
    pieces = [buffer[:size].tobytes() for buffer, size in payload.pieces(body)]
    assert b"".join(pieces) == EVENTS
    assert all(piece in (EVENTS, EVENTS[:19], EVENTS[19:], EVENTS[19:5019], EVENTS[5019:], EVENTS[:5019])
               for piece in pieces)  # fmt: skip
    assert len(pieces) > 1 or piece > 4096


@pytest.mark.parametrize(
    "body",
    [
        _body(EVENTS, len(EVENTS) + 1),
        _body(EVENTS, len(EVENTS) - 1),
        _body(EVENTS, 0),
        _body(EVENTS[:-1], len(EVENTS) - 1),
        _body(EVENTS[:-30], len(EVENTS) - 30),
        _body(_event(19) + bytes(30), 49),
        _body(EVENTS, len(EVENTS))[:-5],
        _body(EVENTS, len(EVENTS))[:-5] + b"xxxxx",
        _body(EVENTS, len(EVENTS), 7),
        b"",
        b"\1",
    ],
)
def test_damaged_payloads(body: bytes) -> None:
    with pytest.raises(Malformed):
        payload.uncompressed(body)


def test_a_payload_promising_much_takes_little() -> None:
    """What is promised isn't allocated before it has come."""
    with pytest.raises(Malformed, match="promised"):
        payload.uncompressed(_body(EVENTS, 1 << 60))
