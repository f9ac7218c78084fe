"""Results of a verification."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from binlake.config.table_modes import BesideMode
from binlake.delta.claimed_statistics import WrongStatistics
from binlake.errors import DIFFERING_REMEDY, UNVERIFIED_REMEDY, CheckFailed
from binlake.names import shown
from binlake.planner.steps import Status
from binlake.position import Position
from binlake.report import counted as counted_text
from binlake.schema.table import TableName
from binlake.serialization import dump

MOST_ROWS = 100
"""The most differing rows that are reported per table."""
SHOWN = 10
"""The most differing rows of a table in the text; JSON has them all."""

State = Literal["compared", "unfinished", "failed"] | Status
"""A table's state. unfinished: the time was up, and what was compared is equal. failed: it couldn't be compared.
The others are those of the watermarks."""
_LEFT_OUT = ("paused", "catching up", "dropped")
"""States of tables that aren't to be compared: they were dropped, or are at an earlier position for a while."""
Kind = Literal["missing", "extra", "changed", "twice"]
_KINDS = get_args(Kind)
MASK = "***"
"""Stands for a value that isn't shown."""
ROW_HASH = "row hash"
"""Replaces the key of a row in a table without one; it reveals no value."""


@dataclass(frozen=True)
class DifferingRow:
    """A row that differs between server and lake. Of its values only the key is shown.

    missing: only on the server. extra: only in the lake, or there more often. changed: ``columns`` differ. twice: of a
    key that the server has in several partitions, whatever the lake has. count: how many such rows there are. key:
    (column, text) of each key column; the row's hash if the table has no key.
    """

    kind: Kind
    key: tuple[tuple[str, str], ...]
    count: int = 1
    columns: tuple[str, ...] = ()

    def masked(self, columns: Collection[str] | None = None) -> DifferingRow:
        """Return the row without the key's values. columns: of these columns alone, in lower case."""
        hidden = (name != ROW_HASH and (columns is None or name.lower() in columns) for name, _ in self.key)
        key = tuple((name, MASK if hide else text) for hide, (name, text) in zip(hidden, self.key, strict=True))
        return replace(self, key=key)

    def noted(self, *, with_key: bool) -> dict[str, Any]:
        """Return the row as metadata keep it. with_key: with the key's values, or a row's hash in their place."""
        key = dict(self.key) if with_key else {}
        return {"kind": self.kind, "count": self.count, "columns": list(self.columns), "key": key}

    def __str__(self) -> str:
        key = ", ".join(f"{shown(name)}={json.dumps(text, ensure_ascii=False)}" for name, text in self.key)
        times = f" x{self.count}" if self.count > 1 else ""
        return f"{self.kind}{times}: {key}" + (f" in {', '.join(map(shown, self.columns))}" if self.columns else "")


@dataclass(frozen=True)
class TableRepair:
    """The outcome of a repair for a table that differs.

    state: planned by a dry run, repaired, or refused for a ``reason``. counts: differing rows by kind. delta_version:
    of the commit.
    """

    state: Literal["planned", "repaired", "refused"]
    counts: dict[str, int]
    delta_version: int | None = None
    reason: str = ""
    remedy: str = ""

    @property
    def counted(self) -> str:
        """Return how many rows differed, by kind."""
        return ", ".join(f"{count:,} {kind}" for kind, count in self.counts.items())

    def to_text(self) -> str:
        """Return the outcome for people; of a refusal with its remedy in a second line."""
        if self.state == "refused":
            return f"not repaired: {self.reason}\n    → {self.remedy}"
        if self.state == "planned":
            return f"to be repaired: {self.counted}"
        return f"repaired: {self.counted}, Delta version {self.delta_version}"


