"""Unlock: end the lease of a run elsewhere, or make the lease again where it was lost."""

from __future__ import annotations

from collections.abc import Iterator

from binlake.config import PipelineConfig
from binlake.delta.delta_log import LakeLog
from binlake.records import decisions, lost_lease
from binlake.records.decisions import Reason
from binlake.store.metadata import metadata_of
from binlake.store.rows import WatermarkRow


def unlock(config: PipelineConfig, reason: Reason, feed: str | None = None) -> str:
    """Free the source, or a feed, and return a message: see decisions.unlock. Where the source's lease is gone, and the
    other metadata are there, make it again. Raises UsageError, MetadataLost."""
    metadata = metadata_of(config)
    if feed is not None or not metadata.has_lost_lease:
        return decisions.unlock(config, reason, feed)
    state = lost_lease.make_again(metadata, _logs(config))
    result = (
        f"the lease is made again, at batch {state.batch}, {state.position.short}: the next sync continues there, and "
        "binlake verify proves it"
    )
    decisions.note(metadata, "unlock", reason, result=result)
    return result


def _logs(config: PipelineConfig) -> Iterator[LakeLog]:
    """Return the logs of all tables that batches write."""
    for row in WatermarkRow.read(metadata_of(config)):
        if row.has_life:
            yield LakeLog.of(config, row.name, row.table_id)
            yield from (LakeLog.beside(config, row.name, mode) for mode in config.beside(row.name))
