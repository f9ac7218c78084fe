"""A data engineer's first day in Airflow's own UI, in a browser: real services, a real server, real runs, in order.

Screenshots are kept in ``screenshots`` of the test's folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from airflow_home import AirflowHome
from binlake import pipeline
from binlake.records.record import log_noted
from desk import Desk

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from servers import Server

pytestmark = [pytest.mark.timeout(1500), pytest.mark.soak]
DATABASE, PASSWORD = "in_the_ui", "p4ssword-7f3a"
HOURS = 6
"""That are missed, and made up."""


def hourly() -> tuple[str, datetime]:
    """A schedule whose last interval ended five minutes ago, so that none ends while tests run; and that moment."""
    tick = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=5)
    return f"{tick.minute} * * * *", tick


@pytest.fixture(scope="module")
def desk(mariadb_server: Server, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """MariaDB, whose commits carry the session's timestamp: so hours that passed can be made."""
    server, folder = mariadb_server, tmp_path_factory.mktemp("ui")
    schedule, tick = hourly()
    server.execute(f"CREATE DATABASE {DATABASE}")
    server.create_account("u_ui", PASSWORD, ["ALL PRIVILEGES ON *.*"])
    home = AirflowHome(folder, server, DATABASE, "u_ui", PASSWORD, schedule=schedule, paused=True)
    (screenshots := folder / "screenshots").mkdir()
    with home.services():
        context = browser.new_context(viewport={"width": 1280, "height": 900}, timezone_id="UTC")
        page = context.new_page()
        page.set_default_timeout(60_000)
        yield Desk(home, page, screenshots, tick)
        context.close()
    server.execute(f"DROP DATABASE {DATABASE}", "DROP USER u_ui")


def test_a_newcomer_is_led_to_the_first_snapshot(desk: Desk) -> None:
    desk.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, note TEXT)",
        "CREATE TABLE items (id INT PRIMARY KEY, price DECIMAL(9,2))",
        "INSERT INTO orders VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO items VALUES (1, 1.25)",
    )
    name, _ = desk.home.admin
    desk.log_in()
    page = desk.open_binlake()
    expect(page.get_by_text("no table has a snapshot yet")).to_be_visible()
    desk.keep("1 to be begun")
    page.get_by_role("button", name="Snapshot shop").click()
    expect(page.get_by_label("Unpause binlake_shop_bootstrap")).to_be_checked()
    page.get_by_role("dialog").get_by_role("button", name="Snapshot").click()
    expect(page.get_by_text("the run is queued")).to_be_visible()
    # The link leads out of the frame to Airflow's page of the run.
    ((_, kind, who, run),) = desk.runs("bootstrap")
    assert (kind, who) == ("manual", name)
    page.get_by_role("link", name=run).click()
    expect(desk.page).to_have_url(re.compile("/dags/binlake_shop_bootstrap/runs/manual__"))
    expect(desk.page.get_by_text("snapshot").first).to_be_visible()
    desk.keep("2 the run in Airflow")
    desk.await_runs("bootstrap", 1)
    desk.assert_equal("orders", "items")


def test_the_page_shows_what_the_metadata_say(desk: Desk) -> None:
    page = desk.open_source()
    page.get_by_role("button", name="Unpause binlake_shop_sync").click()
    page.get_by_role("dialog").get_by_role("button", name="Unpause").click()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    desk.await_runs("sync", 1)  # that of the last interval: it has nothing to merge
    page = desk.open_source()
    row = page.get_by_role("row", name=f"{DATABASE}.orders")
    expect(row.get_by_text("following")).to_be_visible()
    expect(row.locator("td.number").first).to_have_text("2")  # measured beside the first answer
    cells = row.locator("td.number").all_inner_texts()
    assert cells[:4] == ["2", "0", "0", "0"], "rows, inserted, updated, deleted"
    metadata = pipeline.metadata_of(desk.home.config)
    seen = log_noted(metadata)
    assert seen is not None
    expect(page.get_by_title(f"The server's end of the log was {seen.head}")).to_be_visible()
    desk.keep("3 the source")


