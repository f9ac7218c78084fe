"""A batch that an earlier run began: it is finished before another one is planned."""

from __future__ import annotations

from binlake.config import PipelineConfig
from binlake.lease import lease
from binlake.lease.lease import OpenBatch
from binlake.phases.outcomes import PlanOutcome
from binlake.store.metadata import metadata_of


def begun_before(begun: OpenBatch) -> PlanOutcome:
    """Return what a plan gives where a batch was begun before."""
    stop = begun.range.stop
    message = f"batch {begun.batch} was begun before ({begun.state}): it is finished first, up to {stop.short}"
    return PlanOutcome(begun.batch, False, str(stop), message, unfinished=True)


def unfinished(config: PipelineConfig) -> PlanOutcome:
    """Return the batch that an earlier run left open; ``empty`` where there is none. Needs neither server nor Spark."""
    with lease.held(metadata_of(config)) as held:
        control = held.control()
        if control.open is not None:
            return begun_before(control.open)
        return PlanOutcome(control.batch, True, str(control.position or ""), "no batch is unfinished")
