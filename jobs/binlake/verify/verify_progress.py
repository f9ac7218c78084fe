"""Progress of a comparison: the server hashes parts of tables, the lake whole ones."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from binlake.report import ProgressCallback
from binlake.schema.table import TableName


@dataclass(frozen=True)
class ComparisonProgress:
    """Progress in rows. parts: for each table, the futures of the server's parts. rows: each table's estimated rows."""

    parts: Mapping[TableName, Sequence[Future[Any]]]
    rows: Mapping[TableName, int]
    began: float = field(default_factory=time.monotonic)

    def show(self, progress: ProgressCallback, compared: Collection[TableName], tables: int) -> None:
        """Report progress; the server's hashing counts as half of the work.

        compared: the tables that are done. tables: how many there are, including those that aren't hashed.
        """
        read = sum(self._rows_read(name) for name in self.parts)
        rows = sum(self.rows[name] for name in self.parts)
        both = read + sum(self.rows[name] for name in self.parts if name in compared)
        pace = read / max(0.001, time.monotonic() - self.began)
        detail = f"{len(compared):,} of {tables:,} tables; {read:,.0f} of about {rows:,} rows read by the server"
        progress(both or len(compared), 2 * rows or tables, f"{detail}, {pace:,.0f} rows/s" if read < rows else detail)

    def _rows_read(self, name: TableName) -> float:
        parts = self.parts[name]
        return self.rows[name] * sum(part.done() for part in parts) / max(1, len(parts))
