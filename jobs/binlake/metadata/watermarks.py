"""Watermarks: every life of a table, and the position up to which it is merged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from binlake.batch.outcome import LifeOutcome
from binlake.batch.steps import Life, Standstill, Status
from binlake.errors import SNAPSHOTTED_BY_ITSELF, UNMATCHED_REMEDY, UsageError, snapshot_command
from binlake.metadata import lease, table_versions
from binlake.metadata.lease import RecordedState
from binlake.metadata.metadata import Metadata, literal, now_us
from binlake.names import matches_any, unmatched
from binlake.position import Position
from binlake.schema.table import TableName, TableSchema
from binlake.serialization import dumps, loads

_WITHOUT_LIFE = "missing:"


def read(metadata: Metadata) -> list[dict[str, Any]]:
    """Return a row for each life, and for each name that waits for one, at its position now.

    The lease's row moves those that follow, where a batch didn't change them.
    """
    recorded_state = lease.read(metadata).recorded_state
    return [stands(row, recorded_state) for row in metadata.read("watermarks")]


def names(metadata: Metadata) -> dict[str, TableName]:
    """Return the names of all tables by ``database.table``; either part may contain a dot."""
    rows = metadata.read("watermarks", ["database", "table"])
    return {str(name): name for name in (TableName(row["database"], row["table"]) for row in rows)}


def name_of(metadata: Metadata, text: str) -> TableName:
    """Return the table that a text names, as ``names`` has it; one that isn't known is split at the first dot. Raises
    UsageError."""
    return names(metadata).get(text) or TableName.parse(text)


def not_known(metadata: Metadata, name: TableName) -> UsageError:
    """Return the error for a table that has no life here. The server isn't asked whether it has such a table."""
    rows = metadata.read("watermarks", ["database", "table", "status"])
    states = {TableName(row["database"], row["table"]): row["status"] for row in rows}
    alike = [str(known) for known, state in states.items() if state != "dropped" and _alike(known, name)]
    if alike:
        there = " and ".join(alike)
        return UsageError(f"{name} isn't known here; there is {there}", remedy="write upper and lower case as there")
    why = "it was dropped" if states.get(name) == "dropped" else "the lake has no snapshot of it"
    remedy = f"if the server has it, run {snapshot_command(name)}; binlake status lists the tables"
    return UsageError(f"{name} isn't known here: {why}", remedy=remedy)


def _alike(known: TableName, name: TableName) -> bool:
    """Tell whether two names differ by upper and lower case alone."""
    return str(known).casefold() == str(name).casefold()


def stands(row: dict[str, Any], recorded_state: RecordedState | None) -> dict[str, Any]:
    """Return the row of a life at its position now: for one that follows that of the batch recorded last, unless its
    own is further.

    Rows that a later, unrecorded batch wrote, and those of a snapshot taken since, stay as they are.
    """
    if recorded_state is None or row["status"] != "following" or row["batch"] >= recorded_state.batch:
        return row
    position = Position.parse(row["position"], row["gtid_set"] or "")
    if position.server == recorded_state.position.server:
        position = max(position, recorded_state.position)
    return {**row, "batch": recorded_state.batch, "position": str(position), "gtid_set": position.gtid_set}


def write(metadata: Metadata, rows: Sequence[dict[str, Any]], gone: Iterable[str] = ()) -> None:
    """Put rows in the place of those of the same lives, and remove those of the lives ``gone``, in one commit."""
    ids = sorted({row["table_id"] for row in rows} | set(gone))
    if ids:
        metadata.replace("watermarks", f"table_id IN ({', '.join(map(literal, ids))})", rows)


