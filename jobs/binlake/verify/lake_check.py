"""The lake checked by itself: its files are read, and compared with the checksums of the chunks that were verified."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
from deltalake.exceptions import DeltaError

from binlake.config import PipelineConfig
from binlake.delta import delta_log
from binlake.delta.delta_log import LakeLog
from binlake.errors import LakeError, NoSnapshotYet, repair_command
from binlake.lease import lease
from binlake.lease.lease import Control
from binlake.planner.steps import Life
from binlake.position import Position
from binlake.records import replayable, watermarks
from binlake.store.metadata import Metadata, now_us
from binlake.store.run_rows import VerifiedRow
from binlake.verify.beside_check import BesideCheck, tables_beside
from binlake.verify.reading.key_cells import CELLS, ComparedColumns
from binlake.verify.reading.known_chunks import ChunkNotes, KnownChunks, rows_by_life
from binlake.verify.reading.lake_rows import LakeRows, Unreadable
from binlake.verify.reading.row_checksums import Sums
from binlake.verify.result import TableResult, VerifyReport

_VERIFY = "run binlake verify"
_LOOKS, _LOOK_AGAIN = 40, 0.25
"""How often it is looked for a moment at which no batch is open, and seconds between."""
_NEWER = f"its newer files, merged since it was verified, weren't checked: {_VERIFY}"


def check_lake(config: PipelineConfig, metadata: Metadata, patterns: list[str] | None) -> VerifyReport:
    """Check the tables that follow the log, those that patterns match if any are given, by the checksums of their
    verified chunks, and what modes keep beside them as a verification does. The server isn't asked.

    A table that was merged into since is read at the Delta version that was verified. Raises UsageError for a
    pattern that matches none, or where the lake follows nothing.
    """
    began_us = now_us()
    lives = watermarks.following(metadata, patterns)
    if lease.read(metadata).position is None:
        raise NoSnapshotYet
    by_life = rows_by_life(metadata)
    notes = ChunkNotes(metadata, {life.name: life for life in lives})
    mirrored = [life for life in lives if config.mirror_modes(life.name).mirror]
    results = [_checked(config, life, by_life.get(life.id, []), notes) for life in mirrored]
    notes.write()
    results += _checked_beside(config, metadata, lives)
    # The lake may have moved on since, with files that nothing here was compared with.
    positions = {result.position for result in results if result.state == "compared" and result.position}
    position = Position.parse(positions.pop()) if len(positions) == 1 else None
    return VerifyReport(uuid.uuid4().hex, position, None, (now_us() - began_us) / 1e6, tuple(results))


def _checked(config: PipelineConfig, life: Life, rows: list[VerifiedRow], notes: ChunkNotes) -> TableResult:
    """Return the result of one table. rows: of its verified chunks. A problem with its files is noted."""
    blank = TableResult(life.name, "failed")
    if not rows:
        return replace(blank, reason="it was never verified by reading", remedy=_VERIFY)
    if (known := KnownChunks.of_rows(life, rows)) is None:
        return replace(blank, reason="its shape changed since it was verified", remedy=_VERIFY)
    chunks = [chunk for chunk in known.chunks if chunk]
    if not chunks:
        return replace(blank, reason=known.problem or "none of its chunks is known equal", remedy=_VERIFY)
    through = chunks[0].through
    blank = replace(blank, batch=through.batch, position=through.position, delta_version=through.delta_version)
    try:
        result = _compared(config, life, known, blank)
        problem = "" if result.equal is not False else f"differs from what was verified: {result.why}"
    except (DeltaError, LakeError, OSError, pa.ArrowException, Unreadable) as error:
        if isinstance(error, DeltaError | FileNotFoundError) and _is_outlived(config, life, through.delta_version):
            reason = f"its Delta version {through.delta_version}, which was verified, isn't kept any more"
            return replace(blank, reason=reason, remedy=_VERIFY)
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        reason, problem = f"its data files can't be read: {text}", f"can't be read: {text}"
        result = replace(blank, reason=reason, remedy=repair_command(life.name), is_unreadable=True)
    if problem != known.problem:
        notes.put(life.name, replace(known, problem=problem))
    return result


def _checked_beside(config: PipelineConfig, metadata: Metadata, lives: Sequence[Life]) -> list[TableResult]:
    """Return the results of the tables beside the mirrors of some lives. While batches are merged, a table may be ahead
    of its mirror; what can't be compared for that is left out, with the reason."""
    for _ in range(_LOOKS):
        before = lease.read(metadata)
        tables = tables_beside(config, metadata, lives)
        if before.open is None and _is_still(before, lease.read(metadata)):
            break
        if not tables:
            return []
        time.sleep(_LOOK_AGAIN)
    assert before.position is not None  # or there would be no lives
    check = BesideCheck(config, metadata, before.batch, before.position)
    if before.open is None:
        return [check.result(table) for table in tables]
    reason = f"batch {before.open.batch} is open: it may be ahead of its mirror"
    remedy = "verify it again when that batch is recorded, or run binlake sync to finish it"
    return [replace(check.blank(table), state="catching up", reason=reason, remedy=remedy) for table in tables]


def _is_still(before: Control, now: Control) -> bool:
    return (before.batch, before.open) == (now.batch, now.open)


def _is_outlived(config: PipelineConfig, life: Life, version: int) -> bool:
    """Return whether a table has a newer version that is whole: then upkeep removed what this one alone needed."""
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
            blank, state="compared", equal=False, source_rows=known.rows, chunks=known.cells.chunks,
            differing=known.cells.chunks, reason=reason, remedy=repair_command(life.name),
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
        blank, state="compared", equal=not (differing or lake.wrong), source_rows=known.rows, lake_rows=sums.total,
        chunks=known.cells.chunks, differing=differing, delta_version=lake.version,
        statistics=tuple(lake.wrong.values()),
        reason="its files hold other rows than were verified" if differing else newer,
    )  # fmt: skip
    if unknown and not differing and not lake.wrong:
        reason = f"{unknown:,} of its {result.chunks:,} chunks aren't known equal, the others are as they were"
        return replace(result, state="failed", equal=None, reason=reason, remedy=_VERIFY)
    return result
