"""The answer in the place of binlake's page where it can't be loaded: what is missing, and what helps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from html import escape
from typing import Any

_Message = MutableMapping[str, Any]
_HTML = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>binlake</title>
<h1>binlake doesn't work in this Airflow</h1>
<p>{message}</p>
<p>{remedy}</p>
<p>Nothing else of Airflow is concerned.</p>
</html>
"""


class Refusal:
    """An ASGI app that answers each request with what is missing. It imports nothing that could be missing, too."""

    def __init__(self, message: str, remedy: str) -> None:
        self._body = _HTML.format(message=escape(message), remedy=escape(remedy)).encode()

    async def __call__(
        self,
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        """Answer a request with 503."""
        if scope["type"] != "http":
            return
        headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-security-policy", b"default-src 'none'; frame-ancestors 'self'"),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": self._body})
