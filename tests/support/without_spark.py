"""A source's lake that is synced, verified and repaired by a process that must not start Spark."""

from __future__ import annotations

from typing import Any, NoReturn

import pyarrow as pa
import pytest

from binlake import pipeline
from binlake.delta import delta_commits, opened_tables, plain_tables
from binlake.delta.plain_files import added_file
from binlake.phases.verification import RepairRequest, VerifyRequest
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.store.metadata import query
from binlake.verify.result import TableResult, VerifyReport
from mirror import Mirror


def verify(mirror: Mirror, *patterns: str) -> VerifyReport:
    return pipeline.verify(mirror.config, mirror.origin, no_spark, Report(), VerifyRequest(list(patterns) or None))


def no_spark(why: str) -> NoReturn:
    pytest.fail(f"Spark was asked for: {why}")  # no error of code, which would cost its table alone


def result(mirror: Mirror, table: str) -> TableResult:
    (compared,) = verify(mirror, f"{mirror.database}.{table}").tables
    return compared


def path(mirror: Mirror, table: str) -> str:
    return mirror.config.table_path(TableName(mirror.database, table))


def rows(mirror: Mirror, table: str) -> pa.Table:
    return query(path(mirror, table))


def put(mirror: Mirror, table: str, changed: pa.Table) -> None:
    """Let the lake have other rows, as a foreign writer would."""
    place = path(mirror, table)
    log = opened_tables.opened(place)
    adds = plain_tables.actions_of(log, place, pa.table(log.get_add_actions())["path"].to_pylist())
    fields = {field["name"]: field for field in plain_tables.fields_of(log)}
    stored = pa.schema([plain_tables.stored_field(fields[field.name], field.type) for field in changed.schema])
    added = added_file(place, pa.Table.from_arrays(changed.columns, schema=stored))
    info = {"commitInfo": {"operation": "WRITE", "timestamp": plain_tables.now()}}
    delta_commits.commit(log, place, [info, *map(plain_tables.removed, adds), {"add": added}])


def sync(mirror: Mirror) -> None:
    pipeline.sync(mirror.config, mirror.origin, no_spark, Report())


def repair(mirror: Mirror, **options: Any) -> VerifyReport:
    return pipeline.repair(mirror.config, mirror.origin, no_spark, Report(), RepairRequest(**options))
