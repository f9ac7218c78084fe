"""Files to delete: what dead runs left outside of Delta's logs, and what a table's folder holds beyond its history."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from binlake.config import PipelineConfig
from binlake.config.units import HOUR_SECONDS
from binlake.delta.delta_log import LakeLog
from binlake.delta.log_files import LogFiles
from binlake.errors import LakeError
from binlake.lease.lease import RecordedState
from binlake.records import feed_watermarks
from binlake.records.snapshot_ids import is_of_an_attempt
from binlake.schema.table import TableName
from binlake.storage import files
from binlake.storage.protocol import StoredFile
from binlake.store.metadata import metadata_of

_VECTORS = ".bin"
_SIDE_BY_SIDE = 16
"""Files deleted at once: storage behind a URL answers slowly."""


def remove_recorded(config: PipelineConfig, recorded_state: RecordedState) -> list[str]:
    """Delete the staging of recorded batches, and return the folders.

    Kept is what XA transactions and feeds still wait for, and what is promised to replays.
    """
    recorded = {batch for batch in feed_watermarks.staged_batches(config) if batch <= recorded_state.batch}
    kept = {waiting.batch for waiting in recorded_state.prepared}
    if not recorded <= kept:
        kept |= _awaited_by_feeds(config, recorded_state.batch, recorded)
    kept |= _promised(config, recorded - kept)
    return [_removed(config, batch) for batch in sorted(recorded - kept)]


def _awaited_by_feeds(config: PipelineConfig, newest: int, recorded: set[int]) -> set[int]:
    """Return the batches that feeds wait for; all where that can't be found out, as feeds must not hold a sync back."""
    try:
        return feed_watermarks.awaited(config, metadata_of(config), newest, recorded)
    except LakeError:
        return recorded


def _promised(config: PipelineConfig, batches: Collection[int]) -> set[int]:
    """Return the batches that were staged within the hours for which staging is kept."""
    if not config.maintain.staging_hours:
        return set()
    before = time.time() - config.maintain.staging_hours * HOUR_SECONDS
    promised = set(batches)
    for batch in sorted(batches):  # their order is that of their times
        attempts = files.subfolders(config.staging_path(str(batch)))
        if any(int(attempt.partition("-")[0]) >= before for attempt in attempts):
            break
        promised.discard(batch)
    return promised


def _removed(config: PipelineConfig, batch: int) -> str:
    folder = config.staging_path(str(batch))
    files.remove_folder(folder)
    return folder


def remove_unborn(config: PipelineConfig, tables: Collection[TableName], before: float) -> list[str]:
    """Delete the folders of tables whose first snapshot died, and return them.

    Such a folder has no commit, and only files of attempts, all written before a time (seconds since 1970). tables:
    their folders stay, whatever is in them. Symbolic links aren't followed.
    """
    merged = {config.table_path(entry.name): entry.begins(config.source.name) for entry in config.tables.merge_tables}
    kept = {*merged, *(config.table_path(name) for name in tables)}
    folders = [
        f"{root}/{database}/{table}"
        for root in (config.root, config.ghosts)
        for database in files.own_subfolders(root)
        if not database.startswith("_")
        for table in files.own_subfolders(f"{root}/{database}")
    ]
    folders += [
        f"{path}/{shard}"
        for path, own in merged.items()
        for shard in files.own_subfolders(path)
        if shard.startswith(own) and shard[0] != "_"
    ]
    unborn = [folder for folder in folders if folder not in kept and _is_unborn(folder, before)]
    for folder in unborn:
        files.remove_folder(folder)
    return unborn


def _is_unborn(folder: str, before: float) -> bool:
    below = ("", *(f"/{shard}" for shard in files.own_subfolders(folder)))  # tables of shards may be in it
    if any(files.list_files(f"{folder}{inner}/_delta_log") for inner in below):
        return False
    inside = files.list_files(folder)
    return bool(inside) and all(file.modified < before and is_of_an_attempt(file.name) for file in inside)


@dataclass(frozen=True)
class Unneeded:
    """Data files and files of deletion vectors in a table's folder that no version since some time needs.

    pinned: those of them that pinned versions need, which stay. readable_from: once ``files`` are gone, all versions
    from it on are whole.
    """

    files: tuple[StoredFile, ...] = ()
    pinned: tuple[StoredFile, ...] = ()
    readable_from: int = 0


