"""Servers, databases, a Spark session and a lake for the tests that need them.

Nothing starts before a test asks for it. Servers are shared by the whole run; a test that changes a
server's settings or kills it makes a ``Server`` of its own.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import own_airflow  # noqa: F401
from servers import KINDS, Server, installed

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

# Instants mustn't depend on the machine's zone.
os.environ["TZ"] = "UTC"


def pytest_configure(config: pytest.Config) -> None:
    """A missing server fails the run at once: tests that skip in silence prove nothing."""
    missing = [kind for kind in KINDS if not installed(kind)]
    if missing and not os.environ.get("BINLAKE_TESTS_WITHOUT_SERVERS"):
        raise pytest.UsageError(f"not installed: {', '.join(missing)}; run make setup")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Quick tests first, each folder in the order of its files; those of the soak are counted as deselected."""
    items.sort(key=_place)
    if "BINLAKE_SOAK" not in os.environ:
        long = [item for item in items if item.get_closest_marker("soak")]
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)


def _place(item: pytest.Item) -> int:
    order = ("unit", "cases", "integration", "strangers", "faults", "ui")
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    return order.index(folder) if folder in order else len(order)


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[Server]:
    with Server("mysql") as running:
        yield running


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[Server]:
    with Server("mariadb") as running:
        yield running


@pytest.fixture(scope="session", params=KINDS)
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
    from binlake.lake import session

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
