"""What the sources that fill one table leave each other: versions that are pinned, or promised to be readable.

Each source has its metadata, and each looks after its own shards. Their files are those of the merged table, of which
each source's batches show versions of their own. So a source keeps what any of them has pinned, what the newest batch
of each shows, however old that is, and all versions as long as the source that promises most. Before its files go it
notes in the metadata of all from which version on the table can be read, and looks for pins then: see lake/pins.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from deltalake.exceptions import DeltaError

from binlake.config import PipelineConfig
from binlake.config.shards import MergedTable
from binlake.delta import opened_tables
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


def note_readable_since(config: PipelineConfig, metadata: Metadata, name: TableName, version: int) -> list[ReadableRow]:
    """Note from which Delta version on a table can be read, in the metadata of all sources that fill it; return what
    this source had noted before. Raises LakeError."""
    entry = config.merged_table(name)
    if entry is None or entry.folder is None:
        return table_versions.note_readable_since(metadata, name, version)
    for other in _others(config, entry):
        for tries in range(_TRIES, 0, -1):
            try:
                table_versions.note_readable_since(other, name, _at_most_newest(other, entry, version))
                break
            except WrittenMeanwhile:
                if tries == 1:
                    raise
    return table_versions.note_readable_since(metadata, name, _at_most_newest(metadata, entry, version))


def _at_most_newest(metadata: Metadata, entry: MergedTable, version: int) -> int:
    """Return a version, but none behind that of the source's newest batch, which stays."""
    return min([version, *_shown_by(lake_versions(metadata)[-1:], entry)])


def _shown_by(versions: Iterable[LakeVersion], entry: MergedTable) -> set[int]:
    """Return the Delta versions of a merged table that batches show."""
    shown = (table for version in versions for table in version.listed)
    return {table.delta_version for table in shown if (table.name, table.folder) == (entry.name, entry.folder)}


def versions_kept(config: PipelineConfig, metadata: Metadata) -> dict[str, set[int]]:
    """Return the Delta versions of tables of several sources that some source has pinned, or shows in its newest batch,
    by the tables' paths. Raises LakeError."""
    kept: dict[str, set[int]] = {}
    for entry in of_several(config):
        of_entry = kept.setdefault(config.table_path(entry.name), set())
        for each in (metadata, *_others(config, entry)):
            versions, batches = lake_versions(each), {pin.batch for pin in PinRow.read(each, "batch")}
            of_entry |= _shown_by([*versions[-1:], *(known for known in versions if known.batch in batches)], entry)
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
            from binlake.delta.composed_sources import notes_in  # imports pyarrow, which few lakes need for this
        for entry in entries:
            path = config.table_path(entry.name)
            try:
                there = opened_tables.newest(path).metadata().configuration if opened_tables.is_table(path) else {}
            except (DeltaError, OSError, *OF_CODE):
                by_path[path] = math.inf
                continue
            noted = [note.history_hours for name, note in notes_in(there).items() if name in entry.sources]
            by_path[path] = max(noted, default=0.0)
        return cls(by_path)

    def of_table(self, path: str, own: float) -> float:
        """Return the hours of a table at a path. own: as this source promises."""
        around = [hours for merged, hours in self.by_path.items() if path == merged or path.startswith(f"{merged}/")]
        return max(own, LEAST_HOURS, *around) if around else own
