"""The versions of rows that mutations make: a player of single events makes the same ones."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from binlake.merge.history.history_rows import (
    CHANGE_FIELDS,
    END_FIELDS,
    FROM,
    GONE,
    TIME,
    TO,
    TRANSACTION,
    VALID_FROM,
    VALID_TO,
    TwoOpenRows,
    VersionRules,
    changed_versions,
    key_codes,
)
from history_player import Player, Version

ROW = pa.schema([("a", pa.int32()), ("b", pa.string()), ("v", pa.string()), ("w", pa.int64())])
OPEN = pa.schema([*ROW, pa.field("dropped", pa.string()), *END_FIELDS])
CHANGES = pa.schema([*ROW, *CHANGE_FIELDS])


class History:
    """A history that changes come to, some at a time."""

    def __init__(self, key: list[str], tracked: list[str]) -> None:
        self.rules = VersionRules(key, ROW.names, tracked)
        self.rows = OPEN.empty_table()

    def apply(self, changes: list[dict[str, Any]]) -> None:
        is_open = np.array([end is None for end in self.rows[TO].to_pylist()], np.bool_)
        open_rows = self.rows.filter(pa.array(is_open))
        changed = changed_versions(open_rows, pa.Table.from_pylist(changes, CHANGES), self.rules)
        stays = open_rows.filter(pa.array(~changed.replaced))
        self.rows = pa.concat_tables([self.rows.filter(pa.array(~is_open)), stays, changed.rows])

    def versions(self) -> list[str]:
        return sorted(map(repr, (
            (tuple(row[name] for name in ROW.names), row[FROM], _us(row[VALID_FROM]), row[TO], _us(row[VALID_TO]))
            for row in self.rows.to_pylist()
        )))  # fmt: skip


def _us(time: Any) -> int | None:
    return None if time is None else pa.scalar(time, TIME).value


def played(versions: list[Version]) -> list[str]:
    return sorted(
        repr((tuple(version.row[name] for name in ROW.names), *version.began, *(version.ended or (None, None))))
        for version in versions
    )


def change(row: dict[str, Any], position: str, at: int, transaction: int, *, gone: bool = False) -> dict[str, Any]:
    return {**row, VALID_FROM: at, FROM: position, GONE: gone, TRANSACTION: transaction}


class Writer:
    """Random transactions over few keys, for the engine's changes and for the player."""

    def __init__(self, seed: int, player: Player) -> None:
        self.random, self.player = random.Random(seed), player
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.offset, self.at, self.transaction = 4, 1_700_000_000_000_000, 0
        self.changes: list[dict[str, Any]] = []

    def transact(self) -> None:
        self.at += self.random.choice([0, 0, 1, -1_000_000, 1_000_000])
        for _ in range(self.random.randint(1, 5)):
            self.offset += self.random.randint(1, 90)
            for row in range(self.random.randint(1, 3)):
                self._mutate(f"000001:{self.offset:012}:{row:09}")
        self.player.commit()
        self.transaction += 1
        self.offset += 30

    def _mutate(self, position: str) -> None:
        key = (self.random.randint(1, 6), self.random.choice("xy"))
        row = self.rows.get(key)
        if row is None:
            self._insert(key, position)
        elif self.random.random() < 0.3:
            del self.rows[key]
            self.player.delete(row, position, self.at)
            self._note(row, position, gone=True)
        else:
            self._update(key, row, position)
        self.transaction += self.player.by_mutation

    def _insert(self, key: tuple[int, str], position: str) -> None:
        row = self._row(key)
        self.rows[key] = row
        self.player.insert(row, position, self.at)
        self._note(row, position)

    def _update(self, key: tuple[int, str], row: dict[str, Any], position: str) -> None:
        moved = (self.random.randint(1, 6), self.random.choice("xy"))
        after = self._row(moved if moved not in self.rows and self.random.random() < 0.4 else key)
        del self.rows[key]
        self.rows[after["a"], after["b"]] = after
        self.player.update(row, after, position, self.at)
        if (after["a"], after["b"]) != key:
            self._note(row, position, gone=True)
        self._note(after, position)

    def _row(self, key: tuple[int, str]) -> dict[str, Any]:
        return {
            "a": key[0], "b": key[1], "v": self.random.choice(["p", "q", None]), "w": self.random.choice([1, 2, None]),
        }  # fmt: skip

    def _note(self, row: dict[str, Any], position: str, *, gone: bool = False) -> None:
        self.changes.append(change(row, position, self.at, self.transaction, gone=gone))


