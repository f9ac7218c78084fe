"""The Airflow plugin, found by the entry point ``airflow.plugins``. Every process of Airflow imports it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from airflow.plugins_manager import AirflowPlugin

_Message = MutableMapping[str, Any]


class PageOnDemand:
    """The page's ASGI app, imported with its first request: schedulers and workers never need it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def app(self) -> Any:
        """Return the page's app, imported by the first call."""
        with self._lock:  # two threads must not import one module at the same time
            from binlake_airflow.page.app import app

            return app

    async def __call__(
        self,
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        """Pass a request to the page's app."""
        app = await asyncio.to_thread(self.app)
        await app(scope, receive, send)


class BinlakePlugin(AirflowPlugin):
    """The page below ``/binlake/`` of the API server, and ``Binlake`` in the navigation of Airflow's UI."""

    name = "binlake"
    fastapi_apps = [{"app": PageOnDemand(), "url_prefix": "/binlake", "name": "binlake"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {"name": "Binlake", "href": "binlake/", "destination": "nav", "url_route": "binlake", "nav_top_level": True}
    ]
