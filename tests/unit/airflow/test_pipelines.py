"""The DAGs that come of a folder of YAML files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from datetime import timedelta
from graphlib import TopologicalSorter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import ParamValidationError
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.sdk.definitions.param import DagParam

from airflow_places import DagBag, DagSerialization
from binlake import config
from binlake.config import MergeConfig, PipelineConfig
from binlake_airflow import sources
from binlake_airflow.compat import AirflowFailException, CronDataIntervalTimetable
from binlake_airflow.groups import binlake_bootstrap, binlake_sync
from binlake_airflow.pipelines import dags_of
from binlake_airflow.steps import Steps
from binlake_airflow.submit import BinlakeSparkOperator

DAGS = ("bootstrap", "maintain", "replay", "resume", "sync", "verify")
ROOT = Path(__file__).parents[3]
YAML = """
source: {{name: {name}, connection: {name}_mysql, server_id: 4001}}
tables: {{include: ["{name}.*"]}}
lake: {{path: ./lake}}
schedule: "{schedule}"
"""


def write(folder: Path, name: str, *, schedule: str = "0 * * * *", extra: str = "") -> None:
    (folder / f"{name}.yaml").write_text(YAML.format(name=name, schedule=schedule) + extra)


def bag_of(folder: Path) -> DagBag:
    """What Airflow finds in a DAGs folder whose pipelines are ``folder``'s."""
    dags = folder.parent / "dags"
    dags.mkdir(exist_ok=True)
    (dags / "binlake_dags.py").write_text(
        (ROOT / "dags" / "binlake_dags.py").read_text().replace("pipelines_folder(HERE)", f"Path({str(folder)!r})")
    )
    bag = DagBag(str(dags), collect_dags=False)
    bag.collect_dags(str(dags))
    return bag


