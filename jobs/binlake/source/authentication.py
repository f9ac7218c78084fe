"""Authentication plugins that would send a server the password, for connections in which nothing proves the server.

A plugin such as mysql_native_password proves that the client knows the password. Others send the password itself: in
clear, inside TLS, or encrypted with a key that the server sends. Somebody in the server's place can ask for any of them
(MySQL manual, "Client-Side Cleartext Pluggable Authentication" and "Caching SHA-2 Pluggable Authentication").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pymysql import _auth

from binlake.errors import SourceError

HASHED = "mysql_native_password"
"""A plugin whose answer doesn't contain the password."""
SHA256, CACHED = "sha256_password", "caching_sha2_password"
_CLEAR = ("mysql_clear_password", "dialog", "mysql_old_password")
ALWAYS_TELLING = (*_CLEAR, SHA256)
"""Plugins that send the password in each exchange, or what is as good as it."""
_KNOWN = b"\x03"
"""The answer of caching_sha2_password to a proof that it could check; any other asks for the password itself."""


def withheld(address: str, plugin: str) -> SourceError:
    """Return the error of a server that asks for the password by a plugin, and isn't proved."""
    return SourceError(
        f"{address}: the server asks for the password itself ({plugin}), and nothing proves that it is the right one",
        remedy="name the authority of its certificate in the connection's extra, ssl.ca (binlake help servers);"
        " on a network that you trust, source.allow_cleartext: true in the YAML, or in the extra",
    )


class _Withheld:
    """Refuses a plugin. pymysql makes one for the connection, and calls it with the server's packet."""

    plugin = ""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def authenticate(self, packet: Any) -> Any:
        raise self._refusal()

    def _refusal(self) -> SourceError:
        return withheld(f"{self._connection.host}:{self._connection.port}", self.plugin)


class _Cached(_Withheld):
    """Answers caching_sha2_password by a proof, and refuses to send the password where the server wants it."""

    plugin = CACHED

    def authenticate(self, packet: Any) -> Any:
        """Return the server's next packet. Raises SourceError if it wants the password."""
        connection = self._connection
        if packet.is_auth_switch_request():
            salt = packet.read_all().removesuffix(b"\0")
            connection.write_packet(_auth.scramble_caching_sha2(connection.password, salt))
            return connection._read_packet()
        if packet._data[1:2] != _KNOWN:
            raise self._refusal()
        return connection._read_packet()


def _withholding(plugin: str) -> type[_Withheld]:
    return type("_Withheld", (_Withheld,), {"plugin": plugin})


WITHHOLDING: dict[str, Callable[[Any], Any]] = {
    CACHED: _Cached,
    **{name: _withholding(name) for name in ALWAYS_TELLING},
}
"""pymysql's handlers, by plugin, of a connection that must not send its password."""
