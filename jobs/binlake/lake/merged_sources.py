"""Notes that the sources of one table leave each other: versions that are pinned, or promised to be readable.

Each source has its metadata, and each looks after its own shards. Their files are those of the merged table, of which
each source's batches show versions of their own. So a source keeps what any of them has pinned, what the newest batch
of each shows, however old that is, and what other batches show as long as the source that promises most. Before its
files go it notes in the metadata of all from which version on the table can be read, and looks for pins then: see
lake/pins.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from deltalake.exceptions import DeltaError

from binlake.config import PipelineConfig
from binlake.config.shards import MergedTable
from binlake.config.units import HOUR_SECONDS
from binlake.delta import opened_tables
from binlake.delta.log_files import LogFiles
from binlake.errors import OF_CODE, WrittenMeanwhile
from binlake.lake.lake_versions import LakeVersion, lake_versions
from binlake.records import table_versions
from binlake.schema.table import TableName
from binlake.store.metadata import Metadata
from binlake.store.rows import PinRow, ReadableRow

_TRIES = 5
"""How often a note is tried in the metadata of a source that writes there, too."""
LEAST_HOURS = 24.0
"""How long versions stay at least: another source may be about to name a file, or to record a batch that shows it."""


def of_several(config: PipelineConfig) -> list[MergedTable]:
    """Return the entries whose tables several sources fill."""
    return [entry for entry in config.tables.merge_tables if entry.folder]


def _others(config: PipelineConfig, entry: MergedTable) -> Iterator[Metadata]:
    """Yield the metadata of the other sources that fill a table."""
    for name in entry.sources:
        if name != config.source.name:
            yield Metadata(f"{config.beside_root(name)}/_binlake")


@dataclass(frozen=True)
class NotedSince:
    """A note from which Delta version on a table can be read. before: what was noted of the table."""

    version: int
    before: list[ReadableRow]


def note_readable_since(
    config: PipelineConfig, metadata: Metadata, name: TableName, version: int, looked: float
) -> NotedSince:
    """Note from which Delta version on a table can be read, in the metadata of all sources that fill it; return the
    note of this source. looked: the time up to which hours are promised. Raises LakeError."""
    entry = config.merged_table(name)
    if entry is None or entry.folder is None:
        return NotedSince(version, table_versions.note_readable_since(metadata, name, version))
    hours = PromisedHours.of(config).of_table(config.table_path(name), config.maintain.history_hours)
    for other in _others(config, entry):
        _note(other, entry, version, hours, looked)
    return _note(metadata, entry, version, hours, looked)


def _note(metadata: Metadata, entry: MergedTable, version: int, hours: float, looked: float) -> NotedSince:
    """Note a version in a source's metadata, but none behind one that is promised there."""
    promised = (_shown_by([each], entry) for each in promised_versions(metadata, hours, looked))
    since = min([version, *next(filter(None, promised), ())])  # the oldest shows the oldest
    tries = _TRIES
    while True:
        try:
            noted = table_versions.note_readable_since(metadata, entry.name, since, entry.folder or "")
            return NotedSince(since, noted)
        except WrittenMeanwhile:
            tries -= 1
            if not tries:
                raise


def promised_versions(metadata: Metadata, history_hours: float, looked: float) -> list[LakeVersion]:
    """Return the versions that are promised to be readable at a time, pinned or not: the newest, and those that ended
    within so many hours. looked: the time, in seconds since 1970. Raises LakeError."""
    versions = lake_versions(metadata)
    if not versions or history_hours == math.inf:
        return versions
    ends = versions[0].ends(history_hours)
    return [version for version in versions if ends.get(version.batch, math.inf) > looked]


def _shown_by(versions: Iterable[LakeVersion], entry: MergedTable) -> set[int]:
    """Return the Delta versions of a merged table that batches show."""
    shown = (table for version in versions for table in version.listed)
    return {table.delta_version for table in shown if (table.name, table.folder) == (entry.name, entry.folder)}


def versions_kept(config: PipelineConfig, metadata: Metadata, looked: float) -> dict[str, set[int]]:
    """Return the Delta versions of tables of several sources that stay though they are older than the promised hours,
    by the tables' paths: some source has pinned them, or showed them within the hours. looked: the time up to which
    hours are promised. Raises LakeError."""
    kept: dict[str, set[int]] = {}
    hours = PromisedHours.of(config)
    for entry in of_several(config):
        path = config.table_path(entry.name)
        of_entry, promised = kept.setdefault(path, set()), hours.of_table(path, config.maintain.history_hours)
        stood = LogFiles.of(path).stood_at(looked - promised * HOUR_SECONDS)
        for each in (metadata, *_others(config, entry)):
            batches = {pin.batch for pin in PinRow.read(each, "batch")}
            of_entry |= _shown_by((known for known in lake_versions(each) if known.batch in batches), entry)
            for version in promised_versions(each, promised, looked):
                shown = _shown_by([version], entry)
                if shown and min(shown) >= stood:
                    break  # as later batches do
                of_entry |= shown
    return kept


@dataclass(frozen=True)
class PromisedHours:
    """For how many hours versions stay of tables that several sources fill, and of their shards: as the one promises
    that promises most. by_path: of the merged tables."""

    by_path: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, config: PipelineConfig) -> PromisedHours:
        """Read what the sources noted; where the log of a merged table can't be read everything stays."""
        by_path: dict[str, float] = {}
        entries = of_several(config)
        if entries:
            from binlake.delta import composed_sources  # imports pyarrow, which few lakes need for this
        for entry in entries:
            path = config.table_path(entry.name)
            try:
                there = opened_tables.newest(path).metadata().configuration if opened_tables.is_table(path) else {}
            except (DeltaError, OSError, *OF_CODE):
                by_path[path] = math.inf
                continue
            noted = composed_sources.hours_in(there)
            by_path[path] = max((noted[name] for name in entry.sources if name in noted), default=0.0)
        return cls(by_path)

    def is_of_several(self, path: str) -> bool:
        """Return whether a table that several sources fill is at a path, or a shard of one."""
        return any(path == merged or path.startswith(f"{merged}/") for merged in self.by_path)

    def of_table(self, path: str, own: float) -> float:
        """Return the hours of a table at a path. own: as this source promises."""
        around = [hours for merged, hours in self.by_path.items() if path == merged or path.startswith(f"{merged}/")]
        return max(own, LEAST_HOURS, *around) if around else own
