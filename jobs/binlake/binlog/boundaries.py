"""Begin and end of transactions, for the planner. Rows aren't read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from binlake.binlog import events
from binlake.binlog.events import HEADER, HEADER_SIZE, EventType, FormatDescription
from binlake.binlog.integrity import corrupt, describe, proved
from binlake.binlog.transport import Transport
from binlake.errors import OF_CODE, Malformed, unexpected
from binlake.position import Slice


@dataclass(frozen=True)
class Boundary:
    """The place of a transaction: [start_offset, end_offset) of its file, from its GTID event to the end of its last.

    committed_us: microseconds since 1970 UTC (MariaDB: whole seconds). gtid: None if it is anonymous.
    """

    start_offset: int
    end_offset: int
    committed_us: int
    gtid: str | None


def transaction_boundaries(transport: Transport, part: Slice) -> Iterator[Boundary]:
    """Yield the transactions of a slice in the order of the log. Checksums are verified of their first events only.

    Raises the errors of ``read``.
    """
    from binlake.binlog import framing  # its kernels take long to import

    description: FormatDescription | None = None
    opened: events.Transaction | None = None
    end = part.start
    for chunk in transport.chunks(part):
        if description is None:
            description = describe(bytes(chunk), part, chunk.offset)
            continue
        places = np.empty(chunk.size // HEADER_SIZE + 1, np.int64)
        ends = np.empty(len(places) + 1, np.int64)
        ends[0] = end - chunk.offset
        count = framing.opens(chunk.data.ctypes.data, chunk.size, places, ends)
        if count < 0:
            raise corrupt(part.file, chunk.offset - 1 - count, "an event whose size can't be")
        for place, before in zip(places[:count].tolist(), ends[:count].tolist(), strict=True):
            if opened:
                yield Boundary(opened.offset, chunk.offset + before, opened.committed_us, opened.gtid)
            size = int.from_bytes(chunk.data[place + 9 : place + 13].tobytes(), "little")
            opened = _transaction(chunk.data[place : place + size].tobytes(), part, chunk.offset + place, description)
        end = chunk.offset + int(ends[count])
    if opened:
        yield Boundary(opened.offset, end, opened.committed_us, opened.gtid)


def _transaction(event: bytes, part: Slice, offset: int, description: FormatDescription) -> events.Transaction:
    timestamp, kind, server_id, _, _, _ = HEADER.unpack_from(event)
    body = proved(event, description, part.file, offset)
    try:
        if kind == EventType.GTID_TAGGED:
            return events.tagged_transaction(body, timestamp=timestamp, offset=offset)
        if kind == EventType.MARIADB_GTID:
            return events.mariadb_transaction(body, timestamp=timestamp, server_id=server_id, offset=offset)
        return events.gtid_transaction(body, kind=kind, timestamp=timestamp, offset=offset)
    except Malformed as error:
        raise corrupt(part.file, offset, str(error)) from None
    except OF_CODE as error:
        raise corrupt(part.file, offset, f"event type {kind} can't be read: {unexpected(error)}") from error
