"""The page's app inside Airflow's own API server, and clients of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi import app as airflow_app
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.jobs.job import Job
from airflow.models.dagbundle import DagBundleModel
from airflow.utils import db
from airflow.utils.session import create_session
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from sqlalchemy import delete

try:
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
except ModuleNotFoundError:  # Airflow 3.1
    from airflow.models.dagbag import DagBag, sync_bag_to_db  # type: ignore[no-redef]

from binlake import config
from binlake.records.feed_watermarks import RELAY
from binlake.relay import core as relay
from binlake.relay.clients import Client, LastEvent, RelayState
from binlake.relay.queues import Discard, TableFilter
from binlake.store.metadata import now_us
from binlake_airflow.page.answers import MINUTE
from binlake_airflow.plugin import BinlakePlugin
from past import Past

ROOT = Path(__file__).parents[2]
YAML = """
source: {{name: {name}, connection: {name}_mysql, server_id: 4001}}
tables: {{include: ["{name}.*"]}}
lake: {{path: "{lake}"}}
schedule: "0 * * * *"
"""
VALUES = {"source": "shop", "table": "shop.table_0001", "batch": "2", "file": "page.js", "what": "sync"}
"""Of the routes' parameters, where each names something that is there."""


class OneSourceOnly(SimpleAuthManager):
    """Of the role user it lets each do all with the DAGs that have his name, and nothing with others."""

    def is_authorized_dag(self, *, method: Any, user: Any, details: Any = None, **others: Any) -> bool:
        if user.role != "USER":
            return super().is_authorized_dag(method=method, user=user, details=details, **others)
        return bool(details and details.id and details.id.startswith(f"binlake_{user.username}_"))

    def is_authorized_view(self, *, user: Any, **others: Any) -> bool:
        return user.role != "USER" and super().is_authorized_view(user=user, **others)


@contextmanager
def airflow_server() -> Iterator[Any]:
    """Airflow's whole app, with plugins, middlewares, a database, and a scheduler that gave a sign of life."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__CORE__AUTH_MANAGER", f"{__name__}.OneSourceOnly")
        patch.setenv("AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD", "86400")
        airflow_app.purge_cached_app()
        db.initdb()
        scheduler_was_alive(datetime.now(UTC))
        yield airflow_app.create_app("core")
        airflow_app.purge_cached_app()


def scheduler_was_alive(at: datetime) -> None:
    """Leave a scheduler's sign of life, the only one, in Airflow's database."""
    with create_session() as session:
        session.execute(delete(Job))
        job: Any = Job
        session.add(job(job_type="SchedulerJob", state="running", latest_heartbeat=at))


def add(folder: Path, name: str = "shop") -> Past:
    """A source of the folder, with nothing in its lake yet.

    Its newest batch ended three minutes ago: in the page's newest five minutes, also when a test takes a minute or two.
    """
    file = folder / f"{name}.yaml"
    file.write_text(YAML.format(name=name, lake=folder.parent / "lake"))
    return Past(config.load(file), now_us() - 3 * MINUTE)


def add_feeds(past: Past) -> None:
    """One that stopped, one that did before it began, and the relay with a client."""
    row = {"keep_bytes": 1, "keep_us": 1, "updated_us": 7}
    stopped = {"status": "stopped", "reason": "no such topic", "remedy": "make it"}
    newest = past.batches
    past.metadata.append("feeds", [
        {**row, "feed": "orders", "batch": 1, "needs": 2, "messages": 40, **stopped},
        {**row, "feed": "early", "messages": 0, **stopped},
        {**row, "feed": RELAY, "status": "following", "batch": newest, "needs": newest + 1, "messages": 1},
    ])  # fmt: skip
    client = Client(1, "till", newest, {past.names[1]: TableFilter(past.names[1], 5, 100, Discard.NONE)})
    client.last.append(LastEvent(4, "binlog.000001", 3500, str(past.names[1]), 8, 9))
    client.queue.served = 1
    Path(relay.state_path(past.config)).write_text(RelayState.of(2, [client], {}).to_json())


def add_dags(folder: Path) -> None:
    """The DAGs of the folder's sources in Airflow's database, as the DAG processor leaves them for the scheduler."""
    dags = folder.parent / "dags"
    dags.mkdir(exist_ok=True)
    (dags / "binlake_dags.py").write_text(
        f"from binlake_airflow.pipelines import dags_of\n\nglobals().update(dags_of({str(folder)!r}))\n"
    )
    with create_session() as session:
        session.merge(DagBundleModel(name="dags-folder"))
    named: Any = {"bundle_name": "dags-folder"} if "bundle_name" in signature(DagBag).parameters else {}  # not in 3.1
    bag = DagBag(str(dags), collect_dags=False, bundle_path=dags, **named)
    bag.collect_dags(str(dags))
    assert not bag.import_errors
    sync_bag_to_db(bag, "dags-folder", None)


def token(name: str, role: str | None) -> str:
    user = SimpleAuthManagerUser(username=name, role=role)
    made: str = airflow_app.get_auth_manager().generate_jwt(user)
    return made


def client(server: Any, name: str | None, role: str | None = None) -> TestClient:
    """name: None for who isn't logged in."""
    headers = {"Authorization": f"Bearer {token(name, role)}"} if name else {}
    return TestClient(server, headers=headers, raise_server_exceptions=False)


def viewer(server: Any) -> TestClient:
    return client(server, "ada", "VIEWER")


def routes() -> list[tuple[str, str]]:
    """Method and path of every route of the page's app, each with names of what is there."""
    (entry,) = BinlakePlugin.fastapi_apps
    guarded = list(_routes(entry["app"].app()))
    return [
        (method, "/binlake" + re.sub(r"{(\w+)(:\w+)?}", lambda match: VALUES[match[1]], route.path))
        for route in guarded
        for method in sorted(route.methods)
    ]


def _routes(app: Any) -> Iterator[APIRoute]:
    """An app's, or a router's. A newer FastAPI keeps the routers that an app includes."""
    for route in app.routes:
        if included := getattr(route, "original_router", None):
            yield from _routes(included)
        else:
            assert isinstance(route, APIRoute), "a route of another kind has no guard"
            yield route


def get(client: TestClient, path: str, status: int = 200) -> Any:
    answer = client.get(f"/binlake/api/{path}")
    assert answer.status_code == status, answer.text
    return answer.json()


def post(client: TestClient, path: str, status: int = 200, **asked: Any) -> Any:
    answer = client.post(f"/binlake/api/{path}", json=asked)
    assert answer.status_code == status, answer.text
    return answer.json()
