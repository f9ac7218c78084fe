"""The metadata tables of the protocol's model."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from binlake.errors import LakeError
from binlake.lease.lease import RecordedState
from binlake.position import Position
from binlake.records import watermarks
from binlake.store import formats
from binlake.store.conditions import Newest, literal
from binlake.store.metadata import Metadata
from binlake.store.rows import WatermarkRow
from binlake.store.table_schemas import SCHEMAS


class Store(Metadata):
    """The metadata tables in SQLite: each write is atomic, as a Delta commit is, and its predicates are SQL, too.

    A replacement conflicts with what came between its guard and itself, if that concerns the same rows. reach: called
    with the name of each access. moved: called with the position up to which all is recorded, when it changes.
    """

    def __init__(
        self,
        reach: Callable[[str], None],
        moved: Callable[[Position], None],
        guard: Callable[[], None] = lambda: None,
        database: sqlite3.Connection | None = None,
    ) -> None:
        super().__init__("nowhere://")  # what isn't overridden here must fail
        self.check = guard
        self._reach = reach
        self._moved = moved
        self._database = database or _database()

    def guarded(self, guard: Callable[[], None]) -> Store:
        return Store(self._reach, self._moved, guard, self._database)

    def peek(self, name: str, predicate: str = "true") -> list[dict[str, Any]]:
        """Read without being a worker."""
        return [dict(row) for row in self._database.execute(f"SELECT * FROM {name} WHERE {predicate}")]

    def watermarks(self) -> list[dict[str, Any]]:
        """Return all watermarks as they stand, without being a worker."""
        positions = [row["position"] for row in self.peek("lease") if row["position"]]
        recorded = formats.read(RecordedState, positions[0]) if positions else None
        return [watermarks.moved_forward(WatermarkRow(**row), recorded).values() for row in self.peek("watermarks")]

    def read(
        self, name: str, columns: Sequence[str] | None = None, *, where: str | None = None, newest: Newest | None = None
    ) -> list[dict[str, Any]]:
        self._reach(f"read {name}")
        rows = self.peek(name, where) if where else self.peek(name)
        if newest is None:
            return rows
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: row[newest.by] or 0, reverse=True):
            groups[tuple(row[column] for column in newest.per)].append(row)
        return [row for group in groups.values() for row in group[: newest.count]]

    def tables(self) -> set[str]:
        return set(SCHEMAS)

    def append(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self._reach(f"write {name}")
        self.check()
        self._insert(name, rows)

    def replace(self, name: str, predicate: str, rows: Sequence[Mapping[str, Any]]) -> None:
        predicate = re.sub(r"\btable\b", '"table"', predicate)  # a word of SQLite's own
        self._reach(f"write {name}")
        before = self.peek(name, predicate)
        self.check()
        self._reach(f"commit {name}")
        if self.peek(name, predicate) != before:
            self.check()
            raise LakeError(f"another process wrote {name}")
        self._database.execute(f"DELETE FROM {name} WHERE {predicate}")
        self._insert(name, rows)

    def create_with(self, name: str, rows: Sequence[Mapping[str, Any]], *, again: bool = False) -> None:
        self._reach(f"write {name}")
        if not self.peek(name):
            self._insert(name, rows)

    def swap(self, name: str, predicate: str, updates: Mapping[str, str | int | None]) -> bool:
        self._reach(_change_of_lease(updates))
        changes = ", ".join(f'"{column}" = {literal(value)}' for column, value in updates.items())
        swapped = bool(self._database.execute(f"UPDATE {name} SET {changes} WHERE {predicate}").rowcount)
        if swapped and updates.get("position"):
            self._moved(formats.read(RecordedState, str(updates["position"])).position)
        return swapped

    def _insert(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        fields = SCHEMAS[name].names
        text = f"INSERT INTO {name} VALUES ({', '.join('?' * len(fields))})"
        self._database.executemany(text, [[row.get(column) for column in fields] for row in rows])


def _database() -> sqlite3.Connection:
    """Return a database with all metadata tables, empty."""
    database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    database.row_factory = sqlite3.Row
    for name, schema in SCHEMAS.items():
        columns = ", ".join(f'"{column}"' for column in schema.names)
        database.execute(f"CREATE TABLE {name} ({columns})")
    return database


def _change_of_lease(updates: Mapping[str, object]) -> str:
    """Return the name of the point before a change of the lease's row."""
    if "token" in updates:
        return "take lease" if updates["token"] else "give lease back"
    if "batch" in updates:
        return "freeze plan"
    if "position" in updates:
        return "move position"
    if "plan" in updates:
        return f"advance to {json.loads(str(updates['plan']))['state']}"
    return "renew lease"
