"""The upkeep that a table needs: by its Delta log and its folder, compared with what the YAML promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from arro3.core import Table as Arrow

from binlake.config import MaintainConfig, PipelineConfig
from binlake.config.units import HOUR_SECONDS
from binlake.delta import key_ranges, layout, plain_tables
from binlake.delta.composed_parts import CONVERTED
from binlake.delta.delta_log import LakeLog
from binlake.delta.delta_schema import HAS_VECTORS, LOG_CLEANUP
from binlake.delta.layout import Rewrite
from binlake.lake.pins import PinnedVersions
from binlake.planner.steps import Life
from binlake.records import expiry, leftovers
from binlake.records.leftovers import EachSince, Unneeded
from binlake.schema.table import TableName

COMMIT_BYTES, SMALL_COMMIT_BYTES = 8 << 30, 128 << 20
"""The bytes of data files, about, that one commit of Spark replaces, which a conflict throws away; and one of the
process itself, which knows until then where each row went."""


@dataclass(frozen=True)
class Table:
    """A table as it was looked at. version: up to it nobody else changed the rows. left: why it isn't touched.
    is_beside: it is no mirror: a mode keeps it beside that of the life that it is given, or it is_merged, and shows the
    mirrors of several lives."""

    life: Life
    log: LakeLog
    version: int = -1
    left: str = ""
    is_beside: bool = False
    is_merged: bool = False

    @property
    def name(self) -> TableName:
        """Return the table's name."""
        return self.life.name


@dataclass(frozen=True)
class Needs:
    """The upkeep that a table needs. files, bytes: of its newest version. properties: Delta's, to
    be set. vectors: the property by which there are none from then on, to be set before."""

    files: int
    bytes: int
    version: int
    rewrites: tuple[Rewrite, ...]
    properties: dict[str, str]
    unneeded: Unneeded
    vectors: dict[str, str] = field(default_factory=dict)

    @property
    def spark(self) -> bool:
        """Return whether files are to be rewritten or properties set; the vacuum needs no Spark."""
        return bool(self.rewrites or self.properties)


def needs_of(config: PipelineConfig, table: Table, looked: float, pinned: PinnedVersions) -> Needs:
    """Return what a table needs. looked: seconds since 1970 at which the run looked; what is newer isn't old."""
    if table.is_merged:
        return _needs_merged(config, table, looked, pinned)
    promised, log, schema = config.maintain, table.log.opened(), table.life.schema
    files = layout.data_files(log, table.log.path, schema)
    needs = Needs(
        files=len(files),
        bytes=sum(file.bytes for file in files),
        version=int(log.version()),
        rewrites=(),
        properties={},
        unneeded=leftovers.unneeded(
            table.log,
            looked - pinned.hours.of_table(table.log.path, promised.history_hours) * HOUR_SECONDS,
            pinned.of_table(table.log.path),
            each_since(config, table, looked, pinned, promised.history_hours),
        ),
    )
    if table.life.status == "dropped":
        return needs  # its rows stay where they are
    overlap = promised.overlap if promised.sort and key_ranges.is_of_numbers(schema) else None
    return replace(
        needs,
        rewrites=tuple(
            layout.rewrites(files, target=promised.file_bytes, overlap=overlap, has_vectors=table.log.has_vectors)
        ),
        properties=_properties(log.metadata().configuration, promised),
        vectors={} if table.log.has_vectors or not plain_tables.has_vectors(log) else {HAS_VECTORS: "false"},
    )


def _needs_merged(config: PipelineConfig, table: Table, looked: float, pinned: PinnedVersions) -> Needs:
    """Return what a table needs whose data files are those of mirrors, but for some that are written for it."""
    promised, log = config.maintain, table.log.opened()
    sizes = Arrow.from_arrow(log.get_add_actions()).column("size_bytes").to_pylist()
    unneeded = leftovers.unneeded(
        table.log,
        looked - pinned.hours.of_table(table.log.path, promised.history_hours) * HOUR_SECONDS,
        pinned.of_table(table.log.path),
        each_since(config, table, looked, pinned, promised.history_hours),
        below=CONVERTED,
    )
    return Needs(len(sizes), sum(sizes), int(log.version()), (), {}, unneeded)


def each_since(
    config: PipelineConfig, table: Table, looked: float, pinned: PinnedVersions, hours: float
) -> EachSince | None:
    """Return since when each version of a table stays, and which earlier ones of so many hours do; None where each of
    these hours stays."""
    every = config.maintain.every_version_hours
    earlier = pinned.read_since(table.log.path, looked - hours * HOUR_SECONDS)
    if every is None or every >= hours or earlier is None:
        return None
    return EachSince(thinned_before(looked, every), earlier)


def thinned_before(looked: float, every: float) -> float:
    """Return the beginning of the hour before which batches are thinned, in seconds since 1970."""
    return (looked - every * HOUR_SECONDS) // HOUR_SECONDS * HOUR_SECONDS


def _properties(current: Mapping[str, str], promised: MaintainConfig) -> dict[str, str]:
    """Return the properties to be set. current: the table's."""
    retention = expiry.retention(current, history_hours=promised.history_hours, log_hours=promised.log_hours)
    return retention if current.get(LOG_CLEANUP) == "false" else {**retention, LOG_CLEANUP: "false"}


def parts(chosen: tuple[Rewrite, ...], size: int) -> list[list[Rewrite]]:
    """Divide the rewrites into parts of some bytes, each of which one commit replaces."""
    parts: list[list[Rewrite]] = []
    room = 0
    for rewrite in chosen:
        if not parts or rewrite.bytes > room:
            parts.append([])
            room = size
        parts[-1].append(rewrite)
        room -= rewrite.bytes
    return parts
