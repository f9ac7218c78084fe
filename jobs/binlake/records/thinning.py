"""Thinning: of batches of seconds that are older than a day the newest of each hour stays a version of the lake.

So it is in hours in which more batches were recorded than a schedule asks for; in others all stay. Pinned ones stay,
and so do those whose predecessors' tables weren't noted. The rows of the others go from ``lake_versions``; the files
that they alone needed, and their commits, go with the next upkeep of the tables. Their runs are put together to one for
each hour, so that sums stay true.

A pin and a thinning don't need one lease: a thinning notes which batches are going, then looks for pins, and removes
the rows last; pinning writes the pin, then looks for that note and for the rows. The second of the two gives way.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from binlake.config.units import HOUR_US
from binlake.report import counted, rows_of_tables
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import KINDS, PinRow, ThinnedRow, VersionRow
from binlake.store.run_rows import RunRow

_MOST = 12
"""Batches of an hour that all stay: of one every five minutes."""
_Row = tuple[str, int, str]
"""The identity of a table's row: its life, batch and kind."""


def going(metadata: Metadata) -> set[int]:
    """Return the batches whose rows are being removed. Raises LakeError."""
    return {batch for row in ThinnedRow.read(metadata) for batch in json.loads(row.batches)}


def thin_versions(metadata: Metadata, before_us: int | None) -> int:
    """Remove the rows of batches recorded in hours before a time, except those that stay; return how many batches went.

    before_us: the beginning of an hour; None where all stay. The caller holds the lease. Raises LakeError, LeaseHeld.
    """
    own: list[VersionRow] = []
    if before_us is not None:
        own = VersionRow.read(metadata, "batch", "kind", "at_us", where="table_id IS NULL")
    gone = {row.batch for row in own} - _staying(own, before_us or 0) - _pinned(metadata)
    if not gone:
        if going(metadata):  # a run that was killed noted them, and the settings have changed since
            _note(metadata, ())
        return 0
    _note(metadata, gone)
    gone -= _pinned(metadata)
    first = min(row.batch for row in own if row.at_us >= (before_us or 0) or row.batch > max(gone))
    _remove(metadata, {row.batch for row in own} - gone, first)
    _note(metadata, ())
    return len(gone)


def is_thinned(metadata: Metadata) -> bool:
    """Return whether batches of the lake were ever thinned. Raises LakeError."""
    return ThinnedRow.count(metadata) > 0


def count_thinned(metadata: Metadata, staying: Sequence[int]) -> int:
    """Return how many recorded batches went between those that stay, which ascend. Raises LakeError.

    Not every number is a recorded batch's: one that was planned may be given up for a snapshot of all tables.
    """
    if not staying or staying[-1] - staying[0] + 1 == len(staying):
        return 0
    where = f"state = 'recorded' AND batch > {staying[0]} AND batch < {staying[-1]}"
    return len({*metadata.read_columns("batches", ["batch"], where=where)["batch"].to_pylist()} - {*staying})


def _staying(own: Sequence[VersionRow], before_us: int) -> set[int]:
    hours: dict[int, list[int]] = defaultdict(list)
    for row in own:
        hours[row.at_us // HOUR_US].append(row.batch)
    of_hours = (batches if len(batches) <= _MOST else [max(batches)] for batches in hours.values())
    kept = {row.batch for row in own if row.at_us >= before_us or row.kind == "base"}
    return kept.union(*of_hours)


def _pinned(metadata: Metadata) -> set[int]:
    return {row.batch for row in PinRow.read(metadata, "batch")}


def _note(metadata: Metadata, batches: Collection[int]) -> None:
    ThinnedRow.replace(metadata, "true", [ThinnedRow(batches=json.dumps(sorted(batches)), at_us=now_us())])


def _remove(metadata: Metadata, staying: Collection[int], first: int) -> None:
    """Remove the rows of batches before ``first`` that don't stay, and by which none that stays counts."""
    before = f"batch < {first}"
    counting = _counting(metadata, sorted({*staying, first}), before)
    batches = {batch for batch in staying if batch < first} | {batch for _, batch, _ in counting}
    listed = ", ".join(map(str, sorted(batches)))
    rows = VersionRow.read(metadata, where=f"{before} AND batch IN ({listed})") if batches else []
    kept = [row for row in rows if (row.batch in staying if row.table_id is None else _key(row) in counting)]
    VersionRow.replace(metadata, before, kept)


def _key(row: VersionRow) -> _Row:
    return row.life, row.batch, row.kind


def _counting(metadata: Metadata, staying: Sequence[int], where: str) -> set[_Row]:
    """Return the tables' rows by which a batch that stays counts, and the row behind each, which shows how long it did.

    staying: ascending.
    """
    names = ("table_id", "batch", "kind")
    columns = metadata.read_columns(VersionRow.TABLE, names, where=f"table_id IS NOT NULL AND {where}")
    lives: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for life, batch, kind in zip(*(columns[name].to_pylist() for name in names), strict=True):
        lives[life].append((batch, KINDS.index(kind)))
    counting: set[_Row] = set()
    for life, rows in lives.items():
        rows.sort()
        has_counted = False
        for place, (batch, kind) in enumerate(rows):
            behind = rows[place + 1][0] if place + 1 < len(rows) else staying[-1] + 1
            counts = bisect_left(staying, batch) < bisect_left(staying, behind)
            if counts or has_counted:
                counting.add((life, batch, KINDS[kind]))
            has_counted = counts
    return counting


def thin_runs(metadata: Metadata, before_us: int) -> int:
    """Put the runs of batches of each hour before a time together, where they are many; return how many went.

    before_us: the beginning of an hour. The caller holds the lease. Raises LakeError, LeaseHeld.
    """
    times = RunRow.read(metadata, "ended_us", where=f"kind = 'sync' AND ended_us < {before_us}")
    hours = Counter(row.ended_us // HOUR_US for row in times)
    gone = 0
    for hour, count in sorted(hours.items()):
        if count > _MOST:
            where = f"kind = 'sync' AND ended_us >= {hour * HOUR_US} AND ended_us < {(hour + 1) * HOUR_US}"
            RunRow.replace(metadata, where, [_run_of(RunRow.read(metadata, where=where))])
            gone += count - 1
    return gone


def _run_of(runs: Sequence[RunRow]) -> RunRow:
    """Return the newest of some runs, with what all of them did, and begun so long before its end as all of them
    took."""
    ordered = sorted(runs, key=lambda run: run.batch or 0)
    phases: dict[str, float] = defaultdict(float)
    tables: dict[str, dict[str, Any]] = {}
    for run in ordered:
        for phase, seconds in run.seconds.items():
            phases[phase] = round(phases[phase] + seconds, 2)
        for table in run.noted:
            before = tables.get(table["table"], {})
            tables[table["table"]] = {**table, **{name: table[name] + before.get(name, 0) for name in _SUMMED}}
    newest = ordered[-1]
    return replace(
        newest,
        started_us=newest.ended_us - sum(run.ended_us - run.started_us for run in ordered),
        tables=json.dumps(list(tables.values()), ensure_ascii=False),
        phases=json.dumps(phases),
        bytes=sum(run.bytes for run in ordered),
        mutations=sum(run.mutations for run in ordered),
        message=f"{counted(len(ordered), 'batch')} of this hour: {rows_of_tables(map(_rows, tables.values()))}",
        why_spark="; ".join(dict.fromkeys(run.why_spark for run in ordered if run.why_spark)),
    )


def _rows(table: dict[str, Any]) -> int:
    return int(table["inserted"] + table["updated"] + table["deleted"])


_SUMMED = ("inserted", "updated", "deleted", "seconds")
