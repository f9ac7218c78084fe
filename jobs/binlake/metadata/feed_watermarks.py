"""Feeds' watermarks: how far each has come, who carries it, and which staging it still needs.

A feed's row is written by whoever carries it, under a lease of its own: it never waits for the mirror's, and the
mirror never for it. Writers of other rows make a swap fail without a word about ours, so it is tried again as long as
the row is still ours.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from binlake.batch.steps import PreparedXa
from binlake.config import PipelineConfig
from binlake.config.units import HOUR_US, bytes_of_gb, gb_of_bytes
from binlake.errors import LakeError, LeaseHeld, UsageError
from binlake.metadata import formats, lease
from binlake.metadata.holder import LIFETIME, Watch, known_here, refuse_alive, this_process
from binlake.metadata.metadata import Metadata, literal, now_us
from binlake.storage import files

_TRIES, _PAUSE, _LOOK_AGAIN = 8, 0.1, 0.5
RELAY = "(relay)"
"""The relay's name among the feeds; none of the YAML's may have it."""

FeedPlace = tuple[int, int, int, int, int]
"""In a batch: slice, statements before it in the slice, offset, place inside it of a prepared row, row."""


@dataclass(frozen=True)
class TableAtVersion:
    """One life of a table, at a version of its Delta table. passed: so many of its rows, as data_rows counts them, are
    carried."""

    table_id: str
    version: int
    passed: int = 0


@dataclass(frozen=True)
class FeedPosition:
    """Batches up to ``batch`` are carried, and of the next all up to ``place``. prepared: XA transactions that wait for
    their outcome behind ``batch``. loading: tables whose rows at ``batch`` are still to come, before all else."""

    batch: int
    place: FeedPlace | None = None
    prepared: tuple[PreparedXa, ...] = ()
    loading: tuple[TableAtVersion, ...] = ()

    @property
    def needs(self) -> int:
        """The first batch whose staging is still read."""
        return min([self.batch + 1, *(one.batch for one in self.prepared)])

    def __str__(self) -> str:
        if self.loading:
            return f"batch {self.batch}, of which the rows of {len(self.loading)} tables are to come"
        return f"batch {self.batch}" + (f", and a part of batch {self.batch + 1}" if self.place else "")


@dataclass(frozen=True)
class Omission:
    """Events that a feed left out, of one table and for one reason. place: of the first. mutations: as far as known."""

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
    """A feed as ``status`` tells it.

    behind: recorded batches that it hasn't carried. left_out: events, in all its life, that it couldn't tell;
    last_left_out: the newest of them.
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


@dataclass(frozen=True)
class FeedLimits:
    """So much staging is kept for a feed: bytes of log, and hours since it was recorded."""

    keep_gb: float
    keep_hours: float


def read(metadata: Metadata, feed: str) -> dict[str, Any] | None:
    """A feed's row; None before its first run."""
    return next(iter(metadata.read("feeds", where=f"feed = {literal(feed)}")), None)


def position_of(row: Mapping[str, Any] | None) -> FeedPosition | None:
    """Raises NewerMetadata."""
    return formats.read(FeedPosition, row["position"]) if row and row["position"] else None


class FeedLease:
    """A feed's row, held. Raises LeaseHeld once somebody else took it over."""

    def __init__(self, metadata: Metadata, feed: str, token: str) -> None:
        self._metadata, self._feed, self._token = metadata, feed, token
        self._lock = threading.Lock()

    @property
    def row(self) -> dict[str, Any]:
        found = read(self._metadata, self._feed)
        if found is None or found["token"] != self._token:
            raise LeaseHeld(f"feed {self._feed} was taken over by another run", remedy="nothing: that one goes on")
        return found

    def advance(self, position: FeedPosition, messages: int) -> None:
        """The feed has come to here; messages: sent in all its life."""
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
        """It doesn't go on by itself."""
        self.update(status="stopped", reason=reason, remedy=remedy)

    def update(self, **changes: str | int | None) -> None:
        """Change the row, and extend the lease."""
        changes |= {"expires_us": now_us() + LIFETIME * 1_000_000, "updated_us": now_us()}
        with self._lock:
            for attempt in range(_TRIES):
                if self._metadata.swap("feeds", _held_by(self._feed, self._token), changes):
                    return
                _ = self.row  # still ours: another feed's writer was quicker
                time.sleep(_PAUSE * (attempt + 1))
        raise LakeError(
            f"feed {self._feed}'s watermark couldn't be written: others write the table", remedy="run again"
        )

    def release(self) -> None:
        with suppress(LakeError, LeaseHeld):
            self.update(holder=None, token=None)


def _held_by(feed: str, token: str | None) -> str:
    return f"feed = {literal(feed)} AND token " + (f"= {literal(token)}" if token else "IS NULL")


