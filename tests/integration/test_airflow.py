"""Both DAGs as Airflow runs them: `airflow dags test` on both servers, and a backfill with a real scheduler."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import comparison
from airflow_home import AirflowHome, ProcessWatch, dag_test, wait_for
from binlake import pipeline
from binlake.phases.register import registration_due
from binlake.records import decisions, watermarks
from binlake.records.decisions import Reason
from binlake.schema.table import TableName
from binlake.store.metadata import query
from planted_secrets import COLUMNS, NAMES, SECRETS, found_in, row, said_by_database, withheld
from servers import Server

PAGE = Path(__file__).parents[2] / "plugins" / "README.md"
PASSWORD = "p4ss%wörd-7f3a"
KEY = "a key that nobody knows"
MASKED = {"AIRFLOW_CONN_PII_KEY": json.dumps({"password": KEY})}
SYNC = "binlake_shop_sync"
BOOTSTRAP = "binlake_shop_bootstrap"
MAINTAIN = "binlake_shop_maintain"
VERIFY = "binlake_shop_verify"
REPLAY = "binlake_shop_replay"
RESUME = "binlake_shop_resume"
FEEDS = "binlake_shop_feeds"
IMPORT_ERRORS = ("dags", "list-import-errors", "--local", "-B", "dags-folder", "-B", "examples")
EXAMPLES = PAGE.parent / "binlake_airflow" / "example_dags"

pytestmark = pytest.mark.timeout(1500)


def home_of(folder: Path, server: Server, database: str, **options: Any) -> AirflowHome:
    """Return a new home, whose table people is masked."""
    user = f"u_{database[-8:]}"
    server.create_account(user, PASSWORD, ["ALL PRIVILEGES ON *.*"])
    folder.mkdir()
    home = AirflowHome(folder, server, database, user, PASSWORD, settings=MASKED, **options)
    columns = json.dumps(withheld(f"{database}.people"))
    home.yaml.write_text(f"{home.yaml.read_text()}columns: {columns}\n")
    return home


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process know the key of the hashes, too."""
    for name, value in MASKED.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def airflow(tmp_path: Path, server: Server, database: str) -> Iterator[AirflowHome]:
    home = home_of(tmp_path / "airflow", server, database)
    yield home
    server.execute(f"DROP USER {home.user}")


def assert_equal(home: AirflowHome, *tables: str) -> None:
    for table in tables:
        path = home.config.table_path(TableName(home.database, table))
        comparison.assert_equal(home.server, home.database, table, path)


