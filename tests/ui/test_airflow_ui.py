"""A data engineer's first day in Airflow's own UI, in a browser: real services, a real server, real runs, in order.

Its second half is an hour in which all goes wrong that can: a table that somebody else changes, a run that is
cancelled, two files with one name, a follower and a scheduler that are killed.

Screenshots are kept in ``screenshots`` of the test's folder.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from playwright.sync_api import expect

from airflow_home import BIN, AirflowHome, wait_for
from binlake import pipeline
from binlake.lease import followers
from binlake.records.record import log_noted
from binlake.schema.table import TableName
from desk import RUN_SECONDS, Desk

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FrameLocator, Locator

    from servers import Server

pytestmark = [pytest.mark.timeout(1500), pytest.mark.soak]
DATABASE, PASSWORD = "in_the_ui", "p4ssword-7f3a"
HOURS = 6
"""That are missed, and made up."""
QUICK_TO_NOTICE = {
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "15",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
}
"""Settings of an Airflow that reads changed YAMLs, and sees that its scheduler is dead, in seconds."""


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
    home = AirflowHome(
        folder, server, DATABASE, "u_ui", PASSWORD, schedule=schedule, paused=True, settings=QUICK_TO_NOTICE
    )
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
        expect(desk.page.get_by_placeholder("YYYY/MM/DD")).to_have_count(0)  # else the next one opens beside it
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
    assert [(row["action"], row["who"], row["why"]) for row in decided if row["table"] == "items"] == [
        ("pause", desk.home.admin[0], "to see it resume"),
        ("resume asked for", desk.home.admin[0], "seen"),
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


# an hour in which all goes wrong --------------------------------------------------------------------------------------
def sentence(page: FrameLocator) -> Locator:
    """What the source's card opens with where all is well."""
    return page.locator("#main .card .sentence").first


def wrong(page: FrameLocator, words: str) -> Locator:
    """The line of what is wrong that has these words."""
    return page.locator("#main .card .advice > li", has_text=words).first


def happened(page: FrameLocator, title: str) -> Locator:
    """The newest event with this title."""
    events = page.get_by_role("list", name="What happened").get_by_role("listitem")
    return events.filter(has_text=re.compile(f"^{title}")).first


def await_health(desk: Desk) -> None:
    page = desk.open_source()
    expect(sentence(page)).to_contain_text("3 of 3 tables equal the server at")
    expect(page.locator("#main .card").first).to_contain_text("healthy")


