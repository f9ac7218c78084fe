"""The slices to read: between two places of a log, or with the transactions outside a GTID set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from binlake.binlog.boundaries import Boundary, transaction_boundaries
from binlake.binlog.events import HEADER, HEADER_SIZE, EventType, FormatDescription
from binlake.binlog.integrity import corrupt, describe, format_description, proved
from binlake.binlog.query_event import Query
from binlake.binlog.transport import Transport
from binlake.errors import RESNAPSHOT, PositionLost
from binlake.gtid import Executed, GtidPosition, GtidSet, gtid_list
from binlake.position import FIRST_OFFSET, Slice, file_number

Files = Sequence[tuple[str, int]]
"""(file, size in bytes) of the files that a source still has, oldest first."""
Place = tuple[str, int]
"""(file, offset in bytes)."""
_PLACE = re.compile(r"(?P<file>[^:/]+\.\d+)(?::(?P<offset>\d+))?\Z")


def place_named(text: str) -> Place | None:
    """Return the place that ``FILE:OFFSET`` or ``FILE`` names; None for any other text."""
    match = _PLACE.match(text)
    return (match["file"], max(int(match["offset"] or 0), FIRST_OFFSET)) if match else None


def between(transport: Transport, files: Files, start: Place, stop: Place) -> tuple[Slice, ...]:
    """Return the slices from ``start`` to ``stop``, one per file. Raises PositionLost if files are missing."""
    first, last = file_number(start[0]), file_number(stop[0])
    parts: list[Slice] = []
    for file, size in files:
        number = file_number(file)
        if not first <= number <= last:
            continue
        begin = start[1] if number == first else FIRST_OFFSET
        end = stop[1] if number == last else size
        parts.append(Slice(file, begin, end, format_description(transport, file), whole=number != last))
    if [file_number(part.file) for part in parts] != list(range(first, last + 1)):
        raise PositionLost(f"files between {start[0]} and {stop[0]} are gone", remedy=RESNAPSHOT)
    return tuple(parts)


def outside(
    transport: Transport, files: Files, executed: Executed, stop: Place, *, remedy: str = RESNAPSHOT
) -> tuple[Slice, ...]:
    """Return slices with every transaction up to ``stop`` that isn't in ``executed``, and none that is.

    Each slice is a run of adjacent transactions, so a file may have several; the log may be in another order of commits
    (a replica's). Raises PositionLost, with the remedy, if transactions outside the set may have been purged, or if a
    transaction without GTID may be outside.
    """
    parts: list[Slice] = []
    begin = _begin(transport, files, executed, remedy)
    begins_inside = False
    for part in between(transport, files, begin, stop):
        run: Boundary | None = None
        for boundary in transaction_boundaries(transport, part):
            if boundary.gtid is None:
                raise _without_gtid(part.file, boundary, remedy)
            if executed.has(boundary.gtid):
                begins_inside = begins_inside or part.file == begin[0]
                continue
            if run and run.end_offset == boundary.start_offset:
                run = Boundary(run.start_offset, boundary.end_offset, run.committed_us, run.gtid)
                continue
            if run:
                parts.append(_slice(part, run))
            run = boundary
        if run:
            parts.append(_slice(part, run))
    if not begins_inside:
        _refuse_without_gtid(transport, files, executed, begin[0], remedy)
    return tuple(parts)


def _refuse_without_gtid(transport: Transport, files: Files, executed: Executed, begin: str, remedy: str) -> None:
    """Raise PositionLost for transactions without GTID between the last of ``executed`` and the file ``begin``.

    The GTID sets at the beginnings of files leave such transactions out.
    """
    before = [(file, size) for file, size in files if file_number(file) < file_number(begin)]
    for file, size in reversed(before):
        for boundary in reversed(list(transaction_boundaries(transport, Slice(file, FIRST_OFFSET, size, 0, False)))):
            if boundary.gtid is None:
                raise _without_gtid(file, boundary, remedy)
            if executed.has(boundary.gtid):
                return


def _without_gtid(file: str, boundary: Boundary, remedy: str) -> PositionLost:
    return PositionLost(
        f"the transaction at {file}:{boundary.start_offset} has no GTID: nothing shows whether it is among those that "
        "are known",
        remedy=remedy,
    )


def _slice(part: Slice, run: Boundary) -> Slice:
    return Slice(part.file, run.start_offset, run.end_offset, part.created, whole=False)


def _begin(transport: Transport, files: Files, executed: Executed, remedy: str) -> Place:
    """Return the beginning of the last file before which nothing but ``executed`` was committed."""
    for file, size in reversed(files):
        if executed.contains(executed_before(transport, file, size)):  # type: ignore[arg-type]  # of one flavour
            return file, FIRST_OFFSET
    oldest = files[0][0] if files else "no file"
    raise PositionLost(f"the log begins with {oldest}, and transactions before it aren't in {executed}", remedy=remedy)


def executed_before(transport: Transport, file: str, size: int) -> Executed:
    """Return the GTIDs of all transactions before a file, from its PREVIOUS_GTIDS or GTID_LIST event.

    Returns an empty set if there is no such event (MySQL without GTID). Raises CorruptEvent.
    """
    kind, body, offset = _before_all(transport, file, size)
    try:
        if kind == EventType.PREVIOUS_GTIDS:
            return GtidSet.decode(body)
        return GtidPosition.decode(body) if kind == EventType.MARIADB_GTID_LIST else GtidSet()
    except ValueError as error:
        raise corrupt(file, offset, str(error)) from None


def listed_before(transport: Transport, file: str, size: int) -> list[str]:
    """Return what a MariaDB file's GTID_LIST event lists, see gtid.gtid_list. Raises CorruptEvent."""
    kind, body, offset = _before_all(transport, file, size)
    try:
        return gtid_list(body) if kind == EventType.MARIADB_GTID_LIST else []
    except ValueError as error:
        raise corrupt(file, offset, str(error)) from None


def _before_all(transport: Transport, file: str, size: int) -> tuple[int, bytes, int]:
    """Return type, body and offset of a file's PREVIOUS_GTIDS or GTID_LIST event; an empty list where MariaDB's file
    has none, and 0 for MySQL's."""
    for description, kind, offset, event in _events(transport, Slice(file, FIRST_OFFSET, size, 0, False)):
        if kind in (EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST):
            return kind, proved(event, description, file, offset), offset
        if kind not in (EventType.FORMAT_DESCRIPTION, EventType.START_ENCRYPTION):
            return (EventType.MARIADB_GTID_LIST, bytes(4), offset) if description.mariadb else (0, b"", offset)
    return 0, b"", FIRST_OFFSET


def last_complete(transport: Transport, part: Slice) -> tuple[int, tuple[str, ...]]:
    """Return the end of the last whole transaction in a file that is still being copied, and the GTIDs up to there."""
    transactions = list(transaction_boundaries(transport, part))
    if transactions and not _complete(
        transport, Slice(part.file, transactions[-1].start_offset, part.stop, part.created, False)
    ):
        end = transactions.pop().start_offset
    else:
        end = part.stop
    return end, tuple(boundary.gtid for boundary in transactions if boundary.gtid)


def _complete(transport: Transport, transaction: Slice) -> bool:
    """Return whether the transaction in a slice is complete."""
    begun, ended = False, False
    for description, kind, offset, event in _events(transport, transaction):
        if offset < transaction.start:
            continue
        if kind == EventType.MARIADB_GTID:
            begun = not proved(event, description, transaction.file, offset)[12] & _STANDALONE
        elif kind in (EventType.XID, EventType.XA_PREPARE, EventType.TRANSACTION_PAYLOAD):
            ended = True
        elif kind in (EventType.QUERY, EventType.QUERY_COMPRESSED, EventType.EXECUTE_LOAD_QUERY):
            text = b""
            if kind == EventType.QUERY:
                text = Query.parse(proved(event, description, transaction.file, offset)).text.strip().upper()
            if text == b"BEGIN" or text.startswith((b"XA START", b"XA BEGIN")):
                begun = True
            else:
                ended = ended or not begun or text in (b"COMMIT", b"ROLLBACK")
    return ended


_STANDALONE = 1
"""FL_STANDALONE of MariaDB's GTID event: the transaction is one statement, and no event ends it."""


def _events(transport: Transport, part: Slice) -> Iterator[tuple[FormatDescription, int, int, bytes]]:
    """Yield (format description, type, offset, bytes) for each event, including the format description event."""
    description: FormatDescription | None = None
    for chunk in transport.chunks(part):
        data = chunk.data
        if description is None:
            description = describe(bytes(chunk), part, chunk.offset)
        at = 0
        while at < chunk.size:
            _, kind, _, size, _, _ = HEADER.unpack(data[at : at + HEADER_SIZE].tobytes())
            yield description, kind, chunk.offset + at, data[at : at + size].tobytes()
            at += size
