"""The page in a browser, on metadata of a source with a past: what it shows, and what its buttons do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from binlake.state import watermarks

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from conftest import Served
    from past import Past

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def past(served: Served, folder: Path) -> Past:
    """Three of a thousand tables stand still."""
    from airflow_page import add, add_dags

    past = replace(add(folder), tables=1000, batches=40, changed=30).write()
    add_dags(folder)
    rows = {row["table"]: row for row in watermarks.read(past.metadata)}
    told = {"reason": "a <b>column</b> of no known type", "remedy": "mend it"}
    watermarks.write(past.metadata, [
        {**rows[f"table_{number:04}"], "status": status, **told}
        for number, status in ((500, "stopped"), (501, "paused"), (502, "resnapshot"))
    ])  # fmt: skip
    return past


@pytest.fixture
def page(served: Served, browser: Browser, past: Past) -> Iterator[Page]:
    """The source's, opened by one who may do all. Nothing in it may fail."""
    made = served.open(browser, "ada", "ADMIN")
    problems: list[str] = []
    made.on("pageerror", lambda error: problems.append(str(error)))
    made.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    made.goto(f"{served.url}/binlake/?source=shop")
    made.get_by_role("table", name="Tables of shop").wait_for()
    yield made
    made.context.close()
    assert not [one for one in problems if "409" not in one]


def names(page: Page) -> list[str]:
    found = page.get_by_role("table", name="Tables of shop").locator("tbody th").all_inner_texts()
    return [text.strip().removeprefix("shop.") for text in found]


def test_a_thousand_tables_are_sorted_and_searched(page: Page, past: Past) -> None:
    assert names(page)[:4] == ["table_0500", "table_0502", "table_0501", "table_0000"], "trouble comes first"
    expect(page.get_by_text("1,000 of 1,000")).to_be_visible()
    page.get_by_role("button", name="Table", exact=True).click()
    assert names(page)[:2] == ["table_0000", "table_0001"]
    page.get_by_role("button", name="Table", exact=True).click()
    assert names(page)[:2] == ["table_0999", "table_0998"]
    expect(page.get_by_role("columnheader", name="Table", exact=True)).to_have_attribute("aria-sort", "descending")
    page.get_by_role("button", name="Inserted").click()
    counted = {
        str(name.table): sum(
            one.inserted for batch in range(17, 41) for one in past.did(batch) if one.table == str(name)
        )
        for name in past.names[:100]
    }
    most = sorted(counted, key=lambda name: -counted[name])
    assert names(page)[0] == most[0]
    assert page.locator("tbody tr").first.get_by_text(f"{counted[most[0]]:,}").count()
    page.get_by_label("Search").fill("_07")
    expect(page.get_by_text("100 of 1,000")).to_be_visible()
    page.get_by_label("Search").fill("")
    page.get_by_label("State").select_option("paused")
    assert names(page) == ["table_0501"]
    expect(page.get_by_text("a <b>column</b> of no known type")).to_be_visible()


def test_a_table_is_paused_with_a_reason_and_an_error_is_told(page: Page, past: Past) -> None:
    page.get_by_label("Search").fill("table_0007")
    page.get_by_label("pick shop.table_0007").check()
    page.get_by_role("button", name="Pause shop.table_0007").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Pause").click()
    expect(dialog).to_be_visible()  # no reason is given yet
    dialog.get_by_label("Why").fill("its rows move")
    dialog.get_by_role("button", name="Pause").click()
    expect(dialog.get_by_text("shop.table_0007 is paused at")).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    (decision,) = past.metadata.read("decisions")
    assert (decision["action"], decision["who"], decision["why"]) == ("pause", "ada", "its rows move")
    # The list is drawn anew by itself, and what was searched for stays.
    expect(page.get_by_text("paused by ada: its rows move")).to_be_visible()
    assert names(page) == ["table_0007"]

    page.get_by_role("button", name="Snapshot at next sync shop.table_0007").first.click()
    row = next(row for row in watermarks.read(past.metadata) if row["table"] == "table_0007")
    watermarks.write(past.metadata, [{**row, "status": "dropped"}])  # meanwhile
    dialog.get_by_label("Why").fill("sooner")
    dialog.get_by_role("button", name="Snapshot at next sync").click()
    expect(dialog.get_by_role("alert")).to_contain_text("shop.table_0007 isn't known here")
    expect(dialog.get_by_role("alert")).to_contain_text("binlake status lists the tables")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_several_tables_are_snapshotted_by_one_run(page: Page) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    page.get_by_label("Search").fill("table_010")
    page.get_by_label("pick all of these").check()
    expect(page.get_by_text("10 tables picked")).to_be_visible()
    page.get_by_role("button", name="Snapshot now each of the 10 tables").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Lock").select_option("none")
    dialog.get_by_role("button", name="Snapshot now").click()
    expect(dialog.get_by_text("the run is queued")).to_be_visible()
    with create_session() as session:
        run = session.scalars(select(DagRun).where(DagRun.dag_id == "binlake_shop_bootstrap")).one()
        assert (run.triggering_user_name, run.conf["lock"], len(run.conf["tables"])) == ("ada", "none", 10)


def test_a_range_of_keys_of_one_table_is_snapshotted(page: Page) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    page.get_by_label("Search").fill("table_0205")
    page.get_by_label("pick all of these").check()
    page.get_by_role("button", name="Snapshot now shop.table_0205").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Keys").fill("1000..1999")
    dialog.get_by_role("button", name="Snapshot now").click()
    expect(dialog.get_by_text("the run is queued")).to_be_visible()
    with create_session() as session:
        (run,) = [
            one
            for one in session.scalars(select(DagRun).where(DagRun.dag_id == "binlake_shop_bootstrap"))
            if "keys" in one.conf
        ]
        assert run.conf == {"lock": "flush", "keys": "1000..1999", "tables": ["shop.table_0205"]}


def test_who_may_only_look_sees_no_buttons(served: Served, browser: Browser, past: Past) -> None:
    page = served.open(browser, "eve", "VIEWER")
    page.goto(f"{served.url}/binlake/?source=shop")
    page.get_by_role("table", name="Tables of shop").wait_for()
    words = page.locator("main button").all_inner_texts()
    assert not {"Sync now", "Pause", "Resume", "Snapshot now"} & set(words)
    assert page.get_by_role("checkbox").count() == 0
    page.context.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_light_and_dark_are_read_at_any_width(
    served: Served, browser: Browser, past: Past, tmp_path: Path, dark: bool
) -> None:
    """Screenshots are kept in the test's folder."""
    for width in (1280, 700):
        page = served.open(browser, "ada", "ADMIN", width=width, dark=dark)
        for name, query in (
            ("overview", ""),
            ("source", "?source=shop"),
            ("table", "?source=shop&table=shop.table_0500"),
            ("run", "?source=shop&batch=40"),
        ):
            page.goto(f"{served.url}/binlake/{query}")
            page.locator("#main .card").first.wait_for()
            colours = page.evaluate(
                "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
            )
            light = [float(colour.removeprefix("oklch(").split()[0]) for colour in colours]
            assert (light[0] > light[1]) == dark, colours
            beyond = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert beyond <= 0, f"{name} is wider than {width} pixels by {beyond}"
            page.screenshot(path=tmp_path / f"{name}-{width}-{'dark' if dark else 'light'}.png", full_page=True)
        page.context.close()
