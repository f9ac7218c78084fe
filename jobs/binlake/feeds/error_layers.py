"""Layers of error handlers, which decide on events that a feed can't carry.

    first    ``decode``: an event that can't be decoded
    second   a decoded event that can't be carried: ``table_map`` (its table doesn't fit the feed's condition),
             ``mutation`` (the format or the sink refuses rows), ``alter`` (the format refuses a statement), ``commit``
             (of an XA transaction whose rows came before the feed), ``empty_commit`` (a statement was logged in the
             place of rows)
    third    ``event``: asked, with the same failure, where the layer before it returns False

If a layer returns True, the feed continues without the event. If the third returns False as well, the feed stops.
Omissions are recorded, with their counts, before the sink commits what follows; ``status`` shows them. A kill between
the two records them twice, never not at all. A failure that concerns no event, such as a sink that can't be reached,
always stops the feed.

Source: mypipe's README, "Error Handling", and its ConfigBasedErrorHandler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from binlake.config.feed_config import FeedConfig
from binlake.errors import FeedError, SinkFailed
from binlake.feeds.plugins import PluginGroup, methods_of
from binlake.records import feed_watermarks
from binlake.records.feed_watermarks import Omission
from binlake.schema.table import TableName

_Kind = tuple[str, str, str]
"""Layer, table and reason of an omission: one row in the status."""
ErrorLayer = Literal["decode", "table_map", "mutation", "alter", "commit", "empty_commit"]


@dataclass(frozen=True)
class FeedFailure:
    """An event that can't be carried. place: of the event. mutations: how many are lost with it; 0 if unknown."""

    layer: ErrorLayer
    table: TableName | None
    place: str
    mutations: int
    reason: str
    remedy: str


class FeedErrorHandler(Protocol):
    """Methods that return whether the feed continues without the event, one for each layer."""

    def decode(self, failure: FeedFailure) -> bool:
        """Decide on an event that can't be decoded."""

    def table_map(self, failure: FeedFailure) -> bool:
        """Decide on a table that doesn't fit the feed's condition."""

    def mutation(self, failure: FeedFailure) -> bool:
        """Decide on rows that the format or the sink refuses."""

    def alter(self, failure: FeedFailure) -> bool:
        """Decide on a statement that the format refuses."""

    def commit(self, failure: FeedFailure) -> bool:
        """Decide on the commit of an XA transaction whose rows came before the feed."""

    def empty_commit(self, failure: FeedFailure) -> bool:
        """Decide on a statement that was logged in the place of rows."""

    def event(self, failure: FeedFailure) -> bool:
        """Decide last, on an event for which the layer before it returned False."""


HANDLERS = PluginGroup(
    "errors.handler", "binlake.feed_errors", (), methods_of(FeedErrorHandler), "binlake.feeds.error_layers.FlagErrors"
)
"""Handlers of one's own; each is made with the feed's FeedConfig."""


class FlagErrors:
    """A handler that decides by the YAML's flags. The classes of other handlers may derive from this one."""

    def __init__(self, feed: FeedConfig) -> None:
        self._stops = feed.stops

    def decode(self, failure: FeedFailure) -> bool:
        """Return True unless the flag ``decode`` is set."""
        return not self._stops.decode

    def table_map(self, failure: FeedFailure) -> bool:
        """Return True unless the flag ``listener`` is set."""
        return not self._stops.listener

    def mutation(self, failure: FeedFailure) -> bool:
        """Return True unless the flag ``listener`` is set."""
        return not self._stops.listener

    def alter(self, failure: FeedFailure) -> bool:
        """Return True unless the flag ``listener`` is set."""
        return not self._stops.listener

    def commit(self, failure: FeedFailure) -> bool:
        """Return True unless the flag ``event`` is set."""
        return not self._stops.event

    def empty_commit(self, failure: FeedFailure) -> bool:
        """Return True unless the flag ``empty_commit`` is set."""
        return not self._stops.empty_commit

    def event(self, failure: FeedFailure) -> bool:
        """Return True unless the flag ``event`` is set."""
        return not self._stops.event


def handler_of(feed: FeedConfig) -> FeedErrorHandler:
    """Return the handler that the YAML names, else that of its flags. Raises ConfigurationError."""
    if (name := feed.errors.handler) is None:
        return FlagErrors(feed)
    handler: FeedErrorHandler = HANDLERS.make(name, feed)
    return handler


