"""The Delta version that each table has at each batch, in the metadata table ``lake_versions``.

A batch's own row, without a table id, holds its position. The other rows say from which batch on a life of a table is
at a Delta version: it stays there until the life's next row. A row without a Delta version says from which batch on
the life isn't at the batches' positions, and why (its status). So a batch writes rows of what it changed alone.

Of several rows of a life in one batch the one of the last kind counts:

    snapshot   the life begins with a snapshot before the batch, or ends because another life takes its name. The own
               row of this kind is of the snapshots with which the lake begins: batch 0 is their version
    base       the batch changed it, and rows of earlier batches don't count: not all of these were noted
    batch      the batch changed it
    beside     once the batch was recorded, it was changed beside the log: a catch-up, a replay, a range of keys,
               upkeep, or a snapshot at the batch's own position

``position`` of a table's row: where the life is consistent first, if no batch had reached that yet. Versions are those
of batches that reach it.

A table beside a mirror has rows like a life, under the id that Delta gave it: where its folder was moved away, another
begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from binlake.lease import lease
from binlake.lease.lease import OpenBatch
from binlake.planner.outcome import BesideOutcome, LifeOutcome
from binlake.planner.steps import Life
from binlake.position import Position
from binlake.schema.table import TableName
from binlake.store.conditions import Newest, literal, rows_of
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import KINDS, PinRow, ReadableRow, RowKind, VersionRow, WatermarkRow

NEVER = 1 << 62
"""More than any Delta version: the table's folder was removed."""
_BEGINS: RowKind = "snapshot"
_BEGINS_ANEW: RowKind = "base"
_OF_BATCHES = "kind IN ('base', 'batch')"


def note_batch(
    metadata: Metadata, plan: OpenBatch, rows: Mapping[str, WatermarkRow], listed: Callable[[TableName], bool]
) -> None:
    """Write the rows of a merged batch in one commit, which can be repeated.

    rows: the watermarks after the batch, by life. listed: returns whether a table belongs to the lake's versions, which
    ghost tables and mirrors without rows don't.
    """
    kind: RowKind = "batch" if plan.batch == 1 or _is_noted(metadata, plan.batch - 1) else "base"
    changed = {life.id: life for life in plan.outcome.lives if listed(life.name)}
    beside = plan.outcome.beside
    stamp = _Stamp(plan.batch, kind, plan.planned_us)
    written = [_after(plan, life, rows.get(life.id), stamp) for life in changed.values()]
    written += [stamp.of_beside(table) for table in beside] + _replaced_beside(metadata, beside, stamp)
    others = [row for key, row in rows.items() if row.low and key not in changed and listed(row.name)]
    if kind == "base":
        written += [stamp.standing(row, plan.range.stop) for row in others]
    else:
        left = [row for row in others if row.status != "following"]
        written += [stamp.standing(row, plan.range.stop) for row in _left_since(metadata, plan.batch, left)]
    own = stamp.own(plan.range.stop, plan.committed_us or plan.until_us or plan.planned_us)
    VersionRow.replace(metadata, f"batch = {plan.batch} AND {_OF_BATCHES}", [own, *written])


def note_snapshot(
    metadata: Metadata,
    batch: int,
    lives: Sequence[Life],
    versions: Mapping[str, int],
    ended: Iterable[WatermarkRow],
    *,
    kind: RowKind = "snapshot",
    began_us: int,
) -> None:
    """Write rows of lives that begin with a snapshot, and of those that end.

    batch: the first whose version has them. versions: Delta versions by life. ended: watermarks. kind: beside where
    the batch is recorded, and the snapshots are at its position. began_us: before the snapshots' commits.
    """
    stamp = _Stamp(batch, kind, began_us)
    replaced = {row.table_id: row.name for row in ended if row.low}
    replaced |= {row.life: row.name for row in _known_as(metadata, {life.name for life in lives})}
    begun = [stamp.row(life.id, life.name, "following", versions.get(life.id), str(life.high)) for life in lives]
    gone = replaced.keys() - {life.id for life in lives}
    rows = [*begun, *(stamp.row(life, name, "dropped") for life, name in replaced.items() if life in gone)]
    if rows:
        ids = _listed(row.life for row in rows)
        VersionRow.replace(metadata, f"batch = {batch} AND kind = '{kind}' AND table_id IN ({ids})", rows)


