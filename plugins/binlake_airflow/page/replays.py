"""Tables that replays built beside the lake's own, with a line that queries each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from binlake.config import PipelineConfig
from binlake.delta import opened_tables
from binlake.store.conditions import Newest
from binlake.store.metadata import now_us
from binlake.store.run_rows import RunRow
from binlake_airflow.page.answers import metadata_of

REPLAYS = 20
"""The most replays, and the most tables of them, in an answer."""
_SHOWN = ("table", "batch", "rows", "path", "equals_version")


def replays(config: PipelineConfig) -> dict[str, Any]:
    """Return the newest tables that were built, each once, and whether it is still there."""
    built: dict[str, dict[str, Any]] = {}
    for table in _built(config):
        built.setdefault(table["path"], table)
    rows = [{**table, "is_there": opened_tables.is_table(table["path"])} for table in list(built.values())[:REPLAYS]]
    return {"source": config.source.name, "replays": rows, "now_us": now_us()}


def _built(config: PipelineConfig) -> Iterator[dict[str, Any]]:
    columns, newest = ("tables", "ended_us"), Newest("ended_us", REPLAYS)
    for run in RunRow.read(metadata_of(config), *columns, where="kind = 'replay'", newest=newest):
        for table in json.loads(run.tables or "[]"):
            yield {**{key: table[key] for key in _SHOWN}, "at_us": run.ended_us, "query": _query(table["path"])}


def _query(path: str) -> str:
    """Return a line of Python that prints the first rows of a Delta table; deltalake reads what a replay writes."""
    opened = f"DeltaTable({json.dumps(path)})"
    return (
        "from deltalake import DeltaTable, QueryBuilder; "
        f'print(QueryBuilder().register("t", {opened}).execute("SELECT * FROM t LIMIT 10").read_all())'
    )
