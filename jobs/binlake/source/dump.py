"""A server's log as its replicas read it: the binlog dump of the client/server protocol, by file and offset."""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pymysql

from binlake.binlog.events import ARTIFICIAL, HEADER, HEADER_SIZE, EventType, is_in_no_file
from binlake.binlog.transport import CHUNK_SIZE, LOST_REMEDY, LogChunk, ends_early, has_more_log, reaches_beyond
from binlake.errors import ConnectionFailed, CorruptEvent, PositionLost, ServerIdInUse, SourceError
from binlake.kernels.layouts import MORE, ROOM, SLACK
from binlake.position import FIRST_OFFSET, Flavour, Slice
from binlake.source import connection, driver, error_numbers
from binlake.source.endpoint import Endpoint
from binlake.source.file_sizes import size_of

_RECEIVE = 4 << 20
"""Size in bytes of the buffer between socket and chunks."""
HEARTBEAT = 5
"""Seconds between the server's heartbeats while it has nothing to send."""
STALLED = 60
"""Seconds without a byte after which the connection counts as lost."""
_HEARTBEATS = (EventType.HEARTBEAT, EventType.HEARTBEAT_V2)
PAUSED = 600
"""Seconds for which the server waits while the data that it sent are decoded and written."""


@dataclass(frozen=True)
class ServerTransport:
    """Transport that reads as a replica: COM_REGISTER_SLAVE and COM_BINLOG_DUMP of the client/server protocol.

    server_id: the replica's own; no other replica or reader may have it. With 0 the reader is no replica, like
    mysqlbinlog: it isn't listed, and doesn't end another's dump (com_binlog_dump in the servers' sql/rpl_source.cc and
    sql/sql_parse.cc). name: the name under which the server lists the replica.
    """

    endpoint: Endpoint
    server_id: int
    flavour: Flavour
    name: str = "binlake"

    def chunks(self, part: Slice) -> Iterator[LogChunk]:
        """Yield the slice's events in chunks, by a dump of its own. Raises SourceError."""
        with self.failing(part), self.dump(part) as dump:
            yield from dump.chunks(part)

    def dump(self, part: Slice, *, blocks: bool = False) -> Dump:
        """Begin a dump at a slice's start. blocks: at the log's end it waits for more, and can be read on there.

        Raises pymysql's errors, OSError and SourceError.
        """
        session = connection.connect(self.endpoint, read_timeout=STALLED, program_name="binlake")
        try:
            return Dump(session, self, part, blocks=blocks)
        except BaseException:
            session._force_close()  # type: ignore[attr-defined]
            raise

    @contextmanager
    def failing(self, part: Slice) -> Iterator[None]:
        """Turn the errors of a dump into those of binlake's tree."""
        try:
            yield
        except pymysql.err.MySQLError as error:
            raise translate(error, self.endpoint, part) from None
        except OSError as error:
            raise ConnectionFailed(
                f"{self.endpoint.address}: {type(error).__name__} while reading {part.file}",
                remedy="check that the server runs, then run again",
            ) from None

    def ended(self, part: Slice, offset: int) -> SourceError:
        """Return why a dump ended before the slice's end. On MariaDB a shutdown looks like the file's end."""
        with connection.connect(self.endpoint, read_timeout=STALLED) as session, session.cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            sizes = {name: size_of(int(size), *encrypted[:1]) for name, size, *encrypted in cursor.fetchall()}
        if sizes.get(part.file, 0) < part.stop:
            return ends_early(part.file, offset, part.stop)
        return ConnectionFailed(
            f"{self.endpoint.address}: the server ended the stream at {part.file}:{offset}, before the file's end",
            remedy="check that the server isn't being stopped, then run again",
        )


_OTHER_SERVER = "check that the connection leads to the MySQL or MariaDB server itself, and then the server"
_FREE_IDS = "give this source a free range of server ids (source.server_id in the YAML), then run again"


def translate(error: pymysql.err.MySQLError, where: Endpoint, part: Slice) -> SourceError:
    """Return the error of binlake's tree for the server's refusal of a dump."""
    code = error_numbers.number_of(error)
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    if code in error_numbers.LOG_REFUSED:
        if "same server" in text:
            return ServerIdInUse(f"{where.address}: {text}", remedy=_FREE_IDS)
        return PositionLost(f"{where.address}: {part.file}:{part.start}: {text}", remedy=LOST_REMEDY)
    if code == error_numbers.SLAVE_SAME_ID:
        return ServerIdInUse(f"{where.address}: {text}", remedy=_FREE_IDS)
    if code in error_numbers.KILLED:
        return ServerIdInUse(
            f"{where.address}: {text}",
            remedy="the connection was killed: check that no other replica has our server ids, then run again",
        )
    return connection.translate(error, where)


