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
from typing import Literal, Protocol

from binlake.config.feed_config import FeedConfig
from binlake.errors import ConfigurationError, FeedError, SinkFailed
from binlake.feeds import plugin_loader
from binlake.metadata.feed_watermarks import Omission
from binlake.schema.table import TableName

GROUP = "binlake.feed_errors"
"""Of entry points that make handlers: each is called with the feed's FeedConfig."""
_Kind = tuple[str, str, str]
"""Layer, table and reason of what was left out: one row in the status."""
ErrorLayer = Literal["decode", "table_map", "mutation", "alter", "commit", "empty_commit"]


@dataclass(frozen=True)
class FeedFailure:
    """An event that can't be told. place: where it stands. mutations: how many go with it; 0 where that isn't known."""

    layer: ErrorLayer
    table: TableName | None
    place: str
    mutations: int
    reason: str
    remedy: str


class FeedErrorHandler(Protocol):
    """Methods that tell whether the feed goes on without the event, one for each layer."""

    def decode(self, failure: FeedFailure) -> bool: ...

    def table_map(self, failure: FeedFailure) -> bool: ...

    def mutation(self, failure: FeedFailure) -> bool: ...

    def alter(self, failure: FeedFailure) -> bool: ...

    def commit(self, failure: FeedFailure) -> bool: ...

    def empty_commit(self, failure: FeedFailure) -> bool: ...

    def event(self, failure: FeedFailure) -> bool: ...


class FlagErrors:
    """Go on where the YAML's settings don't have the feed stop. A handler of one's own may be made of this class."""

    def __init__(self, feed: FeedConfig) -> None:
        self._stops = feed.stops

    def decode(self, failure: FeedFailure) -> bool:
        return not self._stops.decode

    def table_map(self, failure: FeedFailure) -> bool:
        return not self._stops.listener

    def mutation(self, failure: FeedFailure) -> bool:
        return not self._stops.listener

    def alter(self, failure: FeedFailure) -> bool:
        return not self._stops.listener

    def commit(self, failure: FeedFailure) -> bool:
        return not self._stops.event

    def empty_commit(self, failure: FeedFailure) -> bool:
        return not self._stops.empty_commit

    def event(self, failure: FeedFailure) -> bool:
        return not self._stops.event


def handler_of(feed: FeedConfig) -> FeedErrorHandler:
    """Return the handler that the YAML names, else that of its flags. Raises ConfigurationError."""
    if (name := feed.errors.handler) is None:
        return FlagErrors(feed)
    plugin = plugin_loader.load("errors.handler", name, GROUP)
    try:
        handler: FeedErrorHandler = plugin(feed)
    except Exception as error:
        raise ConfigurationError(
            f"the error handler {name} can't be made: {error}", remedy="mend it, then run again"
        ) from error
    methods = [method for method in dir(FeedErrorHandler) if not method.startswith("_")]
    if missing := [method for method in methods if not hasattr(handler, method)]:
        raise ConfigurationError(
            f"the error handler {name} has no method {missing[0]}",
            remedy="let its class be made of binlake.feeds.error_layers.FlagErrors",
        )
    return handler


class FeedErrors:
    """The failures of one run of a feed. record: writes down what was left out. told: a line for each of them."""

    def __init__(self, feed: FeedConfig, record: Callable[[list[Omission]], None]) -> None:
        self._feed, self._record = feed.name, record
        self._handler = handler_of(feed)
        self._waiting: dict[_Kind, Omission] = {}
        self._written: dict[_Kind, Omission] = {}
        self._owed: Counter[_Kind] = Counter()
        self.told: list[str] = []

    def decide(self, failure: FeedFailure, error: FeedError, *, known: bool = False) -> None:
        """Raise the error unless the feed goes on without the event. known: it was written down already."""
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
        """Return a context whose failure is decided upon; where the feed goes on, its block is left out."""
        return _Guard(self, layer, table, place, mutations)

    def record(self) -> None:
        """Write down what was left out; called before each commit."""
        new = [self._unwritten(key, one) for key, one in self._waiting.items()]
        if any(one.events for one in new):
            self._record([one for one in new if one.events])
        self._written, self._waiting = self._waiting, {}

    def _unwritten(self, key: _Kind, one: Omission) -> Omission:
        """Return the part that wasn't written down before its commit was refused."""
        told = min(one.events, self._owed[key])
        self._owed[key] -= told
        left = one.events - told
        return one if not told else replace(one, events=left, mutations=one.mutations * left // one.events)

    def commit(self) -> None:
        """Forget what was written down: it is committed."""
        self._written = {}

    def again(self) -> None:
        """Begin again behind the last commit, because the sink wants all since then once more."""
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
        """Tell whether the failure is dealt with; those of a sink or registry that concern no event are raised."""
        if not isinstance(error, FeedError) or isinstance(error, SinkFailed):
            return False
        told = FeedFailure(self.layer, self.table, self.place, self.mutations, error.message, error.remedy)
        self.errors.decide(told, error)
        return True
