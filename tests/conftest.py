"""Servers, databases, a Spark session and a lake for the tests that need them.

Nothing starts before a test asks for it. Servers are shared by the whole run; a test that changes a
server's settings or kills it makes a ``Server`` of its own.

SERVERS in the environment chooses the servers of a run (docker/local/servers.py); what is about other servers alone is
deselected then. Without it, the files of NEWEST_MARIADB run on MariaDB 11.8, all others on the machine's own MariaDB.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest

import own_airflow  # noqa: F401
from servers import KINDS, RELEASES, Kind, Server, installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirror import Mirror

OPTIMISED_LATE = (
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 -XX:Tier4CompileThreshold=60000"
    " -XX:Tier4BackEdgeThreshold=160000 -Xms1g -Xmn600m"
)
"""Four times the JVM's defaults before code is optimised, and room for what lives shortly: a thirteenth of the CPU time
of many small syncs."""

MADE_FOR_TESTS = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # A VACUUM lists a small table's folder in as many tasks: a minute of nothing.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}

NEWEST_MARIADB = "11.8"
ON_NEWEST_MARIADB = frozenset(
    {
        "test_cases", "test_generated_columns", "test_newest_mariadb", "test_virtual_columns", "test_catalog",
        "test_fidelity_matrix", "test_binlog_reader", "test_second_opinion", "test_snapshot", "test_stage", "test_sync",
        "test_merge", "test_rewrite", "test_verify", "test_feeds", "test_policies", "test_random_walk", "test_kill",
        "test_strangers",
    }
)  # fmt: skip
"""Files whose tests use it, where SERVERS names none."""
OF_NEWEST_MARIADB = frozenset({"test_newest_mariadb"})
"""Those among them about what older ones don't have."""

# Instants mustn't depend on the machine's zone.
os.environ["TZ"] = "UTC"


def pytest_configure(config: pytest.Config) -> None:
    """A missing server fails the run at once: tests that skip in silence prove nothing."""
    wanted: list[tuple[Kind, str]] = list(RELEASES.items())
    if not os.environ.get("SERVERS"):
        wanted.append(("mariadb", NEWEST_MARIADB))
    missing = [f"{kind} {release}".strip() for kind, release in wanted if not installed(kind, release)]
    if missing and not os.environ.get("BINLAKE_TESTS_WITHOUT_SERVERS"):
        raise pytest.UsageError(f"not installed: {', '.join(missing)}; run docker/local/setup.sh tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Quick tests first, each folder in the order of its files; those of the soak, and those about servers that SERVERS
    leaves out, are counted as deselected."""
    items.sort(key=_place)
    left_out = [item for item in items if _is_of_the_soak(item) or _is_of_another_server(item)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def _is_of_the_soak(item: pytest.Item) -> bool:
    return "BINLAKE_SOAK" not in os.environ and item.get_closest_marker("soak") is not None


def _is_of_another_server(item: pytest.Item) -> bool:
    """Whether a test asks by its file, fixtures or parameters for a server that this run doesn't have."""
    if item.path.stem in OF_NEWEST_MARIADB and os.environ.get("SERVERS") and RELEASES.get("mariadb") != NEWEST_MARIADB:
        return True
    fixtures = getattr(item, "fixturenames", ())
    parameters = getattr(item, "callspec", None)
    values = parameters.params.values() if parameters else ()
    absent = [kind for kind in ("mysql", "mariadb") if kind not in KINDS]
    return any(
        f"{kind}_server" in fixtures or any(isinstance(value, str) and value == kind for value in values)
        for kind in absent
    )


def _place(item: pytest.Item) -> int:
    order = ("unit", "cases", "integration", "strangers", "faults", "ui")
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    return order.index(folder) if folder in order else len(order)


class RunningServers:
    """The shared server of each kind and release, started when it is first asked for."""

    def __init__(self, life: ExitStack) -> None:
        self._life = life
        self._running: dict[tuple[Kind, str], Server] = {}

    def of(self, kind: Kind) -> Server:
        key = kind, RELEASES[kind]
        if key not in self._running:
            self._running[key] = self._life.enter_context(Server(kind))
        return self._running[key]


@pytest.fixture(scope="session")
def running_servers() -> Iterator[RunningServers]:
    with ExitStack() as life:
        yield RunningServers(life)


@pytest.fixture(scope="module", autouse=True)
def mariadb_release(request: pytest.FixtureRequest) -> Iterator[None]:
    """What "mariadb" stands for in the tests of a file."""
    if not os.environ.get("SERVERS") and request.path.stem in ON_NEWEST_MARIADB:
        with mock.patch.dict(RELEASES, mariadb=NEWEST_MARIADB):
            yield
    else:
        yield


@pytest.fixture(scope="module")
def mysql_server(running_servers: RunningServers) -> Server:
    return running_servers.of("mysql")


@pytest.fixture(scope="module")
def mariadb_server(mariadb_release: None, running_servers: RunningServers) -> Server:
    return running_servers.of("mariadb")


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Server:
    """Each kind in turn."""
    running: Server = request.getfixturevalue(f"{request.param}_server")
    return running


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """A fresh database on ``server``, dropped after the test."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    server.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    yield name
    server.execute(f"DROP DATABASE IF EXISTS {name}")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for the whole run: its start costs seconds.

    Expressions are interpreted where production generates code for them: for a handful of rows that code costs a fifth
    of the time. Whole stages are generated here too, and the jobs that tests start themselves run as in production.
    """
    from binlake.spark import session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", OPTIMISED_LATE)
        built = session.build("tests", master="local[2]", more=MADE_FOR_TESTS)
    yield built
    built.stop()


@pytest.fixture
def mirror(server: Server, database: str, lake: Path, spark: SparkSession) -> Mirror:
    """One fresh database of each server, and its lake."""
    from mirror import Mirror

    return Mirror(server, database, lake, spark)
