"""The webhook sink against a real HTTP server on loopback: what it posts, signs, repeats and gives up."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from binlake.errors import ConfigurationError, SinkFailed
from binlake.feeds.contract import Message
from binlake.feeds.sinks.webhook import Webhook, WebhookSettings
from binlake.records.feed_watermarks import FeedPosition

SECRET = b"between us"


class Receiver(HTTPServer):
    """Answers with ``statuses`` one after the other, then with 200."""

    def __init__(self, statuses: list[int]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses = statuses
        self.bodies: list[bytes] = []
        self.headers: list[Any] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # http.server's name
        receiver = self.server
        assert isinstance(receiver, Receiver)
        receiver.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        receiver.headers.append(self.headers)
        self.send_response(receiver.statuses.pop(0) if receiver.statuses else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # http.server's name
        pass


@contextmanager
def receiving(*statuses: int) -> Iterator[Receiver]:
    with Receiver(list(statuses)) as receiver:
        thread = threading.Thread(target=receiver.serve_forever, daemon=True)
        thread.start()
        yield receiver
        receiver.shutdown()
        thread.join()


def posted(
    receiver: Receiver, *messages: Message, secret: bytes | None = SECRET, after: int = 0, **settings: Any
) -> list[float]:
    """The waits between the tries of a run that begins after a batch, and commits at the next one's end."""
    waits: list[float] = []
    url = f"http://127.0.0.1:{receiver.server_port}/hook?a=b"
    sink = Webhook(url, "shop/out", WebhookSettings.of(settings), secret, waits.append)
    sink.stand(FeedPosition(after))
    try:
        sink.begin()
        sink.send(messages)
        sink.commit(FeedPosition(after + 1))
    finally:
        sink.close()
    return waits


ONE = Message("shop.t", b"1", "ä".encode())


def test_messages_are_posted_as_lines_and_signed() -> None:
    with receiving() as receiver:
        assert posted(receiver, ONE, Message("shop.t", None, b"\xff")) == []
        (body,), (headers,) = receiver.bodies, receiver.headers
        assert [json.loads(line) for line in body.splitlines()] == [
            {"topic": "shop.t", "key": "1", "value": "ä"},
            {"topic": "shop.t", "key": None, "value": {"base64": "/w=="}},
        ]
        seconds, signed = (part.split("=")[1] for part in headers["Binlake-Signature"].split(","))
        assert signed == hmac.new(SECRET, seconds.encode() + b"." + body, hashlib.sha256).hexdigest()


def test_without_a_secret_nothing_is_signed() -> None:
    with receiving() as receiver:
        posted(receiver, ONE, secret=None)
        assert "Binlake-Signature" not in receiver.headers[0]


def test_what_may_pass_is_tried_again_and_waits_longer_each_time(caplog: pytest.LogCaptureFixture) -> None:
    with receiving(503, 429, 500) as receiver:
        waits = posted(receiver, ONE, first_wait=1)
        assert len(receiver.bodies) == 4
        assert len(set(receiver.bodies)) == 1
        assert len({headers["Binlake-Delivery"] for headers in receiver.headers}) == 1
        assert [0.5 * 2**n <= wait <= 2**n for n, wait in enumerate(waits)] == [True] * 3
        address = f"http://127.0.0.1:{receiver.server_port}"
    assert caplog.messages == [
        f"feed shop/out: {address} answered {status}; repeated in {wait:.1f} s, {number} of 8"
        for number, (status, wait) in enumerate(zip((503, 429, 500), waits, strict=True), start=1)
    ]


def test_equal_bodies_are_deliveries_of_their_own_unless_one_is_repeated() -> None:
    with receiving(200, 200, 200, 200, 503, 400) as receiver:
        posted(receiver, ONE, ONE, after=7, request_bytes=1)
        posted(receiver, ONE, after=8)
        posted(receiver, ONE, after=7)  # by a run after a kill
        with pytest.raises(SinkFailed):
            posted(receiver, ONE, after=9)
        first, second, next_batch, again, *tries = (headers["Binlake-Delivery"] for headers in receiver.headers)
        assert len(set(receiver.bodies)) == 1
        assert len({first, second, next_batch}) == 3
        assert (again, len(tries), len(set(tries))) == (first, 2, 1)


@pytest.mark.parametrize(("statuses", "tries"), [([404], 1), ([400], 1), ([503] * 9, 3)])
def test_it_gives_up(statuses: list[int], tries: int) -> None:
    with receiving(*statuses) as receiver:
        with pytest.raises(SinkFailed, match=f"answered {statuses[0]}"):
            posted(receiver, ONE, retries=2)
        assert len(receiver.bodies) == tries


def test_nobody_there_is_told_without_the_path() -> None:
    with receiving() as receiver:
        pass
    with pytest.raises(SinkFailed, match=r"http://127\.0\.0\.1:\d+ can't be reached: ConnectionRefusedError"):
        posted(receiver, ONE, retries=1)


def test_a_request_has_so_many_bytes_at_most() -> None:
    with receiving() as receiver:
        posted(receiver, *[ONE] * 10, request_bytes=150)
        assert len(receiver.bodies) == 4
        assert all(len(body) <= 150 for body in receiver.bodies)
        assert b"".join(receiver.bodies).count(b"\n") == 10


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="setting retry"):
        WebhookSettings.of({"retry": 1})
