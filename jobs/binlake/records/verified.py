"""How far each table is known equal to the server, by the chunks that verifications noted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from binlake.config import PipelineConfig
from binlake.schema.table import TableName
from binlake.store.conditions import literal
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import WatermarkRow
from binlake.store.run_rows import VerificationRow, VerifiedRow


@dataclass(frozen=True)
class VerifiedThrough:
    """The batch and position up to which every chunk of a table is known equal, and when the first of them was read."""

    batch: int
    position: str | None
    at_us: int | None


@dataclass(frozen=True)
class VerifiedTables:
    """The results that verifications noted, by table id.

    through: up to where tables are known equal. problems: what was wrong with the files of a table when they were to be
    compared last, or why it is stopped. names: of tables with a problem.
    """

    through: dict[str, VerifiedThrough]
    problems: dict[str, str]
    names: dict[str, TableName]


def read(metadata: Metadata) -> VerifiedTables:
    """Return what verifications noted."""
    oldest: dict[str, VerifiedRow] = {}
    problems: dict[str, str] = {}
    names: dict[str, TableName] = {}
    columns = ("table_id", "database", "table", "batch", "position", "at_us", "problem")
    for row in VerifiedRow.read(metadata, *columns):
        if row.problem is not None:
            problems[row.table_id] = row.problem
            names[row.table_id] = row.name
        known = oldest.setdefault(row.table_id, row)
        if known.batch is not None and (row.batch is None or row.batch < known.batch):
            oldest[row.table_id] = row
    through = {
        table_id: VerifiedThrough(row.batch, row.position, row.at_us)
        for table_id, row in oldest.items()
        if row.batch is not None and table_id not in problems
    }
    return VerifiedTables(through, problems, names)


def unbegun(name: TableName) -> str:
    """Return the id under which is noted why a table beside a mirror couldn't be begun. It has none of Delta's yet."""
    return f"unbegun:{name}"


def note_problem(metadata: Metadata, table_id: str, name: TableName, problem: str) -> None:
    """Note what is wrong with a table, in the place of what was noted of it; nothing where that is noted by now."""
    where = f"table_id = {literal(table_id)}"
    if any(row.problem == problem for row in VerifiedRow.read(metadata, "problem", where=where)):
        return
    row = VerifiedRow(table_id=table_id, **vars(name), chunk=0, chunks=1, problem=problem, at_us=now_us())
    VerifiedRow.replace(metadata, where, [row])


def forget_equal(metadata: Metadata) -> None:
    """Forget up to where tables are known equal: the next comparison reads them whole. Problems stay noted."""
    rows = VerifiedRow.read(metadata)
    kept = [row for row in rows if row.problem is not None]
    if len(kept) < len(rows):
        VerifiedRow.replace(metadata, "true", kept)


def batches(config: PipelineConfig, metadata: Metadata) -> dict[str, int | None]:
    """Return the batch up to which each table that follows the log is known equal, by ``database.table``; None where
    that isn't known. Tables that aren't verified are left out: those without a mirror, or that the YAML leaves out."""
    by_life = read(metadata).through
    lives = WatermarkRow.read(metadata, "table_id", "database", "table", where="status = 'following'")
    named = {row.name: row.table_id for row in lives}
    return {
        str(name): by_life[life].batch if life in by_life else None
        for name, life in named.items()
        if config.included(name) and config.is_read(name)
    }


def least(through: Iterable[int | None]) -> int | None:
    """Return the batch up to which all of some tables are known equal; None where that isn't known of one."""
    numbers = [-1 if batch is None else batch for batch in through]
    lowest = min(numbers, default=-1)
    return None if lowest < 0 else lowest


def differs_since(metadata: Metadata, at_us: int) -> bool:
    """Return whether a comparison that ended since a time, in microseconds, found a table to differ."""
    return VerificationRow.count(metadata, f"at_us >= {at_us} AND equal = false") > 0
