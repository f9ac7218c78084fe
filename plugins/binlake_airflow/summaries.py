"""Results of tasks for XCom: only counts, and where the details are, since a source may have a thousand tables, and
XCom is in Airflow's own database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from binlake_airflow.assets import STANDING_STILL

if TYPE_CHECKING:
    from binlake.config import PipelineConfig
    from binlake.records.record import RunReport
    from binlake.store.metadata import Metadata

_NAMED = 20
"""The most names in a summary."""


def first(names: Iterable[str]) -> list[str]:
    """Return the first few of the names, as many as a summary has."""
    return list(names)[:_NAMED]


def of_run(metadata: Metadata, report: RunReport) -> dict[str, Any]:
    """Summarize a batch. tables: how many it changed or found not following. standing_still: the first of the latter.

    The batch's row in ``runs`` has what it did to each table.
    """
    return {
        "batch": report.batch, "position": report.position, "message": report.message,
        "mutations": report.mutations, "bytes": report.bytes, "phases": dict(report.phases),
        "tables": len(report.tables),
        "standing_still": first(table.table for table in report.tables if table.status in STANDING_STILL),
        "runs": metadata.location("runs"),
    }  # fmt: skip


def of_sync(metadata: Metadata, result: Mapping[str, Any], recorded: Sequence[RunReport]) -> dict[str, Any]:
    """Summarize a sync. result: the sync's. recorded: its batches, each of which has a row in ``runs``."""
    tables = {table.table: table for report in recorded for table in report.tables}
    return {
        **{name: result[name] for name in ("batch", "position", "message")},
        "batches": [report.batch for report in recorded],
        "mutations": sum(report.mutations for report in recorded),
        "bytes": sum(report.bytes for report in recorded),
        "tables": len(tables),
        "standing_still": first(name for name, table in tables.items() if table.status in STANDING_STILL),
        "runs": metadata.location("runs"),
    }


def of_snapshots(metadata: Metadata, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarize snapshots; ``runs``, kind bootstrap, has those of each table."""
    return {**_summed(results, "rows", "bytes"), "runs": metadata.location("runs")}


def of_replays(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums of the replays, and the first few tables' paths."""
    return {**_summed(results, "rows"), "paths": first(table["path"] for table in results)}


def of_verification(config: PipelineConfig, metadata: Metadata, result: Mapping[str, Any]) -> dict[str, Any]:
    """Summarize a verification whose tables are all equal; ``verifications`` has those of each table.

    verified_through: the batch up to which each table that follows the log is known equal; None where one never was
    verified by reading.
    """
    from binlake.records import verified

    compared = [table for table in result["tables"] if table["state"] == "compared"]
    return {
        "equal": result["equal"], "position": result["position"], "seconds": result["seconds"],
        "tables": len(compared),
        "rows": sum(table["source_rows"] for table in compared),
        "chunks": sum(table["chunks"] for table in compared),
        "verified_through": verified.least(verified.batches(config, metadata).values()),
        "verifications": metadata.location("verifications"),
    }  # fmt: skip


def of_maintenance(metadata: Metadata, result: Mapping[str, Any]) -> dict[str, Any]:
    """Summarize an upkeep; ``runs``, kind maintain, has that of each table."""
    counts = _summed(result["tables"], "rewritten_files", "written_files", "removed_files", "removed_log_files")
    return {**counts, "seconds": result["seconds"], "runs": metadata.location("runs")}


def _summed(tables: Sequence[Mapping[str, Any]], *numbers: str) -> dict[str, Any]:
    return {"tables": len(tables), **{number: sum(table[number] for table in tables) for number in numbers}}
