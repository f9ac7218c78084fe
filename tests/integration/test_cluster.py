"""Workers that have nothing of ours: no engine, no jars, no certificate, no folder but the lake; and that are lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from authority import Authority
from bastion import Bastion, new_key
from binlake.spark import java_program
from binlake.versions import JAVA
from cluster import Cluster, Driver, cluster, driver, python_with, wait_until
from fault_proxy import FaultProxy
from mirror import Mirror
from object_store import ObjectStore
from servers import Server

ROWS = (
    "INSERT INTO {0} SELECT n, REPEAT('x', 200), n / 3 FROM (WITH RECURSIVE s (n) AS"
    " (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000) SELECT n FROM s) x"
)
DOUBLED = "INSERT INTO {0} SELECT id + {1}, v, d FROM {0}"
PASSWORD = "of the tests"
HERE = "/proc/self/cwd"
"""The driver's own folder, whose name means another one to whoever works elsewhere."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def python(place: Path) -> Path:
    return python_with(place / "packages", packages=True)


@pytest.fixture(scope="module")
def packed(place: Path, python: Path) -> Path:
    """The same as one file, which Spark's executors unpack."""
    archive = place / "environment.tar.gz"
    subprocess.run(["tar", "-C", python.parent, "-czf", archive, "."], check=True)
    return archive


@pytest.fixture(scope="module")
def empty(place: Path) -> Path:
    return python_with(place / "empty", packages=False)


@pytest.fixture(scope="module")
def authority(place: Path) -> Authority:
    return Authority.made(place, "authority")


@pytest.fixture(scope="module")
def server(authority: Authority, new_server: type[Server]) -> Iterator[Server]:
    """Nobody comes in who doesn't show a certificate."""
    cert, key = authority.sign("server")
    with new_server("mysql", ssl_ca=str(authority.pem), ssl_cert=str(cert), ssl_key=str(key)) as started:
        started.create_account("mirrors", PASSWORD, ["ALL ON *.*"])
        started.execute("ALTER USER mirrors REQUIRE X509")
        yield started


@pytest.fixture(scope="module")
def proxy(server: Server) -> Iterator[FaultProxy]:
    with FaultProxy(server.port) as between:
        yield between


@pytest.fixture(scope="module")
def workers(place: Path, empty: Path) -> Iterator[Cluster]:
    with cluster(place, empty, empty) as started:
        yield started


@pytest.fixture(scope="module")
def uri(proxy: FaultProxy, authority: Authority) -> str:
    """With certificates that stand in the driver's folder."""
    authority.sign("client")
    files = {"ca": "authority.pem", "cert": "client.crt", "key": "client.key"}
    tls = json.dumps({"ssl": {name: f"{HERE}/{file}" for name, file in files.items()}})
    return f"mysql://mirrors:{quote(PASSWORD)}@127.0.0.1:{proxy.port}/?__extra__={quote(tls)}"


@pytest.fixture(scope="module")
def bastion(place: Path) -> Iterator[Bastion]:
    with Bastion([new_key(place / "of_the_driver")]) as started:
        yield started


@pytest.fixture(scope="module")
def run(place: Path, uri: str, workers: Cluster, bastion: Bastion) -> Iterator[Driver]:
    (place / "tmp").mkdir()
    tls = json.loads(unquote(uri.partition("__extra__=")[2]))
    ssh = bastion.connection(key_file=f"{HERE}/of_the_driver")
    behind = f"{uri.partition('?')[0]}?__extra__={quote(json.dumps({**tls, 'ssh': ssh}))}"
    with driver(place, AIRFLOW_CONN_TESTS=uri, AIRFLOW_CONN_BEHIND=behind, TMPDIR=f"{HERE}/tmp") as started:
        yield started


