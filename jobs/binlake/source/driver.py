"""pymysql's connection, with what binlake asks of it."""

from __future__ import annotations

import codecs
import ssl
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.connections import MAX_PACKET_LEN
from pymysql.constants import CR

from binlake.errors import ConnectionFailed
from binlake.source import authentication
from binlake.source.tls import unverified

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

    from binlake.source.tunnel import Channel, Tunnel

LARGEST_PACKET = (1 << 30) + (1 << 20)
"""Bytes of a packet that is read, joined from parts of 16 MiB: the servers' own limit (max_allowed_packet), and room
for the headers of an event."""


ANY_BYTES = "utf8_any_bytes"
"""A codec: UTF-8, of which bytes that aren't text are read as ``\\xNN``.

SHOW CREATE TABLE has such bytes in the default of a BINARY column on MariaDB, and SHOW PROCESSLIST in the statements of
others on both servers. pymysql would stop in the middle of the result."""


def _decoded(data: Buffer, errors: str = "strict") -> tuple[str, int]:
    return codecs.utf_8_decode(data, "backslashreplace", True)


def _codec(name: str) -> codecs.CodecInfo | None:
    return codecs.CodecInfo(codecs.utf_8_encode, _decoded, name=name) if name == ANY_BYTES else None


codecs.register(_codec)


class DriverConnection(pymysql.Connection):
    """A connection of pymysql with bounds, one kind of plugin refused, and a tunnel."""

    _joined = 0
    _channel: Channel | None = None

    def enter(self, tunnel: Tunnel | None) -> None:
        """Connect, through the tunnel if there is one. Raises ConnectionFailed where that doesn't lead there."""
        if tunnel is None:
            self.connect()
            return
        host, port = str(self.host), int(self.port)
        self._channel = tunnel.opened(host, port)
        try:
            self.connect(self._channel.socket)
        except pymysql.err.OperationalError:
            if not self._channel.said:
                raise
            raise ConnectionFailed(
                f"{host}:{port} can't be reached through {tunnel.address}: {self._channel.said}",
                remedy="check the SSH connection (binlake help access), and that ssh works from here, then run again",
            ) from None
        self._channel.answered()

    def _force_close(self) -> None:
        super()._force_close()  # type: ignore[misc]
        if self._channel is not None:
            self._channel.close()

    def _read_bytes(self, num_bytes: int) -> bytes:
        """Read a packet's header or part. Raises OperationalError where its parts are more than a server sends."""
        if num_bytes == MAX_PACKET_LEN:
            self._joined += num_bytes
            if self._joined > LARGEST_PACKET:
                self._force_close()
                text = f"a packet of more than {LARGEST_PACKET:,} bytes, which no server sends"
                raise pymysql.err.OperationalError(CR.CR_NET_PACKET_TOO_LARGE, text)
        elif num_bytes != 4:  # a header's
            self._joined = 0
        part: bytes = super()._read_bytes(num_bytes)  # type: ignore[misc]
        return part

    def _get_server_information(self) -> None:
        """Read the greeting. A plugin that would be answered with the password at once is taken for another: the server
        then asks for the account's own, which is refused by its name."""
        super()._get_server_information()  # type: ignore[misc]
        greeted: str = self._auth_plugin_name  # type: ignore[has-type]
        guarded = self._auth_plugin_map  # type: ignore[attr-defined]
        if guarded and greeted in authentication.ALWAYS_TELLING:
            self._auth_plugin_name = authentication.HASHED

    def _create_ssl_ctx(self, sslp: ssl.SSLContext | dict[str, Any]) -> ssl.SSLContext:
        """Return the given context, or an unverified one without the system's authorities, which pymysql would load."""
        return sslp if isinstance(sslp, ssl.SSLContext) else unverified()
