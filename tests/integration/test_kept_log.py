"""A follower's connections: one dump continues from slice to slice, with the bytes that a new one would give."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from binlake.binlog.integrity import describe
from binlake.binlog.locate import between
from binlake.errors import PositionLost
from binlake.position import Slice
from binlake.source.endpoint import Endpoint
from binlake.source.kept_log import KeptSource
from binlake.source.server import Source
from servers import Server

SERVER_ID = 900_002


class FollowedLog:
    """Reads what was logged since the last look."""

    def __init__(self, server: Server, database: str) -> None:
        self.server, self.database = server, database
        self.endpoint = Endpoint("127.0.0.1", server.port, "root", "")
        self.source = KeptSource.open(self.endpoint)
        self.place = self.source.head()[:2]

    def execute(self, *statements: str) -> None:
        self.server.execute(*statements, database=self.database)

    def parts(self) -> list[Slice]:
        """The slices that came, which need no look at the server but for its files."""
        head = self.source.head()[:2]
        parts = between(self.source.transport(), self.source.binary_logs(), self.place, head)
        self.place = head
        return [part for part in parts if part.size]

    def assert_read(self) -> int:
        """Check that what came is what a reader of its own gets; return how many connections were opened for it."""
        before = self.connections()
        parts = self.parts()
        given = [read(self.source, part) for part in parts]
        opened = self.connections() - before
        with Source.open(self.endpoint) as plain:
            assert given == [read(plain, part, 0) for part in parts]
        assert given
        return opened

    def connections(self) -> int:
        (row,) = self.source.query("SHOW GLOBAL STATUS LIKE 'Connections'")
        return int(row["Value"])

    def newest_dump(self) -> int:
        """The number of the connection of the dump that was begun last."""
        listed = self.source.query("SHOW PROCESSLIST")
        return max(row["Id"] for row in listed if str(row["Command"]).startswith("Binlog Dump"))


def read(source: Source, part: Slice, server_id: int = SERVER_ID) -> bytes:
    _, *chunks = source.transport(server_id).chunks(part)
    return b"".join(bytes(chunk) for chunk in chunks)


@pytest.fixture
def log(server: Server, database: str) -> Iterator[FollowedLog]:
    followed = FollowedLog(server, database)
    followed.execute("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v TEXT)", "INSERT INTO t (v) VALUES ('a')")
    try:
        assert followed.assert_read() == 2, "the file's description, and the dump"
        yield followed
    finally:
        followed.source.close()


def test_a_further_slice_needs_no_connection(log: FollowedLog) -> None:
    for text in ("'b'", "REPEAT('c', 60000)", "'d'"):
        log.execute(f"INSERT INTO t (v) VALUES ({text})")
        assert log.assert_read() == 0


def test_a_slice_that_ends_before_the_head_is_gone_on_from(log: FollowedLog) -> None:
    log.execute(*["INSERT INTO t (v) VALUES (REPEAT('c', 60000))"] * 50)
    (whole,) = log.parts()
    log.execute("INSERT INTO t (v) VALUES ('d')")
    (rest,) = log.parts()
    before = log.connections()
    given = read(log.source, whole) + read(log.source, rest)
    assert log.connections() == before
    with Source.open(log.endpoint) as plain:
        assert given == read(plain, Slice(whole.file, whole.start, rest.stop, whole.created, whole=False), 0)


def test_the_next_file_is_read_by_a_new_dump(log: FollowedLog) -> None:
    log.execute("INSERT INTO t (v) VALUES ('b')", "FLUSH BINARY LOGS", "INSERT INTO t (v) VALUES ('c')")
    assert log.assert_read() == 2
    log.execute("INSERT INTO t (v) VALUES ('d')")
    assert log.assert_read() == 0


def test_a_dump_that_was_killed_is_begun_again(log: FollowedLog) -> None:
    log.execute(f"KILL {log.newest_dump()}", "INSERT INTO t (v) VALUES ('b')")
    assert log.assert_read() == 1


def test_another_run_may_read_with_the_same_id(log: FollowedLog) -> None:
    log.execute("INSERT INTO t (v) VALUES ('b')")
    (part,) = log.parts()
    with Source.open(log.endpoint) as other:
        expected = read(other, part)
    assert read(log.source, part) == expected
    log.execute("INSERT INTO t (v) VALUES ('c')")
    log.assert_read()


def test_a_file_of_the_same_name_isnt_taken_for_the_one_that_was_read(log: FollowedLog) -> None:
    log.execute("INSERT INTO t (v) VALUES ('b')")
    (part,) = log.parts()
    other = Slice(part.file, part.start, part.stop, part.created + 1, whole=False)
    description = next(iter(log.source.transport(SERVER_ID).chunks(other)))
    with pytest.raises(PositionLost, match="its numbering began again"):
        describe(bytes(description), other, description.offset)
