"""What `make platforms` runs by the Python of each environment: the demo, a merge by Spark, the page, and a browser.

The demo's folder is the one that BINLAKE_DEMO names. Whatever isn't as it should be ends it with exit code 1.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import demo
import shop
import ui
from kept_running import KeptRunning
from servers import free_port

BY_SPARK = "\nmerge: {without_spark_mb: 0}\n"
PAGE = """
from fastapi.testclient import TestClient
from airflow.api_fastapi import app
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

with TestClient(app.create_app("core")) as client:
    assert client.get("/binlake/api/sources").status_code == 401, "the page is open to everybody"
    token = app.get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="ada", role="ADMIN"))
    client.headers["Authorization"] = f"Bearer {token}"
    shown = {"": "Binlake", "api/sources": "shop", "api/sources/shop": "shop", "api/sources/shop/tables": "shop.orders"}
    for path, text in shown.items():
        answer = client.get(f"/binlake/{path}")
        assert answer.status_code == 200 and text in answer.text, (path, answer.status_code, answer.text)
"""
"""The page's routes in the whole app of Airflow's API server, on what the demo left."""


def main() -> int:
    """Run everything; whether all is as it should be is the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server is stopped in order
    phase = demo.Phases()
    if not demo.demo(demo.choose([]), phase):
        return wrong("the demo's tables differ from the server's")
    kept = demo.Kept.read()
    env = demo.environment(kept.connection)
    if why := demo.status(env)["last_run"]["why_spark"]:
        return wrong(f"a small batch was merged by Spark: {why}")
    with demo.CONFIG.open("a") as file:
        file.write(BY_SPARK)
    server = demo.start_server(kept.kind, kept.port)
    try:
        shop.order_first(server)
        server.execute("UPDATE shop.customers SET name = CONCAT(name, ' II') WHERE id % 7 = 0")
        with phase("airflow dags test binlake_shop_sync: merged by Spark"):
            demo.dag(env, "binlake_shop_sync")
        state, proof = demo.status(env), demo.verify(env)
    finally:
        server.close()
    if not state["last_run"]["why_spark"]:
        return wrong("no merge was by Spark")
    if not proof["equal"]:
        return wrong("the tables that Spark merged differ from the server's")
    with phase("the page is requested of Airflow's API server"):
        demo.run(env, "page", "python", "-c", PAGE)
    with phase("a browser opens the page in Airflow's UI"):
        shown = in_browser(env)
    if shown:
        return wrong(shown)
    print("all of it passed")
    return 0


def in_browser(env: dict[str, str]) -> str:
    """Open the page in the UI of an API server that lets everybody in; return what is wrong, empty if nothing is.

    BINLAKE_BROWSER names the Python that has the browser's driver.
    """
    port = free_port()
    settings = {"API__HOST": "127.0.0.1", "API__PORT": str(port), "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True"}
    served = env | {f"AIRFLOW__{name}": value for name, value in settings.items()}
    services = KeptRunning(lambda service: ui.start(service, served), print)
    url = f"http://127.0.0.1:{port}"
    look = [
        os.environ["BINLAKE_BROWSER"],
        str(Path(__file__).with_name("platform_page.py")),
        url,
        str(demo.FOLDER / "page.png"),
    ]
    try:
        services.begin("api-server")
        ui.wait_until_ready(services, url)
        done = subprocess.run(look, capture_output=True, text=True)
        return f"the browser ended with {done.returncode}: {done.stderr}" if done.returncode else ""
    finally:
        services.stop()


def wrong(text: str) -> int:
    """Say what is wrong; return the exit code."""
    print(text, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
