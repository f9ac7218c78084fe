"""Access control of the page. Airflow mounts a plugin's app without any guard, so each route has these
(apache/airflow#72655).

Airflow's auth manager decides by DAG. Users who may read a source's sync DAG see the source; those who may edit it see
values of rows, if the YAML allows that. Triggering a DAG's run needs the right to trigger that DAG. Decisions about
tables and events, and unpausing a DAG, need the right to edit it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import (
    AccessView,
    ConnectionDetails,
    DagAccessEntity,
    DagDetails,
)
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.connection import Connection
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Request

from binlake.config import PipelineConfig
from binlake_airflow.compat import team_names
from binlake_airflow.sources import pipelines_folder, sources_of

Dag = Literal["bootstrap", "sync", "verify", "maintain", "resume", "feeds", "follow", "replay"]
"""The kinds of a source's DAGs."""
DAGS: tuple[Dag, ...] = ("bootstrap", "sync", "verify", "maintain", "resume", "feeds", "follow", "replay")


def dag_id(source: str, what: Dag) -> str:
    """Return the id of a source's DAG. what: the DAG's kind."""
    return f"binlake_{source}_{what}"


class Reader:
    """A user of Airflow, and what the user may read and do."""

    def __init__(self, user: BaseUser) -> None:
        self._user = user

    @property
    def name(self) -> str:
        """The name that is recorded with the user's decisions, as Airflow does it."""
        return self._user.get_name()

    def readable(self, sources: Collection[str]) -> set[str]:
        """Return those of the sources whose sync DAG the user may read."""
        dags = {dag_id(source, "sync"): source for source in sources}
        teams = team_names(dags)
        return {source for dag, source in dags.items() if self._may_read(DagDetails(id=dag, team_name=teams.get(dag)))}

    def reads_dags(self) -> bool:
        """Return whether the user may read DAGs in general."""
        return self._may_read(None)

    def reads_import_errors(self) -> bool:
        """Return whether the user may see import errors, and thus what is wrong with a YAML."""
        return bool(get_auth_manager().is_authorized_view(access_view=AccessView.IMPORT_ERRORS, user=self._user))

    def may_trigger(self, source: str, what: Dag) -> bool:
        """Return whether the user may trigger runs of a source's DAG."""
        entity, details = DagAccessEntity.RUN, _details(source, what)
        manager = get_auth_manager()
        return bool(manager.is_authorized_dag(method="POST", access_entity=entity, details=details, user=self._user))

    def may_read_logs(self, source: str, what: Dag) -> bool:
        """Return whether the user may read the logs of a source's DAG."""
        entity, details = DagAccessEntity.TASK_LOGS, _details(source, what)
        manager = get_auth_manager()
        return bool(manager.is_authorized_dag(method="GET", access_entity=entity, details=details, user=self._user))

    def may_cancel(self, source: str, what: Dag) -> bool:
        """Return whether the user may change runs of a source's DAG, which cancelling does."""
        entity, details = DagAccessEntity.RUN, _details(source, what)
        manager = get_auth_manager()
        return bool(manager.is_authorized_dag(method="PUT", access_entity=entity, details=details, user=self._user))

    def may_edit(self, source: str, what: Dag = "sync") -> bool:
        """Return whether the user may edit a source's DAG."""
        details = _details(source, what)
        return bool(get_auth_manager().is_authorized_dag(method="PUT", details=details, user=self._user))

    def may_remove(self, source: str) -> bool:
        """Return whether the user may remove a source: delete its sync DAG."""
        details = _details(source, "sync")
        return bool(get_auth_manager().is_authorized_dag(method="DELETE", details=details, user=self._user))

    def may_add(self) -> bool:
        """Return whether the user may add a source: edit DAGs in general, and make connections."""
        manager = get_auth_manager()
        return bool(
            manager.is_authorized_dag(method="PUT", user=self._user)
            and manager.is_authorized_connection(method="POST", user=self._user)
        )

    def may_use(self, connection: str) -> bool:
        """Return whether the user may see a connection of Airflow's."""
        details = ConnectionDetails(conn_id=connection, team_name=Connection.get_team_name(connection))
        manager = get_auth_manager()
        return bool(manager.is_authorized_connection(method="GET", details=details, user=self._user))

    def _may_read(self, details: DagDetails | None) -> bool:
        return bool(get_auth_manager().is_authorized_dag(method="GET", details=details, user=self._user))


