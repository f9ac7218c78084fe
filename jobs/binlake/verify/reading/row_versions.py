"""The versions of rows in a history: no two of one key overlap, and each ends behind its beginning. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from binlake.config.table_modes import HistoryColumns
from binlake.verify.reading.key_cells import ComparedColumns


@dataclass
class RowVersions:
    """Versions that are looked at, by the checksums of their keys. misplaced: how many don't end behind their
    beginning, or say wrongly whether they are current."""

    misplaced: int = 0
    _parts: list[pa.Table] = field(default_factory=list)

    def add(self, rows: pa.RecordBatch, since: str, compared: ComparedColumns, own: HistoryColumns) -> None:
        """Take rows of a history. since: those that ended before aren't looked at. own: its own columns."""
        ends = rows.column(own.to_position)
        if own.is_current:
            wrong = pc.not_equal(pc.fill_null(rows.column(own.is_current), False), pc.is_null(ends))
            self.misplaced += _count(wrong)
        looked = rows.filter(pc.fill_null(pc.greater_equal(ends, since), True))
        begins, ends = looked.column(own.from_position), looked.column(own.to_position)
        self.misplaced += _count(pc.fill_null(pc.less_equal(ends, begins), False))
        images = as_compared(looked, compared)
        keys = compared.keys_or_rows(images)
        part = pa.table({"first": keys.first, "second": keys.second, "begins": begins, "ends": ends})
        # A key's column that got another type is NULL in the versions before.
        self._parts.append(part.filter(compared.have_keys(images)))

    def problems(self) -> list[str]:
        """Return what is wrong with the versions that were taken."""
        twins, over = self._overlapping()
        counts = {
            "rows with two current versions": twins,
            "versions that end behind the beginning of the next one": over,
            "versions that end before they begin, or are marked wrongly as current": self.misplaced,
        }
        return [f"{what}: {count:,}" for what, count in counts.items() if count]

    def _overlapping(self) -> tuple[int, int]:
        """Return how many versions are current beside another one of their key, and how many others overlap the next
        one."""
        if not self._parts:
            return 0, 0
        rows = pa.concat_tables(self._parts)
        order = pc.sort_indices(rows, [(name, "ascending") for name in ("first", "second", "begins")])
        rows = rows.take(order).combine_chunks()
        here, behind = rows.slice(0, max(0, rows.num_rows - 1)), rows.slice(1)
        same = pc.and_(pc.equal(here["first"], behind["first"]), pc.equal(here["second"], behind["second"]))
        is_open = pc.is_null(here["ends"])
        twins = _count(pc.and_(same, pc.and_(is_open, pc.is_null(behind["ends"]))))
        ends_behind = pc.fill_null(pc.greater(here["ends"], behind["begins"]), False)
        return twins, _count(pc.and_(same, pc.or_(is_open, ends_behind))) - twins


def as_compared(rows: pa.RecordBatch, compared: ComparedColumns) -> pa.RecordBatch:
    """Return the mirror's columns of a history's rows; a side column that it doesn't have is NULL."""
    names = set(rows.schema.names)
    columns = [
        rows.column(item.name).cast(item.type) if item.name in names else pa.nulls(rows.num_rows, item.type)
        for item in compared.arrow
    ]
    return pa.RecordBatch.from_arrays(columns, schema=compared.arrow)


def _count(flags: pa.Array | pa.ChunkedArray) -> int:
    return int(pc.sum(flags).as_py() or 0)
