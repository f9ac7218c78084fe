"""spark-submit merge.py --config FILE: merge the open batch's mutations into the Delta tables."""

import sys

from binlake import pipeline
from binlake.job import script
from binlake.phases import outcomes


def work(run: script.Job) -> outcomes.StepOutcome:
    """Stage the open batch where that is needed, and merge it."""
    # A merge that found a staged file damaged left the batch to be staged again; otherwise this does nothing.
    pipeline.stage(run.config, run.origin, run.session, run.report)
    return pipeline.merge(run.config, run.session, run.report)


if __name__ == "__main__":
    sys.exit(script.run(script.parser("merge"), work))
