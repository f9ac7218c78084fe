"""Lives that ended in a batch: their steps are skipped where no result of them would stay visible.

A path holds what the last table to take it made of it: a CREATE or a move there replaces whatever lay before. The last
rows of a dropped table stay visible at its path (``on_drop_table: keep``), unless another table took the path in the
same batch, or the folder is removed when the batch is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from binlake.batch.steps import CreateStep, LeaveStep, MoveStep, TableSteps
from binlake.schema.table import TableName


def skip_unseen(tables: Collection[TableSteps], goes_when_dropped: Callable[[TableName], bool]) -> None:
    """Remove the steps of lives that ended and of which nothing is left at any path; all others keep theirs.

    A life's steps are all removed or none, so that the numbers of the rest don't change. goes_when_dropped: tells
    whether a dropped table's folder is removed.
    """
    ended = [table for table in tables if table.life.status == "dropped" and table.steps]
    # A living table of the name has taken the path since: the folder stays, and shows that table.
    going = {table.life.name for table in ended if goes_when_dropped(table.life.name)}
    taken: dict[TableName, int] = {}
    for table in tables:
        for name, turn, takes in _places(table):
            if takes:
                taken[name] = max(turn, taken.get(name, turn))
    for table in ended:
        last = {name: turn for name, turn, _ in _places(table)}
        if not any(turn >= taken.get(name, turn) for name, turn in last.items() if name not in going):
            table.steps, table.turns = [], []


def _places(table: TableSteps) -> Iterator[tuple[TableName, int, bool]]:
    """Yield for each step: the name at whose path it works, its turn, and whether it takes the path from others."""
    name = table.begins
    for step, turn in zip(table.steps, table.turns, strict=True):
        match step:
            case MoveStep(_, new):
                name = new
                yield name, turn, True
            case LeaveStep(old, _):
                yield old, turn, False
            case _:
                yield name, turn, isinstance(step, CreateStep)
