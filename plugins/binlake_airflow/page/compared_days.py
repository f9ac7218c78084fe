"""On which days a source's tables were compared with the server, and with what result."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from binlake.config.units import DAY_US
from binlake.store.metadata import Metadata

_COLUMNS = (
    "database", "table", "at_us", "equal", "source_rows", "chunks", "looked_rows", "looked_chunks", "seconds",
    "differing_rows",
)  # fmt: skip
_NAMED = 5
"""The most differing tables of a day that are named."""
_SUMMED = ("rows", "chunks", "seconds")


@dataclass(frozen=True)
class DifferingTable:
    """A table that differed, and by how many rows, as far as that is known."""

    table: str
    differing_rows: int | None


@dataclass(frozen=True)
class ComparedDay:
    """How many tables a day's comparisons found equal and differing, and could not compare; of each its worst result.

    day: in UTC, ISO 8601. rows, chunks: that were read. seconds: of the runs, summed over the tables. found: the
    first tables that differed.
    """

    day: str
    equal: int
    differing: int
    not_compared: int
    rows: int
    chunks: int
    seconds: float
    found: tuple[DifferingTable, ...] = ()


def compared_days(metadata: Metadata, since_us: int) -> list[ComparedDay]:
    """Return the days on which tables were compared, the oldest first. since_us: none before this time."""
    rows = metadata.read_columns("verifications", _COLUMNS, where=f"at_us >= {since_us}")
    names = (rows[name].cast(pa.string()) for name in ("database", "table"))
    compared = {
        "day": pc.divide(rows["at_us"], DAY_US),
        "table": pc.binary_join_element_wise(*names, "."),
        "differs": pc.cast(pc.invert(rows["equal"]), pa.int64()),
        "rows": pc.coalesce(rows["looked_rows"], rows["source_rows"]),
        "chunks": pc.coalesce(rows["looked_chunks"], rows["chunks"]),
        "seconds": rows["seconds"],
        "differing_rows": rows["differing_rows"],
    }
    sums = [(name, "sum") for name in _SUMMED]
    by_table = (
        pa.table(compared).group_by(["day", "table"]).aggregate([("differs", "max"), ("differing_rows", "max"), *sums])
    )
    days: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in by_table.to_pylist():
        days[row["day"]].append(row)
    return [_compared_day(day, tables) for day, tables in sorted(days.items())]


def _compared_day(day: int, tables: Sequence[dict[str, Any]]) -> ComparedDay:
    """Return a day's results. tables: of each whether it differed (0 or 1, None where it couldn't be compared), and
    what was read."""
    results = Counter(row["differs_max"] for row in tables)
    rows, chunks, seconds = (sum(row[f"{name}_sum"] or 0 for row in tables) for name in _SUMMED)
    differing = sorted((row["table"], row["differing_rows_max"]) for row in tables if row["differs_max"] == 1)
    found = tuple(DifferingTable(*table) for table in differing[:_NAMED])
    date = datetime.fromtimestamp(day * DAY_US / 1e6, UTC)
    return ComparedDay(f"{date:%Y-%m-%d}", results[0], results[1], results[None], rows, chunks, float(seconds), found)
