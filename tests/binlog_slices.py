"""Writes statements on a test server and gives the slice of its log that they made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from binlake.binlog.border import Mutations
from binlake.binlog.reader import Emitted, read
from binlake.binlog.transport import FileTransport, ServerTransport, Transport
from binlake.position import Slice
from binlake.source.connection import Endpoint
from servers import Server

SERVER_ID = 900_001


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
        for one in emitted
        if isinstance(one, Mutations) and (table is None or one.name.table == table)
        for row in one.batch.to_pylist()
    ]


def copy_of_log(server: Server, file: str) -> Path:
    return server.datadir / file
