"""The lake for its readers: ``binlake.lake.open("shop.yaml").arrow("shop.orders")``, without a server, JVM or Airflow.

Each batch is a version in which all tables are at one position of the server's log: ``open(…).at(batch=17)``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from binlake.lake.opened_lake import (
        Lake,
        open_lake as open,  # noqa: A004
    )

__all__ = ["Lake", "open"]

_PUBLIC = {"Lake": "Lake", "open": "open_lake"}


def __getattr__(name: str) -> Any:
    """Import what is public when it is asked for: rooms that need the versions alone don't wait for the readers."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module("binlake.lake.opened_lake"), _PUBLIC[name])
