"""Feeds' watermarks: how far each has come, the process that carries it, and the staging that it still needs.

The run that carries a feed writes the feed's row, under a lease of its own: it never waits for the mirror's lease, nor
the mirror for it. Writers of other rows can make a swap fail, so it is tried again as long as the row is still held.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from binlake.config import PipelineConfig
from binlake.config.units import HOUR_US, bytes_of_gb, gb_of_bytes
from binlake.errors import FeedFollowed, LeaseHeld, UsageError, WrittenMeanwhile
from binlake.lease import lease
from binlake.lease.held_row import HeldRow, SharedRow
from binlake.lease.holder import died, wait_remedy
from binlake.lease.lease import RecordedState
from binlake.planner.steps import PreparedXa
from binlake.storage import files
from binlake.store import formats
from binlake.store.conditions import literal
from binlake.store.metadata import Metadata, now_us
from binlake.store.rows import BatchRow, FeedRow, OmissionRow

RELAY = "(relay)"
"""The relay's name among the feeds; none of the YAML's may have it."""

_TAIL = "(tail "
"""Beginning of the name among the feeds of a process that prints what is staged, as it comes."""

FOLLOWS = "follows-"
"""Prefix of the token of a feed's row that is held by a process which carries batches as they come."""

FeedPlace = tuple[int, int, int, int, int]
"""A place in a batch: slice, statements before it in the slice, offset, place inside it of a prepared row, row."""


@dataclass(frozen=True)
class TableAtVersion:
    """One life of a table, at a version of its Delta table. passed: how many of its rows, as data_rows counts them, are
    carried."""

    table_id: str
    version: int
    passed: int = 0


@dataclass(frozen=True)
class FeedPosition:
    """How far a feed has come: batches up to ``batch`` are carried, and of the next all up to ``place``.

    prepared: XA transactions that wait for their outcome behind ``batch``. loading: tables whose rows at ``batch`` are
    still to come, before all else.
    """

    batch: int
    place: FeedPlace | None = None
    prepared: tuple[PreparedXa, ...] = ()
    loading: tuple[TableAtVersion, ...] = ()

    @property
    def needs(self) -> int:
        """Return the first batch whose staging is still read."""
        return min([self.batch + 1, *(transaction.batch for transaction in self.prepared)])

    def __str__(self) -> str:
        if self.loading:
            return f"batch {self.batch}, of which the rows of {len(self.loading)} tables are to come"
        return f"batch {self.batch}" + (f", and a part of batch {self.batch + 1}" if self.place else "")


@dataclass(frozen=True)
class Omission:
    """Events of one table that a feed left out for one reason. place: of the first one. mutations: as far as known."""

    feed: str
    layer: str
    table: str
    place: str
    events: int
    mutations: int
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


@dataclass(frozen=True)
class FeedStatus:
    """A feed as ``status`` shows it.

    behind: recorded batches that it hasn't carried. position: where its newest batch ends; empty where that isn't known
    any more. left_out: events in all its life that it left out; last_left_out:
    the newest of them. in_yaml: the source's YAML has it; else it is of a file of feeds, or was taken out.
    """

    name: str
    status: str
    batch: int | None
    behind: int
    messages: int
    reason: str = ""
    remedy: str = ""
    updated_us: int | None = None
    left_out: int = 0
    last_left_out: str = ""
    in_yaml: bool = True
    position: str = ""


@dataclass(frozen=True)
class FeedLimits:
    """How much staging is kept for a feed: gigabytes (10**9 bytes) of log, and hours since it was recorded."""

    keep_gb: float
    keep_hours: float


def read(metadata: Metadata, feed: str) -> FeedRow | None:
    """Return a feed's row; None before its first run."""
    return _row(metadata, feed).read()


def position_of(row: FeedRow | None) -> FeedPosition | None:
    """Return the position in a feed's row; None where it has none. Raises UnknownFormat."""
    return formats.read(FeedPosition, row.position) if row and row.position else None


