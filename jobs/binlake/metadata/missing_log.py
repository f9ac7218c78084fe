"""Times at which a server was seen to write no log.

What it executed around then stands in no log, and once it writes one again, no GTID, offset or file name shows the gap.
So whoever sees such a server notes it in metadata.
"""

from __future__ import annotations

from contextlib import suppress

from binlake.delta import opened_tables
from binlake.errors import BinlakeError, NoBinlog
from binlake.metadata.metadata import Metadata, literal


def note(metadata: Metadata, seen: NoBinlog) -> None:
    """Note that a server writes no log. It raises nothing, and writes nothing where no lake was begun."""
    with suppress(BinlakeError):
        if opened_tables.is_table(metadata.location("lease")):
            metadata.append("unlogged", [{"server": seen.server, "at_us": seen.at_us}])


def last_seen(metadata: Metadata, server: str, since_us: int) -> int | None:
    """Return when the server was last seen without a log, in microseconds by its clock; None if never since a time."""
    rows = metadata.read("unlogged", where=f"server = {literal(server)} AND at_us >= {since_us}")
    return max((row["at_us"] for row in rows), default=None)
