"""Who may see what. Airflow mounts a plugin's app without any guard, so each route has these (apache/airflow#72655).

A source is seen by who may read its sync DAG, as Airflow's auth manager tells; values of rows aren't shown to anybody.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException

from binlake.config import PipelineConfig
from binlake_airflow.sources import pipelines_folder, sources_of


def sync_dag(source: str) -> str:
    """The DAG that who reads the source must be allowed to read."""
    return f"binlake_{source}_sync"


class Reader:
    """A user of Airflow's, and what he may read."""

    def __init__(self, user: BaseUser) -> None:
        self._user = user

    def readable(self, sources: Collection[str]) -> set[str]:
        dags = {sync_dag(source): source for source in sources}
        teams = DagModel.get_dag_id_to_team_name_mapping(list(dags)) if dags else {}
        return {source for dag, source in dags.items() if self._may_read(DagDetails(id=dag, team_name=teams.get(dag)))}

    def reads_dags(self) -> bool:
        """Those of no source in particular."""
        return self._may_read(None)

    def reads_import_errors(self) -> bool:
        """What is wrong with a YAML is what Airflow shows among its import errors."""
        return bool(get_auth_manager().is_authorized_view(access_view=AccessView.IMPORT_ERRORS, user=self._user))

    def _may_read(self, details: DagDetails | None) -> bool:
        return bool(get_auth_manager().is_authorized_dag(method="GET", details=details, user=self._user))


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
        raise HTTPException(403, f"you may not read the DAG {sync_dag(source)}")
