"""What the page does: runs of DAGs and decisions, each for who may, with his name; what can't be done is told."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow import settings
from airflow.models.dag import DagModel
from airflow.models.dagbag import DBDagBag
from airflow.models.dagrun import DagRun
from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from deltalake import DeltaTable, write_deltalake
from fastapi.testclient import TestClient
from sqlalchemy import select

from airflow_page import add, add_dags, client, get, post, token, viewer
from binlake.errors import LakeError
from binlake.lease import followers, lease
from binlake.lease.holder import Watch, this_process
from binlake.lease.lease import OpenBatch
from binlake.phases.replay import ReplayedTable
from binlake.position import Range, Slice
from binlake.records import watermarks
from binlake.records.record import OtherRun, note_run
from binlake.store.metadata import now_us
from binlake_airflow.page.access import DAGS
from past import Past


@pytest.fixture
def past(folder: Path) -> Past:
    return add(folder).write()


@pytest.fixture
def dags(server: Any, folder: Path, past: Past) -> Iterator[None]:
    """Airflow knows the DAGs of the source, that of a feed among them; all are paused, as new ones are."""
    with (folder / "shop.yaml").open("a") as file:
        file.write("feeds: [{name: all, include: ['shop.*'], format: text, sink: 'file:///feed'}]\n")
        file.write("follow: {every: 1s}\n")
    add_dags(folder)
    with create_session() as session:
        for dag in session.scalars(select(DagModel).where(DagModel.dag_id.startswith("binlake_shop_"))):
            dag.is_paused = True
    yield
    with create_session() as session:
        for model in (DagRun, DagModel):
            for row in session.scalars(select(model).where(model.dag_id.startswith("binlake_shop_"))):
                session.delete(row)


def editor(server: Any) -> TestClient:
    """Who may do all with the DAGs of the shop."""
    return client(server, "shop", "USER")


def runs(what: str) -> list[DagRun]:
    with create_session() as session:
        return list(session.scalars(select(DagRun).where(DagRun.dag_id == f"binlake_shop_{what}").order_by(DagRun.id)))


def decided(past: Past) -> list[tuple[Any, ...]]:
    rows = sorted(past.metadata.read("decisions"), key=lambda row: row["at_us"])
    return [(row["action"], row["who"], row["why"], row["table"], row["file"], row["offset"]) for row in rows]


def happened(server: Any, count: int = 1) -> list[dict[str, Any]]:
    """The newest decisions, as a viewer sees them, the newest first."""
    events: list[dict[str, Any]] = get(viewer(server), f"sources/shop/events?kind=decision&count={count}")["events"]
    return events


def status(past: Past, table: str) -> str:
    return str(next(row.status for row in watermarks.read(past.metadata) if row.table == table))


def stand(past: Past, table: str, status: Any) -> None:
    row = next(row for row in watermarks.read(past.metadata) if row.table == table)
    watermarks.write(past.metadata, [replace(row, status=status, reason="so")])


@pytest.mark.parametrize(
    ("what", "asked", "conf"),
    [
        ("sync", {}, {}),
        ("sync", {"until": "2026-03-01T12:00:00Z"}, {"until": "2026-03-01T12:00:00+00:00"}),
        ("verify", {}, {}),
        ("verify", {"tables": ["shop.table_0001"]}, {"tables": ["shop.table_0001"]}),
        ("bootstrap", {"tables": ["shop.table_0001", "shop.a*"], "lock": "none"},
         {"tables": ["shop.table_0001", "shop.a[*]"], "lock": "none"}),
        ("bootstrap", {"tables": ["shop.table_0001"], "keys": "-5..1999"},
         {"tables": ["shop.table_0001"], "lock": "flush", "keys": "-5..1999"}),
        ("maintain", {}, {}),
        ("maintain", {"tables": ["shop.table_0001"]}, {"tables": ["shop.table_0001"]}),
        ("feeds", {}, {}),
        ("resume", {"tables": ["shop.table_0002"], "why": "fixed"}, {"tables": ["shop.table_0002"], "why": "fixed"}),
        ("replay", {"tables": ["shop.table_0001"]}, {"tables": ["shop.table_0001"], "prove": True}),
        ("replay", {"tables": ["shop.table_0001"], "batch": 2, "prove": False},
         {"tables": ["shop.table_0001"], "batch": 2, "prove": False}),
    ],
)  # fmt: skip
def test_a_run_is_triggered_in_the_users_name(
    server: Any, past: Past, dags: None, what: str, asked: dict[str, Any], conf: dict[str, Any]
) -> None:
    row = next(iter(watermarks.read(past.metadata)))
    watermarks.write(past.metadata, [replace(row, table_id="another", table="a*")])
    answer = post(editor(server), f"sources/shop/{what}", **asked)
    assert answer["message"] == f"binlake_shop_{what} is paused: the run waits until it is unpaused"
    (run,) = runs(what)
    assert (run.run_id, run.triggering_user_name, run.state) == (answer["run_id"], "shop", "queued")
    assert run.conf == conf
    with create_session() as session:
        log = session.scalars(select(Log).where(Log.event == f"binlake_{what}").order_by(Log.id.desc())).first()
    assert log is not None
    assert (log.owner, json.loads(str(log.extra))["source"]) == ("shop", "shop")


def test_who_asked_for_a_run_and_why_is_kept_with_how_it_ended(server: Any, past: Past, dags: None) -> None:
    tables = ["shop.table_0000", "shop.table_0001"]
    post(editor(server), "sources/shop/sync")
    (event,) = happened(server)
    assert (event["title"], event["who"], event["why"], event["ended"]) == ("sync", "shop", "", "queued")
    run = post(editor(server), "sources/shop/verify", tables=tables, why=" it looks odd ")["run_id"]
    (event,) = happened(server)
    assert (event["title"], event["why"], event["tables"]) == ("verify", "it looks odd", tables)
    assert event["what"] == "binlake_shop_verify is paused: the run waits until it is unpaused"
    assert event["run"] == f"binlake_shop_verify/{run}"
    with create_session() as session:
        session.scalars(select(DagRun).where(DagRun.run_id == run)).one().state = DagRunState.FAILED
    assert happened(server)[0]["ended"] == "failed"
    post(editor(server), "sources/shop/verify", 422, why="x" * 501)


def test_an_action_that_cant_be_recorded_is_done_and_says_so(
    server: Any, past: Past, dags: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise LakeError("the disk is full", remedy="make room")

    monkeypatch.setattr("binlake_airflow.page.action_notes.decisions.note", full)
    answer = post(editor(server), "sources/shop/sync", unpause=True)
    assert answer["message"] == "the run is queued; it couldn't be recorded: the disk is full"
    assert [run.run_id for run in runs("sync")] == [answer["run_id"]]


def test_a_paused_dag_is_unpaused_where_that_is_asked(server: Any, past: Past, dags: None) -> None:
    assert get(editor(server), "sources/shop")["dags"]["sync"]["is_paused"]
    assert post(editor(server), "sources/shop/sync", unpause=True)["message"] == "the run is queued"
    assert not get(editor(server), "sources/shop")["dags"]["sync"]["is_paused"]
    assert post(editor(server), "sources/shop/dags/verify/unpause")["message"] == "binlake_shop_verify is unpaused"
    assert not get(editor(server), "sources/shop")["dags"]["verify"]["is_paused"]

    every = (*DAGS, "edit", "remove")
    assert get(viewer(server), "sources/shop")["may"] == dict.fromkeys(every, False)
    assert get(editor(server), "sources")["sources"][0]["may"] == dict.fromkeys(every, True)


def test_a_repair_is_a_run_and_a_decision(server: Any, past: Past, dags: None) -> None:
    answer = post(editor(server), "sources/shop/repair", tables=["shop.table_0001"], why="odd rows")
    run = runs("verify")[-1]
    assert run.conf
    assert (run.run_id, run.conf["repair"], run.conf["tables"]) == (answer["run_id"], True, ["shop.table_0001"])
    assert decided(past) == [("repair", "shop", "odd rows", "table_0001", None, None)]
    post(viewer(server), "sources/shop/repair", 403, tables=["shop.table_0001"], why="odd rows")


def test_a_table_is_paused_and_snapshotted_anew_with_name_and_reason(server: Any, past: Past) -> None:
    answer = post(editor(server), "sources/shop/tables/shop.table_0001/pause", why=" its rows move ")
    assert answer["message"].startswith("shop.table_0001 is paused at ")
    assert status(past, "table_0001") == "paused"
    again = post(editor(server), "sources/shop/tables/shop.table_0001/pause", 409, why="again")
    assert again["detail"] == "shop.table_0001 is paused"
    assert again["remedy"]
    post(editor(server), "sources/shop/tables/shop.table_0001/resnapshot", why="sooner")
    assert status(past, "table_0001") == "resnapshot"
    assert decided(past) == [
        ("pause", "shop", "its rows move", "table_0001", None, None),
        ("resnapshot", "shop", "sooner", "table_0001", None, None),
    ]
    shown = {row["table"]: row["status"] for row in get(editor(server), "sources/shop/tables")["tables"]}
    assert shown["shop.table_0001"] == "resnapshot"


def test_an_event_is_skipped_with_name_and_reason(server: Any, past: Past) -> None:
    stop = past.position(3)
    part = Slice(stop.file, stop.offset, stop.offset + 1000, stop.created, False)
    plan = OpenBatch(4, Range(stop, replace(stop, offset=stop.offset + 1000), (part,)))
    place: dict[str, Any] = {"file": stop.file, "offset": stop.offset + 7}
    with lease.held(past.metadata) as held:
        held.open(plan)
    past.metadata.append(
        "quarantine", [{"batch": 4, **place, "reason": "unknown", "remedy": "skip it", "raw": b"x", "at_us": 1}]
    )
    (advice,) = [line for line in get(editor(server), "sources/shop")["advice"] if "unknown" in line["what"]]
    assert advice["button"] == {"do": "skip-event", "dag": None, "state": None, "tables": [], **place}
    assert (
        "nothing stopped" in post(editor(server), "sources/shop/skip-event", 409, file="x", offset=1, why="?")["detail"]
    )
    post(editor(server), "sources/shop/skip-event", why="an empty event", **place)
    assert decided(past) == [("skip-event", "shop", "an empty event", None, *place.values())]
    assert get(editor(server), "sources/shop")["poison"] == []
    refused = post(editor(server), "sources/shop/tables/shop.table_0001/pause", 409, why="now")
    assert "batch 4 is open" in refused["detail"]


def test_a_schema_change_that_waits_is_answered(server: Any, past: Past) -> None:
    name, (file, offset) = past.name(1), past.let_wait(1)
    place = f"{file}:{offset}"
    source = get(viewer(server), "sources/shop")
    (waits,) = source["waiting"]
    assert (waits["table"], waits["place"], waits["statement"]) == (str(name), place, "ALTER TABLE t ADD n INT")
    assert (waits["before"], waits["after"], waits["no"]) == (
        ["id int"],
        ["id int", "n int"],
        "the lake goes without 'n'",
    )
    assert "1 table waits for a yes or a no to a change of its columns" in [line["what"] for line in source["advice"]]
    path = f"sources/shop/tables/{name}/schema-change"
    asked: dict[str, Any] = {"yes": False, "why": "it's private"}
    post(viewer(server), path, 403, place=place, **asked)
    assert "for another statement" in post(editor(server), path, 409, place="binlog.000009:4", **asked)["detail"]
    assert "the lake goes without 'n'" in post(editor(server), path, place=place, **asked)["message"]
    assert decided(past) == [("schema-change no", "shop", "it's private", name.table, file, offset)]
    assert lease.read(past.metadata).columns_left_out == (f"{name}.n",)
    assert (status(past, name.table), get(editor(server), "sources/shop")["waiting"]) == ("catching up", [])


def test_while_a_run_is_at_work_nothing_is_decided(server: Any, past: Past) -> None:
    with lease.held(past.metadata):
        refusal = post(editor(server), "sources/shop/tables/shop.table_0001/pause", 409, why="now")
    assert "works on this source" in refusal["detail"]
    assert refusal["remedy"] == "wait for it to end, then run again"
    assert status(past, "table_0001") == "following"


def test_what_isnt_there_or_makes_no_sense_is_refused(server: Any, past: Past, dags: None) -> None:
    user = editor(server)
    assert "no table 'shop.x'" in post(user, "sources/shop/verify", 404, tables=["shop.x"])["detail"]
    assert "no table 'shop.x'" in post(user, "sources/shop/tables/shop.x/pause", 404, why="?")["detail"]
    post(user, "sources/shop/tables/shop.table_0001/pause", 422)
    post(user, "sources/shop/tables/shop.table_0001/pause", 422, why="  ")
    post(user, "sources/shop/sync", 422, untill="now")
    post(user, "sources/shop/bootstrap", 422, lock="forever")
    for_keys = {"tables": ["shop.table_0001"], "keys": "from here on"}
    assert "keys" in post(user, "sources/shop/bootstrap", 400, **for_keys)["detail"]
    assert "of one table" in post(user, "sources/shop/bootstrap", 400, keys="1..2")["detail"]
    post(user, "sources/shop/resume", 422, tables=[], why="?")
    post(user, "sources/shop/dags/everything/unpause", 422)
    assert [runs(what) for what in ("sync", "verify", "bootstrap", "resume")] == [[]] * 4
    assert decided(past) == []


def test_a_database_of_airflows_that_somebody_else_writes_to_is_named(server: Any, past: Past, dags: None) -> None:
    with closing(sqlite3.connect(str(settings.engine.url.database))) as other:
        other.execute("BEGIN IMMEDIATE")
        refused = post(editor(server), "sources/shop/sync", 503)
    assert "database is locked" in refused["detail"]
    assert refused["remedy"].startswith("try again")
    assert runs("sync") == []
    post(editor(server), "sources/shop/sync")


def test_a_dag_that_airflow_doesnt_know_is_named(server: Any, past: Past) -> None:
    assert "no DAG binlake_shop_sync yet" in post(editor(server), "sources/shop/sync", 409)["detail"]


def test_no_page_of_another_site_acts_in_the_users_name(server: Any, past: Past, dags: None) -> None:
    """With the cookie that a browser sends along, which is who the user is for Airflow's own page."""
    path, cookie = "/binlake/api/sources/shop/sync", {"_token": token("shop", "USER")}
    with TestClient(server, cookies=cookie) as browser:
        for said in ("cross-site", "same-site", "none"):
            assert browser.post(path, json={}, headers={"Sec-Fetch-Site": said}).status_code == 403
        # What a form can send without being asked for leave is none of these.
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            assert browser.post(path, content="{}", headers={"Content-Type": kind}).status_code == 422
        assert runs("sync") == []
        answer = browser.post(path, json={}, headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 200, answer.text
    assert [run.triggering_user_name for run in runs("sync")] == ["shop"]


def test_a_run_at_work_is_seen_and_cancelled(server: Any, past: Past, dags: None) -> None:
    user = editor(server)
    run = post(user, "sources/shop/maintain")["run_id"]
    (seen,) = get(user, "sources/shop/work")["runs"]
    dag = {"what": "maintain", "dag_id": "binlake_shop_maintain", "run_id": run}
    assert seen == {**dag, "since_us": None, "tasks": [], "may_cancel": True}
    assert [run["may_cancel"] for run in get(viewer(server), "sources/shop/work")["runs"]] == [False]
    path = "sources/shop/dags/maintain/cancel"
    post(viewer(server), path, 403, run_id=run)
    assert "no run nothing at work" in post(user, path, 409, run_id="nothing")["detail"]
    assert "what is committed stays" in post(user, path, run_id=run)["message"]
    assert [run.state for run in runs("maintain")] == ["failed"]
    assert get(user, "sources/shop/work")["runs"] == []
    post(user, path, 409, run_id=run)
    with create_session() as session:
        logged = session.scalars(select(Log).where(Log.event == "binlake_cancel")).all()
    assert {entry.owner for entry in logged} == {"shop"}


def test_of_a_cancelled_sync_only_that_is_left_which_announces_what_was_recorded(
    server: Any, past: Past, dags: None
) -> None:
    run = post(editor(server), "sources/shop/sync")["run_id"]
    post(editor(server), "sources/shop/dags/sync/cancel", run_id=run)
    with create_session() as session:
        tasks = session.execute(
            select(TaskInstance.task_id, TaskInstance.state).where(TaskInstance.run_id == run)
        ).all()
    assert {task for task, state in tasks if state != "upstream_failed"} == {"announce"}
    assert len(tasks) > 5


@pytest.mark.parametrize("what", ["sync", "verify"])
@pytest.mark.parametrize("begun", [False, True])
def test_a_cancelled_run_ends_as_failed_and_who_cancelled_it_is_told(
    server: Any, past: Past, dags: None, what: str, *, begun: bool
) -> None:
    """Also one that waits for its turn; and when the task that announces what was recorded has ended well."""
    run_id = post(editor(server), f"sources/shop/{what}")["run_id"]
    with create_session() as session:
        run = session.scalars(select(DagRun).where(DagRun.run_id == run_id)).one()
        if begun:
            run.state = DagRunState.RUNNING
    post(editor(server), f"sources/shop/dags/{what}/cancel", run_id=run_id, why="it hangs")
    with create_session() as session:
        run = session.scalars(select(DagRun).where(DagRun.run_id == run_id)).one()
        for task in session.scalars(select(TaskInstance).where(TaskInstance.run_id == run_id)):
            if task.state is None:
                task.state = TaskInstanceState.SUCCESS
        session.flush()
        run.dag = DBDagBag().get_dag_for_run(run, session=session)
        run.update_state(session=session)
        assert run.state == DagRunState.FAILED
    assert [(event["title"], event["who"], event["why"], event["run"]) for event in happened(server)] == [
        (f"{what} cancelled", "shop", "it hangs", f"binlake_shop_{what}/{run_id}")
    ]  # fmt: skip
    said = f"the last run of binlake_shop_{what} was cancelled "
    (line,) = [each for each in get(viewer(server), "sources/shop")["advice"] if each["what"].startswith(said)]
    assert line["what"].endswith(" ago by shop: it hangs")
    assert line["button"]["do"] == what


def test_how_far_a_step_is(server: Any, past: Past) -> None:
    progress = {"step": "merged", "done": 30, "total": 40, "detail": "30 MB", "began_us": 1, "at_us": now_us()}
    Path(past.config.metadata_path("progress-merged.json")).write_text(json.dumps(progress))
    assert get(viewer(server), "sources/shop/work")["steps"] == [progress]


# a source as a whole -------------------------------------------------------------------------------------------------
def paused(server: Any) -> set[str]:
    dags = get(viewer(server), "sources/shop")["dags"]
    return {what for what, dag in dags.items() if dag["is_paused"]}


def test_following_is_started_and_stopped(server: Any, past: Past, dags: None) -> None:
    user = editor(server)
    (advice,) = [line for line in get(user, "sources/shop")["advice"] if line["what"].startswith("nobody follows")]
    assert advice["button"]["do"] == "follow"
    answer = post(user, "sources/shop/follow/start", why="it was paused")
    assert (answer["message"], answer["dag_id"]) == ("the run is queued", "binlake_shop_follow")
    assert "follow" not in paused(server)
    assert [run.run_id for run in runs("follow")] == [answer["run_id"]]
    refused = post(user, "sources/shop/follow/start", 409)
    assert answer["run_id"] in refused["detail"]
    assert "binlake_shop_follow is paused: its task ends" in post(user, "sources/shop/follow/stop")["message"]
    assert "follow" in paused(server)
    again = post(user, "sources/shop/follow/start")
    assert again["run_id"] == answer["run_id"], "the run that waits is the one"
    assert [(event["title"], event["who"], event["why"]) for event in happened(server, 3)] == [
        ("follow on", "shop", ""), ("follow off", "shop", ""), ("follow on", "shop", "it was paused"),
    ]  # fmt: skip


def test_a_source_is_paused_as_a_whole_and_what_is_chosen_is_resumed(server: Any, past: Past, dags: None) -> None:
    user = editor(server)
    assert "it is paused already" in post(user, "sources/shop/pause", 409)["remedy"]
    answer = post(user, "sources/shop/unpause", dags=["sync", "follow", "maintain"], why="begin")
    assert answer["message"] == "unpaused: binlake_shop_sync, binlake_shop_maintain, binlake_shop_follow"
    assert not paused(server) & {"sync", "follow", "maintain"}
    assert "paused: binlake_shop_sync" in post(user, "sources/shop/pause", why="the server moves")["message"]
    assert {"sync", "follow", "verify", "maintain", "feeds"} <= paused(server)
    (event,) = happened(server)
    assert (event["title"], event["who"], event["why"]) == ("source paused", "shop", "the server moves")
    assert event["what"] == "paused: binlake_shop_sync, binlake_shop_follow, binlake_shop_maintain"
    post(user, "sources/shop/unpause", 422, dags=[])
    post(user, "sources/shop/unpause", 422, dags=["everything"])


def test_a_version_is_pinned_and_given_up(server: Any, past: Past) -> None:
    past.metadata.append("lake_versions", [
        {"batch": 3, "kind": "base", "position": str(past.position(3)), "gtid_set": "", "committed_us": 1, "at_us": 1},
    ])  # fmt: skip
    user = editor(server)
    answer = post(user, "sources/shop/pins", batch=3, name="before_the_move", why="to compare")
    assert answer["message"].startswith("batch 3 is kept as before_the_move")
    (pin,) = get(viewer(server), "sources/shop/pins")["pins"]
    assert (pin["name"], pin["batch"], pin["who"], pin["why"]) == ("before_the_move", 3, "shop", "to compare")
    taken = post(user, "sources/shop/pins", 409, batch=3, name="again")
    assert taken["remedy"] == "take another name, or first: “Unpin” before_the_move"
    post(user, "sources/shop/pins", 409, batch=99, name="later")
    assert "batch 3 isn't kept" in post(user, "sources/shop/unpin", name="before_the_move", why="done")["message"]
    assert get(viewer(server), "sources/shop/pins")["pins"] == []
    post(user, "sources/shop/unpin", 409, name="before_the_move")
    assert [(event["title"], event["why"], event["what"]) for event in happened(server, 2)] == [
        ("unpin", "done", "before_the_move isn't kept any more"),
        ("pin", "to compare", "batch 3 is kept as before_the_move"),
    ]


ELSEWHERE = "elsewhere boot b namespace 1 pid 1 started 1"


def test_the_lease_of_a_dead_run_is_taken_away(server: Any, past: Past) -> None:
    user = editor(server)
    assert not get(user, "sources/shop")["may_be_unlocked"]
    with lease.held(past.metadata):
        assert not get(user, "sources/shop")["may_be_unlocked"], "it is alive here"
        assert "is alive on this machine" in post(user, "sources/shop/unlock", 409)["detail"]
    held: dict[str, Any] = {"holder": ELSEWHERE, "token": "t", "expires_us": now_us() + 60_000_000}
    assert past.metadata.swap("lease", "true", held)
    assert get(user, "sources/shop")["may_be_unlocked"]
    refused = post(user, "sources/shop/tables/shop.table_0001/pause", 409, why="now")
    assert refused["remedy"].endswith("at once with: “Unlock”")
    assert ELSEWHERE in post(user, "sources/shop/unlock", why="its machine is gone")["message"]
    (event,) = happened(server)
    assert (event["title"], event["who"], event["why"]) == ("unlock", "shop", "its machine is gone")
    assert ELSEWHERE in event["what"]
    with lease.held(past.metadata):
        pass


def test_a_lease_that_is_gone_is_made_again(server: Any, past: Past) -> None:
    place = str(past.position(past.batches))
    past.metadata.append("lake_versions", [
        {"batch": past.batches, "kind": "base", "position": place, "gtid_set": "", "committed_us": 1, "at_us": 1},
    ])  # fmt: skip
    user, before = editor(server), lease.read(past.metadata).position
    shutil.rmtree(Path(past.metadata.location("lease")))
    gone = get(user, "sources/shop", 503)
    assert "the metadata table lease is gone" in gone["detail"]
    assert (gone["remedy"].split()[0], gone["fixes"]) == ("“Unlock”", [{"do": "unlock", "tables": []}])
    (card,) = get(user, "sources")["sources"]
    assert (card["error"], card["may"]["edit"]) == (gone, True)
    post(viewer(server), "sources/shop/unlock", 403, why="I looked")
    assert "the lease is made again, at batch" in post(user, "sources/shop/unlock", why="a disk was lost")["message"]
    assert lease.read(past.metadata).position == before
    (event,) = happened(server)
    assert (event["title"], event["why"]) == ("unlock", "a disk was lost")


def test_a_source_is_removed_and_its_lake_stays(server: Any, folder: Path, past: Past, dags: None) -> None:
    user, file = editor(server), folder / "shop.yaml"
    write_deltalake(past.config.table_path(past.names[0]), pa.table({"id": range(100)}))
    run = post(user, "sources/shop/maintain")["run_id"]
    asked = get(user, "sources/shop/removal")
    assert (asked["lake"], asked["tables"], asked["unmeasured"]) == (past.config.root, 3, 2)
    assert 0 < asked["bytes"] < 10_000
    assert asked["hindrance"] == f"the run {run} is at work"
    assert post(user, "sources/shop/remove", 409)["detail"] == asked["hindrance"]
    post(user, "sources/shop/dags/maintain/cancel", run_id=run)
    with lease.held(past.metadata):
        assert "works on it" in post(user, "sources/shop/remove", 409)["detail"]
    message = post(user, "sources/shop/remove", why="it moved")["message"]
    assert message.startswith(f"shop.yaml is removed; the lake at {past.config.root} stays")
    assert not file.exists()
    assert DeltaTable(past.config.table_path(past.names[0])).version() == 0
    assert decided(past)[-1][:3] == ("source removed", "shop", "it moved")
    get(viewer(server), "sources/shop", 404)


def test_a_file_that_may_not_be_removed_stays(
    server: Any, folder: Path, past: Past, dags: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    refused = post(editor(server), "sources/shop/remove", 409)
    assert refused["detail"] == f"{folder / 'shop.yaml'} can't be removed: Permission denied"
    assert decided(past) == [], "what wasn't done isn't recorded"


def test_what_a_replay_built_is_shown_with_a_line_that_queries_it(server: Any, past: Past) -> None:
    path = f"{past.config.root}/_replayed/2/shop/shop/table_0001"
    write_deltalake(path, pa.table({"id": [1, 2]}))
    built = ReplayedTable("shop.table_0001", path, 2, "p", 2, 0, 0, 2, equals_version=7)
    gone = replace(built, path=f"{path}_gone", table="shop.table_0002")
    for number in range(2):
        note_run(past.metadata, OtherRun(
            kind="replay", run=f"r{number}", batch=2, position=None, phase=("replay", 1.0), message="built",
            began_us=1, tables=[built.to_json(), gone.to_json()],
        ))  # fmt: skip
    here, away = get(viewer(server), "sources/shop/replays")["replays"]
    assert (here["table"], here["rows"], here["path"], here["is_there"]) == ("shop.table_0001", 2, path, True)
    assert (away["path"], away["is_there"]) == (gone.path, False)
    done = subprocess.run([sys.executable, "-c", here["query"]], capture_output=True, text=True, check=True)
    assert "id" in done.stdout
    events = get(viewer(server), "sources/shop/events?kind=run&table=shop.table_0001")["events"]
    assert [event["title"] for event in events].count("replay") == 2


def test_rows_that_differ_are_offered_with_their_keys_to_editors(server: Any, folder: Path, past: Past) -> None:
    rows = [
        {"kind": "changed", "count": 1, "columns": ["note"], "key": {"id": "4711", "email": "a@b"}},
        {"kind": "extra", "count": 2, "columns": [], "key": {}},
    ]
    row = {"batch": 3, "database": "shop", "table": "table_0001", "at_us": 2, "differing_rows": 5}
    past.metadata.append("verifications", [{**row, "equal": False, "rows": json.dumps(rows)}])
    with (folder / "shop.yaml").open("a") as file:
        file.write("page: {show_values: true, mask_columns: ['shop.*.email']}\n")
    asked = "sources/shop/differing/shop.table_0001"
    seen = get(editor(server), asked)["differing"]
    assert seen["more"] == 2
    assert [row["key"] for row in seen["rows"]] == [{"id": "4711", "email": "***"}, None]
    assert get(editor(server), "sources/shop/tables/shop.table_0001")["differing"] == seen
    less = get(viewer(server), asked)["differing"]
    assert [(row["kind"], row["key"]) for row in less["rows"]] == [("changed", None), ("extra", None)]
    assert "4711" not in json.dumps(get(viewer(server), "sources/shop/tables/shop.table_0001"))
    past.metadata.append("verifications", [{**row, "at_us": 3, "equal": True}])
    assert get(editor(server), asked)["differing"] is None
    get(editor(server), "sources/shop/differing/shop.x", 404)


def test_the_end_of_a_follower_is_an_event_with_its_time(server: Any, past: Past) -> None:
    def stops(table: str = "") -> list[tuple[str, int, str]]:
        events = get(viewer(server), f"sources/shop/events?kind=stop{table}")["events"]
        return [(event["title"], event["at_us"], event["what"]) for event in events]

    followers.prepare(past.metadata)
    gone = re.sub(r"started \d+", "started 1", this_process())
    signs: dict[str, Any] = {"holder": gone, "token": "turn-1", "since_us": 5, "at_us": 7, "every_ms": 1}
    assert past.metadata.swap("followers", "true", signs)
    ((title, at_us, words),) = stops()
    assert (title, at_us, words.startswith(gone)) == ("follower dead", 7, True)
    another = followers.Follower(past.metadata, 1.0)
    another.begin(Watch())
    with another.kept():
        assert [stop[:2] for stop in stops()] == [("follower dead", 7)], "once, also when another has taken over"
        another.note_stop("failed", "the disk is full")
    assert [stop[0] for stop in stops()] == ["follower failed", "follower dead"]
    assert stops()[0][2].endswith("stopped following, as it failed: the disk is full")
    assert stops("&table=shop.table_0001") == []