class FeedLease(HeldRow[FeedRow]):
    """A feed's row, held by this run. Raises LeaseHeld once another run took it over."""

    def __init__(self, metadata: Metadata, feed: str, token: str) -> None:
        super().__init__(_row(metadata, feed), token)
        self._feed = feed

    @property
    def row(self) -> FeedRow:
        """Return the row. Raises LeaseHeld."""
        row = self._row.read()
        if row is None or row.token != self._token:
            raise LeaseHeld(
                f"feed {self._feed} was taken over by another run", remedy="nothing to do: the other process continues"
            )
        return row

    def check(self) -> None:
        """Raise LeaseHeld when another run took the feed over."""
        _ = self.row

    def _refused(self, row: FeedRow) -> LeaseHeld:
        if str(row.token).startswith(FOLLOWS):
            return FeedFollowed(
                f"{row.holder} carries feed {self._feed} as batches come",
                remedy="nothing to do: it continues; to free the feed, set its enabled: false, or end that process",
            )
        unlock = f"binlake unlock --config FILE --feed {self._feed} --why …"
        return LeaseHeld(f"{row.holder} carries feed {self._feed}", remedy=wait_remedy(row.holder or "", unlock))

    def advance(self, position: FeedPosition, messages: int) -> None:
        """Write how far the feed has come. messages: sent in all its life."""
        self.update(
            position=formats.written(position),
            batch=position.batch,
            needs=position.needs,
            messages=messages,
            status="following",
            reason=None,
            remedy=None,
        )

    def stop(self, reason: str, remedy: str) -> None:
        """Write that the feed doesn't continue by itself, and why."""
        self.update(status="stopped", reason=reason, remedy=remedy)

    def update(self, **changes: str | int | None) -> None:
        """Change the row and its time, and extend the lease."""
        super().update(**changes, updated_us=now_us())


def _row(metadata: Metadata, feed: str) -> SharedRow[FeedRow]:
    return SharedRow(metadata, FeedRow, f"feed = {literal(feed)}", f"feed {feed}")


@contextmanager
def held(metadata: Metadata, feed: str, limits: FeedLimits, *, follows: bool = False) -> Iterator[FeedLease]:
    """Carry a feed alone: its lease is renewed by a thread, and given back.

    follows: it is held until the process ends. Raises LeaseHeld, naming the holder; FeedFollowed, if that one follows.
    """
    register(metadata, feed, limits)
    with FeedLease(metadata, feed, FeedLease.new_token(prefix=FOLLOWS if follows else "")).held() as taken:
        yield taken


def take_away(metadata: Metadata, feed: str) -> str | None:
    """Free a feed's lease, and return its holder, None where nobody holds it.

    Raises UsageError where there is no such feed, or its holder is alive here.
    """
    if read(metadata, feed) is None:
        raise UsageError(f"no feed {feed} ran here", remedy="binlake status lists the feeds")
    return _row(metadata, feed).take_away()


def forget(metadata: Metadata, feed: str) -> bool:
    """Remove a feed's row, so that no staging is kept for it; return whether there was one. Raises LeaseHeld."""
    row = read(metadata, feed)
    if row is None:
        return False
    with held(metadata, feed, FeedLimits(gb_of_bytes(row.keep_bytes), row.keep_us / HOUR_US)):
        FeedRow.replace(metadata, f"feed = {literal(feed)}")
        if OmissionRow.count(metadata, f"feed = {literal(feed)}"):
            OmissionRow.replace(metadata, f"feed = {literal(feed)}")
    return True


def new_tail() -> str:
    """Return a name for a process that prints what is staged."""
    return f"{_TAIL}{uuid.uuid4().hex[:8]})"


