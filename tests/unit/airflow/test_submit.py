"""How a job is submitted: what its arguments hold, and how its errors come back."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, Connection

from binlake import pipeline
from binlake.config import PipelineConfig
from binlake.errors import ConfigurationError, UsageError
from binlake.lease import lease
from binlake.lease.lease import Control, OpenBatch
from binlake.phases import outcomes
from binlake.position import Position, Range, Slice
from binlake.records.record import RunReport
from binlake.source.endpoint import Endpoint
from binlake.source.log import Origin
from binlake.spark import settings
from binlake.staging import stage
from binlake.storage import stores
from binlake_airflow.compat import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowRescheduleException,
    AirflowSkipException,
)
from binlake_airflow.hook import BinlakeHook
from binlake_airflow.links import PageLink, SparkLink
from binlake_airflow.operators import (
    BinlakeMergeOperator,
    BinlakeSnapshotOperator,
    BinlakeStageOperator,
    BinlakeSyncOperator,
    table_asset,
)
from binlake_airflow.submit import BinlakeSparkOperator, script

SECRET = "s3cret/wörd"
YAML = """
source: {name: shop, connection: shop_mysql, server_id: 4001}
tables: {include: ["shop.*"]}
lake: {path: ./lake}
"""


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> dict[str, Connection]:
    """Airflow's connections: the source's, and those a test adds."""
    known = {
        "shop_mysql": Connection(
            conn_id="shop_mysql", conn_type="mysql", host="db", port=3307, login="binlake", password=SECRET
        )
    }

    def get(connection_id: str) -> Connection:
        if uri := os.environ.get(f"AIRFLOW_CONN_{connection_id.upper()}"):
            return Connection(conn_id=connection_id, **json.loads(uri))
        if connection_id not in known:
            raise AirflowNotFoundException(connection_id)
        return known[connection_id]

    monkeypatch.setattr(BaseHook, "get_connection", staticmethod(get))
    return known


@pytest.fixture
def operator(tmp_path: Path) -> BinlakeStageOperator:
    (tmp_path / "shop.yaml").write_text(YAML)
    return BinlakeStageOperator(task_id="stage", config_file=str(tmp_path / "shop.yaml"), plan={"batch": 1})


def submitted(
    monkeypatch: pytest.MonkeyPatch, job: Callable[[BinlakeSparkOperator, dict[str, str]], None]
) -> list[tuple[list[str], dict[str, str]]]:
    """Replace Spark by ``job``, which gets the environment; gives the commands and environments it saw."""
    seen: list[tuple[list[str], dict[str, str]]] = []

    def execute(operator: BinlakeSparkOperator, context: Any) -> None:
        hook = operator._get_hook()
        hook._application_args = operator.application_args
        command = hook._build_spark_submit_command(operator.application)
        assert hook._env is not None
        seen.append((command, hook._env))
        job(operator, hook._env)

    monkeypatch.setattr(SparkSubmitOperator, "execute", execute)
    return seen


def answer(outcome: dict[str, Any], *, fails: bool = True) -> Callable[[BinlakeSparkOperator, dict[str, str]], None]:
    def job(operator: BinlakeSparkOperator, environment: dict[str, str]) -> None:
        if outcome:
            Path(environment["BINLAKE_OUTCOME_FILE"]).write_text(json.dumps(outcome))
        if fails:
            raise AirflowException("Cannot execute: spark-submit …")

    return job


def test_no_argument_and_no_variable_holds_the_secret(
    monkeypatch: pytest.MonkeyPatch, connections: dict[str, Connection], operator: BinlakeStageOperator
) -> None:
    handed: list[Path] = []

    def job(_: BinlakeSparkOperator, environment: dict[str, str]) -> None:
        path = Path(environment["BINLAKE_CONNECTION_FILE"])
        handed.append(path)
        assert SECRET in json.loads(path.read_text())["password"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    seen = submitted(monkeypatch, job)
    operator.submit({})
    ((command, environment),) = seen
    assert SECRET not in " ".join(command)
    assert SECRET not in json.dumps(environment, ensure_ascii=False)
    assert SECRET not in repr(operator.__dict__)
    assert command[:3] == [command[0], "--master", "local[*]"]
    assert command[-3:] == [script("stage"), "--config", operator.config_file]
    assert not handed[0].parent.exists()


@pytest.mark.parametrize(
    ("outcome", "raised"),
    [
        ({"error": {"kind": "AccessDenied", "message": "no", "retryable": False}}, AirflowFailException),
        ({"error": {"kind": "ConnectionFailed", "message": "no", "retryable": True}}, AirflowException),
        ({"error": {"kind": "LeaseHeld", "message": "no", "retryable": True}}, AirflowRescheduleException),
        ({"error": {"kind": "NoSnapshotYet", "message": "no", "retryable": False}}, AirflowSkipException),
        ({}, AirflowException),
    ],
)
def test_a_retry_is_left_to_errors_it_can_help(
    monkeypatch: pytest.MonkeyPatch,
    connections: dict[str, Connection],
    operator: BinlakeStageOperator,
    outcome: dict[str, Any],
    raised: type[Exception],
) -> None:
    submitted(monkeypatch, answer(outcome))
    with pytest.raises(raised) as caught:
        operator.submit({})
    assert type(caught.value) is raised


def test_an_outcome_that_a_full_disk_cut_off_is_none_and_leaves_no_secret(
    monkeypatch: pytest.MonkeyPatch, connections: dict[str, Connection], operator: BinlakeStageOperator
) -> None:
    handed: list[Path] = []

    def job(_: BinlakeSparkOperator, environment: dict[str, str]) -> None:
        outcome = Path(environment["BINLAKE_OUTCOME_FILE"])
        outcome.write_text('{"result": {"bat')
        handed.append(outcome.parent)
        raise AirflowException("Cannot execute: spark-submit …")

    submitted(monkeypatch, job)
    with pytest.raises(AirflowException, match="Cannot execute"):
        operator.submit({})
    assert not handed[0].exists()


SUBMITTED = """#!{python}
import os, subprocess, sys, time
job = "import time; from binlake.job import submitter; submitter.end_with_submitter(); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", job], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
with open({pids!r} + ".partial", "w") as file:
    print(os.getpid(), child.pid, os.path.dirname(os.environ["BINLAKE_CONNECTION_FILE"]), file=file)