def test_a_table_that_somebody_else_changed_is_red_everywhere_until_it_is_repaired(desk: Desk) -> None:
    table = f"{DATABASE}.refunds"
    desk.execute(
        "CREATE TABLE refunds (id INT PRIMARY KEY, note TEXT)",
        "INSERT INTO refunds VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    desk.await_sync()
    lake = DeltaTable(desk.home.config.table_path(TableName(DATABASE, "refunds")))
    lake.update(predicate="id = 2", updates={"note": "'of somebody else'"})
    desk.open_source()
    desk.do("Verify shop", "Verify")
    wait_for("the comparison", RUN_SECONDS, lambda: desk.ended("verify")["failed"] == 1)

    page = desk.open_source()
    expect(wrong(page, f"{table} differs from the server by 1 row, compared")).to_be_visible()
    expect(sentence(page)).to_have_count(0)
    row = page.get_by_role("row", name=table)
    expect(row.locator(".badge.bad")).to_have_text("differs by 1 row")
    expect(page.locator(".calendar .bad")).to_have_attribute("title", re.compile("1 table differed"))
    expect(page.locator("svg .event-differing").first).to_be_attached()
    expect(happened(page, "verify").locator(".badge.bad")).to_be_visible()
    expect(happened(page, "verify").get_by_role("link", name=table)).to_be_visible()
    desk.keep("7 it differs")
    expect(desk.open_binlake().locator(".card .badge.bad", has_text="1 table differs")).to_be_visible()

    desk.open_source()
    verified = desk.ended("verify")["success"]
    assert "the run is queued" in desk.do(f"Repair {table}", "Repair", shows="changed1note", Why="it was a test")
    wait_for("the repair", RUN_SECONDS, lambda: desk.ended("verify")["success"] > verified)
    desk.assert_equal("refunds")
    await_health(desk)
    page = desk.binlake
    asked = page.get_by_role("listitem").filter(has_text=f"by {desk.home.admin[0]}: it was a test")
    expect(asked.locator(".badge", has_text="success")).to_be_visible()
    expect(
        page.get_by_role("list", name="What happened").locator(".badge.warn", has_text="repair").first
    ).to_be_visible()
    desk.keep("8 repaired")


def test_a_run_that_is_cancelled_failed_and_it_is_known_by_whom(desk: Desk) -> None:
    failed = desk.ended("verify")["failed"]
    with desk.home.server.connect(database=DATABASE) as locking:
        locking.cursor().execute("LOCK TABLES orders WRITE")  # so that it doesn't end before
        page = desk.open_source()
        desk.do("Verify shop", "Verify")
        run = desk.runs("verify")[-1][3]
        expect(page.locator("#at-work")).to_contain_text(re.compile("verify .* for"))
        assert "its tasks are being ended" in desk.do(f"Cancel {run}", "Cancel the run", Why="too slow")
        wait_for("its end", RUN_SECONDS, lambda: desk.ended("verify")["failed"] == failed + 1)
        expect(page.locator("#at-work")).to_be_hidden()
    page = desk.open_source()
    said = re.compile(f"the last run of binlake_shop_verify was cancelled .* ago by {desk.home.admin[0]}: too slow")
    expect(page.locator("#main .card .advice > li")).to_contain_text(said)
    cancelled = happened(page, "verify cancelled")
    expect(cancelled).to_contain_text(f"by {desk.home.admin[0]}: too slow")
    expect(cancelled.locator(".badge.bad")).to_have_text("failed")
    desk.keep("9 cancelled")
    verified = desk.ended("verify")["success"]
    desk.do("Verify shop", "Verify")
    wait_for("the next one", RUN_SECONDS, lambda: desk.ended("verify")["success"] > verified)
    await_health(desk)


def test_of_two_files_with_one_name_the_newer_one_is_refused(desk: Desk) -> None:
    twin = desk.home.yaml.with_name("twin.yaml")
    twin.write_text(desk.home.yaml.read_text())
    page = desk.open_binlake()
    refused = page.locator(".card", has_text="twin.yaml").filter(
        has_text="'shop' is the source of shop.yaml, which is older"
    )
    expect(refused).to_be_visible()
    desk.keep("10 two of a name")

    def dags() -> dict[str, int]:
        return dict(desk.home.query("SELECT dag_id, is_stale FROM dag"))

    wait_for("the newer file's own DAG", 180, lambda: dags().get("binlake_twin_broken") == 0)
    assert not [dag for dag, is_stale in dags().items() if is_stale]
    desk.execute("INSERT INTO refunds VALUES (4, 'd')")
    desk.await_sync()
    desk.assert_equal("refunds")
    twin.unlink()
    await_health(desk)


def test_a_follower_that_is_killed_is_seen_and_started_again_by_a_button(desk: Desk) -> None:
    home = desk.home
    with home.yaml.open("a") as file:
        file.write("follow: {every: 1s}\n")
    wait_for("its DAG", 180, lambda: home.query("SELECT 1 FROM dag WHERE dag_id = 'binlake_shop_follow'"))
    uri = f"mysql://{home.user}:{PASSWORD}@127.0.0.1:{home.server.port}/"
    with (home.folder / "output" / "follow.log").open("wb") as output:
        outside = subprocess.Popen(
            [BIN / "binlake", "follow", "--config", home.yaml], env=home.env | {"AIRFLOW_CONN_SHOP_MYSQL": uri},
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        await_follower(desk, outside.pid)
    finally:
        outside.send_signal(signal.SIGKILL)
        outside.wait()
    page = desk.open_source()
    expect(wrong(page, "which followed the log, is dead since")).to_be_visible()
    expect(page.locator("dl").first).to_contain_text(re.compile(r"dead since \d{4}"))
    expect(happened(page, "follower dead").locator(".badge.bad")).to_be_visible()
    desk.keep("11 the follower is dead")
    assert "the run is queued" in desk.do("Start following shop", "Start following")
    await_follower(desk, None)
    await_health(desk)


def await_follower(desk: Desk, pid: int | None) -> None:
    """Until what is written now is in the lake. pid: of the process that has to follow; None for any."""
    metadata = pipeline.metadata_of(desk.home.config)

    def follows() -> bool:
        now = followers.read_status(metadata)
        return bool(now and not now.is_silent and now.batch and (pid is None or f"pid {pid}" in now.holder))

    desk.execute("UPDATE refunds SET note = CONCAT(note, '+')")
    wait_for("a follower", RUN_SECONDS, follows)
    wait_for("its batch", 60, lambda: desk.is_equal("refunds"))
    expect(desk.open_source().locator("dl").first).to_contain_text("every 1 s")


def test_a_scheduler_that_died_is_seen_and_the_next_one_takes_up_what_it_left(desk: Desk) -> None:
    metadata = pipeline.metadata_of(desk.home.config)
    before = followers.read_status(metadata)
    desk.home.kill_scheduler()

    def is_over() -> bool:
        now = followers.read_status(metadata)
        return now is None or now.is_dead

    wait_for("the end of the task that the scheduler left", 60, is_over)

    def is_seen() -> bool:
        return wrong(desk.open_source(), "Airflow's scheduler gives no sign of life since").is_visible()

    wait_for("the scheduler's death on the page", 60, is_seen)
    desk.keep("12 the scheduler is dead")
    desk.home.start_scheduler()
    await_follower(desk, None)
    after = followers.read_status(metadata)
    assert before
    assert after
    assert after.holder != before.holder
    await_health(desk)
    desk.assert_equal("orders", "items", "refunds")
    desk.keep("13 all is well")
