"""Watermarks: every life of a table, and the position up to which it is merged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from binlake.errors import SNAPSHOTTED_BY_ITSELF, UNMATCHED_REMEDY, BinlakeError, UsageError, snapshot_command
from binlake.lease import lease
from binlake.lease.lease import RecordedState
from binlake.names import matches_any, unmatched
from binlake.planner.outcome import LifeOutcome
from binlake.planner.steps import Life, Standstill, Status
from binlake.position import Position
from binlake.records import table_versions
from binlake.records.former_shapes import may_show_more
from binlake.schema.table import TableName
from binlake.serialization import dumps
from binlake.store.conditions import literal
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import WITHOUT_LIFE, ShapeRow, WatermarkRow


def read(metadata: Metadata) -> list[WatermarkRow]:
    """Return a row for each life, and for each name that waits for one, at its position now.

    The lease's row moves those that follow, where a batch didn't change them.
    """
    recorded_state = lease.read(metadata).recorded_state
    return [moved_forward(row, recorded_state) for row in WatermarkRow.read(metadata)]


def names(metadata: Metadata) -> dict[str, TableName]:
    """Return the names of all tables by ``database.table``; either part may contain a dot."""
    return {str(row.name): row.name for row in WatermarkRow.read(metadata, "database", "table")}


def name_of(metadata: Metadata, text: str) -> TableName:
    """Return the table that a text names, as ``names`` has it; one that isn't known is split at the first dot. Raises
    UsageError."""
    return names(metadata).get(text) or TableName.parse(text)


def not_known(metadata: Metadata, name: TableName) -> UsageError:
    """Return the error for a table that has no life here. The server isn't asked whether it has such a table."""
    states = {row.name: row.status for row in WatermarkRow.read(metadata, "database", "table", "status")}
    alike = [f"{known}" for known, state in states.items() if state != "dropped" and _alike(known, name)]
    if alike:
        there = " and ".join(alike)
        return UsageError(f"{name} isn't known here; there is {there}", remedy="write upper and lower case as there")
    why = "it was dropped" if states.get(name) == "dropped" else "the lake has no snapshot of it"
    remedy = f"if the server has it, run {snapshot_command(name)}; binlake status lists the tables"
    return UsageError(f"{name} isn't known here: {why}", remedy=remedy)


def _alike(known: TableName, name: TableName) -> bool:
    """Return whether two names differ by upper and lower case alone."""
    return str(known).casefold() == str(name).casefold()


def moved_forward(row: WatermarkRow, recorded_state: RecordedState | None) -> WatermarkRow:
    """Return the row of a life at its position now: for one that follows that of the batch recorded last, unless its
    own is further.

    Rows that a later, unrecorded batch wrote, and those of a snapshot taken since, stay as they are.
    """
    if recorded_state is None or row.status != "following" or row.batch >= recorded_state.batch:
        return row
    position = row.reached
    if position.server == recorded_state.position.server:
        position = max(position, recorded_state.position)
    return replace(row, batch=recorded_state.batch, position=str(position), gtid_set=position.gtid_set)


def write(metadata: Metadata, rows: Sequence[WatermarkRow], gone: Iterable[str] = ()) -> None:
    """Put rows in the place of those of the same lives, and remove those of the lives ``gone``, in one commit."""
    ids = sorted({row.table_id for row in rows} | set(gone))
    if ids:
        WatermarkRow.replace(metadata, f"table_id IN ({', '.join(map(literal, ids))})", rows)


def following(metadata: Metadata, patterns: Sequence[str] | None) -> list[Life]:
    """Return the lives that follow the log, by their names; those that patterns match, if any are given.

    Raises UsageError for a pattern that matches none, and where nothing follows the log.
    """
    lives = sorted((life for life in read_lives(metadata) if life.status == "following"), key=lambda life: life.name)
    if unknown := unmatched(patterns or (), [(life.name.database, life.name.table) for life in lives]):
        raise UsageError(f"no table that follows the log matches {', '.join(unknown)}", remedy=UNMATCHED_REMEDY)
    if not lives:
        raise UsageError("no table follows the log", remedy="binlake status shows each")
    return [life for life in lives if not patterns or matches_any(patterns, life.name.database, life.name.table)]


def write_beside(
    metadata: Metadata, rows: Sequence[WatermarkRow], listed: Callable[[TableName], bool], *, began_us: int
) -> None:
    """Write rows of lives whose Delta tables were changed beside the log, after the lake's version has them.

    listed: returns whether a table belongs to the lake's versions. began_us: before the commits that changed them.
    """
    table_versions.note_beside(metadata, rows, listed, began_us=began_us)
    write(metadata, rows)


