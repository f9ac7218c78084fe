"""JSON answers about tables, with the keys of ``binlake status --json``, from metadata and Delta logs."""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import asdict
from datetime import UTC, tzinfo
from typing import Any

from binlake.config import PipelineConfig
from binlake.delta import delta_log
from binlake.errors import LakeError, UnsupportedColumn
from binlake.maintain.former_values import former_values
from binlake.records import ddl_history, filter_estimates, runs
from binlake.records.ddl_history import Moment
from binlake.records.evidence import comparisons
from binlake.records.runs import MutationCounts, Verified
from binlake.records.status import SnapshotStatus, TableStatus, read_status
from binlake.schema.invalid import InvalidValues
from binlake.schema.lake_columns import columns_of, own_columns
from binlake.schema.lake_forms import becomes
from binlake.schema.table import Column, TableName, TableSchema
from binlake.store.conditions import Newest, literal, rows_of
from binlake.store.metadata import now_us
from binlake.store.rows import WatermarkRow
from binlake.store.run_rows import RepairRow, RunRow, VerificationRow
from binlake.verify.result import MASK
from binlake_airflow.page.answers import DAY, HOUR, VERIFIED_DAYS, metadata_of, minute, problem, totals_of
from binlake_airflow.page.newest_changes import newest_changes
from binlake_airflow.page.remembered import RememberedMetadata
from binlake_airflow.page.sizes import Sizes, TableSize

TABLE_DAYS = 30
"""Days of a table's runs in an answer."""
COMMITS = 30
"""The most commits of a table's Delta history in an answer."""
CHANGES = 10
"""The most newest mutations of a table in an answer."""
MANY_SMALL_FILES = 100
"""Number of a table's small files from which upkeep seems not to run, or not to keep up with the syncs."""
_PATIENCE, _LONG_PATIENCE = 0.1, 3.0
"""Seconds that an answer waits for unknown sizes; the second, where somebody asked for nothing else."""
_sizes = Sizes()


def tables(config: PipelineConfig) -> dict[str, Any]:
    """Return all tables of a source: status, changes, size, and last verification of each."""
    metadata = metadata_of(config)
    now = now_us()
    status = read_status(config, metadata)
    since = now - int(config.maintain.runs_days * DAY)
    total = totals_of(metadata).since(since)
    day, hour = (runs.changes_since(metadata, minute(now - span)) for span in (DAY, HOUR))
    marks = _marks(metadata)
    sizes = _sizes_of(config, metadata, marks, _PATIENCE)
    verified = comparisons(metadata, status)
    copying = {copy.table: _copied(copy) for copy in status.snapshots}
    first = [TableStatus(table, "bootstrapping") for table in copying.keys() - {row.table for row in status.tables}]
    rows = [
        {
            **row.to_json(),
            "updated_us": marks[row.table].updated_us if row.table in marks else None,
            "total": _changed(total.get(row.table)),
            "day": _changed(day.get(row.table)),
            "hour": _changed(hour.get(row.table)),
            "size": _size(sizes.get(row.table)),
            "verified": _verified(verified.get(row.table)),
            "snapshot": copying.get(row.table),
        }
        for row in (*status.tables, *first)
    ]
    return {"source": config.source.name, "tables": rows, "total_since_us": since, "now_us": now}


def _copied(copy: SnapshotStatus) -> dict[str, Any]:
    return {name: value for name, value in asdict(copy).items() if name != "table"}


def _marks(metadata: RememberedMetadata) -> dict[str, WatermarkRow]:
    """Return the watermark of each table, with the columns that the list needs."""
    wanted = ("table_id", "database", "table", "status", "delta_version", "updated_us")
    rows = sorted(WatermarkRow.read(metadata, *wanted), key=lambda row: row.status != "dropped")
    return {str(row.name): row for row in rows}


def _sizes_of(
    config: PipelineConfig, metadata: RememberedMetadata, marks: dict[str, WatermarkRow], patience: float
) -> dict[str, TableSize]:
    """Return the known sizes by name. A table is measured again after a batch changed it, or the upkeep ran."""
    kept = RunRow.first(metadata, "ended_us", where="kind = 'maintain'", newest=Newest("ended_us", 1))
    upkeep = kept.ended_us if kept else None
    paths = {name: config.table_path(row.name) for name, row in marks.items()}
    stamps: dict[str, Hashable] = {
        paths[name]: (row.table_id, row.delta_version, row.updated_us, upkeep) for name, row in marks.items()
    }
    known = _sizes.of(stamps, config.maintain.file_bytes, patience)
    return {name: known[path] for name, path in paths.items() if path in known}


