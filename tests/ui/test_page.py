"""The page in a browser, on metadata of a source with a past: what it shows, and what its buttons do."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from playwright.sync_api import expect

from binlake.errors import snapshot_again
from binlake.lease import lease
from binlake.lease.lease import OpenBatch
from binlake.planner.steps import Life
from binlake.position import Range, Slice
from binlake.records import watermarks
from binlake.schema.mask import Mask
from binlake.schema.table import Column, TableSchema
from binlake.store.metadata import now_us
from binlake.store.rows import ShapeRow
from binlake.store.run_rows import VerificationRow
from past import HOUR

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

    from conftest import Served
    from past import Past

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def past(served: Served, folder: Path) -> Past:
    """Three of a thousand tables are stopped."""
    from airflow_page import add, add_dags, add_feeds

    past = replace(add(folder), tables=1000, batches=40, changed=30).write()
    with (folder / "shop.yaml").open("a") as file:
        file.write("feeds: [{name: orders, include: ['shop.*'], format: text, sink: 'file:///feed'}]\n")
        file.write("page: {show_values: true, mask_columns: ['shop.*.email']}\n")
    past.stage(40, past.names[7])
    add_feeds(past)
    add_dags(folder)
    rows = {row.table: row for row in watermarks.read(past.metadata)}
    watermarks.write(past.metadata, [
        replace(
            rows[f"table_{number:04}"], status=status, reason="a <b>column</b> of no known type", remedy="fix it"
        )
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
    # A route that still waits for its answer would fail the test after this one, once its page is closed.
    made.unroute_all(behavior="ignoreErrors")
    made.context.close()
    assert not [problem for problem in problems if "409" not in problem]


def names(page: Page) -> list[str]:
    heads = page.get_by_role("table", name="Tables of shop").locator("tbody th").all_inner_texts()
    return [text.strip().removeprefix("shop.") for text in heads]


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
            table.inserted for batch in range(17, 41) for table in past.did(batch) if table.table == str(name)
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


def test_charts_have_a_bar_for_each_number(page: Page, past: Past) -> None:
    sparks = page.locator("svg.spark")
    assert [sparks.nth(at).locator(".bar").count() for at in range(sparks.count())] == [12, 24]
    assert sparks.nth(0).locator(".bar:not(.empty)").count() == 1, "one run in the last hour"
    page.goto(page.url.replace("?source=shop", "?source=shop&table=shop.table_0007"))
    chart = page.get_by_role("group", name="Seconds of each run by phase")
    newest = chart.get_by_role("link").last
    label = newest.get_attribute("aria-label") or ""
    assert label.endswith(": plan 0.1 s, stage 1.5 s, merge 3.25 s"), label
    heights = [float(bar.get_attribute("height") or 0) for bar in newest.locator("rect").all()]
    assert heights[2] / heights[1] == pytest.approx(3.25 / 1.5)


def test_charts_over_time_are_read_by_pointer_and_keys(page: Page) -> None:
    figure = page.locator("figure", has=page.locator("[aria-label='Rows changed']"))
    chart, said = figure.get_by_role("img"), figure.get_by_role("status")
    expect(said).to_have_text("Of batches recorded in each period.")
    chart.focus()
    page.keyboard.press("End")
    expect(said).to_contain_text("inserted")
    page.keyboard.press("ArrowLeft")
    expect(figure.locator(".hit.read")).to_have_count(1)
    before = figure.locator(".hit").nth(94)
    expect(said).to_have_text(before.get_attribute("data-said") or "")
    page.evaluate("dispatchEvent(new Event('changed'))")
    expect(said).to_have_text(before.get_attribute("data-said") or "")
    page.keyboard.press("Escape")
    expect(said).to_have_text("Of batches recorded in each period.")
    lag = page.locator("figure", has=page.locator("[aria-label='Behind by']"))
    lag.locator(".hit").last.hover()
    expect(lag.get_by_role("status")).to_contain_text("behind by")
    page.get_by_role("button", name="Hour", exact=True).click()
    expect(lag.locator(".hit")).to_have_count(60)
    expect(page.get_by_role("button", name="Hour", exact=True)).to_have_attribute("aria-pressed", "true")


def test_all_that_happened_is_one_list(page: Page, past: Past) -> None:
    happened = page.get_by_role("list", name="What happened")
    expect(happened.get_by_role("listitem")).to_have_count(12)
    newest = happened.get_by_role("listitem").first
    for words in (
        "batch 40",
        f"{past.run(40)['mutations']:,} rows",
        "1.0 kB",
        "20 s",
        "plan 0.1 s, stage 1.5 s, merge 3.25 s",
    ):
        expect(newest).to_contain_text(words)
    page.get_by_role("link", name="All that happened").click()
    expect(happened.get_by_role("listitem")).to_have_count(40)
    expect(happened.get_by_role("link", name="batch 40")).to_be_visible()
    page.get_by_role("link", name="failed runs").click()
    expect(page.get_by_text("Nothing yet.")).to_be_visible()


def test_what_is_at_work_is_seen_as_it_goes_on_and_cancelled(page: Page, past: Past) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    at_work = page.get_by_role("region", name="At work")
    expect(at_work).to_have_count(0)
    file = Path(past.config.metadata_path("progress-staged.json"))
    progress = {"step": "staged", "total": 40, "detail": "12 MB/s", "began_us": now_us(), "at_us": now_us() + HOUR}
    for done, percent in ((10, 25), (30, 75)):
        file.write_text(json.dumps({**progress, "done": done}))
        expect(at_work.get_by_text(f"reading the log: {percent} %")).to_be_visible()
        expect(at_work.get_by_role("progressbar")).to_have_attribute("value", f"{percent}")
    file.unlink()
    expect(at_work).to_have_count(0)
    assert "the run is queued" in press(page, "Maintain shop", "Maintain")
    run = at_work.get_by_role("link")
    expect(run).to_contain_text("manual__")
    name = run.inner_text()
    at_work.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Cancel the run").click()
    expect(dialog.get_by_text("its tasks are being ended; what is committed stays")).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    expect(at_work).to_have_count(0)
    with create_session() as session:
        cancelled = session.scalars(select(DagRun).where(DagRun.run_id == name)).one()
        assert cancelled.state == "failed"
        session.delete(cancelled)


def test_many_sources_are_searched_and_sorted_the_worst_first(served: Served, browser: Browser, past: Past) -> None:
    from airflow_page import add

    page = served.open(browser, "ada", "ADMIN", width=400)
    folder = Path(os.environ["AIRFLOW__BINLAKE__PIPELINES"])
    others = [f"bank_{number}" for number in range(4)]
    try:
        for name in others:
            add(folder, name)
        page.goto(f"{served.url}/binlake/")
        names = page.get_by_role("table", name="Sources").locator("tbody th a")
        expect(names).to_have_text(["shop", *others])
        expect(page.get_by_role("row", name="shop").get_by_text("needs you")).to_be_visible()
        page.get_by_role("button", name="Source", exact=True).click()
        expect(names).to_have_text([*others, "shop"])
        page.get_by_label("Search").fill("K_2")
        expect(names).to_have_text(["bank_2"])
        page.get_by_label("Search").fill("")
        page.get_by_label("Health").select_option("new")
        expect(page.get_by_text("4 of 5")).to_be_visible()
    finally:
        for name in others:
            (folder / f"{name}.yaml").unlink()
        page.context.close()


def test_feeds_and_the_relays_clients(page: Page) -> None:
    feed = page.get_by_role("table", name="Feeds").get_by_role("row", name="orders")
    for words in ("stopped", "no such topic", "make it", "batch 1", "39 batches"):
        expect(feed).to_contain_text(words)
    client = page.get_by_role("table", name="Clients of the relay").get_by_role("row", name="till")
    expect(client).to_contain_text("shop.table_0001: insert, delete")
    client.locator("summary").click()
    expect(client.get_by_text("delete of shop.table_0001 at binlog.000001:3500")).to_be_visible()
    expect(page.get_by_text("feed orders is stopped: no such topic")).to_be_visible()


def test_all_is_done_by_keys_alone(page: Page) -> None:
    button = page.get_by_role("button", name="Sync now shop")
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Until")).to_be_focused()
    expect(dialog.get_by_text("In UTC: what was committed at or after this time")).to_be_visible()
    reached: list[str] = []
    for _ in range(12):  # the parts of a time are fields of their own
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent"))
    assert {"Cancel", "Sync now"} <= set(reached)
    assert "Verify" not in reached, "what lies behind the dialog isn't reached"
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Verify shop")).to_be_focused()
    head = page.get_by_role("button", name="Table", exact=True)
    head.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert names(page)[0] == "table_0999"


def test_a_table_tells_its_schema_then_and_its_newest_rows(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/binlake/?source=shop&table=shop.table_0007")
    newest = page.get_by_role("table", name="Newest mutations").locator("tbody tr")
    expect(newest.first).to_contain_text("note = topsecret → NULL")
    expect(newest.last).to_contain_text("id = 4711")
    page.get_by_label("Schema at").fill("noon")
    page.keyboard.press("Enter")
    expect(page.get_by_text("'noon' is not a time")).to_be_visible()
    expect(page.get_by_role("table", name="Columns", exact=True)).to_contain_text("what <b>they</b> wrote")
    expect(page.get_by_text("Notes of customers")).to_be_visible()
    page.get_by_label("Schema at").fill("binlog.000001:20000")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("table", name="Columns at binlog.000001:20000")).to_contain_text("varchar(40)")
    expect(page.get_by_label("Schema at")).to_have_value("binlog.000001:20000")


def test_a_table_tells_what_the_yaml_makes_of_its_columns(page: Page, served: Served, past: Past) -> None:
    columns = (
        Column("order_id", "bigint", unsigned=True, server_name="id", lake_type="bigint"),
        Column("email", "varchar", length=40, charset="utf8mb4", mask=Mask("hash", 32, "k")),
        Column("token", "text", charset="utf8mb4"),
        Column("n", "int"),
    )
    schema = TableSchema(columns, ("order_id",), "primary", excluded=frozenset({"token"}), where="n > 1")
    life = Life("life-shop.table_0011", past.names[11], schema, past.position(0), past.position(0))
    ShapeRow.append(past.metadata, [watermarks.schema_row(life, batch=40, where=past.position(40), why="followed")])
    page.goto(f"{served.url}/binlake/?source=shop&table=shop.table_0011")
    shown = page.get_by_role("table", name="Columns", exact=True)
    expect(shown.get_by_role("columnheader", name="By the YAML")).to_be_visible()
    for name, what in (("id", "called order_id, BIGINT"), ("email", "hash of 32 digits"), ("token", "excluded")):
        expect(shown.locator("tbody tr").filter(has=page.get_by_text(name, exact=True))).to_contain_text(what)
    expect(page.get_by_text("The lake has the rows with n > 1.")).to_be_visible()
    page.goto(f"{served.url}/binlake/?source=shop&table=shop.table_0012")
    expect(page.get_by_text("binlake purge")).to_have_count(0)
    expect(page.get_by_role("columnheader", name="Character set")).to_be_visible()
    expect(page.get_by_role("columnheader", name="By the YAML")).to_have_count(0)


def test_a_table_with_former_values_says_what_removes_them(page: Page, served: Served) -> None:
    former = {
        "what": "earlier versions have values", "command": "binlake purge --config FILE --tables shop.table_0013",
        "obstacles": [{"why": "batch 2 is pinned", "remedy": "unpin it"}],
    }  # fmt: skip
    answer = "**/tables/shop.table_0013?*"
    page.route(answer, lambda route: route.fulfill(json={**route.fetch().json(), "former": former}))
    page.goto(f"{served.url}/binlake/?source=shop&table=shop.table_0013")
    said = page.get_by_role("listitem")
    expect(said.filter(has_text="earlier versions have values")).to_contain_text(str(former["command"]))
    expect(said.filter(has_text="In the way of a purge: batch 2 is pinned")).to_contain_text("unpin it")


def test_what_loads_or_fails_is_told(served: Served, browser: Browser, past: Past) -> None:
    page = served.open(browser, "ada", "ADMIN")
    answers: list[Any] = []
    page.route("**/api/sources", lambda route: answers.append(route))
    page.goto(f"{served.url}/binlake/")
    expect(page.get_by_text("Loading …")).to_be_visible()
    answers.pop().fulfill(status=503, json={"detail": "the lake is away", "remedy": "bring it back"})
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("the lake is away")
    expect(alert).to_contain_text("bring it back")
    # What was shown stays while a refresh fails, and the page says so.
    page.unroute("**/api/sources")
    page.evaluate("dispatchEvent(new Event('changed'))")
    expect(page.get_by_role("link", name="shop")).to_be_visible()
    page.route("**/api/sources", lambda route: route.abort())
    page.evaluate("dispatchEvent(new Event('changed'))")
    expect(page.get_by_text("the last refresh failed")).to_be_visible()
    expect(page.get_by_role("link", name="shop")).to_be_visible()
    page.context.close()


def test_a_schema_change_that_waits_is_shown_and_answered(page: Page, past: Past) -> None:
    past.let_wait(12)
    page.evaluate("dispatchEvent(new Event('changed'))")
    expect(page.get_by_text("ALTER TABLE t ADD n INT").first).to_be_visible()
    expect(page.get_by_text("id int, n int").first).to_be_visible()
    page.get_by_role("button", name="No shop.table_0012").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Why").fill("it's private")
    dialog.get_by_role("button", name="No, don't").click()
    expect(dialog.get_by_text("shop.table_0012 continues with the next sync")).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    expect(page.get_by_role("heading", name="Waiting for an answer")).to_have_count(0)


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
    (decision,) = past.metadata.read("decisions", where="action = 'pause'")
    assert (decision["action"], decision["who"], decision["why"]) == ("pause", "ada", "its rows move")
    # The list is drawn again by itself, and what was searched for stays.
    expect(page.get_by_text("paused by ada: its rows move")).to_be_visible()
    assert names(page) == ["table_0007"]

    page.get_by_role("button", name="Snapshot at next sync shop.table_0007").first.click()
    row = next(row for row in watermarks.read(past.metadata) if row.table == "table_0007")
    watermarks.write(past.metadata, [replace(row, status="dropped")])  # meanwhile
    dialog.get_by_label("Why").fill("sooner")
    dialog.get_by_role("button", name="Snapshot at next sync").click()
    expect(dialog.get_by_role("alert")).to_contain_text("shop.table_0007 isn't known here")
    expect(dialog.get_by_role("alert")).to_contain_text("this page lists the tables")
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
            run
            for run in session.scalars(select(DagRun).where(DagRun.dag_id == "binlake_shop_bootstrap"))
            if "keys" in run.conf
        ]
        assert run.conf == {"lock": "flush", "keys": "1000..1999", "tables": ["shop.table_0205"]}


def press(page: Page, button: str, label: str, **fields: str) -> str:
    """Press and confirm; gives what the page tells of it."""
    page.get_by_role("button", name=button).first.click()
    dialog = page.get_by_role("dialog")
    for name, value in fields.items():
        dialog.get_by_label(name).fill(value)
    dialog.get_by_role("button", name=label, exact=True).click()
    outcome = dialog.locator(".good.note").inner_text()
    dialog.get_by_role("button", name="Close").click()
    return outcome


def test_each_button_does_what_it_says(page: Page, past: Past) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    for button, label, fields in (
        ("Sync now shop", "Sync now", {"Until": "2026-03-01T12:00"}),
        ("Verify shop", "Verify", {}),
        ("Maintain shop", "Maintain", {}),
        ("Carry feeds shop", "Carry feeds", {}),
        ("Resume shop.table_0500", "Resume", {"Why": "fixed"}),
    ):
        assert "the run is queued" in press(page, button, label, **fields)
    outcome = press(page, "Snapshot at next sync shop.table_0500", "Snapshot at next sync", Why="sooner")
    assert outcome.startswith("shop.table_0500")
    expect(page.get_by_role("row", name="shop.table_0500").get_by_text("resnapshot", exact=True)).to_be_visible()
    with create_session() as session:
        wanted = {f"binlake_shop_{what}": what for what in ("sync", "verify", "maintain", "feeds", "resume")}
        made = session.scalars(select(DagRun).where(DagRun.dag_id.in_(wanted)))
        assert {wanted[run.dag_id]: (run.triggering_user_name, run.conf) for run in made} == {
            "sync": ("ada", {"until": "2026-03-01T12:00:00+00:00"}),
            "verify": ("ada", {}), "maintain": ("ada", {}), "feeds": ("ada", {}),
            "resume": ("ada", {"tables": ["shop.table_0500"], "why": "fixed"}),
        }  # fmt: skip


def test_following_is_stopped_and_started_by_the_remedys_button(page: Page, past: Past, folder: Path) -> None:
    """Each action asks why, and is told below What happened."""
    from airflow_page import add_dags

    file = folder / "shop.yaml"
    text = file.read_text()
    file.write_text(f"{text}follow: {{every: 1s}}\n")
    try:
        add_dags(folder)
        page.reload()
        newest = page.get_by_role("list", name="What happened").get_by_role("listitem").first
        assert "is paused: its task ends" in press(page, "Stop following shop", "Stop following", Why="at night")
        expect(page.get_by_text("nobody follows the log: binlake_shop_follow is paused")).to_be_visible()
        expect(newest).to_contain_text("follow off")
        expect(newest).to_contain_text("by ada: at night")
        remedy = page.locator(".advice").get_by_role("button", name="Start following shop")
        expect(remedy).to_be_visible()
        assert "the run is queued" in press(page, "Start following shop", "Start following")
        expect(newest).to_contain_text("queued")
        expect(newest.get_by_role("link")).to_contain_text("manual__")
        expect(remedy).to_have_count(0)
    finally:
        file.write_text(text)
        add_dags(folder)


def test_what_is_done_with_a_source_as_a_whole_is_seen(page: Page, past: Past) -> None:
    past.metadata.append("lake_versions", [
        {"batch": 40, "kind": "base", "position": str(past.position(40)), "gtid_set": "", "committed_us": 1, "at_us": 1}
    ])  # fmt: skip
    whole, happened = page.get_by_role("group", name="The source"), page.get_by_role("list", name="What happened")
    assert "batch 40 is kept as before_the_move" in press(
        page, "Pin batch 40", "Pin", **{"Name of the version": "before_the_move"}
    )
    pinned = page.get_by_role("table", name="Pinned versions")
    for words in ("before_the_move", "batch 40", "by ada", "binlake sql --config shop.yaml --name before_the_move"):
        expect(pinned).to_contain_text(words)
    assert "batch 40 isn't kept" in press(page, "Unpin before_the_move", "Unpin", Why="done")
    expect(pinned).to_have_count(0)

    page.get_by_role("button", name="Pause the source shop").click()
    expect(page.get_by_role("dialog")).to_contain_text("limits are still checked, by the DAG binlake_shop_watch")
    page.keyboard.press("Escape")
    assert "paused: binlake_shop_sync" in press(
        page, "Pause the source shop", "Pause the source", Why="the server moves"
    )
    expect(whole.get_by_role("button", name="Pause the source")).to_have_count(0)
    expect(page.get_by_text("nothing carries it forward: its sync is paused")).to_be_visible()
    page.get_by_role("button", name="Resume the source shop").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("upkeep (binlake_shop_maintain)").uncheck()
    dialog.get_by_role("button", name="Resume the source").click()
    expect(dialog.get_by_text("unpaused: binlake_shop_sync")).to_be_visible()
    expect(dialog.get_by_text("binlake_shop_maintain", exact=True)).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.get_by_text("nothing carries it forward: its sync is paused")).to_have_count(0)
    expect(happened.get_by_role("listitem").first).to_contain_text("source resumed")


def test_the_lease_of_a_dead_run_is_taken_away(page: Page, past: Past) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import update

    with create_session() as session:  # whose tasks might hold it
        session.execute(update(DagRun).where(DagRun.state.in_(("queued", "running"))).values(state="success"))
    held: dict[str, Any] = {
        "holder": "elsewhere boot b namespace 1 pid 7 started 1",
        "token": "t",
        "expires_us": now_us() + HOUR,
    }
    assert past.metadata.swap("lease", "true", held)
    page.reload()
    assert "it was held by elsewhere" in press(page, "Unlock shop", "Unlock", Why="its machine is gone")
    expect(page.get_by_role("button", name="Unlock shop")).to_have_count(0)
    expect(page.get_by_role("list", name="What happened").get_by_role("listitem").first).to_contain_text("unlock")


def test_a_replay_is_asked_for_and_its_result_can_be_queried(page: Page, past: Past) -> None:
    from deltalake import write_deltalake

    from binlake.phases.replay import ReplayedTable
    from binlake.records.record import OtherRun, note_run

    name = str(past.names[8])
    page.goto(f"{page.url}&table={name}")
    assert "the run is queued" in press(page, f"Replay {name}", "Replay", Batch="39", Why="to compare")
    path = f"{past.config.root}/_replayed/39/shop/shop/table_0008"
    write_deltalake(path, pa.table({"id": [1, 2]}))
    built = ReplayedTable(name, path, 39, "p", 2, 0, 0, 39, equals_version=7)
    note_run(past.metadata, OtherRun(
        kind="replay", run=None, batch=39, position=None, phase=("replay", 1.0), message="built", began_us=1,
        tables=[built.to_json()],
    ))  # fmt: skip
    page.get_by_role("navigation", name="Where you are").get_by_role("link", name="shop").click()
    row = page.get_by_role("table", name="Replayed tables").get_by_role("row").last
    for words in (name, "batch 39", "equal to Delta version 7", path, "QueryBuilder"):
        expect(row).to_contain_text(words)


def test_a_repair_is_offered_with_the_keys_of_the_rows(
    served: Served, browser: Browser, page: Page, past: Past
) -> None:
    name = past.names[9]
    rows = [{"kind": "changed", "count": 1, "columns": ["note"], "key": {"id": "4711"}}]
    past.metadata.append("verifications", [{
        "batch": 40, "database": name.database, "table": name.table, "at_us": now_us(), "chunks": 1, "differing": 1,
        "equal": False, "differing_rows": 1, "source_rows": 9, "lake_rows": 9, "rows": json.dumps(rows),
    }])  # fmt: skip
    try:
        page.reload()
        page.get_by_role("button", name=f"Repair {name}").first.click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("table", name="Rows that differ")).to_contain_text("id = 4711")
        page.keyboard.press("Escape")
        viewer = served.open(browser, "eve", "VIEWER")
        viewer.goto(f"{served.url}/binlake/?source=shop&table={name}")
        differing = viewer.get_by_role("table", name="Rows that differ")
        expect(differing).to_contain_text("changed")
        assert "4711" not in viewer.content()
        assert viewer.get_by_role("button", name="Repair").count() == 0
        viewer.context.close()
    finally:  # other tests are of tables that were never compared
        VerificationRow.replace(past.metadata, "true")


def test_a_stopped_table_has_the_buttons_that_fix_its_reason_alone(page: Page, past: Past) -> None:
    row = next(row for row in watermarks.read(past.metadata) if row.table == "table_0510")
    stopped = replace(row, status="stopped", reason="its key is gone", remedy=snapshot_again(row.name))
    watermarks.write(past.metadata, [stopped])
    try:
        page.reload()
        line = page.get_by_role("row", name="shop.table_0510")
        expect(line.get_by_text("snapshot this table again: “Snapshot now”")).to_be_visible()
        assert line.get_by_role("button").all_inner_texts() == ["Snapshot now"]
        line.get_by_role("link", name="shop.table_0510").click()
        expect(page.get_by_text("snapshot this table again: “Snapshot now”")).to_be_visible()
        assert "binlake snapshot" not in page.locator("main").inner_text()
    finally:
        watermarks.write(past.metadata, [row])


def test_what_happened_is_filtered_by_kind_and_by_table(page: Page) -> None:
    page.goto(page.url.replace("?source=shop", "?source=shop&events=all"))
    kinds = page.get_by_role("navigation", name="Kinds")
    kinds.get_by_role("link", name="stops").click()
    page.get_by_label("Table").fill("shop.table_0500")
    page.get_by_label("Table").press("Enter")
    page.wait_for_url(re.compile("kind=stop&table=shop.table_0500$"))
    expect(page.get_by_role("heading", name="What happened", exact=True)).to_be_visible()
    expect(kinds.locator("[aria-current]")).to_have_text("stops")
    kinds.get_by_role("link", name="decisions").click()
    page.wait_for_url(re.compile("kind=decision"))
    expect(page.get_by_label("Table")).to_have_value("shop.table_0500")


def test_a_chart_that_holds_nothing_takes_no_room_and_squares_are_one_sentence(page: Page, past: Past) -> None:
    expect(page.get_by_text("Nothing yet in this day: Headroom, Compared with the server.")).to_be_visible()
    assert page.locator("figure").filter(has_text="Headroom").count() == 0
    page.goto(page.url.replace("?source=shop", "?source=shop&table=shop.table_0007"))
    squares = page.get_by_role("img", name="Not compared with the server in the last 13 weeks.")
    assert squares.get_by_role("listitem").count() == 0
    squares.focus()
    page.keyboard.press("End")
    expect(page.get_by_text(re.compile(r"^\w{3} \d+: not compared$"))).to_be_visible()
    assert squares.locator(".month").all_inner_texts().count("") < 13


def test_times_are_of_the_zone_that_airflow_shows(page: Page, served: Served, past: Past) -> None:
    us = 1_760_000_000_000_000
    event = {
        "at_us": us, "since_us": None, "kind": "run", "title": "sync", "what": "up to 2025-10-09 08:53:20 UTC",
        "batch": None, "tables": [], "place": None, "run": None, "seconds": None, "look": None, "remedy": None,
        "rows": 1, "bytes": None, "phases": {}, "why_spark": "",
    }  # fmt: skip
    page.route(re.compile("/api/.*/events"), lambda route: route.fulfill(json={
        "source": "shop", "events": [event], "now_us": us + 200_000_000, "earlier_us": None,
    }))  # fmt: skip
    page.evaluate("localStorage.setItem('timezone', JSON.stringify('Asia/Kolkata'))")
    with page.expect_request(re.compile("/charts\\?")) as asked:
        page.reload()
    assert "zone=Asia%2FKolkata" in asked.value.url
    line = page.get_by_role("list", name="What happened").get_by_role("listitem")
    expect(line).to_contain_text("up to 2025-10-09 14:23:20")
    expect(line).to_contain_text("2025-10-09 14:23:20")
    expect(page.get_by_text(re.compile(r"^as of \d\d:\d\d:\d\d, times in Asia/Kolkata$"))).to_be_visible()
    assert "UTC" not in page.locator("main").inner_text()


def test_a_table_is_a_card_of_three_lines_on_a_telephone(served: Served, browser: Browser, past: Past) -> None:
    page = served.open(browser, "ada", "ADMIN", width=390)
    page.goto(f"{served.url}/binlake/?source=shop")
    row = page.get_by_role("row", name="shop.table_0011", exact=False).first
    row.wait_for()
    box = row.bounding_box()
    assert box
    assert box["height"] <= 3 * 24 + 16, box
    expect(row.locator("td[data-name=Inserted]")).to_have_attribute("data-short", "+")
    page.context.close()


def test_folded_batches_are_told_with_their_span_and_lead_to_each_of_them(page: Page) -> None:
    us = 1_760_000_000_000_000
    fold = {
        "at_us": us + 183_000_000, "since_us": us, "kind": "run", "title": "124 batches", "what": "",
        "batch": None, "tables": [], "place": None, "run": None, "seconds": None, "look": None, "remedy": None,
        "rows": 3100, "bytes": None, "phases": {}, "why_spark": "",
    }  # fmt: skip
    answer = {"source": "shop", "events": [fold], "now_us": us + 200_000_000, "earlier_us": None}
    page.route(re.compile("/api/.*/events"), lambda route: route.fulfill(json=answer))
    page.goto(page.url.replace("?source=shop", "?source=shop&events=all"))
    line = page.get_by_role("list", name="What happened").get_by_role("listitem")
    for words in ("124 batches", "2025-10-09 08:53:20 to 08:56:23", "3,100 rows"):
        expect(line).to_contain_text(words)
    page.unroute(re.compile("/api/.*/events"))
    line.get_by_role("link", name="each of them").click()
    page.wait_for_url(re.compile(f"kind=batch&before_us={us + 183_000_001}"))


def test_the_first_snapshot_is_looked_at_again_soon_and_offered_once(page: Page) -> None:
    """As it is answered from the moment on at which its run is queued."""
    begun = {"health": "new", "what": "the first snapshot begins: its run is queued", "remedy": "nothing"}
    changes = {
        "position": None, "carried_us": None, "health": "new", "is_copied_first": True, "snapshots": [],
        "advice": [{**begun, "button": None}],
    }  # fmt: skip
    asked: list[int] = []

    def answer(route: Route) -> None:
        asked.append(now_us())
        route.fulfill(json={**route.fetch().json(), **changes})

    page.route(re.compile("/api/sources/shop$"), answer)
    page.reload()
    card = page.locator("section.card:not(.at-work)")
    expect(card.get_by_role("progressbar", name="the first snapshot begins")).to_be_visible()
    expect(card.get_by_text(begun["what"])).to_be_visible()
    assert page.get_by_role("button", name=re.compile("^Snapshot (shop|now)")).count() == 0
    changes["snapshots"] = [{"table": "shop.a", "chunks": 8, "copied": 3, "rows": 30, "begun_us": 1}]
    expect(card.get_by_role("progressbar", name="the first snapshot: 3 of 8 chunks")).to_be_visible(timeout=10_000)
    seen = len(asked)
    page.wait_for_timeout(5_000)
    assert len(asked) > seen, "it is asked again by itself"


def test_who_may_only_look_sees_no_buttons(served: Served, browser: Browser, past: Past) -> None:
    page = served.open(browser, "eve", "VIEWER")
    page.goto(f"{served.url}/binlake/?source=shop")
    page.get_by_role("table", name="Tables of shop").wait_for()
    words = page.locator("main button").all_inner_texts()
    of_the_source = {"Pause the source", "Resume the source", "Pin", "Stop following", "Remove the source"}
    assert not {"Sync now", "Pause", "Resume", "Snapshot now", *of_the_source} & set(words)
    assert page.get_by_role("checkbox").count() == 0
    page.context.close()


VIEWS = {
    "overview": "",
    "source": "?source=shop",
    "table": "?source=shop&table=shop.table_0007&at=noon",
    "run": "?source=shop&batch=40",
    "events": "?source=shop&events=all",
}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_light_and_dark_are_read_at_any_width(
    served: Served, browser: Browser, past: Past, tmp_path: Path, dark: bool
) -> None:
    """Screenshots are kept in the test's folder."""
    for width in (1280, 400):
        page = served.open(browser, "ada", "ADMIN", width=width, dark=dark)
        for name, query in VIEWS.items():
            page.goto(f"{served.url}/binlake/{query}")
            page.locator("#main :is(.card, .events)").first.wait_for()
            colours = page.evaluate(
                "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
            )
            light = [float(colour.removeprefix("oklch(").split()[0]) for colour in colours]
            assert (light[0] > light[1]) == dark, colours
            beyond = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert beyond <= 0, f"{name} is wider than {width} pixels by {beyond}"
            page.screenshot(path=tmp_path / f"{name}-{width}-{'dark' if dark else 'light'}.png", full_page=True)
        page.context.close()


