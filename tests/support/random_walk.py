"""Random statements over a few tables: rows and schema changes, as no one would write them by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pymysql

from servers import Server

TABLES = 6
_TYPES = {
    "TINYINT": lambda r: str(r.randint(-128, 127)),
    "SMALLINT UNSIGNED": lambda r: str(r.randint(0, 65535)),
    "INT": lambda r: str(r.randint(-(2**31), 2**31 - 1)),
    "BIGINT": lambda r: str(r.randint(-(2**63), 2**63 - 1)),
    "DECIMAL(12,3)": lambda r: f"{r.randint(-(10**9), 10**9)}.{r.randint(0, 999):03d}",
    "DOUBLE": lambda r: repr(r.uniform(-1e9, 1e9)),
    "VARCHAR(20)": lambda r: f"'{''.join(r.choice('abcäöß漢 x') for _ in range(r.randint(0, 12)))}'",
    "TEXT": lambda r: f"'{'t' * r.randint(0, 300)}'",
    "VARBINARY(9)": lambda r: f"0x{r.randbytes(r.randint(1, 9)).hex()}",
    "DATE": lambda r: f"'{r.randint(1000, 9999)}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}'",
    "DATETIME(3)": lambda r: f"'{r.randint(1970, 2100)}-01-01 00:00:{r.randint(0, 59):02d}.{r.randint(0, 999):03d}'",
    "ENUM('a','b','c')": lambda r: f"'{r.choice('abc')}'",
}  # fmt: skip
_WIDER = {
    "TINYINT": "INT",
    "SMALLINT UNSIGNED": "BIGINT",
    "INT": "BIGINT",
    "VARCHAR(20)": "VARCHAR(90)",
    "VARBINARY(9)": "VARBINARY(90)",
    "ENUM('a','b','c')": "ENUM('a','b','c','d')",
}
Value = Callable[[random.Random], str]


@dataclass
class Table:
    """What is known of one table: its columns but ``id``, with the type each was declared with."""

    name: str
    columns: dict[str, str] = field(default_factory=dict)


class Walk:
    """Statements one after the other; ``log`` has those that the server took."""

    def __init__(self, server: Server, database: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.log: list[str] = []
        self._server, self._database = server, database
        self._tables = [Table(f"t{number}") for number in range(TABLES)]
        self._ids = 0
        self._names = 0
        self.reconnect()
        for table in self._tables:
            self._create(table)

    def reconnect(self) -> None:
        """Also after the server was away."""
        self._connection = self._server.connect(database=self._database)
        with self._connection.cursor() as cursor:
            cursor.execute("SET sql_mode = 'STRICT_TRANS_TABLES'")

    def close(self) -> None:
        self._connection.close()

    @property
    def tables(self) -> list[str]:
        return [table.name for table in self._tables]

    def step(self) -> None:
        """One statement that the server takes."""
        moves: list[tuple[int, Callable[[Table], bool]]] = [
            (30, self._insert), (14, self._update), (8, self._delete), (6, self._add), (4, self._drop),
            (4, self._rename), (3, self._swap), (4, self._wider), (3, self._move), (2, self._index), (1, self._key),
            (2, self._truncate), (2, self._rename_table), (2, self._swap_tables), (2, self._again),
            (1, self._generated),
        ]  # fmt: skip
        for _ in range(50):
            (move,) = self.random.choices([move for _, move in moves], [weight for weight, _ in moves])
            if move(self.random.choice(self._tables)):
                return
        raise AssertionError("no statement could be found")

    def _do(self, statement: str) -> bool:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
        except pymysql.err.MySQLError:
            return False
        self.log.append(statement)
        return True

    def _new_name(self) -> str:
        self._names += 1
        return self.random.choice(["c", "Col ", "spalte_ä", "x.y"]) + str(self._names)

    def _column(self) -> tuple[str, str, str]:
        name, kind = self._new_name(), self.random.choice([*_TYPES])
        default = self.random.choice(["", " DEFAULT NULL", "const"])
        if default == "const" and kind not in ("TEXT",):
            return name, kind, f"`{name}` {kind} NOT NULL DEFAULT {_TYPES[kind](self.random)}"
        return name, kind, f"`{name}` {kind}"

    def _value(self, kind: str) -> str:
        made: Value | None = _TYPES.get(kind)
        return made(self.random) if made and self.random.random() < 0.9 else "DEFAULT"

    def _pick(self, table: Table) -> str | None:
        return self.random.choice([*table.columns]) if table.columns else None

    # rows ------------------------------------------------------------------------------------------------------------
    def _insert(self, table: Table) -> bool:
        rows = []
        for _ in range(self.random.randint(1, 4)):
            self._ids += 1
            rows.append(f"({', '.join([str(self._ids), *(self._value(kind) for kind in table.columns.values())])})")
        names = ", ".join(["id", *(f"`{name}`" for name in table.columns)])
        return self._do(f"INSERT INTO {table.name} ({names}) VALUES {', '.join(rows)}")

    def _update(self, table: Table) -> bool:
        column = self._pick(table)
        if column is None or self.random.random() < 0.15:
            self._ids += 1
            return self._do(f"UPDATE {table.name} SET id = {self._ids} ORDER BY id LIMIT 1")
        kind = table.columns[column]
        part = f"id % {self.random.randint(1, 3)} = 0"
        return self._do(f"UPDATE {table.name} SET `{column}` = {self._value(kind)} WHERE {part}")

    def _delete(self, table: Table) -> bool:
        return self._do(f"DELETE FROM {table.name} WHERE id % {self.random.randint(3, 7)} = 0")

    # columns ---------------------------------------------------------------------------------------------------------
    def _add(self, table: Table) -> bool:
        name, kind, declared = self._column()
        place = self.random.choice(["", " FIRST", f" AFTER `{self._pick(table) or 'id'}`"])
        done = self._do(f"ALTER TABLE {table.name} ADD COLUMN {declared}{place}")
        if done:
            table.columns[name] = kind
        return done

    def _drop(self, table: Table) -> bool:
        column = self._pick(table)
        done = column is not None and self._do(f"ALTER TABLE {table.name} DROP COLUMN `{column}`")
        if done and column:
            del table.columns[column]
        return done

    def _rename(self, table: Table) -> bool:
        column, name = self._pick(table), self._new_name()
        done = column is not None and self._do(f"ALTER TABLE {table.name} RENAME COLUMN `{column}` TO `{name}`")
        if done and column:
            table.columns[name] = table.columns.pop(column)
        return done

    def _swap(self, table: Table) -> bool:
        if len(table.columns) < 2:
            return False
        first, second = self.random.sample([*table.columns], 2)
        swapped = f"RENAME COLUMN `{first}` TO `{second}`, RENAME COLUMN `{second}` TO `{first}`"
        done = self._do(f"ALTER TABLE {table.name} {swapped}")
        if done:
            table.columns[first], table.columns[second] = table.columns[second], table.columns[first]
        return done

    def _wider(self, table: Table) -> bool:
        column = self._pick(table)
        wider = _WIDER.get(table.columns[column]) if column else None
        done = wider is not None and self._do(f"ALTER TABLE {table.name} MODIFY `{column}` {wider}")
        if done and column and wider:
            table.columns[column] = wider if wider in _TYPES else "VARCHAR(20)" if "CHAR" in wider else wider
        return done

    def _move(self, table: Table) -> bool:
        column = self._pick(table)
        kind = table.columns[column] if column else ""
        return column is not None and self._do(f"ALTER TABLE {table.name} MODIFY `{column}` {kind} FIRST")

    def _index(self, table: Table) -> bool:
        self._names += 1
        column = self._pick(table)
        return column is not None and self._do(f"CREATE INDEX i{self._names} ON {table.name} (`{column}`)")

    def _generated(self, table: Table) -> bool:
        name = self._new_name()
        return self._do(f"ALTER TABLE {table.name} ADD `{name}` BIGINT AS (id * 2) STORED")

    # tables ----------------------------------------------------------------------------------------------------------
    def _create(self, table: Table) -> bool:
        columns = [self._column() for _ in range(self.random.randint(1, 4))]
        key = "PRIMARY KEY" if self.random.random() < 0.85 else "NOT NULL"
        declared = ", ".join([f"id BIGINT {key}", *(column[2] for column in columns)])
        done = self._do(f"CREATE TABLE {table.name} ({declared})")
        if done:
            table.columns = {name: kind for name, kind, _ in columns}
        return done

    def _again(self, table: Table) -> bool:
        return self._do(f"DROP TABLE {table.name}") and self._create(table)

    def _truncate(self, table: Table) -> bool:
        return self._do(f"TRUNCATE TABLE {table.name}")

    def _key(self, table: Table) -> bool:
        drop = f"ALTER TABLE {table.name} DROP PRIMARY KEY"
        return self._do(drop) or self._do(f"ALTER TABLE {table.name} ADD PRIMARY KEY (id)")

    def _rename_table(self, table: Table) -> bool:
        self._names += 1
        name = f"t_{self._names}"
        done = self._do(f"RENAME TABLE {table.name} TO {name}")
        if done:
            table.name = name
        return done

    def _swap_tables(self, table: Table) -> bool:
        other = self.random.choice([candidate for candidate in self._tables if candidate is not table])
        done = self._do(f"RENAME TABLE {table.name} TO tmp, {other.name} TO {table.name}, tmp TO {other.name}")
        if done:
            table.name, other.name = other.name, table.name
        return done
