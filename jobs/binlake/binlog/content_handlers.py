"""Handlers of a log's content, in a pipeline: each may drop what it is given, change it, or put more in its place.

class Quiet(ContentHandler):
    def query(self, event):
        return None if event.detail["database"] == "scratch" else event
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from binlake.binlog.border import Item, Mutations, RolledBack, Statement, Stopped, XaEvent
from binlake.binlog.events import EventType
from binlake.binlog.listing import Event

_Content = TypeVar("_Content", Event, Item)
HandledEvent = Event | Iterable[Event] | None
"""A handler's result, which replaces an event: an event, several, or none."""
HandledItem = Item | Iterable[Item] | None
"""A handler's result, which replaces an item of ``mutations``: an item, several, or none."""


class ContentHandler:
    """A handler that lets everything pass; its subclasses say what happens to one class of content or another.

    The first methods are for events, the last five for what ``mutations`` gives.
    """

    def description(self, event: Event) -> HandledEvent:
        """FORMAT_DESCRIPTION, with which a file begins."""
        return event

    def transaction(self, event: Event) -> HandledEvent:
        """GTID, ANONYMOUS_GTID, GTID_TAGGED, MARIADB_GTID: the beginning of a transaction."""
        return event

    def query(self, event: Event) -> HandledEvent:
        """QUERY, QUERY_COMPRESSED: a statement, also BEGIN and COMMIT."""
        return event

    def variable(self, event: Event) -> HandledEvent:
        """USER_VAR, INTVAR, RAND: a value that the next statement uses."""
        return event

    def text(self, event: Event) -> HandledEvent:
        """ROWS_QUERY, ANNOTATE_ROWS: the statement whose rows follow."""
        return event

    def table_map(self, event: Event) -> HandledEvent:
        """TABLE_MAP: the table of the rows that follow."""
        return event

    def rows(self, event: Event) -> HandledEvent:
        """All row events."""
        return event

    def payload(self, event: Event) -> HandledEvent:
        """TRANSACTION_PAYLOAD: a compressed transaction, whose events follow."""
        return event

    def commit(self, event: Event) -> HandledEvent:
        """XID: the end of a transaction."""
        return event

    def xa_prepare(self, event: Event) -> HandledEvent:
        """XA_PREPARE."""
        return event

    def rotate(self, event: Event) -> HandledEvent:
        """ROTATE: the file ends, and names the next."""
        return event

    def incident(self, event: Event) -> HandledEvent:
        """INCIDENT: the server lost events."""
        return event

    def other(self, event: Event) -> HandledEvent:
        """All other events, those of unknown types among them."""
        return event

    def mutations(self, item: Mutations) -> HandledItem:
        """Rows of one table."""
        return item

    def statement(self, item: Statement) -> HandledItem:
        """A statement between rows."""
        return item

    def xa(self, item: XaEvent) -> HandledItem:
        """The preparation or outcome of an XA transaction."""
        return item

    def rolled_back(self, item: RolledBack) -> HandledItem:
        """Rows that were given, and are void."""
        return item

    def stopped(self, item: Stopped) -> HandledItem:
        """A table that can't be decoded from here on."""
        return item


Handlers = Sequence[ContentHandler]

_ROWS = (kind for kind in EventType if "_ROWS" in kind.name and kind is not EventType.ANNOTATE_ROWS)
_OF_EVENTS: dict[int, Callable[[ContentHandler, Event], HandledEvent]] = {
    **dict.fromkeys(_ROWS, lambda handler, event: handler.rows(event)),
    **dict.fromkeys(
        (EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID),
        lambda handler, event: handler.transaction(event),
    ),
    **dict.fromkeys(
        (EventType.QUERY, EventType.QUERY_COMPRESSED), lambda handler, event: handler.query(event)
    ),
    **dict.fromkeys(
        (EventType.USER_VAR, EventType.INTVAR, EventType.RAND), lambda handler, event: handler.variable(event)
    ),
    **dict.fromkeys(
        (EventType.ROWS_QUERY, EventType.ANNOTATE_ROWS), lambda handler, event: handler.text(event)
    ),
    EventType.FORMAT_DESCRIPTION: lambda handler, event: handler.description(event),
    EventType.TABLE_MAP: lambda handler, event: handler.table_map(event),
    EventType.TRANSACTION_PAYLOAD: lambda handler, event: handler.payload(event),
    EventType.XID: lambda handler, event: handler.commit(event),
    EventType.XA_PREPARE: lambda handler, event: handler.xa_prepare(event),
    EventType.ROTATE: lambda handler, event: handler.rotate(event),
    EventType.INCIDENT: lambda handler, event: handler.incident(event),
}  # fmt: skip


def _event_through(handler: ContentHandler, event: Event) -> HandledEvent:
    method = _OF_EVENTS.get(event.kind)
    return handler.other(event) if method is None else method(handler, event)


def _item_through(handler: ContentHandler, item: Item) -> HandledItem:
    match item:
        case Mutations():
            return handler.mutations(item)
        case Statement():
            return handler.statement(item)
        case XaEvent():
            return handler.xa(item)
        case RolledBack():
            return handler.rolled_back(item)
        case Stopped():
            return handler.stopped(item)
    return item


def events_through(handlers: Handlers, events: Iterable[Event]) -> Iterator[Event]:
    """Yield what the handlers make of events; what one puts in goes through those after it."""
    for handler in handlers:
        events = _passed(handler, events, _event_through)
    yield from events


def items_through(handlers: Handlers, items: Iterable[Item]) -> Iterator[Item]:
    """Yield what the handlers make of items of ``mutations``; what one puts in goes through those after it."""
    for handler in handlers:
        items = _passed(handler, items, _item_through)
    yield from items


def _passed(
    handler: ContentHandler,
    contents: Iterable[_Content],
    through: Callable[[ContentHandler, _Content], _Content | Iterable[_Content] | None],
) -> Iterator[_Content]:
    for content in contents:
        handled = through(handler, content)
        if handled is None:
            continue
        if isinstance(handled, Iterable):
            yield from handled
        else:
            yield handled
