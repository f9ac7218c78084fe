"""Client of a schema registry with Confluent's HTTP API: a schema is registered under a subject, and has an id.

An Airflow connection holds the credentials: login and password for Basic authentication, or ``token`` in its extra as a
bearer token; ``ssl`` in the extra, as in a source's connection, says how the registry's certificate is verified
(``ca``). Redirects aren't followed: they would pass the credentials on.

Source: Confluent's "Schema Registry API Reference", /subjects, /config and /schemas.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

from binlake.errors import FeedError, SinkFailed
from binlake.registered.timed_http import NoRedirects
from binlake.source.connection import endpoint, fields_of

_PATIENCE = 15.0
_CONTENT = "application/vnd.schemaregistry.v1+json"
_INCOMPATIBLE, _INVALID = 409, 422
_DENIED, _NOT_FOUND = {401, 403}, 404


class _NotFound(SinkFailed):
    """The registry doesn't have what was asked for."""


class SchemaRegistry:
    """One registry. Its answers are cached: a schema keeps its id."""

    def __init__(self, url: str, compatibility: str | None = None, connection: str | None = None) -> None:
        """compatibility: set for each subject before its first schema; None for the registry's default. connection: id
        of an Airflow connection. Raises ConfigurationError if it is missing or can't be read."""
        self._url, self._compatibility = url.rstrip("/"), compatibility
        self._ids: dict[tuple[str, str], int] = {}
        self._schemas: dict[int, Any] = {}
        handlers: list[Any] = [NoRedirects]
        self._headers = {"Content-Type": _CONTENT}
        if connection is not None:
            fields = fields_of(connection)
            if token := fields["extra"].get("token"):
                self._headers["Authorization"] = f"Bearer {token}"
            elif fields["login"]:
                both = f"{fields['login']}:{fields['password'] or ''}".encode()
                self._headers["Authorization"] = f"Basic {base64.b64encode(both).decode()}"
            tls = {key: value for key, value in fields["extra"].items() if key != "token"}  # of the registry
            encryption = endpoint(host=None, port=None, user=None, password=None, extra=tls).encryption
            if encryption is not None:
                handlers.append(urllib.request.HTTPSHandler(context=encryption.context()))
        self._opener = urllib.request.build_opener(*handlers)

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Register a schema; return its id. Raises FeedError if it is refused, SinkFailed without an answer."""
        text = json.dumps(schema, ensure_ascii=False)
        if (subject, text) not in self._ids:
            if self._compatibility and not any(known == subject for known, _ in self._ids):
                self._ask("PUT", f"/config/{quote(subject, safe='')}", {"compatibility": self._compatibility})
            answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": text})
            self._ids[subject, text] = int(answer["id"])
        return self._ids[subject, text]

    def schema(self, number: int) -> Any:
        """Return the schema with an id, as parsed JSON; None if the registry has none. Raises SinkFailed."""
        if number not in self._schemas:
            try:
                self._schemas[number] = json.loads(self._ask("GET", f"/schemas/ids/{number}")["schema"])
            except _NotFound:
                return None
        return self._schemas[number]

    def subjects(self) -> list[str]:
        """Return the names of all subjects. Raises SinkFailed."""
        names: list[str] = self._ask("GET", "/subjects")
        return names

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        request = urllib.request.Request(self._url + path, data, self._headers, method=method)
        try:
            with self._opener.open(request, timeout=_PATIENCE) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise self._error_of(path, error) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise SinkFailed(
                f"the schema registry {self._url} didn't answer: {reason}", remedy="see whether it runs; then run again"
            ) from None

    def _error_of(self, path: str, error: urllib.error.HTTPError) -> FeedError:
        try:
            why = json.load(error)["message"]
        except (ValueError, KeyError, TypeError):
            why = error.reason
        said = f"the schema registry {self._url} refused {path}: {error.code} {why}"
        if error.code in (_INCOMPATIBLE, _INVALID):
            remedy = "loosen the subject's compatibility there (NONE), or give the feed another topic; then run again"
            return FeedError(said, remedy=remedy)
        if error.code == _NOT_FOUND:
            return _NotFound(said, remedy="see whether the address is a registry's, and has what was asked for")
        if error.code in _DENIED:
            remedy = "let registry_connection name a connection whose login and password, or token, it knows"
            return SinkFailed(said, remedy=remedy)
        return SinkFailed(said, remedy="fix what it says; then run again")
