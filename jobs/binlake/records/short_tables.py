"""Short tables: upkeep of the metadata tables while a source is followed, which writes them several times a second.

Whoever looks at a table lists its log, opens its files' statistics, and replays the commits since a checkpoint. So the
logs keep minutes, files that were replaced go with the commits that say so, and small files are put together.
"""

from __future__ import annotations

import time
from contextlib import suppress

from deltalake.exceptions import CommitFailedError, DeltaError

from binlake.config.units import HOUR_SECONDS
from binlake.delta import opened_tables
from binlake.delta.log_files import LogFiles
from binlake.errors import LakeError, StagingError
from binlake.records.expiry import OTHERS_WRITE, TOMBSTONES, interval
from binlake.storage import files, storage_errors
from binlake.store.metadata import Metadata
from binlake.store.table_schemas import SCHEMAS, TOMBSTONE_SECONDS

_LOG_MINUTES, _FEWEST_COMMITS = 5, 200
"""Age in minutes of the commits that go, and how many a log must have."""
_FEWEST_FILES = 32
"""Fewest small files that are put together."""
_TARGETS = (256 << 10, 1 << 20)
"""Bytes of the files that are made of those that are less than half as large, smaller ones first: a row is rewritten a
few times, not every minute. A file of 3 MB takes 165 MB of memory while it is written."""


def shorten(metadata: Metadata) -> int:
    """Delete what no version of the last minutes needs of the metadata tables' logs, and the data files that were
    replaced before; return how many files went.

    A process that sleeps for longer between its look at a table and its commit writes a version that a checkpoint has
    passed, which nobody reads, or finds a file gone. It has lost its lease by then, and finds that out before it writes
    anything else. Files that no commit has replaced stay: such a process may come to commit them. Raises LakeError.
    """
    before, gone = time.time() - _LOG_MINUTES * 60, 0
    for name in SCHEMAS:
        log_files = LogFiles.of(metadata.location(name))
        if len(log_files.commits) < _FEWEST_COMMITS:
            continue
        expired = log_files.expired(log_files.stood_at(before), ())
        try:
            replaced = sorted(log_files.removed_by(expired))
        except StagingError:  # another run deletes them
            continue
        for path in (*replaced, *(f"_delta_log/{file.name}" for file in expired)):
            with suppress(LakeError):  # another run may have deleted it
                files.remove_below(metadata.location(name), path)
        gone += len(replaced) + len(expired)
    return gone


def put_together(metadata: Metadata) -> int:
    """Put small files of the metadata tables together; return how many there were. The caller holds the lease.

    Files that another process writes meanwhile are left for the next time. Raises LakeError, LeaseHeld.
    """
    return sum(_put_together(metadata, name) for name in SCHEMAS if opened_tables.is_table(metadata.location(name)))


def _put_together(metadata: Metadata, name: str) -> int:
    try:
        with opened_tables.lent(metadata.location(name)) as table:
            current = table.metadata().configuration.get(TOMBSTONES)
            if current != (wanted := interval(TOMBSTONE_SECONDS / HOUR_SECONDS)):  # an older binlake made the table
                metadata.check()
                table.alter.set_table_properties({TOMBSTONES: wanted})
            sizes = [int(size) for size in table.get_add_actions()["size_bytes"].to_pylist()]
            small = {target: len([size for size in sizes if size < target / 2]) for target in _TARGETS}
            target = next((target for target, count in small.items() if count >= _FEWEST_FILES), None)
            if target is None or name in ("lease", *OTHERS_WRITE):
                return 0
            metadata.check()
            table.optimize.compact(target_size=target, max_concurrent_tasks=1)
            return small[target]
    except CommitFailedError:
        return 0
    except (DeltaError, OSError) as error:
        raise storage_errors.failed(f"the upkeep of the metadata table {name} failed", error) from error
