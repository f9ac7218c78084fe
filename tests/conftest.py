"""Servers, databases, a Spark session and a lake for the tests that need them.

Nothing starts before a test asks for it. Servers are shared by the whole run; a test that changes a
server's settings or kills it makes a ``Server`` of its own.

SERVERS in the environment chooses the servers of a run (docker/local/servers.py); what is about other servers alone is
deselected then. Without it, the files of selection.ON_NEWEST_MARIADB run on MariaDB 11.8, all others on the machine's
own MariaDB.
"""

from __future__ import annotations

import gc
import os
import uuid
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

import own_airflow  # noqa: F401
import selection
from servers import KINDS, RELEASES, Kind, Server
from shared_servers import SharedServers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirror import Merge, Mirror

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


_LEFT_OUT = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="leave out what needs more than make setup brings, servers or Spark",
    )


def _refuse_missing(servers: set[tuple[Kind, str]]) -> None:
    if missing := selection.missing(servers):
        raise pytest.UsageError(f"not installed: {', '.join(missing)}; run docker/local/setup.sh tests")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_LEFT_OUT] = Counter()
    for need in selection.NEEDS:
        config.addinivalue_line(
            "markers", f"{need}: needs it, as the test's fixtures tell; set when tests are collected"
        )
    # With workers, which collect for themselves, a run of all tests is checked before they start.
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.getoption("quick")
    if is_whole and not config.option.collectonly and config.getoption("numprocesses", None):
        _refuse_missing(selection.servers_of_the_suite())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without the garbage collector, which would look at modules and tests again and again.

    They stay to the end of the run, so that it never looks at them: that halves the time of a collection.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument: compressed ones can differ between the workers of a run, which ends it."""
    return argname if isinstance(val, bytes) and not (val.isascii() and val.decode().isprintable()) else None


@pytest.hookimpl(tryfirst=True)  # before -m chooses by markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by what they need, sort the quick ones to the front, and leave out what this run has no use for."""
    items.sort(key=selection.place)
    for item in selection.in_the_soak_alone(items):
        item.add_marker(pytest.mark.soak)
    reasons = [selection.reason_to_leave_out(item, quick=config.getoption("quick")) for item in items]
    left_out = [item for item, reason in zip(items, reasons, strict=True) if reason]
    items[:] = [item for item, reason in zip(items, reasons, strict=True) if not reason]
    for item in items:
        for need in selection.needs(item):
            item.add_marker(need)
    config.hook.pytest_deselected(items=left_out)
    config.stash[_LEFT_OUT] = Counter(reason for reason in reasons if reason)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fail the run at once where a server is missing: tests that skip in silence prove nothing.

    A worker of pytest-xdist can't end the run with a clear message: see pytest_configure.
    """
    if not session.config.option.collectonly and not hasattr(session.config, "workeroutput"):
        _refuse_missing(selection.servers_of(session.items))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["left_out"] = dict(session.config.stash[_LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker of pytest-xdist left out: each collects the same tests."""
    node.config.stash[_LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in selection.as_lines(config.stash[_LEFT_OUT]):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def shared_servers() -> Iterator[SharedServers]:
    with ExitStack() as life:
        yield SharedServers(life)


@pytest.fixture(scope="session")
def new_server() -> type[Server]:
    """For tests that start servers of their own."""
    return Server


@pytest.fixture(scope="session")
def store_jars() -> None:
    """For tests that submit jobs on a lake in an object store: they are refused where Spark lacks its jars."""


@pytest.fixture(scope="session")
def new_environment() -> None:
    """For tests that install the wheel with its dependencies."""


@pytest.fixture(scope="session")
def new_spark() -> None:
    """For tests whose own processes start Spark."""


@pytest.fixture(scope="module", autouse=True)
def mariadb_release(request: pytest.FixtureRequest) -> Iterator[None]:
    """What "mariadb" stands for in the tests of a file."""
    if selection.uses_newest_mariadb(request.path):
        with mock.patch.dict(RELEASES, mariadb=selection.NEWEST_MARIADB):
            yield
    else:
        yield


@pytest.fixture(scope="module")
def mysql_server(shared_servers: SharedServers) -> Server:
    return shared_servers.of("mysql")


@pytest.fixture(scope="module")
def mariadb_server(mariadb_release: None, shared_servers: SharedServers) -> Server:
    return shared_servers.of("mariadb")


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, mariadb_release: None, shared_servers: SharedServers) -> Server:
    """Return the server of each kind in turn; a file may have further kinds, as fixtures ``KIND_server``."""
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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let a test of ``mirror`` begin with one way of merging, which its id shows; chosen tests with each in turn."""
    if "first_merge" in metafunc.fixturenames:
        firsts = selection.first_merges(metafunc.definition.nodeid)
        runs = [
            pytest.param(first, id=f"{first} first", marks=[pytest.mark.soak] * in_soak)
            for first, in_soak in firsts.items()
        ]
        metafunc.parametrize("first_merge", runs, indirect=True)


@pytest.fixture
def first_merge(request: pytest.FixtureRequest) -> Merge:
    way: Merge = request.param
    return way


@pytest.fixture
def mirror(
    request: pytest.FixtureRequest, server: Server, database: str, lake: Path, spark: SparkSession, first_merge: Merge
) -> Mirror:
    """One fresh database of each server, and its lake."""
    from mirror import Mirror, merges_from

    return Mirror(server, database, lake, spark, reader=selection.reader(request.path), merges=merges_from(first_merge))
