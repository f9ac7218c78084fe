"""Airflow's own UI in a browser, with binlake's page in it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect

import comparison
from airflow_home import AirflowHome, wait_for
from binlake.schema.table import TableName

if TYPE_CHECKING:
    from playwright.sync_api import FrameLocator, Page

RUN_SECONDS = 600


@dataclass
class Desk:
    """The engineer's: Airflow's UI in a browser, logged in."""

    home: AirflowHome
    page: Page
    screenshots: Path
    tick: datetime = field(default_factory=lambda: datetime.now(UTC))
    """The end of the last hourly interval."""

    @property
    def binlake(self) -> FrameLocator:
        return self.page.frame_locator("iframe[title=Binlake]")

    def log_in(self) -> None:
        name, password = self.home.admin
        self.page.goto(self.home.url)
        self.page.locator("input[name=username]").fill(name)
        self.page.locator("input[name=password]").fill(password)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_test_id("nav-sidebar").wait_for()  # who goes elsewhere before stays logged out

    def open_binlake(self) -> FrameLocator:
        """From the navigation."""
        self.page.goto(self.home.url)
        self.page.get_by_test_id("nav-sidebar").get_by_role("link", name="Binlake").click()
        self.binlake.locator("#main .card").first.wait_for()
        return self.binlake

    def open_source(self) -> FrameLocator:
        self.open_binlake().get_by_role("link", name="shop", exact=True).click()
        self.binlake.get_by_role("table", name="Tables of shop").wait_for()
        return self.binlake

    def keep(self, name: str) -> None:
        self.page.screenshot(path=self.screenshots / f"{name}.png")

    def do(self, button: str, label: str, *, shows: str = "", **fields: str) -> str:
        """Press, confirm, and give what the page tells of it; press again where it says so, on a busy SQLite.

        shows: what the dialog has to show before.
        """
        self.binlake.get_by_role("button", name=button).first.click()
        dialog = self.binlake.get_by_role("dialog")
        expect(dialog).to_contain_text(shows)
        for name, value in fields.items():
            dialog.get_by_label(name).fill(value)
        for _ in range(3):
            dialog.get_by_role("button", name=label).click()
            outcome = dialog.locator(".note:not(.none)").inner_text()  # not the one that says "asked"
            if "database is locked" not in outcome:
                break
        dialog.get_by_role("button", name="Close").click()
        return outcome

    def runs(self, dag: str) -> list[tuple[str, str, str | None, str]]:
        """State, run type, user and id of a DAG's runs, in the order they were made."""
        return self.home.query(
            "SELECT state, run_type, triggering_user_name, run_id FROM dag_run WHERE dag_id = ? ORDER BY id",
            f"binlake_shop_{dag}",
        )

    def await_runs(self, dag: str, count: int) -> None:
        """That many, all of which succeeded."""

        def done() -> bool:
            states = [run[0] for run in self.runs(dag)]
            assert "failed" not in states, (dag, states)
            return states.count("success") >= count

        wait_for(f"{count} runs of {dag}", RUN_SECONDS, done)

    def await_sync(self) -> None:
        """Sync by the page's button, until it is done."""
        done = self.ended("sync")["success"]
        self.open_source()
        assert "the run is queued" in self.do("Sync now shop", "Sync now")
        wait_for("a sync", RUN_SECONDS, lambda: self.ended("sync")["success"] > done)

    def ended(self, dag: str) -> Counter[str]:
        """How many runs of a DAG are in each state."""
        return Counter(run[0] for run in self.runs(dag))

    def execute(self, *statements: str) -> None:
        self.home.server.execute(*statements, database=self.home.database)

    def is_equal(self, table: str) -> bool:
        try:
            self.assert_equal(table)
        except AssertionError:
            return False
        return True

    def assert_equal(self, *tables: str) -> None:
        for table in tables:
            path = self.home.config.table_path(TableName(self.home.database, table))
            comparison.assert_equal(self.home.server, self.home.database, table, path)
