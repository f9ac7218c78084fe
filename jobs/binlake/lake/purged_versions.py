"""Versions of tables that people removed at once: which, who, and when."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from binlake.moment import moment_text
from binlake.store.metadata import Metadata
from binlake.store.rows import DecisionRow

PURGE = "purge"
"""The action, among the decisions, by which earlier versions of a table are removed."""


def purges_in(metadata: Metadata) -> list[DecisionRow]:
    """Return the decisions to purge tables. Raises LakeError."""
    return DecisionRow.read(metadata, where=f"action = '{PURGE}'")


def why_purged(purges: Sequence[DecisionRow], batch: int, tables: Callable[[int], Container[str]]) -> str:
    """Return by which purge a batch can't be read any more; empty where there is none. tables: returns those of a
    batch, as ``database.table``."""
    later = [row for row in purges if row.batch is not None and batch < row.batch]
    there = tables(batch) if later else ()
    for row in later:
        if (name := f"{row.database}.{row.table}") in there:
            return f"{name} was purged at {moment_text(row.at_us)} by {row.who}"
    return ""
