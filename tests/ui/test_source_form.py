"""A new source by the page's form, in a browser, of a real server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from binlake import config

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from conftest import Served
    from servers import Server

pytestmark = pytest.mark.timeout(240)
PASSWORD = "s3cret-9a"


def test_a_new_source(
    served: Served, browser: Browser, folder: Path, mariadb_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__TEST_CONNECTION", "Enabled")
    mariadb_server.create_account("u_new", PASSWORD, ["ALL PRIVILEGES ON *.*"])
    mariadb_server.execute("CREATE DATABASE newly", "CREATE TABLE newly.orders (id INT PRIMARY KEY)")
    page = served.open(browser, "ada", "ADMIN")
    page.goto(f"{served.url}/binlake/")
    page.get_by_role("link", name="Add a source").click()
    page.get_by_label("Host").fill("127.0.0.1")
    page.get_by_label("Port").fill(str(mariadb_server.port))
    page.get_by_label("Login").fill("u_new")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Look at the server").click()
    expect(page.get_by_role("alert")).to_contain_text("Access denied")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Look at the server").click()
    page.get_by_label("pick newly.*").check()
    page.get_by_label("Name of the source").fill("newly-made")
    page.get_by_label("Lake").fill(str(folder.parent / "lake"))
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_label("The YAML")).to_contain_text("include: ['newly.*']")
    expect(page.get_by_text("table newly.orders")).to_be_visible()
    assert not list(folder.glob("*.yaml"))
    page.get_by_role("button", name="Write").click()
    expect(page.get_by_text("is written: Airflow makes its DAGs within minutes")).to_be_visible()
    written = config.load(folder / "newly-made.yaml")
    assert (written.source.connection, written.tables.include) == ("newly_made_mysql", ["newly.*"])
    assert PASSWORD not in (folder / "newly-made.yaml").read_text()
    page.get_by_role("link", name="To newly-made").click()
    expect(page.get_by_role("heading", name="newly-made", exact=True)).to_be_visible()
    page.context.close()

    looker = served.open(browser, "eve", "VIEWER")
    looker.goto(f"{served.url}/binlake/")
    looker.get_by_text("newly-made.yaml").wait_for()
    expect(looker.get_by_role("link", name="Add a source")).to_have_count(0)
    looker.context.close()
    mariadb_server.execute("DROP DATABASE newly", "DROP USER u_new")
