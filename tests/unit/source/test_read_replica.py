"""The place of a replica in its source's log, by the transactions that it has executed."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlake import gtid
from binlake.binlog.boundaries import Boundary, transaction_boundaries
from binlake.binlog.locate import between
from binlake.errors import PositionLost, SourceError
from binlake.gtid import Executed
from binlake.position import FIRST_OFFSET, Position
from binlake.source.folder import Folder
from binlake.source.folder_log import FolderLog
from binlake.source.read_replica import find

LOGS = Path(__file__).parents[2] / "binlogs"


class SourceLog:
    """A file of a source's log, whose lake is at its beginning."""

    def __init__(self, file: str) -> None:
        self.log = FolderLog(Folder(LOGS / file))
        name, size, _ = self.log.head()
        (part,) = between(self.log.transport(), self.log.binary_logs(), (name, FIRST_OFFSET), (name, size))
        self.transactions: list[Boundary] = list(transaction_boundaries(self.log.transport(), part))
        self.lake = Position(self.log.server_identity, name, FIRST_OFFSET, part.created)

    def executed(self, *numbers: int) -> Executed:
        gtids = [self.transactions[number].gtid or "" for number in numbers]
        return gtid.parse("", self.log.flavour).adding(gtids)

    def place(self, executed: Executed) -> Position:
        return find(self.log, executed, self.lake, "replica:3306")


@pytest.fixture(params=["mysql-plain.000001", "mariadb-plain.000001"])
def source(request: pytest.FixtureRequest) -> SourceLog:
    return SourceLog(request.param)


def test_it_is_behind_the_last_executed_transaction(source: SourceLog) -> None:
    place = source.place(source.executed(0, 1, 2))
    assert place.offset == source.transactions[2].end_offset
    assert gtid.parse(place.gtid_set, source.log.flavour) == source.executed(0, 1, 2)


def test_a_replica_that_has_executed_nothing_more_stands_where_the_lake_does(source: SourceLog) -> None:
    assert source.place(source.executed()) == source.lake


def test_a_gap_is_refused() -> None:
    source = SourceLog("mysql-plain.000001")
    with pytest.raises(SourceError, match=r"has executed .+:3, and not yet .+:2, which comes before it"):
        source.place(source.executed(0, 2))


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("mysql-plain.000001", "11111111-1111-1111-1111-111111111111:1"),
        ("mariadb-plain.000001", "7-2-1"),
        ("mariadb-plain.000001", "0-2-1000000"),
    ],
)
def test_transactions_of_its_own_are_refused(file: str, own: str) -> None:
    source = SourceLog(file)
    executed = source.executed(*range(len(source.transactions))).adding([own])
    with pytest.raises(SourceError, match="it has transactions of its own"):
        source.place(executed)


def test_a_transaction_without_a_gtid_is_refused() -> None:
    source = SourceLog("mysql-anonymous.000001")
    with pytest.raises(PositionLost, match="has no GTID"):
        source.place(source.executed())