def _known_as(metadata: Metadata, names: Set[TableName]) -> list[VersionRow]:
    """Return the newest row of each life that versions have under one of some names. Their watermarks may be lost."""
    if not names:
        return []
    rows = VersionRow.read(metadata, "table_id", "database", "table", where="table_id IS NOT NULL")
    ids = {row.life for row in rows if row.name in names}
    newest = _last_rows(metadata, f"table_id IN ({_listed(ids)})").values() if ids else ()
    return [row for row in newest if row.name in names and row.delta_version is not None]


def note_first(metadata: Metadata, batch: int, position: Position, committed_us: int) -> None:
    """Write the own row of the version of the snapshots with which a lake begins. It can be repeated.

    batch: 0, or, in a lake that is begun again, the first number that no batch has. committed_us: when the newest
    transaction before the position committed, at the latest; 0 where that isn't known.
    """
    now, kind = now_us(), _BEGINS_ANEW if batch else _BEGINS
    own = _Stamp(batch, kind, now).own(position, committed_us or now)
    VersionRow.replace(metadata, f"batch = {batch} AND table_id IS NULL", [own])


def position_of(metadata: Metadata, batch: int) -> Position | None:
    """Return the position of a batch's version; None where it isn't noted."""
    own = VersionRow.first(metadata, "position", "gtid_set", where=f"batch = {batch} AND table_id IS NULL")
    return Position.parse(own.position or "", own.gtid_set or "") if own else None


def note_beside(
    metadata: Metadata,
    watermarks: Iterable[WatermarkRow],
    listed: Callable[[TableName], bool],
    *,
    began_us: int,
) -> None:
    """Write rows of lives whose Delta tables were changed beside the log; those that don't follow it are left out.

    listed: see ``note_batch``. began_us: before the commits that changed them. No batch may be open.
    """
    rows = {row.table_id: row for row in watermarks if row.status == "following" and listed(row.name)}
    recorded = lease.read(metadata).recorded_state
    if not rows or recorded is None:
        return
    ids, batch = _listed(rows), recorded.batch
    begun = f"batch = {batch + 1} AND kind = 'snapshot'"
    rows_begun = VersionRow.read(metadata, "table_id", where=f"{begun} AND table_id IN ({ids})")
    beginning = {row.table_id for row in rows_begun}
    now, later = _Stamp(batch, "beside", began_us), _Stamp(batch + 1, "snapshot", began_us)
    written = [(later if key in beginning else now).standing(row, recorded.position) for key, row in rows.items()]
    where = f"table_id IN ({ids}) AND ((batch = {batch} AND kind = 'beside') OR ({begun}))"
    VersionRow.replace(metadata, where, written)


def note_upkeep_beside(metadata: Metadata, tables: Sequence[BesideOutcome], *, began_us: int) -> None:
    """Write rows of tables beside mirrors whose files were changed beside the log, and their rows weren't.

    Only of those that the newest batch has. began_us, and open batches: as of ``note_beside``.
    """
    recorded = lease.read(metadata).recorded_state
    if not tables or recorded is None:
        return
    last = _last_rows(metadata, f"table_id IN ({_listed(table.table_id for table in tables)})")
    versions = {key: row.delta_version for key, row in last.items()}
    moved = [table for table in tables if versions.get(table.table_id) not in (None, table.delta_version)]
    if moved:
        ids, stamp = _listed(table.table_id for table in moved), _Stamp(recorded.batch, "beside", began_us)
        where = f"table_id IN ({ids}) AND batch = {recorded.batch} AND kind = 'beside'"
        VersionRow.replace(metadata, where, [stamp.of_beside(table) for table in moved])


