"""The relay's HTTP interface, see ``/openapi.json``: clients register, filter and poll; administrators remove them."""

from __future__ import annotations

import base64
import hmac
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from binlake.errors import BinlakeError, FeedError, UsageError
from binlake.relay.client_events import EventColumn, RelayEvent
from binlake.relay.clients import Client
from binlake.relay.core import MOST_EVENTS, Relay, summary
from binlake.relay.html_pages import PAGE_HEADERS
from binlake.relay.http_frame import basic_credentials, bearer_token, note_proof
from binlake.relay.monitor_page import page
from binlake.relay.packets import VERSION
from binlake.relay.queues import ALL_OPERATIONS, Discard, TableFilter
from binlake.schema.table import TableName


class FilterBody(BaseModel):
    """operations: 1 insert + 2 update + 4 delete. queue_limit: events, 0 for no limit. discard: what a full queue
    drops, 0 and 2 the newest event, 1 the oldest."""

    model_config = ConfigDict(extra="forbid")

    schema_name: Annotated[str, Field(alias="schema", min_length=1, max_length=255)]
    table: Annotated[str, Field(min_length=1, max_length=255)]
    operations: Annotated[int, Field(ge=1, le=ALL_OPERATIONS)] = ALL_OPERATIONS
    queue_limit: Annotated[int, Field(ge=0, lt=1 << 32)] = 0
    discard: Discard = Discard.NONE

    @property
    def as_filter(self) -> TableFilter:
        """Return the filter as the relay keeps it."""
        return TableFilter(TableName(self.schema_name, self.table), self.operations, self.queue_limit, self.discard)


class ClientBody(BaseModel):
    """begin: the first batch whose events a new client gets; without it, the next recorded one."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=255)]
    filters: list[FilterBody] = []
    begin: Annotated[int, Field(ge=1)] | None = None


class Registered(BaseModel):
    """key: the bearer token of this client's requests. client_token: its token in the binary protocol."""

    client_id: int
    client_token: int
    key: str
    batch: int


class ValueBody(BaseModel):
    """text: as the server writes it. base64: for what isn't text."""

    text: str | None = None
    base64: str | None = None


class ColumnBody(BaseModel):
    """before, after: null for NULL, and if the event has no such row."""

    name: str
    before: ValueBody | None
    after: ValueBody | None


class EventBody(BaseModel):
    """type: 1 insert, 2 update, 4 delete. position: bytes in ``file``. remaining: events that wait behind this one."""

    type: int
    file: str
    position: int
    remaining: int
    schema_name: Annotated[str, Field(serialization_alias="schema")]
    table: str
    committed_us: int
    gtid: str | None
    columns: list[ColumnBody]


class Events(BaseModel):
    """events: in the order of the log. remaining: events that wait after them."""

    events: list[EventBody]
    remaining: int


def _relay(request: Request) -> Relay:
    relay: Relay = request.app.state.relay
    return relay


def _registering(request: Request) -> None:
    if not hmac.compare_digest(bearer_token(request).encode(), request.app.state.secret):
        raise HTTPException(401, "give the shared secret as Authorization: Bearer SECRET")
    note_proof(request)


def _administering(request: Request) -> None:
    if request.app.state.admin_secret is None:
        raise HTTPException(403, "the relay was started without --admin-secret-file")
    if not hmac.compare_digest(bearer_token(request).encode(), request.app.state.admin_secret):
        raise HTTPException(401, "give the administrator's secret as Authorization: Bearer SECRET")
    note_proof(request)


def _watching(request: Request) -> None:
    """Let the administrator in, also by a browser's dialog, whose user name is ignored."""
    scheme = request.headers.get("authorization", "").partition(" ")[0]
    if scheme.lower() != "basic":
        if scheme or request.app.state.admin_secret is None:
            _administering(request)
            return
        raise HTTPException(401, "give the administrator's secret as the password", {"WWW-Authenticate": "Basic"})
    admin_secret = request.app.state.admin_secret
    if admin_secret is None or not hmac.compare_digest(basic_credentials(request)[1], admin_secret):
        raise HTTPException(401, "give the administrator's secret as the password", {"WWW-Authenticate": "Basic"})
    note_proof(request)


def _known(request: Request) -> Client:
    client = _relay(request).of_key(bearer_token(request))
    if client is None:
        raise HTTPException(401, "give the key of the registration as Authorization: Bearer KEY; register again")
    note_proof(request)
    return client


Serving = Annotated[Relay, Depends(_relay)]
Known = Annotated[Client, Depends(_known)]
_routes = APIRouter()


