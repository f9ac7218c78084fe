"""The batches that the catalog's page shows: the newest, the pinned ones, and some older ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from binlake.catalog.catalog_page import ShownBatch, ShownSource
from binlake.catalog.warehouses import NEWEST, PublishedSource, Warehouses
from binlake.errors import BinlakeError
from binlake.lake.lake_versions import LakeVersion

_NEWEST, _OLDER = 5, 5


def shown_sources(warehouses: Warehouses) -> list[ShownSource]:
    """Return what the page shows of each source."""
    return [_shown(source) for source in warehouses.sources.values()]


def _shown(source: PublishedSource) -> ShownSource:
    try:
        warehouse = source.warehouse("")
        batches = tuple(_batch(source.name, version) for version in _chosen(warehouse.versions))
        return ShownSource(source.name, batches, tuple(warehouse.tables))
    except BinlakeError as error:
        return ShownSource(source.name, refusal=error.message)


def _chosen(versions: Sequence[LakeVersion]) -> Iterator[LakeVersion]:
    """Yield the versions to show, the newest first. versions: the oldest first."""
    readable = [version for version in reversed(versions) if version.readable]
    older = readable[_NEWEST:]
    spaced = {older[(number + 1) * len(older) // _OLDER - 1].batch for number in range(_OLDER)} if older else set()
    for number, version in enumerate(readable):
        if number < _NEWEST or version.name or version.batch in spaced:
            yield version


def _batch(source: str, version: LakeVersion) -> ShownBatch:
    position = f"{version.position}, {version.gtid_set}" if version.gtid_set else version.position
    committed = f"{version.committed:%Y-%m-%d %H:%M:%S} UTC"
    pin = version.name if version.name != NEWEST else None
    return ShownBatch(f"{source}@{pin or version.batch}", version.batch, committed, position)
