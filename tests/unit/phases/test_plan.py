"""Where the range of a batch that is to have a size ends, and what is known of the time before which all is in it."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from binlake.binlog.boundaries import Boundary, transaction_boundaries
from binlake.binlog.integrity import format_description
from binlake.gtid import GtidSet
from binlake.phases.plan import Limit, next_range
from binlake.position import FIRST_OFFSET, Position, Range, Slice, file_number
from binlake.source.folder import Folder
from binlake.source.folder_log import FolderLog

LOGS = Path(__file__).parents[2] / "binlogs"


class TwoFiles:
    """A log of two files with the same content. transactions: by the place where they begin."""

    def __init__(self, folder: Path, name: str) -> None:
        for number in (1, 2):
            shutil.copy(LOGS / f"{name}.000001", folder / f"{name}.{number:06}")
        self.log = FolderLog(Folder(folder))
        created = format_description(self.log.transport(), f"{name}.000001")
        self.start = Position(self.log.server_identity, f"{name}.000001", FIRST_OFFSET, created)
        self.whole, _ = next_range(self.log, self.log.transport(), self.start, Limit())
        self.transactions: dict[tuple[str, int], Boundary] = {
            (part.file, boundary.start_offset): boundary
            for part in self.whole.slices
            for boundary in transaction_boundaries(self.log.transport(), part)
        }

    def ranges(self, most_bytes: int) -> list[tuple[Range, int | None]]:
        """Return the ranges, and what is known of the time, until the log is over."""
        planned, start = [], self.start
        while start.order != self.whole.stop.order:
            planned.append(next_range(self.log, self.log.transport(), start, Limit(most_bytes=most_bytes)))
            start = planned[-1].range.stop
        return [(batch.range, batch.until_us) for batch in planned]


@pytest.fixture(params=["mysql-plain", "mysql-anonymous", "mariadb-plain"])
def two_files(request: pytest.FixtureRequest, tmp_path: Path) -> TwoFiles:
    return TwoFiles(tmp_path, request.param)


@pytest.mark.parametrize("most_bytes", [1, 900, 5_000])
def test_a_range_ends_before_the_first_transaction_behind_its_size(two_files: TwoFiles, most_bytes: int) -> None:
    *ranges, (last, last_until) = two_files.ranges(most_bytes)
    assert ranges
    for batch, until_us in ranges:
        behind = two_files.transactions[batch.stop.file, batch.stop.offset]
        assert until_us == behind.committed_us
        assert batch.size >= most_bytes
        if len(batch.slices) == 1:
            (part,) = batch.slices
            begun = [offset - part.start for file, offset in two_files.transactions if file == part.file]
            assert not [size for size in begun if most_bytes <= size < part.size]
    assert (last.stop, last_until) == (two_files.whole.stop, None)
    assert sum(batch.size for batch, _ in [*ranges, (last, None)]) >= two_files.whole.size


class PromotedLog(FolderLog):
    """The log of another server than the one that the lake is at."""

    def is_of(self, server: str) -> bool:
        return server == self.server_identity


@pytest.mark.parametrize("by_time", [False, True])
def test_what_the_lake_holds_is_not_read_behind_a_limit_in_the_log_of_another_server(by_time: bool) -> None:
    """A replica may have committed in another order."""
    log = PromotedLog(Folder(LOGS / "mysql-plain.000001"))
    transport, (file, size, _) = log.transport(), log.head()
    transactions = list(transaction_boundaries(transport, Slice(file, FIRST_OFFSET, size, 0, whole=False)))
    held = {transactions[0].gtid, transactions[3].gtid}
    executed = GtidSet().adding(gtid for gtid in held if gtid)
    second = datetime.fromtimestamp(transactions[2].committed_us / 1e6, UTC)
    limit = Limit(until=second) if by_time else Limit(most_bytes=1)
    position, read = Position("former", "binlog.000009", 4, 1, str(executed)), list[str | None]()
    while position.order != (file_number(file), size):
        planned = next_range(log, transport, position, limit).range
        read += [boundary.gtid for part in planned.slices for boundary in transaction_boundaries(transport, part)]
        position = planned.stop
        limit = Limit()
    assert read == [boundary.gtid for boundary in transactions if boundary.gtid not in held]


def test_a_range_below_its_size_goes_to_the_end(two_files: TwoFiles) -> None:
    assert two_files.ranges(two_files.whole.size) == [(two_files.whole, None)]


def test_a_time_to_come_says_nothing_of_a_range_that_goes_to_the_end(two_files: TwoFiles) -> None:
    """Transactions that commit before that time come behind the range."""
    to_come = datetime.fromtimestamp(two_files.log.now() / 1e6 + 3600, UTC)
    assert next_range(two_files.log, two_files.log.transport(), two_files.start, Limit(until=to_come)) == (
        two_files.whole,
        None,
    )


@pytest.mark.parametrize("by_time", [False, True])
def test_a_range_ends_with_the_file_that_cannot_be_read(two_files: TwoFiles, tmp_path: Path, by_time: bool) -> None:
    """The batch is staged then, which tells the place: there it can be stepped over."""
    first, second = two_files.whole.slices
    damaged = sorted(offset for file, offset in two_files.transactions if file == first.file)[1]
    path = tmp_path / first.file
    data = bytearray(path.read_bytes())
    data[damaged + 19] ^= 0xFF  # of the event that begins the second transaction
    path.write_bytes(data)
    log = FolderLog(Folder(tmp_path))
    until = datetime.fromtimestamp(max(t.committed_us for t in two_files.transactions.values()) / 1e6, UTC)
    limit = Limit(until=until) if by_time else Limit(most_bytes=first.size - 1)
    planned = next_range(log, log.transport(), two_files.start, limit)
    assert planned.range.slices == (first,)
    assert (planned.range.stop.file, planned.range.stop.offset) == (first.file, first.stop)
    assert planned.until_us is None
    rest = next_range(log, log.transport(), planned.range.stop, Limit()).range
    assert rest.stop.order == two_files.whole.stop.order
    assert second in rest.slices