def sizes_of_lake(config: PipelineConfig) -> dict[str, Any]:
    """Return where the lake is, its tables, and the bytes of the newest versions' data files, as far as they are
    known within moments: ``unmeasured`` tables aren't in the sum."""
    metadata = metadata_of(config)
    marks = _marks(metadata)
    sizes = _sizes_of(config, metadata, marks, _LONG_PATIENCE)
    return {
        "lake": config.root,
        "tables": len(marks),
        "bytes": sum(size.bytes for size in sizes.values()),
        "unmeasured": sum(name not in sizes and row.has_life for name, row in marks.items()),
    }


def unreadable(config: PipelineConfig) -> dict[str, str]:
    """Return why tables that follow the log can't be read, by ``database.table``, as far as they were measured."""
    marks = _marks(metadata_of(config)).items()
    return _sizes.unreadable({name: config.table_path(row.name) for name, row in marks if row.status == "following"})


def _size(size: TableSize | None) -> dict[str, Any] | None:
    return {**vars(size), "many_small": size.small >= MANY_SMALL_FILES} if size else None


def _changed(counts: MutationCounts | None) -> dict[str, int] | None:
    return dict(vars(counts)) if counts else None  # faster than asdict, as it is flat


def _verified(verified: Verified | None) -> dict[str, Any] | None:
    return dict(vars(verified)) if verified else None


def table(
    config: PipelineConfig, name: str, at: str | None = None, *, with_keys: bool = False, zone: tzinfo = UTC
) -> dict[str, Any] | None:
    """Return one table by ``database.table``; None if the source has none of that name.

    at: ``FILE:POS`` or a time, for the table's columns then. with_keys: include keys of the newest mutations, and all
    values if the YAML's section ``page`` says so. zone: whose days those are on which it was compared. Raises
    UsageError if nothing is known of the table at ``at``.
    """
    metadata = metadata_of(config)
    now = now_us()
    status = read_status(config, metadata)
    row = next((row for row in status.tables if row.table == name), None)
    if row is None:
        return None
    table_name = _name_of(metadata, row.table_id, name)
    schema = ddl_history.schema_now(metadata, row.table_id) if row.table_id else None
    mark = {name: watermark for name, watermark in _marks(metadata).items() if name == row.table}
    kept = ("batch", "file", "offset", "committed_us", "statement", "kind", "action", "reason")
    since, calendar = (minute(now - days * DAY) for days in (TABLE_DAYS, VERIFIED_DAYS))
    with_values = with_keys and config.page.show_values
    return {
        **row.to_json(),
        "source": config.source.name,
        "path": config.table_path(table_name),
        "size": _size(_sizes_of(config, metadata, mark, _PATIENCE).get(name)),
        "schema": _schema(schema, config.invalid) if schema else None,
        "filter_estimate": _filter_estimate(metadata, table_name, schema) if schema else None,
        "shape": _shape(config, metadata, table_name, at) if at else None,
        "verified": _verified(comparisons(metadata, status).get(name)),
        "repair": config.verify.repair,
        "verifications": [
            asdict(day) for day in runs.verified_days(metadata, table_name, since_us=calendar, zone=zone)
        ],
        "history": [
            {key: getattr(entry, key) for key in kept} for entry in ddl_history.statements(metadata, table_name)
        ],
        "runs": [
            {"batch": run.batch, "ended_us": run.ended_us, "phases": run.phases, **asdict(run.did)}
            for run in runs.of_table(metadata, name, since_us=since)
        ],
        "runs_days": TABLE_DAYS,
        **_commits(config.table_path(table_name)),
        "newest": {
            **asdict(
                newest_changes(
                    config, metadata, table_name, CHANGES, with_key=with_keys, with_values=with_values, schema=schema
                )
            ),
            "with_keys": with_keys,
            "with_values": with_values,
        },
        "former": _former(config, metadata, table_name),
        "repaired": _repaired(config, metadata, table_name, with_keys=with_keys),
        "differing": differing(config, table_name, with_keys=with_keys),
        "now_us": now,
    }


