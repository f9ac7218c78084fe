"""Commits that conflict with another's: which errors say so, and how often a step is tried."""

from __future__ import annotations

import sys
from collections.abc import Callable

from deltalake.exceptions import CommitFailedError

from binlake.retries import Retries, growing

_TRYING = Retries(growing(1.0), attempts=5)
"""A step that conflicts with somebody's commit."""


def conflicts() -> tuple[type[Exception], ...]:
    """Return the errors of a commit that conflicts with another's. Delta's own are raised by Spark alone."""
    if "pyspark" not in sys.modules:
        return (CommitFailedError,)
    from binlake.merge.lake_table import CONFLICTS

    return CONFLICTS


def tried(commit: Callable[[], None], is_done: Callable[[], bool]) -> None:
    """Commit, and begin again where another commit came between. is_done: returns whether the commit is there, which a
    run that lost its lease may have made."""

    def unless_done() -> None:
        try:
            commit()
        except conflicts():
            if not is_done():
                raise

    _TRYING.call(unless_done, lambda error: isinstance(error, conflicts()))
