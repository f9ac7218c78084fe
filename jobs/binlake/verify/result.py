"""Results of a verification."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from binlake.errors import DIFFERING_REMEDY, UNVERIFIED_REMEDY, CheckFailed
from binlake.position import Position
from binlake.schema.table import TableName
from binlake.serialization import dump

MOST_ROWS = 100
"""The most differing rows that are reported per table."""
SHOWN = 10
"""The most differing rows of a table in the text; JSON has them all."""

State = Literal[
    "compared", "unfinished", "failed", "stopped", "resnapshot", "paused", "catching up", "dropped", "missing"
]
"""A table's state. unfinished: the time was up, and what was compared is equal. failed: it couldn't be compared.
stopped, resnapshot, paused, catching up, dropped: as in the watermarks."""
_LEFT_OUT = ("paused", "catching up", "dropped")
"""States of tables that aren't to be compared: they were dropped, or stand at an earlier position for a while."""
Kind = Literal["missing", "extra", "changed"]


@dataclass(frozen=True)
class DifferingRow:
    """A row that differs between server and lake. Of its values only the key is shown.

    missing: only on the server. extra: only in the lake, or there more often. changed: ``columns`` differ. count: how
    many such rows there are. key: (column, text) of each key column; the row's hash if the table has no key.
    """

    kind: Kind
    key: tuple[tuple[str, str], ...]
    count: int = 1
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        key = ", ".join(f"{name}={json.dumps(text, ensure_ascii=False)}" for name, text in self.key)
        times = f" x{self.count}" if self.count > 1 else ""
        return f"{self.kind}{times}: {key}" + (f" in {', '.join(self.columns)}" if self.columns else "")


@dataclass(frozen=True)
class TableRepair:
    """What a repair did with a table that differs.

    state: planned by a dry run, repaired, or refused for a ``reason``. counts: differing rows by kind. delta_version:
    of the commit.
    """

    state: Literal["planned", "repaired", "refused"]
    counts: dict[str, int]
    delta_version: int | None = None
    reason: str = ""
    remedy: str = ""

    def to_text(self) -> str:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in self.counts.items())
        if self.state == "refused":
            return f"not repaired: {self.reason}\n    → {self.remedy}"
        if self.state == "planned":
            return f"to be repaired: {counts}"
        return f"repaired: {counts}, Delta version {self.delta_version}"


@dataclass(frozen=True)
class TableResult:
    """The result for one table. chunks: how many it has. differing: how many of them differ. looked: how many were
    compared; the others are known equal and haven't changed since. looked_rows: the server's in these. repair: None
    where none was asked for, or nothing differs. position: where its rows were verified, as far as the lake is checked
    by itself; None where the server was read, at the report's position."""

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
    repair: TableRepair | None = None
    looked: int | None = None
    looked_rows: int | None = None
    position: str | None = None

    def to_json(self) -> dict[str, Any]:
        rows = [{**asdict(row), "key": dict(row.key), "columns": list(row.columns)} for row in self.rows]
        return {**asdict(self), "name": str(self.name), "rows": rows}

    def to_text(self) -> str:
        if self.state != "compared":
            remedy = f"\n    → {self.remedy}" if self.remedy else ""
            return f"{self.state:9} {self.name}: {self.reason}{remedy}"
        what = f"{self.source_rows:,} rows"
        if not self.equal:
            what = f"{self.source_rows:,} rows on the server, {self.lake_rows:,} in the lake"
            what += f"; {self.differing} of {self.chunks} chunks differ"
        elif self.looked is not None and self.looked != self.chunks:
            what += f", {self.looked_rows:,} of them read"
        lines = [f"{'equal' if self.equal else 'DIFFERS':9} {self.name}: {what}, Delta version {self.delta_version}"]
        lines += [f"    {self.reason}"] if self.reason else []
        lines += [f"    {row}" for row in self.rows[:SHOWN]]
        lines += [f"    {self.repair.to_text()}"] if self.repair else []
        if len(self.rows) > SHOWN:
            lines.append(f"    … and {len(self.rows) - SHOWN} more found (--json shows them)")
        return "\n".join(lines)


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
        return tuple(table for table in self.tables if table.state == "compared")

    @property
    def equal(self) -> bool:
        """Tell whether every table was proved equal, and at least one was; those that are left out don't count."""
        return bool(self.compared) and not (self.differing or self.unverified or self.unfinished)

    @property
    def differing(self) -> tuple[TableResult, ...]:
        return tuple(table for table in self.compared if not table.equal)

    @property
    def unfinished(self) -> tuple[TableResult, ...]:
        return tuple(table for table in self.tables if table.state == "unfinished")

    @property
    def unverified(self) -> tuple[TableResult, ...]:
        """Tables that were to be compared but weren't."""
        return tuple(table for table in self.tables if table.state not in ("compared", "unfinished", *_LEFT_OUT))

    def refuse_unequal(self) -> None:
        """Raise CheckFailed unless every table was proved equal, or the time was up before."""
        if self.differing:
            raise CheckFailed("the lake differs from the server", remedy=DIFFERING_REMEDY)
        self.refuse_unverified()

    def refuse_unverified(self) -> None:
        """Raise CheckFailed where a table wasn't compared that was to be, or none was, though there was time."""
        if self.unverified or not (self.compared or self.unfinished):
            named = ", ".join(str(table.name) for table in self.unverified)
            what = f"not compared with the server: {named}" if named else "no table was compared with the server"
            raise CheckFailed(what, remedy=UNVERIFIED_REMEDY)

    def refuse_unrepaired(self) -> None:
        """Raise CheckFailed unless every table was compared, and is equal or was repaired."""
        left = [table for table in self.differing if table.repair is None or table.repair.state != "repaired"]
        if left:
            named = ", ".join(str(table.name) for table in left)
            raise CheckFailed(f"the lake still differs from the server: {named}", remedy=DIFFERING_REMEDY)
        self.refuse_unverified()

    def to_json(self) -> dict[str, Any]:
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
        equal = len(self.compared) - len(self.differing)
        left = f", {len(self.unverified)} not compared," if self.unverified else ""
        left += f", {len(self.unfinished)} left for the next run," if self.unfinished else ""
        lock = f"server locked for {self.lock_ms} ms" if self.lock_ms is not None else "the server wasn't asked"
        several = " at the position at which each was verified" if self.compared else ""
        where = f" at {self.position.short}" if self.position else several
        tables = f"{equal} of {len(self.compared)} tables equal{left}{where}"
        return f"{tables.removesuffix(',')} ({lock}, {self.seconds:.0f} s in all)"

    def to_text(self) -> str:
        return "\n".join([*(table.to_text() for table in self.tables), self.headline])
