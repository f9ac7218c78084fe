"""``binlake tail``: print staged mutations.

No position is kept. While it follows, a row among the feeds keeps the staging that it hasn't printed; it goes when the
process ends, and that of one that was killed with the next one's start, or with the lake's upkeep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

from binlake.config import PipelineConfig
from binlake.config.feed_config import FeedConfig
from binlake.errors import LakeError, NoSnapshotYet, UsageError
from binlake.feeds.carry import BatchReader, Parts, context_of, oldest_staged
from binlake.feeds.consume import SchemaOf, readable, readable_key
from binlake.feeds.contract import Message
from binlake.feeds.error_layers import FeedErrors
from binlake.feeds.outlet import Outlet
from binlake.feeds.schema_registry import SchemaRegistry
from binlake.feeds.selection import Selection
from binlake.interrupts import Ending
from binlake.lease import lease
from binlake.lease.lease import RecordedState
from binlake.records import feed_watermarks
from binlake.records.feed_watermarks import FeedLease, FeedLimits, FeedPosition, Omission
from binlake.report import Report
from binlake.store.metadata import metadata_of

_LOOK_AGAIN = 0.25
"""Seconds between two looks for a new batch."""
_LIMITS = FeedLimits(keep_gb=5, keep_hours=1)
"""How much staging is kept for a process that prints more slowly than batches come."""


class ConsoleSink:
    """A sink that prints one message per line."""

    keeps_position = False

    def __init__(self, out: TextIO, schema_of: SchemaOf | None = None) -> None:
        """schema_of: looks up a registry's schemas, for Avro."""
        self._out, self._schema_of = out, schema_of

    def begin(self) -> None:
        """Do nothing: a terminal needs no preparation."""

    def send(self, messages: Sequence[Message]) -> None:
        """Print a line per message: its value; of a message without a value its key, which an empty value follows."""
        for message in messages:
            value = readable(message.value, self._schema_of)
            key = "" if message.value is not None else f"{readable_key(message.key, self._schema_of)} "
            self._out.write(f"{key}{value}\n")

    def commit(self, position: FeedPosition) -> None:
        """Flush the output; the position isn't kept."""
        self._out.flush()

    def position(self) -> FeedPosition | None:
        """Return None: printed messages keep no position."""
        return None

    def close(self) -> None:
        """Flush the output, which stays open."""
        self._out.flush()


@dataclass(frozen=True)
class Tail:
    """Options. start: the first batch, None for those recorded from now on. follow: continue until asked to end."""

    start: int | None
    follow: bool = False


class _TailErrors(FeedErrors):
    """Failures of what is printed: no feed stops, so no remedy names one. batch: returns the batch that is being
    printed."""

    def __init__(self, feed: FeedConfig, batch: Callable[[], int]) -> None:
        super().__init__(feed, _record_no_omissions)
        self._batch = batch

    def going_on(self, remedy: str) -> str:
        return f"print other tables alone: --table DB.T; or begin behind it: --from {self._batch() + 1}"

    def left_behind(self, batch: int) -> tuple[str, str]:
        return feed_watermarks.tail_left_behind(batch)


class _Tailed:
    """One source's staging, formatted as one feed has it. kept: the row that keeps the staging; None without one."""

    def __init__(
        self, config: PipelineConfig, feed: FeedConfig, asked: Tail, parts: Parts, out: TextIO, kept: FeedLease | None
    ) -> None:
        self._config, self._kept = config, kept
        errors = _TailErrors(feed, lambda: self._place.batch + 1)
        self._reader = BatchReader(config, metadata_of(config), Selection.of(config, feed), errors)
        recorded_state = _recorded_state(config)
        context = context_of(feed, config, recorded_state)
        self._place = FeedPosition(_first(config, asked, recorded_state) - 1)
        sink = ConsoleSink(out, _schema_of(feed))
        self._outlet = Outlet(parts.make_format(feed, context), sink, _keep_no_position, self._place, errors)
        self._keep_staging()

    def print(self, ending: Ending) -> None:
        """Print the batches recorded since the last call, or until the end is asked for."""
        recorded_state = _recorded_state(self._config)
        while self._place.batch < recorded_state.batch and not ending.asked:
            self._place = self._reader.carry(self._place, self._outlet, None).position
            self._keep_staging()

    def _keep_staging(self) -> None:
        """Let the staging after the present place be kept."""
        if self._kept is not None:
            self._kept.advance(self._place, self._outlet.messages)


def tail(
    feeds: Sequence[tuple[PipelineConfig, FeedConfig]],
    asked: Tail,
    parts: Parts,
    out: TextIO,
    report: Report,
    ending: Ending,
) -> None:
    """Print staged mutations, source by source. Raises UsageError if the batch to start with isn't staged any more."""
    with ExitStack() as keeping:
        try:
            tailed = [
                _Tailed(
                    config,
                    feed,
                    asked,
                    parts,
                    out,
                    keeping.enter_context(_staging(config, report)) if asked.follow else None,
                )
                for config, feed in feeds
            ]
            while not ending.asked:
                for source in tailed:
                    source.print(ending)
                if not asked.follow:
                    return
                ending.wait(_LOOK_AGAIN)
        except KeyboardInterrupt:  # a large batch, or a reader that pauses, continued for longer than an end may wait
            if not ending.asked:
                raise


@contextmanager
def _staging(config: PipelineConfig, report: Report) -> Iterator[FeedLease | None]:
    """Keep the staging of a source while the block runs; None, and say so, where the lake can't be written."""
    metadata, name = metadata_of(config), feed_watermarks.new_tail()
    try:
        feed_watermarks.forget_dead_tails(metadata)
        feed_watermarks.register(metadata, name, _LIMITS)
    except LakeError as error:
        report.say(f"{error.message}: batches may be gone before they are printed")
        yield None
        return
    try:
        with feed_watermarks.held(metadata, name, _LIMITS) as held:
            yield held
    finally:
        feed_watermarks.forget(metadata, name)


def _schema_of(feed: FeedConfig) -> SchemaOf | None:
    if feed.registry is None:
        return None
    address, connection = feed.registry
    return SchemaRegistry(address, connection=connection).schema


def _keep_no_position(position: FeedPosition, messages: int) -> Any:
    """Keep no position."""


def _record_no_omissions(omissions: list[Omission]) -> None:
    """Record no omissions."""


def _recorded_state(config: PipelineConfig) -> RecordedState:
    recorded_state = lease.read(metadata_of(config)).recorded_state
    if recorded_state is None:
        raise NoSnapshotYet
    return recorded_state


def _first(config: PipelineConfig, asked: Tail, recorded_state: RecordedState) -> int:
    oldest = oldest_staged(config, recorded_state.batch)
    if asked.start is None:
        return recorded_state.batch + 1
    if asked.start and asked.start < oldest:
        raise UsageError(
            f"batch {asked.start} isn't staged any more; the oldest that is, is {oldest}",
            remedy="staging is kept for feeds, up to their keep_gb and keep_hours: begin with --from start",
        )
    if asked.start > recorded_state.batch and not asked.follow:
        raise UsageError(
            f"batch {asked.start} isn't recorded yet; the newest that is, is {recorded_state.batch}",
            remedy="add --follow to wait for it, or begin with an earlier one",
        )
    return max(asked.start, oldest)
