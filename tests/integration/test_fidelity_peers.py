"""The same log by other hands: mysqlbinlog -v and mysql-replication say what our decoder says."""

from __future__ import annotations

import datetime
import json
import re
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from pymysql.cursors import Cursor
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

import comparison
from binlake.binlog.border import DELETE, INSERT, UPDATE, Mutations
from binlake.position import Slice
from binlake.schema.invalid import KEEP_DATES
from binlake.schema.table import Column
from binlog_slices import SERVER_ID, State, from_server, image, read_all, written
from odd_values import LENIENT, SAMPLES, SampleTable
from servers import Server, program

SIDES = ((INSERT, "after"), (UPDATE, "before"), (UPDATE, "after"), (DELETE, "before"))


@dataclass
class Log:
    """A slice that inserts, updates and deletes samples, as our decoder reads it."""

    part: Slice
    columns: tuple[Column, ...]
    images: dict[tuple[int, str], State]


def write(server: Server, database: str, table: SampleTable) -> Log:
    sets = ", ".join(f"t.{name} = u.{name}" for name in table.columns)
    with written(server) as made:
        table.create(server, database)
        server.execute(
            LENIENT,
            f"CREATE TEMPORARY TABLE u SELECT * FROM {table.name}",
            f"UPDATE {table.name} t JOIN u ON u.id = (t.id + 1) % {table.rows} SET {sets}",
            f"DELETE FROM {table.name} WHERE id % 2",
            database=database,
        )
    declared, _ = comparison.read_server(server, database, table.name)
    emitted = read_all(from_server(server), made.part, database, invalid=KEEP_DATES)
    columns = next(item.columns for item in emitted if isinstance(item, Mutations))
    return Log(made.part, columns, {(op, side): image(declared, emitted, op, side) for op, side in SIDES})


def of_types(server: Server, wanted: Callable[[str, str], bool], *, invalid_dates: bool) -> SampleTable:
    chosen = [
        sample for sample in SAMPLES if sample.only in (None, server.kind) and wanted(sample.type, sample.declared)
    ]
    return SampleTable("t", tuple(chosen), invalid_dates)


# mysqlbinlog ---------------------------------------------------------------------------------------------------------

_SHAPES = {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"}
NOT_PRINTED = _SHAPES | {"geomcollection", "vector"}
"""``Don't know how to handle column type``, says mysqlbinlog."""
_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)")
_ESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"0": b"\0", b"a": b"\a", b"f": b"\f", b"v": b"\v"}


def unquoted(printed: bytes) -> bytes:
    assert printed[:1] == printed[-1:] == b"'", printed[:40]

    def plain(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code[1:], 16)]) if len(code) == 3 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(plain, printed[1:-1])


def printed_rows(server: Server, part: Slice) -> Iterator[tuple[int, str, list[bytes | None]]]:
    """Operation, side and values of each image that mysqlbinlog prints."""
    command = [*program("mysql", "mysqlbinlog"), "--no-defaults", "-vv", "--base64-output=DECODE-ROWS"]
    command += [f"--start-position={part.start}", f"--stop-position={part.stop}", str(server.datadir / part.file)]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    op, side, values = 0, "", list[bytes | None]()
    operations = {b"INSERT": INSERT, b"UPDATE": UPDATE, b"DELETE": DELETE}
    for line in done.stdout.split(b"\n"):
        if not line.startswith(b"### "):
            continue
        words = line[4:].split()
        if words[0].startswith(b"@"):
            value = line[line.index(b"=") + 1 : line.rindex(b" /* ")].rstrip()
            values.append(None if value == b"NULL" else value)
            continue
        if values:
            yield op, side, values
            values = []
        if words[0] in operations:
            op = operations[words[0]]
        else:
            side = "before" if words[0] == b"WHERE" else "after"
    if values:
        yield op, side, values


def from_print(cursor: Cursor, column: Column, value: bytes) -> Any:
    """A printed value in comparison.py's form; floats as the six digits that are printed."""
    kind = column.type
    if kind in ("tinyint", "smallint", "mediumint", "int", "bigint"):
        signed, _, unsigned = value.partition(b" ")
        return int(unsigned[1:-1]) if unsigned and column.unsigned else int(signed)
    if kind == "decimal":
        return Decimal(value.decode()) if (column.precision or 0) <= 38 else value.decode()
    if kind == "float":
        return value.decode()
    if kind == "double":
        return struct.pack("<d", float(value))
    if kind == "bit":
        bits = int(value[2:-1], 2)
        return bool(bits) if column.length == 1 else bits.to_bytes(((column.length or 1) + 7) // 8, "big")
    if kind == "date":
        return comparison._moment(unquoted(value).decode().replace(":", "-"))
    if kind == "datetime":
        return comparison._moment(unquoted(value).decode())
    if kind == "timestamp":
        since = Decimal(value.decode())
        if not since:
            return "0000-00-00 00:00:00" + f".{0:0{column.fraction}d}" * bool(column.fraction)
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=int(since * 1_000_000))
    if kind == "time":
        return comparison._microseconds(unquoted(value).decode())
    if kind == "year":
        return int(value) if value != b"1900" else 0  # it prints year 0 so; the type begins with 1901
    if kind == "enum":
        return ("", *column.values)[int(value)]
    if kind == "set":
        digits = value[2:-1]  # byte after byte, the lowest first
        mask = sum(int(digits[at : at + 8], 2) << at for at in range(0, len(digits), 8))
        return ",".join(name for place, name in enumerate(column.values) if mask >> place & 1)
    raw = unquoted(value)
    if kind == "json":
        return raw.decode()
    if kind == "binary":
        return raw.ljust(column.length or 0, b"\0")
    if column.charset is None:
        return raw
    converted = f"CONVERT(CONVERT(X'{raw.hex()}' USING {column.charset}) USING utf8mb4)"
    cursor.execute(f"SELECT {converted}")
    return cursor.fetchall()[0][0]


