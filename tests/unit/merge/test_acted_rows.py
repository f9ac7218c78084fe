"""What foreign keys do to rows, event by event."""

from __future__ import annotations

import pytest

from binlake.errors import UnfollowedStatement
from binlake.merge.foreign_keys.acted_rows import (
    AFTER_ALL,
    BEFORE_ALL,
    DEEPEST,
    ActingKey,
    LogPlace,
    ParentEvent,
    RowChange,
    RowStretch,
    changes_of,
)
from binlake.schema.cascades import Action, Cascade
from binlake.schema.table import TableName

NAME = TableName("d", "t")


def key(delete: Action, update: Action = "CASCADE", *, to: int | None = None, of: int = 1) -> ActingKey:
    """A foreign key of one column, whose place is ``of``; ``to``: that of the same table to which it refers."""
    cascade = Cascade(NAME, NAME, "k", ("c",), ("r",), delete, update)
    return ActingKey(cascade, (of,), None if to is None else (to,))


def at(offset: int) -> LogPlace:
    return (1, offset, 0, 0, 0)


def row(*values: int | None, since: LogPlace = BEFORE_ALL, upto: LogPlace = AFTER_ALL) -> RowStretch:
    return RowStretch(since, upto, values)


def gone(offset: int, old: int, number: int = 0) -> ParentEvent:
    return ParentEvent(at(offset), number, True, (old,), (None,))


def test_an_event_acts_within_a_rows_time_alone() -> None:
    rows = [row(1, 7, upto=at(5)), row(2, 7, since=at(5)), row(3, 7), row(4, 7, since=at(6))]
    changes, own = changes_of(NAME, rows, [gone(5, 7)], [key("CASCADE")])
    assert changes == [RowChange(2, at(5), True, (3, 7), (3, 7))]
    assert own == []


def test_events_follow_each_other_as_the_log_has_them() -> None:
    moved = ParentEvent(at(1), 0, False, (7,), (8,))
    changes, _ = changes_of(NAME, [row(1, 7)], [gone(3, 7), gone(2, 8), moved], [key("SET NULL")])
    assert changes == [RowChange(0, at(1), False, (1, 7), (1, 8)), RowChange(0, at(2), False, (1, 8), (1, None))]


def test_several_keys_act_at_one_place_as_one_change() -> None:
    keys = [key("SET NULL", of=1), key("SET NULL", of=2)]
    changes, _ = changes_of(NAME, [row(1, 7, 7)], [gone(1, 7), gone(1, 7, 1)], keys)
    assert changes == [RowChange(0, at(1), False, (1, 7, 7), (1, None, None))]


def test_a_row_that_goes_at_a_deeper_level_goes() -> None:
    keys = [key("SET NULL", of=1), key("CASCADE", to=0, of=2)]
    rows = [row(1, None, 9), row(2, 9, 1)]
    changes, own = changes_of(NAME, rows, [gone(1, 9), gone(1, 9, 1)], keys)
    assert changes == [
        RowChange(0, at(1), True, (1, None, 9), (1, None, 9)), RowChange(1, at(1), True, (2, 9, 1), (2, None, 1)),
    ]  # fmt: skip
    assert [event.old for event in own] == [(1,), (2,)]


def test_a_chain_ends_at_the_deepest_level() -> None:
    chain = [row(number, number - 1) for number in range(1, DEEPEST + 2)]
    keys = [key("CASCADE", to=0)]
    changes, _ = changes_of(NAME, chain[:DEEPEST], [gone(1, 0)], keys)
    assert len(changes) == DEEPEST
    with pytest.raises(UnfollowedStatement, match="more than 256 levels"):
        changes_of(NAME, chain, [gone(1, 0)], keys)
