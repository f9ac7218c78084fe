"""Feeds that are carried as batches come, each in a thread of its own: by ``binlake feed --follow``, and beside the
batches of ``binlake follow``.

A feed is held, with its sink open, as long as it is carried. One that fails is tried again after growing waits, while
the others continue. It ends between two windows of rows: what its sink didn't commit by then is sent again by the next
run, or was taken back.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from binlake.config import PipelineConfig
from binlake.config.feed_config import FeedConfig
from binlake.errors import BinlakeError, ConfigurationError, LeaseHeld
from binlake.feeds.carry import FeedRun, OpenFeed, Parts, opened
from binlake.feeds.feeds_file import Feeds
from binlake.interrupts import Ending
from binlake.lease import lease
from binlake.report import Report, counted
from binlake.retries import doubling
from binlake.store.metadata import metadata_of

_WAIT, _MOST_WAIT, _MOST_UNHELPED = 1.0, 60.0, 300.0
"""Seconds before the first try after a failure, at most, and at most after one that a retry alone doesn't fix."""
_HELD_WAIT = 2.0
"""Seconds between two looks at a feed that another process carries."""
_HEARTBEAT_EVERY = 60.0
"""Seconds without a message after which a feed sends a heartbeat."""
_SUMMED_EVERY = 60.0
"""Seconds for which a feed's messages are summed up in one line."""
_ENDING = 2.0
"""Seconds to wait for feeds that were asked to end. A feed that is killed at any point is continued by the next run."""

_LOOK_AGAIN = 0.25
"""Seconds between two looks for batches that another process records."""

FeedKey = tuple[str, str]
"""The names of a source and of a feed."""


class _Ended(Exception):
    """The feed is to end."""


@dataclass
class FeedsFollowed:
    """Counts of what was sent since the process began, by source and feed. batches: the last one that each feed
    carried."""

    mutations: Counter[FeedKey] = field(default_factory=Counter)
    messages: Counter[FeedKey] = field(default_factory=Counter)
    batches: dict[FeedKey, int] = field(default_factory=dict)

    def add(self, key: FeedKey, run: FeedRun) -> None:
        """Add the counts of a feed's run, and note its last batch."""
        self.mutations[key] += run.mutations
        self.messages[key] += run.messages
        self.batches[key] = run.batch

    def to_json(self) -> list[dict[str, Any]]:
        """Return one dict for each feed, in the order of source and feed."""
        return [
            {
                "source": source, "feed": feed, "batch": batch,
                "mutations": self.mutations[source, feed], "messages": self.messages[source, feed],
            }
            for (source, feed), batch in sorted(self.batches.items())
        ]  # fmt: skip

    def line(self, key: FeedKey) -> str:
        """Return the sentence that says what a feed has sent since the process began."""
        mutations, messages = counted(self.mutations[key], "mutation"), counted(self.messages[key], "message")
        return f"feed {key[1]} of {key[0]}: {mutations} as {messages}, up to batch {self.batches[key]}"


class FeedsBeside:
    """Threads that carry feeds. Its methods are called by one thread."""

    def __init__(self, report: Report, parts: Parts) -> None:
        self._report, self._parts = report, parts
        self._at_work: dict[FeedKey, _FeedThread] = {}
        self.followed = FeedsFollowed()

    def carry(self, feeds: Feeds, newest: Mapping[str, int | None]) -> None:
        """Let exactly the enabled ones of these feeds be carried, under their present settings.

        newest: the number of each source's newest recorded batch, where it is known.
        """
        wanted = {(config.source.name, feed.name): (config, feed) for config, feed in feeds if feed.enabled}
        for key, thread in list(self._at_work.items()):
            if wanted.get(key) != (thread.config, thread.feed):
                thread.ask_to_end()
            if not thread.is_alive():
                del self._at_work[key]
        for key, (config, feed) in wanted.items():
            if key not in self._at_work:  # else one that is about to end
                self._at_work[key] = _FeedThread(config, feed, self._parts, self._report, self.followed)
                self._at_work[key].start()
            self._at_work[key].hear_of(newest.get(config.source.name))

    def end(self) -> None:
        """Let all feeds end."""
        for thread in self._at_work.values():
            thread.ask_to_end()
        until = time.monotonic() + _ENDING
        for thread in self._at_work.values():
            thread.join(max(0.0, until - time.monotonic()))
        self._at_work = {key: thread for key, thread in self._at_work.items() if thread.is_alive()}


class FeedsOfSource:
    """The feeds of a source's YAML, beside the process that follows the source. settings: gives the YAML as it is
    now."""

    def __init__(self, settings: Callable[[], PipelineConfig], beside: FeedsBeside) -> None:
        self._settings, self._beside = settings, beside

    def begin(self, config: PipelineConfig, batch: int | None) -> None:
        """Let the enabled feeds be carried up to a batch; None: up to the newest."""
        try:
            present = self._settings()
        except ConfigurationError:  # the follower reports it
            present = config
        if (present.source, present.lake) != (config.source, config.lake):
            present = config
        self._beside.carry([(present, feed) for feed in present.feeds], {config.source.name: batch})

    def end(self) -> None:
        """Ask all feeds to end, and wait until they have."""
        self._beside.end()