def test_mysqlbinlog_prints_the_same_values(mysql_server: Server) -> None:
    server, database = mysql_server, "printed_values"
    server.execute(f"CREATE DATABASE {database}")
    log = write(server, database, of_types(server, lambda kind, _: kind not in NOT_PRINTED, invalid_dates=True))
    seen = 0
    with server.connect() as connection, connection.cursor() as cursor:
        for op, side, values in printed_rows(server, log.part):
            assert len(values) == len(log.columns)
            key = int(values[0] or b"")
            for column, value in zip(log.columns, values, strict=True):
                ours = log.images[op, side][column.name][key]
                if column.type == "float" and ours is not None:
                    ours = f"{struct.unpack('<f', ours)[0]:g}"
                if column.type == "json" and ours is not None and ours.startswith('"'):
                    ours = json.loads(ours)  # a document that is one string is printed without its quotes
                theirs = None if value is None else from_print(cursor, column, value)
                assert ours == theirs, (column, op, side)
                seen += 1
    assert seen == sum(len(values) for state in log.images.values() for values in state.values())
    server.execute(f"DROP DATABASE {database}")


# mysql-replication ---------------------------------------------------------------------------------------------------

_READ_RIGHTLY = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "bit", "date"}
_READ_RIGHTLY |= {"datetime", "timestamp", "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum"}
_READ_RIGHTLY |= {"varbinary", "tinyblob", "blob", "mediumblob", "longblob"}


def read_rightly(kind: str, declared: str) -> bool:
    """Without what its row decoder gets wrong: YEAR, TIME, SET, BINARY, JSON's text, MariaDB's own types, and most
    character sets (Python's codecs); NULL and invalid dates it can't tell apart."""
    if "COMPRESSED" in declared or declared.startswith("JSON"):
        return False
    if kind == "mediumtext":
        return True  # latin1, which both know
    return kind in _READ_RIGHTLY and "CHARACTER SET" not in declared and "COLLATE" not in declared


def from_peer(column: Column, value: Any) -> Any:
    """mysql-replication's value in comparison.py's form."""
    kind = column.type
    if value is None:
        return None
    if kind == "decimal":
        return value if (column.precision or 0) <= 38 else format(value, "f")
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", value)
    if kind == "bit":
        bits = int(value, 2)
        return bool(bits) if column.length == 1 else bits.to_bytes(((column.length or 1) + 7) // 8, "big")
    if value == "" and column.charset is None:
        return b""
    if kind == "date":
        return datetime.datetime(value.year, value.month, value.day)
    return value


def test_mysql_replication_reads_the_same_values(server: Server, database: str) -> None:
    log = write(server, database, of_types(server, read_rightly, invalid_dates=False))
    stream = BinLogStreamReader(
        connection_settings={"unix_socket": server.socket, "host": "localhost", "user": "root", "passwd": ""},
        server_id=SERVER_ID + 1,
        log_file=log.part.file,
        log_pos=log.part.start,
        resume_stream=True,
        blocking=False,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        only_schemas=[database],
    )
    seen = 0
    try:
        for event in stream:
            for row in event.rows:
                if isinstance(event, UpdateRowsEvent):
                    sides = [(UPDATE, "before", row["before_values"]), (UPDATE, "after", row["after_values"])]
                elif isinstance(event, WriteRowsEvent):
                    sides = [(INSERT, "after", row["values"])]
                else:
                    sides = [(DELETE, "before", row["values"])]
                for op, side, values in sides:
                    for column in log.columns:
                        ours = log.images[op, side][column.name][values["id"]]
                        assert ours == from_peer(column, values[column.name]), (column, op, side)
                        seen += 1
    finally:
        stream.close()
    assert seen == sum(len(values) for state in log.images.values() for values in state.values())


@pytest.mark.parametrize("kind", sorted(_READ_RIGHTLY))
def test_the_peer_is_asked_about_each_type_it_reads(kind: str) -> None:
    assert any(read_rightly(sample.type, sample.declared) for sample in SAMPLES if sample.type == kind)