HIDDEN = """width => {
  const hidden = [];
  const beyond = (part, box) => {
    const [inner, outer] = [part.getBoundingClientRect(), box.getBoundingClientRect()];
    return inner.left < outer.left - 1 || inner.right > outer.right + 1;
  };
  const said = (why, part) => hidden.push(`${why}: ${part.tagName} ${part.textContent.trim().slice(0, 60)}`);
  for (const part of document.querySelectorAll("#main :is(.card, tbody) *")) {
    const words = [...part.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (!words || part.closest("svg, [hidden]")) continue;
    if (getComputedStyle(part).display === "none") said("not shown", part);
    else if (!part.closest(".wide") && beyond(part, part.closest(".card"))) said("beyond its card", part);
  }
  for (const box of document.querySelectorAll(".wide")) {
    if (width < 640 && box.scrollWidth > box.clientWidth) said("columns beyond a narrow page", box);
    for (const row of [...box.querySelectorAll("tbody tr")].slice(0, 3))
      for (const cell of row.cells) {
        if (!cell.textContent.trim()) continue;
        cell.scrollIntoView({ inline: "nearest", block: "nearest" });
        if (beyond(cell, box)) said("out of reach", cell);
        if (beyond(row.querySelector("th"), box)) said("the row's name is scrolled away", row);
      }
  }
  return hidden;
}"""
"""What of cards and tables can't be read on a page of this width, also by scrolling a table in its own box."""