@_routes.get("/ping")
def ping() -> dict[str, str]:
    """Answer that the relay runs, with its version."""
    return {"answer": "PONG", "version": f"{VERSION:#010x}"}


@_routes.post("/clients", dependencies=[Depends(_registering)])
def register(asked: ClientBody, relay: Serving) -> Registered:
    """Register a client, or a known one again: it gets unacknowledged events again. Needs the shared secret."""
    client = relay.register(asked.name, [added.as_filter for added in asked.filters], begin=asked.begin)
    return Registered(client_id=client.id, client_token=client.token, key=client.key, batch=client.batch)


@_routes.put("/filters")
def add_filter(asked: FilterBody, client: Known, relay: Serving) -> dict[str, Any]:
    """Add a table's filter, or replace the one it has. Needs the client's key."""
    relay.add_filter(client, asked.as_filter)
    return summary(client)


@_routes.get("/filters")
def filters(client: Known) -> dict[str, Any]:
    """Return the client with its filters and counts. Needs its key."""
    return summary(client)


@_routes.delete("/filters/{schema}/{table}")
def remove_filter(schema: str, table: str, client: Known, relay: Serving) -> dict[str, Any]:
    """Remove a filter; events that wait already are still delivered. Needs the client's key."""
    relay.remove_filter(client, TableName(schema, table))
    return summary(client)


@_routes.post("/poll")
def poll(
    client: Known, relay: Serving, limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 1, *, again: bool = False
) -> Events:
    """Return the oldest events, and acknowledge those of the last answer. again: return those once more."""
    polled = relay.poll(client, limit, again=again)
    events = [_event_body(event, left) for event, left in zip(polled.events, polled.remaining, strict=True)]
    return Events(events=events, remaining=polled.remaining[-1] if polled.remaining else 0)


@_routes.get("/clients", dependencies=[Depends(_administering)])
def clients(relay: Serving) -> list[dict[str, Any]]:
    """Return all clients with filters, counts and last events, without values. Needs the administrator's secret."""
    return relay.clients()


@_routes.delete("/clients/{name:path}", dependencies=[Depends(_administering)])
def remove(name: str, relay: Serving) -> dict[str, str]:
    """Remove a client and its queue. Needs the administrator's secret."""
    if not relay.remove(name):
        raise HTTPException(404, f"there is no client {name!r}")
    return {"removed": name}


_monitor = APIRouter()


@_monitor.get("/", response_class=HTMLResponse)
def monitor_page(relay: Serving) -> HTMLResponse:
    """Return the monitoring page."""
    return HTMLResponse(page(relay.status()), headers=PAGE_HEADERS)


@_monitor.get("/status.json")
def status(relay: Serving) -> dict[str, Any]:
    """Return what the monitoring page shows."""
    return relay.status().to_json()


def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, BinlakeError)
    code = 410 if isinstance(error, FeedError) else 400 if isinstance(error, UsageError) else 503
    return JSONResponse({"detail": error.message, "remedy": error.remedy}, code)


def application(relay: Relay, secret: bytes, admin_secret: bytes | None) -> FastAPI:
    """Return the HTTP application of a relay. Secrets and keys are sent as ``Authorization: Bearer …``."""
    app = FastAPI(title="binlake relay", version=f"{VERSION:#010x}", docs_url=None, redoc_url=None)
    app.state.relay, app.state.secret, app.state.admin_secret = relay, secret, admin_secret
    app.include_router(_routes)
    app.include_router(_monitor, dependencies=[Depends(_watching)])
    app.add_exception_handler(BinlakeError, _refused)
    return app


def monitor_application(relay: Relay) -> FastAPI:
    """Return the HTTP application of the monitoring page alone, which asks for no secret."""
    app = FastAPI(title="binlake relay", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.relay = relay
    app.include_router(_monitor)
    # A page elsewhere can give its own name this machine's address, and so read with a visitor's browser.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    app.add_exception_handler(BinlakeError, _refused)
    return app


def _event_body(event: RelayEvent, remaining: int) -> EventBody:
    return EventBody(
        type=event.operation,
        file=event.file,
        position=event.position,
        remaining=remaining,
        schema_name=event.name.database,
        table=event.name.table,
        committed_us=event.committed_us,
        gtid=event.gtid,
        columns=[
            ColumnBody(name=column.name, before=_value(column, column.before), after=_value(column, column.after))
            for column in event.columns
        ],
    )


def _value(column: EventColumn, data: bytes | None) -> ValueBody | None:
    if data is None:
        return None
    if column.is_text:
        try:
            return ValueBody(text=data.decode())
        except UnicodeDecodeError:
            pass
    return ValueBody(base64=base64.b64encode(data).decode())