def differing(config: PipelineConfig, name: TableName, *, with_keys: bool) -> dict[str, Any] | None:
    """Return the rows that differed when a table was compared last; None if it was equal, or never compared.

    with_keys: include their keys, as far as they were noted, without values of columns that are masked now. more: how
    many other rows are known to differ.
    """
    where, columns = rows_of(name), ("at_us", "equal", "differing_rows", "rows")
    last = VerificationRow.first(metadata_of(config), *columns, where=where, newest=Newest("at_us", 1))
    if last is None or last.equal is not False:
        return None
    masked, rows = config.masked_on_page(name), json.loads(last.rows or "[]")
    named = sum(row["count"] for row in rows)
    return {
        "at_us": last.at_us,
        "rows": [{**row, "key": _unmasked(row["key"], masked) if with_keys and row["key"] else None} for row in rows],
        "more": max(0, (last.differing_rows or 0) - named),
        "with_keys": with_keys,
    }


def _repaired(
    config: PipelineConfig, metadata: RememberedMetadata, name: TableName, *, with_keys: bool
) -> list[dict[str, Any]]:
    """Return the newest rows that repairs put right, with what was noted of their keys, for users who may see keys."""
    where = f"database = {literal(name.database)} AND table = {literal(name.table)}"
    shown = ("at_us", "batch", "kind", "rows")
    rows = RepairRow.read(metadata, *shown, "columns", "key", where=where)
    masked = config.masked_on_page(name)
    return [
        {
            **{column: getattr(row, column) for column in shown},
            "columns": json.loads(row.columns),
            "key": _unmasked(json.loads(row.key), masked) if with_keys else None,
        }
        for row in sorted(rows, key=lambda row: row.at_us, reverse=True)[:CHANGES]
    ]


def _former(config: PipelineConfig, metadata: RememberedMetadata, name: TableName) -> dict[str, Any] | None:
    """Return what earlier versions of a table have that is withheld by now, and what removes it; None where they have
    nothing of it."""
    try:
        kept = former_values(config, metadata, name)
    except LakeError:
        return None  # other parts of the page say what is wrong with the lake
    return asdict(kept[0]) if kept else None


def _filter_estimate(metadata: RememberedMetadata, name: TableName, schema: TableSchema) -> dict[str, int] | None:
    """Return about how many rows a table's conditions left when it was copied; None where that isn't known."""
    estimate = filter_estimates.of_table(metadata, name, schema)
    return {"rows": estimate.rows, "left": estimate.left, "at_us": estimate.at_us} if estimate else None


def _unmasked(key: dict[str, Any], masked: frozenset[str]) -> dict[str, Any]:
    """Return a key without values of columns that are masked now."""
    return {name: MASK if name.lower() in masked else value for name, value in key.items()}


def _commits(path: str) -> dict[str, Any]:
    """Return the Delta history, or why it can't be read, which must not hide anything else."""
    try:
        return {"commits": [asdict(commit) for commit in delta_log.commits(path, COMMITS)], "commits_problem": None}
    except LakeError as error:
        return {"commits": [], "commits_problem": problem(error)}


def _shape(config: PipelineConfig, metadata: RememberedMetadata, name: TableName, at: str) -> dict[str, Any]:
    shape = ddl_history.shape_at(metadata, name, Moment.parse(at, "at"))
    return {
        "at": at,
        "position": shape.position,
        "at_us": shape.at_us,
        "schema": _schema(shape.schema, config.invalid) if shape.schema else None,
    }


def _name_of(metadata: RememberedMetadata, table_id: str | None, name: str) -> TableName:
    """Return a table's name in its two parts, either of which may contain a dot."""
    for row in WatermarkRow.read(metadata, "table_id", "database", "table"):
        if row.table_id == table_id:
            return row.name
    return TableName(*name.split(".", 1))


def _lake_types(column: Column, invalid: InvalidValues) -> dict[str, str]:
    """Return the types of the columns that the lake has of a column, by their names; none if it can't be mirrored."""
    try:
        return {here.name: here.delta for here in columns_of([column.shown], invalid)}
    except UnsupportedColumn:
        return {}


def _schema(schema: TableSchema, invalid: InvalidValues) -> dict[str, Any]:
    mirrored, logged = set(schema.mirrored), set(schema.logged)
    return {
        "columns": [
            {
                "name": column.served_name,
                "type": column.declared,
                "values": list(column.values) if column in logged else [],
                "lake": _lake_types(column, invalid) if column.shown in mirrored else {},
                "becomes": becomes(column, schema),
                "nullable": column.nullable,
                "charset": column.charset,
                "default": column.default if column.shown in logged else None,
                "comment": column.comment,
            }
            for column in schema.columns
        ],
        "key": [schema.column(name).served_name for name in schema.key],
        "key_kind": schema.key_kind,
        "own": {column.name: column.delta for column in own_columns(schema)},
        "comment": schema.comment,
        "where": schema.where,
        "snapshot_where": schema.snapshot_where,
    }
