"""Operations that happen to a mirrored server or its lake: each is a generator that does something, yields while it is
in effect, and ends it where others would.

An operation is drawn by its name, and draws what it does by the source's own chance.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from operated_source import OperatedSource

Effect = Iterator[None]
SeenBy = Literal["sync", "verify"]


@dataclass(frozen=True)
class Operation:
    """What can happen.

    kinds: on which servers. seen_by: the command that must see what it did to the lake: a sync reads no data file
    that it doesn't change. stops_writes: nobody else can write while it is in effect.
    """

    name: str
    begin: Callable[[OperatedSource], Effect]
    kinds: tuple[str, ...] = ("mysql", "mariadb")
    seen_by: SeenBy = "sync"
    stops_writes: bool = False


OPERATIONS: dict[str, Operation] = {}


def operation(
    *kinds: str, seen_by: SeenBy = "sync", stops_writes: bool = False
) -> Callable[[Callable[[OperatedSource], Effect]], Callable[[OperatedSource], Effect]]:
    """Register a generator as an operation under its name."""

    def register(begin: Callable[[OperatedSource], Effect]) -> Callable[[OperatedSource], Effect]:
        name = begin.__name__.replace("_", " ")
        OPERATIONS[name] = Operation(name, begin, kinds or ("mysql", "mariadb"), seen_by, stops_writes)
        return begin

    return register


def of_kind(kind: str) -> list[Operation]:
    """Return the operations that there are on a kind of server."""
    for module in ("server_operations", "log_operations", "lake_operations"):
        importlib.import_module(module)
    return [each for each in OPERATIONS.values() if kind in each.kinds]