@pytest.mark.parametrize("by_mutation", [False, True], ids=["per transaction", "per mutation"])
@pytest.mark.parametrize("tracked", [["a", "b", "v", "w"], ["v"]], ids=["all columns", "one column"])
def test_random_transactions_make_the_versions_of_single_events(tracked: list[str], *, by_mutation: bool) -> None:
    for seed in range(30):
        history, player = History(["a", "b"], tracked), Player(["a", "b"], tracked, by_mutation)
        writer = Writer(seed, player)
        for _ in range(8):
            for _ in range(writer.random.randint(0, 12)):
                writer.transact()
            history.apply(writer.changes)
            writer.changes.clear()
            assert history.versions() == played(player.versions()), f"seed {seed}"


def test_a_row_that_comes_and_goes_in_a_transaction_leaves_nothing() -> None:
    history = History(["a", "b"], ["v"])
    row = {"a": 1, "b": "x", "v": "p", "w": 1}
    history.apply([change(row, "p1", 1, 0), change(row, "p2", 1, 0, gone=True)])
    assert history.rows.num_rows == 0


def test_a_version_keeps_the_values_of_columns_that_the_server_dropped() -> None:
    history = History(["a", "b"], ["v"])
    row = {"a": 1, "b": "x", "v": "p", "w": 1}
    kept = {"dropped": "old", VALID_FROM: 1, FROM: "p1", VALID_TO: None, TO: None}
    history.rows = pa.Table.from_pylist([{**row, **kept}], OPEN)
    history.apply([change({**row, "v": "q"}, "p2", 2, 1)])
    closed, current = sorted(history.rows.to_pylist(), key=lambda row: row[FROM])
    assert (closed["dropped"], closed[TO], closed["v"]) == ("old", "p2", "p")
    assert (current["dropped"], current[TO], current["v"]) == (None, None, "q")


def test_a_version_that_ends_where_it_began_is_none() -> None:
    """As in a snapshot that others wrote to: what they did meanwhile has the snapshot's position."""
    history = History(["a", "b"], ["v"])
    rows = [{"a": number, "b": "x", "v": "p", "w": 1} for number in (1, 2)]
    history.apply([change(row, "p1", 1, 0) for row in rows])
    history.apply([change({**rows[0], "v": "q"}, "p1", 2, 0), change(rows[1], "p1", 2, 0, gone=True)])
    (row,) = history.rows.to_pylist()
    assert (row["a"], row["v"], row[FROM], row[TO]) == (1, "q", "p1", None)


def test_two_open_rows_of_a_key_are_refused() -> None:
    history = History(["a", "b"], ["v"])
    row = {"a": 1, "b": "x", "v": "p", "w": 1}
    history.rows = pa.Table.from_pylist([{**row, FROM: "p1"}, {**row, FROM: "p2"}], OPEN)
    with pytest.raises(TwoOpenRows):
        history.apply([change(row, "p3", 2, 1)])


@pytest.mark.parametrize(
    "columns",
    [
        [pa.chunked_array([[3, -1], [3, 0, -(1 << 63)]])],
        [pa.array([1, (1 << 64) - 1, (1 << 63) - 1, 1], pa.uint64())],
        [pa.array([0, None, -1, None, 0])],
        [pa.array([0.0, -0.0, 1.5])],
        [pa.array(["x", "y", "x"]), pa.array([1, 1, 1])],
    ],
    ids=["whole", "without sign", "NULL", "zeros of two signs", "two columns"],
)
def test_rows_of_one_key_have_one_code(columns: list[Any]) -> None:
    keys = pa.table(columns, names=["a", "b"][: len(columns)])
    codes, rows = key_codes(keys).tolist(), [tuple(row.values()) for row in keys.to_pylist()]
    assert [codes.index(code) for code in codes] == [rows.index(row) for row in rows]
