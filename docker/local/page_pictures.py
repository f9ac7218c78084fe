"""The pictures of the page in plugins/README.md, of a source with a past that this script makes up.

    .venv/bin/python docker/local/page_pictures.py

Airflow's API server runs in this process, as for bench_page, and a browser looks at it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from bench_page import FOLDER, prepare
from servers import ROOT, free_port

PICTURES = ROOT / "plugins" / "pictures"
CHROMIUM = "/usr/bin/chromium"
MINUTE, HOUR = 60_000_000, 3_600_000_000
WIDTH, HEIGHT = 1200, 760
VIEWS = {
    "sources": ("", "Sources, the worst first"),
    "over-time": ("?source=shop#charts", "A source over a day"),
    "tables": ("?source=shop#tables", "Its tables"),
    "table": ("?source=shop&table=shop.orders#schema", "A table's columns and history"),
    "happened": ("?source=shop&events=all", "All that happened"),
}
"""The pictures: each one's address below the page, and what it shows."""


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

    from binlake.batch.steps import Life
    from binlake.metadata import watermarks
    from binlake.schema.table import Column, TableSchema

    for number, name in enumerate(past.names):
        rows = 4000 * (1 + number * 7 % 11)
        write_deltalake(past.config.table_path(name), pa.table({"id": range(rows)}))
    orders = past.names[TABLES.index("orders")]
    columns = (
        Column("id", "bigint", unsigned=True, nullable=False),
        Column("customer_id", "bigint", unsigned=True, nullable=False),
        Column("status", "enum", values=("new", "paid", "sent", "delivered", "returned"), charset="utf8mb4"),
        Column("total", "decimal", precision=12, scale=2, nullable=False),
        Column("note", "varchar", length=200, charset="utf8mb4"),
        Column("ordered_at", "datetime", fraction=3),
    )
    here = past.position(233)
    life = Life(f"life-{orders}", orders, TableSchema(columns, ("id",), "primary"), past.position(0), past.position(0))
    past.metadata.append("schemas", [watermarks.schema_row(life, batch=233, where=here, why="followed")])


def make_past(shared: Any) -> None:
    """Write a source with ten days of hourly runs, and some beside it."""
    from binlake.metadata.metadata import now_us

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
    for kind, hour, message in (("verify", 1, "16 of 16 tables equal"), ("maintain", 3, "16 tables kept")):
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
        {**compared, "table": str(name.table), "at_us": now - (day * 24 + 1) * HOUR, "batch": 239 - day, "seconds": 2.0}
        for day in range(20) for name in past.names
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
    for name in ("bank", "stock", "web"):
        shared.add(FOLDER / "pipelines", name)
    shared.add_dags(FOLDER / "pipelines")


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


def take(url: str, token: str) -> None:
    from playwright.sync_api import sync_playwright

    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
        context.add_cookies([{"name": "_token", "value": token, "url": url}])
        page = context.new_page()
        for name, (query, words) in VIEWS.items():
            page.goto(f"{url}/binlake/{query}")
            page.locator("#main :is(.card, table, .events)").first.wait_for()
            page.wait_for_timeout(2000)  # sizes are measured beside the first answer
            if "#" in query:
                page.locator(f"#{query.partition('#')[2]}").evaluate("part => part.scrollIntoView()")
            path = PICTURES / f"{name}.png"
            page.screenshot(path=path)
            print(f"{words}: {path.relative_to(ROOT)}, {path.stat().st_size / 1000:.0f} kB")
        browser.close()


def main() -> None:
    shared = prepare()
    with shared.airflow_server() as app:
        make_past(shared)
        with served(app) as url:
            take(url, shared.token("ada", "ADMIN"))


if __name__ == "__main__":
    main()
