"""Failed runs, as rows of ``runs``: readers of a lake see them without the logs of the processes that failed.

Their kind and outcome are ``failed``; ``phases`` has the phase that failed, with its seconds. No row's value and no
secret is written: of an error that isn't binlake's, its kind alone.
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
from binlake.errors import BinlakeError, LakeGone, LeaseHeld, NoBinlog, SparkNeeded, UsageError
from binlake.lease import lease
from binlake.records import missing_log
from binlake.store.metadata import Metadata, metadata_of, now_us
from binlake.store.run_rows import RunRow

FAILED = "failed"
_NO_FAILURES = (LakeGone, LeaseHeld, SparkNeeded, UsageError)
"""Errors that are no failures: of a run that waits, needs Spark or was asked for the impossible, and of a lost lake."""
_MOST_LETTERS = 2000
_NOTED = "_noted_as_failure"

_Asked = ParamSpec("_Asked")
_Given = TypeVar("_Given")


def noted(phase: str) -> Callable[[Callable[_Asked, _Given]], Callable[_Asked, _Given]]:
    """Decorate a function so that its errors are noted as failed runs, and raised again.

    The function has the source's settings among its arguments. Where it has the lease, too, and lost it, nothing is
    noted, as the failure comes of the loss. An error that passes several such functions is noted once, by the
    innermost.
    """

    def decorated(function: Callable[_Asked, _Given]) -> Callable[_Asked, _Given]:
        @functools.wraps(function)
        def run(*arguments: _Asked.args, **named: _Asked.kwargs) -> _Given:
            began_us = now_us()
            try:
                return function(*arguments, **named)
            except Exception as error:
                config = next(argument for argument in arguments if isinstance(argument, PipelineConfig))
                if not isinstance(error, _NO_FAILURES) and not hasattr(error, _NOTED) and not _lost_lease(arguments):
                    metadata = metadata_of(config)
                    note(metadata, phase, _said(error), began_us)
                    if isinstance(error, NoBinlog):
                        missing_log.note(metadata, error)
                    setattr(error, _NOTED, True)
                raise

        return run

    return decorated


def _lost_lease(arguments: tuple[object, ...]) -> bool:
    """Return whether a lease is among the arguments that another run has by now."""
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
    return str(error) if isinstance(error, BinlakeError) else f"unexpected {type(error).__name__}; the log says more"


def note(metadata: Metadata, phase: str, message: str, began_us: int) -> None:
    """Note a failed run. It raises nothing, and writes nothing where no lake was begun."""
    with suppress(BinlakeError):
        if not opened_tables.is_table(metadata.location("lease")):
            return
        control, ended_us = lease.read(metadata), now_us()
        row = RunRow(
            run=run_of_airflow() or uuid.uuid4().hex,
            kind=FAILED,
            batch=control.open.batch if control.open else None,
            started_us=began_us,
            ended_us=ended_us,
            outcome=FAILED,
            phases=json.dumps({phase: round((ended_us - began_us) / 1e6, 3)}),
            message=message[:_MOST_LETTERS],
        )
        RunRow.append(metadata, [row])


def note_death(metadata: Metadata, phase: str, began_us: int) -> None:
    """Note that a process died which could note nothing itself, unless a failure was noted since it began."""
    with suppress(BinlakeError):
        if not RunRow.count(metadata, f"kind = '{FAILED}' AND ended_us >= {began_us}"):
            note(metadata, phase, "its process died: killed, out of memory, or Spark itself didn't start", began_us)


def run_of_airflow() -> str | None:
    """Return ``DAG/RUN`` in a task of Airflow, or in a job that one started; else None."""
    ids = [os.environ.get(f"AIRFLOW_CTX_{name}") for name in ("DAG_ID", "DAG_RUN_ID")]
    return "/".join(map(str, ids)) if all(ids) else None