@dataclass(frozen=True)
class TableResult:
    """The result for one table. chunks: how many it has. differing: how many of them differ. looked: how many were
    compared; the others are known equal and haven't changed since. looked_rows: the server's in these. repair: None
    where none was asked for, or nothing differs. statistics: data files that the Delta log describes wrongly.
    is_unreadable: whether it couldn't be compared as the lake's table can't be read. lacks_rows: whether rows are lost
    that no other table has. beside: the mode that keeps it
    beside its mirror, with which it is compared; None for a mirror. position: where its rows were verified, as far as
    the lake is checked by itself; None where the server was read, at the report's position."""

    name: TableName
    state: State
    equal: bool | None = None
    source_rows: int | None = None
    lake_rows: int | None = None
    chunks: int | None = None
    differing: int | None = None
    rows: tuple[DifferingRow, ...] = ()
    delta_version: int | None = None
    batch: int | None = None
    reason: str = ""
    remedy: str = ""
    is_unreadable: bool = False
    lacks_rows: bool = False
    beside: BesideMode | None = None
    repair: TableRepair | None = None
    statistics: tuple[WrongStatistics, ...] = ()
    looked: int | None = None
    looked_rows: int | None = None
    position: str | None = None

    def masked(self, columns: Collection[str] | None = None) -> TableResult:
        """Return the result without values of its rows' keys; those that look alike then are counted together."""
        counts = Counter[DifferingRow]()
        for row in self.rows:
            counts[replace(row.masked(columns), count=1)] += row.count
        return replace(self, rows=tuple(replace(row, count=count) for row, count in counts.items()))

    @property
    def why(self) -> str:
        """Return why a table isn't equal, in a few words."""
        count = len(self.statistics)
        if self.reason:
            return self.reason
        return f"the statistics of {counted_text(count, 'data file')}" if count else self._differing_chunks

    @property
    def _differing_chunks(self) -> str:
        differing, chunks = self.differing or 0, counted_text(self.chunks or 0, "chunk")
        return f"{differing:,} of {chunks} {'differs' if differing == 1 else 'differ'}"

    @property
    def differing_rows(self) -> int | None:
        """Return how many rows are known to differ: all that a repair counted, else those that are named, which are
        MOST_ROWS at most; None where none is known by itself."""
        counted = sum(count for kind, count in self.repair.counts.items() if kind in _KINDS) if self.repair else 0
        return counted or sum(row.count for row in self.rows) or None

    @property
    def behind_repair(self) -> TableResult | None:
        """Return the result of the comparison that each repair ends with; None where nothing was repaired."""
        if self.repair is None or self.repair.state != "repaired":
            return None
        return replace(
            self, equal=True, lake_rows=self.lake_rows if self.beside else self.source_rows, differing=0, rows=(),
            delta_version=self.repair.delta_version, reason="", remedy="", repair=None, statistics=(),
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        rows = [{**asdict(row), "key": dict(row.key), "columns": list(row.columns)} for row in self.rows]
        return {**asdict(self), "name": str(self.name), "rows": rows}

    def to_text(self) -> str:
        """Return the result for people: a line for the table, and a line for each differing row that is named."""
        if self.state != "compared":
            remedy = f"\n    → {self.remedy}" if self.remedy else ""
            return f"{self.state:9} {self.name}: {self.reason}{remedy}"
        what = counted_text(self.source_rows or 0, "row")
        if self.lake_rows is None:
            what += f" {'verified' if self.position else 'on the server'}; the lake's weren't read"
        elif self.beside:
            what = counted_text(self.lake_rows, "row" if self.beside == "log" else "current version")
            if self.lake_rows != self.source_rows:
                what += f", of {self.source_rows:,} by {'its batches' if self.beside == 'log' else 'the mirror'}"
        elif self.statistics and not self.differing:
            what += ", which are equal"
        elif not self.equal and self.position:
            what = f"{what} verified, {self.lake_rows:,} in the lake"
            what += f"; {self._differing_chunks}"
        elif not self.equal:
            what = f"{what} on the server, {self.lake_rows:,} in the lake"
            what += f"; {self._differing_chunks}"
        elif self.looked is not None and self.looked != self.chunks:
            what += f", {self.looked_rows:,} of them read"
        lines = [f"{'equal' if self.equal else 'DIFFERS':9} {self.name}: {what}, Delta version {self.delta_version}"]
        lines += [f"    {self.reason}"] if self.reason else []
        lines += self._statistics_lines()
        lines += [f"    {row}" for row in self.rows[:SHOWN]]
        lines += [f"    {self.repair.to_text()}"] if self.repair else []
        if len(self.rows) > SHOWN:
            lines.append(f"    … and {len(self.rows) - SHOWN} more found (--json shows them)")
        return "\n".join(lines)

    def _statistics_lines(self) -> list[str]:
        if not self.statistics:
            return []
        count = f"{len(self.statistics):,} data file{'s' if len(self.statistics) > 1 else ''}"
        head = f"    the Delta log's statistics of {count} are wrong; by these readers leave out files that have rows:"
        return [head, *(f"    {wrong}" for wrong in self.statistics[:SHOWN])]


@dataclass(frozen=True)
class VerifyReport:
    """The results for all tables.

    position: at which all compared tables were read; None where they were verified at several. lock_ms: how
    long the server was locked; None if it wasn't asked. why_spark: why Spark was started; empty where it wasn't.
    """

    verification: str
    position: Position | None
    lock_ms: int | None
    seconds: float
    tables: tuple[TableResult, ...]
    why_spark: str = ""

    @property
    def compared(self) -> tuple[TableResult, ...]:
        """Return the tables that were compared."""
        return tuple(table for table in self.tables if table.state == "compared")

    @property
    def equal(self) -> bool:
        """Return whether every table was proved equal, and at least one was; those that are left out don't count."""
        return bool(self.compared) and not (self.differing or self.unverified or self.unfinished)

    @property
    def differing(self) -> tuple[TableResult, ...]:
        """Return the compared tables that differ."""
        return tuple(table for table in self.compared if not table.equal)

    @property
    def unfinished(self) -> tuple[TableResult, ...]:
        """Return the tables that are left for the next run."""
        return tuple(table for table in self.tables if table.state == "unfinished")

    @property
    def unverified(self) -> tuple[TableResult, ...]:
        """Return the tables that were to be compared but weren't."""
        return tuple(table for table in self.tables if table.state not in ("compared", "unfinished", *_LEFT_OUT))

    def refuse_unequal(self) -> None:
        """Raise CheckFailed unless every table was proved equal, or the time was up before."""
        if self.differing:
            raise CheckFailed("the lake differs from the server", remedy=DIFFERING_REMEDY)
        self.refuse_unverified()

    def refuse_unverified(self) -> None:
        """Raise CheckFailed where a table wasn't compared that was to be, or none was, though there was time."""
        if self.unverified or not (self.compared or self.unfinished):
            named = ", ".join(f"{table.name}" for table in self.unverified)
            what = f"not compared with the server: {named}" if named else "no table was compared with the server"
            raise CheckFailed(what, remedy=UNVERIFIED_REMEDY)

    def refuse_unrepaired(self) -> None:
        """Raise CheckFailed unless every table was compared, and is equal or was repaired."""
        left = [table for table in self.differing if table.repair is None or table.repair.state != "repaired"]
        if left:
            named = ", ".join(f"{table.name}" for table in left)
            raise CheckFailed(f"the lake still differs from the server: {named}", remedy=DIFFERING_REMEDY)
        self.refuse_unverified()

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values for JSON. ``equal`` is None where nothing differs and tables are left."""
        return {
            "verification": self.verification,
            "equal": None if self.unfinished and not (self.differing or self.unverified) else self.equal,
            **(dump(self.position) if self.position else {"position": None, "gtid_set": ""}),
            "lock_ms": self.lock_ms,
            "seconds": self.seconds,
            "why_spark": self.why_spark,
            "tables": [table.to_json() for table in self.tables],
        }

    @property
    def headline(self) -> str:
        """Return one line with the numbers of tables, the position and the time of the lock."""
        repaired = self._repaired
        equal = len(self.compared) - len(self.differing) + len(repaired)
        parts = [f"{equal} of {len(self.compared)} tables equal"]
        parts += [f"{len(self.unverified)} not compared"] if self.unverified else []
        parts += [f"{len(self.unfinished)} left for the next run"] if self.unfinished else []
        parts += [f"repaired {name}: {done.counted}" for name, done in repaired[:SHOWN]]
        parts += [f"{len(repaired) - SHOWN:,} more repaired"] if len(repaired) > SHOWN else []
        lock = f"server locked for {self.lock_ms} ms" if self.lock_ms is not None else "the server wasn't asked"
        several = " at the position at which each was verified" if self.compared else ""
        where = f" at {self.position.short}" if self.position else several
        tables = ", ".join(parts) + ("," if len(parts) > 1 and where else "")
        return f"{tables}{where} ({lock}, {self.seconds:.0f} s in all)"

    @property
    def _repaired(self) -> list[tuple[TableName, TableRepair]]:
        """Return the tables that were put right, with what was done."""
        return [(table.name, table.repair) for table in self.differing if table.repair and table.behind_repair]

    def to_text_without_keys(self) -> str:
        """Return the text for a log that others read: how many rows differ in which columns, without their keys."""
        return replace(self, tables=tuple(table.masked() for table in self.tables)).to_text()

    def to_text(self) -> str:
        """Return the tables' results and the headline, one below the other."""
        return "\n".join([*(table.to_text() for table in self.tables), self.headline])