os.rename({pids!r} + ".partial", {pids!r})
time.sleep(60)
"""
"""In the place of spark-submit: it starts the job's Python as its JVM does, and both would continue for a minute."""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def await_true(asked: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not asked():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_task_that_is_killed_takes_the_jvm_and_the_job_along_and_leaves_no_secret(
    connections: dict[str, Connection], operator: BinlakeStageOperator, tmp_path: Path
) -> None:
    binary, pids = tmp_path / "spark-submit", tmp_path / "pids"
    binary.write_text(SUBMITTED.format(python=sys.executable, pids=str(pids)))
    binary.chmod(0o700)
    operator._spark_binary = str(binary)
    operator.on_kill()  # before it began
    with ThreadPoolExecutor(1) as threads:
        submitting = threads.submit(operator.submit, {})
        await_true(pids.exists)
        jvm, job, handover = pids.read_text().split()
        assert is_running(int(jvm))
        assert is_running(int(job))
        operator.on_kill()
        with pytest.raises(AirflowException, match="Cannot execute"):
            submitting.result(30)
    await_true(lambda: not is_running(int(jvm)) and not is_running(int(job)))
    assert not Path(handover).exists()


def test_the_result_comes_back(
    monkeypatch: pytest.MonkeyPatch, connections: dict[str, Connection], operator: BinlakeStageOperator
) -> None:
    submitted(monkeypatch, answer({"result": {"batch": 7}}, fails=False))
    assert operator.submit({}) == {"batch": 7}


def test_a_cluster_is_used_where_the_connection_names_one(
    monkeypatch: pytest.MonkeyPatch, connections: dict[str, Connection], operator: BinlakeStageOperator
) -> None:
    connections["spark_default"] = Connection(conn_id="spark_default", conn_type="spark", host="spark://m", port=7077)
    seen = submitted(monkeypatch, answer({}, fails=False))
    operator.submit({})
    ((command, environment),) = seen
    assert command[1:3] == ["--master", "spark://m:7077"]
    assert environment["SPARK_MASTER"] == "spark://m:7077"
    assert "SPARK_LOCAL_IP" not in environment


SPARK = """
spark: {master: "spark://yaml:7077", executor_memory: 3g, conf: {spark.executor.cores: 2, spark.cores.max: 8}}
"""


