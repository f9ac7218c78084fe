"""Who is told of what: limits, tables that stop, comparisons and tasks that fail."""

from __future__ import annotations

import json
import re
import sys
from contextlib import nullcontext
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import BaseNotifier
from jinja2 import Environment
from yaml import safe_load

from airflow_places import DagSerialization
from binlake import config, pipeline
from binlake.config import PipelineConfig
from binlake.errors import CheckFailed, ConfigurationError, ConnectionFailed, SparkNeeded
from binlake.phases import watch
from binlake.phases.outcomes import PlanOutcome
from binlake.phases.watch import Watched
from binlake.position import Position
from binlake.records.health import ComparedTables, Health
from binlake.records.health_reasons import Advice
from binlake.records.record import RunReport
from binlake.schema.table import TableName
from binlake.store.metadata import metadata_of
from binlake.store.run_rows import TableRun
from binlake.verify.result import DifferingRow, TableRepair, TableResult, VerifyReport
from binlake_airflow import notices
from binlake_airflow.compat import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    CronDataIntervalTimetable,
    DownstreamTasksSkipped,
)
from binlake_airflow.hook import BinlakeHook
from binlake_airflow.notices import FeedStopped, TaskFailed
from binlake_airflow.operators import BinlakeRecordOperator, BinlakeResnapshotOperator, batches
from binlake_airflow.pipelines import dags_of
from binlake_airflow.upkeep import BinlakeVerifyOperator, BinlakeWatchOperator

YAML = """
source: {{name: shop, connection: "file:///log"}}
tables: {{include: ["shop.*"]}}
lake: {{path: ./lake}}
airflow: {{{airflow}}}
"""
messages: list[str] = []


class Noted(BaseNotifier):
    """Keeps what it is to send, rendered as Airflow renders it."""

    template_fields = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:
        messages.append(self.text)


def by_function(context: Any, prefix: str) -> None:
    messages.append(prefix + context["binlake"]["event"])


def broken(context: Any) -> None:
    raise OSError("no network")


@pytest.fixture(autouse=True)
def notifiers(monkeypatch: pytest.MonkeyPatch) -> None:
    """This file's, by a name that a YAML can have."""
    monkeypatch.setitem(sys.modules, "notifiers_of_a_test", sys.modules[__name__])
    messages.clear()


def yaml(folder: Path, airflow: str) -> Path:
    path = folder / "shop.yaml"
    path.write_text(YAML.format(airflow=airflow))
    return path


def loaded(folder: Path, airflow: str) -> PipelineConfig:
    return config.load(yaml(folder, airflow))


def noted(*events: str) -> str:
    """One of the YAML's ``notify``."""
    text = "{{ binlake.message }} ({{ binlake.event }})"
    return f"{{when: [{', '.join(events)}], notifier: notifiers_of_a_test.Noted, arguments: {{text: '{text}'}}}}"


def test_a_notifiers_templates_have_what_happened(tmp_path: Path) -> None:
    config = loaded(tmp_path, f"notify: [{noted('stopped', 'lag')}]")
    notices.tell(config, {}, "stopped", "shop.orders stopped: it is odd", "fix it")
    notices.tell(config, {}, "retention", "nobody asked for it")
    assert messages == ["shop.orders stopped: it is odd (stopped)"]


def test_a_function_is_a_notifier_and_one_that_fails_holds_nothing_back(tmp_path: Path) -> None:
    arguments = {"broken": "{}", "missing": "{}", "by_function": "{prefix: 'the '}"}
    functions = [
        f"{{when: [lag], notifier: notifiers_of_a_test.{name}, arguments: {given}}}"
        for name, given in arguments.items()
    ]
    config = loaded(tmp_path, f"notify: [{', '.join(functions)}]")
    notices.tell(config, {}, "lag", "behind")
    assert messages == ["the lag"]
    (problem,) = notices.problems(config)
    assert problem.startswith("notifiers_of_a_test.missing: AttributeError")


def test_a_task_that_failed_for_good(tmp_path: Path) -> None:
    file = yaml(tmp_path, f"notify: [{noted('failed')}]")
    for dag in dags_of(tmp_path).values():
        DagSerialization.to_dict(dag)
        for task in dag.tasks:
            assert [*task.on_failure_callback] == [TaskFailed(str(file))]
    failed = SimpleNamespace(dag_id="binlake_shop_sync", task_id="merge")
    context: Any = {"ti": failed, "exception": ValueError("first line\nsecond line")}
    TaskFailed(str(file))(context)
    assert messages == ["binlake_shop_sync, task merge: first line (failed)"]
    file.write_text("{")
    TaskFailed(str(file))(context)
    assert len(messages) == 1


