"""HTTP with an end: whatever a server sends, and however slowly, an answer is there or has failed at a given time.

``urllib``'s own timeout is that of one operation of the socket: a server that sends a letter now and then is waited for
without end. Redirects aren't followed: they would pass credentials on.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
import urllib.request
from functools import partial
from typing import Any

TOO_LATE = "it took too long altogether"


def opener(deadline: float, silence: float, tls: ssl.SSLContext | None = None) -> urllib.request.OpenerDirector:
    """Return what opens requests until a deadline, by ``time.monotonic``. silence: seconds for which nothing may come.
    tls: None for the system's certificates."""
    response = partial(_TimedResponse, deadline=deadline, silence=silence)
    return urllib.request.build_opener(_NoRedirects, _Http(response), _Https(response, tls))


def read(answer: http.client.HTTPResponse, most: int) -> bytes:
    """Return what an answer holds. most: its bytes at most. Raises OSError, ValueError, http.client.HTTPException."""
    text = answer.read(most + 1)
    if len(text) > most:
        raise ValueError(f"an answer has more than {most} bytes")
    if answer.length:
        raise http.client.IncompleteRead(text, answer.length)
    return text


class _NoRedirects(urllib.request.HTTPRedirectHandler):
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
    def __init__(self, response: Any) -> None:
        super().__init__()
        self._response = response

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open a connection, and return its answer."""

        def connection(host: str, **more: Any) -> http.client.HTTPConnection:
            made = http.client.HTTPConnection(host, **more)
            made.response_class = self._response
            return made

        return self.do_open(connection, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, response: Any, tls: ssl.SSLContext | None) -> None:
        super().__init__(context=tls)
        self._response, self._tls = response, tls

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open an encrypted connection, and return its answer."""

        def connection(host: str, **more: Any) -> http.client.HTTPConnection:
            made = http.client.HTTPSConnection(host, context=self._tls, **more)
            made.response_class = self._response
            return made

        return self.do_open(connection, req)
