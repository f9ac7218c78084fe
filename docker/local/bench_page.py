"""How fast the page in Airflow answers: each route's median, on a source of 1,000 tables and a year of hourly runs.

Airflow's own API server is asked in this process, on metadata without a server or Spark. Each figure is printed beside
the goal of 300 ms. One is of the first question after a new run was recorded, when what is remembered is old; one of
the next question. They are added to .binlake/bench.json.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from bench_figures import Figure, keep
from servers import PRIVATE, ROOT

FOLDER = PRIVATE / "bench_page"
TABLES, BATCHES, CHANGED = 1000, 8760, 20
ROUNDS = 11
GOAL = 0.3
SOURCE = "/binlake/api/sources/shop"
ROUTES = {
    "sources": "/binlake/api/sources",
    "a source": SOURCE,
    "its tables": f"{SOURCE}/tables",
    "its feeds": f"{SOURCE}/feeds",
    "its runs": f"{SOURCE}/runs",
    "its charts of a day": f"{SOURCE}/charts?span=day",
    "its charts of a month": f"{SOURCE}/charts?span=month",
    "its events": f"{SOURCE}/events",
    "what works on it": f"{SOURCE}/work",
    "a table": f"{SOURCE}/tables/shop.table_0007",
    "a run": f"{SOURCE}/runs/8000",
}


def prepare() -> Any:
    """Airflow's home and the source's YAML, below .binlake; gives what tests share about the page, once that is set."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "pipelines").mkdir(parents=True)
    os.environ |= {
        "XDG_STATE_HOME": str(FOLDER / "state"),
        "AIRFLOW_HOME": str(FOLDER / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "AIRFLOW__BINLAKE__PIPELINES": str(FOLDER / "pipelines"),
    }
    sys.path.append(str(ROOT / "tests" / "support"))
    return import_module("airflow_page")


def measured(client: Any, past: Any) -> Iterator[tuple[str, float, float]]:
    """Of each route the median seconds after a commit, and of asking again."""
    first: dict[str, list[float]] = {name: [] for name in ROUTES}
    again: dict[str, list[float]] = {name: [] for name in ROUTES}
    newest = past.run(BATCHES)
    for number in range(1, ROUNDS + 1):
        run = {"run": f"bench/{number}", "batch": BATCHES + number, "ended_us": newest["ended_us"] + number}
        past.metadata.append("runs", [{**newest, **run}])
        for name, route in ROUTES.items():
            first[name].append(seconds(client, route))
            again[name].append(seconds(client, route))
    for name in ROUTES:
        yield name, statistics.median(first[name]), statistics.median(again[name])


def seconds(client: Any, route: str) -> float:
    began = time.perf_counter()
    answer = client.get(route)
    took = time.perf_counter() - began
    assert answer.status_code == 200, (route, answer.text)
    return took


def main() -> None:
    shared = prepare()
    figures: list[Figure] = []
    with shared.airflow_server() as app:
        past = replace(shared.add(Path(FOLDER / "pipelines")), tables=TABLES, batches=BATCHES, changed=CHANGED)
        past.write(commits=12)
        print(f"{'the page, median of ' + str(ROUNDS):28} {'after a run':>12} {'again':>12}", flush=True)
        for name, first, again in measured(shared.viewer(app), past):
            missed = "" if first <= GOAL else f"   more than {GOAL * 1000:,.0f} ms"
            print(f"{name:28} {first * 1000:9,.1f} ms {again * 1000:9,.1f} ms{missed}", flush=True)
            figures += [(f"page, {name}, after a run", first * 1000, "ms"), (f"page, {name}", again * 1000, "ms")]
    keep(figures)
    shutil.rmtree(FOLDER)


if __name__ == "__main__":
    main()
