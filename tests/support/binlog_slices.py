"""Writes statements on a test server and gives the slice of its log that they made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from binlake.binlog.border import Mutations, Stopped
from binlake.binlog.reader import Emitted, read
from binlake.binlog.transport import FileTransport, Transport
from binlake.position import Slice
from binlake.schema.datatypes import made_late
from binlake.schema.table import Column
from binlake.source.dump import ServerTransport
from binlake.source.endpoint import Endpoint
from comparison import Declared, comparable
from servers import Server

SERVER_ID = 900_001

Values = dict[int, Any]
"""By key."""
State = dict[str, Values]
"""By column."""


def position(server: Server) -> tuple[str, int]:
    """File and offset of the server's head."""
    command = "SHOW BINARY LOG STATUS" if server.kind == "mysql" else "SHOW MASTER STATUS"
    file, offset = server.execute(command)[0][:2]
    return str(file), int(offset)


class Written:
    """Filled when the block ends."""

    part: Slice


@contextmanager
def written(server: Server) -> Iterator[Written]:
    """The slice that the block writes; it stays in one file."""
    file, start = position(server)
    result = Written()
    yield result
    after, stop = position(server)
    assert after == file
    result.part = Slice(file, start, stop, 0, False)


def transports(server: Server) -> dict[str, Transport]:
    endpoint = Endpoint("127.0.0.1", server.port, "root", "")
    return {"server": ServerTransport(endpoint, SERVER_ID, server.kind), "file": FileTransport(server.datadir)}


def from_server(server: Server) -> Transport:
    return transports(server)["server"]


def read_all(transport: Transport, part: Slice, database: str, **options: Any) -> list[Emitted]:
    return list(read(transport, part, lambda schema, table: schema == database, **options))


def rows(emitted: list[Emitted], table: str | None = None) -> list[dict[str, Any]]:
    """All mutations as dictionaries, in order of the table's batches."""
    return [
        row
        for item in emitted
        if isinstance(item, Mutations) and (table is None or item.name.table == table)
        for row in item.batch.to_pylist()
    ]


def copy_of_log(server: Server, file: str) -> Path:
    return server.datadir / file


def by_column(columns: list[Declared], rows: Iterator[tuple[Any, ...]] | list[tuple[Any, ...]]) -> State:
    """Rows as comparison.py gives them, whose first column is the key."""
    state: State = {column.name: {} for column in columns}
    names = [column.name for column in columns]
    for row in rows:
        for name, value in zip(names, row, strict=True):
            state[name][row[0]] = value
    return state


def image(columns: list[Declared], emitted: list[Emitted], op: int, side: str) -> State:
    """One side of the mutations of one kind, as comparable values."""
    rows: list[tuple[Any, ...]] = []
    for item in emitted:
        assert not isinstance(item, Stopped), item.reason
        if not isinstance(item, Mutations):
            continue
        assert item.batch.validate(full=True) is None
        structs = item.batch.filter(pc.equal(item.batch.column("op"), op)).column(side)
        table = pa.Table.from_batches([pa.RecordBatch.from_struct_array(structs)])
        for place, column in enumerate(columns):
            if (stored := made_late(Column(column.name, column.type))) is not None:  # the log has their stored bytes
                texts = stored.values(table[column.name].combine_chunks())
                place = table.column_names.index(column.name)
                table = table.set_column(place, column.name, texts)
        rows += comparable(columns, table)
    return by_column(columns, rows)
