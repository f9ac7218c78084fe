"""Lineage: whether a log is the one that the lake has read so far, and where to continue in another server's log.

The same server is recognized by its identity, its files and their format description events. Another server of the same
lineage (a promoted replica, a restored backup) is recognized by GTIDs: it must have executed everything that the lake
holds, and have the log of everything else, including what it got by other ways than its log (a replica made from a dump
or a backup). Its order of commits may differ, so the transactions outside the lake's GTID set are read there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from binlake import gtid
from binlake.binlog.boundaries import transaction_boundaries
from binlake.binlog.integrity import format_description
from binlake.binlog.locate import between, executed_before, listed_before, outside
from binlake.binlog.transport import Transport
from binlake.errors import RESNAPSHOT, PositionLost
from binlake.gtid import Executed, GtidPosition, domain_server_number
from binlake.position import FIRST_OFFSET, Position, Range, Slice
from binlake.source.log import Log

_PATIENCE = 10
_PAUSE = 0.5
"""Seconds between two looks. A transaction can be read from the log a moment before the server counts it as executed,
longer if it waits for a replica's acknowledgement."""


def check_position(log: Log, transport: Transport, position: Position, who: str = "the lake") -> None:
    """Check that the server is the position's, and still has its log from there on. Raises PositionLost, NoBinlog.

    who: a name in messages for what is at the position.
    """
    if not log.is_of(position.server):
        raise PositionLost(
            f"the server is {log.server_identity}, {who} follows {position.server}",
            remedy=f"point the connection at the server the lake follows, or {RESNAPSHOT}",
        )
    sizes = dict(log.binary_logs())
    if not sizes:
        log.head()  # raises NoBinlog for a server without a log
    if position.file not in sizes:
        raise PositionLost(
            f"{position.file} is purged or missing; {who} is at {position.short}",
            remedy=f"{RESNAPSHOT}; and keep logs longer (binlog_expire_logs_seconds)",
        )
    if position.offset > sizes[position.file]:
        raise PositionLost(
            f"{position.short} lies past the end of the file ({sizes[position.file]} bytes): the log was reset or lost",
            remedy=RESNAPSHOT,
        )
    created = format_description(transport, position.file)
    if created != position.created:
        raise PositionLost(
            f"{position.file} isn't the file the lake has read: its numbering was restarted",
            remedy=RESNAPSHOT,
        )
    _check_executed(log, position, lambda: _ends_there(log, transport, position))


def _ends_there(log: Log, transport: Transport, position: Position) -> bool:
    """Return whether a MariaDB server's own log has, at a position, what the lake read last: it has executed all that
    the lake holds, though its numbers are lower by now, as gtid_strict_mode=OFF lets them be."""
    lake = gtid.parse(position.gtid_set, log.flavour)
    if not isinstance(lake, GtidPosition):
        return False
    part = Slice(position.file, FIRST_OFFSET, position.offset, position.created, whole=False)
    before = executed_before(transport, position.file, position.offset)
    gtids = (boundary.gtid for boundary in transaction_boundaries(transport, part))
    return before.adding(filter(None, gtids)) == lake


def is_lost(log: Log, transport: Transport, position: Position) -> bool:
    """Return whether the log can't be read on from a position: the server is another, or doesn't have it any more."""
    try:
        check_position(log, transport, position)
    except PositionLost:
        return True
    return False


def prove(log: Log, transport: Transport, position: Position) -> str:
    """Check that the log continues from the position, for doctor. Returns what was proved. Raises PositionLost."""
    if log.is_of(position.server):
        check_position(log, transport, position)
        return f"{position.short} is there"
    range_elsewhere(log, transport, position, log.head())
    return f"{log.server_identity} holds all that {position.server} had up to {position.short}"


def _without_gtids(log: Log, position: Position) -> PositionLost:
    return PositionLost(
        f"the server is {log.server_identity}, the lake follows {position.server}, and without GTIDs nothing proves "
        "that they have one history",
        remedy=f"point the connection at the server the lake follows, or {RESNAPSHOT}; with gtid_mode=ON the next "
        "failover is followed",
    )


