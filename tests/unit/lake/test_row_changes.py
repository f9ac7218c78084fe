"""What became of rows between two batches, held against tables that change at random: by versions, and by the log."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from binlake.lake.opened_lake import Lake, open_lake
from binlake.store.metadata import now_us
from binlake.store.rows import ReadableRow
from recorded_lake import record_lake

Row = tuple[Any, ...]
COLUMNS = {"id": pa.int64(), "note": pa.string(), "price": pa.float64(), "places": pa.list_(pa.float32())}
NOTES, PRICES = (None, "", "a", "A", "é"), (None, 0.0, -0.0, 1.5)
PLACES = (None, (), (0.0, 2.0), (-0.0, 2.0), (0.0, None))
BATCHES = 4


class Model:
    """A table with a key, with its log, and one without."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.keyed: dict[int, Row] = {}
        self.keyless: list[Row] = []
        self.log: list[Row] = []

    def change(self, batch: int) -> None:
        """Change some rows, some of them several times."""
        for _ in range(10):
            self._mutate(batch)
            if self._chance.random() < 0.6:
                self.keyless += [self._row()[1:]] * self._chance.randrange(1, 3)
            elif self.keyless:
                self.keyless.remove(self._chance.choice(self.keyless))

    def _row(self) -> Row:
        key = self._chance.randrange(6)
        return (key, *(self._chance.choice(values) for values in (NOTES, PRICES, PLACES)))

    def _mutate(self, batch: int) -> None:
        row = self._row()
        before = self.keyed.get(self._chance.choice([*self.keyed, row[0]]))
        if before is None and row[0] not in self.keyed:
            self._put("insert", batch, None, row)
        elif before is not None and self._chance.random() < 0.4:
            self._put("delete", batch, before, None)
        elif before is not None and row[0] in (before[0], *(set(range(6)) - self.keyed.keys())):
            self._put("update", batch, before, row)  # also of the key

    def _put(self, operation: str, batch: int, before: Row | None, after: Row | None) -> None:
        if before:
            del self.keyed[before[0]]
        if after:
            self.keyed[after[0]] = after
        nothing = (None,) * len(COLUMNS)
        self.log.append((operation, batch, f"{len(self.log):09}", *(before or nothing), *(after or nothing)))

    def tables(self) -> dict[str, pa.Table]:
        """The tables as they are now."""
        images = {f"{which}_{name}": kind for which in ("before", "after") for name, kind in COLUMNS.items()}
        log = {"operation": pa.string(), "batch": pa.int64(), "position": pa.string(), **images}
        without = dict([*COLUMNS.items()][1:])
        return {
            "shop.t": table([*self.keyed.values()], COLUMNS),
            "shop.k": table(self.keyless, without),
            "shop.t__log": table(self.log, log),
        }


def table(rows: list[Row], kinds: dict[str, pa.DataType]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ((),) * len(kinds)
    return pa.table([pa.array(values, kind) for values, kind in zip(columns, kinds.values(), strict=True)], [*kinds])


def shown(row: Iterator[Any] | Row) -> Row:
    """A row that compares by what is in it: zeros of two signs differ."""
    return tuple(repr(tuple(value)) if isinstance(value, list | tuple) else repr(value) for value in row)


def told(lake: Lake, query: str) -> list[Row]:
    return [tuple(row.values()) for row in lake.sql(query).to_pylist()]


def became(before: dict[int, Row], after: dict[int, Row]) -> Counter[Row]:
    nothing = (None,) * len(COLUMNS)
    return Counter(
        shown(("insert" if key not in before else "delete" if key not in after else "update",
               *before.get(key, nothing), *after.get(key, nothing)))
        for key in before.keys() | after.keys()
        if shown(before.get(key, ())) != shown(after.get(key, ()))
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(2))
def test_changes_are_those_of_the_rows(tmp_path: Path, seed: int) -> None:
    model = Model(seed)
    written = [model.tables()]
    states: list[tuple[dict[int, Row], list[Row]]] = [({}, [])]
    for batch in range(1, BATCHES + 1):
        model.change(batch)
        written.append(model.tables())
        states.append((dict(model.keyed), list(model.keyless)))
    record_lake(tmp_path / "shop", *written, mode="overwrite")
    lake = open_lake(tmp_path)
    for first, last in combinations(range(1, BATCHES + 1), 2):
        keyed = told(lake, f"SELECT * FROM changes('shop.t', {first}, {last})")
        assert Counter(shown((row[0], *row[3:])) for row in keyed) == became(states[first][0], states[last][0])
        assert {row[1:3] for row in keyed} <= {(1, "versions")}
        former, latter = (Counter(map(shown, states[batch][1])) for batch in (first, last))
        counted = told(lake, f"SELECT * FROM changes('shop.k', {first}, {last})")
        assert Counter({shown(row[6:]): row[1] for row in counted if row[0] == "insert"}) == latter - former
        assert Counter({shown(row[3:6]): row[1] for row in counted if row[0] == "delete"}) == former - latter

    version = lake.version.contents["shop.t"].delta_version
    gone = ReadableRow(table_id="life of shop.t", database="shop", table="t", delta_version=version, at_us=now_us())
    ReadableRow.append(lake.metadata, [gone])
    for first in range(1, BATCHES):
        logged = told(lake, f"SELECT * FROM changes('shop.t', {first}, {BATCHES})")
        assert Counter(shown((row[0], *row[3:])) for row in logged) == became(states[first][0], states[BATCHES][0])
        assert {row[1:3] for row in logged} <= {(1, "log")}