@dataclass(frozen=True)
class EachSince:
    """The time from which on each version of a table stays, in seconds since 1970, and the earlier versions that
    stay."""

    time: float
    earlier: frozenset[int] = frozenset()


def unneeded(
    log: LakeLog,
    before: float,
    pinned: Collection[int] = (),
    each_since: EachSince | None = None,
    below: str = "",
) -> Unneeded:
    """Return files written before a time (seconds since 1970) that are neither in the newest version nor in any since
    then. pinned: Delta versions that are kept. each_since: not each version since the time stays, but these. below: a
    folder in that of the table, whose files alone are looked at.

    Delta's VACUUM finds them by the tombstones in its log's checkpoints; here the commits since the time are read.
    Where one of them is missing, or a kept version isn't whole, nothing is unneeded.
    """
    each = each_since or EachSince(before)
    there = files.list_files(f"{log.path}/{below}" if below else log.path)
    there = [replace(file, name=f"{below}/{file.name}") for file in there] if below else there
    old = [file for file in there if file.modified < each.time and _is_data(file.name)]
    if not old:
        return Unneeded()
    used = {_base(uri) for uri in log.opened().file_uris()}
    old = [file for file in old if _base(file.name) not in used]
    if not old:
        return Unneeded()
    log_files = LogFiles.of(log.path)
    stood = log_files.stood_at(each.time)
    needed = [log_files.named_since(stood)]
    needed += [log_files.needed_by(version) for version in sorted(each.earlier) if version < stood]
    if any(file.name.endswith(_VECTORS) for file in old):
        needed.append(log_files.needed_by(max(log_files.commits, default=-1)))
    kept = [log_files.needed_by(version) for version in sorted(pinned)]
    if None in needed or None in kept:
        return Unneeded()
    names, names_kept = (set[str]().union(*(part or () for part in parts)) for parts in (needed, kept))
    gone = [file for file in old if _base(file.name) not in names]
    return Unneeded(
        tuple(file for file in gone if _base(file.name) not in names_kept),
        tuple(file for file in gone if _base(file.name) in names_kept),
        min(stood, log_files.stood_at(before)),
    )


@dataclass(frozen=True)
class ExpiredLog:
    """Files of a Delta log, oldest first. readable_from: once they are gone, the first version that can be read."""

    files: tuple[StoredFile, ...]
    readable_from: int


def expired_log(
    log: LakeLog, before: float, pinned: Collection[int] = (), each_since: EachSince | None = None
) -> ExpiredLog:
    """Return what no version since a time (seconds since 1970) needs of a table's Delta log, and no pinned one.

    each_since: not each version since the time stays, but these.
    """
    each = each_since or EachSince(before)
    log_files = LogFiles.of(log.path)
    stood, first = log_files.stood_at(each.time), log_files.stood_at(before)
    return ExpiredLog(log_files.expired(stood, each.earlier.union(pinned)), max(0, log_files.base(min(stood, first))))


def _is_data(name: str) -> bool:
    return name.endswith((".parquet", _VECTORS))


def remove_log(log: LakeLog, gone: Sequence[StoredFile]) -> None:
    """Delete files of a table's Delta log."""
    _remove(log.path, [f"_delta_log/{file.name}" for file in gone])


def remove_data(log: LakeLog, gone: Sequence[StoredFile]) -> None:
    """Delete files of a table."""
    _remove(log.path, [file.name for file in gone])


def _remove(path: str, gone: Sequence[str]) -> None:
    """Delete files below a table's folder, and the checksum files that Hadoop keeps beside them on a local disk.

    Raises LakeError where a symbolic link in the table's folder leads to one of them.
    """

    def remove(name: str) -> None:
        files.remove_below(path, name)
        folder, slash, base = name.rpartition("/")
        checksum = f"{folder}{slash}.{base}.crc"
        if "://" not in path and files.exists(f"{path}/{checksum}"):
            files.remove_below(path, checksum)

    with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="remove") as pool:
        list(pool.map(remove, gone))


def _base(path: str) -> str:
    return path.rpartition("/")[2]
