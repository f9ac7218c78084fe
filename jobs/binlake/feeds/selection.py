"""Selection of a feed's mutations: by the table's name, by the operation, by its ``where``."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from binlake import names
from binlake.config import PipelineConfig
from binlake.config.feed_config import FeedConfig
from binlake.feeds import condition
from binlake.feeds.condition import OPERATIONS, Condition
from binlake.feeds.contract import FeedTable
from binlake.feeds.shapes import shown
from binlake.schema.table import TableName


@dataclass(frozen=True)
class Selection:
    """The selection of one feed on one source. Ghost tables of online schema change tools aren't selected."""

    config: PipelineConfig
    feed: FeedConfig
    where: Condition | None

    @classmethod
    def of(cls, config: PipelineConfig, feed: FeedConfig) -> Selection:
        """Return the selection of a feed. Raises ConfigurationError for a condition that can't be parsed."""
        return cls(config, feed, condition.parse(feed.where) if feed.where else None)

    def wants(self, name: TableName) -> bool:
        """Return whether a table is selected."""

        def named(patterns: list[str]) -> bool:
            return names.matches_any(patterns, name.database, name.table)

        return self.config.included(name) and named(self.feed.include) and not named(self.feed.exclude)

    def prepare(self, table: FeedTable, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the selected rows, as the server shows them. Raises FeedError."""
        rows = shown(table, rows)
        if len(self.feed.operations) < len(OPERATIONS):
            wanted = pa.array([OPERATIONS[name] for name in self.feed.operations], pa.int8())
            rows = rows.filter(pc.is_in(rows.column("op"), wanted))
        if self.where is not None and rows.num_rows:
            rows = rows.filter(self.where.passing(table, rows))
        return rows