def forget_dead_tails(metadata: Metadata) -> None:
    """Remove the rows of processes that printed what is staged, and died."""
    before = now_us() - 60_000_000  # a younger one is about to be held
    for row in FeedRow.read(metadata):
        is_dead = died(row.holder, row.token) if row.token else row.updated_us < before
        if row.feed.startswith(_TAIL) and is_dead:
            with suppress(LeaseHeld, WrittenMeanwhile):  # the next one to look tries again
                forget(metadata, row.feed)


def record_omissions(metadata: Metadata, omissions: Sequence[Omission]) -> None:
    """Note what feeds leave out."""
    OmissionRow.append(metadata, [OmissionRow(**vars(omission), at_us=now_us()) for omission in omissions])


def readers(metadata: Metadata) -> list[str]:
    """Return the feeds that read the log, and the relay, but no process that prints it."""
    names = [row.feed for row in FeedRow.read(metadata, "feed")]
    return [name for name in names if not name.startswith(_TAIL)]


def register(metadata: Metadata, feed: str, limits: FeedLimits) -> None:
    """Keep so much staging for a feed from now on."""
    row = read(metadata, feed)
    kept: dict[str, Any] = {"keep_bytes": bytes_of_gb(limits.keep_gb), "keep_us": int(limits.keep_hours * HOUR_US)}
    if row is None:
        fresh = FeedRow(feed=feed, status="new", updated_us=now_us(), **kept)
        FeedRow.create(metadata, [fresh])
        if read(metadata, feed) is None:
            FeedRow.append(metadata, [fresh])
    elif {key: getattr(row, key) for key in kept} != kept:
        metadata.swap("feeds", f"feed = {literal(feed)}", kept)


# staging -------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Claim:
    """The first batch that a feed reads, 0 before it began, and how much is kept for it."""

    needs: int
    most_bytes: int
    most_us: int


def awaited(config: PipelineConfig, metadata: Metadata, newest: int, staged: Collection[int]) -> set[int]:
    """Return the staged batches up to ``newest``, the newest recorded one, that a feed waits for within its limits."""
    claims = [claim for claim in _claims(config, metadata) if claim.needs <= newest]
    if not claims or not staged:
        return set()
    first = max(min(claim.needs for claim in claims), min(staged))
    columns = ("batch", "bytes", "updated_us")
    rows = BatchRow.read(metadata, *columns, where=f"batch >= {first} AND batch <= {newest}")
    newest_first = sorted((row for row in rows if row.batch in staged), key=lambda row: -row.batch)
    return {batch for claim in claims for batch in _kept(claim, newest_first)}


def _claims(config: PipelineConfig, metadata: Metadata) -> list[_Claim]:
    """Return the claims of feeds that ran, and of those of the YAML that will begin with the oldest staged batch."""
    rows = FeedRow.read(metadata)
    known = {row.feed for row in rows}
    new = (feed for feed in config.feeds if feed.name not in known and feed.enabled and feed.begin == "oldest")
    return [
        *(_Claim(row.needs or 0, row.keep_bytes, row.keep_us) for row in rows),
        *(_Claim(0, bytes_of_gb(feed.keep_gb), int(feed.keep_hours * HOUR_US)) for feed in new),
    ]


def _kept(claim: _Claim, newest_first: Sequence[BatchRow]) -> list[int]:
    """Return the batches that fit into a claim, from the newest back; none for a feed that would be left behind."""
    kept: list[int] = []
    room, oldest = claim.most_bytes, now_us() - claim.most_us
    for row in newest_first:
        if row.batch < claim.needs:
            break
        room -= row.bytes
        if room < 0 or row.updated_us < oldest:
            return kept if claim.needs == 0 else []
        kept.append(row.batch)
    return kept


def staged_batches(config: PipelineConfig) -> set[int]:
    """Return the numbers of batches that have a folder in staging."""
    return {int(name) for name in files.subfolders(config.staging_path()) if name.isdigit()}


