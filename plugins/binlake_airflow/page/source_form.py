"""The form for a new source: what its server has, a preview of its YAML with the doctor's lines, and the file itself.

The server is asked by Airflow's API server, for users alone who may make connections and edit DAGs, and only where
Airflow's ``[core] test_connection`` lets users have servers asked. A password goes into an Airflow connection.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from airflow.api_fastapi.logging.decorators import action_logging
from airflow.configuration import conf, ensure_secrets_loaded, get_custom_secret_backend
from airflow.models.connection import Connection
from airflow.secrets.metastore import MetastoreBackend
from airflow.utils.session import create_session
from fastapi import APIRouter, Depends, HTTPException
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints
from sqlalchemy import select
from sqlalchemy.orm import Session

from binlake.cli import new_source
from binlake.cli.new_source import Draft, SourceAsked
from binlake.config import PipelineConfig
from binlake.config.yaml_file import NAME
from binlake.doctor.preflight import preflight
from binlake.errors import UsageError
from binlake.source.connection import Endpoint, endpoint
from binlake.source.server import Source
from binlake_airflow.compat import AirflowNotFoundException
from binlake_airflow.page.access import Reader, ReaderDep, from_here, may_add
from binlake_airflow.sources import pipelines_folder, sources_of

_MOST_PATTERNS = 10_000
_Line = Annotated[str, StringConstraints(strip_whitespace=True, pattern=r"^[^\x00-\x1f\x7f]*$", max_length=1000)]
_Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,199}$")]
_TYPES = ("mysql", "mariadb")


class ServerAsked(BaseModel):
    """A request to look at a server.

    connection: the id of a connection that Airflow has; without one the address and account of a new connection.
    """

    model_config = ConfigDict(extra="forbid")
    connection: _Id | None = None
    host: _Line = ""
    port: int = Field(default=3306, ge=1, le=65535)
    login: _Line = ""
    password: SecretStr = SecretStr("")


class DraftAsked(ServerAsked):
    """A request for a source's YAML. include: patterns of tables. server_id: that of a preview, which the file gets."""

    name: Annotated[str, StringConstraints(pattern=NAME)]
    include: list[_Line] = Field(min_length=1, max_length=_MOST_PATTERNS)
    lake: Annotated[_Line, Field(min_length=1)]
    schedule: _Line = "0 * * * *"
    server_id: int | None = Field(default=None, ge=1, le=2**32 - 1)


def _may_ask() -> None:
    """Raise UsageError where Airflow lets nobody have servers asked."""
    if not _asks():
        raise UsageError("Airflow's setting [core] test_connection isn't Enabled", remedy=_ENABLE)


_ENABLE = (
    "set AIRFLOW__CORE__TEST_CONNECTION=Enabled for the API server, which lets those who may make connections have it"
    " connect to any server; or write the file by binlake init FILE"
)
_GUARDS = [Depends(from_here), Depends(may_add)]
router = APIRouter(prefix="/api/new-source", dependencies=_GUARDS)


def _asks() -> bool:
    return bool(conf.get("core", "test_connection", fallback="Disabled").strip().lower() == "enabled")


@router.get("")
def form(reader: ReaderDep) -> JSONResponse:
    """Return what the form begins with: connections that the user may use, and the lake of the other sources."""
    with create_session() as session:
        ids = list(session.scalars(select(Connection.conn_id).where(Connection.conn_type.in_(_TYPES))))
    known = [config.lake.path for _, config in sources_of(pipelines_folder()) if isinstance(config, PipelineConfig)]
    return JSONResponse(
        {
            "connections": sorted(name for name in ids if reader.may_use(name)),
            "lake": known[0] if known else "",
            "folder": str(pipelines_folder()),
            "problem": None if _asks() else {"detail": "servers can't be asked from here", "remedy": _ENABLE},
        }
    )


@router.post("/tables", dependencies=[Depends(action_logging("binlake_look_at_server")), Depends(_may_ask)])
def tables(reader: ReaderDep, asked: ServerAsked) -> JSONResponse:
    """Return the server's databases and tables with their sizes."""
    with Source.open(_endpoint(reader, asked)) as source:
        server = f"{source.flavour} {source.version_text} at {source.endpoint.address}"
        return JSONResponse({"server": server, "offers": [asdict(offer) for offer in new_source.offers(source)]})