class Dump:
    """One running COM_BINLOG_DUMP. It ends by hanging up.

    file, offset: the place that it has reached, in bytes; None for a file whose name isn't known.
    """

    def __init__(self, session: Any, transport: ServerTransport, part: Slice, *, blocks: bool) -> None:
        self.file: str | None = part.file
        self._session = session
        self._transport = transport
        self._where = transport.endpoint.address
        self._blocks = blocks
        self._described = b""  # the format description event of the file
        mariadb = transport.flavour == "mariadb"
        with session.cursor() as cursor:
            # The server may only send checksums to a replica that has said to know them.
            cursor.execute("SET @master_binlog_checksum='CRC32', @source_binlog_checksum='CRC32'")
            period = HEARTBEAT * 1_000_000_000
            cursor.execute(f"SET @master_heartbeat_period={period}, @source_heartbeat_period={period}")
            cursor.execute(f"SET net_write_timeout={PAUSED}")
            if mariadb:
                cursor.execute("SET @mariadb_slave_capability=4")
            else:
                # A server ends the dump of an elder replica with the same uuid; without one, with the same server_id.
                name = str(uuid.uuid4())
                cursor.execute(f"SET @slave_uuid='{name}', @replica_uuid='{name}'")
        self._socket: socket.socket = session._sock
        if transport.server_id:
            self._register(session, transport.server_id, transport.name.encode())
        non_block, annotate = 1, 2
        flags = (0 if blocks else non_block) | (annotate if mariadb else 0)
        start = max(part.start, FIRST_OFFSET)
        # The command has 32 bits for the offset: beyond 4 GiB the file is read from its beginning, and stepped over.
        self.offset = start if start < 1 << 32 else FIRST_OFFSET
        head = struct.pack("<BIHI", 0x12, self.offset, flags, transport.server_id)
        self._command(session, head + part.file.encode())
        self._buffer = np.empty(_RECEIVE, np.uint8)
        self._at = self._end = 0  # the bytes received and not yet taken
        self._counts = np.zeros(2, np.int64)  # the bytes that framing took and gave

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up, which ends the dump on the server."""
        self._session._force_close()

    def _register(self, session: Any, server_id: int, name: bytes) -> None:
        body = struct.pack("<BIB", 0x15, server_id, len(name)) + name + b"\0\0" + struct.pack("<HII", 0, 0, 0)
        self._command(session, body)
        session._read_ok_packet()

    def _command(self, session: Any, body: bytes) -> None:
        session._next_seq_id = 0
        session.write_packet(body)

    # packets -------------------------------------------------------------------------------------------------------
    def _more(self, needed: int = 0) -> None:
        """Receive at least a byte, with room for ``needed`` bytes in all. Raises ConnectionFailed."""
        if self._at:
            left = self._end - self._at
            self._buffer[:left] = self._buffer[self._at : self._end].copy()
            self._at, self._end = 0, left
        if needed > len(self._buffer):
            larger = np.empty(needed, np.uint8)
            larger[: self._end] = self._buffer[: self._end]
            self._buffer = larger
        self._socket.settimeout(STALLED)
        got = self._socket.recv_into(self._buffer.data[self._end :])
        if not got:
            raise ConnectionFailed(
                f"{self._where}: the server closed the connection while sending the log",
                remedy="check the server's error log, then run again",
            )
        self._end += got

    def _packet(self) -> bytes:
        """Return the next packet, joined from parts of 16 MiB. Raises ConnectionFailed and CorruptEvent."""
        pieces: list[bytes] = []
        while True:
            if sum(map(len, pieces)) > driver.LARGEST_PACKET:
                what = f"an event of more than {driver.LARGEST_PACKET:,} bytes, which no server sends"
                raise CorruptEvent(what, file=self.file or "", offset=self.offset, remedy=_OTHER_SERVER)
            while self._end - self._at < 4:
                self._more()
            size = int.from_bytes(self._buffer[self._at : self._at + 3].tobytes(), "little")
            while self._end - self._at < 4 + size:
                self._more(4 + size)
            pieces.append(self._buffer[self._at + 4 : self._at + 4 + size].tobytes())
            self._at += 4 + size
            if size < 0xFFFFFF:
                return b"".join(pieces) if len(pieces) > 1 else pieces[0]

    def _event(self) -> bytes | None:
        """Return the next event; None at the end of the log (EOF of a dump that doesn't block)."""
        packet = self._packet()
        if packet[:1] == b"\0":
            return packet[1:]
        if packet[:1] == b"\xfe" and len(packet) < 9:
            return None
        if packet[:1] == b"\xff":
            pymysql.err.raise_mysql_exception(packet)
        raise ConnectionFailed(f"{self._where}: a packet that isn't one", remedy="run again")

    # events --------------------------------------------------------------------------------------------------------
    def chunks(self, part: Slice) -> Iterator[LogChunk]:
        """Yield the chunks of a slice, as a transport does. The slice begins at the dump's place or behind it."""
        target = np.empty(CHUNK_SIZE + SLACK, np.uint8)
        held = 0  # bytes in target
        if self._described:
            yield LogChunk.of(FIRST_OFFSET, self._described)
        heard = time.monotonic()
        while not self._described or self.offset < part.stop or part.whole:
            if self._described and part.start <= self.offset < part.stop:
                status, given = self._unpack(target, held, part.stop - self.offset)
                self.offset += given
                held += given
                heard = time.monotonic() if given else heard
                if status == ROOM and held:
                    yield LogChunk(self.offset - held, target, held)
                    held = 0
                    continue
                if self.offset >= part.stop:
                    continue
                if status == MORE:
                    self._more(int(self._size_ahead()))
                    continue
                # everything else goes the slow way
            # An error may come behind it, which a reader of a part needn't see. One that continues a kept dump begins
            # another where the first thing that it gets is the error.
            if held and not self._blocks:
                yield LogChunk(self.offset - held, target, held)
                held = 0
            event = self._event()
            if event is None:
                self._refuse_early_end(part)
                break
            kind, size, made_up = self._header(event, part)
            if kind == EventType.FORMAT_DESCRIPTION and not self._described:
                self._describe(event, size)
                yield LogChunk.of(FIRST_OFFSET, event)
                continue
            if made_up:
                if self._leaves_file(kind, part):
                    break
                self._refuse_silence(kind, heard)
                continue
            self._prove_place(part, size)
            if held:
                yield LogChunk(self.offset - held, target, held)
                held = 0
            self.offset += size
            heard = time.monotonic()
            if self.offset > part.start:
                yield LogChunk.of(self.offset - size, event)
        if held:
            yield LogChunk(self.offset - held, target, held)

    def _describe(self, event: bytes, size: int) -> None:
        """Keep the file's format description event, of ``size`` bytes in the file, and step over it at its place."""
        self._described = event
        if self.offset == FIRST_OFFSET:
            self.offset += size

    def _refuse_early_end(self, part: Slice) -> None:
        """Raise SourceError where the dump ended in front of the slice's stop."""
        if self.offset < part.stop:
            raise self._transport.ended(part, self.offset)

    def _leaves_file(self, kind: int, part: Slice) -> bool:
        """Return whether an event without a place announces the next file. Raises SourceError in front of the slice's
        stop."""
        if kind != EventType.ROTATE or not self._described:
            return False
        self.file = None
        if self.offset < part.stop:
            raise ends_early(part.file, self.offset, part.stop)
        return True

    def _refuse_silence(self, kind: int, heard: float) -> None:
        """Raise ConnectionFailed where a blocking dump gave only heartbeats for a while: it doesn't report the log's
        end."""
        if self._blocks and kind in _HEARTBEATS and time.monotonic() - heard > 2 * HEARTBEAT:
            raise ConnectionFailed(f"{self._where}: the log ends before what was planned", remedy="run again")

    def _unpack(self, target: Any, held: int, wanted: int) -> tuple[int, int]:
        """Copy received events to ``target`` after its first ``held`` bytes, up to ``wanted`` bytes.

        Returns the status of framing.unpack, and the bytes written."""
        from binlake.binlog import framing  # its kernels take long to import

        status = framing.unpack(
            self._buffer.ctypes.data + self._at,
            self._end - self._at,
            target.ctypes.data + held,
            len(target) - SLACK - held,
            wanted,
            self._counts,
        )
        taken, given = self._counts.tolist()
        self._at += taken
        return status, given

    def _header(self, event: bytes, part: Slice) -> tuple[int, int, bool]:
        """Return an event's type and size, and whether it is in no file. Raises CorruptEvent."""
        file, offset = part.file, self.offset
        if len(event) < HEADER_SIZE:
            raise CorruptEvent("a cut-off event", file=file, offset=offset, remedy="run again")
        _, kind, _, size, end, flags = HEADER.unpack_from(event)
        made_up = is_in_no_file(kind, end, flags)
        if kind in _HEARTBEATS:
            return kind, size, made_up
        if size != len(event):
            what = f"an event of {size} bytes came in {len(event)}"
            raise CorruptEvent(what, file=file, offset=offset, remedy="run again")
        # A file may end at a multiple of 4 GiB, where the low 32 bits of its last event's end are 0, too
        return kind, size, made_up and bool(flags & ARTIFICIAL or (offset + size) % (1 << 32))

    def _prove_place(self, part: Slice, size: int) -> None:
        """Raise an error if the next event isn't the slice's next, or reaches beyond one of its ends."""
        offset = self.offset
        if offset >= part.stop:
            raise has_more_log(part.file, part.stop)
        if offset + size > part.stop:
            raise reaches_beyond(part.file, offset, size, part.stop)
        if offset < part.start < offset + size:
            raise reaches_beyond(part.file, offset, size, part.start)

    def _size_ahead(self) -> int:
        """Return the size of the packet that is arriving, with its header; 0 if that isn't known yet."""
        if self._end - self._at < 4:
            return 0
        return 4 + int.from_bytes(self._buffer[self._at : self._at + 3].tobytes(), "little")
