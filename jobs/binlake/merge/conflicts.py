"""Commits that conflict with another's: which errors say so, and how often a step is tried."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from deltalake.exceptions import CommitFailedError

_TRIES, _PAUSE = 5, 1.0
"""How often a step is tried that conflicts with somebody's commit, and the first pause between two, in seconds."""


def conflicts() -> tuple[type[Exception], ...]:
    """Return the errors of a commit that conflicts with another's. Delta's own are raised by Spark alone."""
    if "pyspark" not in sys.modules:
        return (CommitFailedError,)
    from binlake.merge.lake_table import CONFLICTS

    return CONFLICTS


def tried(commit: Callable[[], None], is_done: Callable[[], bool]) -> None:
    """Commit, and begin again where another commit came between. is_done: tells whether the commit is there, which a
    run that lost its lease may have made."""
    for attempt in range(_TRIES):
        try:
            commit()
            return
        except conflicts():
            if is_done():
                return
            if attempt + 1 == _TRIES:
                raise
        time.sleep(_PAUSE * (attempt + 1))
