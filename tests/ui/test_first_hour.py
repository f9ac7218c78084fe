"""A newcomer's first hour: the wheel in an empty folder, then all by the page, with a bad file and a table that stops.

Screenshots are kept in ``screenshots`` of the test's folder.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from playwright.sync_api import expect

import wheel_alone
from airflow_home import AirflowHome, wait_for
from binlake.spark import settings
from desk import RUN_SECONDS, Desk
from servers import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from servers import Server

pytestmark = [pytest.mark.timeout(2400), pytest.mark.soak]
DATABASE, USER, PASSWORD = "first_hour", "u_first", "p4ssword-1b"
DAGS = """
from binlake_airflow.pipelines import dags_of

globals().update(dags_of({folder!r}))
"""
AIRFLOW = """#!/bin/sh
# No logs are served: the port would be the same for every Airflow of a machine.
case $1 in scheduler|triggerer) set -- "$@" --skip-serve-logs;; esac
exec {python} -m airflow "$@"
"""


@dataclass
class Newcomer(AirflowHome):
    """Who has an empty folder and the wheel in an environment, and what the README says."""

    environment: Path = Path()

    def __post_init__(self) -> None:
        self.port = free_port()
        self.yaml = self.folder / "pipelines" / "shop.yaml"
        for name in ("dags", "home", "output", "bin"):
            (self.folder / name).mkdir()
        (self.folder / "dags" / "mirrors.py").write_text(DAGS.format(folder=str(self.yaml.parent)))
        airflow = self.folder / "bin" / "airflow"
        airflow.write_text(AIRFLOW.format(python=self.environment / "bin" / "python"))
        airflow.chmod(0o755)

    @property
    def env(self) -> dict[str, str]:
        airflows = {name: value for name, value in super().env.items() if name.startswith("AIRFLOW")}
        bare = wheel_alone.bare()
        return bare | airflows | {
            # spark-submit is lent, as the packages are.
            "PATH": f"{self.folder / 'bin'}:{self.environment / 'bin'}:{sysconfig.get_path('scripts')}:{bare['PATH']}",
            "AIRFLOW__BINLAKE__PIPELINES": str(self.yaml.parent),
            "AIRFLOW_CONN_SHOP_MYSQL": f"mysql://{USER}:{PASSWORD}@127.0.0.1:{self.server.port}/",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
        }  # fmt: skip

    def answer(self, *command: str | Path, **answers: str) -> str:
        """Run a command at a terminal, and answer its questions; return what it said. answers: by a question's word."""
        child, terminal = pty.fork()
        if not child:
            os.chdir(self.folder)
            os.execve(command[0], [str(part) for part in command], self.env)
        said, left = b"", dict(answers)
        with suppress(OSError):  # the end of a terminal is an error
            while part := os.read(terminal, 4096):
                said += part
                for word in [word for word in left if word.encode() in said and said.rstrip().endswith(b":")]:
                    os.write(terminal, left.pop(word).encode() + b"\n")
                    said += b"\n"
        _, status = os.waitpid(child, 0)
        os.close(terminal)
        text = said.decode(errors="replace")
        assert os.waitstatus_to_exitcode(status) == 0, text
        assert not left, text
        return text

    @contextmanager
    def standalone(self) -> Iterator[None]:
        with (self.folder / "output" / "standalone.log").open("wb") as output:
            running = subprocess.Popen(
                [self.folder / "bin" / "airflow", "standalone"], cwd=self.folder, env=self.env,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        try:
            wait_for("the start of Airflow", 300, self._is_healthy)
            yield
        finally:
            for signum in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(running.pid, signum)
                    running.wait(60)

    def _is_healthy(self) -> bool:
        with suppress(OSError), urlopen(f"{self.url}/api/v2/monitor/health", timeout=10) as answer:
            return b"unhealthy" not in answer.read()
        return False


def by_hand(desk: Desk) -> int:
    """How many syncs that were asked for succeeded."""
    return [run[:2] for run in desk.runs("sync")].count(("success", "manual"))


def test_the_first_hour(mariadb_server: Server, browser: Browser, tmp_path: Path) -> None:
    environment = wheel_alone.fresh_environment(tmp_path)
    (folder := tmp_path / "empty").mkdir()
    (screenshots := tmp_path / "screenshots").mkdir()
    mariadb_server.create_account(USER, PASSWORD, ["ALL PRIVILEGES ON *.*"])
    mariadb_server.execute(
        f"CREATE DATABASE {DATABASE}",
        f"CREATE TABLE {DATABASE}.orders (id INT PRIMARY KEY, note TEXT)",
        f"CREATE TABLE {DATABASE}.items (id INT PRIMARY KEY, price DECIMAL(9,2))",
        f"INSERT INTO {DATABASE}.orders VALUES (1, 'a'), (2, 'b')",
        f"INSERT INTO {DATABASE}.items VALUES (1, 1.25)",
    )
    home = Newcomer(folder, mariadb_server, DATABASE, USER, PASSWORD, paused=True, environment=environment)
    binlake = environment / "bin" / "binlake"
    wheel_alone.run(folder, binlake, "setup", "--no-archive", "--jars", settings.JARS)
    address = f"mysql://{USER}@127.0.0.1:{mariadb_server.port}/"
    tables = ["--tables", f"{DATABASE}.*", "--lake", str(folder / "lake"), str(home.yaml)]
    said = home.answer(binlake, "init", *tables, Server=address, Password=PASSWORD)
    assert "export AIRFLOW_CONN_SHOP_MYSQL" in said
    assert PASSWORD not in said + home.yaml.read_text()
    with home.yaml.open("a") as file:
        file.write("policies: {on_unfollowable: stop}\n")  # by default it is fixed by itself

    with home.standalone():
        context = browser.new_context(viewport={"width": 1280, "height": 900}, timezone_id="UTC")
        page = context.new_page()
        page.set_default_timeout(60_000)
        desk = Desk(home, page, screenshots)
        desk.log_in()
        bootstrapped(desk)
        changed(desk)
        a_bad_file_harms_no_other(desk)
        stopped_and_mended(desk)
        context.close()
    mariadb_server.execute(f"DROP DATABASE {DATABASE}", f"DROP USER {USER}")


def bootstrapped(desk: Desk) -> None:
    """By the button that the page offers, once Airflow has the DAGs."""

    def is_offered() -> bool:
        desk.open_binlake()
        return desk.binlake.get_by_role("button", name="Snapshot shop").count() > 0

    wait_for("the DAGs of the source", 120, is_offered)
    desk.keep("1 to be begun")
    assert "the run is queued" in desk.do("Snapshot shop", "Snapshot")
    desk.await_runs("bootstrap", 1)
    desk.assert_equal("orders", "items")


def changed(desk: Desk) -> None:
    desk.open_source()
    assert "is unpaused" in desk.do("Unpause binlake_shop_sync", "Unpause")
    desk.execute("INSERT INTO orders VALUES (3, 'c')", "UPDATE items SET price = 2.5 WHERE id = 1")
    desk.open_source()
    assert "the run is queued" in desk.do("Sync now shop", "Sync now")
    wait_for("the run by hand", RUN_SECONDS, lambda: by_hand(desk) == 1)
    desk.assert_equal("orders", "items")
    row = desk.open_source().get_by_role("row", name=f"{DATABASE}.orders")
    expect(row.locator("td.number").first).to_have_text("3")
    desk.keep("2 changed")


def a_bad_file_harms_no_other(desk: Desk) -> None:
    bad = desk.home.yaml.with_name("web.yaml")
    bad.write_text(desk.home.yaml.read_text().replace("name: shop", "name: web").replace("tables:", "tabels:"))
    expect(desk.open_binlake().get_by_text("there is no key 'tabels'; did you mean 'tables'?")).to_be_visible()
    desk.keep("3 a bad file")

    def dags() -> dict[str, int]:
        return dict(desk.home.query("SELECT dag_id, is_stale FROM dag"))

    wait_for("the bad file's own DAG", 120, lambda: dags().get("binlake_web_sync") == 0)
    assert not [dag for dag, is_stale in dags().items() if is_stale]
    desk.execute("DELETE FROM orders WHERE id = 1")
    desk.open_source()
    desk.do("Sync now shop", "Sync now")
    wait_for("a run beside it", RUN_SECONDS, lambda: by_hand(desk) == 2)
    desk.assert_equal("orders", "items")
    bad.unlink()


def stopped_and_mended(desk: Desk) -> None:
    """A statement whose rows aren't in the log stops its table; the others continue, and a snapshot fixes it."""
    desk.execute(
        "SET SESSION binlog_format = STATEMENT",
        "UPDATE orders SET note = 'unseen'",
        "SET SESSION binlog_format = ROW",
        "INSERT INTO items VALUES (2, 7)",
    )
    desk.open_source()
    desk.do("Sync now shop", "Sync now")
    wait_for("the run that stops it", RUN_SECONDS, lambda: "failed" in [run[0] for run in desk.runs("sync")])
    page = desk.open_source()
    row = page.get_by_role("row", name=f"{DATABASE}.orders")
    expect(row.get_by_text("stopped", exact=True)).to_be_visible()
    expect(row.get_by_text("a statement changed rows without row events")).to_be_visible()
    desk.keep("4 stopped")
    desk.assert_equal("items")
    assert "the run is queued" in desk.do(f"Snapshot now {DATABASE}.orders", "Snapshot now")
    desk.await_runs("bootstrap", 2)
    expect(desk.open_source().get_by_role("row", name=f"{DATABASE}.orders").get_by_text("following")).to_be_visible()
    desk.assert_equal("orders", "items")
    desk.keep("5 fixed")
