"""What Airflow alone knows of a source, on the page: failed runs with their reason, and a scheduler that died."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.utils.log.log_reader import TaskLogReader
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from sqlalchemy import select

from airflow_page import add, add_dags, client, get, post, scheduler_was_alive, viewer
from binlake.store.metadata import now_us
from binlake_airflow.page.access import Reader
from binlake_airflow.page.airflow_state import last_words
from past import Past


@pytest.fixture
def past(server: Any, folder: Path) -> Iterator[Past]:
    """A source whose DAGs Airflow knows, which all is well with."""
    made = replace(add(folder), now_us=now_us()).write()
    add_dags(folder)
    with create_session() as session:
        for dag in session.scalars(select(DagModel).where(DagModel.dag_id.startswith("binlake_shop_"))):
            dag.is_paused = False
    yield made
    with create_session() as session:
        for model in (DagRun, DagModel):
            for row in session.scalars(select(model).where(model.dag_id.startswith("binlake_shop_"))):
                session.delete(row)


def ended(server: Any, state: DagRunState, ago: timedelta) -> str:
    """A run of the maintain DAG that ended so, and whose task did."""
    run_id: str = post(client(server, "shop", "USER"), "sources/shop/maintain")["run_id"]
    with create_session() as session:
        run = session.scalars(select(DagRun).where(DagRun.run_id == run_id)).one()
        run.state, run.end_date = state, datetime.now(UTC) - ago
        for task in session.scalars(select(TaskInstance).where(TaskInstance.run_id == run_id)):
            task.state = TaskInstanceState.FAILED if state == DagRunState.FAILED else TaskInstanceState.SUCCESS
    return run_id


def said(server: Any) -> list[str]:
    return [line["what"] for line in get(viewer(server), "sources/shop")["advice"]]


def test_the_newest_run_that_failed_is_told_with_the_last_words_of_its_log_to_who_may_read_it(
    server: Any, past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        SimpleNamespace(event="Task failed", level="error", error_detail=[{"exc_value": "no space\n  → make some"}])
    ]
    monkeypatch.setattr(TaskLogReader, "read_log_chunks", lambda *_: (iter(lines), {}))
    ended(server, DagRunState.SUCCESS, timedelta(hours=2))
    assert said(server) == []
    ended(server, DagRunState.FAILED, timedelta(minutes=12))
    assert said(server) == ["the last run of binlake_shop_maintain failed in task maintain, 12 min ago: no space"]
    source = get(viewer(server), "sources/shop")
    assert source["health"] == "warn"
    assert source["sentence"] == "The last run of binlake_shop_maintain failed in task maintain, 12 min ago: no space."
    monkeypatch.setattr(Reader, "may_read_logs", lambda *_: False)
    assert said(server) == ["the last run of binlake_shop_maintain failed in task maintain, 12 min ago"]
    ended(server, DagRunState.SUCCESS, timedelta(minutes=1))
    assert said(server) == []


def test_a_log_that_cannot_be_read_hides_no_failure(server: Any, past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Any:
        raise OSError("the store is away")

    monkeypatch.setattr(TaskLogReader, "read_log_chunks", away)
    ended(server, DagRunState.FAILED, timedelta(minutes=12))
    assert said(server) == ["the last run of binlake_shop_maintain failed in task maintain, 12 min ago"]


def test_a_scheduler_that_died_is_told(server: Any, past: Past) -> None:
    at = datetime.now(UTC) - timedelta(days=3)
    scheduler_was_alive(at)
    try:
        (words,) = said(server)
        assert words == f"Airflow's scheduler gives no sign of life since {at:%Y-%m-%d %H:%M:%S} UTC (3 days ago)"
        assert get(viewer(server), "sources/shop")["health"] == "bad"
    finally:
        scheduler_was_alive(datetime.now(UTC))
    assert said(server) == []


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], ""),
        ([("begun", "info", []), ("::endgroup::", "info", [])], "begun"),
        ([("it broke", "error", []), ("cleaning up", "info", [])], "it broke"),
        ([("Task failed", "error", [{"exc_value": "\nno space\n  → x"}]), ("over", "info", [])], "no space"),
        ([("x" * 400, "error", [])], "x" * 300 + "…"),
    ],
)
def test_the_last_words_of_a_log(lines: list[Any], words: str) -> None:
    given = (SimpleNamespace(event=event, level=level, error_detail=details) for event, level, details in lines)
    assert last_words(given) == words


def test_the_first_snapshot_is_told_while_its_run_is_queued(server: Any, past: Past, folder: Path) -> None:
    add(folder, "fresh")
    add_dags(folder)
    user = client(server, "fresh", "USER")
    source = get(user, "sources/fresh")
    assert (source["is_copied_first"], source["advice"][0]["button"]["do"]) == (False, "bootstrap")
    run_id = post(user, "sources/fresh/bootstrap", unpause=True)["run_id"]
    begun = get(user, "sources/fresh")
    assert (begun["is_copied_first"], begun["sentence"]) == (True, "The first snapshot begins: its run is queued.")
    assert [line["button"] for line in begun["advice"]] == [None]
    with create_session() as session:
        run = session.scalars(select(DagRun).where(DagRun.run_id == run_id)).one()
        run.state, run.start_date = DagRunState.RUNNING, datetime.now(UTC) - timedelta(seconds=30)
    assert get(user, "sources/fresh")["sentence"].startswith("The first snapshot begins: its run started 3")
    with create_session() as session:
        session.scalars(select(DagRun).where(DagRun.run_id == run_id)).one().state = DagRunState.SUCCESS
    assert get(user, "sources/fresh")["is_copied_first"] is False
    with create_session() as session:
        for model in (DagRun, DagModel):
            for row in session.scalars(select(model).where(model.dag_id.startswith("binlake_fresh_"))):
                session.delete(row)
