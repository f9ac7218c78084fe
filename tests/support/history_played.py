"""Random transactions on a table with a history, which must be the one that an oracle plays from the server's log."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from binlake.faults import FaultPoint
from binlake.schema.table import TableName
from history_oracle import HistoryWalk, Oracle, rows_of
from history_player import Player, Version
from mirror import Mirror

Row = dict[str, Any]
KEY = ("id", "part")
SNAPSHOT = 5
"""Every how many rounds the table is copied again."""
NOTES = 3
"""How many boundaries of each round the server's rows are noted at."""
CUT_OFF: tuple[FaultPoint, ...] = ("data file written", "epoch committed", "table merged")
_OWN = {"valid_from", "valid_to", "is_current", "from_position", "to_position"}


def with_history(mirror: Mirror, *tables: str, **settings: Any) -> None:
    mirror.modes = [{"tables": f"{mirror.database}.{table}", "history": settings} for table in tables]


def path_of(mirror: Mirror, table: str) -> str:
    return mirror.config.beside_path(TableName(mirror.database, table), "history")


def rows_in(path: str) -> list[Row]:
    read = QueryBuilder().register("history", DeltaTable(path)).execute("SELECT * FROM history").read_all()
    rows: list[Row] = pa.table(read).to_pylist()
    return rows


def play(
    mirror: Mirror,
    seed: int,
    events: int,
    rounds: int,
    *,
    keys: int = 60,
    ddl_share: float = 0.02,
    between: Callable[[int], bool] = lambda number: True,
    **settings: Any,
) -> Oracle:
    """Change the table in rounds, each with a sync that is cut off now and then, some with a snapshot; then compare its
    history with the oracle's. Return the oracle.

    events: how many of rows the log gets at least. keys: how many ids the rows have. ddl_share: of statements among the
    transactions. between: called before each round's sync with the round's number, and shows whether more rounds are
    wanted. settings: of the mode.
    """
    mirror.execute(
        "CREATE TABLE t (id INT, part CHAR(1) CHARACTER SET ascii, v VARCHAR(20), w INT, PRIMARY KEY (id, part))",
        "INSERT INTO t VALUES (1, 'x', 'a', 1), (2, 'y', 'b', 2)",
    )
    with_history(mirror, "t", **settings)
    mirror.merges = ("rewrite", "mark")
    (result,) = mirror.snapshot("*.t")
    chance = random.Random(seed)
    player = Player(KEY, by_mutation=settings.get("per") == "mutation")
    oracle = Oracle(mirror.server, mirror.database, "t", player, result.low.file, result.low.offset)
    oracle.begin([dict(row) for row in rows_of(mirror.server, mirror.database, "t")])
    walk = HistoryWalk(mirror.server, mirror.database, seed, keys, ddl_share)
    for number in range(rounds):
        is_snapshotted = number % SNAPSHOT == 1  # the log doesn't tell columns of a table that was altered before
        for _ in range(NOTES):
            walk.go_on(events / rounds / NOTES, ddl=not is_snapshotted)
            oracle.note()
        if is_snapshotted:
            mirror.snapshot("*.t")
            walk.go_on(5)
        continues = between(number)
        mirror.sync_cut_off(chance, 0.3, points=(chance.choice(CUT_OFF),))
        if not continues:
            break
    walk.close()
    oracle.play()
    assert_as_played(mirror, oracle)
    return oracle


def assert_as_played(mirror: Mirror, oracle: Oracle) -> None:
    """The history is the oracle's row by row, and at each boundary it has the server's rows; its current rows are the
    mirror's and the server's."""
    rows = sorted(rows_in(path_of(mirror, "t")), key=lambda row: (row["from_position"], _key(row)))
    played = sorted(oracle.player.versions(), key=lambda version: (version.began[0], _key(version.row)))
    names = sorted({*rows[0]} - _OWN)
    assert len(rows) == len(played)
    for row, version in zip(rows, played, strict=True):
        assert _of_row(row, names) == _of_version(version, names)
    assert_no_overlap(rows)
    for position, noted in oracle.at.items():
        assert {_values(row) for row in held_at(rows, position)} == {_values(row) for row in noted}, position
    server = rows_of(mirror.server, mirror.database, "t")
    current = [{name: row[name] for name in server[0]} for row in rows if row["is_current"]] if server else []
    assert sorted(current, key=_key) == sorted(server, key=_key)
    mirror.assert_equal("t")


def held_at(rows: list[Row], position: str) -> list[Row]:
    """Return the rows that hold at a boundary."""
    return [
        row
        for row in rows
        if row["from_position"] <= position and (row["to_position"] is None or row["to_position"] > position)
    ]


def assert_no_overlap(rows: list[Row]) -> None:
    """No two versions of a key hold at one position. rows: in the order of their beginnings."""
    by_key: dict[Any, list[Row]] = {}
    for row in rows:
        by_key.setdefault(_key(row), []).append(row)
    for of_key in by_key.values():
        for former, latter in pairwise(of_key):
            assert former["to_position"] is not None
            assert former["to_position"] <= latter["from_position"]


def _key(row: Any) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def _values(row: Any) -> tuple[Any, ...]:
    """Return what no statement of the walk renames or adds."""
    return (*_key(row), row["w"])


def _of_row(row: Row, names: list[str]) -> tuple[Any, ...]:
    return (row["from_position"], row["to_position"], *(row[name] for name in names))


def _of_version(version: Version, names: list[str]) -> tuple[Any, ...]:
    ended = version.ended[0] if version.ended else None
    return (version.began[0], ended, *(version.row.get(name) for name in names))
