"""Pins: names of batches whose versions of all tables are kept, however old they become.

A pin and the removal of files don't need one lease: pinning writes the pin, then looks whether the version can still
be read; a removal writes from which version on a table can be read, then looks for pins. The second of the two sees the
other, and gives way.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from binlake.config import PipelineConfig
from binlake.errors import UsageError
from binlake.lake import merged_sources, merged_tables
from binlake.lake.lake_versions import (
    LakeVersion,
    lake_versions,
    root_of,
    unreadable_batches,
    version_at,
    versions_read,
)
from binlake.lake.merged_sources import NotedSince, PromisedHours
from binlake.lake.table_at import TableAt
from binlake.records import decisions, table_versions, thinning
from binlake.records.decisions import Reason
from binlake.schema.table import TableName
from binlake.storage import files
from binlake.store.conditions import literal
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import PinRow

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")


def read(metadata: Metadata) -> list[PinRow]:
    """Return all pins, ordered by their batches. Raises LakeError."""
    return sorted(PinRow.read(metadata), key=lambda pin: (pin.batch, pin.name))


def pin(metadata: Metadata, batch: int, name: str, reason: Reason) -> LakeVersion:
    """Keep a batch's versions of all tables under a name, and return it.

    Raises UsageError where the batch isn't known or can't be read any more, or where it or the name, in whichever case,
    is pinned already.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} can't be the name of a version",
            remedy="write letters, digits and _, a letter first, at most 63: it becomes a part of views' names",
        )
    for known in read(metadata):
        if known.batch == batch or known.name.lower() == name.lower():  # the names of views have no case
            raise UsageError(
                f"batch {known.batch} is pinned as {known.name} already, by {known.who}: {known.why}",
                remedy=f"take another name, or first: binlake versions unpin --config FILE {known.name}",
            )
    version_at(lake_versions(metadata), batch=batch).looked_at(root_of(metadata)).refuse_unreadable()
    PinRow.append(metadata, [PinRow(name=name, batch=batch, **vars(reason), at_us=now_us())])
    if batch in unreadable_batches(metadata) | thinning.going(metadata):
        unpin(metadata, name)
        version_at(lake_versions(metadata), batch=batch).refuse_unreadable()
        raise UsageError(f"batch {batch} is being removed", remedy="take another: binlake versions lists them")
    try:
        version = version_at(lake_versions(metadata), batch=batch)
    except UsageError:  # it was removed meanwhile
        unpin(metadata, name)
        raise
    decisions.note(metadata, "pin", reason, batch=batch, result=f"batch {batch} is kept as {name}")
    return version


def unpin(metadata: Metadata, name: str, reason: Reason | None = None) -> int:
    """Give a name back, so that maintain may remove the version's files, and return its batch. Raises UsageError.

    reason: is recorded; None where a pin that was just made is taken back.
    """
    pins = {pin.name: pin for pin in read(metadata)}
    if name not in pins:
        raise UsageError(
            f"no version is called {name!r}", remedy=f"names are {', '.join(pins)}" if pins else "none is pinned"
        )
    PinRow.replace(metadata, f"name = {literal(name)}")
    batch = pins[name].batch
    if reason is not None:
        decisions.note(metadata, "unpin", reason, batch=batch, result=f"{name} isn't kept any more")
    return batch


@dataclass(frozen=True)
class PinnedVersions:
    """The Delta versions that are kept, by the table's path. pins: those by which some are. ended: of a lake whose
    batches are thinned, those that known batches read, and until when, in seconds since 1970. shown: of shards, those
    that the merged table shows now, and by the versions that are promised. named: those that are kept by the names of
    their pins. hours: for which versions stay of tables that several sources fill."""

    pins: tuple[PinRow, ...]
    by_path: Mapping[str, frozenset[int]]
    ended: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    shown: Mapping[str, frozenset[int]] = field(default_factory=dict)
    named: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    hours: PromisedHours = field(default_factory=PromisedHours)

    @classmethod
    def of(cls, config: PipelineConfig, metadata: Metadata, looked: float | None = None) -> PinnedVersions:
        """Read them. looked: the time up to which hours are promised, in seconds since 1970; by default now. Raises
        LakeError."""
        looked = time.time() if looked is None else looked
        pins = read(metadata)
        batches = {pin.batch: pin.name for pin in pins}
        versions = [version for version in lake_versions(metadata) if version.batch in batches] if pins else []
        named: dict[str, dict[str, int]] = {}
        for version in versions:
            for table in version.listed:
                path = TableAt.of(config.root, table.name, 0, table.folder).path
                named.setdefault(path, {})[batches[version.batch]] = table.delta_version
        by_path = {path: set(kept.values()) for path, kept in named.items()}
        for path, kept_for_sources in merged_sources.versions_kept(config, metadata, looked).items():
            by_path.setdefault(path, set()).update(kept_for_sources)
        shown = merged_tables.versions_of_shards(config, by_path, looked)
        for path, numbers in merged_tables.versions_of_shards(config, by_path).items():
            by_path.setdefault(path, set()).update(numbers)
        ended: dict[str, dict[int, float]] = {}
        for table, ended_us in versions_read(metadata) if thinning.is_thinned(metadata) else ():
            if table.folder:
                continue  # batches of other sources read versions of it, too
            of_table = ended.setdefault(config.table_path(table.name), {})
            of_table[table.delta_version] = max(of_table.get(table.delta_version, 0), ended_us / 1e6)
        by_path_frozen, shown_frozen = (
            {path: frozenset(numbers) for path, numbers in versions.items()} for versions in (by_path, shown)
        )
        hours = merged_sources.PromisedHours.of(config)
        return cls(tuple(pins), by_path_frozen, ended, shown_frozen, named, hours)

    def of_table(self, path: str) -> frozenset[int]:
        """Return the Delta versions that are kept of the table at a path."""
        return self.by_path.get(path, frozenset()) | self.shown.get(path, frozenset())

    def needs_folder(self, path: str) -> bool:
        """Return whether the folder of a dropped table is needed: for pinned versions, and of a shard of a table that
        several sources fill for the promised ones."""
        return bool(self.of_table(path) if self.hours.is_of_several(path) else self.by_path.get(path))

    def read_since(self, path: str, time: float) -> frozenset[int] | None:
        """Return the Delta versions of a table that known batches read since a time; None where it isn't thinned.

        time: seconds since 1970.
        """
        ended = self.ended.get(path)
        return None if ended is None else frozenset(version for version, until in ended.items() if until >= time)


def remove_dropped(config: PipelineConfig, metadata: Metadata, names: Iterable[TableName]) -> list[TableName]:
    """Delete the folders of dropped tables, except those that pinned versions need; return the tables whose went.

    Raises LakeError.
    """
    removed: list[TableName] = []
    for name in names:
        path, looked = config.table_path(name), time.time()
        if PinnedVersions.of(config, metadata, looked).needs_folder(path):
            continue
        never = table_versions.NEVER
        notes = {name: NotedSince(never, table_versions.note_readable_since(metadata, name, never))}
        notes |= merged_tables.note_removed(config, metadata, name, looked)
        if PinnedVersions.of(config, metadata, looked).needs_folder(path):  # pinned in between
            for noted_name, noted in notes.items():
                table_versions.restore_readable_since(metadata, noted_name, noted.before, noted.version)
            continue
        files.remove_folder(path)
        removed.append(name)
    return removed
