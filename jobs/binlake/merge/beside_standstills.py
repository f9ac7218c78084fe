"""Tables beside mirrors that a batch doesn't write: somebody else changed what binlake wrote, or it is lost.

A Delta log that lost its newest commit continues without a sign of it, a version lower, and lacks the rows of a batch.
So each is compared with the newest version that was noted of it before a batch writes it, as mirrors are. One that is
stopped stays so: it would lack the batches between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from binlake.config import PipelineConfig
from binlake.config.table_modes import BesideMode, beside_table
from binlake.delta.delta_log import LakeLog
from binlake.errors import LakeTableChanged, LogUnreadable, repair_beside
from binlake.merge.beside import BesideFailed
from binlake.planner.steps import BatchSteps, BesideSteps, Standstill
from binlake.records import table_versions, verified
from binlake.records.table_versions import KnownBeside
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.store.metadata import Metadata


def without_standing(config: PipelineConfig, metadata: Metadata, steps: BatchSteps, report: Report) -> BatchSteps:
    """Return a batch's steps in which tables beside mirrors that are stopped aren't written; each is said, and noted in
    metadata with its reason. Raises LakeError."""
    tables = [table for table in steps.beside if config.beside(table.name)]
    if not tables:
        return steps
    names = [TableName(table.name.database, beside_table(table.name.table, mode))
             for table in tables for mode in config.beside(table.name)]  # fmt: skip
    known = table_versions.known_beside(metadata, names)
    standing = [_without_standing(config, metadata, table, known, report) for table in steps.beside]
    return replace(steps, beside=tuple(standing))


def _without_standing(
    config: PipelineConfig, metadata: Metadata, table: BesideSteps, known: Mapping[str, KnownBeside], report: Report
) -> BesideSteps:
    standing = []
    for mode in config.beside(table.name):
        log = LakeLog.beside(config, table.name, mode)
        if not log.exists():
            continue
        own = TableName(table.name.database, beside_table(table.name.table, mode))
        table_id: str | None = None
        why: Standstill | None
        try:
            table_id = str(log.opened().metadata().id)
            why = standstill(log, table.name, mode, known.get(table_id))
        except LogUnreadable as error:
            table_id = table_id or table_versions.newest_id(metadata, own)
            why = Standstill(error.message, f"restore files of its log from a backup, or {_begin_again(log)}")
        if why is None:
            continue
        standing.append(mode)
        report.say(f"{own} is stopped: {why.reason}\n  → {why.remedy}")
        if table_id:
            verified.note_problem(metadata, table_id, own, why.reason)
    return replace(table, standing=tuple(standing))


def _begin_again(log: LakeLog) -> str:
    return f"move {log.path} away: it is begun again"


def without_failed(
    config: PipelineConfig, metadata: Metadata, steps: BatchSteps, failed: BesideFailed, report: Report
) -> BatchSteps:
    """Return a batch's steps in which a table beside a mirror isn't written any more, because a step of it failed; it
    is said, and noted in metadata with its reason."""
    own = TableName(failed.name.database, beside_table(failed.name.table, failed.mode))
    report.say(f"{own} is stopped: {failed}")
    log = LakeLog.beside(config, failed.name, failed.mode)
    table_id = str(log.opened().metadata().id) if log.exists() else verified.unbegun(own)
    verified.note_problem(metadata, table_id, own, failed.message)
    tables = (
        replace(table, standing=(*table.standing, failed.mode)) if table.name == failed.name else table
        for table in steps.beside
    )
    return replace(steps, beside=tuple(tables))


def standstill(log: LakeLog, name: TableName, mode: BesideMode, known: KnownBeside | None) -> Standstill | None:
    """Return why a table beside a mirror is stopped; None where it isn't. known: the newest note on it. Raises
    LakeError."""
    remedy = repair_beside(name)
    if known is None:
        return None
    try:
        if known.version is not None:
            log.refuse_others_beside(mode, str(name), known.version)
    except LakeTableChanged as error:
        return Standstill(error.message, remedy)
    if known.status == "stopped" and log.recorded() < 0:
        return Standstill(f"{log.path} is there, and isn't the {mode} of {name}", f"move {log.path} away")
    if known.status == "stopped":
        return Standstill(f"{log.path} lacks batches since it stood still", remedy)
    return None
