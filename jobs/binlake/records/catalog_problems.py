"""What keeps a catalog of others from having what the lake has: it is shown until the catalog has it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from binlake.caches import Cache
from binlake.config import PipelineConfig
from binlake.config.catalogs_config import CatalogEntry
from binlake.errors import LakeError
from binlake.store.conditions import literal
from binlake.store.metadata import Metadata, now_us
from binlake.store.run_rows import CatalogProblemRow

_FRESH_SECONDS = 60
"""For how long a process believes what it read: others may note problems, too, and solve them."""
_MOST_LETTERS = 1000
_noted: Cache[str, tuple[float, dict[str, str]]] = Cache("problems of catalogs")


@dataclass(frozen=True)
class CatalogProblem:
    """Why a catalog lacks what the lake has. catalog: its name in the YAML. since_us: when that began."""

    catalog: str
    problem: str
    remedy: str
    since_us: int


def read(
    config: PipelineConfig, metadata: Metadata, catalogs: Iterable[CatalogEntry] | None = None
) -> list[CatalogProblem]:
    """Return the problems of catalogs; of all of the YAML's where none are given. Raises LakeError."""
    names = {entry.identity: entry.name for entry in (config.catalogs if catalogs is None else catalogs)}
    if not names:
        return []
    rows = sorted(CatalogProblemRow.read(metadata), key=lambda row: row.since_us)
    return [
        CatalogProblem(names[row.catalog], row.problem, row.remedy, row.since_us)
        for row in rows
        if row.catalog in names
    ]


def noted(metadata: Metadata, catalog: str) -> str:
    """Return the problem of a catalog, by its identity; empty without one, and where that can't be read."""
    with suppress(LakeError):
        return _known(metadata).get(catalog, "")
    return ""


def note(metadata: Metadata, catalog: str, problem: str, remedy: str = "") -> bool:
    """Note a catalog's problem, or with an empty one that it has all; return whether that is news.

    catalog: its identity. Nothing is raised where it can't be written: it is noted the next time.
    """
    problem = problem[:_MOST_LETTERS]
    with suppress(LakeError):
        known = _known(metadata)
        before = known.get(catalog, "")
        if before == problem:
            return False
        of_catalog = f"catalog = {literal(catalog)}"
        since = CatalogProblemRow.first(metadata, "since_us", where=of_catalog) if before else None
        row = CatalogProblemRow(
            catalog=catalog, problem=problem, remedy=remedy, since_us=since.since_us if since else now_us()
        )
        CatalogProblemRow.replace(metadata, of_catalog, [row] if problem else [])
        now = {name: other for name, other in known.items() if name != catalog} | (
            {catalog: problem} if problem else {}
        )
        _noted.put(metadata.path, (time.monotonic(), now))
    return True


def _known(metadata: Metadata) -> Mapping[str, str]:
    """Return the problems by the catalogs' identities."""
    at, known = _noted.get(metadata.path) or (0.0, {})
    if not at or time.monotonic() - at > _FRESH_SECONDS:
        known = {row.catalog: row.problem for row in CatalogProblemRow.read(metadata, "catalog", "problem")}
        _noted.put(metadata.path, (time.monotonic(), known))
    return known
