"""The pictures of the page in plugins/PAGE.md and FORMS.md, of a source with a past that this script makes up.

    .venv/bin/python docker/local/page_pictures.py

Airflow's API server runs in this process, as for bench_page, and a browser looks at it. The form for a new source looks
at a MariaDB of this script's own.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from bench_page import FOLDER, prepare
from servers import ROOT, Server, free_port

PICTURES = ROOT / "plugins" / "pictures"
CHROMIUM = "/usr/bin/chromium"
MINUTE, HOUR = 60_000_000, 3_600_000_000
WIDTH, HEIGHT = 1200, 760
VIEWS = {
    "sources": ("", "Sources, the worst first", 620),
    "over-time": ("?source=shop", "A source over a day", 1430),
    "tables": ("?source=shop#tables", "Its tables", HEIGHT),
    "table": ("?source=shop&table=shop.orders#schema", "A table's columns and history", HEIGHT),
    "happened": ("?source=shop&events=all", "All that happened", HEIGHT),
}
"""The pictures: each one's address below the page, what it shows, and its height in pixels."""
ACCOUNT, PASSWORD = "binlake", "of-this-script"
TABLES = (
    "addresses", "baskets", "brands", "categories", "customers", "deliveries", "invoices", "order_items", "orders",
    "payments", "prices", "products", "returns", "reviews", "stock", "suppliers",
)  # fmt: skip


def named(shared: Any) -> Any:
    """Return a past of a source whose tables have names of a shop."""
    from binlake.schema.table import TableName
    from past import Past

    class Shop(Past):
        def name(self, number: int) -> TableName:
            return TableName("shop", TABLES[number])

    past = Shop(**vars(shared.add(FOLDER / "pipelines")))
    return replace(past, tables=len(TABLES), batches=240, changed=5)


def make_tables(past: Any) -> None:
    """Write a Delta table for each name, and give one of them more columns."""
    import pyarrow as pa
    from deltalake import write_deltalake

    from binlake.planner.steps import Life
    from binlake.records import watermarks
    from binlake.schema.table import Column, TableSchema
    from binlake.store.rows import ShapeRow

    for number, name in enumerate(past.names):
        rows = 4000 * (1 + number * 7 % 11)
        write_deltalake(past.config.table_path(name), pa.table({"id": range(rows)}))
    orders = past.names[TABLES.index("orders")]
    columns = (
        Column("id", "bigint", unsigned=True, nullable=False, comment="counts up, with gaps"),
        Column("customer_id", "bigint", unsigned=True, nullable=False),
        Column("status", "enum", values=("new", "paid", "sent", "delivered", "returned"), charset="utf8mb4"),
        Column("total", "decimal", precision=12, scale=2, nullable=False, comment="with tax, in euros"),
        Column("note", "varchar", length=200, charset="utf8mb4"),
        Column("ordered_at", "datetime", fraction=3),
    )
    here = past.position(233)
    life = Life(f"life-{orders}", orders, TableSchema(columns, ("id",), "primary"), past.position(0), past.position(0))
    ShapeRow.append(past.metadata, [watermarks.schema_row(life, batch=233, where=here, why="followed")])


