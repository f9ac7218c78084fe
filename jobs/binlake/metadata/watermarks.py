"""Watermarks: every life of a table, and the position up to which it is merged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from binlake.batch.outcome import LifeOutcome
from binlake.batch.steps import Life, Standstill, Status
from binlake.errors import SNAPSHOTTED_BY_ITSELF, snapshot_command
from binlake.metadata import lease
from binlake.metadata.lease import Standing
from binlake.metadata.metadata import Metadata, literal, now_us
from binlake.position import Position
from binlake.schema.table import TableName, TableSchema
from binlake.serialization import dumps, loads


def read(metadata: Metadata) -> list[dict[str, Any]]:
    """A row for each life, and for each name that waits for one, as it stands: those that follow are moved by the
    lease's row, and by none of their own where a batch didn't change them."""
    standing = lease.read(metadata).standing
    return [stands(row, standing) for row in metadata.read("watermarks")]


def stands(row: dict[str, Any], standing: Standing | None) -> dict[str, Any]:
    """The row of a life that follows, at the position of the batch recorded last, unless its own is further. What a
    later batch wrote, which isn't recorded yet, and a snapshot taken since stand for themselves."""
    if standing is None or row["status"] != "following" or row["batch"] >= standing.batch:
        return row
    position = Position.parse(row["position"], row["gtid_set"] or "")
    if position.server == standing.position.server:
        position = max(position, standing.position)
    return {**row, "batch": standing.batch, "position": str(position), "gtid_set": position.gtid_set}


def write(metadata: Metadata, rows: Sequence[dict[str, Any]], gone: Iterable[str] = ()) -> None:
    """Put rows in the place of those of the same lives, and take those of the lives ``gone`` away, in one commit."""
    ids = sorted({row["table_id"] for row in rows} | set(gone))
    if ids:
        metadata.replace("watermarks", f"table_id IN ({', '.join(map(literal, ids))})", rows)


def read_lives(metadata: Metadata, *, open_batch: int | None = None) -> list[Life]:
    """All lives, each with its newest schema; of an open batch as they stood before it, though it may have got as far
    as to write down its own shapes."""
    schemas: dict[str, dict[str, Any]] = {}
    for row in sorted(metadata.read("schemas"), key=lambda row: (row["file_number"], row["offset"])):
        if row["why"] != "followed" or row["batch"] != open_batch:
            schemas[row["table_id"]] = row
    return [
        Life(
            row["table_id"],
            TableName(row["database"], row["table"]),
            loads(TableSchema, schemas[row["table_id"]]["schema"]),
            loads(Position, row["low"]),
            loads(Position, row["high"]),
            row["status"],
            Standstill(row["reason"], row["remedy"] or "") if row["reason"] else None,
            row["delta_version"],
        )
        for row in metadata.read("watermarks")
        if row["table_id"] in schemas
    ]


def schema_row(life: Life, *, batch: int, where: Position, why: str) -> dict[str, Any]:
    """A row of ``schemas``: the life's shape from ``where`` on."""
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
    """What to do about an included table without a life."""
    if status == "resnapshot":
        return SNAPSHOTTED_BY_ITSELF
    return snapshot_command(name)


def lifeless_row(name: TableName, status: Status, reason: str, *, batch: int, position: Position) -> dict[str, Any]:
    """An included table that has no life here: missing (the log has mutations of it) or to be snapshotted."""
    return {
        "table_id": lifeless_id(name),
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
    """Tables that are to be snapshotted anew, by name."""
    rows = metadata.read("watermarks", ["database", "table", "status"])
    return sorted({TableName(row["database"], row["table"]) for row in rows if row["status"] == "resnapshot"})


def lifeless(metadata: Metadata) -> frozenset[TableName]:
    """Included tables that have no life here: missing, or to be snapshotted for the first time."""
    rows = metadata.read("watermarks", ["table_id", "database", "table"])
    names = ((row["table_id"], TableName(row["database"], row["table"])) for row in rows)
    return frozenset(name for key, name in names if key == lifeless_id(name))


def follow_again(metadata: Metadata, life: str) -> None:
    """A life that has caught up with the others."""
    (row,) = [row for row in metadata.read("watermarks") if row["table_id"] == life]
    write(metadata, [{**row, "status": "following", "reason": None, "remedy": None, "updated_us": now_us()}])


def at_version(metadata: Metadata, life: str, version: int) -> None:
    """A life whose rows came into the lake beside the log."""
    (row,) = [row for row in metadata.read("watermarks") if row["table_id"] == life]
    write(metadata, [{**row, "delta_version": version, "updated_us": now_us()}])


def forget_lifeless(metadata: Metadata, names: list[TableName]) -> None:
    """Rows of tables that never began a life here."""
    write(metadata, [], map(lifeless_id, names))


def lifeless_id(name: TableName) -> str:
    return "missing:" + json.dumps([name.database, name.table], ensure_ascii=False)


def started(metadata: Metadata, lives: list[Life], *, batch: int, versions: dict[str, int]) -> None:
    """Lives begin with their snapshots; earlier lives of the same names end. In this order a kill loses nothing."""
    metadata.replace(
        "schemas",
        f"table_id IN ({', '.join(literal(life.id) for life in lives)})",
        [schema_row(life, batch=batch, where=life.low, why="snapshot") for life in lives],
    )
    names = {life.name for life in lives}
    earlier = [
        row["table_id"] for row in metadata.read("watermarks") if TableName(row["database"], row["table"]) in names
    ]
    rows = [watermark_row(life, batch=batch, position=life.low, delta_version=versions.get(life.id)) for life in lives]
    write(metadata, rows, earlier)
