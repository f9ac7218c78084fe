"""Attempts that failed, as rows of ``runs``: who looks at a lake sees them without the logs of whoever tried.

Their kind and outcome are ``failed``; ``phases`` has the phase that failed, with its seconds. No value of a row and no
secret is told: of an error that isn't ours, its kind alone.
"""

from __future__ import annotations

import functools
import json
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

from binlake.config import PipelineConfig
from binlake.delta import opened_tables
from binlake.errors import BinlakeError, LakeGone, LeaseHeld, SparkNeeded, UsageError
from binlake.metadata import lease
from binlake.metadata.metadata import Metadata, metadata_of, now_us

FAILED = "failed"
_NO_FAILURES = (LakeGone, LeaseHeld, SparkNeeded, UsageError)
"""Who waits, asks for Spark, or asked for what can't be, hasn't failed; and what is gone can't be written to."""
_MOST_LETTERS = 2000
_NOTED = "_noted_as_failure"

_Asked = ParamSpec("_Asked")
_Given = TypeVar("_Given")


def noted(phase: str) -> Callable[[Callable[_Asked, _Given]], Callable[_Asked, _Given]]:
    """Write down what a function raises, and let it go on.

    The function has the source's settings among its arguments. Where it has the lease, too, and lost it, nothing is
    written down: what fails then comes of the loss. An error that came through several such functions is written down
    once, where it came from.
    """

    def decorated(function: Callable[_Asked, _Given]) -> Callable[_Asked, _Given]:
        @functools.wraps(function)
        def run(*arguments: _Asked.args, **named: _Asked.kwargs) -> _Given:
            began_us = now_us()
            try:
                return function(*arguments, **named)
            except Exception as error:
                config = next(one for one in arguments if isinstance(one, PipelineConfig))
                if not isinstance(error, _NO_FAILURES) and not hasattr(error, _NOTED) and not _lost_lease(arguments):
                    note(metadata_of(config), phase, _said(error), began_us)
                    setattr(error, _NOTED, True)
                raise

        return run

    return decorated


def _lost_lease(arguments: tuple[object, ...]) -> bool:
    """Tell whether a lease is among the arguments that another run has by now."""
    try:
        for argument in arguments:
            if isinstance(argument, lease.Lease):
                argument.check()
    except LeaseHeld:
        return True
    except BinlakeError:  # the metadata can't be read: the failure stays this run's own
        return False
    return False


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, BinlakeError) else f"unexpected {type(error).__name__}; the log tells more"


def note(metadata: Metadata, phase: str, message: str, began_us: int) -> None:
    """Holds nothing up, and writes nothing where no lake was begun."""
    with suppress(BinlakeError):
        if not opened_tables.is_table(metadata.location("lease")):
            return
        control, ended_us = lease.read(metadata), now_us()
        row = {
            "run": _run_of_airflow() or uuid.uuid4().hex,
            "kind": FAILED,
            "batch": control.open.batch if control.open else None,
            "started_us": began_us,
            "ended_us": ended_us,
            "outcome": FAILED,
            "tables": "[]",
            "phases": json.dumps({phase: round((ended_us - began_us) / 1e6, 3)}),
            "message": message[:_MOST_LETTERS],
        }
        metadata.append("runs", [row])


def note_death(metadata: Metadata, phase: str, began_us: int) -> None:
    """Of a process that could say nothing, unless something was noted since it began."""
    with suppress(BinlakeError):
        if not metadata.count("runs", f"kind = '{FAILED}' AND ended_us >= {began_us}"):
            note(metadata, phase, "its process died: killed, out of memory, or Spark itself didn't start", began_us)


def _run_of_airflow() -> str | None:
    """``DAG/RUN`` where a task of Airflow's is at work, or a job that one started."""
    found = [os.environ.get(f"AIRFLOW_CTX_{name}") for name in ("DAG_ID", "DAG_RUN_ID")]
    return "/".join(map(str, found)) if all(found) else None