def problem_of(dag: DAG) -> str:
    """Return the message with which each run of a DAG fails."""
    (task,) = dag.tasks
    with pytest.raises(AirflowFailException) as failure:
        task.execute({})
    return str(failure.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "pipelines"
    made.mkdir()
    return made


def test_the_shop_of_the_readme() -> None:
    shop = config.load(ROOT / "dags" / "pipelines" / "shop.yaml")
    assert (shop.source.name, shop.source.connection, shop.source.server_id, shop.source.server_ids) == (
        "shop", "shop_mysql", 4001, 16,
    )  # fmt: skip
    assert (shop.tables.include, shop.tables.exclude, shop.lake.path) == (["shop.*"], ["shop.audit_*"], f"{ROOT}/lake")
    assert (shop.schedule, shop.invalid_dates) == ("0 * * * *", "fail")


@pytest.mark.parametrize("page", ["README.md", "dags/pipelines/README.md"])
def test_the_yaml_that_a_page_shows_is_one(page: str, tmp_path: Path) -> None:
    block = (ROOT / page).read_text().partition("```yaml\n")[2].partition("```\n")[0]
    shown = tmp_path / "shop.yaml"
    shown.write_text(textwrap.dedent(block))
    loaded = config.load(shown)
    assert (loaded.source.name, loaded.merge, loaded.policies.without_key) == ("shop", MergeConfig(), "exact")


def test_feeds_have_a_dag_of_their_own_that_the_sync_neither_waits_for_nor_fails_by(folder: Path) -> None:
    sink = "{name: NAME, format: text, sink: 'file:///feeds/NAME'}"
    write(folder, "shop", extra=f"feeds: [{sink.replace('NAME', 'first')}, {sink.replace('NAME', 'second')}]\n")
    bag = bag_of(folder)
    assert not bag.import_errors
    feeds = bag.dags["binlake_shop_feeds"]
    assert sorted(feeds.task_ids) == ["first", "second"]
    assert all(not task.upstream_task_ids for task in feeds.tasks)
    assert feeds.max_active_runs == 1
    assert [type(asset).__name__ for asset in feeds.timetable.asset_condition.objects] == ["AssetAlias"]
    assert not {"first", "second"} & set(bag.dags["binlake_shop_sync"].task_ids)


def test_feeds_run_when_tables_changed_and_by_time(folder: Path) -> None:
    """Airflow keeps no event for a paused DAG."""
    feed = "{name: all, format: FORMAT, sink: 'file:///feeds'}"
    write(folder, "shop", schedule="5 * * * *", extra=f"feeds: [{feed.replace('FORMAT', 'debezium')}]\n")
    write(folder, "bank", schedule="5 * * * *", extra=f"feeds: [{feed.replace('FORMAT', 'text')}]\n")
    both = "{name: both, sources: [shop.yaml, bank.yaml], format: text, sink: 'file:///in'}"
    (folder / "together.yaml").write_text(f"feeds: [{both}]\n")
    bag = bag_of(folder)
    assert not bag.import_errors
    times = {"shop": "5 * * * *", "bank": "5 * * * *", "together": "0 * * * *"}
    for name, cron in times.items():
        timetable = bag.dags[f"binlake_{name}_feeds"].timetable
        assert type(timetable).__name__ == "AssetOrTimeSchedule"
        assert timetable.timetable == CronDataIntervalTimetable(cron, timezone="UTC")
        condition = timetable.asset_condition
        assert len(getattr(condition, "objects", [condition])) == (2 if name == "together" else 1), (name, condition)


def test_a_file_of_feeds_over_several_sources_has_a_dag_and_is_no_broken_source(folder: Path) -> None:
    for name in ("shop", "bank"):
        write(folder, name)
    feed = "{name: all, sources: [shop.yaml, bank.yaml], format: text, sink: 'file:///in'}"
    (folder / "together.yaml").write_text(f"feeds: [{feed}]\n")
    (folder / "wrong.yaml").write_text("feeds: [{name: x}]\n")
    (folder / "odd.yaml").write_text(f"feeds: [{feed.replace('all', 'some', 1)[:-1]}, where: 'sleep(1) = 2'}}]\n")
    own = "{name: mine, format: text, sink: 'file:///in', where: 'op ='}"
    write(folder, "own", extra=f"feeds: [{own}]\n")
    dags = dags_of(folder)
    assert "binlake_own_sync" in dags
    dag = dags["binlake_together_feeds"]
    assert sorted(dag.task_ids) == ["all.bank", "all.shop"]
    assert len(dag.timetable.asset_condition.objects) == 2
    for name, words in {"own": "own.yaml, feed mine: ", "odd": "odd.yaml, feed some: ", "wrong": "wrong.yaml"}.items():
        assert words in problem_of(dags[f"binlake_{name}_feeds"])


@pytest.mark.parametrize(
    ("written", "read"), [("source:", "\ufeffsource:"), ("source:", "'source':"), ("source:", "source :")]
)
def test_a_source_with_feeds_is_one_however_its_key_is_written(folder: Path, written: str, read: str) -> None:
    """Editors on Windows write a byte order mark before the first key."""
    feed = "{name: all, format: text, sink: 'file:///feeds'}"
    write(folder, "shop", extra=f"feeds: [{feed}]\n")
    text = (folder / "shop.yaml").read_text().lstrip()
    (folder / "shop.yaml").write_text(text.replace(written, read, 1), encoding="utf-8")
    assert sources.files_of_feeds(folder) == []
    assert [config.source.name for _, config in sources.sources_of(folder) if isinstance(config, PipelineConfig)] == [
        "shop"
    ]


def test_a_file_of_tables_of_several_sources_makes_no_dag(folder: Path) -> None:
    before = {*dags_of(folder)}
    entry = '{from: "t_%.o", into: "all.o", source_column: t, source_name_column: s}'
    (folder / "company.yaml").write_text(f"folder: company\nsources: [shop, other]\nmerge_tables: [{entry}]\n")
    write(folder, "shop", extra="merge_tables: [{file: company.yaml}]\n")
    assert {dag for dag in {*dags_of(folder)} - before if "company" in dag} == set()
    ((_, config),) = [each for each in sources.sources_of(folder) if each[0].stem == "shop"]
    assert isinstance(config, PipelineConfig)
    assert config.merge_tables[0].sources == ["shop", "other"]
    (folder / "company.yaml").write_text(f"folder: company\nsources: [other]\nmerge_tables: [{entry}]\n")
    ((_, problem),) = [each for each in sources.sources_of(folder) if each[0].stem == "shop"]
    assert "that fill all.o are other, without shop" in str(problem)


def in_order(dag: DAG) -> list[str]:
    """Ids of its tasks, each behind those that it waits for: Airflow 3.2's own order takes groups first."""
    return list(TopologicalSorter({task.task_id: sorted(task.upstream_task_ids) for task in dag.tasks}).static_order())


def test_each_source_has_a_dag_for_each_thing_to_do(folder: Path) -> None:
    write(folder, "shop")
    write(folder, "bank", schedule="*/10 * * * *")
    dags = dags_of(folder)
    assert sorted(dags) == [f"binlake_{name}_{dag}" for name in ("bank", "shop") for dag in DAGS]
    sync = dags["binlake_bank_sync"]
    assert sync.timetable == CronDataIntervalTimetable("*/10 * * * *", timezone="UTC")
    assert (sync.catchup, sync.max_active_runs, sync.tags) == (False, 1, {"binlake", "bank"})
    assert sync.doc_md
    assert "bank.yaml" in sync.doc_md
    order = in_order(sync)
    unfinished = [f"unfinished.{step}" for step in ("find", "stage", "merge", "record")]
    assert order == ["preflight", *unfinished, "plan", "stage", "merge", "record", "resnapshot", "announce"]
    for task in sync.tasks:
        assert (task.retries, task.retry_delay) == (3, timedelta(seconds=30))
        assert task.retry_exponential_backoff
    assert not dags["binlake_bank_bootstrap"].timetable.can_be_scheduled
    maintain = dags["binlake_bank_maintain"]
    daily = [CronDataIntervalTimetable(text, timezone="UTC") for text in ("@daily", "0 0 * * *")]  # 3.2 keeps the first
    assert maintain.timetable in daily
    assert dags["binlake_bank_verify"].timetable == maintain.timetable
    assert ([task.task_id for task in maintain.tasks], maintain.max_active_runs) == (["maintain"], 1)
    for dag in dags.values():
        DagSerialization.to_dict(dag)


def test_a_catalog_has_a_task_behind_whatever_changes_tables(folder: Path) -> None:
    write(folder, "shop", extra="catalog: {metastore: /catalog}\n")
    dags = dags_of(folder)
    assert in_order(dags["binlake_shop_bootstrap"]) == [
        "preflight", "snapshot", "register", "announce",
    ]  # fmt: skip
    register = dags["binlake_shop_sync"].get_task("register")
    assert (register.upstream_task_ids, register.downstream_task_ids) == ({"resnapshot"}, {"announce"})


def test_a_source_without_schedule_is_run_by_hand(folder: Path) -> None:
    (folder / "shop.yaml").write_text(YAML.format(name="shop", schedule="x").replace('schedule: "x"\n', ""))
    assert not dags_of(folder)["binlake_shop_sync"].timetable.can_be_scheduled


@pytest.mark.parametrize("what", ["maintain", "verify"])
@pytest.mark.parametrize(("schedule", "scheduled"), [("30 2 * * 0", True), ("null", False)])
def test_when_a_source_is_maintained_and_verified(folder: Path, what: str, schedule: str, scheduled: bool) -> None:
    text = '"30 2 * * 0"' if scheduled else schedule
    write(folder, "shop", extra=f"{what}: {{schedule: {text}}}\n")
    timetable = dags_of(folder)[f"binlake_shop_{what}"].timetable
    assert timetable.can_be_scheduled == scheduled
    if scheduled:
        assert timetable == CronDataIntervalTimetable(schedule, timezone="UTC")


def test_what_a_verification_brings_in_is_announced(folder: Path) -> None:
    write(folder, "shop")
    dags = dags_of(folder)
    assert in_order(dags["binlake_shop_verify"]) == [
        "preflight",
        "verify",
        "announce",
    ]
    announces = {
        name: dags[f"binlake_shop_{name}"].get_task("announce").batches for name in ("verify", "bootstrap", "sync")
    }
    assert announces == {"verify": True, "bootstrap": True, "sync": False}


def test_the_form_of_the_bootstrap(folder: Path) -> None:
    write(folder, "shop")
    params = dags_of(folder)["binlake_shop_bootstrap"].params
    assert params.dump() == {"tables": None, "lock": "flush", "keys": None, "begin": False}
    for keys in ("1000..1999", "-5..", "..0.25"):
        params["keys"] = keys
    for keys in ("1000", "..", "a..b", "1..2..3 --lock none"):
        with pytest.raises((ValueError, ParamValidationError), match="Invalid input for param keys"):
            params["keys"] = keys
    params["tables"] = ["shop.orders", "shop.a b"]
    params["lock"] = "none"
    params.validate()
    params["tables"] = ["*.*"]
    params.validate()
    with pytest.raises((ValueError, ParamValidationError), match="Invalid input for param lock"):
        params["lock"] = "forever"
    assert "the YAML includes: shop.*" in str(params.get_param("tables").description)


def test_the_form_of_the_upkeep(folder: Path) -> None:
    write(folder, "shop")
    maintain = dags_of(folder)["binlake_shop_maintain"]
    assert maintain.params.dump() == {"tables": None}
    assert "the YAML includes: shop.*" in str(maintain.params.get_param("tables").description)
    assert "tables" in maintain.get_task("maintain").template_fields


def test_fields_of_forms_are_serialized_as_json_alone(folder: Path) -> None:
    """Airflow 3.1 serializes no DAG with anything else in its operators' arguments, and a newer one writes its repr."""
    write(folder, "bank")
    made = dags_of(folder)
    fields = {
        field: getattr(task, field)
        for dag in made.values()
        for task in dag.tasks
        for field in task.template_fields
        if isinstance(getattr(task, field, None), DagParam)
    }
    assert {"tables", "lock", "keys", "until", "why", "batch"} <= set(fields)
    for name, field in fields.items():
        assert json.loads(json.dumps(field.serialize()))["name"] == name


@pytest.mark.parametrize(
    ("dag", "param", "value"),
    [
        ("bootstrap", "tables", ["orders"]),
        ("maintain", "tables", ["orders"]),
        ("bootstrap", "tables", "shop.orders"),
        ("verify", "tables", ["shop."]),
        ("sync", "until", "yesterday"),
        ("sync", "until", "2026-01-31"),
        ("sync", "until", "2026-02-30T00:00:00Z"),
        ("sync", "until", "2026-04-31 12:00"),
        ("sync", "until", "2026-01-31T00:00:00+99:00"),
        ("replay", "tables", []),
        ("replay", "batch", -1),
        ("replay", "as_of", "noon"),
        ("replay", "archive", "/archive"),
    ],
)
def test_a_form_refuses_what_can_not_be_before_anything_starts(folder: Path, dag: str, param: str, value: Any) -> None:
    write(folder, "shop")
    params = dags_of(folder)[f"binlake_shop_{dag}"].params
    with pytest.raises((ValueError, ParamValidationError), match=f"Invalid input for param {param}"):
        params[param] = value


def test_the_yaml_tells_pools_queue_and_retries(folder: Path) -> None:
    write(
        folder,
        "shop",
        extra="airflow: {pool: shop, spark_pool: spark, queue: near, retries: 5, retry_delay_seconds: 60}\n",
    )
    for dag in dags_of(folder).values():
        for task in dag.tasks:
            pool = "spark" if isinstance(task, BinlakeSparkOperator) else "shop"
            assert (task.pool, task.queue, task.retries) == (pool, "near", 5)
            assert task.retry_delay == timedelta(minutes=1)


def collected(place: Path) -> DagBag:
    bag = DagBag(str(place), collect_dags=False)
    bag.collect_dags(str(place))
    assert not bag.import_errors
    return bag


def test_the_dags_of_ones_own_that_the_page_on_airflow_shows(folder: Path) -> None:
    write(folder, "shop")
    blocks = [block.partition("```")[0] for block in (ROOT / "plugins" / "README.md").read_text().split("```python\n")]
    for name, block in enumerate(block for block in blocks if "with DAG(" in block):
        (folder.parent / f"dag_{name}.py").write_text(block.replace("/etc/binlake/pipelines", str(folder)))
    dags = collected(folder.parent).dags
    assert sorted(dags) == ["hourly", "nightly"]
    assert dags["nightly"].get_task("reports").upstream_task_ids == {"sync.resnapshot"}
    assert [outlet.name for outlet in dags["hourly"].get_task("sync").outlets] == ["binlake/shop"]


def test_the_examples_are_dags() -> None:
    dags = collected(ROOT / "plugins" / "binlake_airflow" / "example_dags").dags
    names = ("asset", "bootstrap", "operators", "sensor", "sync")
    assert sorted(dags) == [f"example_binlake_{name}" for name in names]
    (asset,) = dags["example_binlake_asset"].timetable.asset_condition.objects
    assert asset.uri == "binlake://example_shop/shop.orders"
    for dag in dags.values():
        DagSerialization.to_dict(dag)


def test_task_groups_bring_a_source_into_a_dag_of_ones_own(folder: Path) -> None:
    write(folder, "shop", extra="airflow: {pool: shop, retries: 1}\n")
    file = folder / "shop.yaml"
    with DAG("nightly", schedule=None) as dag:
        bootstrap, sync = binlake_bootstrap(file, tables=["shop.orders"]), binlake_sync(file, group_id="carry")
        bootstrap >> sync >> EmptyOperator(task_id="reports")
    DagSerialization.to_dict(dag)
    assert [task for task in in_order(dag) if task.startswith("bootstrap.")] == [
        f"bootstrap.{step}" for step in ("preflight", "snapshot", "announce")
    ]
    unfinished = [f"unfinished.{step}" for step in ("find", "stage", "merge", "record")]
    steps = ["preflight", *unfinished, "plan", "stage", "merge", "record", "resnapshot", "announce"]
    assert [task for task in in_order(dag) if task.startswith("carry.")] == [f"carry.{step}" for step in steps]
    assert dag.get_task("reports").upstream_task_ids == {"carry.resnapshot"}
    assert dag.get_task("bootstrap.snapshot").downstream_task_ids == {"bootstrap.announce", "carry.preflight"}
    assert {(dag.get_task(f"carry.{step}").pool, dag.get_task(f"carry.{step}").retries) for step in steps} == {
        ("shop", 1)
    }


def test_a_broken_file_costs_its_own_dags_alone(folder: Path) -> None:
    """An import error would take the good ones, too: Airflow 3.3 marks all DAGs of the Python file as stale."""
    write(folder, "shop")
    write(folder, "bank", schedule="*/5 * * * *", extra="shedule: daily\n")
    write(folder, "crew", schedule="every hour")
    (folder / "void it.yaml").write_text("source: {name: [")
    write(folder, "when", extra="since: 2026-13-01\n")
    bag = bag_of(folder)
    assert not bag.import_errors
    wrong = {"bank": "shedule", "crew": "schedule", "void_it": "void it.yaml", "when": "month must be in 1..12"}
    syncs = [f"binlake_{name}_sync" for name in wrong]
    assert sorted(bag.dags) == sorted([f"binlake_shop_{dag}" for dag in DAGS] + syncs)
    for dag, words in zip(syncs, wrong.values(), strict=True):
        assert words in problem_of(bag.dags[dag])
        assert words in (bag.dags[dag].doc_md or "")
    timetables = [bag.dags[dag].timetable for dag in syncs]
    assert timetables == [
        CronDataIntervalTimetable(cron, timezone="UTC") for cron in ("*/5 * * * *", *["0 * * * *"] * 3)
    ]


@pytest.mark.parametrize("newcomer", ["shop_too", "a_shop"])
def test_of_two_files_of_one_source_the_newcomer_is_refused(folder: Path, newcomer: str) -> None:
    write(folder, "shop")
    (folder / f"{newcomer}.yaml").write_text((folder / "shop.yaml").read_text())
    os.utime(folder / "shop.yaml", (1, 1))
    bag = bag_of(folder)
    assert not bag.import_errors
    assert sorted(bag.dags) == sorted([f"binlake_shop_{dag}" for dag in DAGS] + [f"binlake_{newcomer}_broken"])
    problem = problem_of(bag.dags[f"binlake_{newcomer}_broken"])
    assert f"{newcomer}.yaml:" in problem
    assert "source.name: 'shop' is the source of shop.yaml, which is older" in problem


def test_an_error_that_nobody_foresaw_costs_one_source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, "shop")
    write(folder, "bank")

    verify = Steps.verify

    def fail_for_the_bank(steps: Steps, **asked: Any) -> None:
        if steps.config.source.name == "bank":
            raise RuntimeError("no such thing")
        verify(steps, **asked)

    monkeypatch.setattr(Steps, "verify", fail_for_the_bank)
    made = dags_of(folder)
    assert {"binlake_shop_sync", "binlake_shop_verify"} <= set(made)
    assert "no such thing" in problem_of(made["binlake_bank_sync"])


