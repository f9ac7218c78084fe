"""The lease, held for moments while no batch is open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from binlake.errors import UsageError
from binlake.metadata import lease
from binlake.metadata.lease import Lease
from binlake.metadata.metadata import Metadata

_LOOK_AGAIN = 1.0


@contextmanager
def held_between_batches(metadata: Metadata, patience: float) -> Iterator[Lease]:
    """Hold the lease for a moment, once no batch is open: a sync in Airflow gives it back between its steps.

    patience: seconds to wait. Raises UsageError where a batch stays open, LeaseHeld.
    """
    until = time.monotonic() + patience
    while True:
        with lease.held(metadata, patience=max(0.0, until - time.monotonic()), brief=True) as held:
            opened = held.control().open
            if opened is None:
                yield held
                return
        if time.monotonic() >= until:
            raise UsageError(
                f"batch {opened.batch} is open ({opened.state}) and nobody carries it on",
                remedy="run binlake sync to finish it, then maintain",
            )
        time.sleep(_LOOK_AGAIN)