@pytest.mark.parametrize("width", [1000, 400])
def test_each_column_and_card_is_reached_on_a_narrow_page(
    served: Served, browser: Browser, past: Past, width: int
) -> None:
    page = served.open(browser, "ada", "ADMIN", width=width)
    for query in VIEWS.values():
        page.goto(f"{served.url}/binlake/{query}")
        page.locator("#main :is(.card, .events)").first.wait_for()
        assert page.evaluate(HIDDEN, width) == []
    page.context.close()


def test_an_event_that_nobody_can_read_is_skipped(page: Page, past: Past) -> None:
    """The last of this file: a batch is open from here on."""
    stop = past.position(past.batches)
    part = Slice(stop.file, stop.offset, stop.offset + 1000, stop.created, False)
    with lease.held(past.metadata) as held:
        held.open(OpenBatch(past.batches + 1, Range(stop, replace(stop, offset=stop.offset + 1000), (part,))))
    place = {"file": stop.file, "offset": stop.offset + 7}
    poison = {"batch": past.batches + 1, "reason": "an unknown event", "remedy": "skip it", "at_us": 1}
    past.metadata.append("quarantine", [{**poison, **place, "raw": b"x"}])
    page.reload()
    expect(page.get_by_text(f"the run is stopped at {stop.file}:{stop.offset + 7}")).to_be_visible()
    assert press(page, "Skip the event", "Skip it", Why="it is empty")
    decisions = [row for row in past.metadata.read("decisions") if row["action"] == "skip-event"]
    assert [(row["who"], row["why"], row["offset"]) for row in decisions] == [("ada", "it is empty", stop.offset + 7)]
    expect(page.get_by_text("the run is stopped at")).to_have_count(0)


