"""The form for a new source: what its server has, a preview of its YAML with the doctor's lines, and the file itself.

The server is asked by Airflow's API server, for users alone who may make connections and edit DAGs, and only where
Airflow's ``[core] test_connection`` lets users have servers asked. A password goes into an Airflow connection.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, get_args

from airflow.api_fastapi.logging.decorators import action_logging
from airflow.configuration import conf, ensure_secrets_loaded, get_custom_secret_backend
from airflow.models.connection import Connection
from airflow.secrets.metastore import MetastoreBackend
from airflow.utils.session import create_session
from fastapi import APIRouter, Depends, HTTPException
from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints, field_validator
from sqlalchemy import select
from sqlalchemy.orm import Session

from binlake.cli import new_source
from binlake.cli.new_source import Draft, SourceAsked
from binlake.config import PipelineConfig
from binlake.config.orchestration import FollowConfig, VerifyConfig
from binlake.config.policies import Policy
from binlake.config.yaml_file import NAME
from binlake.doctor.check import Check, missing_grants
from binlake.doctor.preflight import preflight
from binlake.errors import AccessDenied, ConfigurationError, ConnectionFailed, KeyProblem, UsageError
from binlake.source.connection import endpoint
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from binlake_airflow.compat import AirflowNotFoundException
from binlake_airflow.hook import fields_of
from binlake_airflow.page.access import Reader, ReaderDep, from_here, may_add
from binlake_airflow.page.refused_fields import LINE, FieldsRefused, by_field
from binlake_airflow.page.remedies import Answer
from binlake_airflow.page.settable import changed_keys, is_settable
from binlake_airflow.sources import pipelines_folder, sources_of

_MOST_PATTERNS = 10_000
_Line = Annotated[str, StringConstraints(strip_whitespace=True, pattern=LINE, max_length=1000)]
_Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,199}$")]
_Key = Annotated[str, StringConstraints(pattern=r"^[a-z_]+([.][a-z_]+)?$")]
_MOST_SETTINGS = 100
_TYPES = ("mysql", "mariadb")
_FIELDS = {"source.name": "name", "tables.include": "include", "lake.path": "lake", "schedule": "schedule"}
"""The form's own fields, by the keys of the YAML that they set. Others have the names of their keys."""
_CHOICES = {
    "verify.repair": VerifyConfig.model_fields["repair"],
    **{f"policies.{name}": field for name, field in Policy.model_fields.items()},
    **{name: PipelineConfig.model_fields[name] for name in ("invalid_dates", "invalid_text")},
}
_DEFAULTS = {
    "verify.schedule": VerifyConfig.model_fields["schedule"].default,
    "follow.every": FollowConfig.model_fields["every"].default,
    **{key: field.default for key, field in _CHOICES.items()},
}


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
    """A request for a source's YAML.

    include: patterns of tables. server_id: that of a preview, which the file gets. settings: others, by their keys with
    dots, such as verify.repair: those alone that the page sets.
    """

    name: Annotated[str, StringConstraints(pattern=NAME)]
    include: list[_Line] = Field(min_length=1, max_length=_MOST_PATTERNS)
    lake: Annotated[_Line, Field(min_length=1)]
    schedule: _Line = "0 * * * *"
    server_id: int | None = Field(default=None, ge=1, le=2**32 - 1)
    settings: dict[_Key, Any] = Field(default={}, max_length=_MOST_SETTINGS)

    @field_validator("settings")
    @classmethod
    def _are_of_the_page(cls, settings: dict[str, Any]) -> dict[str, Any]:
        for key in settings:
            if key in _FIELDS or any(other.startswith(f"{key}.") for other in settings):
                raise ValueError(f"{key} is set elsewhere in the form")
        for place in changed_keys({}, new_source.nested(settings)):
            if not is_settable(place):
                raise ValueError(f"{'.'.join(map(str, place))} isn't set here, but in the file itself")
        return settings


def _may_ask() -> None:
    """Raise UsageError where Airflow lets nobody have servers asked."""
    if not asks():
        raise UsageError("Airflow's setting [core] test_connection isn't Enabled", remedy=_ENABLE)


