"""Resume: paused and stopped tables follow the log again."""

from __future__ import annotations

from collections.abc import Sequence

from binlake.config import PipelineConfig
from binlake.errors import BinlakeError, TableError, UsageError
from binlake.metadata import decisions, lease, watermarks
from binlake.metadata.decisions import Reason
from binlake.metadata.failures import noted
from binlake.metadata.metadata import metadata_of, now_us
from binlake.report import Report
from binlake.schema.table import TableName
from binlake.source.log import Origin
from binlake.spark.starting import SessionFactory


@noted("resume")
def resume(
    config: PipelineConfig, origin: Origin, session: SessionFactory, report: Report, name: TableName, reason: Reason
) -> str:
    """Carry a paused or stopped table through the batches that it missed, and let it follow again. Return a message."""
    from binlake.phases.catchup import catch_up  # it imports the decoder, which most commands don't need

    metadata = metadata_of(config)
    with lease.held(metadata) as held:
        control = held.control()
        if control.open is not None:
            raise UsageError(f"batch {control.open.batch} is open", remedy="run binlake sync to finish it, then resume")
        metadata = held.metadata
        row = decisions.row_to_resume(metadata, name)
        if not config.included(name):
            raise UsageError(f"{name} isn't included", remedy="take it into tables.include in the YAML, then resume")
        began_us = now_us()
        decisions.note(metadata, "resume", reason, database=name.database, table=name.table, batch=control.batch)
        life = catch_up(config, origin, session, held, row, report)
        assert control.position is not None
        held.read_under("")
        watermarks.follow_again(metadata, life.id, config.is_read, began_us=began_us)
    return f"{name} follows again, at {control.position.short}"


def resume_all(
    config: PipelineConfig,
    origin: Origin,
    session: SessionFactory,
    report: Report,
    tables: Sequence[TableName],
    reason: Reason,
) -> list[str]:
    """Resume tables one after the other, except those that follow, so that a call can be repeated. Return messages.

    Raises the first error once all tables were tried.
    """
    messages: list[str] = []
    failed: list[BinlakeError] = []
    for name in tables:
        try:
            follows = decisions.follows(metadata_of(config), name)
            messages.append(f"{name} follows" if follows else resume(config, origin, session, report, name, reason))
            report.say(messages[-1])
        except (UsageError, TableError) as error:
            report.say(str(error))
            failed.append(error)
    if failed:
        raise failed[0]
    return messages