def note_going_on(metadata: Metadata, table: BesideOutcome, *, began_us: int) -> None:
    """Write the row of a table beside a mirror that was put right, and follows from the newest batch on. began_us, and
    open batches: as of ``note_beside``."""
    recorded = lease.read(metadata).recorded_state
    if recorded is not None:
        row = _Stamp(recorded.batch, "beside", began_us).of_beside(table)
        where = f"table_id = {literal(table.table_id)} AND batch = {recorded.batch} AND kind = 'beside'"
        VersionRow.replace(metadata, where, [row])


def note_lost(metadata: Metadata, table_id: str, newest: int) -> None:
    """Note that a table's Delta versions behind ``newest`` are lost: their numbers are going to be used for others. The
    batches that had them have no version of the table any more."""
    lost = VersionRow.read(metadata, "batch", where=f"table_id = {literal(table_id)} AND delta_version > {newest}")
    if not lost:
        return
    batches = ", ".join(map(str, sorted({row.batch for row in lost})))
    where = f"table_id = {literal(table_id)} AND batch IN ({batches})"  # the new rows have to meet it, too
    rows = [
        replace(row, delta_version=None, status="stopped") if (row.delta_version or 0) > newest else row
        for row in VersionRow.read(metadata, where=where)
    ]
    VersionRow.replace(metadata, where, rows)


def note_lost_under(metadata: Metadata, name: TableName, newest: int) -> None:
    """Do the same for all lives that had a name; -1 for a table that isn't there."""
    where = f"{rows_of(name)} AND delta_version > {newest}"
    for life in sorted({row.life for row in VersionRow.read(metadata, "table_id", where=where)}):
        note_lost(metadata, life, newest)


def standing_at(metadata: Metadata, life: str, newest: int) -> tuple[int, int] | None:
    """Return the newest Delta version of a life, up to ``newest``, that a batch ended at or a snapshot made, and the
    first batch behind it; None where none was noted."""
    where = f"table_id = {literal(life)} AND delta_version <= {newest}"
    rows = VersionRow.read(metadata, "batch", "kind", "delta_version", where=where)
    ordered = sorted((row.delta_version or 0, row.order) for row in rows)
    if not ordered:
        return None
    version, (batch, kind) = ordered[-1]
    return version, batch + (KINDS[kind] != "snapshot")


@dataclass(frozen=True)
class KnownBeside:
    """The newest note on a table beside a mirror. version: its newest Delta version; None where none was noted."""

    status: str
    version: int | None


def known_beside(metadata: Metadata, names: Sequence[TableName]) -> dict[str, KnownBeside]:
    """Return what was noted last of tables beside mirrors, by their ids. names: their own."""
    databases, tables = ({getattr(name, part) for name in names} for part in ("database", "table"))
    where = f'database IN ({_listed(databases)}) AND "table" IN ({_listed(tables)})'
    columns = ("table_id", "batch", "kind", "status", "delta_version")
    newest = Newest("batch", len(KINDS), per=("table_id", "status"))
    known: dict[str, KnownBeside] = {}
    for row in sorted(VersionRow.read(metadata, *columns, where=where, newest=newest), key=lambda row: row.order):
        before = known.get(row.life)
        version = before.version if row.delta_version is None and before else row.delta_version
        known[row.life] = KnownBeside(row.status or "", version)
    return known


def newest_id(metadata: Metadata, name: TableName) -> str | None:
    """Return the id of the table that was noted last under a name; None where none was."""
    rows = VersionRow.read(metadata, "table_id", "batch", where=f"({rows_of(name)}) AND table_id IS NOT NULL")
    return max(rows, key=lambda row: row.batch).table_id if rows else None


