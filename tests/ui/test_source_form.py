"""A new source by the page's form, in a browser, of a real server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from binlake import config

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

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
    look_at_the_server(page, mariadb_server.port)
    page.get_by_label("Name of the source").fill("newly-made")
    page.get_by_label("Lake").fill(str(folder.parent / "lake"))
    fill_in_the_rest(page)
    preview_with_errors(page)
    preview_with_a_failing_check(page)
    page.get_by_label("More tables, by patterns").fill("")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_label("The YAML")).to_contain_text("include: ['newly.*']")
    expect(page.get_by_label("Checks")).to_contain_text("passed")
    page.get_by_text("passed", exact=False).last.click()
    expect(page.get_by_text("table newly.orders")).to_be_visible()
    assert not list(folder.glob("*.yaml"))
    page.get_by_role("button", name="Write").click()
    expect(page.get_by_text("is written: Airflow makes its DAGs within minutes")).to_be_visible()
    as_filled_in(folder / "newly-made.yaml")
    page.get_by_role("link", name="To newly-made").click()
    expect(page.get_by_role("heading", name="newly-made", exact=True)).to_be_visible()
    edit(page, folder / "newly-made.yaml")
    fix(page, folder / "doubled.yaml", (folder / "newly-made.yaml").read_text())
    page.context.close()

    looker = served.open(browser, "eve", "VIEWER")
    looker.goto(f"{served.url}/binlake/")
    looker.get_by_text("newly-made.yaml", exact=True).wait_for()
    expect(looker.get_by_role("link", name="Add a source")).to_have_count(0)
    looker.get_by_text("doubled.yaml", exact=True).wait_for()
    expect(looker.get_by_role("link", name="Edit the YAML")).to_have_count(0)
    looker.goto(f"{served.url}/binlake/?source=newly-made")
    looker.get_by_role("heading", name="newly-made", exact=True).wait_for()
    expect(looker.get_by_role("link", name="Edit the YAML")).to_have_count(0)
    looker.context.close()
    mariadb_server.execute("DROP DATABASE newly", "DROP USER u_new")


def look_at_the_server(page: Page, port: int) -> None:
    page.get_by_label("Host").fill("127.0.0.1")
    page.get_by_label("Port").fill(str(port))
    page.get_by_role("button", name="Look at the server").click()
    expect(beside(page, "Login")).to_have_text("give it, or choose a connection above")
    page.get_by_label("Login").fill("u_new")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Look at the server").click()
    expect(beside(page, "Password")).to_contain_text("Access denied")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Look at the server").click()
    page.get_by_label("pick newly.*").check()
    page.get_by_label("Search").fill("ORDERS")
    expect(page.get_by_label("pick newly.*")).to_have_count(0)
    expect(page.get_by_label("pick newly.orders")).to_be_visible()
    expect(page.get_by_text("1 picked")).to_be_visible()


def fill_in_the_rest(page: Page) -> None:
    page.get_by_label("Columns to leave out").fill("newly.*.password\n newly.*.token \n")
    page.get_by_label("Follow the log all the time").check()
    page.get_by_label("Look at the log every").fill("2s")
    page.get_by_label("Schedule of the comparisons").fill("")
    page.get_by_label("Rows that differ from the server").select_option("auto")
    page.get_by_label("Alarm when it is behind").fill("7.5")
    page.get_by_text("Policies: what is done").click()
    page.get_by_label("A column is dropped on the server").select_option("keep")


def preview_with_errors(page: Page) -> None:
    """Each is beside its field, in the words of a form."""
    page.get_by_label("Tables to leave out").fill("tmp")
    page.get_by_label("Schedule of the syncs").fill("hourly")
    page.get_by_role("button", name="Preview").click()
    expect(beside(page, "Tables to leave out")).to_have_text("'tmp' has no dot; write database.table, such as shop.*")
    expect(beside(page, "Schedule of the syncs")).to_contain_text("is not a cron expression; write five fields")
    expect(page.get_by_text("2 fields above need a look")).to_be_visible()
    page.get_by_label("Tables to leave out").fill("newly.tmp_*")
    page.get_by_label("Schedule of the syncs").fill("0 * * * *")
    name = page.get_by_label("Name of the source")
    name.fill("newly made")
    page.get_by_role("button", name="Preview").click()
    expect(beside(page, "Name of the source")).to_contain_text("a letter, then letters, digits, _ or -")
    expect(beside(page, "Schedule of the syncs")).to_be_hidden()
    name.fill("newly-made")


def preview_with_a_failing_check(page: Page) -> None:
    """Nothing is written before a question is answered."""
    page.get_by_label("More tables, by patterns").fill("newly.nowhere")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_label("Checks").get_by_text("1 failing")).to_be_visible()
    page.get_by_role("button", name="Write").click()
    expect(page.get_by_role("dialog")).to_contain_text("1 check above fails")
    page.get_by_role("button", name="Cancel").click()


def as_filled_in(file: Path) -> None:
    written, text = config.load(file), file.read_text()
    assert (written.source.connection, written.tables.include) == ("newly_made_mysql", ["newly.*"])
    assert written.tables.exclude_columns == ["newly.*.password", "newly.*.token"]
    assert written.tables.exclude == ["newly.tmp_*"]
    assert written.follow is not None
    assert (written.follow.every, written.airflow.lag_minutes) == ("2s", 7.5)
    assert (written.verify.schedule, written.verify.repair) == (None, "auto")
    assert (written.policies.on_drop_column, "on_drop_table" in text) == ("keep", False)
    assert PASSWORD not in text


def edit(page: Page, file: Path) -> None:
    """Errors stand beside their lines, the difference is shown, and comments are kept."""
    before = file.read_text()
    page.get_by_role("link", name="Edit the YAML").click()
    text = page.get_by_label(str(file))
    expect(text).to_have_value(before)
    text.fill(before.replace("schedule: ", "shedule: ", 1))
    check = page.get_by_role("button", name="Check, and show the difference")
    check.click()
    expect(page.get_by_label("Errors")).to_contain_text("did you mean 'schedule'?")
    line = before.splitlines().index("schedule: '0 * * * *'") + 1
    page.get_by_role("button", name=f"Line {line}").click()
    selected = "area => area.value.slice(area.selectionStart, area.selectionEnd)"
    assert str(text.evaluate(selected)).startswith("shedule: ")
    text.fill(before.replace("0 * * * *", "*/10 * * * *", 1) + "# by hand\n")
    check.click()
    expect(page.get_by_label("The difference")).to_contain_text("*/10 * * * *")
    expect(page.get_by_label("Checks")).to_contain_text("passed")
    assert file.read_text() == before
    page.get_by_label("Why").fill("more often")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("is saved: changed schedule. Airflow makes its DAGs again within minutes")).to_be_visible()
    assert file.read_text() == before.replace("0 * * * *", "*/10 * * * *", 1) + "# by hand\n"
    file.write_text(before)
    check.click()
    expect(page.get_by_role("alert").filter(has_text="was changed since it was opened")).to_be_visible()


def fix(page: Page, file: Path, good: str) -> None:
    """A file with the name of another one's source is opened from where it is shown as broken."""
    file.write_text(good)
    page.get_by_role("link", name="Binlake", exact=True).click()
    page.get_by_role("link", name="Edit the YAML").click()
    text = page.get_by_label(str(file))
    text.fill(good.replace("name: newly-made", "name: doubled"))
    page.get_by_role("button", name="Check, and show the difference").click()
    expect(page.get_by_label("The difference")).to_contain_text("+  name: doubled")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("is saved: changed source.name")).to_be_visible()
    page.get_by_role("link", name="To all sources").click()
    expect(page.get_by_role("link", name="doubled", exact=True)).to_be_visible()
    file.write_text(good)


def beside(page: Page, label: str) -> Locator:
    """The error of a field."""
    described = page.get_by_label(label).get_attribute("aria-describedby") or ""
    return page.locator(f"[id='{described.split()[-1]}']")
