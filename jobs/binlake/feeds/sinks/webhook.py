"""The sink ``https://`` (``http://`` for trusted networks): messages are posted, several in a request.

    POST URL   Content-Type: application/x-ndjson
    one JSON object per line: {"topic": …, "key": …, "value": …}, key and value as text, or base64 if they aren't UTF-8
    Binlake-Delivery: {feed}/{digest of the feed's place, the request's number after it, and the body}, the same when a
    request is repeated; two requests with equal bodies differ in it
    Binlake-Signature: t={seconds},v1={HMAC-SHA-256 of "{seconds}." and the body, in hexadecimal}

The secret is the password of the connection that the YAML names; without one, requests aren't signed. A request has
succeeded once it is answered by 2xx. Temporary failures (no connection, 408, 425, 429, 5xx) are retried, with waits
that double up to a minute; other answers, or a failed last retry, stop the feed. Delivery is at least once: what was
posted but not committed is posted again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from urllib.parse import urlsplit

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from binlake.errors import ConfigurationError, SinkFailed
from binlake.feeds.contract import Message
from binlake.records.feed_watermarks import FeedPosition
from binlake.retries import Retries, at_random, doubling
from binlake.store import formats

_PASSING = {408, 425, 429, *range(500, 600)}
_LONGEST_WAIT = 60.0
_MOST_ANSWER = 64 << 10
"""The most bytes of an answer that are read."""
_LOG = logging.getLogger("binlake")
_REMEDY = "see that the address answers POST with 2xx, then run the feed again: it continues with this request"


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class WebhookSettings:
    """A webhook's settings. request_bytes: the most bytes of a body of several messages. retries: after the first try.
    first_wait, timeout: seconds. verify: whether to verify the server's certificate and name."""

    request_bytes: int = 1 << 20
    retries: int = 8
    first_wait: float = 0.5
    timeout: float = 30.0
    verify: bool = True

    @classmethod
    def of(cls, settings: dict[str, str | bool | int | float]) -> WebhookSettings:
        """Parse the YAML's settings. Raises ConfigurationError."""
        try:
            return TypeAdapter(cls).validate_python(settings)
        except ValidationError as error:
            wrong = error.errors()[0]
            raise ConfigurationError(
                f"a webhook's setting {wrong['loc'][0]}: {wrong['msg']}",
                remedy=f"it has {', '.join(field.name for field in fields(cls))}",
            ) from None


class _Passing(Exception):
    """A problem that may pass; its text says it."""


class Webhook:
    """One feed's webhook. wait: sleeps for some seconds."""

    keeps_position = False

    def __init__(
        self,
        url: str,
        feed: str,
        settings: WebhookSettings,
        secret: bytes | None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url, self._feed, self._settings, self._secret, self._wait = urlsplit(url), feed, settings, secret, wait
        self._lines: list[bytes] = []
        self._size = 0
        self._place, self._posted = b"", 0
        self._connection: http.client.HTTPConnection | None = None

    def begin(self) -> None:
        """Do nothing: a request can't be taken back."""

    def position(self) -> FeedPosition | None:
        """Return None: a webhook keeps no position."""
        return None

    def stand(self, position: FeedPosition) -> None:
        """Note the position after which the next messages come; it identifies deliveries."""
        self._place, self._posted = formats.written(position).encode(), 0

    def send(self, messages: Sequence[Message]) -> None:
        """Post messages as soon as a request is full. Raises SinkFailed."""
        for message in messages:
            line = _line(message)
            if self._lines and self._size + len(line) > self._settings.request_bytes:
                self._post()
            self._lines.append(line)
            self._size += len(line)

    def commit(self, position: FeedPosition) -> None:
        """Post the remaining messages. Raises SinkFailed."""
        if self._lines:
            self._post()
        self.stand(position)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def reach(self) -> None:
        """Connect to the address without a request. Raises SinkFailed if that fails."""
        connection = self._new_connection()
        try:
            connection.connect()
        except OSError as error:
            raise SinkFailed(
                f"{self._url.scheme}://{self._url.netloc} can't be reached: {error}", remedy=_REMEDY
            ) from None
        finally:
            connection.close()

    def _post(self) -> None:
        body = b"".join(self._lines)
        pause = at_random(doubling(self._settings.first_wait, _LONGEST_WAIT), least=0.5)  # not all feeds at once
        retries = Retries(pause, attempts=self._settings.retries + 1)
        try:
            retries.call(lambda: self._post_once(body), _Passing, say=self._warn, wait=self._wait)
        except _Passing as problem:
            raise self._failed(problem) from None
        self._lines.clear()
        self._size = 0
        self._posted += 1

    def _post_once(self, body: bytes) -> None:
        """Post a body. Raises _Passing where a repetition can succeed, else SinkFailed."""
        try:
            status = self._request(body)
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            raise _Passing(f"can't be reached: {error.__class__.__name__}") from None
        if status in _PASSING:
            raise _Passing(f"answered {status}")
        if not 200 <= status < 300:
            raise self._failed(f"answered {status}")

    def _failed(self, problem: object) -> SinkFailed:
        return SinkFailed(f"{self._url.scheme}://{self._url.netloc} {problem}", remedy=_REMEDY)

    def _warn(self, problem: Exception, failures: int, seconds: float) -> None:
        what = f"{self._url.scheme}://{self._url.netloc} {problem}"
        number = f"{failures} of {self._settings.retries}"
        _LOG.warning("feed %s: %s; repeated in %.1f s, %s", self._feed, what, seconds, number)

    def _request(self, body: bytes) -> int:
        """Post a body; return the status of the answer."""
        if self._connection is None:
            self._connection = self._new_connection()
        seconds = str(int(time.time()))
        headers = {"Content-Type": "application/x-ndjson", "Binlake-Delivery": f"{self._feed}/{self._digest(body)}"}
        if self._secret is not None:
            signed = hmac.new(self._secret, seconds.encode() + b"." + body, hashlib.sha256).hexdigest()
            headers["Binlake-Signature"] = f"t={seconds},v1={signed}"
        path = self._url.path or "/"
        self._connection.request("POST", f"{path}?{self._url.query}" if self._url.query else path, body, headers)
        answer = self._connection.getresponse()
        answer.read(_MOST_ANSWER)
        if not answer.isclosed():
            self._drop()
        return answer.status

    def _digest(self, body: bytes) -> str:
        return hashlib.sha256(b"%b %d %b" % (self._place, self._posted, body)).hexdigest()[:32]

    def _new_connection(self) -> http.client.HTTPConnection:
        host, port, timeout = self._url.hostname or "", self._url.port, self._settings.timeout
        if self._url.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=timeout)
        context = ssl.create_default_context()
        if not self._settings.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _line(message: Message) -> bytes:
    fields = {"topic": message.topic, "key": _text(message.key), "value": _text(message.value)}
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _text(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
