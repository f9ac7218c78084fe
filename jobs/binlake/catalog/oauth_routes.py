"""The catalog's token endpoint: OAuth2 as Apache Iceberg's REST specification has it.

A client shows its id and secret, in the form or as Basic, and gets a token. With a token it gets a later one in
exchange, as Iceberg's Java library asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from fastapi import Request
from fastapi.responses import JSONResponse

from binlake.catalog.access import Scope
from binlake.catalog.catalog_clients import CatalogClient, CatalogClients
from binlake.errors import UsageError
from binlake.relay.http_frame import basic_credentials, bearer_token, note_proof

PATH = "/v1/oauth/tokens"
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
_ALL = {"catalog", "PRINCIPAL_ROLE:ALL", "ALL"}
"""What clients ask for when they were given no scope: pyiceberg and Java the first, DuckDB the second."""
_MOST_FIELDS = 32


@dataclass(frozen=True)
class OAuthError(Exception):
    """A refusal. kind: OAuth2's word for it."""

    kind: str
    message: str

    def response(self) -> JSONResponse:
        """Return the refusal as the specification has it."""
        code = 401 if self.kind == "invalid_client" else 400
        headers = {"Cache-Control": "no-store"} | ({"WWW-Authenticate": "Basic"} if code == 401 else {})
        return JSONResponse({"error": self.kind, "error_description": self.message}, code, headers)


async def token_response(request: Request) -> JSONResponse:
    """Answer a request for a token."""
    clients: CatalogClients = request.app.state.clients
    try:
        fields = await _fields(request)
        match fields.get("grant_type"):
            case "client_credentials":
                return _issued(request, clients, _proved(request, clients, fields), _scopes(fields.get("scope", "")))
            case kind if kind == _EXCHANGE:
                return _exchanged(request, clients, fields)
        raise OAuthError("unsupported_grant_type", "grant_type is client_credentials or a token exchange")
    except OAuthError as error:
        return error.response()


async def _fields(request: Request) -> dict[str, str]:
    """Return the fields of a form, each given once."""
    try:
        fields = parse_qs((await request.body()).decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise OAuthError("invalid_request", "the body is no form") from None
    if any(len(values) != 1 for values in fields.values()):
        raise OAuthError("invalid_request", "a field is given twice")
    return {name: value for name, (value,) in fields.items()}


def _proved(request: Request, clients: CatalogClients, fields: dict[str, str]) -> CatalogClient:
    """Return the client whose secret is in the form or in the header. Raises OAuthError."""
    client_id, secret = fields.get("client_id", ""), fields.get("client_secret", "")
    if not secret:
        client_id, secret = (part.decode(errors="replace") for part in basic_credentials(request))
    client = clients.of_secret(secret, client_id)
    if client is None:
        raise OAuthError("invalid_client", "no client has this id and secret")
    return client


def _scopes(text: str) -> list[Scope]:
    try:
        return [] if (words := set(text.split())) <= _ALL else [Scope.parse(word) for word in sorted(words - _ALL)]
    except UsageError as error:
        raise OAuthError("invalid_scope", f"{error.message}: {error.remedy}") from None


def _exchanged(request: Request, clients: CatalogClients, fields: dict[str, str]) -> JSONResponse:
    """Answer a request for a later token. The former one may have expired where the client shows its secret, too."""
    former = clients.token(fields.get("subject_token", ""))
    if former is None:
        raise OAuthError("invalid_grant", "subject_token isn't a token of this catalog")
    if bearer_token(request):
        if former.is_expired:
            raise OAuthError("invalid_grant", "the token has expired: ask for one with the client's secret")
    elif _proved(request, clients, fields) != former.client:
        raise OAuthError("invalid_grant", "the token is another client's")
    return _issued(request, clients, former.client, former.scopes)


def _issued(
    request: Request, clients: CatalogClients, client: CatalogClient, scopes: list[Scope] | tuple[Scope, ...]
) -> JSONResponse:
    token = clients.issue(client, scopes)
    note_proof(request)
    body: dict[str, Any] = {
        "access_token": str(token), "token_type": "bearer", "expires_in": clients.token_seconds,
        "issued_token_type": _ACCESS_TOKEN, "scope": " ".join(map(str, scopes or client.scopes)),
    }  # fmt: skip
    return JSONResponse(body, headers={"Cache-Control": "no-store"})