def _check_executed(log: Log, position: Position, is_proved: Callable[[], bool] = lambda: False) -> Executed:
    """Check that the server has executed what the lake holds. Returns the lake's GTID set. Raises PositionLost.

    is_proved: returns whether something else than GTIDs proves it; called where they don't.
    """
    lake = gtid.parse(position.gtid_set, log.flavour)
    deadline = time.monotonic() + _PATIENCE
    while not (there := gtid.parse(log.head()[2], log.flavour)).contains(lake):  # type: ignore[arg-type]  # one flavour
        if is_proved():
            break
        if time.monotonic() < deadline:
            time.sleep(_PAUSE)
            continue
        raise PositionLost(
            f"{log.server_identity} lacks transactions that the lake holds ({lake}; it has {there}): it was restored "
            "from a backup, or promoted before it had them",
            remedy=f"find the server that has them, or {RESNAPSHOT}",
        )
    return lake


def range_elsewhere(log: Log, transport: Transport, start: Position, stop: tuple[str, int, str]) -> Range:
    """Return the range of another server of the lineage after ``start``, up to (file, offset, GTID set) ``stop``.

    Its start is a position of that server with the lake's GTID set. Raises PositionLost.
    """
    if start.flavour != log.flavour:
        raise PositionLost(
            f"the lake belongs to another server: it follows {start.server}, of {start.flavour}, and this one is "
            f"{log.server_identity}, of {log.flavour}",
            remedy=f"point the connection at the server the lake follows, or {RESNAPSHOT}",
        )
    if not start.gtid_set:
        raise _without_gtids(log, start)
    executed = _check_executed(log, start)
    file, offset, gtid_set = stop
    unlogged = gtid.parse(log.executed_unlogged(), log.flavour)
    if isinstance(executed, GtidPosition):
        _refuse_numbers_that_go_back(log, transport)
        slices = outside(transport, log.binary_logs(), executed, (file, offset))
        assert isinstance(unlogged, GtidPosition)
        _check_last(log, transport, _last(executed) | _last(unlogged, beyond=executed))
    else:
        _check_purged(log, executed, unlogged)
        slices = outside(transport, log.binary_logs(), executed, (file, offset))
    end = Position(log.server_identity, file, offset, format_description(transport, file), gtid_set)
    if not slices:
        begin = replace(end, gtid_set=start.gtid_set)
        return Range(begin, begin, ())
    first = slices[0]
    return Range(Position(end.server, first.file, first.start, first.created, start.gtid_set), end, slices)


def has_read_between(log: Log, transport: Transport, lake: Position, first: Position, last: Position) -> bool:
    """Return whether a part of another server's log has transactions that the lake holds.

    lake: its position on the former server. first, last: the ends of the part.
    """
    if first.order == last.order:
        return False
    executed = gtid.parse(lake.gtid_set, log.flavour)
    parts = between(transport, log.binary_logs(), (first.file, first.offset), (last.file, last.offset))
    boundaries = (boundary for part in parts for boundary in transaction_boundaries(transport, part))
    return any(boundary.gtid is not None and executed.has(boundary.gtid) for boundary in boundaries)


def with_all_gtids(transport: Transport, position: Position) -> Position:
    """Return a position with the GTIDs of all transactions that the log has before it; as it is without GTIDs.

    The GTID set that a server reports with its log's end may lack transactions that are in the log and still commit,
    even the first one of all. Without them, another server's log would be read from too early, and old values would
    replace newer ones.
    """
    known = gtid.parse(position.gtid_set, position.flavour)
    earlier = executed_before(transport, position.file, position.offset)
    part = Slice(position.file, FIRST_OFFSET, position.offset, position.created, whole=False)
    gtids: list[str] = []
    for boundary in transaction_boundaries(transport, part):
        if boundary.gtid:
            gtids.append(boundary.gtid)
        elif not position.gtid_set:
            return position  # nothing has one: the others needn't be read
    return replace(position, gtid_set=str(known.union(earlier).adding(gtids)))  # type: ignore[arg-type]  # of one flavour


