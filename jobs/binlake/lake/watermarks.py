"""Watermarks: every life of a table, and the position up to which it is merged."""

from __future__ import annotations

import json
from typing import Any

from binlake.lake.epochs import Life
from binlake.lake.metadata import Metadata, literal, now_us
from binlake.position import Position
from binlake.schema.table import TableName, TableSchema


def position_text(position: Position) -> str:
    return json.dumps(position.to_json())


def _position(text: str) -> Position:
    return Position.from_json(json.loads(text))


def read_lives(metadata: Metadata) -> list[Life]:
    """All lives but ``missing`` ones, each with its newest schema."""
    schemas: dict[str, dict[str, Any]] = {}
    for row in sorted(metadata.read("schemas"), key=lambda row: (row["file_number"], row["offset"])):
        schemas[row["table_id"]] = row
    return [
        Life(
            row["table_id"],
            TableName(row["database"], row["table"]),
            TableSchema.from_json(json.loads(schemas[row["table_id"]]["schema"])),
            _position(row["low"]),
            _position(row["high"]),
            row["status"],
            row["reason"] or "",
            row["remedy"] or "",
        )
        for row in metadata.read("watermarks")
        if row["status"] != "missing"
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
        "schema": json.dumps(life.schema.to_json(), ensure_ascii=False),
        "why": why,
    }


def watermark_row(life: Life, *, batch: int, position: Position, delta_version: int | None) -> dict[str, Any]:
    return {
        "table_id": life.id,
        "database": life.name.database,
        "table": life.name.table,
        "status": life.status,
        "batch": batch,
        "position": str(position),
        "gtid_set": position.gtid_set,
        "low": position_text(life.low),
        "high": position_text(life.high),
        "delta_version": delta_version,
        "fingerprint": life.schema.fingerprint,
        "reason": life.reason or None,
        "remedy": life.remedy or None,
        "updated_us": now_us(),
    }


def missing_row(name: TableName, *, batch: int, position: Position) -> dict[str, Any]:
    """An included table that was never snapshotted, though the log has mutations of it."""
    return {
        "table_id": missing_id(name),
        "database": name.database,
        "table": name.table,
        "status": "missing",
        "batch": batch,
        "position": str(position),
        "reason": "included, but never snapshotted",
        "remedy": f"binlake snapshot --config FILE --tables '{name}'",
        "updated_us": now_us(),
    }


def missing_id(name: TableName) -> str:
    return "missing:" + json.dumps([name.database, name.table], ensure_ascii=False)


def started(metadata: Metadata, lives: list[Life], *, batch: int, versions: dict[str, int]) -> None:
    """Lives begin with their snapshots; earlier lives of the same names end. In this order a kill loses nothing."""
    metadata.replace(
        "schemas",
        f"table_id IN ({', '.join(literal(life.id) for life in lives)})",
        [schema_row(life, batch=batch, where=life.low, why="snapshot") for life in lives],
    )
    names = {life.name for life in lives}
    ids = {life.id for life in lives}
    kept = [
        row
        for row in metadata.read("watermarks")
        if row["table_id"] not in ids and TableName(row["database"], row["table"]) not in names
    ]
    rows = [watermark_row(life, batch=batch, position=life.low, delta_version=versions.get(life.id)) for life in lives]
    metadata.replace("watermarks", "true", kept + rows)