_ENABLE = (
    "set AIRFLOW__CORE__TEST_CONNECTION=Enabled for the API server, which lets those who may make connections have it"
    " connect to any server; or write the file by binlake init FILE"
)
_GUARDS = [Depends(from_here), Depends(may_add)]
router = APIRouter(prefix="/api/new-source", dependencies=_GUARDS)


def asks() -> bool:
    """Return whether Airflow lets users have servers asked."""
    return bool(conf.get("core", "test_connection", fallback="Disabled").strip().lower() == "enabled")


@router.get("")
def form(reader: ReaderDep) -> Answer:
    """Return what the form begins with: connections that the user may use, the lake of the other sources, and what
    settings may be and are by default."""
    with create_session() as session:
        ids = list(session.scalars(select(Connection.conn_id).where(Connection.conn_type.in_(_TYPES))))
    known = [config.lake.path for _, config in sources_of(pipelines_folder()) if isinstance(config, PipelineConfig)]
    return Answer(
        {
            "connections": sorted(name for name in ids if reader.may_use(name)),
            "lake": known[0] if known else "",
            "folder": str(pipelines_folder()),
            "choices": {key: get_args(field.annotation) for key, field in _CHOICES.items()},
            "defaults": _DEFAULTS,
            "problem": None if asks() else {"detail": "servers can't be asked from here", "remedy": _ENABLE},
        }
    )


@router.post("/tables", dependencies=[Depends(action_logging("binlake_look_at_server")), Depends(_may_ask)])
def tables(reader: ReaderDep, asked: ServerAsked) -> Answer:
    """Return the server's databases and tables with their sizes."""
    where = _endpoint(reader, asked)
    with _beside_the_address(asked), Source.open(where) as source:
        server = f"{source.flavour} {source.version_text} at {source.endpoint.address}"
        return Answer({"server": server, "offers": [asdict(offer) for offer in new_source.offers(source)]})


@router.post("/preview", dependencies=[Depends(action_logging("binlake_preview_source")), Depends(_may_ask)])
def preview(reader: ReaderDep, asked: DraftAsked) -> Answer:
    """Return the YAML, the doctor's lines, and why the file can't be written from here, if so."""
    where = _endpoint(reader, asked)
    draft = _draft(asked, where)
    checks = preflight(draft.config, where, spark_checks=False, writes=False)
    unwritable = None if writable(draft.path.parent) else f"the API server may not write {draft.path.parent}"
    return Answer({**_described(draft), **as_lines(checks), "unwritable": unwritable})


@router.post("/write", dependencies=[Depends(action_logging("binlake_write_source")), Depends(_may_ask)])
def write(reader: ReaderDep, asked: DraftAsked) -> Answer:
    """Write the file, and before it the connection if it is new. Raises 409 if either is there, or can't be written."""
    draft = _draft(asked, _endpoint(reader, asked))
    if not writable(draft.path.parent):
        raise UsageError(f"the API server may not write {draft.path.parent}", remedy="copy the text into a file there")
    with create_session() as session:  # a file that can't be written leaves no connection
        if asked.connection is None:
            _add(session, draft.config.source.connection, asked)
        draft.write()
    return Answer({**_described(draft), "message": f"{draft.path} is written: Airflow makes its DAGs within minutes"})


def _described(draft: Draft) -> dict[str, Any]:
    source = draft.config.source
    return {
        "file": str(draft.path), "yaml": draft.text, "server_id": source.server_id, "connection": source.connection
    }  # fmt: skip


def as_lines(checks: list[Check]) -> dict[str, Any]:
    """Return the doctor's lines, and the statements that give the account all that it lacks."""
    lines = [{"name": check.name, "ok": check.ok, "found": check.found, "remedy": check.remedy} for check in checks]
    return {"checks": lines, "grants": missing_grants(checks)}


def _endpoint(reader: Reader, asked: ServerAsked) -> Endpoint:
    """Return the address and account. Raises 403 or 404 for a connection, FieldsRefused without a host or login."""
    if asked.connection is None:
        if empty := {
            field: "give it, or choose a connection above" for field in ("host", "login") if not vars(asked)[field]
        }:
            raise FieldsRefused(empty)
        password = asked.password.get_secret_value()
        return endpoint(host=asked.host, port=asked.port, user=asked.login, password=password, extra={})
    return endpoint_of(reader, asked.connection)


