"""The lake checked by itself: its files are read, and compared with the checksums of the chunks that were verified."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError

from binlake.batch.steps import Life
from binlake.config import PipelineConfig
from binlake.delta import delta_log
from binlake.delta.delta_log import LakeLog
from binlake.errors import LakeError, NoSnapshotYet, snapshot_command
from binlake.metadata import lease, replayable, watermarks
from binlake.metadata.metadata import Metadata, now_us
from binlake.position import Position
from binlake.verify.key_cells import CELLS, ComparedColumns
from binlake.verify.known_chunks import KnownChunks, rows_by_life
from binlake.verify.lake_rows import LakeRows, Unreadable
from binlake.verify.result import TableResult, VerifyReport
from binlake.verify.row_checksums import Sums

_VERIFY = "run binlake verify"
_NEWER = f"its newer files, merged since it was verified, weren't checked: {_VERIFY}"


def check_lake(config: PipelineConfig, metadata: Metadata, patterns: list[str] | None) -> VerifyReport:
    """Check the tables that follow the log, those that patterns match if any are given, by the checksums of their
    verified chunks. The server isn't asked.

    A table that was merged into since is read at the Delta version that was verified. Raises UsageError for a
    pattern that matches none, or where the lake follows nothing.
    """
    began_us = now_us()
    lives = watermarks.following(metadata, patterns)
    if lease.read(metadata).position is None:
        raise NoSnapshotYet
    by_life = rows_by_life(metadata)
    results = [_checked(config, life, by_life.get(life.id, [])) for life in lives]
    # The lake may have moved on since, with files that nothing here was compared with.
    positions = {result.position for result in results if result.state == "compared" and result.position}
    position = Position.parse(positions.pop()) if len(positions) == 1 else None
    return VerifyReport(uuid.uuid4().hex, position, None, (now_us() - began_us) / 1e6, tuple(results))


def _checked(config: PipelineConfig, life: Life, rows: list[dict[str, Any]]) -> TableResult:
    """Return the result of one table. rows: of its verified chunks."""
    blank = TableResult(life.name, "failed")
    if not rows:
        return replace(blank, reason="it was never verified by reading", remedy=_VERIFY)
    if (known := KnownChunks.of_rows(life, rows)) is None:
        return replace(blank, reason="its shape changed since it was verified", remedy=_VERIFY)
    chunks = [chunk for chunk in known.chunks if chunk]
    if not chunks:
        return replace(blank, reason="none of its chunks is known equal", remedy=_VERIFY)
    through = chunks[0].through
    blank = replace(blank, batch=through.batch, position=through.position, delta_version=through.delta_version)
    try:
        return _compared(config, life, known, blank)
    except (DeltaError, LakeError, OSError, pa.ArrowException, Unreadable) as error:
        if isinstance(error, DeltaError | FileNotFoundError) and _is_outlived(config, life, through.delta_version):
            reason = f"its Delta version {through.delta_version}, which was verified, isn't kept any more"
            return replace(blank, reason=reason, remedy=_VERIFY)
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        return replace(blank, reason=f"its data files can't be read: {text}", remedy=snapshot_command(life.name))


def _is_outlived(config: PipelineConfig, life: Life, version: int) -> bool:
    """Tell whether a table has a newer version that is whole: then upkeep removed what this one alone needed."""
    log = LakeLog.of(config, life.name, life.id)
    with suppress(LakeError):
        return (newest := log.version()) > version and replayable.is_readable(log, newest)
    return False


def _compared(config: PipelineConfig, life: Life, known: KnownChunks, blank: TableResult) -> TableResult:
    """Return the result of one table. blank: with the Delta version that the known chunks have in common."""
    path, since = config.table_path(life.name), int(blank.delta_version or 0)
    newest = LakeRows(path)
    behind = list(LakeLog.of(config, life.name, life.id).history(since))
    changing = [commit for commit in behind if delta_log.changes_rows(commit)]
    foreign = [commit for commit in changing if delta_log.note_of(commit).get("life") != life.id]
    if foreign:
        what = f"{foreign[-1].get('operation', 'an unknown operation')} at Delta version {foreign[-1]['version']}"
        reason = f"somebody else changed it: {what}"
        return replace(
            blank, state="compared", equal=False, source_rows=known.rows, lake_rows=0, chunks=known.cells.chunks,
            differing=known.cells.chunks, reason=reason, remedy=snapshot_command(life.name),
        )  # fmt: skip
    is_complete = len(behind) >= newest.version - since  # else upkeep removed commits, which may have changed rows
    lake = LakeRows(path, since) if changing or not is_complete else newest
    lake.refuse_unknown()
    compared, sums = ComparedColumns(life.schema), Sums.empty(known.cells.count)
    for file in lake.files(compared):
        for batch, _ in file.numbered():
            measured = compared.measured(batch, known.cells)
            sums.add(measured.cells, measured.checksums)
    there = sums.by_chunk(CELLS)
    differing = sum(
        chunk is not None and (chunk.rows, chunk.checksum) != (int(there.rows[number]), there.text(number))
        for number, chunk in enumerate(known.chunks)
    )
    unknown = known.chunks.count(None)
    newer = "" if lake is newest else _NEWER
    result = replace(
        blank, state="compared", equal=not differing, source_rows=known.rows, lake_rows=sums.total,
        chunks=known.cells.chunks, differing=differing, delta_version=lake.version,
        reason="its files hold other rows than were verified" if differing else newer,
    )  # fmt: skip
    if unknown and not differing:
        reason = f"{unknown:,} of its {result.chunks:,} chunks aren't known equal, the others are as they were"
        return replace(result, state="failed", equal=None, reason=reason, remedy=_VERIFY)
    return result
