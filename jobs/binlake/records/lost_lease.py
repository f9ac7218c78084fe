"""The lease's row where it alone is gone: what the other metadata show of it, and how it is made again.

They show the newest recorded batch and its position. They don't show an open batch: tables may have a part of it, and
its range would be planned again, wider than before. So the row is made again only where no batch is open and no table
has commits of a later one. XA transactions that were prepared aren't known either: where one commits, the batch that
finds it asks for snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from binlake.delta.delta_log import STEPS_PER_BATCH, LakeLog
from binlake.errors import MetadataLost
from binlake.lease.lease import RecordedState
from binlake.records import table_versions, watermarks
from binlake.store import formats
from binlake.store.conditions import Newest
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import BatchRow, LeaseRow, VersionRow, WatermarkRow

_OTHERWISE = (
    "restore _binlake from a backup, with all tables of the same time; or copy all tables again: binlake snapshot "
    "--config FILE --begin"
)


def make_again(metadata: Metadata, logs: Iterable[LakeLog]) -> RecordedState:
    """Make the lease's row again as the newest recorded batch left it, and return its state.

    logs: of all tables that batches write. Raises MetadataLost where that isn't safe, and nothing is written.
    """
    state = _newest_recorded(metadata)
    for log in logs:
        if log.recorded() >= (state.batch + 1) * STEPS_PER_BATCH:
            raise MetadataLost(
                f"the lease can't be made again: the newest recorded batch is {state.batch}, and {log.path} has a part "
                "of a later one",
                remedy=_OTHERWISE,
            )
    LeaseRow.create(metadata, [LeaseRow(batch=state.batch, position=formats.written(state))], again=True)
    return state


def _newest_recorded(metadata: Metadata) -> RecordedState:
    newest = BatchRow.first(metadata, newest=Newest("batch", 1))
    if newest is not None and newest.state != "recorded":
        raise MetadataLost(
            f"the lease can't be made again: batch {newest.batch} was open, and tables may have a part of it",
            remedy=_OTHERWISE,
        )
    batch = newest.batch if newest else 0
    version = table_versions.position_of(metadata, batch)
    position = newest.end if newest else version
    if position is None or not position.is_at(version):
        raise MetadataLost(
            "the lease can't be made again: the other metadata don't have the lake's position", remedy=_OTHERWISE
        )
    return RecordedState(batch, position)


def begin_again(metadata: Metadata) -> None:
    """Allow a new lake in the place of one that is gone. Where its lease alone is gone, all tables are to be copied
    again, and the numbers of batches continue. Raises LakeError."""
    if not metadata.has_lost_lease:
        metadata.begin_again()
        return
    metadata.begin_again()
    numbers = [row.batch for row in BatchRow.read(metadata, "batch")]
    numbers += [row.batch for row in VersionRow.read(metadata, "batch")]
    rows = [
        replace(row, status="resnapshot", reason="the lease was lost", frozen=False, updated_us=now_us())
        for row in WatermarkRow.read(metadata)
        if row.status not in ("dropped", "excluded")
    ]
    watermarks.write(metadata, rows)
    LeaseRow.create(metadata, [LeaseRow(batch=max(numbers, default=0) + 1)], again=True)