def test_the_yaml_says_where_spark_runs_and_how(
    monkeypatch: pytest.MonkeyPatch, connections: dict[str, Connection], operator: BinlakeStageOperator
) -> None:
    Path(operator.config_file).write_text(YAML + SPARK)
    operator.conf = {"spark.cores.max": "4"}
    seen = submitted(monkeypatch, answer({}, fails=False))
    operator.submit({})
    connections["spark_default"] = Connection(conn_id="spark_default", conn_type="spark", host="spark://m", port=7077)
    operator.submit({})
    ((command, environment), (connected, _)) = seen
    assert command[1:3] == ["--master", "spark://yaml:7077"]
    assert environment["SPARK_MASTER"] == "spark://yaml:7077"
    assert connected[1:3] == ["--master", "spark://m:7077"]
    for text in (command, connected):
        assert {"spark.executor.memory=3g", "spark.executor.cores=2", "spark.cores.max=4"} <= set(text)


def test_settings_that_keep_a_mirror_exact_are_not_the_operators(
    monkeypatch: pytest.MonkeyPatch, connections: dict[str, Connection], operator: BinlakeStageOperator
) -> None:
    operator.conf = {"spark.task.maxFailures": "4"}
    submitted(monkeypatch, answer({}))
    with pytest.raises(ConfigurationError, match=r"spark\.task\.maxFailures"):
        operator.submit({})


def test_what_each_start_of_spark_says_is_not_in_the_log(
    connections: dict[str, Connection],
    operator: BinlakeStageOperator,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hook = operator._get_hook()
    said: list[str] = []
    monkeypatch.setattr(hook.log, "info", lambda text, *values: said.append(text % values))
    hook._process_spark_submit_log(
        iter(
            [
                "WARNING: Using incubator modules: jdk.incubator.vector",
                "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties",
                "26/11/23 14:02:22 INFO SparkContext: Running Spark version 4.2.0",
                "26/11/23 14:02:22 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform...",
                'Setting Spark log level to "ERROR".',
                "26/11/23 14:02:30 ERROR TaskSchedulerImpl: Lost executor 1",
                "batch 7: 3 mutations staged in 1 file",
            ]
        )
    )
    assert said == ["batch 7: 3 mutations staged in 1 file"]
    assert "ERROR TaskSchedulerImpl: Lost executor 1" in capsys.readouterr().out  # the operator's own, at ERROR
    assert "AIRFLOW_CONN_SPARK_DEFAULT" not in os.environ


def test_deploy_mode_cluster_is_refused(
    monkeypatch: pytest.MonkeyPatch, connections: dict[str, Connection], operator: BinlakeStageOperator
) -> None:
    connections["spark_default"] = Connection(
        conn_id="spark_default", conn_type="spark", host="spark://m", port=7077, extra='{"deploy-mode": "cluster"}'
    )
    submitted(monkeypatch, answer({}))
    with pytest.raises(ConfigurationError, match="deploy mode"):
        operator.submit({})


def test_an_undefined_connection_says_what_to_do(connections: dict[str, Connection]) -> None:
    with pytest.raises(ConfigurationError, match="AIRFLOW_CONN_BANK"):
        BinlakeHook("bank").endpoint()


def test_the_hook_reads_the_stock_fields(connections: dict[str, Connection]) -> None:
    connections["shop_mysql"].extra = '{"ssl_ca": "/ca.pem", "ssl_cert": null, "ssl_verify_mode": ""}'  # as the form
    endpoint = BinlakeHook("shop_mysql").endpoint()
    assert (endpoint.host, endpoint.port, endpoint.user, endpoint.password) == ("db", 3307, "binlake", SECRET)
    assert dict(endpoint.tls) == {"ca": "/ca.pem"}


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"stage\.py"):
        script("stage", str(tmp_path))


@pytest.mark.parametrize("name", ["shop.orders", "shop.a b", "sh.op.é`\"';", "shop.x/y?z#%40"])
def test_any_name_makes_an_asset_of_its_own(name: str) -> None:
    asset = table_asset("shop", name)
    assert asset.uri.startswith("binlake://shop/")
    assert asset.uri.isascii()
    assert asset.name == f"shop/{name}"


def test_scripts_are_short_and_all_there() -> None:
    for name in ("snapshot", "stage", "merge", "sync", "verify"):
        lines = Path(script(name)).read_text().splitlines()
        assert len(lines) <= 30, name
        assert os.path.basename(script(name)) == f"{name}.py"