def following(metadata: Metadata, patterns: Sequence[str] | None) -> list[Life]:
    """Return the lives that follow the log, by their names; those that patterns match, if any are given.

    Raises UsageError for a pattern that matches none, and where nothing follows the log.
    """
    lives = sorted((life for life in read_lives(metadata) if life.status == "following"), key=lambda life: life.name)
    if unknown := unmatched(patterns or (), [(life.name.database, life.name.table) for life in lives]):
        raise UsageError(f"no table that follows the log matches {', '.join(unknown)}", remedy=UNMATCHED_REMEDY)
    if not lives:
        raise UsageError("no table follows the log", remedy="binlake status tells of each")
    return [life for life in lives if not patterns or matches_any(patterns, life.name.database, life.name.table)]


def write_beside(
    metadata: Metadata, rows: Sequence[dict[str, Any]], listed: Callable[[TableName], bool], *, began_us: int
) -> None:
    """Write rows of lives whose Delta tables were changed beside the log, after the lake's version has them.

    listed: tells whether a table belongs to the lake's versions. began_us: before the commits that changed them.
    """
    table_versions.note_beside(metadata, rows, listed, began_us=began_us)
    write(metadata, rows)


def read_lives(metadata: Metadata, *, open_batch: int | None = None) -> list[Life]:
    """Return all lives, each with its newest schema.

    open_batch: lives are returned as they stood before this batch, which may have written its own shapes already.
    """
    schemas: dict[str, dict[str, Any]] = {}
    # By the batch first: another server, after a failover, counts its files anew.
    for row in sorted(metadata.read("schemas"), key=lambda row: (row["batch"], row["file_number"], row["offset"])):
        if row["why"] != "followed" or row["batch"] != open_batch:
            schemas[row["table_id"]] = row
    return [
        Life(
            row["table_id"],
            TableName(row["database"], row["table"]),
            _schema(schemas[row["table_id"]]["schema"]),
            _position(row["low"]),
            _position(row["high"]),
            row["status"],
            Standstill(row["reason"], row["remedy"] or "") if row["reason"] else None,
            row["delta_version"],
        )
        for row in metadata.read("watermarks")
        if row["table_id"] in schemas
    ]


@lru_cache(1024)  # most shapes stay from batch to batch
def _schema(text: str) -> TableSchema:
    return loads(TableSchema, text)


@lru_cache(2048)
def _position(text: str) -> Position:
    return loads(Position, text)


def schema_row(life: Life, *, batch: int, where: Position, why: str) -> dict[str, Any]:
    """Return a row of ``schemas``: the life's shape from ``where`` on."""
    number, offset = where.order
    return {
        "table_id": life.id,
        "database": life.name.database,
        "table": life.name.table,
        "batch": batch,
        "file_number": number,
        "offset": offset,
        "position": str(where),
        "fingerprint": life.schema.fingerprint,
        "schema": dumps(life.schema),
        "why": why,
        "at_us": now_us(),
    }


def watermark_row(
    life: Life | LifeOutcome, *, batch: int, position: Position, delta_version: int | None
) -> dict[str, Any]:
    """Return a life's row of ``watermarks``."""
    return {
        "table_id": life.id,
        "database": life.name.database,
        "table": life.name.table,
        "status": life.status,
        "batch": batch,
        "position": str(position),
        "gtid_set": position.gtid_set,
        "low": dumps(life.low),
        "high": dumps(life.high),
        "delta_version": delta_version,
        "fingerprint": life.fingerprint,
        "reason": life.reason or None,
        "remedy": life.remedy or None,
        "updated_us": now_us(),
    }


def remedy_of(name: TableName, status: Status) -> str:
    """Return what to do about an included table without a life."""
    if status == "resnapshot":
        return SNAPSHOTTED_BY_ITSELF
    return snapshot_command(name)


def unsnapshotted_row(
    name: TableName, status: Status, reason: str, *, batch: int, position: Position
) -> dict[str, Any]:
    """Return the row of an included table without a life: missing (the log has mutations of it) or to be
    snapshotted."""
    return {
        "table_id": unsnapshotted_id(name),
        "database": name.database,
        "table": name.table,
        "status": status,
        "batch": batch,
        "position": str(position),
        "reason": reason,
        "remedy": remedy_of(name, status),
        "updated_us": now_us(),
    }