def endpoint_of(reader: Reader, connection: str) -> Endpoint:
    """Return the address and account of a connection of Airflow's. Raises 403 if the user may not use it, or 404."""
    if not reader.may_use(connection):
        raise HTTPException(403, f"you may not use the connection {connection!r}")
    with suppress(AirflowNotFoundException):
        there = Connection.get_connection_from_secrets(connection)
        if there.conn_type in _TYPES:
            fields = {"host": there.host, "port": there.port, "user": there.login, "password": there.password}
            return endpoint(**fields, extra=there.extra_dejson, ssh_fields=_ssh_fields)
    raise HTTPException(404, f"Airflow has no connection {connection!r} to a MySQL or MariaDB server")


@contextmanager
def _beside_the_address(asked: ServerAsked) -> Iterator[None]:
    """Let errors of a new connection be shown beside its address or its account."""
    try:
        yield
    except (AccessDenied, ConnectionFailed) as error:
        if asked.connection is not None:
            raise
        field = "password" if isinstance(error, AccessDenied) else "host"
        raise FieldsRefused({field: str(error)}) from error


def _ssh_fields(name: str) -> dict[str, Any]:
    """Return the fields of the SSH connection that a server's names. Raises 404 where there is none."""
    try:
        return fields_of(Connection.get_connection_from_secrets(name))
    except AirflowNotFoundException:
        raise HTTPException(404, f"Airflow has no connection {name!r}, through which the server's leads") from None


def _draft(asked: DraftAsked, where: Endpoint) -> Draft:
    """Return the source's file. Raises FieldsRefused where it would be refused, is there, or a new connection's name is
    taken; 503 where that can't be found out."""
    source = SourceAsked(
        asked.name,
        tuple(asked.include),
        asked.lake,
        asked.schedule,
        asked.connection,
        asked.server_id,
        asked.settings,
    )
    path = pipelines_folder() / f"{asked.name}.yaml"
    if path.exists():
        raise FieldsRefused({"name": f"{path} is there already: give the source another name"}, 409)
    try:
        with _beside_the_address(asked):
            draft = new_source.draft(path, where, source)
    except ConfigurationError as error:
        fields = {**_FIELDS, **{key: key for key in asked.settings}}
        problems = error.problems or [KeyProblem(0, "", error.message)]
        raise FieldsRefused(by_field(problems, fields)) from error
    if asked.connection is None:
        _refuse_taken(draft.config.source.connection)
    return draft


def _refuse_taken(name: str) -> None:
    """Raise FieldsRefused if anything resolves the name of a new connection: what Airflow's database has comes last, so
    the source would be read by an account that the user may not use. Raises 503 where a backend doesn't answer."""
    backends = [*ensure_secrets_loaded(), *filter(None, [get_custom_secret_backend(worker_mode=True)])]
    for backend in backends:
        try:
            taken = backend.get_connection(conn_id=name) is not None
        except Exception as error:  # backends have no common error
            place = type(backend).__name__
            raise HTTPException(503, f"{place} doesn't say whether it has a connection {name!r}") from error
        if taken:
            said = f"Airflow has a connection {name!r}"
            if not isinstance(backend, MetastoreBackend):
                said = f"the environment or a secrets backend has a connection {name!r}, which comes before a new one"
            raise FieldsRefused({"name": f"{said}: choose it, or give the source another name"}, 409)


def _add(session: Session, name: str, asked: ServerAsked) -> None:
    """Make the new connection. Raises 409 if there is one of this id."""
    if session.scalar(select(Connection.id).where(Connection.conn_id == name)) is not None:
        raise HTTPException(409, f"Airflow has a connection {name!r}: choose it, or give the source another name")
    account = {"login": asked.login, "password": asked.password.get_secret_value()}
    session.add(Connection(conn_id=name, conn_type="mysql", host=asked.host, port=asked.port, **account))
    session.flush()


def writable(folder: Path) -> bool:
    """Return whether files can be written into a folder that is there, or can be made."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
