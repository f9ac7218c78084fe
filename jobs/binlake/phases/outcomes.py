"""Outcomes of a batch's steps: what a plan gave, and how a step ended."""

from __future__ import annotations

from dataclasses import dataclass

from binlake.store.run_rows import TableRun


@dataclass(frozen=True)
class PlanOutcome:
    """The batch that is to be carried on, or the proof that there is none.

    empty: nothing new up to ``position``. unfinished: an older batch must be finished first. merged_by: where the range
    is empty because it was to stop before a time, the batch that merged what was committed before that time; None where
    none is known, or a snapshot had it. tables: the tables that the YAML reads in another way than before, and what
    becomes of them; and included tables that were found to be missing. standing_still: where there is nothing new, the
    tables that don't follow, though nobody decided so.
    """

    batch: int | None
    empty: bool
    position: str
    message: str
    unfinished: bool = False
    merged_by: int | None = None
    tables: tuple[TableRun, ...] = ()
    standing_still: tuple[TableRun, ...] = ()


@dataclass(frozen=True)
class StepOutcome:
    """How a step of a batch ended. mutations: how many it staged or merged."""

    batch: int | None
    mutations: int
    message: str
