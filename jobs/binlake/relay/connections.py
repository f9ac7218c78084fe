"""The open connections of a port: how many there may be, and until when each has to prove who it is."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

MOST_CONNECTIONS = 500
MOST_UNPROVED = 100
"""The most connections that haven't shown a secret, a token or a key yet."""
UNPROVED_SECONDS = 30
"""Seconds within which a connection must prove who it is, and each HTTP request be complete."""


class Connection:
    """One open connection. is_proved: it has shown a secret, a token or a key."""

    def __init__(self, connections: Connections, transport: asyncio.Transport) -> None:
        self._connections, self._transport = connections, transport
        self._timer: asyncio.TimerHandle | None = None
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        self.is_proved = False
        self.must_end_soon()

    def prove(self) -> None:
        """Note that the peer has proved who it is."""
        self.is_proved = True
        self.may_stay()

    def must_end_soon(self) -> None:
        """Close the connection after UNPROVED_SECONDS, whatever comes, unless ``may_stay`` is called before."""
        self.may_stay()
        self._timer = asyncio.get_running_loop().call_later(UNPROVED_SECONDS, self.abort)

    def may_stay(self) -> None:
        """Cancel the deadline: the client has proved who it is."""
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def abort(self) -> None:
        """Close the connection at once, and free its place."""
        self.gone()
        self._transport.abort()

    def gone(self) -> None:
        """Free the place of a connection that is closed."""
        self.may_stay()
        self._connections.remove(self)


@dataclass(frozen=True)
class Limits:
    """The most connections, and the most of them that haven't proved who they are."""

    all: int = MOST_CONNECTIONS
    unproved: int = MOST_UNPROVED


class Connections:
    """The open connections, the oldest first.

    Where there are too many without a proof, one of them makes room for a newcomer: the oldest of the address that has
    the most. So a client that only holds connections open can't lock out clients that prove soon who they are.
    """

    def __init__(self, limits: Limits = Limits()) -> None:
        self._limits = limits
        self._open: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, transport: asyncio.Transport) -> Connection | None:
        """Return the place of a new connection; None where all have proved who they are, and there is no room."""
        unproved = [connection for connection in self._open if not connection.is_proved]
        if len(unproved) >= self._limits.unproved or len(self._open) >= self._limits.all:
            if not unproved:
                return None
            ((address, _),) = Counter(connection.address for connection in unproved).most_common(1)
            next(connection for connection in unproved if connection.address == address).abort()
        made = Connection(self, transport)
        self._open[made] = None
        return made

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is closed; one that isn't open changes nothing."""
        self._open.pop(connection, None)