@contextmanager
def held(metadata: Metadata, feed: str, limits: FeedLimits) -> Iterator[FeedLease]:
    """Carry a feed alone; its lease is renewed by a thread, and given back. Raises LeaseHeld, naming the holder."""
    register(metadata, feed, limits)
    row = _row_of_nobody(metadata, feed)
    token = uuid.uuid4().hex
    changes: dict[str, str | int | None] = {"holder": this_process(), "token": token}
    changes |= {"expires_us": now_us() + LIFETIME * 1_000_000}
    _swap(metadata, feed, row["token"], changes)
    with known_here(token), _renewed(FeedLease(metadata, feed, token)) as taken:
        yield taken


def _row_of_nobody(metadata: Metadata, feed: str) -> dict[str, Any]:
    """A feed's row, which nobody holds. Raises LeaseHeld."""
    watch = Watch()
    while True:
        row = read(metadata, feed)
        assert row is not None
        if not watch.is_held(row["holder"], row["token"], row["expires_us"] or 0):
            return row
        if not watch.in_doubt:
            raise LeaseHeld(f"{row['holder']} carries feed {feed}", remedy="wait for it to end, then run again")
        time.sleep(_LOOK_AGAIN)


def take_away(metadata: Metadata, feed: str) -> str | None:
    """Nobody holds the feed from here on. Gives who did, None where nobody did.

    Raises UsageError where there is no such feed, or its holder is alive here.
    """
    row = read(metadata, feed)
    if row is None:
        raise UsageError(f"no feed {feed} ran here", remedy="binlake status lists the feeds")
    if not row["token"] or not row["holder"]:
        return None
    refuse_alive(row["holder"], row["token"])
    _swap(metadata, feed, row["token"], lease.GIVEN_BACK)
    return str(row["holder"])


def _swap(metadata: Metadata, feed: str, token: str | None, changes: Mapping[str, str | int | None]) -> None:
    """Change a row that is nobody's, or that of the token's holder. Raises LeaseHeld where it isn't any more."""
    for attempt in range(_TRIES):
        if metadata.swap("feeds", _held_by(feed, token), changes):
            return
        again = read(metadata, feed)
        if again is None or again["token"] != token or attempt + 1 == _TRIES:
            raise LeaseHeld(f"another run took feed {feed} a moment ago", remedy="wait for it to end, then run again")
        time.sleep(_PAUSE * (attempt + 1))


def forget(metadata: Metadata, feed: str) -> bool:
    """A feed's row goes: no staging is kept for it any more. Gives whether there was one; raises LeaseHeld."""
    row = read(metadata, feed)
    if row is None:
        return False
    with held(metadata, feed, FeedLimits(gb_of_bytes(row["keep_bytes"]), row["keep_us"] / HOUR_US)):
        metadata.replace("feeds", f"feed = {literal(feed)}", [])
        if metadata.read("omissions", ["feed"], where=f"feed = {literal(feed)}"):
            metadata.replace("omissions", f"feed = {literal(feed)}", [])
    return True


def record_omissions(metadata: Metadata, omissions: Sequence[Omission]) -> None:
    """What feeds leave out from here on."""
    metadata.append("omissions", [{**asdict(one), "at_us": now_us()} for one in omissions])


@contextmanager
def _renewed(taken: FeedLease) -> Iterator[FeedLease]:
    done = threading.Event()

    def renew() -> None:
        while not done.wait(LIFETIME / 4):
            try:
                taken.update()
            except LeaseHeld:
                return
            except LakeError:  # what is tried next may find the storage again
                continue

    thread = threading.Thread(target=renew, name="feed lease", daemon=True)
    thread.start()
    try:
        yield taken
    finally:
        done.set()
        thread.join()
        taken.release()


def register(metadata: Metadata, feed: str, limits: FeedLimits) -> None:
    """From now on so much staging is kept for it."""
    row = read(metadata, feed)
    told = {"keep_bytes": bytes_of_gb(limits.keep_gb), "keep_us": int(limits.keep_hours * HOUR_US)}
    if row is None:
        fresh = {"feed": feed, "batch": None, "status": "new", "messages": 0, "updated_us": now_us(), **told}
        metadata.create_with("feeds", [fresh])
        if read(metadata, feed) is None:
            metadata.append("feeds", [fresh])
    elif {key: row[key] for key in told} != told:
        metadata.swap("feeds", f"feed = {literal(feed)}", told)


# staging -------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Claim:
    """From which batch on a feed reads, 0 before it began, and how much is kept for it."""

    needs: int
    most_bytes: int
    most_us: int


