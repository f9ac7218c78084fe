"""An Airflow connection of any service, as its environment variable holds it: a URI, or JSON."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit


def variable_of(connection: str) -> str:
    """Return the environment variable from which Airflow reads a connection."""
    return f"AIRFLOW_CONN_{connection.upper()}"


def parsed(text: str) -> dict[str, Any]:
    """Return host, port, login, password, each None where it is missing, and extra.

    Raises ValueError, TypeError or AttributeError for anything else.
    """
    fields = json.loads(text) if is_json(text) else _from_uri(text)
    extra = fields.get("extra") or {}
    extra = json.loads(extra) if isinstance(extra, str) else extra
    return {**{name: fields.get(name) for name in ("host", "port", "login", "password")}, "extra": dict(extra)}


def is_json(text: str) -> bool:
    """Return whether a connection is written as JSON, not as a URI."""
    return text.lstrip().startswith("{")


def _from_uri(text: str) -> dict[str, Any]:
    parts = urlsplit(text)
    query = dict(parse_qsl(parts.query))
    return {
        "host": unquote(parts.hostname) if parts.hostname else None,
        "port": parts.port,
        "login": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "extra": query.get("__extra__") or query,
    }
