"""What `make platforms` runs by the Python of each environment: the demo, a merge by Spark, and the page.

The demo's folder is the one that BINLAKE_DEMO names. Whatever isn't as it should be ends it with exit code 1.
"""

from __future__ import annotations

import signal
import sys

import demo
import shop

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
    print("all of it passed")
    return 0


def wrong(text: str) -> int:
    """Say what is wrong; return the exit code."""
    print(text, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
