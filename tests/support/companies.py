"""Databases of sources whose tables are one table of the lake: SQL on all of them in, rows of the merged table out."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pyarrow as pa
from deltalake import QueryBuilder

from binlake.delta import opened_tables
from binlake.faults import FaultPoint
from binlake.schema.table import TableName
from mirror import Mirror, sync_alone
from rolled_shards import ROLLED, drawn_changes
from servers import Server

Row = dict[str, Any]
SOURCES = ("eu", "us")


class Companies:
    """Databases of some sources whose tables ``orders`` are one table of the lake."""

    def __init__(
        self,
        mirror: Mirror,
        stack: ExitStack,
        servers: Mapping[str, Server] = {},
        sources: Sequence[str] = SOURCES,
    ) -> None:
        """servers: of the sources, by their names, where these have others than the mirror."""
        self._stack, self.stem, self.sources = stack, mirror.database, sources
        self.listed = [*sources]
        mirrors = {name: replace(mirror, server=servers.get(name, mirror.server)) for name in sources}
        self.mirrors = {name: self._mirror(mirrors[name], name, number) for number, name in enumerate(sources)}
        self.tenants: dict[str, list[int]] = {name: [] for name in sources}

    def _mirror(self, mirror: Mirror, name: str, number: int) -> Mirror:
        entry = {
            "from": f"{self.stem}_{name}%.orders", "into": "all.orders", "source_column": "tenant",
            "source_name_column": "region", "sources": self.listed, "folder": "company",
        }  # fmt: skip
        source = {"name": name, "connection": "tests", "server_id": 7100 + number}
        options = {"merge_tables": [entry], "merge": {"without_spark_mb": 16}, "source": source}
        return replace(mirror, include=[f"{self.stem}_{name}*.*"], options=options, reader="direct")

    def add(self, source: str, tenant: int, columns: str = "id INT PRIMARY KEY, v VARCHAR(20)") -> None:
        server, database = self.mirrors[source].server, f"{self.stem}_{source}{tenant}"
        server.execute(f"CREATE DATABASE {database}")
        self._stack.callback(lambda: server.execute(f"DROP DATABASE IF EXISTS {database}"))
        self.execute(source, tenant, f"CREATE TABLE orders ({columns})")
        self.tenants[source].append(tenant)

    def execute(self, source: str, tenant: int, *statements: str) -> None:
        self.mirrors[source].server.execute(*statements, database=f"{self.stem}_{source}{tenant}")

    @property
    def path(self) -> str:
        return self.mirrors["eu"].config.table_path(TableName("all", "orders"))

    @property
    def version(self) -> int:
        return opened_tables.newest(self.path).version()

    def sync_at_once(self) -> None:
        """Sync all sources side by side."""
        with ThreadPoolExecutor(len(self.sources)) as pool:
            _ = [*pool.map(sync_alone, self.mirrors.values())]

    def rows(self, *sources: str, version: int | None = None) -> list[Row]:
        table = QueryBuilder().register("t", opened_tables.opened(self.path, version))
        rows: list[Row] = pa.table(table.execute("SELECT * FROM t").read_all()).to_pylist()
        return ordered(row for row in rows if row["region"] in (sources or self.sources))

    def server_rows(self, *sources: str) -> list[Row]:
        """The union of the servers' tables: a column that a table lacks is NULL."""
        rows: list[Row] = []
        columns = {"region": None, "tenant": None}
        for source in sources or self.sources:
            for tenant in self.tenants[source]:
                server, database = self.mirrors[source].server, f"{self.stem}_{source}{tenant}"
                names = [row[0] for row in server.execute("SHOW COLUMNS FROM orders", database=database)]
                columns |= dict.fromkeys(names)
                stored = server.execute("SELECT * FROM orders", database=database)
                where = {"region": source, "tenant": str(tenant)}
                rows += [{**where, **dict(zip(names, row, strict=True))} for row in stored]
        return ordered({name: row.get(name) for name in columns} for row in rows)


def ordered(rows: Any) -> list[Row]:
    """Return rows in the order of their shards and keys."""
    return sorted(rows, key=lambda row: (row["region"], row["tenant"], row["id"]))


POINTS: list[FaultPoint] = ["data file written", "epoch committed", "schema evolved", "table composed", "merged"]


def walk(companies: Companies, chance: random.Random, count: int, rounds: int) -> None:
    """Draw changes of so many tenants of each source, with ALTERs that go through them. The sources are synced in turns
    and at once, and cut off, and each shows its rows behind each round."""
    levels = {(source, tenant): 0 for source in companies.sources for tenant in range(1, count + 1)}
    for source, tenant in levels:
        companies.add(source, tenant, "id INT PRIMARY KEY, v VARCHAR(20), n INT")
        companies.execute(source, tenant, "INSERT INTO orders (id, v, n) VALUES (1, 'a', 1), (2, 'b', NULL)")
    for source in chance.sample(companies.sources, len(companies.sources)):
        companies.mirrors[source].snapshot()
    in_lake = dict(levels)
    synced = {source: _without_nulls(companies.server_rows(source)) for source in companies.sources}
    for number in range(10, 10 + rounds):
        for place in chance.sample([*levels], count):
            _change(companies, *place, chance, number)
            if levels[place] == min(in_lake.values()) and levels[place] < len(ROLLED):  # types go together in the lake
                companies.execute(*place, f"ALTER TABLE orders {ROLLED[levels[place]]}")
                levels[place] += 1
                _change(companies, *place, chance, number + 20000)
        who = chance.choice([*([source] for source in companies.sources), [*companies.sources]])
        if len(who) > 1 and chance.random() < 0.7:
            companies.sync_at_once()
        else:
            for source in who:
                companies.mirrors[source].sync_cut_off(chance, 0.1, points=POINTS)
        in_lake |= {place: level for place, level in levels.items() if place[0] in who}
        synced |= {source: _without_nulls(companies.server_rows(source)) for source in who}
        for source, rows in synced.items():
            assert _without_nulls(companies.rows(source)) == rows, f"{source} in round {number}, {levels}"
    for source in companies.sources:
        sync_alone(companies.mirrors[source])
    assert companies.rows() == companies.server_rows()
    assert all(companies.mirrors[source].verify().equal for source in companies.sources)


def _change(companies: Companies, source: str, tenant: int, chance: random.Random, number: int) -> None:
    database = f"{companies.stem}_{source}{tenant}"
    create = companies.mirrors[source].server.execute("SHOW CREATE TABLE orders", database=database)[0][1]
    companies.execute(source, tenant, *drawn_changes(chance, number, create))


def _without_nulls(rows: list[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if value is not None} for row in rows]