def note_readable_since(metadata: Metadata, name: TableName, version: int, folder: str = "") -> list[ReadableRow]:
    """Write that Delta versions before this one of all lives that were called ``name`` can't be read any more; return
    what was noted of them before.

    It is written before files are removed, so that no reader is given a version whose files are going. version: NEVER
    where the folder is removed. folder: in the lake, of a table that several sources fill; lives in other folders are
    other tables. A life that has another name by now keeps its versions under that.
    """
    noted = ReadableRow.read(metadata, where=rows_of(name))
    known = {row.table_id: row.delta_version for row in noted}
    folders: dict[str, str] = {}
    for row in VersionRow.read(metadata, "table_id", "folder", where=rows_of(name)):
        folders[row.life] = row.folder or folders.get(row.life, "")
    lives = {life for life, place in folders.items() if place == folder}
    moved = [life for life in lives if known.get(life, 0) < version]
    _note_since(metadata, name, moved, version)
    return noted


def _note_since(metadata: Metadata, name: TableName, lives: Iterable[str], version: int) -> None:
    now = now_us()
    if ids := sorted(lives):
        rows = [ReadableRow(table_id=life, **vars(name), delta_version=version, at_us=now) for life in ids]
        ReadableRow.replace(metadata, f"{rows_of(name)} AND table_id IN ({_listed(ids)})", rows)


def restore_readable_since(metadata: Metadata, name: TableName, noted: Sequence[ReadableRow], version: int) -> None:
    """Write what was noted before, where no file is removed after all. version: that was noted; rows with another one
    are another source's, and stay."""
    before = {row.table_id: row for row in noted}
    others = [row for row in ReadableRow.read(metadata, where=rows_of(name)) if row.delta_version != version]
    rows = {**before, **{row.table_id: row for row in others}}
    ReadableRow.replace(metadata, rows_of(name), [*rows.values()])


def expire(metadata: Metadata, before_us: int) -> int:
    """Remove the rows of batches recorded before a time, and return their number.

    Rows that later batches and pinned ones still count by stay, and so do the newest batch and those of kind base.
    """
    own = VersionRow.read(metadata, "batch", "kind", "at_us", where="table_id IS NULL")
    recent = [row.batch for row in own if row.at_us >= before_us]
    first = min(recent, default=max((row.batch for row in own), default=0))
    if all(row.batch >= first for row in own):
        return 0
    staying = {row.batch for row in PinRow.read(metadata, "batch")}
    staying |= {row.batch for row in own if row.kind == "base"}
    old = VersionRow.read(metadata, where=f"batch < {first}")
    kept = [row for row in old if row.table_id is None and row.batch in staying]
    kept += _still_counting([row for row in old if row.table_id is not None], {*staying, first})
    if len(kept) < len(old):
        VersionRow.replace(metadata, f"batch < {first}", kept)
        lives = {row.life for row in VersionRow.read(metadata, "table_id", where="table_id IS NOT NULL")}
        if gone := {row.table_id for row in ReadableRow.read(metadata, "table_id")} - lives:
            ReadableRow.replace(metadata, f"table_id IN ({_listed(gone)})")
    return len(old) - len(kept)


def _still_counting(rows: Sequence[VersionRow], batches: Iterable[int]) -> list[VersionRow]:
    """Return the newest row of each life at or before each of some batches."""
    ordered = sorted(rows, key=lambda row: row.order)
    counting: dict[int, VersionRow] = {}
    for batch in batches:
        newest = {row.life: row for row in ordered if row.batch <= batch}
        counting |= {id(row): row for row in newest.values()}
    return list(counting.values())


def _is_noted(metadata: Metadata, batch: int) -> bool:
    """Return whether a batch's own row is there: it isn't where an older binlake recorded the batch."""
    return VersionRow.count(metadata, f"batch = {batch} AND table_id IS NULL") > 0


