"""The catalog's HTTP interface: what reads, of Apache Iceberg's REST catalog specification.

What changes something is refused, and whatever is refused has the specification's form of an error.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import unquote_to_bytes

from fastapi import FastAPI, HTTPException, Request
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import HTMLResponse, JSONResponse, Response

from binlake.catalog import oauth_routes
from binlake.catalog.access import EVERYTHING, Access
from binlake.catalog.catalog_clients import CatalogClients
from binlake.catalog.catalog_page import CatalogAddress, page
from binlake.catalog.shown_warehouses import shown_sources
from binlake.catalog.vended_credentials import HEADER, KIND
from binlake.catalog.warehouses import NEWEST, LoadedTable, NotInCatalog, Warehouse, Warehouses
from binlake.errors import BinlakeError, UsageError
from binlake.relay.html_pages import PAGE_HEADERS
from binlake.relay.http_frame import basic_credentials, bearer_token, note_proof
from binlake.schema.table import TableName

_READING = ("GET", "HEAD")
_WRITING = ("POST", "PUT", "PATCH", "DELETE")
_NAMESPACES = "/v1/{prefix}/namespaces"
_TABLES = f"{_NAMESPACES}/{{namespace}}/tables"
ENDPOINTS = [
    f"GET {_NAMESPACES}", f"GET {_NAMESPACES}/{{namespace}}", f"HEAD {_NAMESPACES}/{{namespace}}", f"GET {_TABLES}",
    f"GET {_TABLES}/{{table}}", f"HEAD {_TABLES}/{{table}}", f"GET {_TABLES}/{{table}}/credentials",
]  # fmt: skip
"""What clients may ask for; they leave alone what isn't here, as far as they know this list."""
_READ_ONLY = "the catalog can only be read: binlake writes the tables"
_UNKNOWN = f"send Authorization: Bearer TOKEN: a client's secret, or what POST {oauth_routes.PATH} gives for it"
_PRIVATE = {"Cache-Control": "no-store"}
"""Headers of answers that may hold credentials."""
_log = logging.getLogger(__name__)


def error_response(code: int, kind: str, message: str) -> JSONResponse:
    """Return an error as the specification has it."""
    return JSONResponse({"error": {"message": message, "type": kind, "code": code}}, code)


def _words(error: BinlakeError) -> str:
    return f"{error.message}: {error.remedy}" if error.remedy else error.message


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, BinlakeError)
    if isinstance(error, NotInCatalog):
        return error_response(404, error.kind, _words(error))
    if isinstance(error, UsageError):
        # DuckDB says of 404 that the table doesn't exist, and repeats what is said with 400.
        return error_response(400, "BadRequestException", _words(error))
    return error_response(503, "ServiceUnavailableException", _words(error))


def _http_refused(_: Request, error: Any) -> Response:
    kind = "NotAuthorizedException" if error.status_code == 401 else "BadRequestException"
    answer = error_response(error.status_code, kind, str(error.detail))
    answer.headers.update(error.headers or {})
    return answer


def _unexpected(_: Request, error: Exception) -> Response:
    _log.error("unexpected error", exc_info=error)
    return error_response(500, "InternalServerError", f"unexpected {type(error).__name__}")


def _parts_of(request: Request) -> list[str]:
    """Return the parts of the request's path, each decoded by itself: a table's name may contain a slash."""
    try:
        return [unquote_to_bytes(part).decode() for part in request.scope["raw_path"].split(b"/")[1:]]
    except UnicodeDecodeError:
        raise HTTPException(400, "the path isn't UTF-8") from None


def _allowed(request: Request, *, by_browser: bool = False) -> Access:
    """Return what the sender of a request may read. by_browser: a browser's dialog asks for the secret, as a password
    of the client's id or without one. Raises HTTPException 401."""
    clients: CatalogClients | None = request.app.state.clients
    if clients is None:
        return EVERYTHING
    access = clients.access(bearer_token(request))
    if by_browser and access is None:
        client_id, secret = (part.decode(errors="replace") for part in basic_credentials(request))
        client = clients.of_secret(secret, client_id)
        access = client.access if client else None
    if access is None:
        raise HTTPException(401, _UNKNOWN, {"WWW-Authenticate": "Basic" if by_browser else "Bearer"})
    note_proof(request)
    return access


def _page(request: Request) -> Response:
    """Answer with the page of what may be read."""
    warehouses: Warehouses = request.app.state.warehouses.visible_by(_allowed(request, by_browser=True))
    served = CatalogAddress(str(request.base_url).rstrip("/"), asks=request.app.state.clients is not None)
    return HTMLResponse(page(shown_sources(warehouses), served), headers=PAGE_HEADERS)


def _read(request: Request) -> Response:
    """Answer a request that changes nothing."""
    warehouses: Warehouses = request.app.state.warehouses.visible_by(_allowed(request))
    match _parts_of(request):
        case ["v1", "config"]:
            return JSONResponse(_config(warehouses, request.query_params.get("warehouse", "")))
        case ["v1", prefix, "namespaces", *rest]:
            answer = _answer(_attached(warehouses, prefix, rest), rest, request)
            if answer is not None:
                return answer
    return error_response(404, "NotFoundException", f"there is nothing at {request.url.path}")


