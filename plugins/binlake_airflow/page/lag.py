"""How far behind the lake was in each period of time, from what was recorded. Pure.

Commits are in the lake once a batch that has them is recorded. A look at the server that found nothing beyond a
recorded batch proves the same without a batch, and that nothing was written since that batch was planned. Between
other such moments it isn't known whether anything new was there, so each number is the most that the lake can have been
behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from binlake_airflow.page.charts import Periods

Times = NDArray[np.int64]


@dataclass(frozen=True)
class Batches:
    """Recorded batches: their numbers, when they were recorded, and the times before which they have every commit."""

    number: Times
    recorded_us: Times
    before_us: Times


@dataclass(frozen=True)
class Carried:
    """Moments from which on the lake has every commit before a time. batch: that it had then; -1 where that isn't
    known. is_look: whether a look at the server says so. All are of the same length."""

    at_us: Times
    before_us: Times
    batch: Times
    is_look: NDArray[np.bool_]

    @classmethod
    def by(cls, batches: Batches, looks: Sequence[tuple[int, int]]) -> Carried:
        """Return the moments that batches and looks prove.

        looks: when the server was looked at and had nothing beyond what was planned, and the newest batch then. It
        proves nothing unless that batch was recorded, which holds of those before all of ``batches``.
        """
        recorded = dict(zip(batches.number.tolist(), batches.recorded_us.tolist(), strict=True))
        oldest = min(recorded, default=0)
        proving = [(at, batch) for at, batch in looks if batch < oldest or recorded.get(batch, at + 1) <= at]
        times, numbers = (np.array([look[part] for look in proving], np.int64) for part in (0, 1))
        return cls(
            np.concatenate([batches.recorded_us, times]),
            np.concatenate([batches.before_us, times]),
            np.concatenate([batches.number, numbers]),
            np.concatenate([np.zeros(len(batches.number), np.bool_), np.ones(len(times), np.bool_)]),
        )

    def also(self, at_us: int, before_us: int) -> Carried:
        """Return these with one more moment."""
        values = ((self.at_us, at_us), (self.before_us, before_us), (self.batch, -1), (self.is_look, False))
        return Carried(*(np.append(known, value) for known, value in values))

    def as_batches(self) -> Carried:
        """Return these without what looks prove of the time before them."""
        return replace(self, is_look=np.zeros_like(self.is_look))

    def ordered(self) -> Carried:
        """Return these by time."""
        order = np.argsort(self.at_us, kind="stable")
        return Carried(self.at_us[order], self.before_us[order], self.batch[order], self.is_look[order])


def most_behind(periods: Periods, carried: Carried, now_us: int, lag_now: float | None = None) -> list[float | None]:
    """Return the most seconds that the lake was behind in each period; None before anything is known. lag_now: how far
    it is behind by what else is known."""
    most: list[float | None] = [None] * periods.count
    if not len(carried.at_us):
        return most
    known = carried.ordered()
    at, before = known.at_us, np.maximum.accumulate(known.before_us)
    # Nothing was written between a batch and a look that found nothing beyond it.
    quiet = [False, *(known.is_look[1:] & (known.batch[1:] == known.batch[:-1])).tolist(), lag_now == 0]
    # The lake falls behind until the moment at which something is carried, and until a period ends.
    for place in range(1, len(at)):
        _note(most, periods, int(at[place]), int(at[place] if quiet[place] else before[place - 1]))
    ends = [min(periods.since_us + (at + 1) * periods.width_us, now_us) for at in range(periods.count)]
    places: Sequence[int] = (np.searchsorted(at, np.array(ends), side="right") - 1).tolist()
    newest_us = int(before[-1]) if lag_now is None else now_us - round(lag_now * 1e6)
    for end, place in zip(ends, places, strict=True):
        if place >= 0:
            carried_us = newest_us if place == len(at) - 1 else int(before[place])
            _note(most, periods, end - 1, end if quiet[place + 1] else min(end, carried_us))
    return most


def _note(most: list[float | None], periods: Periods, moment_us: int, before_us: int) -> None:
    index = (moment_us - periods.since_us) // periods.width_us
    if 0 <= index < periods.count:
        most[index] = max(most[index] or 0.0, (moment_us - before_us) / 1e6)


def headroom(
    periods: Periods, behind: Sequence[float | None], looks: Sequence[tuple[int, float | None]]
) -> list[float | None]:
    """Return the seconds for which the server at least still kept the log that was needed next; None if unknown.

    behind: of each period, see most_behind. looks: when the server was looked at, and for how many hours it keeps a
    file; None for ever. The oldest look counts also for the time before it.
    """
    left: list[float | None] = []
    ordered = sorted(looks)
    newest = 0
    for index, seconds in enumerate(behind):
        end = periods.since_us + (index + 1) * periods.width_us
        while newest + 1 < len(ordered) and ordered[newest + 1][0] < end:
            newest += 1
        hours = ordered[newest][1] if ordered else None
        left.append(None if hours is None or seconds is None else max(0.0, hours * 3600 - seconds))
    return left