def test_missed_hours_are_made_up_in_order_by_a_backfill_from_the_ui(desk: Desk) -> None:
    page = desk.open_source()
    page.get_by_label(f"pick {DATABASE}.items").check()
    assert "is paused at" in desk.do(f"Pause {DATABASE}.items", "Pause", Why="to see it resume")
    first = desk.tick - timedelta(hours=HOURS + 1)  # the last interval has its run already
    for hour in range(HOURS):
        within = (first + timedelta(hours=hour, minutes=30)).timestamp()
        desk.execute(
            f"SET timestamp = {within:.0f}",
            f"INSERT INTO orders VALUES ({10 + hour}, 'hour {hour}')",
            f"INSERT INTO items VALUES ({10 + hour}, {hour})",
        )
    desk.page.goto(f"{desk.home.url}/dags/binlake_shop_sync")
    desk.page.get_by_role("button", name="Trigger").first.click()
    form = desk.page.get_by_role("dialog").filter(has_text="binlake_shop_sync")
    form.get_by_text("Backfill", exact=True).click()
    for at, moment in enumerate((first, first + timedelta(hours=HOURS - 1))):
        form.get_by_test_id("datetime-input").nth(at).click()
        desk.page.get_by_placeholder("YYYY/MM/DD").fill(f"{moment:%Y/%m/%d}")
        desk.page.get_by_placeholder("HH:mm").fill(f"{moment:%H:%M}")
        desk.page.get_by_placeholder("HH:mm").press("Enter")
        form.get_by_text("Date Range").click()
    desk.keep("4 the backfill")
    form.get_by_role("button", name="Run Backfill").click()
    desk.await_runs("sync", 1 + HOURS)
    desk.assert_equal("orders")

    batches = sorted(pipeline.metadata_of(desk.home.config).read("batches"), key=lambda row: row["batch"])
    ends = [(first + timedelta(hours=hour + 1)).timestamp() * 1e6 for hour in range(HOURS)]
    assert [(row["state"], row["until_us"]) for row in batches] == [("recorded", end) for end in ends]
    made = [json.loads(row["tables"]) for row in sorted(
        (row for row in pipeline.metadata_of(desk.home.config).read("runs") if row["kind"] == "sync"),
        key=lambda row: row["batch"],
    )]  # fmt: skip
    assert [[table["inserted"] for table in tables if table["table"] == f"{DATABASE}.orders"] for tables in made] == [
        [1]
    ] * 6
    page = desk.open_source()
    happened = page.get_by_role("list", name="What happened").get_by_role("listitem")
    runs = happened.filter(has_text=re.compile("^sync")).get_by_role("link").all_inner_texts()
    assert runs == [f"batch {batch}" for batch in range(HOURS, 0, -1)]
    desk.keep("5 made up")


def test_a_paused_table_resumes_through_the_batches_it_missed_and_all_is_verified(desk: Desk) -> None:
    page = desk.open_source()
    row = page.get_by_role("row", name=f"{DATABASE}.items")
    expect(row.get_by_text(f"paused by {desk.home.admin[0]}: to see it resume")).to_be_visible()
    assert "the run is queued" in desk.do(f"Resume {DATABASE}.items", "Resume", Why="seen")
    desk.await_runs("resume", 1)
    desk.assert_equal("items")
    decided = sorted(pipeline.metadata_of(desk.home.config).read("decisions"), key=lambda row: row["at_us"])
    assert [(row["action"], row["who"], row["why"]) for row in decided] == [
        ("pause", desk.home.admin[0], "to see it resume"),
        ("resume", desk.home.admin[0], "seen"),
    ]

    desk.execute("UPDATE orders SET note = 'now' WHERE id = 1", "DELETE FROM items WHERE id = 1")
    desk.open_source()
    desk.do("Sync now shop", "Sync now")
    desk.await_runs("sync", 2 + HOURS)
    desk.assert_equal("orders", "items")
    desk.open_source()
    desk.do("Verify shop", "Verify")
    desk.await_runs("verify", 1)
    page = desk.open_source()
    page.get_by_role("link", name=f"{DATABASE}.orders").click()
    expect(page.get_by_text("equal", exact=True)).to_be_visible()
    expect(page.get_by_role("table", name="Delta history").get_by_role("link").first).to_have_text(f"batch {HOURS + 1}")
    newest = page.get_by_role("table", name="Newest mutations").locator("tbody tr").first
    expect(newest).to_contain_text("update")
    expect(newest).to_contain_text("id = 1")
    desk.keep("6 the table, verified")