def test_a_source_opens_with_one_sentence_and_a_difference_is_red_and_offers_repair(
    served: Served, browser: Browser, page: Page, past: Past, folder: Path
) -> None:
    from airflow_page import add

    card = page.locator("section.card:not(.at-work)")
    expect(card.locator(".advice li").first).to_contain_text("is stopped")
    good = replace(add(folder, "bank"), now_us=now_us()).write()
    file = folder / "bank.yaml"
    file.write_text(file.read_text().replace('"bank.*"', '"shop.*"'))
    later = [add(folder, f"later{number}").config.source.name for number in range(3)]
    row = {"batch": 3, "chunks": 1, "source_rows": 9, "lake_rows": 9, "equal": True, "at_us": now_us()}
    good.metadata.append("verifications", [{**row, "database": "shop", "table": name.table} for name in good.names])
    try:
        page.goto(f"{served.url}/binlake/")
        overview = page.get_by_role("table", name="Sources")
        bank = overview.get_by_role("row").filter(has_text="bank.yaml")
        expect(bank).to_contain_text(re.compile(r"3 of 3 tables equal the server at \d\d:\d\d:\d\d \("))
        expect(bank.locator("[data-name=Verified]")).to_contain_text("equal, ")
        expect(bank.locator(".badge.good")).to_have_text("healthy")
        page.get_by_role("link", name="bank", exact=True).click()
        expect(card.locator(".sentence")).to_contain_text("3 of 3 tables equal the server at ")

        good.metadata.append("verifications", [
            {**row, "database": "shop", "table": "table_0001", "equal": False, "differing": 1, "differing_rows": 6,
             "at_us": now_us()},
        ])  # fmt: skip
        page.goto(f"{served.url}/binlake/")
        expect(bank).to_contain_text("shop.table_0001 differs from the server by 6 rows")
        expect(bank.locator("[data-name=Verified] .badge.bad")).to_have_text("1 table differs")
        page.goto(f"{served.url}/binlake/?source=bank")
        tables = page.get_by_role("table", name="Tables of bank")
        expect(tables.locator("tbody tr").first).to_contain_text("differs by 6 rows")
        expect(page.locator(".calendar .bad")).to_have_attribute("title", re.compile("shop.table_0001 by 6 rows"))
        expect(card.locator(".advice li").first).to_contain_text("shop.table_0001 differs")

        page.get_by_role("button", name="Remove the source bank").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(f"The lake stays: {good.config.root} with 3 tables")
        dialog.get_by_label("Why").fill("it moved")
        dialog.get_by_role("button", name="Remove the source").click()
        expect(dialog.get_by_text("bank.yaml is removed; the lake at")).to_be_visible()
        assert not file.exists()
        (noted,) = good.metadata.read("decisions")
        assert (noted["action"], noted["who"], noted["why"]) == ("source removed", "ada", "it moved")
        page.keyboard.press("Escape")
        expect(overview.get_by_role("row").filter(has_text="later0.yaml")).to_be_visible()
        expect(bank).to_have_count(0)
    finally:
        for name in ("bank", *later):
            (folder / f"{name}.yaml").unlink(missing_ok=True)