def test_one_thing_is_told_once_to_who_asked_for_it_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asked for failures alone is told of it as one."""
    file = yaml(tmp_path, f"notify: [{noted('verify_failed', 'failed')}, {noted('failed')}]")

    def verify(*_: Any, **__: Any) -> None:
        raise CheckFailed("3 rows differ")

    monkeypatch.setattr(pipeline, "verify", verify)
    run = SimpleNamespace(dag_id="binlake_shop_verify", run_id="r", run_type="manual")
    with pytest.raises(AirflowFailException) as failed:
        BinlakeVerifyOperator(task_id="verify", config_file=str(file)).execute({"dag_run": run})
    task = SimpleNamespace(dag_id="binlake_shop_verify", task_id="verify")
    TaskFailed(str(file))({"ti": task, "exception": failed.value})
    assert messages == ["3 rows differ (verify_failed)", "binlake_shop_verify, task verify: 3 rows differ (failed)"]


def test_a_feed_that_stopped_for_good(tmp_path: Path) -> None:
    file = yaml(tmp_path, f"notify: [{noted('feed_stopped')}]")
    with file.open("a") as more:
        more.write("feeds: [{name: orders, include: ['shop.*'], format: text, sink: 'file:///feed'}]\n")
    (task,) = dags_of(tmp_path)["binlake_shop_feeds"].tasks
    (callback,) = task.on_failure_callback
    callback({})
    assert messages == [], "it never ran"
    row = {"feed": "orders", "status": "stopped", "reason": "no such topic", "remedy": "make it"}
    metadata_of(config.load(file)).append("feeds", [row])
    callback({})
    assert messages == ["feed orders is stopped: no such topic (feed_stopped)"]
    file.write_text(file.read_text().replace("when: [feed_stopped]", "when: [feed_stopped, failed]"))
    (task,) = dags_of(tmp_path)["binlake_shop_feeds"].tasks
    failed: Any = {"ti": SimpleNamespace(dag_id="d", task_id="t"), "exception": ValueError("no such topic")}
    for both in task.on_failure_callback:
        both(failed)
    assert messages == ["feed orders is stopped: no such topic (feed_stopped)"] * 2, "one thing is told once"


def test_of_feeds_over_several_sources_those_are_told_whose_source_it_is(tmp_path: Path) -> None:
    shop, bank = yaml(tmp_path, f"notify: [{noted('feed_stopped')}]"), tmp_path / "bank.yaml"
    of_bank = YAML.format(airflow=f"notify: [{noted('failed')}]").replace("shop", "bank")
    bank.write_text(of_bank.replace("lake}", "money}"))
    together = "{name: all, sources: [shop.yaml, bank.yaml], format: text, sink: 'file:///feed'}"
    (tmp_path / "together.yaml").write_text(f"feeds: [{together}]\n")
    tasks = {task.task_id: task for task in dags_of(tmp_path)["binlake_together_feeds"].tasks}
    assert [*tasks["all.shop"].on_failure_callback] == [FeedStopped(str(shop), "all")]
    assert [*tasks["all.bank"].on_failure_callback] == [TaskFailed(str(bank))]


def health_of(*advice: Advice) -> Health:
    return Health("bad", "The worst of it.", advice, ComparedTables(1, 1, 0, 1))


@pytest.mark.parametrize(
    ("watched", "expected"),
    [
        (Watched(0, 0, 80 * 3600, ()), []),
        (Watched(0, 0, 80 * 3600, (), health=health_of(Advice("bad", "another thing", "mend it"))), []),
        (
            Watched(7200, 5_000_000, None, (), health=health_of(Advice("bad", "far behind", "go", occasion="lag"))),
            ["far behind (lag)"],
        ),
        (
            Watched(None, None, 3600, ("shop.t",), gaps=("no FULL",), health=health_of(
                Advice("bad", "a purge is near", "go", occasion="retention"))),
            ["a purge is near (retention)", "the log lacks changes: no FULL (lag)"],
        ),
    ],
)  # fmt: skip
def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watched: Watched, expected: list[str]) -> None:
    """A double in the place of the look at the server, which tests/integration/test_watch.py takes."""
    file = yaml(tmp_path, f"lag_minutes: 60, retention_hours: 24, notify: [{noted('lag', 'retention')}]")
    monkeypatch.setattr(watch, "watch", lambda *_: watched)
    monkeypatch.setattr(BinlakeHook, "origin", lambda _: None)
    gauges: dict[str, float] = {}
    monkeypatch.setattr("binlake_airflow.compat.Stats.gauge", lambda name, value: gauges.update({name: value}))
    told = BinlakeWatchOperator(task_id="watch", config_file=str(file)).execute({})
    assert messages == expected
    assert told["health"] == (watched.health and "bad")
    assert told.get("sentence") == (watched.health and "The worst of it.")
    assert gauges["binlake.shop.tables_stopped"] == len(watched.stopped)
    assert gauges.get("binlake.shop.lag_seconds") == watched.lag_seconds


@pytest.mark.parametrize(
    ("airflow", "schedule"),
    [
        ("lag_minutes: 60", "*/10 * * * *"),
        ("retention_hours: 9, watch_schedule: '5 * * * *'", "5 * * * *"),
        ("watch_schedule: '@hourly'", "@hourly"),
    ],
)
def test_a_limit_is_looked_at_where_a_sync_failed_and_where_none_runs(
    tmp_path: Path, airflow: str, schedule: str
) -> None:
    yaml(tmp_path, airflow)
    dags = dags_of(tmp_path)
    watches = dags["binlake_shop_sync"].get_task("watch")
    assert (watches.upstream_task_ids, watches.is_teardown, watches.on_failure_fail_dagrun) == (
        {"resnapshot"}, True, False,
    )  # fmt: skip
    alone = dags["binlake_shop_watch"]
    assert alone.timetable == CronDataIntervalTimetable(schedule, timezone="UTC")
    ((task, max_active_runs),) = [(task, alone.max_active_runs) for task in alone.tasks]
    assert (type(task), task.is_teardown, max_active_runs) == (BinlakeWatchOperator, False, 1)
    DagSerialization.to_dict(alone)


def test_without_a_limit_nobody_looks_but_for_who_asks_for_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yaml(tmp_path, "retries: 1")
    assert "binlake_shop_watch" not in dags_of(tmp_path)
    file = yaml(tmp_path, "watch_schedule: '@hourly'")
    monkeypatch.setattr(watch, "watch", lambda *_: Watched(90, 5_000_000, 3600, (), verified_through=7))
    monkeypatch.setattr(BinlakeHook, "origin", lambda _: None)
    gauges: dict[str, float] = {}
    monkeypatch.setattr("binlake_airflow.compat.Stats.gauge", lambda name, value: gauges.update({name: value}))
    BinlakeWatchOperator(task_id="watch", config_file=str(file)).execute({})
    names = ("lag_seconds", "lag_bytes", "headroom_seconds", "tables_stopped", "verified_through")
    assert gauges == {f"binlake.shop.{name}": value for name, value in zip(names, (90, 5e6, 3600, 0, 7), strict=True)}


def test_a_table_that_a_batch_stopped_is_told_once_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = yaml(tmp_path, f"notify: [{noted('stopped')}]")
    new = TableRun("shop.new", "stopped", 0, 0, 0, None, "b.1:4", 0.0, "it is odd", "fix it", newly_stopped=True)
    tables = (new, replace(new, table="shop.old", newly_stopped=False))
    report = RunReport(7, "b.1:9", "batch 7 recorded", 5, 90, tables, (("merge", 1.5),))
    monkeypatch.setattr(pipeline, "record", lambda *_: report)
    counted: dict[str, Any] = {}
    for name in ("incr", "timing"):
        monkeypatch.setattr(f"binlake_airflow.compat.Stats.{name}", lambda of, value: counted.update({of: value}))
    run = SimpleNamespace(dag_id="binlake_shop_sync", run_id="r")
    operator = BinlakeRecordOperator(task_id="record", config_file=str(file), plan={"batch": 7, "empty": False})
    operator.execute({"dag_run": run})
    assert messages == ["shop.new stopped: it is odd (stopped)"]
    assert counted == {
        "binlake.shop.mutations": 5, "binlake.shop.bytes": 90, "binlake.shop.merge": timedelta(seconds=1.5),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "status", "fails"),
    [("retries: 1", "stopped", True), ("retries: 1", "following", False), ("fail_on_stopped: false", "stopped", False)],
)
def test_a_run_that_stopped_a_table_fails_at_its_end(tmp_path: Path, setting: str, status: str, *, fails: bool) -> None:
    """Unless it is fixed by then, or an earlier run stopped it."""
    file = yaml(tmp_path, setting)
    metadata = metadata_of(config.load(file))
    new = TableRun("shop.new", "stopped", 0, 0, 0, None, "b.1:4", 0.0, "it is odd", "fix it", newly_stopped=True)
    tables = json.dumps([asdict(new), asdict(replace(new, table="shop.old", newly_stopped=False))])
    run = {"run": "binlake_shop_sync/r", "kind": "sync", "batch": 7, "tables": tables, "phases": "{}"}
    metadata.append("runs", [run])
    why = {"database": "shop", "batch": 7, "reason": "it is odd", "remedy": "fix it"}
    rows = [
        {**why, "table_id": "a", "table": "new", "status": status},
        {**why, "table_id": "b", "table": "old", "status": "stopped"},
    ]
    metadata.append("watermarks", rows)
    operator = BinlakeResnapshotOperator(task_id="resnapshot", config_file=str(file))
    context: Any = {"dag_run": SimpleNamespace(dag_id="binlake_shop_sync", run_id="r")}
    if not fails:
        operator.execute(context)
        return
    with pytest.raises(AirflowFailException) as failure:
        operator.execute(context)
    assert str(failure.value) == "shop.new stopped: it is odd\n  → fix it"


def test_a_table_that_the_yaml_stopped_is_told_though_nothing_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yaml(tmp_path, f"notify: [{noted('stopped')}]")
    new = TableRun("shop.new", "stopped", 0, 0, 0, None, "", 0.0, "it is read otherwise", "copy it", newly_stopped=True)
    out = replace(new, table="shop.out", status="excluded", newly_stopped=False)
    planned = PlanOutcome(7, True, "b.1:9", "nothing new", tables=(new, out))
    monkeypatch.setattr(pipeline, "plan", lambda *_: planned)
    for name in ("wait_for_earlier_backfill", "stop_of"):
        monkeypatch.setattr(batches, name, lambda *_: None)
    monkeypatch.setattr(BinlakeHook, "origin", lambda _: None)
    pushed: dict[str, Any] = {}
    task = SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}))
    with pytest.raises(DownstreamTasksSkipped):
        dags_of(tmp_path)["binlake_shop_sync"].get_task("plan").execute({"ti": task})
    assert messages == ["shop.new stopped: it is read otherwise (stopped)"]
    assert [table["table"] for table in pushed["return_value"]["tables"]] == ["shop.new", "shop.out"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [(CheckFailed("3 rows differ"), ["3 rows differ (verify_failed)"]), (ConnectionFailed("no network"), [])],
)
def test_a_lake_that_differs_is_told_and_a_server_that_is_down_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: list[str]
) -> None:
    file = yaml(tmp_path, f"notify: [{noted('verify_failed')}]")

    def verify(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(pipeline, "verify", verify)
    run = SimpleNamespace(dag_id="binlake_shop_verify", run_id="r", run_type="manual")
    with pytest.raises(AirflowFailException if expected else AirflowException):
        BinlakeVerifyOperator(task_id="verify", config_file=str(file)).execute({"dag_run": run})
    assert messages == expected


@pytest.mark.parametrize(
    ("policy", "asked", "repairs", "fails"),
    [("ask", False, 0, True), ("ask", True, 1, False), ("auto", False, 1, False), ("never", True, 0, True)],
)
def test_differing_rows_are_put_right_where_that_is_wanted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    policy: str,
    asked: bool,
    repairs: int,
    fails: bool,
) -> None:
    file = yaml(tmp_path, f"notify: [{noted('verify_failed')}]")
    file.write_text(f"{file.read_text()}verify: {{repair: {policy}}}\n")
    rows = (DifferingRow("missing", (("email", "ann@example.org"),)),)
    table = TableResult(TableName("shop", "t"), "compared", False, 9, 8, 1, 1, rows)
    differs = VerifyReport("v", Position("s", "b.000001", 4, 1), 1, 0.5, (table,))
    put_right = replace(differs, tables=(replace(table, repair=TableRepair("repaired", {"missing": 1}, 7)),))
    repaired: list[Any] = []

    def repair(*arguments: Any) -> VerifyReport:
        repaired.append(arguments[4].tables)
        return put_right

    monkeypatch.setattr(pipeline, "verify", lambda *_, **__: differs)
    monkeypatch.setattr(pipeline, "repair", repair)
    operator = BinlakeVerifyOperator(task_id="verify", config_file=str(file), tables=["shop.t"], repair=asked)
    context: Any = {"dag_run": SimpleNamespace(dag_id="binlake_shop_verify", run_id="r", run_type="manual")}
    with pytest.raises(AirflowFailException) if fails else nullcontext():
        operator.execute(context)
    assert repaired == [["shop.t"]] * repairs
    logged = capsys.readouterr().out
    assert ('missing: email="***"' in logged) is (policy != "never")
    assert "example.org" not in logged + "".join(map(str, messages))
    assert len(messages) == (1 if fails or policy == "auto" else 0)


def test_rows_that_differ_no_longer_when_they_are_to_be_put_right_are_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = yaml(tmp_path, f"notify: [{noted('verify_failed')}]")
    file.write_text(f"{file.read_text()}verify: {{repair: auto}}\n")
    table = TableResult(TableName("shop", "t"), "compared", False, 9, 8, 1, 1)
    differs = VerifyReport("v", Position("s", "b.000001", 4, 1), 1, 0.5, (table,))
    equal = replace(differs, tables=(replace(table, equal=True, lake_rows=9, differing=0),))
    monkeypatch.setattr(pipeline, "verify", lambda *_, **__: differs)
    monkeypatch.setattr(pipeline, "repair", lambda *_, **__: equal)
    context: Any = {"dag_run": SimpleNamespace(dag_id="binlake_shop_verify", run_id="r", run_type="manual")}
    BinlakeVerifyOperator(task_id="verify", config_file=str(file)).execute(context)
    (message,) = messages
    assert "no longer did when it was to be put right" in message
    assert "were put right" not in message


@pytest.mark.parametrize("way", ["read", "hash"])
def test_a_verification_is_submitted_where_it_needs_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    file = yaml(tmp_path, "retries: 1")
    file.write_text(f"{file.read_text()}verify: {{by: {way}}}\n")
    began: list[str] = []

    def verify(*_: Any, **__: Any) -> None:
        began.append("here")
        raise SparkNeeded("Spark is needed: it is odd")

    def submit(_: BinlakeVerifyOperator, __: Any, *arguments: str) -> dict[str, Any]:
        began.append(" ".join(arguments))
        return {"equal": True, "position": "s/b.000001:4@1", "seconds": 0.5, "tables": []}

    monkeypatch.setattr(pipeline, "verify", verify)
    monkeypatch.setattr(BinlakeVerifyOperator, "submit", submit)
    run = SimpleNamespace(dag_id="binlake_shop_verify", run_id="r", run_type="scheduled")
    operator = BinlakeVerifyOperator(task_id="verify", config_file=str(file), tables=["shop.a*"])
    operator.execute({"dag_run": run})
    changed = "--changed " if way == "read" else ""
    assert began == [*(["here"] if changed else []), f"--run binlake_shop_verify/r {changed}--tables shop.a*"]


@pytest.mark.parametrize(
    "airflow", ["notify: [{when: [never], notifier: a.b}]", "notify: [{when: [lag], notifier: b}]"]
)
def test_what_no_notice_can_be_is_refused(tmp_path: Path, airflow: str) -> None:
    with pytest.raises(ConfigurationError, match=r"airflow[.]notify[.]0"):
        loaded(tmp_path, airflow)


def test_before_the_first_snapshot_a_sync_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yaml(tmp_path, "retries: 1")
    monkeypatch.setattr(batches, "wait_for_earlier_backfill", lambda *_: None)
    monkeypatch.setattr(batches, "stop_of", lambda *_: None)
    monkeypatch.setattr(BinlakeHook, "origin", lambda _: None)
    sync = dags_of(tmp_path)["binlake_shop_sync"]
    with pytest.raises(AirflowSkipException, match="no table has a snapshot yet"):
        sync.get_task("plan").execute({})
    record = sync.get_task("record")
    record.plan = None  # what a skipped task passes on
    with pytest.raises(AirflowSkipException):
        record.execute({})


def test_the_mail_of_the_page_s_example_shows_names_as_text() -> None:
    page = (Path(__file__).parents[3] / "dags/pipelines/README.md").read_text()
    (example,) = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "html_content" in block]
    (notice,) = safe_load(example)["airflow"]["notify"]
    hostile = {"message": "table <img src=https://evil.example/x>&", "source": "shop"}
    mail = Environment().from_string(notice["arguments"]["html_content"]).render(binlake=hostile)
    assert mail == "<pre>table &lt;img src=https://evil.example/x&gt;&amp;</pre>"
