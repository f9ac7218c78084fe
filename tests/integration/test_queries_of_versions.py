"""Queries of a mirror see each batch as the server was there, and what became of its rows in between."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations
from typing import Any

import pytest

from binlake.errors import UsageError
from binlake.lake.opened_lake import Lake, open_lake
from binlake.store.metadata import now_us
from binlake.store.rows import ReadableRow
from mirror import WAYS, Mirror, on_mysql

Row = tuple[Any, ...]
VALUES = (None, 0.0, -0.0, 1.5)


def statements(chance: random.Random) -> list[str]:
    """Some changes of rows, also of keys, forth and back."""
    made: list[str] = []
    for _ in range(12):
        a, b = chance.randrange(4), chance.choice("xXyé ")
        f = chance.choice(VALUES)
        shown = "NULL" if f is None else f"{f!r}E0"  # -0.0 alone is a decimal, without a sign
        made.append(
            chance.choice(
                (
                    f"REPLACE INTO t VALUES ({a}, '{b}', 'v{chance.randrange(3)}', {shown})",
                    f"DELETE FROM t WHERE a = {a} AND b = '{b}'",
                    f"UPDATE IGNORE t SET a = a + 1 WHERE a = {a}",
                    f"UPDATE t SET v = NULL, f = {shown} WHERE a = {a}",
                    f"INSERT INTO k VALUES ({a}, {shown}), ({a}, {shown})",
                    f"DELETE FROM k WHERE a = {a} LIMIT 1",
                )
            )
        )
    return made


def rows_of(mirror: Mirror, table: str) -> list[Row]:
    return [shown(row) for row in mirror.server.execute(f"SELECT * FROM {table}", database=mirror.database)]


def shown(row: Row) -> Row:
    """A row whose zeros of two signs differ."""
    return tuple(repr(value) if isinstance(value, float) else value for value in row)


def key(row: Row) -> Row:
    return row[:2]


def changed(before: list[Row], after: list[Row]) -> Counter[Row]:
    """What became of each row, by the server's rows."""
    was, is_now = ({key(row): row for row in rows} for rows in (before, after))
    nothing = (None,) * 4
    return Counter(
        (operation, *was.get(place, nothing), *is_now.get(place, nothing))
        for place in was.keys() | is_now.keys()
        if was.get(place) != is_now.get(place)
        for operation in ("insert" if place not in was else "delete" if place not in is_now else "update",)
    )


def asked(lake: Lake, query: str) -> list[Row]:
    return [shown(tuple(row.values())) for row in lake.sql(query).to_pylist()]


@on_mysql
@pytest.mark.parametrize("seed", [1])
def test_each_batch_and_what_lies_between(mirror: Mirror, seed: int) -> None:
    chance = random.Random(seed)
    mirror.execute(
        "CREATE TABLE t (a INT, b VARCHAR(4) COLLATE utf8mb4_bin, v VARCHAR(9), f DOUBLE, PRIMARY KEY (a, b))",
        "CREATE TABLE k (a INT, f DOUBLE)",
        *statements(chance),
    )
    mirror.modes = [{"tables": f"{mirror.database}.t", "log": {}}]
    mirror.options["merge"] = WAYS[0]
    mirror.snapshot()
    known: dict[int, tuple[list[Row], list[Row]]] = {}
    for _ in range(5):
        mirror.execute(*statements(chance))
        batch = mirror.sync().batch
        known[batch] = (rows_of(mirror, "t"), rows_of(mirror, "k"))
    lake = open_lake(mirror.config)
    t, k = f"{mirror.database}.t", f"{mirror.database}.k"
    for batch, (keyed, keyless) in known.items():
        assert Counter(asked(lake, f"SELECT * FROM {t} AT (BATCH {batch})")) == Counter(keyed)
        assert Counter(asked(lake, f"SELECT * FROM {k} AT (BATCH {batch})")) == Counter(keyless)
    for first, last in combinations(known, 2):
        told = asked(lake, f"SELECT * FROM changes('{t}', {first}, {last})")
        assert {row[1:3] for row in told} <= {(1, "versions")}
        assert Counter((row[0], *row[3:]) for row in told) == changed(known[first][0], known[last][0])
        came, went = (Counter(known[last][1]), Counter(known[first][1]))
        counted = asked(lake, f"SELECT * FROM changes('{k}', {first}, {last})")
        assert Counter({row[5:]: row[1] for row in counted if row[0] == "insert"}) == came - went
        assert Counter({row[3:5]: row[1] for row in counted if row[0] == "delete"}) == went - came

    newest = max(known)
    own = lake.version.contents[t]
    ReadableRow.append(
        lake.metadata,
        [
            ReadableRow(
                table_id=own.table_id,
                database=mirror.database,
                table="t",
                delta_version=own.delta_version,
                at_us=now_us(),
            )
        ],
    )
    by_log = [version.batch for version in lake.known_versions() if version.batch in known and not version.readable]
    assert by_log
    for first in by_log:
        told = asked(lake, f"SELECT * FROM changes('{t}', {first}, {newest})")
        assert {row[2] for row in told} <= {"log"}
        assert Counter((row[0], *row[3:]) for row in told) == changed(known[first][0], known[newest][0])
    mirror.execute("ALTER TABLE t ADD COLUMN more INT DEFAULT 7")
    mirror.sync()
    with pytest.raises(UsageError, match="can't be read any more"):
        open_lake(mirror.config).sql(f"SELECT * FROM changes('{t}', {by_log[0]}, {newest + 1})")
    altered = f"SELECT operation, before_v, after_more FROM changes('{t}', {newest}, {newest + 1})"
    assert Counter(asked(open_lake(mirror.config), altered)) == Counter(
        ("update", row[2], 7) for row in known[newest][0]
    )
