"""A client's queue: limits, discard policies, counts; what was polled is told again unless more was asked for."""

from __future__ import annotations

import numpy as np
import pytest

from binlake.errors import UsageError
from binlake.relay.queues import Discard, Queue, TableFilter
from binlake.schema.table import TableName

ORDERS, ITEMS = TableName("shop", "orders"), TableName("shop", "items")


def queue(*filters: TableFilter, arriving: list[list[int]]) -> Queue:
    """arriving: of each batch, from 1 on, the number of the filter that each event passed."""
    made = Queue()
    for batch, passed in enumerate(arriving, 1):
        made.arrive(batch, filters, np.array(passed, np.int64))
    return made


def drained(made: Queue) -> list[tuple[int, int]]:
    """(batch, number) of all that wait, in order."""
    events: list[tuple[int, int]] = []
    while (head := made.head()) is not None:
        events.append((head[0].batch, head[1]))
        made.deliver()
        made.acknowledge()
    return events


def counts(made: Queue) -> tuple[int, int, int, int]:
    return len(made), made.served, made.discarded, made.largest


def test_without_a_limit_all_wait_in_order() -> None:
    made = queue(TableFilter(ORDERS, 7), arriving=[[0, 0], [0]])
    assert counts(made) == (3, 0, 0, 3)
    assert drained(made) == [(1, 0), (1, 1), (2, 0)]
    assert counts(made) == (0, 3, 0, 3)


@pytest.mark.parametrize("discard", [Discard.NONE, Discard.NEWEST])
def test_a_full_queue_takes_no_newer_events(discard: Discard) -> None:
    made = queue(TableFilter(ORDERS, 7, 3, discard), arriving=[[0, 0], [0, 0], [0]])
    assert counts(made) == (3, 0, 2, 3)
    assert drained(made) == [(1, 0), (1, 1), (2, 0)]


def test_a_full_queue_lets_its_oldest_events_go() -> None:
    made = queue(TableFilter(ORDERS, 7, 3, Discard.OLDEST), arriving=[[0, 0], [0, 0], [0]])
    assert counts(made) == (3, 0, 2, 3)
    assert drained(made) == [(2, 0), (2, 1), (3, 0)]


def test_the_limit_is_that_of_the_filter_an_event_passed() -> None:
    small, large = TableFilter(ORDERS, 7, 1, Discard.NEWEST), TableFilter(ITEMS, 7, 0)
    made = queue(small, large, arriving=[[0, 0, 1, 0, 1]])
    assert drained(made) == [(1, 0), (1, 2), (1, 4)]
    assert made.discarded == 2


def test_what_was_delivered_comes_again_unless_more_was_asked_for() -> None:
    made = queue(TableFilter(ORDERS, 7), arriving=[[0, 0, 0]])
    made.deliver()
    made.deliver()
    assert counts(made) == (1, 2, 0, 3)
    made.take_back()
    assert counts(made) == (3, 0, 0, 3)
    made.deliver()
    made.acknowledge()
    made.take_back()
    assert drained(made) == [(1, 1), (1, 2)]


def test_there_is_room_again_once_events_were_polled() -> None:
    only = TableFilter(ORDERS, 7, 2, Discard.NEWEST)
    made = queue(only, arriving=[[0, 0, 0]])
    made.deliver()
    made.arrive(2, (only,), np.array([0, 0]))
    assert counts(made) == (2, 1, 2, 2)
    assert drained(made) == [(1, 1), (2, 0)]


@pytest.mark.parametrize("operations", [0, 8, -1])
def test_a_filter_that_lets_nothing_pass_is_refused(operations: int) -> None:
    with pytest.raises(UsageError, match="lets nothing pass"):
        TableFilter(ORDERS, operations)


def test_what_was_acknowledged_elsewhere_is_skipped() -> None:
    waiting = queue(TableFilter(ORDERS, 7), arriving=[[0, 0], [0, 0, 0]])
    waiting.skip_to(3)
    assert counts(waiting) == (2, 3, 0, 5)
    waiting.skip_to(1)
    assert drained(waiting) == [(2, 1), (2, 2)]
