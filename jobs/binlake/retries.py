"""Trying again what failed and may succeed later: how often, and after which pauses."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Pause = Callable[[int], float]
"""Seconds to wait, by how often it failed so far: 1 after the first failure."""
Passing = type[Exception] | Callable[[Exception], bool]
"""The errors after which the same call can succeed: their class, or a function that returns whether an error is one."""
Tried = TypeVar("Tried")


def steady(seconds: float) -> Pause:
    """Return pauses that are all alike."""
    return lambda failures: seconds


def growing(first: float) -> Pause:
    """Return pauses that grow by ``first`` seconds each."""
    return lambda failures: first * failures


def doubling(first: float, most: float) -> Pause:
    """Return pauses that double from ``first`` to ``most`` seconds."""
    return lambda failures: min(first * 2.0 ** min(failures - 1, 16), most)


def at_random(pause: Pause, least: float = 0.0) -> Pause:
    """Return random parts of pauses, from the share ``least`` on, so that processes don't try at the same time."""
    return lambda failures: random.uniform(least, 1) * pause(failures)


@dataclass(frozen=True)
class Retries:
    """How often something is tried.

    pause: between two tries. attempts: the most tries; None for no limit. seconds: after them no further try begins;
    None for no limit. One of both is set.
    """

    pause: Pause
    attempts: int | None = None
    seconds: float | None = None

    def call(
        self,
        do: Callable[[], Tried],
        passing: Passing,
        *,
        say: Callable[[Exception, int, float], None] = lambda error, failures, seconds: None,
        wait: Callable[[float], None] | None = None,
    ) -> Tried:
        """Call ``do``, again after errors that pass, and return what it returns. Raises its last error.

        say: called before each pause with the error, the number of failures, and the seconds of the pause. wait: sleeps
        for some seconds; None for time.sleep.
        """
        began, failures = time.monotonic(), 0
        passes = (lambda error: isinstance(error, passing)) if isinstance(passing, type) else passing
        while True:
            try:
                return do()
            except Exception as error:
                failures += 1
                if self._is_over(failures, began) or not passes(error):
                    raise
                seconds = self.pause(failures)
                say(error, failures, seconds)
            (wait or time.sleep)(seconds)

    def until(self, ask: Callable[[], Tried | None]) -> Tried | None:
        """Call ``ask`` until it returns something else than None, and return that; None where it never does."""
        began, failures = time.monotonic(), 0
        while (answer := ask()) is None:
            failures += 1
            if self._is_over(failures, began):
                return None
            time.sleep(self.pause(failures))
        return answer

    def _is_over(self, failures: int, began: float) -> bool:
        is_late = self.seconds is not None and time.monotonic() - began > self.seconds
        return failures == self.attempts or is_late
