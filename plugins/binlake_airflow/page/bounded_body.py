"""Request bodies of the page have a bound, which is checked before the user is asked for credentials."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi.responses import JSONResponse

MOST_BODY = 2 << 20
"""The most bytes of a request."""

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Scope]]
_Send = Callable[[_Scope], Awaitable[None]]


class BoundedBody:
    """An ASGI application that answers 413 to requests of more than MOST_BODY bytes, and reads no more of them.

    FastAPI reads a body before it asks who sends it.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Read the whole body of an HTTP request, and pass it to the app; answer 413 where it is too large."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > MOST_BODY:
                await JSONResponse({"detail": "the request is too large"}, 413)(scope, receive, send)
                return
        whole: _Scope | None = {"type": "http.request", "body": bytes(body), "more_body": False}

        async def read() -> _Scope:
            nonlocal whole
            message, whole = whole, None
            return await receive() if message is None else message

        await self._app(scope, read, send)
