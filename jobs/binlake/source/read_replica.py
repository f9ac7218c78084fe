"""A replica that is read in the place of its source, and its place in the source's log.

A replica that executes the source's transactions in the order of the source's log (``replica_preserve_commit_order``;
MariaDB's parallel replication of one domain commits in order) is at one place of that log, whatever files it writes
itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from binlake import gtid
from binlake.binlog.boundaries import Boundary, transaction_boundaries
from binlake.binlog.integrity import format_description
from binlake.binlog.locate import between
from binlake.errors import ConnectionFailed, PositionLost, SourceError, UsageError
from binlake.gtid import Executed, GtidPosition
from binlake.position import Position, Slice
from binlake.source.endpoint import Endpoint
from binlake.source.log import Log, Origin, opened
from binlake.source.server import Source

ReadPlace = Callable[[Source], Callable[[], Position]]
"""A function that reads from a server, while it is locked, how far it is. It returns a function, which is called
afterwards and returns the position in the log that the lake follows."""
PATIENCE = 300.0
"""Seconds for which a replica that is behind the lake is waited for."""

_SETTLES = 0.01
"""Seconds within which a transaction that was committed counts as executed."""
_INSTEAD = "leave verify.connection out: the source itself is read then"


@dataclass(frozen=True)
class ReadReplica:
    """endpoint: the replica's. origin: the source whose log the lake follows."""

    endpoint: Endpoint
    origin: Origin

    def wait_for(self, lake: Position, seconds: float) -> None:
        """Wait until the replica has executed what the lake holds.

        Raises ConnectionFailed, which a later try may fix, where it hasn't after so many seconds; UsageError where
        nothing shows it.
        """
        with Source.open(self.endpoint, read_timeout=seconds + 60) as replica:
            self._refuse_unproved(replica, lake)
            if replica.server_identity == lake.server:
                return
            wait = "MASTER_GTID_WAIT(%s, %s)" if replica.is_mariadb else "WAIT_FOR_EXECUTED_GTID_SET(%s, %s)"
            timed_out = replica.query(f"SELECT {wait} AS timed_out", (lake.gtid_set, seconds))[0]["timed_out"]
            if int(timed_out) != 0:
                raise ConnectionFailed(
                    f"the replica {self.endpoint.address} hasn't executed what the lake holds after {seconds:.0f} s",
                    remedy=f"see whether its replication runs (SHOW REPLICA STATUS) and try again, or {_INSTEAD}",
                )

    def _refuse_unproved(self, replica: Source, lake: Position) -> None:
        if replica.flavour != lake.flavour:
            raise UsageError(
                f"the replica {self.endpoint.address} is a {replica.version_text} server, and the lake follows another "
                "kind, whose GTIDs it doesn't have",
                remedy=_INSTEAD,
            )
        if not lake.gtid_set:
            raise UsageError(
                "without GTIDs nothing shows where in the source's log a replica is",
                remedy=f"set gtid_mode=ON on the source and the replica, or {_INSTEAD}",
            )

    def place_behind(self, lake: Position) -> ReadPlace:
        """Return a function that reads the place of the replica in the source's log.

        lake: a position that the replica has reached. The place's position can't be given, with PositionLost or
        SourceError, where the replica left transactions out or has others.
        """

        def read(replica: Source) -> Callable[[], Position]:
            if replica.server_identity == lake.server:
                return own_place(replica)
            executed = _settled(replica)
            return lambda: self._position(executed, lake)

        return read

    def _position(self, executed: Executed, lake: Position) -> Position:
        with opened(self.origin) as log:
            if not log.is_of(lake.server):
                raise PositionLost(
                    f"the source is {log.server_identity}, and the lake is in the log of {lake.server}",
                    remedy="run binlake sync first: it continues in the new source's log",
                )
            return find(log, executed, lake, self.endpoint.address)


def own_place(server: Source) -> Callable[[], Position]:
    """Read where a server's own log ends; return a function that gives that position."""
    file, offset, gtid_set = server.head()
    return lambda: Position(
        server.server_identity, file, offset, format_description(server.transport(), file), gtid_set
    )


def _settled(replica: Source) -> Executed:
    """Return the transactions that a locked replica has executed.

    MariaDB lets go of a transaction's locks a moment before it counts the transaction (Xid_log_event::do_apply_event).
    """
    executed = _executed(replica)
    while replica.is_mariadb:
        time.sleep(_SETTLES)
        before, executed = executed, _executed(replica)
        if before == executed:
            break
    return executed


def _executed(replica: Source) -> Executed:
    """Return the transactions that a replica has executed, its own ones included."""
    if not replica.is_mariadb:
        text = str(replica.query("SELECT @@GLOBAL.gtid_executed AS gtids")[0]["gtids"] or "")
        return gtid.parse(text.replace("\n", ""), replica.flavour)
    row = replica.query("SELECT @@GLOBAL.gtid_slave_pos AS replicated, @@GLOBAL.gtid_binlog_pos AS logged")[0]
    return GtidPosition.parse(row["replicated"] or "").highest(GtidPosition.parse(row["logged"] or ""))


def find(log: Log, executed: Executed, lake: Position, address: str) -> Position:
    """Return the position in a log, at or behind the lake's, up to which exactly these transactions were executed.

    address: the replica's, for messages. Raises PositionLost where the replica has executed others, or left some out.
    """
    known = gtid.parse(lake.gtid_set, log.flavour)
    stop, missing = lake, ""
    for part, boundary in _transactions(log, lake):
        if boundary.gtid is None:
            raise PositionLost(
                f"the transaction at {part.file}:{boundary.start_offset} has no GTID: nothing shows whether the "
                "replica has executed it",
                remedy=_INSTEAD,
            )
        if not executed.has(boundary.gtid):
            missing = missing or boundary.gtid
        elif missing:
            raise SourceError(
                f"the replica {address} has executed {boundary.gtid}, and not yet {missing}, which comes before it",
                remedy=f"set replica_preserve_commit_order=ON there, or {_INSTEAD}",
            )
        else:
            known = known.adding([boundary.gtid])
            stop = Position(lake.server, part.file, boundary.end_offset, part.created)
    if not _are_the_same(known, executed):
        raise SourceError(
            f"the replica {address} has executed {executed}, and the source's log has {known}: it has "
            "transactions of its own, or its history is another",
            remedy=f"name a replica that nobody writes to (super_read_only=ON), or {_INSTEAD}",
        )
    return Position(stop.server, stop.file, stop.offset, stop.created, str(known))


def _are_the_same(known: Executed, executed: Executed) -> bool:
    if isinstance(known, GtidPosition) and isinstance(executed, GtidPosition):
        return known == executed
    return known.contains(executed) and executed.contains(known)  # type: ignore[arg-type]  # of one flavour


def _transactions(log: Log, start: Position) -> Iterator[tuple[Slice, Boundary]]:
    """Yield the transactions from a position to the log's end, each with the part of a file in which it is."""
    transport = log.transport()
    file, offset, _ = log.head()
    for part in between(transport, log.binary_logs(), (start.file, start.offset), (file, offset)):
        for boundary in transaction_boundaries(transport, part):
            yield part, boundary
