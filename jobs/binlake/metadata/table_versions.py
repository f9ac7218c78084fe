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
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from binlake.batch.outcome import LifeOutcome
from binlake.batch.steps import Life
from binlake.metadata import lease
from binlake.metadata.lease import OpenBatch
from binlake.metadata.metadata import Metadata, Newest, literal, now_us
from binlake.position import Position
from binlake.schema.table import TableName
from binlake.serialization import loads

TABLE = "lake_versions"
RowKind = Literal["snapshot", "base", "batch", "beside"]
KINDS: tuple[RowKind, ...] = ("snapshot", "base", "batch", "beside")
"""The kinds of rows, in their order within a batch."""
REMOVED = "removed"
"""The status of a dropped table whose folder was removed: no version of it can be read."""
_OF_BATCHES = "kind IN ('base', 'batch')"

MetadataRow = dict[str, Any]


@dataclass(frozen=True)
class VersionsScope:
    """The tables of the lake's versions.

    listed: tells whether a table belongs to them, which ghost tables don't. removed: names of tables that the batch saw
    dropped and whose folders were removed.
    """

    listed: Callable[[TableName], bool] = lambda name: True
    removed: frozenset[TableName] = frozenset()


def note_batch(metadata: Metadata, plan: OpenBatch, rows: Mapping[str, MetadataRow], scope: VersionsScope) -> None:
    """Write the rows of a merged batch in one commit, which can be repeated. rows: the watermarks after the batch, by
    life."""
    kind: RowKind = "batch" if plan.batch == 1 or _is_noted(metadata, plan.batch - 1) else "base"
    changed = {life.id: life for life in plan.outcome.lives if scope.listed(life.name)}
    written = [_after(plan, life, rows.get(life.id), scope.removed) for life in changed.values()]
    others = [row for key, row in rows.items() if row.get("low") and key not in changed and scope.listed(_name(row))]
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
    metadata.replace(
        TABLE,
        f"batch = {batch} AND kind = 'snapshot' AND table_id IN ({_listed(row['table_id'] for row in rows)})",
        [_stamped(row, batch, "snapshot", began_us=began_us) for row in rows],
    )


def note_beside(metadata: Metadata, watermarks: Iterable[MetadataRow], *, began_us: int) -> None:
    """Write rows of lives whose Delta tables were changed beside the log; those that don't follow it are left out.

    began_us: before the commits that changed them. No batch may be open.
    """
    rows = {row["table_id"]: row for row in watermarks if row["status"] == "following"}
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


def _is_noted(metadata: Metadata, batch: int) -> bool:
    """Tell whether a batch's own row is there: it isn't where an older binlake recorded the batch."""
    return metadata.count(TABLE, f"batch = {batch} AND table_id IS NULL") > 0


def _after(plan: OpenBatch, life: LifeOutcome, row: MetadataRow | None, removed: Collection[TableName]) -> MetadataRow:
    """Return the row of a life that the batch changed. row: its watermark after the batch, if it still has one."""
    if life.status == "following" and row is not None:
        return _row(life.id, life.name, life.status, row["delta_version"], _unreached(life.high, plan.range.stop))
    status = REMOVED if life.status == "dropped" and life.name in removed else life.status
    return _row(life.id, life.name, status)


def _left_since(metadata: Metadata, batch: int, rows: Sequence[MetadataRow]) -> list[MetadataRow]:
    """Return those of the watermarks, of lives that don't follow the log, that earlier batches still found at a
    version."""
    if not rows:
        return []
    where = f"table_id IN ({_listed(row['table_id'] for row in rows)}) AND (batch < {batch} OR kind = 'snapshot')"
    newest = metadata.read(TABLE, ["table_id", "batch", "kind", "delta_version"], where=where, newest=_NEWEST)
    last: dict[str, MetadataRow] = {}
    for row in sorted(newest, key=lambda row: (row["batch"], KINDS.index(row["kind"]))):
        last[row["table_id"]] = row
    return [row for row in rows if last.get(row["table_id"], _NO_VERSION)["delta_version"] is not None]


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
