"""How far behind the lake was in each period of time, from what was recorded. Pure.

Commits are in the lake once a batch that has them is recorded. A look at the server that found nothing beyond a
recorded batch proves the same without a batch. Between two such moments it isn't known whether anything new was there,
so each number is the most that the lake can have been behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    """Moments from which on the lake has every commit before a time. at_us, before_us: of the same length."""

    at_us: Times
    before_us: Times

    @classmethod
    def by(cls, batches: Batches, looks: Sequence[tuple[int, int]]) -> Carried:
        """Return the moments that batches and looks prove.

        looks: when the server was looked at and had nothing beyond what was planned, and the newest batch then. It
        proves nothing unless that batch was recorded, which holds of those before all of ``batches``.
        """
        recorded = dict(zip(batches.number.tolist(), batches.recorded_us.tolist(), strict=True))
        oldest = min(recorded, default=0)
        proving = [at for at, batch in looks if batch < oldest or recorded.get(batch, at + 1) <= at]
        return cls(
            np.concatenate([batches.recorded_us, np.array(proving, np.int64)]),
            np.concatenate([batches.before_us, np.array(proving, np.int64)]),
        )

    def also(self, at_us: int, before_us: int) -> Carried:
        """Return these with one more moment."""
        return Carried(np.append(self.at_us, at_us), np.append(self.before_us, before_us))


def most_behind(periods: Periods, carried: Carried, now_us: int) -> list[float | None]:
    """Return the most seconds that the lake was behind in each period; None before anything is known."""
    most: list[float | None] = [None] * periods.count
    if not len(carried.at_us):
        return most
    order = np.argsort(carried.at_us, kind="stable")
    at, before = carried.at_us[order], np.maximum.accumulate(carried.before_us[order])
    # The lake falls behind until the moment at which something is carried, and until a period ends.
    for moment, known in zip(at[1:].tolist(), before[:-1].tolist(), strict=True):
        _note(most, periods, moment, known)
    ends = [min(periods.since_us + (at + 1) * periods.width_us, now_us) for at in range(periods.count)]
    places: Sequence[int] = (np.searchsorted(at, np.array(ends), side="right") - 1).tolist()
    for end, place in zip(ends, places, strict=True):
        if place >= 0:
            _note(most, periods, end - 1, int(before[place]))
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