@router.post("/preview", dependencies=[Depends(action_logging("binlake_preview_source")), Depends(_may_ask)])
def preview(reader: ReaderDep, asked: DraftAsked) -> JSONResponse:
    """Return the YAML, the doctor's lines, and why the file can't be written from here, if so."""
    where = _endpoint(reader, asked)
    draft = _draft(asked, where)
    checks = preflight(draft.config, where, spark_checks=False, writes=False)
    lines = [{"name": check.name, "ok": check.ok, "found": check.found, "remedy": check.remedy} for check in checks]
    unwritable = None if _writable(draft.path.parent) else f"the API server may not write {draft.path.parent}"
    return JSONResponse({**_described(draft), "checks": lines, "unwritable": unwritable})


@router.post("/write", dependencies=[Depends(action_logging("binlake_write_source")), Depends(_may_ask)])
def write(reader: ReaderDep, asked: DraftAsked) -> JSONResponse:
    """Write the file, and before it the connection if it is new. Raises 409 if either is there, or can't be written."""
    draft = _draft(asked, _endpoint(reader, asked))
    if not _writable(draft.path.parent):
        raise UsageError(f"the API server may not write {draft.path.parent}", remedy="copy the text into a file there")
    with create_session() as session:  # a file that can't be written leaves no connection
        if asked.connection is None:
            _add(session, draft.config.source.connection, asked)
        draft.write()
    return JSONResponse(
        {**_described(draft), "message": f"{draft.path} is written: Airflow makes its DAGs within minutes"}
    )


def _described(draft: Draft) -> dict[str, Any]:
    source = draft.config.source
    return {
        "file": str(draft.path), "yaml": draft.text, "server_id": source.server_id, "connection": source.connection
    }  # fmt: skip


def _endpoint(reader: Reader, asked: ServerAsked) -> Endpoint:
    """Return the address and account. Raises 403 or 404 for a connection, 422 without a host."""
    if asked.connection is None:
        if not (asked.host and asked.login):
            raise HTTPException(422, "give a connection of Airflow's, or host and login of a new one")
        password = asked.password.get_secret_value()
        return endpoint(host=asked.host, port=asked.port, user=asked.login, password=password, extra={})
    if not reader.may_use(asked.connection):
        raise HTTPException(403, f"you may not use the connection {asked.connection!r}")
    with suppress(AirflowNotFoundException):
        there = Connection.get_connection_from_secrets(asked.connection)
        if there.conn_type in _TYPES:
            fields = {"host": there.host, "port": there.port, "user": there.login, "password": there.password}
            return endpoint(**fields, extra=there.extra_dejson)
    raise HTTPException(404, f"Airflow has no connection {asked.connection!r} to a MySQL or MariaDB server")


def _draft(asked: DraftAsked, where: Endpoint) -> Draft:
    """Return the source's file. Raises 409 where a new connection's name is taken, 503 where that can't be found
    out."""
    source = SourceAsked(
        asked.name, tuple(asked.include), asked.lake, asked.schedule, asked.connection, asked.server_id
    )
    draft = new_source.draft(pipelines_folder() / f"{asked.name}.yaml", where, source)
    if asked.connection is None:
        _refuse_taken(draft.config.source.connection)
    return draft


def _refuse_taken(name: str) -> None:
    """Raise 409 if anything resolves the name of a new connection: what Airflow's database has comes last, so the
    source would be read by an account that the user may not use. Raises 503 where a backend doesn't answer."""
    backends = [*ensure_secrets_loaded(), *filter(None, [get_custom_secret_backend(worker_mode=True)])]
    for backend in backends:
        try:
            taken = backend.get_connection(conn_id=name) is not None
        except Exception as error:  # backends have no common error
            place = type(backend).__name__
            raise HTTPException(503, f"{place} can't tell whether it has a connection {name!r}") from error
        if taken:
            said = f"Airflow has a connection {name!r}"
            if not isinstance(backend, MetastoreBackend):
                said = f"the environment or a secrets backend has a connection {name!r}, which comes before a new one"
            raise HTTPException(409, f"{said}: choose it, or give the source another name")


def _add(session: Session, name: str, asked: ServerAsked) -> None:
    """Make the new connection. Raises 409 if there is one of this id."""
    if session.scalar(select(Connection.id).where(Connection.conn_id == name)) is not None:
        raise HTTPException(409, f"Airflow has a connection {name!r}: choose it, or give the source another name")
    account = {"login": asked.login, "password": asked.password.get_secret_value()}
    session.add(Connection(conn_id=name, conn_type="mysql", host=asked.host, port=asked.port, **account))
    session.flush()


def _writable(folder: Path) -> bool:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
