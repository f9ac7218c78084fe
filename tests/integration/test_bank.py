"""A bank whose money moves between twelve tables: in every version of the lake it has as much as on the server, whoever
reads it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

import clickhouse_engine
from binlake import pipeline
from binlake.faults import FaultPoint
from binlake.lake.opened_lake import Lake, place_of
from binlake.report import Report
from mirror import Mirror
from side_thread import beside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = 12
ACCOUNTS = 8
"""In each table."""
BATCHES = 40 if "BINLAKE_SOAK" in os.environ else 20
MONEY = Decimal(TABLES * ACCOUNTS * 1000)
KILLED: tuple[FaultPoint, ...] = (
    "planned",
    "manifest written",
    "epoch committed",
    "table merged",
    "merged",
    "recorded",
)

SHAPES = (
    "id INT PRIMARY KEY, money DECIMAL(20,2) NOT NULL, note VARCHAR(20)",
    "id BIGINT UNSIGNED PRIMARY KEY, money DECIMAL(20,2) NOT NULL, note VARCHAR(20)",
    "id VARCHAR(20) PRIMARY KEY, money DECIMAL(20,2) NOT NULL, note TEXT",
)
DDL = {
    3: ("t03", "ALTER TABLE t03 ADD COLUMN since DATETIME(6), ADD COLUMN shift TIME(6)"),
    6: ("t04", "ALTER TABLE t04 RENAME COLUMN note TO remark"),
    9: ("t05", "ALTER TABLE t05 DROP COLUMN note"),
    12: ("t08", "ALTER TABLE t08 MODIFY note VARCHAR(300) FIRST"),
    15: ("t07", "RENAME TABLE t07 TO t13"),
}
"""By batch: a table, and a statement that changes it."""


@dataclass
class Bank:
    """The server's side: accounts, transfers, and what each table held when the server was quiet."""

    mirror: Mirror
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    tables: list[str] = field(default_factory=lambda: [f"t{number:02}" for number in range(1, TABLES + 1)])
    seen: dict[int, dict[str, Decimal]] = field(default_factory=dict)
    """By batch: each table's money."""

    def open(self) -> None:
        for number, table in enumerate(self.tables):
            rows = ", ".join(f"({account}, 1000, 'opened')" for account in range(ACCOUNTS))
            self.mirror.execute(
                f"CREATE TABLE {table} ({SHAPES[number % len(SHAPES)]})", f"INSERT INTO {table} VALUES {rows}"
            )

    def transfer(self) -> None:
        """Move money from one table to another in one transaction."""
        giver, taker = self.chance.sample(self.tables, 2)
        amount = Decimal(self.chance.randrange(1, 5000)) / 100
        accounts = [self.chance.randrange(ACCOUNTS) for _ in range(2)]
        self.mirror.execute(
            "BEGIN",
            f"UPDATE {giver} SET money = money - {amount} WHERE id = {accounts[0]}",
            f"UPDATE {taker} SET money = money + {amount} WHERE id = {accounts[1]}",
            "COMMIT",
        )

    def move_account(self) -> None:
        """Close an account, and open one with its money in another table, in one transaction."""
        giver, taker = self.chance.sample(self.tables, 2)
        account, new = self.chance.randrange(ACCOUNTS), self.chance.randrange(1000, 1_000_000)
        self.mirror.execute(
            "BEGIN",
            f"INSERT INTO {taker} (id, money) SELECT {new}, money FROM {giver} WHERE id = {account}",
            f"UPDATE {giver} SET money = 0 WHERE id = {account}",
            "COMMIT",
        )

    def work(self) -> None:
        self.transfer()
        self.move_account()

    def at_work(self) -> AbstractContextManager[None]:
        """Let transfers continue."""

        def work(over: Event) -> None:
            while not over.wait(0.01):
                self.work()

        return beside(work)

    def money(self) -> dict[str, Decimal]:
        select = " UNION ALL ".join(f"SELECT '{table}', SUM(money) FROM {table}" for table in self.tables)
        return dict(self.mirror.server.execute(select, database=self.mirror.database))

    def change_a_shape(self, batch: int) -> None:
        table, statement = DDL[batch]
        self.mirror.execute(statement)
        if statement.startswith("RENAME TABLE"):
            self.tables[self.tables.index(table)] = statement.rpartition(" ")[2]


