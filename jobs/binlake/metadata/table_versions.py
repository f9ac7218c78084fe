"""The Delta version that each table has at each batch, in the metadata table ``lake_versions``.

A batch's own row, without a table id, holds its position. The other rows say from which batch on a life of a table is
at a Delta version: it stays there until the life's next row. A row without a Delta version says from which batch on
the life isn't at the batches' positions, and why (its status). So a batch writes rows of what it changed alone.

Of several rows of a life in one batch the one of the last kind counts:

    snapshot   the life begins with a snapshot before the batch, or ends because another life takes its name
    base       the batch changed it, and rows of earlier batches don't count: not all of these were noted
    batch      the batch changed it
    beside     once the batch was recorded, it was changed beside the log: a catch-up, a replay, a range of keys, upkeep

``position`` of a table's row: where the life is consistent first, if no batch had reached that yet. Versions are those
of batches that reach it.

A table beside a mirror has rows like a life, under the id that Delta gave it: where its folder was moved away, another
begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from binlake.batch.outcome import BesideOutcome, LifeOutcome
from binlake.batch.steps import Life
from binlake.metadata import lease
from binlake.metadata.lease import OpenBatch
from binlake.metadata.metadata import Metadata, Newest, literal, now_us, rows_of
from binlake.position import Position
from binlake.schema.table import TableName
from binlake.serialization import loads

TABLE = "lake_versions"
RowKind = Literal["snapshot", "base", "batch", "beside"]
KINDS: tuple[RowKind, ...] = ("snapshot", "base", "batch", "beside")
"""The kinds of rows, in their order within a batch."""
SINCE = "readable_since"
NEVER = 1 << 62
"""More than any Delta version: the table's folder was removed."""
_OF_BATCHES = "kind IN ('base', 'batch')"

MetadataRow = dict[str, Any]


def note_batch(
    metadata: Metadata, plan: OpenBatch, rows: Mapping[str, MetadataRow], listed: Callable[[TableName], bool]
) -> None:
    """Write the rows of a merged batch in one commit, which can be repeated.

    rows: the watermarks after the batch, by life. listed: tells whether a table belongs to the lake's versions, which
    ghost tables and mirrors without rows don't.
    """
    kind: RowKind = "batch" if plan.batch == 1 or _is_noted(metadata, plan.batch - 1) else "base"
    changed = {life.id: life for life in plan.outcome.lives if listed(life.name)}
    beside = plan.outcome.beside
    written = [_after(plan, life, rows.get(life.id)) for life in changed.values()]
    written += [_of_beside(table) for table in beside] + _replaced_beside(metadata, plan.batch, beside)
    others = [row for key, row in rows.items() if row.get("low") and key not in changed and listed(_name(row))]
    if kind == "base":
        written += [_standing(row, plan.range.stop) for row in others]
    else:
        left = [row for row in others if row["status"] != "following"]
        written += [_standing(row, plan.range.stop) for row in _left_since(metadata, plan.batch, left)]
    own = {
        "position": str(plan.range.stop),
        "gtid_set": plan.range.stop.gtid_set,
        "committed_us": plan.committed_us or plan.until_us or plan.planned_us,
    }
    metadata.replace(
        TABLE,
        f"batch = {plan.batch} AND {_OF_BATCHES}",
        [_stamped(row, plan.batch, kind, began_us=plan.planned_us) for row in (own, *written)],
    )


def note_snapshot(
    metadata: Metadata,
    batch: int,
    lives: Sequence[Life],
    versions: Mapping[str, int],
    ended: Iterable[MetadataRow],
    *,
    began_us: int,
) -> None:
    """Write rows of lives that begin with a snapshot, and of those that end.

    batch: the first that finds them. versions: Delta versions by life. ended: watermarks. began_us: before the
    snapshots' commits.
    """
    ids = {life.id for life in lives}
    gone = [
        _row(row["table_id"], _name(row), "dropped") for row in ended if row.get("low") and row["table_id"] not in ids
    ]
    begun = [_row(life.id, life.name, "following", versions.get(life.id), str(life.high)) for life in lives]
    rows = [*begun, *gone]
    if not rows:
        return
    metadata.replace(
        TABLE,
        f"batch = {batch} AND kind = 'snapshot' AND table_id IN ({_listed(row['table_id'] for row in rows)})",
        [_stamped(row, batch, "snapshot", began_us=began_us) for row in rows],
    )


