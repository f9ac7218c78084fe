"""Checks that a step's arguments would be accepted, made before Spark is started and without the lease.

The step repeats them, by the same code, when it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from binlake.config import PipelineConfig
from binlake.errors import UsageError
from binlake.phases import bootstrap
from binlake.phases.bootstrap import KeysAsked
from binlake.phases.replay import ReplayRequest, check as check_request
from binlake.records import decisions, watermarks
from binlake.records.decisions import Reason
from binlake.source.folder import Folder
from binlake.source.locks import LockMode
from binlake.source.log import Origin, server_of
from binlake.source.server import Source
from binlake.store.metadata import metadata_of


def check_snapshot(
    config: PipelineConfig, origin: Origin, tables: Sequence[str], keys: str | None = None, lock: str = "flush"
) -> None:
    """Check a snapshot's arguments. tables: patterns. keys: a range of one table's keys that is copied again.

    Raises UsageError, SourceError.
    """
    if lock not in get_args(LockMode):
        raise UsageError(f"{lock!r} is no lock", remedy=f"use {', '.join(get_args(LockMode))}")
    if keys:
        with Source.open(server_of(origin, "a range of keys")) as source:
            from binlake.snapshot import key_range

            name = bootstrap.name_followed(config, source, metadata_of(config), KeysAsked(list(tables), keys))
            key_range.asked(source, config, name, keys, lock)
    elif isinstance(origin, Folder):
        bootstrap.refuse_patterns_of_files(tables)
    else:
        check_tables(config, origin, tables)


def check_tables(config: PipelineConfig, origin: Origin, patterns: Sequence[str]) -> None:
    """Raise UsageError unless each pattern matches an included table that the server has. Raises SourceError, too."""
    if patterns and not isinstance(origin, Folder):
        with Source.open(origin) as source:
            bootstrap.names_to_snapshot(config, source, metadata_of(config), list(patterns))


def check_resume(config: PipelineConfig, tables: Sequence[str], reason: Reason) -> None:
    """Raise UsageError unless the tables can be resumed. tables: names."""
    if not tables:
        raise UsageError("no table was named", remedy="name tables that are paused or stopped")
    if not reason.why.strip():
        raise UsageError("no reason was given", remedy="give one in a few words: it is recorded")
    metadata = metadata_of(config)
    for name in (watermarks.name_of(metadata, table) for table in tables):
        if not decisions.follows(metadata, name):
            decisions.row_to_resume(metadata, name)


def check_replay(config: PipelineConfig, request: ReplayRequest) -> None:
    """Raise UsageError if a replay would be refused."""
    check_request(config, metadata_of(config), request)
