"""Mirrored tables as Airflow assets, and their events."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from binlake_airflow.compat import Asset, AssetAlias, events_since

if TYPE_CHECKING:
    from binlake.config import PipelineConfig
    from binlake.records.record import RunReport
    from binlake.store.metadata import Metadata
    from binlake_airflow.compat import Context

TableEvent = tuple[str, dict[str, Any]]
"""A table's name, and the ``extra`` of its asset's event."""
STANDING_STILL = ("stopped", "missing", "resnapshot")
_VERIFIED = "verified_through"
_CLOCKS_AGREE = timedelta(days=1)
"""The most that the clocks of Airflow's hosts may differ."""


def asset_alias(source: str) -> AssetAlias:
    """Return the alias for all tables of a source, as only the server knows which they are."""
    return AssetAlias(f"binlake/{source}")


def table_asset(source: str, table: str) -> Asset:
    """Return the asset of a mirrored table, on which DAGs can be scheduled. table: ``database.table``."""
    encoded = quote(table, safe=" ")
    return Asset(name=f"{source}/{table}", uri=f"binlake://{source}/{encoded.replace(' ', '%20')}")


def run_key(context: Context) -> str:
    """Return the id of this DAG run in metadata; retries and cleared tasks belong to the same run."""
    return f"{context['dag_run'].dag_id}/{context['dag_run'].run_id}"


def announce(context: Context, config: PipelineConfig, table_events: Iterable[TableEvent]) -> None:
    """Emit an asset event per table, except those that Airflow has already because the task was cleared after success.

    Airflow stores events together with a task's success, so a task that died has emitted none. Each event also has
    ``verified_through``, the batch up to which the table is known equal to the server.
    """
    from binlake.records import verified
    from binlake.store.metadata import metadata_of

    if not (events := list(table_events)):
        return
    source = config.source.name
    alias, through = asset_alias(source), verified.batches(config, metadata_of(config))
    since = context["dag_run"].run_after - _CLOCKS_AGREE
    known = [
        (event.asset.uri, {key: value for key, value in (event.extra or {}).items() if key != _VERIFIED})
        for event in events_since(context, alias, since)
    ]
    for table, extra in events:
        asset = table_asset(source, table)
        if (asset.uri, extra) not in known:
            context["outlet_events"][alias].add(asset, extra={**extra, _VERIFIED: through.get(table)})


def changes(report: RunReport) -> list[TableEvent]:
    """Return the events of the tables that a batch brought to its position."""
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


def repairs(metadata: Metadata, run: str) -> list[TableEvent]:
    """Return the events of the tables in which a run repaired rows."""
    from binlake.store.conditions import literal
    from binlake.store.run_rows import RepairRow

    repaired: dict[tuple[str, int | None], dict[str, Any]] = {}
    for row in sorted(RepairRow.read(metadata, where=f"run = {literal(run)}"), key=lambda row: row.at_us):
        extra = {name: getattr(row, name) for name in ("batch", "position", "delta_version")}
        repaired.setdefault((str(row.name), row.delta_version), {"repaired": 0, **extra})["repaired"] += row.rows or 0
    return [(table, extra) for (table, _), extra in repaired.items()]


def copies(metadata: Metadata, run: str) -> list[TableEvent]:
    """Return the events of the tables that a run's snapshots copied."""
    from binlake.records.record import tables_copied

    return [
        (
            table["table"],
            {"delta_version": table["delta_version"], "table_id": table["table_id"], "snapshot": True},
        )
        for table in tables_copied(metadata, run)
    ]