def begun(beyond: int) -> OpenBatch:
    """A batch whose range is longer by so many bytes than a short one may be."""
    part = Slice("binlog.000001", 4, 4 + stage.SHORT_RANGE + beyond, 0, False)
    start, stop = (Position("server", part.file, offset, 0) for offset in (part.start, part.stop))
    return OpenBatch(1, Range(start, stop, (part,)))


@pytest.mark.parametrize(("beyond", "by_spark"), [(0, False), (1, True)])
def test_a_short_range_is_staged_in_the_task_itself(
    monkeypatch: pytest.MonkeyPatch,
    connections: dict[str, Connection],
    operator: BinlakeStageOperator,
    beyond: int,
    by_spark: bool,
) -> None:
    monkeypatch.setattr(lease, "read", lambda metadata: Control(None, None, 0, 0, 1, begun(beyond), None))
    staged: list[Any] = []

    def stage_here(config: PipelineConfig, origin: Origin, *_: Any) -> outcomes.StepOutcome:
        staged.append(origin)
        return outcomes.StepOutcome(1, 7, "staged")

    monkeypatch.setattr(pipeline, "stage", stage_here)
    seen = submitted(monkeypatch, answer({"result": {"batch": 1}}, fails=False))
    outcome = operator.execute({})
    assert outcome["batch"] == 1
    assert (len(seen), len(staged)) == ((1, 0) if by_spark else (0, 1))
    if not by_spark:
        assert staged == [Endpoint("db", 3307, "binlake", SECRET)]


@pytest.mark.parametrize("step", [BinlakeStageOperator, BinlakeMergeOperator])
def test_without_a_plan_a_step_is_skipped_as_record_is(step: Any, operator: BinlakeStageOperator) -> None:
    """Who marks the task plan as successful by hand leaves nothing planned; an open batch is the next run's."""
    with pytest.raises(AirflowSkipException, match="nothing was planned"):
        step(task_id="step", config_file=operator.config_file, plan=None).execute({})


@pytest.mark.parametrize(("beyond", "quick"), [(0, True), (1, False)])
def test_the_jvm_that_merges_a_short_range_optimises_no_code(
    monkeypatch: pytest.MonkeyPatch,
    connections: dict[str, Connection],
    operator: BinlakeStageOperator,
    beyond: int,
    quick: bool,
) -> None:
    merging = BinlakeMergeOperator(task_id="merge", config_file=operator.config_file, plan={"batch": 1})
    monkeypatch.setattr(lease, "read", lambda metadata: Control(None, None, 0, 0, 1, begun(beyond), None))

    def merge(config: object, session: Callable[[str], object], report: object) -> None:
        session("to merge")

    monkeypatch.setattr(pipeline, "merge", merge)
    seen = submitted(monkeypatch, answer({"result": {"batch": 1}}, fails=False))
    merging.execute({})
    ((command, _),) = seen
    assert ("-XX:TieredStopAtLevel=1" in " ".join(command)) == quick


def test_a_sync_that_needs_spark_is_a_job_that_stops_where_the_run_does(
    monkeypatch: pytest.MonkeyPatch, connections: dict[str, Connection], operator: BinlakeStageOperator
) -> None:
    """begun: short, but by an earlier run, behind which any length of log may come."""
    until = datetime(2026, 1, 31, 13, tzinfo=UTC)
    run = SimpleNamespace(dag_id="nightly", run_id="r", run_type="scheduled", data_interval_end=until)
    monkeypatch.setattr(lease, "read", lambda metadata: Control(None, None, 0, 0, 1, begun(0), None))

    def sync(config: object, origin: object, session: Callable[[str], object], report: object, **asked: Any) -> None:
        assert asked == {"until": until, "run": "nightly/r"}
        session("to merge")

    monkeypatch.setattr(pipeline, "sync", sync)
    result = RunReport(7, "server/b.000001:4@1", "nothing new", 0, 0, (), ()).to_json()
    seen = submitted(monkeypatch, answer({"result": result}, fails=False))
    syncing = BinlakeSyncOperator(task_id="sync", config_file=operator.config_file)
    left = syncing.execute({"dag_run": run})
    ((command, _),) = seen
    arguments = ["--config", operator.config_file, "--run", "nightly/r", "--until", until.isoformat()]
    assert command[-7:] == [script("sync"), *arguments]
    assert "-XX:TieredStopAtLevel=1" not in " ".join(command)
    assert (left["batch"], left["batches"], left["tables"]) == (7, [], 0)