def awaited(config: PipelineConfig, metadata: Metadata, newest: int, staged: Collection[int]) -> set[int]:
    """Of the staged batches up to ``newest``, which is recorded, those that a feed waits for, within its limits."""
    claims = [claim for claim in _claims(config, metadata) if claim.needs <= newest]
    if not claims or not staged:
        return set()
    first = max(min(claim.needs for claim in claims), min(staged))
    columns = ["batch", "bytes", "updated_us"]
    rows = metadata.read("batches", columns, where=f"batch >= {first} AND batch <= {newest}")
    found = sorted((row for row in rows if row["batch"] in staged), key=lambda row: -row["batch"])
    return {batch for claim in claims for batch in _kept(claim, found)}


def _claims(config: PipelineConfig, metadata: Metadata) -> list[_Claim]:
    """Of the feeds that ran, and of those of the YAML that will begin with the oldest batch that is staged."""
    rows = metadata.read("feeds")
    known = {row["feed"] for row in rows}
    new = (feed for feed in config.feeds if feed.name not in known and feed.begin == "oldest")
    return [
        *(_Claim(row["needs"] or 0, row["keep_bytes"], row["keep_us"]) for row in rows),
        *(_Claim(0, bytes_of_gb(feed.keep_gb), int(feed.keep_hours * HOUR_US)) for feed in new),
    ]


def _kept(claim: _Claim, newest_first: Sequence[Mapping[str, Any]]) -> list[int]:
    """What fits, from the newest batch back; nothing for a feed that is left behind by that."""
    kept: list[int] = []
    room, oldest = claim.most_bytes, now_us() - claim.most_us
    for row in newest_first:
        if row["batch"] < claim.needs:
            break
        room -= row["bytes"] or 0
        if room < 0 or row["updated_us"] < oldest:
            return kept if claim.needs == 0 else []
        kept.append(row["batch"])
    return kept


def staged_batches(config: PipelineConfig) -> set[int]:
    """Batches that have a folder in staging."""
    return {int(name) for name in files.subfolders(config.staging_path()) if name.isdigit()}


def statuses(config: PipelineConfig, metadata: Metadata) -> list[FeedStatus]:
    """Every feed that is known here, those of the YAML first. A feed whose next batch isn't staged any more stands
    still, though nobody ran it since."""
    rows = {row["feed"]: row for row in metadata.read("feeds")}
    if not rows and not config.feeds:
        return []
    standing = lease.read(metadata).standing
    newest = standing.batch if standing else 0
    staged = staged_batches(config)
    names = [*(feed.name for feed in config.feeds), *(name for name in rows)]
    left_out = omitted(metadata)
    found = [_status(name, rows.get(name), newest, staged) for name in dict.fromkeys(names)]
    return [_with_omissions(one, *left_out.get(one.name, (0, ""))) for one in found]


def _with_omissions(told: FeedStatus, left_out: int, last: str) -> FeedStatus:
    return replace(told, left_out=left_out, last_left_out=last)


def omitted(metadata: Metadata) -> dict[str, tuple[int, str]]:
    """By feed, how many events it left out in all its life, and the newest of them."""
    found: dict[str, tuple[int, str]] = {}
    for row in sorted(metadata.read("omissions"), key=lambda row: row["at_us"]):
        before, _ = found.get(row["feed"], (0, ""))
        found[row["feed"]] = before + row["events"], f"{row['place']}: {row['reason']}"
    return found


def _status(name: str, row: Mapping[str, Any] | None, newest: int, staged: set[int]) -> FeedStatus:
    if row is None:
        return FeedStatus(name, "new", None, newest, 0)
    if row["batch"] is None:  # it may have failed before it began
        return FeedStatus(
            name, row["status"], None, newest, 0, row["reason"] or "", row["remedy"] or "", row["updated_us"]
        )
    behind = newest - row["batch"]
    told = FeedStatus(
        name, row["status"], row["batch"], behind, row["messages"] or 0, row["reason"] or "", row["remedy"] or "",
        row["updated_us"],
    )  # fmt: skip
    if told.status != "stopped" and behind > 0 and row["needs"] not in staged:
        return FeedStatus(
            name, "stopped", told.batch, behind, told.messages, *left_behind(name, row["needs"]), told.updated_us
        )
    return told


def left_behind(feed: str, batch: int) -> tuple[str, str]:
    """Reason and remedy of a feed that waited longer than staging is kept for it."""
    if feed == RELAY:
        return (
            f"the staging of batch {batch} is gone: more waited for the relay than --keep-gb and --keep-hours allow",
            "start binlake relay: it tells each client what is lost to it, and goes on",
        )
    return (
        f"the staging of batch {batch} is gone: more waited for feed {feed} than keep_gb and keep_hours allow",
        f"begin it anew with the tables' rows: binlake feed --config FILE --feed {feed} --anew lake (or oldest, now)",
    )