def asked(metadata: Metadata) -> list[TableName]:
    """Return the names of tables that are to be snapshotted again."""
    rows = metadata.read("watermarks", ["database", "table", "status"])
    return sorted({TableName(row["database"], row["table"]) for row in rows if row["status"] == "resnapshot"})


def catching_up(metadata: Metadata) -> list[TableName]:
    """Return the names of tables that were copied beside the batches, and don't follow yet."""
    rows = metadata.read("watermarks", ["database", "table", "status"])
    return sorted(TableName(row["database"], row["table"]) for row in rows if row["status"] == "catching up")


def unsnapshotted(metadata: Metadata) -> frozenset[TableName]:
    """Return the included tables without a life: missing, or to be snapshotted for the first time."""
    rows = metadata.read("watermarks", ["table_id", "database", "table"])
    names = ((row["table_id"], TableName(row["database"], row["table"])) for row in rows)
    return frozenset(name for key, name in names if key == unsnapshotted_id(name))


def follow_again(metadata: Metadata, life: str, listed: Callable[[TableName], bool], *, began_us: int) -> None:
    """Mark a life as following that has caught up with the others. listed: see ``write_beside``. began_us: before it
    began to catch up."""
    (row,) = [row for row in metadata.read("watermarks") if row["table_id"] == life]
    caught_up = {**row, "status": "following", "reason": None, "remedy": None, "updated_us": now_us()}
    write_beside(metadata, [caught_up], listed, began_us=began_us)


def at_version(
    metadata: Metadata, life: str, version: int, listed: Callable[[TableName], bool], *, began_us: int
) -> None:
    """Write the Delta version of a life whose rows came into the lake beside the log, since ``began_us``. listed: see
    ``write_beside``."""
    (row,) = [row for row in metadata.read("watermarks") if row["table_id"] == life]
    write_beside(metadata, [{**row, "delta_version": version, "updated_us": now_us()}], listed, began_us=began_us)


def forget_unsnapshotted(metadata: Metadata, names: list[TableName]) -> None:
    """Remove the rows of tables that never began a life here."""
    write(metadata, [], map(unsnapshotted_id, names))


def unsnapshotted_id(name: TableName) -> str:
    """Return what stands in the place of a table id for a table without a life."""
    return _WITHOUT_LIFE + json.dumps([name.database, name.table], ensure_ascii=False)


def has_life(row: dict[str, Any]) -> bool:
    """Tell whether a row is of a life, which can catch up, not of a name that waits for its first snapshot."""
    return not row["table_id"].startswith(_WITHOUT_LIFE)


def started(
    metadata: Metadata,
    lives: list[Life],
    *,
    batch: int,
    versions: dict[str, int],
    first: int | None = None,
    began_us: int | None = None,
) -> None:
    """Write lives that begin with their snapshots, and end earlier lives of the same names. In this order a kill loses
    nothing. Lives that don't follow yet aren't in the lake's versions.

    first: the batch whose version has the new lives first; the one after ``batch`` by default. began_us: before the
    snapshots' commits; now by default.
    """
    metadata.replace(
        "schemas",
        f"table_id IN ({', '.join(literal(life.id) for life in lives)})",
        [schema_row(life, batch=batch, where=life.low, why="snapshot") for life in lives],
    )
    names = {life.name for life in lives}
    earlier = [row for row in metadata.read("watermarks") if TableName(row["database"], row["table"]) in names]
    first, began_us = batch + 1 if first is None else first, began_us or now_us()
    read = [life for life in lives if not life.schema.without_rows and life.status == "following"]
    table_versions.note_snapshot(metadata, first, read, versions, earlier, began_us=began_us)
    rows = [watermark_row(life, batch=batch, position=life.low, delta_version=versions.get(life.id)) for life in lives]
    write(metadata, rows, [row["table_id"] for row in earlier])