def make_past(shared: Any) -> None:
    """Write a source with ten days of hourly runs, and some beside it."""
    from binlake.store.metadata import now_us

    past = named(shared).write(commits=3)
    make_tables(past)
    with (FOLDER / "pipelines" / "shop.yaml").open("a") as file:
        file.write("airflow: {lag_minutes: 75, retention_hours: 12}\npage: {show_values: true}\n")
    now, metadata = now_us(), past.metadata
    look = {"head": "binlog.000001:9", "bytes_ahead": 700, "oldest_file": "binlog.000001", "files": 3}
    metadata.append("source_log", [
        {**look, "at_us": now - at * HOUR, "bytes": 3 << 30, "kept_hours": 24.0, "batch": 240 - at} for at in range(200)
    ])  # fmt: skip
    run = {"outcome": "recorded", "tables": "[]", "bytes": 0, "mutations": 0}
    for kind, hour, message in (("verify", 0, "16 of 16 tables equal"), ("maintain", 3, "16 tables kept")):
        metadata.append("runs", [
            {
                **run, "run": f"{kind}{day}", "kind": kind, "batch": 239 - day, "message": message,
                "started_us": now - (day * 24 + hour) * HOUR - 9 * MINUTE, "ended_us": now - (day * 24 + hour) * HOUR,
                "phases": json.dumps({kind: 500.0}),
            }
            for day in range(20)
        ])  # fmt: skip
    compared = {"database": "shop", "source_rows": 900, "lake_rows": 900, "chunks": 3, "differing": 0, "equal": True}
    metadata.append("verifications", [
        {**compared, "table": str(name.table), "at_us": now - day * 24 * HOUR, "batch": 239 - day, "seconds": 2.0}
        for day in range(20) for name in past.names
    ])  # fmt: skip
    metadata.append("lake_sizes", [
        {
            "at_us": now - (day * 24 + 3) * HOUR, "database": "shop", "table": str(name.table),
            "bytes": (20 + number) * (40 - day) * 25_000, "files": 3 + number * day % 5,
        }
        for day in range(20) for number, name in enumerate(past.names)
    ])  # fmt: skip
    metadata.append("ddl_history", [{
        "batch": 233, "file": "binlog.000001", "offset": 9, "position": str(past.position(233)), "database": "shop",
        "table": "orders", "statement": "ALTER TABLE orders ADD COLUMN ordered_at DATETIME(3)",
        "kind": "ALTER TABLE", "action": "followed", "committed_us": now - 7 * HOUR,
    }])  # fmt: skip
    metadata.append("decisions", [{
        "at_us": now - 2 * HOUR, "who": "ada", "why": "its rows move to another server", "action": "pause",
        "database": "shop", "table": "returns", "batch": 238,
    }])  # fmt: skip
    metadata.append("quarantine", [{
        "batch": 236, "database": "shop", "table": "reviews", "file": "binlog.000001", "offset": 7,
        "reason": "a column's new type isn't followed", "remedy": "exclude the table, or snapshot it again",
        "at_us": now - 4 * HOUR,
    }])  # fmt: skip
    for name in ("bank", "crm", "stock"):
        shared.add(FOLDER / "pipelines", name)
    shared.add_dags(FOLDER / "pipelines")
    unpause("binlake_shop_")


def unpause(prefix: str) -> None:
    """Unpause the DAGs whose ids begin with this."""
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        for dag in session.scalars(select(DagModel).where(DagModel.dag_id.startswith(prefix))):
            dag.is_paused = False


@contextmanager
def served(app: Any) -> Iterator[str]:
    import uvicorn

    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(30)


def fill_in(page: Any, port: int) -> None:
    """Fill in the form for a new source; its preview isn't asked for, as that shows the folder of this checkout."""
    for label, text in (("Host", "127.0.0.1"), ("Port", str(port)), ("Login", ACCOUNT), ("Password", PASSWORD)):
        page.get_by_label(label).fill(text)
    page.get_by_role("button", name="Look at the server").click()
    page.get_by_label("pick shop.*").check()
    page.get_by_label("Name of the source").fill("web")
    page.get_by_label("Lake").fill("s3://lakes/web")


def take(url: str, token: str, port: int) -> None:
    """Take the pictures. port: of the server that the form for a new source looks at."""
    from playwright.sync_api import sync_playwright

    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
        context.add_cookies([{"name": "_token", "value": token, "url": url}])
        page = context.new_page()
        for name, (query, words, height) in VIEWS.items():
            page.set_viewport_size({"width": WIDTH, "height": height})
            page.goto(f"{url}/binlake/{query}")
            page.locator("#main :is(.card, table, .events)").first.wait_for()
            page.wait_for_timeout(2000)  # sizes are measured beside the first answer
            if "#" in query:
                page.locator(f"#{query.partition('#')[2]}").evaluate("part => part.scrollIntoView()")
            keep(page, name, words)
        page.goto(f"{url}/binlake/?create=source")
        fill_in(page, port)
        keep(page, "new-source", "The form for a new source", whole=True)
        browser.close()


def keep(page: Any, name: str, words: str, *, whole: bool = False) -> None:
    """Write a picture of what the browser shows, or of the whole page."""
    path = PICTURES / f"{name}.png"
    page.screenshot(path=path, full_page=whole)
    print(f"{words}: {path.relative_to(ROOT)}, {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    shared = prepare()
    os.environ["AIRFLOW__CORE__TEST_CONNECTION"] = "Enabled"  # without it the form asks no server
    with Server("mariadb") as server, shared.airflow_server() as app:
        server.create_account(ACCOUNT, PASSWORD, ["ALL PRIVILEGES ON *.*"])
        server.execute(
            "CREATE DATABASE shop", *(f"CREATE TABLE shop.{name} (id INT PRIMARY KEY)" for name in TABLES[:6])
        )
        make_past(shared)
        with served(app) as url:
            take(url, shared.token("ada", "ADMIN"), server.port)


if __name__ == "__main__":
    main()
