"""The Airflow plugin, found by the entry point ``airflow.plugins``. Every process of Airflow imports it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from binlake.errors import unexpected
from binlake_airflow import supported
from binlake_airflow.refusal import Refusal

log = logging.getLogger(__name__)
_Message = MutableMapping[str, Any]


class PageOnDemand:
    """The page's ASGI app, imported with its first request: schedulers and workers never need it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def app(self) -> Any:
        """Return the page's app, imported by the first call; where it can't be, one that says why."""
        if error := supported.problem():
            return Refusal(error.message, error.remedy)
        with self._lock:  # two threads must not import one module at the same time
            try:
                from binlake_airflow.page.app import app
            except Exception as error:  # whatever doesn't fit: the other pages of the server have no part in it
                log.exception("binlake's page can't be loaded")
                return Refusal(
                    f"Its page can't be loaded: {unexpected(error)}",
                    "The log of Airflow's API server has the traceback.",
                )
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

    @classmethod
    def on_load(cls, *_: Any, **__: Any) -> None:
        """Log what keeps binlake from working here; called by each process of Airflow that loads plugins."""
        if error := supported.problem():
            log.warning("%s", error)