def _check_purged(log: Log, executed: Executed, purged: Executed) -> None:
    """Raise PositionLost where a MySQL server got transactions otherwise than by its log, and the lake lacks some."""
    if executed.contains(purged):  # type: ignore[arg-type]  # of one flavour
        return
    raise PositionLost(
        f"{log.server_identity} has transactions that its log doesn't hold (gtid_purged: {purged}), and the lake has "
        f"only {executed}: it was made from a dump or a backup, or purged them",
        remedy=f"find a server that still has their log, or {RESNAPSHOT}",
    )


def _refuse_numbers_that_go_back(log: Log, transport: Transport) -> None:
    """Raise PositionLost where the numbers of a domain go back in the log of a MariaDB server.

    With gtid_strict_mode=OFF, its default, a replica may have transactions of its own between those of its primary.
    Numbers then don't show whether the lake holds them. A file in which the server that committed last before it is the
    only one to commit is known by what the files list; the others are read.
    """
    file, offset, _ = log.head()
    files = [(name, offset if name == file else size) for name, size in log.binary_logs()]
    listed = [listed_before(transport, name, size) for name, size in files]
    for (name, size), before, after in zip(files, listed, [*listed[1:], None], strict=True):
        if after is not None and _continues(before, after):
            continue
        last = dict(GtidPosition().adding(before).domains)
        for boundary in transaction_boundaries(transport, Slice(name, FIRST_OFFSET, size, 0, whole=False)):
            if boundary.gtid is None:
                continue
            domain, server, number = domain_server_number(boundary.gtid)
            if domain in last and number <= last[domain][1]:
                raise PositionLost(
                    f"{log.server_identity}: at {name}:{boundary.start_offset} {boundary.gtid} comes after "
                    f"{domain}-{last[domain][0]}-{last[domain][1]} (gtid_strict_mode=OFF): it has transactions of its "
                    "own among those of the server that the lake follows",
                    remedy=f"find a server without them, or {RESNAPSHOT}",
                )
            last[domain] = server, number


def _continues(before: list[str], after: list[str]) -> bool:
    """Return whether only those servers committed in a file that were each domain's last before it. before, after: what
    it and the next file list."""
    last = {(domain, server) for domain, (server, _) in GtidPosition().adding(before).domains.items()}
    committed = {domain_server_number(text)[:2] for text in set(after) - set(before)}
    return committed <= last


def _last(executed: GtidPosition, beyond: GtidPosition | None = None) -> set[str]:
    """Return the last GTID of each domain, for domains in which it comes after ``beyond``."""
    last = {f"{domain}-{server}-{number}" for domain, (server, number) in executed.domains.items()}
    return {transaction for transaction in last if beyond is None or not beyond.has(transaction)}


def _check_last(log: Log, transport: Transport, wanted: set[str]) -> None:
    """Raise PositionLost where the log of a MariaDB server doesn't hold transactions.

    MariaDB counts on in each domain whatever the server: the lake's last transactions themselves must be there, and
    the last ones that were replicated, which a server that was made from a dump has never logged.
    """
    file, offset, _ = log.head()
    for name, size in reversed(log.binary_logs()):
        part = Slice(name, FIRST_OFFSET, offset if name == file else size, 0, whole=False)
        before = executed_before(transport, name, size)
        wanted -= {boundary.gtid for boundary in transaction_boundaries(transport, part)}
        assert isinstance(before, GtidPosition)
        wanted -= _last(before)
        if not wanted:
            return
    raise PositionLost(
        f"{', '.join(sorted(wanted))} isn't in the log of {log.server_identity}: its history is another, it is purged, "
        "or it came from a dump or a backup",
        remedy=f"find the server that has it, or {RESNAPSHOT}",
    )
