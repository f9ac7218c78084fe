"""Random changes of rows that come into a row filter and leave it: ``random_rows.py KIND EVENTS [SEED]``.

KIND is mysql, mariadb or mariadb-11.8. Rows of three tables are inserted, updated, deleted and get other keys; some
tables are truncated, some columns retyped. After each thousand events the lake equals what the server selects by the
condition, by a comparison that shares no code with the engine, and by verify at the end. Spark isn't started.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parents[1] / "docker" / "local")]

import comparison  # noqa: E402
from binlake import pipeline  # noqa: E402
from binlake.report import Report  # noqa: E402
from mirror import Mirror  # noqa: E402
from servers import RELEASES, Server  # noqa: E402
from without_spark import no_spark, path, sync, verify  # noqa: E402

WHERE = "NOT (status = 'draft' OR status IS NULL) AND tenant IN (1, 2, 5) AND (price < 50.5 OR day >= '2026-06-01')"
COLUMNS = "tenant INT, status {}, price DECIMAL(9,2), day DATE, note VARCHAR(60)"
TABLES = {
    "orders": f"id INT PRIMARY KEY, {COLUMNS.format('VARCHAR(12)')}",
    "pairs": f"id INT, k VARCHAR(9), {COLUMNS.format('''ENUM('draft','new','paid','Open')''')}, PRIMARY KEY (k, id)",
    "keyless": f"id INT, {COLUMNS.format('CHAR(12) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin')}",
}
STATUSES = ["'draft'", "'new'", "'paid'", "'Open'", "NULL"]
EACH = 1000


class Walk:
    """Random statements on the tables, each of some row events."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def row(self, table: str) -> str:
        chance = self.chance
        status = chance.choice([*STATUSES, "'DRAFT'", "'draft '"] if table == "orders" else STATUSES)
        tenant, price = (
            chance.choice(["1", "2", "3", "5", "NULL"]),
            chance.choice(["10", "50.5", "50.49", "99", "NULL"]),
        )
        day = chance.choice(["'2026-05-31'", "'2026-06-01'", "NULL"])
        return f"{tenant}, {status}, {price}, {day}, '{chance.randint(0, 99)}'"

    def statement(self, table: str) -> str:
        chance, number = self.chance, self.chance.randint(1, 400)
        some = f"id BETWEEN {number} AND {number + chance.choice([0, 0, 3, 20])}"
        drawn = chance.random()
        if drawn < 0.35:
            keys = [number + step for step in range(chance.randint(1, 6))]
            names = "id, k, " if table == "pairs" else "id, "
            key = "{}, 'k{}', " if table == "pairs" else "{}, "
            values = ", ".join(f"({key.format(one, one % 3)}{self.row(table)})" for one in keys)
            return f"INSERT IGNORE INTO {table} ({names}tenant, status, price, day, note) VALUES {values}"
        if drawn < 0.9:
            column = chance.choice(["tenant", "status", "price", "day", "note", "id"])
            if column == "id":
                return f"UPDATE IGNORE {table} SET id = id + {chance.randint(-30, 30)} WHERE {some}"
            place = ["tenant", "status", "price", "day", "note"].index(column)
            return f"UPDATE {table} SET {column} = {self.row(table).split(', ')[place]} WHERE {some}"
        if drawn < 0.995:
            return f"DELETE FROM {table} WHERE {some}"
        return chance.choice(
            [f"TRUNCATE {table}", f"ALTER TABLE {table} MODIFY tenant {chance.choice(['INT', 'BIGINT'])}"]
        )


def main(kind: str, events: int, seed: int) -> None:
    flavour, _, release = kind.partition("-")
    if release:
        RELEASES["mariadb"] = release
    walk, began, done = Walk(random.Random(seed)), time.monotonic(), 0
    print(f"{kind}: {events} events, seed {seed}", flush=True)
    with Server(flavour) as server, tempfile.TemporaryDirectory() as folder:  # type: ignore[arg-type]
        database = f"t_{uuid.uuid4().hex[:12]}"
        server.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        mirror = Mirror(server, database, Path(folder), None, reader="direct")  # type: ignore[arg-type]
        mirror.options = {"rows": [{"tables": f"{database}.*", "where": WHERE}]}
        server.execute(
            "SET sql_mode=''",
            *(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()),
            database=database,
        )
        pipeline.bootstrap(mirror.config, mirror.origin, no_spark, Report())
        while done < events:
            with server.connect(database=database) as connection, connection.cursor() as cursor:
                cursor.execute("SET sql_mode=''")
                target = done + EACH
                while done < target:
                    done += cursor.execute(walk.statement(walk.chance.choice(list(TABLES))))
            sync(mirror)
            for table in TABLES:
                comparison.assert_equal(server, database, table, path(mirror, table), where=WHERE)
        report = verify(mirror)
        assert report.equal, report
        seconds = time.monotonic() - began
        print(f"{kind}: {done} events in {seconds:,.0f} s: the lake has the rows that the server selects", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else random.randint(1, 10**6))