def note_beside(
    metadata: Metadata,
    watermarks: Iterable[MetadataRow],
    listed: Callable[[TableName], bool],
    *,
    began_us: int,
) -> None:
    """Write rows of lives whose Delta tables were changed beside the log; those that don't follow it are left out.

    listed: see ``note_batch``. began_us: before the commits that changed them. No batch may be open.
    """
    rows = {row["table_id"]: row for row in watermarks if row["status"] == "following" and listed(_name(row))}
    recorded = lease.read(metadata).recorded_state
    if not rows or recorded is None:
        return
    ids, batch = _listed(rows), recorded.batch
    begun = f"batch = {batch + 1} AND kind = 'snapshot'"
    beginning = {
        row["table_id"] for row in metadata.read(TABLE, ["table_id"], where=f"{begun} AND table_id IN ({ids})")
    }
    written = []
    for key, row in rows.items():
        of_batch: tuple[int, RowKind] = (batch + 1, "snapshot") if key in beginning else (batch, "beside")
        written.append(_stamped(_standing(row, recorded.position), *of_batch, began_us=began_us))
    metadata.replace(TABLE, f"table_id IN ({ids}) AND ((batch = {batch} AND kind = 'beside') OR ({begun}))", written)


def note_upkeep_beside(metadata: Metadata, tables: Sequence[BesideOutcome], *, began_us: int) -> None:
    """Write rows of tables beside mirrors whose files were changed beside the log, and their rows weren't.

    Only of those that the newest batch has. began_us, and open batches: as of ``note_beside``.
    """
    recorded = lease.read(metadata).recorded_state
    if not tables or recorded is None:
        return
    last = _last_rows(metadata, f"table_id IN ({_listed(table.table_id for table in tables)})")
    moved = [
        table
        for table in tables
        if last.get(table.table_id, _NO_VERSION)["delta_version"] not in (None, table.delta_version)
    ]
    if moved:
        ids = _listed(table.table_id for table in moved)
        written = [_stamped(_of_beside(table), recorded.batch, "beside", began_us=began_us) for table in moved]
        metadata.replace(TABLE, f"table_id IN ({ids}) AND batch = {recorded.batch} AND kind = 'beside'", written)


def note_readable_since(metadata: Metadata, name: TableName, version: int) -> list[MetadataRow]:
    """Write that Delta versions before this one of all lives that were called ``name`` can't be read any more; return
    what was noted of them before.

    It is written before files are removed, so that nobody is told of a version whose files are going. version: NEVER
    where the folder is removed.
    """
    noted = metadata.read(SINCE, where=rows_of(name))
    known = {row["table_id"]: row["delta_version"] for row in noted}
    lives = {row["table_id"] for row in metadata.read(TABLE, ["table_id"], where=rows_of(name))}
    moved = [life for life in lives if known.get(life, 0) < version]
    _note_since(metadata, name, moved, version)
    return noted


def _note_since(metadata: Metadata, name: TableName, lives: Iterable[str], version: int) -> None:
    about = {"database": name.database, "table": name.table, "delta_version": version, "at_us": now_us()}
    if ids := sorted(lives):
        rows = [{"table_id": life, **about} for life in ids]
        metadata.replace(SINCE, f"{rows_of(name)} AND table_id IN ({_listed(ids)})", rows)


def restore_readable_since(metadata: Metadata, name: TableName, noted: Sequence[MetadataRow]) -> None:
    """Write what was noted before, where no file is removed after all."""
    metadata.replace(SINCE, rows_of(name), noted)


def expire(metadata: Metadata, before_us: int) -> int:
    """Remove the rows of batches recorded before a time, and return their number.

    What later batches and pinned ones still count by stays, and so do the newest batch and those of kind base.
    """
    own = metadata.read(TABLE, ["batch", "kind", "at_us"], where="table_id IS NULL")
    recent = [row["batch"] for row in own if row["at_us"] >= before_us]
    first = min(recent, default=max((row["batch"] for row in own), default=0))
    if all(row["batch"] >= first for row in own):
        return 0
    staying = {row["batch"] for row in metadata.read("pins", ["batch"])}
    staying |= {row["batch"] for row in own if row["kind"] == "base"}
    old = metadata.read(TABLE, where=f"batch < {first}")
    kept = [row for row in old if row["table_id"] is None and row["batch"] in staying]
    kept += _still_counting([row for row in old if row["table_id"] is not None], {*staying, first})
    if len(kept) < len(old):
        metadata.replace(TABLE, f"batch < {first}", kept)
        lives = {row["table_id"] for row in metadata.read(TABLE, ["table_id"], where="table_id IS NOT NULL")}
        if gone := {row["table_id"] for row in metadata.read(SINCE, ["table_id"])} - lives:
            metadata.replace(SINCE, f"table_id IN ({_listed(gone)})", [])
    return len(old) - len(kept)


