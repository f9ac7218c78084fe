"""The binary protocol on a connection: one command at a time, each answered before the next is read.

Only a header and a payload of names are kept in memory. The payload of PING and POLL, which should be empty (old
clients send their last answer back with POLL), is only added to the checksum. Bytes that aren't a command are answered
by an error, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import hmac
from concurrent.futures import Executor

from binlake.errors import BinlakeError
from binlake.relay import packets
from binlake.relay.clients import Client
from binlake.relay.connections import Connection
from binlake.relay.core import Relay
from binlake.relay.packets import BadPacket, Command, Header, ReplyCode
from binlake.relay.queues import Discard, TableFilter
from binlake.schema.table import TableName

IDLE_SECONDS = 600
"""Seconds after which an idle connection is closed; a packet must be complete STARTED_SECONDS after it began, and a
connection known UNPROVED_SECONDS after it was opened."""
STARTED_SECONDS = 30
MOST_IGNORED = 256 << 20
"""The most bytes of an ignored payload; beyond them the connection is closed."""
_HASH = 8


class BinaryProtocol(asyncio.Protocol):
    """The binary protocol of one connection."""

    def __init__(self, relay: Relay, secret: bytes, executor: Executor, connection: Connection) -> None:
        self._relay, self._executor, self._connection = relay, executor, connection
        self._key = packets.hash_of(secret).to_bytes(_HASH, "little")
        self._buffer = bytearray()
        self._header: Header | None = None
        self._sum = self._left = 0
        self._kept = bytearray()
        self._busy = self._full = False
        self._is_started = self._is_known = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    # asyncio.Protocol -------------------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first command, for IDLE_SECONDS."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._close_after(IDLE_SECONDS)

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the connection, with its deadline."""
        self._transport = None
        if self._timer:
            self._timer.cancel()
        self._connection.gone()

    def pause_writing(self) -> None:
        """Stop reading commands: the client doesn't read its replies."""
        self._full = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Continue with the commands that wait."""
        self._full = False
        self._go_on()

    def data_received(self, data: bytes) -> None:
        """Collect bytes, and run the commands that are complete."""
        self._buffer += data
        self._go_on()

    # packets ----------------------------------------------------------------------------------------------------------
    def _go_on(self) -> None:
        """Read the buffered bytes, up to a complete command."""
        if self._transport is None or self._busy or self._full:
            return
        try:
            while self._take():
                pass
        except BadPacket as bad:
            self._answer(packets.failure(str(bad)))
            self._end()
            return
        if self._transport is not None and not self._busy and not self._full:
            self._transport.resume_reading()
            self._wait_for_more()

    def _wait_for_more(self) -> None:
        """Wait for the rest of a packet until STARTED_SECONDS after its first byte, else for the next packet."""
        started = self._header is not None or bool(self._buffer)
        if started and self._is_started:
            return
        self._is_started = started
        self._close_after(STARTED_SECONDS if started else IDLE_SECONDS)

    def _take(self) -> bool:
        """Read a header or a part of a payload; return False if more bytes are needed. Raises BadPacket."""
        if self._busy or self._full or self._transport is None:
            return False
        if self._header is None:
            if len(self._buffer) < packets.HEADER_SIZE:
                return False
            self._begin(Header.parse(bytes(self._buffer[: packets.HEADER_SIZE])))
            del self._buffer[: packets.HEADER_SIZE]
        assert self._header is not None
        piece = self._buffer[: self._left]
        del self._buffer[: len(piece)]
        self._sum += sum(piece)
        self._left -= len(piece)
        if self._header.command in (Command.AUTHENTICATE, Command.ADD_FILTER):
            self._kept += piece
        if self._left:
            return False
        self._received(self._header)
        return True

    def _begin(self, header: Header) -> None:
        named = header.command in (Command.AUTHENTICATE, Command.ADD_FILTER)
        if header.payload_size > (packets.MOST_PAYLOAD if named else MOST_IGNORED):
            raise BadPacket(f"a payload of {header.payload_size} bytes is too large")
        self._header, self._sum, self._left = header, header.sum, header.payload_size
        self._kept.clear()

    def _received(self, header: Header) -> None:
        """Run a complete command in a thread; nothing is read meanwhile. Raises BadPacket."""
        self._header, self._is_started = None, False
        if self._sum & 0xFFFFFFFF != header.checksum:
            raise BadPacket("the checksum is wrong")
        try:
            command = Command(header.command)
        except ValueError:
            raise BadPacket(f"there is no command {header.command}") from None
        if command is Command.PING:
            self._answer(packets.reply(ReplyCode.OK, b"PONG\0"))
            return
        payload = bytes(self._kept)
        assert self._transport is not None
        self._busy = True
        self._transport.pause_reading()
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._executor, self._execute, command, header, payload)
        work.add_done_callback(self._executed)

    def _executed(self, work: asyncio.Future[tuple[bytes, bool]]) -> None:
        self._busy = False
        if self._is_known and not self._connection.is_proved:
            self._connection.prove()
        if work.cancelled():
            self._end()
            return
        if (error := work.exception()) is not None:
            answer, stays = packets.failure(f"unexpected {type(error).__name__}"), False
        else:
            answer, stays = work.result()
        self._answer(answer)
        if stays:
            self._go_on()
        else:
            self._end()

    # commands, in a thread --------------------------------------------------------------------------------------------
    def _execute(self, command: Command, header: Header, payload: bytes) -> tuple[bytes, bool]:
        """Run a command; return the reply, and whether the connection stays open."""
        try:
            if command is Command.AUTHENTICATE:
                return self._authenticate(payload)
            client = self._relay.of_token(header.client_id, header.client_token)
            if client is None and self._relay.is_displaced(header.client_id, header.client_token):
                return packets.displaced(), False
            if client is None:
                return packets.failure("authenticate first: this client and token aren't known"), False
            self._is_known = True
            if command is Command.ADD_FILTER:
                return self._add_filter(client, payload), True
            return self._poll(client, numbered=command is Command.POLLV2), True
        except BadPacket as bad:
            return packets.failure(str(bad)), False
        except BinlakeError as error:
            return packets.failure(error.message), True

    def _authenticate(self, payload: bytes) -> tuple[bytes, bool]:
        key, name = packets.authentication(payload)
        if not hmac.compare_digest(key.to_bytes(_HASH, "little"), self._key):
            return packets.failure("the secret is wrong"), False
        client = self._relay.register(name)
        self._is_known = True
        return packets.reply(ReplyCode.OK, packets.authenticated(client.id, client.token)), True

    def _add_filter(self, client: Client, payload: bytes) -> bytes:
        fields = packets.filter_fields(payload)
        if fields.discard not in Discard.__members__.values():
            raise BadPacket(f"there is no discard policy {fields.discard}")
        name = TableName(fields.database, fields.table)
        self._relay.add_filter(
            client, TableFilter(name, fields.operations, fields.queue_limit, Discard(fields.discard))
        )
        return packets.reply(ReplyCode.OK)

    def _poll(self, client: Client, *, numbered: bool) -> bytes:
        polled = self._relay.poll(client)
        if not polled.events:
            return packets.reply(ReplyCode.NOTHING)
        event = polled.events[0]
        columns = [(column.name, column.before, column.after) for column in event.columns]
        names = event.name.database, event.name.table
        body = packets.event(event.operation, event.position, polled.remaining[0], names, columns, numbered=numbered)
        return packets.reply(ReplyCode.OK, body)

    # the connection ---------------------------------------------------------------------------------------------------
    def _answer(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _end(self) -> None:
        if self._transport is not None:
            self._transport.close()
            # The last answer may wait for a client that doesn't read.
            asyncio.get_running_loop().call_later(STARTED_SECONDS, self._transport.abort)
            self._transport = None

    def _close_after(self, seconds: float) -> None:
        """Close the connection after some seconds, unless called again before."""
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._end)