def read_lives(metadata: Metadata, *, open_batch: int | None = None) -> list[Life]:
    """Return all lives, each with its newest schema.

    open_batch: lives are returned as they stood before this batch, which may have written its own shapes already.
    """
    shapes: dict[str, ShapeRow] = {}
    for row in sorted(ShapeRow.read(metadata), key=lambda row: row.order):
        if row.why != "followed" or row.batch != open_batch:
            shapes[row.table_id] = row
    return [
        Life(
            mark.table_id,
            mark.name,
            shapes[mark.table_id].shape,
            *mark.snapshot,
            mark.status,
            Standstill(mark.reason, mark.remedy or "", frozen=mark.is_frozen) if mark.reason else None,
            mark.delta_version,
        )
        for mark in WatermarkRow.read(metadata)
        if mark.table_id in shapes
    ]


def schema_row(life: Life, *, batch: int, where: Position, why: str) -> ShapeRow:
    """Return a row of ``schemas``: the life's shape from ``where`` on."""
    number, offset = where.order
    return ShapeRow(
        table_id=life.id,
        **vars(life.name),
        batch=batch,
        file_number=number,
        offset=offset,
        position=str(where),
        fingerprint=life.schema.fingerprint,
        schema=dumps(life.schema),
        why=why,
        at_us=now_us(),
    )


def watermark_row(
    life: Life | LifeOutcome, *, batch: int, position: Position, delta_version: int | None
) -> WatermarkRow:
    """Return a life's row of ``watermarks``."""
    return WatermarkRow(
        table_id=life.id,
        **vars(life.name),
        status=life.status,
        batch=batch,
        position=str(position),
        gtid_set=position.gtid_set,
        low=dumps(life.low),
        high=dumps(life.high),
        delta_version=delta_version,
        fingerprint=life.fingerprint,
        reason=life.reason or None,
        remedy=life.remedy or None,
        frozen=life.standstill is not None and life.standstill.frozen,
        updated_us=now_us(),
    )


def remedy_of(name: TableName, status: Status) -> str:
    """Return what to do about an included table without a life."""
    if status == "resnapshot":
        return SNAPSHOTTED_BY_ITSELF
    return snapshot_command(name)


def unsnapshotted_row(name: TableName, status: Status, reason: str, *, batch: int, position: Position) -> WatermarkRow:
    """Return the row of an included table without a life: missing (the log has mutations of it) or to be
    snapshotted."""
    return WatermarkRow(
        table_id=unsnapshotted_id(name),
        **vars(name),
        status=status,
        batch=batch,
        position=str(position),
        reason=reason,
        remedy=remedy_of(name, status),
        updated_us=now_us(),
    )


def ahead(metadata: Metadata) -> Position | None:
    """Return the highest position at which a table was copied that the newest recorded batch doesn't reach; None where
    it reaches all, or where the lake is followed on another server."""
    recorded_state = lease.read(metadata).recorded_state
    if recorded_state is None:
        return None
    highs = [life.high for life in read_lives(metadata) if life.status == "following"]
    return max((high for high in highs if _is_ahead(high, recorded_state.position)), default=None)


def _is_ahead(high: Position, recorded: Position) -> bool:
    return (high.server, high.series) == (recorded.server, recorded.series) and recorded < high


def note_refused(
    metadata: Metadata, refused: Mapping[TableName, BinlakeError], *, batch: int, position: Position
) -> None:
    """Write why tables without a life weren't snapshotted. One for which a sync asked is asked for still."""
    rows = WatermarkRow.read(metadata, "table_id", "database", "table", "status", "reason", "remedy")
    living = {row.name for row in rows if row.has_life and row.status != "dropped"}
    known = {row.table_id: row for row in rows}
    written = []
    for name in refused.keys() - living:
        reason, remedy = refused[name].message.removeprefix(f"{name}: "), refused[name].remedy
        before = known.get(unsnapshotted_id(name))
        if before is None or (before.reason, before.remedy) != (reason, remedy):
            status = before.status if before else "missing"
            row = unsnapshotted_row(name, status, reason, batch=batch, position=position)
            written.append(replace(row, remedy=remedy))
    write(metadata, written)


def asked(metadata: Metadata) -> list[TableName]:
    """Return the names of tables that are to be snapshotted again."""
    rows = WatermarkRow.read(metadata, "database", "table", "status")
    return sorted({row.name for row in rows if row.status == "resnapshot"})


