"""spark-submit stage.py --config FILE: stage the open batch's mutations as Parquet."""

import sys

from binlake import pipeline
from binlake.job import script
from binlake.phases import outcomes


def work(run: script.Job) -> outcomes.StepOutcome:
    """Stage the open batch."""
    return pipeline.stage(run.config, run.origin, run.session, run.report)


if __name__ == "__main__":
    sys.exit(script.run(script.parser("stage"), work))