def follow_feeds(settings: Callable[[], Feeds], report: Report, parts: Parts, ending: Ending) -> FeedsFollowed:
    """Carry feeds as batches are recorded by other processes, until the end is asked for; return what was sent.

    settings: gives the feeds as they are now. Raises ConfigurationError if they can't be read at the beginning.
    """
    beside, trouble = FeedsBeside(report, parts), ""
    feeds = settings()
    try:
        while not ending.asked:
            beside.carry(feeds, {config.source.name: _newest(config) for config, _ in feeds})
            ending.wait(_LOOK_AGAIN)
            try:
                feeds, trouble = settings(), ""
            except ConfigurationError as error:
                if str(error) != trouble:
                    report.say(f"{error}\n  the feeds continue under their former settings")
                trouble = str(error)
    finally:
        beside.end()
    return beside.followed


def _newest(config: PipelineConfig) -> int | None:
    """Return the newest recorded batch; None without one, or where the lake can't be read, as the feed itself says."""
    with suppress(BinlakeError):
        recorded_state = lease.read(metadata_of(config)).recorded_state
        return recorded_state.batch if recorded_state else None
    return None


class _FeedThread(threading.Thread):
    """A thread that carries one feed of one source until it is asked to end."""

    def __init__(
        self, config: PipelineConfig, feed: FeedConfig, parts: Parts, report: Report, followed: FeedsFollowed
    ) -> None:
        super().__init__(name=f"feed {feed.name}", daemon=True)
        self.config, self.feed, self._parts, self._report = config, feed, parts, report
        self._key = config.source.name, feed.name
        self._all, self._summed, self._summed_at = followed, FeedsFollowed(), time.monotonic()
        self._woken, self._over = threading.Event(), False
        self._newest: int | None = None
        self._sent_at = time.monotonic()
        self._trouble, self._failures = "", 0

    def hear_of(self, batch: int | None) -> None:
        """Carry on where the newest recorded batch is another one than before."""
        if batch is not None and batch != self._newest:
            self._newest = batch
            self._woken.set()

    def ask_to_end(self) -> None:
        self._over = True
        self._woken.set()

    def run(self) -> None:
        while not self._over:
            try:
                with opened(self.config, self.feed, self._parts, follows=True, between=self._refuse_ended) as open_feed:
                    self._carry_on(open_feed)
            except _Ended:
                return
            except LeaseHeld as held:
                self._say_trouble(held.message)
                self._pause(_HELD_WAIT)
            except BinlakeError as error:
                self._bear(str(error), _MOST_WAIT if error.retryable else _MOST_UNHELPED)
            except Exception:
                self._bear(traceback.format_exc(), _MOST_UNHELPED)

    def _carry_on(self, open_feed: OpenFeed) -> None:
        """Carry batches as they come, until the end."""
        while True:
            self._woken.clear()
            self._refuse_ended()
            is_due = time.monotonic() - self._sent_at >= _HEARTBEAT_EVERY
            self._note(open_feed.carry(heartbeat=is_due), is_due)
            self._sum_up()
            self._woken.wait(_HEARTBEAT_EVERY)

    def _note(self, run: FeedRun, is_due: bool) -> None:
        """Count what was sent, and say what was left out."""
        if self._trouble:
            self._report.say(f"feed {self.feed.name}: continuing")
        self._trouble, self._failures = "", 0
        if run.messages or is_due:
            self._sent_at = time.monotonic()
        self._all.add(self._key, run)
        self._summed.add(self._key, run)
        if run.left_out:
            self._report.say(run.message)

    def _sum_up(self) -> None:
        """Say in one line what was sent in the last minute."""
        if time.monotonic() - self._summed_at < _SUMMED_EVERY:
            return
        summed, self._summed, self._summed_at = self._summed, FeedsFollowed(), time.monotonic()
        if summed.messages[self._key]:
            self._report.say(summed.line(self._key))

    def _bear(self, trouble: str, most: float) -> None:
        """Wait after a failure, longer after each further one."""
        self._failures += 1
        self._say_trouble(f"{trouble}\n  it is tried again after growing waits, of up to {most:.0f} s")
        self._pause(doubling(_WAIT, most)(self._failures))

    def _pause(self, seconds: float) -> None:
        """Wait, whatever batches come."""
        until = time.monotonic() + seconds
        while not self._over and (left := until - time.monotonic()) > 0:
            self._woken.clear()
            if not self._over:
                self._woken.wait(left)

    def _say_trouble(self, text: str) -> None:
        """Say why nothing is carried, unless that was said last."""
        if text != self._trouble:
            self._report.say(f"feed {self.feed.name}: {text}")
        self._trouble = text

    def _refuse_ended(self) -> None:
        if self._over:
            raise _Ended