class FeedErrors:
    """The failures of one run of a feed. record: writes omissions down. lines: one for each omission."""

    def __init__(self, feed: FeedConfig, record: Callable[[list[Omission]], None]) -> None:
        self._feed, self._record = feed.name, record
        self._leaving_out = feed.leaving_out("empty_mutation_commit")
        self._handler = handler_of(feed)
        self._waiting: dict[_Kind, Omission] = {}
        self._written: dict[_Kind, Omission] = {}
        self._owed: Counter[_Kind] = Counter()
        self.lines: list[str] = []

    def decide(self, failure: FeedFailure, error: FeedError, *, known: bool = False) -> None:
        """Raise the error unless the feed continues without the event. known: it was written down already."""
        try:
            continues = getattr(self._handler, failure.layer)(failure) or self._handler.event(failure)
        except Exception as raised:
            raise FeedError(
                f"the error handler of feed {self._feed} failed over {failure.place}: {raised!r}",
                remedy=f"fix it; it was asked because of this: {failure.reason}",
            ) from raised
        if not continues:
            raise self._placed(failure.place, error)
        if known:
            return
        table = str(failure.table) if failure.table else ""
        omission = Omission(self._feed, failure.layer, table, failure.place, 1, failure.mutations, failure.reason)
        key = failure.layer, table, failure.reason
        if before := self._waiting.get(key):
            omission = replace(before, events=before.events + 1, mutations=before.mutations + failure.mutations)
        elif (line := str(omission)) not in self.lines:
            self.lines.append(line)
        self._waiting[key] = omission

    def _placed(self, place: str, error: FeedError) -> FeedError:
        """Return the error with its place in the log, unless its message has it or it is of a kind of its own."""
        if type(error) is not FeedError or not place or place in error.message:
            return error
        return FeedError(f"feed {self._feed} at {place}: {error.message}", remedy=error.remedy)

    def going_on(self, remedy: str) -> str:
        """Return how to continue after an event that stops the feed. remedy: the one for a feed that is carried."""
        return remedy

    def left_behind(self, batch: int) -> tuple[str, str]:
        """Return reason and remedy where a batch isn't staged any more."""
        return feed_watermarks.left_behind(self._feed, batch)

    def unlogged_rows(self) -> FeedError:
        """Return the error for a statement that was logged in the place of its rows."""
        going_on = self.going_on(
            f"begin behind it: binlake feed --feed {self._feed} --restart-from lake (or now); "
            f"or leave such statements out: {self._leaving_out}"
        )
        return FeedError(
            "a statement was logged in the place of the rows that it changed",
            remedy=f"set binlog_format = ROW on the server; {going_on}",
        )

    def guarded(self, layer: ErrorLayer, table: TableName | None, place: str, mutations: int) -> _Guard:
        """Return a context manager that calls ``decide`` with a failure of its block."""
        return _Guard(self, layer, table, place, mutations)

    def record(self) -> None:
        """Write down what was left out; called before each commit."""
        new = [self._unwritten(key, omission) for key, omission in self._waiting.items()]
        if any(omission.events for omission in new):
            self._record([omission for omission in new if omission.events])
        self._written, self._waiting = self._waiting, {}

    def _unwritten(self, key: _Kind, omission: Omission) -> Omission:
        """Return the part that wasn't written down before its commit was refused."""
        recorded = min(omission.events, self._owed[key])
        self._owed[key] -= recorded
        left = omission.events - recorded
        if not recorded:
            return omission
        return replace(omission, events=left, mutations=omission.mutations * left // omission.events)

    def commit(self) -> None:
        """Forget what was written down: it is committed."""
        self._written = {}

    def again(self) -> None:
        """Begin again behind the last commit, because the sink wants all since then once more."""
        for key, omission in self._written.items():
            self._owed[key] += omission.events
        self._written, self._waiting = {}, {}


@dataclass(frozen=True)
class _Guard:
    errors: FeedErrors
    layer: ErrorLayer
    table: TableName | None
    place: str
    mutations: int

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        """Return whether the failure was decided upon; an error of a sink or registry that concerns no event is
        raised."""
        if not isinstance(error, FeedError) or isinstance(error, SinkFailed):
            return False
        failure = FeedFailure(self.layer, self.table, self.place, self.mutations, error.message, error.remedy)
        self.errors.decide(failure, error)
        return True