@pytest.fixture
def mirror(server: Server, database: str, lake: Path, workers: Cluster, packed: Path) -> Mirror:
    made = Mirror(server, database, lake, spark=None)  # type: ignore[arg-type]
    conf = {
        "spark.archives": f"{packed}#environment",
        "spark.pyspark.python": "./environment/bin/python3",
        "spark.executor.instances": 2,
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    made.options = {"spark": {"master": workers.url, "executor_memory": "512m", "conf": conf}}
    return made


def fill(mirror: Mirror, doublings: int = 5) -> None:
    for table in "ab":
        mirror.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(200), d DOUBLE)",
            ROWS.format(table),
            *(DOUBLED.format(table, 1000 << power) for power in range(doublings)),
        )


def change(mirror: Mirror, value: str = "'später'") -> None:
    """In two files of the log."""
    mirror.execute("UPDATE a SET d = d * 3 WHERE id % 7 = 0", "DELETE FROM b WHERE id % 5 = 0")
    mirror.execute("FLUSH BINARY LOGS", f"UPDATE b SET v = {value} WHERE id % 3 = 0")


def lose_and_replace(workers: Cluster, empty: Path) -> None:
    workers.kill_worker(2)
    workers.start_worker(2, empty)


def test_a_mirror_whose_workers_get_all_from_the_driver(
    mirror: Mirror, run: Driver, place: Path, authority: Authority
) -> None:
    fill(mirror, 1)
    mirror.execute(
        "CREATE TABLE few (id INT PRIMARY KEY, d DOUBLE, at DATETIME)", "INSERT INTO few VALUES (1, 0.1, NULL)"
    )
    yaml = str(mirror.write_yaml())
    run.run("snapshot", "--config", yaml)
    change(mirror)
    run.run("sync", "--config", yaml)
    mirror.assert_equal("a", "b", "few")
    run.run("verify", "--config", yaml)
    mirror.options["snapshot"] = {"reader": "direct"}
    run.run("snapshot", "--config", str(mirror.write_yaml()), "--tables", "*.a")
    mirror.assert_equal("a")
    private = authority.pem.with_name("client.key").read_bytes()
    got = [file for file in place.glob("worker*/app-*/*/**/*") if file.is_file()]
    assert {"binlake", "trust"} <= {part.partition("-")[0] for file in got for part in file.parts}
    assert not [file for file in got if b"PRIVATE KEY" in file.read_bytes() or private in file.read_bytes()]


def test_executors_go_through_a_bastion_by_a_key_that_they_get_from_the_driver(
    mirror: Mirror, run: Driver, bastion: Bastion, place: Path
) -> None:
    fill(mirror, 1)
    mirror.options["source"] = {"name": "tests", "connection": "behind", "server_id": mirror.server_id}
    yaml = str(mirror.write_yaml())
    run.run("snapshot", "--config", yaml)
    change(mirror)
    copied = bastion.accepted
    run.run("sync", "--config", yaml)
    run.run("verify", "--config", yaml)
    mirror.assert_equal("a", "b")
    assert copied >= 4
    assert bastion.accepted > copied
    private = (place / "of_the_driver").read_bytes()
    assert not [file for file in place.glob("worker*/**/*") if file.is_file() and private in file.read_bytes()]


