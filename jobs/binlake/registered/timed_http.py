"""HTTP with an end: whatever a server sends, and however slowly, an answer is there or has failed at a given time.

``urllib``'s own timeout is that of one operation of the socket: a server that sends a letter now and then is waited for
without end, a host of several addresses is waited for at each of them, and the look-up of its name has no timeout.
Redirects aren't followed: they would pass credentials on.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

_Result = TypeVar("_Result")
TOO_LATE = "it took too long altogether"


def opener(deadline: float, silence: float, tls: ssl.SSLContext | None = None) -> urllib.request.OpenerDirector:
    """Return what opens requests until a deadline, by ``time.monotonic``. silence: seconds for which nothing may come.
    tls: None for the system's certificates."""
    response = partial(_TimedResponse, deadline=deadline, silence=silence)
    connect = partial(_connected, deadline=deadline, silence=silence)
    return urllib.request.build_opener(NoRedirects, _Http(response, connect), _Https(response, connect, tls))


def within(seconds: float, call: Callable[[], _Result]) -> _Result:
    """Return what a call returns that has no timeout of its own, such as the look-up of a host's name: it is left to
    its own thread when the time is over. Raises what it raises, and TimeoutError."""
    return _Call(call).result(seconds)


class _Call(Generic[_Result]):
    """A call in a thread of its own, which has begun."""

    def __init__(self, call: Callable[[], _Result]) -> None:
        self._results: list[_Result] = []
        self._errors: list[BaseException] = []

        def run() -> None:
            try:
                self._results.append(call())
            except BaseException as error:  # it is raised by who waits
                self._errors.append(error)

        self._thread = threading.Thread(target=run, daemon=True, name="timed call")
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Return whether it has no result yet."""
        return self._thread.is_alive()

    def result(self, seconds: float) -> _Result:
        """Wait for the result. Raises what the call raises, and TimeoutError."""
        self._thread.join(max(seconds, 0))
        if self._errors:
            raise self._errors[0]
        if not self._results:
            raise TimeoutError("timed out")
        return self._results[0]


class CallOnce:
    """Calls that may hang, one at a time for each key: who comes while it runs waits for the same, so that a process
    has one that hangs and no more."""

    def __init__(self) -> None:
        self._making, self._calls = threading.Lock(), dict[Hashable, _Call[Any]]()

    def within(self, seconds: float, key: Hashable, call: Callable[[], _Result]) -> _Result:
        """Return what a call returns. Raises what it raises, and TimeoutError."""
        with self._making:
            running: _Call[_Result] | None = self._calls.get(key)
            if running is None or not running.is_running:
                self._calls[key] = running = _Call(call)
        return running.result(seconds)


def read(answer: http.client.HTTPResponse, most: int) -> bytes:
    """Return what an answer holds. most: its bytes at most. Raises OSError, ValueError, http.client.HTTPException."""
    text = answer.read(most + 1)
    if len(text) > most:
        raise ValueError(f"an answer has more than {most} bytes")
    if answer.length:
        raise http.client.IncompleteRead(text, answer.length)
    return text


def _connected(address: tuple[str, int], *_: Any, deadline: float, silence: float) -> socket.socket:
    """Return a socket that is connected to a host by one of its addresses, as ``http.client`` asks for it. Raises
    OSError."""

    def left() -> float:
        return min(deadline - time.monotonic(), silence)

    host, port = address
    places = within(left(), lambda: socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM))
    end, failure = time.monotonic() + left(), OSError(f"{host} has no address")
    for number, (family, kind, protocol, _name, place) in enumerate(places):
        try:
            made = socket.socket(family, kind, protocol)
        except OSError as error:  # this machine has no such addresses
            failure = error
            continue
        try:
            made.settimeout(max(end - time.monotonic(), 0.001) / (len(places) - number))
            made.connect(place)
            made.settimeout(max(left(), 0.001))  # for what comes now, not this address's share
            return made
        except OSError as error:
            failure = error
            made.close()
    raise failure


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """What opens requests follows no redirect with it."""

    def redirect_request(self, *arguments: Any) -> None:
        """Return None, so that a redirect is an error."""


class _Incoming(io.RawIOBase):
    """What comes from a socket until a deadline. raw: what reads from it."""

    def __init__(self, raw: io.RawIOBase, source: socket.socket, deadline: float, silence: float) -> None:
        super().__init__()
        self._raw, self._source, self._deadline, self._silence = raw, source, deadline, silence

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        """Read what is there by now, or comes first. Raises TimeoutError."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(TOO_LATE)
        self._source.settimeout(min(left, self._silence))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Close what reads from the socket."""
        self._raw.close()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    """An answer whose status line, headers and body are read until a deadline."""

    def __init__(self, sock: socket.socket, *arguments: Any, deadline: float, silence: float, **more: Any) -> None:
        super().__init__(sock, *arguments, **more)
        raw = self.fp.detach()
        self.fp = io.BufferedReader(_Incoming(raw, sock, deadline, silence))


class _Http(urllib.request.HTTPHandler):
    def __init__(self, response: Any, connect: Any) -> None:
        super().__init__()
        self._response, self._connect = response, connect

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open a connection, and return its answer."""

        def connection(host: str, **more: Any) -> http.client.HTTPConnection:
            made = http.client.HTTPConnection(host, **more)
            return _prepared(made, self._response, self._connect)

        return self.do_open(connection, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, response: Any, connect: Any, tls: ssl.SSLContext | None) -> None:
        super().__init__(context=tls)
        self._response, self._connect, self._tls = response, connect, tls

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open an encrypted connection, and return its answer."""
        if self._tls is None:
            self._tls = ssl.create_default_context()  # once: it loads all of the system's authorities

        def connection(host: str, **more: Any) -> http.client.HTTPConnection:
            made = http.client.HTTPSConnection(host, context=self._tls, **more)
            return _prepared(made, self._response, self._connect)

        return self.do_open(connection, req)


def _prepared(made: http.client.HTTPConnection, response: Any, connect: Any) -> http.client.HTTPConnection:
    """Return a connection that answers, and connects, until the deadline."""
    made.response_class = response
    made._create_connection = connect  # type: ignore[attr-defined] # http.client's own seam
    return made