def _config(warehouses: Warehouses, name: str) -> dict[str, Any]:
    """Return what a client that attaches a warehouse asks with from then on."""
    name = name or warehouses.default()
    batch = warehouses[name].name
    prefix = name if name.partition("@")[2] == NEWEST else batch
    return {"defaults": {}, "overrides": {"prefix": prefix}, "endpoints": ENDPOINTS}


def _attached(warehouses: Warehouses, prefix: str, rest: list[str]) -> Warehouse:
    """Return the warehouse of a request. rest: the path's parts behind namespaces. Raises NotInCatalog; UsageError
    where a table was asked for: that the upkeep took its batch doesn't mean that the table doesn't exist."""
    try:
        return warehouses[prefix]
    except NotInCatalog as error:
        if len(rest) < 3:
            raise
        raise UsageError(error.message, remedy=error.remedy) from error


def _answer(warehouse: Warehouse, parts: list[str], request: Request) -> Response | None:
    """Return the answer about a warehouse; None where nothing is there. parts: of the path, behind namespaces."""
    is_read = request.method == "GET"
    match parts:
        case []:
            return JSONResponse({"namespaces": _namespaces(warehouse, request.query_params.get("parent", ""))})
        case [database]:
            warehouse.refuse_unknown_database(database)
            return JSONResponse({"namespace": [database], "properties": _facts(warehouse)}) if is_read else _there()
        case [database, "tables"]:
            tables = warehouse.readable_tables(database)
            return JSONResponse({"identifiers": [{"namespace": [database], "name": each.table} for each in tables]})
        case [database, "tables", table]:
            loaded = warehouse.load(TableName(database, table))
            if not is_read:
                return _there()
            return _table(warehouse, loaded, request)
        case [database, "tables", table, "credentials"]:
            loaded = warehouse.load(TableName(database, table))
            return JSONResponse({"storage-credentials": _vended(warehouse, loaded)}, headers=_PRIVATE)
    return None


def _table(warehouse: Warehouse, loaded: LoadedTable, request: Request) -> Response:
    """Return the answer with a table's metadata, and with credentials where the client asks for them."""
    answer: dict[str, Any] = {"metadata-location": loaded.location} if loaded.location else {}
    answer |= {"metadata": loaded.metadata, "config": {}}
    if KIND in request.headers.get(HEADER, "") and (vended := _vended(warehouse, loaded)):
        answer |= {"config": vended[0]["config"], "storage-credentials": vended}
    text = json.dumps(answer, ensure_ascii=False)
    return Response(text.encode(), media_type="application/json", headers=_PRIVATE)


def _vended(warehouse: Warehouse, loaded: LoadedTable) -> list[dict[str, Any]]:
    """Return credentials for a table's files; none where the source has no role for them."""
    role = warehouse.source.role
    return role.credentials(loaded.folder).as_answer() if role else []


def _namespaces(warehouse: Warehouse, parent: str) -> Collection[list[str]]:
    if parent:
        warehouse.refuse_unknown_database(parent)
        return []
    return [[database] for database in warehouse.databases]


def _facts(warehouse: Warehouse) -> dict[str, str]:
    """Return the properties of a namespace."""
    version = warehouse.version
    facts = {"batch": str(version.batch), "position": version.position, "gtid-set": version.gtid_set}
    return {f"binlake.{name}": value for name, value in facts.items() if value}


def _there() -> Response:
    return Response(status_code=204)


def _write(request: Request) -> Response:
    """Refuse a request that changes something."""
    _allowed(request)
    return error_response(406, "UnsupportedOperationException", _READ_ONLY)


_Endpoint = Callable[[Request], Response]


def catalog_application(warehouses: Warehouses, clients: CatalogClients | None = None) -> FastAPI:
    """Return the HTTP application of a catalog. clients: who may ask; None for everybody on this machine."""
    app = FastAPI(title="binlake catalog", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.warehouses, app.state.clients = warehouses, clients
    if clients is not None:
        app.add_api_route(oauth_routes.PATH, oauth_routes.token_response, methods=["POST"], response_model=None)
    app.add_api_route("/", _page, methods=["GET"], response_model=None)
    routes: list[tuple[_Endpoint, tuple[str, ...]]] = [(_read, _READING), (_write, _WRITING)]
    for endpoint, methods in routes:
        app.add_api_route("/{path:path}", endpoint, methods=list(methods), response_model=None)
    if clients is None:
        # A page elsewhere can give its own name this machine's address, and so read with a visitor's browser.
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]"])
    app.add_exception_handler(BinlakeError, _refused)
    unknown_routes = 404, 405  # their exceptions are of a class that FastAPI doesn't give
    for refused in (HTTPException, *unknown_routes):
        app.add_exception_handler(refused, _http_refused)
    app.add_exception_handler(Exception, _unexpected)
    return app
