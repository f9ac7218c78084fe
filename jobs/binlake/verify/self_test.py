"""The self-test of a verification: faults are planted in a copy of a table's rows, and each must be found.

The lake's rows serve as the server's; the copy, with a fault, serves as the lake's. They are compared as by_read.py
does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake.exceptions import DeltaError

from binlake.config import PipelineConfig
from binlake.errors import CheckFailed, LakeError
from binlake.planner.steps import Life
from binlake.records import watermarks
from binlake.schema.table import TableName
from binlake.store.metadata import Metadata
from binlake.verify.planted_faults import PlantedFault, planted
from binlake.verify.reading.key_cells import ComparedColumns, KeyCells, Measured
from binlake.verify.reading.lake_rows import LakeRows, Unreadable
from binlake.verify.reading.row_checksums import Sums
from binlake.verify.reading.row_pairs import Collected, RowDifference, changed_columns, differences

MOST_ROWS = 200
"""The most rows of a table that faults are planted in."""


@dataclass(frozen=True)
class SelfTested:
    """The result of a table's self-test.

    rows: of the copy. planted: faults by kind. missed: a text for each fault that wasn't found, or not as what it is.
    reason: why no fault was planted.
    """

    name: TableName
    rows: int
    planted: dict[str, int]
    missed: tuple[str, ...] = ()
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        return {
            "name": str(self.name), "rows": self.rows, "planted": self.planted, "missed": list(self.missed),
            "reason": self.reason,
        }  # fmt: skip

    def to_text(self) -> str:
        """Return a line for people, and a line for each fault that was missed."""
        if self.reason:
            return f"untested  {self.name}: {self.reason}"
        count = sum(self.planted.values())
        kinds = ", ".join(f"{kind} {number}" for kind, number in self.planted.items())
        if not self.missed:
            return f"found     {self.name}: all {count} faults planted in a copy of {self.rows} rows ({kinds})"
        lines = [f"MISSED    {self.name}: {len(self.missed)} of {count} faults planted in a copy of {self.rows} rows"]
        return "\n".join([*lines, *(f"    {text}" for text in self.missed)])


@dataclass(frozen=True)
class SelfTestReport:
    """The result of a self-test of several tables."""

    tables: tuple[SelfTested, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the tables' results as plain values for JSON."""
        return {"tables": [table.to_json() for table in self.tables]}

    def to_text(self) -> str:
        """Return the tables' results for people."""
        return "\n".join(table.to_text() for table in self.tables)

    def refuse_missed(self) -> None:
        """Raise CheckFailed unless faults were planted and all were found."""
        if missed := [str(table.name) for table in self.tables if table.missed]:
            raise CheckFailed(
                f"verify doesn't find every fault in {', '.join(missed)}",
                remedy="report it with the table's CREATE TABLE statement; until it is fixed use verify --by hash",
            )
        if not any(table.planted for table in self.tables):
            raise CheckFailed("no fault was planted", remedy="name tables that the lake has rows of")


def self_test_lake(config: PipelineConfig, metadata: Metadata, patterns: list[str] | None) -> SelfTestReport:
    """Self-test the tables that follow the log, those that patterns match if any are given, on copies of some of their
    rows. Nothing is written; the server isn't asked.

    Raises UsageError for a pattern that matches none, or where the lake follows nothing.
    """
    return SelfTestReport(tuple(_of_life(config, life) for life in watermarks.following(metadata, patterns)))


def _of_life(config: PipelineConfig, life: Life) -> SelfTested:
    compared = ComparedColumns(life.schema)
    try:
        lake = LakeRows(config.table_path(life.name))
        lake.refuse_unknown()
        if structure := lake.structure(compared):
            return SelfTested(life.name, 0, {}, reason=f"columns differ: {structure}")
        return self_test(life.name, compared, _few_rows(lake, compared))
    except (DeltaError, LakeError, OSError, pa.ArrowException, Unreadable) as error:
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        return SelfTested(life.name, 0, {}, reason=f"its Delta table can't be read: {text}")


def _few_rows(lake: LakeRows, compared: ComparedColumns) -> pa.RecordBatch:
    for file in lake.files(compared):
        for rows, _ in file.numbered():
            if rows.num_rows:
                return rows.slice(0, 2 * MOST_ROWS)
    return pa.RecordBatch.from_pylist([], compared.arrow)


def self_test(name: TableName, compared: ComparedColumns, rows: pa.RecordBatch) -> SelfTested:
    """Plant faults in copies of some rows of a table, and compare each copy with the rows.

    rows: with the columns compared.
    """
    whole = compared.measured(rows, KeyCells())
    _, once = np.unique(whole.checksums.pairs(), return_index=True)
    sample = rows.take(pa.array(np.sort(once)[:MOST_ROWS]))
    if not sample.num_rows:
        return SelfTested(name, 0, {}, reason="it has no rows")
    counted: Counter[str] = Counter()
    missed: list[str] = []
    for fault in planted(compared, sample):
        counted[fault.kind] += 1
        if not _is_noticed(compared, sample, fault):
            missed.append(f"{fault.kind}{' in ' + fault.column if fault.column else ''}")
    return SelfTested(name, sample.num_rows, dict(counted), tuple(missed))


def _is_noticed(compared: ComparedColumns, rows: pa.RecordBatch, fault: PlantedFault) -> bool:
    """Return whether a comparison finds exactly what was planted."""
    cells = KeyCells(shares=2)
    sides = [compared.measured(side, cells) for side in (rows, fault.rows)]
    sums = [Sums.empty(cells.count) for _ in sides]
    for side, total in zip(sides, sums, strict=True):
        total.add(side.cells, side.checksums)
    wanted = np.zeros(cells.count, np.bool_)
    wanted[sums[0].differing(sums[1])] = True
    ours, theirs = (Collected.of(compared, [side.of_cells(wanted)]) for side in sides)
    keyed = bool(compared.schema.key)
    listed = list(differences(ours, theirs, keyed=keyed))
    if not keyed or any(columns & set(compared.schema.key) for columns in fault.changed.values()):
        return _has_counts(listed, fault)
    return _has_rows(compared, sides[0], (ours, theirs), listed, fault)


def _has_counts(listed: list[RowDifference], fault: PlantedFault) -> bool:
    """Return whether as many rows are missing and extra as were planted: rows without a key, or with another key."""
    counts: Counter[str] = Counter()
    for difference in listed:
        if difference.kind == "changed":
            counts.update({"missing": 1, "extra": len(difference.theirs)})
        else:
            counts[difference.kind] += difference.count
    return (counts["missing"], counts["extra"]) == (
        len(fault.missing) + len(fault.changed),
        fault.extra + len(fault.changed),
    )


def _has_rows(
    compared: ComparedColumns,
    whole: Measured,
    sides: tuple[Collected, Collected],
    listed: list[RowDifference],
    fault: PlantedFault,
) -> bool:
    """Return whether exactly the rows that were planted are listed, with their columns."""
    ours, theirs = sides
    numbers = {pair: number for number, pair in enumerate(whole.keys.pairs().tolist())}
    changed = [difference for difference in listed if difference.kind == "changed"]
    columns = changed_columns(compared, ours, theirs, changed)
    changes = {
        numbers[ours.keys[difference.ours or 0]]: frozenset(names)
        for difference, names in zip(changed, columns, strict=True)
    }
    missing = frozenset(numbers[ours.keys[row.ours or 0]] for row in listed if row.kind == "missing")
    extra = sum(difference.count for difference in listed if difference.kind == "extra")
    return (changes, missing, extra) == (fault.changed, fault.missing, fault.extra)
