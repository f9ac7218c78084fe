"""Borders of log files: whether a file continues where the log that was read before it ends.

Each file begins with the GTIDs of all transactions before it: MySQL's PREVIOUS_GTIDS, MariaDB's GTID_LIST. They differ
from what was read where the server wrote another log meanwhile, or where a file is another server's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from binlake import gtid
from binlake.binlog.locate import executed_before
from binlake.binlog.transport import Transport
from binlake.errors import RESNAPSHOT, PositionLost
from binlake.gtid import Executed, GtidPosition, GtidSet
from binlake.position import Range


def check_borders(transport: Transport, read: Range, gtid_sets: Sequence[str]) -> None:
    """Check that each file of a range continues where the one before it ended. Raises PositionLost.

    gtid_sets: the GTIDs of each slice's transactions, as they were read. Nothing is asked where the range has one file,
    or where it isn't known what was executed before it.
    """
    flavour, parts = read.start.flavour, read.slices
    if not read.start.gtid_set or not any(before.file != part.file for before, part in pairwise(parts)):
        return
    first = parts[0]
    start = executed_before(transport, first.file, first.stop)
    start = start.union(gtid.parse(read.start.gtid_set, flavour))  # type: ignore[arg-type]  # of one flavour
    of_slices = (gtid.parse(text, flavour) for text in gtid_sets)
    read_before = accumulate(of_slices, lambda earlier, later: earlier.union(later))
    for (before, part), seen in zip(pairwise(parts), read_before, strict=False):
        if part.file == before.file:
            continue
        listed = executed_before(transport, part.file, part.stop)
        if difference := _difference(start, seen, listed):
            raise PositionLost(
                f"{part.file} doesn't continue where {before.file} ends: {difference}; another log was used meanwhile, "
                "or the file is another server's",
                remedy=RESNAPSHOT,
            )


def _difference(start: Executed, seen: Executed, listed: Executed) -> str:
    """Return how what a file lists differs from what was known before the range, and what was read of it since; empty
    where it doesn't."""
    if isinstance(start, GtidPosition) and isinstance(seen, GtidPosition) and isinstance(listed, GtidPosition):
        known = start.union(seen)
        differing = sorted(listed.last - known.last)
        left_out = sorted(seen.last - listed.last)
        if differing or left_out:
            return f"it lists {listed}, and {known} was read"
        return ""
    assert isinstance(start, GtidSet)
    assert isinstance(seen, GtidSet)
    assert isinstance(listed, GtidSet)
    if unknown := listed.without(start.union(seen)).members:
        return f"{GtidSet(unknown)} came before it, and wasn't read"
    if lacking := seen.without(listed).members:
        return f"it lacks {GtidSet(lacking)}, which was read"
    return ""