def test_fifty_sources_are_read_once_and_make_no_task_too_many(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each parse makes all DAGs again, in well under a second; what takes time are the YAML files, and each task."""
    for number in range(50):
        write(folder, f"shop{number:02}")
    read: list[Path] = []

    def load(file: Path) -> PipelineConfig:
        read.append(file)
        return config.load(file)

    monkeypatch.setattr(sources, "load", load)
    first, second = dags_of(folder), dags_of(folder)
    assert sorted(first) == sorted(second) == sorted(f"binlake_shop{n:02}_{dag}" for n in range(50) for dag in DAGS)
    assert sorted(read) == sorted(folder.glob("*.yaml"))
    assert sum(len(dag.tasks) for dag in second.values()) == 50 * 20


def test_making_dags_copies_no_form_for_each_task(folder: Path) -> None:
    """Beside as many DAGs and tasks that do nothing: 2.6 times the calls, 3.1 on Airflow 3.1.

    Above 3.7 where each task copies the form.
    """
    for number in range(5):
        write(folder, f"shop{number}")
    dags_of(folder)

    assert calls(lambda: dags_of(folder)) < 3.3 * calls(lambda: empty_dags(30, 20, each=6))


def calls(work: Callable[[], Any]) -> int:
    """Count the calls of Python's functions: a measure of work that no other process disturbs."""
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def empty_dags(count: int, tasks: int, *, each: int) -> None:
    """One in ``each`` has the tasks."""
    for number in range(count):
        with DAG(f"empty_{number}", schedule=None):
            for task in range(0 if number % each else tasks):
                EmptyOperator(task_id=f"task_{task}")


def test_a_dag_file_imports_nothing_heavy() -> None:
    code = (
        "import sys, json, airflow.sdk; before = set(sys.modules); import runpy\n"
        f"dags = runpy.run_path({str(ROOT / 'dags' / 'binlake_dags.py')!r})\n"
        "assert 'binlake_shop_sync' in dags\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    heavy = {"pyspark", "deltalake", "pyarrow", "numpy", "pandas", "numba", "pymysql", "pymysqlreplication", "sqlglot"}
    assert not loaded & heavy
