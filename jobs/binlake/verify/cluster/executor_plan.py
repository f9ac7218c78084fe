"""The tables that a verification leaves to the executors of a cluster, and their division among connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from binlake.config import PipelineConfig
from binlake.report import counted
from binlake.schema.table import TableName
from binlake.source.catalog import SourceTable
from binlake.source.endpoint import Endpoint
from binlake.source.server import Source
from binlake.spark import settings
from binlake.spark.starting import SessionFactory
from binlake.verify.cluster.by_executors import ByExecutors, PlannedTable
from binlake.verify.pace import Budget
from binlake.verify.reading import server_rows
from binlake.verify.reading.chosen_chunks import Choice, ChosenChunks
from binlake.verify.reading.known_chunks import KnownChunks

_QUERIES = 4
"""Queries of a table for each connection, at least, where it has so many chunks."""


@dataclass(frozen=True)
class PlannedReads:
    """cut: returns all chunks of a table of which nothing is known. The others are those of ByExecutors."""

    config: PipelineConfig
    endpoint: Endpoint
    budget: Budget
    say: Callable[[str], None]
    cut: Callable[[SourceTable], ChosenChunks]

    def chosen(
        self,
        tables: Mapping[TableName, SourceTable],
        known: Mapping[TableName, KnownChunks],
        choice: Choice | None,
    ) -> list[tuple[SourceTable, ChosenChunks]]:
        """Return the chunks to read of large tables. choice: selects among known chunks; None where only changes
        decide, so that executors don't read them."""
        least = self.config.verify.without_spark_rows
        large = {name: table for name, table in tables.items() if table.rows > least and table.has_read_views}
        large = {
            name: table for name, table in large.items() if not table.schema.snapshot_where
        }  # read behind the lake
        chosen = choice.of({name: known[name] for name in large if name in known}) if choice else {}
        chosen |= {name: self.cut(table) for name, table in large.items() if name not in known}
        return [
            (large[name], chunks)
            for name, chunks in chosen.items()
            if large[name].rows * chunks.count > least * chunks.known.cells.chunks
        ]

    def executors(
        self, session: SessionFactory, source: Source, chosen: Sequence[tuple[SourceTable, ChosenChunks]]
    ) -> ByExecutors | None:
        """Return the readers of these tables; None where there are none, or Spark has no executors but this process.

        source: finds bounds. Raises SourceError, and what ``session`` raises.
        """
        if not chosen:
            return None
        names = ", ".join(f"{table.name}" for table, _ in chosen)
        context = session(f"a verification reads {names} on Spark's executors").sparkContext
        if settings.is_local(str(context.master)):
            return None
        from binlake.spark import cluster

        count = connections(cluster.ready(context), self.config.verify.connections)
        if not count:
            return None
        planned = [planned_table(source, table, chunks, count) for table, chunks in chosen]
        self.say(f"{counted(count, 'connection')} of Spark's executors read {names}")
        return ByExecutors(context, self.config, self.endpoint, planned, count, self.budget, self.say)


def connections(cores: int, most: int | None) -> int:
    """Return how many connections executors open. cores: theirs, of which a third stays free, for the lake's side and
    for Spark's work until the lake is at the position. most: connections of the whole verification, of which one at
    least is this process's; None for any number."""
    free = max(1, cores - max(1, cores // 3))
    return free if most is None else min(free, most - 1)


def planned_table(source: Source, table: SourceTable, chosen: ChosenChunks, count: int) -> PlannedTable:
    """Return the queries that read chosen chunks of a table by so many connections. Raises SourceError."""
    cells = chosen.known.cells
    each = max(1, min(server_rows.CHUNKS_PER_QUERY, chosen.count // (_QUERIES * count)))
    queries = server_rows.of_wanted(table, cells, chosen.wanted, each)
    parts = server_rows.parts_without_ranges(table, cells, _QUERIES * count)
    if queries and parts > 1 and not table.partitions:  # partitions may be others by the time the views open
        (whole, _), *_ = queries
        queries = [(whole, text) for text in server_rows.of_parts(source, table, parts)]
    return PlannedTable(table, chosen, queries)