def versions(home: AirflowHome, *tables: str) -> dict[str, int]:
    return {table: DeltaTable(home.config.table_path(TableName(home.database, table))).version() for table in tables}


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_bootstrap_then_syncs(airflow: AirflowHome) -> None:
    server, tables = airflow.server, ("orders", "odd.name; x", "computed")
    server.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, note TEXT)",
        "CREATE TABLE `odd.name; x` (id INT PRIMARY KEY, `a b` DECIMAL(9,2))",
        "CREATE TABLE computed (id INT PRIMARY KEY)",
        "CREATE TABLE audit_log (id INT PRIMARY KEY)",
        "INSERT INTO computed VALUES (1), (2)",
        "INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, NULL)",
        "INSERT INTO `odd.name; x` VALUES (1, 1.25)",
        f"CREATE TABLE people ({COLUMNS}, day DATE)",
        "SET sql_mode = ''",
        f"INSERT INTO people ({NAMES}, day) VALUES ({row(10)}, '0000-00-00'), ({row(11)}, '0000-00-00')",
        database=airflow.database,
    )
    with ProcessWatch(PASSWORD) as watch:
        # One table can't be copied: the run fails, and the others are there and announced.
        assert f"{airflow.database}.people" in airflow.test_dag(BOOTSTRAP, succeeds=False, lock="tables")
        assert airflow.states(BOOTSTRAP) == {"preflight": "success", "snapshot": "failed", "announce": "success"}
        assert_equal(airflow, *tables)
        server.execute("DROP TABLE people", database=airflow.database)

        # A batch that an earlier run planned and left is finished first, under its own range.
        server.execute("INSERT INTO orders VALUES (4, 'd')", database=airflow.database)
        assert pipeline.plan(airflow.config, airflow.endpoint).batch == 1
        server.execute(
            "UPDATE orders SET note = 'B' WHERE id = 2",
            "DELETE FROM orders WHERE id = 1",
            "UPDATE `odd.name; x` SET `a b` = 7 WHERE id = 1",
            "ALTER TABLE computed ADD twice INT AS (id * 2) STORED",
            database=airflow.database,
        )
        events = airflow.folder / "lineage.json"
        transport = json.dumps({"type": "file", "log_file_path": str(events), "append": True})
        said = airflow.run("dags", "test", SYNC, AIRFLOW__OPENLINEAGE__TRANSPORT=transport)
        assert_lineage(airflow, events)
        assert "batch 1 was begun before" in said
        assert re.search(r"batch 1: [1-9]\d* rows? of [1-9]\d* tables?, up to ", said)
        assert re.search(r"batch 2: [1-9]\d* rows? of [1-9]\d* tables?, up to ", said)
        assert "files; no Spark was needed" in said
        assert f"snapshotted again: {airflow.database}.computed" in said
        assert set(airflow.states(SYNC).values()) == {"success"}
        assert_equal(airflow, *tables)

        before = versions(airflow, *tables)
        catalog, feed = airflow.yaml.parent.parent / "catalog", airflow.folder / "feed"
        more = f'catalog: {{metastore: "{catalog}"}}\nfeeds: [{{name: all, format: text, sink: "file://{feed}"}}]\n'
        airflow.yaml.write_text(airflow.yaml.read_text() + more)
        again = dag_test(REPLAY, tables=[f"{airflow.database}.orders"], batch=1)
        commands = [dag_test(SYNC), dag_test(VERIFY), again, dag_test(FEEDS), IMPORT_ERRORS]
        said = airflow.run_all("without_changes", *commands, **with_examples(airflow))
    assert said.rstrip().endswith("No data found")
    assert f"{len(tables)} of {len(tables)} tables equal" in said
    assert_verified(airflow, len(tables))
    assert f"{airflow.database}.orders as of batch 1: " in said
    assert "by 1 batch behind Delta version 0; equal to Delta version 1" in said
    assert airflow.states(FEEDS) == {"all": "success"}
    sent = "".join(file.read_text() for file in feed.rglob("*") if file.is_file())
    assert '{"a b": "1.25" → "7.00"}' in sent
    assert "nothing new: proved up to binlog." in said
    assert "the stop of batch 2" in said
    ran = {task for task, state in airflow.states(SYNC).items() if state == "success"}
    assert ran == {"preflight", "unfinished.find", "plan", "record", "resnapshot", "register", "announce"}
    assert not registration_due(airflow.config)
    assert versions(airflow, *tables) == before
    assert_assets(airflow)
    assert_linked(airflow)
    assert_resumed_and_maintained(airflow, *tables)
    assert_no_secret(airflow, watch)


