"""What becomes of an event that a feed can't tell: mypipe's layers of error handlers.

    first    ``decode``: an event that nobody can decode
    second   what can't be told of one that was: ``table_map`` (its table doesn't fit the feed's condition),
             ``mutation`` (the format or the sink refuses rows), ``alter`` (the format refuses a statement), ``commit``
             (of an XA transaction whose rows came before the feed), ``empty_commit`` (a statement was logged in the
             place of rows)
    third    ``event``: asked, with the same failure, where the layer before it doesn't go on

A layer that answers True has the feed go on without the event; where the third answers False, too, the feed stops. What
is left out is written down, with its count, before the sink commits what follows: ``status`` tells it. Killed between
the two it is written twice, never not at all. What is no event's, such as a sink that can't be reached, always stops.

Source: mypipe's README, "Error Handling", and its ConfigBasedErrorHandler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Literal, Protocol

from binlake.config.feed_config import FeedConfig
from binlake.errors import ConfigurationError, FeedError, SinkFailed
from binlake.metadata.feed_watermarks import Omission
from binlake.schema.table import TableName

GROUP = "binlake.feed_errors"
"""Of entry points that make handlers: each is called with the feed's FeedConfig."""
_Kind = tuple[str, str, str]
"""Layer, table and reason of what was left out: one row in the status."""
ErrorLayer = Literal["decode", "table_map", "mutation", "alter", "commit", "empty_commit"]


@dataclass(frozen=True)
class FeedFailure:
    """An event that can't be told. place: where it stands. mutations: how many go with it; 0 where nobody knows."""

    layer: ErrorLayer
    table: TableName | None
    place: str
    mutations: int
    reason: str
    remedy: str


class FeedErrorHandler(Protocol):
    """Each answers whether the feed goes on without the event."""

    def decode(self, failure: FeedFailure) -> bool: ...

    def table_map(self, failure: FeedFailure) -> bool: ...

    def mutation(self, failure: FeedFailure) -> bool: ...

    def alter(self, failure: FeedFailure) -> bool: ...

    def commit(self, failure: FeedFailure) -> bool: ...

    def empty_commit(self, failure: FeedFailure) -> bool: ...

    def event(self, failure: FeedFailure) -> bool: ...


class FlagErrors:
    """The handler without one's own, and a base for it: goes on where the YAML's flags don't have the feed stop."""

    def __init__(self, feed: FeedConfig) -> None:
        flags, skip = feed.errors, feed.on_error == "skip"
        decode, empty = flags.quit_on_event_decode_failure, flags.quit_on_empty_mutation_commit_failure
        self._decode = skip if decode is None else not decode
        self._empty = skip if empty is None else not empty
        self._listener = not flags.quit_on_listener_failure
        self._event = not flags.quit_on_event_handler_failure

    def decode(self, failure: FeedFailure) -> bool:
        return self._decode

    def table_map(self, failure: FeedFailure) -> bool:
        return self._listener

    def mutation(self, failure: FeedFailure) -> bool:
        return self._listener

    def alter(self, failure: FeedFailure) -> bool:
        return self._listener

    def commit(self, failure: FeedFailure) -> bool:
        return self._event

    def empty_commit(self, failure: FeedFailure) -> bool:
        return self._empty

    def event(self, failure: FeedFailure) -> bool:
        return self._event


def handler_of(feed: FeedConfig) -> FeedErrorHandler:
    """Raises ConfigurationError where the entry point isn't there, or can't be loaded."""
    if (name := feed.errors.handler) is None:
        return FlagErrors(feed)
    known = {point.name: point for point in entry_points(group=GROUP)}
    if name not in known:
        raise ConfigurationError(
            f"there is no error handler {name!r} for feed {feed.name}",
            remedy=f"install a package with the entry point {name} in {GROUP}; there are: {', '.join(known) or 'none'}",
        )
    return _made(known[name], feed)


def _made(point: EntryPoint, feed: FeedConfig) -> FeedErrorHandler:
    try:
        made = point.load()(feed)
    except Exception as error:
        raise ConfigurationError(
            f"the error handler {point.name} ({point.value}) can't be made: {error}", remedy="mend it, then run again"
        ) from error
    if missing := [name for name in dir(FeedErrorHandler) if not name.startswith("_") and not hasattr(made, name)]:
        raise ConfigurationError(
            f"the error handler {point.name} ({point.value}) has no method {missing[0]}",
            remedy="let its class be made of binlake.feeds.error_layers.FlagErrors",
        )
    found: FeedErrorHandler = made
    return found


class FeedErrors:
    """Of one run of a feed. record: writes down what was left out.

    told: of each thing left out a line.
    """

    def __init__(self, feed: FeedConfig, record: Callable[[list[Omission]], None]) -> None:
        self._feed, self._record = feed.name, record
        self._handler = handler_of(feed)
        self._waiting: dict[_Kind, Omission] = {}
        self._written: dict[_Kind, Omission] = {}
        self._owed: Counter[_Kind] = Counter()
        self.told: list[str] = []

    def decide(self, failure: FeedFailure, error: FeedError, *, known: bool = False) -> None:
        """Returns where the feed goes on without the event; else raises the error. known: it was written down."""
        try:
            goes_on = getattr(self._handler, failure.layer)(failure) or self._handler.event(failure)
        except Exception as raised:
            raise FeedError(
                f"the error handler of feed {self._feed} failed over {failure.place}: {raised!r}",
                remedy=f"mend it; it was asked because of this: {failure.reason}",
            ) from raised
        if not goes_on:
            raise error
        if known:
            return
        table = str(failure.table) if failure.table else ""
        one = Omission(self._feed, failure.layer, table, failure.place, 1, failure.mutations, failure.reason)
        key = failure.layer, table, failure.reason
        if before := self._waiting.get(key):
            one = replace(before, events=before.events + 1, mutations=before.mutations + failure.mutations)
        elif (line := str(one)) not in self.told:
            self.told.append(line)
        self._waiting[key] = one

    def guarded(self, layer: ErrorLayer, table: TableName | None, place: str, mutations: int) -> _Guard:
        """A block whose failure is decided upon; what follows it goes on where the block is left out."""
        return _Guard(self, layer, table, place, mutations)

    def record(self) -> None:
        """Before a commit: what was left out stands from now on."""
        new = [self._unwritten(key, one) for key, one in self._waiting.items()]
        if any(one.events for one in new):
            self._record([one for one in new if one.events])
        self._written, self._waiting = self._waiting, {}

    def _unwritten(self, key: _Kind, one: Omission) -> Omission:
        """What of it wasn't written down before its commit was refused."""
        told = min(one.events, self._owed[key])
        self._owed[key] -= told
        left = one.events - told
        return one if not told else replace(one, events=left, mutations=one.mutations * left // one.events)

    def commit(self) -> None:
        """What was written down is behind the feed."""
        self._written = {}

    def again(self) -> None:
        """The sink wants all since the last commit again, and it is decided upon again."""
        for key, one in self._written.items():
            self._owed[key] += one.events
        self._written, self._waiting = {}, {}


@dataclass(frozen=True)
class _Guard:
    errors: FeedErrors
    layer: ErrorLayer
    table: TableName | None
    place: str
    mutations: int

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        """Whether the failure is done with. A sink's or a registry's that isn't about an event passes."""
        if not isinstance(error, FeedError) or isinstance(error, SinkFailed):
            return False
        told = FeedFailure(self.layer, self.table, self.place, self.mutations, error.message, error.remedy)
        self.errors.decide(told, error)
        return True
