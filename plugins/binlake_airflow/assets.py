"""Mirrored tables as Airflow's assets, and what their events tell."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias

if TYPE_CHECKING:
    from airflow.sdk import Context

    from binlake.metadata.metadata import Metadata
    from binlake.metadata.record import RunReport

Told = tuple[str, dict[str, Any]]
"""A table, and what its asset's event tells."""
STANDING_STILL = ("stopped", "missing", "resnapshot")
_CLOCKS_AGREE = timedelta(days=1)
"""How far the clocks of Airflow's hosts may differ at most."""


def asset_alias(source: str) -> AssetAlias:
    """Stands for all tables of a source: which these are, only the server knows."""
    return AssetAlias(f"binlake/{source}")


def table_asset(source: str, table: str) -> Asset:
    """One mirrored table; ``table`` is ``database.table``. DAGs can be scheduled on it."""
    encoded = quote(table, safe=" ")
    return Asset(name=f"{source}/{table}", uri=f"binlake://{source}/{encoded.replace(' ', '%20')}")


def run_key(context: Context) -> str:
    """What metadata calls this DAG run in what it records; its retries and its cleared tasks are the same run."""
    return f"{context['dag_run'].dag_id}/{context['dag_run'].run_id}"


def announce(context: Context, source: str, told: Iterable[Told]) -> None:
    """An asset event for each table, but for those that Airflow has already: the task was cleared after its success.

    Airflow keeps events together with a task's success, so a task that died announced nothing.
    """
    if not (events := list(told)):
        return
    alias = asset_alias(source)
    since = context["dag_run"].run_after - _CLOCKS_AGREE
    known = [(event.asset.uri, event.extra) for event in context["inlet_events"][alias].after(since.isoformat())]
    for table, extra in events:
        asset = table_asset(source, table)
        if (asset.uri, extra) not in known:
            context["outlet_events"][alias].add(asset, extra=extra)


def changes(report: RunReport) -> list[Told]:
    """Of each table that a batch brought up to its position."""
    return [
        (
            table.table,
            {
                "inserted": table.inserted, "updated": table.updated, "deleted": table.deleted,
                "batch": report.batch, "position": report.position, "delta_version": table.delta_version,
            },
        )
        for table in report.tables
        if table.status not in STANDING_STILL
    ]  # fmt: skip


def copies(metadata: Metadata, run: str) -> list[Told]:
    """Of each table that a run's snapshots copied."""
    from binlake.phases.bootstrap import tables_copied

    return [
        (
            table["table"],
            {"delta_version": table["delta_version"], "table_id": table["table_id"], "snapshot": True},
        )
        for table in tables_copied(metadata, run)
    ]