@dataclass(frozen=True)
class _Stamp:
    """The values that rows written together have in common."""

    batch: int
    kind: RowKind
    began_us: int

    def own(self, position: Position, committed_us: int) -> VersionRow:
        """Return a batch's own row."""
        return self._row(position=str(position), gtid_set=position.gtid_set, committed_us=committed_us)

    def row(
        self, life: str, name: TableName, status: str, version: int | None = None, position: str | None = None
    ) -> VersionRow:
        """Return the row of a life."""
        return self._row(table_id=life, **vars(name), status=status, delta_version=version, position=position)

    def of_beside(self, table: BesideOutcome) -> VersionRow:
        """Return the row of a table beside a mirror."""
        row = self.row(table.table_id, table.name, table.status, table.delta_version)
        return replace(row, folder=table.folder or None)

    def standing(self, row: WatermarkRow, stop: Position) -> VersionRow:
        """Return the row of a life by its watermark alone."""
        if row.status != "following":
            return self.row(row.table_id, row.name, row.status)
        return self.row(row.table_id, row.name, row.status, row.delta_version, _unreached(row.snapshot[1], stop))

    def _row(self, **values: Any) -> VersionRow:
        return VersionRow(batch=self.batch, kind=self.kind, began_us=self.began_us, at_us=now_us(), **values)


def _after(plan: OpenBatch, life: LifeOutcome, row: WatermarkRow | None, stamp: _Stamp) -> VersionRow:
    """Return the row of a life that the batch changed. row: its watermark after the batch, if it still has one."""
    if life.status == "following" and row is not None:
        unreached = _unreached(life.high, plan.range.stop)
        return stamp.row(life.id, life.name, life.status, row.delta_version, unreached)
    return stamp.row(life.id, life.name, life.status)


def _left_since(metadata: Metadata, batch: int, rows: Sequence[WatermarkRow]) -> list[WatermarkRow]:
    """Return those of the watermarks, of lives that don't follow the log, that earlier batches still found at a
    version."""
    if not rows:
        return []
    where = f"table_id IN ({_listed(row.table_id for row in rows)}) AND (batch < {batch} OR kind = 'snapshot')"
    at_version = {key for key, row in _last_rows(metadata, where).items() if row.delta_version is not None}
    return [row for row in rows if row.table_id in at_version]


def _last_rows(metadata: Metadata, where: str) -> dict[str, VersionRow]:
    """Return of the rows that meet a condition the one that counts last, by life."""
    columns = ("table_id", "database", "table", "batch", "kind", "delta_version")
    newest = VersionRow.read(metadata, *columns, where=where, newest=_NEWEST)
    return {row.life: row for row in sorted(newest, key=lambda row: row.order)}


def _replaced_beside(metadata: Metadata, tables: Sequence[BesideOutcome], stamp: _Stamp) -> list[VersionRow]:
    """Return rows that end the versions of tables in whose place these are, and note that they can't be read: somebody
    moved their folders away."""
    batch = stamp.batch
    where = f"batch = {batch - 1} AND {_OF_BATCHES}"
    known = {row.table_id for row in VersionRow.read(metadata, "table_id", where=where)} if tables else ()
    new = [table for table in tables if table.table_id not in known]  # the others were looked up before
    if not new:
        return []
    here = _listed(table.table_id for table in new)
    named = " OR ".join(f"({rows_of(table.name)})" for table in new)
    others = _last_rows(metadata, f"({named}) AND table_id NOT IN ({here}) AND batch < {batch}").values()
    gone = [row for row in others if row.delta_version is not None]
    for row in gone:
        _note_since(metadata, row.name, [row.life], NEVER)
    return [stamp.row(row.life, row.name, "dropped") for row in gone]


_NEWEST = Newest("batch", len(KINDS), per=("table_id",))


def _unreached(high: Position, stop: Position) -> str | None:
    return None if stop.reaches(high) else str(high)


def _listed(values: Iterable[str]) -> str:
    return ", ".join(sorted(map(literal, values)))