def _still_counting(rows: Sequence[MetadataRow], batches: Iterable[int]) -> list[MetadataRow]:
    """Return the newest row of each life at or before each of some batches."""
    ordered = sorted(rows, key=lambda row: (row["batch"], KINDS.index(row["kind"])))
    counting: dict[int, MetadataRow] = {}
    for batch in batches:
        newest = {row["table_id"]: row for row in ordered if row["batch"] <= batch}
        counting |= {id(row): row for row in newest.values()}
    return list(counting.values())


def _is_noted(metadata: Metadata, batch: int) -> bool:
    """Tell whether a batch's own row is there: it isn't where an older binlake recorded the batch."""
    return metadata.count(TABLE, f"batch = {batch} AND table_id IS NULL") > 0


def _after(plan: OpenBatch, life: LifeOutcome, row: MetadataRow | None) -> MetadataRow:
    """Return the row of a life that the batch changed. row: its watermark after the batch, if it still has one."""
    if life.status == "following" and row is not None:
        return _row(life.id, life.name, life.status, row["delta_version"], _unreached(life.high, plan.range.stop))
    return _row(life.id, life.name, life.status)


def _left_since(metadata: Metadata, batch: int, rows: Sequence[MetadataRow]) -> list[MetadataRow]:
    """Return those of the watermarks, of lives that don't follow the log, that earlier batches still found at a
    version."""
    if not rows:
        return []
    where = f"table_id IN ({_listed(row['table_id'] for row in rows)}) AND (batch < {batch} OR kind = 'snapshot')"
    last = _last_rows(metadata, where)
    return [row for row in rows if last.get(row["table_id"], _NO_VERSION)["delta_version"] is not None]


def _last_rows(metadata: Metadata, where: str) -> dict[str, MetadataRow]:
    """Return of the rows that meet a condition the one that counts last, by life."""
    columns = ["table_id", "database", "table", "batch", "kind", "delta_version"]
    newest = metadata.read(TABLE, columns, where=where, newest=_NEWEST)
    return {row["table_id"]: row for row in sorted(newest, key=lambda row: (row["batch"], KINDS.index(row["kind"])))}


def _of_beside(table: BesideOutcome) -> MetadataRow:
    return _row(table.table_id, table.name, table.status, table.delta_version)


def _replaced_beside(metadata: Metadata, batch: int, tables: Sequence[BesideOutcome]) -> list[MetadataRow]:
    """Return rows that end the versions of tables in whose place these are, and note that they can't be read: somebody
    moved their folders away."""
    before = metadata.read(TABLE, ["table_id"], where=f"batch = {batch - 1} AND {_OF_BATCHES}") if tables else []
    known = {row["table_id"] for row in before}
    new = [table for table in tables if table.table_id not in known]  # who was there before them was looked up then
    if not new:
        return []
    here = _listed(table.table_id for table in new)
    named = " OR ".join(f"({rows_of(table.name)})" for table in new)
    others = _last_rows(metadata, f"({named}) AND table_id NOT IN ({here}) AND batch < {batch}").values()
    gone = [row for row in others if row["delta_version"] is not None]
    for row in gone:
        _note_since(metadata, _name(row), [row["table_id"]], NEVER)
    return [_row(row["table_id"], _name(row), "dropped") for row in gone]


_NEWEST = Newest("batch", len(KINDS), per=("table_id",))
_NO_VERSION: MetadataRow = {"delta_version": None}


def _standing(row: MetadataRow, stop: Position) -> MetadataRow:
    """Return the row of a life by its watermark alone."""
    if row["status"] != "following":
        return _row(row["table_id"], _name(row), row["status"])
    unreached = _unreached(loads(Position, row["high"]), stop)
    return _row(row["table_id"], _name(row), row["status"], row["delta_version"], unreached)


def _unreached(high: Position, stop: Position) -> str | None:
    return None if stop.reaches(high) else str(high)


def _row(
    life: str, name: TableName, status: str, version: int | None = None, position: str | None = None
) -> MetadataRow:
    return {
        "table_id": life,
        "database": name.database,
        "table": name.table,
        "status": status,
        "delta_version": version,
        "position": position,
    }


def _stamped(row: MetadataRow, batch: int, kind: RowKind, *, began_us: int) -> MetadataRow:
    return {**row, "batch": batch, "kind": kind, "began_us": began_us, "at_us": now_us()}


def _name(row: MetadataRow) -> TableName:
    return TableName(row["database"], row["table"])


def _listed(values: Iterable[str]) -> str:
    return ", ".join(sorted(map(literal, values)))
