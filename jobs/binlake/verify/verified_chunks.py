"""What is known equal: each table's chunks with their checksums, in the metadata table ``verified``, as of the batch at
which they were compared. By them the lake can be checked without the server."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake.exceptions import DeltaError

from binlake import names
from binlake.batch.steps import Life
from binlake.config import PipelineConfig
from binlake.delta import delta_log
from binlake.errors import UNMATCHED_REMEDY, LakeError, UsageError, snapshot_command
from binlake.metadata import lease, watermarks
from binlake.metadata.metadata import Metadata, literal, now_us
from binlake.position import Position
from binlake.verify.key_cells import CELLS, ComparedColumns, KeyCells, range_column
from binlake.verify.lake_rows import LakeRows, Unreadable
from binlake.verify.result import TableResult, VerifyReport
from binlake.verify.row_checksums import Sums

_TABLE = "verified"
_VERIFY = "run binlake verify"


def rows_of(life: Life, cells: KeyCells, sums: Sums, result: TableResult, position: Position) -> list[dict[str, Any]]:
    """Return the rows of a table that was compared and is equal. sums: of its cells."""
    counts = sums.rows.reshape(-1, CELLS).sum(axis=1)
    totals = sums.sums.reshape(-1, CELLS, 2).sum(axis=1, dtype=np.uint64)
    least = [None] * cells.chunks if cells.edges is None else [None, *map(str, cells.edges.tolist())]
    common = {
        "table_id": life.id, "database": life.name.database, "table": life.name.table, "chunks": cells.chunks,
        "ranges": cells.edges is not None, "batch": result.batch, "position": str(position),
        "delta_version": result.delta_version, "shape": life.fingerprint, "at_us": now_us(),
    }  # fmt: skip
    return [
        {**common, "chunk": number, "least": least[number], "rows": int(count), "checksum": _text(total)}
        for number, (count, total) in enumerate(zip(counts.tolist(), totals.tolist(), strict=True))
    ]


def note(metadata: Metadata, rows: Sequence[dict[str, Any]]) -> None:
    """Put rows in the place of those that the same tables have."""
    if rows:
        ids = sorted({row["table_id"] for row in rows})
        metadata.replace(_TABLE, f"table_id IN ({', '.join(map(literal, ids))})", list(rows))


def _text(total: Sequence[int]) -> str:
    return "{:016x}{:016x}".format(*total)


def check_lake(config: PipelineConfig, metadata: Metadata, patterns: list[str] | None) -> VerifyReport:
    """Check the tables that follow the log, those that patterns match if any are given, by the checksums of their
    verified chunks. The server isn't asked.

    A table that was merged into since is read at the Delta version that was verified. Raises UsageError if no table
    matches, or the lake follows nothing.
    """
    began_us = now_us()
    position = lease.read(metadata).position
    lives = [
        life
        for life in watermarks.read_lives(metadata)
        if life.status == "following"
        and (not patterns or any(names.matches(one, life.name.database, life.name.table) for one in patterns))
    ]
    if not lives or position is None:
        raise UsageError("no table that follows the log matches", remedy=UNMATCHED_REMEDY)
    by_life: dict[str, list[dict[str, Any]]] = {}
    for row in metadata.read(_TABLE):
        by_life.setdefault(row["table_id"], []).append(row)
    results = [_checked(config, life, by_life.get(life.id, [])) for life in sorted(lives, key=lambda life: life.name)]
    return VerifyReport(uuid.uuid4().hex, position, None, (now_us() - began_us) / 1e6, tuple(results))


def _checked(config: PipelineConfig, life: Life, rows: list[dict[str, Any]]) -> TableResult:
    """Return the result of one table. rows: of its verified chunks."""
    blank = TableResult(life.name, "failed")
    if not rows:
        return replace(blank, reason="it was never verified by reading", remedy=_VERIFY)
    rows.sort(key=lambda row: row["chunk"])
    blank = replace(blank, batch=rows[0]["batch"], delta_version=rows[0]["delta_version"])
    if rows[0]["shape"] != life.fingerprint:
        return replace(blank, reason="its shape changed since it was verified", remedy=_VERIFY)
    try:
        return _compared(config, life, rows, blank)
    except (DeltaError, LakeError, OSError, pa.ArrowException, Unreadable) as error:
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        return replace(blank, reason=f"its data files can't be read: {text}", remedy=snapshot_command(life.name))


def _compared(config: PipelineConfig, life: Life, rows: list[dict[str, Any]], blank: TableResult) -> TableResult:
    path, since = config.table_path(life.name), int(rows[0]["delta_version"])
    newest = LakeRows(path)
    behind = newest.log.history(newest.version - since) if newest.version > since else []
    changing = [commit for commit in behind if int(commit["version"]) > since and delta_log.changes_rows(commit)]
    foreign = [commit for commit in changing if delta_log.note_of(commit).get("life") != life.id]
    if foreign:
        what = f"{foreign[-1].get('operation', 'an unknown operation')} at Delta version {foreign[-1]['version']}"
        reason = f"somebody else changed it: {what}"
        return replace(
            blank, state="compared", equal=False, source_rows=_rows(rows), lake_rows=0, chunks=len(rows),
            differing=len(rows), reason=reason, remedy=snapshot_command(life.name),
        )  # fmt: skip
    lake = LakeRows(path, since) if changing else newest
    lake.refuse_unknown()
    compared, cells = ComparedColumns(life.schema), _cells(life, rows)
    sums = Sums.empty(cells.count)
    for file in lake.files(compared):
        for batch, _ in file.numbered():
            measured = compared.measured(batch, cells)
            sums.add(measured.cells, measured.checksums)
    there = rows_of(life, cells, sums, blank, life.high)
    pairs = zip(rows, there, strict=True)
    differing = sum((was["rows"], was["checksum"]) != (row["rows"], row["checksum"]) for was, row in pairs)
    return replace(
        blank, state="compared", equal=not differing, source_rows=_rows(rows), lake_rows=sums.total,
        chunks=len(rows), differing=differing, delta_version=lake.version,
        reason="its files hold other rows than were verified" if differing else "",
    )  # fmt: skip


def _rows(rows: Sequence[dict[str, Any]]) -> int:
    return sum(int(row["rows"]) for row in rows)


def _cells(life: Life, rows: Sequence[dict[str, Any]]) -> KeyCells:
    """Return the chunks that the rows tell of."""
    cut = range_column(life.schema) if rows[0]["ranges"] else None
    if cut is None:
        return KeyCells(shares=len(rows))
    column, order = cut
    return KeyCells(column, order, np.array([int(row["least"]) for row in rows[1:]], order.dtype))
