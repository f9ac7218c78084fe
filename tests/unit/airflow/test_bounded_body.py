"""The page reads no more of a request than its bound, whoever sends it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, MutableMapping
from typing import Any

from binlake_airflow.page.bounded_body import MOST_BODY, BoundedBody

PIECE = b"x" * (1 << 20)


def answer(pieces: Iterator[bytes]) -> tuple[int, list[bytes]]:
    """The status of an answer, and the bodies that the application got."""
    got: list[bytes] = []
    sent: list[MutableMapping[str, Any]] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        got.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> dict[str, Any]:
        piece = next(pieces, None)
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    asyncio.run(BoundedBody(application)({"type": "http", "headers": []}, receive, send))
    return sent[0]["status"], got


def test_a_request_within_the_bound_arrives_whole() -> None:
    assert answer(iter([b"a", b"b" * (MOST_BODY - 1)])) == (200, [b"a" + b"b" * (MOST_BODY - 1)])


def test_of_a_larger_one_no_more_than_the_bound_is_read() -> None:
    pieces = iter([PIECE] * 100)
    assert answer(pieces) == (413, [])
    assert len(list(pieces)) == 100 - MOST_BODY // len(PIECE) - 1