def test_a_task_leads_to_its_batch_its_source_or_the_overview(operator: BinlakeStageOperator) -> None:
    link = PageLink()
    asked = {"batch": 7, "empty": False}
    for plan, leads in ((asked, "source=shop&batch=7"), ({"batch": 7, "empty": True}, "source=shop")):
        operator.plan = plan
        assert link.get_link(operator, ti_key=None).endswith(f"/plugin/binlake/binlake/?{leads}")  # type: ignore[arg-type]
    Path(operator.config_file).write_text("source: {}")
    assert link.get_link(operator, ti_key=None).endswith("/plugin/binlake/binlake/?")  # type: ignore[arg-type]


def test_the_lake_s_account_goes_to_the_job_by_a_file_alone(
    store_jars: None,
    monkeypatch: pytest.MonkeyPatch,
    connections: dict[str, Connection],
    operator: BinlakeStageOperator,
) -> None:
    Path(operator.config_file).write_text(YAML.replace("./lake", "s3://bucket/lake, connection: store"))
    extra = json.dumps({"endpoint_url": "https://s3.example"})
    handed: list[dict[str, Any]] = []

    def job(_: BinlakeSparkOperator, environment: dict[str, str]) -> None:
        path = Path(environment["BINLAKE_LAKE_CONNECTION_FILE"])
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        handed.append(json.loads(path.read_text()))

    seen = submitted(monkeypatch, job)
    with pytest.raises(ConfigurationError, match="'store' isn't defined in Airflow"):
        operator.submit({})
    connections["store"] = Connection(conn_id="store", conn_type="aws", login="key", password=SECRET, extra=extra)
    operator.submit({})
    ((command, environment),) = seen
    assert SECRET not in " ".join(command) + json.dumps(environment, ensure_ascii=False)
    assert handed == [{"login": "key", "password": SECRET, "extra": {"endpoint_url": "https://s3.example"}}]
    assert stores.S3.at("s3a://bucket/lake/shop/_binlake").storage_options()["aws_secret_access_key"] == SECRET


def test_missing_jars_are_told_before_spark_is_started(
    monkeypatch: pytest.MonkeyPatch, connections: dict[str, Connection], operator: BinlakeStageOperator, tmp_path: Path
) -> None:
    seen = submitted(monkeypatch, lambda *_: None)
    monkeypatch.setattr(settings, "JARS", tmp_path)
    with pytest.raises(UsageError, match="run binlake setup"):
        operator.submit({})
    assert not seen


@pytest.mark.parametrize(
    ("tables", "leads"),
    [(["shop.orders"], "source=shop&table=shop.orders"), (["shop.*"], "source=shop"), (["a.b", "a.c"], "source=shop")],
)
def test_a_task_of_one_table_leads_to_it(operator: BinlakeStageOperator, tables: list[str], leads: str) -> None:
    snapshot = BinlakeSnapshotOperator(task_id="snapshot", config_file=operator.config_file, tables=tables)
    assert PageLink().get_link(snapshot, ti_key=None).endswith(f"/?{leads}")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("conf", "ui", "leads"),
    [
        ("{}", None, ""),
        ("{}", "http://driver:4040", "http://driver:4040"),
        ("{spark.yarn.historyServer.address: 'history:18080'}", None, "http://history:18080/history/app-7/"),
        ("{spark.yarn.historyServer.address: '${host}:1'}", None, ""),
    ],
)
def test_a_task_leads_to_its_spark_application(
    monkeypatch: pytest.MonkeyPatch,
    connections: dict[str, Connection],
    operator: BinlakeStageOperator,
    conf: str,
    ui: str | None,
    leads: str,
) -> None:
    def link() -> str:
        return SparkLink().get_link(operator, ti_key=None)  # type: ignore[arg-type]

    assert link() == ""
    Path(operator.config_file).write_text(f"{YAML}\nspark: {{conf: {conf}}}\n")
    outcome = {"spark": {"application": "app-7", "ui": ui}}
    submitted(monkeypatch, answer({**outcome, "error": {"kind": "X", "message": "no", "retryable": False}}))
    with pytest.raises(AirflowFailException):
        operator.submit({})
    assert link() == leads