def catching_up(metadata: Metadata) -> list[TableName]:
    """Return the names of tables that were copied beside the batches, and don't follow yet."""
    rows = WatermarkRow.read(metadata, "database", "table", "status")
    return sorted(row.name for row in rows if row.status == "catching up")


def unsnapshotted(metadata: Metadata) -> frozenset[TableName]:
    """Return the included tables without a life: missing, or to be snapshotted for the first time."""
    rows = WatermarkRow.read(metadata, "table_id", "database", "table")
    return frozenset(row.name for row in rows if not row.has_life)


def follow_again(metadata: Metadata, life: str, listed: Callable[[TableName], bool], *, began_us: int) -> None:
    """Mark a life as following that has caught up with the others. listed: see ``write_beside``. began_us: before it
    began to catch up."""
    caught_up = replace(of_life(metadata, life).standing("following", None), updated_us=now_us())
    write_beside(metadata, [caught_up], listed, began_us=began_us)


def at_version(
    metadata: Metadata, life: str, version: int, listed: Callable[[TableName], bool], *, began_us: int
) -> None:
    """Write the Delta version of a life whose rows came into the lake beside the log, since ``began_us``. listed: see
    ``write_beside``."""
    row = replace(of_life(metadata, life), delta_version=version, updated_us=now_us())
    write_beside(metadata, [row], listed, began_us=began_us)


def of_life(metadata: Metadata, life: str) -> WatermarkRow:
    """Return the row of a life, which has one."""
    (row,) = (row for row in WatermarkRow.read(metadata) if row.table_id == life)
    return row


def forget_unsnapshotted(metadata: Metadata, names: list[TableName]) -> None:
    """Remove the rows of tables that never began a life here."""
    write(metadata, [], map(unsnapshotted_id, names))


def unsnapshotted_id(name: TableName) -> str:
    """Return the value that replaces a table id for a table without a life."""
    return WITHOUT_LIFE + json.dumps([name.database, name.table], ensure_ascii=False)


def _keep_former_shapes(metadata: Metadata, lives: Sequence[Life], where: str) -> None:
    """Keep the shapes under which tables may have shown more than they do now, or were elsewhere in the lake, of lives
    that were copied again at the same position: under ids of their own, as of other lives. where: the predicate of the
    lives."""
    now = {life.id: life.schema for life in lives}
    kept = []
    for row in ShapeRow.read(metadata, where=where):
        former, schema = row.shape, now[row.table_id]
        if former.shard != schema.shard or may_show_more(former, schema):
            kept.append(replace(row, table_id=f"{row.table_id}/{row.at_us}", why="replaced"))
    if kept:
        ShapeRow.replace(metadata, f"table_id IN ({', '.join(literal(row.table_id) for row in kept)})", kept)


def started(
    metadata: Metadata,
    lives: list[Life],
    *,
    batch: int,
    versions: dict[str, int],
    first: int | None = None,
    began_us: int | None = None,
    version_at: Position | None = None,
) -> None:
    """Write lives that begin with their snapshots, and end earlier lives of the same names. In this order a kill loses
    nothing. Lives that don't follow yet aren't in the lake's versions.

    first: the batch whose version has the new lives first; the one after ``batch`` by default. version_at: the position
    of the version of ``batch``: lives that are consistent there belong to this one already. began_us: before the
    snapshots' commits; now by default.
    """
    where = f"table_id IN ({', '.join(literal(life.id) for life in lives)})"
    _keep_former_shapes(metadata, lives, where)
    ShapeRow.replace(metadata, where, [schema_row(life, batch=batch, where=life.low, why="snapshot") for life in lives])
    names = {life.name for life in lives}
    earlier = [row for row in WatermarkRow.read(metadata) if row.name in names]
    first, began_us = batch + 1 if first is None else first, began_us or now_us()
    listed = [life for life in lives if not (life.schema.without_rows or life.schema.shard)]
    read = [life for life in listed if life.status == "following"]
    here = [life for life in read if life.high.is_at(version_at)]
    names_here = {life.name for life in here}
    ended_here = [row for row in earlier if row.name in names_here]
    table_versions.note_snapshot(metadata, batch, here, versions, ended_here, kind="beside", began_us=began_us)
    others, ended = [life for life in read if life not in here], [row for row in earlier if row not in ended_here]
    table_versions.note_snapshot(metadata, first, others, versions, ended, began_us=began_us)
    rows = [watermark_row(life, batch=batch, position=life.low, delta_version=versions.get(life.id)) for life in lives]
    write(metadata, rows, [row.table_id for row in earlier])
