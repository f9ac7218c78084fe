"""Client of an Iceberg REST catalog: requests by HTTP, with a bearer token or one that it gets for a client's secret.

An Airflow connection holds the credentials: ``token`` in its extra is a bearer token; else login and password are a
client's id and secret, for a token by OAuth2's client credentials, from ``oauth2_server_uri`` in the extra or from the
catalog itself, with ``scope`` in the extra. ``ssl`` in the extra says how the server's certificate is verified, as in a
source's connection.

Source: Iceberg's "REST Catalog Spec" (rest-catalog-open-api.yaml).
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, urlencode

from binlake.config.catalogs_config import RestCatalogConfig
from binlake.errors import LakeError
from binlake.registered.timed_client import PATIENCE_SECONDS, CatalogSilent, TimedClient, refusal_of
from binlake.source.connection import endpoint, fields_of

_MOST_WORDS = 300
_TOKEN = re.compile(r"[!-~]+")
"""What may be in a header."""
_OF_CREDENTIALS = ("token", "scope", "oauth2_server_uri")
NOT_FOUND, CONFLICT = 404, 409
_DENIED = (401, 403)


class RestRefused(LakeError):
    """The catalog refused a request. status: HTTP's."""

    def __init__(self, message: str, *, remedy: str, status: int) -> None:
        super().__init__(message, remedy=remedy)
        self.status = status


class RestClient:
    """One catalog."""

    def __init__(self, entry: RestCatalogConfig, seconds: float = PATIENCE_SECONDS) -> None:
        """Ask the catalog for its settings, which says that it can be reached. seconds: for all requests together.

        Raises LakeError, ConfigurationError.
        """
        self._entry, self._url = entry, f"{entry.uri.rstrip('/')}/v1"
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        fields = fields_of(entry.connection) if entry.connection else {"extra": {}, "login": None}
        extra = fields["extra"]
        tls = {key: value for key, value in extra.items() if key not in _OF_CREDENTIALS}
        encryption = endpoint(host=None, port=None, user=None, password=None, extra=tls).encryption
        context = None if encryption is None else encryption.context()
        remedy = "see that it runs and that catalog.uri is its address; the next batch makes it good"
        self._timed = TimedClient(f"{entry.name} at {entry.uri}", remedy, seconds, context)
        if token := extra.get("token") or (fields["login"] and self._token(fields)):
            if not _TOKEN.fullmatch(str(token)):
                raise LakeError(
                    f"the token for the catalog {entry.name} has a blank, a line's end or a letter that no token has",
                    remedy=f"write it into the connection {entry.connection!r} without it",
                )
            self._headers["Authorization"] = f"Bearer {token}"
        self._prefix = ""
        wanted = f"?{urlencode({'warehouse': entry.warehouse})}" if entry.warehouse else ""
        settings = self._sent("GET", f"{self._url}/config{wanted}")
        for name in ("defaults", "overrides"):
            given = settings.get(name)
            if isinstance(given, dict) and given.get("prefix"):
                self._prefix = f"/{quote(str(given['prefix']), safe='')}"

    @property
    def silent(self) -> CatalogSilent | None:
        """Return why the catalog isn't asked any more, if it isn't."""
        return self._timed.silent

    def ask(self, method: str, *path: str, body: Any = None, query: str = "") -> dict[str, Any]:
        """Send a request below the catalog's prefix, and return the answer. Raises RestRefused, LakeError."""
        parts = "".join(f"/{quote(part, safe='')}" for part in path)
        return self._sent(method, f"{self._url}{self._prefix}{parts}{query}", body)

    def _token(self, fields: dict[str, Any]) -> str:
        """Return a token for the client's secret. Raises LakeError."""
        extra = fields["extra"]
        form = {
            "grant_type": "client_credentials",
            "client_id": fields["login"],
            "client_secret": fields["password"] or "",
            "scope": extra.get("scope", "catalog"),
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        server = extra.get("oauth2_server_uri") or f"{self._url}/oauth/tokens"
        answer = self._opened(urllib.request.Request(server, urlencode(form).encode(), headers, method="POST"))
        if not isinstance(answer.get("access_token"), str):
            raise self._timed.failed("answered without a token")
        return str(answer["access_token"])

    def _sent(self, method: str, url: str, body: Any = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        return self._opened(urllib.request.Request(url, data, self._headers, method=method))

    def _opened(self, request: urllib.request.Request) -> dict[str, Any]:
        try:
            said = self._timed.answer(request)
        except urllib.error.HTTPError as error:
            raise self._refusal(request, error) from None
        if not isinstance(said, dict):
            raise self._timed.failed("answered what isn't of Iceberg's REST protocol")
        return said

    def _refusal(self, request: urllib.request.Request, error: urllib.error.HTTPError) -> RestRefused:
        said = refusal_of(error)
        try:
            why = str(said.get("error_description") or said["error"]["message"])
        except (KeyError, TypeError, AttributeError):
            why = str(error.reason)
        path = request.selector.partition("?")[0]
        message = f"the catalog {self._entry.name} refused {request.method} {path}: {error.code} {why[:_MOST_WORDS]}"
        remedy = "fix what it says, then run binlake register"
        if error.code in _DENIED:
            remedy = "let catalog.connection name a connection whose token, or login and password, it takes"
        return RestRefused(message, remedy=remedy, status=error.code)
