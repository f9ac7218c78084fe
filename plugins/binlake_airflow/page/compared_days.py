"""On which days a source's tables were compared with the server, and with what result."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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

    day: ISO 8601. rows, chunks: that were read. seconds: of the runs, summed over the tables. found: the
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


@dataclass(frozen=True)
class _ComparedTable:
    """The comparisons of one table on one day. differs: 1 if one found it differing, 0 if all found it equal, None if
    none could be made."""

    day: int
    table: str
    differs: int | None
    differing_rows: int | None
    rows: int
    chunks: int
    seconds: float


def compared_days(metadata: Metadata, now_us: int, count: int, zone: tzinfo = UTC) -> list[ComparedDay]:
    """Return the days on which tables were compared, the oldest first. count: of days before today. zone: whose days
    they are."""
    today = datetime.fromtimestamp(now_us / 1e6, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    begins = [today - timedelta(days=back) for back in range(count, -1, -1)]
    begins_us = np.array([round(day.timestamp() * 1e6) for day in begins], np.int64)
    rows = metadata.read_columns("verifications", _COLUMNS, where=f"at_us >= {begins_us[0]}")
    names = (rows[name].cast(pa.string()) for name in ("database", "table"))
    compared = {
        "day": pa.array(np.searchsorted(begins_us, rows["at_us"].to_numpy(), side="right") - 1),
        "table": pc.binary_join_element_wise(*names, "."),
        "differs": pc.cast(pc.invert(rows["equal"]), pa.int64()),
        "rows": pc.coalesce(rows["looked_rows"], rows["source_rows"]),
        "chunks": pc.coalesce(rows["looked_chunks"], rows["chunks"]),
        "seconds": rows["seconds"],
        "differing_rows": rows["differing_rows"],
    }
    wanted = [("differs", "max"), ("differing_rows", "max"), *((name, "sum") for name in _SUMMED)]
    by_table = pa.table(compared).group_by(["day", "table"]).aggregate(wanted)
    days: dict[int, list[_ComparedTable]] = defaultdict(list)
    for row in by_table.to_pylist():
        sums = (row[f"{name}_sum"] or 0 for name in _SUMMED)
        days[row["day"]].append(
            _ComparedTable(row["day"], row["table"], row["differs_max"], row["differing_rows_max"], *sums)
        )
    return [_compared_day(f"{begins[day]:%Y-%m-%d}", tables) for day, tables in sorted(days.items())]


def _compared_day(day: str, tables: Sequence[_ComparedTable]) -> ComparedDay:
    """Return a day's results."""
    results = Counter(table.differs for table in tables)
    differing = sorted((table for table in tables if table.differs == 1), key=lambda table: table.table)
    return ComparedDay(
        day,
        equal=results[0],
        differing=results[1],
        not_compared=results[None],
        rows=sum(table.rows for table in tables),
        chunks=sum(table.chunks for table in tables),
        seconds=float(sum(table.seconds for table in tables)),
        found=tuple(DifferingTable(table.table, table.differing_rows) for table in differing[:_NAMED]),
    )
