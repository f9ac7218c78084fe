"""The relay continues counting arrivals, whatever one look ends in."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

from binlake.errors import LakeError
from binlake.relay.serve import _follow


class Core:
    """arrive: raises one error after the other, then counts. save: does nothing."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.arrived = 0

    def arrive(self) -> None:
        if self._errors:
            raise self._errors.pop(0)
        self.arrived += 1

    def save(self) -> None:
        """Nothing changed."""


def test_a_look_that_fails_is_said_and_repeated() -> None:
    core = Core(LakeError("the disk is away", remedy="wait"), ValueError("odd"), ValueError("odd"))
    said: list[str] = []

    async def follow_a_moment() -> None:
        with ThreadPoolExecutor(1) as executor:
            served, report = SimpleNamespace(executor=executor), SimpleNamespace(say=said.append)
            follower = asyncio.create_task(_follow(cast("Any", served), cast("Any", core), 0.001, cast("Any", report)))
            while not core.arrived and not follower.done():
                await asyncio.sleep(0.001)
            follower.cancel()

    asyncio.run(follow_a_moment())
    assert core.arrived
    assert ["the disk is away" in said[0], "ValueError: odd" in said[1], len(said)] == [True, True, 2]
