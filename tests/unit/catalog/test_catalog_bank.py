"""A bank whose money moves between ten tables while they are read: at each batch there is as much as ever, in a join of
all tables at three batches."""

from __future__ import annotations

import random
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from binlake.lake.duckdb_views import load_extension
from binlake.schema.table import TableName
from iceberg_readers import READERS, duckdb_connection
from own_catalog import running
from plain_table import PlainTable
from published_lake import PublishedLake
from side_thread import beside

TABLES = [TableName("bank", f"t{number:02}") for number in range(10)]
COLUMNS = [("id", "INT"), ("money", "INT")]
ACCOUNTS, MONEY = 4, 10 * 4 * 1000
LOOKS = 3


class Bank:
    """The lake, and what each table holds."""

    def __init__(self, folder: Path) -> None:
        self.lake = PublishedLake(folder, dict.fromkeys(TABLES, COLUMNS))
        self.held = {name: [1000] * ACCOUNTS for name in TABLES}
        self.chance = random.Random(7)
        self.batches = 0
        self.write(TABLES)

    def write(self, names: list[TableName]) -> None:
        """Record a batch that wrote these tables anew."""
        self.lake.batch({name: self._written(name) for name in names})
        self.batches += 1

    def _written(self, name: TableName) -> Any:
        rows = [{"id": account, "money": money} for account, money in enumerate(self.held[name])]

        def write(table: PlainTable) -> None:
            table.replace(table.files, rows)

        return write

    def transfer(self) -> None:
        """Move money from one table to another by a batch."""
        giver, taker = self.chance.sample(TABLES, 2)
        amount, account = self.chance.randrange(1, 500), self.chance.randrange(ACCOUNTS)
        self.held[giver][account] -= amount
        self.held[taker][account] += amount
        self.write([giver, taker])


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    bank = Bank(tmp_path)
    for _ in range(2):
        bank.transfer()
    return bank


def by_duckdb(address: str) -> list[int]:
    """The money at three batches, by one query."""
    connection = duckdb_connection().cursor()
    load_extension(connection, "httpfs")
    aliases = {"before": "shop@1", "later": "shop@3", "now": "shop"}
    for alias, warehouse in aliases.items():
        connection.execute(
            f"ATTACH '{warehouse}' AS {alias} (TYPE iceberg, ENDPOINT '{address}', AUTHORIZATION_TYPE 'none')"
        )
    try:
        sums = ", ".join(f"({joined(alias)})" for alias in aliases)
        (row,) = connection.execute(f"SELECT {sums}").fetchall()
        return list(row)
    finally:
        for alias in aliases:
            connection.execute(f"DETACH {alias}")


def joined(alias: str) -> str:
    """A query of all money, by a join of all tables."""
    first, *others = (name.table for name in TABLES)
    money = " + ".join(f"{name.table}.money" for name in TABLES)
    joins = " ".join(f"JOIN {alias}.bank.{table} USING (id)" for table in others)
    return f"SELECT SUM({money})::INT FROM {alias}.bank.{first} {joins}"


def by_pyiceberg(address: str) -> list[int]:
    """The money at three batches. The tables are loaded one after the other, while batches come."""
    from pyiceberg.catalog.rest import RestCatalog

    sums = []
    for warehouse in ("shop@1", "shop@3", "shop"):
        catalog = RestCatalog("c", uri=address, warehouse=warehouse)
        tables = [catalog.load_table((name.database, name.table)).scan().to_arrow() for name in TABLES]
        sums.append(sum(money for table in tables for money in table["money"].to_pylist()))
    return sums


@pytest.mark.parametrize("read", [by_duckdb, by_pyiceberg], ids=["DuckDB", "pyiceberg"])
def test_at_three_batches_there_is_as_much_money_while_it_moves(bank: Bank, read: Any) -> None:
    if read.__name__.removeprefix("by_") not in map(str.lower, READERS):
        pytest.skip("the reader isn't installed")

    def write(over: Event) -> None:
        while not over.is_set():
            bank.transfer()

    with running("--config", bank.lake.write_yaml()) as address:
        before = bank.batches
        with beside(write):
            sums = [read(address) for _ in range(LOOKS)]
    assert bank.batches > before + 1, "no money moved meanwhile"
    assert sums == [[MONEY] * 3] * LOOKS