@pytest.mark.soak
def test_a_lake_on_a_store_whose_account_and_authority_the_executors_get_from_the_driver(
    mirror: Mirror, place: Path, uri: str, empty: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No host has a variable of either; rows are copied, staged and merged by executors."""
    fill(mirror, 1)
    trusted = {"SSL_CERT_FILE": str(authority.pem)}
    with ObjectStore(place / "s3", authority.sign("store")) as store, cluster(place / "other", empty, empty) as others:
        mirror.url = "s3://lake/mirrors"
        mirror.options["spark"] |= {"master": others.url}
        mirror.options |= {"merge": {"without_spark_mb": 0}, "lake": {"path": mirror.url, "connection": "store"}}
        yaml, account = str(mirror.write_yaml()), json.dumps(store.connection)
        with driver(place, AIRFLOW_CONN_TESTS=uri, AIRFLOW_CONN_STORE=account, **trusted) as run:
            run.run("snapshot", "--config", yaml)
            change(mirror)
            run.run("sync", "--config", yaml)
            run.run("verify", "--config", yaml)
        for name, value in {**store.environment, **trusted}.items():
            monkeypatch.setenv(name, value)  # for what compares
        mirror.assert_equal("a", "b")
        mirror.assert_each_once("a", "b")


def test_a_worker_that_is_lost_while_it_copies(
    mirror: Mirror, run: Driver, proxy: FaultProxy, workers: Cluster, empty: Path
) -> None:
    """Spark runs the task again, which its gate refuses; its chunk goes into another wave, at a position of its own."""
    fill(mirror)
    before, proxy.stall_after = len(proxy.connections), 1 << 20
    run.begin("snapshot", "--config", str(mirror.write_yaml()))
    wait_until(lambda: proxy.connections[before:].count(1 << 20) >= 2, "no two chunks are copied at once")
    lose_and_replace(workers, empty)
    proxy.stall_after = None
    change(mirror)
    assert run.answer() == "0"
    said = run.said()
    assert "a wave failed and is repeated" in said  # twice where the lost executor is missed but later
    assert "the executor that copied it was lost" in said
    assert len({row["position"] for row in mirror.metadata.read("snapshots")}) >= 2
    run.run("sync", "--config", str(mirror.folder / "source.yaml"))
    mirror.assert_equal("a", "b")


def verified(run: Driver, mirror: Mirror, **settings: int) -> tuple[dict[str, Any], str]:
    """What is told of the table, and what else is said."""
    mirror.options["verify"] = settings
    run.begin("verify", "--json", "--config", str(mirror.write_yaml()))
    assert run.answer() in "01"
    said = run.said()
    (table,) = json.JSONDecoder().raw_decode(said, said.index("{"))[0]["tables"]
    return table, said


@pytest.mark.soak
def test_a_large_table_that_is_verified_by_executors_also_when_one_is_lost(
    mirror: Mirror, run: Driver, proxy: FaultProxy, workers: Cluster
) -> None:
    mirror.execute(
        "CREATE TABLE large (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO large WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000)"
        " SELECT n, CONCAT('v', n) FROM s",
        *(f"INSERT INTO large SELECT id + {1000 << power}, v FROM large" for power in range(8)),
        "ANALYZE TABLE large",
    )
    run.run("snapshot", "--config", str(mirror.write_yaml()))
    mirror.execute("UPDATE large SET v = 'later' WHERE id % 1000 = 7")
    equal, said = verified(run, mirror, without_spark_rows=100_000)
    assert "1 connection of Spark's executors read" in said
    assert "this process reads" not in said
    assert (equal["equal"], equal["source_rows"], equal["lake_rows"]) == (True, 256_000, 256_000)

    mirror.execute(
        "SET sql_log_bin = 0",
        "UPDATE large SET v = NULL WHERE id = 77",
        "DELETE FROM large WHERE id = 150000",
        "INSERT INTO large VALUES (-1, 'more')",
    )
    differing, said = verified(run, mirror, without_spark_rows=100_000)
    assert "this process reads" not in said
    alone, said = verified(run, mirror)
    assert "executors" not in said
    assert differing == alone
    assert {row["kind"] for row in differing["rows"]} == {"changed", "missing", "extra"}

    before, proxy.stall_after = len(proxy.connections), 1 << 20
    mirror.options["verify"] = {"without_spark_rows": 100_000}
    run.begin("verify", "--json", "--config", str(mirror.write_yaml()))
    wait_until(lambda: 1 << 20 in proxy.connections[before:], "no executor reads")
    mirror.execute("UPDATE large SET v = 'later still' WHERE id % 100 = 3")
    for executor in [*workers.executors(2), *workers.executors(3)]:
        os.kill(executor, signal.SIGKILL)
    proxy.stall_after = None
    assert run.answer() == "1"
    said = run.said()
    assert "this process reads" in said
    (lost,) = json.JSONDecoder().raw_decode(said, said.index("{"))[0]["tables"]
    assert lost == alone


@pytest.mark.soak
def test_a_worker_that_is_lost_while_it_merges_and_an_executor_while_it_stages(
    mirror: Mirror, run: Driver, proxy: FaultProxy, workers: Cluster, empty: Path
) -> None:
    fill(mirror)
    yaml = str(mirror.write_yaml())
    run.run("snapshot", "--config", yaml)
    change(mirror)
    run.begin("at", "manifest written")
    run.begin("sync", "--config", yaml)
    assert run.answer() == "manifest written"
    time.sleep(2)
    lose_and_replace(workers, empty)
    ended, said = run.answer(), run.said()
    assert "Lost executor" in said
    if ended != "0":
        run.run("sync", "--config", yaml)
    mirror.assert_equal("a", "b")

    change(mirror, "REPEAT('y', 200)")
    run.begin("at", "planned")
    run.begin("sync", "--config", yaml)
    assert run.answer() == "planned"
    proxy.delay = 0.1
    before = len(proxy.connections)
    wait_until(
        lambda: sum(sent > 200_000 for sent in proxy.connections[before:]) >= 2, "no two slices are staged at once"
    )
    (executor,) = workers.executors(2)
    os.kill(executor, signal.SIGKILL)
    proxy.delay = 0.0
    assert run.answer() == "3"
    said = run.said()
    assert "its executor was lost" in said
    assert "then run again" in said
    run.run("sync", "--config", yaml)
    mirror.assert_equal("a", "b")
    mirror.assert_each_once("a", "b")


def another_java() -> Path:
    """The home of a Java of this machine's whose major version isn't the driver's."""
    own = java_program.java()
    for release in sorted(Path("/usr/lib/jvm").glob("*/release")):
        major = re.search(r'^JAVA_VERSION="(\d+)', release.read_text(), re.MULTILINE)
        if major and own and JAVA <= int(major[1]) != own.major:
            return release.parent
    pytest.skip("the machine has no second Java")


@pytest.mark.soak
def test_a_host_with_another_java_is_told_by_name_and_works_all_the_same(
    mirror: Mirror, empty: Path, place: Path, uri: str
) -> None:
    fill(mirror, 1)
    with cluster(place / "javas", empty) as others, driver(place, AIRFLOW_CONN_TESTS=uri) as run:
        others.start_worker(3, empty, another_java())
        others.wait_for_workers()
        mirror.options["spark"] |= {"master": others.url}
        mirror.options["merge"] = {"without_spark_mb": 0}
        yaml = str(mirror.write_yaml())
        said = run.run("snapshot", "--config", yaml)
        assert re.findall(r"executors on (\S+) have Java \d+, not \d+, as the driver has", said) == ["127.0.0.3"]
        change(mirror)
        run.run("sync", "--config", yaml)
        run.run("verify", "--config", yaml)
    mirror.assert_equal("a", "b")


def snapshot_fails(mirror: Mirror, run: Driver, url: str, python: str) -> str:
    conf = {"spark.pyspark.python": python, "spark.executor.instances": 2}
    mirror.options["spark"] |= {"master": url, "conf": conf}
    run.begin("snapshot", "--config", str(mirror.write_yaml()))
    code, said = run.answer(), run.said()
    assert code == "3", said
    return said


@pytest.mark.soak
def test_what_a_worker_lacks_is_told_with_its_name(mirror: Mirror, python: Path, empty: Path, tmp_path: Path) -> None:
    """Before anything is asked of the source."""
    mirror.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    uri = mirror.server.uri()
    with cluster(tmp_path, python, empty) as started, driver(tmp_path, AIRFLOW_CONN_TESTS=uri) as run:
        said = snapshot_fails(mirror, run, started.url, "python3")
        assert f"executors on 127.0.0.3 ({empty}/python3): numpy is missing, numba is missing" in said
        assert "127.0.0.2" not in said
        assert "pip install 'numpy==" in said
        said = snapshot_fails(mirror, run, started.url, "/nowhere/python")
        assert "can't run /nowhere/python" in said
        assert "on 127.0.0." in said
        assert "spark.pyspark.python" in said