def sync(bank: Bank, batch: int) -> None:
    """A sync that is killed now and then, first: what it wrote by then stands beside what follows."""
    if batch % 3 == 2:
        with bank.mirror.cut_off_at(KILLED[batch // 3 % len(KILLED)]):
            carry(bank.mirror)
    carry(bank.mirror)


def carry(mirror: Mirror) -> None:
    """A sync as people run it: Spark alone moves the renamed table."""
    pipeline.sync(mirror.config, mirror.origin, lambda _: mirror.spark, Report())


@pytest.fixture
def bank(mirror: Mirror) -> Bank:
    bank = Bank(mirror)
    bank.open()
    mirror.snapshot()
    for batch in range(1, BATCHES + 1):
        if batch in DDL:
            bank.change_a_shape(batch)
        bank.work()
        if batch % 4 == 1:
            with bank.at_work():
                sync(bank, batch)
        else:
            sync(bank, batch)
            newest = place_of(mirror.config).at().batch
            bank.seen[newest] = bank.money()
    return bank


def by_sql(lake: Lake) -> dict[str, Decimal]:
    select = " UNION ALL ".join(f"SELECT '{name}' AS t, sum(money) AS money FROM {name}" for name in lake.tables)
    return {row["t"]: row["money"] for row in lake.sql(select).to_pylist()}


def by_arrow(lake: Lake) -> dict[str, Decimal]:
    read = {name: lake.arrow(name, columns=["money"], where="money <> 0") for name in lake.tables}
    return {name: sum(rows["money"].to_pylist(), Decimal(0)) for name, rows in read.items()}


def by_pandas(lake: Lake) -> dict[str, Decimal]:
    return {name: lake.pandas(name)["money"].sum() for name in lake.tables}


def by_polars(lake: Lake) -> dict[str, Decimal]:
    return {name: lake.polars(name)["money"].sum() for name in lake.tables}


def by_duckdb(lake: Lake) -> dict[str, Decimal]:
    with lake.duckdb() as connection:
        return {name: connection.sql(f"SELECT sum(money) FROM {name}").fetchall()[0][0] for name in lake.tables}


def by_chdb(lake: Lake, folder: Path) -> dict[str, Decimal]:
    tables = lake.chosen()
    queries = [
        f"SELECT toString(sum(money)) FROM deltaLakeLocal('{table.path}')"
        f" SETTINGS delta_lake_snapshot_version = {table.version}"
        for table in tables
    ]
    answers = clickhouse_engine.read(folder, *queries)
    return {str(table.name): Decimal(money) for table, [(money,)] in zip(tables, answers, strict=True)}


def by_spark(lake: Lake, spark: SparkSession) -> dict[str, Decimal]:
    lake.spark(spark)
    select = " UNION ALL ".join(f"SELECT '{name}' AS t, sum(money) AS money FROM `{name}`" for name in lake.tables)
    return {row["t"]: row["money"] for row in spark.sql(select).collect()}


@pytest.mark.parametrize("server", ["mariadb", pytest.param("mysql", marks=pytest.mark.soak)], indirect=True)
def test_every_version_has_all_the_money(bank: Bank, spark: SparkSession) -> None:
    place = place_of(bank.mirror.config)
    versions = place.versions()
    assert len(versions) >= BATCHES
    assert all(version.readable for version in versions)
    compared = 0
    for version in versions:
        lake = place.at(batch=version.batch)
        assert len(lake.tables) == TABLES
        readers: list[Callable[[Lake], dict[str, Decimal]]] = [by_sql]
        if version.batch % 10 == 2 or version is versions[-1]:
            readers += [by_arrow, by_pandas, by_polars, by_duckdb]
        if version.batch == 2 * BATCHES // 3:  # they take seconds to open twelve tables at their versions
            readers += [lambda lake: by_spark(lake, spark)]
            if clickhouse_engine.is_there():
                readers += [lambda lake: by_chdb(lake, bank.mirror.folder)]
        for reader in readers:
            held = {name.partition(".")[2]: money for name, money in reader(lake).items()}
            assert sum(held.values()) == MONEY
            if version.batch in bank.seen:
                assert held == bank.seen[version.batch]
                compared += 1
    assert compared >= BATCHES // 2
