"""Who may see and do what. Airflow mounts a plugin's app without any guard, so each route has these
(apache/airflow#72655).

A source is seen by who may read its sync DAG, as Airflow's auth manager tells; values of rows by who may edit that
DAG, if the YAML says so.
What starts a DAG's run is for who may trigger that DAG; what changes how a table or an event is treated, or unpauses a
DAG, for who may edit it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Request

from binlake.config import PipelineConfig
from binlake_airflow.sources import pipelines_folder, sources_of

Dag = Literal["bootstrap", "sync", "verify", "maintain", "resume", "feeds"]
"""What a source's DAGs do."""
DAGS: tuple[Dag, ...] = ("bootstrap", "sync", "verify", "maintain", "resume", "feeds")


def dag_id(source: str, what: Dag) -> str:
    return f"binlake_{source}_{what}"


class Reader:
    """A user of Airflow's, and what he may read and do."""

    def __init__(self, user: BaseUser) -> None:
        self._user = user

    @property
    def name(self) -> str:
        """By which what he decides is recorded, as by Airflow itself."""
        return self._user.get_name()

    def readable(self, sources: Collection[str]) -> set[str]:
        dags = {dag_id(source, "sync"): source for source in sources}
        teams = DagModel.get_dag_id_to_team_name_mapping(list(dags)) if dags else {}
        return {source for dag, source in dags.items() if self._may_read(DagDetails(id=dag, team_name=teams.get(dag)))}

    def reads_dags(self) -> bool:
        """Those of no source in particular."""
        return self._may_read(None)

    def reads_import_errors(self) -> bool:
        """What is wrong with a YAML is what Airflow shows among its import errors."""
        return bool(get_auth_manager().is_authorized_view(access_view=AccessView.IMPORT_ERRORS, user=self._user))

    def may_trigger(self, source: str, what: Dag) -> bool:
        entity, details = DagAccessEntity.RUN, _details(source, what)
        manager = get_auth_manager()
        return bool(manager.is_authorized_dag(method="POST", access_entity=entity, details=details, user=self._user))

    def may_edit(self, source: str, what: Dag = "sync") -> bool:
        details = _details(source, what)
        return bool(get_auth_manager().is_authorized_dag(method="PUT", details=details, user=self._user))

    def _may_read(self, details: DagDetails | None) -> bool:
        return bool(get_auth_manager().is_authorized_dag(method="GET", details=details, user=self._user))


def _details(source: str, what: Dag) -> DagDetails:
    dag = dag_id(source, what)
    return DagDetails(id=dag, team_name=DagModel.get_team_name(dag))


def reader(user: GetUserDep) -> Reader:
    return Reader(user)


ReaderDep = Annotated[Reader, Depends(reader)]


def may_open(reader: ReaderDep) -> None:
    """Raises 401 for who isn't logged in, 403 for who may read the DAGs of no source."""
    if reader.reads_dags():
        return
    names = [config.source.name for _, config in sources_of(pipelines_folder()) if isinstance(config, PipelineConfig)]
    if not reader.readable(names):
        raise HTTPException(403, "you may not read the DAGs of any source")


def may_read(source: str, reader: ReaderDep) -> None:
    """Raises 401 and 403 as above, of this source, whether it is known or not."""
    if source not in reader.readable([source]):
        raise HTTPException(403, f"you may not read the DAG {dag_id(source, 'sync')}")


def may_trigger(what: Dag) -> Callable[[str, Reader], None]:
    """A guard that raises 403 for who may not trigger the source's DAG."""

    def guard(source: str, reader: ReaderDep) -> None:
        if not reader.may_trigger(source, what):
            raise HTTPException(403, f"you may not trigger the DAG {dag_id(source, what)}")

    return guard


def may_edit(source: str, reader: ReaderDep) -> None:
    """Raises 403 for who may not edit the source's sync DAG."""
    if not reader.may_edit(source):
        raise HTTPException(403, f"you may not edit the DAG {dag_id(source, 'sync')}")


def from_here(request: Request) -> None:
    """Raises 403 for what another site's page asks in the user's name.

    Airflow's cookie is SameSite=Lax, so a foreign site's POST comes without it; a sibling host's page would bring it,
    and browsers say so. Who brings a token in a header was given it: no page can do that unasked.
    """
    said = request.headers.get("sec-fetch-site", "same-origin")
    if "authorization" not in request.headers and said != "same-origin":
        raise HTTPException(403, "this was asked by a page of another site")


def source_of(source: str, reader: ReaderDep) -> tuple[Path, PipelineConfig]:
    """The source's file and settings. Raises 404, and 409 where the file that should be this source is broken."""
    for file, config in sources_of(pipelines_folder()):
        if isinstance(config, PipelineConfig):
            if config.source.name == source:
                return file, config
        elif file.stem == source:
            told = str(config) if reader.reads_import_errors() else f"the file {file.name} is broken"
            raise HTTPException(409, told)
    raise HTTPException(404, f"there is no source {source!r} among the YAML files in {pipelines_folder()}")


SourceDep = Annotated[tuple[Path, PipelineConfig], Depends(source_of)]