def _details(source: str, what: Dag) -> DagDetails:
    dag = dag_id(source, what)
    return DagDetails(id=dag, team_name=DagModel.get_team_name(dag))


def reader(user: GetUserDep) -> Reader:
    """Return the user of a request, for routes that depend on it."""
    return Reader(user)


ReaderDep = Annotated[Reader, Depends(reader)]


def may_open(reader: ReaderDep) -> None:
    """Raise 401 for users who aren't logged in, 403 for those who may not read any source's DAGs."""
    if reader.reads_dags():
        return
    names = [config.source.name for _, config in sources_of(pipelines_folder()) if isinstance(config, PipelineConfig)]
    if not reader.readable(names):
        raise HTTPException(403, "you may not read the DAGs of any source")


def may_read(source: str, reader: ReaderDep) -> None:
    """Raise 401 or 403 unless the user may read this source's sync DAG, whether the source exists or not."""
    if source not in reader.readable([source]):
        raise HTTPException(403, f"you may not read the DAG {dag_id(source, 'sync')}")


def may_trigger(what: Dag) -> Callable[[str, Reader], None]:
    """Return a guard that raises 403 unless the user may trigger the source's DAG."""

    def guard(source: str, reader: ReaderDep) -> None:
        if not reader.may_trigger(source, what):
            raise HTTPException(403, f"you may not trigger the DAG {dag_id(source, what)}")

    return guard


def may_cancel(source: str, what: Dag, reader: ReaderDep) -> None:
    """Raise 403 unless the user may change runs of the source's DAG."""
    if not reader.may_cancel(source, what):
        raise HTTPException(403, f"you may not change runs of the DAG {dag_id(source, what)}")


def may_edit_dag(source: str, what: Dag, reader: ReaderDep) -> None:
    """Raise 403 unless the user may edit the source's DAG, which pausing and unpausing it does."""
    if not reader.may_edit(source, what):
        raise HTTPException(403, f"you may not edit the DAG {dag_id(source, what)}")


def may_remove(source: str, reader: ReaderDep) -> None:
    """Raise 403 unless the user may delete the source's sync DAG, which the removal of its YAML does."""
    if not reader.may_remove(source):
        raise HTTPException(403, f"you may not delete the DAG {dag_id(source, 'sync')}")


def may_edit(source: str, reader: ReaderDep) -> None:
    """Raise 403 unless the user may edit the source's sync DAG."""
    if not reader.may_edit(source):
        raise HTTPException(403, f"you may not edit the DAG {dag_id(source, 'sync')}")


def may_add(reader: ReaderDep) -> None:
    """Raise 403 unless the user may add a source."""
    if not reader.may_add():
        raise HTTPException(403, "you may not edit DAGs and make connections, which adds a source")


def from_here(request: Request) -> None:
    """Raise 403 for requests that a page of another site makes with the user's cookie.

    Airflow's cookie is SameSite=Lax, so a foreign site's POST doesn't have it. A page of a sibling host could send it;
    browsers mark such requests by Sec-Fetch-Site. A token in a header is fine, as no other page can add it.
    """
    site = request.headers.get("sec-fetch-site", "same-origin")
    if "authorization" not in request.headers and site != "same-origin":
        raise HTTPException(403, "this was asked by a page of another site")


def guarded(*guards: Any) -> list[Any]:
    """Return the guards in order: requests of other sites' pages are refused before the audit log is written."""
    return [Depends(guard) for guard in (from_here, may_read, *guards)]


def source_of(source: str, reader: ReaderDep) -> tuple[Path, PipelineConfig]:
    """Return the source's file and configuration. Raises 404, or 409 if the file with this name is broken."""
    for file, config in sources_of(pipelines_folder()):
        if isinstance(config, PipelineConfig):
            if config.source.name == source:
                return file, config
        elif file.stem == source:
            problem = str(config) if reader.reads_import_errors() else f"the file {file.name} is broken"
            raise HTTPException(409, problem)
    raise HTTPException(404, f"there is no source {source!r} among the YAML files in {pipelines_folder()}")


SourceDep = Annotated[tuple[Path, PipelineConfig], Depends(source_of)]