def with_examples(home: AirflowHome) -> dict[str, str]:
    """Variables for a process that looks at binlake's examples, too."""
    folders = {"dags-folder": home.folder / "dags", "examples": EXAMPLES}
    bundle = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundles = [{"name": name, "classpath": bundle, "kwargs": {"path": str(path)}} for name, path in folders.items()]
    return {"AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles)}


def assert_lineage(home: AirflowHome, file: Path) -> None:
    """Of the second batch, as OpenLineage's own listener sends it to a file."""
    events = [json.loads(line) for line in file.read_text().splitlines()]
    (merged,) = [
        event for event in events if event["eventType"] == "COMPLETE" and event["job"]["name"] == f"{SYNC}.merge"
    ]
    source = f"mysql://127.0.0.1:{home.server.port}"
    names = {f"{home.database}.{table}" for table in ("orders", "odd.name; x")}
    assert {(dataset["namespace"], dataset["name"]) for dataset in merged["inputs"]} >= {
        (source, name) for name in names
    }
    place = home.config.table_path(TableName(home.database, "orders"))
    (orders,) = [dataset for dataset in merged["outputs"] if (dataset["namespace"], dataset["name"]) == ("file", place)]
    assert [field["name"] for field in orders["facets"]["schema"]["fields"]] == ["id", "note"]
    (note,) = orders["facets"]["columnLineage"]["fields"]["note"]["inputFields"]
    assert (note["namespace"], note["name"], note["field"]) == (source, f"{home.database}.orders", "note")


def assert_linked(home: AirflowHome) -> None:
    """Each task that carried a batch leads to the batch's page, the others to the source's."""
    rows = home.query("SELECT task_id, value FROM xcom WHERE key = '_link_PageLink'")
    links = {task: set() for task, _ in rows}  # type: dict[str, set[str]]
    for task, link in rows:
        links[task].add(str(link).strip('"').partition("/plugin/binlake/binlake/?")[2])
    assert links["preflight"] == {"source=shop"}
    assert links["unfinished.record"] == {"source=shop&batch=1"}
    assert {"source=shop&batch=2"} < links["record"]


def assert_resumed_and_maintained(home: AirflowHome, *tables: str) -> None:
    """Maintained by Spark where a table needs it, else without; behind the sync in one task that the page shows."""
    name = TableName(home.database, "orders")
    decisions.pause(home.config, name, Reason("somebody", "to look at it"))
    home.yaml.write_text(home.yaml.read_text().replace("{schedule: null,", "{schedule: null, history_hours: 100,"))
    resume = dag_test(RESUME, tables=[str(name)], why="looked at")
    home.server.execute("INSERT INTO orders VALUES (7, 'one task')", database=home.database)
    (home.folder / "dags" / "hourly.py").write_text(
        page_dag('DAG("hourly"').replace("/etc/binlake", f"{home.folder}/dags")
    )
    said = home.run_all("upkeep", resume, dag_test("hourly"), dag_test(MAINTAIN), dag_test(MAINTAIN))
    ((extra,),) = home.query("SELECT extra FROM asset_event WHERE source_dag_id = 'hourly' AND source_task_id = 'sync'")
    assert json.loads(extra)["inserted"] == 1
    assert {row.status for row in watermarks.read(pipeline.metadata_of(home.config))} == {"following"}
    assert said.count("no Spark was needed") == 2
    assert home.states(MAINTAIN) == {"maintain": "success"}
    log = DeltaTable(home.config.table_path(TableName(home.database, tables[0])))
    assert log.metadata().configuration["delta.deletedFileRetentionDuration"] == "interval 360000 seconds"
    noted = [row for row in pipeline.metadata_of(home.config).read("runs") if row["kind"] == "maintain"]
    assert len(noted) == 2
    assert_equal(home, *tables)


def assert_assets(home: AirflowHome) -> None:
    """One event for each table and change, of both batches and of both snapshots, with where the table stands."""
    events = home.query(
        "SELECT a.uri, e.source_dag_id, e.source_task_id, e.extra FROM asset_event e JOIN asset a ON a.id = e.asset_id"
        " ORDER BY e.id"
    )
    orders, odd, computed = (
        f"binlake://shop/{home.database}.{name}" for name in ("orders", "odd.name%3B%20x", "computed")
    )
    recorded = [(uri, task, json.loads(extra)) for uri, _, task, extra in events if task.endswith("record")]
    counts = [
        (uri, task, extra["batch"], extra["inserted"], extra["updated"], extra["deleted"])
        for uri, task, extra in recorded
    ]
    assert sorted(counts) == sorted(
        [
            (orders, "unfinished.record", 1, 1, 0, 0),
            (orders, "record", 2, 0, 1, 1),
            (odd, "record", 2, 0, 1, 0),
        ]
    )
    copied = [(uri, dag) for uri, dag, task, _ in events if task == "announce"]
    assert sorted(copied) == sorted([(orders, BOOTSTRAP), (odd, BOOTSTRAP), (computed, BOOTSTRAP), (computed, SYNC)])


def assert_verified(home: AirflowHome, tables: int) -> None:
    """In the task's own process, and noted."""
    ((left,),) = home.query(
        "SELECT value FROM xcom WHERE dag_id = ? AND task_id = 'verify' AND key = 'return_value'", VERIFY
    )
    stored = json.loads(left)
    assert (stored["equal"], stored["tables"], stored["verified_through"]) == (True, tables, 2)
    (noted,) = pipeline.metadata_of(home.config).read("runs", where="kind = 'verify'")
    assert not noted["why_spark"]


def assert_no_secret(home: AirflowHome, watch: ProcessWatch) -> None:
    assert watch.jobs_seen
    assert not watch.leaks
    assert home.files_with(PASSWORD) == []
    assert home.files_with("p4ss%25w") == []
    assert home.database_file.stat().st_size > 100_000
    assert not found_in(home.folder, [*SECRETS, KEY], said_by_database(home.database_file))


def drivers(home: AirflowHome) -> dict[int, int]:
    """The JVMs that run this home's jobs, with the process that submitted each; not those that launch them."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        try:
            arguments = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            is_driver = arguments.partition(b"\0")[0].endswith(b"/java") and b"launcher.Main" not in arguments
            if is_driver and b"deploy.SparkSubmit" in arguments and str(home.yaml).encode() in arguments:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    return parents


def assert_a_killed_task_takes_its_driver_along(home: AirflowHome) -> None:
    """kill -9 of the task's process while the job waits for the server; the task is tried again, and succeeds."""
    home.yaml.write_text(home.yaml.read_text().replace("verify: {", "verify: {by: hash, "))
    home.run_beside_services("dags", "trigger", VERIFY)
    wait_for("its preflight", 120, lambda: home.states(VERIFY).get("preflight") == "success")
    with home.server.connect(database=home.database) as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLES orders WRITE")
        wait_for("the job", 120, lambda: drivers(home))
        ((driver, task),) = drivers(home).items()
        os.kill(task, signal.SIGKILL)
        wait_for("the end of its driver", 30, lambda: driver not in drivers(home))
    wait_for(
        "the second try",
        300,
        lambda: home.query(f"SELECT 1 FROM dag_run WHERE dag_id = '{VERIFY}' AND state = 'success'"),
    )
    assert home.states(VERIFY) == {"preflight": "success", "verify": "success", "announce": "success"}
    assert home.query(f"SELECT try_number FROM task_instance WHERE dag_id = '{VERIFY}' AND task_id = 'verify'") == [
        (2,)
    ]


@pytest.fixture
def daily(tmp_path: Path, mariadb_server: Server) -> Iterator[AirflowHome]:
    """A day's interval, because a test mustn't wait for an hour's end."""
    mariadb_server.execute("CREATE DATABASE backfilled")
    home = home_of(tmp_path / "airflow", mariadb_server, "backfilled", schedule="0 0 * * *")
    yield home
    mariadb_server.execute("DROP DATABASE backfilled", f"DROP USER {home.user}")


def page_dag(words: str) -> str:
    """The text of the DAG in plugins/README.md that has these words."""
    blocks = [block.partition("```")[0] for block in PAGE.read_text().split("```python\n")]
    (block,) = [block for block in blocks if words in block]
    return block


def logs(home: AirflowHome, dag: str) -> str:
    """Of all its tasks."""
    return "".join(path.read_text() for path in (home.folder / "home" / "logs" / f"dag_id={dag}").rglob("*.log"))


def backfill(home: AirflowHome, first: datetime, last: datetime, *options: str) -> dict[str, str]:
    """Create a backfill, let the running services run it; the states of its runs by logical date."""
    known = {row[0] for row in home.query("SELECT id FROM backfill")}
    home.run_beside_services(
        "backfill", "create", "--dag-id", SYNC, "--from-date", first.isoformat(), "--to-date", last.isoformat(),
        *options,
    )  # fmt: skip
    (number,) = {row[0] for row in home.query("SELECT id FROM backfill")} - known

    def states() -> dict[str, str]:
        return dict(
            home.query(
                "SELECT r.logical_date, r.state FROM dag_run r JOIN backfill_dag_run b ON b.dag_run_id = r.id"
                " WHERE b.backfill_id = ?",
                number,
            )
        )

    # Its runs: that all of them are done the scheduler notes but every 30 s.
    wait_for("the backfill", 900, lambda: states() and set(states().values()) <= {"success", "failed"})
    return states()


def wait_until_another_may_begin(home: AirflowHome) -> None:
    wait_for("the end of the backfill", 60, lambda: not home.query("SELECT 1 FROM backfill WHERE completed_at IS NULL"))


def test_a_backfill_makes_up_missed_intervals_in_order_and_merged_ones_are_proved_no_ops(daily: AirflowHome) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    server = daily.server
    server.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, note TEXT)",
        f"CREATE TABLE people ({COLUMNS})",
        f"INSERT INTO people ({NAMES}) VALUES ({row(10)}), ({row(11)})",
        database="backfilled",
    )
    daily.test_dag(BOOTSTRAP)
    (daily.folder / "dags" / "revenue.py").write_text(
        page_dag("def revenue(").replace("shop.orders", "backfilled.orders")
    )
    broken = {"bank": "source: {name: bank}\nshedule: daily\n", "crew": "source: {name: ["}
    for name, text in broken.items():
        (daily.folder / "dags" / "pipelines" / f"{name}.yaml").write_text(text)
    with ProcessWatch(PASSWORD) as watch, daily.services():
        wait_for(
            "the run of yesterday",
            300,
            lambda: daily.query(f"SELECT 1 FROM dag_run WHERE dag_id = '{SYNC}' AND state = 'success'"),
        )
        for days in (4, 3):  # MariaDB's commits carry the session's timestamp
            noon = (today - timedelta(days=days)).timestamp() + 12 * 3600
            server.execute(
                f"SET timestamp = {noon:.0f}",
                f"INSERT INTO orders VALUES ({days}, 'days ago')",
                f"INSERT INTO people ({NAMES}) VALUES ({row(10 + days)})",
                f"UPDATE people SET token = 'zq1{days + 3}-is-the-token', plain = 'plain' WHERE id = 10",
                f"ALTER TABLE people ADD more_{days} INT, ALTER email SET DEFAULT 'zq05-in-a-default'",
                database="backfilled",
            )
        # Two runs at once, as Airflow starts them.
        states = backfill(daily, today - timedelta(days=4), today - timedelta(days=3))
        assert list(states.values()) == ["success"] * 2
        assert_equal(daily, "orders")
        people = query(daily.config.table_path(TableName("backfilled", "people")))
        assert sorted(people["id"].to_pylist()) == [10, 11, 13, 14]
        wait_for("the DAG that is scheduled on the table", 120, lambda: "'batch': 2" in logs(daily, "revenue"))
        batches = sorted(pipeline.metadata_of(daily.config).read("batches"), key=lambda row: row["batch"])
        ends = [(today - timedelta(days=days - 1)).timestamp() * 1e6 for days in (4, 3)]
        assert [(row["state"], row["until_us"]) for row in batches] == [("recorded", end) for end in ends]

        before = versions(daily, "orders")
        assert_a_killed_task_takes_its_driver_along(daily)
        wait_until_another_may_begin(daily)
        again = today - timedelta(days=4)
        states = backfill(daily, again, again, "--reprocess-behavior", "completed")
        assert list(states.values()) == ["success"]
    # Airflow marks the DAGs of a file with an import error as stale.
    stale = daily.query("SELECT dag_id FROM dag WHERE dag_id LIKE 'binlake_%' AND (is_stale OR has_import_errors)")
    assert not stale
    assert "shedule" in logs(daily, "binlake_bank_sync")
    assert "crew.yaml" in logs(daily, "binlake_crew_sync")
    assert versions(daily, "orders") == before
    assert len(pipeline.metadata_of(daily.config).read("batches")) == 2
    proofs = daily.query(
        "SELECT x.value FROM xcom x JOIN dag_run r ON r.run_id = x.run_id AND r.dag_id = x.dag_id"
        " WHERE x.dag_id = ? AND x.task_id = 'record' AND r.run_type = 'backfill'",
        SYNC,
    )
    # The one that was reprocessed names the batch that merged its day, not the newest.
    (repeated,) = [proof for (proof,) in proofs if '"merged_by": 1' in str(proof)]
    assert "the stop of batch 2" in str(repeated)
    assert "it was merged by batch 1, whose stop is" in str(repeated)
    assert_no_secret(daily, watch)