def statuses(config: PipelineConfig, metadata: Metadata) -> list[FeedStatus]:
    """Return the status of every feed, those of the YAML first.

    A feed whose next batch is no longer staged is stopped, though nobody ran it since.
    """
    rows = {row.feed: row for row in FeedRow.read(metadata)}
    if not rows and not config.feeds:
        return []
    recorded_state = lease.read(metadata).recorded_state
    newest = recorded_state.batch if recorded_state else 0
    staged = staged_batches(config)
    names = [*(feed.name for feed in config.feeds), *(name for name in rows)]
    left_out = omitted(metadata)
    own = {RELAY, *(feed.name for feed in config.feeds)}
    disabled = {feed.name for feed in config.feeds if not feed.enabled}
    feeds = [_status(name, rows.get(name), newest, staged) for name in dict.fromkeys(names)]
    ends = _ends_of(metadata, {feed.batch for feed in feeds if feed.batch is not None}, recorded_state)
    return [
        replace(
            feed,
            left_out=events,
            last_left_out=last,
            in_yaml=feed.name in own or feed.name.startswith(_TAIL),
            position="" if feed.batch is None else ends.get(feed.batch, ""),
            status="disabled" if feed.name in disabled else feed.status,
        )
        for feed in feeds
        for events, last in [left_out.get(feed.name, (0, ""))]
    ]


def _ends_of(metadata: Metadata, batches: Collection[int], recorded_state: RecordedState | None) -> dict[int, str]:
    """Return where batches end, as text, by batch."""
    ends: dict[int, str] = {}
    if recorded_state and recorded_state.tables is not None:  # else the log is read on from elsewhere
        ends[recorded_state.batch] = str(recorded_state.position)
    if wanted := sorted(set(batches) - ends.keys()):
        rows = BatchRow.read(metadata, "batch", "stop", where=f"batch IN ({', '.join(map(str, wanted))})")
        ends |= {row.batch: row.stop for row in rows if row.stop}
    return ends


def omitted(metadata: Metadata) -> dict[str, tuple[int, str]]:
    """Return, by feed, how many events it left out in all its life, and the newest of them."""
    by_feed: dict[str, tuple[int, str]] = {}
    for row in sorted(OmissionRow.read(metadata), key=lambda row: row.at_us):
        before, _ = by_feed.get(row.feed, (0, ""))
        by_feed[row.feed] = before + row.events, f"{row.place}: {row.reason}"
    return by_feed


def _status(name: str, row: FeedRow | None, newest: int, staged: set[int]) -> FeedStatus:
    if row is None:
        return FeedStatus(name, "new", None, newest, 0)
    if row.batch is None:  # it may have failed before it began
        return FeedStatus(name, row.status, None, newest, 0, row.reason, row.remedy, row.updated_us)
    behind = newest - row.batch
    status = FeedStatus(name, row.status, row.batch, behind, row.messages, row.reason, row.remedy, row.updated_us)
    if status.status != "stopped" and behind > 0 and row.needs not in staged:
        reason, remedy = left_behind(name, row.needs or 0)
        return replace(status, status="stopped", reason=reason, remedy=remedy)
    return status


def left_behind(feed: str, batch: int) -> tuple[str, str]:
    """Return reason and remedy for a feed that waited longer than staging is kept for it."""
    if feed == RELAY:
        return (
            f"the staging of batch {batch} is gone: more waited for the relay than --keep-gb and --keep-hours allow",
            "start binlake relay: it shows each client what it lost, and continues",
        )
    if feed.startswith(_TAIL):
        return tail_left_behind(batch)
    return (
        f"the staging of batch {batch} is gone: more waited for feed {feed} than keep_gb and keep_hours allow",
        f"begin it again with the tables' rows: binlake feed --config FILE --feed {feed} --restart-from lake"
        " (or oldest, now)",
    )


def tail_left_behind(batch: int) -> tuple[str, str]:
    """Return reason and remedy for a process that prints more slowly than staging is kept for it."""
    return (
        f"the staging of batch {batch} is gone: it waited for too long to be printed",
        "run binlake tail again: by default it begins with the oldest batch that is staged",
    )
