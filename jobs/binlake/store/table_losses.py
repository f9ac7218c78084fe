"""The metadata tables whose loss is noticed: what is lost with each, and what to do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

MADE = "made"
RESTORE = "restore its folder from a backup"
_MAKES_ANEW = "binlake makes it again"


@dataclass(frozen=True)
class MetadataLoss:
    """The loss of a metadata table.

    meaning: what it had. remedy: what to do without a backup. refuses: the work that isn't done without it.
    is_given_again: whether a command writes all of it again.
    """

    meaning: str
    remedy: str
    refuses: Collection[str] = ()
    is_given_again: bool = False

    @property
    def is_reported_once(self) -> bool:
        """Return whether the lake continues without the table, and no command that writes it again is waited for."""
        return not self.refuses and not self.is_given_again


SYNC, _UPKEEP, _FEED = "sync", "maintain", "feed"

LOSSES: dict[str, MetadataLoss] = {
    "lease": MetadataLoss(
        "the position of the lake, the newest batch and who works",
        "binlake unlock --config FILE --why TEXT makes it again where that is safe",
        (SYNC, _UPKEEP, _FEED),
    ),
    "watermarks": MetadataLoss(
        "which tables follow the log",
        "copy all tables again: binlake snapshot --config FILE",
        (SYNC, _UPKEEP),
    ),
    "schemas": MetadataLoss(
        "the shapes of all tables",
        "copy all tables again: binlake snapshot --config FILE",
        (SYNC, _UPKEEP),
    ),
    "batches": MetadataLoss(
        "the ranges of the log that were read",
        "tables that are stopped, paused or catching up need binlake table resnapshot; earlier batches aren't replayed",
    ),
    "lake_versions": MetadataLoss(
        "the lake's versions of earlier batches, and which files pinned ones need",
        "give pinned versions up, if there are some (binlake versions unpin NAME); then binlake sync begins a new list",
        (_UPKEEP,),
    ),
    "readable_since": MetadataLoss(
        "which earlier versions can't be read any more",
        f"{_MAKES_ANEW}; until then binlake versions lists versions as readable whose files are gone",
    ),
    "thinned": MetadataLoss("which batches were being removed", _MAKES_ANEW),
    "merged_standstills": MetadataLoss(
        "why merged tables are stopped, or don't show shards as they are", "the next binlake sync notes it again"
    ),
    "pins": MetadataLoss(
        "the names of versions that are kept",
        "pin them again before binlake maintain runs: binlake versions pin BATCH; if none is to be kept, pin one and "
        "unpin it",
        (_UPKEEP,),
    ),
    "feeds": MetadataLoss(
        "where each feed is, unless its sink keeps it",
        "begin each feed again: binlake feed --config FILE --feed NAME --restart-from lake",
        (_FEED,),
    ),
    "omissions": MetadataLoss("what feeds left out", _MAKES_ANEW),
    "decisions": MetadataLoss(
        "what people decided about tables and events",
        "an event that was stepped over stops a table that catches up again: binlake table skip-event",
    ),
    "unlogged": MetadataLoss(
        "when the server was seen to write no log",
        "binlake verify --config FILE, if the server may have been without its log since the snapshot",
    ),
    "follower_stops": MetadataLoss("when processes that followed the log ended", _MAKES_ANEW),
    "snapshots": MetadataLoss("the chunks of snapshots that aren't finished", "the next snapshot copies all chunks"),
    "verified": MetadataLoss("what was verified", "the next binlake verify reads all rows"),
    "verifications": MetadataLoss("the results of verifications", _MAKES_ANEW),
    "unfinished_verifications": MetadataLoss("which verifications didn't come to their end", _MAKES_ANEW),
    "repairs": MetadataLoss("the rows that repairs put right", _MAKES_ANEW),
    "registrations": MetadataLoss(
        "the names that a catalog was given",
        "binlake register gives them again; remove those of dropped tables there",
        is_given_again=True,
    ),
    "registered_views": MetadataLoss(
        "the databases of pinned versions in a catalog", "binlake register gives them again", is_given_again=True
    ),
    "catalog_problems": MetadataLoss("what catalogs lack", "binlake register looks again", is_given_again=True),
    "runs": MetadataLoss("what runs did", _MAKES_ANEW),
    "ddl_history": MetadataLoss("the DDL statements that were seen", f"{_MAKES_ANEW}; binlake history begins there"),
    "quarantine": MetadataLoss("what stopped tables, with the events' bytes", _MAKES_ANEW),
    "source_log": MetadataLoss("how far the server's log was ahead", _MAKES_ANEW),
    "lake_sizes": MetadataLoss("how large tables were", _MAKES_ANEW),
    "followers": MetadataLoss("which process follows the log", _MAKES_ANEW),
    "copiers": MetadataLoss("which process copies tables", _MAKES_ANEW),
    "filter_estimates": MetadataLoss(
        "how many rows the conditions of tables left", "nothing to do: the next snapshot of a table notes it again"
    ),
    "awaited": MetadataLoss("which included tables are new", _MAKES_ANEW),
    MADE: MetadataLoss("which metadata tables were there", _MAKES_ANEW),
}
"""By metadata table."""
